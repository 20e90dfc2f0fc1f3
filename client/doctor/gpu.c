/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c: measures a GPU with its plug-in: copies within its memory and to it, the matrix units, and one-row products
 * of each type. */
#include <stdio.h>
#include <string.h>

#include "common/util.h"
#include "computed/cpu/cpu.h"
#include "computed/gpu/gpu.h"
#include "client/doctor/doctor_impl.h"

#define COPY_BYTES      (512ull << 20) /* at most, and an eighth of the free memory */
#define ROUNDS          3
#define LEAST_MS        4.0f /* of a product that is long enough to measure the matrix units */
#define MOST_WALL_NS    100000000ull
#define WIDTH           4096u /* values of a row of weights */
#define PRODUCT_WALL_NS 20000000ull

struct bench {
    const struct ntx_gpu_ops *ops;
    struct ntx_gpu *g;
    struct ntx_gpu_stream *s;
    struct ntx_gpu_event *from, *to;
    void *a, *b, *host;
    uint64_t bytes;
};

static int start_timer(struct bench *t) { return t->ops->event_record(t->from, t->s); }

/* *s: seconds since start_timer. */
static int stop_timer(struct bench *t, double *s)
{
    float ms;
    int rc = t->ops->event_record(t->to, t->s);
    if (!rc)
        rc = t->ops->event_sync(t->to);
    if (!rc)
        rc = t->ops->event_ms(t->from, t->to, &ms);
    if (!rc)
        *s = ms / 1e3;
    return rc;
}

/* The best of some rounds, in bytes per second; a copy on the device counts its read and its write. */
static int copy_rate(struct bench *t, bool on_device, double *bps)
{
    double s;
    for (int i = 0; i < ROUNDS; i++) {
        int rc = start_timer(t);
        if (!rc)
            rc = on_device ? t->ops->device_copy(t->s, t->b, t->a, t->bytes)
                           : t->ops->upload(t->s, t->a, t->host, t->bytes);
        if (rc || (rc = stop_timer(t, &s)))
            return rc;
        if (s > 0)
            *bps = NTX_MAX(*bps, (on_device ? 2.0 : 1.0) * (double)t->bytes / s);
    }
    return 0;
}

/* Products of n x n, larger and larger until one takes long enough; 0 without the library. */
static int matrix_rate(struct bench *t, double *flops)
{
    for (uint64_t n = 256; 2 * n * n <= t->bytes / 2; n *= 2) {
        uint64_t began = ntx_now_ns();
        uint16_t *w = t->a, *x = (uint16_t *)t->a + n * n;
        double s = 0;
        for (int i = 0; i < 2; i++) { /* the first one starts the library */
            int rc = start_timer(t);
            if (rc || (rc = t->ops->dense(t->s, w, x, t->b, (uint32_t)n, (uint32_t)n, (uint32_t)n)))
                return i || n > 256 ? rc : 0;
            if ((rc = stop_timer(t, &s)))
                return rc;
        }
        *flops = s > 0 ? 2.0 * (double)n * (double)n * (double)n / s : 0;
        if (s * 1e3 > (double)LEAST_MS || ntx_now_ns() - began > MOST_WALL_NS)
            break;
    }
    return 0;
}

/* Writes a row in the form that a product of this type needs, to t->b: with random bytes, sums would overflow. */
static int give_row(struct bench *t, enum ntx_act form)
{
    float row[WIDTH];
    for (uint32_t i = 0; i < WIDTH; i++)
        row[i] = (float)(i * 37 % 255) / 127 - 1;
    ntx_cpu_pick(NULL)->act_quantize[form](row, t->host, WIDTH);
    return t->ops->upload(t->s, t->b, t->host, ntx_act_row_bytes(form, WIDTH));
}

/* Bytes of weights per second of a one-row product: of more and more outputs, until the weights fill the buffer or a
 * size takes long. */
static int product_rate(struct bench *t, uint32_t type, double *bps)
{
    const size_t row = ntx_row_bytes(type, WIDTH), x_bytes = ntx_act_row_bytes(ntx_act_for(type), WIDTH);
    struct ntx_gpu_product p = {.w = t->a,
                                .x = t->b,
                                .y = (float *)((char *)t->b + x_bytes),
                                .row_bytes = row,
                                .x_stride = x_bytes,
                                .type = type,
                                .n_in = WIDTH,
                                .n_rows = 1};
    for (uint64_t outs = 64; outs * row + NTX_GPU_SLACK <= t->bytes && outs * sizeof(float) + x_bytes <= t->bytes;
         outs *= 2) {
        uint64_t began = ntx_now_ns();
        double best = 0, s = 0;
        p.n_out = (uint32_t)outs, p.ldy = outs;
        for (int i = 0; i < ROUNDS; i++) {
            int rc = start_timer(t);
            if (rc || (rc = t->ops->launch(t->s, NTX_GPU_PRODUCT, &p)) || (rc = stop_timer(t, &s)))
                return rc;
            best = NTX_MAX(best, s > 0 ? (double)(outs * row) / s : 0);
        }
        *bps = best;
        if (ntx_now_ns() - began > PRODUCT_WALL_NS)
            break;
    }
    return 0;
}

static int product_rates(struct bench *t, double *type_bps)
{
#define NUMBER(rule, TYPE, ...) NTX_##TYPE,
    static const uint8_t types[] = {NTX_TYPES(NUMBER)};
#undef NUMBER
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof types; i++)
        if (!(rc = give_row(t, ntx_act_for(types[i]))))
            rc = product_rate(t, types[i], &type_bps[types[i]]);
    return rc;
}

static int prepare_bench(struct bench *t)
{
    int rc;
    if ((rc = t->ops->stream_new(t->g, &t->s)) || (rc = t->ops->event_new(t->g, true, &t->from)) ||
        (rc = t->ops->event_new(t->g, true, &t->to)) || (rc = t->ops->alloc(t->g, t->bytes, &t->a)) ||
        (rc = t->ops->alloc(t->g, t->bytes, &t->b)) || (rc = t->ops->host_alloc(t->g, t->bytes, &t->host)))
        return rc;
    ntx__doctor_fill(t->host, t->bytes); /* as random as weights, which affects a card's power */
    return t->ops->upload(t->s, t->a, t->host, t->bytes);
}

static void free_bench(struct bench *t)
{
    t->ops->event_free(t->from);
    t->ops->event_free(t->to);
    t->ops->stream_free(t->s);
    t->ops->free(t->g, t->a);
    t->ops->free(t->g, t->b);
    t->ops->host_free(t->g, t->host);
}

bool ntx__doctor_gpu(struct ntx_doctor_report *r, char *why, size_t n)
{
    struct ntx_gpu_back back;
    struct ntx_err err = {0};
    if (ntx_gpu_back_open(NULL, &back, &err)) {
        snprintf(why, n, "%s", err.text);
        return false;
    }
    struct bench t = {.ops = back.ops, .g = back.gpu, .bytes = NTX_MIN(COPY_BYTES, back.info.free / 8 / 4096 * 4096)};
    double copy = 0, h2d = 0, flops = 0, type_bps[NTX_TYPE_LIMIT] = {0};
    int rc = prepare_bench(&t);
    if (!rc && !(rc = copy_rate(&t, true, &copy)) && !(rc = copy_rate(&t, false, &h2d)) &&
        !(rc = product_rates(&t, type_bps)))
        rc = matrix_rate(&t, &flops);
    if (rc)
        snprintf(why, n, "%s", back.ops->error(back.gpu));
    free_bench(&t);
    if (!rc) {
        snprintf(r->hw.gpu.name, sizeof r->hw.gpu.name, "%s", back.info.name);
        r->hw.gpu.bytes = back.info.total;
        r->hw.gpu.bps = copy;
        r->hw.gpu.h2d_bps = h2d;
        r->hw.gpu.flops = flops;
        memcpy(r->hw.gpu.type_bps, type_bps, sizeof type_bps);
        r->hw.gpu.unified = back.info.integrated;
    }
    ntx_gpu_back_close(&back);
    return !rc;
}
