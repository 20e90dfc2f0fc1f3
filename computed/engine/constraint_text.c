/* SPDX-License-Identifier: Apache-2.0 */
/* constraint_text.c: grammar texts for whole answers: a JSON text where a model thinks or has channels, and tool calls
 * in the form in which the model writes them. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/engine/constraint.h"
#include "model/reply/reply.h"

/* at: @, or @@ where the vocabulary has these as control tokens. */
#define ANALYSIS(at)                                                                                                   \
    "analysis ::= " at "\"<|channel|>\" \"analysis\" " at "\"<|message|>\" ~\"<|end|>\" " at "\"<|end|>\" " at         \
    "\"<|start|>\" \"assistant\"\n"
#define FINAL(at) ANALYSIS(at) "root ::= analysis? " at "\"<|channel|>\" \"final\" " at "\"<|message|>\" value\n"

struct text {
    FILE *f;
    char *p;
    size_t n;
    bool strict;   /* the tool that is being written must have its schema enforced whole */
    unsigned tool; /* its number */
};

static int text_begin(struct text *t, struct ntx_err *err)
{
    *t = (struct text){0};
    t->f = open_memstream(&t->p, &t->n);
    return t->f ? 0 : ntx_err_set(err, -ENOMEM, "no memory for the grammar");
}

static int text_end(struct text *t, int rc, char **out, struct ntx_err *err)
{
    bool bad = ferror(t->f);
    bad |= fclose(t->f) != 0;
    if (!rc && bad)
        rc = ntx_err_set(err, -ENOMEM, "no memory for the grammar");
    if (rc)
        free(t->p);
    else
        *out = t->p;
    return rc;
}

static struct ntx_reply_writing writing_of(const char *reply, bool *calls)
{
    struct ntx_reply_writing w;
    const struct ntx_reply_format *f = ntx_reply_by_name(reply);
    *calls = ntx_reply_writing(f ? f : ntx_reply_by_name("plain"), &w);
    return w;
}

static void put_thinking(struct text *t, const struct ntx_reply_writing *w)
{
    if (w->think_end)
        fprintf(t->f, "thinking ::= ~\"%s\" @\"%s\" [ \\n]* root\n", w->think_end, w->think_end);
}

int ntx__constraint_schema(bool closest, const char *reply, bool chat, bool guarded, const char *json, size_t len,
                           char **out, struct ntx_err *err)
{
    struct text t;
    bool calls;
    struct ntx_reply_writing w = writing_of(reply, &calls);
    int rc = text_begin(&t, err);
    if (rc)
        return rc;
    bool channels = chat && !w.think_end;
    /* written as text they would be shown */
    if (channels)
        fputs(guarded ? FINAL("@@") : FINAL("@"), t.f);
    else
        fputs("root ::= value\n", t.f);
    put_thinking(&t, &w);
    json_error_t e;
    /* checked whole, so no text after it gets into the grammar */
    json_t *whole = json_loadb(json, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    if (!whole)
        rc = ntx_err_set(err, -EINVAL, "the schema is no JSON: %.120s (line %d)", e.text, e.line);
    json_decref(whole);
    fprintf(t.f, "value ::= %s %.*s\n", closest ? "%closest" : "%json", (int)len, json);
    return text_end(&t, rc, out, err);
}

/* ---- calls */

static void put_literal(struct text *t, const char *s)
{
    fputc('"', t->f);
    for (; *s; s++)
        if (*s == '\n')
            fputs("\\n", t->f);
        else
            fprintf(t->f, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
    fputs("\" ", t->f);
}

static void put_json(struct text *t, const json_t *j)
{
    fputs(t->strict ? "%json " : "%closest ", t->f);
    json_dumpf(j, t->f, JSON_ENCODE_ANY | JSON_COMPACT);
    fputc(' ', t->f);
}

static bool is_text(const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    return type && !strcmp(type, "string");
}

/* A text parameter is written without quotes. */
static void put_text_value(struct text *t, const struct ntx_reply_writing *w, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "enum");
    size_t i;
    json_t *v;
    if (!json_array_size(list)) {
        fprintf(t->f, "~\"%s\" ", w->text_end);
        return;
    }
    fputc('(', t->f);
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        fputs(i ? "| " : "", t->f);
        put_literal(t, json_is_string(v) ? json_string_value(v) : "");
    }
    fputs(") ", t->f);
}

/* The end of a parameter. After a free text it has no newline of its own, since the text takes it. */
static const char *parameter_end(const struct ntx_reply_writing *w, bool text, const json_t *schema)
{
    static const char newline[] = "\"\\n</";
    bool own = text && !json_array_size(json_object_get(schema, "enum")) &&
               !strncmp(w->parameter_end, newline, sizeof newline - 1);
    return own ? "\"</parameter>\\n\"" : w->parameter_end;
}

static void put_parameter(struct text *t, const struct ntx_reply_writing *w, const char *key, json_t *schema,
                          const json_t *all)
{
    const bool text = is_text(schema) && w->text_end;
    json_t *with = json_is_object(schema) ? json_copy(schema) : json_incref(schema);
    static const char *const defs[] = {"$defs", "definitions"};
    for (int i = 0; i < 2; i++) /* the targets of references */
        if (json_is_object(with) && json_object_get(all, defs[i]))
            json_object_set(with, defs[i], json_object_get(all, defs[i]));
    fprintf(t->f, "(%s ", w->parameter);
    put_literal(t, key);
    fprintf(t->f, "%s ", text && w->text_value ? w->text_value : w->value);
    if (text)
        put_text_value(t, w, schema);
    else
        put_json(t, with);
    fprintf(t->f, "%s)", parameter_end(w, text, schema));
    json_decref(with);
}

/* Longer than a grammar may be: writing stops. */
static bool too_long(const struct text *t) { return ftell(t->f) > (long)NTX_GRAMMAR_TEXT; }

static bool is_required(const json_t *schema, const char *key)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(schema, "required"), i, v)
        if (json_is_string(v) && !strcmp(json_string_value(v), key))
            return true;
    return false;
}

/* Rules for parameters with a separator between them: valueN-K is parameter K of tool N, moreN-K those from K on behind
 * another one, firstN-K those from K on. */
static void put_separated(struct text *t, const struct ntx_reply_writing *w, json_t *schema)
{
    const char *key;
    json_t *v;
    const size_t n = json_object_size(json_object_get(schema, "properties"));
    size_t k = 0;
    json_object_foreach(json_object_get(schema, "properties"), key, v) {
        const bool required = is_required(schema, key);
        if (too_long(t))
            return;
        fprintf(t->f, "value%u-%zu ::= ", t->tool, k);
        put_parameter(t, w, key, v, schema);
        fprintf(t->f, "\nmore%u-%zu ::= (%s value%u-%zu)%s more%u-%zu\n", t->tool, k, w->separator, t->tool, k,
                required ? "" : "?", t->tool, k + 1);
        fprintf(t->f, "first%u-%zu ::= value%u-%zu more%u-%zu", t->tool, k, t->tool, k, t->tool, k + 1);
        if (!required)
            fprintf(t->f, " | first%u-%zu", t->tool, k + 1);
        fputc('\n', t->f);
        k++;
    }
    fprintf(t->f, "more%u-%zu ::= \"\"\nfirst%u-%zu ::= \"\"\n", t->tool, n, t->tool, n);
}

static void put_arguments(struct text *t, const struct ntx_reply_writing *w, json_t *schema)
{
    const char *key;
    json_t *v;
    if (!w->parameter) {
        json_t *object = schema ? json_copy(schema) : json_object();
        if (!json_object_get(object, "$ref") && !json_object_get(object, "anyOf") &&
            !json_object_get(object, "oneOf") && !json_object_get(object, "allOf"))
            json_object_set_new(object, "type", json_string("object"));
        put_json(t, object);
        json_decref(object);
        return;
    }
    json_object_foreach(json_object_get(schema, "properties"), key, v) {
        if (too_long(t)) /* each parameter repeats the targets of references */
            return;
        put_parameter(t, w, key, v, schema);
        fputs(is_required(schema, key) ? " " : "? ", t->f);
    }
}

static void put_all_separated(struct text *t, const struct ntx_reply_writing *w, const json_t *request,
                              const char *only)
{
    size_t i;
    json_t *tool;
    json_array_foreach(json_object_get(request, "tools"), i, tool) {
        json_t *fn = json_object_get(tool, "function"), *schema = json_object_get(fn, "parameters");
        const char *name = json_string_value(json_object_get(fn, "name"));
        if (!name || (only && strcmp(name, only)))
            continue;
        t->tool = (unsigned)i;
        t->strict = json_is_true(json_object_get(fn, "strict"));
        put_separated(t, w, json_is_object(schema) ? schema : NULL);
    }
}

/* Writes the rules call and calls. -EINVAL: there is no tool of that name; -E2BIG: too long. */
static int put_calls(struct text *t, const struct ntx_reply_writing *w, const json_t *request, const char *only,
                     struct ntx_err *err)
{
    bool several = !json_is_false(json_object_get(request, "parallel")) && w->think_end, any = false;
    size_t i;
    json_t *tool;
    if (w->separator)
        put_all_separated(t, w, request, only);
    fputs("call ::= ", t->f);
    json_array_foreach(json_object_get(request, "tools"), i, tool) {
        json_t *fn = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(fn, "name"));
        if (!name || (only && strcmp(name, only)))
            continue;
        fprintf(t->f, "%s%s ", any ? "| " : "", w->open);
        put_literal(t, name);
        fprintf(t->f, "%s ", w->middle);
        json_t *schema = json_object_get(fn, "parameters");
        t->strict = json_is_true(json_object_get(fn, "strict"));
        if (w->separator)
            fprintf(t->f, "first%zu-0 ", i);
        else
            put_arguments(t, w, json_is_object(schema) ? schema : NULL);
        fprintf(t->f, "%s\n", w->close);
        any = true;
        if (too_long(t))
            return ntx_err_set(err, -E2BIG, "the grammar of the tools has more than the %u bytes that are possible",
                               NTX_GRAMMAR_TEXT);
    }
    fprintf(t->f, "\ncalls ::= %s call ", w->before ? w->before : "");
    if (several)
        fprintf(t->f, "(%s call)* ", w->between ? w->between : "");
    fprintf(t->f, "%s\n", w->after ? w->after : "");
    if (any)
        return 0;
    return ntx_err_set(err, -EINVAL, "there is no tool '%.100s' among those of the request", only ? only : "");
}

static void put_root(struct text *t, const struct ntx_reply_writing *w, bool must)
{
    if (!w->think_end) {
        const char *answer = must ? "calls" : "(calls | @\"<|channel|>\" \"final\" @\"<|message|>\" ~\"<|end|>\")";
        fprintf(t->f, ANALYSIS("@") "root ::= analysis* %s\n", answer);
        return;
    }
    fprintf(t->f, "thought ::= @\"%s\" ~\"%s\" @\"%s\" [ \\n]*\n", w->think, w->think_end, w->think_end);
    if (must)
        fprintf(t->f, "root ::= %scalls\n", w->mark ? "thought? " : "");
    else if (w->mark && w->text)
        fprintf(t->f, "root ::= thought? text (calls text)*\ntext ::= %s\n", w->text);
    else if (w->mark)
        fprintf(t->f, "root ::= thought? text (calls text)*\ntext ::= ~\"%s\"\n", w->mark);
    else
        fputs("root ::= calls | ([^{] .*)?\n", t->f);
    put_thinking(t, w);
}

int ntx__constraint_calls(const char *reply, const char *json, size_t len, char **out, struct ntx_err *err)
{
    struct text t;
    bool calls;
    struct ntx_reply_writing w = writing_of(reply, &calls);
    json_t *request = json_loadb(json, len, JSON_REJECT_DUPLICATES, NULL);
    const char *choice = json_string_value(json_object_get(request, "choice"));
    bool must = choice && strcmp(choice, "auto");
    int rc;
    if (!request)
        rc = ntx_err_set(err, -EINVAL, "the tools are no JSON");
    else if (!calls && reply && !strcmp(reply, "minimax-m3"))
        rc = ntx_err_set(err, -ENOTSUP,
                         "MiniMax-M3 writes arguments as elements within elements, for which there is no grammar, so "
                         "its calls cannot be asked for");
    else if (!calls)
        rc = ntx_err_set(err, -ENOTSUP,
                         "this model's chat template has no calls of a known form, so they cannot be asked for");
    else
        rc = text_begin(&t, err);
    if (rc) {
        json_decref(request);
        return rc;
    }
    put_root(&t, &w, must);
    rc = put_calls(&t, &w, request, must && strcmp(choice, "required") ? choice : NULL, err);
    json_decref(request);
    return text_end(&t, rc, out, err);
}
