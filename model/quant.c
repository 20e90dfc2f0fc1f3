/* SPDX-License-Identifier: Apache-2.0 */
/* quant.c: the table of types, and their values as floats, made by the unpacking of each type. Speed does not matter
 * here: the fast kernels are elsewhere and are tested against these. */
#include "model/planes.h"
#include "model/unpack.h"

#include <string.h>

_Static_assert(sizeof(struct ntx_block_q4_0) == 18 && sizeof(struct ntx_block_q4_1) == 20, "layout of files");
_Static_assert(sizeof(struct ntx_block_q5_0) == 22 && sizeof(struct ntx_block_q5_1) == 24, "layout of files");
_Static_assert(sizeof(struct ntx_block_q8_0) == 34 && sizeof(struct ntx_block_q2_k) == 84, "layout of files");
_Static_assert(sizeof(struct ntx_block_q3_k) == 110 && sizeof(struct ntx_block_q4_k) == 144, "layout of files");
_Static_assert(sizeof(struct ntx_block_mxfp4) == 17, "layout of files");
_Static_assert(sizeof(struct ntx_block_iq2_xxs) == 66 && sizeof(struct ntx_block_iq2_xs) == 74, "layout of files");
_Static_assert(sizeof(struct ntx_block_iq2_s) == 82 && sizeof(struct ntx_block_iq3_xxs) == 98, "layout of files");
_Static_assert(sizeof(struct ntx_block_iq3_s) == 110 && sizeof(struct ntx_block_iq4_xs) == 136, "layout of files");
_Static_assert(sizeof(struct ntx_block_iq1_s) == 50 && sizeof(struct ntx_block_iq1_m) == 56, "layout of files");
_Static_assert(sizeof(struct ntx_block_tq1_0) == 54 && sizeof(struct ntx_block_tq2_0) == 66, "layout of files");
_Static_assert(sizeof(struct ntx_block_nvfp4) == 36 && sizeof(struct ntx_block_q1_0) == 18, "layout of files");
_Static_assert(sizeof(struct ntx_block_q2_0) == 18 && sizeof(struct ntx_block_iq4_nl) == 18, "layout of files");
_Static_assert(sizeof(struct ntx_block_q5_k) == 176 && sizeof(struct ntx_block_q6_k) == 210, "layout of files");

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float ntx_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31)
        return from_bits(sign | 0x7f800000 | m << 13);
    if (e == 0) { /* zero and subnormals: m * 2^-24, exact */
        float f = (float)m * 0x1p-24f;
        return from_bits(sign | to_bits(f));
    }
    return from_bits(sign | (e + 112) << 23 | m << 13);
}

uint16_t ntx_f32_to_f16(float f)
{
    uint32_t x = to_bits(f), sign = x >> 16 & 0x8000;
    x &= 0x7fffffff;
    if (x > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (x >= 0x477ff000) /* 65520 and more: rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (x < 0x38800000) { /* below 2^-14: the unit in the last place of 0.5 is 2^-24, the subnormals' step */
        float t = from_bits(x) + 0.5f;
        return (uint16_t)(sign | (to_bits(t) - 0x3f000000));
    }
    x += (x >> 13 & 1) + 0xfff; /* nearest even; a carry into the exponent is right */
    return (uint16_t)(sign | (x - (112u << 23)) >> 13);
}

static void dequant_f32(const void *blocks, float *out, size_t n) { memcpy(out, blocks, n * sizeof *out); }

static void dequant_f16(const void *blocks, float *out, size_t n)
{
    const uint16_t *x = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = ntx_f16_to_f32(x[i]);
}

static void dequant_bf16(const void *blocks, float *out, size_t n)
{
    const uint16_t *x = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = from_bits((uint32_t)x[i] << 16);
}

static void dequant_i32(const void *blocks, float *out, size_t n)
{
    const int32_t *x = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)x[i];
}

static void dequant_i64(const void *blocks, float *out, size_t n)
{
    const int64_t *x = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = (float)x[i];
}

static void dequant_i8(const void *blocks, float *out, size_t n)
{
    const int8_t *x = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = x[i];
}

/* ---- blocks, by 32 values */

typedef void unpack_fn(const void *block, uint32_t t, struct ntx_part *p);

NTX_UNPACK void dequant_simple(const uint8_t *b, float *out, size_t n, const size_t bytes, const uint32_t values,
                               const bool has_min, unpack_fn *unpack)
{
    struct ntx_part p;
    for (size_t i = 0; i < n; i++, b += bytes)
        for (uint32_t t = 0; t < values / NTX_QK; t++, out += NTX_QK) {
            unpack(b, t, &p);
            for (int k = 0; k < NTX_QK; k++) {
                float v = p.d * (float)p.q[k];
                out[k] = has_min ? v + p.m : v;
            }
        }
}

NTX_UNPACK void dequant_super(const uint8_t *b, float *out, size_t n, const size_t bytes, const uint32_t values,
                              const bool has_min, unpack_fn *unpack)
{
    struct ntx_part p;
    for (size_t i = 0; i < n; i++, b += bytes)
        for (uint32_t t = 0; t < values / NTX_QK; t++, out += NTX_QK) {
            unpack(b, t, &p);
            for (int k = 0; k < NTX_QK; k++) {
                float a = p.d * (float)p.scale[k / 16], v = a * (float)p.q[k];
                out[k] = has_min ? v - p.m * (float)p.min[k / 16] : v;
            }
        }
}

NTX_UNPACK void dequant_halves(const uint8_t *b, float *out, size_t n, const size_t bytes, const uint32_t values,
                               const bool has_min, unpack_fn *unpack)
{
    struct ntx_part p;
    (void)has_min;
    for (size_t i = 0; i < n; i++, b += bytes)
        for (uint32_t t = 0; t < values / NTX_QK; t++, out += NTX_QK) {
            unpack(b, t, &p);
            for (int k = 0; k < NTX_QK; k++)
                out[k] = (k < 16 ? p.d : p.m) * (float)p.q[k];
        }
}

#define DEQUANT_FLOAT(type, values, min)
#define DEQUANT_SIMPLE(type, values, min) DEQUANT_BLOCKS(simple, type, values, min)
#define DEQUANT_HALVES(type, values, min) DEQUANT_BLOCKS(halves, type, values, min)
#define DEQUANT_SUPER(type, values, min)  DEQUANT_BLOCKS(super, type, values, min)
#define DEQUANT_BLOCKS(rule, type, values, min)                                                                        \
    static void dequant_##type(const void *blocks, float *out, size_t n)                                               \
    {                                                                                                                  \
        dequant_##rule(blocks, out, n, sizeof(struct ntx_block_##type), values, NTX_HAS_##min, ntx_unpack_##type);     \
    }
#define DEQUANT(rule, TYPE, type, values, scale, min, ...) DEQUANT_##rule(type, values, min)
NTX_TYPES(DEQUANT)

/* Of high bits alone: the middle of the values whose low bits are all 0, and all 1. */
#define DEQUANT_HIGH(WHOLE, whole, low_bits, high_bits, begin, n_split)                                                \
    static void dequant_##whole##_high##high_bits(const void *blocks, float *out, size_t n)                            \
    {                                                                                                                  \
        const uint8_t *high = blocks;                                                                                  \
        struct ntx_block_##whole b;                                                                                    \
        uint8_t up[NTX_PLANES_LOW_BYTES(low_bits, n_split)];                                                           \
        float above[NTX_QKK];                                                                                          \
        const struct ntx_type_info *t = ntx_type_info(NTX_##WHOLE##_HIGH##high_bits);                                  \
        memset(up, 0xff, sizeof up);                                                                                   \
        for (size_t i = 0; i < n; i++, high += t->block_bytes, out += t->block) {                                      \
            ntx_planes_join_##whole##_##low_bits(high, NULL, (uint8_t *)&b, true);                                     \
            dequant_##whole(&b, out, 1);                                                                               \
            ntx_planes_join_##whole##_##low_bits(high, up, (uint8_t *)&b, false);                                      \
            dequant_##whole(&b, above, 1);                                                                             \
            for (uint32_t k = 0; k < t->block; k++)                                                                    \
                out[k] = (out[k] + above[k]) / 2;                                                                      \
        }                                                                                                              \
    }
NTX_PLANES(DEQUANT_HIGH)

/* ---- the table */

#define N_HALVES_half(min)    (1 + NTX_HAS_##min)
#define N_HALVES_quarter(min) 1
#define N_HALVES_eighth(min)  1
#define N_HALVES_e8m0(min)    0
#define N_HALVES_spread(min)  0
#define N_HALVES_halves(min)  0
#define MIN_AT_none(type)     0
#define MIN_AT_m(type)        offsetof(struct ntx_block_##type, m)
#define MIN_AT_dmin(type)     offsetof(struct ntx_block_##type, dmin)

#define ENTRY_FLOAT(TYPE, type, values, bytes, min, ...)                                                               \
    [NTX_##TYPE] = {#TYPE, 1, bytes, dequant_##type, NTX_RULE_FLOAT, 0, {0}},
#define ENTRY_SIMPLE(...) ENTRY_BLOCKS(SIMPLE, __VA_ARGS__)
#define ENTRY_HALVES(...) ENTRY_BLOCKS(HALVES, __VA_ARGS__)
#define ENTRY_SUPER(...)  ENTRY_BLOCKS(SUPER, __VA_ARGS__)
#define ENTRY_BLOCKS(rule, TYPE, type, values, scale, min, ...)                                                        \
    [NTX_##TYPE] = {#TYPE,                                                                                             \
                    values,                                                                                            \
                    sizeof(struct ntx_block_##type),                                                                   \
                    dequant_##type,                                                                                    \
                    NTX_RULE_##rule,                                                                                   \
                    N_HALVES_##scale(min),                                                                             \
                    {NTX_SCALE_AT_##scale(type), MIN_AT_##min(type)}},
#define ENTRY(rule, ...) ENTRY_##rule(__VA_ARGS__)

/* Halves are before the split bytes, or (Q6_K) at the end of what follows them. */
#define VALUES_Q4_K      NTX_QKK, NTX_RULE_SUPER, 2, 0, 2
#define VALUES_Q5_K      NTX_QKK, NTX_RULE_SUPER, 2, 0, 2
#define VALUES_Q6_K      NTX_QKK, NTX_RULE_SUPER, 1, 80, 0
#define VALUES_Q5_0      NTX_QK, NTX_RULE_SIMPLE, 1, 0, 0
#define VALUES_Q8_0      NTX_QK, NTX_RULE_SIMPLE, 1, 0, 0
#define LOW_OF(...)      LOW_OF_(__VA_ARGS__)
#define HIGH_OF(...)     HIGH_OF_(__VA_ARGS__)
#define LOW_OF_(name, bytes, values, rule, ...)                                                                        \
    {                                                                                                                  \
        name, values, bytes, NULL, rule, 0, { 0 }                                                                      \
    }
#define HIGH_OF_(name, bytes, dequant, values, rule, n_halves, first, second)                                          \
    {                                                                                                                  \
        name, values, bytes, dequant, rule, n_halves, { first, second }                                                \
    }
#define ENTRY_PLANES(WHOLE, whole, low_bits, high_bits, begin, n)                                                      \
    [NTX_##WHOLE##_LOW##low_bits] = LOW_OF(#WHOLE "/low" #low_bits, NTX_PLANES_LOW_BYTES(low_bits, n),                 \
                                           VALUES_##WHOLE),                                                            \
    [NTX_##WHOLE##_HIGH##high_bits] = HIGH_OF(#WHOLE "/high" #high_bits, NTX_PLANES_HIGH_BYTES(whole, low_bits, n),    \
                                              dequant_##whole##_high##high_bits, VALUES_##WHOLE),

static const struct ntx_type_info types[NTX_TYPE_LIMIT] = {
    NTX_TYPES(ENTRY)[NTX_I8] = {"I8", 1, 1, dequant_i8, NTX_RULE_FLOAT, 0, {0}},
    [NTX_I32] = {"I32", 1, 4, dequant_i32, NTX_RULE_FLOAT, 0, {0}},
    [NTX_I64] = {"I64", 1, 8, dequant_i64, NTX_RULE_FLOAT, 0, {0}}, NTX_PLANES(ENTRY_PLANES)};

const struct ntx_type_info *ntx_type_info(uint32_t type)
{
    return type < NTX_TYPE_LIMIT && types[type].name ? &types[type] : NULL;
}

size_t ntx_row_bytes(uint32_t type, uint64_t n)
{
    const struct ntx_type_info *t = ntx_type_info(type);
    size_t bytes;
    if (!t || n % t->block || __builtin_mul_overflow(n / t->block, t->block_bytes, &bytes))
        return 0;
    return bytes;
}
