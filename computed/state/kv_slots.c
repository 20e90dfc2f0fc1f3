/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/state/kv_slots.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/util.h"

#define HUGE ((uint64_t)2 << 20)

struct size {
    uint64_t bytes;
    uint8_t *base, *map;
    uint64_t map_bytes;
    uint32_t n, n_warm, n_cold;
    /* [n] free slots with memory, the last one released on top; free slots without. */
    uint32_t *warm, *cold;
};

struct ntx__kv_slots {
    struct size *size; /* [n_sizes] */
    uint32_t n_sizes;
    uint64_t most, warm_bytes; /* most: the bound; warm_bytes: of slots with memory, taken or not */
};

static int make_size(struct size *x, const struct ntx__kv_size *of, uint64_t most, bool huge)
{
    x->bytes = of->bytes;
    x->n = (uint32_t)NTX_MIN(most / of->bytes, (uint64_t)of->n);
    x->warm = malloc((x->n + 1) * sizeof *x->warm);
    x->cold = malloc((x->n + 1) * sizeof *x->cold);
    x->map_bytes = x->n * x->bytes + HUGE;
    void *map = x->warm && x->cold ? mmap(NULL, x->map_bytes, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                   : MAP_FAILED;
    if (map == MAP_FAILED)
        return -ENOMEM;
    x->map = map;
    x->base = (uint8_t *)map + (HUGE - (uintptr_t)map % HUGE) % HUGE;
    (void)madvise(map, x->map_bytes,
                  huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* the memory that is returned is less than a huge page */
    while (x->n_cold < x->n) {
        x->cold[x->n_cold] = x->n - 1 - x->n_cold;
        x->n_cold++;
    }
    return 0;
}

int ntx__kv_slots_new(const struct ntx__kv_size *sizes, uint32_t n_sizes, uint64_t most, struct ntx__kv_slots **out)
{
    struct ntx__kv_slots *s = calloc(1, sizeof *s);
    int rc = s && (s->size = calloc(n_sizes, sizeof *s->size)) ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n_sizes && !rc; i++, s->n_sizes++)
        rc = make_size(&s->size[i], &sizes[i], most, n_sizes == 1);
    if (rc) {
        ntx__kv_slots_free(s);
        return rc;
    }
    s->most = most;
    *out = s;
    return 0;
}

void ntx__kv_slots_free(struct ntx__kv_slots *s)
{
    for (uint32_t i = 0; s && s->size && i < NTX_MAX(s->n_sizes, 1u); i++) {
        if (s->size[i].map)
            munmap(s->size[i].map, s->size[i].map_bytes);
        free(s->size[i].warm);
        free(s->size[i].cold);
    }
    free(s ? s->size : NULL);
    free(s);
}

/* Returns the memory of a free slot of another size. */
static bool give_back(struct ntx__kv_slots *s, uint32_t but)
{
    for (uint32_t i = 0; i < s->n_sizes; i++) {
        struct size *x = &s->size[i];
        if (i == but || !x->n_warm || madvise(x->base + x->warm[x->n_warm - 1] * x->bytes, x->bytes, MADV_DONTNEED))
            continue;
        x->cold[x->n_cold++] = x->warm[--x->n_warm];
        s->warm_bytes -= x->bytes;
        return true;
    }
    return false;
}

uint32_t ntx__kv_slots_take(struct ntx__kv_slots *s, uint32_t size)
{
    struct size *x = &s->size[size];
    if (x->n_warm)
        return x->warm[--x->n_warm];
    while (x->n_cold && s->warm_bytes + x->bytes > s->most)
        if (!give_back(s, size))
            return NTX__KV_NO_SLOT;
    if (!x->n_cold)
        return NTX__KV_NO_SLOT;
    s->warm_bytes += x->bytes;
    return x->cold[--x->n_cold];
}

void ntx__kv_slots_leave(struct ntx__kv_slots *s, uint32_t size, uint32_t slot)
{
    s->size[size].warm[s->size[size].n_warm++] = slot;
}

void *ntx__kv_slots_at(const struct ntx__kv_slots *s, uint32_t size, uint32_t slot)
{
    return s->size[size].base + slot * s->size[size].bytes;
}
