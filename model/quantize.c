/* quantize.c: see quantize.h. Speed matters little: a model is packed once. */
#include "model/quantize.h"

#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/quant.h"

#define TRIES 8        /* grid points to each side of the range's own scale */
#define STEP 0.0125f   /* between them, as a share of the scale */

static int clamp(float v, int least, int most)
{
    int i = (int)rintf(NTX_MAX(-1e6f, NTX_MIN(v, 1e6f)));
    return i < least ? least : i > most ? most : i;
}

/* ---- one scale: x = d * q, least <= q <= most. Returns d; q as the caller rounds it. */

static float fit_scale(const float *x, int n, int least, int most)
{
    float extreme = 0, best = 0, best_gain = -1;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    if (fabsf(extreme) < 1e-30f)
        return 0;
    for (int t = -TRIES; t <= TRIES; t++) {
        float inverse = (float)least / extreme * (1 + (float)t * STEP), xq = 0, qq = 0; /* the extreme goes to the longer side */
        for (int i = 0; i < n; i++) {
            float q = (float)clamp(x[i] * inverse, least, most);
            xq += x[i] * q;
            qq += q * q;
        }
        if (qq > 0 && xq * xq / qq > best_gain) { /* what the squared error falls by */
            best_gain = xq * xq / qq;
            best = xq / qq;
        }
    }
    return best;
}

/* ---- a scale and a minimum: x = d * q - m, 0 <= q <= most, m >= 0 */

struct line {
    float d, m;
};

static float error_of(const float *x, int n, int most, struct line l, float *xq, float *q1, float *qq)
{
    float e = 0, inverse = l.d > 0 ? 1 / l.d : 0;
    *xq = *q1 = *qq = 0;
    for (int i = 0; i < n; i++) {
        float q = (float)clamp((x[i] + l.m) * inverse, 0, most), d = l.d * q - l.m - x[i];
        *xq += x[i] * q;
        *q1 += q;
        *qq += q * q;
        e += d * d;
    }
    return e;
}

static struct line fit_line(const float *x, int n, int most, float sum_x)
{
    float low = 0, high = x[0], best_error = INFINITY, xq, q1, qq;
    struct line best = {0, 0};
    for (int i = 0; i < n; i++) {
        low = NTX_MIN(low, x[i]);
        high = NTX_MAX(high, x[i]);
    }
    if (!(high - low > 1e-30f))
        return (struct line){0, -low};
    for (int t = -TRIES; t <= TRIES; t++) {
        struct line l = {(high - low) / (float)most * (1 + (float)t * 2 * STEP), -low};
        for (int again = 0; again < 2; again++) {
            float e = error_of(x, n, most, l, &xq, &q1, &qq), det = (float)n * qq - q1 * q1;
            if (e < best_error) {
                best_error = e;
                best = l;
            }
            if (det <= 0)
                break;
            l.d = ((float)n * xq - q1 * sum_x) / det; /* least squares for these integers */
            l.m = (q1 * xq - qq * sum_x) / det;
            if (l.m < 0) {
                l.m = 0;
                l.d = qq > 0 ? xq / qq : 0;
            }
            if (!(l.d > 0))
                break;
        }
    }
    return best;
}

static float sum_of(const float *x, int n)
{
    float s = 0;
    for (int i = 0; i < n; i++)
        s += x[i];
    return s;
}

/* ---- floats */

static void to_f32(const float *x, void *out, size_t n) { memcpy(out, x, n * sizeof *x); }

static void to_f16(const float *x, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint16_t *)out)[i] = ntx_f32_to_f16(x[i]);
}

static void to_bf16(const float *x, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        ((uint16_t *)out)[i] = (uint16_t)(isnan(x[i]) ? (u >> 16 | 0x40) : (u + 0x7fff + (u >> 16 & 1)) >> 16); /* nearest even */
    }
}

/* ---- blocks of 32 */

static void to_q8_0(const float *x, void *out, size_t n)
{
    struct ntx_block_q8_0 *b = out;
    for (size_t i = 0; i < n; i++, b++, x += NTX_QK) {
        float most = 0;
        for (int k = 0; k < NTX_QK; k++)
            most = NTX_MAX(most, fabsf(x[k]));
        b->d = ntx_f32_to_f16(most / 127);
        float d = ntx_f16_to_f32(b->d);
        for (int k = 0; k < NTX_QK; k++)
            b->qs[k] = (int8_t)clamp(d > 0 ? x[k] / d : 0, -127, 127);
    }
}

/* Puts the low 4 bits of 32 integers into qs, and their fifth into qh where there is one. */
static void put_nibbles(const int *q, uint8_t qs[16], uint8_t *qh)
{
    uint32_t high = 0;
    for (int i = 0; i < 16; i++)
        qs[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
    for (int i = 0; i < NTX_QK; i++)
        high |= (uint32_t)(q[i] >> 4 & 1) << i;
    if (qh)
        memcpy(qh, &high, sizeof high);
}

static uint16_t scale_block(const float *x, int half, int *q)
{
    uint16_t h = ntx_f32_to_f16(fit_scale(x, NTX_QK, -half, half - 1));
    float d = ntx_f16_to_f32(h), inverse = d != 0 ? 1 / d : 0;
    for (int k = 0; k < NTX_QK; k++)
        q[k] = clamp(x[k] * inverse, -half, half - 1) + half;
    return h;
}

static void line_block(const float *x, int most, int *q, uint16_t *hd, uint16_t *hm)
{
    struct line l = fit_line(x, NTX_QK, most, sum_of(x, NTX_QK));
    *hd = ntx_f32_to_f16(l.d);
    *hm = ntx_f32_to_f16(-l.m);
    float d = ntx_f16_to_f32(*hd), m = ntx_f16_to_f32(*hm), inverse = d > 0 ? 1 / d : 0;
    for (int k = 0; k < NTX_QK; k++)
        q[k] = clamp((x[k] - m) * inverse, 0, most);
}

static void to_q4_0(const float *x, void *out, size_t n)
{
    struct ntx_block_q4_0 *b = out;
    int q[NTX_QK];
    for (size_t i = 0; i < n; i++, b++, x += NTX_QK) {
        b->d = scale_block(x, 8, q);
        put_nibbles(q, b->qs, NULL);
    }
}

static void to_q5_0(const float *x, void *out, size_t n)
{
    struct ntx_block_q5_0 *b = out;
    int q[NTX_QK];
    for (size_t i = 0; i < n; i++, b++, x += NTX_QK) {
        b->d = scale_block(x, 16, q);
        put_nibbles(q, b->qs, b->qh);
    }
}

static void to_q4_1(const float *x, void *out, size_t n)
{
    struct ntx_block_q4_1 *b = out;
    int q[NTX_QK];
    for (size_t i = 0; i < n; i++, b++, x += NTX_QK) {
        uint16_t d, m;
        line_block(x, 15, q, &d, &m);
        b->d = d;
        b->m = m;
        put_nibbles(q, b->qs, NULL);
    }
}

static void to_q5_1(const float *x, void *out, size_t n)
{
    struct ntx_block_q5_1 *b = out;
    int q[NTX_QK];
    for (size_t i = 0; i < n; i++, b++, x += NTX_QK) {
        uint16_t d, m;
        line_block(x, 31, q, &d, &m);
        b->d = d;
        b->m = m;
        put_nibbles(q, b->qs, b->qh);
    }
}

/* The nearest of a block's values, in units of its scale; of two as near, the smaller. */
static int mxfp4_nearest(float v)
{
    static const float middle[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    int i = 0;
    while (i < 7 && fabsf(v) > middle[i])
        i++;
    return i && v < 0 ? i | 8 : i;
}

/* The scale with which the block's largest value is 4 to 8 of the format's own units, of which it has 6. */
static void to_mxfp4(const float *x, void *out, size_t n)
{
    struct ntx_block_mxfp4 *b = out;
    int q[NTX_QK], e;
    for (size_t i = 0; i < n; i++, b++, x += NTX_QK) {
        float most = 0;
        for (int k = 0; k < NTX_QK; k++)
            most = NTX_MAX(most, fabsf(x[k]));
        frexpf(most, &e); /* floor(log2(most)) + 1 */
        e = most > 0 ? NTX_MAX(e - 3 + 127, 0) : 0;
        b->e = (uint8_t)NTX_MIN(e, 254);
        for (int k = 0; k < NTX_QK; k++)
            q[k] = mxfp4_nearest(x[k] / ldexpf(1, b->e - 128));
        put_nibbles(q, b->qs, NULL);
    }
}

/* ---- super-blocks of 256 with scales and minima of 6 bits */

struct lines {
    uint16_t d, dmin;
    int scale[8], min[8], q[NTX_QKK];
};

static void fit_lines(const float *x, int most, struct lines *s)
{
    struct line l[8];
    float top_d = 0, top_m = 0;
    for (int j = 0; j < 8; j++) {
        l[j] = fit_line(x + 32 * j, 32, most, sum_of(x + 32 * j, 32));
        top_d = NTX_MAX(top_d, l[j].d);
        top_m = NTX_MAX(top_m, l[j].m);
    }
    s->d = ntx_f32_to_f16(top_d / 63);
    s->dmin = ntx_f32_to_f16(top_m / 63);
    float d = ntx_f16_to_f32(s->d), dmin = ntx_f16_to_f32(s->dmin);
    for (int j = 0; j < 8; j++) {
        s->scale[j] = d > 0 ? clamp(l[j].d / d, 0, 63) : 0;
        s->min[j] = dmin > 0 ? clamp(l[j].m / dmin, 0, 63) : 0;
        float a = d * (float)s->scale[j], m = dmin * (float)s->min[j], inverse = a > 0 ? 1 / a : 0;
        for (int k = 32 * j; k < 32 * (j + 1); k++)
            s->q[k] = clamp((x[k] + m) * inverse, 0, most);
    }
}

/* The first four scales and minima whole in bytes 0..3 and 4..7; of the others the low bits in 8..11, the high ones above the first. */
static void put_scales(const struct lines *s, uint8_t p[12])
{
    for (int j = 0; j < 4; j++) {
        p[j] = (uint8_t)(s->scale[j] | (s->scale[j + 4] >> 4) << 6);
        p[j + 4] = (uint8_t)(s->min[j] | (s->min[j + 4] >> 4) << 6);
        p[j + 8] = (uint8_t)((s->scale[j + 4] & 15) | (s->min[j + 4] & 15) << 4);
    }
}

static void put_low(const int *q, uint8_t qs[128])
{
    for (int i = 0; i < 128; i++) {
        int at = i / 32 * 64 + i % 32;
        qs[i] = (uint8_t)((q[at] & 15) | (q[at + 32] & 15) << 4);
    }
}

static void to_q4_k(const float *x, void *out, size_t n)
{
    struct ntx_block_q4_k *b = out;
    struct lines s;
    for (size_t i = 0; i < n; i++, b++, x += NTX_QKK) {
        fit_lines(x, 15, &s);
        b->d = s.d;
        b->dmin = s.dmin;
        put_scales(&s, b->scales);
        put_low(s.q, b->qs);
    }
}

static void to_q5_k(const float *x, void *out, size_t n)
{
    struct ntx_block_q5_k *b = out;
    struct lines s;
    for (size_t i = 0; i < n; i++, b++, x += NTX_QKK) {
        fit_lines(x, 31, &s);
        b->d = s.d;
        b->dmin = s.dmin;
        put_scales(&s, b->scales);
        put_low(s.q, b->qs);
        memset(b->qh, 0, sizeof b->qh);
        for (int k = 0; k < NTX_QKK; k++)
            b->qh[k % 32] |= (uint8_t)((s.q[k] >> 4 & 1) << (k / 32));
    }
}

/* ---- Q6_K: 16 scales of 8 bits, each of 16 values */

static void put_q6(const int *q, struct ntx_block_q6_k *b)
{
    memset(b->ql, 0, sizeof b->ql);
    memset(b->qh, 0, sizeof b->qh);
    for (int v = 0; v < NTX_QKK; v++) {
        int half = v / 128, run = v % 128 / 32, j = v % 32, u = q[v] + 32;
        b->ql[half * 64 + run % 2 * 32 + j] |= (uint8_t)((u & 15) << (run / 2 * 4));
        b->qh[half * 32 + j] |= (uint8_t)((u >> 4) << (run * 2));
    }
}

static void to_q6_k(const float *x, void *out, size_t n)
{
    struct ntx_block_q6_k *b = out;
    for (size_t i = 0; i < n; i++, b++, x += NTX_QKK) {
        float scale[16], top = 0;
        int q[NTX_QKK];
        for (int j = 0; j < 16; j++) {
            scale[j] = fit_scale(x + 16 * j, 16, -32, 31);
            top = NTX_MAX(top, fabsf(scale[j]));
        }
        b->d = ntx_f32_to_f16(top / 127);
        float d = ntx_f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            b->scales[j] = (int8_t)(d > 0 ? clamp(scale[j] / d, -127, 127) : 0);
            float a = d * (float)b->scales[j], inverse = a != 0 ? 1 / a : 0;
            for (int k = 16 * j; k < 16 * (j + 1); k++)
                q[k] = clamp(x[k] * inverse, -32, 31);
        }
        put_q6(q, b);
    }
}

ntx_quantize_fn *ntx_quantizer(uint32_t type)
{
    static ntx_quantize_fn *const all[NTX_TYPE_LIMIT] = {
        [NTX_F32] = to_f32, [NTX_F16] = to_f16, [NTX_BF16] = to_bf16, [NTX_Q4_0] = to_q4_0, [NTX_Q4_1] = to_q4_1, [NTX_Q5_0] = to_q5_0,
        [NTX_Q5_1] = to_q5_1, [NTX_Q8_0] = to_q8_0, [NTX_Q4_K] = to_q4_k, [NTX_Q5_K] = to_q5_k, [NTX_Q6_K] = to_q6_k, [NTX_MXFP4] = to_mxfp4,
    };
    return type < NTX_TYPE_LIMIT ? all[type] : NULL;
}
