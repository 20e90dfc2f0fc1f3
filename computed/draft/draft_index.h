/* SPDX-License-Identifier: Apache-2.0 */
/* draft_index.h: texts in tokens, with the order of all that was before each of them, so that what came behind the like
 * of a text's end is found by halving:
 *
 *   "NTXINDEX"  version tokens of the vocabulary its digest (8 bytes) n (8 bytes) little-endian, 4 bytes each but where
 *               said
 *   tokens      [n] int32; -1 between two texts
 *   order       [n] uint32: places, by the tokens before them, the nearest first
 *
 * `ntx draft-index` writes it, and a session of a model with the same vocabulary looks in it (drafter_file.h). It has
 * the text in it, as its user's file. */
#ifndef NTX_COMPUTED_DRAFT_DRAFT_INDEX_H
#define NTX_COMPUTED_DRAFT_DRAFT_INDEX_H

#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "model/gguf.h"

#define NTX_DRAFT_INDEX_MAGIC   "NTXINDEX"
#define NTX_DRAFT_INDEX_VERSION 1u
#define NTX_DRAFT_INDEX_MOST    (1u << 30) /* tokens */

/* The model's vocabulary: how many tokens, and a digest of all of them. */
int ntx_draft_index_vocab(const struct ntx_gguf *model, uint32_t *n, uint64_t *digest, struct ntx_err *err);
/* tokens [n], -1 between texts. Takes 4 n bytes more while it works. */
int ntx_draft_index_write(FILE *to, const int32_t *tokens, uint32_t n, uint32_t n_vocab, uint64_t vocab,
                          struct ntx_err *err);

#endif
