/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c: every kernel of a plug-in library (argument: its path) against the CPU's, on random data, odd sizes and
 * poisoned outputs. Where the header promises the CPU's bits, the bits. */
#include "computed/cpu/cpu.h"
#include "tests/lib/cpu_blocks.h"
#include "tests/lib/cuda_kit.h"
#include "tests/unit/cuda/fake.h"

#define TYPE(rule, TYPE, ...) NTX_##TYPE,
static const uint32_t types[] = {NTX_TYPES(TYPE)};
enum { N_TYPES = sizeof types / sizeof *types };

static const struct ntx_cpu_ops *oracle;

/* ---- products */

static void product(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n_in, uint32_t n_out, uint32_t rows,
                    bool extreme)
{
    enum ntx_act form = ntx_act_for(type);
    size_t row_bytes = ntx_row_bytes(type, n_in), stride = ntx_act_row_bytes(form, n_in) + 64, ldy = n_out + 5;
    uint8_t *w = random_weights(rng, type, row_bytes * n_out, extreme);
    char *x = aligned_bytes(stride * rows);
    float *row = malloc(n_in * sizeof *row), *want = malloc(sizeof *want * n_out * rows),
          *got = malloc(sizeof *got * ldy * rows);
    for (uint32_t r = 0; r < rows; r++) {
        fill_random(rng, row, n_in);
        oracle->act_quantize[form](row, x + r * stride, n_in);
    }
    oracle->matmul[type](w, row_bytes, n_out, n_in, x, stride, rows, want, n_out);
    void *dw = gpu_put(u, w, row_bytes * n_out, NTX_GPU_SLACK), *dx = gpu_put(u, x, stride * rows, 0),
         *dy = gpu_new(u, sizeof *got * ldy * rows);
    struct ntx_gpu_product p = {.w = dw,
                                .x = dx,
                                .y = dy,
                                .row_bytes = row_bytes,
                                .x_stride = stride,
                                .ldy = ldy,
                                .type = type,
                                .n_out = n_out,
                                .n_in = n_in,
                                .n_rows = rows};
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
            product(u, rng, types[i], block == 1 ? 64 : block * (39 + k), outs[k % 3], rows[5 - k],
                    false); /* pieces, turns, and what is left of them */
        }
        product(u, rng, types[i], block == 1 ? 64 : block * 5, 66, 41,
                true); /* tiles of rows and of outputs that are not full; lanes without a block */
        product(u, rng, types[i], block == 1 ? 64 : block * 35, 9, 16, false);
    }
}

/* ---- several matrices of different heights in a launch, each with its own rows */

static void together(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n_in, uint32_t rows)
{
    enum { N = 4, LDY = 50 };
    static const uint32_t outs[N] = {7, 33, 1, 16};
    enum ntx_act form = ntx_act_for(type);
    size_t row_bytes = ntx_row_bytes(type, n_in), stride = ntx_act_row_bytes(form, n_in);
    char *x = aligned_bytes(stride * rows * N);
    float *row = malloc(n_in * sizeof *row), *want = malloc(sizeof *want * LDY * rows),
          *got = malloc(sizeof *got * LDY * rows);
    uint8_t *w[N];
    void *dw[N], *dy[N], *dx;
    for (uint32_t r = 0; r < rows * N; r++) {
        fill_random(rng, row, n_in);
        oracle->act_quantize[form](row, x + r * stride, n_in);
    }
    dx = gpu_put(u, x, stride * rows * N, 0);
    struct ntx_gpu_product p = {
        .row_bytes = row_bytes, .x_stride = stride, .ldy = LDY, .type = type, .n_in = n_in, .n_others = N - 1};
    for (uint32_t i = 0; i < N; i++) {
        w[i] = random_weights(rng, type, row_bytes * outs[i], false);
        dw[i] = gpu_put(u, w[i], row_bytes * outs[i], NTX_GPU_SLACK);
        dy[i] = gpu_new(u, sizeof *got * LDY * rows);
        if (!i)
            p.w = dw[i], p.x = dx, p.y = dy[i], p.n_out = outs[i], p.n_rows = rows;
        else
            p.others[i - 1] = (struct ntx_gpu_another){.w = dw[i],
                                                       .x = (char *)dx + i * rows * stride,
                                                       .y = dy[i],
                                                       .ldy = LDY,
                                                       .n_out = outs[i],
                                                       .n_rows = i == 2 ? rows - rows / 2 : rows};
    }
    OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p));
    for (uint32_t i = 0; i < N; i++) {
        oracle->matmul[type](w[i], row_bytes, outs[i], n_in, x + i * rows * stride, stride, rows, want, outs[i]);
        gpu_get(u, got, dy[i], sizeof *got * LDY * rows);
        const uint32_t some = i == 2 ? rows - rows / 2 : rows;
        check_rows("together", got, LDY, want, outs[i], some);
        CHECK(some == rows || isnan(got[some * LDY]));
        gpu_drop(u, dw[i]), gpu_drop(u, dy[i]);
        free(w[i]);
    }
    gpu_drop(u, dx);
    free(x), free(row), free(want), free(got);
}

/* ---- enough IQ1 weights that blocks stay resident with copies of the codebook (cuda/persistent.h): two matrices of
 * each routed expert, with one row of x for two of them; or two matrices by a row or two */

static void much(struct gpu *u, struct rng *rng, const struct ntx_fake_control *fake, uint32_t type, uint32_t n_in,
                 const uint32_t *expert, uint32_t n, uint32_t few, bool persistent)
{
    enum { EXPERTS = 3, EACH = 2, LEAST = 256 << 10 /* weights of a multiprocessor */ };
    const enum ntx_act form = ntx_act_for(type);
    const uint32_t rows = n ? n : few, outs = (uint32_t)((uint64_t)LEAST * u->info.processors / n_in / (n ? n : 1)) + 1,
                   out[2] = {outs / 3, outs - outs / 3 + (persistent ? 0 : -3u)}, ldy = outs + 5;
    const size_t row_bytes = ntx_row_bytes(type, n_in), stride = ntx_act_row_bytes(form, n_in) + 64,
                 bytes = ((size_t)(out[0] + out[1]) * row_bytes + 255) / 256 * 256;
    uint8_t *w = calloc(EXPERTS, bytes);
    char *x = aligned_bytes(stride * rows);
    float *row = malloc(n_in * sizeof *row), *want = malloc(sizeof *want * ldy * rows),
          *got = malloc(sizeof *got * ldy * rows);
    struct ntx_gpu_graph *graph = NULL;
    const uint64_t before = fake ? fake->persistent : 0;
    for (uint32_t e = 0; e < (n ? EXPERTS : 1); e++) {
        uint8_t *one = random_weights(rng, type, (out[0] + out[1]) * row_bytes, false);
        memcpy(w + e * bytes, one, (out[0] + out[1]) * row_bytes);
        free(one);
    }
    for (uint32_t r = 0; r < rows; r++) {
        fill_random(rng, row, n_in);
        oracle->act_quantize[form](row, x + r * stride, n_in);
    }
    void *dw = gpu_put(u, w, (n ? EXPERTS : 1) * bytes, NTX_GPU_SLACK), *dx = gpu_put(u, x, stride * rows, 0),
         *dl = n ? gpu_put(u, expert, n * sizeof *expert, 0) : NULL, *dy[2];
    for (int i = 0; i < 2; i++)
        dy[i] = gpu_new(u, sizeof *got * ldy * rows);
    struct ntx_gpu_product p = {.w = dw,
                                .x = dx,
                                .y = dy[0],
                                .row_bytes = row_bytes,
                                .x_stride = stride,
                                .ldy = ldy,
                                .type = type,
                                .n_out = out[0],
                                .n_in = n_in,
                                .n_rows = few,
                                .n_others = 1,
                                .others = {{.w = (uint8_t *)dw + out[0] * row_bytes,
                                            .x = dx,
                                            .y = dy[1],
                                            .ldy = ldy,
                                            .n_out = out[1],
                                            .n_rows = few}}};
    if (n)
        p.routed = (struct ntx_gpu_routed){dl, bytes, n, EACH};
    OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p)); /* what is recorded has run before */
    for (int recorded = 0; recorded < 2; recorded++) {
        for (uint32_t i = 0; i < 2; i++) {
            for (uint32_t c = 0; c < rows; c++)
                oracle->matmul[type](w + (n ? expert[c] : 0) * bytes + i * out[0] * row_bytes, row_bytes, out[i], n_in,
                                     x + (n ? c / EACH : c) * stride, stride, 1, want + c * out[i], out[i]);
            gpu_get(u, got, dy[i], sizeof *got * ldy * rows);
            check_rows("much", got, ldy, want, out[i], rows);
            if (!recorded)
                OK(u, u->ops->fill(u->s, dy[i], 0xff, sizeof *got * ldy * rows));
        }
        if (recorded)
            break;
        OK(u, u->ops->capture(u->s));
        OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p));
        OK(u, u->ops->captured(u->s, &graph));
        OK(u, u->ops->graph_launch(u->s, graph));
    }
    CHECK(!fake || (fake->persistent - before == 2) == persistent);
    u->ops->graph_free(graph);
    gpu_drop(u, dw), gpu_drop(u, dx), gpu_drop(u, dy[0]), gpu_drop(u, dy[1]);
    if (n)
        gpu_drop(u, dl);
    free(w), free(x), free(row), free(want), free(got);
}

static void persistent(struct gpu *u, struct rng *rng, struct ntx_fake_control *fake)
{
    static const uint32_t expert[] = {2, 0, 0, 1, 2}, types_of_it[] = {NTX_IQ1_S, NTX_IQ1_M};
    if (fake)
        fake->processors = 3;
    OK(u, u->ops->info(u->g, &u->info));
    const uint32_t room = fake ? fake->shared : 0;
    for (unsigned i = 0; i < 2; i++) {
        const uint32_t type = types_of_it[i];
        const bool may = !fake || room >= 192 << 10;
        much(u, rng, fake, type, 256 * 17, NULL, 0, 1, may);
        much(u, rng, fake, type, 256 * 18, NULL, 0, 2, may);
        much(u, rng, fake, type, 256 * 18, NULL, 0, 3, false);
        much(u, rng, fake, type, 256, expert, 5, 1, may);
        much(u, rng, fake, type, 256 * 35, expert, 4, 1, may);
        much(u, rng, fake, type, 256 * 16, NULL, 0, 1, false);
        if (!fake || !may)
            continue;
        fake->shared = 99 << 10; /* of a card of 8.9 */
        much(u, rng, fake, type, 256 * 17, expert, 5, 1, false);
        fake->shared = room;
    }
}

/* ---- groups of neurons: a part of each at some place in it, the last group not full */

enum { EACH = 3, GROUPS = 6, NEURONS = EACH * GROUPS - 2, AT = 6 };

struct groups {
    uint8_t *bytes;
    size_t row_bytes, group_bytes;
    void *dev, *list; /* of the groups from FIRST on; of those, some */
    struct ntx_gpu_groups g;
};

static void make_groups(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n, bool listed, struct groups *s)
{
    static const uint32_t some[] = {2, 3, 5};
    enum { FIRST = 1 };
    size_t row = ntx_row_bytes(type, n), group = (EACH * row + 2 * AT + 3) / 4 * 4;
    *s = (struct groups){.bytes = calloc(GROUPS, group), .row_bytes = row, .group_bytes = group};
    for (uint32_t i = 0; i < GROUPS; i++) {
        uint8_t *w = random_weights(rng, type, EACH * row, false);
        memcpy(s->bytes + i * group + AT, w, EACH * row);
        free(w);
    }
    uint32_t first = listed ? FIRST : 0;
    s->dev = gpu_put(u, s->bytes + first * group, (GROUPS - first) * group, NTX_GPU_SLACK);
    s->list = listed ? gpu_put(u, some, sizeof some, 0) : NULL;
    s->g = (struct ntx_gpu_groups){
        .list = s->list, .bytes = group, .first = first, .n = listed ? 3 : GROUPS, .size = EACH, .n_neurons = NEURONS};
}

static bool in_list(const struct groups *s, uint32_t j)
{
    uint32_t g = j / EACH;
    return !s->list || g == 2 || g == 3 || g == 5;
}

static const uint8_t *neuron(const struct groups *s, uint32_t j)
{
    return s->bytes + j / EACH * s->group_bytes + AT + j % EACH * s->row_bytes;
}

static void drop_groups(struct gpu *u, struct groups *s)
{
    gpu_drop(u, s->dev);
    if (s->list)
        gpu_drop(u, s->list);
    free(s->bytes);
}

static void group_product(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n_in, uint32_t rows, bool listed)
{
    enum { LDY = NEURONS + 5 };
    enum ntx_act form = ntx_act_for(type);
    size_t stride = ntx_act_row_bytes(form, n_in) + 64;
    struct groups s;
    make_groups(u, rng, type, n_in, listed, &s);
    char *x = aligned_bytes(stride * rows);
    float *row = malloc(n_in * sizeof *row), *want = malloc(sizeof *want * NEURONS * rows),
          *got = malloc(sizeof *got * LDY * rows);
    memset(want, 0xff, sizeof *want * NEURONS * rows);
    for (uint32_t r = 0; r < rows; r++) {
        fill_random(rng, row, n_in);
        oracle->act_quantize[form](row, x + r * stride, n_in);
    }
    for (uint32_t j = 0; j < NEURONS; j++)
        if (in_list(&s, j))
            oracle->matmul[type](neuron(&s, j), s.row_bytes, 1, n_in, x, stride, rows, want + j, NEURONS);
    void *dx = gpu_put(u, x, stride * rows, 0), *dy = gpu_new(u, sizeof *got * LDY * rows);
    const struct ntx_gpu_product p = {.w = (uint8_t *)s.dev + AT,
                                      .x = dx,
                                      .y = dy,
                                      .groups = s.g,
                                      .row_bytes = s.row_bytes,
                                      .x_stride = stride,
                                      .ldy = LDY,
                                      .type = type,
                                      .n_out = s.g.n * EACH,
                                      .n_in = n_in,
                                      .n_rows = rows};
    OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p));
    gpu_get(u, got, dy, sizeof *got * LDY * rows);
    check_rows("groups", got, LDY, want, NEURONS, rows);
    gpu_drop(u, dx), gpu_drop(u, dy);
    drop_groups(u, &s);
    free(x), free(row), free(want), free(got);
}

/* Kernels must skip zeros: those of neuron POISON would be multiplied by NaN. */
static void columns(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n, uint32_t rows, bool listed)
{
    enum { POISON = 7 };
    uint32_t ldh = NEURONS + 3, ldy = n + 5;
    struct groups s;
    make_groups(u, rng, type, n, listed, &s);
    OK(u, u->ops->fill(u->s, (uint8_t *)s.dev + (neuron(&s, POISON) - s.bytes) - s.g.first * s.group_bytes, 0xff,
                       s.row_bytes));
    float *h = malloc(sizeof *h * ldh * rows), *y = malloc(sizeof *y * n * rows), *in = malloc(sizeof *in * ldy * rows);
    memset(in, 0xff, sizeof *in * ldy * rows);
    fill_random(rng, h, (size_t)ldh * rows), fill_random(rng, y, (size_t)n * rows);
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(in + r * ldy, y + r * n, n * sizeof *y);
        for (uint32_t j = 0; j < NEURONS; j++)
            if (j == POISON || j % 5 == r % 5)
                h[r * ldh + j] = j % 2 ? 0 : -0.0f;
        for (uint32_t j = 0; j < NEURONS; j++)
            if (in_list(&s, j))
                oracle->columns[type](neuron(&s, j), s.row_bytes, 1, n, h + r * ldh + j, ldh, 1, y + r * n, n);
    }
    void *dh = gpu_put(u, h, sizeof *h * ldh * rows, 0), *dy = gpu_put(u, in, sizeof *in * ldy * rows, 0);
    const struct ntx_gpu_columns p = {.w = (uint8_t *)s.dev + AT,
                                      .hidden = dh,
                                      .y = dy,
                                      .groups = s.g,
                                      .row_bytes = s.row_bytes,
                                      .ld_hidden = ldh,
                                      .ld_y = ldy,
                                      .type = type,
                                      .n = n,
                                      .n_rows = rows};
    OK(u, u->ops->launch(u->s, NTX_GPU_COLUMNS, &p));
    gpu_get(u, in, dy, sizeof *in * ldy * rows);
    check_rows("columns", in, ldy, y, n, rows);
    gpu_drop(u, dh), gpu_drop(u, dy);
    drop_groups(u, &s);
    free(h), free(y), free(in);
}

/* Enough neurons that a block takes several steps, the last of them partial. */
static void deep_columns(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n, uint32_t rows)
{
    enum { DEEP = 301 };
    const size_t row_bytes = ntx_row_bytes(type, n);
    uint8_t *w = random_weights(rng, type, row_bytes * DEEP, false);
    float *h = malloc(sizeof *h * DEEP * rows), *y = malloc(sizeof *y * n * rows),
          *got = malloc(sizeof *got * n * rows);
    fill_random(rng, h, (size_t)DEEP * rows), fill_random(rng, y, (size_t)n * rows);
    for (size_t i = 0; i < (size_t)DEEP * rows; i += 3)
        h[i] = i % 2 ? 0 : -0.0f;
    void *dw = gpu_put(u, w, row_bytes * DEEP, NTX_GPU_SLACK), *dh = gpu_put(u, h, sizeof *h * DEEP * rows, 0),
         *dy = gpu_put(u, y, sizeof *y * n * rows, 0);
    oracle->columns[type](w, row_bytes, DEEP, n, h, DEEP, rows, y, n);
    const struct ntx_gpu_columns p = {.w = dw,
                                      .hidden = dh,
                                      .y = dy,
                                      .groups = {.bytes = row_bytes, .n = DEEP, .size = 1, .n_neurons = DEEP},
                                      .row_bytes = row_bytes,
                                      .ld_hidden = DEEP,
                                      .ld_y = n,
                                      .type = type,
                                      .n = n,
                                      .n_rows = rows};
    OK(u, u->ops->launch(u->s, NTX_GPU_COLUMNS, &p));
    gpu_get(u, got, dy, sizeof *got * n * rows);
    check_rows("deep columns", got, n, y, n, rows);
    gpu_drop(u, dw), gpu_drop(u, dh), gpu_drop(u, dy);
    free(w), free(h), free(y), free(got);
}

static void hidden(struct gpu *u, struct rng *rng, enum ntx_ffn_act act, bool masked, bool listed)
{
    enum { ROWS = 3, LD = NEURONS + 4, LDU = NEURONS + 2 };
    static float gate[ROWS * LD], up[ROWS * LDU], got[ROWS * LD];
    static uint8_t uses[ROWS * GROUPS];
    struct groups s;
    make_groups(u, rng, NTX_F32, 4, listed, &s);
    fill_random(rng, gate, ROWS * LD), fill_random(rng, up, ROWS * LDU);
    for (int i = 0; i < ROWS * GROUPS; i++)
        uses[i] = rng_u32(rng) % 2;
    void *dg = gpu_put(u, gate, sizeof gate, 0), *du = gpu_put(u, up, sizeof up, 0),
         *dm = gpu_put(u, uses, sizeof uses, 0);
    const struct ntx_gpu_hidden p = {.gate = dg,
                                     .up = du,
                                     .uses = masked ? dm : NULL,
                                     .groups = s.g,
                                     .ld_gate = LD,
                                     .ld_up = LDU,
                                     .ld_uses = GROUPS,
                                     .n_rows = ROWS,
                                     .act = act};
    OK(u, u->ops->launch(u->s, NTX_GPU_HIDDEN, &p));
    gpu_get(u, got, dg, sizeof got);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t j = 0; j < LD; j++) {
            float want = gate[r * LD + j];
            if (j < NEURONS && in_list(&s, j) && masked && !uses[r * GROUPS + j / EACH])
                want = 0;
            else if (j < NEURONS && in_list(&s, j))
                oracle->glu[act](&want, &up[r * LDU + j], 1, &want);
            CHECK_MSG(!memcmp(&got[r * LD + j], &want, 4), "hidden values: row %u neuron %u: %.9g, not %.9g", r, j,
                      (double)got[r * LD + j], (double)want);
        }
    gpu_drop(u, dg), gpu_drop(u, du), gpu_drop(u, dm);
    drop_groups(u, &s);
}

static void groups(struct gpu *u, struct rng *rng)
{
    static const uint32_t rows[] = {1, 2, 5, 9, 35};
    for (unsigned i = 0; i < N_TYPES; i++) {
        uint32_t block = ntx_type_info(types[i])->block, n = block == 32 ? 160 : 512;
        if (block == 1)
            n = 74;
        group_product(u, rng, types[i], n, rows[i % 4], i % 2);
        group_product(u, rng, types[i], n, 35, i % 2 == 0);
        columns(u, rng, types[i], n, rows[i % 5], i % 2);
        columns(u, rng, types[i], block == 1 ? 6 : block, rows[(i + 1) % 4], i % 2 == 0);
    }
    deep_columns(u, rng, NTX_Q4_K, 512, 1);
    deep_columns(u, rng, NTX_Q6_K, 256, 4);
    deep_columns(u, rng, NTX_Q8_0, 96, 5);
    deep_columns(u, rng, NTX_F16, 70, 35);
    for (int i = 0; i < 8; i++)
        hidden(u, rng, i & 1 ? NTX_FFN_RELU : NTX_FFN_SILU, i & 2, i & 4);
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
            CHECK_MSG(got[o * n_in + k] == ntx_f32_to_f16(row[k]), "%s widened: row %u value %u",
                      ntx_type_info(type)->name, o, k);
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
    void *dx = gpu_put(u, x, sizeof x, 0), *dw = gpu_put(u, w, sizeof w, 0), *x16 = gpu_new(u, PADDED * IN * 2),
         *e = gpu_new(u, PADDED * 4);
    void *z = gpu_new(u, PADDED * OUT * 4), *dy = gpu_new(u, sizeof y);
    struct ntx_gpu_narrow narrow = {
        .x = dx, .out = x16, .exponents = e, .ld_x = LD, .n = IN, .n_rows = ROWS, .n_padded = PADDED};
    struct ntx_gpu_scale scale = {
        .z = z, .y = dy, .exponents = e, .ldz = OUT, .ldy = LDY, .n_out = OUT, .n_rows = ROWS};
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
                CHECK_MSG(o < OUT ? fabs(y[r * LDY + o] - want) < 6e-4 * size : isnan(y[r * LDY + o]),
                          "dense: row %d output %d", r, o);
            }
    }
    gpu_drop(u, dx), gpu_drop(u, dw), gpu_drop(u, x16), gpu_drop(u, e), gpu_drop(u, z), gpu_drop(u, dy);
}

/* ---- norms and packing: whole packed rows, their padding included */

static void check_packed(struct gpu *u, enum ntx_act form, const void *dev, size_t stride, const float *x, uint32_t n,
                         uint32_t rows, const char *what)
{
    size_t bytes = ntx_act_row_bytes(form, n);
    uint8_t *got = malloc(stride * rows), *want = aligned_bytes(bytes);
    gpu_get(u, got, dev, stride * rows);
    for (uint32_t r = 0; r < rows; r++) {
        oracle->act_quantize[form](x + (size_t)r * n, want, n);
        for (size_t i = 0; i < bytes; i++)
            CHECK_MSG(got[r * stride + i] == want[i], "%s: row %u of %u values, form %d: byte %zu is %d, not %d", what,
                      r, n, (int)form, i, got[r * stride + i], want[i]);
    }
    free(got), free(want);
}

static void norm(struct gpu *u, struct rng *rng, uint32_t n, bool add, bool bias)
{
    enum { ROWS = 3, ALL = 5 };
    static const uint32_t rows[ROWS] = {4, 0, 2};
    size_t s8 = ntx_act_row_bytes(NTX_ACT_Q8, n) + 64, s8k = ntx_act_row_bytes(NTX_ACT_Q8K, n) + 64, ld = n + 3;
    float *h = malloc(sizeof *h * n * ALL), *y = malloc(sizeof *y * n * ROWS), *b = malloc(sizeof *b * n),
          *w = malloc(sizeof *w * n);
    float *x = malloc(sizeof *x * n * ROWS), *got = malloc(sizeof *got * ld * ROWS),
          *got_h = malloc(sizeof *h * n * ALL);
    fill_random(rng, h, (size_t)n * ALL), fill_random(rng, y, (size_t)n * ROWS), fill_random(rng, b, n),
        fill_random(rng, w, n);
    void *dh = gpu_put(u, h, sizeof *h * n * ALL, 0), *dy = gpu_put(u, y, sizeof *y * n * ROWS, 0),
         *db = gpu_put(u, b, sizeof *b * n, 0);
    void *dw = gpu_put(u, w, sizeof *w * n, 0), *dr = gpu_put(u, rows, sizeof rows, 0),
         *dx = gpu_new(u, sizeof *x * ld * ROWS);
    void *q8 = gpu_new(u, s8 * ROWS), *q8k = gpu_new(u, s8k * ROWS);
    struct ntx_gpu_norm p = {.h = dh,
                             .y = add ? dy : NULL,
                             .bias = bias ? db : NULL,
                             .w = dw,
                             .times = 1,
                             .rows = dr,
                             .x = dx,
                             .q8 = q8,
                             .q8k = n % 256 ? NULL : q8k,
                             .ld_h = n,
                             .ld_y = n,
                             .ld_x = ld,
                             .q8_stride = s8,
                             .q8k_stride = s8k,
                             .n = n,
                             .n_rows = ROWS,
                             .eps = 1e-5f};
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
    gpu_drop(u, dh), gpu_drop(u, dy), gpu_drop(u, db), gpu_drop(u, dw), gpu_drop(u, dr), gpu_drop(u, dx),
        gpu_drop(u, q8), gpu_drop(u, q8k);
    free(h), free(y), free(b), free(w), free(x), free(got), free(got_h);
}

/* act: NTX_N_FFN_ACTS for none; biases: of these rows */
static void pack(struct gpu *u, struct rng *rng, uint32_t n, enum ntx_ffn_act act, bool biases)
{
    enum { ROWS = 2, EXPERTS = 3 };
    static const uint32_t of[ROWS] = {2, 1};
    bool glu = act != NTX_N_FFN_ACTS;
    size_t s8 = ntx_act_row_bytes(NTX_ACT_Q8, n), s8k = ntx_act_row_bytes(NTX_ACT_Q8K, n);
    float *x = malloc(sizeof *x * n * ROWS), *up = malloc(sizeof *up * n * ROWS), *got = malloc(sizeof *x * n * ROWS);
    fill_random(rng, x, (size_t)n * ROWS), fill_random(rng, up, (size_t)n * ROWS);
    for (uint32_t k = 0; k < n; k += 7)
        x[k] *= 60; /* both ends of the sigmoid */
    memset(x + n - 32, 0, 32 * sizeof *x);
    if (!glu)
        x[n + 5] = NAN, x[n + 40] = INFINITY;
    void *dx = gpu_put(u, x, sizeof *x * n * ROWS, 0), *du = gpu_put(u, up, sizeof *x * n * ROWS, 0),
         *q8 = gpu_new(u, s8 * ROWS), *q8k = gpu_new(u, s8k * ROWS);
    float *bias = malloc(sizeof *bias * n * EXPERTS * 2);
    fill_random(rng, bias, (size_t)n * EXPERTS * 2);
    float *db = gpu_put(u, bias, sizeof *bias * n * EXPERTS * 2, 0);
    void *d_of = gpu_put(u, of, sizeof of, 0);
    struct ntx_gpu_quantize p = {.x = dx,
                                 .up = glu ? du : NULL,
                                 .q8 = q8,
                                 .q8k = n % 256 ? NULL : q8k,
                                 .ld_x = n,
                                 .ld_up = n,
                                 .q8_stride = s8,
                                 .q8k_stride = s8k,
                                 .n = n,
                                 .n_rows = ROWS,
                                 .by.act = (uint8_t)act};
    if (biases)
        p.x_bias = db, p.up_bias = db + (size_t)n * EXPERTS, p.bias_rows = d_of;
    OK(u, u->ops->launch(u->s, NTX_GPU_QUANTIZE, &p));
    for (uint32_t r = 0; biases && r < ROWS; r++) {
        oracle->add(x + (size_t)r * n, bias + (size_t)of[r] * n, n);
        oracle->add(up + (size_t)r * n, bias + (size_t)(EXPERTS + of[r]) * n, n);
    }
    for (uint32_t r = 0; glu && r < ROWS; r++)
        oracle->glu[act](x + (size_t)r * n, up + (size_t)r * n, n, x + (size_t)r * n);
    gpu_get(u, got, dx, sizeof *x * n * ROWS);
    check_rows("glu", got, n, x, n, ROWS);
    check_packed(u, NTX_ACT_Q8, q8, s8, x, n, ROWS, "pack");
    if (n % 256 == 0)
        check_packed(u, NTX_ACT_Q8K, q8k, s8k, x, n, ROWS, "pack");
    gpu_drop(u, dx), gpu_drop(u, du), gpu_drop(u, q8), gpu_drop(u, q8k), gpu_drop(u, db), gpu_drop(u, d_of);
    free(x), free(up), free(got), free(bias);
}

static void vectors(struct gpu *u, struct rng *rng)
{
    static const uint32_t widths[] = {32, 96, 256, 288, 1280, 4096 + 256, 8192 + 512};
    for (unsigned i = 0; i < sizeof widths / sizeof *widths; i++) {
        norm(u, rng, widths[i], i & 1, i & 2);
        norm(u, rng, widths[i], true, true);
        for (unsigned act = 0; act <= NTX_N_FFN_ACTS; act++)
            if (act != NTX_FFN_SITU) /* devices have no kernel for it, and RECALL beside it is refused there */
                pack(u, rng, widths[i] < 64 ? 64 : widths[i], act, false);
        pack(u, rng, widths[i] < 64 ? 64 : widths[i], NTX_FFN_SILU_CLAMPED, true);
    }
}

/* ---- around the experts' products */

static void gather(struct gpu *u, struct rng *rng)
{
    enum { N = 4, BYTES = 1100, FROM = BYTES + 12, TO = BYTES + 4 };
    static const uint32_t rows[N] = {5, 0, 5, 2};
    static uint8_t from[6 * FROM], got[N * TO];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)rng_u32(rng);
    void *df = gpu_put(u, from, sizeof from, 0), *dt = gpu_new(u, sizeof got), *dr = gpu_put(u, rows, sizeof rows, 0);
    const struct ntx_gpu_gather g = {
        .from = df, .to = dt, .rows = dr, .from_stride = FROM, .to_stride = TO, .bytes = BYTES, .n_rows = N};
    OK(u, u->ops->launch(u->s, NTX_GPU_GATHER, &g));
    gpu_get(u, got, dt, sizeof got);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < TO; k++)
            CHECK_EQ(got[i * TO + k], k < BYTES ? from[rows[i] * FROM + (uint32_t)k] : 0xff);
    gpu_drop(u, df), gpu_drop(u, dt), gpu_drop(u, dr);
}

/* Choices come in two groups, whose numbers are the places; the shared expert's gate belongs to the first. */
static void combine(struct gpu *u, struct rng *rng, bool biases)
{
    enum { ROWS = 3, USED = 2, N = 300, LD = N + 4, CHOICES = ROWS * USED, FIRST_GROUP = 4 };
    static const uint32_t place[CHOICES] = {0, 4, 1, 2, 3, 5}, expert[CHOICES] = {0, 0, 3, 3, 4, 4};
    static float bias[5 * N], y[ROWS * N], z[CHOICES * N], gate[ROWS], weight[CHOICES], in[ROWS * LD], got[ROWS * LD];
    fill_random(rng, y, ROWS * N), fill_random(rng, z, CHOICES * N), fill_random(rng, gate, ROWS),
        fill_random(rng, weight, CHOICES);
    fill_random(rng, bias, 5 * N);
    memset(in, 0xff, sizeof in);
    for (int r = 0; r < ROWS; r++)
        memcpy(in + r * LD, y + r * N, N * sizeof *y);
    void *dy = gpu_put(u, in, sizeof in, 0), *dz = gpu_put(u, z, sizeof z, 0), *dg = gpu_put(u, gate, sizeof gate, 0);
    void *dw = gpu_put(u, weight, sizeof weight, 0), *dp = gpu_put(u, place, sizeof place, 0),
         *db = gpu_put(u, bias, sizeof bias, 0), *de = gpu_put(u, expert, sizeof expert, 0);
    struct ntx_gpu_combine c = {.y = dy,
                                .z = dz,
                                .gate = dg,
                                .weight = dw,
                                .place = dp,
                                .ld_y = LD,
                                .used = USED,
                                .n_choices = FIRST_GROUP,
                                .n = N,
                                .n_rows = ROWS};
    if (biases)
        c.bias = db, c.expert = de;
    OK(u, u->ops->launch(u->s, NTX_GPU_COMBINE, &c));
    c.z = (const float *)dz + FIRST_GROUP * N;
    c.gate = NULL;
    c.first = FIRST_GROUP;
    c.n_choices = CHOICES - FIRST_GROUP;
    OK(u, u->ops->launch(u->s, NTX_GPU_COMBINE, &c));
    for (int r = 0; r < ROWS; r++) {
        float e = -gate[r];
        oracle->exp_of(&e, 0, 1);
        for (int k = 0; k < N; k++)
            y[r * N + k] *= 1 / (1 + e);
        for (int k = r * USED; k < (r + 1) * USED; k++) {
            if (biases)
                oracle->add(z + place[k] * N, bias + expert[place[k]] * N, N);
            oracle->add_scaled(y + r * N, weight[k], z + place[k] * N, N);
        }
    }
    gpu_get(u, got, dy, sizeof got);
    check_rows("combined", got, LD, y, N, ROWS);
    gpu_drop(u, dy), gpu_drop(u, dz), gpu_drop(u, dg), gpu_drop(u, dw), gpu_drop(u, dp), gpu_drop(u, db),
        gpu_drop(u, de);
}

/* ---- the largest logits */

static bool larger_than(const float *x, uint32_t i, uint32_t j)
{
    float a = isnan(x[i]) ? -INFINITY : x[i], b = isnan(x[j]) ? -INFINITY : x[j];
    return a > b || (a == b && i < j);
}

static void best(struct gpu *u, struct rng *rng, uint32_t n, uint32_t k, bool coarse)
{
    enum { ROWS = 2 };
    uint32_t ld = n + 3;
    float *x = malloc(sizeof *x * ld * ROWS);
    struct ntx_gpu_candidate *got = malloc(sizeof *got * (k * ROWS + 1));
    fill_random(rng, x, (size_t)ld * ROWS);
    for (uint32_t i = 0; coarse && i < ld * ROWS; i++)
        x[i] = roundf(x[i] * 3); /* many equal ones, and -0 beside 0 */
    x[n / 2] = NAN, x[0] = -INFINITY, x[ld + n - 1] = INFINITY;
    void *dx = gpu_put(u, x, sizeof *x * ld * ROWS, 0), *out = gpu_new(u, sizeof *got * (k * ROWS + 1));
    void *some = gpu_new(u, sizeof *got * k * ROWS * ((n + NTX_GPU_BEST_PART - 1) / NTX_GPU_BEST_PART));
    OK(u, u->ops->fill(
              u->s, some, 0x7f,
              sizeof *got * k * ROWS *
                  ((n + NTX_GPU_BEST_PART - 1) / NTX_GPU_BEST_PART))); /* what an earlier launch left would be chosen */
    const struct ntx_gpu_best p = {.x = dx, .out = out, .some = some, .ld_x = ld, .k = k, .n = n, .n_rows = ROWS};
    OK(u, u->ops->launch(u->s, NTX_GPU_BEST, &p));
    gpu_get(u, got, out, sizeof *got * (k * ROWS + 1));
    for (uint32_t r = 0; r < ROWS; r++) {
        const float *row = x + (size_t)r * ld;
        uint32_t found = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t before = 0;
            for (uint32_t j = 0; j < n; j++)
                before += larger_than(row, j, i);
            if (before >= k)
                continue;
            const struct ntx_gpu_candidate *c = &got[r * k + found++];
            CHECK_EQ(c->id, (int32_t)i);
            CHECK(c->logit == (isnan(row[i]) ? -INFINITY : row[i]));
        }
        CHECK_EQ(found, k);
    }
    CHECK(isnan(got[k * ROWS].logit));
    gpu_drop(u, dx), gpu_drop(u, out), gpu_drop(u, some);
    free(x), free(got);
}

int main(int argc, char **argv)
{
    struct gpu u;
    struct rng rng = {7};
    struct ntx_fake_control *(*control)(void);
    CHECK(argc == 2);
    oracle = ntx_cpu_pick("generic");
    gpu_open(&u, argv[1]);
    products(&u, &rng);
    *(void **)&control = dlsym(dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), "ntx_fake_control");
    persistent(&u, &rng, control ? control() : NULL);
    groups(&u, &rng);
    for (uint32_t rows = 1; rows <= NTX_GPU_ROWS; rows += 3) {
        together(&u, &rng, NTX_Q4_K, 512, rows);
        together(&u, &rng, NTX_Q8_0, 96, rows);
        together(&u, &rng, NTX_F16, 37, rows);
    }
    together(&u, &rng, NTX_Q4_K, 512, 70); /* on the matrix units */
    together(&u, &rng, NTX_Q8_0, 96, 19);
    together(&u, &rng, NTX_NVFP4, 128, 33);
    together(&u, &rng, NTX_F32, 37, 21); /* eight a block */
    for (unsigned i = 0; i < N_TYPES; i++)
        widen(&u, &rng, types[i]);
    dense(&u, &rng);
    vectors(&u, &rng);
    gather(&u, &rng);
    combine(&u, &rng, false);
    combine(&u, &rng, true);
    best(&u, &rng, 1000, 40, false);
    best(&u, &rng, 777, 64, true);
    best(&u, &rng, 300, 300, true);
    best(&u, &rng, 31, 1, false);
    for (uint32_t k = 300; k < 309; k++) /* of equal ones the first, wherever they fall among threads */
        best(&u, &rng, 1100, k, true);
    best(&u, &rng, 4200, 110, true); /* the second part has fewer than are wanted */
    best(&u, &rng, 4096 + 40, 9, false);
    gpu_close(&u);
    puts("products, groups of neurons, widening, dense, norms, packing, experts' gathering and adding, and the best "
         "logits agree with the CPU");
    return 0;
}
