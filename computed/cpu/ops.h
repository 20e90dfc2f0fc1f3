/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h: all operations except matrix products: one source, which generic.c, avx2.c, avx512.c and neon.c include and
 * compile with their flags. Arithmetic is lane by lane in the order written, so all give the same bits (lanes.h). */
#ifndef NTX_COMPUTED_CPU_OPS_H
#define NTX_COMPUTED_CPU_OPS_H

#include "computed/cpu/lanes.h"

/* ---- quantising of activations (kern.h has the layout) ---- */

/* Quantises a block of 16 * vecs values: returns its scale, and sets q and the sum of each 16 q. */
INLINE float quantize_block(const float *x, const int vecs, int8_t *q, int32_t *sums)
{
    const struct f16 magic = splat(0x1.8p23f);
    struct i16 top = {{{0}}}; /* as integers: absolute values have the same order, and NaN is the largest */
    for (int g = 0; g < vecs; g++) {
        struct i16 bits = bits16(load16(x + 16 * g));
        EACH_PART bits.p[i] &= 0x7fffffff;
        top = imax16(top, bits);
    }
    int32_t bits = itop16(top);
    float max, inverse = 0, d = 0;
    memcpy(&max, &bits, 4);
    if (bits >= 0x7f800000) {
        d = NAN;
    } else if (max > 0x1p-100f) { /* smaller values become zero: their inverse could overflow */
        d = max / 127.0f;
        inverse = 127.0f / max;
    }
    for (int g = 0; g < vecs; g++) {
        struct f16 v = inverse != 0 ? mul16(load16(x + 16 * g), splat(inverse)) : splat(0);
        struct i16 whole = isub16(bits16(add16(v, magic)), bits16(magic));
        store_bytes(q + 16 * g, whole);
        sums[g] = isum16(whole);
    }
    return d;
}

static void quantize_f32(const float *x, void *dst, uint32_t n) { memcpy(dst, x, n * sizeof *x); }

static void quantize_q8(const float *x, void *dst, uint32_t n)
{
    uint32_t nb = n / NTX_QK;
    struct q8_row row = q8_view(dst, n);
    size_t filled = (size_t)nb * NTX_QK, size = ntx_act_row_bytes(NTX_ACT_Q8, n);
    memset((char *)dst + filled, 0, size - filled);
    float *d = (float *)row.d;
    int32_t *s = (int32_t *)row.s;
    for (uint32_t b = 0; b < nb; b++) {
        int32_t sums[2];
        d[b] = quantize_block(x + b * NTX_QK, 2, (int8_t *)dst + b * NTX_QK, sums);
        s[b] = sums[0] + sums[1];
    }
}

static void quantize_q8k(const float *x, void *dst, uint32_t n)
{
    uint32_t nb = n / NTX_QKK;
    struct q8k_row row = q8k_view(dst, n);
    size_t filled = (size_t)nb * NTX_QKK, size = ntx_act_row_bytes(NTX_ACT_Q8K, n);
    memset((char *)dst + filled, 0, size - filled);
    float *d = (float *)row.d;
    int16_t *s16 = (int16_t *)row.s16, *s32 = (int16_t *)row.s32;
    for (uint32_t b = 0; b < nb; b++) {
        int32_t sums[16];
        d[b] = quantize_block(x + b * NTX_QKK, 16, (int8_t *)dst + b * NTX_QKK, sums);
        for (int g = 0; g < 16; g++)
            s16[b * 16 + g] = (int16_t)sums[g];
        for (int g = 0; g < 8; g++)
            s32[b * 8 + g] = (int16_t)(sums[2 * g] + sums[2 * g + 1]);
    }
}

/* ---- small vector operations ---- */

/* Sums in 16 lanes of double, joined by the fixed tree. */
INLINE double sum_of_squares(const float *x, uint32_t n)
{
    double acc[16] = {0};
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        for (uint32_t l = 0; l < 16; l++)
            acc[l] += (double)x[k + l] * (double)x[k + l];
    for (uint32_t l = 0; k + l < n; l++)
        acc[l] += (double)x[k + l] * (double)x[k + l];
    for (int step = 8; step; step /= 2)
        for (int l = 0; l < step; l++)
            acc[l] += acc[l + step];
    return acc[0];
}

static void rmsnorm(const float *x, const float *w, float eps, uint32_t n, float *y)
{
    float scale = (float)(1.0 / sqrt(sum_of_squares(x, n) / n + (double)eps));
    for (uint32_t k = 0; k < n; k++)
        y[k] = w ? x[k] * scale * w[k] : x[k] * scale;
}

static void rope_norm(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t dim, const float *cs, const float *sn)
{
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
        for (uint32_t i = 0; i < dim / 2; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = a * cs[i] - b * sn[i];
            x[2 * i + 1] = a * sn[i] + b * cs[i];
        }
}

static void rope_neox(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t dim, const float *cs, const float *sn)
{
    uint32_t half = dim / 2;
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
        for (uint32_t i = 0; i < half; i++) {
            float a = x[i], b = x[i + half];
            x[i] = a * cs[i] - b * sn[i];
            x[i + half] = a * sn[i] + b * cs[i];
        }
}

INLINE struct f16 silu_times(struct f16 gate, struct f16 up)
{
    struct f16 e = exp16(sub16(splat(-0.0f), gate));
    return mul16(div16(gate, add16(e, splat(1.0f))), up);
}

/* Both inputs are clamped to NTX_SWIGLU_LIMIT first, the gate from above only. */
INLINE struct f16 clamped_silu_times(struct f16 gate, struct f16 up)
{
    const struct f16 limit = splat(NTX_SWIGLU_LIMIT);
    gate = min16(gate, limit);
    up = max16(min16(up, limit), splat(-NTX_SWIGLU_LIMIT));
    struct f16 e = exp16(mul16(splat(-NTX_SWIGLU_ALPHA), gate));
    return mul16(div16(gate, add16(e, splat(1.0f))), add16(up, splat(1.0f)));
}

INLINE struct f16 gelu_times(struct f16 gate, struct f16 up)
{
    struct f16 z = mul16(
        gate, fma16(mul16(gate, gate), splat(-2 * NTX_GELU_SCALE * NTX_GELU_CUBE), splat(-2 * NTX_GELU_SCALE)));
    return mul16(div16(gate, add16(exp16(z), splat(1.0f))), up);
}

INLINE void glu_all(const float *gate, const float *up, uint32_t n, float *y,
                    struct f16 (*const act_times)(struct f16 gate, struct f16 up))
{
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        store16(y + k, act_times(load16(gate + k), load16(up + k)));
    if (k < n)
        store_part(y + k, act_times(load_part(gate + k, n - k), load_part(up + k, n - k)), n - k);
}

static void swiglu(const float *gate, const float *up, uint32_t n, float *y) { glu_all(gate, up, n, y, silu_times); }
static void clamped_swiglu(const float *gate, const float *up, uint32_t n, float *y)
{
    glu_all(gate, up, n, y, clamped_silu_times);
}

static void geglu(const float *gate, const float *up, uint32_t n, float *y) { glu_all(gate, up, n, y, gelu_times); }

static void reglu(const float *gate, const float *up, uint32_t n, float *y)
{
    for (uint32_t k = 0; k < n; k++)
        y[k] = (gate[k] < 0 ? 0 : gate[k]) * up[k];
}

static void add_floats(float *x, const float *y, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        x[k] += y[k];
}

static void add_scaled(float *x, float by, const float *y, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        x[k] += by * y[k];
}

static void mul_floats(float *x, const float *y, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        x[k] *= y[k];
}

INLINE struct f16 sigmoid16(struct f16 x)
{
    return div16(splat(1.0f), add16(exp16(sub16(splat(-0.0f), x)), splat(1.0f)));
}

static void sigmoid(float *x, uint32_t n)
{
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        store16(x + k, sigmoid16(load16(x + k)));
    if (k < n)
        store_part(x + k, sigmoid16(load_part(x + k, n - k)), n - k);
}

static void exp_of(float *x, float less, uint32_t n)
{
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        store16(x + k, exp16(sub16(load16(x + k), splat(less))));
    if (k < n)
        store_part(x + k, exp16(sub16(load_part(x + k, n - k), splat(less))), n - k);
}

static void cap_floats(float *x, float most, uint32_t n)
{
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        store16(x + k, cap16(load16(x + k), most));
    if (k < n)
        store_part(x + k, cap16(load_part(x + k, n - k), most), n - k);
}

static void f16_store(const float *x, uint16_t *dst, uint32_t n)
{
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        store16_f16(dst + k, load16(x + k));
    if (k < n) {
        uint16_t h[16];
        store16_f16(h, load_part(x + k, n - k));
        memcpy(dst + k, h, (n - k) * sizeof *dst);
    }
}

#include "computed/cpu/attn_q8.h"
#include "computed/cpu/attn_rows.h"
#include "computed/cpu/attn_shared.h"
#include "computed/cpu/columns.h"
#include "computed/cpu/delta_net.h"
#include "computed/cpu/index.h"

/* ---- high and low bits ---- */

NTX_PLANES_JOINS(join_planes)

/* The part of a table that this file fills. */
#define OPS_TABLE                                                                                                      \
    .act_quantize = {[NTX_ACT_F32] = quantize_f32, [NTX_ACT_Q8] = quantize_q8, [NTX_ACT_Q8K] = quantize_q8k},          \
    .rmsnorm = rmsnorm, .rope_norm = rope_norm, .rope_neox = rope_neox,                                                \
    .glu = {[NTX_FFN_SILU] = swiglu,                                                                                   \
            [NTX_FFN_RELU] = reglu,                                                                                    \
            [NTX_FFN_SILU_CLAMPED] = clamped_swiglu,                                                                   \
            [NTX_FFN_GELU] = geglu},                                                                                   \
    .add = add_floats, .add_scaled = add_scaled, .exp_of = exp_of, .cap = cap_floats, .f16_store = f16_store,          \
    .turn = turn_floats,                                                                                               \
    .k_store = {[NTX_KV_F16] = f16_store_row, [NTX_KV_Q8_0] = q8_store_k, [NTX_KV_Q4_0] = q4_store_k},                 \
    .v_store = {[NTX_KV_F16] = f16_store_row, [NTX_KV_Q8_0] = q8_store_v, [NTX_KV_Q4_0] = q4_store_v},                 \
    .attend = {[NTX_KV_F16] = attend_f16, [NTX_KV_Q8_0] = attend_q8_0, [NTX_KV_Q4_0] = attend_q4_0},                   \
    .attn_scores = {[NTX_KV_F16] = f16_scores, [NTX_KV_Q8_0] = q8_0_scores}, .attn_weights = attn_weights,             \
    .attn_values = {[NTX_KV_F16] = f16_values, [NTX_KV_Q8_0] = q8_0_values}, .columns = COLUMNS_TABLE,                 \
    .sigmoid = sigmoid, .mul = mul_floats, .conv = convolve, .unit = normalise_unit, .delta = delta_net,               \
    .index = index_scores, .scan_each = scan_each, .join = join_planes

#endif
