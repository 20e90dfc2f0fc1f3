/* SPDX-License-Identifier: Apache-2.0 */
/* vector.h: rows between products: norms, quantisation, SwiGLU.
 *
 * Quantised rows have the layout of computed/cpu/kern.h, padding included, so that the CPU can multiply a downloaded
 * row. SEGMENT threads handle SEGMENT adjacent values of a row: eight blocks of Q8, one of Q8K. */
#ifndef NTX_CUDA_VECTOR_H
#define NTX_CUDA_VECTOR_H

#include "cuda/part.h"
#include "model/ffn_act.h"

#define SEGMENT 256u
#define WARPS   (SEGMENT / WARP)

DEV uint32_t round_to(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

DEV int32_t larger_int(int32_t x, int32_t y) { return x > y ? x : y; }

/* The scale for max|x|, and its inverse. top: the bits of max|x|; absolute values order like integers, and NaN is the
 * largest. */
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

/* The bits of the largest absolute value of a warp; NaN is the largest. */
DEV int32_t top_of_warp(float x)
{
    int32_t top = (int32_t)(f_bits(x) & 0x7fffffffu);
    UNROLL
    for (uint32_t m = 16; m; m /= 2)
        top = larger_int(top, xor_i(top, m));
    return top;
}

/* Stores block b of a row of n values: a value per thread of the warp; top: their top_of_warp(). */
DEV void quantize_q8(float x, int32_t top, uint32_t b, uint32_t n, uint8_t *row)
{
    uint32_t nb = round_to(n / 32, 16), lane = TID % WARP;
    float inverse, d = scale_of(top, &inverse);
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

/* Stores super-block b: a value per thread t of SEGMENT adjacent threads; tops: of their warps. */
DEV void quantize_q8k(float x, const int32_t *tops /* shared [WARPS] */, uint32_t b, uint32_t n, uint8_t *row)
{
    uint32_t nb = n / 256, nb4 = round_to(nb, 4), nb16 = round_to(nb, 16), t = TID % SEGMENT;
    int32_t top = tops[0];
    float inverse, *d = (float *)(void *)(row + nb4 * 256);
    int16_t *s16 = (int16_t *)(void *)(d + nb16), *s32 = s16 + nb4 * 16;
    UNROLL
    for (uint32_t i = 1; i < WARPS; i++)
        top = larger_int(top, tops[i]);
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

/* Quantises `count` values of each thread, BLOCK_DIM apart in the row. segment: that of the first value in the first
 * SEGMENT threads. tops: shared [count][BLOCK_DIM / WARP]. */
DEV void quantise_segments(const float *x, const uint32_t count, uint32_t segment, uint32_t n, void *q8, void *q8k,
                           int32_t *tops)
{
    const uint32_t side = BLOCK_DIM / SEGMENT, first = segment + TID / SEGMENT, warps = BLOCK_DIM / WARP;
    if (!q8 && !q8k)
        return;
    UNROLL
    for (uint32_t j = 0; j < count; j++) {
        const int32_t top = top_of_warp(x[j]);
        if (!(TID % WARP))
            tops[j * warps + TID / WARP] = top;
    }
    SYNC();
    UNROLL
    for (uint32_t j = 0; j < count; j++)
        if (q8)
            quantize_q8(x[j], tops[j * warps + TID / WARP], (first + j * side) * WARPS + TID % SEGMENT / WARP, n,
                        (uint8_t *)q8);
    UNROLL
    for (uint32_t j = 0; j < count; j++)
        if (q8k)
            quantize_q8k(x[j], tops + j * warps + TID / SEGMENT * WARPS, first + j * side, n, (uint8_t *)q8k);
    SYNC();
}

DEV void *row_or_null(void *base, uint32_t i, uint64_t stride) { return base ? (uint8_t *)base + i * stride : NULL; }

DEV double sum_of_warp(double v)
{
    UNROLL
    for (uint32_t m = WARP / 2; m; m /= 2)
        v += xor_d(v, m);
    return v;
}

/* The sum over all threads of a block, by a fixed tree. */
DEV double block_sum(double v, double *shared /* [WARPS] */)
{
    v = sum_of_warp(v);
    if (!(TID % WARP))
        shared[TID / WARP] = v;
    SYNC();
    double sum = 0;
    for (uint32_t i = 0; i < BLOCK_DIM / WARP; i++)
        sum += shared[i];
    SYNC();
    return sum;
}

#define AHEAD        4u /* loads of a thread that are in flight together */
#define NORM_THREADS 1024u

/* Loads a row's values k, k + BLOCK_DIM, ..; 0 after its n values. */
DEV void load_ahead(const float *x, uint32_t k, uint32_t n, float *v)
{
    UNROLL
    for (uint32_t j = 0; j < AHEAD; j++)
        v[j] = x && k + j * BLOCK_DIM < n ? x[k + j * BLOCK_DIM] : 0;
}

/* 1 / sqrt(mean square + eps), by one thread: most cards have few units for doubles. */
DEV float norm_scale(double sum, const struct ntx_gpu_norm *a, double *sums /* shared [NORM_THREADS / WARP] */,
                     float *scale /* shared */)
{
    sum = sum_of_warp(sum);
    if (!(TID % WARP))
        sums[TID / WARP] = sum;
    SYNC();
    if (TID < WARP) {
        const double all = sum_of_warp(TID < BLOCK_DIM / WARP ? sums[TID] : 0);
        if (!TID)
            *scale = (float)(1.0 / sqrt(all / a->n + (double)a->eps));
    }
    SYNC();
    return *scale;
}

/* Sums of squares are in double precision: their order changes the scale, a float, about once in 10^8 times. A row of
 * up to AHEAD * BLOCK_DIM values is read once. */
KERNEL_OF(NORM_THREADS, norm_row, struct ntx_gpu_norm)
{
    SHARED double sums[NORM_THREADS / WARP];
    SHARED int32_t tops[AHEAD * NORM_THREADS / WARP];
    SHARED float shared_scale;
    const uint32_t i = BX, each = AHEAD * BLOCK_DIM;
    float *h = a.h + (a.rows ? a.rows[i] : i) * a.ld_h, v[AHEAD], w[AHEAD];
    const float *y = a.y ? a.y + i * a.ld_y : NULL;
    double sum = 0;
    for (uint32_t k0 = TID; k0 < a.n; k0 += each) {
        float more[AHEAD], bias[AHEAD];
        load_ahead(h, k0, a.n, v);
        load_ahead(y, k0, a.n, more);
        load_ahead(y ? a.bias : NULL, k0, a.n, bias);
        UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) {
            if (y && k0 + j * BLOCK_DIM < a.n)
                h[k0 + j * BLOCK_DIM] = v[j] += a.bias ? more[j] + bias[j] : more[j];
            sum += (double)v[j] * (double)v[j];
        }
    }
    if (!a.w)
        return;
    load_ahead(a.w, TID, a.n, w); /* in flight while the sum is computed */
    const float scale = norm_scale(sum, &a, sums, &shared_scale);
    const uint32_t segments = segments_of(a.n, a.q8 != NULL, a.q8k != NULL);
    for (uint32_t s0 = 0; s0 < segments; s0 += each / SEGMENT) {
        const uint32_t k0 = s0 * SEGMENT + TID;
        if (a.n > each) {
            load_ahead(h, k0, a.n, v);
            load_ahead(a.w, k0, a.n, w);
        }
        UNROLL
        for (uint32_t j = 0; j < AHEAD; j++) {
            const uint32_t k = k0 + j * BLOCK_DIM;
            v[j] = k < a.n ? v[j] * scale * w[j] * a.times : 0;
            if (a.x && k < a.n)
                a.x[i * a.ld_x + k] = v[j];
        }
        quantise_segments(v, AHEAD, s0, a.n, row_or_null(a.q8, i, a.q8_stride), row_or_null(a.q8k, i, a.q8k_stride),
                          tops);
    }
}

/* e^x, with the same operations as in computed/cpu/lanes.h. */
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

/* most * tanh(x / most), as in computed/cpu/lanes.h. */
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
    up = up < -limit ? -limit : up;
    up = up > limit ? limit : up;
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
    if (act == NTX_FFN_RELU)
        return (x < 0 ? 0 : x) * up;
    return x / (exp_exact(-x) + 1.0f) * up;
}

DEV float clamp_above(float x, float most) { return x > most ? most : x; }
DEV float clamp_both(float x, float most)
{
    const float v = x < -most ? -most : x;
    return x > most ? most : v;
}

DEV float hidden_value(float x, float up, const struct ntx_activation *by)
{
    return by->limit != 0 ? activated(clamp_above(x, by->gate_limit), clamp_both(up, by->limit), by->act)
                          : activated(x, up, by->act);
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
    quantise_segments(&x, 1, BX, a.n, row_or_null(a.q8, i, a.q8_stride), row_or_null(a.q8k, i, a.q8k_stride), tops);
}

/* ---- launching */

int ntx__launch_norm(struct ntx_gpu_stream *s, const struct ntx_gpu_norm *p)
{
    const uint32_t segments = segments_of(p->n, p->q8 != NULL, p->q8k != NULL);
    const uint32_t few = segments > 1 ? 2 * SEGMENT : SEGMENT;
    RETURN_LAUNCH(s, norm_row, p->n_rows, 1, 1, segments > 2 ? NORM_THREADS : few, *p);
}

int ntx__launch_quantize(struct ntx_gpu_stream *s, const struct ntx_gpu_quantize *p)
{
    RETURN_LAUNCH(s, quantize_part, segments_of(p->n, p->q8 != NULL, p->q8k != NULL), p->n_rows, 1, SEGMENT, *p);
}

#endif
