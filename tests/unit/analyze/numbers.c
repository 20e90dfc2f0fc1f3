/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic behind ntx analyze: singular values, bases and Gumbel's location against what they are by
 * construction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/delta/analyze_impl.h"
#include "tests/lib/check.h"

enum { N = 300, M = 70, K = 48 };

static double dot(const float *a, const float *b, size_t n, size_t step)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i * step] * (double)b[i * step];
    return sum;
}

static void bases(void)
{
    static float y[N * K], x[N * K];
    struct ntx__eigen e;
    CHECK(ntx__eigen_init(&e, K));
    ntx__normal(y, N * K);
    for (size_t i = 0; i < N; i++)
        y[i * K + 7] = y[i * K + 3] + y[i * K + 5]; /* linearly dependent */
    memcpy(x, y, sizeof x);
    ntx__orthonormal(y, N, K, &e);
    int none = 0;
    for (size_t p = 0; p < K; p++)
        for (size_t q = 0; q <= p; q++) {
            double is = dot(y + p, y + q, N, K);
            none += p == q && is < 0.5;
            CHECK_MSG(fabs(is) < 1e-5 || (p == q && fabs(is - 1) < 1e-5), "columns %zu, %zu: %g", p, q, is);
        }
    CHECK_EQ(none, 1);
    for (size_t c = 0; c < K; c++) { /* every column of x is in the basis's span */
        double left = dot(x + c, x + c, N, K), of = left;
        for (size_t p = 0; p < K; p++)
            left -= pow(dot(x + c, y + p, N, K), 2);
        CHECK_MSG(fabs(left) < 1e-5 * of, "column %zu: %g of %g is outside", c, left, of);
    }
    ntx__eigen_free(&e);
}

/* A matrix with known singular values: two bases, and weights between them. */
static void singular_values(void)
{
    static float y[N * K], z[M * K], a[M * N], out[N * K], value[K];
    double found[K];
    struct ntx__eigen e;
    CHECK(ntx__eigen_init(&e, K));
    ntx__normal(y, N * K);
    ntx__normal(z, M * K);
    ntx__orthonormal(y, N, K, &e);
    ntx__orthonormal(z, M, K, &e);
    for (size_t k = 0; k < K; k++)
        value[k] = 20 / (float)(k + 1);
    for (size_t r = 0; r < M; r++)
        for (size_t c = 0; c < N; c++)
            for (size_t k = 0; k < K; k++)
                a[r * N + c] += z[r * K + k] * value[k] * y[c * K + k];
    memset(out, 0, sizeof out);
    ntx__times_transposed(a, M, N, z, K, out);
    ntx__squared_singular(out, N, K, found, &e);
    for (size_t k = 0; k < K; k++)
        CHECK_MSG(fabs(sqrt(found[k]) - (double)value[k]) < 1e-4 * (double)value[0], "value %zu: %g, expected %g", k,
                  sqrt(found[k]), (double)value[k]);
    ntx__eigen_free(&e);
}

/* a number of rows that is no multiple of four, compared with the plain sum */
static void products(void)
{
    static float d[7 * M], w[M * 32], y[7 * 32];
    ntx__normal(d, 7 * M);
    ntx__normal(w, M * 32);
    ntx__times(d, 7, M, w, 32, y);
    for (size_t r = 0; r < 7; r++)
        for (size_t c = 0; c < 32; c++) {
            double sum = 0;
            for (size_t i = 0; i < M; i++)
                sum += (double)d[r * M + i] * (double)w[i * 32 + c];
            CHECK(fabs(sum - (double)y[r * 32 + c]) < 1e-4);
        }
}

static void locations(void)
{
    enum { MANY = 20000 };
    static double x[MANY];
    for (int i = 0; i < MANY; i++) /* the quantiles of the distribution */
        x[i] = 0.3 - 0.05 * log(-log((i + 0.5) / MANY));
    CHECK(fabs(ntx__gumbel_location(x, MANY) - 0.3) < 1e-4);
    for (int i = 0; i < MANY; i++)
        x[i] = 0.7;
    CHECK(fabs(ntx__gumbel_location(x, MANY) - 0.7) < 1e-12);
    CHECK(fabs(ntx__chance_cosine(1000, 400) - 3.2905267 / 20) <
          1e-6); /* two-sided: 1 of 1000 is beyond 3.29 standard deviations */
    CHECK(ntx__chance_cosine(1e9, 4) == 1);
}

int main(void)
{
    bases();
    singular_values();
    products();
    locations();
    return 0;
}
