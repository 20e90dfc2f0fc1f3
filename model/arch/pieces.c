/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "model/arch/arch_impl.h"

void ntx__takes(struct ntx_step *s, enum ntx_tensor t, enum ntx__presence has)
{
    if (has != NTX__NEVER)
        ntx_step_takes(s, t, has == NTX__MAYBE);
}

void ntx__add_product(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t)
{
    ntx_step_takes(ntx_layer_add(l, NTX_OP_MM, out, in), t, false);
}

static void add_bias(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l, enum ntx_buf out,
                     enum ntx_tensor t, enum ntx__presence has)
{
    if (has == NTX__NEVER)
        return;
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_BIAS, out, NTX_BUF_NONE);
    s->width = ntx_width(hp, layer, (enum ntx_dim)ntx_tensor_kinds[t].in);
    ntx__takes(s, t, has);
}

/* Appends h += y. */
void ntx__add_state(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    ntx_layer_add(l, NTX_OP_ADD, NTX_BUF_H, NTX_BUF_Y)->width = hp->n_embd;
}

void ntx__norm(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t, enum ntx__presence has,
               uint32_t heads, uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_NORM, out, in);
    s->heads = heads;
    s->width = width;
    ntx__takes(s, t, has);
}

/* Appends a copy of in, from value `from` on. */
static void copy_row(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in,
                     uint32_t from)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, out, in);
    s->width = hp->n_embd;
    s->scale = 1;
    s->from = from;
}

void ntx__copy_values(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t n)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, out, in);
    s->width = n;
    s->scale = 1;
}

void ntx__mean_norm(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf b, enum ntx_tensor t, float eps)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_LAYERNORM, b, b);
    s->width = hp->n_embd;
    s->layernorm.eps = eps;
    ntx__takes(s, t, NTX__ALWAYS);
}

static void clamp_values(struct ntx_layer *l, enum ntx_buf b, uint32_t n, float to)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_MAP, b, b);
    s->map.kind = NTX_MAP_CLAMP;
    s->width = n;
    s->scale = to;
}

void ntx__add_nextn(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    ntx__norm(l, NTX_BUF_NORMED, NTX_BUF_H, NTX_T_nextn_enorm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__norm(l, NTX_BUF_NORMED, NTX_BUF_NORMED, NTX_T_nextn_hnorm, NTX__ALWAYS, 1, hp->n_embd);
    l->step[l->n_steps - 1].offset = hp->n_embd;
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_NORMED, NTX_T_nextn_eh);
    copy_row(hp, l, NTX_BUF_H, NTX_BUF_Y, 0);
}

void ntx__add_fuse(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    copy_row(hp, l, NTX_BUF_NORMED, NTX_BUF_NORMED, 0);
    l->step[l->n_steps - 1].width = hp->head.n_taps * hp->head.width;
    if (hp->head.norm_first)
        ntx__norm(l, NTX_BUF_NORMED, NTX_BUF_NORMED, NTX_T_fuse_norm, NTX__ALWAYS, 1, hp->head.n_taps * hp->head.width);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_NORMED, NTX_T_fuse);
    if (hp->head.block)
        ntx__norm(l, NTX_BUF_H, NTX_BUF_Y, NTX_T_fuse_norm, NTX__ALWAYS, 1, hp->n_embd);
    else
        copy_row(hp, l, NTX_BUF_H, NTX_BUF_Y, 0);
}

/* The residual stream is the state, before or after its norm. */
static void add_pair(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    ntx__norm(l, NTX_BUF_NORMED, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    if (!hp->head.norm_residual)
        copy_row(hp, l, NTX_BUF_H, NTX_BUF_NORMED, hp->n_embd);
    ntx__norm(l, NTX_BUF_NORMED, NTX_BUF_NORMED, NTX_T_nextn_hnorm, NTX__ALWAYS, 1, hp->n_embd);
    l->step[l->n_steps - 1].offset = hp->n_embd;
}

static void add_rope(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__attention *has,
                     enum ntx_buf b, uint32_t heads)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROPE, b, b);
    s->heads = heads;
    s->width = ntx_dims_of(hp, has->layer).head_k;
    s->rope.rotated = has->turn == NTX_ROTATION_WINDOW ? hp->rope_dim_window : hp->rope_dim;
    s->rope.pairs = (uint8_t)has->rope;
    s->rope.angles = (uint8_t)has->turn;
}

void ntx__split(struct ntx_layer *l, enum ntx_buf b, enum ntx_buf other, uint32_t heads, uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SPLIT, b, b);
    s->in[1] = (uint8_t)other;
    s->heads = heads;
    s->width = width;
}

static void add_kv(struct ntx_layer *l, const struct ntx__attention *has, enum ntx_buf of)
{
    ntx__add_product(l, NTX_BUF_K, of, NTX_T_k);
    if (!has->v_of_k)
        ntx__add_product(l, NTX_BUF_V, of, NTX_T_v);
}

void ntx__add_kv_alone(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx__attention has = {.layer = layer, .rope = NTX_ROPE_NEOX};
    copy_row(hp, l, NTX_BUF_X, NTX_BUF_H, 0);
    add_kv(l, &has, NTX_BUF_X);
    ntx__norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm, NTX__ALWAYS, hp->n_head_kv, hp->head_k);
    add_rope(hp, l, &has, NTX_BUF_K, hp->n_head_kv);
    ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K)->in[1] = NTX_BUF_V;
}

/* Norms of heads, after the products and biases. */
static void add_head_norms(struct ntx_layer *l, const struct ntx__attention *has, const struct ntx_dims *w)
{
    if (has->v_norm)
        ntx__norm(l, NTX_BUF_V, has->v_of_k ? NTX_BUF_K : NTX_BUF_V, NTX_T_v, NTX__NEVER, w->n_head_kv, w->head_v);
    if (has->qk_norm != NTX__NEVER) {
        ntx__norm(l, NTX_BUF_Q, NTX_BUF_Q, NTX_T_q_norm, has->qk_norm, w->n_head, w->head_k);
        if (!has->borrows)
            ntx__norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm, has->qk_norm, w->n_head_kv, w->head_k);
    }
    if (has->qk_norm_all != NTX__NEVER) {
        ntx__norm(l, NTX_BUF_Q, NTX_BUF_Q, NTX_T_q_norm_all, has->qk_norm_all, 1, w->n_head * w->head_k);
        ntx__norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm_all, has->qk_norm_all, 1, w->n_head_kv * w->head_k);
    }
}

static void rotate_index(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__attention *has,
                         enum ntx_buf b, uint32_t heads, enum ntx_tensor norm)
{
    ntx__norm(l, b, b, norm, NTX__ALWAYS, heads, hp->index.head);
    add_rope(hp, l, has, b, heads);
    l->step[l->n_steps - 1].width = hp->index.head;
}

/* Queries in POOL and a key of each position in KEYS, whose products were made with q, k and v. */
static void add_block_choice(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__attention *has)
{
    rotate_index(hp, l, has, NTX_BUF_POOL, hp->index.heads, NTX_T_block_q_norm);
    rotate_index(hp, l, has, NTX_BUF_KEYS, 1, NTX_T_block_k_norm);
    ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_KEYS)->put.keys = true;
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_INDEX_TOPK, NTX_BUF_NONE, NTX_BUF_POOL);
    s->heads = hp->index.heads;
    s->width = hp->index.head;
    s->index_topk.most = hp->index.most;
    s->index_topk.block = hp->index.block;
    s->index_topk.last = hp->index.last;
}

static void add_attend(struct ntx_layer *l, const struct ntx__attention *has, const struct ntx_dims *w)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ATTEND, NTX_BUF_ATTN, NTX_BUF_Q);
    s->attend.topk = has->blocks;
    s->attend.window = has->window;
    s->attend.chunk = has->chunk;
    s->attend.causal = has->causal;
    s->attend.temperature = has->temperature;
    s->attend.cap = has->cap;
    s->scale = has->scale != 0 ? has->scale : 1.0f / sqrtf((float)w->head_k);
    s->width = w->n_head * w->head_v;
    ntx__takes(s, NTX_T_sinks, has->sinks);
    if (has->gated || has->head_gates || has->value_gates) {
        s = ntx_layer_add(l, NTX_OP_GATE, NTX_BUF_ATTN, NTX_BUF_ATTN);
        s->in[1] = has->head_gates ? NTX_BUF_A : NTX_BUF_Z;
        s->width = w->n_head * w->head_v;
        s->gate.by_head = has->head_gates;
        s->gate.softplus = has->soft_gates;
        s->heads = has->head_gates ? w->n_head : 0;
    }
}

void ntx__add_attention(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__attention *has)
{
    const struct ntx_dims w = ntx_dims_of(hp, has->layer);
    const enum ntx_buf x = has->paired ? NTX_BUF_NORMED : NTX_BUF_X;
    if (has->paired)
        add_pair(hp, l);
    else if (!has->normed)
        ntx__norm(l, x, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_product(l, NTX_BUF_Q, x, has->gated ? NTX_T_q_gated : NTX_T_q);
    if (!has->borrows)
        add_kv(l, has, x);
    if (has->blocks) {
        ntx__add_product(l, NTX_BUF_POOL, NTX_BUF_X, NTX_T_block_q);
        ntx__add_product(l, NTX_BUF_KEYS, NTX_BUF_X, NTX_T_block_k);
    }
    if (has->paired && hp->head.norm_residual)
        copy_row(hp, l, NTX_BUF_H, NTX_BUF_NORMED, hp->n_embd);
    if (has->head_gates || has->value_gates)
        ntx__add_product(l, has->head_gates ? NTX_BUF_A : NTX_BUF_Z, NTX_BUF_X,
                         has->head_gates ? NTX_T_head_gate : NTX_T_mla_gate);
    add_bias(hp, has->layer, l, NTX_BUF_Q, NTX_T_q_bias, has->qkv_bias);
    add_bias(hp, has->layer, l, NTX_BUF_K, NTX_T_k_bias, has->qkv_bias);
    add_bias(hp, has->layer, l, NTX_BUF_V, NTX_T_v_bias, has->qkv_bias);
    if (has->clamp != 0) {
        clamp_values(l, NTX_BUF_Q, w.n_head * w.head_k, has->clamp);
        clamp_values(l, NTX_BUF_K, w.n_head_kv * w.head_k, has->clamp);
        clamp_values(l, NTX_BUF_V, w.n_head_kv * w.head_v, has->clamp);
    }
    if (has->gated)
        ntx__split(l, NTX_BUF_Q, NTX_BUF_Z, w.n_head, w.head_k);
    if (!has->turned_norm)
        add_head_norms(l, has, &w);
    if (!has->unturned)
        add_rope(hp, l, has, NTX_BUF_Q, w.n_head);
    if (!has->unturned && !has->borrows)
        add_rope(hp, l, has, NTX_BUF_K, w.n_head_kv);
    if (has->turned_norm)
        add_head_norms(l, has, &w);
    if (has->bare_norm) {
        ntx__norm(l, NTX_BUF_Q, NTX_BUF_Q, NTX_T_q_norm, NTX__NEVER, w.n_head, w.head_k);
        ntx__norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm, NTX__NEVER, w.n_head_kv, w.head_k);
    }
    if (has->v_scale != 0) {
        struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, NTX_BUF_V, NTX_BUF_V);
        s->width = w.n_head_kv * w.head_v;
        s->scale = has->v_scale;
    }
    if (!has->borrows)
        ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K)->in[1] = NTX_BUF_V;
    if (has->blocks)
        add_block_choice(hp, l, has);
    add_attend(l, has, &w);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_o);
    add_bias(hp, has->layer, l, NTX_BUF_Y, NTX_T_o_bias, has->o_bias);
    if (has->post_norm)
        ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_attn_post_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_state(hp, l);
}

/* If layers add to shared groups, the gate is an ordinary product (with its additions: layer_delta.c), and so is the
 * first low-rank matrix of up. The result of down's first matrix is stored behind that in LOW, and its second matrix
 * is added after the groups. */
static void add_groups(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    const struct ntx_pack_layer *p = &m->pack[at];
    const struct ntx_pack_added *up = &p->added[NTX_PACK_UP], *down = &p->added[NTX_PACK_DOWN];
    struct ntx_step *s;
    const bool thin_up = ntx_pack_adds(p, NTX_PACK_UP) && !up->whole,
               thin_down = ntx_pack_adds(p, NTX_PACK_DOWN) && !down->whole;
    if (thin_up) {
        s = ntx_layer_add(l, NTX_OP_MM, NTX_BUF_LOW, NTX_BUF_X);
        s->width = up->rank;
        ntx_step_takes(s, NTX_T_up_low, false);
    }
    if (p->adds)
        ntx__add_product(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_gate);
    s = ntx_layer_add(l, NTX_OP_GROUPS, NTX_BUF_Y, NTX_BUF_X);
    s->groups.hidden.act = (uint8_t)act;
    s->scale = thin_up ? ntx_layer_delta_scale(&m->delta, 0, up->rank) : 1;
    s->offset = ntx_layer_delta_behind(thin_up ? up->rank : 0);
    s->width = ntx_pack_adds(p, NTX_PACK_DOWN) ? down->rank : 0;
    ntx__takes(s, NTX_T_gate, p->adds || ntx_pack_has_gate(p) ? NTX__NEVER : NTX__ALWAYS);
    if (p->added_bytes)
        ntx_step_takes(s, NTX_T_groups_added, false);
    ntx_step_takes(s, NTX_T_groups, false);
    if (ntx_pack_adds(p, NTX_PACK_DOWN)) {
        const uint32_t from = s->offset;
        s = ntx_layer_add(l, NTX_OP_LORA, NTX_BUF_Y, NTX_BUF_LOW);
        s->from = from;
        s->width = down->rank;
        s->scale = thin_down ? ntx_layer_delta_scale(&m->delta, 0, down->rank) : 1;
        if (thin_down)
            ntx_step_takes(s, NTX_T_down_high, false);
    }
}

/* An FFN without the steps after its last product. */
static void add_ffn(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_dense_alone(m, at, l, act);
}

void ntx__add_dense_alone(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    if (m->pack) {
        add_groups(m, at, l, act);
    } else {
        ntx__add_product(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_gate);
        ntx__add_product(l, NTX_BUF_UP, NTX_BUF_X, NTX_T_up);
        struct ntx_step *s = ntx_layer_add(l, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_GATE);
        s->in[1] = NTX_BUF_UP;
        s->width = ntx_dims_of(&m->hp, at).n_ff;
        s->glu.hidden.act = (uint8_t)act;
        s->glu.hidden.limit = s->glu.hidden.gate_limit = m->hp.shared_limit;
        ntx__add_product(l, NTX_BUF_Y, NTX_BUF_GATE, NTX_T_down);
    }
}

void ntx__add_dense(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    add_ffn(m, at, l, act);
    ntx__add_state(&m->hp, l);
}

void ntx__add_dense_normed(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    add_ffn(m, at, l, act);
    ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_ffn_post_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_state(&m->hp, l);
}

static void take_experts(const struct ntx_model *m, struct ntx_step *s)
{
    if (m->hp.experts_fused)
        ntx_step_takes(s, NTX_T_expert_gate_up, false);
    for (int t = m->hp.experts_fused ? NTX_T_expert_down : NTX_T_expert_gate; t <= NTX_T_expert_down; t++)
        ntx_step_takes(s, (enum ntx_tensor)t, false);
}

/* A router with a norm and scale of its own, and experts with a norm of their sum, in BESIDE. */
static void add_experts_beside(const struct ntx_model *m, struct ntx_layer *l, enum ntx_ffn_act act)
{
    const uint32_t n = m->hp.n_embd;
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_router_scale, NTX__ALWAYS, 1, n);
    l->step[l->n_steps - 1].scale = 1 / sqrtf((float)n);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROUTE, NTX_BUF_NONE, NTX_BUF_X);
    s->route = m->hp.router;
    ntx__takes(s, NTX_T_router, NTX__ALWAYS);
    ntx__takes(s, NTX_T_expert_scale, NTX__MAYBE);
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_pre_norm_2, NTX__ALWAYS, 1, n);
    s = ntx_layer_add(l, NTX_OP_EXPERTS, NTX_BUF_Y, NTX_BUF_X);
    s->experts.hidden.act = (uint8_t)act;
    take_experts(m, s);
    ntx__norm(l, NTX_BUF_BESIDE, NTX_BUF_Y, NTX_T_ffn_post_norm_2, NTX__ALWAYS, 1, n);
}

void ntx__add_both(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    const uint32_t n = m->hp.n_embd;
    add_experts_beside(m, l, act);
    add_ffn(m, at, l, act);
    ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_ffn_post_norm_1, NTX__ALWAYS, 1, n);
    ntx_layer_add(l, NTX_OP_ADD, NTX_BUF_Y, NTX_BUF_BESIDE)->width = n;
    ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_ffn_post_norm, NTX__ALWAYS, 1, n);
    ntx__add_state(&m->hp, l);
}

/* Copies H, so that it is quantised for a product. */
static void copy_state(const struct ntx_model *m, struct ntx_layer *l, float scale)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, NTX_BUF_X, NTX_BUF_H);
    s->width = m->hp.n_embd;
    s->scale = scale;
}

void ntx__add_inputs(const struct ntx_model *m, struct ntx_layer *l)
{
    const uint32_t n = m->hp.n_input;
    copy_state(m, l, 1 / sqrtf((float)m->hp.n_embd));
    ntx__add_product(l, NTX_BUF_INPUTS, NTX_BUF_X, NTX_T_inputs_proj);
    ntx__norm(l, NTX_BUF_INPUTS, NTX_BUF_INPUTS, NTX_T_inputs_norm, NTX__ALWAYS, m->hp.n_layers, n);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_INPUTS, NTX_BUF_INPUTS, NTX_BUF_INPUTS);
    s->width = n * m->hp.n_layers;
    s->scale = sqrtf((float)n);
}

void ntx__add_input(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    const uint32_t n = m->hp.n_input;
    copy_state(m, l, 1);
    ntx__add_product(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_input_gate);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_GATE);
    s->in[1] = NTX_BUF_INPUTS;
    s->from = at * n;
    s->width = n;
    s->glu.hidden.act = (uint8_t)act;
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_GATE, NTX_T_input_proj);
    ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_input_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_state(&m->hp, l);
}

struct ntx_step *ntx__add_norm(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t heads, uint32_t width)
{
    ntx__norm(l, out, in, NTX_T_attn_norm, NTX__NEVER, heads, width);
    return &l->step[l->n_steps - 1];
}

void ntx__add_experts(const struct ntx_model *m, struct ntx_layer *l, const struct ntx__experts *has)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_experts_alone(m, l, has);
    ntx__add_state(&m->hp, l);
}

void ntx__add_experts_normed(const struct ntx_model *m, struct ntx_layer *l, const struct ntx__experts *has)
{
    ntx__norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_experts_alone(m, l, has);
    ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_ffn_post_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_state(&m->hp, l);
}

void ntx__add_dense_or_experts(const struct ntx_model *m, uint32_t at, struct ntx_layer *l,
                               const struct ntx__experts *has)
{
    if (at < m->hp.n_dense)
        ntx__add_dense(m, at, l, has->act);
    else
        ntx__add_experts(m, l, has);
}

void ntx__add_route(const struct ntx_model *m, struct ntx_layer *l, const struct ntx__experts *has)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROUTE, NTX_BUF_NONE, NTX_BUF_X);
    s->route = m->hp.router;
    ntx__takes(s, NTX_T_router, NTX__ALWAYS);
    ntx__takes(s, NTX_T_router_bias, has->biases);
    ntx__takes(s, NTX_T_router_select, has->choice);
    ntx__takes(s, NTX_T_router_sees, has->sees);
    ntx__takes(s, NTX_T_token_experts, has->numbered);
}

void ntx__add_routed(const struct ntx_model *m, struct ntx_layer *l, const struct ntx__experts *has)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_EXPERTS, NTX_BUF_Y, NTX_BUF_X);
    s->experts.hidden.act = s->experts.shared.act = (uint8_t)has->act;
    s->experts.weighs_input = has->weighs_input;
    s->experts.ungated = m->hp.experts_ungated;
    s->experts.hidden.limit = s->experts.hidden.gate_limit = m->hp.limit;
    s->experts.shared.limit = s->experts.shared.gate_limit = m->hp.shared_limit;
    for (int t = NTX_T_expert_gate_bias; t <= NTX_T_expert_down_bias; t++)
        ntx__takes(s, (enum ntx_tensor)t, has->biases);
    ntx__takes(s, NTX_T_shared_gate, has->shared_gate);
    for (int t = NTX_T_gate_shared; t <= NTX_T_down_shared; t++)
        ntx__takes(s, (enum ntx_tensor)t, has->shared);
    take_experts(m, s);
}

void ntx__add_experts_alone(const struct ntx_model *m, struct ntx_layer *l, const struct ntx__experts *has)
{
    ntx__add_route(m, l, has);
    ntx__add_routed(m, l, has);
}
