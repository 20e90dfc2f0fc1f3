/* SPDX-License-Identifier: Apache-2.0 */
/* train.h: teaches a network (model/mlp.h) from what a model was seen to do.
 *
 * Adam on binary cross entropy, in batches, from a seed. Threads share the work by hidden units (first layer, both
 * gradients) and by samples (second layer): each value is computed by one thread in one order, so the result does not
 * depend on how many there are. */
#ifndef NTX_PREDICTOR_LEARN_TRAIN_H
#define NTX_PREDICTOR_LEARN_TRAIN_H

#include "model/mlp.h"

struct ntx_train {
    const float *x;        /* [n x n_in], as the network sees it: (h - mean) * scale, clipped */
    const uint8_t *y;      /* [n x n_out] */
    const uint32_t *order; /* [n] samples that are learned from, by number */
    uint32_t n;            /* of them */
    uint32_t epochs, batch, threads;
    float rate; /* of learning, falling to nothing at the end */
    uint64_t seed;
    /* May be NULL: after each epoch, with the mean loss over it. Nonzero ends the training with that. */
    int (*progress)(void *ctx, uint32_t epoch, double loss);
    void *ctx;
};

/* Sets w1, b1, w2, b2 of s, whose sizes and arrays are there. -ENOMEM, or what progress said. */
int ntx_train_run(const struct ntx_train *t, const struct ntx_mlp_weights *s);

#endif
