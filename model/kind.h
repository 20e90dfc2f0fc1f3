/* SPDX-License-Identifier: Apache-2.0 */
/* kind.h: files that are GGUFs and no language models: encoders of images, importance matrices, adapters, models that
 * make vectors of texts, and others. One line says what such a file is and what to name instead. */
#ifndef NTX_MODEL_KIND_H
#define NTX_MODEL_KIND_H

#include "common/err.h"
#include "model/gguf.h"

/* 0: nothing says that the file is no language model. -EINVAL: it has no network of its own that writes or reads text;
 * -ENOTSUP: it has one, but writes no text by itself. name: the file's, for the error's text, or NULL. */
int ntx_kind_refuse(const struct ntx_gguf *g, const char *name, struct ntx_err *err);

/* It is a vocabulary alone: nothing runs it, but texts can be cut into its tokens. */
bool ntx_kind_is_vocab(const struct ntx_gguf *g);

#endif
