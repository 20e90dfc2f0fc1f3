/* SPDX-License-Identifier: Apache-2.0 */
#include "model/override.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

#define FORM "write KEY=TYPE:VALUE, with int, float, bool or str for TYPE, such as tokenizer.ggml.pre=str:llama-bpe"

static const struct {
    const char *name; /* with the colon */
    enum ntx_gguf_vtype type;
} types[] = {{"int:", NTX_GGUF_I64}, {"float:", NTX_GGUF_F64}, {"bool:", NTX_GGUF_BOOL}, {"str:", NTX_GGUF_STR}};
#define N_TYPES (sizeof types / sizeof *types)

/* The value of the pair that begins at p; NULL: p does not begin a pair. */
static const char *value_at(const char *p, size_t *key, enum ntx_gguf_vtype *type)
{
    *key = strcspn(p, "=,");
    for (size_t i = 0; *key && p[*key] == '=' && i < N_TYPES; i++)
        if (!strncmp(p + *key + 1, types[i].name, strlen(types[i].name))) {
            *type = types[i].type;
            return p + *key + 1 + strlen(types[i].name);
        }
    return NULL;
}

static size_t value_length(const char *p)
{
    enum ntx_gguf_vtype type;
    size_t n = strlen(p), key;
    for (size_t i = 0; i < n; i++)
        if (p[i] == ',' && value_at(p + i + 1, &key, &type))
            return i;
    return n;
}

static int read_value(struct ntx_override *o, const char *p, size_t n, struct ntx_err *err)
{
    char text[64], *end = text;
    bool fits = n && n < sizeof text;
    o->str = (struct ntx_str){p, n};
    if (o->type == NTX_GGUF_STR)
        return 0;
    memcpy(text, p, fits ? n : 0);
    text[fits ? n : 0] = 0;
    errno = 0;
    if (o->type == NTX_GGUF_I64)
        o->value.i = strtoll(text, &end, 10);
    else if (o->type == NTX_GGUF_F64)
        o->value.f = strtod(text, &end);
    else if ((o->value.b = !strcmp(text, "true")) || !strcmp(text, "false"))
        end = text + strlen(text);
    if (fits && !*end && !errno && *text != ' ')
        return 0;
    const char *kind = "truth value: true or false";
    if (o->type == NTX_GGUF_I64)
        kind = "whole number";
    else if (o->type == NTX_GGUF_F64)
        kind = "number";
    return ntx_err_set(err, -EINVAL, "--override-kv: '%.*s' of key '%s' is no %s", (int)NTX_MIN(n, (size_t)60), p,
                       o->key, kind);
}

/* Keys that the reader uses before overrides are set. */
static bool is_read_before(const char *key) { return !strcmp(key, "general.alignment") || !strncmp(key, "split.", 6); }

int ntx_override_next(const char **text, struct ntx_override *out, struct ntx_err *err)
{
    struct ntx_override o = {.key = ""};
    size_t n, len;
    const char *p = *text, *value;
    if (!p || !*p)
        return 0;
    if (!(value = value_at(p, &n, &o.type)) || n >= sizeof o.key)
        return ntx_err_set(err, -EINVAL, "--override-kv '%.80s': " FORM, p);
    for (size_t i = 0; i < n; i++)
        if (p[i] <= ' ' || p[i] > '~')
            return ntx_err_set(err, -EINVAL,
                               "--override-kv '%.80s': a key has printable characters of ASCII and no spaces", p);
    memcpy(o.key, p, n);
    if (is_read_before(o.key))
        return ntx_err_set(err, -EINVAL,
                           "--override-kv: key '%s' tells how the file is read, and cannot be given another value",
                           o.key);
    len = value_length(value);
    int rc = read_value(&o, value, len, err);
    if (rc)
        return rc;
    *text = value + len + (value[len] == ',');
    *out = o;
    return 1;
}
