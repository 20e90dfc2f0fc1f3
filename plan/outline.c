#include "plan/outline.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "infer/recur.h"
#include "model/arch.h"

uint64_t ntx_outline_bytes(const struct ntx_outline *o, enum ntx_part part)
{
    uint64_t n = 0;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        n += o->bytes[part][t];
    return n;
}

uint64_t ntx_outline_values(const struct ntx_outline *o, enum ntx_part part)
{
    uint64_t n = 0;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        if (o->bytes[part][t])
            n += o->bytes[part][t] / ntx_type_info(t)->block_bytes * ntx_type_info(t)->block;
    return n;
}

uint64_t ntx_outline_model_bytes(const struct ntx_outline *o)
{
    return ntx_outline_bytes(o, NTX_PART_DENSE) + ntx_outline_bytes(o, NTX_PART_EXPERT) + ntx_outline_bytes(o, NTX_PART_HEAD);
}

uint64_t ntx_outline_kv_values(const struct ntx_outline *o)
{
    if (o->kv_values)
        return o->kv_values;
    return (uint64_t)(o->n_layers - o->n_recurrent) * (o->latent ? o->latent : o->n_head_kv * ((uint64_t)o->head_k + o->head_v));
}

/* Bytes of a part from one type to another. */
static void retype(struct ntx_outline *o, enum ntx_part part, uint32_t from, uint32_t to)
{
    const struct ntx_type_info *f = ntx_type_info(from), *t = ntx_type_info(to);
    o->bytes[part][to] += o->bytes[part][from] / f->block_bytes * f->block / t->block * t->block_bytes;
    o->bytes[part][from] = 0;
}

void ntx_outline_smaller(const struct ntx_outline *o, struct ntx_outline *out)
{
    *out = *o;
    for (uint32_t t = 0; t < NTX_TYPE_LIMIT; t++)
        for (int part = 0; part < NTX_PART_EMBED; part++) {
            uint32_t to = part == NTX_PART_HEAD ? NTX_Q6_K : NTX_Q4_K;
            const struct ntx_type_info *is = ntx_type_info(t), *small = ntx_type_info(to);
            if (o->bytes[part][t] && t != NTX_F32 && is->block_bytes * small->block > small->block_bytes * is->block) /* F32: vectors and routers */
                retype(out, (enum ntx_part)part, t, to);
        }
}

/* ---- from a header */

/* "ARCH.KEY" as a number; 0 when absent. An array (one number per layer) counts by its first. */
static uint32_t key(const struct ntx_gguf *g, const char *arch, const char *name)
{
    char k[160];
    uint64_t v = 0;
    snprintf(k, sizeof k, "%s.%s", arch, name);
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, k);
    if (kv && kv->type == NTX_GGUF_ARR && kv->count && (kv->elem == NTX_GGUF_I32 || kv->elem == NTX_GGUF_U32)) {
        uint32_t first;
        memcpy(&first, kv->data, sizeof first);
        return first;
    }
    return !ntx_gguf_u64(g, k, &v) && v <= UINT32_MAX ? (uint32_t)v : 0;
}

/* Number l of an array, or the key's only one. */
static uint32_t key_of_layer(const struct ntx_gguf *g, const char *arch, const char *name, uint32_t l)
{
    char k[160];
    snprintf(k, sizeof k, "%s.%s", arch, name);
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, k);
    size_t size = kv ? ntx_gguf_scalar_bytes(kv->elem) : 0;
    uint32_t v = 0;
    if (!kv || kv->type != NTX_GGUF_ARR || l >= kv->count || !size || size > sizeof v)
        return key(g, arch, name);
    memcpy(&v, (const uint8_t *)kv->data + l * size, size);
    return v;
}

/* Layers with a window may have heads of other widths, and the last layers may read what others keep. */
static uint64_t kv_values(const struct ntx_gguf *g, const char *arch, const struct ntx_outline *o)
{
    uint32_t shared = NTX_MIN(key(g, arch, "attention.shared_kv_layers"), o->n_layers);
    uint32_t k = key(g, arch, "attention.key_length_swa"), v = key(g, arch, "attention.value_length_swa");
    uint64_t n = 0;
    for (uint32_t l = 0; k && v && l < o->n_layers - shared; l++) {
        bool windowed = key_of_layer(g, arch, "attention.sliding_window_pattern", l);
        n += (uint64_t)key_of_layer(g, arch, "attention.head_count_kv", l) * (windowed ? (uint64_t)k + v : (uint64_t)o->head_k + o->head_v);
    }
    return n;
}

static enum ntx_part part_of(const char *name, bool tied)
{
    if (!strcmp(name, "token_embd.weight"))
        return tied ? NTX_PART_HEAD : NTX_PART_EMBED;
    if (!strcmp(name, "per_layer_token_embd.weight"))
        return NTX_PART_EMBED;
    if (!strcmp(name, "output.weight"))
        return NTX_PART_HEAD;
    return strstr(name, "_exps.weight") ? NTX_PART_EXPERT : NTX_PART_DENSE;
}

static int sum_tensors(const struct ntx_gguf *g, struct ntx_outline *o, struct ntx_err *err)
{
    bool tied = !ntx_gguf_tensor(g, "output.weight");
    uint64_t *layer = calloc(o->n_layers, sizeof *layer);
    uint8_t *experts = calloc(o->n_layers, sizeof *experts);
    if (!layer || !experts) {
        free(layer);
        free(experts);
        return ntx_err_set(err, -ENOMEM, "no memory");
    }
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        enum ntx_part part = part_of(t->name, tied);
        unsigned l;
        bool in_block = sscanf(t->name, "blk.%u.", &l) == 1;
        if (in_block && l >= o->n_layers) /* predicts tokens: never read */
            continue;
        o->bytes[part][t->type] += t->bytes;
        o->n_matrices += t->n_dims > 1 && part != NTX_PART_EMBED;
        if (in_block)
            layer[l] += t->bytes;
        if (in_block && part == NTX_PART_EXPERT)
            experts[l] = 1;
    }
    o->layer_min = UINT64_MAX;
    for (uint32_t l = 0; l < o->n_layers; l++) {
        o->layer_min = NTX_MIN(o->layer_min, layer[l]);
        o->layer_max = NTX_MAX(o->layer_max, layer[l]);
        o->n_expert_layers += experts[l];
    }
    free(layer);
    free(experts);
    return 0;
}

/* By the keys of delta nets; which layers are such, their tensors say. */
static void read_states(const struct ntx_gguf *g, const char *arch, struct ntx_outline *o)
{
    struct ntx_hparams hp = {.n_layers = NTX_MIN(o->n_layers, (uint32_t)NTX_MAX_LAYERS)};
    hp.delta.taps = key(g, arch, "ssm.conv_kernel");
    hp.delta.head = NTX_MIN(key(g, arch, "ssm.state_size"), (uint32_t)NTX_MAX_HEAD);
    hp.delta.heads = key(g, arch, "ssm.time_step_rank");
    hp.delta.key_heads = key(g, arch, "ssm.group_count");
    for (uint32_t l = 0; l < hp.n_layers && hp.delta.taps; l++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.ssm_conv1d.weight", l);
        hp.recurrent[l / 64] |= (uint64_t)(ntx_gguf_tensor(g, name) != NULL) << l % 64;
    }
    o->n_recurrent = ntx_count_recurrent(&hp);
    o->state_bytes = ntx_recur_bytes(&hp);
}

/* Files with a head's own widths say those of what is kept by the usual keys. */
static void read_latent(const struct ntx_gguf *g, const char *arch, struct ntx_outline *o)
{
    uint32_t kv_lora = key(g, arch, "attention.kv_lora_rank"), head_k = key(g, arch, "attention.key_length_mla"), head_v = key(g, arch, "attention.value_length_mla");
    if (!kv_lora)
        return;
    o->latent = kv_lora + key(g, arch, "rope.dimension_count");
    o->head_k = head_k ? head_k : o->head_k;
    o->head_v = head_v ? head_v : o->head_v;
    o->n_head_kv = 1;
}

static void read_widths(const struct ntx_gguf *g, const char *arch, struct ntx_outline *o)
{
    const struct ntx_gguf_tensor *embd = ntx_gguf_tensor(g, "token_embd.weight");
    uint32_t expert_ff = key(g, arch, "expert_feed_forward_length");
    o->n_layers = key(g, arch, "block_count");
    o->n_layers -= NTX_MIN(key(g, arch, "nextn_predict_layers"), o->n_layers);
    o->n_embd = key(g, arch, "embedding_length");
    o->n_ff = expert_ff ? expert_ff : key(g, arch, "feed_forward_length");
    o->n_head = key(g, arch, "attention.head_count");
    o->n_head_kv = key(g, arch, "attention.head_count_kv");
    o->head_k = key(g, arch, "attention.key_length");
    o->head_v = key(g, arch, "attention.value_length");
    o->ctx_train = key(g, arch, "context_length");
    read_states(g, arch, o);
    o->n_experts = key(g, arch, "expert_count");
    o->n_used = key(g, arch, "expert_used_count");
    o->n_vocab = embd && embd->ne[1] <= UINT32_MAX ? (uint32_t)embd->ne[1] : 0;
    if (!o->n_head_kv)
        o->n_head_kv = o->n_head;
    if (!o->head_k && o->n_head)
        o->head_k = o->n_embd / o->n_head;
    if (!o->head_v)
        o->head_v = o->head_k;
    o->kv_values = o->n_layers <= NTX_MAX_LAYERS ? kv_values(g, arch, o) : 0;
    read_latent(g, arch, o);
}

int ntx_outline_gguf(const struct ntx_gguf *g, const char *name, struct ntx_outline *out, struct ntx_err *err)
{
    struct ntx_outline o = {0};
    struct ntx_str arch;
    char a[64];
    if (ntx_gguf_str(g, "general.architecture", &arch) || arch.n >= sizeof a)
        return ntx_err_set(err, -EINVAL, "the file names no architecture (general.architecture)");
    snprintf(a, sizeof a, "%.*s", (int)arch.n, arch.p);
    snprintf(o.name, sizeof o.name, "%s", name);
    read_widths(g, a, &o);
    if (!o.n_layers || o.n_layers > 65536 || !o.n_embd || !o.n_head || !o.head_k)
        return ntx_err_set(err, -EINVAL, "%s: block_count, embedding_length or head_count of architecture %s is missing or out of range", name, a);
    if (o.n_used > o.n_experts)
        return ntx_err_set(err, -EINVAL, "%s: %u of %u experts are used: more than there are", name, o.n_used, o.n_experts);
    int rc = sum_tensors(g, &o, err);
    if (!rc)
        *out = o;
    return rc;
}
