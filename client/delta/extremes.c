/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "client/delta/analyze_impl.h"

/* The equation of the scale (d log likelihood / d scale = 0): mean of x - weighted mean of x - scale = 0, with
 * weights e^(-x / scale). */
static double slope(const double *x, size_t n, double mean, double least, double scale)
{
    double sum = 0, weighed = 0;
    for (size_t i = 0; i < n; i++) {
        double w = exp(-(x[i] - least) / scale);
        sum += w;
        weighed += w * x[i];
    }
    return mean - weighed / sum - scale;
}

double ntx__gumbel_location(const double *x, size_t n)
{
    double mean = 0, least = n ? x[0] : 0, most = least, sum = 0;
    for (size_t i = 0; i < n; i++) {
        mean += x[i] / (double)n;
        least = fmin(least, x[i]);
        most = fmax(most, x[i]);
    }
    if (most - least < 1e-9)
        return mean;
    double low = (most - least) * 1e-6, high = most - least;
    for (int i = 0; i < 100; i++) { /* the slope falls monotonically */
        double mid = 0.5 * (low + high);
        *(slope(x, n, mean, least, mid) > 0 ? &low : &high) = mid;
    }
    for (size_t i = 0; i < n; i++)
        sum += exp(-(x[i] - least) / low);
    return least - low * log(sum / (double)n);
}

/* A cosine with a random vector is about normal with variance 1 / n; the location is the value that one of m
 * exceeds. */
double ntx__chance_cosine(double m, double n)
{
    double low = 0, high = 40;
    for (int i = 0; i < 100; i++) {
        double mid = 0.5 * (low + high);
        *(erfc(mid * M_SQRT1_2) * m > 1 ? &low : &high) = mid;
    }
    return fmin(low / sqrt(n), 1);
}
