/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_codes.c: i-quants, see quantize_impl.h. A part of 16 or 32 values has a scale, and is made of entries of 4
 * or 8 whose values together are one of a list of codes, apart from their signs (of IQ1: apart from a shift that they
 * share).
 *
 *   x of a part -> candidates of its scale; for each: x / scale -> each value's nearest level -> the pattern of these
 *     -> the codes that lie next to the
 *   pattern -> the one with the least weighted error -> the scale that suits the chosen codes best, and what the error
 *     falls by
 *
 * The best candidate's scale is then rounded as the type stores it, with its neighbours; and the block's own scale is
 * fitted to all. */
#include <stdlib.h>
#include <string.h>

#include "common/clones.h"
#include "model/quantize_impl.h"
#include "model/unpack.h"

#define NEAR   16 /* codes that are compared for each pattern, one per lane */
#define ROUNDS 2

struct ntx__grid {
    uint32_t n_codes, dim;  /* number of codes; values of a code */
    float base, step;       /* levels are roughly base + step * index */
    int top;                /* the largest level's index; a pattern is a number whose digits are levels, base top + 1 */
    uint32_t power[NTX_QK]; /* of each value in a part: of the digit that it has in its entry's pattern */
    float least_top, most_top; /* range of integers that a part's largest value is tried as */
    int tries;                 /* as so many */
    float *value;              /* [n_codes x dim] */
    uint16_t *near;            /* [patterns x NEAR] */
    uint32_t *near_value;      /* [patterns x dim / 4 x NEAR] four values each; small, so that they stay in the cache */
    float nearest[256];        /* IQ4: the listed value nearest to v - 128 */
};

struct ntx__levels ntx__iq4_levels(const struct ntx__grid *g) { return (struct ntx__levels){-127, 113, g->nearest}; }

/* ---- the codes and their neighbours */

/* Values of a code as the unpacking has them, without signs and shifts. */
static void values_of(uint32_t type, uint32_t i, float *v)
{
    int8_t q[8];
    switch (type) {
    case NTX_IQ2_XXS: ntx__values_iq2(ntx__codes_iq2_xxs[i], 0, q); break;
    case NTX_IQ2_XS: ntx__values_iq2(ntx__codes_iq2_xs[i], 0, q); break;
    case NTX_IQ2_S: ntx__values_iq2(ntx__codes_iq2_s[i], 0, q); break;
    case NTX_IQ3_XXS: ntx__values_iq3_xxs(ntx__codes_iq3_xxs[i], 0, q); break;
    case NTX_IQ3_S: ntx__values_iq3_s(ntx__codes_iq3_s[i], 0, q); break;
    default: ntx__values_iq1(i, 0, q);
    }
    for (int k = 0; k < (type == NTX_IQ3_XXS || type == NTX_IQ3_S ? 4 : 8); k++)
        v[k] = (float)(type == NTX_IQ1_S || type == NTX_IQ1_M ? q[k] - 1 : q[k]);
}

static const struct codes {
    uint32_t type, n, dim;
    float base, step;
    int top;
    float least_top, most_top;
    int tries;
} lists[] = {
    {NTX_IQ2_XXS, 256, 8, 8, 17.5f, 2, 34, 58, 5}, {NTX_IQ2_XS, 512, 8, 8, 17.5f, 2, 34, 58, 5},
    {NTX_IQ2_S, 1024, 8, 8, 17.5f, 2, 34, 58, 5},  {NTX_IQ3_XXS, 256, 4, 4, 8, 7, 48, 76, 5},
    {NTX_IQ3_S, 512, 4, 1, 2, 7, 12, 18, 5},       {NTX_IQ1_S, 2048, 8, -8, 8, 2, 8, 24, 5},
    {NTX_IQ1_M, 2048, 8, -8, 8, 2, 9, 20, 4},
};

static float distance(const float *a, const float *b, uint32_t dim)
{
    float d = 0;
    for (uint32_t i = 0; i < dim; i++)
        d += (a[i] - b[i]) * (a[i] - b[i]);
    return d;
}

/* The NEAR codes nearest to v, nearest first. */
static void find_near(const struct ntx__grid *g, const float *v, uint16_t *near)
{
    float far[NEAR];
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_codes; i++) {
        float d = distance(v, g->value + i * g->dim, g->dim);
        if (n == NEAR && d >= far[n - 1])
            continue;
        uint32_t at = n < NEAR ? n++ : n - 1;
        for (; at && far[at - 1] > d; at--) {
            far[at] = far[at - 1];
            near[at] = near[at - 1];
        }
        far[at] = d;
        near[at] = (uint16_t)i;
    }
}

static uint32_t patterns_of(const struct ntx__grid *g)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < g->dim; i++)
        n *= (uint32_t)g->top + 1;
    return n;
}

/* Lists the codes near each pattern of levels. */
static void find_neighbours(struct ntx__grid *g, const float *level)
{
    const uint32_t n = patterns_of(g), levels = (uint32_t)g->top + 1;
    for (uint32_t p = 0; p < n; p++) {
        float v[8];
        uint16_t *near = g->near + (size_t)p * NEAR;
        uint32_t *four = g->near_value + (size_t)p * NEAR * (g->dim / 4);
        for (uint32_t i = 0, left = p; i < g->dim; i++, left /= levels)
            v[i] = level[left % levels];
        find_near(g, v, near);
        for (uint32_t k = 0; k < NEAR * g->dim; k++)
            four[k / NEAR / 4 * NEAR + k % NEAR] |=
                (uint32_t)(uint8_t)(int8_t)g->value[near[k % NEAR] * g->dim + k / NEAR] << k / NEAR % 4 * 8;
    }
}

static bool fill_grid(struct ntx__grid *g, const struct codes *c)
{
    float level[8] = {0};
    *g = (struct ntx__grid){.n_codes = c->n,
                            .dim = c->dim,
                            .base = c->base,
                            .step = c->step,
                            .top = c->top,
                            .least_top = c->least_top,
                            .most_top = c->most_top,
                            .tries = c->tries};
    for (uint32_t i = 0; i < NTX_QK; i++)
        g->power[i] = i % c->dim ? g->power[i - 1] * ((uint32_t)c->top + 1) : 1;
    g->value = malloc((size_t)c->n * c->dim * sizeof *g->value);
    g->near = calloc((size_t)patterns_of(g) * NEAR, sizeof *g->near);
    g->near_value = calloc((size_t)patterns_of(g) * NEAR * (c->dim / 4), sizeof *g->near_value);
    if (!g->value || !g->near || !g->near_value)
        return false;
    for (uint32_t i = 0; i < c->n; i++)
        values_of(c->type, i, g->value + i * c->dim);
    for (int l = 0; l <= c->top; l++)
        level[l] = c->base + c->step * (float)l;
    if (c->type == NTX_IQ3_XXS) /* the exact levels of the format are not quite even */
        level[7] = 62;
    if (c->base == 8)
        level[1] = 25;
    find_neighbours(g, level);
    return true;
}

struct ntx__grid *ntx__grid_new(uint32_t type)
{
    struct ntx__grid *g = calloc(1, sizeof *g);
    for (size_t i = 0; g && i < sizeof lists / sizeof *lists; i++)
        if (lists[i].type == type && !fill_grid(g, &lists[i])) {
            ntx__grid_free(g);
            return NULL;
        }
    for (int v = 0; g && v < 256; v++)
        g->nearest[v] = ntx__iq4_value[ntx__iq4_nearest((float)(v - 128))];
    return g;
}

void ntx__grid_free(struct ntx__grid *g)
{
    if (g) {
        free(g->value);
        free(g->near);
        free(g->near_value);
    }
    free(g);
}

/* ---- an entry */

/* Of NaN the least. */
NTX_UNPACK float bound(float v, float least, float most)
{
    v = v > least ? v : least;
    return v < most ? v : most;
}

/* Each value's share of its entry's pattern. */
NTX_UNPACK void find_digits(const struct ntx__grid *g, const float *v, int n, uint32_t *digit)
{
    const float inverse = 1 / g->step;
    for (int i = 0; i < n; i++)
        digit[i] = (uint32_t)(int32_t)bound((v[i] - g->base) * inverse + 0.5f, 0, (float)g->top) * g->power[i % NTX_QK];
}

/* The lane of the code of this pattern nearest to the `dim` values of v, by weight, and its error. */
NTX_UNPACK uint32_t nearest_code(const struct ntx__grid *g, const int dim, const float *v, const float *w,
                                 uint32_t pattern, float *error)
{
    const uint32_t *four = g->near_value + (size_t)pattern * NEAR * (uint32_t)(dim / 4);
    float e[NEAR];
    int32_t least = INT32_MAX;
    NOT_UNROLLED for (int k = 0; k < NEAR; k++) /* bits of positive floats are in their order; the lowest: the lane */
    {
        int32_t bits;
        e[k] = 0;
        for (int i = 0; i < dim; i++) {
            float d = v[i] - (float)((int32_t)(four[i / 4 * NEAR + k] << (24 - i % 4 * 8)) >> 24);
            e[k] += w[i] * d * d;
        }
        memcpy(&bits, &e[k], sizeof bits);
        bits = (bits & -NEAR) | k;
        least = NTX_MIN(least, bits);
    }
    *error = e[least & (NEAR - 1)];
    return (uint32_t)least & (NEAR - 1);
}

/* ---- a part */

struct part {
    int width; /* values */
    int share; /* IQ1: values that share a shift; else 0 */
    const struct ntx__grid *g;
};
struct block_codes {
    uint16_t code[8]; /* code of each entry */
    int8_t less[2];   /* IQ1: the shift of each `share` values is down */
    float xq, qq;     /* sums of w x q and w q^2 over the values */
};

/* Codes of a part at one shift, with each share's error, in units of the scale, and sums of w x q and w q^2. */
struct choice {
    uint16_t code[8];
    float error[2], xq[2], qq[2];
};

/* Of n values, whose number is a multiple of dim, 4 or 8. */
NTX_UNPACK float sum_of(const float *v, const int dim, const int n)
{
    float s[8] = {0};
    for (int i = 0; i < n; i += dim)
        for (int k = 0; k < dim; k++)
            s[k] += v[i + k];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* The numbers are constants for the compiler. */
NTX_UNPACK void choose_by(const struct ntx__grid *g, const int dim, const int share, const int width, const float *x,
                          const float *w, float inverse, float by, struct choice *out)
{
    float v[NTX_QK], q[NTX_QK], e[8], xq[NTX_QK], qq[NTX_QK];
    uint32_t digit[NTX_QK];
    for (int i = 0; i < width; i++)
        v[i] = x[i] * inverse - by;
    find_digits(g, v, width, digit);
    for (int i = 0; i < width; i += dim) {
        uint32_t pattern = 0, code;
        for (int k = 0; k < dim; k++)
            pattern += digit[i + k];
        code = g->near[(size_t)pattern * NEAR + nearest_code(g, dim, v + i, w + i, pattern, &e[i / dim])];
        out->code[i / dim] = (uint16_t)code;
        memcpy(q + i, g->value + code * (uint32_t)dim, (size_t)dim * sizeof *q);
    }
    for (int i = 0; i < width; i++) {
        const float value = q[i] + by, wq = w[i] * value;
        xq[i] = wq * x[i];
        qq[i] = wq * value;
    }
    for (int at = 0; at < width; at += share) {
        const int entries = share / dim;
        float error = 0;
        for (int i = 0; i < entries; i++)
            error += e[at / dim + i];
        out->error[at / share] = error;
        out->xq[at / share] = sum_of(xq + at, dim, share);
        out->qq[at / share] = sum_of(qq + at, dim, share);
    }
}

/* share: 0 but for IQ1, which has two shifts. */
NTX_UNPACK float choose_shifts(const struct ntx__grid *g, const int dim, const int share, const int width,
                               const float *x, const float *w, float inverse, struct block_codes *c)
{
    const int each = share ? share : width, entries = each / dim;
    float error = 0;
    struct choice at[2]; /* shift up, down */
    choose_by(g, dim, each, width, x, w, inverse, share ? 1 : 0, &at[0]);
    if (share)
        choose_by(g, dim, each, width, x, w, inverse, -1, &at[1]);
    c->xq = c->qq = 0;
    for (int i = 0; i < width / each; i++) {
        const int8_t less = share ? at[1].error[i] < at[0].error[i] : 0; /* an index: a branch is predicted badly */
        const struct choice *best = &at[less];
        memcpy(c->code + i * entries, best->code + i * entries, (size_t)entries * sizeof *c->code);
        c->less[i] = less;
        error += best->error[i];
        c->xq += best->xq[i];
        c->qq += best->qq[i];
    }
    return error;
}

/* Chooses codes for a part at a given scale. Returns the weighted error in units of the scale. */
NTX_CLONES static float choose_part(const struct part *p, const float *x, const float *w, float inverse,
                                    struct block_codes *c)
{
    const struct ntx__grid *g = p->g;
    if (g->dim == 4)
        return choose_shifts(g, 4, 0, 32, x, w, inverse, c);
    if (p->share == 8)
        return choose_shifts(g, 8, 8, 16, x, w, inverse, c);
    if (p->share == 32)
        return choose_shifts(g, 8, 32, 32, x, w, inverse, c);
    return p->width == 32 ? choose_shifts(g, 8, 0, 32, x, w, inverse, c) : choose_shifts(g, 8, 0, 16, x, w, inverse, c);
}

static float largest_value(const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = NTX_MAX(most, fabsf(x[i]));
    return most;
}

/* The best scale of a part, before rounding. */
static float fit_part(const struct part *p, const float *x, const float *w)
{
    float top = largest_value(x, p->width), best = 0, gain = 0;
    struct block_codes c;
    if (top < 1e-30f)
        return 0;
    for (int t = 0; t < p->g->tries; t++) {
        float as = p->g->least_top + (p->g->most_top - p->g->least_top) * (float)t / (float)(p->g->tries - 1);
        choose_part(p, x, w, as / top, &c);
        if (c.xq > 0 && c.xq * c.xq > gain * c.qq) {
            gain = c.xq * c.xq / c.qq;
            best = c.xq / c.qq;
        }
    }
    if (best > 0) { /* once more, at the scale that fits the chosen codes */
        choose_part(p, x, w, 1 / best, &c);
        if (c.xq > 0 && c.xq * c.xq > gain * c.qq)
            best = c.xq / c.qq;
    }
    return best > 0 ? best : top / p->g->most_top;
}

/* ---- a block */

struct block {
    float d; /* d of a scale of 1; the type stores this times a power of two */
    uint16_t half;
    int scale[16]; /* odd numbers from 1 on */
    struct block_codes part[16];
    float error;
};

/* Fits a part with one of the stored scales next to `want`. */
static float choose_scale(const struct part *p, const float *x, const float *w, float d, float want, int most,
                          int *scale, struct block_codes *out)
{
    const int below = (int)NTX_MAX(0.0f, NTX_MIN((want / d - 1) / 2, (float)((most - 1) / 2)));
    float least = INFINITY;
    for (int s = below; s <= NTX_MIN(below + 1, (most - 1) / 2); s++) {
        struct block_codes c;
        float a = d * (float)(2 * s + 1), e = a * a * choose_part(p, x, w, 1 / a, &c);
        if (e < least) {
            least = e;
            *scale = 2 * s + 1;
            *out = c;
        }
    }
    return least;
}

/* unit: the type's factor of its half. most: the largest scale. */
static void fit_block(const struct part *p, const float *x, const float *w, float unit, int most, struct block *out)
{
    int n = NTX_QKK / p->width;
    float a[16], top = 0, d;
    struct block b = {.error = 0};
    for (int j = 0; j < n; j++) {
        a[j] = fit_part(p, x + j * p->width, w + j * p->width);
        top = NTX_MAX(top, a[j]);
    }
    d = top / (float)most;
    *out = (struct block){.error = INFINITY};
    for (int j = 0; j < n; j++)
        out->scale[j] = 1;
    for (int again = 0; again < ROUNDS; again++) {
        float xq = 0, qq = 0;
        b.half = ntx_f32_to_f16(d / unit);
        b.d = ntx_f16_to_f32(b.half) * unit;
        b.error = 0;
        if (!(b.d > 0))
            return;
        for (int j = 0; j < n; j++) {
            b.error += choose_scale(p, x + j * p->width, w + j * p->width, b.d, a[j], most, &b.scale[j], &b.part[j]);
            xq += (float)b.scale[j] * b.part[j].xq;
            qq += (float)(b.scale[j] * b.scale[j]) * b.part[j].qq;
        }
        if (!(b.error < out->error) && again)
            return;
        *out = b;
        d = qq > 0 ? xq / qq : 0;
    }
}

/* Splits x into signs, by 8 values, and absolute values. even: the number of minus signs must be even, so the
 * cheapest one is flipped if needed. */
static void take_signs(const float *x, const float *w, bool even, float *size, uint8_t signs[32])
{
    for (int i = 0; i < 32; i++) {
        int n = 0, least = 0;
        signs[i] = 0;
        for (int k = 0; k < 8; k++) {
            int v = 8 * i + k;
            size[v] = fabsf(x[v]);
            signs[i] |= (uint8_t)((x[v] < 0) << k);
            n += x[v] < 0;
            least = w[v] * x[v] * x[v] < w[8 * i + least] * x[8 * i + least] * x[8 * i + least] ? k : least;
        }
        if (even && n % 2) {
            signs[i] ^= (uint8_t)(1 << least);
            size[8 * i + least] = -size[8 * i + least];
        }
    }
}

static void put_word(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }

/* The word of 32 values: their scale above the signs of four entries of eight. The last sign of each entry follows
 * from the others. */
static uint32_t scale_and_signs(const struct block *f, const uint8_t *signs, int j)
{
    uint32_t word = (uint32_t)(f->scale[j] - 1) / 2 << 28;
    for (int l = 0; l < 4; l++)
        word |= (uint32_t)(signs[4 * j + l] & 127) << 7 * l;
    return word;
}

/* ---- the types */

/* Fits parts of 32 values, whose signs are stored beside them. */
static void fit_signed(const struct ntx__grid *g, const float *x, const float *w, float unit, struct block *f,
                       uint8_t signs[32])
{
    const struct part p = {32, 0, g};
    float size[NTX_QKK];
    take_signs(x, w, true, size, signs);
    fit_block(&p, size, w, unit, 31, f);
}

void ntx__to_iq2_xxs(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_iq2_xxs *b = block;
    uint8_t signs[32];
    struct block f;
    fit_signed(g, x, w, 0.125f, &f, signs);
    b->d = f.half;
    for (int j = 0; j < 8; j++) {
        for (int l = 0; l < 4; l++)
            b->qs[8 * j + l] = (uint8_t)f.part[j].code[l];
        put_word(b->qs + 8 * j + 4, scale_and_signs(&f, signs, j));
    }
}

/* Stores the scales of runs of 16 values, two in a byte. */
static void put_scales(const struct block *f, uint8_t scales[8])
{
    for (int j = 0; j < 8; j++)
        scales[j] = (uint8_t)((f->scale[2 * j] - 1) / 2 | (f->scale[2 * j + 1] - 1) / 2 << 4);
}

void ntx__to_iq2_xs(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    const struct part p = {16, 0, g};
    struct ntx_block_iq2_xs *b = block;
    float size[NTX_QKK];
    uint8_t signs[32];
    struct block f;
    take_signs(x, w, true, size, signs);
    fit_block(&p, size, w, 0.125f, 31, &f);
    b->d = f.half;
    put_scales(&f, b->scales);
    for (int i = 0; i < 32; i++)
        b->qs[i] = (uint16_t)(f.part[i / 2].code[i % 2] | (signs[i] & 127) << 9);
}

void ntx__to_iq2_s(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    const struct part p = {16, 0, g};
    struct ntx_block_iq2_s *b = block;
    float size[NTX_QKK];
    struct block f;
    take_signs(x, w, false, size, b->signs);
    fit_block(&p, size, w, 0.125f, 31, &f);
    b->d = f.half;
    put_scales(&f, b->scales);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < 32; i++) {
        uint32_t code = f.part[i / 2].code[i % 2];
        b->qs[i] = (uint8_t)code;
        b->qh[i / 4] |= (uint8_t)(code >> 8 << i % 4 * 2);
    }
}

void ntx__to_iq3_xxs(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    struct ntx_block_iq3_xxs *b = block;
    uint8_t signs[32];
    struct block f;
    fit_signed(g, x, w, 0.25f, &f, signs);
    b->d = f.half;
    for (int j = 0; j < 8; j++) {
        for (int l = 0; l < 8; l++)
            b->qs[8 * j + l] = (uint8_t)f.part[j].code[l];
        put_word(b->signs + 4 * j, scale_and_signs(&f, signs, j));
    }
}

void ntx__to_iq3_s(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    const struct part p = {32, 0, g};
    struct ntx_block_iq3_s *b = block;
    float size[NTX_QKK];
    struct block f;
    take_signs(x, w, false, size, b->signs);
    fit_block(&p, size, w, 1, 31, &f);
    b->d = f.half;
    memset(b->qh, 0, sizeof b->qh);
    memset(b->scales, 0, sizeof b->scales);
    for (int j = 0; j < 8; j++) {
        b->scales[j / 2] |= (uint8_t)((f.scale[j] - 1) / 2 << j % 2 * 4);
        for (int l = 0; l < 8; l++) {
            b->qs[8 * j + l] = (uint8_t)f.part[j].code[l];
            b->qh[j] |= (uint8_t)(f.part[j].code[l] >> 8 << l);
        }
    }
}

void ntx__to_iq1_s(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    const struct part p = {32, 32, g};
    struct ntx_block_iq1_s *b = block;
    struct block f;
    fit_block(&p, x, w, 0.125f, 15, &f);
    b->d = f.half;
    for (int j = 0; j < 8; j++) {
        uint32_t h = (uint32_t)(f.scale[j] - 1) / 2 << 12 | (uint32_t)f.part[j].less[0] << 15;
        for (int l = 0; l < 4; l++) {
            b->qs[4 * j + l] = (uint8_t)f.part[j].code[l];
            h |= (uint32_t)(f.part[j].code[l] >> 8) << 3 * l;
        }
        b->qh[j] = (uint16_t)h;
    }
}

/* Stores the nibbles of the half, lowest first. */
static void put_nibbles(struct ntx_block_iq1_m *b, uint16_t half)
{
    for (int k = 0; k < 4; k++)
        b->scales[2 * k + 1] = (uint8_t)((b->scales[2 * k + 1] & 15) | (half >> 4 * k & 15) << 4);
}

void ntx__to_iq1_m(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    const struct part p = {16, 8, g};
    struct ntx_block_iq1_m *b = block;
    struct block f;
    fit_block(&p, x, w, 0.125f, 15, &f);
    memset(b->scales, 0, sizeof b->scales);
    memset(b->qh, 0, sizeof b->qh);
    for (int j = 0; j < 16; j++) {
        uint32_t bits = (uint32_t)(f.scale[j] - 1) / 2 << j % 4 * 3; /* of the 16 bits for four parts */
        b->scales[j / 4 * 2] |= (uint8_t)bits;
        b->scales[j / 4 * 2 + 1] |= (uint8_t)(bits >> 8);
        for (int l = 0; l < 2; l++) {
            uint32_t code = f.part[j].code[l];
            b->qs[2 * j + l] = (uint8_t)code;
            b->qh[j] |= (uint8_t)((code >> 8 | (uint32_t)f.part[j].less[l] << 3) << 4 * l);
        }
    }
    put_nibbles(b, f.half);
}

void ntx__enlarge_iq1_m(void *block, float by, uint16_t (*stretched)(uint16_t half, float by))
{
    struct ntx_block_iq1_m *b = block;
    uint32_t half = 0;
    for (int k = 0; k < 4; k++)
        half |= (uint32_t)(b->scales[2 * k + 1] >> 4) << 4 * k;
    put_nibbles(b, stretched((uint16_t)half, by));
}
