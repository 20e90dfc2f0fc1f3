/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c: bench_cuda PLUGIN [preflight] [tiny]: on a card, the rates that everything else is compared with, and the
 * product kernels beside them. CSV:
 *   copy on the device (bytes read and written), copy to the device from locked memory, then per type and shape of one
 *     row and of eight:
 *   bytes of weights per second and their share of the device's copy rate; attention of decoding in bytes of KV per
 *     second; dense
 *   products, experts' tiles and attention of prompts in FLOP/s; widening; the best logits of a row in microseconds;
 *     sums of a packed layer's columns.
 * preflight: no rates, but a line on the card, one on shared memory of 4 GiB that is locked for copies, one on how long
 * an empty launch takes. Medians of ROUNDS, each of many launches between two events. tiny: small sizes, to try the
 * program. Exits 77 with the reason where there is no card. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/cuda_kit.h"

enum { ROUNDS = 7 };
static size_t WEIGHTS = 1 << 30, COPY = 256 << 20; /* bytes */

struct timer {
    struct gpu *u;
    struct ntx_gpu_event *from, *to;
    float ms[ROUNDS];
};

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median_s(struct timer *t)
{
    qsort(t->ms, ROUNDS, sizeof *t->ms, by_value);
    return t->ms[ROUNDS / 2] / 1e3;
}

#define TIMED(t, call)                                                                                                 \
    for (int round_ = 0; round_ < ROUNDS; round_++) {                                                                  \
        OK((t)->u, (t)->u->ops->event_record((t)->from, (t)->u->s));                                                   \
        call;                                                                                                          \
        OK((t)->u, (t)->u->ops->event_record((t)->to, (t)->u->s));                                                     \
        OK((t)->u, (t)->u->ops->event_sync((t)->to));                                                                  \
        OK((t)->u, (t)->u->ops->event_ms((t)->from, (t)->to, &(t)->ms[round_]));                                       \
    }

/* Data as random as a model's, since the power that a GPU draws depends on it: bytes of 0 to 63, which are finite in
 * any type. */
static void fill(struct gpu *u, void *dev, size_t bytes)
{
    static uint8_t some[1 << 20];
    struct rng rng = {5};
    for (size_t i = 0; i < sizeof some; i++)
        some[i] = (uint8_t)(rng_u32(&rng) >> 26);
    size_t at = NTX_MIN(bytes, sizeof some);
    OK(u, u->ops->upload(u->s, dev, some, at));
    for (size_t n; at < bytes; at += n) {
        n = NTX_MIN(at, bytes - at);
        OK(u, u->ops->device_copy(u->s, (uint8_t *)dev + at, dev, n));
    }
    OK(u, u->ops->stream_sync(u->s));
}

static double copies(struct timer *t)
{
    struct gpu *u = t->u;
    void *a = gpu_new(u, WEIGHTS), *b = gpu_new(u, WEIGHTS), *host;
    OK(u, u->ops->host_alloc(u->g, COPY, &host));
    fill(u, a, WEIGHTS);
    OK(u, u->ops->download(u->s, host, a, COPY));
    TIMED(t, OK(u, u->ops->device_copy(u->s, b, a, WEIGHTS)));
    double copy = 2.0 * WEIGHTS / median_s(t);
    printf("device copy,,,,%.1f,\n", copy / 1e9);
    TIMED(t, OK(u, u->ops->upload(u->s, a, host, COPY)));
    printf("host to device,,,,%.2f,\n", (double)COPY / median_s(t) / 1e9);
    u->ops->host_free(u->g, host);
    gpu_drop(u, a), gpu_drop(u, b);
    return copy;
}

/* As many matrices as make WEIGHTS bytes, so that no cache holds them. */
static void product_rate(struct timer *t, double copy, uint32_t type, uint32_t n_in, uint32_t n_out, uint32_t rows)
{
    struct gpu *u = t->u;
    size_t row = ntx_row_bytes(type, n_in), matrix = row * n_out, stride = ntx_act_row_bytes(ntx_act_for(type), n_in);
    uint32_t n = (uint32_t)(WEIGHTS / matrix) + (WEIGHTS < matrix);
    uint8_t *w = gpu_new(u, matrix * n + NTX_GPU_SLACK), *x = gpu_new(u, stride * rows),
            *y = gpu_new(u, sizeof(float) * n_out * rows);
    struct ntx_gpu_product p = {.x = x,
                                .y = (float *)(void *)y,
                                .row_bytes = row,
                                .x_stride = stride,
                                .ldy = n_out,
                                .type = type,
                                .n_out = n_out,
                                .n_in = n_in,
                                .n_rows = rows};
    fill(u, w, matrix * n);
    fill(u, x, stride * rows);
    TIMED(
        t, for (uint32_t i = 0; i < n; i++) {
            p.w = w + i * matrix;
            OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p));
        });
    double rate = (double)matrix * n / median_s(t);
    printf("product,%s,%u x %u,%u,%.1f,%.3f\n", ntx_type_info(type)->name, n_out, n_in, rows, rate / 1e9, rate / copy);
    if (rows > NTX_GPU_ROWS)
        printf("product TFLOP/s,%s,%u x %u,%u,%.1f,\n", ntx_type_info(type)->name, n_out, n_in, rows,
               2.0 * n_in * n_out * rows * n / median_s(t) / 1e12);
    gpu_drop(u, w), gpu_drop(u, x), gpu_drop(u, y);
}

/* A wave of a prompt's experts: one tile of 32 rows each. */
static void tiles_rate(struct timer *t, uint32_t type, uint32_t n_in, uint32_t n_out, uint32_t experts)
{
    struct gpu *u = t->u;
    const uint32_t rows = experts * NTX_GPU_MANY;
    size_t row = ntx_row_bytes(type, n_in), matrix = row * n_out, stride = ntx_act_row_bytes(ntx_act_for(type), n_in);
    struct ntx_gpu_tile *list = malloc(experts * sizeof *list);
    for (uint32_t e = 0; e < experts; e++)
        list[e] = (struct ntx_gpu_tile){e, e * NTX_GPU_MANY, NTX_GPU_MANY, 0};
    void *w = gpu_new(u, matrix * experts + NTX_GPU_SLACK), *x = gpu_new(u, stride * rows),
         *y = gpu_new(u, sizeof(float) * n_out * rows), *l = gpu_put(u, list, experts * sizeof *list, 0);
    const struct ntx_gpu_product p = {.w = w,
                                      .x = x,
                                      .y = y,
                                      .tiles = {l, matrix, experts},
                                      .row_bytes = row,
                                      .x_stride = stride,
                                      .ldy = n_out,
                                      .type = type,
                                      .n_out = n_out,
                                      .n_in = n_in,
                                      .n_rows = NTX_GPU_MANY};
    fill(u, w, matrix * experts);
    fill(u, x, stride * rows);
    TIMED(t, for (int i = 0; i < 10; i++) OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p)));
    printf("%u experts TFLOP/s,%s,%u x %u,%u each,%.1f,\n", experts, ntx_type_info(type)->name, n_out, n_in,
           NTX_GPU_MANY, 10 * 2.0 * n_in * n_out * rows / median_s(t) / 1e12);
    gpu_drop(u, w), gpu_drop(u, x), gpu_drop(u, y), gpu_drop(u, l);
    free(list);
}

/* Bytes read and written. */
static void widen_rate(struct timer *t, double copy, uint32_t type, uint32_t n)
{
    struct gpu *u = t->u;
    const size_t row = ntx_row_bytes(type, n);
    void *w = gpu_new(u, row * n + NTX_GPU_SLACK), *out = gpu_new(u, 2ull * n * n);
    const struct ntx_gpu_widen p = {.w = w, .out = out, .row_bytes = row, .type = type, .n_out = n, .n_in = n};
    fill(u, w, row * n);
    TIMED(t, for (int i = 0; i < 10; i++) OK(u, u->ops->launch(u->s, NTX_GPU_WIDEN, &p)));
    const double rate = 10 * (double)(row + 2ull * n) * n / median_s(t);
    printf("widening,%s,%u x %u,,%.1f,%.3f\n", ntx_type_info(type)->name, n, n, rate / 1e9, rate / copy);
    gpu_drop(u, w), gpu_drop(u, out);
}

/* Columns of as many neurons as make WEIGHTS bytes, in groups of four, every `of`-th of them selected; a row of hidden
 * values that are not 0. */
static void columns_rate(struct timer *t, double copy, uint32_t type, uint32_t n, uint32_t of)
{
    enum { EACH = 4 };
    struct gpu *u = t->u;
    uint64_t column = ntx_row_bytes(type, n), group = (EACH * column + 4095) / 4096 * 4096;
    uint32_t all = (uint32_t)(WEIGHTS / group) + 1, some = (all + of - 1) / of, *list = malloc(some * sizeof *list);
    for (uint32_t i = 0; i < some; i++)
        list[i] = i * of;
    void *w = gpu_new(u, all * group + NTX_GPU_SLACK), *h = gpu_new(u, sizeof(float) * EACH * all),
         *y = gpu_new(u, sizeof(float) * n), *l = gpu_put(u, list, some * sizeof *list, 0);
    const struct ntx_gpu_columns p = {
        .w = w,
        .hidden = h,
        .y = y,
        .row_bytes = column,
        .ld_hidden = EACH * all,
        .ld_y = n,
        .type = type,
        .n = n,
        .n_rows = 1,
        .groups = {.list = l, .bytes = group, .n = some, .size = EACH, .n_neurons = EACH * all}};
    fill(u, w, all * group);
    fill(u, h, sizeof(float) * EACH * all);
    fill(u, y, sizeof(float) * n);
    TIMED(t, OK(u, u->ops->launch(u->s, NTX_GPU_COLUMNS, &p)));
    double rate = (double)column * EACH * some / median_s(t);
    printf("columns, 1 group of %u,%s,%u values,1,%.1f,%.3f\n", of, ntx_type_info(type)->name, n, rate / 1e9,
           rate / copy);
    gpu_drop(u, w), gpu_drop(u, h), gpu_drop(u, y), gpu_drop(u, l);
    free(list);
}

static void dense_rate(struct timer *t, uint32_t n, uint32_t rows)
{
    struct gpu *u = t->u;
    void *w = gpu_new(u, 2ull * n * n), *x = gpu_new(u, 2ull * n * rows), *z = gpu_new(u, 4ull * n * rows);
    fill(u, w, 2ull * n * n);
    fill(u, x, 2ull * n * rows);
    int rc = u->ops->dense(u->s, w, x, z, n, n, rows);
    if (rc) {
        printf("dense,,,,not measured: %s,\n", u->ops->error(u->g));
    } else {
        TIMED(t, for (int i = 0; i < 20; i++) OK(u, u->ops->dense(u->s, w, x, z, n, n, rows)));
        printf("dense TFLOP/s,F16,%u x %u,%u,%.1f,\n", n, n, rows, 20 * 2.0 * n * n * rows / median_s(t) / 1e12);
    }
    gpu_drop(u, w), gpu_drop(u, x), gpu_drop(u, z);
}

/* A session of `positions` in one layer, heads as of an 8B model. */
static struct ntx_gpu_kv make_cache(struct gpu *u, uint32_t positions, uint32_t q8, uint32_t **pos)
{
    uint32_t blocks = (positions + 31) / 32, *tables = malloc(blocks * sizeof *tables),
             *at = calloc(positions, sizeof *at);
    struct ntx_gpu_kv kv = {.block_tokens = 32, .n_head = 32, .n_head_kv = 8, .head_k = 128, .head_v = 128, .q8 = q8};
    kv.block_bytes = 8 * 32 * 2 * (q8 ? 136 : 256);
    *pos = malloc(positions * sizeof **pos);
    for (uint32_t b = 0; b < blocks; b++)
        tables[b] = b;
    for (uint32_t i = 0; i < positions; i++)
        (*pos)[i] = i;
    kv.base = gpu_new(u, kv.block_bytes * blocks);
    fill(u, kv.base, kv.block_bytes * blocks);
    kv.tables = gpu_put(u, tables, blocks * sizeof *tables, 0);
    kv.table_at = gpu_put(u, at, positions * sizeof *at, 0);
    kv.pos = gpu_put(u, *pos, positions * sizeof **pos, 0);
    free(tables), free(at);
    return kv;
}

static void free_cache(struct gpu *u, const struct ntx_gpu_kv *kv)
{
    gpu_drop(u, kv->base), gpu_drop(u, (void *)(uintptr_t)kv->tables), gpu_drop(u, (void *)(uintptr_t)kv->table_at),
        gpu_drop(u, (void *)(uintptr_t)kv->pos);
}

/* One row at the last position; then all rows as a prompt. */
static void attention_rate(struct timer *t, uint32_t positions, uint32_t q8)
{
    struct gpu *u = t->u;
    uint32_t *pos, *tiles = malloc(positions * 2 * sizeof *tiles), n_tiles = 0, last = positions - 1;
    struct ntx_gpu_kv kv = make_cache(u, positions, q8, &pos);
    size_t width = (size_t)kv.n_head * kv.head_k * sizeof(float),
           splits = (positions + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT;
    float *q = gpu_new(u, width * positions), *out = gpu_new(u, width * positions),
          *partial = gpu_new(u, kv.n_head * splits * (kv.head_v + 2) * sizeof(float));
    uint32_t *row = gpu_put(u, &last, sizeof last, 0);
    fill(u, q, width * positions);
    for (uint32_t i = 0; i < positions; i += 16, n_tiles++) {
        tiles[2 * n_tiles] = i;
        tiles[2 * n_tiles + 1] = positions - i < 16 ? positions - i : 16;
    }
    uint32_t *d_tiles = gpu_put(u, tiles, n_tiles * 2 * sizeof *tiles, 0);
    struct ntx_gpu_attend a = {.q = q,
                               .out = out,
                               .partial = partial,
                               .kv = kv,
                               .ld_q = width / sizeof(float),
                               .ld_out = width / sizeof(float),
                               .n_rows = 1,
                               .most_pos = positions,
                               .scale = 0.1f};
    struct ntx_gpu_prefill p = {.q = q,
                                .out = out,
                                .kv = kv,
                                .tiles = d_tiles,
                                .ld_q = width / sizeof(float),
                                .ld_out = width / sizeof(float),
                                .n_tiles = n_tiles,
                                .scale = 0.1f};
    a.kv.rows = row;
    TIMED(t, for (int i = 0; i < 10; i++) OK(u, u->ops->launch(u->s, NTX_GPU_ATTEND, &a)));
    printf("decode attention GB/s,%s,32 heads on 8 x 128,%u,%.1f,\n", q8 ? "Q8_0" : "F16", positions,
           10.0 * (double)kv.block_bytes / 32 * positions / median_s(t) / 1e9);
    TIMED(t, OK(u, u->ops->launch(u->s, NTX_GPU_PREFILL, &p)));
    printf("prefill attention TFLOP/s,%s,32 heads on 8 x 128,%u,%.2f,\n", q8 ? "Q8_0" : "F16", positions,
           2.0 * 2 * kv.n_head * kv.head_k * 0.5 * positions * (positions + 1.0) / median_s(t) / 1e12);
    free_cache(u, &kv);
    gpu_drop(u, q), gpu_drop(u, out), gpu_drop(u, partial), gpu_drop(u, row), gpu_drop(u, d_tiles);
    free(pos), free(tiles);
}

static void best_rate(struct timer *t, uint32_t n_vocab)
{
    struct gpu *u = t->u;
    float *x = malloc(n_vocab * sizeof *x);
    struct rng rng = {3};
    fill_random(&rng, x, n_vocab);
    void *dx = gpu_put(u, x, n_vocab * sizeof *x, 0), *out = gpu_new(u, 64 * sizeof(struct ntx_gpu_candidate));
    void *some = gpu_new(u, (n_vocab / NTX_GPU_BEST_PART + 1) * 64 * sizeof(struct ntx_gpu_candidate));
    struct ntx_gpu_best b = {.x = dx, .out = out, .some = some, .ld_x = n_vocab, .k = 64, .n = n_vocab, .n_rows = 1};
    TIMED(t, for (int i = 0; i < 10; i++) OK(u, u->ops->launch(u->s, NTX_GPU_BEST, &b)));
    printf("best 64 logits us,F32,%u,1,%.1f,\n", n_vocab, median_s(t) / 10 * 1e6);
    gpu_drop(u, dx), gpu_drop(u, out), gpu_drop(u, some);
    free(x);
}

/* As weights lie: shared memory without a name. */
static void lock_shared(struct gpu *u, size_t bytes)
{
    const uint64_t t0 = ntx_now_ns();
    int fd = memfd_create("ntx-preflight", 0);
    void *p = fd >= 0 && !ftruncate(fd, (off_t)bytes)
                  ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0)
                  : MAP_FAILED;
    if (p == MAP_FAILED) {
        printf("shared memory of %zu MiB: cannot be had: %s\n", bytes >> 20, strerror(errno));
    } else {
        const uint64_t t1 = ntx_now_ns();
        int rc = u->ops->host_register(u->g, p, bytes);
        printf("shared memory of %zu MiB: made in %.2f s, %s in %.2f s\n", bytes >> 20, (double)(t1 - t0) / 1e9,
               rc ? u->ops->error(u->g) : "locked for copies", (double)(ntx_now_ns() - t1) / 1e9);
        if (!rc)
            u->ops->host_unregister(u->g, p);
        munmap(p, bytes);
    }
    if (fd >= 0)
        close(fd);
}

static void empty_launches(struct gpu *u)
{
    enum { N = 200 };
    void *x = gpu_new(u, 4096);
    const struct ntx_gpu_gather g = {.from = x, .to = x, .bytes = 4, .from_stride = 4, .to_stride = 4, .n_rows = 1};
    uint64_t t[3];
    for (int round = 0; round < 2; round++) {
        t[0] = ntx_now_ns();
        for (int i = 0; i < N; i++)
            OK(u, u->ops->launch(u->s, NTX_GPU_GATHER, &g));
        t[1] = ntx_now_ns();
        OK(u, u->ops->stream_sync(u->s));
        t[2] = ntx_now_ns();
    }
    printf("an empty launch: %.2f us to queue, %.2f us with its turn on the card\n", (double)(t[1] - t[0]) / N / 1e3,
           (double)(t[2] - t[0]) / N / 1e3);
    t[0] = ntx_now_ns();
    for (int i = 0; i < N; i++) {
        OK(u, u->ops->launch(u->s, NTX_GPU_GATHER, &g));
        OK(u, u->ops->stream_sync(u->s));
    }
    printf("one that is waited for: %.2f us\n", (double)(ntx_now_ns() - t[0]) / N / 1e3);
    gpu_drop(u, x);
}

static int preflight(struct gpu *u, bool tiny)
{
    printf("card: %s, compute capability %u.%u, driver for CUDA %u.%u, %u multiprocessors, %.1f of %.1f GB free\n",
           u->info.name, u->info.capability / 10, u->info.capability % 10, u->info.driver / 1000,
           u->info.driver % 1000 / 10, u->info.processors, (double)u->info.free / 1e9, (double)u->info.total / 1e9);
    lock_shared(u, tiny ? 4u << 20 : (size_t)4 << 30);
    empty_launches(u);
    gpu_close(u);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint32_t types[] = {NTX_Q4_K, NTX_Q6_K, NTX_Q8_0, NTX_Q5_K, NTX_Q4_0,
                                     NTX_Q3_K, NTX_Q2_K, NTX_F16,  NTX_MXFP4};
    static const uint32_t many[] = {NTX_Q4_K, NTX_Q6_K, NTX_Q8_0, NTX_MXFP4};
    struct gpu u;
    bool tiny = argc > 2 && !strcmp(argv[argc - 1], "tiny"), first = argc > 2 && !strcmp(argv[2], "preflight");
    CHECK(argc == 2 + tiny + first);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what is known stays, if the run is cut short */
    WEIGHTS = tiny ? 1 << 16 : WEIGHTS;
    COPY = tiny ? 1 << 16 : COPY;
    gpu_open(&u, argv[1]);
    if (first)
        return preflight(&u, tiny);
    struct timer t = {.u = &u};
    OK(&u, u.ops->event_new(u.g, true, &t.from));
    OK(&u, u.ops->event_new(u.g, true, &t.to));
    puts("what,type,shape,rows,gb_s,share_of_copy");
    double copy = copies(&t);
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        for (uint32_t rows = 1; rows <= 8; rows *= 8) {
            product_rate(&t, copy, types[i], tiny ? 256 : 4096, tiny ? 40 : 14336, rows);
            product_rate(&t, copy, types[i], tiny ? 512 : 28672, tiny ? 24 : 8192, rows);
        }
    for (unsigned i = 0; i < 4;
         i++) /* rows of prompts, by the integer matrix units: an expert's, and a packed layer's */
        for (uint32_t rows = 16; rows <= 512; rows = rows == 16 ? 64 : 8 * rows)
            product_rate(&t, copy, many[i], tiny ? 512 : 2048, tiny ? 40 : 6144, tiny ? rows / 16 + 8 : rows);
    for (unsigned i = 0; i < 4; i++)
        tiles_rate(&t, many[i], tiny ? 512 : 2048, tiny ? 40 : 1536, tiny ? 2 : 16);
    for (unsigned i = 0; i < 3; i++)
        widen_rate(&t, copy, many[i], tiny ? 256 : 8192);
    for (uint32_t of = 1; of <= 10; of += 9) {
        columns_rate(&t, copy, NTX_Q4_K, tiny ? 512 : 4096, of);
        columns_rate(&t, copy, NTX_Q8_0, tiny ? 512 : 8192, of);
    }
    for (uint32_t q8 = 0; q8 < 2; q8++) {
        attention_rate(&t, tiny ? 40 : 512, q8);
        attention_rate(&t, tiny ? 70 : 4096, q8);
    }
    best_rate(&t, tiny ? 700 : 128256);
    dense_rate(&t, tiny ? 64 : 8192, 128);
    dense_rate(&t, tiny ? 64 : 8192, tiny ? 16 : 2048);
    u.ops->event_free(t.from), u.ops->event_free(t.to);
    gpu_close(&u);
    return 0;
}
