/* SPDX-License-Identifier: Apache-2.0 */
/* digest.h: identifies a model by 128 bits over names, types and shapes of all tensors and a sample of their bytes
 * (4 KiB of each of at most 64 tensors, spread over the list).
 *
 * That tells a fine-tuned, requantised or merged model from its parent, and is cheap for any size. A machine's share
 * (share_file.h) has the digest of the whole model, which the file declares. It does not protect against somebody
 * who makes two models look alike. */
#ifndef NTX_MODEL_DIGEST_H
#define NTX_MODEL_DIGEST_H

#include "model/gguf.h"

#define NTX_DIGEST_TEXT 33 /* 32 hex digits and the final 0 */

/* fds: the parts in order, as in ntx_gguf_open. Reads are aligned, so O_DIRECT descriptors work. */
int ntx_model_digest(const struct ntx_gguf *g, const int *fds, char out[NTX_DIGEST_TEXT], struct ntx_err *err);

/* A hash of the keys of the model's architecture (context, RoPE, experts used, ...): other keys mean other values
 * with the same weights. 0: the file names no architecture. */
uint64_t ntx_model_keys(const struct ntx_gguf *g);

/* Two hashes that do not depend on the order of tensors. norms: names, types and all bytes of the norms, which
 * quantization keeps; types: names and types of all other tensors, which it changes. */
struct ntx_digest_parts {
    char norms[NTX_DIGEST_TEXT], types[NTX_DIGEST_TEXT];
};
int ntx_model_digest_parts(const struct ntx_gguf *g, const int *fds, struct ntx_digest_parts *out, struct ntx_err *err);

/* Checks adapters (gguf.h) against the model. -EINVAL: the keys ntx.delta.of... (layer_delta.h) of an adapter name
 * another base, and this model is no quantised copy of that base. Adapters without these keys fit any model with
 * their shapes. n_files counts all files, adapters last; names: theirs. */
int ntx_adapters_fit(const struct ntx_gguf *g, const int *fds, unsigned n_files, char *const *names,
                     struct ntx_err *err);

#endif
