/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/outline.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/plan/sketch.h"
#include "model/state.h"
#include "model/tokenizer.h"

#define TOKEN_BYTES 100u /* estimate for a missing vocabulary, with its part of the header */
#define WIDEST      (1u << 20)

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
    return ntx_outline_bytes(o, NTX_PART_DENSE) + ntx_outline_bytes(o, NTX_PART_EXPERT) +
           ntx_outline_bytes(o, NTX_PART_HEAD);
}

uint64_t ntx_outline_kv_values(const struct ntx_outline *o)
{
    const struct ntx_hparams *hp = &o->model->hp;
    struct ntx_kept_state kept[NTX_STATES_MOST];
    uint64_t n = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        for (uint32_t i = ntx_states_of(hp, l, kept); i--;)
            if (kept[i].keep == NTX_KEEP_ROWS &&
                !(hp->v_is_k && kept[i].windowed)) /* windows are small beside pooled K */
                n += (uint64_t)kept[i].heads * (kept[i].k + kept[i].v) / kept[i].every;
    return n;
}

/* ---- bytes by type */

static void add_tensor(struct ntx_outline *o, enum ntx_part part, uint32_t tensor)
{
    if (tensor == NTX_NO_TENSOR)
        return;
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(o->model->gguf, tensor);
    o->bytes[part][t->type] += t->bytes;
}

/* A tensor that several layers share (model/layer_delta.h), and that is counted for another layer. */
static bool is_bases(const struct ntx_model *m, uint32_t l, int t)
{
    const uint32_t base = m->delta.base ? m->delta.base[l] : l;
    return base != l && m->layers[base].tensor[t] == m->layers[l].tensor[t];
}

static enum ntx_part part_of_end(uint8_t use)
{
    switch (use) {
    case NTX_USE_LOOKUP: return NTX_PART_EMBED;
    case NTX_USE_MATRIX: return NTX_PART_HEAD;
    default: return NTX_PART_DENSE;
    }
}

static void sum_model(struct ntx_outline *o)
{
    const struct ntx_model *m = o->model;
    for (int t = 0; t < NTX_N_ENDS; t++) {
        const uint8_t use = ntx_end_kinds[t].use;
        if (t == NTX_END_output || m->end[t] != m->output)
            add_tensor(o, part_of_end(use), m->end[t]);
    }
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++) {
            struct ntx_whole w = {.out0 = 0};
            ntx_whole_of(&m->hp, l, (enum ntx_tensor)t, &w);
            if (!w.out0 && !is_bases(m, l, t)) /* otherwise it is a part of one that is counted */
                add_tensor(o, ntx_tensor_kinds[t].use == NTX_USE_EXPERT ? NTX_PART_EXPERT : NTX_PART_DENSE,
                           m->layers[l].tensor[t]);
        }
}

/* ---- an unknown architecture */

/* "ARCH.KEY" as a number; 0: absent. An array (one number per layer) counts by its first. */
static uint32_t key_number(const struct ntx_gguf *g, const char *name)
{
    char k[160];
    struct ntx_str arch = {"", 0};
    uint64_t v = 0;
    ntx_gguf_str(g, "general.architecture", &arch);
    snprintf(k, sizeof k, "%.*s.%s", (int)NTX_MIN(arch.n, (size_t)64), arch.p, name);
    const struct ntx_gguf_kv *kv = ntx_gguf_find(g, k);
    if (kv && kv->type == NTX_GGUF_ARR && kv->count && (kv->elem == NTX_GGUF_I32 || kv->elem == NTX_GGUF_U32)) {
        uint32_t first;
        memcpy(&first, kv->data, sizeof first);
        return first;
    }
    return !ntx_gguf_u64(g, k, &v) && v <= UINT32_MAX ? (uint32_t)v : 0;
}

static uint32_t first_nonzero(uint32_t a, uint32_t b) { return a ? a : b; }

static int read_widths(const struct ntx_gguf *g, struct ntx_model *m, struct ntx_err *err)
{
    struct ntx_hparams *hp = &m->hp;
    const struct ntx_gguf_tensor *embd = ntx_end_tensor(g, NTX_END_token_embd);
    uint32_t blocks = key_number(g, "block_count");
    hp->n_layers = blocks - NTX_MIN(key_number(g, "nextn_predict_layers"), blocks);
    hp->n_embd = key_number(g, "embedding_length");
    hp->n_ff = first_nonzero(key_number(g, "feed_forward_length"), key_number(g, "expert_feed_forward_length"));
    hp->n_ff_exp = first_nonzero(key_number(g, "expert_feed_forward_length"), hp->n_ff);
    hp->n_head = key_number(g, "attention.head_count");
    hp->n_head_kv = first_nonzero(key_number(g, "attention.head_count_kv"), hp->n_head);
    hp->head_k = first_nonzero(key_number(g, "attention.key_length"), hp->n_head ? hp->n_embd / hp->n_head : 0);
    hp->head_v = first_nonzero(key_number(g, "attention.value_length"), hp->head_k);
    hp->ctx_train = key_number(g, "context_length");
    hp->n_expert = key_number(g, "expert_count");
    hp->n_expert_used = key_number(g, "expert_used_count");
    hp->n_vocab = embd && embd->ne[1] <= UINT32_MAX ? (uint32_t)embd->ne[1] : 0;
    if (!hp->n_layers || hp->n_layers > NTX_MAX_LAYERS || !hp->n_embd || !hp->n_head || !hp->head_k || !hp->n_vocab)
        return ntx_err_set(err, -EINVAL,
                           "block_count, embedding_length, head_count or token_embd.weight is missing or out of range");
    if (NTX_MAX(NTX_MAX(hp->n_embd, hp->n_ff), NTX_MAX(hp->n_head, hp->n_head_kv)) > WIDEST ||
        NTX_MAX(hp->head_k, hp->head_v) > NTX_MAX_HEAD)
        return ntx_err_set(err, -EINVAL, "rows or heads are wider than what is possible");
    if (hp->n_expert_used > hp->n_expert || hp->n_expert > NTX_MAX_EXPERTS)
        return ntx_err_set(err, -EINVAL, "%u of %u experts are used: more than there can be", hp->n_expert_used,
                           hp->n_expert);
    return 0;
}

/* Where a tensor of a layer is counted: experts by their names; others by their use, wherever there is room for one. */
static uint32_t *place_of(struct ntx_layer *l, const struct ntx_hparams *hp, const struct ntx_gguf_tensor *t,
                          const char *name)
{
    uint32_t dims = t->n_dims;
    while (dims > 1 && t->ne[dims - 1] == 1)
        dims--;
    if (ntx_is_experts(name) && t->n_dims == 3 && t->ne[2] == hp->n_expert)
        for (int k = 0; k < NTX_N_TENSORS; k++)
            if (ntx_tensor_kinds[k].use == NTX_USE_EXPERT && !strcmp(ntx_tensor_kinds[k].name, name))
                return &l->tensor[k];
    enum ntx_use want = dims == 2 ? NTX_USE_MATRIX : NTX_USE_HEADS;
    if (dims == 1)
        want = NTX_USE_VECTOR;
    for (int k = 0; k < NTX_N_TENSORS; k++)
        if (ntx_tensor_kinds[k].use == want && !ntx_is_models((enum ntx_tensor)k) && l->tensor[k] == NTX_NO_TENSOR)
            return &l->tensor[k];
    return NULL;
}

static bool has_experts(const struct ntx_layer *l)
{
    bool apart = l->expert_gate != NTX_NO_TENSOR && l->expert_up != NTX_NO_TENSOR && l->expert_gate_up == NTX_NO_TENSOR;
    bool joined = l->expert_gate == NTX_NO_TENSOR && l->expert_up == NTX_NO_TENSOR &&
                  l->expert_gate_up != NTX_NO_TENSOR;
    return l->expert_down != NTX_NO_TENSOR && (apart || joined);
}

/* Steps that take them all; experts together, as the last. */
static int add_steps(struct ntx_layer *l, uint32_t layer, struct ntx_err *err)
{
    struct ntx_step *experts = NULL, *other = NULL;
    for (int t = 0; t < NTX_N_TENSORS; t++) {
        if (l->tensor[t] == NTX_NO_TENSOR)
            continue;
        if (ntx_tensor_kinds[t].use != NTX_USE_EXPERT) {
            if (!other || other->n_weights == NTX_STEP_WEIGHTS)
                other = ntx_layer_add(l, NTX_OP_MM, NTX_BUF_Y, NTX_BUF_X);
            ntx_step_takes(other, (enum ntx_tensor)t, false);
            continue;
        }
        if (!has_experts(l))
            return ntx_err_set(err, -ENOTSUP, "layer %u has experts of another form", layer);
        experts = experts ? experts : ntx_layer_add(l, NTX_OP_EXPERTS, NTX_BUF_Y, NTX_BUF_X);
        ntx_step_takes(experts, (enum ntx_tensor)t, false);
    }
    return 0;
}

static int take_tensors(const struct ntx_gguf *g, struct ntx_model *m, struct ntx_err *err)
{
    for (uint32_t l = 0; l < m->hp.n_layers; l++) {
        memset(m->layers[l].tensor, 0xff, sizeof m->layers[l].tensor);
        memset(m->layers[l].scale, 0xff, sizeof m->layers[l].scale);
    }
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        unsigned l;
        int n = 0;
        if (t->ne[0] > WIDEST || t->ne[1] > UINT32_MAX || t->ne[2] > NTX_MAX_EXPERTS || t->ne[3] > 1)
            return ntx_err_set(err, -ENOTSUP, "tensor '%s' is larger than what is possible", t->name);
        if (sscanf(t->name, "blk.%u.%n", &l, &n) != 1 || !n || l >= m->hp.n_layers)
            continue;
        uint32_t *place = place_of(&m->layers[l], &m->hp, t, t->name + n);
        if (!place || *place != NTX_NO_TENSOR)
            return ntx_err_set(err, -ENOTSUP, "tensor '%s' is one more than ntx knows in a layer", t->name);
        *place = (uint32_t)i;
    }
    int rc = 0;
    for (uint32_t l = 0; l < m->hp.n_layers && !rc; l++)
        rc = add_steps(&m->layers[l], l, err);
    return rc;
}

/* Tensors that every architecture may have. */
static void take_ends(const struct ntx_gguf *g, struct ntx_model *m)
{
    for (int t = 0; t < NTX_N_ENDS; t++) {
        const struct ntx_gguf_tensor *of = ntx_end_has(&m->hp, (enum ntx_end)t) != NTX_NEVER
                                               ? ntx_end_tensor(g, (enum ntx_end)t)
                                               : NULL;
        m->end[t] = of ? (uint32_t)(of - ntx_gguf_tensor_at(g, 0)) : NTX_NO_TENSOR;
    }
    m->output = m->output != NTX_NO_TENSOR ? m->output : m->token_embd;
    m->output_scale = NTX_NO_TENSOR;
}

/* A model of the same matrices, for planning only. */
static int make_stand_in(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err)
{
    struct ntx_model *m = calloc(1, sizeof *m);
    if (!m)
        return ntx_err_set(err, -ENOMEM, "no memory");
    m->gguf = g;
    int rc = read_widths(g, m, err);
    if (!rc && !(m->layers = calloc(m->hp.n_layers, sizeof *m->layers)))
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc)
        rc = take_tensors(g, m, err);
    take_ends(g, m);
    if (rc)
        ntx_model_free(m);
    else
        *out = m;
    return rc;
}

/* ---- making */

static int outline_header(const struct ntx_gguf *g, struct ntx_gguf *own, const char *name, struct ntx_outline *out,
                          struct ntx_err *err)
{
    struct ntx_outline o = {.own = own};
    struct ntx_tokenizer *tok = NULL;
    struct ntx_err why = {0}, other = {0};
    if (ntx_model_open(g, &o.model, &why) && make_stand_in(g, &o.model, &other))
        return ntx_err_set(err, other.code, "%.200s: %.300s; nor can it be estimated: %.300s", name, why.text,
                           other.text);
    snprintf(o.name, sizeof o.name, "%s", name);
    int rc = -ENOENT;
    if (ntx_gguf_find(g, "tokenizer.ggml.tokens") || !own)
        rc = ntx_tokenizer_open(g, &tok, why.code ? &other : &why);
    o.held_bytes = ntx_gguf_header_bytes(g) +
                   (rc ? (uint64_t)o.model->hp.n_vocab * TOKEN_BYTES : ntx_tokenizer_bytes(tok));
    snprintf(o.why, sizeof o.why, "%.239s", why.code ? why.text : "");
    ntx_tokenizer_free(tok);
    sum_model(&o);
    *out = o;
    return 0;
}

int ntx_outline_gguf(const struct ntx_gguf *g, const char *name, struct ntx_outline *out, struct ntx_err *err)
{
    return outline_header(g, NULL, name, out, err);
}

void ntx_outline_free(struct ntx_outline *o)
{
    ntx_model_free(o->model);
    ntx_gguf_free(o->own);
    *o = (struct ntx_outline){.own = NULL};
}

static uint64_t bytes_as(const struct ntx_gguf_tensor *t, uint32_t type) { return ntx_row_bytes(type, t->ne[0]); }

int ntx_outline_retyped(const struct ntx_gguf *g, const struct ntx_mix *mix, bool smaller, const char *name,
                        uint32_t *n_other, struct ntx_outline *out, struct ntx_err *err)
{
    uint64_t n = ntx_gguf_n_tensors(g);
    struct ntx_mix_model of = ntx_mix_model_of(g, false);
    struct ntx_gguf *made = NULL;
    uint32_t *given = malloc((n + 1) * sizeof *given), *type = malloc((n + 1) * sizeof *type);
    for (uint64_t i = 0; given && i < n; i++)
        given[i] = NTX_TYPE_LIMIT;
    int rc = given && type ? ntx_mix_choose(mix, g, &of, false, given, type, n_other, err)
                           : ntx_err_set(err, -ENOMEM, "no memory");
    for (uint64_t i = 0; !rc && smaller && i < n; i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        type[i] = bytes_as(t, type[i]) < bytes_as(t, t->type) ? type[i] : t->type;
    }
    if (!rc)
        rc = ntx_sketch_retype(g, type, &made, err);
    if (!rc && (rc = outline_header(made, made, name, out, err)))
        ntx_gguf_free(made);
    free(given);
    free(type);
    return rc;
}
