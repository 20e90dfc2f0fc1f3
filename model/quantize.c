/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.c: see quantize.h. */
#include <stdlib.h>
#include <string.h>

#include "model/quantize_impl.h"

#define MORE_IQ3_S                                                                                                     \
    1.02f /* a bit larger, found by trial (docs/log/quantize.md); llama.cpp makes these blocks 1.033 times as large
             as the fit */
#define MOST_ENLARGED 1.25f /* beyond this (sign-only types and the like) noise would grow faster than signal */

/* ---- floats */

static void to_f16(const float *x, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = ntx_f32_to_f16(x[i]);
}

static void to_bf16(const float *x, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        out[i] = (uint16_t)(isnan(x[i]) ? (u >> 16 | 0x40) : (u + 0x7fff + (u >> 16 & 1)) >> 16); /* nearest even */
    }
}

/* ---- blocks with a scale */

static float largest_of(const float *x, int n)
{
    float most = 0;
    for (int k = 0; k < n; k++)
        most = NTX_MAX(most, fabsf(x[k]));
    return most;
}

static void to_q8_0(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_q8_0 *b = block;
    (void)g, (void)w;
    b->d = ntx_f32_to_f16(largest_of(x, NTX_QK) / 127);
    float d = ntx_f16_to_f32(b->d);
    for (int k = 0; k < NTX_QK; k++)
        b->qs[k] = (int8_t)ntx__clamp(d > 0 ? x[k] / d : 0, -127, 127);
}

void ntx__put_nibbles(const int *q, uint8_t qs[16], uint8_t *qh)
{
    uint32_t high = 0;
    for (int i = 0; i < 16; i++)
        qs[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
    for (int i = 0; i < NTX_QK; i++)
        high |= (uint32_t)(q[i] >> 4 & 1) << i;
    if (qh)
        memcpy(qh, &high, sizeof high);
}

/* q: 0 means `least`. */
static uint16_t scale_block(const float *x, const float *w, int n, int least, int most, int *q)
{
    uint16_t h = ntx_f32_to_f16(ntx__fit_scale(x, w, n, (struct ntx__levels){(float)least, (float)most, NULL}));
    float d = ntx_f16_to_f32(h), inverse = d != 0 ? 1 / d : 0;
    for (int k = 0; k < n; k++)
        q[k] = ntx__clamp(x[k] * inverse, least, most) - least;
    return h;
}

static void to_q4_0(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_q4_0 *b = block;
    int q[NTX_QK];
    (void)g;
    b->d = scale_block(x, w, NTX_QK, -8, 7, q);
    ntx__put_nibbles(q, b->qs, NULL);
}

static void to_q5_0(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_q5_0 *b = block;
    int q[NTX_QK];
    (void)g;
    b->d = scale_block(x, w, NTX_QK, -16, 15, q);
    ntx__put_nibbles(q, b->qs, b->qh);
}

static void to_q2_0(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_q2_0 *b = block;
    int q[64];
    (void)g;
    memset(b->qs, 0, sizeof b->qs);
    b->d = scale_block(x, w, 64, -1, 2, q);
    for (int k = 0; k < 64; k++)
        b->qs[k / 4] |= (uint8_t)(q[k] << k % 4 * 2);
}

/* Signs; the scale is the weighted mean of the absolute values. */
static void to_q1_0(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_q1_0 *b = block;
    float sum = 0, weight = 0;
    (void)g;
    memset(b->qs, 0, sizeof b->qs);
    for (int k = 0; k < 128; k++) {
        sum += w[k] * fabsf(x[k]);
        weight += w[k];
        b->qs[k / 8] |= (uint8_t)((x[k] >= 0) << k % 8);
    }
    b->d = ntx_f32_to_f16(weight > 0 ? sum / weight : 0);
}

/* ---- with a minimum */

static void line_block(const float *x, const float *w, int most, int *q, uint16_t *hd, uint16_t *hm)
{
    struct ntx__line l = ntx__fit_line(x, w, NTX_QK, (float)most);
    *hd = ntx_f32_to_f16(l.d);
    *hm = ntx_f32_to_f16(-l.m);
    float d = ntx_f16_to_f32(*hd), m = ntx_f16_to_f32(*hm), inverse = d > 0 ? 1 / d : 0;
    for (int k = 0; k < NTX_QK; k++)
        q[k] = ntx__clamp((x[k] - m) * inverse, 0, most);
}

static void to_q4_1(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_q4_1 *b = block;
    uint16_t d, m;
    int q[NTX_QK];
    (void)g;
    line_block(x, w, 15, q, &d, &m);
    b->d = d;
    b->m = m;
    ntx__put_nibbles(q, b->qs, NULL);
}

static void to_q5_1(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_q5_1 *b = block;
    uint16_t d, m;
    int q[NTX_QK];
    (void)g;
    line_block(x, w, 31, q, &d, &m);
    b->d = d;
    b->m = m;
    ntx__put_nibbles(q, b->qs, b->qh);
}

/* ---- values of four bits with an exponent, for scales that are floats of eight bits */

/* The index of the value nearest to v; of two equally near ones the smaller. */
static int e2m1_nearest(float v)
{
    static const float middle[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    int i = 0;
    while (i < 7 && fabsf(v) > middle[i])
        i++;
    return i && v < 0 ? i | 8 : i;
}

/* d: of one unit. Returns the weighted error. */
static float e2m1_values(const float *x, const float *w, int n, float d, int *q)
{
    static const int8_t value[16] = {NTX_VALUES_mxfp4};
    float error = 0;
    for (int k = 0; k < n; k++) {
        q[k] = d > 0 ? e2m1_nearest(x[k] / d) : 0;
        float e = (float)value[q[k]] * d - x[k];
        error += w[k] * e * e;
    }
    return error;
}

/* Tries the scale with which the block's largest value is 4 to 8 units of the format, which ends at 6, and its
 * neighbours. */
static void to_mxfp4(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_mxfp4 *b = block;
    float most = largest_of(x, NTX_QK), least = INFINITY;
    int e = 0, q[2][NTX_QK];
    (void)g;
    frexpf(most, &e); /* floor(log2(most)) + 1 */
    e = most > 0 ? NTX_MIN(NTX_MAX(e - 3 + 127, 0), 254) : 0;
    for (int k = 0; k < 3; k++) { /* the middle one first: it wins if two are equally good */
        static const int by[3] = {0, 1, -1};
        int at = e + by[k];
        float error = at < 0 || at > 254 ? INFINITY : e2m1_values(x, w, NTX_QK, ldexpf(1, at - 128), q[0]);
        if (error < least || !k) {
            least = error;
            b->e = (uint8_t)at;
            memcpy(q[1], q[0], sizeof q[0]);
        }
    }
    ntx__put_nibbles(q[1], b->qs, NULL);
}

/* Half the value of NVFP4's scale byte. */
static float e4m3_half(int x) { return x >= 8 ? ldexpf((float)(8 + x % 8), x / 8 - 11) : (float)x * 0x1p-10f; }

static void to_nvfp4_part(const float *x, const float *w, uint8_t *d, uint8_t qs[8])
{
    float want = largest_of(x, 16) / 12, least = INFINITY; /* the largest value is 6, or 12 halves */
    int at = 0, q[2][16];
    while (at < 0x7e && e4m3_half(at) < want)
        at++;
    for (int k = 0; k < 10; k++) { /* the nearest first: it wins if others are equally good */
        int code = NTX_MIN(NTX_MAX(at + (k < 4 ? k : 3 - k), 0), 0x7e);
        float error = e2m1_values(x, w, 16, e4m3_half(code), q[0]);
        if (error < least || !k) {
            least = error;
            *d = (uint8_t)code;
            memcpy(q[1], q[0], sizeof q[0]);
        }
    }
    for (int i = 0; i < 8; i++)
        qs[i] = (uint8_t)(q[1][i] | q[1][i + 8] << 4);
}

static void to_nvfp4(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_nvfp4 *b = block;
    (void)g;
    for (int i = 0; i < 4; i++)
        to_nvfp4_part(x + 16 * i, w + 16 * i, &b->d[i], b->qs + 8 * i);
}

/* ---- values of a list */

const int8_t ntx__iq4_value[16] = {NTX_VALUES_iq4_nl};

int ntx__iq4_nearest(float v)
{
    int n = 0;
    for (int i = 0; i < 15; i++) /* all of them: a branch on v is predicted badly */
        n += 2 * v > (float)(ntx__iq4_value[i] + ntx__iq4_value[i + 1]);
    return n;
}

static void to_iq4_nl(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_iq4_nl *b = block;
    int q[NTX_QK];
    b->d = ntx_f32_to_f16(ntx__fit_scale(x, w, NTX_QK, ntx__iq4_levels(g)));
    float d = ntx_f16_to_f32(b->d), inverse = d != 0 ? 1 / d : 0;
    for (int k = 0; k < NTX_QK; k++)
        q[k] = ntx__iq4_nearest(x[k] * inverse);
    ntx__put_nibbles(q, b->qs, NULL);
}

/* ---- ternary */

struct ordered {
    float x, w; /* x: absolute value */
};

static int larger(const void *a, const void *b)
{
    float x = ((const struct ordered *)a)->x, y = ((const struct ordered *)b)->x;
    return (x < y) - (x > y);
}

/* The optimal scale: the k largest values become +-1, with their weighted mean as scale, for the best k. */
static uint16_t ternary(const float *x, const float *w, int8_t *q)
{
    struct ordered o[NTX_QKK];
    float sum = 0, weight = 0, best = 0, gain = 0;
    for (int i = 0; i < NTX_QKK; i++)
        o[i] = (struct ordered){fabsf(x[i]), w[i]};
    qsort(o, NTX_QKK, sizeof *o, larger);
    for (int i = 0; i < NTX_QKK; i++) {
        sum += o[i].w * o[i].x;
        weight += o[i].w;
        if (weight > 0 && sum * sum > gain * weight) {
            gain = sum * sum / weight;
            best = sum / weight;
        }
    }
    uint16_t h = ntx_f32_to_f16(best);
    float half = ntx_f16_to_f32(h) / 2;
    for (int i = 0; i < NTX_QKK; i++)
        q[i] = (int8_t)((x[i] > half) - (x[i] < -half));
    return h;
}

static void to_tq2_0(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_tq2_0 *b = block;
    int8_t q[NTX_QKK];
    (void)g;
    b->d = ternary(x, w, q);
    memset(b->qs, 0, sizeof b->qs);
    for (int v = 0; v < NTX_QKK; v++)
        b->qs[v / 128 * 32 + v % 32] |= (uint8_t)((q[v] + 1) << v / 32 % 4 * 2);
}

/* Five base-3 digits of values `apart` values from each other, as a fraction of 256 that is rounded up: each
 * multiplication by 3 carries the next digit out. */
static uint8_t pack_digits(const int8_t *q, int apart, int n)
{
    int v = 0;
    for (int i = 0; i < 5; i++)
        v = v * 3 + (i < n ? q[i * apart] + 1 : 0);
    return (uint8_t)((v * 256 + 242) / 243);
}

static void to_tq1_0(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_tq1_0 *b = block;
    int8_t q[NTX_QKK];
    (void)g;
    b->d = ternary(x, w, q);
    for (int i = 0; i < 32; i++)
        b->qs[i] = pack_digits(q + i, 32, 5);
    for (int i = 0; i < 16; i++)
        b->qs[32 + i] = pack_digits(q + 160 + i, 16, 5);
    for (int i = 0; i < 4; i++)
        b->qh[i] = pack_digits(q + 240 + i, 4, 4);
}

/* ---- all of them */

static ntx__quantize_fn *const by_block[NTX_TYPE_LIMIT] = {
    [NTX_Q4_0] = to_q4_0,
    [NTX_Q4_1] = to_q4_1,
    [NTX_Q5_0] = to_q5_0,
    [NTX_Q5_1] = to_q5_1,
    [NTX_Q8_0] = to_q8_0,
    [NTX_Q1_0] = to_q1_0,
    [NTX_Q2_0] = to_q2_0,
    [NTX_MXFP4] = to_mxfp4,
    [NTX_NVFP4] = to_nvfp4,
    [NTX_IQ4_NL] = to_iq4_nl,
    [NTX_TQ1_0] = to_tq1_0,
    [NTX_TQ2_0] = to_tq2_0,
    [NTX_Q2_K] = ntx__to_q2_k,
    [NTX_Q3_K] = ntx__to_q3_k,
    [NTX_Q4_K] = ntx__to_q4_k,
    [NTX_Q5_K] = ntx__to_q5_k,
    [NTX_Q6_K] = ntx__to_q6_k,
    [NTX_IQ4_XS] = ntx__to_iq4_xs,
    [NTX_IQ3_XXS] = ntx__to_iq3_xxs,
    [NTX_IQ3_S] = ntx__to_iq3_s,
    [NTX_IQ2_XXS] = ntx__to_iq2_xxs,
    [NTX_IQ2_XS] = ntx__to_iq2_xs,
    [NTX_IQ2_S] = ntx__to_iq2_s,
    [NTX_IQ1_S] = ntx__to_iq1_s,
    [NTX_IQ1_M] = ntx__to_iq1_m,
};

/* ---- what a fit leaves out */

/* Offsets of the half-precision scales that multiply a whole block. Types that are not here have none, or scales of
 * a few bits. */
#define HALVES(type, d, n)                                                                                             \
    {                                                                                                                  \
        sizeof(uint16_t) * (n), offsetof(struct ntx_block_##type, d)                                                   \
    }
static const struct {
    uint8_t bytes, at;
} halves[NTX_TYPE_LIMIT] = {
    [NTX_Q4_0] = HALVES(q4_0, d, 1),       [NTX_Q4_1] = HALVES(q4_1, d, 2),   [NTX_Q5_0] = HALVES(q5_0, d, 1),
    [NTX_Q5_1] = HALVES(q5_1, d, 2),       [NTX_Q1_0] = HALVES(q1_0, d, 1),   [NTX_Q2_0] = HALVES(q2_0, d, 1),
    [NTX_IQ4_NL] = HALVES(iq4_nl, d, 1),   [NTX_TQ1_0] = HALVES(tq1_0, d, 1), [NTX_TQ2_0] = HALVES(tq2_0, d, 1),
    [NTX_Q2_K] = HALVES(q2_k, d, 2),       [NTX_Q3_K] = HALVES(q3_k, d, 1),   [NTX_Q4_K] = HALVES(q4_k, d, 2),
    [NTX_Q5_K] = HALVES(q5_k, d, 2),       [NTX_Q6_K] = HALVES(q6_k, d, 1),   [NTX_IQ4_XS] = HALVES(iq4_xs, d, 1),
    [NTX_IQ3_XXS] = HALVES(iq3_xxs, d, 1), [NTX_IQ3_S] = HALVES(iq3_s, d, 1), [NTX_IQ2_XXS] = HALVES(iq2_xxs, d, 1),
    [NTX_IQ2_XS] = HALVES(iq2_xs, d, 1),   [NTX_IQ2_S] = HALVES(iq2_s, d, 1), [NTX_IQ1_S] = HALVES(iq1_s, d, 1),
};

static uint16_t stretched(uint16_t h, float by)
{
    uint16_t to = ntx_f32_to_f16(ntx_f16_to_f32(h) * by);
    return isfinite(ntx_f16_to_f32(to)) ? to : h;
}

/* A block with least error is too small: it is (1 - error^2) x plus noise. So are all products of such a matrix,
 * attention scores and residual additions, by 8 % at two bits, which hurts a model more than noise. So the block is
 * stretched until it contains as much of x as x does. */
static void enlarge_block(uint32_t type, const float *x, const float *w, uint8_t *block)
{
    const struct ntx_type_info *t = ntx_type_info(type);
    float y[NTX_QKK], xx = 0, xy = 0;
    if (!halves[type].bytes && type != NTX_IQ1_M)
        return;
    t->dequant(block, y, 1);
    for (uint32_t i = 0; i < t->block; i++) {
        xx += w[i] * x[i] * x[i];
        xy += w[i] * x[i] * y[i];
    }
    if (!(xy > 0) || !isfinite(xx / xy))
        return;
    float by = NTX_MIN(xx / xy, MOST_ENLARGED) * (type == NTX_IQ3_S ? MORE_IQ3_S : 1);
    if (type == NTX_IQ1_M)
        ntx__enlarge_iq1_m(block, by, stretched);
    for (uint8_t i = 0; i < halves[type].bytes; i += sizeof(uint16_t)) {
        uint16_t h;
        memcpy(&h, block + halves[type].at + i, sizeof h);
        h = stretched(h, by);
        memcpy(block + halves[type].at + i, &h, sizeof h);
    }
}

struct ntx_quantizer {
    uint32_t type;
    struct ntx__grid *grid;
};

bool ntx_quantizes(uint32_t type)
{
    return type == NTX_F32 || type == NTX_F16 || type == NTX_BF16 || (type < NTX_TYPE_LIMIT && by_block[type]);
}

struct ntx_quantizer *ntx_quantizer_new(uint32_t type)
{
    struct ntx_quantizer *q = ntx_quantizes(type) ? malloc(sizeof *q) : NULL;
    if (!q)
        return NULL;
    *q = (struct ntx_quantizer){type, NULL};
    if (by_block[type] && !(q->grid = ntx__grid_new(type))) {
        free(q);
        return NULL;
    }
    return q;
}

void ntx_quantizer_free(struct ntx_quantizer *q)
{
    if (q)
        ntx__grid_free(q->grid);
    free(q);
}

static void to_blocks(const struct ntx_quantizer *q, const float *x, const float *w, uint8_t *out, size_t n_blocks)
{
    const struct ntx_type_info *t = ntx_type_info(q->type);
    float alike[NTX_QKK];
    for (int i = 0; i < NTX_QKK; i++)
        alike[i] = 1;
    for (size_t i = 0; i < n_blocks; i++) {
        const float *count = w ? w + i * t->block : alike;
        by_block[q->type](q->grid, x + i * t->block, count, out + i * t->block_bytes);
        enlarge_block(q->type, x + i * t->block, count, out + i * t->block_bytes);
    }
}

void ntx_quantize(const struct ntx_quantizer *q, const float *x, const float *w, void *blocks, size_t n_blocks)
{
    switch (q->type) {
    case NTX_F32: memcpy(blocks, x, n_blocks * sizeof *x); return;
    case NTX_F16: to_f16(x, blocks, n_blocks); return;
    case NTX_BF16: to_bf16(x, blocks, n_blocks); return;
    default: to_blocks(q, x, w, blocks, n_blocks);
    }
}

void ntx_quantize_weights(const float *x, const float *importance, size_t n, float *w)
{
    double part[8] = {0}, square = 0;
    for (size_t i = 0; i < n; i++)
        part[i % 8] += (double)x[i] * (double)x[i];
    for (int c = 0; c < 8; c++)
        square += part[c];
    float mean = n ? (float)(square / (double)n) : 0;
    for (size_t i = 0; i < n; i++)
        w[i] = sqrtf(mean + x[i] * x[i]);
    for (size_t i = 0; importance && i < n; i++)
        w[i] *= importance[i];
}
