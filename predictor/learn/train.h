/* SPDX-License-Identifier: Apache-2.0 */
/* train.h: trains a network (model/mlp.h).
 *
 * Adam on binary cross entropy, in batches, from a seed. Threads share the work by hidden units (first layer, both
 * gradients) and by samples (second layer): each value is computed by one thread in one order, so the result does not
 * depend on the number of threads. */
#ifndef NTX_PREDICTOR_LEARN_TRAIN_H
#define NTX_PREDICTOR_LEARN_TRAIN_H

#include "model/mlp.h"

struct ntx_train {
    const float *x;        /* [n x n_in] standardised input: (h - mean) * scale, clipped */
    const uint8_t *y;      /* [n x n_out] */
    const uint32_t *order; /* [n] numbers of the training samples */
    uint32_t n;            /* how many */
    uint32_t epochs, batch, threads;
    float rate; /* learning rate, which falls to 0 at the end */
    uint64_t seed;
    /* Called after each epoch with its mean loss; may be NULL. Nonzero ends the training with that value. */
    int (*progress)(void *ctx, uint32_t epoch, double loss);
    void *ctx;
};

/* Sets w1, b1, w2, b2 of s, whose sizes and arrays exist. -ENOMEM, or progress's value. */
int ntx_train_run(const struct ntx_train *t, const struct ntx_mlp_weights *s);

#endif
