/* cuda.c: bench_cuda PLUGIN: on a card, the rates that everything else is compared with, and the product kernels beside them. CSV:
 *   copy on the device (bytes read and written), copy to the device from locked memory, then per type and shape of one row and of eight:
 *   bytes of weights per second and their share of the device's copy rate; dense products in FLOP/s.
 * Medians of ROUNDS, each of many launches between two events. Exits 77 with the reason where there is no card. */
#include "tests/cuda/kit.h"

enum { ROUNDS = 7, MIB = 1 << 20, WEIGHTS = 1 << 30 };

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

#define TIMED(t, call)                                                      \
    for (int round_ = 0; round_ < ROUNDS; round_++) {                       \
        OK((t)->u, (t)->u->ops->event_record((t)->from, (t)->u->s));         \
        call;                                                               \
        OK((t)->u, (t)->u->ops->event_record((t)->to, (t)->u->s));           \
        OK((t)->u, (t)->u->ops->event_sync((t)->to));                        \
        OK((t)->u, (t)->u->ops->event_ms((t)->from, (t)->to, &(t)->ms[round_])); \
    }

static double copies(struct timer *t)
{
    struct gpu *u = t->u;
    void *a = gpu_new(u, WEIGHTS), *b = gpu_new(u, WEIGHTS), *host;
    OK(u, u->ops->host_alloc(u->g, 256 * MIB, &host));
    memset(host, 1, 256 * MIB);
    TIMED(t, OK(u, u->ops->device_copy(u->s, b, a, WEIGHTS)));
    double copy = 2.0 * WEIGHTS / median_s(t);
    printf("device copy,,,,%.1f,\n", copy / 1e9);
    TIMED(t, OK(u, u->ops->upload(u->s, a, host, 256 * MIB)));
    printf("host to device,,,,%.2f,\n", 256.0 * MIB / median_s(t) / 1e9);
    u->ops->host_free(u->g, host);
    gpu_drop(u, a), gpu_drop(u, b);
    return copy;
}

/* As many matrices as make WEIGHTS bytes, so that no cache holds them. */
static void product_rate(struct timer *t, double copy, uint32_t type, uint32_t n_in, uint32_t n_out, uint32_t rows)
{
    struct gpu *u = t->u;
    size_t row = ntx_row_bytes(type, n_in), matrix = row * n_out, stride = ntx_act_row_bytes(ntx_act_for(type), n_in);
    uint32_t n = (uint32_t)(WEIGHTS / matrix);
    uint8_t *w = gpu_new(u, matrix * n + NTX_GPU_SLACK), *x = gpu_new(u, stride * rows), *y = gpu_new(u, sizeof(float) * n_out * rows);
    struct ntx_gpu_product p = {.x = x, .y = (float *)(void *)y, .row_bytes = row, .x_stride = stride, .ldy = n_out, .type = type, .n_out = n_out, .n_in = n_in, .n_rows = rows};
    OK(u, u->ops->fill(u->s, w, 0x11, matrix * n));
    OK(u, u->ops->fill(u->s, x, 0x11, stride * rows));
    TIMED(t, for (uint32_t i = 0; i < n; i++) { p.w = w + i * matrix; OK(u, u->ops->launch(u->s, NTX_GPU_PRODUCT, &p)); });
    double rate = (double)matrix * n / median_s(t);
    printf("product,%s,%u x %u,%u,%.1f,%.3f\n", ntx_type_info(type)->name, n_out, n_in, rows, rate / 1e9, rate / copy);
    gpu_drop(u, w), gpu_drop(u, x), gpu_drop(u, y);
}

static void dense_rate(struct timer *t, uint32_t n, uint32_t rows)
{
    struct gpu *u = t->u;
    void *w = gpu_new(u, 2ull * n * n), *x = gpu_new(u, 2ull * n * rows), *z = gpu_new(u, 4ull * n * rows);
    OK(u, u->ops->fill(u->s, w, 0, 2ull * n * n));
    OK(u, u->ops->fill(u->s, x, 0, 2ull * n * rows));
    int rc = u->ops->dense(u->s, w, x, z, n, n, rows);
    if (rc) {
        printf("dense,,,,not measured: %s,\n", u->ops->error(u->g));
    } else {
        TIMED(t, for (int i = 0; i < 20; i++) OK(u, u->ops->dense(u->s, w, x, z, n, n, rows)));
        printf("dense TFLOP/s,F16,%u x %u,%u,%.1f,\n", n, n, rows, 20 * 2.0 * n * n * rows / median_s(t) / 1e12);
    }
    gpu_drop(u, w), gpu_drop(u, x), gpu_drop(u, z);
}

int main(int argc, char **argv)
{
    static const uint32_t types[] = {NTX_Q4_K, NTX_Q6_K, NTX_Q8_0, NTX_Q5_K, NTX_Q4_0, NTX_Q3_K, NTX_Q2_K, NTX_F16};
    struct gpu u;
    CHECK(argc == 2);
    gpu_open(&u, argv[1]);
    struct timer t = {.u = &u};
    OK(&u, u.ops->event_new(u.g, &t.from));
    OK(&u, u.ops->event_new(u.g, &t.to));
    puts("what,type,shape,rows,gb_s,share_of_copy");
    double copy = copies(&t);
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        for (uint32_t rows = 1; rows <= 8; rows *= 8) {
            product_rate(&t, copy, types[i], 4096, 14336, rows);
            product_rate(&t, copy, types[i], 28672, 8192, rows);
        }
    dense_rate(&t, 8192, 128);
    dense_rate(&t, 8192, 2048);
    u.ops->event_free(t.from), u.ops->event_free(t.to);
    gpu_close(&u);
    return 0;
}
