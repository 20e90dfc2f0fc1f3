/* SPDX-License-Identifier: Apache-2.0 */
/* quant.c: every type against values that were computed outside this project's code.
 *
 * Three blocks of pseudo-random bytes per type, with a common, a negative and a subnormal scale (MXFP4: a common one
 * and the two that are subnormal floats). The expected values come from an independent reimplementation in Python with
 * exact rounding, those of the i-quants and the types behind them from ggml itself; the hash is FNV-1a over the bits of
 * all values. */
#include "model/quant.h"

#include <math.h>

#include "tests/lib/check.h"
#include "tests/mkmodel/blocks.h"

struct expected {
    uint32_t type;
    int scale_at, n_scales; /* byte of the first half-precision scale in a block, and whether a second follows; 0: the
                               scale is a byte; -1: scales are as they come */
    uint64_t hash;
    int at[10];
    float value[10];
};

static const struct expected cases[] = {
    {NTX_Q4_0,
     0,
     1,
     0xbc22aabf3ccba2deu,
     {0, 1, 15, 16, 31, 47, 95},
     {-0x1.998p-1f, 0x1.998p-2f, 0x1.998p-4f, 0x1.665p-1f, 0x1.332p-2f, -0x1.39bp+1f, -0x1.23p-14f}},
    {NTX_Q4_1,
     0,
     2,
     0x07fc9f179b9c704bu,
     {0, 1, 15, 16, 31, 47, 95},
     {0x1.998p-3f, 0x1.7fe8p+0f, 0x1.998p-1f, 0x1.332p-1f, 0x1.998p-1f, -0x1.32bp+1f, 0x1.35p-16f}},
    {NTX_Q5_0,
     0,
     1,
     0x4f3cf8078710f31eu,
     {0, 1, 15, 16, 31, 47, 95},
     {-0x1.7fe8p+0f, -0x1.998p-3f, 0x1.998p-3f, -0x1.665p-1f, -0x1.ffep-1f, -0x1.c02p+0f, 0x1.23p-14f}},
    {NTX_Q5_1,
     0,
     2,
     0x19351badce9dddc7u,
     {0, 1, 15, 16, 31, 47, 95},
     {0x1.e648p+0f, 0x1.332p-2f, 0x1.998p-3f, 0x1.ffep-2f, 0x1.1988p+1f, -0x1.0b2p+3f, 0x1.b9p-14f}},
    {NTX_Q8_0,
     0,
     1,
     0x747556cc4e2f9e19u,
     {0, 1, 15, 16, 31, 47, 95},
     {-0x1.ffep+2f, 0x1.a64cp+1f, 0x1.665p+3f, 0x1.3cb9p+3f, 0x1.8cb4p+2f, 0x1.9e84p+4f, -0x1.b48p-14f}},
    {NTX_Q2_K,
     80,
     2,
     0x8114ea2a1d8a0f56u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {-0x1.998p-2f, 0x1.332p+0f, -0x1.998p+0f, -0x1.4cb8p+0f, 0x1.0cbcp+1f, -0x1.998p-3f, 0x1.332p+0f, 0x0p+0f,
      -0x1.074p+0f, 0x1.806p-12f}},
    {NTX_Q3_K,
     108,
     1,
     0x1aeb3e223984e585u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {-0x1.7fe8p+1f, -0x0p+0f, 0x1.332p-2f, 0x1.b97ep+2f, 0x1.ffep+1f, -0x1.f314p+1f, 0x1.731cp+3f, 0x0p+0f,
      -0x1.0cep+2f, 0x1.7dfp-10f}},
    {NTX_Q4_K,
     0,
     2,
     0x4af7c53b28cc3128u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.1b218p+5f, 0x1.a17f8p+5f, 0x1.ae4b8p+5f, 0x1.07ef8p+6f, 0x1.38b94p+5f, 0x1.06bc6p+6f, 0x1.6983p+5f,
      0x1.665p+4f, -0x1.6d8p+2f, 0x1.ee7cp-10f}},
    {NTX_Q5_K,
     0,
     2,
     0x38e12eeaa1805358u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.332p+5f, 0x1.7982p+3f, 0x1.665p+1f, 0x1.7982p+4f, 0x1.ebe14p+6f, 0x1.0fefp+5f, 0x1.d649p+4f, 0x1.4985p+6f,
      -0x1.81fb8p+7f, 0x1.b14ap-9f}},
    {NTX_Q6_K,
     208,
     1,
     0xc218350652107b4au,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {-0x1.b97ep+6f, -0x1.764fp+4f, 0x1.8cb4p+2f, -0x1.1521ep+6f, -0x1.9fe6p+4f, 0x1.ffep+5f, -0x1.25edap+6f,
      -0x1.4febp+5f, 0x1.71b4p+7f, 0x1.155cp-6f}},
    {NTX_IQ4_NL,
     0,
     1,
     0xa4d3e4739a66503fu,
     {0, 1, 15, 16, 31, 47, 95},
     {0x1.531ep+2f, -0x1.ffep-1f, 0x1.3fecp+1f, -0x1.bfe4p+1f, 0x1.1cbbp+3f, 0x1.63b3p+5f, -0x1.6bcp-13f}},
    {NTX_IQ4_XS,
     0,
     1,
     0x6c3d6ccb4ebe87ddu,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.d2494p+6f, 0x1.f1142p+7f, 0x1.20bacp+6f, -0x1.11888p+6f, -0x1.a3e5cp+6f, -0x1.ab188p+6f, -0x1.85e7ap+7f,
      -0x1.2f86ap+7f, 0x1.63596p+8f, 0x1.68e88p-6f}},
    {NTX_IQ3_XXS,
     0,
     1,
     0x137b9318c8b820f6u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.804e6p+5f, -0x1.efe1p+3f, 0x1.332p-2f, 0x1.a17f8p+4f, -0x1.73e8cp+4f, 0x1.7cb5p+3f, -0x1.2e538p+4f,
      -0x1.be4a8p+3f, -0x1.44e4p+3f, 0x1.8036p-9f}},
    {NTX_IQ3_S,
     0,
     1,
     0x8ebc70b0eac2bf65u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {-0x1.0fefp+3f, -0x1.7cb5p+3f, -0x1.bfe4p+1f, 0x1.b97ep+2f, 0x1.11888p+4f, -0x1.b7e48p+4f, 0x1.44b88p+4f,
      0x1.efe1p+3f, -0x1.a41ep+4f, 0x1.3e48p-11f}},
    {NTX_IQ2_XXS,
     0,
     1,
     0x4c8406d74991f974u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.cbe34p+2f, 0x1.2654p+1f, -0x1.53eacp+2f, 0x1.0cbcp+1f, -0x1.731cp+1f, -0x1.5984p+1f, -0x1.46b86p+3f,
      -0x1.665p-1f, -0x1.2e7cp+3f, -0x1.6bcp-14f}},
    {NTX_IQ2_XS,
     0,
     1,
     0x48bce64f661103f7u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {-0x1.8b80ep+3f, 0x1.03efcp+2f, -0x1.2bed4p+2f, -0x1.d0496p+3f, 0x1.1988p+0f, 0x1.ffep-2f, -0x1.57ea8p+1f,
      0x1.0cbcp+1f, -0x1.785aep+5f, -0x1.aa45p-11f}},
    {NTX_IQ2_S,
     0,
     1,
     0x91267444a2c48406u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {-0x1.332p-2f, 0x1.8fe7p+0f, -0x1.dfe2p-1f, -0x1.998p-4f, -0x1.4cb8p+0f, 0x1.b318p+0f, 0x1.665p-1f, 0x1.dfe2p-1f,
      -0x1.ffd7cp+4f, 0x1.b48p-15f}},
    {NTX_IQ1_S,
     0,
     1,
     0x0562c5c1f214d49fu,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.5984p-2f, -0x1.0cbcp-2f, -0x1.afe5p+0f, -0x1.2321p+0f, 0x1.1988p-3f, -0x1.1988p-3f, -0x1.ffep-5f,
      -0x1.0323p+0f, -0x1.881cp+0f, 0x1.7dfp-15f}},
    {NTX_IQ1_M,
     0,
     -1,
     0x87f6b3394d324435u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.9fd8p+11f, 0x1.51df8p+15f, -0x1.2908p+11f, 0x1.46bcp+12f, -0x1.90fep+13f, -0x1.0b54p+12f, -0x1.9fd8p+11f,
      0x1.8224p+12f, 0x1.0e3p+11f, 0x1.f698p+5f}},
    {NTX_TQ1_0,
     52,
     1,
     0xe2c10d8c0506ca0eu,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.998p-4f, 0x1.998p-4f, 0x0p+0f, 0x1.998p-4f, 0x1.998p-4f, 0x0p+0f, 0x0p+0f, -0x1.998p-4f, 0x1.668p-2f,
      0x1.23p-16f}},
    {NTX_TQ2_0,
     64,
     1,
     0x9d4f34a0de93da89u,
     {0, 17, 33, 95, 127, 128, 170, 255, 289, 767},
     {0x1.998p-3f, 0x1.998p-3f, 0x0p+0f, -0x1.998p-4f, 0x0p+0f, 0x0p+0f, 0x1.998p-3f, -0x1.998p-4f, -0x1.668p-2f,
      -0x1.23p-16f}},
    {NTX_NVFP4,
     0,
     -1,
     0x29f67d3d36bc1060u,
     {0, 1, 15, 16, 33, 63, 64, 81, 191},
     {-0x1.38p-1f, 0x1.38p-1f, -0x1.38p-1f, -0x1.2p-3f, 0x1.5p+7f, 0x1.8p+7f, 0x0p+0f, 0x1.6p+4f, -0x1.38p+9f}},
    {NTX_Q1_0,
     0,
     1,
     0x62dd7c0117fbea25u,
     {0, 1, 15, 16, 33, 127, 128, 145, 383},
     {0x1.998p-4f, 0x1.998p-4f, 0x1.998p-4f, -0x1.998p-4f, -0x1.998p-4f, 0x1.998p-4f, -0x1.668p-2f, -0x1.668p-2f,
      -0x1.23p-16f}},
    {NTX_Q2_0,
     0,
     1,
     0xda0be7e080c77a1fu,
     {0, 1, 15, 16, 33, 63, 64, 81, 191},
     {0x1.998p-3f, 0x1.998p-3f, 0x1.998p-3f, 0x0p+0f, 0x1.998p-4f, 0x1.998p-3f, -0x0p+0f, -0x0p+0f, 0x0p+0f}},
    {NTX_MXFP4,
     0,
     0,
     0x6b3dbd40854a186fu,
     {0, 1, 15, 16, 31, 47, 95},
     {-0x1.8p-5f, -0x1p-3f, 0x0p+0f, -0x1p-6f, 0x1.8p-5f, 0x1p-126f, 0x1.8p-126f}},
};

static uint64_t fnv(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}

static void make_block(const struct expected *c, const struct ntx_type_info *t, int number, uint8_t *out)
{
    static const uint16_t first[3] = {0x2e66, 0xb59a, 0x0123}, second[3] = {0x3266, 0x2b00, 0x8111};
    static const uint8_t exponent[3] = {0x7a, 1, 0};
    uint32_t seed = 0;
    for (const char *p = t->name; *p; p++)
        seed += (unsigned char)*p;
    uint32_t x = seed * 7 + (uint32_t)number;
    for (uint32_t i = 0; i < t->block_bytes; i++) {
        x = x * 1103515245u + 12345u;
        out[i] = (uint8_t)(x >> 16);
    }
    if (c->n_scales == 0)
        out[c->scale_at] = exponent[number];
    else if (c->n_scales > 0)
        memcpy(out + c->scale_at, &first[number], 2);
    if (c->n_scales == 2)
        memcpy(out + c->scale_at + 2, &second[number], 2);
}

static void check_blocks(const struct expected *c)
{
    const struct ntx_type_info *t = ntx_type_info(c->type);
    _Alignas(8) uint8_t blocks[3 * 210];
    float out[3 * NTX_QKK];
    CHECK(t);
    for (int b = 0; b < 3; b++)
        make_block(c, t, b, blocks + b * t->block_bytes);
    t->dequant(blocks, out, 3);
    for (int i = 0; i < 10 && (i == 0 || c->at[i]); i++)
        CHECK_MSG(out[c->at[i]] == c->value[i], "%s value %d is %a, expected %a", t->name, c->at[i],
                  (double)out[c->at[i]], (double)c->value[i]);
    uint64_t h = fnv(0xcbf29ce484222325u, out, 3 * t->block * sizeof *out);
    CHECK_MSG(h == c->hash, "%s: the hash of all values is %016llx", t->name, (unsigned long long)h);
}

static void check_halves(void)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < 65536; i++) {
        float f = ntx_f16_to_f32((uint16_t)i);
        if ((i & 0x7c00) == 0x7c00 && (i & 0x3ff)) {
            CHECK(isnan(f) && isnan(ntx_f16_to_f32(ntx_f32_to_f16(f))));
            continue;
        }
        h = fnv(h, &f, sizeof f);
        CHECK_EQ(ntx_f32_to_f16(f), i);
    }
    CHECK_MSG(h == 0xa7a575fd4882f925u, "%016llx", (unsigned long long)h);
}

static void check_half_rounding(void)
{
    CHECK_EQ(ntx_f32_to_f16(1.0f + 0x1p-11f), 0x3c00);     /* half way: to even, down */
    CHECK_EQ(ntx_f32_to_f16(1.0f + 0x3p-11f), 0x3c02);     /* half way: to even, up */
    CHECK_EQ(ntx_f32_to_f16(1.0f + 0x1.002p-11f), 0x3c01); /* just above half way */
    CHECK_EQ(ntx_f32_to_f16(0x1p-25f), 0x0000);            /* half the smallest: to even */
    CHECK_EQ(ntx_f32_to_f16(0x1.000002p-25f), 0x0001);
    CHECK_EQ(ntx_f32_to_f16(-0x3p-25f), 0x8002);
    CHECK_EQ(ntx_f32_to_f16(0x1.ffcp-15f + 0x1p-25f), 0x0400); /* the largest subnormal rounds to the smallest normal */
    CHECK_EQ(ntx_f32_to_f16(65519.996f), 0x7bff);
    CHECK_EQ(ntx_f32_to_f16(65520.0f), 0x7c00);
    CHECK_EQ(ntx_f32_to_f16(-1e30f), 0xfc00);
    CHECK_EQ(ntx_f32_to_f16(1e-30f), 0);
}

static void check_floats(void)
{
    static const float f[4] = {1.5f, -0.0f, 0x1p-149f, 3e38f};
    static const uint16_t b[4] = {0x3fc0, 0x8000, 0x0001, 0x7f61};
    static const float bf[4] = {1.5f, -0.0f, 0x1p-133f, 0x1.c2p127f};
    float out[4];
    ntx_type_info(NTX_F32)->dequant(f, out, 4);
    CHECK(!memcmp(out, f, sizeof f));
    ntx_type_info(NTX_BF16)->dequant(b, out, 4);
    CHECK(!memcmp(out, bf, sizeof bf));
}

static void check_sizes(void)
{
    CHECK(!ntx_type_info(4) && !ntx_type_info(31) && !ntx_type_info(UINT32_MAX) && !ntx_type_info(9));
    CHECK_STR(ntx_type_info(12)->name, "Q4_K");
    CHECK_STR(ntx_type_info(39)->name, "MXFP4");
    CHECK_EQ(ntx_row_bytes(NTX_Q4_K, 512), 288);
    CHECK_EQ(ntx_row_bytes(NTX_Q4_K, 500), 0);
    CHECK_EQ(ntx_row_bytes(NTX_MXFP4, 96), 51);
    CHECK_EQ(ntx_row_bytes(NTX_NVFP4, 192), 108);
    CHECK_EQ(ntx_row_bytes(NTX_Q1_0, 192), 0);
    CHECK_EQ(ntx_row_bytes(NTX_F32, 3), 12);
    CHECK_EQ(ntx_row_bytes(4, 32), 0);
    CHECK_EQ(ntx_row_bytes(NTX_F32, UINT64_MAX / 2), 0);
    CHECK_EQ(ntx_row_bytes(NTX_Q8_0, UINT64_MAX / 32 * 32), 0);
}

/* Every scale of MXFP4, at the values 1 and -0.5. */
static void check_exponents(void)
{
    for (int e = 0; e < 256; e++) {
        const struct ntx_block_mxfp4 b = {(uint8_t)e, {0x21, 0x90}};
        float out[NTX_QK];
        ntx_type_info(NTX_MXFP4)->dequant(&b, out, 1);
        CHECK(out[0] == ldexpf(1, e - 128) && out[1] == 0 && out[16] == ldexpf(2, e - 128) &&
              out[17] == -ldexpf(1, e - 128));
    }
}

/* The model maker's blocks: mean near 0, deviation near what was asked for. */
static void check_random_blocks(uint32_t type)
{
    enum { N = 1 << 17 };
    static float out[N];
    static _Alignas(8) uint8_t blocks[N * 4];
    const struct ntx_type_info *t = ntx_type_info(type);
    struct mk_rng rng = {42};
    double sum = 0, squares = 0;
    mk_blocks(&rng, type, N / t->block, 0, 0.02f, blocks);
    t->dequant(blocks, out, N / t->block);
    for (int i = 0; i < N; i++) {
        CHECK(isfinite(out[i]));
        sum += (double)out[i];
        squares += (double)out[i] * (double)out[i];
    }
    double mean = sum / N, sd = sqrt(squares / N);
    CHECK_MSG(fabs(mean) < 0.02 * 0.04 && sd > 0.02 * 0.96 && sd < 0.02 * 1.04, "%s: mean %g, deviation %g", t->name,
              mean, sd);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_blocks(&cases[i]);
    check_halves();
    check_half_rounding();
    check_floats();
    check_sizes();
    check_exponents();
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_type_info(t) && t < NTX_PLANES_FIRST && t != NTX_I8 && t != NTX_I32 && t != NTX_I64)
            check_random_blocks(t);
    return 0;
}
