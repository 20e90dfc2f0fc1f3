/* SPDX-License-Identifier: Apache-2.0 */
/* dense.h: before and after the matrix units' product of prompt rows: weights to F16, activations to F16 with a power
 * of two per row, and back. The power keeps activations from overflowing, so only the F16 rounding is lost. Within
 * tolerance, not bit-equal. */
#ifndef NTX_CUDA_DENSE_H
#define NTX_CUDA_DENSE_H

#include "cuda/attend.h"
#include "cuda/index_topk.h"
#include "cuda/delta_net.h"
#include "cuda/groups.h"
#include "cuda/many.h"
#include "cuda/moe.h"
#include "cuda/pool.h"
#include "cuda/prefill.h"
#include "cuda/route.h"
#include "cuda/step.h"

#define WIDEN_THREADS 256u

/* A thread widens 32 values of a row, or one float. */
DEV void widen_thread(const uint32_t type, const struct ntx_gpu_widen *a)
{
    const uint32_t parts = rule_of(type) == NTX_RULE_FLOAT ? a->n_in : a->n_in / 32;
    const uint64_t i = (uint64_t)BX * WIDEN_THREADS + TID, o = i / parts;
    const uint32_t b = (uint32_t)(i % parts);
    const uint8_t *row = (const uint8_t *)a->w + o * a->row_bytes;
    struct unpacked u;
    if (o >= a->n_out)
        return;
    if (rule_of(type) == NTX_RULE_FLOAT) {
        a->out[i] = f16_bits(float_value(type, row, b));
        return;
    }
    many_unpack(type, row, b, &u, block_size(type) % 16 == 0 && lie_at_16(a->w, a->row_bytes));
    UNROLL
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t v[4];
        UNROLL
        for (uint32_t c = 0; c < 4; c++)
            v[c] = pair(unpacked_value(type, &u, 2 * k + c / 2, c % 2 * 2),
                        unpacked_value(type, &u, 2 * k + c / 2, c % 2 * 2 + 1));
        store_words4(a->out + i * 32 + 8 * k, v);
    }
}

#define WIDEN(rule, TYPE, ...)                                                                                         \
    KERNEL(widen_##TYPE, struct ntx_gpu_widen) { widen_thread(NTX_##TYPE, &a); }
NTX_TYPES(WIDEN)

KERNEL(narrow_row, struct ntx_gpu_narrow)
{
    SHARED int32_t tops[WARPS];
    const float *x = a.x + BX * a.ld_x;
    uint16_t *out = a.out + (uint64_t)BX * a.n;
    int32_t top = 0, e = 0;
    for (uint32_t k = TID; BX < a.n_rows && k < a.n; k += SEGMENT)
        top = larger_int(top, (int32_t)(f_bits(x[k]) & 0x7fffffffu));
    UNROLL
    for (uint32_t m = 16; m; m /= 2)
        top = larger_int(top, xor_i(top, m));
    if (!(TID % WARP))
        tops[TID / WARP] = top;
    SYNC();
    for (uint32_t i = 0; i < WARPS; i++)
        top = larger_int(top, tops[i]);
    if (top < 0x7f800000 && top >> 23 > 127 + 14) /* at least 2^15 */
        e = (top >> 23) - (127 + 14);
    float by = bits_f((uint32_t)(127 - e) << 23);
    if (e > 126)
        by = 0x1p-126f; /* the least normal float; such a row overflows in any case */
    for (uint32_t k = TID; k < a.n; k += SEGMENT)
        out[k] = BX < a.n_rows ? f16_bits(x[k] * by) : 0;
    if (!TID)
        a.exponents[BX] = e > 126 ? 126 : e;
}

KERNEL(scale_rows, struct ntx_gpu_scale)
{
    uint32_t o = BX * WIDEN_THREADS + TID;
    if (o < a.n_out)
        a.y[BY * a.ldy + o] = a.z[(uint64_t)BY * a.ldz + o] * bits_f((uint32_t)(127 + a.exponents[BY]) << 23);
}

#define WIDEN_FLOAT  1
#define WIDEN_SIMPLE 32
#define WIDEN_HALVES 32
#define WIDEN_SUPER  32
#define WIDEN_CASE(rule, TYPE, ...)                                                                                    \
    case NTX_##TYPE:                                                                                                   \
        RETURN_LAUNCH(s, widen_##TYPE,                                                                                 \
                      (uint32_t)(((uint64_t)p->n_out * p->n_in / WIDEN_##rule + WIDEN_THREADS - 1) / WIDEN_THREADS),   \
                      1, 1, WIDEN_THREADS, *p);

int ntx__launch_widen(struct ntx_gpu_stream *s, const struct ntx_gpu_widen *p)
{
    switch (p->type) {
        NTX_TYPES(WIDEN_CASE)
    default: return -EINVAL;
    }
}

int ntx__launch_narrow(struct ntx_gpu_stream *s, const struct ntx_gpu_narrow *p)
{
    RETURN_LAUNCH(s, narrow_row, p->n_padded, 1, 1, SEGMENT, *p);
}

int ntx__launch_scale(struct ntx_gpu_stream *s, const struct ntx_gpu_scale *p)
{
    RETURN_LAUNCH(s, scale_rows, (p->n_out + WIDEN_THREADS - 1) / WIDEN_THREADS, p->n_rows, 1, WIDEN_THREADS, *p);
}

#endif
