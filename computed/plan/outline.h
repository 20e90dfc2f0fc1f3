/* SPDX-License-Identifier: Apache-2.0 */
/* outline.h: a model as `ntx plan` sees it, without its weights: what the planner places (model/arch.h), and the bytes
 * of each type.
 *
 * From a GGUF's header, or by name for models without a file: "llama-70b@q4_k_m" (computed/plan/sketch.h). Of an
 * architecture that ntx does not compute only names and sizes of tensors are used; `why` says so, and its plan is an
 * estimate. */
#ifndef NTX_COMPUTED_PLAN_OUTLINE_H
#define NTX_COMPUTED_PLAN_OUTLINE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/arch.h"
#include "model/mix.h"
#include "model/quant.h"

enum ntx_part {
    NTX_PART_DENSE,  /* read for every token: attention, dense FFN, routers, norms */
    NTX_PART_EXPERT, /* n_expert_used of n_expert are read for a token */
    NTX_PART_HEAD,   /* the output matrix: once per row with logits */
    /* One row per token: neither resident nor streamed. Not counted if it is also the output matrix. */
    NTX_PART_EMBED,
    NTX_N_PARTS
};

struct ntx_outline {
    char name[96];
    struct ntx_gguf *own; /* NULL: the header is the caller's, who keeps it */
    struct ntx_model *model;
    /* memory of that header and of the tokenizer, beside the model; an estimate for models by name */
    uint64_t held_bytes;
    char why[240]; /* why ntx does not compute it; "": it does */
    uint64_t bytes[NTX_N_PARTS][NTX_TYPE_LIMIT];
};

uint64_t ntx_outline_bytes(const struct ntx_outline *o, enum ntx_part part);
uint64_t ntx_outline_values(const struct ntx_outline *o, enum ntx_part part); /* weights, not bytes */
uint64_t ntx_outline_model_bytes(const struct ntx_outline *o);                /* all parts but EMBED */
uint64_t ntx_outline_kv_values(const struct ntx_outline *o);                  /* of one token, all layers */

/* g is borrowed. */
int ntx_outline_gguf(const struct ntx_gguf *g, const char *name, struct ntx_outline *out, struct ntx_err *err);
void ntx_outline_free(struct ntx_outline *o);

/* "MODEL@TYPE"; without "@TYPE" q4_k_m, or what the model's rows allow. -ENOENT with the nearest known name. */
int ntx_outline_named(const char *name, struct ntx_outline *out, struct ntx_err *err);
/* The i-th of the names before and after the '@'; NULL after the last. */
const char *ntx_outline_model(size_t i);
const char *ntx_outline_type(size_t i);
/* The model nearest to a word that is neither a file's name nor has an '@'; NULL: none is near. */
const char *ntx_outline_nearest(const char *word);

/* The same model in the types of a mix. smaller: except tensors that already have fewer bits. *n_other as in
 * ntx_mix_choose. */
int ntx_outline_retyped(const struct ntx_gguf *g, const struct ntx_mix *mix, bool smaller, const char *name,
                        uint32_t *n_other, struct ntx_outline *out, struct ntx_err *err);

#endif
