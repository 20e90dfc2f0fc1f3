/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/delta/analyze_impl.h"
#include "common/clones.h"

#define SIDE  4 /* lines of a matrix, side by side */
#define LANES 16

NTX_CLONES static void four_times(const float *const d[SIDE], size_t n, const float *w, size_t k, float *y)
{
    for (size_t c = 0; c < k; c += LANES) {
        float sum[SIDE][LANES] = {{0}};
        for (size_t i = 0; i < n; i++)
            for (int r = 0; r < SIDE; r++)
                for (int l = 0; l < LANES; l++)
                    sum[r][l] += d[r][i] * w[i * k + c + (size_t)l];
        for (size_t r = 0; r < SIDE; r++)
            memcpy(y + r * k + c, sum[r], sizeof sum[r]);
    }
}

void ntx__times(const float *d, size_t m, size_t n, const float *w, size_t k, float *y)
{
    size_t r = 0;
    for (; r + SIDE <= m; r += SIDE)
        four_times((const float *const[SIDE]){d + r * n, d + (r + 1) * n, d + (r + 2) * n, d + (r + 3) * n}, n, w, k,
                   y + r * k);
    for (; r < m; r++)
        for (size_t c = 0; c < k; c++) {
            float sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += d[r * n + i] * w[i * k + c];
            y[r * k + c] = sum;
        }
}

NTX_CLONES static void add_one(const float *d, size_t n, const float *q, size_t k, float *z)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < k; c += LANES)
            for (size_t l = 0; l < LANES; l++)
                z[i * k + c + l] += d[i] * q[c + l];
}

NTX_CLONES static void add_four(const float *const d[SIDE], size_t n, const float *q, size_t k, float *z)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < k; c += LANES)
            for (size_t l = 0; l < LANES; l++)
                z[i * k + c + l] += (d[0][i] * q[c + l] + d[1][i] * q[k + c + l]) +
                                    (d[2][i] * q[2 * k + c + l] + d[3][i] * q[3 * k + c + l]);
}

void ntx__times_transposed(const float *d, size_t m, size_t n, const float *q, size_t k, float *z)
{
    size_t r = 0;
    for (; r + SIDE <= m; r += SIDE)
        add_four((const float *const[SIDE]){d + r * n, d + (r + 1) * n, d + (r + 2) * n, d + (r + 3) * n}, n, q + r * k,
                 k, z);
    for (; r < m; r++)
        add_one(d + r * n, n, q + r * k, k, z);
}

/* ---- singular values and bases, from the eigenvalues of y'y by Jacobi's rotations: rounding hides values below
 * 1e-7 of the largest, far less than is needed here */

NTX_CLONES static void gram(const float *y, size_t n, size_t k, double *a)
{
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < k; p++)
            for (size_t q = 0; q < k; q++)
                a[p * k + q] += (double)y[i * k + p] * (double)y[i * k + q];
}

static void rotate_lines(double *a, size_t k, size_t p, size_t q, double c, double s)
{
    for (size_t i = 0; i < k; i++) {
        double x = a[p * k + i], y = a[q * k + i];
        a[p * k + i] = c * x - s * y;
        a[q * k + i] = s * x + c * y;
    }
}

static void rotate_columns(double *a, size_t k, size_t p, size_t q, double c, double s)
{
    for (size_t i = 0; i < k; i++) {
        double x = a[i * k + p], y = a[i * k + q];
        a[i * k + p] = c * x - s * y;
        a[i * k + q] = s * x + c * y;
    }
}

/* One rotation; v gets the eigenvectors, one after the other. */
static bool rotate_pair(double *a, double *v, size_t k, size_t p, size_t q)
{
    double off = a[p * k + q];
    if (off * off <= 1e-26 * fabs(a[p * k + p] * a[q * k + q]))
        return false;
    double theta = (a[q * k + q] - a[p * k + p]) / (2 * off),
           t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
    rotate_columns(a, k, p, q, c, s);
    rotate_lines(a, k, p, q, c, s);
    rotate_lines(v, k, p, q, c, s);
    return true;
}

static void diagonalise(double *a, double *v, size_t k)
{
    bool turned = true;
    memset(v, 0, k * k * sizeof *v);
    for (size_t i = 0; i < k; i++)
        v[i * k + i] = 1;
    for (int sweep = 0; sweep < 30 && turned; sweep++) {
        turned = false;
        for (size_t p = 0; p < k; p++)
            for (size_t q = p + 1; q < k; q++)
                turned |= rotate_pair(a, v, k, p, q);
    }
}

static int compare_falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

void ntx__squared_singular(const float *y, size_t n, size_t k, double *value, struct ntx__eigen *e)
{
    memset(e->a, 0, k * k * sizeof *e->a);
    gram(y, n, k, e->a);
    diagonalise(e->a, e->v, k);
    for (size_t i = 0; i < k; i++)
        value[i] = fmax(e->a[i * k + i], 0);
    qsort(value, k, sizeof *value, compare_falling);
}

/* x becomes x times e->w. */
static void times_square(float *x, size_t n, size_t k, struct ntx__eigen *e)
{
    for (size_t i = 0; i < n; i += 64) {
        size_t some = n - i < 64 ? n - i : 64;
        ntx__times(x + i * k, some, k, e->w, k, e->some);
        memcpy(x + i * k, e->some, some * k * sizeof *x);
    }
}

void ntx__orthogonal_by_size(float *y, size_t n, float *x, size_t m, size_t k, double *value, struct ntx__eigen *e)
{
    memset(e->a, 0, k * k * sizeof *e->a);
    gram(y, n, k, e->a);
    diagonalise(e->a, e->v, k);
    for (size_t to = 0; to < k; to++) {
        size_t from = 0;
        for (size_t p = 1; p < k; p++)
            if (e->a[p * k + p] > e->a[from * k + from])
                from = p;
        value[to] = fmax(e->a[from * k + from], 0);
        e->a[from * k + from] = -INFINITY;
        for (size_t q = 0; q < k; q++)
            e->w[q * k + to] = (float)e->v[from * k + q];
    }
    times_square(y, n, k, e);
    times_square(x, m, k, e);
}

/* y times the vectors, each divided by its length; vectors of length 0 become 0. */
static void orthonormal_once(float *y, size_t n, size_t k, struct ntx__eigen *e)
{
    double most = 0;
    memset(e->a, 0, k * k * sizeof *e->a);
    gram(y, n, k, e->a);
    diagonalise(e->a, e->v, k);
    for (size_t p = 0; p < k; p++)
        most = fmax(most, e->a[p * k + p]);
    for (size_t p = 0; p < k; p++) {
        double square = e->a[p * k + p], by = square > 1e-12 * most ? 1 / sqrt(square) : 0;
        for (size_t q = 0; q < k; q++)
            e->w[q * k + p] = (float)(e->v[p * k + q] * by);
    }
    times_square(y, n, k, e);
}

void ntx__orthonormal(float *y, size_t n, size_t k, struct ntx__eigen *e)
{
    orthonormal_once(y, n, k, e);
    orthonormal_once(y, n, k, e); /* removes the rounding error of the first */
}

bool ntx__eigen_init(struct ntx__eigen *e, size_t k)
{
    *e = (struct ntx__eigen){malloc(k * k * sizeof *e->a), malloc(k * k * sizeof *e->v), malloc(k * k * sizeof *e->w),
                             malloc(64 * k * sizeof *e->some)};
    return e->a && e->v && e->w && e->some;
}

void ntx__eigen_free(struct ntx__eigen *e)
{
    free(e->a);
    free(e->v);
    free(e->w);
    free(e->some);
}

/* ---- random numbers */

static uint64_t mix_bits(uint64_t x) /* the end of splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t i) { return ((double)(mix_bits(i) >> 11) + 0.5) * 0x1p-53; }

void ntx__normal(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(sqrt(-2 * log(uniform(2 * i))) * cos(2 * M_PI * uniform(2 * i + 1)));
}
