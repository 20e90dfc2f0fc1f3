/* SPDX-License-Identifier: Apache-2.0 */
/* noise.h: Gumbel noise, which is added to logits before the largest is taken, so that the draw follows the softmax
 * (Gumbel, "Statistical theory of extreme values", 1954; "the Gumbel-max trick"). It depends only on seed, position and
 * token id. So code that knows the seed can predict the draw from other logits, in any order and repeatedly; drafters
 * do.
 *
 * Bits are the same on every machine: integers and IEEE operations in a fixed order, no libm. For each token two words
 * of 32 bits are hashed from the keys of the position (the finalizer of 2022 that C. Wellons' hash-prospector found,
 * with a key between its two products). Together they are v, uniform in (0, 1); the noise is -log(-log(1 - v)), to
 * about 1e-13. */
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
double ntx_noise_log(double x); /* the same on every machine; x must be normal and above 0 */

/* ---- a cheap vectorisable test for tokens that cannot win */

/* The bound: x = logit / temp + noise may reach `least` only if (logit - least * temp) / temp >= log2(v), in units of
 * log2, since noise <= -log(v). `slack` covers rounding. */
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

/* Uses a lower bound of log2 of v's first 24 bits: exponent and mantissa, the mantissa taken for its logarithm. */
static inline bool ntx_noise_may_reach(const struct ntx_noise *n, const struct ntx_noise_bar *b, float logit,
                                       uint32_t token)
{
    float v = (float)(int32_t)(ntx__noise_word(n->high, token) >> 8);
    int32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (logit - b->z) * b->a + b->slack >= (float)bits * 0x1p-23f - 151;
}

#endif
