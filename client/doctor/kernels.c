/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c: measures weights of each type from memory, as in the forward pass: all threads take pieces from a
 * counter; one-row products also with one thread. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/doctor/doctor_impl.h"
#include "common/util.h"

#define WIDTH        NTX_HW_WIDTH
#define PIECE        (1u << 20)
#define ROWS_MAX     64u
#define THREADS_MAX  1024u
/* Types of such blocks are used where a width is no multiple of 256: 28 blocks, so that kernels which take 16 at a time
 * have some left. */
#define NARROW_BLOCK 32u
#define NARROW       896u
#define ROUND_BYTES  (256u << 10) /* of a short product, and a quarter of a long one */
#define TILE_LEAST   (size_t)(32 << 10)
#define TILES_LEAST  12 /* samples of a product of tiles */

struct multiply {
    ntx_matmul_fn *matmul;
    uint32_t type, rows, width, out; /* outputs of a piece */
    const char *w;
    size_t bytes, row_bytes;
    const char *x;
    size_t stride;
    float *y; /* per thread [rows x out] */
    unsigned threads;
    _Atomic size_t next;
};

static void multiply_all(void *ctx, unsigned thread)
{
    struct multiply *m = ctx;
    size_t piece = m->out * m->row_bytes;
    float *y = m->y + (size_t)thread * m->rows * m->out;
    for (size_t at; (at = atomic_fetch_add(&m->next, piece)) + piece <= m->bytes;)
        m->matmul(m->w + at, m->row_bytes, m->out, m->width, m->x, m->stride, m->rows, y, m->out);
}

void ntx__doctor_fill(void *buf, size_t bytes)
{
    uint64_t s = 88172645463325252u, *p = buf;
    for (size_t i = 0; i < bytes / 8; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        p[i] = (s & 0x3b3f3b3f3b3f3b3fu) |
               0x3010301030103010u; /* finite halves; bytes that as exponents give no subnormal floats */
    }
}

/* The median rate; a run reads a part of the buffer that takes a moment: for one row a quarter, far more than the
 * caches. */
static double median_rate(struct ntx_pool *pool, struct multiply *m, size_t all, double seconds)
{
    double v[64];
    int n = 0;
    uint64_t end = ntx_now_ns() + (uint64_t)(seconds * 1e9);
    size_t piece = m->out * m->row_bytes, least = piece * ntx_pool_threads(pool) * 2;
    m->bytes = NTX_MIN(all, NTX_MAX(all / 4 / m->rows, least));
    size_t from = 0;
    do {
        m->w += from;
        atomic_store(&m->next, 0);
        uint64_t t0 = ntx_now_ns();
        ntx_pool_run(pool, multiply_all, m);
        v[n++] = (double)(m->bytes / piece * piece) / ((double)(ntx_now_ns() - t0) * 1e-9);
        m->w -= from;
        from = from + 2 * m->bytes <= all ? from + NTX_ROUND_DOWN(m->bytes, 64)
                                          : 0; /* other memory each time, which no cache holds */
    } while (ntx_now_ns() < end && n < 64);
    return ntx__doctor_quantile(v, (unsigned)n, 2);
}

/* Makes m ready for a type. free_multiply frees its memory, also after -ENOMEM. */
static int prepare_multiply(const struct ntx__doctor_bench *b, uint32_t type, uint32_t width, bool interleaved,
                            struct multiply *m)
{
    enum ntx_act form = ntx_act_for(type);
    *m = (struct multiply){.matmul = (interleaved ? b->ops->interleaved : b->ops->matmul)[type],
                           .type = type,
                           .width = width,
                           .w = b->buf,
                           .row_bytes = ntx_row_bytes(type, width),
                           .stride = ntx_act_row_bytes(form, width)};
    m->out = (uint32_t)(PIECE / m->row_bytes) / NTX_SLICE_OUTS * NTX_SLICE_OUTS;
    float *x = ntx__doctor_buffer(width * sizeof *x);
    char *quantized = ntx__doctor_buffer(ROWS_MAX * m->stride);
    size_t y_bytes = sizeof(float) * ROWS_MAX * m->out * ntx_pool_threads(b->all);
    m->x = quantized;
    m->y = ntx__doctor_buffer(y_bytes);
    int rc = x && quantized && m->y ? 0 : -ENOMEM;
    if (!rc)
        memset(m->y, 0, y_bytes); /* fault its pages in before the timing */
    for (uint32_t k = 0; !rc && k < width; k++)
        x[k] = (float)(k * 7 % 31) - 15;
    for (uint32_t r = 0; !rc && r < ROWS_MAX; r++)
        b->ops->act_quantize[form](x, quantized + r * m->stride, width);
    free(x);
    return rc;
}

static void free_multiply(struct multiply *m)
{
    free((char *)(uintptr_t)m->x);
    free(m->y);
}

/* Seconds that a product of one row and one output takes beside its bytes (sums across lanes, scales): what narrow
 * matrices take longer for each byte. bps: the rate of `rows` rows in wide ones; 0: not measured yet. 0: no memory. */
static double measure_dot(const struct ntx__doctor_bench *b, uint32_t type, bool interleaved, uint32_t rows,
                          double seconds, double bps)
{
    const uint32_t widths[2] = {WIDTH, ntx_type_info(type)->block > NARROW_BLOCK ? WIDTH / 8 : NARROW};
    double byte_s[2] = {bps > 0 ? 1 / bps : 0}, dots[2] = {0};
    for (int i = 0; i < 2; i++) {
        struct multiply m;
        int rc = prepare_multiply(b, type, widths[i], interleaved, &m);
        m.rows = rows;
        if (!rc && byte_s[i] <= 0)
            byte_s[i] = 1 / median_rate(b->all, &m, b->bytes, seconds);
        dots[i] = (double)rows / (double)m.row_bytes;
        free_multiply(&m);
        if (rc)
            return 0;
    }
    return NTX_MAX((byte_s[1] - byte_s[0]) / (dots[1] - dots[0]), 0.0);
}

/* interleaved: in the layout of resident weights. The bits are random, so nothing has to be rearranged. */
static int measure_type(const struct ntx__doctor_bench *b, uint32_t type, bool interleaved, double seconds,
                        struct ntx_hw *hw)
{
    static const uint32_t row_counts[] = {1, 8, ROWS_MAX};
    struct multiply m;
    int rc = prepare_multiply(b, type, WIDTH, interleaved, &m);
    for (size_t i = 0; !rc && i < sizeof row_counts / sizeof *row_counts && hw->n_kernels < NTX_HW_KERNELS; i++) {
        m.rows = row_counts[i];
        double bps = median_rate(b->all, &m, b->bytes, seconds);
        const double dot_s = m.rows == 1 ? measure_dot(b, type, interleaved, 1, seconds, bps) : 0;
        double bps_1 = m.rows == 1 && ntx_pool_threads(b->all) > 1 ? median_rate(b->one, &m, b->bytes, seconds) : 0;
        hw->kernels[hw->n_kernels++] = (struct ntx_hw_kernel){
            .type = type, .rows = m.rows, .interleaved = interleaved, .bps = bps, .bps_1 = bps_1, .dot_s = dot_s};
    }
    free_multiply(&m);
    return rc;
}

/* A product of one row as a layer's: threads take halves of their share, which shrink towards its end
 * (forward_mm.c). */
static void multiply_tiles(void *ctx, unsigned thread)
{
    struct multiply *m = ctx;
    const size_t slice = NTX_SLICE_OUTS * m->row_bytes;
    float *y = m->y + (size_t)thread * m->out;
    size_t at = atomic_load(&m->next);
    while (at < m->bytes) {
        size_t tile = NTX_MAX((m->bytes - at) / (2 * (size_t)m->threads), TILE_LEAST);
        tile = NTX_MIN(NTX_ROUND_UP(tile, slice), m->bytes - at);
        if (!atomic_compare_exchange_weak(&m->next, &at, at + tile))
            continue;
        m->matmul(m->w + at, m->row_bytes, (uint32_t)(tile / m->row_bytes), m->width, m->x, m->stride, 1, y, m->out);
        at = atomic_load(&m->next);
    }
}

static double quartile_tiles(struct ntx_pool *pool, struct multiply *m, size_t all, size_t bytes, double seconds)
{
    double v[256];
    int n = 0;
    uint64_t end = ntx_now_ns() + (uint64_t)(seconds * 1e9);
    const char *first = m->w;
    m->bytes = bytes;
    do {
        atomic_store(&m->next, 0);
        uint64_t t0 = ntx_now_ns();
        ntx_pool_run(pool, multiply_tiles, m);
        v[n++] = (double)(ntx_now_ns() - t0) * 1e-9;
        m->w = m->w + 2 * bytes <= first + all ? m->w + bytes : first;
    } while ((n < TILES_LEAST || ntx_now_ns() < end) && n < 256);
    m->w = first;
    return ntx__doctor_quantile(v, (unsigned)n, 1);
}

int ntx__doctor_round(const struct ntx__doctor_bench *b, double seconds, double *round_s)
{
    struct multiply m;
    const uint32_t type = NTX_Q8_0, width = NTX_HW_WIDTH / 4;
    int rc = prepare_multiply(b, type, width, b->ops->interleaved[type] != NULL, &m);
    if (!rc) {
        const size_t few = NTX_ROUND_DOWN(ROUND_BYTES, NTX_SLICE_OUTS * m.row_bytes), many = 4 * few;
        m.threads = ntx_pool_threads(b->all);
        const double short_s = quartile_tiles(b->all, &m, b->bytes, few, seconds / 2),
                     long_s = quartile_tiles(b->all, &m, b->bytes, many, seconds / 2);
        *round_s = NTX_MAX((4 * short_s - long_s) / 3, 0.0);
    }
    free_multiply(&m);
    return rc;
}

int ntx__doctor_kernels(const struct ntx__doctor_bench *b, double seconds, struct ntx_hw *hw)
{
    const struct ntx_cpu_ops *ops = b->ops;
    unsigned n = 0;
    int rc = 0;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        n += ntx_type_info(t) ? !!ops->matmul[t] + !!ops->interleaved[t] : 0;
    for (uint32_t t = 0; !rc && t < NTX_TYPE_LIMIT; t++) {
        if (ntx_type_info(t) && ops->matmul[t])
            rc = measure_type(b, t, false, seconds / (5 * n), hw);
        if (!rc && ntx_type_info(t) && ops->interleaved[t])
            rc = measure_type(b, t, true, seconds / (5 * n), hw);
    }
    for (int i = 0; !rc && i < 2; i++) {
        const uint32_t type = i ? NTX_Q8_0 : NTX_Q4_K;
        hw->dot_s += measure_dot(b, type, ops->interleaved[type] != NULL, ROWS_MAX, seconds / (5 * n), 0) / 2;
    }
    return rc;
}
