/* SPDX-License-Identifier: Apache-2.0 */
/* learn.h: makes the content of a sidecar from samples of a model's behaviour.
 *
 *   samples -> labels -> training (train.h) -> limits, order
 *
 *   layers.c  which layers may be skipped
 *   ffn.c     packed model: which groups of neurons will be active; else (order.c): which neurons are active together
 *   net.c     trains a network from samples, for both
 *
 * A part of the samples is held out of the training, and measures the result. */
#ifndef NTX_PREDICTOR_LEARN_LEARN_H
#define NTX_PREDICTOR_LEARN_LEARN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "predictor/sidecar.h"

struct ntx_samples { /* one for each token, in the order of the text */
    uint32_t n, room, n_embd, n_layers;
    float *x;       /* the state at the probe; later standardised */
    float *similar; /* [n x 3 x n_layers] whole layer, attention, FFN */
    uint8_t *y;     /* 1: similar enough to be skipped */
    float *p;       /* [n x outputs] the network's logits */
};

struct ntx_learning {
    float share;       /* share of (token, layer) pairs that count as similar enough */
    float ffn_active;  /* share of neurons, or of groups, that count as active at most */
    float ffn_recall;  /* share of the active groups that the limit must find */
    uint32_t ffn_rank; /* hidden units of a layer's network */
    uint32_t epochs, threads;
    uint64_t seed;
    bool tell; /* show progress on stderr */
};

/* Runs of tokens are held out, not single ones, since neighbours are similar. */
static inline bool ntx_sample_held_out(uint32_t i) { return i / 64 % 5 == 4; }

void ntx_samples_free(struct ntx_samples *samples);

/* ---- net.c: a network from n samples x [n x n_in] */
/* Sets the network's mean and scale; x becomes the network's standardised input. */
void ntx_learn_standardize(const struct ntx_mlp_weights *net, float *x, uint32_t n);
/* y: [n x n_out]. Trains on the samples that are not held out. */
int ntx_learn_train(const struct ntx_learning *l, const float *x, const uint8_t *y, uint32_t n,
                    int (*progress)(void *ctx, uint32_t epoch, double loss), const struct ntx_mlp_weights *net);
/* Logits [n x n_out] of standardised samples, computed as at run time. */
int ntx_learn_logits(const struct ntx_mlp_weights *net, const float *x, uint32_t n, float *logits);

/* Fills all of s but `model` and `threshold`. The caller has set s->n_layers, n_embd, n_hidden, first and last, and
 * made its arrays. Changes samples->x. */
int ntx_learn_layers(struct ntx_samples *samples, const struct ntx_learning *l, struct ntx_sidecar *s,
                     struct ntx_err *err);

/* ---- FFNs */
/* Score of a layer on the held-out samples. */
struct ntx_ffn_score {
    double active;            /* share of active units */
    double predicted;         /* share of groups that are predicted at the written limit */
    double precision, recall; /* of these predictions */
    /* Of the most active groups of a token (the share `active`), the share that is among as many predicted ones. */
    double top;
    /* Share of groups of 4, 8 and 16 neurons that a token uses, in the model's order and in the learned one. */
    double before[3], after[3];
};
struct ntx_ffn_capture {
    uint32_t n_layers, n_embd, n_ff;
    uint32_t units[NTX_MAX_LAYERS]; /* groups of a packed model, or neurons of another */
    bool packed;
    uint32_t at_once; /* layers that one pass over the text captures */
    struct ntx_ffn_learned learned;
    struct ntx_ffn_score *score; /* [n_layers] */
};
/* Learns one layer from n tokens: x [n x n_embd], which changes, and energy [n x its units]. Fills the layer's entries
 * of learned and score. */
int ntx_learn_ffn(struct ntx_ffn_capture *f, uint32_t layer, float *x, const float *energy, uint32_t n,
                  const struct ntx_learning *l);
/* The value above which the share `share` of n values lies; at least 0, since 0 is never active. Reorders v. */
float ntx_learn_level(float *v, size_t n, float share);
/* energy: [n_tokens x n] of one layer. Fills order [n] from the training samples, and the score's before and after from
 * the held-out ones. -ENOMEM. */
int ntx_learn_order(const float *energy, uint32_t n_tokens, uint32_t n, float level, uint32_t *order,
                    struct ntx_ffn_score *score);

#endif
