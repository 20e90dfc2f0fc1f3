/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kit.h: shared by the kernel tests: seeded numbers, memory before an unmapped page, the instruction sets. */
#ifndef NTX_TESTS_LIB_CPU_KIT_H
#define NTX_TESTS_LIB_CPU_KIT_H

#include <math.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "computed/cpu/cpu.h"
#include "tests/lib/check.h"

#define KIT static inline __attribute__((unused))

struct rng {
    uint64_t s;
};

KIT uint32_t rng_u32(struct rng *r)
{
    r->s = r->s * 6364136223846793005u + 1442695040888963407u;
    uint32_t x = (uint32_t)((r->s >> 18 ^ r->s) >> 27), rot = (uint32_t)(r->s >> 59);
    return x >> rot | x << (-rot & 31);
}

KIT float rng_float(struct rng *r) /* about [-1, 1), of many magnitudes */
{
    float f = (float)(int32_t)rng_u32(r) * 0x1p-31f;
    return ldexpf(f, -(int)(rng_u32(r) % 4));
}

/* Memory whose last byte is the last of its page; the next page is unmapped, so that an over-read crashes. */
struct guarded {
    char *map, *end;
    size_t size;
};

KIT struct guarded guard_new(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page + page;
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    CHECK(!mprotect(map + size - page, page, PROT_NONE));
    return (struct guarded){map, map + size - page, size};
}

KIT void guard_free(struct guarded g) { munmap(g.map, g.size); }

/* The k-th instruction set besides generic that this CPU has; NULL after the last. */
KIT const struct ntx_cpu_ops *isa_at(unsigned k)
{
#ifdef NTX_TILES_EMULATED /* tiles.c */
    extern const struct ntx_cpu_ops ntx__cpu_amx;
    return !k && ntx_cpu_pick("avx512") ? &ntx__cpu_amx : NULL;
#endif
    static const char *const names[] = {"avx2", "avx512", "amx", "neon", "i8mm"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const struct ntx_cpu_ops *ops = ntx_cpu_pick(names[i]);
        if (ops && !k--)
            return ops;
    }
    return NULL;
}

KIT void *aligned_bytes(size_t n)
{
    void *p = aligned_alloc(64, (n + 127) / 64 * 64);
    CHECK(p);
    memset(p, 0xa5, (n + 127) / 64 * 64);
    return p;
}

#endif
