/* SPDX-License-Identifier: Apache-2.0 */
/* bench_blocks [POSITIONS [LAYERS [THREADS]]]: what a token's attention reads and takes in a layer of MiniMax-M3 (64
 * heads of 128 on 4 K and V heads, F16): all POSITIONS (100,000), or the 16 blocks of 128 positions whose small keys of
 * 128 values have the largest product with a query for each K and V head, the last block among them. The two alternate
 * over LAYERS (3) of random values, on THREADS (2). CSV of medians: MB and ms a layer, and the ratios. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/util.h"
#include "computed/cpu/pool.h"
#include "computed/state/kv.h"

enum { KV = 4, HEAD = 128, GROUPS = 2 /* of the query heads of a K and V head */, BLOCK = 128, MOST = 16, SOME = 8 };

struct run {
    const struct ntx_cpu_ops *ops;
    const struct ntx_kv_seq *seq;
    uint32_t layer, n_pos, n_blocks;
    const uint16_t *keys; /* [layers x n_pos x HEAD] */
    float *score;         /* [KV x n_blocks] */
    uint32_t selected[KV][MOST];
    _Atomic uint32_t next;
    float q[KV * GROUPS * NTX_ATTN_HEADS * HEAD], out[KV * GROUPS * NTX_ATTN_HEADS * HEAD];
};

static void attend_listed(struct run *r, uint32_t item, const void *const *k, const void *const *v, uint32_t each,
                          uint32_t n_pos)
{
    const size_t at = (size_t)item * NTX_ATTN_HEADS * HEAD, ld = sizeof r->q / sizeof *r->q;
    r->ops->attend[NTX_KV_F16](&(struct ntx_attn){.q = r->q + at,
                                                  .out = r->out + at,
                                                  .n_q = NTX_ATTN_HEADS,
                                                  .n_rows = 1,
                                                  .ld_q = ld,
                                                  .ld_out = ld,
                                                  .k = k,
                                                  .v = v,
                                                  .block_tokens = each,
                                                  .n_pos = n_pos,
                                                  .head_k = HEAD,
                                                  .head_v = HEAD,
                                                  .scale = 1 / sqrtf(HEAD)});
}

static void attend_all(void *ctx, unsigned thread)
{
    struct run *r = ctx;
    const uint32_t n = (r->n_pos + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK;
    const void **k = malloc(2 * n * sizeof *k), **v = k + n;
    (void)thread;
    for (uint32_t i; k && (i = atomic_fetch_add(&r->next, 1)) < KV * GROUPS;) {
        for (uint32_t b = 0; b < n; b++) {
            k[b] = ntx_kv_k(r->seq, r->layer, i / GROUPS, b * NTX_KV_BLOCK);
            v[b] = ntx_kv_v(r->seq, r->layer, i / GROUPS, b * NTX_KV_BLOCK);
        }
        attend_listed(r, i, k, v, NTX_KV_BLOCK, r->n_pos);
    }
    free(k);
}

/* The best product of each block with each query. */
static void score_blocks(void *ctx, unsigned thread)
{
    struct run *r = ctx;
    const uint16_t *key[BLOCK];
    float product[KV * BLOCK];
    (void)thread;
    for (uint32_t i; (i = atomic_fetch_add(&r->next, 1)) < (r->n_blocks + SOME - 1) / SOME;)
        for (uint32_t b = i * SOME; b < NTX_MIN((i + 1) * SOME, r->n_blocks); b++) {
            const uint32_t n = NTX_MIN((uint32_t)BLOCK, r->n_pos - b * BLOCK);
            for (uint32_t p = 0; p < n; p++)
                key[p] = r->keys + ((size_t)r->layer * r->n_pos + b * BLOCK + p) * HEAD;
            r->ops->index(&(struct ntx_index){
                .q = r->q, .ld = BLOCK, .heads = KV, .width = HEAD, .key = key, .score = product, .n = n});
            for (uint32_t h = 0; h < KV; h++) {
                float best = b + 1 == r->n_blocks ? INFINITY : -INFINITY;
                for (uint32_t p = 0; p < n; p++)
                    best = NTX_MAX(best, product[h * BLOCK + p]);
                r->score[h * r->n_blocks + b] = best;
            }
        }
}

static void choose(struct run *r)
{
    for (uint32_t h = 0; h < KV; h++)
        for (uint32_t k = 0; k < MOST; k++) {
            float *score = r->score + (size_t)h * r->n_blocks;
            uint32_t best = 0;
            for (uint32_t b = 1; b < r->n_blocks; b++)
                best = score[b] > score[best] ? b : best;
            r->selected[h][k] = best;
            score[best] = -INFINITY;
        }
}

static void attend_selected(void *ctx, unsigned thread)
{
    struct run *r = ctx;
    const void *k[MOST * BLOCK], *v[MOST * BLOCK];
    (void)thread;
    for (uint32_t i; (i = atomic_fetch_add(&r->next, 1)) < KV * GROUPS;) {
        const uint32_t h = i / GROUPS;
        uint32_t n = 0;
        for (uint32_t b = 0; b < MOST; b++)
            for (uint32_t p = r->selected[h][b] * BLOCK; p < NTX_MIN((r->selected[h][b] + 1) * BLOCK, r->n_pos);
                 p++, n++) {
                const size_t at = p % NTX_KV_BLOCK * HEAD * sizeof(uint16_t);
                k[n] = (const uint8_t *)ntx_kv_k(r->seq, r->layer, h, p) + at;
                v[n] = (const uint8_t *)ntx_kv_v(r->seq, r->layer, h, p) + at;
            }
        attend_listed(r, i, k, v, 1, n);
    }
}

static double token_ms(struct ntx_pool *pool, struct run *r, uint32_t layers, bool blocks)
{
    const uint64_t t0 = ntx_now_ns();
    for (r->layer = 0; r->layer < layers; r->layer++) {
        r->next = 0;
        ntx_pool_run(pool, blocks ? score_blocks : attend_all, r);
        if (!blocks)
            continue;
        choose(r);
        r->next = 0;
        ntx_pool_run(pool, attend_selected, r);
    }
    return (double)(ntx_now_ns() - t0) / 1e6 / layers;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct ntx_pool *pool, struct run *r, uint32_t layers)
{
    enum { ROUNDS = 15 };
    double all[ROUNDS], some[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        all[i] = token_ms(pool, r, layers, false);
        some[i] = token_ms(pool, r, layers, true);
    }
    qsort(all, ROUNDS, sizeof *all, by_value);
    qsort(some, ROUNDS, sizeof *some, by_value);
    const double entry = 2.0 * KV * HEAD * sizeof(uint16_t), dense = r->n_pos * entry / 1e6,
                 selected = (r->n_pos * HEAD * sizeof(uint16_t) + MOST * BLOCK * entry) / 1e6;
    puts("positions,all_mb,all_ms,blocks_mb,blocks_ms,bytes_ratio,time_ratio");
    printf("%u,%.1f,%.2f,%.1f,%.2f,%.1f,%.1f\n", r->n_pos, dense, all[ROUNDS / 2], selected, some[ROUNDS / 2],
           dense / selected, all[ROUNDS / 2] / some[ROUNDS / 2]);
}

/* The same values in all places of K and V, others in all keys: what is multiplied does not change the time. */
static void fill(struct run *r, uint32_t layers, uint16_t *keys)
{
    float x[HEAD];
    for (uint32_t l = 0; l < layers; l++)
        for (uint32_t p = 0; p < r->n_pos; p++) {
            for (uint32_t j = 0; j < HEAD; j++)
                x[j] = (float)((p * 31 + j * 7 + l) % 255) / 128 - 1;
            for (uint32_t h = 0; h < KV; h++) {
                r->ops->k_store[NTX_KV_F16](x, ntx_kv_k(r->seq, l, h, p), p % NTX_KV_BLOCK, HEAD);
                r->ops->v_store[NTX_KV_F16](x, ntx_kv_v(r->seq, l, h, p), p % NTX_KV_BLOCK, HEAD);
            }
            r->ops->f16_store(x, keys + ((size_t)l * r->n_pos + p) * HEAD, HEAD);
        }
    for (size_t i = 0; i < sizeof r->q / sizeof *r->q; i++)
        r->q[i] = (float)(i * 13 % 64) / 32 - 1;
}

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise)
{
    return i < argc ? (uint32_t)atoi(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    static struct run r;
    const uint32_t layers = number(argc, argv, 2, 3);
    const struct ntx_hparams hp = {.n_layers = layers, .n_head_kv = KV, .head_k = HEAD, .head_v = HEAD};
    struct ntx_kv_pool *kv;
    struct ntx_kv_seq *seq;
    struct ntx_pool *pool;
    struct ntx_err err;
    r.n_pos = number(argc, argv, 1, 100000);
    r.n_blocks = (r.n_pos + BLOCK - 1) / BLOCK;
    if (r.n_blocks < MOST || r.n_pos > 1u << 20 || !layers || layers > 64)
        return fputs("usage: bench_blocks [POSITIONS [LAYERS [THREADS]]]\n", stderr), 100;
    uint16_t *keys = malloc((size_t)layers * r.n_pos * HEAD * sizeof *keys);
    r.score = malloc((size_t)KV * r.n_blocks * sizeof *r.score);
    r.ops = ntx_cpu_pick(NULL);
    if (!keys || !r.score || ntx_pool_new(number(argc, argv, 3, 2), &pool, &err) ||
        ntx_kv_pool_new(&hp, NTX_KV_F16, &(struct ntx_kv_shape){.blocks = (r.n_pos + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK},
                        &kv, &err) ||
        ntx_kv_seq_new(kv, r.n_pos, &seq))
        return fputs("no memory\n", stderr), 1;
    r.seq = seq;
    r.keys = keys;
    fill(&r, layers, keys);
    measure(pool, &r, layers);
    ntx_kv_seq_free(seq);
    ntx_kv_pool_free(kv);
    ntx_pool_free(pool);
    free(r.score);
    free(keys);
    return 0;
}
