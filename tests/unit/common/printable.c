/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes that are formatted into an error or a log line become one line without control characters. */
#include <errno.h>
#include <unistd.h>

#include "common/printable.h"
#include "common/util.h"
#include "tests/lib/check.h"

static const struct {
    const char *raw, *shown;
} texts[] = {
    {"plain", "plain"},
    {"Gr\xc3\xbc\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x98\x80",
     "Gr\xc3\xbc\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x98\x80"},
    {"\x1b]0;owned\a", "\\x1b]0;owned\\x07"},
    {"a\nntx: forged\r\tb\x7f", "a\\x0antx: forged\\x0d\\x09b\\x7f"},
    {"\xc2\x9b"
     "31m\xc2\xa0",
     "\\xc2\\x9b"
     "31m\xc2\xa0"},
    {"\x9b"
     "31m\xff\xc0\x80",
     "\\x9b"
     "31m\\xff\\xc0\\x80"},
    {"\xed\xa0\x80 \xe2\x82 \xf4\x90\x80\x80 \xe0\x80\xaf",
     "\\xed\\xa0\\x80 \\xe2\\x82 \\xf4\\x90\\x80\\x80 \\xe0\\x80\\xaf"},
    {"\\x1b stays", "\\x1b stays"},
    {"a\u202egpj.exe", "a\\xe2\\x80\\xaegpj.exe"}, /* would be shown as aexe.jpg */
    {"\u061c\u200e\u200f\u202a", "\\xd8\\x9c\\xe2\\x80\\x8e\\xe2\\x80\\x8f\\xe2\\x80\\xaa"},
    {"\u2028\u2029\u2066\u2069", "\\xe2\\x80\\xa8\\xe2\\x80\\xa9\\xe2\\x81\\xa6\\xe2\\x81\\xa9"},
    {"\u05d0\u200d\u2027\u202f\u2065\u2070",
     "\u05d0\u200d\u2027\u202f\u2065\u2070"}, /* letters, joiners, and the neighbours of the marks */
};

static void made_printable(void)
{
    char out[128], again[128];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_EQ(ntx_printable(out, sizeof out, texts[i].raw, strlen(texts[i].raw)), strlen(texts[i].shown));
        CHECK_STR(out, texts[i].shown);
        ntx_printable(again, sizeof again, out, strlen(out));
        CHECK_STR(again, out);
    }
    CHECK_EQ(ntx_printable(out, 4, "abcd", 4), 3); /* cut, but not within an escape */
    CHECK_EQ(ntx_printable(out, 6, "ab\x1b", 3), 2);
    CHECK_EQ(ntx_printable(out, 4, "ab\xe2\x82\xac", 5), 2);
    CHECK_EQ(ntx_printable(out, 1, "a", 1), 0);
    CHECK_EQ(ntx_printable(out, sizeof out, "a\0b", 3), 6);
    CHECK_STR(out, "a\\x00b");
}

static void errors(void)
{
    struct ntx_err err = {0};
    char longest[1000];
    CHECK_EQ(ntx_err_set(&err, -EINVAL, "key '%s': %d", "a\x1b[2J\nb", 7), -EINVAL);
    CHECK_STR(err.text, "key 'a\\x1b[2J\\x0ab': 7");
    CHECK_EQ(ntx_err_prefix(&err, "%s", "m\r.gguf"), -EINVAL);
    CHECK_STR(err.text, "m\\x0d.gguf: key 'a\\x1b[2J\\x0ab': 7");
    CHECK_EQ(ntx_err_set(&err, -EIO, "again: %s", err.text), -EIO); /* from its own text */
    CHECK_STR(err.text, "again: m\\x0d.gguf: key 'a\\x1b[2J\\x0ab': 7");
    memset(longest, 0x1b, sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    ntx_err_set(&err, -EIO, "%s", longest);
    CHECK(strlen(err.text) < sizeof err.text && strlen(err.text) % 4 == 0 && !strchr(err.text, 0x1b));
    ntx_err_prefix(&err, "%s", longest);
    CHECK(strlen(err.text) < sizeof err.text && !strchr(err.text, 0x1b));
}

/* Output to descriptor 2 while f runs. */
static const char *written(void (*f)(void))
{
    static char text[4096];
    int p[2], old = dup(STDERR_FILENO);
    CHECK(old >= 0 && !pipe(p) && dup2(p[1], STDERR_FILENO) >= 0);
    close(p[1]);
    f();
    CHECK(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    ssize_t n = read(p[0], text, sizeof text - 1);
    CHECK(n >= 0);
    close(p[0]);
    text[n] = 0;
    return text;
}

static void log_it(void) { ntx_log(NTX_LOG_WARN, "model '%s'", "x\n<3>disk full\x1b[31m"); }
static void say_it(void) { ntx_say("model '%s'", "x\nntx: all is well"); }

static void lines(void)
{
    unsetenv("JOURNAL_STREAM");
    ntx_log_init("tester", NTX_LOG_INFO);
    CHECK_STR(written(log_it), "tester: model 'x\\x0a<3>disk full\\x1b[31m'\n");
    CHECK_STR(written(say_it), "tester: model 'x\\x0antx: all is well'\n");
    setenv("JOURNAL_STREAM", "8:1", 1);
    ntx_log_init("tester", NTX_LOG_INFO);
    CHECK_STR(written(log_it), "<4>model 'x\\x0a<3>disk full\\x1b[31m'\n");
}

int main(void)
{
    made_printable();
    errors();
    lines();
    return 0;
}
