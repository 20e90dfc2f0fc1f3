/* SPDX-License-Identifier: Apache-2.0 */
/* routed.c: routing on a device (argument: the plug-in's path). The routed experts, and their order by expert, are
 * those of computed/pass/moe.c. Products of routed experts, and of tiles of them, have the CPU's bits for every
 * type. */
#include "common/util.h"
#include "computed/cpu/cpu.h"
#include "tests/lib/cuda_kit.h"

#define TYPE(rule, TYPE, ...) NTX_##TYPE,
static const uint32_t types[] = {NTX_TYPES(TYPE)};

static const struct ntx_cpu_ops *oracle;

/* ---- routed experts: each has a row of y, by two matrices of its expert; x has a row for each, or one for every
 * three */

static void routed(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n_in, uint32_t each)
{
    enum { EXPERTS = 5, N = 6, OUT = 9, LDY = 12 };
    static const uint32_t expert[N] = {4, 0, 3, 3, 1, 4};
    enum ntx_act form = ntx_act_for(type);
    const size_t row_bytes = ntx_row_bytes(type, n_in), stride = ntx_act_row_bytes(form, n_in) + 64,
                 bytes = NTX_ROUND_UP(2 * OUT * row_bytes, 256);
    uint8_t *w = calloc(EXPERTS, bytes);
    char *x = aligned_bytes(stride * N);
    float *row = malloc(n_in * sizeof *row), want[2][N * OUT], got[N * LDY];
    for (uint32_t e = 0; e < EXPERTS; e++) {
        uint8_t *one = random_weights(rng, type, 2 * OUT * row_bytes, false);
        memcpy(w + e * bytes, one, 2 * OUT * row_bytes);
        free(one);
    }
    for (uint32_t r = 0; r < N; r++) {
        fill_random(rng, row, n_in);
        oracle->act_quantize[form](row, x + r * stride, n_in);
    }
    for (uint32_t c = 0; c < N; c++)
        for (uint32_t i = 0; i < 2; i++)
            oracle->matmul[type](w + expert[c] * bytes + i * OUT * row_bytes, row_bytes, OUT, n_in,
                                 x + c / each * stride, stride, 1, want[i] + c * OUT, OUT);
    void *dw = gpu_put(u, w, EXPERTS * bytes, NTX_GPU_SLACK), *dx = gpu_put(u, x, stride * N, 0),
         *list = gpu_put(u, expert, sizeof expert, 0), *dy[2] = {gpu_new(u, sizeof got), gpu_new(u, sizeof got)};
    struct ntx_gpu_product p = {
        .w = dw,
        .x = dx,
        .y = dy[0],
        .routed = {list, bytes, N, each},
        .row_bytes = row_bytes,
        .x_stride = stride,
        .ldy = LDY,
        .type = type,
        .n_out = OUT,
        .n_in = n_in,
        .n_rows = 1,
        .n_others = 1,
        .others = {{.w = (uint8_t *)dw + OUT * row_bytes, .x = dx, .y = dy[1], .ldy = LDY, .n_out = OUT, .n_rows = 1}}};
    OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p));
    for (uint32_t i = 0; i < 2; i++) {
        gpu_get(u, got, dy[i], sizeof got);
        check_rows("choices", got, LDY, want[i], OUT, N);
    }
    p.n_rows = 2;
    CHECK_EQ(u->ops->launch(u->s, NTX_GPU_PRODUCT, &p), -22); /* EINVAL */
    gpu_drop(u, dw), gpu_drop(u, dx), gpu_drop(u, list), gpu_drop(u, dy[0]), gpu_drop(u, dy[1]);
    free(w), free(x), free(row);
}

/* ---- tiles: rows of x and y by one of several matrices, two of each; rows outside all tiles stay unchanged */

static void tiles(struct gpu *u, struct rng *rng, uint32_t type, uint32_t n_in, uint32_t high)
{
    enum { EXPERTS = 4, N = 45, OUT = 9, LDY = 12, TILES = 7 };
    const struct ntx_gpu_tile list[TILES] = {{3, 2, high, 0},
                                             {0, 0, 0, 0},
                                             {1, 2 + high, 1, 0},
                                             {3, 3 + high, high - high / 4, 0},
                                             {7, 99, 0, 0},
                                             {0, 0, 1, 0},
                                             {2, 4 + 2 * high - high / 4 < N ? N - 1 : 1, 1, 0}};
    enum ntx_act form = ntx_act_for(type);
    const size_t row_bytes = ntx_row_bytes(type, n_in), stride = ntx_act_row_bytes(form, n_in) + 64,
                 bytes = NTX_ROUND_UP(2 * OUT * row_bytes, 256);
    uint8_t *w = calloc(EXPERTS, bytes);
    char *x = aligned_bytes(stride * 2 * N);
    float *row = malloc(n_in * sizeof *row), want[2][2 * N * LDY], got[2 * N * LDY];
    for (uint32_t e = 0; e < EXPERTS; e++) {
        uint8_t *one = random_weights(rng, type, 2 * OUT * row_bytes, false);
        memcpy(w + e * bytes, one, 2 * OUT * row_bytes);
        free(one);
    }
    for (uint32_t r = 0; r < 2 * N; r++) {
        fill_random(rng, row, n_in);
        oracle->act_quantize[form](row, x + r * stride, n_in);
    }
    void *dw = gpu_put(u, w, EXPERTS * bytes, NTX_GPU_SLACK), *dx = gpu_put(u, x, stride * 2 * N, 0),
         *dl = gpu_put(u, list, sizeof list, 0), *dy[2];
    for (uint32_t i = 0; i < 2; i++) {
        memset(want[i], 0x11, sizeof want[i]);
        dy[i] = gpu_put(u, want[i], sizeof want[i], 0);
        for (uint32_t t = 0; t < TILES; t++)
            if (list[t].n)
                oracle->matmul[type](w + list[t].expert * bytes + i * OUT * row_bytes, row_bytes, OUT, n_in,
                                     x + list[t].first * stride, stride, list[t].n, want[i] + list[t].first * LDY, LDY);
    }
    struct ntx_gpu_product p = {
        .w = dw,
        .x = dx,
        .y = dy[0],
        .tiles = {dl, bytes, TILES},
        .row_bytes = row_bytes,
        .x_stride = stride,
        .ldy = LDY,
        .type = type,
        .n_out = OUT,
        .n_in = n_in,
        .n_rows = high,
        .n_others = 1,
        .others = {
            {.w = (uint8_t *)dw + OUT * row_bytes, .x = dx, .y = dy[1], .ldy = LDY, .n_out = OUT, .n_rows = high}}};
    OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p));
    for (uint32_t i = 0; i < 2; i++) {
        gpu_get(u, got, dy[i], sizeof got);
        CHECK_MSG(!memcmp(got, want[i], sizeof got),
                  "%s, tiles of %u rows, matrix %u: not the CPU's bits, or what is none of theirs",
                  ntx_type_info(type)->name, high, i);
    }
    p.n_rows = p.others[0].n_rows = NTX_GPU_MANY + 1;
    CHECK_EQ(u->ops->launch(u->s, NTX_GPU_PRODUCT, &p), -22); /* EINVAL */
    gpu_drop(u, dw), gpu_drop(u, dx), gpu_drop(u, dl), gpu_drop(u, dy[0]), gpu_drop(u, dy[1]);
    free(w), free(x), free(row);
}

/* ---- routed experts sorted by expert, and their tiles wave by wave */

static void sorted(struct gpu *u, struct rng *rng, uint32_t n_rows, uint32_t used, uint32_t n_expert, uint32_t wave,
                   uint32_t high)
{
    enum { MOST = 4000 };
    static uint32_t selected[MOST], place[MOST], row[MOST], expert[MOST], lists[3][MOST];
    const uint32_t n = n_rows * used, waves = (n + wave - 1) / wave, n_tiles = NTX_GPU_TILES(wave, n_expert, high) + 1;
    struct ntx_gpu_tile *got = malloc(waves * n_tiles * sizeof *got);
    CHECK(n <= MOST);
    for (uint32_t c = 0; c < n; c++) /* one expert has half of them; some have none */
        selected[c] = rng_u32(rng) % 2 ? n_expert / 2 : rng_u32(rng) % n_expert & ~1u;
    for (uint32_t e = 0, at = 0; e < n_expert; e++)
        for (uint32_t c = 0; c < n; c++)
            if (selected[c] == e) {
                place[c] = at;
                row[at] = c / used;
                expert[at++] = e;
            }
    void *dc = gpu_put(u, selected, n * 4, 0), *dl = gpu_new(u, sizeof lists),
         *dt = gpu_new(u, waves * n_tiles * sizeof *got);
    uint32_t *const list = dl;
    struct ntx_gpu_sort g = {.selected = dc,
                             .place = list,
                             .row = list + MOST,
                             .expert = list + 2 * MOST,
                             .tiles = dt,
                             .n_rows = n_rows,
                             .used = used,
                             .n_expert = n_expert,
                             .wave = wave,
                             .high = high,
                             .n_tiles = n_tiles};
    OK(u, u->ops->launch(u->s, NTX_GPU_SORT, &g));
    gpu_get(u, lists, dl, sizeof lists);
    gpu_get(u, got, dt, waves * n_tiles * sizeof *got);
    CHECK(!memcmp(lists[0], place, n * 4) && !memcmp(lists[1], row, n * 4) && !memcmp(lists[2], expert, n * 4));
    for (uint32_t w = 0; w < waves; w++) {
        const uint32_t end = NTX_MIN((w + 1) * wave, n);
        uint32_t at = w * wave, t = 0;
        for (; at < end; t++) { /* each tile is as long as it can be */
            uint32_t k = 1;
            while (k < high && at + k < end && expert[at + k] == expert[at])
                k++;
            CHECK(t + 1 < n_tiles);
            CHECK_EQ(got[w * n_tiles + t].expert, expert[at]);
            CHECK_EQ(got[w * n_tiles + t].first, at - w * wave);
            CHECK_EQ(got[w * n_tiles + t].n, k);
            at += k;
        }
        for (; t < n_tiles; t++)
            CHECK_EQ(got[w * n_tiles + t].n, 0);
    }
    g.n_tiles = NTX_GPU_TILES(wave, n_expert, high) - 1;
    CHECK_EQ(u->ops->launch(u->s, NTX_GPU_SORT, &g), -22); /* EINVAL: there may be more */
    gpu_drop(u, dc), gpu_drop(u, dl), gpu_drop(u, dt);
    free(got);
}

/* ---- routing: the experts that computed/pass/moe.c routes to */

struct router {
    uint32_t n, used;
    const float *bias, *choice, *factor;
    struct ntx_router by;
};

static void score(const struct router *r, float *p)
{
    float most = -INFINITY, sum = 0;
    for (uint32_t e = 0; e < r->n; e++) {
        p[e] += r->bias ? r->bias[e] : 0;
        most = fmaxf(most, p[e]);
    }
    for (uint32_t e = 0; e < r->n; e++)
        if (r->by.score == NTX_SCORE_SQRT_SOFTPLUS)
            p[e] = (float)sqrt(p[e] > 20 ? (double)p[e] : log1p(exp((double)p[e])));
        else {
            p[e] = r->by.score == NTX_SCORE_SIGMOID ? -p[e] : p[e];
            oracle->exp_of(p + e, r->by.score == NTX_SCORE_SIGMOID ? 0 : most, 1);
            sum += p[e];
        }
    for (uint32_t e = 0; e < r->n; e++)
        if (r->by.score == NTX_SCORE_SIGMOID)
            p[e] = 1 / (1 + p[e]);
        else if (r->by.score == NTX_SCORE_SOFTMAX)
            p[e] /= sum;
}

/* Index of the first largest of the n values that are not taken. */
static uint32_t largest_left(const float *v, const bool *taken, uint32_t n)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t e = 0; e < n; e++)
        if (!taken[e] && (best == UINT32_MAX || v[e] > v[best]))
            best = e;
    return best;
}

/* Marks the experts of all but the best groups as taken. */
static void leave_groups(const struct router *r, const float *v, bool *taken)
{
    const uint32_t each = r->by.n_expert_groups ? r->n / r->by.n_expert_groups : 0;
    float sum[8];
    bool in[8] = {false};
    for (uint32_t g = 0; g < r->by.n_expert_groups; g++) {
        bool some[64] = {false};
        const uint32_t first = largest_left(v + g * each, some, each);
        some[first] = true;
        sum[g] = v[g * each + first] +
                 (r->by.expert_groups_by_best ? 0 : v[g * each + largest_left(v + g * each, some, each)]);
    }
    for (uint32_t k = 0; k < r->by.expert_groups_used; k++)
        in[largest_left(sum, in, r->by.n_expert_groups)] = true;
    for (uint32_t e = 0; e < r->n && each; e++)
        taken[e] = !in[e / each];
}

static void choose(const struct router *r, const float *logits, uint32_t *id, float *weight)
{
    float p[64], v[64], sum = 0;
    bool taken[64] = {false}, mine[64] = {false};
    memcpy(p, logits, r->n * sizeof *p);
    score(r, p);
    for (uint32_t e = 0; e < r->n; e++)
        v[e] = r->choice ? p[e] + r->choice[e] : p[e];
    leave_groups(r, v, taken);
    for (uint32_t k = 0; k < r->used; k++) {
        const uint32_t e = largest_left(v, taken, r->n);
        taken[e] = mine[e] = true;
        sum += p[e];
    }
    for (uint32_t e = 0, k = 0; e < r->n; e++)
        if (mine[e]) {
            id[k] = e;
            weight[k++] = p[e] * (r->by.norm ? 1 / fmaxf(sum, NTX_LEAST_WEIGHTS) : 1) * r->by.scale *
                          (r->factor ? r->factor[e] : 1);
        }
}

static void route(struct gpu *u, struct rng *rng, struct router r, uint32_t more)
{
    enum { ROWS = 9, MOST = 16 };
    float x[ROWS * 64], vectors[3][64], weight[MOST], got_weight[ROWS * MOST];
    uint32_t id[MOST], lists[3][ROWS * MOST];
    fill_random(rng, x, ROWS * r.n);
    fill_random(rng, vectors[0], 3 * 64);
    for (uint32_t e = 0; e < r.n; e++) {
        x[r.n + e] = x[r.n]; /* all alike */
        x[2 * r.n + e] = roundf(2 * x[2 * r.n + e]);
        x[3 * r.n + e] = e % 2 ? -200 : 200;
        x[4 * r.n + e] = -60 - (float)(e % 7) / 8; /* sums below the least */
    }
    const float *const on_host[3] = {more & 1 ? vectors[0] : NULL, more & 2 ? vectors[1] : NULL,
                                     more & 4 ? vectors[2] : NULL};
    void *dv = gpu_put(u, vectors, sizeof vectors, 0), *dx = gpu_put(u, x, ROWS * r.n * sizeof *x, 0),
         *dw = gpu_new(u, sizeof got_weight), *dl = gpu_new(u, sizeof lists);
    float *const of = dv;
    uint32_t *const list = dl;
    r.bias = on_host[0], r.choice = on_host[1], r.factor = on_host[2];
    const struct ntx_gpu_route g = {.logits = dx,
                                    .bias = more & 1 ? of : NULL,
                                    .choice = more & 2 ? of + 64 : NULL,
                                    .factor = more & 4 ? of + 128 : NULL,
                                    .weight = dw,
                                    .place = list,
                                    .row = list + ROWS * MOST,
                                    .expert = list + 2 * ROWS * MOST,
                                    .ld_logits = r.n,
                                    .n_rows = ROWS,
                                    .n_expert = r.n,
                                    .used = r.used,
                                    .by = r.by};
    OK(u, u->ops->launch(u->s, NTX_GPU_ROUTE, &g));
    gpu_get(u, got_weight, dw, sizeof got_weight);
    gpu_get(u, lists, dl, sizeof lists);
    for (uint32_t i = 0; i < ROWS; i++) {
        choose(&r, x + i * r.n, id, weight);
        for (uint32_t k = 0, c = i * r.used; k < r.used; k++, c++)
            CHECK_MSG(lists[2][c] == id[k] && lists[1][c] == i && lists[0][c] == c &&
                          !memcmp(&got_weight[c], &weight[k], 4),
                      "score %u, row %u, choice %u: expert %u by %.9g, not %u by %.9g", r.by.score, i, k, lists[2][c],
                      (double)got_weight[c], id[k], (double)weight[k]);
    }
    CHECK(isnan(got_weight[ROWS * r.used]));
    gpu_drop(u, dv), gpu_drop(u, dx), gpu_drop(u, dw), gpu_drop(u, dl);
}

static void routers(struct gpu *u, struct rng *rng)
{
    for (uint32_t by = NTX_SCORE_SOFTMAX; by <= NTX_SCORE_SQRT_SOFTPLUS; by++)
        for (uint32_t more = 0; more < 8; more++) {
            route(u, rng,
                  (struct router){.n = 60, .used = 6, .by = {.score = (uint8_t)by, .norm = more % 3, .scale = 2.5f}},
                  more);
            route(u, rng,
                  (struct router){.n = 5, .used = 5, .by = {.score = (uint8_t)by, .norm = more % 2, .scale = 1}}, more);
            route(u, rng,
                  (struct router){.n = 48,
                                  .used = 4,
                                  .by = {.score = (uint8_t)by,
                                         .norm = true,
                                         .scale = 1,
                                         .n_expert_groups = 6,
                                         .expert_groups_used = 2}},
                  more);
            route(u, rng,
                  (struct router){.n = 48,
                                  .used = 4,
                                  .by = {.score = (uint8_t)by,
                                         .expert_groups_by_best = true,
                                         .scale = 1,
                                         .n_expert_groups = 8,
                                         .expert_groups_used = 3}},
                  more);
        }
    const struct ntx_gpu_route few = {
        .n_rows = 1, .n_expert = 8, .used = 3, .by = {.n_expert_groups = 4, .expert_groups_used = 1}};
    CHECK_EQ(u->ops->launch(u->s, NTX_GPU_ROUTE, &few), -22); /* EINVAL: there are two to choose from */
}

int main(int argc, char **argv)
{
    struct gpu u;
    struct rng rng = {7};
    CHECK(argc == 2);
    oracle = ntx_cpu_pick("generic");
    gpu_open(&u, argv[1]);
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
        const uint32_t block = ntx_type_info(types[i])->block;
        routed(&u, &rng, types[i], block == 1 ? 37 : 3 * block, i % 2 ? 3 : 1);
    }
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
        const uint32_t block = ntx_type_info(types[i])->block, n_in = block == 1 ? 37 : 2 * block;
        const bool floats = ntx_act_for(types[i]) == NTX_ACT_F32;
        tiles(&u, &rng, types[i], n_in, floats ? NTX_GPU_ROWS : NTX_GPU_MANY);
        tiles(&u, &rng, types[i], n_in, i % 2 ? 2 : 4);
    }
    sorted(&u, &rng, 3, 2, 5, 3, 2);
    sorted(&u, &rng, 41, 3, 6, 41, 32);
    sorted(&u, &rng, 64, 8, 40, 64, 4);
    sorted(&u, &rng, 500, 8, 30, 500, 32);
    sorted(&u, &rng, 5, 4, NTX_GPU_EXPERTS, 7, 1);
    routers(&u, &rng);
    gpu_close(&u);
    puts("choices of experts, their order, and products of their rows and tiles agree with the CPU");
    return 0;
}
