/* SPDX-License-Identifier: Apache-2.0 */
/* sketch.h: the header of a GGUF that does not exist, so that a model of which only the published numbers are known, or
 * another type of a model, is planned like a file. Offsets and sizes are those that the file would have. */
#ifndef NTX_COMPUTED_PLAN_SKETCH_H
#define NTX_COMPUTED_PLAN_SKETCH_H

#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

/* keys: "block_count=32 embedding_length=4096 vocab_size=32000 ...", without the architecture before each (a key that
 * has none begins with '/'): whole numbers, "1.0", or lists: up to four numbers, "11,11,10,0"; or a number for each
 * layer, repeated: "8x5,2" is 8, 8, 8, 8, 8, 2, 8, ... Tensors: those that the architecture's layers always have
 * (model/arch.h), all floats. has: names of tensors by whose presence the architecture recognises others, comma
 * separated; "": none. */
int ntx_sketch_make(const char *arch, const char *keys, const char *has, struct ntx_gguf **out, struct ntx_err *err);

/* The same with type[i] for tensor i. */
int ntx_sketch_retype(const struct ntx_gguf *g, const uint32_t *type, struct ntx_gguf **out, struct ntx_err *err);

#endif
