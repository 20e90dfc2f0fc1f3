/* kv.c: the pool is one anonymous mapping, advised to huge pages; blocks are handed out from a stack of free numbers.
 * A session's holes are one bitmap per layer, made with the session so that setting one cannot fail. */
#include "infer/kv.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/util.h"

struct ntx_kv_pool {
    uint8_t *base; /* [n_blocks x block_bytes], NTX_KV_CLUSTER blocks after the others (kv.h) */
    uint64_t bytes, block_bytes, layer_bytes;
    enum ntx_kv_type type;
    uint32_t n_layers, n_head_kv;
    size_t row_k, row_v; /* bytes */
    uint32_t n_blocks, n_free;
    uint32_t *free; /* [n_free] block numbers */
};

struct ntx_kv_seq {
    struct ntx_kv_pool *pool;
    uint32_t n_blocks;
    uint32_t *blocks;   /* [n_blocks] */
    uint32_t *n_holes;  /* [n_layers] */
    uint8_t *holes;     /* [n_layers x n_blocks * NTX_KV_BLOCK / 8] */
};

static const char *const type_names[NTX_N_KV] = {[NTX_KV_F16] = "f16", [NTX_KV_Q8_0] = "q8_0"};

const char *ntx_kv_type_name(enum ntx_kv_type type) { return type_names[type]; }

int ntx_kv_type_of(const char *name, const struct ntx_hparams *hp, enum ntx_kv_type *type, struct ntx_err *err)
{
    int t = NTX_KV_F16;
    while (name && *name && t < NTX_N_KV && strcmp(name, type_names[t]))
        t++;
    if (t == NTX_N_KV)
        return ntx_err_set(err, -EINVAL, "'%.60s' is not a type of KV: there are f16 and q8_0", name);
    if (t == NTX_KV_Q8_0 && (hp->head_k % 32 || hp->head_v % 32))
        return ntx_err_set(err, -EINVAL, "KV in q8_0 needs heads of a multiple of 32 values, this model's have %u and %u: leave --kv-type out", hp->head_k, hp->head_v);
    *type = (enum ntx_kv_type)t;
    return 0;
}

_Static_assert(NTX_KV_BLOCK == NTX_KV_Q8_TOKENS, "blocks are cpu.h's");

/* Of one position. */
static size_t row_bytes(enum ntx_kv_type type, uint32_t n)
{
    return type == NTX_KV_F16 ? 2 * (size_t)n : (size_t)n / 32 * 34;
}

static uint64_t layer_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type)
{
    return (uint64_t)hp->n_head_kv * NTX_KV_BLOCK * (row_bytes(type, hp->head_k) + row_bytes(type, hp->head_v));
}

uint64_t ntx_kv_block_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type)
{
    return hp->n_layers * layer_bytes(hp, type);
}

int ntx_kv_pool_new(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t n_blocks, struct ntx_kv_pool **out, struct ntx_err *err)
{
    uint64_t block_bytes = ntx_kv_block_bytes(hp, type), bytes;
    if (!n_blocks || __builtin_mul_overflow(block_bytes, n_blocks, &bytes) || bytes > SIZE_MAX / 2)
        return ntx_err_set(err, -EINVAL, "a KV pool of %u blocks of %llu bytes is not possible", n_blocks, (unsigned long long)block_bytes);
    struct ntx_kv_pool *p = calloc(1, sizeof *p);
    uint32_t *free_list = calloc(n_blocks, sizeof *free_list);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!p || !free_list || base == MAP_FAILED) {
        free(p);
        free(free_list);
        if (base != MAP_FAILED)
            munmap(base, bytes);
        return ntx_err_set(err, -ENOMEM, "no memory for a KV pool of %llu bytes", (unsigned long long)bytes);
    }
    madvise(base, bytes, MADV_HUGEPAGE); /* a refusal costs speed only */
    *p = (struct ntx_kv_pool){
        .base = base, .bytes = bytes, .block_bytes = block_bytes, .layer_bytes = layer_bytes(hp, type), .type = type,
        .n_layers = hp->n_layers, .n_head_kv = hp->n_head_kv, .row_k = row_bytes(type, hp->head_k), .row_v = row_bytes(type, hp->head_v),
        .n_blocks = n_blocks, .n_free = n_blocks, .free = free_list,
    };
    for (uint32_t i = 0; i < n_blocks; i++)
        free_list[i] = n_blocks - 1 - i; /* low blocks first, so that idle ones stay untouched */
    *out = p;
    return 0;
}

void ntx_kv_pool_free(struct ntx_kv_pool *p)
{
    if (!p)
        return;
    munmap(p->base, p->bytes);
    free(p->free);
    free(p);
}

uint32_t ntx_kv_pool_blocks(const struct ntx_kv_pool *p)
{
    return p->n_blocks;
}

uint32_t ntx_kv_pool_used(const struct ntx_kv_pool *p)
{
    return p->n_blocks - p->n_free;
}

static size_t hole_bytes(const struct ntx_kv_seq *s)
{
    return (size_t)s->n_blocks * (NTX_KV_BLOCK / 8);
}

int ntx_kv_seq_new(struct ntx_kv_pool *p, uint32_t n_tokens, struct ntx_kv_seq **out)
{
    uint32_t n = n_tokens ? (n_tokens - 1) / NTX_KV_BLOCK + 1 : 1;
    if (n > p->n_blocks)
        return -ENOSPC;
    if (n > p->n_free)
        return -EAGAIN;
    struct ntx_kv_seq *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->blocks = calloc(n, sizeof *s->blocks);
    s->n_holes = calloc(p->n_layers, sizeof *s->n_holes);
    s->holes = calloc(p->n_layers, (size_t)n * (NTX_KV_BLOCK / 8));
    if (!s->blocks || !s->n_holes || !s->holes) {
        ntx_kv_seq_free(s);
        return -ENOMEM;
    }
    s->pool = p;
    for (; s->n_blocks < n; s->n_blocks++)
        s->blocks[s->n_blocks] = p->free[--p->n_free];
    *out = s;
    return 0;
}

void ntx_kv_seq_free(struct ntx_kv_seq *s)
{
    if (!s)
        return;
    while (s->n_blocks)
        s->pool->free[s->pool->n_free++] = s->blocks[--s->n_blocks];
    free(s->blocks);
    free(s->n_holes);
    free(s->holes);
    free(s);
}

const uint32_t *ntx_kv_seq_blocks(const struct ntx_kv_seq *s, uint32_t *n)
{
    *n = s->n_blocks;
    return s->blocks;
}

uint32_t ntx_kv_seq_room(const struct ntx_kv_seq *s)
{
    return s->n_blocks * NTX_KV_BLOCK;
}

enum ntx_kv_type ntx_kv_seq_type(const struct ntx_kv_seq *s)
{
    return s->pool->type;
}

/* K, or V behind it. */
static void *block_of(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos, bool value)
{
    const struct ntx_kv_pool *p = s->pool;
    uint32_t block = s->blocks[pos / NTX_KV_BLOCK], first = NTX_ROUND_DOWN(block, NTX_KV_CLUSTER);
    size_t tokens = (size_t)NTX_MIN(p->n_blocks - first, (uint32_t)NTX_KV_CLUSTER) * NTX_KV_BLOCK; /* of the cluster */
    uint8_t *at = p->base + first * p->block_bytes + tokens * (layer * (p->layer_bytes / NTX_KV_BLOCK) + head * (p->row_k + p->row_v));
    return at + (value ? tokens * p->row_k : 0) + (size_t)(block - first) * NTX_KV_BLOCK * (value ? p->row_v : p->row_k);
}

void *ntx_kv_k(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos)
{
    return block_of(s, layer, head, pos, false);
}

void *ntx_kv_v(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos)
{
    return block_of(s, layer, head, pos, true);
}

/* ---- one position (layouts: cpu/cpu.h) */

size_t ntx_kv_k_bytes(const struct ntx_kv_seq *s) { return NTX_KV_BLOCK * s->pool->row_k; }
size_t ntx_kv_v_bytes(const struct ntx_kv_seq *s) { return NTX_KV_BLOCK * s->pool->row_v; }

/* Behind n * NTX_KV_BLOCK integers. */
static void copy_scales(const uint8_t *block, uint32_t from, uint8_t *to_block, uint32_t to, size_t n)
{
    for (size_t b = 0; b < n / 32; b++)
        memcpy(to_block + NTX_KV_BLOCK * n + 2 * (b * NTX_KV_BLOCK + to), block + NTX_KV_BLOCK * n + 2 * (b * NTX_KV_BLOCK + from), 2);
}

void ntx_kv_copy_k(const struct ntx_kv_seq *s, const void *block, uint32_t from, void *to_block, uint32_t to)
{
    const uint8_t *x = block;
    uint8_t *y = to_block;
    size_t row = s->pool->row_k, n = row / 34 * 32;
    if (s->pool->type == NTX_KV_F16) {
        memcpy(y + to * row, x + from * row, row);
        return;
    }
    for (size_t i = 0; i < n / 4; i++)
        memcpy(y + 4 * (i * NTX_KV_BLOCK + to), x + 4 * (i * NTX_KV_BLOCK + from), 4);
    copy_scales(x, from, y, to, n);
}

void ntx_kv_copy_v(const struct ntx_kv_seq *s, const void *block, uint32_t from, void *to_block, uint32_t to)
{
    const uint8_t *x = block;
    uint8_t *y = to_block;
    size_t row = s->pool->row_v, n = row / 34 * 32;
    if (s->pool->type == NTX_KV_F16) {
        memcpy(y + to * row, x + from * row, row);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t panel = i / NTX_KV_Q8_PANEL * NTX_KV_Q8_PANEL, width = NTX_MIN(n - panel, (size_t)NTX_KV_Q8_PANEL), at = NTX_KV_BLOCK * panel + 4 * (i - panel);
        y[at + to / 4 * 4 * width + to % 4] = x[at + from / 4 * 4 * width + from % 4];
    }
    copy_scales(x, from, y, to, n);
}

void ntx_kv_move_holes(struct ntx_kv_seq *s, uint32_t from, uint32_t to)
{
    for (uint32_t l = 0; l < s->pool->n_layers; l++) {
        uint8_t *map = s->holes + l * hole_bytes(s), *byte = map + to / 8, bit = (uint8_t)(1u << to % 8);
        bool had = *byte & bit, has = map[from / 8] >> from % 8 & 1;
        if (had != has)
            *byte ^= bit;
        s->n_holes[l] += (uint32_t)has - (uint32_t)had;
    }
}

void ntx_kv_set_hole(struct ntx_kv_seq *s, uint32_t layer, uint32_t pos)
{
    uint8_t *byte = s->holes + layer * hole_bytes(s) + pos / 8, bit = (uint8_t)(1u << pos % 8);
    s->n_holes[layer] += !(*byte & bit);
    *byte |= bit;
}

static uint32_t count_bits(const uint8_t *p, size_t n)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++)
        bits += (uint32_t)__builtin_popcount(p[i]);
    return bits;
}

void ntx_kv_truncate(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    size_t n = hole_bytes(s), first = n_tokens / 8;
    if (first >= n)
        return;
    for (uint32_t l = 0; l < s->pool->n_layers; l++) {
        uint8_t *map = s->holes + l * n;
        if (!s->n_holes[l])
            continue;
        map[first] &= (uint8_t)((1u << n_tokens % 8) - 1);
        memset(map + first + 1, 0, n - first - 1);
        s->n_holes[l] = count_bits(map, n);
    }
}

const uint8_t *ntx_kv_holes(const struct ntx_kv_seq *s, uint32_t layer)
{
    return s->n_holes[layer] ? s->holes + layer * hole_bytes(s) : NULL;
}
