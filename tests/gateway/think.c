/* What a model thinks, apart from what it answers: whatever the pieces that the text comes in. And texts of bytes that are no UTF-8. */
#include "client/gateway/think.h"

#include <stdlib.h>

#include "tests/check.h"

struct got {
    struct ntx_buf text, thought;
};

static void on_text(void *arg, bool thought, const char *text, size_t len)
{
    struct got *g = arg;
    CHECK(len > 0);
    ntx_buf_add(thought ? &g->thought : &g->text, text, len);
}

static void split(const char *all, size_t step, const char *text, const char *thought)
{
    struct ntx_think t = {0};
    struct got g = {0};
    for (size_t i = 0, n = strlen(all); i < n; i += step)
        ntx_think_feed(&t, all + i, i + step < n ? step : n - i, false, on_text, &g);
    ntx_think_feed(&t, "", 0, true, on_text, &g);
    CHECK_MSG(g.text.n == strlen(text) && !memcmp(g.text.p, text, g.text.n), "'%s' by %zu: text '%.*s'", all, step, (int)g.text.n, g.text.p);
    CHECK_MSG(g.thought.n == strlen(thought) && !memcmp(g.thought.p, thought, g.thought.n), "'%s' by %zu: thought '%.*s'", all, step, (int)g.thought.n, g.thought.p);
    ntx_think_free(&t);
    ntx_buf_free(&g.text);
    ntx_buf_free(&g.thought);
}

static void utf8(const char *bytes, size_t n, const char *want)
{
    json_t *j = ntx_json_text(bytes, n);
    CHECK_STR(json_string_value(j), want);
    json_decref(j);
}

int main(void)
{
    static const struct {
        const char *all, *text, *thought;
    } cases[] = {
        {"Hello", "Hello", ""},
        {"<think>\nHm.\n</think>\n\nHello\n", "Hello\n", "Hm."},
        {"\n <think>a b</think>c", "c", "a b"},
        {"  Hello", "  Hello", ""},
        {"<thin", "<thin", ""},
        {"<thinking>x", "<thinking>x", ""},
        {"Hello <think>x</think>", "Hello <think>x</think>", ""},
        {"<think>never ends \n", "", "never ends \n"},
        {"<think>a </thin b</think>c", "c", "a </thin b"},
        {"<think></think>c", "c", ""},
        {"<think>\n\n</think>\n\nc", "c", ""},
        {"<think>a</think>\n<think>b</think>\nc <think>", "c <think>", "ab"},
        {"", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step < 12; step++)
            split(cases[i].all, step, cases[i].text, cases[i].thought);
    utf8("a\xffz", 3, "a\xef\xbf\xbdz");
    utf8("\xe2\x82", 2, "\xef\xbf\xbd\xef\xbf\xbd");
    utf8("\xe2\x82\xac\xc0\x80", 5, "\xe2\x82\xac\xef\xbf\xbd\xef\xbf\xbd");
    utf8("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    return 0;
}
