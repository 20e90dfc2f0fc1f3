/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_impl.h: shared by the parts of the tokenizer; other files do not include it, except chat.c.
 *
 *   text -> tokenizer.c: splits at special tokens (tokenizer_special.c) -> raw runs
 *        -> llama: tokenizer_spm.c
 *        -> gpt2: tokenizer_bpe.c -> tokenizer_pre.c (regular expressions)
 *        -> gemma4: tokenizer_bpe.c, by characters
 *        -> tokenizer_merge.c -> ids
 *
 * tokenizer_vocab.c turns the vocabulary of a GGUF into one compact pool with the exact bytes of each token: escaped
 * spaces and the byte-level alphabet are decoded once, at open. */
#ifndef NTX_MODEL_TOKENIZER_IMPL_H
#define NTX_MODEL_TOKENIZER_IMPL_H

#include "model/tokenizer.h"

#define NTX__MAX_VOCAB  (1u << 20) /* merges pack a token id into 20 bits */
#define NTX__MAX_MERGES (1u << 24) /* and ranks into 24 */

/* Low bits of ntx__vocab.attr are GGUF's token type. */
enum {
    NTX__NORMAL = 1,
    NTX__UNKNOWN = 2,
    NTX__CONTROL = 3,
    NTX__USER = 4,
    NTX__UNUSED = 5,
    NTX__BYTE = 6,
    NTX__TYPE_MASK = 7,
    NTX__EOG = 8,      /* ends a generation */
    NTX__GUARDED = 16, /* parses as a token in text only with NTX_TOK_SPECIAL */
    NTX__LITERAL = 32, /* ordinary type, but its text is outside the byte-level alphabet: text never becomes this
                          token */
};

struct ntx__vocab {
    uint32_t n;
    char *pool;      /* the bytes of all tokens, one after the other */
    uint32_t *off;   /* [n + 1] into pool */
    uint8_t *attr;   /* [n] */
    uint32_t *slots; /* hash table text -> id of tokens that ordinary text may become; UINT32_MAX: empty */
    uint32_t mask;
    uint64_t key[2];  /* of the hash */
    uint32_t max_len; /* bytes of the longest text in slots */
    uint32_t
        longest; /* bytes of the longest token: n bytes need at least n / longest tokens; 0: some bytes give no token */
    int32_t byte_id[256];  /* token of each single byte; -1: none */
    int32_t bos, eos, unk; /* -1 when none */
    int32_t fim[3];        /* before the prefix, the suffix and the middle; -1: none */
    bool add_bos, add_eos;
    bool add_prefix; /* a space is put before the text (and after control tokens) */
};

struct ntx__specials {
    uint32_t *ids; /* tokens matched in raw text before anything else, sorted by bytes */
    uint32_t n;
    uint32_t first[257]; /* ids[first[c] .. first[c + 1]) begin with byte c */
};

struct ntx__ids { /* growing list of token ids */
    int32_t *p;
    size_t n, room;
    const struct ntx_tok_limits *limits; /* limits of the whole encoding, never NULL */
};

/* One kind of tokenizer; the table is in tokenizer.c. */
struct ntx__tok_kind {
    const char *name;         /* tokenizer.ggml.model */
    bool add_bos, add_prefix; /* defaults of the keys */
    bool byte_level;
    int (*open)(const struct ntx_gguf *g, struct ntx_tokenizer *t, struct ntx_err *err); /* sets t->model */
    void (*free)(void *model);
    size_t (*bytes)(const struct ntx_tokenizer *t);
    /* Appends the tokens of a raw run; prefix: as if a space preceded it. */
    int (*encode)(const struct ntx_tokenizer *t, const char *text, size_t len, bool prefix, struct ntx__ids *out);
};

struct ntx_tokenizer {
    const struct ntx__tok_kind *kind;
    char name[48];
    const char *note; /* or NULL */
    struct ntx__vocab v;
    struct ntx__specials sp;
    void *model; /* data of the kind */
};

/* ---- tokenizer_vocab.c */
int ntx__vocab_open(const struct ntx_gguf *g, const struct ntx__tok_kind *kind, struct ntx__vocab *v,
                    struct ntx_err *err);
void ntx__vocab_free(struct ntx__vocab *v);
size_t ntx__vocab_bytes(const struct ntx__vocab *v);
int32_t ntx__vocab_find(const struct ntx__vocab *v, const char *text, size_t len); /* -1: no token has this text */
size_t ntx__unescape_spaces(struct ntx_str s, char *out);                          /* the length, never more than s.n */
static inline const char *ntx__vocab_text(const struct ntx__vocab *v, uint32_t id, size_t *len)
{
    *len = v->off[id + 1] - v->off[id];
    return v->pool + v->off[id];
}

/* ---- tokenizer_alphabet.c: the byte-level alphabet of GPT-2 */
struct ntx__alphabet { /* code point -> byte, -1 outside the alphabet */
    int16_t byte[324];
};
void ntx__alphabet_init(struct ntx__alphabet *a);
/* Decodes text into out [n]; returns the length, or -1: a character is outside the alphabet. */
int64_t ntx__alphabet_decode(const struct ntx__alphabet *a, const char *text, size_t n, char *out);

/* ---- tokenizer_special.c */
int ntx__specials_open(const struct ntx__vocab *v, struct ntx__specials *s);
void ntx__specials_free(struct ntx__specials *s);
/* The longest special token at the start of text; guarded ones only if `all`. -1: none. */
int32_t ntx__specials_match(const struct ntx__vocab *v, const struct ntx__specials *s, const char *text, size_t len,
                            bool all);

/* ---- tokenizer.c */
int ntx__ids_add(struct ntx__ids *l, int32_t id); /* -E2BIG, -ENOMEM */
int ntx__ids_wanted(const struct ntx__ids *l);    /* -ECANCELED, or 0 */
/* Appends a byte that is part of no token: as its byte token, else the unknown token, else nothing. */
int ntx__ids_add_byte(const struct ntx__vocab *v, struct ntx__ids *l, unsigned char byte);

struct ntx__seg { /* a piece of a rendered conversation */
    const char *text;
    size_t len;
    int32_t id;    /* a token rather than text when >= 0 */
    bool template; /* guarded tokens in this segment parse as tokens */
};
/* Joins the raw text of neighbouring segments before encoding, so that words are split as in the whole text; special
 * tokens are recognised within one segment only. bos, eos: add them if the vocabulary asks for it. resume: the text
 * continues after earlier tokens. limits: NULL for none. */
int ntx__tokenize_segs(const struct ntx_tokenizer *t, const struct ntx__seg *segs, size_t n, bool bos, bool eos,
                       bool resume, const struct ntx_tok_limits *limits, int32_t **ids);

/* ---- kinds */
int ntx__spm_open(const struct ntx_gguf *g, struct ntx_tokenizer *t, struct ntx_err *err);
int ntx__spm_encode(const struct ntx_tokenizer *t, const char *text, size_t len, bool prefix, struct ntx__ids *out);
size_t ntx__spm_bytes(const struct ntx_tokenizer *t);
void ntx__spm_free(void *model);
int ntx__bpe_open(const struct ntx_gguf *g, struct ntx_tokenizer *t, struct ntx_err *err);
int ntx__bpe_encode(const struct ntx_tokenizer *t, const char *text, size_t len, bool prefix, struct ntx__ids *out);
int ntx__gemma_open(const struct ntx_gguf *g, struct ntx_tokenizer *t,
                    struct ntx_err *err); /* other functions are shared with bpe */
int ntx__gemma_encode(const struct ntx_tokenizer *t, const char *text, size_t len, bool prefix, struct ntx__ids *out);
size_t ntx__bpe_bytes(const struct ntx_tokenizer *t);
void ntx__bpe_free(void *model);

#endif
