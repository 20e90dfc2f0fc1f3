#include "infer/finite.h"

#include <string.h>

#include "common/clones.h"
#include "model/quant.h"

#define EXPONENT_F32 0x7f800000u
#define EXPONENT_F16 0x7c00u
#define EXPONENT_BF16 0x7f80u
#define NAN_E8M0 0xff /* of MXFP4's scale */

/* Where blocks of a type have their half-precision scales. */
static const struct {
    uint8_t n; /* 0: this type has none */
    uint8_t at[2];
} scales[NTX_TYPE_LIMIT] = {
    [NTX_Q4_0] = {1, {offsetof(struct ntx_block_q4_0, d)}},
    [NTX_Q4_1] = {2, {offsetof(struct ntx_block_q4_1, d), offsetof(struct ntx_block_q4_1, m)}},
    [NTX_Q5_0] = {1, {offsetof(struct ntx_block_q5_0, d)}},
    [NTX_Q5_1] = {2, {offsetof(struct ntx_block_q5_1, d), offsetof(struct ntx_block_q5_1, m)}},
    [NTX_Q8_0] = {1, {offsetof(struct ntx_block_q8_0, d)}},
    [NTX_Q2_K] = {2, {offsetof(struct ntx_block_q2_k, d), offsetof(struct ntx_block_q2_k, dmin)}},
    [NTX_Q3_K] = {1, {offsetof(struct ntx_block_q3_k, d)}},
    [NTX_Q4_K] = {2, {offsetof(struct ntx_block_q4_k, d), offsetof(struct ntx_block_q4_k, dmin)}},
    [NTX_Q5_K] = {2, {offsetof(struct ntx_block_q5_k, d), offsetof(struct ntx_block_q5_k, dmin)}},
    [NTX_Q6_K] = {1, {offsetof(struct ntx_block_q6_k, d)}},
};

/* Loops without a way out of the middle, which the compiler makes vectors of. */
NTX_CLONES static bool halves(const uint8_t *p, size_t n, size_t stride, unsigned exponent)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + i * stride, sizeof h);
        bad |= (h & exponent) == exponent;
    }
    return !bad;
}

NTX_CLONES static bool words(const uint8_t *p, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t w;
        memcpy(&w, p + i * sizeof w, sizeof w);
        bad |= (w & EXPONENT_F32) == EXPONENT_F32;
    }
    return !bad;
}

NTX_CLONES static bool exponents(const uint8_t *p, size_t n, size_t stride)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= p[i * stride] == NAN_E8M0;
    return !bad;
}

bool ntx_blocks_finite(uint32_t type, const void *blocks, size_t bytes)
{
    const uint8_t *p = blocks;
    const struct ntx_type_info *info = ntx_type_info(type);
    size_t size = info->block_bytes, n = bytes / size;
    bool finite = true;
    switch (type) {
    case NTX_F32: return words(p, n);
    case NTX_F16: return halves(p, n, sizeof(uint16_t), EXPONENT_F16);
    case NTX_BF16: return halves(p, n, sizeof(uint16_t), EXPONENT_BF16);
    case NTX_MXFP4: return exponents(p + offsetof(struct ntx_block_mxfp4, e), n, size);
    }
    for (unsigned i = 0; i < scales[type].n; i++)
        finite &= halves(p + scales[type].at[i], n, size, EXPONENT_F16);
    return finite;
}

bool ntx_floats_finite(const float *v, size_t n)
{
    return words((const uint8_t *)v, n);
}
