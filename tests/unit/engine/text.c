/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of an answer are shown, and when: stop strings, incomplete characters, bytes that are not UTF-8. */
#include "computed/engine/session_text.h"
#include "tests/lib/check.h"

static struct ntx_text *make(char *a, char *b)
{
    char *stops[] = {a, b};
    struct ntx_text *t;
    CHECK_EQ(ntx_text_new(stops, (size_t)(!!a + !!b), &t), 0);
    return t;
}

/* Feeds bytes and checks the text shown afterwards. */
static bool step(struct ntx_text *t, const char *bytes, bool flush, const char *shown)
{
    const char *text;
    size_t n;
    bool stopped = false;
    if (bytes)
        CHECK_EQ(ntx_text_feed(t, bytes, strlen(bytes), &stopped), 0);
    CHECK_EQ(ntx_text_take(t, flush, &text, &n), 0);
    CHECK_MSG(n == strlen(shown) && !memcmp(text, shown, n), "after '%s': '%.*s', not '%s'", bytes ? bytes : "", (int)n,
              text, shown);
    return stopped;
}

static void plain(void)
{
    struct ntx_text *t = make(NULL, NULL);
    CHECK(!step(t, "Once", false, "Once"));
    CHECK(!step(t, "", false, ""));
    CHECK(!step(t, " upon", true, " upon"));
    ntx_text_free(t);
}

static void stops(void)
{
    struct ntx_text *t = make("END", "\n\n");
    CHECK(!step(t, "the E", false, "the "));
    CHECK(!step(t, "N", false, ""));
    CHECK(!step(t, "T\n", false, "ENT"));
    CHECK(!step(t, "E", false, "\n"));
    CHECK(step(t, "NDless", false, ""));
    ntx_text_free(t);
    t = make("END", "D\n");
    CHECK(step(t, "xEND\n", false, "x")); /* the earliest in the text counts, not the first in the list */
    ntx_text_free(t);
    t = make("abab", "");
    CHECK(!step(t, "ababX" + 1, false, "babX"));
    CHECK(!step(t, "aba", false, ""));
    CHECK(!step(t, "a", false,
                "ab"
                "a"));
    CHECK(step(t, "bab", false, ""));
    ntx_text_free(t);
    t = make("stop", NULL);
    CHECK(!step(t, "a st", false, "a "));
    CHECK(!step(t, NULL, true, "st")); /* no more comes */
    ntx_text_free(t);
}

static void characters(void)
{
    struct ntx_text *t = make("\xe2\x82\xac!", NULL); /* a euro sign and "!" */
    CHECK(!step(t, "\xe2", false, ""));
    CHECK(!step(t, "\x82", false, ""));
    CHECK(!step(t, "\xac", false, "")); /* complete, but it may begin the stop string */
    CHECK(!step(t, "?", false, "\xe2\x82\xac?"));
    CHECK(!step(t,
                "\xff"
                "a",
                false,
                "\xef\xbf\xbd"
                "a"));
    CHECK(!step(t, "\xf0\x9f", false, ""));
    CHECK(!step(t, "b", false,
                "\xef\xbf\xbd\xef\xbf\xbd"
                "b"));
    CHECK(!step(t, "\xc3", true, "\xef\xbf\xbd"));
    ntx_text_free(t);
}

/* Turns that a model invents end an answer, but are no stop strings of the request. */
static void turns(void)
{
    static const char *const marks[] = {"\nUser:", "\nAssistant:", NULL};
    struct ntx_text *t = make("END", "");
    CHECK_EQ(ntx_text_end_before(t, marks), 0);
    CHECK(!step(t, "one\nUs", false, "one"));
    CHECK_EQ(ntx_text_beyond(t), 0);
    CHECK(step(t, "er: x", false, ""));
    CHECK_STR(ntx_text_stop(t), "");
    CHECK_EQ(ntx_text_beyond(t), strlen("\nUser: x"));
    ntx_text_free(t);
    t = make("END", NULL);
    CHECK_EQ(ntx_text_end_before(t, marks), 0);
    CHECK(step(t, "oneEND\nUser:", false, "one"));
    CHECK_STR(ntx_text_stop(t), "END");
    CHECK_EQ(ntx_text_beyond(t), 0);
    ntx_text_free(t);
}

int main(void)
{
    plain();
    stops();
    turns();
    characters();
    ntx_text_free(NULL);
    return 0;
}
