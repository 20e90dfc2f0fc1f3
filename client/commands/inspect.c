/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/commands.h"
#include "client/out.h"
#include "common/printable.h"
#include "common/util.h"
#include "model/arch.h"
#include "model/kind.h"
#include "model/quant.h"
#include "model/tokenizer.h"

static json_t *json_of_str(struct ntx_str s)
{
    json_t *j = json_stringn(s.p, s.n);
    return j ? j : json_string("(not UTF-8)");
}

/* JSON numbers are finite, and most readers take integers up to 2^63 - 1: all other values become text. */
static json_t *json_of_real(double v)
{
    if (isfinite(v))
        return json_real(v);
    if (isnan(v))
        return json_string("nan");
    return json_string(v < 0 ? "-inf" : "inf");
}

static json_t *unsigned_number(uint64_t v)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    return v <= INT64_MAX ? json_integer((json_int_t)v) : json_string(digits);
}

static json_t *json_of_value(const struct ntx_gguf_kv *kv)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } v = {0};
    size_t n = kv->type == NTX_GGUF_ARR ? 0 : ntx_gguf_scalar_bytes(kv->type);
    if (n)
        memcpy(&v, kv->data, n);
    switch (kv->type) {
    case NTX_GGUF_U8: return json_integer(v.u8);
    case NTX_GGUF_I8: return json_integer(v.i8);
    case NTX_GGUF_U16: return json_integer(v.u16);
    case NTX_GGUF_I16: return json_integer(v.i16);
    case NTX_GGUF_U32: return json_integer(v.u32);
    case NTX_GGUF_I32: return json_integer(v.i32);
    case NTX_GGUF_U64: return unsigned_number(v.u64);
    case NTX_GGUF_I64: return json_integer(v.i64);
    case NTX_GGUF_F32: return json_of_real((double)v.f32);
    case NTX_GGUF_F64: return json_of_real(v.f64);
    case NTX_GGUF_BOOL: return json_boolean(v.u8);
    case NTX_GGUF_STR: return json_of_str(kv->strs[0]);
    case NTX_GGUF_ARR: return json_pack("{s:I}", "array_of", (json_int_t)kv->count);
    }
    return json_null();
}

static void add_key(json_t *meta, const struct ntx_gguf_kv *kv)
{
    char *key = strndup(kv->key.p, kv->key.n); /* UTF-8, without a zero byte */
    if (key)
        json_object_set_new(meta, key, json_of_value(kv));
    free(key);
}

static json_t *describe_model(const struct ntx_model_files *m)
{
    const struct ntx_gguf *g = m->gguf;
    json_t *meta = json_object(), *tensors = json_array();
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < ntx_gguf_n_kv(g); i++)
        add_key(meta, ntx_gguf_kv_at(g, i));
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->ne[d]));
        bytes += t->bytes;
        json_array_append_new(tensors,
                              json_pack("{s:s, s:s, s:o, s:I, s:I, s:I}", "name", t->name, "type",
                                        ntx_type_info(t->type)->name, "shape", shape, "bytes", (json_int_t)t->bytes,
                                        "offset", (json_int_t)t->offset, "file", (json_int_t)t->file));
    }
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "gguf_version", (json_int_t)ntx_gguf_version(g), "files",
                     (json_int_t)m->n, "tensor_bytes", (json_int_t)bytes, "metadata", meta, "tensors", tensors);
}

#define SHOWN 120 /* characters of a value */

static void print_key(const struct ntx_gguf *g, const char *key, const json_t *v)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, key);
    bool number = json_is_string(v) && kv && kv->type != NTX_GGUF_STR;
    char *s = number ? strdup(json_string_value(v))
                     : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(7)),
         line[4 * SHOWN], name[512];
    size_t n = s ? strlen(s) : 0, shown = NTX_MIN(n, (size_t)SHOWN);
    while (shown < n && shown && ((unsigned char)s[shown] & 0xc0) == 0x80) /* whole characters only */
        shown--;
    ntx_printable(line, sizeof line, s ? s : "", shown);
    printf("%-44s %s%s\n", ntx_out_line(key, name, sizeof name), line, n > shown ? "..." : "");
    free(s);
}

static void print_plain(const struct ntx_gguf *g, const json_t *j)
{
    const char *key;
    json_t *v;
    size_t i;
    char size[32];
    json_object_foreach(json_object_get(j, "metadata"), key, v)
        print_key(g, key, v);
    json_array_foreach(json_object_get(j, "tensors"), i, v) {
        char *shape = json_dumps(json_object_get(v, "shape"), JSON_COMPACT);
        ntx_out_format("%-40s %-5s %-22s %s\n", json_string_value(json_object_get(v, "name")),
                       json_string_value(json_object_get(v, "type")), shape,
                       ntx_format_size((uint64_t)json_integer_value(json_object_get(v, "bytes")), size, sizeof size));
        free(shape);
    }
    printf("GGUF version %lld, %lld file(s), %zu tensors, %s\n", json_integer_value(json_object_get(j, "gguf_version")),
           json_integer_value(json_object_get(j, "files")), json_array_size(json_object_get(j, "tensors")),
           ntx_format_size((uint64_t)json_integer_value(json_object_get(j, "tensor_bytes")), size, sizeof size));
}

/* Reports first, on stderr, whether ntx can run the model. */
static int judge(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_err *why)
{
    struct ntx_model *m = NULL;
    struct ntx_tokenizer *t = NULL;
    int rc = ntx_kind_refuse(f->gguf, o->args[0], why);
    if (!rc && ((rc = ntx_model_open(f->gguf, &m, why)) || (rc = ntx_tokenizer_open(f->gguf, &t, why))))
        ntx_err_prefix(why, "%s: ntx does not run this file", o->args[0]);
    ntx_tokenizer_free(t);
    ntx_model_free(m);
    if (rc)
        ntx_say("%s", why->text);
    return rc;
}

int ntx_cmd_inspect(struct ntx_options *o)
{
    struct ntx_err err = {0}, why = {0};
    struct ntx_model_files f = {0};
    int rc = ntx_model_files_any(o, o->args[0], &f, &err);
    if (rc)
        return ntx_fail(&err);
    json_t *j = describe_model(&f);
    json_object_set_new(j, "supported", json_boolean(!judge(o, &f, &why)));
    if (why.code)
        json_object_set_new(j, "why", json_string(why.text));
    if (o->json)
        ntx_out_json(j, JSON_INDENT(1));
    else
        print_plain(f.gguf, j);
    json_decref(j);
    ntx_model_files_close(&f);
    return 0;
}
