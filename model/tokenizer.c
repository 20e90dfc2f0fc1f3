/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.c: the table of kinds, opening, and the loop from text to segments. tokenizer_impl.h lists the parts. */
#include "model/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer_impl.h"

#define MAX_TEXT (1u << 30) /* bytes; symbols are counted in 32 bits */

static const struct ntx__tok_kind kinds[] = {
    {.name = "llama",
     .add_bos = true,
     .add_prefix = true,
     .open = ntx__spm_open,
     .free = ntx__spm_free,
     .bytes = ntx__spm_bytes,
     .encode = ntx__spm_encode},
    {.name = "gpt2",
     .byte_level = true,
     .open = ntx__bpe_open,
     .free = ntx__bpe_free,
     .bytes = ntx__bpe_bytes,
     .encode = ntx__bpe_encode},
    {.name = "gemma4",
     .add_bos = true,
     .open = ntx__gemma_open,
     .free = ntx__bpe_free,
     .bytes = ntx__bpe_bytes,
     .encode = ntx__gemma_encode},
};

static const struct ntx__tok_kind *find_kind(struct ntx_str s)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strlen(kinds[i].name) == s.n && !memcmp(kinds[i].name, s.p, s.n))
            return &kinds[i];
    return NULL;
}

int ntx_tokenizer_open(const struct ntx_gguf *g, struct ntx_tokenizer **out, struct ntx_err *err)
{
    struct ntx_str model;
    if (ntx_gguf_str(g, "tokenizer.ggml.model", &model))
        return ntx_err_set(err, -EINVAL, "the file does not name its tokenizer (tokenizer.ggml.model)");
    const struct ntx__tok_kind *kind = find_kind(model);
    if (!kind)
        return ntx_err_set(err, -ENOTSUP, "tokenizer \"%.*s\" is not known; known are: llama, gpt2",
                           (int)(model.n < 40 ? model.n : 40), model.p);
    struct ntx_tokenizer *t = calloc(1, sizeof(*t));
    if (!t)
        return ntx_err_set(err, -ENOMEM, "no memory for the tokenizer");
    t->kind = kind;
    snprintf(t->name, sizeof(t->name), "%s", kind->name);
    int rc = ntx__vocab_open(g, kind, &t->v, err);
    if (!rc)
        rc = ntx__specials_open(&t->v, &t->sp);
    if (!rc)
        rc = kind->open(g, t, err);
    if (rc) {
        if (rc == -ENOMEM)
            ntx_err_set(err, rc, "no memory for the tokenizer");
        ntx_tokenizer_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void ntx_tokenizer_free(struct ntx_tokenizer *t)
{
    if (!t)
        return;
    t->kind->free(t->model);
    ntx__specials_free(&t->sp);
    ntx__vocab_free(&t->v);
    free(t);
}

size_t ntx_tokenizer_bytes(const struct ntx_tokenizer *t)
{
    return sizeof(*t) + ntx__vocab_bytes(&t->v) + t->sp.n * sizeof(*t->sp.ids) + t->kind->bytes(t);
}

/* ---- text -> ids */

int ntx__ids_add(struct ntx__ids *l, int32_t id)
{
    if (l->n >= l->limits->ids)
        return -E2BIG;
    if (l->n == l->room) {
        size_t room = l->room ? l->room * 2 : 64;
        room = room < l->limits->ids ? room : l->limits->ids;
        int32_t *p = realloc(l->p, room * sizeof(*p));
        if (!p)
            return -ENOMEM;
        l->p = p;
        l->room = room;
    }
    l->p[l->n++] = id;
    return 0;
}

int ntx__ids_wanted(const struct ntx__ids *l)
{
    return l->limits->cancel && atomic_load_explicit(l->limits->cancel, memory_order_relaxed) ? -ECANCELED : 0;
}

int ntx__ids_add_byte(const struct ntx__vocab *v, struct ntx__ids *l, unsigned char byte)
{
    int32_t id = v->byte_id[byte] >= 0 ? v->byte_id[byte] : v->unk;
    return id >= 0 ? ntx__ids_add(l, id) : 0;
}

struct cutter { /* walks over the joined text of all segments */
    const struct ntx_tokenizer *t;
    const char *text;
    size_t from;  /* start of the pending raw run */
    bool at_word; /* a space precedes the next raw run */
    struct ntx__ids ids;
};

static int end_run(struct cutter *c, size_t to)
{
    if (to == c->from)
        return 0;
    int rc = c->t->kind->encode(c->t, c->text + c->from, to - c->from, c->at_word && c->t->v.add_prefix, &c->ids);
    c->from = to;
    c->at_word = false;
    return rc;
}

/* After a token that is not text, a space is added again; a user-defined token counts as text. */
static int put_token(struct cutter *c, int32_t id, size_t at, size_t len)
{
    int rc = end_run(c, at);
    if (!rc)
        rc = ntx__ids_add(&c->ids, id);
    c->from = at + len;
    c->at_word = id < 0 || (c->t->v.attr[id] & NTX__TYPE_MASK) != NTX__USER;
    return rc;
}

static int cut_text(struct cutter *c, size_t at, size_t end, bool all)
{
    const struct ntx__specials *sp = &c->t->sp;
    int rc = 0;
    while (!rc && at < end) {
        unsigned char b = (unsigned char)c->text[at];
        int32_t id = sp->first[b] < sp->first[b + 1] ? ntx__specials_match(&c->t->v, sp, c->text + at, end - at, all)
                                                     : -1;
        size_t len = id < 0 ? 1 : c->t->v.off[id + 1] - c->t->v.off[id];
        if (id >= 0)
            rc = put_token(c, id, at, len);
        at += len;
    }
    return rc;
}

/* ---- places (ntx_tok_limits) */

#define FIRST_PLACE (-2) /* id of a segment that is place 0; -1 is a text */

/* The next place in text[0 .. len), and its length; or NULL. */
static const char *find_place(const char *text, size_t len, const char *place, size_t *n, int32_t *number)
{
    const char *end = text + len, *at = text;
    *n = strlen(place) + NTX_PLACE_DIGITS;
    while ((at = memmem(at, (size_t)(end - at), place, *n - NTX_PLACE_DIGITS)) && (size_t)(end - at) >= *n) {
        const char *digit = at + *n - NTX_PLACE_DIGITS, *last = at + *n;
        *number = 0;
        while (digit < last && *digit >= '0' && *digit <= '9')
            *number = 10 * *number + (*digit++ - '0');
        if (digit == last)
            return at;
        at++;
    }
    return NULL;
}

/* Cuts a text at its places. Returns the number of segments; out may be NULL. */
static size_t cut_at_places(const struct ntx__seg *s, const struct ntx_tok_limits *l, struct ntx__seg *out)
{
    const char *from = s->text, *end = from ? from + s->len : NULL, *at;
    size_t n, k = 0;
    int32_t number;
    while (s->id == -1 && from && (at = find_place(from, (size_t)(end - from), l->place, &n, &number))) {
        if (out) {
            out[k] = *s;
            out[k].text = from;
            out[k].len = (size_t)(at - from);
            out[k + 1] = (struct ntx__seg){
                .text = l->place_before, .len = strlen(l->place_before), .id = -1, .template = true};
            out[k + 2] = (struct ntx__seg){.id = FIRST_PLACE - number};
            out[k + 3] = (struct ntx__seg){
                .text = l->place_behind, .len = strlen(l->place_behind), .id = -1, .template = true};
        }
        k += 4;
        from = at + n;
    }
    if (out) {
        out[k] = *s;
        out[k].text = from;
        out[k].len = from ? (size_t)(end - from) : s->len;
    }
    return k + 1;
}

/* The same segments, cut at places, in *copy if there are any. */
static int split_at_places(const struct ntx__seg **segs, size_t *n, const struct ntx_tok_limits *l,
                           struct ntx__seg **copy)
{
    size_t all = 0;
    *copy = NULL;
    for (size_t i = 0; l->place && i < *n; i++)
        all += cut_at_places(&(*segs)[i], l, NULL);
    if (!l->place || all == *n)
        return 0;
    if (!(*copy = malloc(all * sizeof **copy)))
        return -ENOMEM;
    all = 0;
    for (size_t i = 0; i < *n; i++)
        all += cut_at_places(&(*segs)[i], l, *copy + all);
    *segs = *copy;
    *n = all;
    return 0;
}

static int cut_segs(struct cutter *c, const struct ntx__seg *segs, size_t n, bool bos, bool eos)
{
    const struct ntx__vocab *v = &c->t->v;
    size_t at = 0;
    int rc = bos && v->add_bos && v->bos >= 0 ? ntx__ids_add(&c->ids, v->bos) : 0;
    for (size_t i = 0; !rc && i < n; i++) {
        if (segs[i].id <= FIRST_PLACE)
            rc = put_token(c, segs[i].id - FIRST_PLACE - 1, at, 0);
        else
            rc = segs[i].id >= 0 ? put_token(c, segs[i].id, at, 0)
                                 : cut_text(c, at, at + segs[i].len, segs[i].template);
        at += segs[i].len;
    }
    if (!rc)
        rc = end_run(c, at);
    if (!rc && eos && v->add_eos && v->eos >= 0)
        rc = ntx__ids_add(&c->ids, v->eos);
    return rc;
}

/* The joined text: the only segment's own text, else a copy in *copy. */
static const char *join_segs(const struct ntx__seg *segs, size_t n, size_t total, char **copy)
{
    *copy = NULL;
    if (n == 1)
        return segs[0].text;
    char *p = *copy = malloc(total + 1);
    for (size_t i = 0; p && i < n; i++) {
        if (segs[i].len)
            memcpy(p, segs[i].text, segs[i].len);
        p += segs[i].len;
    }
    return *copy;
}

static const struct ntx_tok_limits no_limits = {.ids = SIZE_MAX, .memory = SIZE_MAX};

/* -E2BIG, -ENOBUFS: the number of bytes alone exceeds the limits. */
static int refuse_early(const struct ntx_tokenizer *t, size_t n_segs, size_t total, const struct ntx_tok_limits *limits)
{
    if (t->v.longest && total / t->v.longest > limits->ids)
        return -E2BIG;
    return n_segs > 1 && total > limits->memory ? -ENOBUFS : 0; /* for the copy */
}

static int tokenize_cut(const struct ntx_tokenizer *t, const struct ntx__seg *segs, size_t n, bool bos, bool eos,
                        bool resume, const struct ntx_tok_limits *limits, int32_t **ids)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        if (segs[i].len > MAX_TEXT - total)
            return -EFBIG;
        total += segs[i].len;
    }
    int rc = refuse_early(t, n, total, limits);
    if (rc)
        return rc;
    char *copy;
    struct cutter c = {.t = t, .at_word = !resume, .text = join_segs(segs, n, total, &copy), .ids.limits = limits};
    rc = c.text || !total ? cut_segs(&c, segs, n, bos, eos) : -ENOMEM;
    if (!rc && !c.ids.p) /* no tokens: the caller still gets something to free */
        rc = (c.ids.p = malloc(sizeof(*c.ids.p))) ? 0 : -ENOMEM;
    free(copy);
    if (rc) {
        free(c.ids.p);
        return rc;
    }
    *ids = c.ids.p;
    return (int)c.ids.n;
}

int ntx__tokenize_segs(const struct ntx_tokenizer *t, const struct ntx__seg *segs, size_t n, bool bos, bool eos,
                       bool resume, const struct ntx_tok_limits *limits, int32_t **ids)
{
    struct ntx__seg *cut;
    limits = limits ? limits : &no_limits;
    int rc = split_at_places(&segs, &n, limits, &cut);
    if (!rc)
        rc = tokenize_cut(t, segs, n, bos, eos, resume, limits, ids);
    free(cut);
    return rc;
}

int ntx_tokenize_within(const struct ntx_tokenizer *t, const char *text, size_t len, int flags,
                        const struct ntx_tok_limits *limits, int32_t **ids)
{
    struct ntx__seg seg = {.text = text, .len = len, .id = -1, .template = flags & NTX_TOK_SPECIAL};
    return ntx__tokenize_segs(t, &seg, 1, flags & NTX_TOK_BOS, flags & NTX_TOK_BOS, false, limits, ids);
}

int ntx_tokenize(const struct ntx_tokenizer *t, const char *text, size_t len, int flags, int32_t **ids)
{
    return ntx_tokenize_within(t, text, len, flags, NULL, ids);
}

/* ---- ids -> text */

int ntx_detokenize_one(const struct ntx_tokenizer *t, int32_t id, bool first, bool special, char *buf, size_t room)
{
    if (id < 0 || (uint32_t)id >= t->v.n)
        return -EINVAL;
    unsigned type = t->v.attr[id] & NTX__TYPE_MASK;
    if (!special && (type == NTX__CONTROL || type == NTX__UNKNOWN))
        return 0;
    size_t len;
    const char *text = ntx__vocab_text(&t->v, (uint32_t)id, &len);
    if (first && t->v.add_prefix && len && *text == ' ' && (type == NTX__NORMAL || type == NTX__UNUSED)) {
        text++;
        len--;
    }
    if (len > room)
        return -ERANGE;
    if (len)
        memcpy(buf, text, len);
    return (int)len;
}

/* p[0..n), n < 4, is a proper prefix of a longer character. */
static bool begins_character(const unsigned char *p, size_t n)
{
    size_t need = p[0] >= 0xC2 && p[0] <= 0xF4 ? 2 + (p[0] >= 0xE0) + (p[0] >= 0xF0) : 0;
    if (need <= n)
        return false;
    unsigned char whole[4] = {p[0], 0x80, 0x80, 0x80};
    utf8proc_int32_t cp;
    if (n == 1)
        return true;
    memcpy(whole, p, n); /* later bytes cannot repair a wrong second byte */
    return utf8proc_iterate(whole, (utf8proc_ssize_t)need, &cp) > 0;
}

size_t ntx_utf8_hold(const char *buf, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        const unsigned char *p = (const unsigned char *)buf + n - k;
        if ((*p & 0xC0) != 0x80)
            return begins_character(p, k) ? k : 0;
    }
    return 0;
}

/* ---- facts */

uint32_t ntx_tokenizer_n_vocab(const struct ntx_tokenizer *t) { return t->v.n; }
int32_t ntx_tokenizer_bos(const struct ntx_tokenizer *t) { return t->v.bos; }
int32_t ntx_tokenizer_eos(const struct ntx_tokenizer *t) { return t->v.eos; }
bool ntx_tokenizer_fim(const struct ntx_tokenizer *t, int32_t id[3])
{
    for (unsigned k = 0; k < 3; k++)
        id[k] = t->v.fim[k];
    return id[0] >= 0 && id[1] >= 0 && id[2] >= 0;
}

bool ntx_tokenizer_has_control(const struct ntx_tokenizer *t, const char *name)
{
    size_t n, want = strlen(name);
    for (uint32_t id = 0; id < t->v.n; id++) {
        const char *p = t->v.attr[id] & NTX__GUARDED ? ntx__vocab_text(&t->v, id, &n) : NULL;
        if (p && n == want && !memcmp(p, name, n))
            return true;
    }
    return false;
}

const char *ntx_tokenizer_kind(const struct ntx_tokenizer *t) { return t->name; }
const char *ntx_tokenizer_note(const struct ntx_tokenizer *t) { return t->note; }

bool ntx_tokenizer_is_eog(const struct ntx_tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->v.n && (t->v.attr[id] & NTX__EOG);
}
