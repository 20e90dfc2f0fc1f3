/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/sketch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "model/arch.h"
#include "model/gguf_out.h"
#include "model/quant.h"

#define EPSILON 1e-5f /* every architecture needs one; no plan depends on it */

static int parse_header(const struct ntx_gguf_out *o, struct ntx_gguf **out, struct ntx_err *err)
{
    size_t n;
    void *header = o ? ntx_gguf_out_header(o, &n) : NULL;
    int rc = header ? ntx_gguf_parse(header, n, ntx_gguf_out_bytes(o), out, err)
                    : ntx_err_set(err, -ENOMEM, "no memory for a model's header");
    free(header);
    return rc;
}

/* ---- keys */

/* The value of a key, up to the next one. NULL: none. */
static const char *value_of(const char *keys, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = keys; at; at = strchr(at, ' '))
        if (at += *at == ' ', !strncmp(at, name, n) && at[n] == '=')
            return at + n + 1;
    return NULL;
}

static uint32_t key_number(const char *keys, const char *name)
{
    const char *v = value_of(keys, name);
    return v ? (uint32_t)strtoul(v, NULL, 10) : 0;
}

/* "8x5,2": n numbers. */
static void put_list(struct ntx_gguf_out *o, const char *key, const char *text, uint32_t n)
{
    uint32_t v[NTX_MAX_LAYERS], k = 0;
    for (const char *at = text; k < n;) {
        char *end;
        uint32_t value = (uint32_t)strtoul(at, &end, 10),
                 times = *end == 'x' ? (uint32_t)strtoul(end + 1, &end, 10) : 1;
        while (times-- && k < n)
            v[k++] = value;
        at = *end == ',' ? end + 1 : text;
    }
    ntx_gguf_out_u32s(o, key, v, n);
}

/* "1,": the numbers that are listed. */
static void put_numbers(struct ntx_gguf_out *o, const char *key, const char *text, size_t n)
{
    uint32_t v[NTX_GRAM_HEADS_MAX], k = 0;
    for (char *end = (char *)text; end < text + n && k < NTX_GRAM_HEADS_MAX; end++)
        v[k++] = (uint32_t)strtoul(end, &end, 10);
    ntx_gguf_out_u32s(o, key, v, k);
}

static void put_key(struct ntx_gguf_out *o, const char *arch, const char *keys, const char *at)
{
    char key[128];
    const char *value = strchr(at, '=') + 1;
    size_t n = strcspn(value, " ");
    if (*at == '/')
        snprintf(key, sizeof key, "%.*s", (int)(value - 2 - at), at + 1);
    else
        snprintf(key, sizeof key, "%s.%.*s", arch, (int)(value - 1 - at), at);
    uint32_t list[4];
    int k = sscanf(value, "%u,%u,%u,%u", &list[0], &list[1], &list[2], &list[3]);
    if (n && value[n - 1] == ',')
        put_numbers(o, key, value, n);
    else if (memchr(value, 'x', n))
        put_list(o, key, value, key_number(keys, "block_count"));
    else if (memchr(value, '.', n))
        ntx_gguf_out_f32(o, key, strtof(value, NULL));
    else if (!strncmp(value, "true", n))
        ntx_gguf_out_bool(o, key, true);
    else if (k > 1)
        ntx_gguf_out_u32s(o, key, list, (size_t)k);
    else
        ntx_gguf_out_u32(o, key, (uint32_t)strtoul(value, NULL, 10));
}

static struct ntx_gguf_out *begin_keys(const char *arch, const char *keys)
{
    char epsilon[96];
    struct ntx_gguf_out *o = ntx_gguf_out_new();
    if (!o)
        return NULL;
    ntx_gguf_out_str(o, "general.architecture", arch);
    snprintf(epsilon, sizeof epsilon, "%s.attention.layer_norm_rms_epsilon", arch);
    ntx_gguf_out_f32(o, epsilon, EPSILON);
    for (const char *at = keys; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        put_key(o, arch, keys, at);
    }
    return o;
}

/* ---- tensors */

static void put_shape(struct ntx_gguf_out *o, const char *name, uint32_t type, uint32_t n_dims, struct ntx_shape s)
{
    ntx_gguf_out_data(o, name, type, (const uint64_t[4]){s.n_in, s.n_out, s.n_each, 1}, n_dims, NULL, NULL, 0);
}

static void put_tensor(struct ntx_gguf_out *o, const char *arch, const struct ntx_hparams *hp, uint32_t l,
                       enum ntx_tensor t)
{
    enum ntx_use use = (enum ntx_use)ntx_tensor_kinds[t].use;
    struct ntx_whole w = {.name = ntx_tensor_name(arch, t), .shape = ntx_shape_of(hp, l, t)};
    bool matrix = use == NTX_USE_MATRIX || use == NTX_USE_HEADS || use == NTX_USE_EXPERT || use == NTX_USE_TABLE;
    char name[96];
    ntx_whole_of(hp, l, t, &w);
    if (ntx_is_models(t))
        snprintf(name, sizeof name, "%s", w.name);
    else
        snprintf(name, sizeof name, "blk.%u.%s", l, w.name);
    if (w.out0) /* the first of several that are one in the file was written */
        return;
    const uint32_t other = use == NTX_USE_NUMBERS ? NTX_I32 : NTX_F32, n_dims = w.shape.n_each > 1 ? 3 : 2;
    put_shape(o, name, matrix ? NTX_F16 : other, use == NTX_USE_VECTOR ? 1 : n_dims, w.shape);
}

static void put_layer(struct ntx_gguf_out *o, const char *arch, const struct ntx_hparams *hp, uint32_t l)
{
    struct ntx_layer layer;
    bool seen[NTX_N_TENSORS] = {false};
    ntx_layer_describe(arch, hp, l, &layer);
    for (const struct ntx_step *s = layer.step; s < layer.step + layer.n_steps; s++)
        for (uint8_t i = 0; i < s->n_weights; i++) {
            enum ntx_tensor t = (enum ntx_tensor)s->weight[i];
            if (!seen[t] && !(s->maybe >> i & 1))
                put_tensor(o, arch, hp, l, t);
            seen[t] = true;
        }
}

/* The required ones, and a separate output. */
static void put_ends(struct ntx_gguf_out *o, const struct ntx_hparams *hp)
{
    for (int t = 0; t < NTX_N_ENDS; t++) {
        const bool vector = ntx_end_kinds[t].use == NTX_USE_VECTOR;
        if (ntx_end_has(hp, (enum ntx_end)t) == NTX_ALWAYS || t == NTX_END_output)
            put_shape(o, ntx_end_kinds[t].name, vector ? NTX_F32 : NTX_F16, vector ? 1 : 2,
                      ntx_end_shape(hp, (enum ntx_end)t));
    }
}

static void put_embedding(struct ntx_gguf_out *o, const char *keys)
{
    put_shape(o, ntx_end_kinds[NTX_END_token_embd].name, NTX_F16, 2,
              (struct ntx_shape){key_number(keys, "embedding_length"), key_number(keys, "vocab_size"), 1});
}

/* Its keys, and what is needed to read them: they give the architecture its layers. */
static int read_keys(const char *arch, const char *keys, const char *has, struct ntx_gguf **g, struct ntx_model **m,
                     struct ntx_err *err)
{
    struct ntx_gguf_out *o = begin_keys(arch, keys);
    for (const char *at = has; o && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        char name[96];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        put_shape(o, name, NTX_F32, 1, (struct ntx_shape){1, 1, 1});
    }
    if (o)
        put_embedding(o, keys);
    int rc = parse_header(o, g, err);
    ntx_gguf_out_free(o);
    return rc ? rc : ntx_model_open_keys(*g, m, err);
}

int ntx_sketch_make(const char *arch, const char *keys, const char *has, struct ntx_gguf **out, struct ntx_err *err)
{
    struct ntx_gguf *g = NULL;
    struct ntx_model *m = NULL;
    struct ntx_gguf_out *o = NULL;
    int rc = read_keys(arch, keys, has, &g, &m, err);
    if (!rc && (o = begin_keys(arch, keys))) {
        const struct ntx_hparams *hp = &m->hp;
        put_ends(o, hp);
        for (uint32_t l = 0; l < hp->n_layers; l++)
            put_layer(o, arch, hp, l);
    }
    if (!rc)
        rc = parse_header(o, out, err);
    ntx_gguf_out_free(o);
    ntx_model_free(m);
    ntx_gguf_free(g);
    return rc;
}

int ntx_sketch_retype(const struct ntx_gguf *g, const uint32_t *type, struct ntx_gguf **out, struct ntx_err *err)
{
    struct ntx_gguf_out *o = ntx_gguf_out_new();
    uint64_t align = 32;
    for (uint64_t i = 0; o && i < ntx_gguf_n_kv(g); i++) {
        const struct ntx_gguf_kv *kv = ntx_gguf_kv_at(g, i);
        if (kv->key.n > 6 && !memcmp(kv->key.p, "split.", 6)) /* the sketch is one file */
            continue;
        if (kv->key.n == 17 && !memcmp(kv->key.p, "general.alignment", 17) &&
            !ntx_gguf_u64(g, "general.alignment", &align))
            ntx_gguf_out_align(o, (uint32_t)align);
        else
            ntx_gguf_out_copy(o, kv);
    }
    for (uint64_t i = 0; o && i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        ntx_gguf_out_data(o, t->name, type[i], t->ne, t->n_dims, NULL, NULL, 0);
    }
    int rc = parse_header(o, out, err);
    ntx_gguf_out_free(o);
    return rc;
}
