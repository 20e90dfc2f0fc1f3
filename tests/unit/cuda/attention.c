/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c: rotation, the paged cache and attention of a plug-in library (argument: its path) against the CPU's:
 * F16 and Q8_0, holes, windows, sinks, rows in any order, several sessions. Decoding gives the CPU's bits up to a
 * split, prompts its values within F16's rounding. */
#include "computed/cpu/cpu.h"
#include "tests/lib/cuda_kit.h"

static const struct ntx_cpu_ops *oracle;

enum { BLOCK = NTX_KV_Q8_TOKENS, BLOCKS = 26, LAYERS = 2, MOST = 96 };

struct shape {
    uint32_t heads, kv_heads, head_k, head_v, rope_dim;
    bool neox, bias, norm, q8, holes;
    uint32_t window;
    bool sinks;
    float cap; /* of decoding */
};

static const float sinks[] = {1.5f, -2, 0.3f, 4, -0.7f, 0, 2.5f, -1, 0.6f};

/* A cache of two sessions on the CPU and on the device (blocks [0, BLOCKS / 2) and the others of `tables`), and a
 * pass of n rows over it. */
struct cache {
    const struct shape *c;
    struct gpu *u;
    enum ntx_kv_type type;
    size_t row_k, row_v, layer, bytes; /* of a block: K first */
    uint8_t *host;
    uint32_t tables[BLOCKS], holes[BLOCKS], pos[MOST], table_at[MOST], n;
    void *dev, *d_tables, *d_holes, *d_pos, *d_at;
};

/* A row in the GPU's layout. It has the quants of the CPU, which keeps them in blocks. */
static void store_row(enum ntx_kv_type type, const float *x, uint8_t *row, uint32_t n)
{
    uint8_t block[BLOCK * NTX_GPU_HEAD_MAX * 2];
    oracle->v_store[type](x, block, 0, n);
    for (uint32_t i = 0; i < n; i++) {
        if (type == NTX_KV_F16)
            memcpy(row + 2 * i, block + 2 * i, 2);
        else if (i % 32 == 0)
            memcpy(row + i / 32 * 34, block + BLOCK * (n + 2 * (i / 32)), 2);
        if (type == NTX_KV_Q8_0)
            row[i / 32 * 34 + 2 + i % 32] =
                block[i / NTX_KV_Q8_PANEL * NTX_KV_Q8_PANEL * BLOCK + 4 * (i % NTX_KV_Q8_PANEL)];
    }
}

/* Makes a block in the CPU's layout from rows in the GPU's. */
static void block_of_rows(enum ntx_kv_type type, const uint8_t *rows, uint8_t *block, uint32_t n, bool key)
{
    if (type == NTX_KV_F16) {
        memcpy(block, rows, (size_t)BLOCK * n * 2);
        return;
    }
    for (uint32_t t = 0; t < BLOCK; t++, rows += n / 32 * 34)
        for (uint32_t i = 0; i < n; i++) {
            memcpy(block + BLOCK * n + 2 * (i / 32 * BLOCK + t), rows + i / 32 * 34, 2);
            uint32_t panel = i / NTX_KV_Q8_PANEL * NTX_KV_Q8_PANEL,
                     width = n - panel < NTX_KV_Q8_PANEL ? n - panel : NTX_KV_Q8_PANEL;
            block[key ? i / 4 * 4 * BLOCK + 4 * t + i % 4
                      : BLOCK * panel + t / 4 * 4 * width + 4 * (i - panel) + t % 4] =
                (uint8_t)(rows[i / 32 * 34 + 2 + i % 32] + (key ? 128 : 0));
        }
}

static void cache_open(struct cache *k, struct gpu *u, struct rng *rng, const struct shape *c, const uint32_t *pos,
                       const uint32_t *session, uint32_t n)
{
    *k = (struct cache){.c = c, .u = u, .type = c->q8 ? NTX_KV_Q8_0 : NTX_KV_F16, .n = n};
    k->row_k = c->q8 ? c->head_k / 32 * 34 : c->head_k * 2;
    k->row_v = c->q8 ? c->head_v / 32 * 34 : c->head_v * 2;
    k->layer = c->kv_heads * BLOCK * (k->row_k + k->row_v);
    k->bytes = k->layer * LAYERS * BLOCKS;
    k->host = malloc(k->bytes);
    float value[NTX_GPU_HEAD_MAX];
    for (size_t at = 0; at < k->bytes;)
        for (uint32_t i = 0; i < c->kv_heads * BLOCK * 2; i++) {
            uint32_t width = i < c->kv_heads * BLOCK ? c->head_k : c->head_v;
            fill_random(rng, value, width);
            store_row(k->type, value, k->host + at, width);
            at += i < c->kv_heads * BLOCK ? k->row_k : k->row_v;
        }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        k->tables[i] = (i * 7 + 3) % BLOCKS;
        k->holes[i] = c->holes ? rng_u32(rng) & rng_u32(rng) : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        k->pos[i] = pos[i];
        k->table_at[i] = session[i] * (BLOCKS / 2);
        k->holes[k->table_at[i] + pos[i] / BLOCK] &= ~(1u << pos[i] % BLOCK); /* a row's own position is none */
    }
    k->dev = gpu_put(u, k->host, k->bytes, 0);
    k->d_tables = gpu_put(u, k->tables, sizeof k->tables, 0);
    k->d_holes = gpu_put(u, k->holes, sizeof k->holes, 0);
    k->d_pos = gpu_put(u, k->pos, sizeof k->pos, 0);
    k->d_at = gpu_put(u, k->table_at, sizeof k->table_at, 0);
}

static void cache_close(struct cache *k)
{
    void *const all[] = {k->dev, k->d_tables, k->d_holes, k->d_pos, k->d_at};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        gpu_drop(k->u, all[i]);
    free(k->host);
}

static struct ntx_gpu_kv kv_of(const struct cache *k, const uint32_t *rows)
{
    return (struct ntx_gpu_kv){.base = k->dev,
                               .block_bytes = k->layer * LAYERS,
                               .layer_offset = k->layer,
                               .tables = k->d_tables,
                               .table_at = k->d_at,
                               .pos = k->d_pos,
                               .rows = rows,
                               .holes = k->c->holes ? k->d_holes : NULL,
                               .block_tokens = BLOCK,
                               .n_head = k->c->heads,
                               .n_head_kv = k->c->kv_heads,
                               .head_k = k->c->head_k,
                               .head_v = k->c->head_v,
                               .q8 = k->c->q8};
}

static uint8_t *k_row(const struct cache *k, uint32_t row, uint32_t head, uint32_t pos)
{
    return k->host + (k->tables[k->table_at[row] + pos / BLOCK] * LAYERS + 1) * k->layer +
           (head * BLOCK + pos % BLOCK) * k->row_k;
}

static uint8_t *v_row(const struct cache *k, uint32_t row, uint32_t head, uint32_t pos)
{
    return k_row(k, row, 0, pos / BLOCK * BLOCK) + k->c->kv_heads * BLOCK * k->row_k +
           (head * BLOCK + pos % BLOCK) * k->row_v;
}

/* Attention of a row on the CPU, for one head. */
static void attend_cpu(const struct cache *k, uint32_t row, uint32_t head, const float *q, float *out)
{
    static uint8_t blocks[2][BLOCKS][BLOCK * NTX_GPU_HEAD_MAX * 2];
    const void *ks[BLOCKS], *vs[BLOCKS];
    uint32_t kv_head = head / (k->c->heads / k->c->kv_heads), n = k->pos[row] + 1;
    for (uint32_t p = 0; p < n; p += BLOCK) {
        block_of_rows(k->type, k_row(k, row, kv_head, p), blocks[0][p / BLOCK], k->c->head_k, true);
        block_of_rows(k->type, v_row(k, row, kv_head, p), blocks[1][p / BLOCK], k->c->head_v, false);
        ks[p / BLOCK] = blocks[0][p / BLOCK];
        vs[p / BLOCK] = blocks[1][p / BLOCK];
    }
    struct ntx_attn a = {.q = q,
                         .out = out,
                         .n_q = 1,
                         .n_rows = 1,
                         .k = ks,
                         .v = vs,
                         .block_tokens = BLOCK,
                         .n_pos = n,
                         .head_k = k->c->head_k,
                         .head_v = k->c->head_v,
                         .scale = 0.125f,
                         .cap = k->c->cap,
                         .window = k->c->window,
                         .sinks = k->c->sinks ? sinks + head : NULL,
                         .hole = k->c->holes ? (const uint8_t *)(k->holes + k->table_at[row]) : NULL};
    oracle->attend[k->type](&a);
}

/* Largest difference of out [n x (heads x head_v + 1)] from the CPU's, of q [n x ...] of these rows of the pass. */
static double attend_off(const struct cache *k, const uint32_t *rows, uint32_t n, const float *q, const float *out,
                         bool bits)
{
    uint32_t no = k->c->heads * k->c->head_v;
    float want[NTX_GPU_HEAD_MAX];
    double most = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t h = 0; h < k->c->heads; h++) {
            const float *got = out + (size_t)i * (no + 1) + h * k->c->head_v;
            attend_cpu(k, rows[i], h, q + ((size_t)i * k->c->heads + h) * k->c->head_k, want);
            for (uint32_t e = 0; e < k->c->head_v; e++) {
                CHECK_MSG(!isnan(got[e]), "row %u head %u value %u is not there", i, h, e);
                CHECK_MSG(!bits || k->pos[rows[i]] >= NTX_GPU_SPLIT || got[e] == want[e],
                          "at %u, head %u, value %u: %.9g, not %.9g", k->pos[rows[i]], h, e, (double)got[e],
                          (double)want[e]);
                most = fmax(most, fabs((double)got[e] - (double)want[e]));
            }
            CHECK(isnan(out[(size_t)i * (no + 1) + no]));
        }
    return most;
}

/* ---- decoding: rotation and storing, then attention, of rows in another order than the pass's; the last has no query
 * */

static void cpu_rotate(const struct shape *c, float *x, uint32_t heads, const float *bias, const float *norm_w,
                       const float *cs, const float *sn)
{
    if (c->bias)
        oracle->add(x, bias, heads * c->head_k);
    for (uint32_t h = 0; c->norm && h < heads; h++)
        oracle->rmsnorm(x + h * c->head_k, norm_w, 1e-6f, c->head_k, x + h * c->head_k);
    (c->neox ? oracle->rope_neox : oracle->rope_norm)(x, heads, c->head_k, c->rope_dim, cs, sn);
}

enum { ROWS = 3, QUERIES = 2 };
static const uint32_t order[ROWS] = {2, 0, 1};

struct vectors {
    float *all, *q, *k, *v, *q_bias, *k_bias, *v_bias, *q_norm, *k_norm, *cs, *sn;
    size_t n;
};

static struct vectors make_vectors(struct rng *rng, const struct shape *c)
{
    uint32_t nq = c->heads * c->head_k, nk = c->kv_heads * c->head_k, nv = c->kv_heads * c->head_v,
             half = c->rope_dim / 2;
    struct vectors x = {.n = (size_t)(nq + nk + nv) * (ROWS + 1) + 2 * c->head_k + 2 * half * ROWS};
    x.all = malloc(x.n * sizeof *x.all);
    fill_random(rng, x.all, x.n);
    x.q = x.all, x.k = x.q + nq * ROWS, x.v = x.k + nk * ROWS, x.q_bias = x.v + nv * ROWS, x.k_bias = x.q_bias + nq,
    x.v_bias = x.k_bias + nk;
    x.q_norm = x.v_bias + nv, x.k_norm = x.q_norm + c->head_k, x.cs = x.k_norm + c->head_k, x.sn = x.cs + half * ROWS;
    return x;
}

static void rotate_cpu(const struct cache *k, const struct vectors *x)
{
    const struct shape *c = k->c;
    uint32_t half = c->rope_dim / 2;
    for (uint32_t i = 0; i < ROWS; i++) {
        const float *cs = x->cs + order[i] * half, *sn = x->sn + order[i] * half;
        float *kr = x->k + i * c->kv_heads * c->head_k, *vr = x->v + i * c->kv_heads * c->head_v;
        if (i < QUERIES)
            cpu_rotate(c, x->q + i * c->heads * c->head_k, c->heads, x->q_bias, x->q_norm, cs, sn);
        cpu_rotate(c, kr, c->kv_heads, x->k_bias, x->k_norm, cs, sn);
        if (c->bias)
            oracle->add(vr, x->v_bias, c->kv_heads * c->head_v);
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            store_row(k->type, kr + h * c->head_k, k_row(k, order[i], h, k->pos[order[i]]), c->head_k);
            store_row(k->type, vr + h * c->head_v, v_row(k, order[i], h, k->pos[order[i]]), c->head_v);
        }
    }
}

static void decode(struct gpu *u, struct rng *rng, const struct shape *c, const uint32_t *pos)
{
    static const uint32_t session[ROWS] = {0, 1, 1};
    uint32_t no = c->heads * c->head_v, nq = c->heads * c->head_k, most = 1;
    struct cache k;
    cache_open(&k, u, rng, c, pos, session, ROWS);
    for (uint32_t i = 0; i < ROWS; i++)
        most = pos[i] + 1 > most ? pos[i] + 1 : most;
    struct vectors x = make_vectors(rng, c);
    float *d = gpu_put(u, x.all, x.n * sizeof *x.all, 0), *out = malloc(sizeof *out * (no + 1) * QUERIES),
          *q = malloc(sizeof *q * nq * ROWS);
    float *d_out = gpu_new(u, sizeof *out * (no + 1) * QUERIES);
    void *partial = gpu_new(u, sizeof *out * QUERIES * c->heads * ((most + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT) *
                                   (c->head_v + 2));
    uint32_t *d_order = gpu_put(u, order, sizeof order, 0);
    float *d_sinks = gpu_put(u, sinks, sizeof sinks, 0);
    struct ntx_gpu_rotate r = {.q = d,
                               .k = d + (x.k - x.q),
                               .v = d + (x.v - x.q),
                               .cs = d + (x.cs - x.q),
                               .sn = d + (x.sn - x.q),
                               .kv = kv_of(&k, d_order),
                               .ld_q = nq,
                               .ld_k = c->kv_heads * c->head_k,
                               .ld_v = c->kv_heads * c->head_v,
                               .n_rows = ROWS,
                               .n_query = QUERIES,
                               .rope_dim = c->rope_dim,
                               .neox = c->neox,
                               .eps = 1e-6f};
    if (c->bias)
        r.q_bias = d + (x.q_bias - x.q), r.k_bias = d + (x.k_bias - x.q), r.v_bias = d + (x.v_bias - x.q);
    if (c->norm)
        r.q_norm = d + (x.q_norm - x.q), r.k_norm = d + (x.k_norm - x.q);
    OK(u, u->ops->launch(u->s, NTX_GPU_ROTATE, &r));
    struct ntx_gpu_attend a = {.q = d,
                               .out = d_out,
                               .partial = partial,
                               .kv = kv_of(&k, d_order),
                               .ld_q = nq,
                               .ld_out = no + 1,
                               .n_rows = QUERIES,
                               .most_pos = most,
                               .window = c->window,
                               .sinks = c->sinks ? d_sinks : NULL,
                               .scale = 0.125f,
                               .cap = c->cap};
    OK(u, u->ops->launch(u->s, NTX_GPU_ATTEND, &a));
    rotate_cpu(&k, &x);
    gpu_get(u, q, d, sizeof *q * nq * ROWS);
    CHECK_MSG(!memcmp(q, x.q, sizeof *q * nq * ROWS), "rotated queries differ");
    uint8_t *got = malloc(k.bytes);
    gpu_get(u, got, k.dev, k.bytes);
    CHECK_MSG(!memcmp(got, k.host, k.bytes), "the cache differs");
    gpu_get(u, out, d_out, sizeof *out * (no + 1) * QUERIES);
    double off = attend_off(&k, order, QUERIES, q, out, true);
    CHECK_MSG(off < (c->q8 ? 3e-5 : 1e-5), "attention is off by %g",
              off); /* Q8_0: weights of 15 bits, of a split and of a part */
    gpu_drop(u, d), gpu_drop(u, d_out), gpu_drop(u, partial), gpu_drop(u, d_order), gpu_drop(u, d_sinks);
    cache_close(&k);
    free(x.all), free(out), free(q), free(got);
}

/* ---- prompts */

/* Cuts runs of rows into tiles of at most `most`. */
static uint32_t cut(uint32_t *tiles, uint32_t first, uint32_t n, uint32_t most, uint32_t n_tiles)
{
    for (uint32_t i = 0; i < n; i += most, n_tiles++) {
        tiles[2 * n_tiles] = first + i;
        tiles[2 * n_tiles + 1] = n - i < most ? n - i : most;
    }
    return n_tiles;
}

static void prefill(struct gpu *u, struct rng *rng, const struct shape *c, uint32_t pos, uint32_t n0, uint32_t n1)
{
    uint32_t n = n0 + n1, no = c->heads * c->head_v, nq = c->heads * c->head_k, group = c->heads / c->kv_heads,
             ps[MOST], session[MOST], rows[MOST], tiles[2 * MOST];
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = i;
        session[i] = i >= n0;
        ps[i] = i < n0 ? pos + i : i - n0;
    }
    struct cache k;
    cache_open(&k, u, rng, c, ps, session, n);
    float *q = malloc(sizeof *q * nq * n), *out[2];
    size_t bytes = sizeof **out * (no + 1) * n;
    fill_random(rng, q, (size_t)nq * n);
    for (uint32_t i = 0; i < nq * n; i++)
        q[i] *= 4; /* weights that differ */
    void *dq = gpu_put(u, q, sizeof *q * nq * n, 0), *d_sinks = gpu_put(u, sinks, sizeof sinks, 0);
    for (int way = 0; way < 2; way++) { /* as many rows to a tile as it takes, and one: the same bits */
        uint32_t most = way ? 1 : NTX_GPU_TILE / group, n_tiles = cut(tiles, n0, n1, most, cut(tiles, 0, n0, most, 0));
        void *dt = gpu_put(u, tiles, sizeof tiles, 0), *d_out = gpu_new(u, bytes);
        struct ntx_gpu_prefill p = {.q = dq,
                                    .out = d_out,
                                    .kv = kv_of(&k, NULL),
                                    .tiles = dt,
                                    .ld_q = nq,
                                    .ld_out = no + 1,
                                    .n_tiles = n_tiles,
                                    .window = c->window,
                                    .sinks = c->sinks ? d_sinks : NULL,
                                    .scale = 0.125f};
        OK(u, u->ops->launch(u->s, NTX_GPU_PREFILL, &p));
        out[way] = malloc(bytes);
        gpu_get(u, out[way], d_out, bytes);
        gpu_drop(u, dt), gpu_drop(u, d_out);
    }
    double off = attend_off(&k, rows, n, q, out[0], false);
    CHECK_MSG(off < 3e-3, "attention of prompts is off by %g", off);
    CHECK_MSG(!memcmp(out[0], out[1], bytes), "a row's attention depends on those that share its tile");
    gpu_drop(u, dq), gpu_drop(u, d_sinks);
    cache_close(&k);
    free(q), free(out[0]), free(out[1]);
}

/* Heads whose rows would not lie 16-aligned, or that are too wide. */
static void refusals(struct gpu *u)
{
    static const uint32_t heads[][2] = {
        {68, 64}, {64, 68}, {4, 4}, {NTX_GPU_HEAD_MAX + 8, 64}, {64, NTX_GPU_HEAD_MAX + 8}};
    for (unsigned i = 0; i < sizeof heads / sizeof *heads; i++) {
        const struct ntx_gpu_attend a = {
            .kv = {.block_tokens = BLOCK, .n_head = 1, .n_head_kv = 1, .head_k = heads[i][0], .head_v = heads[i][1]},
            .n_rows = 1,
            .most_pos = 1};
        CHECK_EQ(u->ops->launch(u->s, NTX_GPU_ATTEND, &a), -22); /* EINVAL */
    }
}

int main(int argc, char **argv)
{
    static const struct {
        struct shape c;
        uint32_t pos[ROWS];
    } cases[] = {
        {{.heads = 4, .kv_heads = 2, .head_k = 64, .head_v = 64, .rope_dim = 64}, {0, 37, 38}},
        {{.heads = 6, .kv_heads = 1, .head_k = 128, .head_v = 128, .rope_dim = 128, .neox = true, .bias = true},
         {255, 2, 256}},
        {{.heads = 2,
          .kv_heads = 2,
          .head_k = 80,
          .head_v = 48,
          .rope_dim = 40,
          .neox = true,
          .norm = true,
          .holes = true},
         {300, 30, 31}},
        {{.heads = 2, .kv_heads = 1, .head_k = 24, .head_v = 40, .rope_dim = 20, .bias = true, .norm = true},
         {383, 5, 97}},
        {{.heads = 1, .kv_heads = 1, .head_k = 256, .head_v = 256, .rope_dim = 256}, {12, 1, 64}},
        {{.heads = 2, .kv_heads = 1, .head_k = 512, .head_v = 512, .rope_dim = 64, .neox = true, .cap = 1.5f},
         {12, 1, 64}},
        {{.heads = 7, .kv_heads = 1, .head_k = 64, .head_v = 72, .rope_dim = 64, .sinks = true}, {300, 5, 97}},
        {{.heads = 9, .kv_heads = 1, .head_k = 576, .head_v = 512, .rope_dim = 64, .holes = true}, {270, 7, 33}},
        {{.heads = 2, .kv_heads = 1, .head_k = 288, .head_v = 320, .rope_dim = 64, .q8 = true, .cap = 0.7f},
         {12, 1, 64}},
        {{.heads = 4, .kv_heads = 2, .head_k = 64, .head_v = 96, .rope_dim = 64, .q8 = true, .norm = true},
         {254, 3, 40}},
        {{.heads = 3,
          .kv_heads = 1,
          .head_k = 160,
          .head_v = 32,
          .rope_dim = 32,
          .q8 = true,
          .bias = true,
          .holes = true},
         {290, 255, 33}},
        {{.heads = 8,
          .kv_heads = 2,
          .head_k = 64,
          .head_v = 64,
          .rope_dim = 64,
          .neox = true,
          .bias = true,
          .window = 100,
          .sinks = true},
         {255, 99, 100}},
        {{.heads = 4, .kv_heads = 2, .head_k = 64, .head_v = 64, .rope_dim = 64, .window = 1, .q8 = true},
         {383, 256, 0}},
        {{.heads = 2,
          .kv_heads = 1,
          .head_k = 32,
          .head_v = 64,
          .rope_dim = 32,
          .window = 128,
          .sinks = true,
          .holes = true},
         {300, 383, 97}},
        {{.heads = 2, .kv_heads = 2, .head_k = 64, .head_v = 32, .rope_dim = 64, .sinks = true, .q8 = true},
         {300, 31, 255}},
        {{.heads = 5,
          .kv_heads = 1,
          .head_k = 96,
          .head_v = 160,
          .rope_dim = 64,
          .sinks = true,
          .q8 = true,
          .holes = true},
         {290, 31, 70}},
        {{.heads = 16, .kv_heads = 2, .head_k = 128, .head_v = 128, .rope_dim = 128, .q8 = true}, {300, 31, 255}},
        {{.heads = 9,
          .kv_heads = 1,
          .head_k = 96,
          .head_v = 64,
          .rope_dim = 64,
          .q8 = true,
          .window = 100,
          .sinks = true},
         {383, 7, 100}}, /* the second of the group's blocks of threads has one head */
        {{.heads = 8, .kv_heads = 1, .head_k = 256, .head_v = 256, .rope_dim = 64, .q8 = true, .sinks = true},
         {270, 7, 33}},
        {{.heads = 10, .kv_heads = 1, .head_k = 544, .head_v = 288, .rope_dim = 64, .q8 = true, .holes = true},
         {270, 7, 33}},
    };
    static const struct shape prompts[] = {
        {.heads = 8, .kv_heads = 2, .head_k = 64, .head_v = 64},
        {.heads = 2, .kv_heads = 2, .head_k = 128, .head_v = 128, .holes = true},
        {.heads = 7, .kv_heads = 1, .head_k = 20, .head_v = 36},
        {.heads = 4, .kv_heads = 1, .head_k = 96, .head_v = 64, .q8 = true, .holes = true},
        {.heads = 8, .kv_heads = 1, .head_k = 64, .head_v = 64, .window = 33, .sinks = true},
        {.heads = 4, .kv_heads = 2, .head_k = 64, .head_v = 32, .q8 = true, .window = 7},
        {.heads = 6, .kv_heads = 2, .head_k = 32, .head_v = 64, .sinks = true, .holes = true},
    };
    struct gpu u;
    struct rng rng = {11};
    CHECK(argc == 2);
    oracle = ntx_cpu_pick("generic");
    gpu_open(&u, argv[1]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        decode(&u, &rng, &cases[i].c, cases[i].pos);
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
        prefill(&u, &rng, &prompts[i], i % 2 ? 61 : 0, i == 1 ? 70 : 19, 5);
    refusals(&u);
    gpu_close(&u);
    puts("rotation, the cache and attention agree with the CPU");
    return 0;
}
