/* SPDX-License-Identifier: Apache-2.0 */
/* refused.c: schemas that are refused, each with a text that says why. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "computed/grammar/grammar.h"
#include "tests/lib/check.h"

#define STRING     "\"type\":\"string\","
#define PATTERN(p) "{" STRING "\"pattern\":\"" p "\"}", "the pattern "

static const char *const table[][2] = {
    {"", "no JSON"},
    {"{", "no JSON"},
    {"nonsense", "no JSON"},
    {"{} {}", "no JSON"},
    {"{\"type\":\"string\",\"type\":\"null\"}", "no JSON"},
    {"\"\\ud800\"", "no JSON"},
    {"3", "a schema must be an object"},
    {"\"string\"", "a schema must be an object"},
    {"[]", "a schema must be an object"},
    {"null", "a schema must be an object"},
    {"false", "nothing can be written"},
    {"{\"type\":\"text\"}", "'text' is none"},
    {"{\"type\":3}", "is none"},
    {"{\"type\":[]}", "types is empty"},
    {"{\"type\":[\"string\",\"any\"]}", "'any' is none"},
    {"{\"type\":null}", "is none"},
    {"{\"contains\":{}}", "'contains'"},
    {"{\"not\":{}}", "nothing can be written"},
    {"{\"not\":{\"minimum\":3}}", "'not'"},
    {"{\"if\":{\"minProperties\":1},\"then\":{\"required\":[\"a\"]}}", "'if'"},
    {"{\"properties\":{\"a\":{\"properties\":{\"b\":{\"contains\":{}}}}}}", "(at #/properties/a/properties/b)"},
    {"{\"items\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}]}}",
     "(at #/items/anyOf/1)"},
    {"{\"patternProperties\":[]}", "must be an object"},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":2}", "minProperties"},
    {"{\"type\":\"number\",\"multipleOf\":0.03}", "multipleOf"},
    {"{\"pattern\":[\"a\",\"b\"]}", "'pattern' must be a string"},
    {"{\"pattern\":\"^a.*b[a-f]{900}.*c\",\"minLength\":9000}", "too large"},
    {"{\"$dynamicRef\":\"#a\"}", "'$dynamicRef'"},
    {"{\"$recursiveRef\":\"#\"}", "'$recursiveRef'"},
    {"{\"type\":\"array\",\"uniqueItems\":true}", "'uniqueItems'"},
    {"{\"items\":{\"contains\":{}}}", "'contains'"},
    {"{\"$ref\":\"#/$defs/x\"}", "leads to nothing"},
    {"{\"$ref\":\"http://example.org/x\"}", "is not supported"},
    {"{\"$ref\":\"other.json\"}", "is not supported"},
    {"{\"$ref\":\"#name\"}", "is not supported"},
    {"{\"$ref\":3}", "must be a string"},
    {"{\"$ref\":\"#\"}", "nothing can be written"},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}", "nothing can be written"},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
     "nothing can be written"},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":5}}", "a schema must be an object"},
    {"{\"anyOf\":[]}", "something in it"},
    {"{\"anyOf\":{}}", "something in it"},
    {"{\"oneOf\":[]}", "something in it"},
    {"{\"allOf\":[]}", "something in it"},
    {"{\"allOf\":3}", "something in it"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}", "nothing can be written"},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "left recursion"},
    {"{\"anyOf\":[3]}", "a schema must be an object"},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"minLength\":3}]}", "exclude each other"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "exclude each other"},
    {"{\"oneOf\":[{\"properties\":{\"a\":{\"const\":1}}},{\"properties\":{\"a\":{\"const\":2}}}]}",
     "exclude each other"},
    {"{\"oneOf\":[{\"enum\":[1,2]},{\"enum\":[2,3]}]}", "exclude each other"},
    {"{\"oneOf\":[{},{}]}", "exclude each other"},
    {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "nothing can be written"},
    {"{\"allOf\":[{\"enum\":[1]},{\"enum\":[2]}]}", "nothing can be written"},
    {"{\"allOf\":[{\"format\":\"date\"},{\"format\":\"time\"}]}", "differ in 'format'"},
    {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{\"b\":{}}}]}",
     "no member 'b'"},
    {"{\"allOf\":[false]}", "nothing can be written"},
    {"{\"enum\":[]}", "something in it"},
    {"{\"enum\":3}", "something in it"},
    {"{\"type\":\"string\",\"enum\":[1,2]}", "nothing can be written"},
    {"{\"type\":\"integer\",\"const\":1.5}", "nothing can be written"},
    {"{\"enum\":[1],\"const\":2}", "nothing can be written"},
    {"{\"properties\":[]}", "'properties' must be an object"},
    {"{\"properties\":{\"a\":3}}", "a schema must be an object"},
    {"{\"required\":\"a\"}", "must be a list"},
    {"{\"properties\":{\"a\":{}},\"required\":[3]}", "a list of names"},
    {"{\"properties\":{\"a\":{},\"b\":{}},\"maxProperties\":1}", "maxProperties"},
    {"{\"properties\":{\"a\":false},\"required\":[\"a\"]}", "nothing can be written"},
    {"{\"type\":\"object\",\"maxProperties\":-1}", "whole number"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "nothing can be written"},
    {"{\"prefixItems\":{}}", "'prefixItems' a list"},
    {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "nothing can be written"},
    {"{\"type\":\"array\",\"minItems\":1.5}", "whole number"},
    {"{\"type\":\"array\",\"minItems\":\"1\"}", "whole number"},
    {"{\"type\":\"array\",\"items\":false,\"minItems\":1}", "nothing can be written"},
    {"{\"type\":\"array\",\"items\":7}", "a schema must be an object"},
    {"{\"type\":\"string\",\"minLength\":-1}", "whole number"},
    {"{\"type\":\"string\",\"minLength\":5,\"maxLength\":4}", "nothing can be written"},
    {"{\"type\":\"string\",\"maxLength\":null}", "whole number"},
    {"{\"pattern\":3}", "'pattern' must be a string"},
    {"{\"pattern\":\"^ab$\",\"minLength\":3}", "nothing can be written"},
    {PATTERN("(?<!a)b")},
    {PATTERN("(a)\\\\1")},
    {PATTERN("\\\\bword\\\\b")},
    {PATTERN("a**")},
    {PATTERN("*a")},
    {PATTERN("(a")},
    {PATTERN("a)")},
    {PATTERN("[a")},
    {PATTERN("[z-a]")},
    {PATTERN("a{3,2}")},
    {PATTERN("a^b")},
    {PATTERN("(^a)")},
    {PATTERN("a$b")},
    {PATTERN("\\\\u12")},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "nothing can be written"},
    {"{\"type\":\"integer\",\"minimum\":0.2,\"maximum\":0.8}", "nothing can be written"},
    {"{\"minimum\":\"0\"}", "must be a number"},
    {"{\"type\":\"number\",\"minimum\":2e15}", "nothing can be written"},
    {"{\"type\":\"integer\",\"maximum\":-2e15}", "nothing can be written"},
    {"{\"type\":\"string\",\"minLength\":1e300}", "2^30"},
    {"{\"type\":\"string\",\"minLength\":-1e300}", "whole number"},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":1,\"exclusiveMaximum\":2}", "nothing can be written"},
    {"{\"exclusiveMinimum\":true}", "must be a number"},
    {"{\"minimum\":0.123456789}", "places"},
    {"{\"multipleOf\":0}", "multipleOf"},
    {"{\"multipleOf\":-3}", "multipleOf"},
    {"{\"type\":\"integer\",\"multipleOf\":97}", "multipleOf"},
    {"{\"type\":\"integer\",\"multipleOf\":3,\"maximum\":50}", "multipleOf"},
    {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":1,\"maximum\":6}", "nothing can be written"},
};

/* Schemas that would need too many merges or comparisons: refused with little time and memory. */

struct text {
    char *at;
    size_t n;
};

static void put(struct text *x, const char *format, int i) { x->n += (size_t)sprintf(x->at + x->n, format, i, i); }

static void refused_soon(struct text *x)
{
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    struct timespec a, b;
    CHECK(x->n <= NTX_GRAMMAR_TEXT);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    CHECK_EQ(ntx_grammar_of_schema(x->at, x->n, &g, &err), -7); /* E2BIG */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    CHECK_MSG(strstr(err.text, "too much work") != NULL, "%.40s: %s", x->at, err.text);
    double s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    printf("%.30s...: %.3f s\n", x->at, s);
    CHECK_MSG(s < 3, "%.40s took %.1f s", x->at, s);
    x->n = 0;
}

static void test_work(void)
{
    struct text x = {malloc(NTX_GRAMMAR_TEXT + 64), 0};
    put(&x, "{\"allOf\":[{}", 0);
    for (int i = 0; i < 17000; i++)
        put(&x, ",{\"a%05d\":1}", i);
    put(&x, "]}", 0);
    refused_soon(&x);
    put(&x, "{\"a\":{\"enum\":[0", 0);
    for (int i = 1; i < 7000; i++)
        put(&x, ",%d", i);
    put(&x, "]},\"b\":{\"enum\":[0", 0);
    for (int i = 7000; i > 0; i--)
        put(&x, ",%d", i);
    put(&x, "]},\"allOf\":[{\"$ref\":\"#/a\"}", 0);
    for (int i = 0; i < 8000; i++)
        put(&x, ",{\"$ref\":\"#/b\"}", i);
    put(&x, "]}", 0);
    refused_soon(&x);
    put(&x, "{\"oneOf\":[false", 0);
    for (int i = 0; i < 63; i++) {
        put(&x, ",{\"enum\":[-%d", i + 1);
        for (int k = 0; k < 500; k++)
            put(&x, ",%d", 500 * i + k);
        put(&x, "]}", 0);
    }
    put(&x, "]}", 0);
    refused_soon(&x);
    free(x.at);
}

int main(void)
{
    test_work();
    unsigned n = sizeof table / sizeof *table;
    CHECK(n >= 100);
    for (unsigned i = 0; i < n; i++) {
        struct ntx_grammar *g;
        struct ntx_err err = {0};
        CHECK_MSG(ntx_grammar_of_schema(table[i][0], strlen(table[i][0]), &g, &err) < 0, "%s is taken", table[i][0]);
        CHECK_MSG(strstr(err.text, table[i][1]) != NULL, "%s: %s", table[i][0], err.text);
    }
    printf("%u schemas refused\n", n);
    return 0;
}
