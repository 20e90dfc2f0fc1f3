/* SPDX-License-Identifier: Apache-2.0 */
/* fiber.h: runs a kernel's thread block on one thread of the CPU. Each GPU thread has its own stack and runs until
 * it comes to a barrier or a shuffle; it goes on when its warp, or the block, has come there too. A block whose
 * threads do not all come there is a bug in the kernel and ends the program with the kind of the place. One block of
 * the process runs at a time, so what a block shares is static memory. x86-64 only. */
#ifndef NTX_TESTS_UNIT_CUDA_FIBER_H
#define NTX_TESTS_UNIT_CUDA_FIBER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { NTX_FIBERS = 1024, NTX_FIBER_LANES = 32 };

struct ntx_fiber_block {
    uint32_t x, y, z, threads;
    uint32_t blocks; /* in x */
    uint8_t *shared; /* what the launch gives a block of shared memory; 16-aligned */
};

/* backwards: threads run in descending order between barriers. A kernel without a race gives the same bits both ways.
 * */
void ntx_fiber_run(const struct ntx_fiber_block *b, void (*fn)(const void *args), const void *args, int backwards);
void ntx_fiber_free(void); /* the stacks; the next run makes new ones */

/* Functions for the threads inside. They are inline because kernels do little else. */
enum ntx_fiber_place { NTX_FIBER_WARP, NTX_FIBER_BLOCK, NTX_FIBER_DONE, NTX_FIBER_PLACES };

struct ntx_fiber_seen {
    struct ntx_fiber_block block;
    uint32_t current;
    uint32_t parity[NTX_FIBERS];
    uint8_t swap[2][NTX_FIBERS][16]; /* values of shuffles: two, so that the next one's do not overwrite what a slower
                                        lane still reads */
};

/* The state of the block that runs. */
extern struct ntx_fiber_seen *ntx__fiber_seen __attribute__((visibility("hidden")));
void ntx__fiber_leave(enum ntx_fiber_place at); /* returns when all have come there */

static inline uint32_t ntx_fiber_tid(void) { return ntx__fiber_seen->current; }
static inline const struct ntx_fiber_block *ntx_fiber_block(void) { return &ntx__fiber_seen->block; }
static inline void ntx_fiber_sync(void) { ntx__fiber_leave(NTX_FIBER_BLOCK); }

/* The values of the warp's 32 threads, 16 bytes apart, valid until the next but one shuffle. All threads must take
 * part; n <= 16. */
static inline const uint8_t (*ntx_fiber_all(const void *v, size_t n))[16]
{
    struct ntx_fiber_seen *s = ntx__fiber_seen;
    uint32_t i = s->current, p = s->parity[i] ^= 1;
    memcpy(s->swap[p][i], v, n);
    ntx__fiber_leave(NTX_FIBER_WARP);
    return (const uint8_t(*)[16])s->swap[p] + i / NTX_FIBER_LANES * NTX_FIBER_LANES;
}

/* The value of lane ^ mask; n <= 16. */
static inline void ntx_fiber_xor(void *v, size_t n, uint32_t mask)
{
    uint32_t lane = ntx_fiber_tid() % NTX_FIBER_LANES;
    memcpy(v, ntx_fiber_all(v, n)[lane ^ mask], n);
}

#endif
