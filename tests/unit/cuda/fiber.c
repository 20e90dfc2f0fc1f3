/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/cuda/fiber.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A power of two and an odd number of cache lines, so that the tops of stacks do not all map to the same cache sets. */
#define STACK ((128u << 10) + 17 * 64)

struct world {
    struct ntx_fiber_seen seen;
    void *sp[NTX_FIBERS], *scheduler;
    uint8_t *stacks;
    void (*fn)(const void *args);
    const void *args;
    uint32_t first, n, step;         /* the warp that runs, and what leads from one thread to the next */
    uint32_t came[NTX_FIBER_PLACES]; /* of its threads, since all of them went on */
};

struct ntx_fiber_seen *ntx__fiber_seen;
static pthread_mutex_t one_block = PTHREAD_MUTEX_INITIALIZER;

static struct world *world(void) /* its first member is what all see */
{
    return (struct world *)(void *)ntx__fiber_seen;
}

/* Saves the callee-saved state and resumes where `to` was saved. */
void ntx__fiber_switch(void **from, void *to);
__asm__(".text\n.globl ntx__fiber_switch\n.hidden ntx__fiber_switch\n.type "
        "ntx__fiber_switch,@function\nntx__fiber_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size ntx__fiber_switch,.-ntx__fiber_switch\n");

/* Switches to the warp's next thread without the scheduler; the last thread switches to the scheduler. */
void ntx__fiber_leave(enum ntx_fiber_place at)
{
    struct world *w = world();
    uint32_t i = w->seen.current, next = i + w->step;
    w->came[at]++;
    if (next - w->first < w->n) {
        w->seen.current = next;
        ntx__fiber_switch(&w->sp[i], w->sp[next]);
    } else {
        ntx__fiber_switch(&w->sp[i], w->scheduler);
    }
}

static void body(void)
{
    world()->fn(world()->args);
    ntx__fiber_leave(NTX_FIBER_DONE);
}

static void prepare(struct world *w, uint32_t i)
{
    void **top = (void **)(void *)(w->stacks + (size_t)(i + 1) * STACK);
    top[-1] = NULL;
    top[-2] = (void *)(uintptr_t)body; /* the first switch returns to it, its stack aligned as after a call */
    memset(top - 8, 0, 6 * sizeof *top);
    w->sp[i] = top - 8;
}

/* Runs one warp until all its threads wait for the block or have ended; returns which of the two. */
static enum ntx_fiber_place run_warp(struct world *w, uint32_t first, uint32_t n, int backwards)
{
    w->first = first;
    w->n = n;
    w->step = backwards ? UINT32_MAX : 1;
    do {
        uint32_t i = w->seen.current = backwards ? first + n - 1 : first;
        memset(w->came, 0, sizeof w->came);
        ntx__fiber_switch(&w->scheduler, w->sp[i]);
    } while (n == NTX_FIBER_LANES && w->came[NTX_FIBER_WARP] == n); /* a barrier or a shuffle names all 32 */
    if (w->came[NTX_FIBER_BLOCK] == n)
        return NTX_FIBER_BLOCK;
    if (w->came[NTX_FIBER_DONE] == n)
        return NTX_FIBER_DONE;
    fprintf(stderr, "fiber: the %u threads of the warp at %u, of 32, did not all come to the same barrier or shuffle\n",
            n, first);
    abort();
}

static struct world *make_world(void)
{
    size_t stacks = ((size_t)NTX_FIBERS * STACK + 4095) / 4096 * 4096;
    uint8_t *p = mmap(NULL, stacks + sizeof(struct world), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    struct world *w = (void *)(p + stacks);
    w->stacks = p;
    ntx__fiber_seen = &w->seen;
    return w;
}

void ntx_fiber_free(void)
{
    pthread_mutex_lock(&one_block);
    struct world *w = world();
    if (w)
        munmap(w->stacks, (size_t)((uint8_t *)w - w->stacks) + sizeof *w);
    ntx__fiber_seen = NULL;
    pthread_mutex_unlock(&one_block);
}

void ntx_fiber_run(const struct ntx_fiber_block *b, void (*fn)(const void *args), const void *args, int backwards)
{
    pthread_mutex_lock(&one_block);
    struct world *w = ntx__fiber_seen ? world() : make_world();
    uint32_t n = b->threads, warps = (n + NTX_FIBER_LANES - 1) / NTX_FIBER_LANES, at_block;
    if (!n || n > NTX_FIBERS)
        abort();
    w->seen.block = *b;
    w->fn = fn;
    w->args = args;
    for (uint32_t i = 0; i < n; i++)
        prepare(w, i);
    do {
        at_block = 0;
        for (uint32_t k = 0; k < warps; k++) {
            uint32_t first = (backwards ? warps - 1 - k : k) * NTX_FIBER_LANES;
            at_block += run_warp(w, first, n - first < NTX_FIBER_LANES ? n - first : NTX_FIBER_LANES, backwards) ==
                        NTX_FIBER_BLOCK;
        }
        if (at_block && at_block < warps) {
            fprintf(stderr, "fiber: some threads of the block wait for others that have ended\n");
            abort();
        }
    } while (at_block);
    pthread_mutex_unlock(&one_block);
}
