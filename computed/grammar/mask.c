/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c: the vocabulary sorted by its bytes, each token as what it does not share with the one before; and masks.
 *
 * A walk goes through them in order with a set of stacks for each byte of the last path: what fails at some depth is
 * passed over until less is shared. Two kinds are bins of their own: plain tokens (of at most RUN characters, of
 * printable ASCII but for quote and backslash), and those that have whole characters beyond ASCII, too. In a JSON
 * string, or wherever all such characters lead to one and the same set, a mask made beforehand has all that are as long
 * as characters may come (so a counted string costs little at each of its characters, though none of their sets comes
 * again), and only the others are walked through. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/match.h"

enum { RUN = 16, TOKEN_MOST = 4096 };
enum kind { ASCII, UNICODE, OTHER, KINDS };

struct bin {
    uint32_t n;
    int32_t *ids;
    uint16_t *shared, *more; /* [n] bytes shared with the one before; and those that come behind, in text */
    char *text;
    uint32_t first[257],
        at[257]; /* those that begin with byte c are [first[c], first[c + 1]), their text begins at at[c] */
};

struct ntx_tokens {
    uint32_t n_vocab;
    struct bin bin[KINDS];
    uint32_t *upto; /* [2 x RUN x words] masks: of the plain ones of ASCII, and of those with others, of at most 1, 2,
                       ... RUN characters */
    size_t bytes;
};

static uint32_t words(const struct ntx_tokens *t) { return (t->n_vocab + 31) / 32; }
static uint32_t *upto(const struct ntx_tokens *t, enum kind kind, unsigned chars)
{
    return t->upto + (size_t)(kind * RUN + chars - 1) * words(t);
}

static bool plain_char(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

/* The characters beyond ASCII, as bytes. */
struct span {
    uint8_t lo, hi;
};
static const struct {
    unsigned n;
    struct span span[4];
} utf8[] = {
    {2, {{0xc2, 0xdf}, {0x80, 0xbf}}},
    {3, {{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}}},
    {3, {{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}}},
    {3, {{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}}},
    {3, {{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}}},
    {4, {{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}},
    {4, {{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}},
    {4, {{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}}},
};

/* Bytes of the character beyond ASCII that stands at p; 0: none does. */
static unsigned wide_char(const char *p, size_t n)
{
    for (size_t i = 0; i < sizeof utf8 / sizeof *utf8; i++) {
        unsigned k = 0;
        while (k < utf8[i].n && k < n && (unsigned char)p[k] >= utf8[i].span[k].lo &&
               (unsigned char)p[k] <= utf8[i].span[k].hi)
            k++;
        if (k == utf8[i].n)
            return k;
    }
    return 0;
}

static enum kind kind_of(const char *p, size_t n, unsigned *chars)
{
    enum kind kind = ASCII;
    *chars = 0;
    for (size_t i = 0; i < n; ++*chars) {
        unsigned k = plain_char((unsigned char)p[i]) ? 1 : wide_char(p + i, n - i);
        if (!k)
            return OTHER;
        kind = k > 1 ? UNICODE : kind;
        i += k;
    }
    return *chars <= RUN ? kind : OTHER;
}

/* ---- making it */

struct raw {
    char *pool;
    size_t n_pool, room;
    struct word {
        size_t at;
        uint32_t len;
        int32_t id;
        uint8_t kind, chars;
    } * list; /* [n] */
    uint32_t n, n_kind[KINDS];
};

static int by_bytes(const void *a, const void *b, void *pool)
{
    const struct word *x = a, *y = b;
    const char *p = pool;
    int d = memcmp(p + x->at, p + y->at, x->len < y->len ? x->len : y->len);
    return d ? d : x->len != y->len ? (x->len < y->len ? -1 : 1) : x->id < y->id ? -1 : x->id > y->id;
}

static int gather(struct raw *r, uint32_t n, ntx_token_bytes_fn *bytes, void *ctx)
{
    for (uint32_t i = 0; i < n; i++) {
        if (r->n_pool + TOKEN_MOST > r->room) {
            size_t room = 2 * r->room + 16 * TOKEN_MOST;
            char *p = realloc(r->pool, room);
            if (!p)
                return -ENOMEM;
            r->pool = p;
            r->room = room;
        }
        int len = bytes(ctx, (int32_t)i, r->pool + r->n_pool, TOKEN_MOST);
        if (len <= 0)
            continue;
        unsigned chars;
        enum kind kind = kind_of(r->pool + r->n_pool, (size_t)len, &chars);
        r->list[r->n++] = (struct word){r->n_pool, (uint32_t)len, (int32_t)i, (uint8_t)kind, (uint8_t)chars};
        r->n_kind[kind]++;
        r->n_pool += (size_t)len;
    }
    if (r->n)
        qsort_r(r->list, r->n, sizeof *r->list, by_bytes, r->pool);
    return 0;
}

static uint32_t shared_of(const struct raw *r, const struct word *a, const struct word *b)
{
    uint32_t n = 0;
    while (n < a->len && n < b->len && r->pool[a->at + n] == r->pool[b->at + n])
        n++;
    return n;
}

/* Bytes of the kind's tokens that they do not share with the ones before. */
static size_t text_of(const struct raw *r, enum kind kind)
{
    const struct word *before = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->list[i].kind == kind) {
            n += r->list[i].len - (before ? shared_of(r, before, &r->list[i]) : 0);
            before = &r->list[i];
        }
    return n;
}

static int make_bin(struct bin *g, const struct raw *r, enum kind kind, size_t *bytes)
{
    const struct word *before = NULL;
    uint32_t at = 0, byte = 0, n = r->n_kind[kind];
    size_t text = text_of(r, kind);
    g->ids = malloc((n + 1) * sizeof *g->ids);
    g->shared = malloc((n + 1) * sizeof *g->shared);
    g->more = malloc((n + 1) * sizeof *g->more);
    g->text = malloc(text + 1);
    if (!g->ids || !g->shared || !g->more || !g->text)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct word *w = &r->list[i];
        if (w->kind != kind)
            continue;
        for (; byte <= (unsigned char)r->pool[w->at]; byte++)
            g->first[byte] = g->n, g->at[byte] = at;
        uint32_t shared = before ? shared_of(r, before, w) : 0;
        g->ids[g->n] = w->id;
        g->shared[g->n] = (uint16_t)shared;
        g->more[g->n++] = (uint16_t)(w->len - shared);
        memcpy(g->text + at, r->pool + w->at + shared, w->len - shared);
        at += w->len - shared;
        before = w;
    }
    for (; byte <= 256; byte++)
        g->first[byte] = g->n, g->at[byte] = at;
    *bytes += n * (sizeof *g->ids + sizeof *g->shared + sizeof *g->more) + text;
    return 0;
}

static void make_masks(struct ntx_tokens *t, const struct raw *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        for (unsigned chars = r->list[i].chars; r->list[i].kind != OTHER && chars <= RUN; chars++)
            upto(t, r->list[i].kind, chars)[r->list[i].id / 32] |= 1u << (r->list[i].id % 32);
}

int ntx_tokens_new(uint32_t n, ntx_token_bytes_fn *bytes, void *ctx, struct ntx_tokens **out)
{
    struct raw r = {.list = malloc((n + 1) * sizeof *r.list)};
    struct ntx_tokens *t = calloc(1, sizeof *t);
    int rc = r.list && t ? 0 : -ENOMEM;
    if (!rc) {
        t->n_vocab = n;
        t->upto = calloc(2 * RUN * (size_t)words(t) + 1, sizeof *t->upto);
        t->bytes = sizeof *t + 2 * RUN * (size_t)words(t) * sizeof *t->upto;
        rc = t->upto ? gather(&r, n, bytes, ctx) : -ENOMEM;
    }
    for (unsigned i = 0; !rc && i < KINDS; i++)
        rc = make_bin(&t->bin[i], &r, i, &t->bytes);
    if (!rc)
        make_masks(t, &r);
    free(r.list);
    free(r.pool);
    if (rc)
        ntx_tokens_free(t);
    else
        *out = t;
    return rc;
}

void ntx_tokens_free(struct ntx_tokens *t)
{
    if (!t)
        return;
    for (unsigned i = 0; i < KINDS; i++) {
        free(t->bin[i].ids);
        free(t->bin[i].shared);
        free(t->bin[i].more);
        free(t->bin[i].text);
    }
    free(t->upto);
    free(t);
}

size_t ntx_tokens_bytes(const struct ntx_tokens *t) { return t->bytes; }

/* ---- runs of characters that may all come */

/* Of two sets that bytes lead to, the one for both. */
static uint32_t joined(uint32_t a, uint32_t b) { return a == NTX__UNKNOWN || a == b ? b : NTX__MIXED; }

static uint32_t all_ascii(struct ntx_match *m, uint32_t set)
{
    uint32_t to = NTX__UNKNOWN;
    for (unsigned c = 0x20; c < 0x7f && to != NTX__MIXED; c++)
        if (plain_char((unsigned char)c))
            to = joined(to, ntx__match_step(m, set, (uint8_t)c));
    return to;
}

/* Where the sequences of n bytes out of these spans lead. */
static uint32_t all_of(struct ntx_match *m, uint32_t set, const struct span *s, unsigned n)
{
    uint32_t to = NTX__UNKNOWN;
    const uint8_t *class_of = m->c.grammar->class_of;
    for (unsigned c = s->lo; c <= s->hi && to != NTX__MIXED; c++) {
        if (c > s->lo && class_of[c] == class_of[c - 1])
            continue;
        uint32_t one = ntx__match_step(m, set, (uint8_t)c);
        to = joined(to, one == NTX__STUCK || n == 1 ? one : all_of(m, one, s + 1, n - 1));
    }
    return to;
}

static uint32_t all_unicode(struct ntx_match *m, uint32_t set)
{
    uint32_t to = all_ascii(m, set);
    for (size_t i = 0; i < sizeof utf8 / sizeof *utf8 && to != NTX__MIXED; i++)
        to = joined(to, all_of(m, set, utf8[i].span, utf8[i].n));
    return to;
}

/* How many characters of this kind may come whatever they are, RUN at most; *sure: no more may, whatever they are, or
 * RUN may. */
static unsigned run_of(struct ntx_match *m, enum kind kind, bool *sure)
{
    uint32_t set = m->now;
    for (unsigned n = 0; n < RUN; n++) {
        uint32_t to = m->sets[set].all[kind];
        if (to == NTX__UNKNOWN) {
            to = kind == ASCII ? all_ascii(m, set) : all_unicode(m, set);
            if (m->failed)
                return 0;
            m->sets[set].all[kind] = to;
        }
        *sure = to != NTX__MIXED;
        if (to == NTX__MIXED || to == NTX__STUCK)
            return n;
        set = to;
    }
    return RUN;
}

/* ---- the walk */

struct walk {
    struct ntx_match *m;
    uint32_t *bits;
    bool lead;
    uint32_t path[TOKEN_MOST + 1]; /* path[k]: the set behind k bytes */
};

static uint32_t step(const struct walk *w, unsigned depth, uint8_t byte)
{
    return !depth && w->lead && byte == ' ' ? w->path[0] : ntx__match_step(w->m, w->path[depth], byte);
}

/* The tokens of g that begin with byte c. */
static void walk_byte(struct walk *w, const struct bin *g, unsigned c)
{
    const char *text = g->text + g->at[c];
    unsigned valid = 0; /* bytes of the last token that could come */
    for (uint32_t i = g->first[c]; i < g->first[c + 1]; text += g->more[i++]) {
        unsigned depth = i == g->first[c] ? 0 : g->shared[i], n = g->more[i], k = 0;
        if (depth > valid)
            continue;
        for (; k < n; k++) {
            uint32_t to = step(w, depth, (uint8_t)text[k]);
            if (to == NTX__STUCK)
                break;
            w->path[++depth] = to;
        }
        valid = depth;
        if (k == n)
            w->bits[g->ids[i] / 32] |= 1u << (g->ids[i] % 32);
    }
}

static void walk_bin(struct walk *w, const struct bin *g)
{
    for (unsigned c = 0; c < 256 && !w->m->failed; c++)
        if (g->first[c] < g->first[c + 1] && step(w, 0, (uint8_t)c) != NTX__STUCK)
            walk_byte(w, g, c);
}

/* The tokens of a kind, at once where all of them may come up to some length and no others. */
static void fill_kind(struct walk *w, enum kind kind)
{
    const struct ntx_tokens *t = w->m->c.tokens;
    bool sure = false;
    unsigned run = kind == OTHER || w->lead ? 0 : run_of(w->m, kind, &sure);
    if (!sure) {
        walk_bin(w, &t->bin[kind]);
        return;
    }
    const uint32_t *all = run ? upto(t, kind, run) : NULL;
    for (uint32_t i = 0; i < words(t) && all; i++)
        w->bits[i] |= all[i];
}

static void fill(struct ntx_match *m, bool lead, uint32_t *bits)
{
    struct walk w = {.m = m, .bits = bits, .lead = lead};
    w.path[0] = m->now;
    memset(bits, 0, words(m->c.tokens) * sizeof *bits);
    for (unsigned kind = 0; kind < KINDS && !m->failed; kind++)
        fill_kind(&w, kind);
}

static bool none_of(const uint32_t *bits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (bits[i])
            return false;
    return true;
}

/* The mask that was used longest ago, or never. */
static struct kept_mask *oldest(struct ntx_match *m)
{
    struct kept_mask *k = &m->masks[0];
    for (unsigned i = 1; i < NTX__MASKS; i++)
        if (m->masks[i].used < k->used)
            k = &m->masks[i];
    size_t bytes = words(m->c.tokens) * sizeof *k->bits;
    if (!k->bits && (k != &m->masks[0] && m->bytes + bytes > m->c.memory)) /* one there is in any case */
        k = &m->masks[0];
    if (!k->bits) {
        if (!(k->bits = malloc(bytes + 4)))
            m->failed = -ENOMEM;
        m->bytes += bytes;
    }
    return k;
}

static const struct kept_mask *mask(struct ntx_match *m, bool lead)
{
    for (unsigned i = 0; i < NTX__MASKS; i++)
        if (m->masks[i].used && m->masks[i].set == m->now && m->masks[i].lead == lead) {
            m->masks[i].used = ++m->uses;
            return &m->masks[i];
        }
    struct kept_mask *k = oldest(m);
    k->used = 0;
    if (!m->failed)
        fill(m, lead, k->bits);
    if (m->failed)
        return NULL;
    *k = (struct kept_mask){
        .bits = k->bits, .set = m->now, .used = ++m->uses, .lead = lead, .none = none_of(k->bits, words(m->c.tokens))};
    return k;
}

int ntx_match_mask(struct ntx_match *m, bool lead, const uint32_t **out, bool *none)
{
    m->failed = 0;
    m->steps = 0;
    const struct kept_mask *k = mask(m, lead);
    int rc = m->failed;
    if (!k && !(rc = ntx__match_again(m, rc))) {
        k = mask(m, lead);
        rc = m->failed;
    }
    m->failed = 0;
    if (!k)
        return rc ? rc : -E2BIG;
    *out = k->bits;
    *none = k->none;
    return 0;
}
