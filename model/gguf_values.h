/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_values.h: reads values of a sidecar, whose bytes are not trusted: a value has the expected shape and only
 * finite numbers, or it is refused with the reason. `what` names the file in messages: "the skip sidecar". */
#ifndef NTX_MODEL_GGUF_VALUES_H
#define NTX_MODEL_GGUF_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

/* Reads an array of n floats, or of n integers. */
int ntx_gguf_take_f32s(const struct ntx_gguf *g, const char *what, const char *key, float *v, uint32_t n,
                       struct ntx_err *err);
int ntx_gguf_take_u32s(const struct ntx_gguf *g, const char *what, const char *key, uint32_t *v, uint32_t n,
                       struct ntx_err *err);
int ntx_gguf_take_u32(const struct ntx_gguf *g, const char *what, const char *key, uint32_t lo, uint32_t hi,
                      uint32_t *v, struct ntx_err *err);
/* Reads an F32 tensor [rows x width] from fd; rows 0: a vector. */
int ntx_gguf_take_tensor(const struct ntx_gguf *g, int fd, const char *what, const char *name, float *v, uint32_t width,
                         uint32_t rows, struct ntx_err *err);
/* Checks that the key is the digest `model` (model/digest.h); NULL: any digest. out: [NTX_DIGEST_TEXT], without the
 * final 0. */
int ntx_gguf_take_digest(const struct ntx_gguf *g, const char *what, const char *key, const char *model, char *out,
                         struct ntx_err *err);

#endif
