/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/pass/finite.h"

#include <string.h>

#include "common/clones.h"
#include "model/quant.h"
#include "model/unpack.h"

#define EXPONENT_F32  0x7f800000u
#define EXPONENT_F16  0x7c00u
#define EXPONENT_BF16 0x7f80u
#define NAN_E8M0      0xff /* of MXFP4's scale */

/* Prefetch distance: a block's bytes are checked soon, and then multiplied. The loops below use a byte or two of many,
 * a pattern that processors' prefetchers miss. Measured in docs/log/kernels-x86.md. */
#define AHEAD         4096

static inline void prefetch_block(const void *block, size_t size)
{
    for (size_t line = 0; line < size; line += 64)
        __builtin_prefetch((const uint8_t *)block + AHEAD + line);
}

/* These loops have no early exit, so that the compiler vectorises them. */
NTX_CLONES static bool halves_finite(const uint8_t *p, size_t n, unsigned exponent)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + i * sizeof h, sizeof h);
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

static bool block_scales_finite(const struct ntx_type_info *info, const uint8_t *p, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++, p += info->block_bytes) {
        prefetch_block(p, info->block_bytes);
        for (unsigned k = 0; k < info->n_halves; k++) {
            uint16_t h;
            memcpy(&h, p + info->half_at[k], sizeof h);
            bad |= (h & EXPONENT_F16) == EXPONENT_F16;
        }
    }
    return !bad;
}

static bool mxfp4_scales_finite(const struct ntx_block_mxfp4 *b, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) {
        prefetch_block(&b[i], sizeof *b);
        bad |= b[i].e == NAN_E8M0;
    }
    return !bad;
}

static bool iq1m_scales_finite(const struct ntx_block_iq1_m *b, size_t n)
{
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) {
        prefetch_block(&b[i], sizeof *b);
        bad |= (ntx__spread_half(b[i].scales) & EXPONENT_F16) == EXPONENT_F16;
    }
    return !bad;
}

bool ntx_blocks_finite(uint32_t type, const void *blocks, size_t bytes)
{
    const struct ntx_type_info *info = ntx_type_info(type);
    size_t n = bytes / info->block_bytes;
    switch (type) {
    case NTX_F32: return words(blocks, n);
    case NTX_F16: return halves_finite(blocks, n, EXPONENT_F16);
    case NTX_BF16: return halves_finite(blocks, n, EXPONENT_BF16);
    case NTX_IQ1_M: return iq1m_scales_finite(blocks, n);
    case NTX_MXFP4: return mxfp4_scales_finite(blocks, n);
    }
    return block_scales_finite(info, blocks, n);
}

bool ntx_floats_finite(const float *v, size_t n) { return words((const uint8_t *)v, n); }
