/* SPDX-License-Identifier: Apache-2.0 */
/* draft.c: small cases for the keywords of draft 2020-12, in draft.json: [schema, [valid values], [others]]. Each
 * schema is enforced, or the closest one is and the rest is validated, or it is refused. None is wrong: the validator
 * agrees with the case, no automaton that enforces a schema takes a text of an invalid value, and random texts are
 * valid. */
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/valid.h"
#include "tests/lib/check.h"
#include "tests/unit/grammar/walk.h"

static unsigned wrong;

static void tell(const char *schema, const json_t *v, const char *what)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    printf("WRONG: %s\n  %s: %s\n", schema, what, text ? text : "");
    free(text);
    wrong++;
}

static bool takes(const struct ntx_grammar *g, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    struct ntx_match *m;
    const struct ntx_match_config c = {.grammar = g, .memory = 16 << 20};
    CHECK(!ntx_match_new(&c, &m));
    const bool yes = !ntx_match_take(m, text, strlen(text)) && ntx_match_may_end(m);
    ntx_match_free(m);
    free(text);
    return yes;
}

static void validate(const char *text, const json_t *schema, const json_t *list, enum ntx_valid expected)
{
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
        if (ntx_valid(schema, schema, v, NULL) != expected)
            tell(text, v, expected == NTX_VALID_YES ? "the validator does not take" : "the validator takes");
}

/* Of the valid values, those of other orders and forms than an automaton writes are not taken. */
static unsigned enforce(const char *text, const json_t *schema, const json_t *row, uint64_t *seed)
{
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    size_t i;
    json_t *v;
    unsigned taken = 0;
    int rc = ntx_grammar_of_schema(text, strlen(text), &g, &err);
    if (rc) { /* nothing is valid under it */
        if (json_array_size(json_array_get(row, 1)))
            tell(text, row, err.text);
        return 0;
    }
    json_array_foreach(json_array_get(row, 2), i, v)
        if (takes(g, v))
            tell(text, v, "the automaton takes");
    json_array_foreach(json_array_get(row, 1), i, v)
        taken += takes(g, v);
    for (int k = 0; k < 4; k++) {
        size_t len;
        char *out = walk_text(g, seed, k < 2 ? 12 : 50, false, &len);
        json_t *is = json_loadb(out, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (!is || ntx_valid(schema, schema, is, NULL) != NTX_VALID_YES)
            tell(text, is, out);
        json_decref(is);
        free(out);
    }
    ntx_grammar_free(g);
    return taken;
}

int main(void)
{
    json_t *cases = json_load_file(NTX_CASES, JSON_ALLOW_NUL, NULL), *row, *dropped;
    unsigned enforced = 0, closest = 0, refused = 0, taken = 0, good = 0;
    uint64_t seed = 7;
    size_t i;
    CHECK(json_array_size(cases) > 150);
    json_array_foreach(cases, i, row) {
        const json_t *schema = json_array_get(row, 0);
        char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
        struct ntx_err err = {0};
        if (!ntx_schema_look(text, strlen(text), true, &dropped, &err)) {
            json_decref(dropped);
            enforced++;
            good += (unsigned)json_array_size(json_array_get(row, 1));
            taken += enforce(text, schema, row, &seed);
        } else if (!ntx_schema_look(text, strlen(text), false, &dropped, &err)) {
            if (!json_array_size(dropped))
                tell(text, schema, "nothing is named that is left out");
            if (getenv("NTX_SHOW"))
                printf("%s\n  %s\n", text, json_dumps(dropped, 0));
            json_decref(dropped);
            closest++;
        } else {
            refused++;
        }
        validate(text, schema, json_array_get(row, 1), NTX_VALID_YES);
        validate(text, schema, json_array_get(row, 2), NTX_VALID_NO);
        free(text);
    }
    json_decref(cases);
    printf("%u enforced, %u validated afterwards, %u refused, %u wrong; automata take %u of %u valid values\n",
           enforced, closest, refused, wrong, taken, good);
    CHECK_EQ(wrong, 0);
    CHECK(closest < 30 && refused < 5 && taken * 10 > good * 8);
    return 0;
}
