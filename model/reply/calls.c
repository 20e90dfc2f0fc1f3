/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c: parsers of the contents of calls, one per format. A parser first checks that it can read everything, so
 * that no part of an invalid call is passed on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/reply/impl.h"

#define NAME_MAX 256

static bool starts(struct span s, const char *with) { return s.n >= strlen(with) && !memcmp(s.p, with, strlen(with)); }

static bool put_name(char out[NAME_MAX], struct span name)
{
    name = ntx__reply_trim(name);
    if (!name.n || name.n >= NAME_MAX || memchr(name.p, 0, name.n) || memchr(name.p, '\n', name.n))
        return false;
    memcpy(out, name.p, name.n);
    out[name.n] = 0;
    return true;
}

static bool is_whole(struct span object)
{
    struct span v;
    return ntx__reply_value(&object, &v) && !ntx__reply_trim(object).n;
}

/* Takes a value, or the existing part of it if the call was cut. */
static bool take_value(const struct calls *c, struct span *at, struct span *v)
{
    if (!ntx__reply_value(at, v)) {
        if (!c->cut)
            return false;
        *v = ntx__reply_trim(*at);
        at->n = 0;
    }
    return true;
}

/* Passes on one call; id may be empty. */
static bool hand_out(struct calls *c, struct span name, struct span id, struct span arguments)
{
    char called[NAME_MAX], ident[NAME_MAX] = "";
    if (!put_name(called, name) || (id.n && !put_name(ident, id)))
        return false;
    struct ntx_reply_part part = {.kind = NTX_REPLY_CALL,
                                  .name = called,
                                  .id = ident,
                                  .text = arguments.p,
                                  .len = arguments.n,
                                  .cut = c->cut && !is_whole(arguments)};
    if (!c->rc)
        c->rc = c->options->part(c->options->arg, &part);
    return true;
}

bool ntx__reply_hand_out(struct calls *c, struct span name, struct span arguments, bool failed)
{
    if (failed)
        c->rc = -ENOMEM;
    return failed || hand_out(c, name, (struct span){"", 0}, arguments);
}

/* ---- JSON */

/* Some models call these members otherwise. */
static bool named_member(struct span object, const char *key, const char *other, struct span *v)
{
    return ntx__reply_member(object, key, v) || ntx__reply_member(object, other, v);
}

static bool object_call(struct calls *c, struct span object, bool only_look)
{
    struct span name, arguments = {"{}", 2}, id = {"", 0}, v;
    if (!named_member(object, "name", "tool_name", &v) || !ntx__reply_text(v, &name) || !name.n)
        return false;
    const bool given = ntx__reply_member(object, "arguments", &arguments) ||
                       ntx__reply_member(object, "parameters", &arguments);
    if (c->bare && (!given || !c->options->offers(c->options->arg, name.p, name.n)))
        return false;
    if (named_member(object, "id", "tool_call_id", &v))
        ntx__reply_text(v, &id);
    return arguments.p[0] == '{' && (only_look || hand_out(c, name, id, arguments));
}

/* The last object, which is incomplete; false: its name is unknown. */
static bool cut_object(struct calls *c, struct span object, bool only_look)
{
    struct span name, arguments = {"", 0}, id = {"", 0}, v;
    if ((!ntx__reply_begun(object, "name", &v) && !ntx__reply_begun(object, "tool_name", &v)) ||
        !ntx__reply_value(&v, &name) || !ntx__reply_text(name, &name) || !name.n)
        return false;
    if (!ntx__reply_begun(object, "arguments", &arguments))
        ntx__reply_begun(object, "parameters", &arguments);
    if ((arguments.n && arguments.p[0] != '{') || (c->bare && !c->options->offers(c->options->arg, name.p, name.n)))
        return false;
    if ((ntx__reply_begun(object, "id", &v) || ntx__reply_begun(object, "tool_call_id", &v)) &&
        ntx__reply_value(&v, &id) && !ntx__reply_text(id, &id))
        id.n = 0;
    return only_look || hand_out(c, name, id, arguments);
}

/* Objects in sequence, separated by commas or semicolons, or a list of them. */
static bool read_objects(struct calls *c, bool only_look)
{
    struct span at = ntx__reply_trim(c->body), v;
    if (at.n && at.p[0] == '[') {
        struct span list = at;
        bool closed = ntx__reply_value(&list, &v) && !ntx__reply_trim(list).n;
        if (!closed && !c->cut)
            return false;
        at = closed ? (struct span){v.p + 1, v.n - 2} : (struct span){at.p + 1, at.n - 1};
    }
    unsigned n = 0;
    for (; (at = ntx__reply_trim(at)).n; n++) {
        if (n && (at.p[0] == ',' || at.p[0] == ';'))
            at = (struct span){at.p + 1, at.n - 1};
        if (!ntx__reply_value(&at, &v))
            return c->cut && (cut_object(c, at, only_look) || n);
        if (!object_call(c, v, only_look))
            return false;
    }
    return n > 0;
}

bool ntx__calls_hermes(struct calls *c) { return read_objects(c, true) && read_objects(c, false); }
bool ntx__calls_bare(struct calls *c, bool only_look) { return read_objects(c, only_look); }
bool ntx__calls_llama(struct calls *c) { return ntx__calls_hermes(c); }

/* [{"NAME": {...}}, ...]: a call has one member. */
static bool read_members(struct calls *c, bool only_look)
{
    struct span at = ntx__reply_trim(c->body), list, v, name, arguments;
    unsigned n = 0;
    if (!ntx__reply_value(&at, &list) || list.p[0] != '[' || ntx__reply_trim(at).n)
        return false;
    for (at = (struct span){list.p + 1, list.n - 2}; (at = ntx__reply_trim(at)).n; n++) {
        if (n && at.p[0] == ',')
            at = (struct span){at.p + 1, at.n - 1};
        if (!ntx__reply_value(&at, &v) || v.p[0] != '{')
            return false;
        struct span in = {v.p + 1, v.n - 2}, gap;
        if (!ntx__reply_value(&in, &name) || !ntx__reply_text(name, &name) || !ntx__reply_until(&in, ":", &gap) ||
            ntx__reply_trim(gap).n || !ntx__reply_value(&in, &arguments) || arguments.p[0] != '{' ||
            ntx__reply_trim(in).n)
            return false;
        if (!only_look && !hand_out(c, name, (struct span){"", 0}, arguments))
            return false;
    }
    return n > 0;
}
bool ntx__calls_apertus(struct calls *c) { return read_members(c, true) && read_members(c, false); }

/* NAME[ARGS]{...}, in some models with [CALL_ID]ID between; else a list of objects. */
bool ntx__calls_mistral(struct calls *c)
{
    struct span at = c->body, name, id = {"", 0}, head, v;
    if (!ntx__reply_until(&at, "[ARGS]", &head))
        return ntx__calls_hermes(c);
    id = head;
    if (!ntx__reply_until(&id, "[CALL_ID]", &name)) {
        name = head;
        id.n = 0;
    }
    return take_value(c, &at, &v) && !ntx__reply_trim(at).n && hand_out(c, name, ntx__reply_trim(id), v);
}

/* ---- parameters as XML */

static void add_parameter(struct calls *c, struct bytes *b, const char *tool, struct span name, struct span v,
                          int is_string)
{
    char parameter[NAME_MAX] = "";
    struct span at = v, json = {NULL, 0};
    put_name(parameter, name);
    if (is_string < 0 && c->options->is_string)
        is_string = c->options->is_string(c->options->arg, tool, parameter);
    bool is_json = is_string <= 0 && ntx__reply_value(&at, &json) && !ntx__reply_trim(at).n &&
                   (is_string == 0 || json.p[0] != '"');
    ntx__reply_add_text(b, b->n > 1 ? ", " : "");
    ntx__reply_add_string(b, ntx__reply_trim(name));
    ntx__reply_add_text(b, ": ");
    if (is_json)
        ntx__reply_add(b, json.p, json.n);
    else
        ntx__reply_add_string(b, v);
}

/* Removes the newlines that the format puts around a value, one on each side. */
static struct span trim_newlines(struct span v)
{
    if (v.n && v.p[0] == '\n') {
        v.p++;
        v.n--;
    }
    v.n -= v.n && v.p[v.n - 1] == '\n';
    return v;
}

/* open: the call is incomplete. */
static bool finish_arguments(struct calls *c, struct bytes *b, struct span name, bool read, bool open)
{
    ntx__reply_add_text(b, open ? "" : "}");
    if (b->failed)
        c->rc = -ENOMEM;
    read = read && !b->failed && hand_out(c, name, (struct span){"", 0}, (struct span){b->p, b->n});
    free(b->p);
    return read || b->failed;
}

/* <function=NAME> <parameter=KEY> VALUE </parameter> ... </function> */
bool ntx__calls_coder(struct calls *c)
{
    struct span at = ntx__reply_trim(c->body), name, key, v, gap;
    struct bytes b = {0};
    char tool[NAME_MAX];
    if (starts(at, "{"))
        return ntx__calls_hermes(c);
    if (!starts(at, "<function=") || !ntx__reply_until(&at, "=", &gap) || !ntx__reply_until(&at, ">", &name) ||
        !put_name(tool, name))
        return false;
    ntx__reply_add_text(&b, "{");
    while (ntx__reply_until(&at, "<parameter=", &gap)) {
        if (!ntx__reply_until(&at, ">", &key) || !ntx__reply_until(&at, "</parameter>", &v))
            return finish_arguments(c, &b, name, c->cut, c->cut);
        add_parameter(c, &b, tool, key, trim_newlines(v), -1);
    }
    return finish_arguments(c, &b, name, true, c->cut && !ntx__reply_until(&at, "</function>", &gap));
}

struct arguments {
    const char *key, *key_end, *value, *value_end;
};

/* KEY and VALUE between their marks, ... */
static bool read_pairs(struct calls *c, const struct arguments *m, struct span at, struct span name, const char *tool)
{
    struct bytes b = {0};
    struct span key, v, gap;
    ntx__reply_add_text(&b, "{");
    while (ntx__reply_until(&at, m->key, &gap)) {
        if (!ntx__reply_until(&at, m->key_end, &key) || !ntx__reply_until(&at, m->value, &gap) ||
            !ntx__reply_until(&at, m->value_end, &v))
            return finish_arguments(c, &b, name, c->cut, c->cut);
        add_parameter(c, &b, tool, key, v, -1);
    }
    return finish_arguments(c, &b, name, true, c->cut);
}

/* NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> ... */
bool ntx__calls_glm(struct calls *c)
{
    static const struct arguments m = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
    struct span at = ntx__reply_trim(c->body), name = at;
    char tool[NAME_MAX];
    const char *end = at.n ? memmem(at.p, at.n, "<arg_key>", 9) : NULL;
    if (c->cut && at.n && !end)
        end = memchr(at.p, '\n', (size_t)(c->body.p + c->body.n - at.p));
    if (end)
        name.n = (size_t)(end - at.p);
    if (starts(at, "{"))
        return ntx__calls_hermes(c);
    if (!put_name(tool, name) || (c->cut && !end)) /* the name may be incomplete */
        return false;
    return read_pairs(c, &m, at, name, tool);
}

#define HY ":opensource>"

/* NAME <tool_sep> and then as glm's, with longer marks */
bool ntx__calls_hy3(struct calls *c)
{
    static const struct arguments m = {"<arg_key" HY, "</arg_key" HY, "<arg_value" HY, "</arg_value" HY};
    struct span at = ntx__reply_trim(c->body), name;
    char tool[NAME_MAX];
    return ntx__reply_until(&at, "<tool_sep" HY, &name) && put_name(tool, name) && read_pairs(c, &m, at, name, tool);
}

/* The quoted value of `attribute` in the tag's text. */
static bool quoted(struct span tag, const char *attribute, struct span *v)
{
    struct span gap;
    return ntx__reply_until(&tag, attribute, &gap) && ntx__reply_until(&tag, "\"", v);
}

struct tags {
    const char *invoke, *invoke_end, *parameter, *parameter_end;
};

static bool invoke(struct calls *c, const struct tags *t, struct span tag, struct span inside, bool open,
                   bool only_look)
{
    struct span name, key, v, gap, said;
    struct bytes b = {0};
    char tool[NAME_MAX];
    if (!quoted(tag, "name=\"", &name) || !put_name(tool, name))
        return false;
    ntx__reply_add_text(&b, "{");
    while (ntx__reply_until(&inside, t->parameter, &gap)) {
        bool read = ntx__reply_until(&inside, ">", &tag) && quoted(tag, "name=\"", &key) &&
                    ntx__reply_until(&inside, t->parameter_end, &v);
        if (!read && open)
            break;
        if (!read) {
            free(b.p);
            return false;
        }
        add_parameter(c, &b, tool, key, trim_newlines(v), !quoted(tag, "string=\"", &said) ? -1 : starts(said, "true"));
    }
    if (only_look) {
        free(b.p);
        return true;
    }
    return finish_arguments(c, &b, name, true, open);
}

static bool invokes(struct calls *c, const struct tags *t, bool only_look)
{
    struct span at = c->body, gap, tag, inside;
    unsigned n = 0;
    for (bool open = false; !open && ntx__reply_until(&at, t->invoke, &gap); n++) {
        if (!ntx__reply_until(&at, ">", &tag))
            return c->cut && n;
        open = !ntx__reply_until(&at, t->invoke_end, &inside);
        if ((open && !c->cut) || !invoke(c, t, tag, open ? at : inside, open, only_look))
            return false;
    }
    return n > 0;
}

bool ntx__calls_minimax(struct calls *c)
{
    static const struct tags t = {"<invoke ", "</invoke>", "<parameter ", "</parameter>"};
    return invokes(c, &t, true) && invokes(c, &t, false);
}

/* ---- elements within elements, each tag behind a mark (MiniMax-M3) */

#define M3 "]<]minimax[>[<"
enum { M3_DEEPEST = 32 };

/* Takes TEXT or elements up to the end tag of `name`; inside: what is between. */
static bool take_element(struct span *at, struct span name, struct span *inside)
{
    char end[NAME_MAX + sizeof M3 + 2];
    unsigned depth = 0;
    const struct span from = *at;
    if (name.n >= NAME_MAX)
        return false;
    snprintf(end, sizeof end, "/%.*s>", (int)name.n, name.p);
    for (struct span before; ntx__reply_until(at, M3, &before);) {
        const bool ends = starts(*at, end),
                   begins = at->n > name.n && !memcmp(at->p, name.p, name.n) && at->p[name.n] == '>';
        if (ends && !depth--) {
            *inside = (struct span){from.p, (size_t)(at->p - from.p) - (sizeof M3 - 1)};
            *at = (struct span){at->p + strlen(end), at->n - strlen(end)};
            return true;
        }
        depth += begins;
    }
    return false;
}

static bool put_element(struct calls *c, struct bytes *b, struct span v, int is_string, unsigned deep);

/* Elements: a list if they are items, else an object. */
static bool put_elements(struct calls *c, struct bytes *b, struct span at, unsigned deep)
{
    const bool list = starts(at, M3 "item>");
    struct span name, v, gap;
    ntx__reply_add_text(b, list ? "[" : "{");
    for (bool first = true; ntx__reply_until(&at, M3, &gap); first = false) {
        if (ntx__reply_trim(gap).n || !ntx__reply_until(&at, ">", &name) || !name.n || !take_element(&at, name, &v))
            return false;
        ntx__reply_add_text(b, first ? "" : ", ");
        if (!list) {
            ntx__reply_add_string(b, name);
            ntx__reply_add_text(b, ": ");
        }
        if (!put_element(c, b, v, -1, deep + 1))
            return false;
    }
    ntx__reply_add_text(b, list ? "]" : "}");
    return !ntx__reply_trim(at).n;
}

/* A text that is JSON, but no string in quotes, is a value. */
static bool put_element(struct calls *c, struct bytes *b, struct span v, int is_string, unsigned deep)
{
    struct span at = ntx__reply_trim(v), json;
    if (deep > M3_DEEPEST)
        return false;
    if (starts(at, M3))
        return put_elements(c, b, at, deep);
    if (is_string <= 0 && ntx__reply_value(&at, &json) && !ntx__reply_trim(at).n && json.p[0] != '"')
        ntx__reply_add(b, json.p, json.n);
    else
        ntx__reply_add_string(b, v);
    return true;
}

static bool invoke3(struct calls *c, struct span name, struct span inside, bool only_look)
{
    struct bytes b = {0};
    struct span key, v, gap;
    char tool[NAME_MAX], parameter[NAME_MAX];
    bool read = put_name(tool, name);
    ntx__reply_add_text(&b, "{");
    for (bool first = true; read && ntx__reply_until(&inside, M3, &gap); first = false) {
        read = ntx__reply_until(&inside, ">", &key) && put_name(parameter, key) && take_element(&inside, key, &v);
        if (!read)
            break;
        ntx__reply_add_text(&b, first ? "" : ", ");
        ntx__reply_add_string(&b, key);
        ntx__reply_add_text(&b, ": ");
        const int is_string = c->options->is_string ? c->options->is_string(c->options->arg, tool, parameter) : -1;
        read = put_element(c, &b, v, is_string, 0);
    }
    if (read && !only_look)
        return finish_arguments(c, &b, name, true, false);
    read &= !b.failed;
    free(b.p);
    return read;
}

static bool invokes3(struct calls *c, bool only_look)
{
    struct span at = c->body, gap, name, inside;
    unsigned n = 0;
    for (; ntx__reply_until(&at, M3 "invoke name=\"", &gap); n++) {
        if (!ntx__reply_until(&at, "\">", &name) || !ntx__reply_until(&at, M3 "/invoke>", &inside))
            return c->cut && n;
        if (!invoke3(c, name, inside, only_look))
            return false;
    }
    return n > 0;
}

bool ntx__calls_minimax3(struct calls *c) { return invokes3(c, true) && invokes3(c, false); }

#define DSML                                                                                                           \
    "\xef\xbd\x9c"                                                                                                     \
    "DSML"                                                                                                             \
    "\xef\xbd\x9c"
bool ntx__calls_dsml(struct calls *c)
{
    static const struct tags t = {"<" DSML "invoke ", "</" DSML "invoke>", "<" DSML "parameter ",
                                  "</" DSML "parameter>"};
    return invokes(c, &t, true) && invokes(c, &t, false);
}

/* ---- marks within */

#define SEP "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>"

/* NAME SEP {...}, or "function" SEP NAME, a newline and the object within ``` */
bool ntx__calls_deepseek(struct calls *c)
{
    struct span at = c->body, name, v, gap, fenced;
    if (!ntx__reply_until(&at, SEP, &name))
        return false;
    if (c->cut && starts(ntx__reply_trim(name), "function") &&
        !starts(at, "{")) {                      /* the fence may be open, or not yet there */
        if (!ntx__reply_until(&at, "\n", &name)) /* which may be incomplete */
            return false;
        if (!ntx__reply_until(&at, "```", &gap) || !ntx__reply_until(&at, "\n", &gap))
            at.n = 0;
        else if (ntx__reply_until(&at, "```", &fenced))
            at = fenced;
    } else if (memmem(at.p, at.n, "```", 3)) {
        if (!ntx__reply_until(&at, "\n", &name) || !ntx__reply_until(&at, "```", &gap) ||
            !ntx__reply_until(&at, "\n", &gap) || !ntx__reply_until(&at, "```", &fenced))
            return false;
        at = fenced;
    }
    return take_value(c, &at, &v) && (!v.n || v.p[0] == '{') && hand_out(c, name, (struct span){"", 0}, v);
}

/* functions.NAME:NUMBER<|tool_call_argument_begin|>{...} */
bool ntx__calls_kimi(struct calls *c)
{
    struct span at = c->body, id, name, v, gap;
    if (!ntx__reply_until(&at, "<|tool_call_argument_begin|>", &id) || !take_value(c, &at, &v) ||
        (v.n && v.p[0] != '{'))
        return false;
    name = id = ntx__reply_trim(id);
    if (starts(name, "functions."))
        ntx__reply_until(&name, ".", &gap);
    const char *colon = name.n ? memrchr(name.p, ':', name.n) : NULL;
    if (colon)
        name.n = (size_t)(colon - name.p);
    return hand_out(c, name, id, v);
}

/* "commentary to=functions.NAME <|constrain|>json" is the head; the body is the object. */
bool ntx__calls_harmony(struct calls *c, struct span head)
{
    struct span gap, name;
    if (!ntx__reply_until(&head, "to=functions.", &gap))
        return false;
    for (name = (struct span){head.p, 0}; name.n < head.n && !strchr(" <\t\n", head.p[name.n]);)
        name.n++;
    return hand_out(c, name, (struct span){"", 0}, ntx__reply_trim(c->body));
}
