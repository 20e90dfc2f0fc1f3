/* SPDX-License-Identifier: Apache-2.0 */
/* kind.h: recognises GGUF files that are not language models: image encoders, importance matrices, adapters,
 * embedding models and others. One line says what such a file is and what to name instead. */
#ifndef NTX_MODEL_KIND_H
#define NTX_MODEL_KIND_H

#include "common/err.h"
#include "model/gguf.h"

/* 0: the file may be a language model. -EINVAL: it has no network that writes or reads text; -ENOTSUP: it has one,
 * but writes no text by itself. name: of the file, for the error; or NULL. */
int ntx_kind_refuse(const struct ntx_gguf *g, const char *name, struct ntx_err *err);

/* The file has a vocabulary and no network: it can tokenize text, but not run. */
bool ntx_kind_is_vocab(const struct ntx_gguf *g);

#endif
