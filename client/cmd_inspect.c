#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands.h"
#include "common/util.h"
#include "model/quant.h"

static json_t *text(struct ntx_str s)
{
    json_t *j = json_stringn(s.p, s.n);
    return j ? j : json_string("(not UTF-8)");
}

static json_t *value(const struct ntx_gguf *g, const struct ntx_gguf_kv *kv)
{
    char key[512];
    uint64_t u;
    float f;
    bool b;
    if (kv->type == NTX_GGUF_ARR)
        return json_pack("{s:I}", "array_of", (json_int_t)kv->count);
    if (kv->type == NTX_GGUF_STR)
        return text(kv->strs[0]);
    snprintf(key, sizeof key, "%.*s", (int)NTX_MIN(kv->key.n, sizeof key - 1), kv->key.p);
    if (!ntx_gguf_bool(g, key, &b))
        return json_boolean(b);
    if (!ntx_gguf_u64(g, key, &u))
        return json_integer((json_int_t)u);
    if (!ntx_gguf_f32(g, key, &f))
        return json_real((double)f);
    if (kv->type == NTX_GGUF_I32) {
        int32_t i;
        memcpy(&i, kv->data, sizeof i);
        return json_integer(i);
    }
    return json_null();
}

static json_t *describe(const struct ntx_model_files *m)
{
    const struct ntx_gguf *g = m->gguf;
    json_t *meta = json_object(), *tensors = json_array();
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < ntx_gguf_n_kv(g); i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_kv_at(g, i);
        char key[512];
        snprintf(key, sizeof key, "%.*s", (int)NTX_MIN(kv->key.n, sizeof key - 1), kv->key.p);
        json_object_set_new(meta, key, value(g, kv));
    }
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->ne[d]));
        bytes += t->bytes;
        json_array_append_new(tensors, json_pack("{s:s, s:s, s:o, s:I, s:I, s:I}", "name", t->name, "type", ntx_type_info(t->type)->name, "shape", shape,
                                                 "bytes", (json_int_t)t->bytes, "offset", (json_int_t)t->offset, "file", (json_int_t)t->file));
    }
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "gguf_version", (json_int_t)ntx_gguf_version(g), "files", (json_int_t)m->n, "tensor_bytes",
                     (json_int_t)bytes, "metadata", meta, "tensors", tensors);
}

static void print_plain(const json_t *j)
{
    const char *key;
    json_t *v;
    size_t i;
    char size[32];
    json_object_foreach(json_object_get(j, "metadata"), key, v)
    {
        char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(7));
        printf("%-44s %.120s%s\n", key, s, strlen(s) > 120 ? "..." : "");
        free(s);
    }
    json_array_foreach(json_object_get(j, "tensors"), i, v)
    {
        char *shape = json_dumps(json_object_get(v, "shape"), JSON_COMPACT);
        printf("%-40s %-5s %-22s %s\n", json_string_value(json_object_get(v, "name")), json_string_value(json_object_get(v, "type")), shape,
               ntx_format_size((uint64_t)json_integer_value(json_object_get(v, "bytes")), size, sizeof size));
        free(shape);
    }
    printf("GGUF version %lld, %lld file(s), %zu tensors, %s\n", json_integer_value(json_object_get(j, "gguf_version")),
           json_integer_value(json_object_get(j, "files")), json_array_size(json_object_get(j, "tensors")),
           ntx_format_size((uint64_t)json_integer_value(json_object_get(j, "tensor_bytes")), size, sizeof size));
}

int ntx_cmd_inspect(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    int rc = ntx_model_files_open(o->args[0], &f, &err);
    if (rc)
        return ntx_fail(&err);
    json_t *j = describe(&f);
    if (o->json) {
        json_dumpf(j, stdout, JSON_INDENT(1));
        putchar('\n');
    } else {
        print_plain(j);
    }
    json_decref(j);
    ntx_model_files_close(&f);
    return 0;
}
