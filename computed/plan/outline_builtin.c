/* SPDX-License-Identifier: Apache-2.0 */
/* outline_builtin.c: models by name. Widths are from the published configurations, in their architectures' files
 * (model/arch.h). The architecture's layers give the tensors and their shapes (computed/plan/sketch.h), and the mix of
 * ntx quantize gives their types (model/mix.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/nearest.h"
#include "common/util.h"
#include "computed/plan/outline.h"
#include "computed/plan/sketch.h"
#include "model/mix.h"

/* In the order of the list; all others of model/mix.h are accepted, too. */
static const char *const types[] = {"f16",  "bf16",   "q8_0",   "q6_k", "q5_k_m", "q4_k_m",
                                    "q4_0", "iq4_xs", "q3_k_m", "q2_k", "mxfp4"};

enum { N_TYPES = sizeof types / sizeof *types };

const char *ntx_outline_model(size_t i)
{
    const char *arch;
    const struct ntx_known *k = ntx_known_at(i, &arch);
    return k ? k->name : NULL;
}
static size_t n_models(void)
{
    size_t n = 0;
    while (ntx_outline_model(n))
        n++;
    return n;
}
const char *ntx_outline_type(size_t i) { return i < N_TYPES ? types[i] : NULL; }
const char *ntx_outline_nearest(const char *word) { return ntx_nearest(word, ntx_outline_model, n_models()); }

static int unknown_name(const char *what, const char *word, const char *(*at)(size_t i), size_t n, struct ntx_err *err)
{
    const char *near = ntx_nearest(word, at, n);
    return ntx_err_set(err, -ENOENT,
                       "there is no %s '%.80s'%s%s%s: write MODEL@TYPE with names of `ntx plan --list`, or the path of "
                       "a GGUF file",
                       what, word, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* Adds a key of the table's columns; 0 is none. */
static void add_key(char *keys, size_t size, const char *name, uint32_t v)
{
    if (v)
        snprintf(keys + strlen(keys), size - strlen(keys), " %s=%u", name, v);
}

static int make_sketch(const struct ntx_known *k, const char *arch, struct ntx_gguf **out, struct ntx_err *err)
{
    char keys[2048];
    const size_t n = sizeof keys;
    snprintf(keys, n, "block_count=%u embedding_length=%u vocab_size=%u", k->layers, k->embd, k->vocab);
    add_key(keys, n, "feed_forward_length", k->ff);
    add_key(keys, n, "attention.head_count", k->heads);
    add_key(keys, n, "attention.head_count_kv", k->kv);
    add_key(keys, n, "attention.key_length", k->head);
    add_key(keys, n, "attention.value_length", k->head);
    add_key(keys, n, "context_length", k->ctx);
    add_key(keys, n, "expert_count", k->experts);
    add_key(keys, n, "expert_used_count", k->used);
    add_key(keys, n, "expert_feed_forward_length", k->expert_ff);
    if (*k->keys)
        snprintf(keys + strlen(keys), n - strlen(keys), " %s", k->keys);
    return ntx_sketch_make(arch, keys, k->has, out, err);
}

/* The type that most people fetch. K-quants need rows of whole super-blocks. */
static const char *usual_type(const struct ntx_known *k)
{
    if (k->embd % 256 == 0)
        return "q4_k_m";
    return k->experts ? "mxfp4" : "q8_0";
}

int ntx_outline_named(const char *name, struct ntx_outline *out, struct ntx_err *err)
{
    const char *at = strchr(name, '@');
    char model[96];
    const struct ntx_known *k;
    const char *arch = NULL;
    snprintf(model, sizeof model, "%.*s", at ? (int)NTX_MIN(at - name, 95) : 95, name);
    for (size_t i = 0; (k = ntx_known_at(i, &arch)) && strcasecmp(k->name, model);)
        i++;
    if (!k)
        return unknown_name("model", model, ntx_outline_model, n_models(), err);
    const char *type = at ? at + 1 : usual_type(k);
    bool experts_only = !strcasecmp(type, "mxfp4");
    const struct ntx_mix *mix = ntx_mix_named(experts_only ? "MXFP4_MOE" : type);
    if (!mix)
        return unknown_name("type", type, ntx_outline_type, N_TYPES, err);
    char full[128];
    snprintf(full, sizeof full, "%s@%s", model, type);
    if (experts_only && !k->experts)
        return ntx_err_set(err, -EINVAL, "%.80s: only experts are of that type, and the model has none", full);
    struct ntx_gguf *floats = NULL;
    uint32_t n_other = 0;
    int rc = make_sketch(k, arch, &floats, err);
    if (!rc)
        rc = ntx_outline_retyped(floats, mix, false, full, &n_other, out, err);
    ntx_gguf_free(floats);
    if (!rc && n_other && k->embd % 256) {
        ntx_outline_free(out);
        return ntx_err_set(
            err, -EINVAL, "%.80s: rows of %u values are no whole blocks of that type; mxfp4, q8_0 and f16 are possible",
            full, k->embd);
    }
    return rc;
}
