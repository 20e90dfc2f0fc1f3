/* SPDX-License-Identifier: Apache-2.0 */
/* mix.h: which tensor of a model becomes which type, by the names that files go by (Q4_K_M, IQ3_XS, ...): the same
 * choices that llama.cpp's quantiser makes, so that a name means the same wherever a file was made. A mix is a type for
 * most matrices, and rules for those that deserve another one. */
#ifndef NTX_MODEL_MIX_H
#define NTX_MODEL_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

struct ntx_mix;

/* NULL: there is none of that name (case does not matter). */
const struct ntx_mix *ntx_mix_named(const char *name);
uint32_t ntx_mix_file_type(const struct ntx_mix *m); /* general.file_type */
/* "Q4_0, Q4_1, ...": all names, for messages and --help. Returns how many bytes it would take. */
int ntx_mix_names(char *buf, size_t n);

/* The type called `name`, that can be written; NTX_TYPE_LIMIT: none. */
uint32_t ntx_writable_type(const char *name);

/* What a mix looks at, besides the tensor. */
struct ntx_mix_model {
    uint32_t n_layers, n_expert, n_gqa; /* n_gqa: heads for each of K and V */
    bool seventy;                       /* llama's 80 layers */
    bool importance;                    /* there is an importance matrix */
};
struct ntx_mix_model ntx_mix_model_of(const struct ntx_gguf *g, bool importance);

/* A matrix whose precision a quantiser may lower: not norms, routers, biases and other small ones. */
bool ntx_mix_allows(const struct ntx_gguf *g, const struct ntx_gguf_tensor *t);

/* Types of all tensors, type[i] of tensor i of g. given[i]: a type that was asked for, or NTX_TYPE_LIMIT. pure: no
 * rules. *n_other: matrices whose inputs do not divide into the type's blocks, and which therefore have another. */
int ntx_mix_choose(const struct ntx_mix *m, const struct ntx_gguf *g, const struct ntx_mix_model *of, bool pure,
                   const uint32_t *given, uint32_t *type, uint32_t *n_other, struct ntx_err *err);

/* The type for n inputs that is next to one into whose blocks they do not divide. */
uint32_t ntx_mix_for_inputs(uint32_t type, uint64_t n);

/* A tensor of that type is of little worth without an importance matrix. */
bool ntx_mix_needs_importance(const struct ntx_mix *m, const char *name, uint32_t type);

/* A tensor of a block behind the layers, which predicts tokens: what runs a text does not run it. */
bool ntx_mix_is_nextn(const struct ntx_gguf *g, const char *name);

#endif
