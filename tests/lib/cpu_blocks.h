/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_blocks.h: random weight blocks of every type. */
#ifndef NTX_TESTS_LIB_CPU_BLOCKS_H
#define NTX_TESTS_LIB_CPU_BLOCKS_H

#include "model/quant.h"
#include "tests/lib/cpu_kit.h"

KIT void put_f16(char *p, float f)
{
    uint16_t h = ntx_f32_to_f16(f);
    memcpy(p, &h, 2);
}

/* Random bytes, then finite scales. `extreme`: bytes are all ones, all zeros or the sign bit alone. */
KIT void random_block(struct rng *r, uint32_t type, char *p, size_t bytes, bool extreme)
{
    static const uint8_t edges[] = {0x00, 0xff, 0x80, 0x7f};
    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)(extreme ? edges[rng_u32(r) % 4] : rng_u32(r) >> 24);
    float d = rng_float(r) * 0.03f, m = rng_float(r) * 0.02f;
    uint32_t bits;
    uint8_t e;
    switch (type) {
    case NTX_F32: memcpy(p, &d, 4); break;
    case NTX_BF16:
        memcpy(&bits, &d, 4);
        bits >>= 16;
        memcpy(p, &bits, 2);
        break;
    case NTX_Q4_1:
    case NTX_Q5_1:
    case NTX_Q4_K:
    case NTX_Q5_K: put_f16(p + 2, m); /* fall through */
    case NTX_F16:
    case NTX_Q4_0:
    case NTX_Q5_0:
    case NTX_Q8_0:
    case NTX_IQ4_NL:
    case NTX_IQ4_XS:
    case NTX_IQ3_XXS:
    case NTX_IQ3_S:
    case NTX_IQ2_XXS:
    case NTX_IQ2_XS:
    case NTX_IQ2_S:
    case NTX_IQ1_S:
    case NTX_Q1_0:
    case NTX_Q2_0: put_f16(p, d); break;
    case NTX_Q2_K:
        put_f16(p + 82, m);
        put_f16(p + 80, d);
        break;
    case NTX_MXFP4: /* one in four, or all, of the least exponents, two of which are subnormal floats */
        e = (uint8_t)rng_u32(r);
        p[0] = (char)(!extreme && e % 4 ? 112 + e / 4 % 12 : e / 4 % 4);
        break;
    case NTX_IQ1_M: /* in nibbles, the upper ones of every second byte of scales */
        for (int i = 0; i < 4; i++) {
            char *at = p + offsetof(struct ntx_block_iq1_m, scales) + 2 * i + 1;
            *at = (char)((*at & 15) | (ntx_f32_to_f16(d) >> 4 * i & 15) << 4);
        }
        break;
    case NTX_NVFP4: /* every byte is a number */ break;
    default: /* Q3_K, Q6_K, TQ1_0, TQ2_0: at the end */ put_f16(p + bytes - 2, d);
    }
}

#endif
