/* fiber.h: a block of a kernel's threads on one thread of the CPU: each has a stack of its own and runs until it comes to a
 * barrier or a shuffle; it goes on when its warp, or the block, has come there too. A block whose threads do not all come there is a
 * bug in the kernel and ends the program with the place's kind. One block at a time per thread of the CPU. x86-64 only. */
#ifndef NTX_TESTS_CUDA_FIBER_H
#define NTX_TESTS_CUDA_FIBER_H

#include <stddef.h>
#include <stdint.h>

struct ntx_fiber_block {
    uint32_t x, y, z, threads;
};

/* backwards: threads run in descending order between barriers. A kernel without a race gives the same bits both ways. */
void ntx_fiber_run(const struct ntx_fiber_block *b, void (*fn)(const void *args), const void *args, int backwards);
void ntx_fiber_free(void); /* this thread's stacks */

/* For the threads inside. */
uint32_t ntx_fiber_tid(void);
const struct ntx_fiber_block *ntx_fiber_block(void);
void ntx_fiber_sync(void);
void ntx_fiber_xor(void *v, size_t n, uint32_t mask); /* the value of lane ^ mask; n <= 16 */
void ntx_fiber_all(const void *v, size_t n, void *all); /* the values of the warp's 32 threads, all of which are there; n <= 16 */

#endif
