#include "client/gateway/think.h"

#include <string.h>

#include "common/util.h"

static const char open_tag[] = "<think>", close_tag[] = "</think>";

static bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static size_t blanks(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && blank(p[i]))
        i++;
    return i;
}

/* The first n bytes are used up. */
static void drop(struct ntx_buf *b, size_t n)
{
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

static void hand(struct ntx_think *t, size_t n, ntx_think_cb *cb, void *arg)
{
    if (n)
        cb(arg, t->at == NTX_THINK_INSIDE, t->held.p, n);
    drop(&t->held, n);
}

/* Blanks, then the tag, or what may become it. Each step: whether another can follow. */
static bool begin(struct ntx_think *t, bool end)
{
    size_t n = blanks(t->held.p, t->held.n), have = NTX_MIN(t->held.n - n, sizeof open_tag - 1);
    bool so_far = !memcmp(t->held.p + n, open_tag, have);
    if (so_far && have < sizeof open_tag - 1 && !end)
        return false;
    bool is = so_far && have == sizeof open_tag - 1;
    if (is || t->after)
        drop(&t->held, is ? n + have : n);
    t->at = is ? NTX_THINK_OPENED : NTX_THINK_OUTSIDE;
    return true;
}

static bool opened(struct ntx_think *t)
{
    drop(&t->held, blanks(t->held.p, t->held.n));
    t->at = t->held.n ? NTX_THINK_INSIDE : NTX_THINK_OPENED;
    return t->held.n;
}

/* Bytes at the end that may be blanks before a closing tag, and its beginning. */
static size_t doubtful(const char *p, size_t n)
{
    size_t tag = NTX_MIN(n, sizeof close_tag - 2);
    while (tag && memcmp(p + n - tag, close_tag, tag))
        tag--;
    size_t i = n - tag;
    while (i && blank(p[i - 1]))
        i--;
    return n - i;
}

static bool inside(struct ntx_think *t, bool end, ntx_think_cb *cb, void *arg)
{
    const char *tag = memmem(t->held.p, t->held.n, close_tag, sizeof close_tag - 1);
    size_t n = tag ? (size_t)(tag - t->held.p) : t->held.n - (end ? 0 : doubtful(t->held.p, t->held.n)), text = n;
    while (tag && text && blank(t->held.p[text - 1]))
        text--;
    hand(t, text, cb, arg);
    if (!tag)
        return false;
    drop(&t->held, n - text + sizeof close_tag - 1);
    t->at = NTX_THINK_BEGIN;
    t->after = true;
    return t->held.n;
}

static bool step(struct ntx_think *t, bool end, ntx_think_cb *cb, void *arg)
{
    switch (t->at) {
    case NTX_THINK_BEGIN: return begin(t, end);
    case NTX_THINK_OPENED: return opened(t);
    case NTX_THINK_INSIDE: return inside(t, end, cb, arg);
    default: hand(t, t->held.n, cb, arg); return false;
    }
}

void ntx_think_feed(struct ntx_think *t, const char *text, size_t len, bool end, ntx_think_cb *cb, void *arg)
{
    ntx_buf_add(&t->held, text, len);
    while (t->held.n && !t->held.bad && step(t, end, cb, arg))
        ;
}

void ntx_think_free(struct ntx_think *t) { ntx_buf_free(&t->held); }
