/* mask.c: the vocabulary sorted by its bytes, each token as what it does not share with the one before; and masks.
 *
 * A walk goes through them in order with a set of stacks for each byte of the last path: what fails at some depth is passed over until less is shared.
 * Plain tokens (short, of printable ASCII but for quote and backslash) are a group of their own: in a JSON string, or wherever as many plain characters may come
 * as such a token can have, all of them may, and only the others are walked through. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/match.h"

enum { PLAIN_RUN = 16, TOKEN_MOST = 4096 };

struct group {
    uint32_t n;
    int32_t *ids;
    uint16_t *shared, *more; /* [n] bytes shared with the one before; and those that come behind, in text */
    char *text;
    uint32_t first[257], at[257]; /* those that begin with byte c are [first[c], first[c + 1]), their text begins at at[c] */
};

struct ntx_tokens {
    uint32_t n_vocab;
    struct group group[2]; /* plain ones; others */
    uint32_t *plain;       /* [words] mask of the plain ones */
    size_t bytes;
};

static uint32_t words(const struct ntx_tokens *t) { return (t->n_vocab + 31) / 32; }

static bool plain_char(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

static bool is_plain(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!plain_char((unsigned char)p[i]))
            return false;
    return n <= PLAIN_RUN;
}

/* ---- making it */

struct raw {
    char *pool;
    size_t n_pool, room;
    struct word {
        size_t at;
        uint32_t len;
        int32_t id;
    } *list; /* [n] */
    uint32_t n;
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
        r->list[r->n++] = (struct word){r->n_pool, (uint32_t)len, (int32_t)i};
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

static int make_group(struct group *g, const struct raw *r, bool plain, size_t *bytes)
{
    const struct word *before = NULL;
    uint32_t at = 0, byte = 0;
    g->ids = malloc((r->n + 1) * sizeof *g->ids);
    g->shared = malloc((r->n + 1) * sizeof *g->shared);
    g->more = malloc((r->n + 1) * sizeof *g->more);
    g->text = malloc(r->n_pool + 1);
    if (!g->ids || !g->shared || !g->more || !g->text)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct word *w = &r->list[i];
        if (is_plain(r->pool + w->at, w->len) != plain)
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
    char *text = realloc(g->text, at + 1);
    g->text = text ? text : g->text;
    *bytes += (r->n + 1) * 8 + at;
    return 0;
}

int ntx_tokens_new(uint32_t n, ntx_token_bytes_fn *bytes, void *ctx, struct ntx_tokens **out)
{
    struct raw r = {.list = malloc((n + 1) * sizeof *r.list)};
    struct ntx_tokens *t = calloc(1, sizeof *t);
    int rc = r.list && t ? 0 : -ENOMEM;
    if (!rc) {
        t->n_vocab = n;
        t->plain = calloc(words(t) + 1, sizeof *t->plain);
        t->bytes = sizeof *t + words(t) * sizeof *t->plain;
        rc = t->plain ? gather(&r, n, bytes, ctx) : -ENOMEM;
    }
    for (int i = 0; !rc && i < 2; i++)
        rc = make_group(&t->group[i], &r, !i, &t->bytes);
    for (uint32_t i = 0; !rc && i < t->group[0].n; i++)
        t->plain[t->group[0].ids[i] / 32] |= 1u << (t->group[0].ids[i] % 32);
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
    for (int i = 0; i < 2; i++) {
        free(t->group[i].ids);
        free(t->group[i].shared);
        free(t->group[i].more);
        free(t->group[i].text);
    }
    free(t->plain);
    free(t);
}

size_t ntx_tokens_bytes(const struct ntx_tokens *t) { return t->bytes; }

/* ---- plain runs */

/* The set that every plain character leads to; STUCK: they do not lead to one. */
static uint32_t plain_step(struct ntx_match *m, uint32_t set)
{
    uint32_t to = NTX__UNKNOWN;
    for (unsigned c = 0x20; c < 0x7f; c++) {
        if (!plain_char((unsigned char)c))
            continue;
        uint32_t one = ntx__match_step(m, set, (uint8_t)c);
        if (one == NTX__STUCK || (to != NTX__UNKNOWN && one != to))
            return NTX__STUCK;
        to = one;
    }
    return to;
}

/* How many plain characters may come, whatever they are: at most PLAIN_RUN are looked at. */
static unsigned plain_run(struct ntx_match *m, uint32_t set)
{
    uint32_t path[PLAIN_RUN];
    unsigned n = 0, rest = 0;
    for (;; n++) {
        if (m->failed)
            return 0;
        if (m->sets[set].plain != NTX__UNKNOWN_RUN) {
            rest = m->sets[set].plain;
            break;
        }
        if (n == PLAIN_RUN)
            break;
        path[n] = set;
        uint32_t to = plain_step(m, set);
        if (to == NTX__STUCK) {
            m->sets[set].plain = 0;
            break;
        }
        if (to == set) {
            m->sets[set].plain = rest = PLAIN_RUN;
            break;
        }
        set = to;
    }
    bool sure = rest > 0 || n < PLAIN_RUN;
    for (unsigned i = 0; i < n; i++) {
        unsigned run = rest + n - i;
        if (sure || run >= PLAIN_RUN)
            m->sets[path[i]].plain = (uint8_t)(run < PLAIN_RUN ? run : PLAIN_RUN);
    }
    return rest + n < PLAIN_RUN ? rest + n : PLAIN_RUN;
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
static void walk_byte(struct walk *w, const struct group *g, unsigned c)
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

static void walk_group(struct walk *w, const struct group *g)
{
    for (unsigned c = 0; c < 256 && !w->m->failed; c++)
        if (g->first[c] < g->first[c + 1] && step(w, 0, (uint8_t)c) != NTX__STUCK)
            walk_byte(w, g, c);
}

static void fill(struct ntx_match *m, bool lead, uint32_t *bits)
{
    const struct ntx_tokens *t = m->c.tokens;
    struct walk w = {.m = m, .bits = bits, .lead = lead};
    w.path[0] = m->now;
    bool run = !lead && plain_run(m, m->now) >= PLAIN_RUN;
    if (run)
        memcpy(bits, t->plain, words(t) * sizeof *bits);
    else
        memset(bits, 0, words(t) * sizeof *bits);
    for (int i = run; i < 2 && !m->failed; i++)
        walk_group(&w, &t->group[i]);
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
    *k = (struct kept_mask){.bits = k->bits, .set = m->now, .used = ++m->uses, .lead = lead, .none = none_of(k->bits, words(m->c.tokens))};
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
