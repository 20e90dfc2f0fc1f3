/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.h: the result of `ntx calibrate` for one model, as a GGUF with its own keys: which layers may be skipped, the
 * similarity of their inputs and outputs, and the MLP that predicts it.
 *
 *   keys      ntx.skip.version 1, .model (digest, model/digest.h), .layers, .embd, .hidden, .first, .last, .threshold,
 *             .similarity, .tokens; arrays per layer: .mean, .sd (of the cosine of input and output), .rate (share of
 *             tokens for which they are alike)
 *   tensors   mean, scale [embd]; w1 [hidden x embd], b1 [hidden]; w2 [outputs x hidden], b2 [outputs];
 *             outputs = last - first + 1
 *
 *   x = (h - mean) * scale;  p = sigmoid(w2 relu(w1 x + b1) + b2);  layer first + i may be skipped if p[i] >= threshold
 *
 * The same file may hold what was learned of FFNs (model/ffn_learned.h), which ntx-computed and `ntx pack` read.
 *
 * The hidden state h is that after layer first - 1, the last one that is never skipped. A sidecar may hold anything:
 * ntx_sidecar_read checks every key, shape and value before it returns, and refuses a sidecar of another model. */
#ifndef NTX_PREDICTOR_SIDECAR_H
#define NTX_PREDICTOR_SIDECAR_H

#include <stdint.h>

#include "common/err.h"
#include "model/digest.h"
#include "model/ffn_learned.h"
#include "model/mlp.h"

#define NTX_SIDECAR_HIDDEN_MAX 4096
#define NTX_SIDECAR_EMBD_MAX   65536

struct ntx_sidecar {
    char model[NTX_DIGEST_TEXT];
    uint32_t n_layers, n_embd, n_hidden, first, last; /* 1 <= first <= last < n_layers */
    uint32_t n_tokens;                                /* learned from */
    float threshold;                                  /* selected by the calibration, 0..1 */
    float similarity;                                 /* cosine from which a layer counts as one that may be skipped */
    float *mean, *sd, *rate;                          /* [n_layers] */
    float *in_mean, *in_scale;                        /* [n_embd] */
    float *w1, *b1;                                   /* [n_hidden x n_embd], [n_hidden] */
    float *w2, *b2;                                   /* [outputs x n_hidden], [outputs] */
    const struct ntx_ffn_learned *ffn;                /* NULL: none; borrowed, used for writing only */
};

static inline uint32_t ntx_sidecar_outputs(const struct ntx_sidecar *s) { return s->last - s->first + 1; }

/* The sidecar's network, by reference. */
static inline struct ntx_mlp_weights ntx_sidecar_net(const struct ntx_sidecar *s)
{
    return (struct ntx_mlp_weights){
        s->n_embd, s->n_hidden, ntx_sidecar_outputs(s), s->in_mean, s->in_scale, s->w1, s->b1, s->w2, s->b2};
}

/* Makes the arrays, all zero. The caller has set n_layers, n_embd, n_hidden, first and last. -ENOMEM. */
int ntx_sidecar_alloc(struct ntx_sidecar *s);
void ntx_sidecar_free(struct ntx_sidecar *s); /* frees the arrays; accepts a zeroed sidecar */

/* model: the digest that it must have; NULL: any. fd stays the caller's. */
int ntx_sidecar_read(int fd, const char *model, struct ntx_sidecar *out, struct ntx_err *err);
int ntx_sidecar_write(const struct ntx_sidecar *s, const char *path, struct ntx_err *err);

#endif
