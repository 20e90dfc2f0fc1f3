/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/cpu/planes.h"

#include "computed/cpu/kern.h"

/* few: for any number of rows, and faster for a few. many: NULL, or for more. */
struct kernels {
    ntx_planes_fn *few, *many;
};

#define KERNELS_PLAIN(WHOLE, whole, low_bits, high_bits, ...)                                                          \
    [NTX_##WHOLE##_HIGH##high_bits] = {ntx__high_plain_##whole##_##low_bits, ntx__high_plain_##whole##_##low_bits},
static const struct kernels kernels_plain[NTX_TYPE_LIMIT] = {NTX_PLANES(KERNELS_PLAIN)};

#if defined(__x86_64__) && !defined(NTX_WITHOUT_AVX512)
#define DECLARE_512(WHOLE, whole, low_bits, ...)                                                                       \
    ntx_planes_fn ntx__planes512_##whole##_##low_bits, ntx__high512_##whole##_##low_bits,                              \
        ntx__planesvec_##whole##_##low_bits, ntx__highvec_##whole##_##low_bits;
NTX_PLANES(DECLARE_512)
#define KERNELS_512(WHOLE, whole, low_bits, high_bits, ...)                                                            \
    [NTX_##WHOLE##_LOW##low_bits] = {ntx__planes512_##whole##_##low_bits, ntx__planesvec_##whole##_##low_bits},        \
    [NTX_##WHOLE##_HIGH##high_bits] = {ntx__high512_##whole##_##low_bits, ntx__highvec_##whole##_##low_bits},
static const struct kernels kernels_512[NTX_TYPE_LIMIT] = {NTX_PLANES(KERNELS_512)};
#endif

#if defined(__x86_64__) && !defined(NTX_WITHOUT_AVX2)
#define DECLARE_256(WHOLE, whole, low_bits, ...)                                                                       \
    ntx_planes_fn ntx__planes256_##whole##_##low_bits, ntx__high256_##whole##_##low_bits;
NTX_PLANES(DECLARE_256)
#define KERNELS_256(WHOLE, whole, low_bits, high_bits, ...)                                                            \
    [NTX_##WHOLE##_LOW##low_bits] = {ntx__planes256_##whole##_##low_bits, NULL},                                       \
    [NTX_##WHOLE##_HIGH##high_bits] = {ntx__high256_##whole##_##low_bits, ntx__high256_##whole##_##low_bits},
static const struct kernels kernels_256[NTX_TYPE_LIMIT] = {NTX_PLANES(KERNELS_256)};
#endif

#if defined(__aarch64__) && !defined(NTX_WITHOUT_NEON)
#define DECLARE_NEON(WHOLE, whole, low_bits, ...)                                                                      \
    ntx_planes_fn ntx__planes_neon_##whole##_##low_bits, ntx__high_neon_##whole##_##low_bits;
NTX_PLANES(DECLARE_NEON)
#define KERNELS_NEON(WHOLE, whole, low_bits, high_bits, ...)                                                           \
    [NTX_##WHOLE##_LOW##low_bits] = {ntx__planes_neon_##whole##_##low_bits, NULL},                                     \
    [NTX_##WHOLE##_HIGH##high_bits] = {ntx__high_neon_##whole##_##low_bits, ntx__high_neon_##whole##_##low_bits},
static const struct kernels kernels_neon[NTX_TYPE_LIMIT] = {NTX_PLANES(KERNELS_NEON)};
#endif

static ntx_planes_fn *kernel_of(const struct ntx_cpu_ops *ops, uint32_t type, uint32_t n_in, uint32_t n_rows)
{
    const bool low = ntx_planes_low(type);
    struct kernels k = kernels_plain[type];
    uint32_t few = NTX_PLANES_ROWS;
#if defined(__x86_64__) && !defined(NTX_WITHOUT_AVX512)
    if (ops == &ntx__cpu_avx512 || ops == &ntx__cpu_amx) {
        k = kernels_512[type];
        few = ntx_planes_whole(type) == NTX_Q5_0 ? 2 * NTX_PLANES_ROWS : NTX_PLANES_ROWS;
    }
    if (ops == &ntx__cpu_amx && low)
        k.many = NULL; /* tiles are faster than vectors, also with weights that are joined first */
#endif
#if defined(__x86_64__) && !defined(NTX_WITHOUT_AVX2)
    if (ops == &ntx__cpu_avx2) {
        k = kernels_256[type];
        few = ntx_planes_whole(type) == NTX_Q5_0 ? UINT32_MAX : 2 * NTX_PLANES_ROWS;
    }
#endif
#if defined(__aarch64__) && !defined(NTX_WITHOUT_NEON)
    if (ops == &ntx__cpu_neon || (ops == &ntx__cpu_i8mm && (n_rows == 1 || !low)))
        k = kernels_neon[type];
#endif
    (void)ops;
    (void)low;
    if (n_in > NTX_PLANES_IN)
        k = kernels_plain[type];
    return n_rows <= few ? k.few : k.many;
}

void ntx_cpu_multiply_planes(const struct ntx_cpu_ops *ops, const struct ntx_planes_weights *w, const void *x,
                             size_t x_stride, uint32_t n_rows, float *y, size_t ldy, uint8_t *joined)
{
    ntx_planes_fn *kernel = kernel_of(ops, w->type, w->n_in, n_rows);
    const struct ntx_planes *p = ntx_planes_of(w->type);
    const size_t row = ntx_row_bytes(p->whole, w->n_in), high = ntx_row_bytes(p->high, w->n_in),
                 low = ntx_row_bytes(p->low, w->n_in), blocks = w->n_in / ntx_type_info(p->whole)->block;
    if (kernel) {
        kernel(w, x, x_stride, n_rows, y, ldy);
        return;
    }
    for (uint32_t i = 0, n; i < w->n_out; i += n) {
        n = w->n_out - i < NTX_PLANES_OUTS ? w->n_out - i : NTX_PLANES_OUTS;
        ops->join(w->type, w->high + i * high, w->low + i * low, n * blocks, joined);
        ops->matmul[p->whole](joined, row, n, w->n_in, x, x_stride, n_rows, y + i, ldy);
    }
}
