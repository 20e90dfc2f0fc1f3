/* SPDX-License-Identifier: Apache-2.0 */
/* schema_drop.c: where in the document a keyword is, and keywords that are left out since they cannot be enforced. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/schema.h"
#include "computed/grammar/valid.h"

enum { DROPPED_MOST = 24, PLACE_MOST = 200 };

static struct schemas *of(struct tree *t) { return t->schema; }

/* The aim of a search: this value, or the object that has this value as its member of that name. */
struct wanted {
    const json_t *at, *value;
    const char *key;
};

/* Appends "/part" to the pointer, with ~ and / escaped; at most PLACE_MOST bytes. */
static size_t append(char *out, size_t n, const char *part)
{
    if (n + 1 < PLACE_MOST)
        out[n++] = '/';
    for (; *part && n + 2 < PLACE_MOST; part++)
        if (*part == '~' || *part == '/') {
            out[n++] = '~';
            out[n++] = *part == '~' ? '0' : '1';
        } else {
            out[n++] = *part;
        }
    out[n] = 0;
    return n;
}

/* Writes the JSON pointer of the first fitting place below `in` behind the n bytes of out. */
static bool search(struct tree *t, const struct wanted *w, const json_t *in, char *out, size_t n, unsigned depth)
{
    const char *key;
    char number[24];
    size_t i;
    json_t *one;
    out[n] = 0;
    if (w->at == in || (w->key && json_object_get(in, w->key) == w->value))
        return true;
    if (depth > NEST || t->failed)
        return false;
    json_object_foreach((json_t *)(uintptr_t)in, key, one)
        if (json_is_object(one) || json_is_array(one))
            if (search(t, w, one, out, append(out, n, key), depth + 1))
                return true;
    json_array_foreach((json_t *)(uintptr_t)in, i, one) {
        if (!json_is_object(one) && !json_is_array(one))
            continue;
        snprintf(number, sizeof number, "%zu", i);
        if (search(t, w, one, out, append(out, n, number), depth + 1))
            return true;
    }
    out[n] = 0;
    return false;
}

static bool find(struct tree *t, const json_t *at, const char *key, char out[PLACE_MOST + 8])
{
    const json_t *value = key ? json_object_get(at, key) : NULL;
    snprintf(out, PLACE_MOST, "#");
    if (search(t, &(struct wanted){.at = at}, of(t)->doc, out, 1, 0))
        return true;
    return value && search(t, &(struct wanted){.value = value, .key = key}, of(t)->doc, out, 1, 0);
}

/* The place of the schema, or of the innermost one around it that was not made by a merge. */
static void schema_place(struct tree *t, const json_t *schema, const char *key, char out[PLACE_MOST + 8])
{
    const int failed = t->failed;
    t->failed = 0;
    bool found = schema && find(t, schema, key, out);
    for (unsigned i = of(t)->depth > NEST ? NEST : of(t)->depth; i > 0 && !found; i--)
        found = find(t, of(t)->frame[i], NULL, out);
    t->failed = failed;
}

bool ntx__schema_made(struct tree *t, const json_t *v)
{
    char place[PLACE_MOST + 8] = "#";
    return !search(t, &(struct wanted){.at = v}, of(t)->doc, place, 1, 0);
}

json_t *ntx__schema_without(struct tree *t, const json_t *schema, const char *key)
{
    json_t *copy = ntx__schema_keep(t, ntx__schema_copy(t, schema));
    if (copy)
        json_object_del(copy, key);
    return copy;
}

static void note(struct tree *t, const json_t *schema, const char *key)
{
    char place[PLACE_MOST + 8];
    size_t i;
    json_t *one;
    json_t *list = of(t)->dropped;
    if (!list || json_array_size(list) >= DROPPED_MOST)
        return;
    schema_place(t, schema, key, place);
    json_array_foreach(list, i, one)
        if (!strcmp(json_string_value(json_object_get(one, "keyword")), key) &&
            !strcmp(json_string_value(json_object_get(one, "at")), place))
            return;
    json_array_append_new(list, json_pack("{s:s, s:s}", "keyword", key, "at", place));
}

bool ntx__schema_drop(struct tree *t, const json_t *schema, const char *key, const char *why)
{
    if (!t->failed && !of(t)->closest)
        ntx__tree_fail(t, -EINVAL, "the schema's '%s' is not supported%s", key, why);
    if (t->failed)
        return false;
    note(t, schema, key);
    return ntx__schema_step(t, 64);
}

bool ntx__schema_forgive(struct tree *t, const json_t *schema, const char *key)
{
    if (t->failed != -EINVAL || !of(t)->closest)
        return false;
    t->failed = 0;
    of(t)->placed = false;
    if (t->err)
        t->err->text[0] = 0;
    note(t, schema, key);
    return ntx__schema_step(t, 64);
}

/* Adds the place to an error, once. */
void ntx__schema_tell_place(struct tree *t)
{
    char place[PLACE_MOST + 8] = "#";
    if (!t->failed || of(t)->placed || !t->err || t->failed == -ENOMEM)
        return;
    of(t)->placed = true;
    schema_place(t, NULL, NULL, place);
    const size_t n = strlen(t->err->text);
    if (strcmp(place, "#"))
        snprintf(t->err->text + n, sizeof t->err->text - n, " (at %s)", place);
}

int ntx_schema_look(const char *json, size_t len, bool strict, json_t **dropped, struct ntx_err *err)
{
    struct tree t;
    int rc = len > NTX_GRAMMAR_TEXT
                 ? ntx_err_set(err, -E2BIG, "the schema has %zu bytes, %u are possible", len, NTX_GRAMMAR_TEXT)
                 : ntx__tree_init(&t, err);
    if (rc)
        return rc;
    t.closest = !strict;
    ntx__schema_read(&t, json, len, NULL);
    if (!(rc = t.failed)) {
        struct schemas *s = t.schema;
        *dropped = s->dropped ? json_incref(s->dropped) : json_array();
    }
    ntx__schema_free(&t);
    ntx__tree_free(&t);
    return rc;
}
