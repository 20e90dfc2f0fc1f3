/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h: text to token ids and back, from the vocabulary that a GGUF carries.
 *
 * Kinds (one table in tokenizer.c): "llama" (SentencePiece-like: scores, byte fall-back) and "gpt2" (byte-level BPE
 * with merges and a pre-tokenizer: gpt-2, llama-bpe, qwen2, qwen35, glm4, deepseek-v3, kimi-k2, and the others of the
 * table). An unknown kind or pre-tokenizer is refused by name. Immutable once open; any thread may use it at once. */
#ifndef NTX_MODEL_TOKENIZER_H
#define NTX_MODEL_TOKENIZER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

struct ntx_tokenizer;

#define NTX_TOKEN_MAX                                                                                                  \
    4096 /* bytes that a token stands for; a vocabulary with a longer one is refused (real ones stay below 1 KiB) */

/* Copies what it needs; g may be freed afterwards. */
int ntx_tokenizer_open(const struct ntx_gguf *g, struct ntx_tokenizer **out, struct ntx_err *err);
void ntx_tokenizer_free(struct ntx_tokenizer *t);
size_t ntx_tokenizer_bytes(const struct ntx_tokenizer *t); /* memory held */

enum {
    NTX_TOK_BOS = 1,     /* prepend BOS (and append EOS) where the vocabulary asks for it */
    NTX_TOK_SPECIAL = 2, /* control tokens in the text ("<|im_end|>") parse as such; without it they are plain text */
};

/* Encodes text[0..len): user-defined tokens are recognised first (those that look like control tokens, "<|...|>", only
 * with NTX_TOK_SPECIAL), the text between them is cut and merged as the vocabulary's kind does. On success *ids is
 * malloc'd (the caller frees) and the count is returned; negative errno else. Invalid UTF-8 is encoded byte by byte,
 * never refused; a byte that the vocabulary has no token for becomes the unknown token, or nothing where there is none.
 * Time is O(n log n) for any text. -EFBIG above 1 GiB. */
int ntx_tokenize(const struct ntx_tokenizer *t, const char *text, size_t len, int flags, int32_t **ids);

/* What one encoding may take, where the text is anybody's. Bytes of memory grow with the longest piece of the text that
 * cannot be cut (a word of a byte-level vocabulary; for the other kind what lies between two places that no token
 * spans), and with nothing else but the ids. */
struct ntx_tok_limits {
    size_t ids;    /* more: -E2BIG, before any work where the bytes alone say so, else as soon as they are there */
    size_t memory; /* bytes beside the ids; a piece that takes more: -ENOBUFS */
    const atomic_bool *cancel; /* once true: -ECANCELED within milliseconds. NULL: never */
};

/* As ntx_tokenize, within limits (NULL: none). */
int ntx_tokenize_within(const struct ntx_tokenizer *t, const char *text, size_t len, int flags,
                        const struct ntx_tok_limits *limits, int32_t **ids);

/* The bytes of one token, exactly: concatenating them gives the text (an SPM vocabulary puts a space before the first
 * word: `first` removes it). Control tokens give their text only with `special`. Returns bytes written (<= room; never
 * more than NTX_TOKEN_MAX), -ERANGE, or -EINVAL for an id outside the vocabulary. A character may be spread over
 * several tokens: hold back partial UTF-8 with ntx_utf8_hold. */
int ntx_detokenize_one(const struct ntx_tokenizer *t, int32_t id, bool first, bool special, char *buf, size_t room);

/* Number of bytes at the end of buf[0..n) that begin a UTF-8 character not yet complete (0..3). */
size_t ntx_utf8_hold(const char *buf, size_t n);

uint32_t ntx_tokenizer_n_vocab(const struct ntx_tokenizer *t);
int32_t ntx_tokenizer_bos(const struct ntx_tokenizer *t); /* -1 when none */
/* Those that stand before the prefix, the suffix and the middle of a text that is to be filled in, by the file's keys
 * or by the names that known models give them. false: the vocabulary has not all three. */
bool ntx_tokenizer_fim(const struct ntx_tokenizer *t, int32_t id[3]);
/* Whether there is a control token of this name: then no text is meant where it is named. */
bool ntx_tokenizer_has_control(const struct ntx_tokenizer *t, const char *name);
/* Any end-of-generation token: the file's eos, eot and eom ids, and tokens with a name that known models end with (the
 * list is in tokenizer_vocab.c); never "<|end|>" beside "<|return|>" and "<|call|>". */
bool ntx_tokenizer_is_eog(const struct ntx_tokenizer *t, int32_t id);
const char *ntx_tokenizer_note(const struct ntx_tokenizer *t); /* what its user should know, or NULL */
const char *ntx_tokenizer_kind(const struct ntx_tokenizer *t); /* "llama", "gpt2/qwen2", ... */

#endif
