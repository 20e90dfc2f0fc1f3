/* SPDX-License-Identifier: Apache-2.0 */
/* learn.h: from what a model was seen to do with a text to what goes into a sidecar.
 *
 *   samples -> labels -> training (train.h) -> threshold, limits, order
 *   layers.c  which layers may be skipped ffn.c which groups of neurons will be active, or, with order.c, which neurons
 *             are so together
 *   net.c     a network from samples, for both
 *
 * A part of the samples is held out of the training, and judges the result. */
#ifndef NTX_PREDICTOR_LEARN_LEARN_H
#define NTX_PREDICTOR_LEARN_LEARN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "predictor/sidecar.h"

struct ntx_samples { /* a token each, in the order of the text */
    uint32_t n, room, n_embd, n_layers;
    float *x;       /* [n x n_embd] the state at the probe; later as the network sees it */
    float *similar; /* [n x 3 x n_layers] whole layer, attention, FFN */
    uint8_t *y;     /* [n x outputs] 1: alike enough to be skipped */
    float *p;       /* [n x outputs] the network's logits */
};

struct ntx_learning {
    float share;       /* of (token, layer) that count as alike enough */
    float precision;   /* wanted of the threshold */
    float ffn_active;  /* of neurons, or of their groups, that count as active at most */
    float ffn_recall;  /* of the active groups, wanted of the limit */
    uint32_t ffn_rank; /* hidden units of a layer's network */
    uint32_t epochs, threads;
    uint64_t seed;
    bool tell; /* progress on stderr */
};

static inline bool ntx_sample_held_out(uint32_t i)
{
    return i / 64 % 5 == 4;
} /* stretches of text, not scattered tokens: neighbours are alike */

void ntx_samples_free(struct ntx_samples *samples);

/* ---- net.c: a network from n samples x [n x n_in] */
void ntx_learn_standardize(const struct ntx_mlp_weights *net, float *x,
                           uint32_t n); /* sets mean and scale; x becomes what the network sees */
/* y: [n x n_out]; learns from those that are not held out. */
int ntx_learn_train(const struct ntx_learning *l, const float *x, const uint8_t *y, uint32_t n,
                    int (*progress)(void *ctx, uint32_t epoch, double loss), const struct ntx_mlp_weights *net);
int ntx_learn_ask(const struct ntx_mlp_weights *net, const float *x, uint32_t n,
                  float *logits); /* of standardised samples, as at run time; [n x n_out] */

/* Fills everything of s but `model`; s->n_layers, n_embd, n_hidden, first and last are set and its arrays made. Changes
 * samples->x. */
int ntx_learn_layers(struct ntx_samples *samples, const struct ntx_learning *l, struct ntx_sidecar *s,
                     struct ntx_err *err);

/* ---- what the FFNs do */
struct ntx_ffn_score {                   /* of a layer, on what was held out */
    double active;                       /* share of units that are */
    double predicted, precision, recall; /* at the limit that is written: share of groups, and of those */
    double
        top; /* of the share `active` of a token's groups that did most, those among as many that were predicted to */
    double before[3], after[3]; /* shares of groups of 4, 8 and 16 neurons that a token uses: in the model's order, and
                                   in the one learned */
};
struct ntx_ffn_capture {
    uint32_t n_layers, n_embd, n_ff;
    uint32_t units[NTX_MAX_LAYERS]; /* groups of a packed model, or neurons */
    bool packed;
    uint32_t at_once; /* layers looked at in one reading of the text */
    struct ntx_ffn_learned learned;
    struct ntx_ffn_score *score; /* [n_layers] */
};
/* Of one layer, from n tokens: x [n x n_embd], which changes, and energy [n x its units]. Fills learned and score of
 * it. */
int ntx_learn_ffn(struct ntx_ffn_capture *f, uint32_t layer, float *x, const float *energy, uint32_t n,
                  const struct ntx_learning *l);
/* Value above which the share `share` of n values lies; never below 0, which is never active. Changes v's order. */
float ntx_learn_level(float *v, size_t n, float share);
/* energy: [n_tokens x n] of one layer; fills order [n] from what is not held out, and before and after of the score
 * from what is. -ENOMEM. */
int ntx_learn_order(const float *energy, uint32_t n_tokens, uint32_t n, float level, uint32_t *order,
                    struct ntx_ffn_score *score);

#endif
