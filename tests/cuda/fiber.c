#include "tests/cuda/fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST 1024u
#define LANES 32u
#define STACK (128u << 10)

enum where { READY, AT_WARP, AT_BLOCK, DONE };

struct fiber {
    void *sp;
    enum where where;
    uint32_t parity;
};

struct world {
    struct fiber fibers[MOST];
    uint8_t swap[2][MOST][16]; /* values of shuffles: two, so that the next one's do not overwrite what a slower lane still reads */
    uint8_t *stacks;
    void *scheduler;
    struct ntx_fiber_block block;
    void (*fn)(const void *args);
    const void *args;
    uint32_t current;
};

static _Thread_local struct world *world;

/* Saves what a function must keep, and goes on where `to` was saved. */
void ntx__fiber_switch(void **from, void *to);
__asm__(".text\n.globl ntx__fiber_switch\n.type ntx__fiber_switch,@function\nntx__fiber_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size ntx__fiber_switch,.-ntx__fiber_switch\n");

static void leave(enum where w)
{
    struct fiber *f = &world->fibers[world->current];
    f->where = w;
    ntx__fiber_switch(&f->sp, world->scheduler);
}

static void body(void)
{
    world->fn(world->args);
    leave(DONE);
}

static void prepare(uint32_t i)
{
    void **top = (void **)(void *)(world->stacks + (size_t)(i + 1) * STACK);
    top[-1] = NULL;
    top[-2] = (void *)(uintptr_t)body; /* the first switch returns to it, its stack aligned as after a call */
    memset(top - 8, 0, 6 * sizeof *top);
    world->fibers[i] = (struct fiber){.sp = top - 8, .where = READY};
}

static void resume(uint32_t i)
{
    world->current = i;
    ntx__fiber_switch(&world->scheduler, world->fibers[i].sp);
}

/* All of [first, first + n) are there? */
static int all(uint32_t first, uint32_t n, enum where w)
{
    for (uint32_t i = first; i < first + n; i++)
        if (world->fibers[i].where != w)
            return 0;
    return 1;
}

static void set_ready(uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        world->fibers[i].where = READY;
}

/* One warp until all of it wait for the block or are through. */
static void run_warp(uint32_t first, uint32_t n, int backwards)
{
    for (;;) {
        for (uint32_t k = 0; k < n; k++) {
            uint32_t i = first + (backwards ? n - 1 - k : k);
            if (world->fibers[i].where == READY)
                resume(i);
        }
        if (!all(first, n, AT_WARP))
            break;
        set_ready(first, n);
    }
    if (!all(first, n, AT_BLOCK) && !all(first, n, DONE)) {
        fprintf(stderr, "fiber: threads of the warp at %u did not all come to the same barrier or shuffle\n", first);
        abort();
    }
}

static void make_world(void)
{
    size_t size = sizeof *world + (size_t)MOST * STACK;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    world = (void *)((uint8_t *)p + (size_t)MOST * STACK);
    world->stacks = p;
}

void ntx_fiber_free(void)
{
    if (!world)
        return;
    munmap(world->stacks, sizeof *world + (size_t)MOST * STACK);
    world = NULL;
}

void ntx_fiber_run(const struct ntx_fiber_block *b, void (*fn)(const void *args), const void *args, int backwards)
{
    uint32_t n = b->threads, warps = (n + LANES - 1) / LANES;
    if (!world)
        make_world();
    if (!n || n > MOST)
        abort();
    world->block = *b;
    world->fn = fn;
    world->args = args;
    for (uint32_t i = 0; i < n; i++)
        prepare(i);
    do {
        if (all(0, n, AT_BLOCK))
            set_ready(0, n);
        for (uint32_t k = 0; k < warps; k++) {
            uint32_t first = (backwards ? warps - 1 - k : k) * LANES;
            run_warp(first, n - first < LANES ? n - first : LANES, backwards);
        }
        if (!all(0, n, AT_BLOCK) && !all(0, n, DONE)) {
            fprintf(stderr, "fiber: some threads of the block wait for others that have ended\n");
            abort();
        }
    } while (!all(0, n, DONE));
}

uint32_t ntx_fiber_tid(void)
{
    return world->current;
}

const struct ntx_fiber_block *ntx_fiber_block(void)
{
    return &world->block;
}

void ntx_fiber_sync(void)
{
    leave(AT_BLOCK);
}

void ntx_fiber_xor(void *v, size_t n, uint32_t mask)
{
    uint32_t i = world->current, p = world->fibers[i].parity ^= 1;
    memcpy(world->swap[p][i], v, n);
    leave(AT_WARP);
    memcpy(v, world->swap[p][i ^ mask], n);
}

void ntx_fiber_all(const void *v, size_t n, void *all)
{
    uint32_t i = world->current, p = world->fibers[i].parity ^= 1;
    memcpy(world->swap[p][i], v, n);
    leave(AT_WARP);
    for (uint32_t lane = 0; lane < LANES; lane++)
        memcpy((uint8_t *)all + lane * n, world->swap[p][i / LANES * LANES + lane], n);
}
