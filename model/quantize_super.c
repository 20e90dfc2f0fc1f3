/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_super.c: quantises super-blocks (quantize_impl.h). Each part of 16 or 32 values is fitted alone. Scales
 * (and minima) become integers, and their neighbours are tried, too. Then the super-block's own scale is fitted to
 * all parts and rounded. All this is done twice. */
#include <string.h>

#include "model/quantize_impl.h"

#define ROUNDS 2

struct super {
    int n, width; /* number of parts, and values of each */
    int code_least, code_most;
    struct ntx__levels levels;
};

struct fitted {
    uint16_t d, dmin;
    int code[16], min[16];
    int q[NTX_QKK];
    float error;
};

/* Rounds up if halves are coarse there: integers may become smaller, but must not exceed the type's range. */
static uint16_t scale_half(float d)
{
    uint16_t h = ntx_f32_to_f16(d);
    return fabsf(ntx_f16_to_f32(h)) * 1.01f < fabsf(d) ? (uint16_t)(h + 1) : h;
}

/* ---- a scale */

/* Chooses a part's scale among the code `at` and its neighbours. */
static float choose_scale(const struct super *s, const float *x, const float *w, float d, int at, int *code)
{
    float scale[NTX__FEW], error[NTX__FEW];
    int best = 0;
    for (int c = 0; c < NTX__FEW; c++)
        scale[c] = d * (float)NTX_MIN(NTX_MAX(at + c % 5 - 2, s->code_least), s->code_most);
    ntx__scale_errors(x, w, s->width, scale, s->levels, error);
    for (int c = 1; c < 5; c++)
        best = error[c] < error[best] ? c : best;
    *code = NTX_MIN(NTX_MAX(at + best - 2, s->code_least), s->code_most);
    return error[best];
}

static void integers(const struct super *s, const float *x, struct fitted *f)
{
    float d = ntx_f16_to_f32(f->d);
    for (int j = 0; j < s->n; j++) {
        float a = d * (float)f->code[j], inverse = a != 0 && isfinite(1 / a) ? 1 / a : 0;
        int from = j * s->width;
        if (!s->levels.nearest)
            ntx__round_all(x + from, s->width, inverse, 0, s->levels.least, s->levels.most, f->q + from);
        for (int k = from; s->levels.nearest && k < from + s->width; k++)
            f->q[k] = ntx__iq4_value[ntx__iq4_nearest(x[k] * inverse)];
    }
}

/* The super-block's scale that fits these integers best. */
static float refit_scale(const struct super *s, const float *x, const float *w, const struct fitted *f)
{
    int q[NTX_QKK];
    for (int j = 0; j < s->n; j++)
        for (int k = j * s->width; k < (j + 1) * s->width; k++)
            q[k] = f->code[j] * f->q[k];
    return ntx__scale_of(x, w, s->n * s->width, q);
}

static void fit_scales(const struct super *s, const float *x, const float *w, struct fitted *out)
{
    float a[16], top = 0, d;
    struct fitted f = {.error = 0};
    for (int j = 0; j < s->n; j++) {
        a[j] = ntx__fit_scale(x + j * s->width, w + j * s->width, s->width, s->levels);
        top = fabsf(a[j]) > fabsf(top) ? a[j] : top;
    }
    d = top / (float)s->code_least; /* the range has one more code on that side */
    out->error = INFINITY;
    for (int again = 0; again < ROUNDS; again++) {
        f.d = scale_half(d);
        f.error = 0;
        d = ntx_f16_to_f32(f.d);
        for (int j = 0; j < s->n; j++)
            f.error += choose_scale(s, x + j * s->width, w + j * s->width, d,
                                    d != 0 ? ntx__clamp(a[j] / d, s->code_least, s->code_most) : 0, &f.code[j]);
        integers(s, x, &f);
        if (!(f.error < out->error) && again)
            break;
        *out = f;
        d = refit_scale(s, x, w, &f);
    }
}

/* ---- a scale and a minimum */

static float choose_line(const struct super *s, const float *x, const float *w, float d, float dmin, int at, int min_at,
                         int *code, int *min)
{
    struct ntx__lines k;
    float error[NTX__LANES];
    int codes[NTX__LANES], mins[NTX__LANES], best = 0;
    for (int c = 0; c < NTX__LANES; c++) { /* the first is the middle one */
        static const int by[3] = {0, -1, 1};
        codes[c] = NTX_MIN(NTX_MAX(at + by[c % 3], 0), s->code_most);
        mins[c] = NTX_MIN(NTX_MAX(min_at + by[c / 3 % 3], 0), s->code_most);
        k.d[c] = d * (float)codes[c];
        k.m[c] = dmin * (float)mins[c];
    }
    ntx__line_errors(x, w, s->width, &k, s->levels.most, error);
    for (int c = 1; c < 9; c++)
        best = error[c] < error[best] ? c : best;
    *code = codes[best];
    *min = mins[best];
    return error[best];
}

static void line_integers(const struct super *s, const float *x, struct fitted *f)
{
    float d = ntx_f16_to_f32(f->d), dmin = ntx_f16_to_f32(f->dmin);
    for (int j = 0; j < s->n; j++) {
        float a = d * (float)f->code[j], m = dmin * (float)f->min[j];
        float inverse = a > 0 && isfinite(1 / a) ? 1 / a : 0;
        ntx__round_all(x + j * s->width, s->width, inverse, m, 0, s->levels.most, f->q + j * s->width);
    }
}

/* The two scales of the super-block that fit these integers best; they stay if there is no solution. */
static void refit_line(const struct super *s, const float *x, const float *w, const struct fitted *f, float *d,
                       float *dmin)
{
    float aa = 0, ab = 0, bb = 0, xa = 0, xb = 0; /* x = d a - dmin b */
    for (int k = 0; k < s->n * s->width; k++) {
        float a = (float)(f->code[k / s->width] * f->q[k]), b = (float)f->min[k / s->width];
        aa += w[k] * a * a;
        ab += w[k] * a * b;
        bb += w[k] * b * b;
        xa += w[k] * x[k] * a;
        xb += w[k] * x[k] * b;
    }
    float det = aa * bb - ab * ab, new_d = xa * bb - xb * ab, new_min = xa * ab - xb * aa;
    if (det > 1e-6f * aa * bb && new_d > 0 && new_min > 0) {
        *d = new_d / det;
        *dmin = new_min / det;
    } else if (aa > 0 && xa > 0 && !(bb > 0)) {
        *d = xa / aa;
    }
}

static void fit_lines(const struct super *s, const float *x, const float *w, struct fitted *out)
{
    struct ntx__line l[16];
    struct fitted f = {.error = 0};
    float d = 0, dmin = 0;
    for (int j = 0; j < s->n; j++) {
        l[j] = ntx__fit_line(x + j * s->width, w + j * s->width, s->width, s->levels.most);
        d = NTX_MAX(d, l[j].d / (float)s->code_most);
        dmin = NTX_MAX(dmin, l[j].m / (float)s->code_most);
    }
    out->error = INFINITY;
    for (int again = 0; again < ROUNDS; again++) {
        f.d = scale_half(d);
        f.dmin = scale_half(dmin);
        f.error = 0;
        d = ntx_f16_to_f32(f.d);
        dmin = ntx_f16_to_f32(f.dmin);
        for (int j = 0; j < s->n; j++)
            f.error += choose_line(s, x + j * s->width, w + j * s->width, d, dmin,
                                   d > 0 ? ntx__clamp(l[j].d / d, 0, s->code_most) : 0,
                                   dmin > 0 ? ntx__clamp(l[j].m / dmin, 0, s->code_most) : 0, &f.code[j], &f.min[j]);
        line_integers(s, x, &f);
        if (!(f.error < out->error) && again)
            break;
        *out = f;
        refit_line(s, x, w, &f, &d, &dmin);
    }
}

/* ---- the types */

/* Stores 8 scales and minima: the first four of each in bytes 0..3 and 4..7; the low bits of the others in 8..11,
 * their high bits above the first ones. */
static void put_scales(const struct fitted *s, uint8_t p[12])
{
    for (int j = 0; j < 4; j++) {
        p[j] = (uint8_t)(s->code[j] | (s->code[j + 4] >> 4) << 6);
        p[j + 4] = (uint8_t)(s->min[j] | (s->min[j + 4] >> 4) << 6);
        p[j + 8] = (uint8_t)((s->code[j + 4] & 15) | (s->min[j + 4] & 15) << 4);
    }
}

static void put_low(const int *q, uint8_t qs[128])
{
    for (int i = 0; i < 128; i++) {
        int at = i / 32 * 64 + i % 32;
        qs[i] = (uint8_t)((q[at] & 15) | (q[at + 32] & 15) << 4);
    }
}

/* Stores two bits of each value: values 32 s .. 32 s + 31 of a half are bits 2 s, 2 s + 1 of its 32 bytes. */
static void put_pairs(const int *q, uint8_t qs[64])
{
    for (int half = 0; half < 2; half++, q += 128, qs += 32)
        for (int j = 0; j < 32; j++)
            qs[j] = (uint8_t)((q[j] & 3) | (q[j + 32] & 3) << 2 | (q[j + 64] & 3) << 4 | (q[j + 96] & 3) << 6);
}

void ntx__to_q4_k(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    static const struct super s = {8, 32, 0, 63, {0, 15, NULL}};
    struct ntx_block_q4_k *b = block;
    struct fitted f;
    (void)g;
    fit_lines(&s, x, w, &f);
    b->d = f.d;
    b->dmin = f.dmin;
    put_scales(&f, b->scales);
    put_low(f.q, b->qs);
}

void ntx__to_q5_k(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    static const struct super s = {8, 32, 0, 63, {0, 31, NULL}};
    struct ntx_block_q5_k *b = block;
    struct fitted f;
    (void)g;
    fit_lines(&s, x, w, &f);
    b->d = f.d;
    b->dmin = f.dmin;
    put_scales(&f, b->scales);
    put_low(f.q, b->qs);
    memset(b->qh, 0, sizeof b->qh);
    for (int k = 0; k < NTX_QKK; k++)
        b->qh[k % 32] |= (uint8_t)((f.q[k] >> 4 & 1) << (k / 32));
}

void ntx__to_q2_k(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    static const struct super s = {16, 16, 0, 15, {0, 3, NULL}};
    struct ntx_block_q2_k *b = block;
    struct fitted f;
    (void)g;
    fit_lines(&s, x, w, &f);
    b->d = f.d;
    b->dmin = f.dmin;
    for (int j = 0; j < 16; j++)
        b->scales[j] = (uint8_t)(f.code[j] | f.min[j] << 4);
    put_pairs(f.q, b->qs);
}

void ntx__to_q3_k(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    static const struct super s = {16, 16, -32, 31, {-4, 3, NULL}};
    struct ntx_block_q3_k *b = block;
    struct fitted f;
    (void)g;
    fit_scales(&s, x, w, &f);
    b->d = f.d;
    put_pairs(f.q, b->qs);
    memset(b->hmask, 0, sizeof b->hmask);
    for (int v = 0; v < NTX_QKK; v++) /* -4 .. -1 have the same two bits as 0 .. 3 */
        b->hmask[v % 32] |= (uint8_t)((f.q[v] >= 0) << v / 32);
    memset(b->scales, 0, sizeof b->scales);
    for (int j = 0; j < 16; j++) {
        int u = f.code[j] + 32;
        b->scales[j % 8] |= (uint8_t)((u & 15) << j / 8 * 4);
        b->scales[8 + j % 4] |= (uint8_t)((u >> 4) << j / 4 * 2);
    }
}

void ntx__to_q6_k(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    static const struct super s = {16, 16, -128, 127, {-32, 31, NULL}};
    struct ntx_block_q6_k *b = block;
    struct fitted f;
    (void)g;
    fit_scales(&s, x, w, &f);
    b->d = f.d;
    for (int j = 0; j < 16; j++)
        b->scales[j] = (int8_t)f.code[j];
    for (int half = 0; half < 2; half++) {
        const int *q = f.q + half * 128; /* four runs of 32: low bits of two in a byte, high bits of all */
        for (int j = 0; j < 32; j++) {
            int u0 = q[j] + 32, u1 = q[j + 32] + 32, u2 = q[j + 64] + 32, u3 = q[j + 96] + 32;
            b->ql[half * 64 + j] = (uint8_t)((u0 & 15) | (u2 & 15) << 4);
            b->ql[half * 64 + 32 + j] = (uint8_t)((u1 & 15) | (u3 & 15) << 4);
            b->qh[half * 32 + j] = (uint8_t)(u0 >> 4 | (u1 >> 4) << 2 | (u2 >> 4) << 4 | (u3 >> 4) << 6);
        }
    }
}

void ntx__to_iq4_xs(const struct ntx__grid *g, const float *x, const float *w, void *block)
{
    const struct super s = {8, 32, -32, 31, ntx__iq4_levels(g)};
    struct ntx_block_iq4_xs *b = block;
    struct fitted f;
    fit_scales(&s, x, w, &f);
    b->d = f.d;
    b->scales_h = 0;
    memset(b->scales_l, 0, sizeof b->scales_l);
    for (int j = 0; j < 8; j++) {
        int q[32], u = f.code[j] + 32;
        b->scales_h = (uint16_t)(b->scales_h | (u >> 4) << 2 * j);
        b->scales_l[j / 2] |= (uint8_t)((u & 15) << j % 2 * 4);
        for (int k = 0; k < 32; k++)
            q[k] = ntx__iq4_nearest((float)f.q[32 * j + k]);
        ntx__put_nibbles(q, b->qs + 16 * j, NULL);
    }
}
