/* SPDX-License-Identifier: Apache-2.0 */
/* tools.c: the parameters of 500 tools. Each schema compiles whole, or with keywords left out that are named. Random
 * texts are valid where nothing is left out. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "computed/grammar/valid.h"
#include "tests/lib/check.h"
#include "tests/unit/grammar/walk.h"

enum { TOOLS = 500, WALKS = 3 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* As a request's tools are compiled. */
static struct ntx_grammar *compile_closest(const char *text)
{
    char *all = malloc(strlen(text) + 64);
    struct ntx_grammar *g = NULL;
    struct ntx_err err = {0};
    CHECK(all != NULL);
    sprintf(all, "root ::= %%closest %s\n", text);
    CHECK_MSG(!ntx_grammar_compile(all, strlen(all), &g, &err), "%s\n  %s", text, err.text);
    free(all);
    return g;
}

static void walk(const struct ntx_grammar *g, const char *text, const json_t *schema, uint64_t *seed, bool whole,
                 unsigned *broken)
{
    for (int i = 0; i < WALKS; i++) {
        size_t len;
        struct ntx_valid_why why;
        char *out = walk_text(g, seed, i ? 40 : 8, false, &len);
        json_t *v = json_loadb(out, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        const enum ntx_valid is = ntx_valid(schema, schema, v, &why);
        CHECK_MSG(v && is != NTX_VALID_UNKNOWN, "%s\n  gave %s", text, out);
        CHECK_MSG(!whole || is == NTX_VALID_YES, "%s\n  gave %s: %s at %s", text, out, why.keyword, why.place);
        *broken += is == NTX_VALID_NO;
        json_decref(v);
        free(out);
    }
}

int main(void)
{
    uint64_t seed = 53;
    unsigned whole = 0, broken = 0;
    double look_s = 0, compile_s = 0, slowest = 0;
    size_t largest = 0;
    json_object_seed(1);
    for (int i = 0; i < TOOLS; i++) {
        json_t *schema = tool_schema(&seed), *dropped = NULL;
        char *text = json_dumps(schema, JSON_COMPACT);
        struct ntx_err err = {0};
        const double a = seconds();
        CHECK_MSG(!ntx_schema_look(text, strlen(text), false, &dropped, &err), "%s\n  %s", text, err.text);
        const double b = seconds();
        struct ntx_grammar *g = compile_closest(text);
        const double c = seconds();
        const bool all = !json_array_size(dropped);
        if (getenv("NTX_SHOW") && !all)
            printf("%s\n  %s\n", text, json_dumps(dropped, 0));
        whole += all;
        look_s += b - a;
        compile_s += c - b;
        slowest = c - b > slowest ? c - b : slowest;
        largest = ntx_grammar_bytes(g) > largest ? ntx_grammar_bytes(g) : largest;
        walk(g, text, schema, &seed, all, &broken);
        ntx_grammar_free(g);
        json_decref(dropped);
        json_decref(schema);
        free(text);
    }
    printf(
        "%d tools: %u enforced whole, %d with keywords left out (%u of their random texts are invalid); look %.2f ms, "
        "compile %.2f ms, at most %.1f ms and %zu KiB\n",
        TOOLS, whole, TOOLS - (int)whole, broken, 1e3 * look_s / TOOLS, 1e3 * compile_s / TOOLS, 1e3 * slowest,
        largest >> 10);
    CHECK(whole > TOOLS * 3 / 4 && slowest < 2);
    return 0;
}
