/* tokenizer_spm.c: SentencePiece-like vocabularies. The text is cut into characters; of all neighbours that together
 * are a token, the pair with the highest score is joined, the leftmost of equals; what is left without a token is
 * written as byte tokens. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer_impl.h"
#include "model/tokenizer_merge.h"


/* Floats compare like their bits once those of the negative ones are turned round; the complement puts the largest first. */
static uint32_t score_key(float score)
{
    uint32_t u;
    score += 0.0f; /* -0 is 0 */
    memcpy(&u, &score, 4);
    return ~(u & 0x80000000u ? ~u : u | 0x80000000u);
}

int ntx__spm_open(const struct ntx_gguf *g, struct ntx_tokenizer *t, struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, "tokenizer.ggml.scores");
    if (!kv || kv->type != NTX_GGUF_ARR || kv->elem != NTX_GGUF_F32 || kv->count != t->v.n)
        return ntx_err_set(err, -EINVAL, "tokenizer.ggml.scores is not a list of %u numbers", t->v.n);
    uint32_t *keys = malloc(t->v.n * sizeof(*keys));
    if (!keys)
        return -ENOMEM;
    for (uint32_t i = 0; i < t->v.n; i++) {
        float score;
        memcpy(&score, (const char *)kv->data + 4 * (size_t)i, 4);
        keys[i] = score_key(score);
    }
    t->model = keys;
    return 0;
}

void ntx__spm_free(void *model)
{
    free(model);
}

size_t ntx__spm_bytes(const struct ntx_tokenizer *t)
{
    return t->v.n * sizeof(uint32_t);
}

static bool join(const struct ntx_tokenizer *t, const char *text, const struct ntx__sym *a, const struct ntx__sym *b,
                 uint32_t *key, int32_t *id)
{
    *id = ntx__vocab_find(&t->v, text + a->off, (size_t)a->len + b->len);
    if (*id < 0)
        return false;
    *key = ((const uint32_t *)t->model)[*id];
    return true;
}

static int add_characters(struct ntx__merge *m, const struct ntx_tokenizer *t, const char *text, size_t len)
{
    int rc = 0;
    for (size_t at = 0; !rc && at < len;) {
        utf8proc_int32_t cp;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(len - at), &cp);
        if (n < 1)
            n = 1; /* not UTF-8: a byte by itself */
        rc = ntx__merge_add(m, (uint32_t)at, (uint32_t)n, ntx__vocab_find(&t->v, text + at, (size_t)n));
        at += (size_t)n;
    }
    return rc;
}

static int put_symbols(const struct ntx__merge *m, const struct ntx_tokenizer *t, const char *text, struct ntx__ids *out)
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

int ntx__spm_encode(const struct ntx_tokenizer *t, const char *text, size_t len, bool prefix, struct ntx__ids *out)
{
    struct ntx__merge m = {0};
    char *copy = NULL;
    int rc = 0;
    if (prefix) {
        copy = malloc(len + 1);
        if (!copy)
            return -ENOMEM;
        *copy = ' ';
        memcpy(copy + 1, text, len);
        text = copy;
        len++;
    }
    rc = add_characters(&m, t, text, len);
    if (!rc)
        rc = ntx__merge_run(&m, t, text, join);
    if (!rc)
        rc = put_symbols(&m, t, text, out);
    ntx__merge_free(&m);
    free(copy);
    return rc;
}
