/* SPDX-License-Identifier: Apache-2.0 */
/* python.c: calls as Python writes them, in a list: [f(a="x", b=[1, True]), g()]. Their arguments become JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/reply/impl.h"

enum { DEEPEST = 64 };

static bool put_literal(struct span *at, struct bytes *b, unsigned depth);

static void skip_byte(struct span *at)
{
    at->p++;
    at->n--;
}

static bool take_byte(struct span *at, char c)
{
    *at = ntx__reply_trim(*at);
    if (!at->n || at->p[0] != c)
        return false;
    skip_byte(at);
    return true;
}

static struct span take_word(struct span *at)
{
    *at = ntx__reply_trim(*at);
    struct span word = {at->p, 0};
    while (at->n && (at->p[0] == '_' || at->p[0] == '.' || at->p[0] == '-' || (at->p[0] >= '0' && at->p[0] <= '9') ||
                     (at->p[0] >= 'A' && at->p[0] <= 'Z') || (at->p[0] >= 'a' && at->p[0] <= 'z'))) {
        skip_byte(at);
        word.n++;
    }
    return word;
}

static bool is_word(struct span word, const char *text)
{
    return word.n == strlen(text) && !memcmp(word.p, text, word.n);
}

static uint32_t hex_of(const struct span *at)
{
    uint32_t v = 0;
    for (size_t i = 1; i < 5; i++) {
        const char *digit = i < at->n && at->p[i] ? strchr("0123456789abcdef", at->p[i] | 32) : NULL;
        if (!digit)
            return UINT32_MAX;
        v = v * 16 + (uint32_t)(digit - "0123456789abcdef");
    }
    return v;
}

static void add_utf8(struct bytes *text, uint32_t c)
{
    const uint32_t lead = c < 0x800 ? 0xc0 : 0xe0;
    if (c < 0x80)
        ntx__reply_add(text, (const char[]){(char)c}, 1);
    else if (c < 0x800)
        ntx__reply_add(text, (const char[]){(char)(lead | c >> 6), (char)(0x80 | (c & 63))}, 2);
    else if (c < 0x10000)
        ntx__reply_add(
            text, (const char[]){(char)(lead | c >> 12), (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63))}, 3);
    else
        ntx__reply_add(text,
                       (const char[]){(char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 63)),
                                      (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63))},
                       4);
}

/* uXXXX, or two of them that are one character, as in JSON. Leaves the last digit to be taken. */
static bool take_hex(struct span *at, struct bytes *text)
{
    uint32_t c = hex_of(at);
    if (c == UINT32_MAX)
        return false;
    at->p += 4, at->n -= 4;
    if (c >= 0xd800 && c < 0xdc00 && at->n > 6 && at->p[1] == '\\' && at->p[2] == 'u') {
        const struct span next = {at->p + 2, at->n - 2};
        const uint32_t low = hex_of(&next);
        if (low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            at->p += 6, at->n -= 6;
        }
    }
    add_utf8(text, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
    return true;
}

/* A string's escapes; those that are unknown stay, as in Python. */
static void add_escaped(struct bytes *text, char c)
{
    static const char names[] = "nrt0bf\\'\"", values[] = "\n\r\t\0\b\f\\'\"";
    const char *known = strchr(names, c);
    if (c == '\n') /* a continued line */
        return;
    if (known && c)
        ntx__reply_add(text, &values[known - names], 1);
    else
        ntx__reply_add(text, (const char[]){'\\', c}, 2);
}

static bool put_string(struct span *at, struct bytes *b)
{
    const char quote = at->p[0];
    struct bytes text = {0};
    bool closed = false;
    for (skip_byte(at); at->n && !closed; skip_byte(at)) {
        closed = at->p[0] == quote;
        if (at->p[0] == '\\' && at->n > 1) {
            skip_byte(at);
            if (at->p[0] != 'u' || !take_hex(at, &text))
                add_escaped(&text, at->p[0]);
        } else if (!closed) {
            ntx__reply_add(&text, at->p, 1);
        }
    }
    ntx__reply_add_string(b, (struct span){text.p, text.n});
    b->failed |= text.failed;
    free(text.p);
    return closed;
}

/* Values, or pairs of a key and a value, up to the closing bracket. */
static bool put_items(struct span *at, struct bytes *b, char close, unsigned depth)
{
    for (bool first = true; !take_byte(at, close); first = false) {
        if (!first && !take_byte(at, ','))
            return false;
        if (!first && take_byte(at, close))
            return true;
        ntx__reply_add_text(b, first ? "" : ", ");
        if (close == '}' && at->n && at->p[0] != '"' && at->p[0] != '\'')
            return false;
        if (!put_literal(at, b, depth + 1) || (close == '}' && !take_byte(at, ':')))
            return false;
        if (close == '}')
            ntx__reply_add_text(b, ": ");
        if (close == '}' && !put_literal(at, b, depth + 1))
            return false;
    }
    return true;
}

static bool put_word(struct span *at, struct bytes *b)
{
    struct span word = take_word(at), number = word, v;
    if (is_word(word, "True") || is_word(word, "true"))
        ntx__reply_add_text(b, "true");
    else if (is_word(word, "False") || is_word(word, "false"))
        ntx__reply_add_text(b, "false");
    else if (is_word(word, "None") || is_word(word, "null"))
        ntx__reply_add_text(b, "null");
    else if (word.n && ntx__reply_value(&number, &v) && !number.n)
        ntx__reply_add(b, v.p, v.n);
    else
        return false;
    return true;
}

static bool put_literal(struct span *at, struct bytes *b, unsigned depth)
{
    *at = ntx__reply_trim(*at);
    if (!at->n || depth > DEEPEST)
        return false;
    const char c = at->p[0];
    if (c == '"' || c == '\'')
        return put_string(at, b);
    if (c != '[' && c != '(' && c != '{')
        return put_word(at, b);
    skip_byte(at);
    ntx__reply_add_text(b, c == '{' ? "{" : "[");
    if (!put_items(at, b, (char)(c == '(' ? ')' : c + 2), depth))
        return false;
    ntx__reply_add_text(b, c == '{' ? "}" : "]");
    return true;
}

/* (KEY=VALUE, ...) as an object. */
static bool put_arguments(struct span *at, struct bytes *b)
{
    ntx__reply_add_text(b, "{");
    if (!take_byte(at, '('))
        return false;
    for (bool first = true; !take_byte(at, ')'); first = false) {
        if (!first && !take_byte(at, ','))
            return false;
        if (!first && take_byte(at, ')'))
            break;
        const struct span key = take_word(at);
        ntx__reply_add_text(b, first ? "" : ", ");
        ntx__reply_add_string(b, key);
        ntx__reply_add_text(b, ": ");
        if (!key.n || !take_byte(at, '=') || !put_literal(at, b, 0))
            return false;
    }
    ntx__reply_add_text(b, "}");
    return true;
}

/* All calls; of a reply that was cut, those that are whole. */
static bool read_calls(struct calls *c, bool only_look)
{
    struct span at = ntx__reply_trim(c->body);
    unsigned n = 0;
    if (!take_byte(&at, '['))
        return false;
    for (; !take_byte(&at, ']'); n++) {
        struct bytes b = {0};
        if (n && !take_byte(&at, ','))
            return c->cut;
        const struct span name = take_word(&at);
        bool read = name.n && put_arguments(&at, &b);
        if (read && !only_look)
            read = ntx__reply_hand_out(c, name, (struct span){b.p, b.n}, b.failed);
        free(b.p);
        if (!read)
            return c->cut && n;
    }
    return n > 0;
}

bool ntx__calls_python(struct calls *c)
{
    struct span at = ntx__reply_trim(c->body);
    if (take_byte(&at, '[') && take_byte(&at, '{')) /* [{"name": ...}] */
        return ntx__calls_hermes(c);
    return read_calls(c, true) && read_calls(c, false);
}
