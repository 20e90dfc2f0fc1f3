/* SPDX-License-Identifier: Apache-2.0 */
/* surprise.h: filters by surprise, -log of a token's probability.
 *
 *   typical    tokens whose surprise is nearest to the mean (Meister and others, "Locally typical sampling", 2022)
 *   mirostat   a bound on surprise that follows the text, so that its mean is tau bits (Basu and others, "Mirostat",
 *              2021): version 1 bounds by rank, through an estimate of the distribution's tail; version 2 directly
 *
 * Values are those of llama.cpp's samplers. Bits are the same on every machine: no libm. Pure. */
#ifndef NTX_COMPUTED_SAMPLE_SURPRISE_H
#define NTX_COMPUTED_SAMPLE_SURPRISE_H

#include <stdint.h>

struct ntx_weighed { /* a token */
    int32_t id;
    uint32_t mass; /* e^-below in units of 2^-30, at least 1 */
    double below;  /* (best logit - its logit) / temperature */
};

/* Both order w[0..n), n >= 1, and return how many of the first stay, at least 1. share: of the probability, in (0, 1).
 * mu: the present bound, in bits; n_vocab: of all tokens. */
uint32_t ntx_typical_keep(struct ntx_weighed *w, uint32_t n, double share);
uint32_t ntx_mirostat_keep(struct ntx_weighed *w, uint32_t n, uint32_t version, double mu, uint32_t n_vocab);

/* The bound after a token of this mass was drawn from tokens of mass `of` in all. */
double ntx_mirostat_next(double mu, double tau, double eta, uint32_t mass, uint64_t of);

#endif
