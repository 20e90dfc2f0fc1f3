/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c: the sorted vocabulary, each token as the bytes that it does not share with the one before; and masks.
 *
 * A walk visits the tokens in order, with a set of stacks for each byte of the current path; after a failure at some
 * depth it skips tokens that share more. Two kinds of tokens have bins of their own: plain tokens (at most RUN
 * characters of printable ASCII without quote and backslash), and those that also have whole non-ASCII characters.
 * In a JSON string, or wherever all such characters lead to the same set, a precomputed mask has all of them up to
 * the possible number of characters, and only the others are walked. (So a counted string is cheap at each
 * character, though its sets never recur.) */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/match.h"

enum { RUN = 16, TOKEN_MOST = 4096 };
enum kind { ASCII, UNICODE, OTHER, KINDS };

struct bin {
    uint32_t n;
    int32_t *ids;
    uint16_t *shared, *more; /* [n] bytes shared with the token before; bytes behind them, in text */
    char *text;
    uint32_t first[257],
        at[257]; /* tokens that begin with byte c are [first[c], first[c + 1]); their text begins at at[c] */
};

struct ntx_tokens {
    uint32_t n_vocab;
    struct bin bin[KINDS];
    uint32_t *upto; /* [2 x RUN x words] masks of plain ASCII tokens, and of those with other characters, of at most
                       1, 2, ... RUN characters */
    size_t bytes;
};

static uint32_t words(const struct ntx_tokens *t) { return (t->n_vocab + 31) / 32; }
static uint32_t *upto(const struct ntx_tokens *t, enum kind kind, unsigned chars)
{
    return t->upto + (size_t)(kind * RUN + chars - 1) * words(t);
}

static bool plain_char(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

/* Ranges of bytes of non-ASCII characters. */
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

/* Bytes of the non-ASCII character at p; 0: none. */
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
    if (d)
        return d;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
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

/* Bytes of the kind's tokens that they do not share with the token before. */
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

/* Combines the sets that two groups of bytes lead to. */
static uint32_t joined(uint32_t a, uint32_t b) { return a == NTX__UNKNOWN || a == b ? b : NTX__MIXED; }

static uint32_t all_ascii(struct ntx_match *m, uint32_t set)
{
    uint32_t to = NTX__UNKNOWN;
    for (unsigned c = 0x20; c < 0x7f && to != NTX__MIXED; c++)
        if (plain_char((unsigned char)c))
            to = joined(to, ntx__match_step(m, set, (uint8_t)c));
    return to;
}

/* The set that all sequences of n bytes out of these ranges lead to. */
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

/* The number of arbitrary characters of this kind that may come, at most RUN; *sure: exactly so many, or RUN. */
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
    uint32_t path[TOKEN_MOST + 1]; /* path[k]: the set after k bytes */
};

static uint32_t next_set(const struct walk *w, unsigned depth, uint8_t byte)
{
    return !depth && w->lead && byte == ' ' ? w->path[0] : ntx__match_step(w->m, w->path[depth], byte);
}

/* Walks the tokens of g that begin with byte c. */
static void walk_byte(struct walk *w, const struct bin *g, unsigned c)
{
    const char *text = g->text + g->at[c];
    unsigned valid = 0; /* valid bytes of the last token */
    for (uint32_t i = g->first[c]; i < g->first[c + 1]; text += g->more[i++]) {
        unsigned depth = i == g->first[c] ? 0 : g->shared[i], n = g->more[i], k = 0;
        if (depth > valid)
            continue;
        for (; k < n; k++) {
            uint32_t to = next_set(w, depth, (uint8_t)text[k]);
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
        if (g->first[c] < g->first[c + 1] && next_set(w, 0, (uint8_t)c) != NTX__STUCK)
            walk_byte(w, g, c);
}

/* Sets the tokens of a kind: by a mask, if all of them may come up to some length and no others, else by a walk. */
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

static void fill_mask(struct ntx_match *m, bool lead, uint32_t *bits)
{
    struct walk w = {.m = m, .bits = bits, .lead = lead};
    w.path[0] = m->now;
    memset(bits, 0, words(m->c.tokens) * sizeof *bits);
    for (unsigned kind = 0; kind < KINDS && !m->failed; kind++)
        fill_kind(&w, kind);
}

/* ---- masks that answers share */

#define KEY_MOST 1024u /* words; the masks of larger sets are not shared */
#define CHAINS   256u

/* Immutable once it is computed. */
struct mask {
    struct mask *next, *older, *newer; /* of a chain; of those without users */
    const struct ntx_grammar *grammar;
    uint64_t hash;
    uint32_t users, n_key, n_bits; /* users: matches that have it */
    bool none, shared;
    uint32_t words[]; /* [n_bits] the mask, then [n_key] of which set */
};

struct ntx_masks {
    pthread_mutex_t lock;
    struct mask *chain[CHAINS];
    struct mask *oldest, *newest; /* of those without users */
    size_t bytes, most;           /* of the same */
    uint64_t computed;
};

int ntx_masks_new(struct ntx_masks **out)
{
    struct ntx_masks *k = calloc(1, sizeof *k);
    if (!k)
        return -ENOMEM;
    pthread_mutex_init(&k->lock, NULL);
    *out = k;
    return 0;
}

static size_t mask_bytes(uint32_t n_bits, uint32_t n_key)
{
    return sizeof(struct mask) + ((size_t)n_bits + n_key) * sizeof(uint32_t);
}

static size_t bytes_of(const struct mask *x) { return mask_bytes(x->n_bits, x->n_key); }

static void rest(struct ntx_masks *k, struct mask *x)
{
    x->newer = NULL;
    x->older = k->newest;
    *(x->older ? &x->older->newer : &k->oldest) = x;
    k->newest = x;
    k->bytes += bytes_of(x);
}

static void wake(struct ntx_masks *k, struct mask *x)
{
    *(x->older ? &x->older->newer : &k->oldest) = x->newer;
    *(x->newer ? &x->newer->older : &k->newest) = x->older;
    k->bytes -= bytes_of(x);
}

/* It has no users. */
static void free_mask(struct ntx_masks *k, struct mask *x)
{
    struct mask **p = &k->chain[x->hash % CHAINS];
    while (*p != x)
        p = &(*p)->next;
    *p = x->next;
    wake(k, x);
    free(x);
}

static void fit(struct ntx_masks *k)
{
    while (k->bytes > k->most)
        free_mask(k, k->oldest);
}

void ntx_masks_free(struct ntx_masks *k)
{
    if (!k)
        return;
    while (k->oldest)
        free_mask(k, k->oldest);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

void ntx_masks_forget(struct ntx_masks *k, const struct ntx_grammar *g)
{
    pthread_mutex_lock(&k->lock);
    for (struct mask *x = k->oldest, *newer; x; x = newer) {
        newer = x->newer;
        if (x->grammar == g)
            free_mask(k, x);
    }
    pthread_mutex_unlock(&k->lock);
}

void ntx_masks_allow(struct ntx_masks *k, size_t bytes)
{
    pthread_mutex_lock(&k->lock);
    k->most = bytes;
    fit(k);
    pthread_mutex_unlock(&k->lock);
}

size_t ntx_masks_bytes(struct ntx_masks *k)
{
    pthread_mutex_lock(&k->lock);
    size_t bytes = k->bytes;
    pthread_mutex_unlock(&k->lock);
    return bytes;
}

uint64_t ntx_masks_computed(struct ntx_masks *k)
{
    pthread_mutex_lock(&k->lock);
    uint64_t n = k->computed;
    pthread_mutex_unlock(&k->lock);
    return n;
}

/* The mask of that key, with one user more; NULL: there is none. */
static struct mask *find_mask(struct ntx_masks *k, const struct ntx_grammar *g, const uint32_t *key, uint32_t n,
                              uint64_t hash)
{
    pthread_mutex_lock(&k->lock);
    struct mask *x = k->chain[hash % CHAINS];
    while (x && !(x->hash == hash && x->grammar == g && x->n_key == n &&
                  !memcmp(x->words + x->n_bits, key, n * sizeof *key)))
        x = x->next;
    if (x && !x->users++)
        wake(k, x);
    pthread_mutex_unlock(&k->lock);
    return x;
}

/* Two answers may have computed it at the same time: both masks stay, the next answer finds one of them. */
static void share_mask(struct ntx_masks *k, struct mask *x)
{
    pthread_mutex_lock(&k->lock);
    k->computed++;
    x->shared = x->n_key > 0;
    if (x->shared) {
        x->next = k->chain[x->hash % CHAINS];
        k->chain[x->hash % CHAINS] = x;
    }
    pthread_mutex_unlock(&k->lock);
}

void ntx__match_drop_mask(struct ntx_match *m, struct kept_mask *kept)
{
    struct ntx_masks *k = m->c.masks;
    struct mask *x = kept->mask;
    kept->mask = NULL;
    if (!x)
        return;
    m->bytes -= bytes_of(x);
    if (!x->shared) {
        free(x);
        return;
    }
    pthread_mutex_lock(&k->lock);
    if (!--x->users)
        rest(k, x);
    fit(k);
    pthread_mutex_unlock(&k->lock);
}

/* ---- which set it is, whatever numbers its match gave to sets and frames */

static int by_states(const void *a, const void *b, void *frames)
{
    const struct frame *f = frames;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    for (; x != y && x != UINT32_MAX && y != UINT32_MAX; x = f[x].under, y = f[y].under)
        if (f[x].state != f[y].state)
            return f[x].state < f[y].state ? -1 : 1;
    if (x == y)
        return 0;
    return x == UINT32_MAX ? -1 : 1;
}

/* Of each stack its states from the top, the stacks in order. Its words; 0: more than KEY_MOST. */
static uint32_t key_of(const struct ntx_match *m, bool lead, uint32_t *key)
{
    const struct stacks *s = &m->sets[m->now];
    uint32_t items[KEY_MOST], n = 0;
    if (s->n > KEY_MOST / 2)
        return 0;
    if (s->n) {
        memcpy(items, m->items + s->first, s->n * sizeof *items);
        qsort_r(items, s->n, sizeof *items, by_states, m->frames);
    }
    key[n++] = lead;
    for (uint32_t i = 0; i < s->n; i++) {
        for (uint32_t f = items[i]; f != UINT32_MAX; f = m->frames[f].under) {
            if (n + 2 > KEY_MOST)
                return 0;
            key[n++] = m->frames[f].state;
        }
        key[n++] = UINT32_MAX;
    }
    return n;
}

static uint64_t hash_of(const struct ntx_grammar *g, const uint32_t *key, uint32_t n)
{
    uint64_t h = (uintptr_t)g;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ key[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

/* ---- the masks of a match */

static bool none_of(const uint32_t *bits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (bits[i])
            return false;
    return true;
}

/* Finds a place for a mask of so many bytes: masks are dropped for it, those used longest ago first. If the memory is
 * less than one mask, there is one all the same. */
static struct kept_mask *place(struct ntx_match *m, size_t bytes)
{
    for (;;) {
        struct kept_mask *empty = NULL, *oldest = NULL;
        for (struct kept_mask *k = m->masks; k < m->masks + NTX__MASKS; k++)
            if (!k->mask)
                empty = k;
            else if (!oldest || k->used < oldest->used)
                oldest = k;
        if (empty && (!oldest || m->bytes + bytes <= m->c.memory))
            return empty;
        ntx__match_drop_mask(m, oldest);
    }
}

static const struct mask *keep(struct ntx_match *m, bool lead, struct kept_mask *k, struct mask *x)
{
    *k = (struct kept_mask){.mask = x, .set = m->now, .used = ++m->uses, .lead = lead};
    m->bytes += bytes_of(x);
    return x;
}

static struct mask *compute(struct ntx_match *m, bool lead, const uint32_t *key, uint32_t n_key)
{
    uint32_t n_bits = words(m->c.tokens);
    struct mask *x = malloc(mask_bytes(n_bits, n_key));
    if (!x) {
        m->failed = -ENOMEM;
        return NULL;
    }
    fill_mask(m, lead, x->words);
    if (m->failed) {
        free(x);
        return NULL;
    }
    *x = (struct mask){.grammar = m->c.grammar,
                       .hash = hash_of(m->c.grammar, key, n_key),
                       .users = 1,
                       .n_key = n_key,
                       .n_bits = n_bits,
                       .none = none_of(x->words, n_bits)};
    if (n_key)
        memcpy(x->words + n_bits, key, n_key * sizeof *key);
    return x;
}

static const struct mask *mask(struct ntx_match *m, bool lead)
{
    for (struct kept_mask *k = m->masks; k < m->masks + NTX__MASKS; k++)
        if (k->mask && k->set == m->now && k->lead == lead) {
            k->used = ++m->uses;
            return k->mask;
        }
    uint32_t key[KEY_MOST], n_key = m->c.masks ? key_of(m, lead, key) : 0;
    struct kept_mask *k = place(m, mask_bytes(words(m->c.tokens), n_key));
    struct mask *x = n_key ? find_mask(m->c.masks, m->c.grammar, key, n_key, hash_of(m->c.grammar, key, n_key)) : NULL;
    if (x)
        return keep(m, lead, k, x);
    x = compute(m, lead, key, n_key);
    if (!x)
        return NULL;
    if (m->c.masks)
        share_mask(m->c.masks, x);
    return keep(m, lead, k, x);
}

int ntx_match_mask(struct ntx_match *m, bool lead, const uint32_t **out, bool *none)
{
    m->failed = 0;
    m->steps = 0;
    const struct mask *x = mask(m, lead);
    int rc = m->failed;
    if (!x && !(rc = ntx__match_again(m, rc))) {
        x = mask(m, lead);
        rc = m->failed;
    }
    m->failed = 0;
    if (!x)
        return rc ? rc : -E2BIG;
    *out = x->words;
    *none = x->none;
    return 0;
}
