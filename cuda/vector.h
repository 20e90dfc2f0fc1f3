/* vector.h: what happens to rows between products: norms, quantisation, SwiGLU.
 *
 * Quantised rows have the layout of infer/cpu/kern.h, padding included, so that the CPU may multiply by a downloaded row.
 * A block of SEGMENT threads handles SEGMENT neighbouring values of a row: eight blocks of Q8, one of Q8K. */
#ifndef NTX_CUDA_VECTOR_H
#define NTX_CUDA_VECTOR_H

#include "cuda/part.h"
#include "model/ffn_act.h"

#define SEGMENT 256u
#define WARPS (SEGMENT / WARP)

DEV uint32_t round_to(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

DEV int32_t larger(int32_t x, int32_t y) { return x > y ? x : y; }

/* max|x| of a block, as bits: absolute values order like integers, and NaN is the largest. */
DEV float scale_of(int32_t top, float *inverse)
{
    *inverse = 0;
    if (top >= 0x7f800000)
        return bits_f(0x7fc00000u);
    float max = bits_f((uint32_t)top);
    if (max <= 0x1p-100f)
        return 0;
    *inverse = 127.0f / max;
    return max / 127.0f;
}

DEV int32_t quantised(float x, float inverse)
{
    const float magic = 0x1.8p23f; /* adding it rounds to nearest even, left in the low bits */
    float v = inverse != 0 ? x * inverse : 0;
    return (int32_t)(f_bits(v + magic) - f_bits(magic));
}

/* Of the absolute values of a warp, as bits: those of a NaN are the largest. */
DEV int32_t top_of_warp(float x)
{
    int32_t top = (int32_t)(f_bits(x) & 0x7fffffffu);
    UNROLL
    for (uint32_t m = 16; m; m /= 2)
        top = larger(top, xor_i(top, m));
    return top;
}

/* 32 values, one per thread of the warp: block b of a row of n values. */
DEV void quantize_q8(float x, uint32_t b, uint32_t n, uint8_t *row)
{
    uint32_t nb = round_to(n / 32, 16), lane = TID % WARP;
    float inverse, d = scale_of(top_of_warp(x), &inverse);
    int32_t q = quantised(x, inverse), sum = q;
    UNROLL
    for (uint32_t m = 16; m; m /= 2)
        sum += xor_i(sum, m);
    if (b >= nb)
        return;
    ((int8_t *)row)[b * 32 + lane] = (int8_t)q;
    if (!lane) {
        ((float *)(void *)(row + nb * 32))[b] = d;
        ((int32_t *)(void *)(row + nb * 36))[b] = sum;
    }
}

/* 256 values, one per thread of the block: super-block b. */
DEV void quantize_q8k(float x, uint32_t b, uint32_t n, uint8_t *row, int32_t *tops /* shared [WARPS] */)
{
    uint32_t nb = n / 256, nb4 = round_to(nb, 4), nb16 = round_to(nb, 16), t = TID;
    int32_t top = top_of_warp(x);
    float inverse, *d = (float *)(void *)(row + nb4 * 256);
    int16_t *s16 = (int16_t *)(void *)(d + nb16), *s32 = s16 + nb4 * 16;
    if (!(t % WARP))
        tops[t / WARP] = top;
    SYNC();
    for (uint32_t i = 0; i < WARPS; i++)
        top = larger(top, tops[i]);
    SYNC();
    float scale = scale_of(top, &inverse);
    int32_t q = quantised(x, inverse), sum = q;
    UNROLL
    for (uint32_t m = 8; m; m /= 2)
        sum += xor_i(sum, m);
    int32_t both = sum + xor_i(sum, 16);
    if (!b && t < nb16 - nb)
        d[nb + t] = 0;
    if (b >= nb4)
        return;
    ((int8_t *)row)[b * 256 + t] = (int8_t)q;
    if (!(t % 16))
        s16[b * 16 + t / 16] = (int16_t)sum;
    if (!(t % 32))
        s32[b * 8 + t / 32] = (int16_t)both;
    if (!t && b < nb)
        d[b] = scale;
}

/* Segments that a row of n values needs, its padding included. */
DEV_AND_HOST uint32_t segments_of(uint32_t n, int q8, int q8k)
{
    uint32_t k = (n + SEGMENT - 1) / SEGMENT;
    if (q8 && k < ((n / 32 + 15) / 16 * 16 * 32 + SEGMENT - 1) / SEGMENT)
        k = ((n / 32 + 15) / 16 * 16 * 32 + SEGMENT - 1) / SEGMENT;
    if (q8k && k < (n / 256 + 3) / 4 * 4)
        k = (n / 256 + 3) / 4 * 4;
    return k;
}

DEV void quantise_segment(float x, uint32_t segment, uint32_t n, void *q8, void *q8k, int32_t *tops)
{
    if (q8)
        quantize_q8(x, segment * WARPS + TID / WARP, n, (uint8_t *)q8);
    if (q8k)
        quantize_q8k(x, segment, n, (uint8_t *)q8k, tops);
}

DEV void *row_of(void *base, uint32_t i, uint64_t stride) { return base ? (uint8_t *)base + i * stride : NULL; }

/* The sum of a block's values of all its threads, in a fixed tree. */
DEV double block_sum(double v, double *shared /* [WARPS] */)
{
    UNROLL
    for (uint32_t m = 16; m; m /= 2)
        v += xor_d(v, m);
    if (!(TID % WARP))
        shared[TID / WARP] = v;
    SYNC();
    double sum = 0;
    for (uint32_t i = 0; i < BLOCK_DIM / WARP; i++)
        sum += shared[i];
    SYNC();
    return sum;
}

#define AHEAD 8u /* segments whose loads are in flight together */

/* Sums of squares are taken in double: their order moves the scale, a float, once in about 10^8 times. */
KERNEL(norm_row, struct ntx_gpu_norm)
{
    SHARED double sums[WARPS];
    SHARED int32_t tops[WARPS];
    uint32_t i = BX;
    float *h = a.h + (a.rows ? a.rows[i] : i) * a.ld_h;
    const float *y = a.y ? a.y + i * a.ld_y : NULL;
    double sum = 0;
    for (uint32_t k0 = TID; k0 < a.n; k0 += AHEAD * SEGMENT) {
        float v[AHEAD], more[AHEAD];
        UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) {
            uint32_t k = k0 + j * SEGMENT;
            v[j] = k < a.n ? h[k] : 0;
            more[j] = y && k < a.n ? a.bias ? y[k] + a.bias[k] : y[k] : 0;
        }
        UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) {
            uint32_t k = k0 + j * SEGMENT;
            if (k >= a.n)
                continue;
            if (y)
                h[k] = v[j] += more[j];
            sum += (double)v[j] * (double)v[j];
        }
    }
    if (!a.w)
        return;
    float scale = (float)(1.0 / sqrt(block_sum(sum, sums) / a.n + (double)a.eps));
    uint32_t segments = segments_of(a.n, a.q8 != NULL, a.q8k != NULL);
    for (uint32_t s0 = 0; s0 < segments; s0 += AHEAD) {
        float x[AHEAD];
        UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) {
            uint32_t k = (s0 + j) * SEGMENT + TID;
            x[j] = k < a.n ? h[k] * scale * a.w[k] * a.times : 0;
        }
        UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) {
            uint32_t k = (s0 + j) * SEGMENT + TID;
            if (s0 + j >= segments)
                continue;
            if (a.x && k < a.n)
                a.x[i * a.ld_x + k] = x[j];
            quantise_segment(x[j], s0 + j, a.n, row_of(a.q8, i, a.q8_stride), row_of(a.q8k, i, a.q8k_stride), tops);
        }
    }
}

/* e^x as infer/cpu/lanes.h has it, step by step. */
DEV float exp_exact(float in)
{
    const float magic = 0x1.8p23f;
    float x = in > -110.0f ? in : -110.0f;
    x = x < 100.0f ? x : 100.0f;
    float shifted = fmaf(x, 0x1.715476p+0f, magic), n = shifted - magic;
    float r = fmaf(n, -0x1.7f7d1cp-20f, fmaf(n, -0x1.62e4p-1f, x));
    float p = fmaf(0x1.a01a02p-13f, r, 0x1.6c16c2p-10f);
    p = fmaf(p, r, 0x1.111112p-7f);
    p = fmaf(p, r, 0x1.555556p-5f);
    p = fmaf(p, r, 0x1.555556p-3f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p * r, r, r) + 1.0f;
    int32_t e = (int32_t)(f_bits(shifted) - f_bits(magic)), half = e >> 1;
    float low = bits_f((uint32_t)(half + 127) << 23), high = bits_f((uint32_t)(e - half + 127) << 23);
    return in == in ? p * low * high : in;
}

/* most * tanh(x / most), as infer/cpu/lanes.h has it. */
DEV float capped(float x, float most)
{
    float e = exp_exact(x / most * 2.0f);
    return x == -INFINITY ? x : (1.0f - 2.0f / (e + 1.0f)) * most;
}

DEV float sigmoid_exact(float x) { return 1.0f / (exp_exact(-x) + 1.0f); }

DEV float clamped_silu_times(float x, float up)
{
    const float limit = NTX_SWIGLU_LIMIT;
    x = x > limit ? limit : x;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return x / (exp_exact(-NTX_SWIGLU_ALPHA * x) + 1.0f) * (up + 1.0f);
}

DEV float gelu_times(float x, float up)
{
    float z = x * fmaf(x * x, -2 * NTX_GELU_SCALE * NTX_GELU_CUBE, -2 * NTX_GELU_SCALE);
    return x / (exp_exact(z) + 1.0f) * up;
}

DEV float activated(float x, float up, uint32_t act)
{
    if (act == NTX_FFN_GELU)
        return gelu_times(x, up);
    if (act == NTX_FFN_SILU_CLAMPED)
        return clamped_silu_times(x, up);
    return (act == NTX_FFN_RELU ? x < 0 ? 0 : x : x / (exp_exact(-x) + 1.0f)) * up;
}

DEV float below(float x, float most) { return x > most ? most : x; }
DEV float within(float x, float most) { return x > most ? most : x < -most ? -most : x; }

DEV float hidden_value(float x, float up, const struct ntx_activation *by)
{
    return by->limit != 0 ? activated(below(x, by->gate_limit), within(up, by->limit), by->act) : activated(x, up, by->act);
}

KERNEL(quantize_part, struct ntx_gpu_quantize)
{
    SHARED int32_t tops[WARPS];
    uint32_t i = BY, k = BX * SEGMENT + TID;
    float x = 0;
    if (k < a.n)
        x = a.x[i * a.ld_x + k];
    if (k < a.n && a.up) {
        float up = a.up[i * a.ld_up + k];
        if (a.x_bias)
            x += a.x_bias[(uint64_t)a.bias_rows[i] * a.n + k];
        if (a.up_bias)
            up += a.up_bias[(uint64_t)a.bias_rows[i] * a.n + k];
        x = hidden_value(x, up, &a.by);
        a.x[i * a.ld_x + k] = x;
    }
    quantise_segment(x, BX, a.n, row_of(a.q8, i, a.q8_stride), row_of(a.q8k, i, a.q8k_stride), tops);
}

/* ---- launching */

int ntx__launch_norm(struct ntx_gpu_stream *s, const struct ntx_gpu_norm *p)
{
    RETURN_LAUNCH(s, norm_row, p->n_rows, 1, 1, SEGMENT, *p);
}

int ntx__launch_quantize(struct ntx_gpu_stream *s, const struct ntx_gpu_quantize *p)
{
    RETURN_LAUNCH(s, quantize_part, segments_of(p->n, p->q8 != NULL, p->q8k != NULL), p->n_rows, 1, SEGMENT, *p);
}

#endif
