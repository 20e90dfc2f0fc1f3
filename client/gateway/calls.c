#include "client/gateway/calls.h"

#include <string.h>

#include "common/util.h"

static const char open_tag[] = "<tool_call>", close_tag[] = "</tool_call>";

static bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static void drop(struct ntx_buf *b, size_t n)
{
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

static void say(struct ntx_calls *c, size_t n, const struct ntx_calls_to *to)
{
    if (n)
        to->text(to->arg, c->held.p, n);
    drop(&c->held, n);
}

/* Bytes at the end that may be blanks before a tag, and its beginning. */
static size_t doubtful(const char *p, size_t n)
{
    size_t tag = NTX_MIN(n, sizeof open_tag - 2);
    while (tag && memcmp(p + n - tag, open_tag, tag))
        tag--;
    size_t i = n - tag;
    while (i && blank(p[i - 1]))
        i--;
    return n - i;
}

static bool outside(struct ntx_calls *c, bool end, const struct ntx_calls_to *to)
{
    size_t lead = 0;
    while (c->n && lead < c->held.n && blank(c->held.p[lead]))
        lead++;
    const char *tag = c->n < NTX_CALLS_MOST ? memmem(c->held.p, c->held.n, open_tag, sizeof open_tag - 1) : NULL;
    if (!tag) {
        if (end && lead == c->held.n) /* blanks behind the last call */
            drop(&c->held, lead);
        say(c, c->held.n - (end ? 0 : doubtful(c->held.p, c->held.n)), to);
        return false;
    }
    size_t n = (size_t)(tag - c->held.p), text = n;
    while (text && blank(c->held.p[text - 1]))
        text--;
    say(c, text, to);
    drop(&c->held, n - text + sizeof open_tag - 1);
    c->inside = true;
    return true;
}

/* Whether it was a call. */
static bool take_call(struct ntx_calls *c, size_t n, const struct ntx_calls_to *to)
{
    json_t *j = json_loadb(c->held.p, n, JSON_REJECT_DUPLICATES, NULL), *arguments = json_object_get(j, "arguments");
    const char *name = json_string_value(json_object_get(j, "name"));
    bool is = name && *name && json_is_object(arguments);
    if (is)
        to->call(to->arg, name, arguments);
    c->n += is;
    json_decref(j);
    return is;
}

static bool inside(struct ntx_calls *c, bool end, const struct ntx_calls_to *to)
{
    const char *tag = memmem(c->held.p, c->held.n, close_tag, sizeof close_tag - 1);
    if (!tag && !end)
        return false;
    size_t n = tag ? (size_t)(tag - c->held.p) : c->held.n, all = n + (tag ? sizeof close_tag - 1 : 0);
    c->inside = false;
    if (take_call(c, n, to)) {
        drop(&c->held, all);
    } else {
        to->text(to->arg, open_tag, sizeof open_tag - 1);
        say(c, all, to);
    }
    return c->held.n;
}

void ntx_calls_feed(struct ntx_calls *c, const char *text, size_t len, bool end, const struct ntx_calls_to *to)
{
    ntx_buf_add(&c->held, text, len);
    while ((c->held.n || (c->inside && end)) && !c->held.bad && (c->inside ? inside(c, end, to) : outside(c, end, to)))
        ;
}

void ntx_calls_free(struct ntx_calls *c) { ntx_buf_free(&c->held); }
