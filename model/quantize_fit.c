/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_fit.c: see quantize_impl.h. */
#include <float.h>
#include <string.h>

#include "common/clones.h"
#include "model/quantize_impl.h"
#include "model/unpack.h"

#define NONE             1e-30f /* smaller values count as 0 */
#define STEP             0.15f  /* step between candidates, in integers at the end of the range */
#define FINE             0.02f  /* step around the best of them */
#define BELOW            7      /* candidates below the range's own scale */

/* Rounds to the nearest integer, ties to even: adding 1.5 * 2^23 drops the fraction. |v| < 2^22. */
#define ROUND(v)         (((v) + 12582912.0f) - 12582912.0f)
#define AT_LEAST(v, lo)  ((v) < (lo) ? (lo) : (v))
#define AT_MOST(v, hi)   ((v) > (hi) ? (hi) : (v))
#define BOUND(v, lo, hi) AT_MOST(AT_LEAST(v, lo), hi)

struct sums {
    float xq[NTX__LANES], qq[NTX__LANES], q[NTX__LANES];
};

/* Sums over q = v = (x + m) * inverse, rounded. */
NTX_CLONES static void sum_integers(const float *restrict x, const float *restrict w, int n,
                                    const float *restrict inverse, float m, float least, float most,
                                    struct sums *restrict out)
{
    struct sums s = {0};
    for (int i = 0; i < n; i++)
        for (int c = 0; c < NTX__LANES; c++) {
            float v = (x[i] + m) * inverse[c], q = ROUND(BOUND(v, least, most)), wq = w[i] * q;
            s.q[c] += wq;
            s.xq[c] += wq * x[i];
            s.qq[c] += wq * q;
        }
    *out = s;
}

/* The same without a minimum, and without the sums of q. */
NTX_UNPACK void sum_scaled(const float *restrict x, const float *restrict w, int n, const float *restrict inverse,
                           float least, float most, struct sums *restrict out)
{
    float xq[NTX__LANES] = {0}, qq[NTX__LANES] = {0};
    for (int i = 0; i < n; i++)
        for (int c = 0; c < NTX__LANES; c++) {
            float v = x[i] * inverse[c], q = ROUND(BOUND(v, least, most)), wq = w[i] * q;
            xq[c] += wq * x[i];
            qq[c] += wq * q;
        }
    memcpy(out->xq, xq, sizeof xq);
    memcpy(out->qq, qq, sizeof qq);
}

NTX_UNPACK void sum_listed(const float *restrict x, const float *restrict w, int n, const float *restrict inverse,
                           const float *restrict nearest, struct sums *restrict out)
{
    float xq[NTX__LANES] = {0}, qq[NTX__LANES] = {0};
    for (int i = 0; i < n; i++)
        for (int c = 0; c < NTX__LANES; c++) {
            float v = x[i] * inverse[c], q = nearest[(int)ROUND(BOUND(v, -128.0f, 127.0f)) + 128], wq = w[i] * q;
            xq[c] += wq * x[i];
            qq[c] += wq * q;
        }
    memcpy(out->xq, xq, sizeof xq);
    memcpy(out->qq, qq, sizeof qq);
}

/* The squared error falls by xq^2 / qq; the best candidate has d = xq / qq. */
NTX_UNPACK void try_scales(const float *x, const float *w, int n, const float *inverse, struct ntx__levels l,
                           float *best, float *gain)
{
    struct sums s;
    int32_t most = 0;
    if (l.nearest)
        sum_listed(x, w, n, inverse, l.nearest, &s);
    else
        sum_scaled(x, w, n, inverse, l.least, l.most, &s);
    NOT_UNROLLED for (int c = 0; c < NTX__LANES; c++)
    { /* bits of positive floats are in their order; the lowest are the lane */
        float by = s.xq[c] * s.xq[c] / AT_LEAST(s.qq[c], FLT_MIN);
        int32_t bits;
        memcpy(&bits, &by, sizeof bits);
        bits = (bits & -NTX__LANES) | c;
        most = NTX_MAX(most, bits);
    }
    const int c = most & (NTX__LANES - 1);
    if (s.qq[c] > 0 && s.xq[c] * s.xq[c] > *gain * s.qq[c]) {
        *gain = s.xq[c] * s.xq[c] / s.qq[c];
        *best = s.xq[c] / s.qq[c];
    }
}

/* The value of largest size; of two that differ in sign the positive one. */
NTX_UNPACK float extreme_of(const float *x, int n)
{
    uint32_t most = 0, bits;
    float extreme;
    for (int i = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        bits = bits << 1 | (~bits >> 31);
        most = NTX_MAX(most, bits);
    }
    bits = most >> 1 | (~most << 31);
    memcpy(&extreme, &bits, sizeof extreme);
    return extreme;
}

NTX_CLONES float ntx__fit_scale(const float *x, const float *w, int n, struct ntx__levels l)
{
    float extreme = extreme_of(x, n), best = 0, gain = 0, inverse[NTX__LANES];
    const float end[2] = {l.least, l.most}, unit = l.nearest ? 12 : 1; /* spacing of the listed values */
    /* The extreme may map to either end; of fine levels both ends give the same scales but for their sign. */
    const int sides = !l.nearest && l.least < -16 ? 1 : 2;
    if (fabsf(extreme) < NONE)
        return 0;
    for (int side = 0; side < sides; side++) {
        const float middle = end[side] / extreme, step = STEP * unit / fabsf(end[side]);
        for (int c = 0; c < NTX__LANES; c++)
            inverse[c] = middle * (1 + (float)(c - BELOW) * step);
        try_scales(x, w, n, inverse, l, &best, &gain);
    }
    for (int again = 0; again < 2 && best != 0; again++) {
        const float middle = 1 / best, step = FINE * unit / l.most;
        for (int c = 0; c < NTX__LANES; c++)
            inverse[c] = middle * (1 + (float)(c - BELOW) * step);
        try_scales(x, w, n, inverse, l, &best, &gain);
    }
    if (best == 0) /* all weights may be 0 */
        best = extreme / (fabsf(l.least) > l.most ? l.least : l.most);
    return best;
}

/* ---- a scale and a minimum */

struct moments {
    float w, x, xx; /* sums of w, w x, w x^2 */
};

/* Fits a line through these integers and returns its error; false: there is no solution. */
static bool solve(const struct moments *t, const struct sums *s, int c, struct ntx__line *l, float *error)
{
    float det = t->w * s->qq[c] - s->q[c] * s->q[c];
    if (!(det > 0))
        return false;
    l->d = (t->w * s->xq[c] - s->q[c] * t->x) / det;
    l->m = (s->q[c] * s->xq[c] - s->qq[c] * t->x) / det;
    if (l->m < 0) {
        l->m = 0;
        l->d = s->xq[c] / s->qq[c];
    }
    *error = t->xx + l->d * l->d * s->qq[c] + l->m * l->m * t->w +
             2 * (l->m * t->x - l->d * s->xq[c] - l->d * l->m * s->q[c]);
    return l->d > 0;
}

static void try_lines(const float *x, const float *w, int n, const float *inverse, float m, float most,
                      const struct moments *t, struct ntx__line *best, float *least)
{
    struct sums s;
    sum_integers(x, w, n, inverse, m, 0, most, &s);
    for (int c = 0; c < NTX__LANES; c++) {
        struct ntx__line l;
        float e;
        if (solve(t, &s, c, &l, &e) && e < *least) {
            *least = e;
            *best = l;
        }
    }
}

struct ntx__line ntx__fit_line(const float *x, const float *w, int n, float most)
{
    float low = 0, high = x[0], error = INFINITY, inverse[NTX__LANES];
    struct moments t = {0, 0, 0};
    for (int i = 0; i < n; i++) {
        low = NTX_MIN(low, x[i]);
        high = NTX_MAX(high, x[i]);
        t.w += w[i];
        t.x += w[i] * x[i];
        t.xx += w[i] * x[i] * x[i];
    }
    if (!(high - low > NONE))
        return (struct ntx__line){0, -low};
    struct ntx__line best = {(high - low) / most, -low};
    for (int again = 0; again < 4; again++) { /* first the whole range is tried, then the neighbourhood of the best */
        float m = best.m, centre = 1 / best.d, step = again ? FINE * 2 : STEP;
        for (int c = 0; c < NTX__LANES; c++)
            inverse[c] = centre * (1 + (float)(c - BELOW) * step / most);
        try_lines(x, w, n, inverse, m, most, &t, &best, &error);
    }
    return best;
}

/* ---- candidates */

/* Of lines, and of scales alone (m is 0), of which at most NTX__FEW differ. */
NTX_CLONES static void errors_of_lines(const float *restrict x, const float *restrict w, int n,
                                       const struct ntx__lines *restrict k, const float *restrict inverse, float most,
                                       float *restrict error)
{
    float sum[NTX__LANES] = {0};
    for (int i = 0; i < n; i++)
        for (int c = 0; c < NTX__LANES; c++) {
            float v = (x[i] + k->m[c]) * inverse[c], e = ROUND(BOUND(v, 0.0f, most)) * k->d[c] - k->m[c] - x[i];
            sum[c] += w[i] * e * e;
        }
    memcpy(error, sum, sizeof sum);
}

NTX_CLONES static void errors_of_scales(const float *restrict x, const float *restrict w, int n,
                                        const float *restrict d, const float *restrict inverse, float least, float most,
                                        float *restrict error)
{
    float sum[NTX__FEW] = {0};
    for (int i = 0; i < n; i++)
        NOT_UNROLLED for (int c = 0; c < NTX__FEW; c++)
        {
            float v = x[i] * inverse[c], e = ROUND(BOUND(v, least, most)) * d[c] - x[i];
            sum[c] += w[i] * e * e;
        }
    memcpy(error, sum, sizeof sum);
}

NTX_CLONES static void errors_of_listed(const float *restrict x, const float *restrict w, int n,
                                        const float *restrict d, const float *restrict inverse,
                                        const float *restrict nearest, float *restrict error)
{
    float sum[NTX__FEW] = {0};
    for (int i = 0; i < n; i++)
        NOT_UNROLLED for (int c = 0; c < NTX__FEW; c++)
        {
            float v = x[i] * inverse[c], e = nearest[(int)ROUND(BOUND(v, -128.0f, 127.0f)) + 128] * d[c] - x[i];
            sum[c] += w[i] * e * e;
        }
    memcpy(error, sum, sizeof sum);
}

static float inverse_of(float d) { return d != 0 && isfinite(1 / d) && isfinite(d) ? 1 / d : 0; }

void ntx__line_errors(const float *x, const float *w, int n, const struct ntx__lines *k, float most,
                      float error[NTX__LANES])
{
    float inverse[NTX__LANES];
    for (int c = 0; c < NTX__LANES; c++)
        inverse[c] = inverse_of(k->d[c]);
    errors_of_lines(x, w, n, k, inverse, most, error);
}

void ntx__scale_errors(const float *x, const float *w, int n, const float d[NTX__FEW], struct ntx__levels l,
                       float error[NTX__FEW])
{
    float inverse[NTX__FEW];
    for (int c = 0; c < NTX__FEW; c++)
        inverse[c] = inverse_of(d[c]);
    if (l.nearest)
        errors_of_listed(x, w, n, d, inverse, l.nearest, error);
    else
        errors_of_scales(x, w, n, d, inverse, l.least, l.most, error);
}

/* ---- what was chosen */

NTX_CLONES void ntx__round_all(const float *restrict x, int n, float inverse, float m, float least, float most,
                               int *restrict q)
{
    for (int i = 0; i < n; i++) {
        float v = (x[i] + m) * inverse;
        q[i] = (int)ROUND(BOUND(v, least, most));
    }
}

NTX_CLONES float ntx__scale_of(const float *restrict x, const float *restrict w, int n, const int *restrict q)
{
    float xq[NTX__LANES] = {0}, qq[NTX__LANES] = {0}, sum_xq = 0, sum_qq = 0;
    for (int i = 0; i < n; i += NTX__LANES)
        for (int c = 0; c < NTX__LANES; c++) {
            float v = (float)q[i + c], wq = w[i + c] * v;
            xq[c] += wq * x[i + c];
            qq[c] += wq * v;
        }
    for (int c = 0; c < NTX__LANES; c++) {
        sum_xq += xq[c];
        sum_qq += qq[c];
    }
    return sum_qq > 0 ? sum_xq / sum_qq : 0;
}
