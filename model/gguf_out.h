/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_out.h: writes GGUF files (version 3): sidecars, packed models.
 *
 * Keys are built in memory. A tensor's values are borrowed, or a callback writes them, tensor after tensor. The file
 * gets its name only when all of it is on the drive (common/new_file.h), so that no reader meets half a file.
 * Running out of memory is remembered and reported by ntx_gguf_out_write. Not thread-safe. */
#ifndef NTX_MODEL_GGUF_OUT_H
#define NTX_MODEL_GGUF_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

struct ntx_gguf_out;

struct ntx_gguf_out *ntx_gguf_out_new(void); /* NULL: no memory */
void ntx_gguf_out_free(struct ntx_gguf_out *g);

void ntx_gguf_out_u32(struct ntx_gguf_out *g, const char *key, uint32_t v);
void ntx_gguf_out_bool(struct ntx_gguf_out *g, const char *key, bool v);
void ntx_gguf_out_f32(struct ntx_gguf_out *g, const char *key, float v);
void ntx_gguf_out_str(struct ntx_gguf_out *g, const char *key, const char *v);
void ntx_gguf_out_f32s(struct ntx_gguf_out *g, const char *key, const float *v, size_t n);

void ntx_gguf_out_u32s(struct ntx_gguf_out *g, const char *key, const uint32_t *v, size_t n);
/* general.alignment also aligns the tensors, as ntx_gguf_out_align does. */
void ntx_gguf_out_copy(struct ntx_gguf_out *g, const struct ntx_gguf_kv *kv);
/* Aligns tensors to multiples of `bytes`, a power of two (default 32). Call it at most once, before the first
 * tensor. */
void ntx_gguf_out_align(struct ntx_gguf_out *g, uint32_t bytes);

/* F32 values [ne1 x ne0], borrowed until written; ne1 0: a vector of ne0. */
void ntx_gguf_out_tensor(struct ntx_gguf_out *g, const char *name, const float *values, uint64_t ne0, uint64_t ne1);

/* Adds a tensor of any type. `write` is called with the file when its turn has come, and must write exactly the
 * bytes of the tensor. ctx is borrowed. */
typedef int ntx_gguf_write_fn(void *ctx, uint32_t tensor, int fd, struct ntx_err *err);
void ntx_gguf_out_data(struct ntx_gguf_out *g, const char *name, uint32_t type, const uint64_t ne[4], uint32_t n_dims,
                       ntx_gguf_write_fn *write, void *ctx, uint32_t tensor);

int ntx_gguf_out_write(const struct ntx_gguf_out *g, const char *path, struct ntx_err *err);

/* ntx_gguf_out_write_fd writes into an open, empty file, for callers that name files themselves; the data is on the
 * drive when it returns. err: set if the writer of a tensor set it. ntx_gguf_out_bytes: the size of the file; 0: no
 * memory. */
int ntx_gguf_out_write_fd(const struct ntx_gguf_out *g, int fd, struct ntx_err *err);
uint64_t ntx_gguf_out_bytes(const struct ntx_gguf_out *g);

/* Everything before the tensors' values, malloc'd. NULL: no memory. */
void *ntx_gguf_out_header(const struct ntx_gguf_out *g, size_t *n);

#endif
