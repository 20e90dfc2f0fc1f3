/* SPDX-License-Identifier: Apache-2.0 */
/* value.h: one weight as a float, for kernels that do not multiply integers. */
#ifndef NTX_CUDA_VALUE_H
#define NTX_CUDA_VALUE_H

#include "cuda/product.h"

/* Value v of a block, as model/unpack.h and model/quant.h define it. */
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
    const uint8_t *qs = b +
                        (type == NTX_Q2_K ? offsetof(struct ntx_block_q2_k, qs) : offsetof(struct ntx_block_q3_k, qs));
    int32_t q = qs[v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3, g = (int32_t)v / 16;
    float d = f16_at(b + super_d(type));
    if (type == NTX_Q2_K)
        return d * (float)(b[g] & 15) * (float)q -
               f16_at(b + offsetof(struct ntx_block_q2_k, dmin)) * (float)(b[g] >> 4);
    int32_t scale = ((b[96 + g % 8] >> (g / 8 * 4) & 15) | (b[104 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
    return d * (float)scale * (float)(q - (b[v % 32] >> (v / 32) & 1 ? 0 : 4));
}

DEV float super_value(const uint32_t type, const uint8_t *b, uint32_t v)
{
    if (type == NTX_Q2_K || type == NTX_Q3_K)
        return two_bit_value(type, b, v);
    if (type == NTX_Q6_K) {
        int32_t low = b[v / 128 * 64 + v % 64] >> (v % 128 / 64 * 4) & 15,
                high = b[128 + v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3;
        return f16_at(b + offsetof(struct ntx_block_q6_k, d)) * (float)(int8_t)b[192 + v / 16] *
               (float)((low | high << 4) - 32);
    }
    const uint8_t *qs = b +
                        (type == NTX_Q4_K ? offsetof(struct ntx_block_q4_k, qs) : offsetof(struct ntx_block_q5_k, qs));
    int32_t q = qs[v / 64 * 32 + v % 32] >> (v % 64 / 32 * 4) & 15;
    if (type == NTX_Q5_K)
        q |= (b[16 + v % 32] >> (v / 32) & 1) << 4;
    return f16_at(b) * (float)scale_k(b + 4, v / 32) * (float)q - f16_at(b + 2) * (float)min_k(b + 4, v / 32);
}

/* Byte v of 32 bytes in registers; an index would move them to memory. */
DEV int32_t byte_of_words(const uint32_t *q, uint32_t v)
{
    uint32_t word = q[0];
    UNROLL
    for (uint32_t i = 1; i < 8; i++)
        word = v / 4 == i ? q[i] : word;
    return (int8_t)(word >> v % 4 * 8);
}

/* A value of any type, by model/unpack.h. */
DEV float plain_value(const uint32_t type, const uint8_t *b, uint32_t v)
{
    struct ntx_part p;
    uint32_t words[8];
    plain_part(type, b, v / 32, &p);
    plain_words(&p, words);
    v %= 32;
    const float q = (float)byte_of_words(words, v);
    if (rule_of(type) == NTX_RULE_SUPER) {
        const float scaled = p.d * (float)(v < 16 ? p.scale[0] : p.scale[1]) * q;
        if (!has_min(type))
            return scaled;
        return scaled - p.m * (float)(v < 16 ? p.min[0] : p.min[1]);
    }
    if (rule_of(type) == NTX_RULE_HALVES)
        return (v < 16 ? p.d : p.m) * q;
    return has_min(type) ? p.d * q + p.m : p.d * q;
}

#define LOOKUP_VALUE_CASE(TYPE, type, scale, raise)                                                                    \
    case NTX_##TYPE: {                                                                                                 \
        const struct lookup l = LOOKUP_WORDS(NTX_VALUES_##type);                                                       \
        const uint8_t *qs = b + sizeof(struct ntx_block_##type) - 16;                                                  \
        return simple_d(type_, b) * (float)(int8_t)looked_up(l, v < 16 ? qs[v] : qs[v - 16] >> 4);                     \
    }

DEV float block_value(const uint32_t type_, const uint8_t *b, uint32_t v)
{
    switch (type_) {
    case NTX_Q4_0:
    case NTX_Q4_1:
    case NTX_Q5_0:
    case NTX_Q5_1:
    case NTX_Q8_0: return simple_value(type_, b, v);
    case NTX_Q2_K:
    case NTX_Q3_K:
    case NTX_Q4_K:
    case NTX_Q5_K:
    case NTX_Q6_K: return super_value(type_, b, v); NTX_LOOKUPS(LOOKUP_VALUE_CASE)
    default: return plain_value(type_, b, v);
    }
}

DEV float value_at(uint32_t type, const uint8_t *row, uint32_t k)
{
    if (rule_of(type) == NTX_RULE_FLOAT)
        return float_value(type, row, k);
    return block_value(type, row + (uint64_t)(k / block_values(type)) * block_size(type), k % block_values(type));
}

DEV_APART float value_apart(uint32_t type, const uint8_t *row, uint32_t k) { return value_at(type, row, k); }

/* Value k of a row; F32, the usual type, is read in place. */
DEV float float_or_value(uint32_t type, const uint8_t *row, uint32_t k)
{
    return type == NTX_F32 ? ((const float *)(const void *)row)[k] : value_apart(type, row, k);
}

#endif
