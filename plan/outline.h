/* outline.h: a model as the cost model sees it: widths, and how many bytes of which type are multiplied for a token.
 *
 * From a GGUF's header (any architecture: only names and sizes of tensors are looked at), or by name for models that one does
 * not have: "llama-70b@q4_k_m". For those the types of the tensors follow the mixes of llama.cpp's quantiser. */
#ifndef NTX_PLAN_OUTLINE_H
#define NTX_PLAN_OUTLINE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"
#include "model/quant.h"

enum ntx_part {
    NTX_PART_DENSE,  /* read for every token: attention, dense FFN, routers, norms */
    NTX_PART_EXPERT, /* n_used of n_experts are read for a token */
    NTX_PART_HEAD,   /* the output matrix: once per row that asks for logits */
    NTX_PART_EMBED,  /* one row per token: neither resident nor streamed. Not counted when it is the output matrix, too */
    NTX_N_PARTS
};

struct ntx_outline {
    char name[96];
    uint32_t n_layers, n_embd, n_ff, n_vocab, n_head, n_head_kv, head_k, head_v, ctx_train;
    uint32_t n_recurrent;                            /* layers without K and V */
    uint64_t state_bytes;                            /* of a session, for those; half of it is read for a token, and half written */
    uint32_t latent;                                 /* values that a layer keeps of a position for all heads in place of K and V; 0: it keeps those */
    uint32_t n_experts, n_used, n_expert_layers;     /* 0, 0, 0 for a dense model; with experts n_ff is an expert's */
    uint64_t bytes[NTX_N_PARTS][NTX_TYPE_LIMIT];
    uint64_t kv_values;                              /* of one token, where layers differ in their heads, or some keep none; 0: as the widths above say */
    uint64_t n_matrices;                             /* of the layers and the head */
    uint64_t layer_min, layer_max;                   /* bytes of the smallest and the largest layer */
};

uint64_t ntx_outline_bytes(const struct ntx_outline *o, enum ntx_part part);
uint64_t ntx_outline_values(const struct ntx_outline *o, enum ntx_part part);  /* weights, not bytes */
uint64_t ntx_outline_model_bytes(const struct ntx_outline *o);                /* all parts but EMBED */
uint64_t ntx_outline_kv_values(const struct ntx_outline *o);                  /* of one token, all layers */

int ntx_outline_gguf(const struct ntx_gguf *g, const char *name, struct ntx_outline *out, struct ntx_err *err);

/* "MODEL@TYPE". -ENOENT with the nearest name that there is. */
int ntx_outline_named(const char *name, struct ntx_outline *out, struct ntx_err *err);
/* The i-th of the names before and behind the '@', NULL at their end. */
const char *ntx_outline_model(size_t i);
const char *ntx_outline_type(size_t i);
/* What a word that is no file's name, and has no '@', may have meant: the nearest model, where one is near; else NULL. */
const char *ntx_outline_nearest(const char *word);

/* The same model with every matrix of more bits in Q4_K, the output matrix in Q6_K, as Q4_K_M has them (but for the layers that it gives more). */
void ntx_outline_smaller(const struct ntx_outline *o, struct ntx_outline *out);

#endif
