/* dense.h: around the matrix units' product, for rows of prompts: weights to F16, activations to F16 with a power of two per row
 * (so that no activation overflows, and nothing but the F16 rounding is lost), and back. Within tolerance, not bit-equal. */
#ifndef NTX_CUDA_DENSE_H
#define NTX_CUDA_DENSE_H

#include "cuda/attend.h"
#include "cuda/best.h"
#include "cuda/moe.h"
#include "cuda/prefill.h"

#define WIDEN_THREADS 256u

/* Value v of a block, as model/quant.c defines it. */
DEV float simple_value(const uint32_t type, const uint8_t *b, uint32_t v)
{
    float d = f16_at(b), m = has_min(type) ? f16_at(b + 2) : 0;
    const uint8_t *qs = b + (has_min(type) ? 4 : 2);
    if (type == NTX_Q8_0)
        return d * (float)(int8_t)qs[v];
    uint32_t fifth = 0;
    if (type == NTX_Q5_0 || type == NTX_Q5_1) {
        fifth = (uint32_t)(qs[v / 8] >> v % 8 & 1) << 4;
        qs += 4;
    }
    int32_t q = (int32_t)((v < 16 ? qs[v] & 15u : qs[v - 16] >> 4) | fifth);
    if (type == NTX_Q4_0 || type == NTX_Q5_0)
        return d * (float)(q - (type == NTX_Q4_0 ? 8 : 16));
    return d * (float)q + m;
}

DEV float two_bit_value(const uint32_t type, const uint8_t *b, uint32_t v)
{
    const uint8_t *qs = b + (type == NTX_Q2_K ? 16 : 32);
    int32_t q = qs[v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3, g = (int32_t)v / 16;
    float d = f16_at(b + super_d(type));
    if (type == NTX_Q2_K)
        return d * (float)(b[g] & 15) * (float)q - f16_at(b + 82) * (float)(b[g] >> 4);
    int32_t scale = ((b[96 + g % 8] >> (g / 8 * 4) & 15) | (b[104 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
    return d * (float)scale * (float)(q - (b[v % 32] >> (v / 32) & 1 ? 0 : 4));
}

DEV float super_value(const uint32_t type, const uint8_t *b, uint32_t v)
{
    if (type == NTX_Q2_K || type == NTX_Q3_K)
        return two_bit_value(type, b, v);
    if (type == NTX_Q6_K) {
        int32_t low = b[v / 128 * 64 + v % 64] >> (v % 128 / 64 * 4) & 15, high = b[128 + v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3;
        return f16_at(b + 208) * (float)(int8_t)b[192 + v / 16] * (float)((low | high << 4) - 32);
    }
    const uint8_t *qs = b + (type == NTX_Q4_K ? 16 : 48);
    int32_t q = qs[v / 64 * 32 + v % 32] >> (v % 64 / 32 * 4) & 15;
    if (type == NTX_Q5_K)
        q |= (b[16 + v % 32] >> (v / 32) & 1) << 4;
    return f16_at(b) * (float)scale_k(b + 4, v / 32) * (float)q - f16_at(b + 2) * (float)min_k(b + 4, v / 32);
}

DEV float value_at(uint32_t type, const uint8_t *row, uint32_t k)
{
    if (type == NTX_F32 || type == NTX_F16 || type == NTX_BF16)
        return float_value(type, row, k);
    if (type < NTX_Q2_K)
        return simple_value(type, row + (uint64_t)(k / 32) * block_size(type), k % 32);
    return super_value(type, row + (uint64_t)(k / 256) * block_size(type), k % 256);
}

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
        a.y[BY * a.ldy + o] = a.z[(uint64_t)BY * a.n_out + o] * bits_f((uint32_t)(127 + a.exponents[BY]) << 23);
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
