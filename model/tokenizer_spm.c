/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_spm.c: SentencePiece-like vocabularies. The text is split into characters. Of all neighbours that together
 * are a token, the pair with the highest score is joined, the leftmost of equals. Characters without a token become
 * byte tokens.
 *
 * Two bytes that are neighbours in no token are never joined. So the text is split there (in known vocabularies before
 * most blanks), and each piece is encoded alone: the tokens are those of the whole text, in the memory of a piece. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer_impl.h"
#include "model/tokenizer_merge.h"

struct spm {
    uint32_t *keys;             /* [n_vocab] */
    uint64_t pairs[65536 / 64]; /* bit a << 8 | b: some token has byte b behind byte a */
};

/* Maps a float to an integer so that the largest score sorts first: the bits of negative floats are flipped, and the
 * complement reverses the order. */
static uint32_t score_key(float score)
{
    uint32_t u;
    score += 0.0f; /* turns -0 into 0 */
    memcpy(&u, &score, 4);
    return ~(u & 0x80000000u ? ~u : u | 0x80000000u);
}

static void note_pairs(struct spm *m, const struct ntx__vocab *v)
{
    for (uint32_t i = 0; i < v->n; i++) {
        unsigned type = v->attr[i] & NTX__TYPE_MASK;
        for (uint32_t k = v->off[i] + 1; (type == NTX__NORMAL || type == NTX__UNUSED) && k < v->off[i + 1]; k++) {
            unsigned pair = (unsigned)(unsigned char)v->pool[k - 1] << 8 | (unsigned char)v->pool[k];
            m->pairs[pair / 64] |= 1ull << pair % 64;
        }
    }
}

int ntx__spm_open(const struct ntx_gguf *g, struct ntx_tokenizer *t, struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, "tokenizer.ggml.scores");
    if (!kv || kv->type != NTX_GGUF_ARR || kv->elem != NTX_GGUF_F32 || kv->count != t->v.n)
        return ntx_err_set(err, -EINVAL, "tokenizer.ggml.scores is not a list of %u numbers", t->v.n);
    struct spm *m = t->model = calloc(1, sizeof(*m));
    if (!m || !(m->keys = malloc(t->v.n * sizeof(*m->keys))))
        return -ENOMEM;
    for (uint32_t i = 0; i < t->v.n; i++) {
        float score;
        memcpy(&score, (const char *)kv->data + 4 * (size_t)i, 4);
        m->keys[i] = score_key(score);
    }
    note_pairs(m, &t->v);
    return 0;
}

void ntx__spm_free(void *model)
{
    struct spm *m = model;
    if (m)
        free(m->keys);
    free(m);
}

size_t ntx__spm_bytes(const struct ntx_tokenizer *t) { return sizeof(struct spm) + t->v.n * sizeof(uint32_t); }

static bool join_pair(const struct ntx_tokenizer *t, const char *text, const struct ntx__sym *a,
                      const struct ntx__sym *b, uint32_t *key, int32_t *id)
{
    *id = ntx__vocab_find(&t->v, text + a->off, (size_t)a->len + b->len);
    if (*id < 0)
        return false;
    *key = ((const struct spm *)t->model)->keys[*id];
    return true;
}

static int add_characters(struct ntx__merge *m, const struct ntx_tokenizer *t, const char *text, size_t len)
{
    int rc = 0;
    for (size_t at = 0; !rc && at < len;) {
        utf8proc_int32_t cp;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(len - at), &cp);
        if (n < 1)
            n = 1; /* not UTF-8: a single byte */
        rc = ntx__merge_add(m, (uint32_t)at, (uint32_t)n, ntx__vocab_find(&t->v, text + at, (size_t)n));
        at += (size_t)n;
    }
    return rc;
}

static int put_symbols(const struct ntx__merge *m, const struct ntx_tokenizer *t, const char *text,
                       struct ntx__ids *out)
{
    int rc = 0;
    for (int32_t i = m->n_syms ? 0 : -1; !rc && i >= 0; i = m->syms[i].next) {
        const struct ntx__sym *s = &m->syms[i];
        if (s->id >= 0)
            rc = ntx__ids_add(out, s->id);
        for (uint32_t k = 0; s->id < 0 && !rc && k < s->len; k++)
            rc = ntx__ids_add_byte(&t->v, out, (unsigned char)text[s->off + k]);
    }
    return rc;
}

/* The end of the piece that begins at `from`. It is never inside a character. */
static size_t end_of_piece(const struct spm *m, const char *text, size_t from, size_t len)
{
    for (size_t i = from + 1; i < len; i++) {
        unsigned before = (unsigned char)text[i - 1], b = (unsigned char)text[i], pair = before << 8 | b;
        if ((b & 0xC0) != 0x80 && !(m->pairs[pair / 64] >> pair % 64 & 1))
            return i;
    }
    return len;
}

static int encode_piece(const struct ntx_tokenizer *t, struct ntx__merge *m, const char *text, size_t len,
                        struct ntx__ids *out)
{
    int rc = ntx__ids_wanted(out);
    if (!rc)
        rc = ntx__merge_begin(m, len);
    if (!rc)
        rc = add_characters(m, t, text, len);
    if (!rc)
        rc = ntx__merge_run(m, t, text, join_pair);
    return rc ? rc : put_symbols(m, t, text, out);
}

/* Encodes the first piece, with a space before it. */
static int encode_prefixed(const struct ntx_tokenizer *t, struct ntx__merge *m, const char *text, size_t len,
                           struct ntx__ids *out)
{
    int rc = len < out->limits->memory ? 0 : -ENOBUFS;
    char *copy = rc ? NULL : malloc(len + 1);
    if (!copy)
        return rc ? rc : -ENOMEM;
    *copy = ' ';
    memcpy(copy + 1, text, len);
    size_t first = end_of_piece(t->model, copy, 0, len + 1);
    rc = encode_piece(t, m, copy, first, out);
    if (!rc && first <= len)
        rc = encode_piece(t, m, copy + first, len + 1 - first, out);
    free(copy);
    return rc;
}

int ntx__spm_encode(const struct ntx_tokenizer *t, const char *text, size_t len, bool prefix, struct ntx__ids *out)
{
    struct ntx__merge m = {.out = out};
    int rc = 0;
    for (size_t at = 0, end; !rc && at < len; at = end) {
        end = end_of_piece(t->model, text, at, len);
        rc = at || !prefix ? encode_piece(t, &m, text + at, end - at, out) : encode_prefixed(t, &m, text, end, out);
    }
    ntx__merge_free(&m);
    return rc;
}
