/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c: widths, shapes and places, computed from a model's numbers and the tables of tensors.h. */
#include "model/arch.h"

#include "common/util.h"
#include "model/arch/arch_impl.h"

const char *ntx_pack_refuses(const struct ntx_hparams *hp)
{
    if (hp->dims)
        return "the number of neurons may differ from layer to layer, and groups are made for one number";
    if (hp->ungated)
        return "its FFNs have no gates";
    return hp->gate_up_fused
               ? "gates and ups are one matrix in its file, and a neuron's rows of both are read as if they were two"
               : NULL;
}

/* The buffers of K and V are not overwritten between PUT and ATTEND. */
static bool kv_lasts(const struct ntx_layer *l)
{
    const struct ntx_step *put = NULL;
    for (const struct ntx_step *t = l->step; t < l->step + l->n_steps; t++)
        if (t->op == NTX_OP_PUT)
            put = t;
        else if (t->op == NTX_OP_ATTEND)
            put = NULL;
        else if (put && (t->out == put->in[0] || t->out == put->in[1] || ntx_op_kinds[t->op].does & NTX_DOES_BOTH))
            return false;
    return true;
}

const char *ntx_heads_refuse(const struct ntx_model *m)
{
    const struct ntx_hparams *hp = &m->hp;
    bool several = false;
    if (hp->kv_lora || hp->v_is_k)
        return "all heads have one K";
    if (hp->index.head || hp->index_beside)
        return "positions are chosen";
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        if (hp->pool[l] || !kv_lasts(&m->layers[l]))
            return "its layers keep more than K and V of heads";
        several |= !ntx_is_recurrent(hp, l) && ntx_dims_of(hp, l).n_head_kv > 1;
    }
    return several ? NULL : "there is one head of K and V";
}

uint32_t ntx_count_recurrent(const struct ntx_hparams *hp)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        n += ntx_is_recurrent(hp, l) || hp->pool[l];
    return n;
}

void ntx_set_recurrent(struct ntx_hparams *hp, uint32_t every)
{
    for (uint32_t l = 0; l < hp->n_layers; l++)
        if ((l + 1) % every)
            hp->recurrent[l / 64] |= 1ull << l % 64;
}

uint32_t ntx_width(const struct ntx_hparams *hp, uint32_t layer, enum ntx_dim d)
{
    const struct ntx_dims w = ntx_dims_of(hp, layer);
    const uint32_t own = hp->by && hp->by->width ? hp->by->width(hp, d) : 0;
    if (own)
        return own;
    switch (d) {
#define X(name, values)                                                                                                \
    case NTX_DIM_##name: return values;
        NTX_DIMS(X)
#undef X
    }
    return 1;
}

uint32_t ntx_step_width(const struct ntx_hparams *hp, uint32_t layer, const struct ntx_step *s)
{
    switch (ntx_op_kinds[s->op].writes) {
    case NTX_WRITES_MATRIX:
        return s->width ? s->width : ntx_width(hp, layer, (enum ntx_dim)ntx_tensor_kinds[s->weight[0]].out);
    case NTX_WRITES_HEADS: return s->heads * s->width;
    case NTX_WRITES_STATE: return s->op == NTX_OP_EXPERTS ? ntx_expert_width(hp) : hp->n_embd;
    default: return s->width;
    }
}

uint32_t ntx_step_end(const struct ntx_hparams *hp, uint32_t layer, const struct ntx_step *s)
{
    return (ntx_op_kinds[s->op].does & NTX_DOES_AT ? s->offset : 0) + ntx_step_width(hp, layer, s);
}

/* Values that a step leaves in a row of buffer b: its output, or hidden values of its FFN. */
static uint32_t values_left(const struct ntx_model *m, const struct ntx_layer *l, const struct ntx_step *s,
                            enum ntx_buf b)
{
    bool hidden = b == NTX_BUF_GATE || b == NTX_BUF_UP;
    if (b == NTX_BUF_LORA)
        return s->op == NTX_OP_LORA && s->n_weights
                   ? ntx_width(&m->hp, (uint32_t)(l - m->layers), (enum ntx_dim)ntx_tensor_kinds[s->weight[0]].out)
                   : 0;
    if (s->op == NTX_OP_LORA)
        return 0; /* its buffers are counted by other steps */
    if (s->out == b || (ntx_op_kinds[s->op].does & NTX_DOES_BOTH && s->in[1] == b))
        return ntx_step_end(&m->hp, (uint32_t)(l - m->layers), s);
    if (hidden && s->op == NTX_OP_GROUPS)
        return m->hp.n_ff;
    if (b == NTX_BUF_LOW && s->op == NTX_OP_GROUPS)
        return s->offset + s->width;
    return hidden && s->op == NTX_OP_EXPERTS && l->down_shared != NTX_NO_TENSOR ? m->hp.n_ff_shexp : 0;
}

uint32_t ntx_buf_width(const struct ntx_model *m, enum ntx_buf b)
{
    uint32_t most = 0;
    for (const struct ntx_layer *l = m->layers; l < m->layers + m->hp.n_layers; l++)
        for (const struct ntx_step *s = l->step; s < l->step + l->n_steps; s++)
            most = NTX_MAX(most, values_left(m, l, s, b));
    return most;
}

struct ntx_shape ntx_shape_of(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t)
{
    const struct ntx_tensor_kind *k = &ntx_tensor_kinds[t];
    uint32_t n_each = 1;
    if (k->use == NTX_USE_EXPERT)
        n_each = hp->n_expert;
    else if (ntx_is_adjugate(t))
        n_each = hp->adjugate.each ? hp->n_expert / hp->adjugate.each : 1;
    else if (k->use == NTX_USE_HEADS)
        n_each = ntx_dims_of(hp, layer).n_head;
    bool paired = hp->by_state && hp->head.n_taps && !hp->head.block && t >= NTX_T_q &&
                  t <= NTX_T_v; /* input: the token's embedding and a state */
    return (struct ntx_shape){(paired ? 2 : 1) * ntx_width(hp, layer, (enum ntx_dim)k->in),
                              ntx_width(hp, layer, (enum ntx_dim)k->out), n_each};
}

struct ntx_shape ntx_end_shape(const struct ntx_hparams *hp, enum ntx_end t)
{
    return (struct ntx_shape){ntx_width(hp, 0, (enum ntx_dim)ntx_end_kinds[t].in),
                              ntx_width(hp, 0, (enum ntx_dim)ntx_end_kinds[t].out), 1};
}

enum ntx_has ntx_end_has(const struct ntx_hparams *hp, enum ntx_end t)
{
    if (hp->tower)
        return NTX_NEVER;
    switch (t) {
#define X(field, name, in, out, use, has)                                                                              \
    case NTX_END_##field: return has;
        NTX_END_TENSORS(X)
#undef X
    default: return NTX_NEVER;
    }
}

uint32_t ntx_whole_run(const struct ntx_hparams *hp, enum ntx_tensor t, uint32_t i)
{
    if (t == NTX_T_o_a)
        return i * hp->o_lora;
    const uint32_t keys = hp->delta.key_heads, each = hp->delta.heads / keys, of_key = 2 + 2 * each;
    const bool qk = t == NTX_T_delta_mix && i < 2 * keys;
    uint32_t head = t == NTX_T_delta_mix && !qk ? i - 2 * keys : i;
    const uint32_t gate = t == NTX_T_delta_gate ? each : 0;
    uint32_t at = qk ? i % keys * of_key + i / keys : head / each * of_key + 2 + gate + head % each;
    return at * hp->delta.head;
}

static bool find_whole(const struct ntx_hparams *hp, enum ntx_tensor t, enum ntx_tensor *first, enum ntx_tensor *last,
                       struct ntx_whole *out)
{
#define X(symbol, its_name, has, from, to, of_run)                                                                     \
    if ((has) && t >= NTX_T_##from && t <= NTX_T_##to) {                                                               \
        *first = NTX_T_##from;                                                                                         \
        *last = NTX_T_##to;                                                                                            \
        *out = (struct ntx_whole){.name = its_name, .run = of_run};                                                    \
        return true;                                                                                                   \
    }
    NTX_WHOLES(X)
#undef X
    return false;
}

bool ntx_whole_of(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t, struct ntx_whole *out)
{
    enum ntx_tensor first, last;
    if (!find_whole(hp, t, &first, &last, out))
        return false;
    out->shape = ntx_shape_of(hp, layer, t);
    out->shape.n_out = 0;
    for (int p = (int)first; p <= (int)last; p++) {
        if (p == (int)t)
            out->out0 = out->run ? ntx_whole_run(hp, t, 0) : out->shape.n_out;
        out->shape.n_out += ntx_shape_of(hp, layer, (enum ntx_tensor)p).n_out;
    }
    return true;
}
