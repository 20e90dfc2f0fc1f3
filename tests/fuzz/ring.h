/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h: the two halves of fuzz_ring. */
#ifndef NTX_TESTS_FUZZ_RING_H
#define NTX_TESTS_FUZZ_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ntx_region;
struct ntx_stream;

void fuzz_demands_init(void);
void fuzz_demands(const uint8_t *data, size_t size, bool groups);
/* Plays the next step of iod while ntx-computed waits for a word. False: no demands are being played. */
bool fuzz_demands_wait(void);

/* iod is dead, and its reads have landed: a healthy iod (iod/core.c) starts from the present words. Until
 * fuzz_successor_gone() it answers whenever the engine waits; if it has nothing to do, the wait fails. */
void fuzz_successor(struct ntx_stream *s, const struct ntx_region *r);
void fuzz_successor_gone(void);

#endif
