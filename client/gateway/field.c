/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/field.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/util.h"

static const struct ntx_field *find_field(enum ntx_fields of, const char *name)
{
    const struct ntx_field *t = ntx_field_table;
    while (t->name && (!(t->of >> of & 1) || strcmp(t->name, name)))
        t++;
    return t->name ? t : NULL;
}

/* Changes of one character that turn a into b; at least `most` + 1: more than `most`. */
static unsigned distance(const char *a, const char *b, unsigned most)
{
    enum { LONGEST = 40 };
    unsigned row[LONGEST + 1], n = (unsigned)strlen(b), m = (unsigned)strlen(a);
    if (n > LONGEST || m > n + most || n > m + most)
        return most + 1;
    for (unsigned j = 0; j <= n; j++)
        row[j] = j;
    for (unsigned i = 1; i <= m; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= n; j++) {
            unsigned above = row[j], change = diagonal + (a[i - 1] != b[j - 1]);
            row[j] = NTX_MIN(change, NTX_MIN(above, row[j - 1]) + 1);
            diagonal = above;
        }
    }
    return row[n];
}

/* The names differ in case and underscores only: another language's spelling, which some clients send by themselves. */
static bool is_camel_case(const char *name, const char *of)
{
    for (; *of; of++)
        if (*of != '_' && tolower((unsigned char)*name++) != *of)
            return false;
    return !*name;
}

/* The field that a misspelt name may mean, or NULL. Short names resemble each other without being wrong. */
static const char *find_meant(enum ntx_fields of, const char *name)
{
    enum { SHORT = 6, MOST = 2 };
    const struct ntx_field *best = NULL;
    unsigned least = MOST + 1;
    if (strlen(name) < SHORT)
        return NULL;
    for (const struct ntx_field *t = ntx_field_table; t->name; t++) {
        unsigned d = t->of >> of & 1 && strlen(t->name) >= SHORT ? distance(name, t->name, MOST) : MOST + 1;
        if (d < least) {
            least = d;
            best = t;
        }
    }
    return best && !is_camel_case(name, best->name) ? best->name : NULL;
}

static bool is_neutral(const json_t *v, double neutral)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return true;
    case JSON_FALSE: return neutral < 1; /* 1: what true asks for is done in any case */
    case JSON_TRUE: return neutral == 1;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(v) == neutral || (neutral < 0 && json_number_value(v) == 0);
    case JSON_STRING: return !json_string_length(v);
    case JSON_ARRAY: return !json_array_size(v);
    case JSON_OBJECT: return !json_object_size(v);
    default: return false;
    }
}

static int read_count(const struct ntx_field *d, const json_t *v, void *at, struct ntx_fault *f)
{
    json_int_t n = json_integer_value(v);
    if (d->kind == NTX_FIELD_LIMIT && json_is_integer(v) && n == -1) {
        *(uint32_t *)at = 0;
        return 0;
    }
    if (!json_is_integer(v) || (double)n < d->least || (double)n > d->most)
        return ntx_fault(f, NTX_FAULT_INVALID, d->name, "'%s' must be an integer from %.0f to %.0f", d->name, d->least,
                         d->most);
    *(uint32_t *)at = (uint32_t)n;
    return 0;
}

static int read_real(const struct ntx_field *d, const json_t *v, void *at, struct ntx_fault *f)
{
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x < d->least || x > d->most)
        return ntx_fault(f, NTX_FAULT_INVALID, d->name, "'%s' must be a number from %g to %g", d->name, d->least,
                         d->most);
    *(float *)at = (float)x;
    return 0;
}

static int refuse_field(enum ntx_fields of, const struct ntx_field *d, struct ntx_fault *f)
{
    const char *within = ntx_fields_info[of].within;
    return ntx_fault(f, NTX_FAULT_UNSUPPORTED, d->name, "'%s' is not supported%s%s%s%s%s", d->name,
                     *within ? " in '" : "", within, *within ? "'" : "", d->note ? ": " : "", d->note ? d->note : "");
}

static int read_one(enum ntx_fields of, const struct ntx_field *d, const json_t *v, void *to, struct ntx_ignored *g,
                    struct ntx_fault *f)
{
    void *at = to ? (char *)to + d->at : NULL;
    switch (d->kind) {
    case NTX_FIELD_LIMIT:
    case NTX_FIELD_COUNT: return read_count(d, v, at, f);
    case NTX_FIELD_REAL: return read_real(d, v, at, f);
    case NTX_FIELD_BOOL:
        if (!json_is_boolean(v))
            return ntx_fault(f, NTX_FAULT_INVALID, d->name, "'%s' must be true or false", d->name);
        *(bool *)at = json_is_true(v);
        return 0;
    case NTX_FIELD_SEED:
        if (!json_is_integer(v))
            return ntx_fault(f, NTX_FAULT_INVALID, d->name, "'%s' must be an integer", d->name);
        if (json_integer_value(v) != -1 && json_integer_value(v) != UINT32_MAX) /* else it keeps its random seed */
            *(uint64_t *)at = (uint64_t)json_integer_value(v);
        return 0;
    case NTX_FIELD_HINT:
        if (!is_neutral(v, d->least))
            ntx_ignored_add(g, ntx_fields_info[of].within, d->name);
        return 0;
    case NTX_FIELD_ABSENT: return is_neutral(v, d->least) ? 0 : refuse_field(of, d, f);
    default: return 0;
    }
}

int ntx_fields_read(enum ntx_fields of, const json_t *body, void *to, struct ntx_ignored *g, struct ntx_fault *f)
{
    const struct ntx_fields_info *info = &ntx_fields_info[of];
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)body, name, v) {
        const struct ntx_field *d = find_field(of, name);
        const char *meant = !d && info->strict ? find_meant(of, name) : NULL;
        if (meant)
            return ntx_fault(f, NTX_FAULT_UNSUPPORTED, name, "unknown field '%.40s'%s%s%s: is '%s' meant?", name,
                             *info->within ? " in '" : "", info->within, *info->within ? "'" : "", meant);
        if (!d && !is_neutral(v, 0))
            ntx_ignored_add(g, info->within, name);
        if (d && !json_is_null(v) && read_one(of, d, v, to, g, f))
            return -1;
    }
    return 0;
}

/* ---- fields that are not followed */

static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ','))
            return true;
    return false;
}

void ntx_ignored_add(struct ntx_ignored *g, const char *within, const char *name)
{
    static const char more[] = "and others";
    char full[100];
    size_t n = strlen(g->text), room = sizeof g->text - sizeof more - 3;
    snprintf(full, sizeof full, "%.40s%s%.40s", within, *within ? "." : "", *name ? name : "?");
    for (char *p = full; *p; p++) /* the client chose the name: remove the characters that end a header or separate
                                   * names */
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.[]", *p))
            *p = '?';
    if (is_listed(g->text, full) || is_listed(g->text, more))
        return;
    snprintf(g->text + n, sizeof g->text - n, "%s%s", n ? ", " : "", n + strlen(full) < room ? full : more);
    g->n++;
}

json_t *ntx_ignored_json(const struct ntx_ignored *g, const char *note)
{
    json_t *all = json_object(), *list = json_array();
    for (const char *p = g->text; *p;) {
        size_t n = strcspn(p, ",");
        json_array_append_new(list, json_stringn(p, n));
        p += n + (p[n] ? 2 : 0);
    }
    if (g->n)
        json_object_set(all, "ignored", list);
    json_decref(list);
    if (*note)
        json_object_set_new(all, "note", json_string(note));
    return all;
}

/* ---- the table as Markdown */

static void print_type(const struct ntx_field *d, FILE *out)
{
    switch (d->kind) {
    case NTX_FIELD_BOOL: fputs("true or false", out); break;
    case NTX_FIELD_SEED: fputs("integer; -1 or 4294967295: random", out); break;
    case NTX_FIELD_LIMIT: fprintf(out, "integer from %.0f to %.0f; -1: no limit", d->least, d->most); break;
    case NTX_FIELD_REAL: fprintf(out, "number from %g to %g", d->least, d->most); break;
    case NTX_FIELD_COUNT: fprintf(out, "integer from %.0f to %.0f", d->least, d->most); break;
    default: fputs(d->type ? d->type : "any", out);
    }
}

static const char *effect_name(const struct ntx_field *d)
{
    switch (d->kind) {
    case NTX_FIELD_LABEL: return "no effect";
    case NTX_FIELD_HINT: return "not followed";
    case NTX_FIELD_ABSENT: return "refused";
    default: return "honoured";
    }
}

void ntx_fields_print(FILE *out)
{
    fputs("# Fields of requests\n\nThis is the output of `ntx-gateway --fields`: the table that the gateway itself "
          "reads requests by.\n\n"
          "- *honoured*: the field changes the answer, or its form. A value of another type is refused.\n"
          "- *no effect*: the field is a label, or advice on loading or caching. It cannot change an answer.\n"
          "- *not followed*: ntx lacks the feature of the field, and answers without it. The answer says so: the "
          "header\n"
          "  `Warning: 299 ntx \"ignored: NAME, ...\"`, and in an answer that is no stream the member `ntx.ignored`, a "
          "list of names.\n"
          "- *refused*: ntx lacks the feature of the field, which would change the answer: status 400, "
          "which names the field.\n\n"
          "A field of the last two kinds that asks for nothing (null, false, 0, an empty text, list or object, or its "
          "value for\noff) is taken.\n",
          out);
    for (int of = 0; of < NTX_N_FIELDS; of++) {
        fprintf(out, "\n## %s\n\n%s\n\n| field | type | handling | |\n|---|---|---|---|\n", ntx_fields_info[of].title,
                ntx_fields_info[of].strict
                    ? "A field that is not listed is not followed, and reported; one that looks like a misspelling of "
                      "a listed one is refused."
                    : "A field that is not listed is not followed, and reported.");
        for (const struct ntx_field *d = ntx_field_table; d->name; d++) {
            if (!(d->of >> of & 1))
                continue;
            fprintf(out, "| `%s` | ", d->name);
            print_type(d, out);
            fprintf(out, " | %s | %s |\n", effect_name(d), d->note ? d->note : "");
        }
    }
}
