/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_pre.h: pre-tokenizers: how a byte-level BPE vocabulary splits text into words before merging.
 * tokenizer_pre.c has the table. */
#ifndef NTX_MODEL_TOKENIZER_PRE_H
#define NTX_MODEL_TOKENIZER_PRE_H

#include "model/tokenizer_impl.h"

#define NTX__PRE_MAX 6 /* expressions of one pre-tokenizer */

/* Compiled expressions; threads may share them. */
struct ntx__pre;

struct ntx__pre_traits {
    bool whole_words; /* a word that is a token is used as it is, without merges */
    bool add_bos;     /* default of the key */
};

int ntx__pre_open(struct ntx_str name, struct ntx__pre **out, struct ntx__pre_traits *traits, struct ntx_err *err);
void ntx__pre_free(struct ntx__pre *p);
size_t ntx__pre_bytes(const struct ntx__pre *p);

/* Calls word() for each word of text (valid UTF-8) from left to right; together they are the text. Stops at the
 * first non-zero result and returns it. */
int ntx__pre_split(const struct ntx__pre *p, const char *text, size_t len,
                   int (*word)(void *arg, const char *w, size_t n), void *arg);

#endif
