/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/schemas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/grammar/valid.h"

enum { KEYWORDS_MOST = 64, BROKEN_MOST = 16 };

static json_t *own_json(const json_t *v) { return (json_t *)(uintptr_t)v; }

static int refuse(const char *tool, const char *param, const struct ntx_err *err, struct ntx_fault *f)
{
    if (tool)
        return ntx_fault(f, NTX_FAULT_INVALID, param, "the parameters of the tool '%.60s': %.400s", tool, err->text);
    return ntx_fault(f, NTX_FAULT_INVALID, param, "'%.40s': %.400s", param, err->text);
}

static void take_keywords(struct ntx_unenforced *u, const json_t *schema, const char *tool, const json_t *found)
{
    size_t i;
    json_t *one;
    u->keywords = u->keywords ? u->keywords : json_array();
    u->schemas = u->schemas ? u->schemas : json_object();
    json_object_set(u->schemas, tool ? tool : "", own_json(schema));
    json_array_foreach(own_json(found), i, one) {
        if (json_array_size(u->keywords) >= KEYWORDS_MOST)
            break;
        json_t *copy = json_copy(one);
        if (tool)
            json_object_set_new(copy, "tool", json_string(tool));
        json_array_append_new(u->keywords, copy);
    }
}

int ntx_unenforced_look(struct ntx_unenforced *u, const json_t *schema, const char *tool, enum ntx_schema_use use,
                        const char *param, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    json_t *found = NULL;
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    int rc = text ? ntx_schema_look(text, strlen(text), use == NTX_SCHEMA_STRICT, &found, &err) : -ENOMEM;
    free(text);
    if (rc == -ENOMEM)
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    if (rc)
        return use == NTX_SCHEMA_MAY_FAIL ? 0 : refuse(tool, param, &err, f);
    if (json_array_size(found))
        take_keywords(u, schema, tool, found);
    json_decref(found);
    return 0;
}

void ntx_unenforced_free(struct ntx_unenforced *u)
{
    json_decref(u->keywords);
    json_decref(u->schemas);
    *u = (struct ntx_unenforced){0};
}

void ntx_unenforced_text(const struct ntx_unenforced *u, char *out, size_t room)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./#$~ ,";
    size_t i, n = 0;
    json_t *one;
    *out = 0;
    json_array_foreach(u->keywords, i, one) {
        const char *tool = json_string_value(json_object_get(one, "tool"));
        char text[200];
        snprintf(text, sizeof text, "%s%s at %.80s%s%.40s", i ? ", " : "",
                 json_string_value(json_object_get(one, "keyword")), json_string_value(json_object_get(one, "at")),
                 tool ? " of " : "", tool ? tool : "");
        if (n + strlen(text) + 16 > room) {
            snprintf(out + n, room - n, " and others");
            break;
        }
        n += (size_t)snprintf(out + n, room - n, "%s", text);
    }
    for (char *p = out; *p; p++)
        if (!strchr(allowed, *p))
            *p = '?';
}

void ntx_kept_value(struct ntx_kept *k, const struct ntx_unenforced *u, const char *tool, const json_t *value)
{
    const json_t *schema = json_object_get(u->schemas, tool ? tool : "");
    struct ntx_valid_why why;
    if (!schema)
        return;
    switch (ntx_valid(schema, schema, value, &why)) {
    case NTX_VALID_YES: return;
    case NTX_VALID_UNKNOWN: k->unknown = true; return;
    case NTX_VALID_NO: break;
    }
    k->broken = k->broken ? k->broken : json_array();
    json_t *one = json_pack("{s:s, s:o}", "keyword", why.keyword, "at", json_string(why.place));
    if (!json_object_get(one, "at")) /* the place was cut within a character */
        json_object_set_new(one, "at", json_string(""));
    if (tool)
        json_object_set_new(one, "tool", json_string(tool));
    if (json_array_size(k->broken) < BROKEN_MOST)
        json_array_append(k->broken, one);
    json_decref(one);
}

void ntx_kept_text(struct ntx_kept *k, const struct ntx_unenforced *u, const char *text, size_t len)
{
    if (!json_object_get(u->schemas, ""))
        return;
    json_t *value = json_loadb(text ? text : "", len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (value)
        ntx_kept_value(k, u, NULL, value);
    else
        k->unknown = true;
    json_decref(value);
}

void ntx_kept_add(const struct ntx_kept *k, const struct ntx_unenforced *u, json_t *ntx)
{
    json_t *kept = k->unknown ? json_null() : json_true();
    if (!u->keywords)
        return;
    json_object_set(ntx, "unenforced", u->keywords);
    json_object_set_new(ntx, "kept", k->broken ? json_false() : kept);
    if (k->broken)
        json_object_set(ntx, "broken", k->broken);
}
