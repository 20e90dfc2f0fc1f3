/* SPDX-License-Identifier: Apache-2.0 */
/* ffn_learned.h: what `ntx calibrate --ffn` learned of a model's dense FFNs; it stands in the sidecar beside the skip
 * predictor (predictor/sidecar.h).
 *
 * Of a packed model (pack.h), for --ffn-sparse predicted: per layer a network (mlp.h) of low rank, from the state that
 * the FFN of the layer before found to the groups of neurons that will be active.
 *   keys      ntx.ffn.version 1, .model (digest), .hidden; .groups [layers] u32, .limit [layers] f32: logits from which
 *             a group counts as active
 *   tensors   ffn.L.mean, .scale [embd]; .w1 [hidden x embd], .b1 [hidden]; .w2 [groups x hidden], .b2 [groups]
 * Of any other model, for `ntx pack --order`: neurons that are active together lie together.
 *   keys      ntx.ffn.version, .model; ntx.ffn.order.L [n_ff] u32: which neuron stands at each place
 */
#ifndef NTX_MODEL_FFN_LEARNED_H
#define NTX_MODEL_FFN_LEARNED_H

#include "model/arch.h"
#include "model/digest.h"
#include "model/gguf_out.h"
#include "model/mlp.h"

#define NTX_FFN_HIDDEN_MAX 4096u

/* Data that `ntx calibrate` learned, before it is written. */
struct ntx_ffn_learned {
    uint32_t n_layers, n_ff;
    struct ntx_mlp_weights *net; /* [n_layers], or NULL */
    float *limit;                /* [n_layers] */
    uint32_t *order;             /* [n_layers x n_ff], or NULL */
};

void ntx_ffn_learned_free(struct ntx_ffn_learned *f); /* frees the arrays, not f */
int ntx_mlp_weights_alloc(struct ntx_mlp_weights *n); /* allocates the arrays, filled with zeros, by the sizes in n.
                                                         -ENOMEM */
void ntx_mlp_weights_free(struct ntx_mlp_weights *n);

/* Adds keys and tensors of f to a sidecar. f is borrowed until the sidecar is written. model: the digest. */
void ntx_ffn_learned_put(const struct ntx_ffn_learned *f, const char *model, struct ntx_gguf_out *g);

/* The networks that a pass uses, read from a sidecar that must belong to m, whose digest is `model`. */
struct ntx_ffn_nets {
    uint32_t n_layers;
    struct ntx_mlp **mlp; /* [n_layers] */
    float *limit;         /* [n_layers] */
    uint64_t bytes;       /* approximate memory */
};
int ntx_ffn_nets_read(int fd, const struct ntx_model *m, const char *model, struct ntx_ffn_nets **out,
                      struct ntx_err *err);
void ntx_ffn_nets_free(struct ntx_ffn_nets *n);

/* *order: malloc'd [n_layers x n_ff]; each layer has every neuron exactly once. */
int ntx_ffn_order_read(int fd, const struct ntx_model *m, const char *model, uint32_t **order, struct ntx_err *err);

#endif
