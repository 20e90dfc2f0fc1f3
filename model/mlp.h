/* SPDX-License-Identifier: Apache-2.0 */
/* mlp.h: two-layer networks that predict (which layers a token may skip, which groups of neurons it uses), in their
 * quantised form: first-layer weights have 8 bits and one scale per hidden unit.
 *
 *   q = round(32 x) clipped to +-127, x = (h - mean) * scale           so +-4 standard deviations
 *   z = relu(q . w1 * (scale of the unit / 32) + b1)                   the product in exact integers
 *   logit = w2 z + b2                                                  floats, added in the order of the units
 *
 * All sums are exact or have a fixed order, so every instruction set gives the same bits: a decision does not depend
 * on the machine. 8192 x 256 weights are 2 MiB. A network is immutable; any thread may use it with its own scratch. */
#ifndef NTX_MODEL_MLP_H
#define NTX_MODEL_MLP_H

#include <stdint.h>

#define NTX_MLP_STEPS 32.0f /* steps of q in one standard deviation */

struct ntx_mlp_weights { /* in floats, as learned */
    uint32_t n_in, n_hidden, n_out;
    float *mean, *scale; /* [n_in] */
    float *w1, *b1;      /* [n_hidden x n_in], [n_hidden] */
    float *w2, *b2;      /* [n_out x n_hidden], [n_out] */
};

struct ntx_mlp;

/* Makes a network from n, which is copied. kernel: "generic", "avx2", "avx512"; NULL: the best of this CPU.
 * -ENOTSUP: the CPU lacks it. */
int ntx_mlp_new(const struct ntx_mlp_weights *n, const char *kernel, struct ntx_mlp **out);
void ntx_mlp_free(struct ntx_mlp *m);

const char *ntx_mlp_kernel(const struct ntx_mlp *m);
uint64_t ntx_mlp_scratch(const struct ntx_mlp *m);                        /* scratch of one call, in bytes */
uint64_t ntx_mlp_bytes(uint32_t n_in, uint32_t n_hidden, uint32_t n_out); /* approximate memory of a network */

/* hidden: [n_in]; logits: [n_out]. NaN and infinity in hidden are clipped like any other value. */
void ntx_mlp_logits(const struct ntx_mlp *m, const float *hidden, void *scratch, float *logits);

/* Quantises one normalised value: round(32 x), -127..127. */
int8_t ntx_mlp_quantize(float x);

#endif
