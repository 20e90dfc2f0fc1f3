/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c: uniform random quants under a scale that gives the wanted deviation. The divisors below are the
 * deviation of a block's values with scale 1: that of uniform q, times the root mean square of the sub-block scales,
 * plus the spread of the minimums, if there are any. The scale of minimums is chosen so that the mean is 0; types
 * without minimums get a random sign per block, since their range is not symmetric. */
#include "tests/mkmodel/blocks.h"

#include <math.h>
#include <string.h>

#include "model/quant.h"

uint64_t mk_next(struct mk_rng *r)
{
    r->state += 0x9e3779b97f4a7c15u;
    unsigned __int128 m = (unsigned __int128)r->state * (r->state ^ 0xd6e8feb86659fd93u);
    return (uint64_t)(m >> 64) ^ (uint64_t)m;
}

float mk_normal(struct mk_rng *r)
{
    uint64_t x = mk_next(r); /* four uniform numbers of 16 bits: deviation sqrt(4 / 12) * 65536 */
    int32_t s = (int32_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48)) - 131070;
    return (float)s * (1.0f / 37837.2f);
}

static void fill(struct mk_rng *r, void *out, size_t bytes)
{
    char *p = out;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t x = mk_next(r);
        memcpy(p, &x, 8);
    }
    uint64_t x = mk_next(r);
    memcpy(p, &x, bytes);
}

/* A scale near d: between 0.5 and 1.5 times (1.04 is that factor's root mean square). */
static float vary(struct mk_rng *r, float d) { return d / 1.04f * (0.5f + (float)(mk_next(r) >> 40) * 0x1p-24f); }

static float vary_signed(struct mk_rng *r, float d) { return vary(r, mk_next(r) >> 63 ? d : -d); }

#define PLAIN(TYPE, DIVISOR)                                                                                           \
    static void TYPE(struct mk_rng *r, size_t n, float std, struct ntx_block_##TYPE *b)                                \
    {                                                                                                                  \
        fill(r, b, n * sizeof *b);                                                                                     \
        for (size_t i = 0; i < n; i++)                                                                                 \
            b[i].d = ntx_f32_to_f16(vary_signed(r, std / (DIVISOR)));                                                  \
    }

/* The minimum takes away MEAN of the quants times the scale, with the sign that the type applies. */
#define WITH_MIN(TYPE, MIN, DIVISOR, MEAN)                                                                             \
    static void TYPE(struct mk_rng *r, size_t n, float std, struct ntx_block_##TYPE *b)                                \
    {                                                                                                                  \
        fill(r, b, n * sizeof *b);                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                                               \
            float d = vary(r, std / (DIVISOR));                                                                        \
            b[i].d = ntx_f32_to_f16(d);                                                                                \
            b[i].MIN = ntx_f32_to_f16(d * (MEAN));                                                                     \
        }                                                                                                              \
    }

PLAIN(q4_0, 4.64f)
PLAIN(q5_0, 9.25f)
PLAIN(q8_0, 73.9f)
PLAIN(iq4_nl, 67.44f)
PLAIN(iq4_xs, 1250.0f)
PLAIN(iq3_xxs, 141.9f)
PLAIN(iq3_s, 140.3f)
PLAIN(iq2_xxs, 53.34f)
PLAIN(iq2_xs, 55.91f)
PLAIN(iq2_s, 56.42f)
PLAIN(iq1_s, 7.232f)
PLAIN(tq1_0, 0.8172f)
PLAIN(tq2_0, 1.225f)
PLAIN(q1_0, 1.0f)
PLAIN(q2_0, 1.225f)
PLAIN(q3_k, 43.4f)
PLAIN(q6_k, 1366.0f)
WITH_MIN(q4_1, m, 4.61f, -7.5f)
WITH_MIN(q5_1, m, 9.23f, -15.5f)
WITH_MIN(q2_k, dmin, 13.9f, 1.5f)
WITH_MIN(q4_k, dmin, 258.0f, 7.5f)
WITH_MIN(q5_k, dmin, 527.0f, 15.5f)

/* Scales are powers of two: the one below the wanted scale and its double are mixed to the same root mean square. */
static void mxfp4(struct mk_rng *r, size_t n, float std, struct ntx_block_mxfp4 *b)
{
    int e;
    float d = 2 * frexpf(std / 5.852f, &e), doubled = (d * d - 1) / 3; /* wanted: d * 2^(e - 1) */
    fill(r, b, n * sizeof *b);
    for (size_t i = 0; i < n; i++)
        b[i].e = (uint8_t)(e - 1 + 128 + ((float)(mk_next(r) >> 40) * 0x1p-24f < doubled));
}

/* d is stored in the upper nibbles of every second byte of scales. */
static void iq1_m(struct mk_rng *r, size_t n, float std, struct ntx_block_iq1_m *b)
{
    fill(r, b, n * sizeof *b);
    for (size_t i = 0; i < n; i++) {
        uint16_t d = ntx_f32_to_f16(vary_signed(r, std / 7.203f));
        for (int k = 0; k < 4; k++)
            b[i].scales[2 * k + 1] = (uint8_t)((b[i].scales[2 * k + 1] & 15) | (d >> 4 * k & 15) << 4);
    }
}

static float e4m3(uint8_t x) { return ldexpf((float)(x < 8 ? x : 8 + x % 8), x < 8 ? -9 : x / 8 - 10); }

/* Scales are bytes: the one below the wanted scale and the next are mixed to the same root mean square. */
static void nvfp4(struct mk_rng *r, size_t n, float std, struct ntx_block_nvfp4 *b)
{
    float want = 2 * std / 5.852f;
    uint8_t byte = 0;
    while (byte < 125 && e4m3((uint8_t)(byte + 1)) <= want)
        byte++;
    float below = e4m3(byte), above = e4m3((uint8_t)(byte + 1)),
          share = (want * want - below * below) / (above * above - below * below);
    fill(r, b, n * sizeof *b);
    for (size_t i = 0; i < 4 * n; i++)
        b[i / 4].d[i % 4] = (uint8_t)(byte + ((float)(mk_next(r) >> 40) * 0x1p-24f < share));
}

static void floats(struct mk_rng *r, uint32_t type, size_t n, float mean, float std, void *out)
{
    float *f = out;
    uint16_t *h = out;
    for (size_t i = 0; i < n; i++) {
        float v = mean + std * mk_normal(r);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        if (type == NTX_F32)
            f[i] = v;
        else
            h[i] = type == NTX_F16 ? ntx_f32_to_f16(v) : (uint16_t)(bits >> 16);
    }
}

void mk_blocks(struct mk_rng *r, uint32_t type, size_t n, float mean, float std, void *out)
{
    switch (type) {
    case NTX_Q4_0: q4_0(r, n, std, out); break;
    case NTX_Q4_1: q4_1(r, n, std, out); break;
    case NTX_Q5_0: q5_0(r, n, std, out); break;
    case NTX_Q5_1: q5_1(r, n, std, out); break;
    case NTX_Q8_0: q8_0(r, n, std, out); break;
    case NTX_IQ4_NL: iq4_nl(r, n, std, out); break;
    case NTX_IQ4_XS: iq4_xs(r, n, std, out); break;
    case NTX_IQ3_XXS: iq3_xxs(r, n, std, out); break;
    case NTX_IQ3_S: iq3_s(r, n, std, out); break;
    case NTX_IQ2_XXS: iq2_xxs(r, n, std, out); break;
    case NTX_IQ2_XS: iq2_xs(r, n, std, out); break;
    case NTX_IQ2_S: iq2_s(r, n, std, out); break;
    case NTX_IQ1_S: iq1_s(r, n, std, out); break;
    case NTX_TQ1_0: tq1_0(r, n, std, out); break;
    case NTX_TQ2_0: tq2_0(r, n, std, out); break;
    case NTX_Q1_0: q1_0(r, n, std, out); break;
    case NTX_Q2_0: q2_0(r, n, std, out); break;
    case NTX_IQ1_M: iq1_m(r, n, std, out); break;
    case NTX_NVFP4: nvfp4(r, n, std, out); break;
    case NTX_Q2_K: q2_k(r, n, std, out); break;
    case NTX_Q3_K: q3_k(r, n, std, out); break;
    case NTX_Q4_K: q4_k(r, n, std, out); break;
    case NTX_Q5_K: q5_k(r, n, std, out); break;
    case NTX_Q6_K: q6_k(r, n, std, out); break;
    case NTX_MXFP4: mxfp4(r, n, std, out); break;
    default: floats(r, type, n, mean, std, out); break;
    }
}
