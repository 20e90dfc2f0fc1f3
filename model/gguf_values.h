/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_values.h: values out of a sidecar, which is somebody else's bytes: of the expected shape, and all of them
 * numbers, or refused with what was wrong. `what` names the file in the words of the message: "the skip sidecar". */
#ifndef NTX_MODEL_GGUF_VALUES_H
#define NTX_MODEL_GGUF_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

/* An array of n floats, or of n integers. */
int ntx_gguf_take_f32s(const struct ntx_gguf *g, const char *what, const char *key, float *v, uint32_t n,
                       struct ntx_err *err);
int ntx_gguf_take_u32s(const struct ntx_gguf *g, const char *what, const char *key, uint32_t *v, uint32_t n,
                       struct ntx_err *err);
int ntx_gguf_take_u32(const struct ntx_gguf *g, const char *what, const char *key, uint32_t lo, uint32_t hi,
                      uint32_t *v, struct ntx_err *err);
/* An F32 tensor [rows x width], read from fd; rows 0: a vector. */
int ntx_gguf_take_tensor(const struct ntx_gguf *g, int fd, const char *what, const char *name, float *v, uint32_t width,
                         uint32_t rows, struct ntx_err *err);
/* Key is the digest `model` (model/digest.h); NULL: any digest. out [NTX_DIGEST_TEXT] without its end. */
int ntx_gguf_take_digest(const struct ntx_gguf *g, const char *what, const char *key, const char *model, char *out,
                         struct ntx_err *err);

#endif
