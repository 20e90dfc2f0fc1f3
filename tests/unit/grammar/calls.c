/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c: random texts under the grammar of a request's tools are parsed by model/reply as calls of these tools,
 * with valid arguments, in every format. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/engine/constraint.h"
#include "model/reply/reply.h"
#include "tests/lib/check.h"
#include "tests/unit/grammar/walk.h"

static const char tools[] =
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\","
    " \"minimum\": 1, \"maximum\": 14}, \"unit\": {\"type\": \"string\", \"enum\": [\"C\", \"F\"]}, \"at\": {\"$ref\": "
    "\"#/$defs/at\"}}, \"required\": [\"city\", \"days\"], \"$defs\": {\"at\": {\"type\":"
    " \"array\", \"items\": {\"type\": \"number\"}, \"minItems\": 2, \"maxItems\": 2}}}}}, {\"type\": \"function\", "
    "\"function\": {\"name\": \"now\"}}]";

struct seen {
    unsigned calls, texts;
    const json_t *schema;
};

static bool is_string(void *arg, const char *tool, const char *parameter)
{
    (void)arg;
    (void)tool;
    return !strcmp(parameter, "city") || !strcmp(parameter, "unit");
}

static int part(void *arg, const struct ntx_reply_part *p)
{
    struct seen *s = arg;
    const char *why = "";
    s->texts += p->kind == NTX_REPLY_TEXT;
    if (p->kind != NTX_REPLY_CALL)
        return 0;
    json_t *v = json_loadb(p->text, p->len, 0, NULL);
    CHECK_MSG(v && json_is_object(v), "arguments %.*s", (int)p->len, p->text);
    CHECK(!strcmp(p->name, "weather") || !strcmp(p->name, "now"));
    if (!strcmp(p->name, "weather"))
        CHECK_MSG(valid(s->schema, s->schema, v, &why), "%.*s: %s", (int)p->len, p->text, why);
    json_decref(v);
    s->calls++;
    return 0;
}

static struct ntx_grammar *grammar(const char *format, const char *choice, bool parallel)
{
    char request[2000], *text;
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    snprintf(request, sizeof request, "{%s, \"choice\": \"%s\", \"parallel\": %s}", tools, choice,
             parallel ? "true" : "false");
    CHECK_MSG(!ntx__constraint_calls(format, request, strlen(request), &text, &err), "%s: %s", format, err.text);
    CHECK_MSG(!ntx_grammar_compile(text, strlen(text), &g, &err), "%s: %s\n%s", format, err.text, text);
    free(text);
    return g;
}

static void try_format(const char *format, const json_t *schema, const char *choice, bool parallel, uint64_t *seed)
{
    struct ntx_grammar *g = grammar(format, choice, parallel);
    for (int i = 0; i < 6; i++) {
        size_t len;
        char *out = walk_text(g, seed, 30, false, &len);
        struct seen s = {.schema = schema};
        struct ntx_reply *r;
        struct ntx_reply_options options = {
            .format = ntx_reply_by_name(format), .is_string = is_string, .part = part, .arg = &s};
        CHECK_EQ(ntx_reply_new(&options, &r), 0);
        CHECK_EQ(ntx_reply_feed(r, out, len), 0);
        CHECK_EQ(ntx_reply_end(r), 0);
        CHECK_MSG(!strcmp(choice, "auto") || s.calls >= 1, "%s: no call in %s", format, out);
        CHECK_MSG(parallel || s.calls <= 1 || !strcmp(choice, "auto"), "%s: several calls in %s", format, out);
        CHECK_MSG(!strcmp(choice, "auto") || !s.texts, "%s: text in %s", format, out);
        ntx_reply_free(r);
        free(out);
    }
    ntx_grammar_free(g);
}

struct said {
    char text[20000];
    size_t n;
    unsigned calls;
};

static int hear(void *arg, const struct ntx_reply_part *p)
{
    struct said *s = arg;
    s->calls += p->kind == NTX_REPLY_CALL;
    if (p->kind != NTX_REPLY_TEXT)
        return 0;
    CHECK(s->n + p->len < sizeof s->text);
    memcpy(s->text + s->n, p->text, p->len);
    s->n += p->len;
    return 0;
}

/* A JSON answer of a model that reasons first or has channels: the text outside of the reasoning is valid. */
static void try_schema(const char *format, const json_t *schema, uint64_t *seed)
{
    struct ntx_grammar *g;
    struct ntx_err err = {0};
    char *text, *json = json_dumps(schema, JSON_COMPACT);
    CHECK_MSG(!ntx__constraint_schema(false, format, true, false, json, strlen(json), &text, &err), "%s: %s", format,
              err.text);
    CHECK_MSG(!ntx_grammar_compile(text, strlen(text), &g, &err), "%s: %s\n%s", format, err.text, text);
    for (int i = 0; i < 6; i++) {
        static struct said s;
        size_t len;
        char *out = walk_text(g, seed, 30, false, &len);
        const char *why = "";
        struct ntx_reply *r;
        struct ntx_reply_options options = {.format = ntx_reply_by_name(format), .part = hear, .arg = &s};
        s = (struct said){.n = 0};
        CHECK_EQ(ntx_reply_new(&options, &r), 0);
        CHECK_EQ(ntx_reply_feed(r, out, len), 0);
        CHECK_EQ(ntx_reply_end(r), 0);
        json_t *v = json_loadb(s.text, s.n, 0, NULL);
        CHECK_MSG(v && !s.calls && valid(schema, schema, v, &why), "%s: %s in %s", format, why, out);
        json_decref(v);
        ntx_reply_free(r);
        free(out);
    }
    ntx_grammar_free(g);
    free(text);
    free(json);
}

/* Each parameter contains the targets of references: the limit of the grammar stops it, not memory. */
static void too_many(void)
{
    size_t len;
    char *request, *out;
    struct ntx_err err = {0};
    FILE *f = open_memstream(&request, &len);
    fputs("{\"tools\": [{\"function\": {\"name\": \"big\", \"parameters\": {\"type\": \"object\", \"properties\": {",
          f);
    for (int i = 0; i < 5000; i++)
        fprintf(f, "%s\"p%d\": {\"$ref\": \"#/$defs/a\"}", i ? ", " : "", i);
    fprintf(f, "}, \"$defs\": {\"a\": {\"enum\": [\"%0100000d\"]}}}}}], \"choice\": \"big\"}", 0);
    fclose(f);
    CHECK_EQ(ntx__constraint_calls("qwen3-coder", request, len, &out, &err), -E2BIG);
    CHECK_MSG(strstr(err.text, "grammar of the tools"), "%s", err.text);
    free(request);
}

static bool taken(bool guarded, const char *answer)
{
    static const char json[] = "{\"type\": \"integer\"}";
    char *text;
    struct ntx_grammar *g;
    struct ntx_match *m;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx__constraint_schema(false, "harmony", true, guarded, json, sizeof json - 1, &text, &err), "%s",
              err.text);
    CHECK_MSG(!ntx_grammar_compile(text, strlen(text), &g, &err), "%s", err.text);
    struct ntx_match_config c = {.grammar = g, .memory = 4 << 20};
    CHECK_EQ(ntx_match_new(&c, &m), 0);
    bool yes = !ntx_match_take(m, answer, strlen(answer)) && ntx_match_may_end(m);
    ntx_match_free(m);
    ntx_grammar_free(g);
    free(text);
    return yes;
}

/* Spelled-out channel marks would be shown before the JSON: if the vocabulary has tokens for them, only these are
 * allowed. */
static void spelled_marks(void)
{
    CHECK(taken(false, "<|channel|>final<|message|>5") && !taken(true, "<|channel|>final<|message|>5"));
    CHECK(taken(true, "\xff<|channel|>"
                      "final\xff<|message|>5"));
    CHECK(taken(true, "\xff<|channel|>analysis\xff<|message|>Hm.\xff<|end|>\xff<|start|>assistant\xff<|channel|>"
                      "final\xff<|message|>5"));
    CHECK(!taken(true, "\xff<|channel|>analysis\xff<|message|>Hm.<|end|>\xff<|start|>assistant\xff<|channel|>"
                       "final\xff<|message|>5"));
}

int main(void)
{
    static const char *const formats[] = {
        "hermes",  "qwen3-coder", "glm",  "minimax",   "deepseek", "deepseek-v3.2", "deepseek-v4", "kimi",  "mistral",
        "llama-3", "harmony",     "seed", "command-a", "lfm2",     "apertus",       "nemotron-2",  "jamba", "hy-3"};
    uint64_t seed = 11;
    walk_marks = walk_printable = true; /* free text is not restricted to UTF-8; models keep to that by themselves */
    char text[2000];
    snprintf(text, sizeof text, "{%s}", tools);
    json_t *all = json_loads(text, 0, NULL);
    const json_t *schema = json_object_get(
        json_object_get(json_array_get(json_object_get(all, "tools"), 0), "function"), "parameters");
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        try_format(formats[i], schema, "required", true, &seed);
        try_format(formats[i], schema, "required", false, &seed);
        try_format(formats[i], schema, "weather", false, &seed);
        try_format(formats[i], schema, "auto", true, &seed);
        try_schema(formats[i], schema, &seed);
    }
    struct ntx_err err = {0};
    char *out, request[2000];
    snprintf(request, sizeof request, "{%s, \"choice\": \"other\"}", tools);
    CHECK(ntx__constraint_calls("hermes", request, strlen(request), &out, &err) < 0 &&
          strstr(err.text, "no tool 'other'"));
    CHECK(ntx__constraint_calls("plain", request, strlen(request), &out, &err) < 0 &&
          strstr(err.text, "no calls of a known form"));
    CHECK(ntx__constraint_calls("minimax-m3", request, strlen(request), &out, &err) < 0 &&
          strstr(err.text, "MiniMax-M3 writes arguments as elements"));
    too_many();
    spelled_marks();
    json_decref(all);
    return 0;
}
