/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_pre.h: how a byte-level BPE vocabulary wants text cut into words before merging. One table, in
 * tokenizer_pre.c. */
#ifndef NTX_MODEL_TOKENIZER_PRE_H
#define NTX_MODEL_TOKENIZER_PRE_H

#include "model/tokenizer_impl.h"

#define NTX__PRE_MAX 6 /* expressions of one pre-tokenizer */

/* Compiled; any thread may use it. */
struct ntx__pre;

struct ntx__pre_traits {
    bool whole_words; /* a word that is a token is taken as it is, whatever the merges say */
    bool add_bos;     /* default of the key */
};

int ntx__pre_open(struct ntx_str name, struct ntx__pre **out, struct ntx__pre_traits *traits, struct ntx_err *err);
void ntx__pre_free(struct ntx__pre *p);
size_t ntx__pre_bytes(const struct ntx__pre *p);

/* Calls word() for each word of text, which must be valid UTF-8, from left to right; they join up to the text. Stops at
 * and returns the first non-zero answer. */
int ntx__pre_split(const struct ntx__pre *p, const char *text, size_t len,
                   int (*word)(void *arg, const char *w, size_t n), void *arg);

#endif
