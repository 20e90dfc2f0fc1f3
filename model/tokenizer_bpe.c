/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_bpe.c: byte-level BPE. A word's bytes are joined in the order of the list of merges. Gemma 4's joins
 * characters of whole lines in the same way, with spaces escaped as in SentencePiece; characters without a token are
 * written as byte tokens.
 *
 * Merges are kept by their left token: those of token l are entries[start[l] .. start[l + 1]), each one 64-bit word
 *     right token (20 bits) | joined token (20 bits) | rank (24 bits)
 * sorted, so that a pair is found by bisection and 280,000 merges take 2.2 MB. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer_impl.h"
#include "model/tokenizer_merge.h"
#include "model/tokenizer_pre.h"

struct bpe {
    struct ntx__pre *pre; /* NULL: Gemma 4 */
    struct ntx__pre_traits traits;
    uint32_t *start;   /* [n_vocab + 1] */
    uint64_t *entries; /* [start[n_vocab]] */
};

/* ---- reading the merges */

struct pair {
    int32_t left, right, joined; /* -1: it is not a token, and the merge is never used */
};

struct reader {
    const struct ntx__vocab *v;
    bool byte_level;
    struct ntx__alphabet alphabet;
    char *buf; /* room for the longest merge */
};

static int64_t decode(const struct reader *r, const char *p, size_t n, char *out)
{
    return r->byte_level ? ntx__alphabet_decode(&r->alphabet, p, n, out)
                         : (int64_t)ntx__unescape_spaces((struct ntx_str){p, n}, out);
}

static int read_pair(struct reader *r, struct ntx_str s, struct pair *p)
{
    const char *gap = s.n > 2 ? memchr(s.p + 1, ' ', s.n - 2) : NULL;
    if (!gap)
        return -EINVAL;
    size_t n = (size_t)(gap - s.p);
    int64_t a = decode(r, s.p, n, r->buf);
    int64_t b = a < 0 ? -1 : decode(r, gap + 1, s.n - n - 1, r->buf + a);
    *p = (struct pair){-1, -1, -1};
    if (b < 0)
        return 0;
    p->left = ntx__vocab_find(r->v, r->buf, (size_t)a);
    p->right = ntx__vocab_find(r->v, r->buf + a, (size_t)b);
    p->joined = ntx__vocab_find(r->v, r->buf, (size_t)(a + b));
    return 0;
}

static int read_pairs(const struct ntx_gguf_kv *kv, const struct ntx__vocab *v, bool byte_level, struct pair *pairs,
                      struct ntx_err *err)
{
    struct reader r = {.v = v, .byte_level = byte_level};
    size_t longest = 0;
    int rc = 0;
    ntx__alphabet_init(&r.alphabet);
    for (uint64_t i = 0; i < kv->count; i++)
        longest = kv->strs[i].n > longest ? kv->strs[i].n : longest;
    r.buf = malloc(longest + 1);
    if (!r.buf)
        return -ENOMEM;
    for (uint64_t i = 0; !rc && i < kv->count; i++)
        if (read_pair(&r, kv->strs[i], &pairs[i]))
            rc = ntx_err_set(err, -EINVAL, "tokenizer.ggml.merges: entry %llu is not a pair", (unsigned long long)i);
    free(r.buf);
    return rc;
}

static bool usable(const struct pair *p) { return p->left >= 0 && p->right >= 0 && p->joined >= 0; }

static int by_entry(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts merges by the left token (counting sort), and each token's entries by the right one. */
static int index_pairs(const struct pair *pairs, uint32_t n, uint32_t n_vocab, struct bpe *m)
{
    m->start = calloc(n_vocab + 2u, sizeof(*m->start));
    m->entries = malloc((n + 1u) * sizeof(*m->entries));
    if (!m->start || !m->entries)
        return -ENOMEM;
    uint32_t *at = m->start +
                   1; /* while filling, at[l] is the place of the next entry of l; finally the start of l + 1 */
    for (uint32_t i = 0; i < n; i++)
        if (usable(&pairs[i]))
            at[pairs[i].left + 1]++;
    for (uint32_t l = 0; l < n_vocab; l++)
        at[l + 1] += at[l];
    for (uint32_t i = 0; i < n; i++)
        if (usable(&pairs[i]))
            m->entries[at[pairs[i].left]++] = (uint64_t)pairs[i].right << 44 | (uint64_t)pairs[i].joined << 24 | i;
    for (uint32_t l = 0; l < n_vocab; l++)
        if (m->start[l + 1] - m->start[l] > 1)
            qsort(m->entries + m->start[l], m->start[l + 1] - m->start[l], sizeof(*m->entries), by_entry);
    return 0;
}

static int load_merges(const struct ntx_gguf *g, const struct ntx__vocab *v, struct bpe *m, struct ntx_err *err)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, "tokenizer.ggml.merges");
    if (!kv || kv->type != NTX_GGUF_ARR || kv->elem != NTX_GGUF_STR)
        return ntx_err_set(err, -EINVAL, "the vocabulary has no merges (tokenizer.ggml.merges)");
    if (kv->count >= NTX__MAX_MERGES)
        return ntx_err_set(err, -EINVAL, "%llu merges are more than ntx takes (%u)", (unsigned long long)kv->count,
                           NTX__MAX_MERGES);
    struct pair *pairs = malloc((kv->count + 1) * sizeof(*pairs));
    if (!pairs)
        return -ENOMEM;
    int rc = read_pairs(kv, v, m->pre, pairs, err);
    if (!rc)
        rc = index_pairs(pairs, (uint32_t)kv->count, v->n, m);
    free(pairs);
    return rc;
}

int ntx__bpe_open(const struct ntx_gguf *g, struct ntx_tokenizer *t, struct ntx_err *err)
{
    struct ntx_str pre = {"default", 7};
    bool set;
    int said = ntx_gguf_str(g, "tokenizer.ggml.pre", &pre);
    if (said && said != -ENOENT)
        return ntx_err_set(err, -EINVAL, "tokenizer.ggml.pre is not a string");
    if (said)
        t->note = "the file does not say how its tokenizer cuts words, as files before May 2024 do not: `default` is "
                  "taken, as llama.cpp does, "
                  "and answers may be worse for it; --override-kv tokenizer.ggml.pre=str:NAME gives the right one";
    struct bpe *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    t->model = m;
    int rc = ntx__pre_open(pre, &m->pre, &m->traits, err);
    if (!rc)
        rc = load_merges(g, &t->v, m, err);
    if (rc)
        return rc;
    if (ntx_gguf_bool(g, "tokenizer.ggml.add_bos_token", &set) == -ENOENT)
        t->v.add_bos = m->traits.add_bos;
    size_t used = strlen(t->name), room = sizeof(t->name) - used - 2;
    t->name[used] = '/';
    memcpy(t->name + used + 1, pre.p, pre.n < room ? pre.n : room); /* the rest of the name is already 0 */
    return 0;
}

int ntx__gemma_open(const struct ntx_gguf *g, struct ntx_tokenizer *t, struct ntx_err *err)
{
    struct bpe *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    t->model = m;
    t->v.add_bos = true; /* regardless of the key, as in other programs: these models always need BOS */
    t->v.add_prefix = false;
    return load_merges(g, &t->v, m, err);
}

void ntx__bpe_free(void *model)
{
    struct bpe *m = model;
    if (!m)
        return;
    ntx__pre_free(m->pre);
    free(m->start);
    free(m->entries);
    free(m);
}

size_t ntx__bpe_bytes(const struct ntx_tokenizer *t)
{
    const struct bpe *m = t->model;
    return sizeof(*m) + (m->pre ? ntx__pre_bytes(m->pre) : 0) + (t->v.n + 2u) * sizeof(*m->start) +
           m->start[t->v.n] * sizeof(*m->entries);
}

/* ---- encoding */

static bool join_pair(const struct ntx_tokenizer *t, const char *text, const struct ntx__sym *a,
                      const struct ntx__sym *b, uint32_t *key, int32_t *id)
{
    (void)text;
    if (a->id < 0 || b->id < 0)
        return false;
    const struct bpe *m = t->model;
    uint64_t want = (uint64_t)b->id << 44;
    uint32_t lo = m->start[a->id], end = m->start[a->id + 1], hi = end;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (m->entries[mid] < want)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == end || m->entries[lo] >> 44 != (uint64_t)b->id)
        return false;
    *key = m->entries[lo] & (NTX__MAX_MERGES - 1);
    *id = (int32_t)(m->entries[lo] >> 24 & (NTX__MAX_VOCAB - 1));
    return true;
}

struct encoder {
    const struct ntx_tokenizer *t;
    struct ntx__merge merge;
    struct ntx__ids *out;
};

static int encode_word(void *arg, const char *w, size_t n)
{
    struct encoder *e = arg;
    const struct ntx__vocab *v = &e->t->v;
    const struct bpe *m = e->t->model;
    int32_t whole = m->traits.whole_words || n == 1 ? ntx__vocab_find(v, w, n) : -1;
    if (whole >= 0)
        return ntx__ids_add(e->out, whole);
    int rc = ntx__ids_wanted(e->out);
    if (!rc)
        rc = ntx__merge_begin(&e->merge, n);
    for (size_t i = 0; !rc && i < n; i++)
        rc = ntx__merge_add(&e->merge, (uint32_t)i, 1, v->byte_id[(unsigned char)w[i]]);
    if (!rc)
        rc = ntx__merge_run(&e->merge, e->t, w, join_pair);
    for (int32_t i = 0; !rc && i >= 0; i = e->merge.syms[i].next) {
        const struct ntx__sym *s = &e->merge.syms[i];
        rc = s->id >= 0 ? ntx__ids_add(e->out, s->id) : ntx__ids_add_byte(v, e->out, (unsigned char)w[s->off]);
    }
    return rc;
}

/* Length of the valid UTF-8 at the start of text. */
static size_t valid_run(const char *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        utf8proc_int32_t cp;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(len - at), &cp);
        if (n < 1)
            break;
        at += (size_t)n;
    }
    return at;
}

int ntx__bpe_encode(const struct ntx_tokenizer *t, const char *text, size_t len, bool prefix, struct ntx__ids *out)
{
    (void)prefix; /* byte-level BPE has no space prefix */
    const struct bpe *m = t->model;
    struct encoder e = {.t = t, .out = out, .merge.out = out};
    int rc = 0;
    for (size_t at = 0; !rc && at < len;) {
        size_t n = valid_run(text + at, len - at);
        if (n)
            rc = ntx__pre_split(m->pre, text + at, n, encode_word, &e);
        at += n;
        if (!rc && at < len) /* not UTF-8: a single byte */
            rc = ntx__ids_add_byte(&t->v, out, (unsigned char)text[at++]);
    }
    ntx__merge_free(&e.merge);
    return rc;
}

/* ---- Gemma 4 */

/* Adds characters, and bytes that are not UTF-8 one by one. */
static int add_characters(struct encoder *e, const char *text, size_t len)
{
    int rc = 0;
    for (size_t at = 0; !rc && at < len;) {
        utf8proc_int32_t cp;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(len - at), &cp);
        n = n < 1 ? 1 : n;
        rc = ntx__merge_add(&e->merge, (uint32_t)at, (uint32_t)n, ntx__vocab_find(&e->t->v, text + at, (size_t)n));
        at += (size_t)n;
    }
    return rc;
}

static int encode_line(struct encoder *e, const char *text, size_t len)
{
    int32_t whole = *text == '\n' ? ntx__vocab_find(&e->t->v, text, len) : -1;
    if (whole >= 0)
        return ntx__ids_add(e->out, whole);
    int rc = ntx__ids_wanted(e->out);
    if (rc || (rc = ntx__merge_begin(&e->merge, len)) || (rc = add_characters(e, text, len)))
        return rc;
    rc = ntx__merge_run(&e->merge, e->t, text, join_pair);
    for (int32_t i = 0; !rc && i >= 0; i = e->merge.syms[i].next) {
        const struct ntx__sym *s = &e->merge.syms[i];
        if (s->id >= 0)
            rc = ntx__ids_add(e->out, s->id);
        for (uint32_t k = 0; s->id < 0 && !rc && k < s->len; k++)
            rc = ntx__ids_add_byte(&e->t->v, e->out, (unsigned char)text[s->off + k]);
    }
    return rc;
}

/* Encodes line by line; a run of newlines counts as one line. */
int ntx__gemma_encode(const struct ntx_tokenizer *t, const char *text, size_t len, bool prefix, struct ntx__ids *out)
{
    struct encoder e = {.t = t, .out = out, .merge.out = out};
    int rc = 0;
    (void)prefix;
    for (size_t at = 0, n; !rc && at < len; at += n) {
        for (n = 1; at + n < len && (text[at + n] == '\n') == (text[at] == '\n');)
            n++;
        rc = encode_line(&e, text + at, n);
    }
    ntx__merge_free(&e.merge);
    return rc;
}
