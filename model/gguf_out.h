/* gguf_out.h: writes small GGUF files (version 3): keys, and tensors of F32. For what ntx itself makes, such as sidecars.
 *
 * Build in memory, then write: the file appears under its name only when all of it is on the drive (a temporary
 * file beside it is renamed), so that a reader never meets half a file. Running out of memory on the way is remembered and
 * reported by ntx_gguf_out_write. One thread. */
#ifndef NTX_MODEL_GGUF_OUT_H
#define NTX_MODEL_GGUF_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_gguf_out;

struct ntx_gguf_out *ntx_gguf_out_new(void); /* NULL: no memory */
void ntx_gguf_out_free(struct ntx_gguf_out *g);

void ntx_gguf_out_u32(struct ntx_gguf_out *g, const char *key, uint32_t v);
void ntx_gguf_out_f32(struct ntx_gguf_out *g, const char *key, float v);
void ntx_gguf_out_str(struct ntx_gguf_out *g, const char *key, const char *v);
void ntx_gguf_out_f32s(struct ntx_gguf_out *g, const char *key, const float *v, size_t n);

/* values [ne1 x ne0], borrowed until written; ne1 0: a vector of ne0. */
void ntx_gguf_out_tensor(struct ntx_gguf_out *g, const char *name, const float *values, uint64_t ne0, uint64_t ne1);

int ntx_gguf_out_write(const struct ntx_gguf_out *g, const char *path, struct ntx_err *err);

#endif
