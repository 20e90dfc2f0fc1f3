/* SPDX-License-Identifier: Apache-2.0 */
/* bench_attend [POSITIONS [LAYERS [THREADS [ROWS]]]]: attention as forward passes run it: rows of 8 to 64 query
 * heads on 8 KV heads of 128, over a context of POSITIONS (8192) in ntx_kv's pool, in each of LAYERS (8) in turn.
 * Work items, of one KV head and some rows each, go to THREADS (2). Rounds of a second alternate with rounds in
 * which the same threads only read the pool's bytes. CSV of the medians: GB/s of K and V in attention (as if each
 * row of a pass read them), GB/s of only reading, and the ratio of the first to the second. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/cpu/pool.h"
#include "computed/state/kv.h"

enum { KV = 8, HEAD = 128, MOST_ROWS = 64 };

struct run {
    const struct ntx_cpu_ops *ops;
    const struct ntx_kv_seq *seq;
    enum ntx_kv_type type;
    uint32_t layer, n_q, n_pos, n_rows;
    const uint8_t *bytes; /* that are merely read */
    size_t n_bytes;
    _Atomic uint32_t next;
    _Atomic uint64_t sum; /* so that reading is not left out */
    float *q, *out;
};

static void attend(void *ctx, unsigned thread)
{
    struct run *r = ctx;
    const void *k[2048], *v[2048];
    (void)thread;
    uint32_t together = NTX_MIN(NTX_ATTN_VECTORS / r->n_q, r->n_rows), groups = (r->n_rows + together - 1) / together;
    for (uint32_t i; (i = atomic_fetch_add(&r->next, 1)) < KV * groups;) {
        uint32_t first = i % groups * together, n_rows = NTX_MIN(together, r->n_rows - first),
                 n_pos = r->n_pos - r->n_rows + 1 + first, head = i / groups;
        for (uint32_t p = 0; p < n_pos + n_rows - 1; p += NTX_KV_BLOCK) {
            k[p / NTX_KV_BLOCK] = ntx_kv_k(r->seq, r->layer, head, p);
            v[p / NTX_KV_BLOCK] = ntx_kv_v(r->seq, r->layer, head, p);
        }
        size_t ld = (size_t)KV * r->n_q * HEAD, at = first * ld + (size_t)head * r->n_q * HEAD;
        struct ntx_attn a = {
            .q = r->q + at,
            .out = r->out + at,
            .n_q = r->n_q,
            .n_rows = n_rows,
            .ld_q = ld,
            .ld_out = ld,
            .k = k,
            .v = v,
            .block_tokens = NTX_KV_BLOCK,
            .n_pos = n_pos,
            .head_k = HEAD,
            .head_v = HEAD,
            .scale = 1 / sqrtf(HEAD),
        };
        r->ops->attend[r->type](&a);
    }
}

static void just_read(void *ctx, unsigned thread)
{
    struct run *r = ctx;
    uint64_t sum = 0;
    (void)thread;
    for (uint32_t i; (i = atomic_fetch_add(&r->next, 1)) < KV;) {
        const uint64_t *at = (const uint64_t *)(const void *)(r->bytes + r->n_bytes / KV / 64 * 64 * i);
        for (size_t j = 0; j < r->n_bytes / KV / 64 * 8; j += 8)
            sum += at[j] ^ at[j + 1] ^ at[j + 2] ^ at[j + 3] ^ at[j + 4] ^ at[j + 5] ^ at[j + 6] ^ at[j + 7];
    }
    atomic_fetch_add(&r->sum, sum);
}

static double round_ns(struct ntx_pool *pool, ntx_pool_fn *fn, struct run *r, uint32_t layers)
{
    uint64_t t0 = ntx_now_ns();
    for (r->layer = 0; r->layer < layers; r->layer++) {
        r->next = 0;
        ntx_pool_run(pool, fn, r);
    }
    return (double)(ntx_now_ns() - t0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Rounds of attention and of only reading alternate, because the memory's rate may drift. */
static void measure(struct ntx_pool *pool, struct run *r, uint32_t layers, double bytes, double *rate, double *read,
                    double *share)
{
    enum { MOST = 2000 };
    static double a[MOST], b[MOST], c[MOST];
    uint32_t n = 0;
    for (uint64_t t0 = ntx_now_ns(); n < 3 || (n < MOST && ntx_now_ns() - t0 < 1000000000u); n++) {
        a[n] = r->n_rows * bytes / round_ns(pool, attend, r, layers);
        b[n] = bytes / round_ns(pool, just_read, r, 1);
        c[n] = a[n] / b[n];
    }
    *rate = median(a, n);
    *read = median(b, n);
    *share = median(c, n);
}

static int bench_type(struct ntx_pool *pool, enum ntx_kv_type type, uint32_t n_pos, uint32_t layers, uint32_t n_rows)
{
    static const char *const isas[] = {"avx512", "avx2"};
    static const uint32_t heads[] = {1, 2, 3, 4, 8};
    struct ntx_hparams hp = {.n_layers = layers, .n_head_kv = KV, .head_k = HEAD, .head_v = HEAD};
    struct ntx_kv_pool *kv;
    struct ntx_kv_seq *seq;
    struct ntx_err err;
    float x[HEAD];
    if (ntx_kv_pool_new(&hp, type, &(struct ntx_kv_shape){.blocks = (n_pos + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK}, &kv,
                        &err) ||
        ntx_kv_seq_new(kv, n_pos, &seq))
        return fputs("no memory\n", stderr), 1;
    for (uint32_t i = 0; i < n_pos * layers * KV; i++) {
        for (uint32_t j = 0; j < HEAD; j++)
            x[j] = (float)((i * 31 + j * 7) % 255) / 128 - 1;
        uint32_t pos = i / KV / layers;
        ntx_cpu_pick(NULL)->k_store[type](x, ntx_kv_k(seq, i / KV % layers, i % KV, pos), pos % NTX_KV_BLOCK, HEAD);
        ntx_cpu_pick(NULL)->v_store[type](x, ntx_kv_v(seq, i / KV % layers, i % KV, pos), pos % NTX_KV_BLOCK, HEAD);
    }
    struct run r = {.seq = seq, .type = type, .n_pos = n_pos, .n_rows = n_rows, .bytes = ntx_kv_k(seq, 0, 0, 0)};
    double rate, read, share, bytes = (double)(r.n_bytes = ntx_kv_block_bytes(&hp, type) * (n_pos / NTX_KV_BLOCK));
    r.q = aligned_alloc(64, MOST_ROWS * KV * NTX_ATTN_HEADS * HEAD * sizeof *r.q);
    r.out = aligned_alloc(64, MOST_ROWS * KV * NTX_ATTN_HEADS * HEAD * sizeof *r.out);
    for (uint32_t i = 0; i < MOST_ROWS * KV * NTX_ATTN_HEADS * HEAD; i++)
        r.q[i] = (float)(i * 13 % 64) / 32 - 1;
    for (size_t i = 0; i < 2 * (sizeof heads / sizeof *heads); i++) {
        const char *isa = isas[i % 2];
        r.n_q = heads[i / 2];
        if ((r.ops = ntx_cpu_pick(isa))) {
            measure(pool, &r, layers, bytes, &rate, &read, &share);
            printf("%s,%s,%u,%u,%u,%.2f,%.2f,%.2f\n", isa, ntx_kv_type_name(type), n_pos, n_rows, r.n_q, rate, read,
                   share);
        }
        fflush(stdout);
    }
    free(r.q);
    free(r.out);
    ntx_kv_seq_free(seq);
    ntx_kv_pool_free(kv);
    return 0;
}

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise)
{
    return i < argc ? (uint32_t)atoi(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    uint32_t n_pos = number(argc, argv, 1, 8192) / NTX_KV_BLOCK * NTX_KV_BLOCK, layers = number(argc, argv, 2, 8),
             n_rows = number(argc, argv, 4, 1);
    struct ntx_pool *pool;
    struct ntx_err err;
    if (!n_pos || n_pos > 65536 || !layers || layers > 64 || !n_rows || n_rows > MOST_ROWS || n_rows > n_pos)
        return fputs("usage: bench_attend [POSITIONS [LAYERS [THREADS [ROWS]]]]\n", stderr), 100;
    if (ntx_pool_new(number(argc, argv, 3, 2), &pool, &err))
        return fputs("no threads\n", stderr), 1;
    puts("kernel,kv,positions,rows,heads,GB/s,read GB/s,share");
    int rc = 0;
    for (enum ntx_kv_type type = NTX_KV_F16; type < NTX_N_KV && !rc; type++)
        rc = bench_type(pool, type, n_pos, layers, n_rows);
    ntx_pool_free(pool);
    return rc;
}
