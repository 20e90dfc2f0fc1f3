/* SPDX-License-Identifier: Apache-2.0 */
/* bare.c: calls without the format's marks, as small models write them: at the beginning of a line stands a JSON
 * object, or a list of them, which names an offered tool and has its arguments; perhaps in a fence (```json). */
#include <string.h>

#include "model/reply/impl.h"

#define FENCE "```"

static bool is_gap(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static struct span after_gap(struct span s)
{
    while (s.n && is_gap(s.p[0]))
        s = (struct span){s.p + 1, s.n - 1};
    return s;
}

/* The two are equal, as far as the shorter one goes. */
static bool agrees(struct span s, const char *word)
{
    size_t n = strlen(word);
    return !memcmp(s.p, word, s.n < n ? s.n : n);
}

/* This may be the beginning of a call: more text would complete it. */
static bool may_begin(const struct ntx_reply_options *o, struct span s)
{
    static const char *const keys[] = {"\"name\"", "\"arguments\"", "\"parameters\"", "\"type\"", "\"id\""};
    struct span key, name;
    if (s.n && s.p[0] == '[')
        s = after_gap((struct span){s.p + 1, s.n - 1});
    if (!s.n || s.p[0] != '{')
        return !s.n;
    s = after_gap((struct span){s.p + 1, s.n - 1});
    bool known = !s.n;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        known |= agrees(s, keys[i]);
    if (!known || !ntx__reply_value(&s, &key) || key.n != strlen(keys[0]) || memcmp(key.p, keys[0], key.n))
        return known;
    s = after_gap(s);
    if (s.n && s.p[0] != ':')
        return false;
    s = s.n ? after_gap((struct span){s.p + 1, s.n - 1}) : s;
    return !s.n || (s.p[0] == '"' && (!ntx__reply_value(&s, &name) ||
                                      (ntx__reply_text(name, &name) && o->offers(o->arg, name.p, name.n))));
}

/* The calls, at the start of s, without a fence. */
static enum bare_is look_at(struct calls *c, struct span s, bool ended, struct span *body)
{
    struct span at = s, v;
    c->body = s;
    if (ntx__reply_value(&at, &v)) {
        c->body = *body = v;
        return ntx__calls_bare(c, true) ? BARE_CALLS : BARE_TEXT;
    }
    *body = s;
    if (ended)
        return ntx__calls_bare(c, true) ? BARE_CALLS : BARE_TEXT;
    return may_begin(c->options, s) ? BARE_MAYBE : BARE_TEXT;
}

/* Behind the fence's first mark. *end: behind its last one. */
static enum bare_is look_into(struct calls *c, struct span s, bool ended, struct span *body, const char **end)
{
    struct span at = s, inside;
    if (ntx__reply_until(&at, FENCE, &inside)) {
        c->body = *body = inside;
        *end = at.p;
        return ntx__calls_bare(c, true) ? BARE_CALLS : BARE_TEXT;
    }
    c->body = *body = s;
    *end = s.p + s.n;
    if (ended)
        return ntx__calls_bare(c, true) ? BARE_CALLS : BARE_TEXT;
    return may_begin(c->options, after_gap(s)) ? BARE_MAYBE : BARE_TEXT;
}

/* The line, of which s begins with FENCE or a part of it. *behind: after its newline, if it is there. */
static enum bare_is look_at_fence(struct span s, struct span *behind)
{
    static const char *const words[] = {"", "json", "JSON", "tool_call", "tool_calls", "tool", "tools"};
    enum { LONGEST = 16 };
    struct span line;
    if (s.n < strlen(FENCE))
        return BARE_MAYBE;
    *behind = (struct span){s.p + strlen(FENCE), s.n - strlen(FENCE)};
    if (!ntx__reply_until(behind, "\n", &line))
        return s.n < LONGEST ? BARE_MAYBE : BARE_TEXT;
    line = ntx__reply_trim(line);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (line.n == strlen(words[i]) && !memcmp(line.p, words[i], line.n))
            return BARE_CALLS;
    return BARE_TEXT;
}

/* Looks at what a line begins with. */
static enum bare_is look_at_line(struct bare *b, struct calls *c, struct span s, bool ended, struct span *body,
                                 const char **end)
{
    struct span behind;
    if (!s.n)
        return BARE_MAYBE;
    if (!agrees(s, FENCE)) {
        enum bare_is is = b->fenced || (s.p[0] != '{' && s.p[0] != '[') ? BARE_TEXT : look_at(c, s, ended, body);
        *end = is == BARE_CALLS ? body->p + body->n : s.p;
        return is;
    }
    enum bare_is is = look_at_fence(s, &behind);
    if (is == BARE_MAYBE)
        return is;
    const bool opens = !b->fenced;
    if (is == BARE_CALLS && opens && (is = look_into(c, behind, ended, body, end)) != BARE_TEXT)
        return is;
    b->fenced = opens;
    return BARE_TEXT;
}

/* The bytes that came since the last try cannot end a call; a name was decided on before. */
static bool is_inside(const struct bare *b, const struct bytes *held)
{
    enum { NAMED = 512 };
    const size_t n = held->n - b->seen;
    for (size_t i = b->tried; i < n; i++)
        if (strchr("}]`", held->p[b->seen + i]))
            return false;
    return b->tried > NAMED;
}

enum bare_is ntx__reply_bare(struct bare *b, const struct bytes *held, struct calls *c, bool ended, size_t *from,
                             size_t *to)
{
    const char *end = NULL;
    struct span body;
    *from = b->seen;
    if (!ended && is_inside(b, held))
        return BARE_MAYBE;
    b->tried = 0;
    for (; b->seen < held->n; b->seen++) {
        struct span s = {held->p + b->seen, held->n - b->seen};
        if (b->line && is_gap(s.p[0]))
            continue;
        enum bare_is is = b->line ? look_at_line(b, c, s, ended, &body, &end) : BARE_TEXT;
        *from = b->seen;
        if (is == BARE_CALLS) {
            c->body = body;
            *to = (size_t)(end - held->p);
        }
        if (is == BARE_MAYBE)
            b->tried = held->n - b->seen;
        if (is != BARE_TEXT && !(ended && is == BARE_MAYBE))
            return is;
        b->line = s.p[0] == '\n';
    }
    return BARE_TEXT;
}
