/* SPDX-License-Identifier: Apache-2.0 */
/* mix.h: quantization mixes: the type of each tensor by the names that files go by (Q4_K_M, IQ3_XS, ...). They make
 * the same choices as llama.cpp's quantiser, so that a name means the same wherever a file was made. A mix has one
 * type for most matrices, and rules for those that need another. */
#ifndef NTX_MODEL_MIX_H
#define NTX_MODEL_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

struct ntx_mix;

/* A mix by name, whose case does not matter. NULL: unknown. */
const struct ntx_mix *ntx_mix_named(const char *name);
uint32_t ntx_mix_file_type(const struct ntx_mix *m); /* general.file_type */
/* Returns the length, as snprintf does */
int ntx_mix_names(char *buf, size_t n);

/* A type by name that can be written; NTX_TYPE_LIMIT: none. */
uint32_t ntx_writable_type(const char *name);

/* Properties of the model that a mix uses. */
struct ntx_mix_model {
    uint32_t n_layers, n_expert, n_gqa; /* n_gqa: heads for each of K and V */
    bool seventy;                       /* a llama of 80 layers (70B) */
    bool importance;                    /* there is an importance matrix */
};
struct ntx_mix_model ntx_mix_model_of(const struct ntx_gguf *g, bool importance);

/* Quantization may change this tensor: it is not a norm, router, bias or other small one. */
bool ntx_mix_allows(const struct ntx_gguf *g, const struct ntx_gguf_tensor *t);

/* Chooses the types of all tensors: type[i] for tensor i of g. given[i]: a type that was asked for, or
 * NTX_TYPE_LIMIT. pure: without rules. *n_other: matrices that got another type because their matrix rows do not
 * divide into their blocks. */
int ntx_mix_choose(const struct ntx_mix *m, const struct ntx_gguf *g, const struct ntx_mix_model *of, bool pure,
                   const uint32_t *given, uint32_t *type, uint32_t *n_other, struct ntx_err *err);

/* The fallback for matrix rows of n values that do not divide into blocks of `type`. */
uint32_t ntx_mix_for_inputs(uint32_t type, uint64_t n);

/* A tensor of this type loses too much without an importance matrix. */
bool ntx_mix_needs_importance(const struct ntx_mix *m, const char *name, uint32_t type);

/* The tensor belongs to a next-token block (MTP), which most programs do not run. */
bool ntx_mix_is_nextn(const struct ntx_gguf *g, const char *name);

#endif
