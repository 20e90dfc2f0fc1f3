/* SPDX-License-Identifier: Apache-2.0 */
/* widths.c: a model's numbers from its options, as far as widths of tensors need them. */
#include <math.h>
#include <string.h>

#include "tests/mkmodel/describe_impl.h"

/* Every third layer has no window, wider heads and other K and V heads; the last layers read other layers' K and V,
 * and have wider FFNs. */
static void gemma4_widths(struct model *m)
{
    const struct mk_options *o = m->o;
    const uint32_t own = o->layers - o->shared_kv;
    m->hp.dims = m->dims;
    for (uint32_t l = 0; l < o->layers; l++) {
        bool full = l % 3 == 2;
        struct ntx_dims *d = &m->dims[l];
        *d = (struct ntx_dims){
            o->heads, full && o->full_kv ? o->full_kv : o->kv, m->head, m->head, l < own ? o->ff : 2 * o->ff, l};
        if (!full && o->window_head)
            d->head_k = d->head_v = o->window_head;
        if (l >= own)
            d->kv_of = own - (full ? 1 : 2);
        if (!full)
            m->hp.windowed[l / 64] |= (uint64_t)1 << l % 64;
    }
}

/* Every third layer has no window, `heads` heads and, if asked for, other numbers of K and V heads. */
static void layer_widths(struct model *m)
{
    const struct mk_options *o = m->o;
    m->hp.dims = m->dims;
    for (uint32_t l = 0; l < o->layers + o->nextn; l++) {
        bool full = l % 3 == 0;
        m->dims[l] = (struct ntx_dims){full ? o->heads : or_else(o->window_heads, o->heads),
                                       full ? or_else(o->full_kv, o->kv) : o->kv,
                                       m->head,
                                       value_dim(o, m->head),
                                       o->ff,
                                       l};
        m->hp.windowed[l / 64] |= (uint64_t)!full << l % 64;
    }
}

/* Layers alternate between no pooling, and pools of 4 and of 128 positions; those of 4 have an indexer. */
static void pooled_widths(struct model *m)
{
    const struct mk_options *o = m->o;
    m->hp.v_is_k = true;
    m->hp.rope_dim = o->rotated;
    m->hp.streams.n = NTX_STREAMS;
    m->hp.streams.rounds = 20;
    m->hp.o_parts = or_else(o->o_parts, 2);
    m->hp.o_lora = or_else(o->o_lora, 32);
    m->hp.n_expert_used = o->experts_used;
    m->hp.n_token_experts = o->hashed;
    m->hp.index.heads = or_else(o->index_heads, 8);
    m->hp.index.head = or_else(o->index_head, 64);
    for (uint32_t l = 0; l < o->layers; l++) {
        m->hp.pool[l] = (uint16_t)ratio_of(l);
        m->hp.index.in[l / 64] |= (uint64_t)(ratio_of(l) == 4) << l % 64;
    }
}

/* The first of so many layers of attention has an indexer; next-token blocks all have one. */
static void streamed_widths(struct model *m)
{
    const struct mk_options *o = m->o;
    m->hp.streams.n = NTX_STREAMS;
    m->hp.streams.rounds = 20;
    m->hp.index.every = or_else(o->index_pool, 4);
    memset(m->hp.index.in, 0, sizeof m->hp.index.in);
    for (uint32_t l = 0; l < o->layers + o->nextn; l++)
        if (l >= o->layers ||
            (!ntx_is_recurrent(&m->hp, l) && l / attention_every(o) % or_else(o->index_every, 1) == 0))
            m->hp.index.in[l / 64] |= (uint64_t)1 << l % 64;
}

/* Each head has some more table rows than the one before. */
static void block_widths(struct model *m)
{
    const struct mk_options *o = m->o;
    struct ntx_hparams *hp = &m->hp;
    hp->streams.n = NTX_STREAMS;
    hp->streams.low = or_else(o->low_rank, 16);
    hp->index.heads = or_else(o->index_heads, 8);
    hp->index.head = or_else(o->index_head, 64);
    hp->index.most = or_else(o->index_most, 24);
    hp->index.every = or_else(o->index_pool, 4);
    hp->index_beside = hp->no_output_norm = true;
    for (uint32_t l = 0; l < o->layers; l++)
        hp->index.in[l / 64] |= (uint64_t)!ntx_is_recurrent(hp, l) << l % 64;
    hp->grams.layer = o->gram_layer;
    if (!o->gram_layer)
        return;
    hp->grams.n = 3;
    hp->grams.taps = 4;
    hp->grams.heads = 2 * or_else(o->gram_heads, 2);
    hp->grams.width = o->embd / hp->grams.heads;
    hp->grams.eos = 2;
    for (uint32_t h = 0; h < hp->grams.heads; h++) {
        hp->grams.first[h] = hp->grams.entries;
        hp->grams.size[h] = or_else(o->gram_entries, 97) + 6 * h;
        hp->grams.entries += hp->grams.size[h];
    }
    hp->grams.entries = (hp->grams.entries + 127) / 128 * 128;
}

/* Scan, attention, FFN or experts, and so on. */
static void alone_widths(struct model *m)
{
    const uint32_t ff = m->o->experts ? shared_ff(m->o) : m->hp.n_ff;
    m->hp.n_latent = m->o->latent;
    m->hp.experts_ungated = m->o->experts;
    m->hp.experts_fused |= m->hp.experts_ungated;
    memset(m->hp.recurrent, 0, sizeof m->hp.recurrent);
    for (uint32_t l = 0; l < m->o->layers; l++) {
        const struct ntx_hparams *hp = &m->hp;
        m->dims[l] = (struct ntx_dims){
            hp->n_head, l % 3 == 1 ? hp->n_head_kv : 0, hp->head_k, hp->head_v, l % 3 == 2 ? ff : 0, l};
        m->hp.recurrent[l / 64] |= (uint64_t)(l % 3 == 0) << l % 64;
    }
    m->hp.dims = m->dims;
}

/* In turn: a whole layer, no attention, one matrix in its place, nothing, other heads, no FFN. */
static void holed_widths(struct model *m)
{
    const struct ntx_hparams *hp = &m->hp;
    for (uint32_t l = 0; l < m->o->layers; l++) {
        const uint32_t kind = l % 6;
        const bool attends = kind != 1 && kind != 3, linear = kind == 2, has_ffn = kind != 3 && kind != 5;
        const uint32_t kv = hp->n_head_kv * (kind == 4 ? 2 : 1);
        m->dims[l] = (struct ntx_dims){
            attends ? hp->n_head : 0, attends && !linear ? kv : 0, hp->head_k, hp->head_v, has_ffn ? hp->n_ff : 0, l};
    }
    m->hp.dims = m->dims;
}

enum { SCAN_STATE = 48, SCAN_EACH_STATE = 12 };

void mk__find_widths(struct model *m)
{
    const struct mk_options *o = m->o;
    m->hp = (struct ntx_hparams){.n_layers = o->layers,
                                 .n_embd = o->embd,
                                 .n_ff = o->ff,
                                 .n_head = o->heads,
                                 .n_head_kv = o->kv,
                                 .head_k = m->head,
                                 .head_v = value_dim(o, m->head),
                                 .rope_dim = o->kv_lora ? o->rotated : m->head,
                                 .kv_lora = o->kv_lora,
                                 .q_lora = o->q_lora,
                                 .kv_joined = o->kv_joined,
                                 .n_dense = o->dense,
                                 .n_expert = o->experts,
                                 .n_ff_exp = expert_ff(o),
                                 .n_ff_shexp = shared_ff(o),
                                 .n_input = o->layer_input,
                                 .v_of_k = o->no_v,
                                 .experts_fused = o->fused,
                                 .delta_joined = o->delta_joined,
                                 .qkv_fused = (is_phi3(o) && !o->no_v) || is_dbrx(o) || !strcmp(o->arch, "bailingmoe2"),
                                 .gate_up_fused = is_phi3(o) || !strcmp(o->arch, "glm4"),
                                 .expert_every = o->expert_every ? o->expert_every : 1};
    m->hp.delta.head = or_else(o->delta_head, 32);
    m->hp.delta.heads = or_else(o->delta_heads, 4);
    m->hp.delta.key_heads = or_else(o->delta_keys, 2);
    m->hp.delta.taps = or_else(o->delta_taps, 4);
    m->hp.delta.keys = mk__says(o, SCANS) ? SCAN_STATE : m->hp.delta.head;
    if (mk__says(o, KDA))
        m->hp.delta.heads = m->hp.delta.key_heads = o->heads;
    if (chooses(o)) {
        m->hp.index.heads = or_else(o->index_heads, 8);
        m->hp.index.head = or_else(o->index_head, 64);
        m->hp.index.most = or_else(o->index_most, 24);
        for (uint32_t l = 0; l < o->layers + o->nextn; l += or_else(o->index_every, 1))
            m->hp.index.in[l / 64] |= (uint64_t)1 << l % 64;
    }
    if (chooses_blocks(o)) {
        m->hp.index.heads = o->kv;
        m->hp.index.head = or_else(o->index_head, 64);
        m->hp.index.most = or_else(o->index_most, 16);
        m->hp.index.block = or_else(o->index_pool, 128);
        m->hp.index.last = 1;
        m->hp.index_beside = true;
        for (uint32_t l = o->dense; l < o->layers; l++)
            m->hp.index.in[l / 64] |= (uint64_t)1 << l % 64;
    }
    ntx_set_recurrent(&m->hp, attention_every(o)); /* other architectures ignore it */
    if (mk__says(o, SHORT))
        m->hp.delta.heads = 1, m->hp.delta.head = o->embd, m->hp.delta.keys = m->hp.delta.key_heads = 0;
    if (!strcmp(o->arch, "falcon-h1")) {
        memset(m->hp.recurrent, 0xff, sizeof m->hp.recurrent);
        m->hp.recurrent_attends = true;
    }
    if (is_jamba(o))
        m->hp.delta.heads = 2 * o->embd / NTX_DELTA_HEAD_STEP, m->hp.delta.head = NTX_DELTA_HEAD_STEP,
        m->hp.delta.key_heads = 0, m->hp.delta.keys = SCAN_EACH_STATE, m->hp.delta.rank = or_else(o->q_lora, 32),
        m->hp.n_ff_exp = o->ff;
    if (is_dbrx(o))
        m->hp.n_ff_exp = o->ff;
    if (is_grove(o))
        m->hp.adjugate.ff = shared_ff(o), m->hp.adjugate.each = o->experts % 2 ? 3 : 2;
    if (is_k3(o))
        m->hp.n_latent = or_else(o->latent, 64);
    if (is_deci(o))
        holed_widths(m);
    if (mk__says(o, ALONE))
        alone_widths(m);
    m->hp.no_output_norm = mk__says(o, MEANS);
    if (is_gemma4(o))
        gemma4_widths(m);
    if (mk__says(o, BY_LAYER))
        layer_widths(m);
    if (is_pooled(o))
        pooled_widths(m);
    if (mk__says(o, STREAMED))
        streamed_widths(m);
    if (mk__says(o, GATED))
        m->hp.streams.n = NTX_STREAMS;
    if (mk__says(o, BLOCKS))
        block_widths(m);
}

bool mk_arch_known(const char *arch)
{
    struct ntx_layer l;
    return mk_is_head(arch) || mk_is_tower(arch) ||
           ntx_layer_describe(arch, &(struct ntx_hparams){.n_expert = 1}, 0, &l);
}

/* In some architectures the first layer has none. */
bool mk_arch_experts(const char *arch, uint32_t n)
{
    const struct ntx_hparams hp = {.n_layers = 2, .n_expert = n, .expert_every = 1};
    struct ntx_layer l[2];
    return ntx_layer_describe(arch, &hp, 0, &l[0]) && ntx_layer_describe(arch, &hp, 1, &l[1]) &&
           (ntx_layer_find(&l[0], NTX_OP_EXPERTS) || ntx_layer_find(&l[1], NTX_OP_EXPERTS));
}
