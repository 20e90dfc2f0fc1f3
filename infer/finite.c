#include "infer/finite.h"

#include <string.h>

#include "common/clones.h"
#include "model/quant.h"

#define EXPONENT_F32 0x7f800000u
#define EXPONENT_F16 0x7c00u
#define EXPONENT_BF16 0x7f80u
#define NAN_E8M0 0xff /* of MXFP4's scale */

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

/* Of types whose scales lie neither in halves nor in bytes. */
static bool values(const struct ntx_type_info *info, const uint8_t *p, size_t n)
{
    float v[NTX_QKK];
    for (size_t i = 0; i < n; i++) {
        info->dequant(p + i * info->block_bytes, v, 1);
        if (!words((const uint8_t *)v, info->block))
            return false;
    }
    return true;
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
    case NTX_IQ1_M: return values(info, p, n);
    case NTX_MXFP4: return exponents(p + offsetof(struct ntx_block_mxfp4, e), n, size);
    }
    for (unsigned i = 0; i < info->n_halves; i++)
        finite &= halves(p + info->half_at[i], n, size, EXPONENT_F16);
    return finite;
}

bool ntx_floats_finite(const float *v, size_t n)
{
    return words((const uint8_t *)v, n);
}
