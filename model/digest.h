/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h: which model is it? 128 bits over names, types and shapes of all tensors and a sample of their bytes (4 KiB
 * out of each of at most 64 tensors, spread over the list): enough to tell a fine-tuned, requantised or merged model
 * from its parent, cheap for any size. Of a machine's share (share_file.h): the whole model's, as the file says. Not a
 * defence against somebody who wants two models to look alike. */
#ifndef NTX_MODEL_DIGEST_H
#define NTX_MODEL_DIGEST_H

#include "model/gguf.h"

#define NTX_DIGEST_TEXT 33 /* 32 hex digits and the end */

/* fds: the parts in order, as ntx_gguf_open took them; reads are aligned, so O_DIRECT descriptors are fine. */
int ntx_model_digest(const struct ntx_gguf *g, const int *fds, char out[NTX_DIGEST_TEXT], struct ntx_err *err);

/* Of the keys of the model's architecture (context, rotation, experts used, ...): who changes one computes other values
 * with the same weights. 0 where it names no architecture. */
uint64_t ntx_model_keys(const struct ntx_gguf *g);

/* By parts, each whatever its tensors' order: norms (names, types, all bytes), which quantising leaves as they are; and
 * names and types of all other tensors, which it changes. */
struct ntx_digest_parts {
    char norms[NTX_DIGEST_TEXT], types[NTX_DIGEST_TEXT];
};
int ntx_model_digest_parts(const struct ntx_gguf *g, const int *fds, struct ntx_digest_parts *out, struct ntx_err *err);

/* -EINVAL: an adapter (gguf.h) says by its keys ntx.delta.of... (layer_delta.h) that it was made of another model than
 * this one, and this is no quantised copy of that one. Adapters without these keys fit any of their shapes. n_files:
 * with the adapters', which come last; names: theirs. */
int ntx_adapters_fit(const struct ntx_gguf *g, const int *fds, unsigned n_files, char *const *names,
                     struct ntx_err *err);

#endif
