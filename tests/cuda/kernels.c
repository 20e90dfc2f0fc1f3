/* kernels.c: every kernel of a plug-in library (argument: its path) against the CPU's, on random data, odd sizes and poisoned
 * outputs. Where the header promises the CPU's bits, the bits. */
#include "computed/cpu/cpu.h"
#include "tests/cpu/blocks.h"
#include "tests/cuda/kit.h"

static const uint32_t types[] = {NTX_F32, NTX_F16, NTX_BF16, NTX_Q4_0, NTX_Q4_1, NTX_Q5_0, NTX_Q5_1, NTX_Q8_0,
                                 NTX_Q2_K, NTX_Q3_K, NTX_Q4_K, NTX_Q5_K, NTX_Q6_K};
enum { N_TYPES = sizeof types / sizeof *types };

static const struct ntx_cpu_ops *oracle;

/* `beside` floats behind each row of n must still be poison. */
static void check_rows(const char *what, const float *got, size_t ld, const float *want, uint32_t n, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t k = 0; k < n; k++)
            CHECK_MSG(!memcmp(&got[r * ld + k], &want[(size_t)r * n + k], 4), "%s: row %u value %u: %.9g, not %.9g", what, r, k,
                      (double)got[r * ld + k], (double)want[(size_t)r * n + k]);
        for (size_t k = n; k < ld; k++)
            CHECK_MSG(isnan(got[r * ld + k]), "%s: row %u: written behind its end", what, r);
    }
}

/* ---- products */

static uint8_t *random_weights(struct rng *r, uint32_t type, size_t bytes, bool extreme)
{
    uint8_t *w = malloc(bytes);
    uint32_t size = ntx_type_info(type)->block_bytes;
    for (size_t at = 0; at < bytes; at += size)
        random_block(r, type, (char *)w + at, size, extreme);
    return w;
}

static void product(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n_in, uint32_t n_out, uint32_t rows, bool extreme)
{
    enum ntx_act form = ntx_act_for(type);
    size_t row_bytes = ntx_row_bytes(type, n_in), stride = ntx_act_row_bytes(form, n_in) + 64, ldy = n_out + 5;
    uint8_t *w = random_weights(rng, type, row_bytes * n_out, extreme);
    char *x = aligned_bytes(stride * rows);
    float *row = malloc(n_in * sizeof *row), *want = malloc(sizeof *want * n_out * rows), *got = malloc(sizeof *got * ldy * rows);
    for (uint32_t r = 0; r < rows; r++) {
        fill_random(rng, row, n_in);
        oracle->act_pack[form](row, x + r * stride, n_in);
    }
    oracle->matmul[type](w, row_bytes, n_out, n_in, x, stride, rows, want, n_out);
    void *dw = gpu_put(u, w, row_bytes * n_out, NTX_GPU_SLACK), *dx = gpu_put(u, x, stride * rows, 0), *dy = gpu_new(u, sizeof *got * ldy * rows);
    struct ntx_gpu_product p = {.w = dw, .x = dx, .y = dy, .row_bytes = row_bytes, .x_stride = stride, .ldy = ldy,
                                .type = type, .n_out = n_out, .n_in = n_in, .n_rows = rows};
    OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p));
    gpu_get(u, got, dy, sizeof *got * ldy * rows);
    char what[64];
    snprintf(what, sizeof what, "%s %u x %u, %u rows", ntx_type_info(type)->name, n_out, n_in, rows);
    check_rows(what, got, ldy, want, n_out, rows);
    gpu_drop(u, dw), gpu_drop(u, dx), gpu_drop(u, dy);
    free(w), free(x), free(row), free(want), free(got);
}

static void products(struct gpu *u, struct rng *rng)
{
    static const uint32_t outs[] = {1, 7, 33}, rows[] = {1, 2, 3, 5, 8, 11};
    for (unsigned i = 0; i < N_TYPES; i++) {
        uint32_t block = ntx_type_info(types[i])->block;
        for (unsigned k = 0; k < 6; k++) {
            product(u, rng, types[i], (block == 1 ? 37 : block) * (1 + 3 * k), outs[k % 3], rows[k], false);
            product(u, rng, types[i], block == 1 ? 64 : block * 17, outs[(k + 1) % 3], rows[5 - k], k % 2);
        }
    }
}

/* ---- the dense path: widening is exact to F16, the product within its rounding */

static void widen(struct gpu *u, struct rng *rng, uint32_t type)
{
    uint32_t n_in = 768, n_out = 5;
    size_t row_bytes = ntx_row_bytes(type, n_in), n = (size_t)n_in * n_out;
    uint8_t *w = random_weights(rng, type, row_bytes * n_out, false);
    uint16_t *got = malloc(n * sizeof *got);
    float *row = malloc(n_in * sizeof *row);
    void *dw = gpu_put(u, w, row_bytes * n_out, NTX_GPU_SLACK), *out = gpu_new(u, n * sizeof *got);
    struct ntx_gpu_widen p = {.w = dw, .out = out, .row_bytes = row_bytes, .type = type, .n_out = n_out, .n_in = n_in};
    OK(u, u->ops->launch(u->s, NTX_GPU_WIDEN, &p));
    gpu_get(u, got, out, n * sizeof *got);
    for (uint32_t o = 0; o < n_out; o++) {
        ntx_type_info(type)->dequant(w + o * row_bytes, row, n_in / ntx_type_info(type)->block);
        for (uint32_t k = 0; k < n_in; k++)
            CHECK_MSG(got[o * n_in + k] == ntx_f32_to_f16(row[k]), "%s widened: row %u value %u", ntx_type_info(type)->name, o, k);
    }
    gpu_drop(u, dw), gpu_drop(u, out);
    free(w), free(got), free(row);
}

static void dense(struct gpu *u, struct rng *rng)
{
    enum { IN = 320, OUT = 70, ROWS = 9, PADDED = 16, LD = IN + 4, LDY = OUT + 3 };
    static float x[ROWS * LD], wf[OUT * IN], y[ROWS * LDY];
    static uint16_t w[OUT * IN];
    fill_random(rng, x, ROWS * LD);
    for (int k = 0; k < LD; k++)
        x[3 * LD + k] *= 1e7f; /* beyond F16: saved by the row's exponent */
    for (int i = 0; i < OUT * IN; i++) {
        w[i] = ntx_f32_to_f16(rng_float(rng));
        wf[i] = ntx_f16_to_f32(w[i]);
    }
    void *dx = gpu_put(u, x, sizeof x, 0), *dw = gpu_put(u, w, sizeof w, 0), *x16 = gpu_new(u, PADDED * IN * 2), *e = gpu_new(u, PADDED * 4);
    void *z = gpu_new(u, PADDED * OUT * 4), *dy = gpu_new(u, sizeof y);
    struct ntx_gpu_narrow narrow = {.x = dx, .out = x16, .exponents = e, .ld_x = LD, .n = IN, .n_rows = ROWS, .n_padded = PADDED};
    struct ntx_gpu_scale scale = {.z = z, .y = dy, .exponents = e, .ldy = LDY, .n_out = OUT, .n_rows = ROWS};
    OK(u, u->ops->launch(u->s, NTX_GPU_NARROW, &narrow));
    int rc = u->ops->dense(u->s, dw, x16, z, OUT, IN, PADDED);
    if (rc == -38) { /* ENOSYS */
        printf("dense product not tried: %s\n", u->ops->error(u->g));
    } else {
        OK(u, rc);
        OK(u, u->ops->launch(u->s, NTX_GPU_SCALE, &scale));
        gpu_get(u, y, dy, sizeof y);
        for (int r = 0; r < ROWS; r++)
            for (int o = 0; o < LDY; o++) {
                double want = 0, size = 0;
                for (int k = 0; o < OUT && k < IN; k++) {
                    want += (double)wf[o * IN + k] * (double)x[r * LD + k];
                    size += fabs((double)wf[o * IN + k] * (double)x[r * LD + k]);
                }
                CHECK_MSG(o < OUT ? fabs(y[r * LDY + o] - want) < 6e-4 * size : isnan(y[r * LDY + o]), "dense: row %d output %d", r, o);
            }
    }
    gpu_drop(u, dx), gpu_drop(u, dw), gpu_drop(u, x16), gpu_drop(u, e), gpu_drop(u, z), gpu_drop(u, dy);
}

/* ---- norms and packing: whole packed rows, their padding included */

static void check_packed(struct gpu *u, enum ntx_act form, const void *dev, size_t stride, const float *x, uint32_t n, uint32_t rows, const char *what)
{
    size_t bytes = ntx_act_row_bytes(form, n);
    uint8_t *got = malloc(stride * rows), *want = aligned_bytes(bytes);
    gpu_get(u, got, dev, stride * rows);
    for (uint32_t r = 0; r < rows; r++) {
        oracle->act_pack[form](x + (size_t)r * n, want, n);
        for (size_t i = 0; i < bytes; i++)
            CHECK_MSG(got[r * stride + i] == want[i], "%s: row %u of %u values, form %d: byte %zu is %d, not %d", what, r, n, (int)form, i, got[r * stride + i], want[i]);
    }
    free(got), free(want);
}

static void norm(struct gpu *u, struct rng *rng, uint32_t n, bool add, bool bias)
{
    enum { ROWS = 3, ALL = 5 };
    static const uint32_t rows[ROWS] = {4, 0, 2};
    size_t s8 = ntx_act_row_bytes(NTX_ACT_Q8, n) + 64, s8k = ntx_act_row_bytes(NTX_ACT_Q8K, n) + 64, ld = n + 3;
    float *h = malloc(sizeof *h * n * ALL), *y = malloc(sizeof *y * n * ROWS), *b = malloc(sizeof *b * n), *w = malloc(sizeof *w * n);
    float *x = malloc(sizeof *x * n * ROWS), *got = malloc(sizeof *got * ld * ROWS), *got_h = malloc(sizeof *h * n * ALL);
    fill_random(rng, h, (size_t)n * ALL), fill_random(rng, y, (size_t)n * ROWS), fill_random(rng, b, n), fill_random(rng, w, n);
    void *dh = gpu_put(u, h, sizeof *h * n * ALL, 0), *dy = gpu_put(u, y, sizeof *y * n * ROWS, 0), *db = gpu_put(u, b, sizeof *b * n, 0);
    void *dw = gpu_put(u, w, sizeof *w * n, 0), *dr = gpu_put(u, rows, sizeof rows, 0), *dx = gpu_new(u, sizeof *x * ld * ROWS);
    void *q8 = gpu_new(u, s8 * ROWS), *q8k = gpu_new(u, s8k * ROWS);
    struct ntx_gpu_norm p = {.h = dh, .y = add ? dy : NULL, .bias = bias ? db : NULL, .w = dw, .rows = dr, .x = dx, .q8 = q8,
                             .q8k = n % 256 ? NULL : q8k, .ld_h = n, .ld_y = n, .ld_x = ld, .q8_stride = s8, .q8k_stride = s8k,
                             .n = n, .n_rows = ROWS, .eps = 1e-5f};
    OK(u, u->ops->launch(u->s, NTX_GPU_NORM, &p));
    for (uint32_t i = 0; i < ROWS; i++) {
        float *row = h + (size_t)rows[i] * n, *yi = y + (size_t)i * n;
        if (add && bias)
            oracle->add(yi, b, n);
        if (add)
            oracle->add(row, yi, n);
        oracle->rmsnorm(row, w, 1e-5f, n, x + (size_t)i * n);
    }
    gpu_get(u, got, dx, sizeof *x * ld * ROWS);
    gpu_get(u, got_h, dh, sizeof *h * n * ALL);
    check_rows("norm", got, ld, x, n, ROWS);
    check_rows("residual", got_h, n, h, n, ALL);
    check_packed(u, NTX_ACT_Q8, q8, s8, x, n, ROWS, "norm");
    if (n % 256 == 0)
        check_packed(u, NTX_ACT_Q8K, q8k, s8k, x, n, ROWS, "norm");
    gpu_drop(u, dh), gpu_drop(u, dy), gpu_drop(u, db), gpu_drop(u, dw), gpu_drop(u, dr), gpu_drop(u, dx), gpu_drop(u, q8), gpu_drop(u, q8k);
    free(h), free(y), free(b), free(w), free(x), free(got), free(got_h);
}

/* act: NTX_N_FFN_ACTS for none */
static void pack(struct gpu *u, struct rng *rng, uint32_t n, enum ntx_ffn_act act)
{
    enum { ROWS = 2 };
    bool glu = act != NTX_N_FFN_ACTS;
    size_t s8 = ntx_act_row_bytes(NTX_ACT_Q8, n), s8k = ntx_act_row_bytes(NTX_ACT_Q8K, n);
    float *x = malloc(sizeof *x * n * ROWS), *up = malloc(sizeof *up * n * ROWS), *got = malloc(sizeof *x * n * ROWS);
    fill_random(rng, x, (size_t)n * ROWS), fill_random(rng, up, (size_t)n * ROWS);
    for (uint32_t k = 0; k < n; k += 7)
        x[k] *= 60; /* both ends of the sigmoid */
    memset(x + n - 32, 0, 32 * sizeof *x);
    if (!glu)
        x[n + 5] = NAN, x[n + 40] = INFINITY;
    void *dx = gpu_put(u, x, sizeof *x * n * ROWS, 0), *du = gpu_put(u, up, sizeof *x * n * ROWS, 0), *q8 = gpu_new(u, s8 * ROWS), *q8k = gpu_new(u, s8k * ROWS);
    struct ntx_gpu_pack p = {.x = dx, .up = glu ? du : NULL, .q8 = q8, .q8k = n % 256 ? NULL : q8k, .ld_x = n, .ld_up = n,
                             .q8_stride = s8, .q8k_stride = s8k, .n = n, .n_rows = ROWS, .relu = act == NTX_FFN_RELU};
    OK(u, u->ops->launch(u->s, NTX_GPU_PACK, &p));
    for (uint32_t r = 0; glu && r < ROWS; r++)
        oracle->glu[act](x + (size_t)r * n, up + (size_t)r * n, n, x + (size_t)r * n);
    gpu_get(u, got, dx, sizeof *x * n * ROWS);
    check_rows("glu", got, n, x, n, ROWS);
    check_packed(u, NTX_ACT_Q8, q8, s8, x, n, ROWS, "pack");
    if (n % 256 == 0)
        check_packed(u, NTX_ACT_Q8K, q8k, s8k, x, n, ROWS, "pack");
    gpu_drop(u, dx), gpu_drop(u, du), gpu_drop(u, q8), gpu_drop(u, q8k);
    free(x), free(up), free(got);
}

static void vectors(struct gpu *u, struct rng *rng)
{
    static const uint32_t widths[] = {32, 96, 256, 288, 1280, 4096 + 256};
    for (unsigned i = 0; i < 6; i++) {
        norm(u, rng, widths[i], i & 1, i & 2);
        norm(u, rng, widths[i], true, true);
        for (unsigned act = 0; act <= NTX_N_FFN_ACTS; act++)
            pack(u, rng, widths[i] < 64 ? 64 : widths[i], act);
    }
}

/* ---- rotation and attention over a paged cache */

enum { BLOCK = 32, BLOCKS = 24, LAYERS = 2 };

struct cache_case {
    uint32_t heads, kv_heads, head_k, head_v, rope_dim, pos[2];
    bool neox, bias, norm;
};

static void cpu_rotate(const struct cache_case *c, float *x, uint32_t heads, const float *bias, const float *norm_w, const float *cs, const float *sn)
{
    if (c->bias)
        oracle->add(x, bias, heads * c->head_k);
    for (uint32_t h = 0; c->norm && h < heads; h++)
        oracle->rmsnorm(x + h * c->head_k, norm_w, 1e-6f, c->head_k, x + h * c->head_k);
    (c->neox ? oracle->rope_neox : oracle->rope_norm)(x, heads, c->head_k, c->rope_dim, cs, sn);
}

static void check_attention(const struct cache_case *c, const float *q, const uint16_t *cache, const uint32_t *table, uint32_t pos, const float *got)
{
    uint32_t n_pos = pos + 1;
    size_t keys = (size_t)c->kv_heads * BLOCK * c->head_k, block = keys + (size_t)c->kv_heads * BLOCK * c->head_v;
    const void *k[BLOCKS], *v[BLOCKS];
    float *want = malloc(sizeof *want * c->head_v);
    for (uint32_t h = 0; h < c->heads; h++) {
        uint32_t kvh = h / (c->heads / c->kv_heads);
        for (uint32_t b = 0; b * BLOCK < n_pos; b++) {
            k[b] = cache + (table[b] * LAYERS + 1) * block + (size_t)kvh * BLOCK * c->head_k;
            v[b] = cache + (table[b] * LAYERS + 1) * block + keys + (size_t)kvh * BLOCK * c->head_v;
        }
        struct ntx_attn a = {.q = q + h * c->head_k, .out = want, .n_q = 1, .k = k, .v = v, .block_tokens = BLOCK, .n_pos = n_pos, .head_k = c->head_k,
                             .head_v = c->head_v, .scale = 0.125f};
        oracle->attend[NTX_KV_F16](&a);
        for (uint32_t e = 0; e < c->head_v; e++) {
            float g = got[h * c->head_v + e], w = want[e];
            bool good = n_pos <= NTX_GPU_SPLIT ? !memcmp(&g, &w, 4) : fabsf(g - w) <= 1e-5f * (1 + fabsf(w));
            CHECK_MSG(good, "attention at %u, head %u, value %u: %.9g, not %.9g", pos, h, e, (double)g, (double)w);
        }
    }
    free(want);
}

static void cache_case(struct gpu *u, struct rng *rng, const struct cache_case *c)
{
    enum { ROWS = 2 };
    const struct ntx_gpu_ops *ops = u->ops;
    uint32_t nq = c->heads * c->head_k, nk = c->kv_heads * c->head_k, nv = c->kv_heads * c->head_v, no = c->heads * c->head_v, half = c->rope_dim / 2;
    size_t keys = (size_t)c->kv_heads * BLOCK * c->head_k, layer = keys + (size_t)c->kv_heads * BLOCK * c->head_v, halves = layer * LAYERS * BLOCKS;
    uint32_t tables[BLOCKS], at[ROWS] = {0, BLOCKS / 2}, pos[ROWS] = {c->pos[0], c->pos[1]};
    uint16_t *cache = malloc(halves * 2), *want = malloc(halves * 2);
    float *x = malloc(sizeof *x * (nq + nk + nv) * (ROWS + 1) + sizeof *x * (2 * c->head_k + 2 * half * ROWS)), *out = malloc(sizeof *out * (no + 1) * ROWS);
    float *q = x, *k = q + nq * ROWS, *v = k + nk * ROWS, *qb = v + nv * ROWS, *kb = qb + nq, *vb = kb + nk, *qn = vb + nv, *kn = qn + c->head_k;
    float *cs = kn + c->head_k, *sn = cs + half * ROWS;
    size_t floats = (size_t)(sn + half * ROWS - x);
    fill_random(rng, x, floats);
    for (size_t i = 0; i < halves; i++)
        want[i] = cache[i] = ntx_f32_to_f16(rng_float(rng));
    for (uint32_t i = 0; i < BLOCKS; i++)
        tables[i] = (i * 7 + 3) % BLOCKS;
    float *d = gpu_put(u, x, sizeof *x * floats, 0), *dout = gpu_new(u, sizeof *out * (no + 1) * ROWS);
    uint32_t most = (pos[0] > pos[1] ? pos[0] : pos[1]) + 1, splits = (most + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT;
    void *dc = gpu_put(u, cache, halves * 2, 0), *dt = gpu_put(u, tables, sizeof tables, 0), *da = gpu_put(u, at, sizeof at, 0), *dp = gpu_put(u, pos, sizeof pos, 0);
    void *partial = gpu_new(u, sizeof *out * ROWS * c->heads * splits * (c->head_v + 2));
    struct ntx_gpu_kv kv = {.base = dc, .block_bytes = layer * LAYERS * 2, .layer_offset = layer * 2, .tables = dt, .table_at = da, .pos = dp,
                            .block_tokens = BLOCK, .n_head = c->heads, .n_head_kv = c->kv_heads, .head_k = c->head_k, .head_v = c->head_v};
    struct ntx_gpu_rotate rot = {.q = d, .k = d + (k - x), .v = d + (v - x), .cs = d + (cs - x), .sn = d + (sn - x), .kv = kv, .n_rows = ROWS,
                                 .rope_dim = c->rope_dim, .neox = c->neox, .eps = 1e-6f};
    if (c->bias)
        rot.q_bias = d + (qb - x), rot.k_bias = d + (kb - x), rot.v_bias = d + (vb - x);
    if (c->norm)
        rot.q_norm = d + (qn - x), rot.k_norm = d + (kn - x);
    struct ntx_gpu_attend att = {.q = d, .out = dout, .partial = partial, .kv = kv, .ld_out = no + 1, .n_rows = ROWS, .most_pos = most, .scale = 0.125f};
    OK(u, ops->launch(u->s, NTX_GPU_ROTATE, &rot));
    OK(u, ops->launch(u->s, NTX_GPU_ATTEND, &att));
    for (uint32_t r = 0; r < ROWS; r++) {
        uint16_t *block = want + (size_t)(tables[at[r] + pos[r] / BLOCK] * LAYERS + 1) * layer;
        cpu_rotate(c, q + r * nq, c->heads, qb, qn, cs + r * half, sn + r * half);
        cpu_rotate(c, k + r * nk, c->kv_heads, kb, kn, cs + r * half, sn + r * half);
        if (c->bias)
            oracle->add(v + r * nv, vb, nv);
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            oracle->kv_store[NTX_KV_F16](k + r * nk + h * c->head_k, block + (h * BLOCK + pos[r] % BLOCK) * c->head_k, c->head_k);
            oracle->kv_store[NTX_KV_F16](v + r * nv + h * c->head_v, block + keys + (h * BLOCK + pos[r] % BLOCK) * c->head_v, c->head_v);
        }
    }
    float *got_q = malloc(sizeof *got_q * nq * ROWS);
    gpu_get(u, got_q, d, sizeof *got_q * nq * ROWS);
    check_rows("rotated q", got_q, nq, q, nq, ROWS);
    gpu_get(u, cache, dc, halves * 2);
    CHECK_MSG(!memcmp(cache, want, halves * 2), "the cache differs");
    gpu_get(u, out, dout, sizeof *out * (no + 1) * ROWS);
    for (uint32_t r = 0; r < ROWS; r++) {
        check_attention(c, q + r * nq, want, tables + at[r], pos[r], out + r * (no + 1));
        CHECK(isnan(out[r * (no + 1) + no]));
    }
    gpu_drop(u, d), gpu_drop(u, dout), gpu_drop(u, dc), gpu_drop(u, dt), gpu_drop(u, da), gpu_drop(u, dp), gpu_drop(u, partial);
    free(cache), free(want), free(x), free(out), free(got_q);
}

static void caches(struct gpu *u, struct rng *rng)
{
    static const struct cache_case cases[] = {
        {.heads = 4, .kv_heads = 2, .head_k = 64, .head_v = 64, .rope_dim = 64, .pos = {0, 37}},
        {.heads = 6, .kv_heads = 1, .head_k = 128, .head_v = 128, .rope_dim = 128, .pos = {255, 256}, .neox = true, .bias = true},
        {.heads = 2, .kv_heads = 2, .head_k = 80, .head_v = 48, .rope_dim = 40, .pos = {300, 31}, .neox = true, .norm = true},
        {.heads = 2, .kv_heads = 1, .head_k = 20, .head_v = 36, .rope_dim = 20, .pos = {383, 97}, .bias = true, .norm = true},
        {.heads = 1, .kv_heads = 1, .head_k = 256, .head_v = 256, .rope_dim = 256, .pos = {12, 64}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cache_case(u, rng, &cases[i]);
}

int main(int argc, char **argv)
{
    struct gpu u;
    struct rng rng = {7};
    CHECK(argc == 2);
    oracle = ntx_cpu_pick("generic");
    gpu_open(&u, argv[1]);
    products(&u, &rng);
    for (unsigned i = 0; i < N_TYPES; i++)
        widen(&u, &rng, types[i]);
    dense(&u, &rng);
    vectors(&u, &rng);
    caches(&u, &rng);
    gpu_close(&u);
    puts("products, widening, dense, norms, packing, rotation and attention agree with the CPU");
    return 0;
}
