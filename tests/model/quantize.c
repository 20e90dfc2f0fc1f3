/* quantize.c: what is written is what was meant, up to each type's own error, which is asserted from both sides; blocks of one
 * value, of zeros, and of what a type holds exactly. */
#include <math.h>

#include "common/util.h"
#include "model/quant.h"
#include "model/quantize.h"
#include "tests/check.h"
#include "tests/mkmodel/blocks.h"

enum { N = 1 << 14 };

/* Relative error of normal values. */
static double error_of(uint32_t type)
{
    static float x[N], back[N];
    static _Alignas(8) uint8_t blocks[N * 4];
    const struct ntx_type_info *t = ntx_type_info(type);
    struct mk_rng rng = {7};
    double error = 0, squares = 0;
    for (int i = 0; i < N; i++)
        x[i] = mk_normal(&rng) * 0.02f;
    ntx_quantizer(type)(x, blocks, N / t->block);
    t->dequant(blocks, back, N / t->block);
    for (int i = 0; i < N; i++) {
        error += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
        squares += (double)x[i] * (double)x[i];
    }
    return sqrt(error / squares);
}

static void check_errors(void)
{
    static const struct { uint32_t type; double least, most; } is[] = {
        {NTX_F32, 0, 0}, {NTX_F16, 1e-4, 3e-4}, {NTX_BF16, 1e-3, 2.5e-3}, {NTX_Q8_0, 0.003, 0.007}, {NTX_Q6_K, 0.012, 0.024},
        {NTX_Q5_0, 0.03, 0.055}, {NTX_Q5_1, 0.025, 0.05}, {NTX_Q5_K, 0.025, 0.05}, {NTX_Q4_0, 0.06, 0.1}, {NTX_Q4_1, 0.05, 0.09}, {NTX_Q4_K, 0.05, 0.09},
        {NTX_MXFP4, 0.1, 0.125},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        double e = error_of(is[i].type);
        CHECK_MSG(e >= is[i].least && e <= is[i].most, "%s: error %g", ntx_type_info(is[i].type)->name, e);
    }
    CHECK(!ntx_quantizer(NTX_Q2_K) && !ntx_quantizer(NTX_I8) && !ntx_quantizer(999));
}

/* All values alike, or zero: nothing to lose, and no division by nothing. */
static void check_flat(uint32_t type, float value, double bound)
{
    float x[NTX_QKK], back[NTX_QKK];
    _Alignas(8) uint8_t blocks[NTX_QKK * 4];
    const struct ntx_type_info *t = ntx_type_info(type);
    for (int i = 0; i < NTX_QKK; i++)
        x[i] = value;
    ntx_quantizer(type)(x, blocks, NTX_QKK / t->block);
    t->dequant(blocks, back, NTX_QKK / t->block);
    for (int i = 0; i < NTX_QKK; i++)
        CHECK_MSG(fabs((double)back[i] - (double)value) <= bound * fabs((double)value), "%s: %g became %g", t->name, (double)value, (double)back[i]);
}

/* Values that were of the type stay what they are, to a hair: packing an already rounded row costs nothing more. */
static void check_again(uint32_t type)
{
    static float x[N], back[N];
    static _Alignas(8) uint8_t blocks[N * 4];
    const struct ntx_type_info *t = ntx_type_info(type);
    struct mk_rng rng = {9};
    double error = 0, squares = 0;
    mk_blocks(&rng, type, N / t->block, 0, 1, blocks);
    t->dequant(blocks, x, N / t->block);
    ntx_quantizer(type)(x, blocks, N / t->block);
    t->dequant(blocks, back, N / t->block);
    for (int i = 0; i < N; i++) {
        error += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
        squares += (double)x[i] * (double)x[i];
    }
    CHECK_MSG(sqrt(error / squares) <= error_of(type) * 1.5, "%s: %g once more", t->name, sqrt(error / squares));
}

/* At every scale: the values of MXFP4 come back, what is between goes to the nearest, and what is larger than all to the largest. */
static void check_mxfp4(void)
{
    static const float is[] = {6, -4, 3, 2, 1.5f, 1, -0.5f, 0, 5.2f, -7.9f, 2.4f, 0.3f, 0.2f, -0.2f}, want[] = {6, -4, 3, 2, 1.5f, 1, -0.5f, 0, 6, -6, 2, 0.5f, 0, 0};
    enum { HAVE = sizeof is / sizeof *is };
    for (int e = -128; e <= 125; e++) { /* from just below what the scale reaches to where floats end */
        float x[NTX_QK] = {0}, back[NTX_QK];
        struct ntx_block_mxfp4 b;
        for (int i = 0; i < HAVE; i++)
            x[i] = ldexpf(is[i], e);
        ntx_quantizer(NTX_MXFP4)(x, &b, 1);
        ntx_type_info(NTX_MXFP4)->dequant(&b, back, 1);
        CHECK_EQ(b.e, NTX_MAX(e + 127, 0));
        for (int i = 0; i < HAVE && e >= -127; i++)
            CHECK_MSG(back[i] == ldexpf(want[i], e), "MXFP4: %g became %g", (double)x[i], (double)back[i]);
    }
}

int main(void)
{
    check_errors();
    check_mxfp4();
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (ntx_quantizer(t)) {
            check_flat(t, 0, 0);
            check_flat(t, 0.37f, 0.02);
            check_flat(t, -1.5f, 0.02);
            check_flat(t, 3e-4f, 0.2); /* scales are halves: little is left of their precision */
            check_again(t);
        }
    return 0;
}
