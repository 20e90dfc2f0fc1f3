/* SPDX-License-Identifier: Apache-2.0 */
/* schema_set.c: arrays of different items (uniqueItems) of few values. Up to six come in any order; more come in the
 * order of the enum. */
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/schema.h"
#include "computed/grammar/valid.h"

enum { ANY_ORDER = 6, VALUES_MOST = 256, RULES_MOST = 20000 };

struct values {
    struct tree *t;
    json_t *list; /* of different values that are valid */
    uint32_t min, max;
    uint32_t *rule; /* rule + 1 of what may follow; 0: not made yet */
};

static json_t *candidates(const json_t *items)
{
    const json_t *list = json_object_get(items, "enum"), *one = json_object_get(items, "const"),
                 *type = json_object_get(items, "type");
    const char *name = json_string_value(type);
    if (one)
        return json_pack("[O]", one);
    if (json_is_array(list) && json_array_size(list) <= VALUES_MOST)
        return json_copy((json_t *)(uintptr_t)list);
    if (name && !strcmp(name, "boolean"))
        return json_pack("[b, b]", 0, 1);
    return name && !strcmp(name, "null") ? json_pack("[n]") : NULL;
}

static bool is_new(const json_t *list, const json_t *v)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one)
        if (json_equal(one, v) ||
            (json_is_number(one) && json_is_number(v) && json_number_value(one) == json_number_value(v)))
            return false;
    return true;
}

/* The valid candidates, each once; NULL: there are too many, or it is not known. */
static json_t *valid_values(struct tree *t, const json_t *items)
{
    const struct schemas *s = t->schema;
    for (int i = 0; i < 8 && json_is_string(json_object_get(items, "$ref")) && !ntx__schema_says(items, "$ref"); i++)
        if (!(items = ntx__schema_target(t, json_string_value(json_object_get(items, "$ref")))))
            return NULL;
    json_t *all = candidates(items), *out = all ? json_array() : NULL, *v;
    size_t i;
    if (all && !ntx__schema_step(t, ntx__schema_weigh(t, all) * json_array_size(all) / 4))
        json_array_clear(all);
    json_array_foreach(all, i, v) {
        unsigned took = 0;
        const bool valid = ntx_valid_within(s->doc, items, v, 1 << 16, &took) == NTX_VALID_YES;
        if (!ntx__schema_step(t, took))
            break;
        if (valid && is_new(out, v))
            json_array_append(out, v);
    }
    json_decref(all);
    return out;
}

/* The rule of all that may follow once these values are used (mask), or the first `next` values are passed and `have`
 * used. */
static node follows(struct values *s, uint32_t used, uint32_t next, uint32_t have)
{
    struct tree *t = s->t;
    const uint32_t n = (uint32_t)json_array_size(s->list);
    const bool any_order = n <= ANY_ORDER;
    uint32_t *rule = &s->rule[any_order ? used : next * (s->max + 1) + have];
    if (*rule)
        return ntx__tree_rule(t, *rule - 1);
    *rule = 1 + ntx__tree_rule_new(t, NULL, 0);
    node out = ntx__tree_list(t, N_ALT);
    if (have >= s->min)
        ntx__tree_add(t, out, ntx__tree_list(t, N_EMPTY));
    for (uint32_t i = any_order ? 0 : next; i < n && have < s->max && !t->failed; i++) {
        if (any_order && used >> i & 1)
            continue;
        node item = ntx__schema_literal(t, json_array_get(s->list, i));
        if (have)
            item = SEQ(t, ntx__tree_text(t, ","), ntx__schema_common(t, C_SPACE), item);
        ntx__tree_add(t, out, SEQ(t, item, follows(s, any_order ? used | 1u << i : 0, i + 1, have + 1)));
    }
    ntx__tree_define(t, s->rule[any_order ? used : next * (s->max + 1) + have] - 1, out);
    return ntx__tree_rule(t, s->rule[any_order ? used : next * (s->max + 1) + have] - 1);
}

node ntx__schema_set(struct tree *t, const json_t *items, uint32_t min, uint32_t max)
{
    json_t *list = items ? valid_values(t, items) : NULL;
    const uint32_t n = (uint32_t)json_array_size(list);
    struct values s = {t, list, min, max < n ? max : n, NULL};
    const uint64_t rules = n <= ANY_ORDER ? 1u << n : (uint64_t)(n + 1) * (s.max + 1), edges = rules * n / 2;
    node out = 0;
    if (list && !t->failed && rules <= RULES_MOST && edges <= 3 * RULES_MOST && ntx__schema_step(t, 8 * edges)) {
        s.rule = calloc(rules, sizeof *s.rule);
        out = s.rule ? SEQ(t, ntx__tree_text(t, "["), ntx__schema_common(t, C_SPACE), follows(&s, 0, 0, 0),
                           ntx__schema_common(t, C_SPACE), ntx__tree_text(t, "]"))
                     : 0;
    }
    free(s.rule);
    json_decref(list);
    return t->failed ? 0 : out;
}
