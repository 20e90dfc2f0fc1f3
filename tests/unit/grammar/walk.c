/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/grammar/walk.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/check.h"

uint64_t walk_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static const char *const pieces[] = {"{\"",
                                     "\":",
                                     "\": ",
                                     "\",",
                                     "\", \"",
                                     "\"}",
                                     "}",
                                     "},",
                                     "]}",
                                     "]",
                                     "],",
                                     ", ",
                                     ",\"",
                                     "\":\"",
                                     "\": \"",
                                     "true",
                                     "false",
                                     "null",
                                     "[{",
                                     "[]",
                                     "{}",
                                     "\\\"",
                                     "\\n",
                                     "\\u",
                                     "\\u00",
                                     "12",
                                     "100",
                                     "0.",
                                     "-1",
                                     "e+",
                                     ".5",
                                     " the",
                                     "the",
                                     "name",
                                     "\"name",
                                     "value",
                                     " a",
                                     "a\"",
                                     "b\",\"",
                                     "  ",
                                     "    ",
                                     "\n",
                                     "\n  ",
                                     "\n    ",
                                     "café",
                                     "é",
                                     "日本",
                                     "語",
                                     "\xe6\x97",
                                     "\xa5",
                                     "\xf0\x9f\x98",
                                     "\x80",
                                     "\xf0\x9f\x98\x80",
                                     "2024-",
                                     "-01",
                                     "T12:",
                                     "red",
                                     "green",
                                     "abc",
                                     "aaaa",
                                     "zzzzzzzz",
                                     "00000000",
                                     "hello world",
                                     "\"\"",
                                     "\"]",
                                     "\":[",
                                     "\":{",
                                     "\"a\"",
                                     "\"b\"",
                                     "item",
                                     "id",
                                     "\"id\":",
                                     " 1",
                                     " true",
                                     ":",
                                     "\xff<|end|>",
                                     "</think>",
                                     "</parameter>",
                                     "</arg_value>",
                                     "[/THINK]",
                                     "</seed:think>",
                                     "<|END_THINKING|>",
                                     "<|END_RESPONSE|>",
                                     "<|END_TEXT|>",
                                     "<|inner_suffix|>",
                                     "</think:opensource>",
                                     "</arg_value:opensource>",
                                     "</\xef\xbd\x9c"
                                     "DSML\xef\xbd\x9cparameter>"};
enum { PIECES = sizeof pieces / sizeof *pieces, VOCABULARY = 256 + PIECES, MARKS = 13 /* the last pieces */ };

uint32_t walk_vocabulary(void) { return VOCABULARY; }

const char *walk_token(uint32_t id, size_t *len)
{
    static char bytes[256];
    if (id >= 256) {
        *len = strlen(pieces[id - 256]);
        return pieces[id - 256];
    }
    bytes[id] = (char)id;
    *len = 1;
    return &bytes[id];
}

static int bytes_of(void *ctx, int32_t id, char *buf, size_t room)
{
    size_t n;
    const char *p = walk_token((uint32_t)id, &n);
    (void)ctx;
    CHECK(n <= room);
    memcpy(buf, p, n);
    return id == 255 ? 0 : (int)n; /* that byte has no token */
}

struct ntx_tokens *walk_tokens(void)
{
    struct ntx_tokens *t;
    CHECK_EQ(ntx_tokens_new(VOCABULARY, bytes_of, NULL, &t), 0);
    return t;
}

/* ---- drawing */

struct walker {
    struct ntx_match *m;
    char *text;
    size_t n, room;
};

static bool has(const uint32_t *mask, uint32_t id) { return mask[id / 32] >> (id % 32) & 1; }

/* Checks that each token is accepted exactly if the mask has it. */
static void check_mask(struct walker *w, const struct ntx_match_config *c, const uint32_t *mask)
{
    for (uint32_t id = 0; id < VOCABULARY; id++) {
        size_t n;
        const char *p = walk_token(id, &n);
        struct ntx_match *fresh;
        CHECK_EQ(ntx_match_new(c, &fresh), 0);
        CHECK_EQ(ntx_match_take(fresh, w->text, w->n), 0);
        bool goes = id != 255 && ntx_match_take(fresh, p, n) == 0;
        CHECK_MSG(goes == has(mask, id), "token %u (%s) after %.*s", id, p, (int)w->n, w->text);
        ntx_match_free(fresh);
    }
}

bool walk_printable, walk_marks;

static bool printable(uint32_t id)
{
    size_t n;
    const char *p = walk_token(id, &n);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] < 0x20 || (unsigned char)p[i] >= 0x7f)
            return false;
    return true;
}

/* The JSON text is inside of a string. */
static bool in_string(const struct walker *w)
{
    bool in = false;
    for (size_t i = 0; i < w->n; i++)
        if (in && w->text[i] == '\\')
            i++;
        else if (w->text[i] == '"')
            in = !in;
    return in;
}

static bool any_of(const uint32_t *mask, uint64_t *seed, const char *bytes, uint32_t *id)
{
    uint32_t n = 0;
    for (; *bytes; bytes++)
        if (has(mask, (uint8_t)*bytes) && walk_random(seed) % ++n == 0)
            *id = (uint8_t)*bytes;
    return n;
}

/* Draws a byte that soon ends the JSON: the end of a string; else a closing bracket; else a comma, after a number
 * with more to come; else a value without contents. Mostly, so that it does not loop. */
static bool draw_end(const struct walker *w, const uint32_t *mask, uint64_t *seed, uint32_t *id)
{
    static const char *const outside[] = {"}]", ",:", "\"ntf", "0123456789-", "[{"};
    if (walk_random(seed) % 16 == 0)
        return false;
    if (walk_marks ? walk_random(seed) % 2 : in_string(w)) /* texts between marks of calls have quotes of their own */
        return any_of(mask, seed, "\"", id) ||
               (walk_random(seed) % 2 &&
                any_of(mask, seed, "0ac1xe.on", id)); /* some patterns need these before their end */
    if (walk_marks && walk_random(seed) % 4 == 0 && any_of(mask, seed, "\n", id)) /* a list of calls ends behind it */
        return true;
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (any_of(mask, seed, outside[i], id))
            return true;
    return false;
}

static uint32_t draw(const struct walker *w, const uint32_t *mask, uint64_t *seed, bool hurry)
{
    uint32_t n = 0, pick = 0;
    for (uint32_t id = VOCABULARY - MARKS; walk_marks && hurry && id < VOCABULARY && walk_random(seed) % 8; id++)
        if (has(mask, id) && walk_random(seed) % 4 == 0)
            return id;
    if (hurry && draw_end(w, mask, seed, &pick))
        return pick;
    for (int any = !walk_printable; any < 2 && !n; any++)
        for (uint32_t id = 0; id < VOCABULARY; id++)
            if (has(mask, id) && (any || printable(id)) && walk_random(seed) % ++n == 0)
                pick = id;
    CHECK(n);
    return pick;
}

static void append(struct walker *w, const char *p, size_t n)
{
    if (w->n + n + 1 > w->room)
        CHECK((w->text = realloc(w->text, w->room = 2 * (w->n + n + 1))) != NULL);
    memcpy(w->text + w->n, p, n);
    w->text[w->n += n] = 0;
}

char *walk_text(const struct ntx_grammar *g, uint64_t *seed, unsigned patience, bool check, size_t *len)
{
    struct ntx_tokens *tokens = walk_tokens();
    struct ntx_match_config c = {.grammar = g, .tokens = tokens, .memory = 16 << 20};
    struct walker w = {0};
    append(&w, "", 0);
    CHECK_EQ(ntx_match_new(&c, &w.m), 0);
    for (unsigned i = 0;; i++) {
        const uint32_t *mask;
        bool none, ends = ntx_match_may_end(w.m);
        CHECK_EQ(ntx_match_mask(w.m, false, &mask, &none), 0);
        CHECK_MSG(!none || ends, "stuck after %s", w.text);
        if (none || (ends && (i > patience || walk_random(seed) % 4 == 0)))
            break;
        CHECK_MSG(i < patience + 4000, "it does not end: %.300s", w.text);
        if (check && i % 7 == 3)
            check_mask(&w, &c, mask);
        size_t n;
        const char *p = walk_token(draw(&w, mask, seed, i > patience), &n);
        CHECK_EQ(ntx_match_take(w.m, p, n), 0);
        append(&w, p, n);
    }
    ntx_match_free(w.m);
    ntx_tokens_free(tokens);
    *len = w.n;
    return w.text;
}
