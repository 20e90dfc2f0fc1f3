/* SPDX-License-Identifier: Apache-2.0 */
/* noise.h: the noise that a token's logit gets before the largest is taken, so that the draw has the law of the softmax
 * (Gumbel, "Statistical theory of extreme values", 1954; "the Gumbel-max trick"). It is a function of (seed, position,
 * token id) and of nothing else: whoever knows the seed can tell what would be drawn from other logits, in any order,
 * and as often as it likes. A drafter does.
 *
 * Bits are the same on every machine: integers and IEEE operations in a fixed order, no function of libm. Per token two
 * words of 32 bits are hashed from the keys of the position (finalizer of 2022 found by C. Wellons' hash-prospector, a
 * key between its two products); together they are v, uniform in (0, 1), and the noise is -log(-log(1 - v)), to about
 * 1e-13. */
#ifndef NTX_COMPUTED_SAMPLE_NOISE_H
#define NTX_COMPUTED_SAMPLE_NOISE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct ntx_noise { /* of one position */
    uint32_t high[2], low[2];
};

struct ntx_noise ntx_noise_at(uint64_t seed, uint64_t position);
double ntx_noise_of(const struct ntx_noise *n, int32_t token);
double ntx_noise_log(double x); /* the same on every machine; of a normal number above 0 */

/* ---- which tokens cannot win, in few operations, many at once */

/* x = logit / temp + noise may reach `least` where, in units of log2, (logit - least * temp) / temp >= log2(v): noise
 * <= -log(v). `slack` covers rounding. */
struct ntx_noise_bar {
    float z, a, slack;
};
struct ntx_noise_bar ntx_noise_bar(double least, float temp);

static inline uint32_t ntx__noise_word(const uint32_t key[2], uint32_t token)
{
    uint32_t x = token + key[0];
    x = (x ^ x >> 16) * 0x21f0aaadu;
    x = (x ^ x >> 15 ^ key[1]) * 0x735a2d97u;
    return x ^ x >> 15;
}

/* log2 of v's first 24 bits from below: exponent, and mantissa taken for its own logarithm. */
static inline bool ntx_noise_may_reach(const struct ntx_noise *n, const struct ntx_noise_bar *b, float logit,
                                       uint32_t token)
{
    float v = (float)(int32_t)(ntx__noise_word(n->high, token) >> 8);
    int32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (logit - b->z) * b->a + b->slack >= (float)bits * 0x1p-23f - 151;
}

#endif
