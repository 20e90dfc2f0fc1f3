/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/sample/noise.h"

#include <float.h>
#include <math.h>

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

struct ntx_noise ntx_noise_at(uint64_t seed, uint64_t position)
{
    uint64_t state = splitmix(&seed) + position * 0xd1342543de82ef95ULL, a = splitmix(&state), b = splitmix(&state);
    return (struct ntx_noise){{(uint32_t)a, (uint32_t)(a >> 32)}, {(uint32_t)b, (uint32_t)(b >> 32)}};
}

/* log((1 + s) / (1 - s)) for |s| <= 1/3: 2 (s + s^3/3 + s^5/5 ...). */
static double log_ratio(double s)
{
    double s2 = s * s, sum = 0;
    for (int k = 31; k > 0; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2 * s * sum;
}

double ntx_noise_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL;
    memcpy(&x, &bits, sizeof x);
    if (x > 1.4142135623730951) {
        x *= 0.5;
        e++;
    }
    return (double)e * 0.6931471805599453 + log_ratio((x - 1) / (x + 1));
}

double ntx_noise_of(const struct ntx_noise *n, int32_t token)
{
    uint32_t id = (uint32_t)token;
    uint64_t v = (uint64_t)ntx__noise_word(n->high, id) << 32 | ntx__noise_word(n->low, id);
    double x = ((double)(v >> 63 ? ~v : v) + 0.5) * 0x1p-64; /* the lesser of v and 1 - v, which loses no bits */
    return -ntx_noise_log(v >> 63 ? -ntx_noise_log(x) : log_ratio(x / (2 - x)));
}

struct ntx_noise_bar ntx_noise_bar(double least, float temp)
{
    double z = least * (double)temp, a = 1.4426950408889634 / (double)temp;
    struct ntx_noise_bar b = {.z = (float)fmax(fmin(z, FLT_MAX), -FLT_MAX), .a = (float)fmin(a, FLT_MAX)};
    b.slack = 0.01f + b.a * fabsf(b.z) * 0x1p-21f;
    return b;
}
