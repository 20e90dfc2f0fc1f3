/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c: just enough JSON to find a member, and growing byte buffers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/reply/impl.h"

#define NEST 128

void ntx__reply_add(struct bytes *b, const char *p, size_t n)
{
    if (b->failed || !n)
        return;
    if (n > b->room - b->n) {
        size_t room = 2 * (b->n + n) + 64;
        char *q = realloc(b->p, room);
        if (!q) {
            b->failed = true;
            return;
        }
        b->p = q;
        b->room = room;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void ntx__reply_add_text(struct bytes *b, const char *text) { ntx__reply_add(b, text, strlen(text)); }

void ntx__reply_add_string(struct bytes *b, struct span s)
{
    ntx__reply_add(b, "\"", 1);
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        char text[8];
        if (c == '"' || c == '\\')
            snprintf(text, sizeof text, "\\%c", c);
        else if (c == '\n')
            snprintf(text, sizeof text, "\\n");
        else if (c == '\t' || c == '\r')
            snprintf(text, sizeof text, "\\%c", c == '\t' ? 't' : 'r');
        else if (c < 0x20)
            snprintf(text, sizeof text, "\\u%04x", c);
        else
            snprintf(text, sizeof text, "%c", c);
        ntx__reply_add_text(b, text);
    }
    ntx__reply_add(b, "\"", 1);
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static bool digit(char c) { return c >= '0' && c <= '9'; }

struct span ntx__reply_trim(struct span s)
{
    while (s.n && is_blank(s.p[0])) {
        s.p++;
        s.n--;
    }
    while (s.n && is_blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

static void skip(struct span *s, size_t n)
{
    s->p += n;
    s->n -= n;
}

static bool take_char(struct span *s, char c)
{
    while (s->n && is_blank(s->p[0]))
        skip(s, 1);
    if (!s->n || s->p[0] != c)
        return false;
    skip(s, 1);
    return true;
}

static bool skip_string(struct span *s) /* after its opening quote */
{
    for (; s->n && s->p[0] != '"'; skip(s, 1)) {
        if ((unsigned char)s->p[0] < 0x20)
            return false;
        if (s->p[0] != '\\')
            continue;
        skip(s, 1);
        if (!s->n || !strchr("\"\\/bfnrtu", s->p[0]) || !s->p[0])
            return false;
    }
    return take_char(s, '"');
}

static size_t skip_digits(struct span *s)
{
    size_t n = 0;
    for (; s->n && digit(s->p[0]); n++)
        skip(s, 1);
    return n;
}

static bool skip_number(struct span *s)
{
    if (s->n && s->p[0] == '-')
        skip(s, 1);
    if (s->n > 1 && s->p[0] == '0' && digit(s->p[1]))
        return false;
    if (!skip_digits(s))
        return false;
    if (s->n && s->p[0] == '.') {
        skip(s, 1);
        if (!skip_digits(s))
            return false;
    }
    if (s->n && (s->p[0] == 'e' || s->p[0] == 'E')) {
        skip(s, 1);
        if (s->n && (s->p[0] == '-' || s->p[0] == '+'))
            skip(s, 1);
        return skip_digits(s) > 0;
    }
    return true;
}

static bool word(struct span *s, const char *w)
{
    size_t n = strlen(w);
    if (s->n < n || memcmp(s->p, w, n))
        return false;
    skip(s, n);
    return true;
}

static bool skip_value(struct span *s, unsigned level);

/* After '{' or '['. */
static bool skip_items(struct span *s, bool object, unsigned level)
{
    char close = object ? '}' : ']';
    if (take_char(s, close))
        return true;
    do
        if ((object && (!take_char(s, '"') || !skip_string(s) || !take_char(s, ':'))) || !skip_value(s, level))
            return false;
    while (take_char(s, ','));
    return take_char(s, close);
}

static bool skip_value(struct span *s, unsigned level)
{
    if (level > NEST)
        return false;
    if (take_char(s, '{'))
        return skip_items(s, true, level + 1);
    if (take_char(s, '['))
        return skip_items(s, false, level + 1);
    if (take_char(s, '"'))
        return skip_string(s);
    return word(s, "true") || word(s, "false") || word(s, "null") || skip_number(s);
}

bool ntx__reply_value(struct span *s, struct span *out)
{
    struct span at = *s;
    while (at.n && is_blank(at.p[0]))
        skip(&at, 1);
    const char *from = at.p;
    if (!skip_value(&at, 0))
        return false;
    *out = (struct span){from, (size_t)(at.p - from)};
    *s = at;
    return true;
}

bool ntx__reply_member(struct span object, const char *key, struct span *out)
{
    struct span at = object, name;
    if (!take_char(&at, '{'))
        return false;
    do {
        struct span v;
        if (!ntx__reply_value(&at, &name) || name.p[0] != '"' || !take_char(&at, ':') || !ntx__reply_value(&at, &v))
            return false;
        if (name.n == strlen(key) + 2 && !memcmp(name.p + 1, key, name.n - 2)) {
            *out = v;
            return true;
        }
    } while (take_char(&at, ','));
    return false;
}

bool ntx__reply_begun(struct span object, const char *key, struct span *out)
{
    struct span at = object, name, v;
    if (!take_char(&at, '{'))
        return false;
    do {
        if (!ntx__reply_value(&at, &name) || name.p[0] != '"' || !take_char(&at, ':'))
            return false;
        struct span rest = ntx__reply_trim(at);
        bool whole = ntx__reply_value(&at, &v);
        if (name.n == strlen(key) + 2 && !memcmp(name.p + 1, key, name.n - 2)) {
            *out = whole ? v : rest;
            return true;
        }
        if (!whole)
            return false;
    } while (take_char(&at, ','));
    return false;
}

size_t ntx_reply_whole(const char *text, size_t len)
{
    struct span at = {text, len}, v;
    size_t n = 0;
    for (char before = '{'; take_char(&at, before); before = ',') {
        n = before == '{' ? (size_t)(at.p - text) : n;
        if (!ntx__reply_value(&at, &v) || v.p[0] != '"' || !take_char(&at, ':') || !ntx__reply_value(&at, &v) ||
            (!at.n && digit(v.p[v.n - 1]))) /* the number may be incomplete */
            break;
        n = (size_t)(at.p - text);
    }
    return n;
}

bool ntx__reply_text(struct span v, struct span *text)
{
    if (v.n < 2 || v.p[0] != '"' || memchr(v.p, '\\', v.n))
        return false;
    *text = (struct span){v.p + 1, v.n - 2};
    return true;
}

bool ntx__reply_until(struct span *s, const char *mark, struct span *before)
{
    const char *f = s->n ? memmem(s->p, s->n, mark, strlen(mark)) : NULL;
    if (!f)
        return false;
    *before = (struct span){s->p, (size_t)(f - s->p)};
    skip(s, before->n + strlen(mark));
    return true;
}
