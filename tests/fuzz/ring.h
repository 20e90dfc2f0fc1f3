/* ring.h: the two halves of fuzz_ring. */
#ifndef NTX_TESTS_FUZZ_RING_H
#define NTX_TESTS_FUZZ_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void fuzz_demands_init(void);
void fuzz_demands(const uint8_t *data, size_t size, bool groups);
/* ntx-computed waits for a word: iod does its next step. False: no demands are being played. */
bool fuzz_demands_wait(void);

#endif
