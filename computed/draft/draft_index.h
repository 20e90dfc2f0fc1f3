/* SPDX-License-Identifier: Apache-2.0 */
/* draft_index.h: an index of texts in tokens: a suffix array over the tokens before each place. Binary search finds the
 * places with the same tokens before them as the end of a text. All numbers are little-endian, of 4 bytes unless noted:
 *
 *   "NTXINDEX"  version, size of the vocabulary, its digest (8 bytes), n (8 bytes)
 *   tokens      [n] int32; -1 between two texts
 *   order       [n] uint32: places, sorted by the tokens before them, the nearest first
 *
 * `ntx draft-index` writes it, and sessions of a model with the same vocabulary search it (drafter_file.h). It contains
 * the texts, so it is private like them. */
#ifndef NTX_COMPUTED_DRAFT_DRAFT_INDEX_H
#define NTX_COMPUTED_DRAFT_DRAFT_INDEX_H

#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "model/gguf.h"

#define NTX_DRAFT_INDEX_MAGIC   "NTXINDEX"
#define NTX_DRAFT_INDEX_VERSION 1u
#define NTX_DRAFT_INDEX_MOST    (1u << 30) /* most tokens */

/* The size of the model's vocabulary, and a digest of it. */
int ntx_draft_index_vocab(const struct ntx_gguf *model, uint32_t *n, uint64_t *digest, struct ntx_err *err);
/* Writes an index of tokens [n], -1 between texts. Takes 4 n bytes more while it works. */
int ntx_draft_index_write(FILE *to, const int32_t *tokens, uint32_t n, uint32_t n_vocab, uint64_t vocab,
                          struct ntx_err *err);

#endif
