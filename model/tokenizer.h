/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.h: text to token ids and back, with the vocabulary of a GGUF.
 *
 * Kinds (one table in tokenizer.c): "llama" (like SentencePiece: scores, byte fall-back) and "gpt2" (byte-level BPE
 * with merges and a pre-tokenizer: gpt-2, llama-bpe, qwen2, qwen35, glm4, deepseek-v3, kimi-k2, and the others of
 * the table). An unknown kind or pre-tokenizer is refused by name. A tokenizer is immutable once open; threads may
 * share it. */
#ifndef NTX_MODEL_TOKENIZER_H
#define NTX_MODEL_TOKENIZER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"

struct ntx_tokenizer;

#define NTX_TOKEN_MAX 4096 /* bytes of a token's text; a longer one is refused (real ones are below 1 KiB) */

/* Opens the tokenizer of g, which may be freed afterwards. */
int ntx_tokenizer_open(const struct ntx_gguf *g, struct ntx_tokenizer **out, struct ntx_err *err);
void ntx_tokenizer_free(struct ntx_tokenizer *t);
size_t ntx_tokenizer_bytes(const struct ntx_tokenizer *t); /* memory held */

enum {
    NTX_TOK_BOS = 1,     /* prepend BOS (and append EOS) if the vocabulary asks for it */
    NTX_TOK_SPECIAL = 2, /* control tokens in the text ("<|im_end|>") parse as such; without it they are plain text */
};

/* Encodes text[0..len). User-defined tokens are recognised first (those that look like control tokens, "<|...|>",
 * only with NTX_TOK_SPECIAL); the text between them is split and merged as the vocabulary's kind does. *ids is
 * malloc'd (the caller frees it); returns their number, or a negative errno.
 *
 * Invalid UTF-8 is never refused, but encoded byte by byte; a byte without a token becomes the unknown token, or
 * nothing if the vocabulary has none. The time is O(n log n) for any text. -EFBIG above 1 GiB. */
int ntx_tokenize(const struct ntx_tokenizer *t, const char *text, size_t len, int flags, int32_t **ids);

/* Limits of one encoding, for untrusted text. Memory grows only with the ids and with the longest piece of text that
 * cannot be split (byte-level: a word; SentencePiece-like: the text between two places that no token spans). */
struct ntx_tok_limits {
    size_t ids;    /* most ids; more: -E2BIG, at once if the number of bytes proves it, else as soon as they exist */
    size_t memory; /* bytes beside the ids; a piece that takes more: -ENOBUFS */
    const atomic_bool *cancel; /* once true: -ECANCELED within milliseconds. NULL: never */
    /* Places for what is no text (images): where this text and then NTX_PLACE_DIGITS digits stand, the id is -1 minus
     * their number, between the tokens of the texts before and behind it, in which control tokens parse as such. The
     * caller makes a text that nobody else can know. NULL: there are none. */
    const char *place, *place_before, *place_behind;
};
#define NTX_PLACE_DIGITS 6

/* ntx_tokenize within limits (NULL: none). */
int ntx_tokenize_within(const struct ntx_tokenizer *t, const char *text, size_t len, int flags,
                        const struct ntx_tok_limits *limits, int32_t **ids);

/* Writes the exact bytes of one token; the concatenation of all is the text. (A SentencePiece-like vocabulary puts a
 * space before the first word; `first` removes it.) Control tokens give their text only with `special`. Returns the
 * bytes written (<= room; at most NTX_TOKEN_MAX), -ERANGE, or -EINVAL: no such id. A character may span several
 * tokens: hold back partial UTF-8 with ntx_utf8_hold. */
int ntx_detokenize_one(const struct ntx_tokenizer *t, int32_t id, bool first, bool special, char *buf, size_t room);

/* Number of bytes at the end of buf[0..n) that begin a UTF-8 character not yet complete (0..3). */
size_t ntx_utf8_hold(const char *buf, size_t n);

uint32_t ntx_tokenizer_n_vocab(const struct ntx_tokenizer *t);
int32_t ntx_tokenizer_bos(const struct ntx_tokenizer *t); /* -1: none */
int32_t ntx_tokenizer_eos(const struct ntx_tokenizer *t); /* the file's eos id; -1: none */
/* Fill-in-the-middle tokens: before the prefix, the suffix and the middle, by the file's keys or by names that known
 * models use. false: the vocabulary lacks one of them. */
bool ntx_tokenizer_fim(const struct ntx_tokenizer *t, int32_t id[3]);
/* The vocabulary has a control token of this name, so the name does not mean plain text. */
bool ntx_tokenizer_has_control(const struct ntx_tokenizer *t, const char *name);
/* Any end-of-generation token: the file's eos, eot and eom ids, and tokens with a name that known models end with (the
 * list is in tokenizer_vocab.c); never "<|end|>" beside "<|return|>" and "<|call|>". */
bool ntx_tokenizer_is_eog(const struct ntx_tokenizer *t, int32_t id);
const char *ntx_tokenizer_note(const struct ntx_tokenizer *t); /* a warning for the user, or NULL */
const char *ntx_tokenizer_kind(const struct ntx_tokenizer *t); /* "llama", "gpt2/qwen2", ... */

#endif
