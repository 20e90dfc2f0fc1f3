/* dense.h: around the matrix units' product, for rows of prompts: weights to F16, activations to F16 with a power of two per row
 * (so that no activation overflows, and nothing but the F16 rounding is lost), and back. Within tolerance, not bit-equal. */
#ifndef NTX_CUDA_DENSE_H
#define NTX_CUDA_DENSE_H

#include "cuda/attend.h"
#include "cuda/choose.h"
#include "cuda/delta.h"
#include "cuda/groups.h"
#include "cuda/many.h"
#include "cuda/moe.h"
#include "cuda/pool.h"
#include "cuda/prefill.h"
#include "cuda/route.h"
#include "cuda/step.h"

#define WIDEN_THREADS 256u

KERNEL(widen_rows, struct ntx_gpu_widen)
{
    uint32_t k = BX * WIDEN_THREADS + TID;
    for (uint32_t o = BY; k < a.n_in && o < a.n_out; o += 65535u)
        a.out[(uint64_t)o * a.n_in + k] = f16_bits(value_at(a.type, (const uint8_t *)a.w + o * a.row_bytes, k));
}

KERNEL(narrow_row, struct ntx_gpu_narrow)
{
    SHARED int32_t tops[WARPS];
    const float *x = a.x + BX * a.ld_x;
    uint16_t *out = a.out + (uint64_t)BX * a.n;
    int32_t top = 0, e = 0;
    for (uint32_t k = TID; BX < a.n_rows && k < a.n; k += SEGMENT)
        top = larger(top, (int32_t)(f_bits(x[k]) & 0x7fffffffu));
    UNROLL
    for (uint32_t m = 16; m; m /= 2)
        top = larger(top, xor_i(top, m));
    if (!(TID % WARP))
        tops[TID / WARP] = top;
    SYNC();
    for (uint32_t i = 0; i < WARPS; i++)
        top = larger(top, tops[i]);
    if (top < 0x7f800000 && top >> 23 > 127 + 14) /* 2^15 and above */
        e = (top >> 23) - (127 + 14);
    float by = bits_f((uint32_t)(127 - e) << 23);
    if (e > 126)
        by = 0x1p-126f; /* the least normal float; such a row overflows anyhow */
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

int ntx__launch_widen(struct ntx_gpu_stream *s, const struct ntx_gpu_widen *p)
{
    RETURN_LAUNCH(s, widen_rows, (p->n_in + WIDEN_THREADS - 1) / WIDEN_THREADS, p->n_out < 65535u ? p->n_out : 65535u, 1, WIDEN_THREADS, *p);
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
