/* SPDX-License-Identifier: Apache-2.0 */
/* texts.c: grammars as texts: accepted and rejected inputs, refusals and their texts, the cost of hostile ones, and
 * masks that agree with the bytes. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/lib/check.h"
#include "tests/unit/grammar/walk.h"

static struct ntx_grammar *grammar(const char *text)
{
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    int rc = ntx_grammar_compile(text, strlen(text), &g, &err);
    CHECK_MSG(!rc, "%s: %s", text, err.text);
    return g;
}

static bool holds(const struct ntx_grammar *g, const char *text, size_t n, bool thinking)
{
    struct ntx_match *m;
    struct ntx_match_config c = {.grammar = g, .memory = 8 << 20, .thinking = thinking};
    CHECK_EQ(ntx_match_new(&c, &m), 0);
    bool yes = !ntx_match_take(m, text, n) && ntx_match_may_end(m);
    ntx_match_free(m);
    return yes;
}

struct language {
    const char *text;
    const char *in[8], *out[8]; /* NULL at the end */
};

static const struct language languages[] = {
    {"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
    {"root ::= \"a\"* \"b\"+ [c-e]? .", {"bx", "aabbcx", "bbe\xc3\xa9"}, {"ax", "b", "bff"}},
    {"root ::= x (\",\" x)*  # a list\nx ::= [0-9]{1,3}", {"1", "12,345,6"}, {"", "1,", "1234"}},
    {"root ::=\n  \"a\" |\n  \"b\" other\nother ::= \"c\"\n  | \"d\"", {"a", "bc", "bd"}, {"b", "ac"}},
    {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()", "())"}},
    {"root ::= \"x\"{20,40}",
     {"xxxxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
     {"xxxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}},
    {"root ::= \"x\"{18,}", {"xxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxxxxxxxxxx"}, {"xxxxxxxxxxxxxxxxx"}},
    {"root ::= [^\\n\\x41-\\x43\\]]+",
     {"D\xe2\x82\xac[", "-"},
     {"A", "xB", "\n", "]", "\xff", "\xc0\x80", "\xed\xa0\x80"}},
    {"root ::= \"\\u00e9\\U0001F600\\\\\\\"\\t\"", {"\xc3\xa9\xf0\x9f\x98\x80\\\"\t"}, {"\xc3\xa9"}},
    {"root ::= ~\"<end>\" \"<end>\"", {"<end>", "a < b <en<end>", "<<end>"}, {"a<end>b", "<end", "<end><end>"}},
    {"root ::= @\"<x>\" \"y\"", {"<x>y", "\xff<x>y"}, {"<x>", "\xff<y>y"}},
    {"root ::= @@\"<x>\" \"y\"", {"\xff<x>y"}, {"<x>y", "\xff<y>y"}},
    {"root ::= (\"a\"?)* (\"b\"?)+ \"c\"", {"c", "aabc"}, {"abac", ""}},
    {"root ::= \"v=\" %json {\"type\":\"integer\",\"maximum\":12,\"minimum\":0} \";\"",
     {"v=0;", "v=12;"},
     {"v=13;", "v=;", "v=-1;"}},
    {"root ::= %json {\"type\":\"number\",\"minimum\":0,\"maximum\":1234567890.7}",
     {"0", "1234567889.99", "1234567890"},
     {"1234567891", "-1"}},
    {"root ::= %json {\"type\":\"number\",\"minimum\":-1234567890.7,\"maximum\":-1.1}",
     {"-1.1", "-1234567890"},
     {"-1234567891", "-1", "-1.0"}},
    {"root ::= %json {\"type\":\"number\",\"exclusiveMinimum\":1234567890.7}",
     {"1234567891"},
     {"1234567890", "1234567890.5"}},
    {"root ::= %json {\"type\":\"string\",\"maxLength\":1e300}",
     {"\"\"", "\"abc\""},
     {"abc"}}, /* counts and whole numbers beyond 2^64 */
    {"root ::= %json {\"type\":\"integer\",\"enum\":[1e300,5]}", {"5", "1.0000000000000001e300"}, {"1"}},
    {"root ::= \"\" | \"a\" dead\ndead ::= dead2\ndead2 ::= \"x\" dead",
     {""},
     {"a", "ax"}}, /* what cannot end is never begun */
    {"root ::= a-b.c_1\na-b.c_1 ::= \"z\"", {"z"}, {"a"}},
    /* regular expressions match the whole text */
    {"root ::= %regex \"\\\\d{3}-\\\\d{4}\"", {"555-1234"}, {"555-123", "a555-1234", "555-12345"}},
    {"root ::= %regex \"^(yes|no)$|maybe\"", {"maybe"}, {"may"}},
    {"root ::= %regex \"(?P<y>[A-F]+)(?:,[A-F]+)*?\"", {"AB", "AB,C"}, {"AB,", "G"}},
    {"root ::= \"x=\" %regex \"(?!0)[0-9]+(?<!5)$\" \";\"", {"x=12;", "x=10;"}, {"x=012;", "x=15;", "x=12"}},
    {"root ::= %regex \"\\\\p{Lu}\\\\w*\"", {"Oslo", "Ø"}, {"oslo"}},
    {"root ::= %regex \"\\\"\\\\x41\\\"\\n.\"", {"\"A\"\nz"}, {"\"A\"\n\n"}},
};

static void test_languages(void)
{
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        const struct language *l = &languages[i];
        struct ntx_grammar *g = grammar(l->text);
        for (size_t k = 0; l->in[k]; k++)
            CHECK_MSG(holds(g, l->in[k], strlen(l->in[k]), false), "%s holds for %s", l->text, l->in[k]);
        for (size_t k = 0; l->out[k]; k++)
            CHECK_MSG(!holds(g, l->out[k], strlen(l->out[k]), false), "%s does not hold for %s", l->text, l->out[k]);
        ntx_grammar_free(g);
    }
}

static const char *const wrong[][2] = {
    {"", "no rule 'root'"},
    {"root ::= other", "no rule 'other'"},
    {"root ::= \"a", "a text has no end"},
    {"root ::= [a-", "brackets"},
    {"root ::= [z-a]", "a range in brackets"},
    {"root ::= (\"a\"", "a parenthesis has no end"},
    {"root ::= \"a\")", "closed that was not opened"},
    {"root ::= \"a\"{3,2}", "m <= n"},
    {"root ::= \"a\"{x}", "{m}, {m,} or {m,n}"},
    {"root ::= \"\\q\"", "no such escape"},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2 of the grammar: a rule of this name is there already"},
    {"root ::= root \"a\" | \"b\"", "left recursion"},
    {"root ::= x\nx ::= \"a\"? y\ny ::= x \"b\" | \"c\"", "left recursion"},
    {"root ::= \"a\" root", "nothing can be written"},
    {"root ::= \"a\"{2000000000}", "2^30"},
    {"= x", "a rule begins"},
    {"root ::= ~\"\"", "a mark has 1 to 64 bytes"},
    {"root ::= %json {\"type\":\"nothing\"}", "the schema's type 'nothing' is none"},
    {"root ::= %json {", "the schema is no JSON"},
    {"root ::= \"a\" ; \"b\"", "no meaning here"},
    {"root ::= %regex a", "%regex is followed by a text"},
    {"root ::= %regex \"(a\"", "the pattern has a parenthesis without an end"},
    {"root ::= %regex \"a)\"", "closes a parenthesis"},
    {"root ::= %regex \"(a)\\\\1\"", "backreferences and \\b are not"},
    {"root ::= %regex \"(?i)a\"", "a kind of group, that is not supported"},
    {"root ::= %regex \"a++\"", "a quantifier of a quantifier"},
    {"root ::= %regex \"\\\\Aa\\\\Z\"", "an escape that is not supported"},
};

static void test_wrong(void)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ntx_grammar *g;
        struct ntx_err err = {0};
        CHECK_MSG(ntx_grammar_compile(wrong[i][0], strlen(wrong[i][0]), &g, &err) < 0, "%s", wrong[i][0]);
        CHECK_MSG(strstr(err.text, wrong[i][1]) != NULL, "%s: %s", wrong[i][0], err.text);
    }
}

/* ---- hostile grammars */

static char *repeated(const char *head, const char *piece, unsigned n, const char *tail)
{
    char *out = malloc(strlen(head) + n * strlen(piece) + strlen(tail) + 1), *at = stpcpy(out, head);
    for (unsigned i = 0; i < n; i++)
        at = stpcpy(at, piece);
    strcpy(at, tail);
    return out;
}

/* In little time, either refused, or compiled and then matched or refused. */
static void bounded(char *text, const char *input)
{
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    if (!ntx_grammar_compile(text, strlen(text), &g, &err)) {
        struct ntx_match *m;
        struct ntx_tokens *tokens = walk_tokens();
        struct ntx_match_config c = {.grammar = g, .tokens = tokens, .memory = 4 << 20};
        const uint32_t *mask;
        bool none;
        CHECK(ntx_grammar_bytes(g) < 16 << 20);
        if (!ntx_match_new(&c, &m)) {
            int rc = ntx_match_take(m, input, strlen(input));
            CHECK(rc == 0 || rc == -7 || rc == -22); /* E2BIG, EINVAL */
            rc = ntx_match_mask(m, false, &mask, &none);
            CHECK(rc == 0 || rc == -7);
            CHECK(ntx_match_bytes(m) <= (4 << 20) + 4096);
            ntx_match_free(m);
        }
        ntx_tokens_free(tokens);
        ntx_grammar_free(g);
    } else
        CHECK(err.text[0]);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    double s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    CHECK_MSG(s < 10, "%.60s took %.1f s", text, s);
    free(text);
}

static void test_hostile(void)
{
    bounded(strdup("root ::= ((((((((\"a\"{16}){16}){16}){16}){16}){16}){16}){16}){16}"), "aaaa");
    bounded(strdup("root ::= ((((((((\"\"{16}){16}){16}){16}){16}){16}){16}){16}){16} \"a\""), "a");
    bounded(strdup("root ::= \"a\"{1,1000000}"), "aaaaaaaaaaaaaaaa");
    bounded(strdup("root ::= ((\"a\"{0,1000}){0,1000}){0,1000} \"b\""), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    bounded(repeated("root ::= ", "(", 5000, ""), "");
    bounded(repeated("root ::= \"a\"", "*", 5000, ""), "");
    bounded(repeated("root ::= ", "\"a\"? ", 20000, ""), "aaaa");
    bounded(repeated("root ::= a b\nb ::= \"x\"\na ::= ", "a2 | a2 \"x\" |\n", 10,
                     " \"y\"\na2 ::= \"y\" | \"y\" a2 | \"y\" a2 \"x\" | \"y\" a2 a2\n"),
            "yyyyyyyyyyyyyyyyyyyyyy");
    bounded(repeated("root ::= s{1,500} s ::= ", "(\"x\" | s2)* ", 100, " s2 ::= \"x\"+ \"y\"?"),
            "xxxxxxxxxxxxxxxxxxxx");
    bounded(repeated("root ::= %json ", "{\"items\":", 3000, ""), "");
    bounded(
        strdup("root ::= %json "
               "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}"),
        "");
    bounded(strdup("root ::= %json {\"allOf\":[{\"$ref\":\"#\"}]}"), "");
    bounded(strdup("root ::= %json {\"$ref\":\"#\",\"type\":\"object\"}"), "");
    bounded(repeated("root ::= %json {\"enum\":[0", ",\"abcdefgh\"", 20000, "]}"), "\"abc");
    bounded(strdup("root ::= %json {\"type\":\"string\",\"pattern\":\"^(((((a{1000}){1000}){1000}){1000}){1000})$\"}"),
            "\"a");
    bounded(strdup("root ::= %json {\"type\":\"string\",\"pattern\":\"^((a|a)*)*(a|aa|aaa){1,300}$\"}"),
            "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    char *big = repeated("root ::= \"", "a", NTX_GRAMMAR_TEXT, "\"");
    bounded(big, "");
}

/* Each token takes little work, the whole vocabulary too much: a mask fails, and the match is unchanged. */
static void test_work_of_mask(void)
{
    char *text = repeated("e ::= \"\"", "|\"\"", 20000, "\nroot ::= (. e)*"), more[64 * 96] = "", *at = more;
    for (char c = 'a'; c <= 'z'; c++)
        at += sprintf(at, " | .* \"%c\" .{16}", c);
    text = realloc(text, strlen(text) + sizeof more);
    strcat(text, more);
    struct ntx_grammar *g = grammar(text);
    struct ntx_tokens *tokens = walk_tokens();
    struct ntx_match_config c = {.grammar = g, .tokens = tokens, .memory = 64 << 20};
    struct ntx_match *m;
    const uint32_t *mask;
    bool none;
    struct timespec a, b;
    CHECK_EQ(ntx_match_new(&c, &m), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    CHECK_EQ(ntx_match_mask(m, false, &mask, &none), -7); /* E2BIG */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    double s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    CHECK_MSG(s < 2, "a mask took %.1f s", s);
    CHECK_EQ(ntx_match_take(m, "xyz", 3), 0);
    CHECK(ntx_match_may_end(m));
    ntx_match_free(m);
    ntx_tokens_free(tokens);
    ntx_grammar_free(g);
    free(text);
}

/* As deep as possible, and then to the end. */
static void test_deep(void)
{
    struct ntx_grammar *g = grammar("root ::= \"[\" root \"]\" | \"x\"");
    char open[2000], *close;
    unsigned deep = 0;
    memset(open, '[', sizeof open);
    struct ntx_match *m;
    struct ntx_match_config c = {.grammar = g, .memory = 4 << 20};
    CHECK_EQ(ntx_match_new(&c, &m), 0);
    while (ntx_match_take(m, open, 1) == 0)
        deep++;
    CHECK_EQ(deep, NTX_GRAMMAR_DEPTH);
    close = repeated("x", "]", deep, "");
    CHECK_EQ(ntx_match_take(m, close, strlen(close)), 0);
    CHECK(ntx_match_must_end(m));
    free(close);
    ntx_match_free(m);
    ntx_grammar_free(g);
}

static void test_thinking(void)
{
    struct ntx_grammar *g = grammar("root ::= \"a\"\nthinking ::= ~\"</think>\" \"</think>\" root"),
                       *h = grammar("root ::= \"a\"");
    CHECK(holds(g, "a", 1, false) && !holds(g, "a", 1, true));
    CHECK(holds(g, "hm</think>a", 11, true) && holds(h, "a", 1, true));
    ntx_grammar_free(g);
    ntx_grammar_free(h);
}

/* A match with the least memory gives the same masks as one with plenty; `lead` allows a space that is not shown. */
static void test_memory(void)
{
    struct ntx_grammar *g = grammar("root ::= %json {}");
    struct ntx_tokens *tokens = walk_tokens();
    struct ntx_match_config small = {.grammar = g, .tokens = tokens, .memory = 256 << 10}, large = small;
    struct ntx_match *a, *b;
    uint64_t seed = 3;
    const uint32_t *x, *y;
    bool none;
    large.memory = 64 << 20;
    CHECK_EQ(ntx_match_new(&small, &a), 0);
    CHECK_EQ(ntx_match_new(&large, &b), 0);
    CHECK_EQ(ntx_match_mask(a, true, &x, &none), 0);
    CHECK((x[' ' / 32] >> (' ' % 32) & 1) && (x['{' / 32] >> ('{' % 32) & 1));
    for (int i = 0; i < 3000 && !ntx_match_must_end(a); i++) {
        size_t n, words = (walk_vocabulary() + 31) / 32;
        uint32_t id;
        CHECK_EQ(ntx_match_mask(a, false, &x, &none), 0);
        CHECK_EQ(ntx_match_mask(b, false, &y, &none), 0);
        CHECK(!memcmp(x, y, words * sizeof *x));
        CHECK(ntx_match_bytes(a) <= 256 << 10);
        if (none)
            break;
        do
            id = (uint32_t)(walk_random(&seed) % walk_vocabulary());
        while (!(x[id / 32] >> (id % 32) & 1));
        const char *p = walk_token(id, &n);
        CHECK_EQ(ntx_match_take(a, p, n), 0);
        CHECK_EQ(ntx_match_take(b, p, n), 0);
    }
    ntx_match_free(a);
    ntx_match_free(b);
    ntx_tokens_free(tokens);
    ntx_grammar_free(g);
}

int main(void)
{
    test_languages();
    test_wrong();
    test_deep();
    test_thinking();
    test_memory();
    test_hostile();
    test_work_of_mask();
    return 0;
}
