#include <math.h>

#include "model/arch/arch_impl.h"

static void takes(struct ntx_step *s, enum ntx_tensor t, enum ntx__presence has)
{
    if (has != NTX__NEVER)
        ntx_step_takes(s, t, has == NTX__MAYBE);
}

static void multiply(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t)
{
    ntx_step_takes(ntx_layer_add(l, NTX_OP_MM, out, in), t, false);
}

static void bias(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l, enum ntx_buf out, enum ntx_tensor t, enum ntx__presence has)
{
    if (has == NTX__NEVER)
        return;
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_BIAS, out, NTX_BUF_NONE);
    s->width = ntx_width(hp, layer, (enum ntx_dim)ntx_tensor_kinds[t].in);
    takes(s, t, has);
}

/* h += y */
static void add(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    ntx_layer_add(l, NTX_OP_ADD, NTX_BUF_H, NTX_BUF_Y)->width = hp->n_embd;
}

static void norm(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t, enum ntx__presence has, uint32_t heads, uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_NORM, out, in);
    s->heads = heads;
    s->width = width;
    takes(s, t, has);
}

/* A copy, in from value `from` on. */
static void take(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t from)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, out, in);
    s->width = hp->n_embd;
    s->scale = 1;
    s->from = from;
}

void ntx__add_nextn(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    norm(l, NTX_BUF_NORMED, NTX_BUF_H, NTX_T_nextn_enorm, NTX__ALWAYS, 1, hp->n_embd);
    norm(l, NTX_BUF_NORMED, NTX_BUF_NORMED, NTX_T_nextn_hnorm, NTX__ALWAYS, 1, hp->n_embd);
    l->step[l->n_steps - 1].offset = hp->n_embd;
    multiply(l, NTX_BUF_Y, NTX_BUF_NORMED, NTX_T_nextn_eh);
    take(hp, l, NTX_BUF_H, NTX_BUF_Y, 0);
}

void ntx__add_fuse(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    take(hp, l, NTX_BUF_NORMED, NTX_BUF_NORMED, 0);
    l->step[l->n_steps - 1].width = hp->head.n_taps * hp->head.width;
    if (hp->head.norm_first)
        norm(l, NTX_BUF_NORMED, NTX_BUF_NORMED, NTX_T_fuse_norm, NTX__ALWAYS, 1, hp->head.n_taps * hp->head.width);
    multiply(l, NTX_BUF_Y, NTX_BUF_NORMED, NTX_T_fuse);
    if (hp->head.block)
        norm(l, NTX_BUF_H, NTX_BUF_Y, NTX_T_fuse_norm, NTX__ALWAYS, 1, hp->n_embd);
    else
        take(hp, l, NTX_BUF_H, NTX_BUF_Y, 0);
}

/* The residual stream is the state, before or behind its norm. */
static void add_pair(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    norm(l, NTX_BUF_NORMED, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    if (!hp->head.norm_residual)
        take(hp, l, NTX_BUF_H, NTX_BUF_NORMED, hp->n_embd);
    norm(l, NTX_BUF_NORMED, NTX_BUF_NORMED, NTX_T_nextn_hnorm, NTX__ALWAYS, 1, hp->n_embd);
    l->step[l->n_steps - 1].offset = hp->n_embd;
}

static void rotate(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__attention *has, enum ntx_buf b, uint32_t heads)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROPE, b, b);
    s->heads = heads;
    s->width = ntx_dims_of(hp, has->layer).head_k;
    s->rotated = has->turn == NTX_TURN_WINDOW ? hp->rope_dim_window : hp->rope_dim;
    s->pairs = (uint8_t)has->rope;
    s->turn = (uint8_t)has->turn;
}

/* The last values of each run of `width`. */
static void rotate_behind(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf b, uint32_t heads, uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROPE, b, b);
    s->heads = heads;
    s->width = width;
    s->rotated = hp->rope_dim;
    s->offset = width - hp->rope_dim;
    s->pairs = NTX_ROPE_NORM;
}

static void split(struct ntx_layer *l, enum ntx_buf b, enum ntx_buf other, uint32_t heads, uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SPLIT, b, b);
    s->in[1] = (uint8_t)other;
    s->heads = heads;
    s->width = width;
}

static void add_kv(struct ntx_layer *l, const struct ntx__attention *has, enum ntx_buf of)
{
    multiply(l, NTX_BUF_K, of, NTX_T_k);
    if (!has->v_of_k)
        multiply(l, NTX_BUF_V, of, NTX_T_v);
}

void ntx__add_kv_alone(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx__attention has = {.layer = layer, .rope = NTX_ROPE_NEOX};
    take(hp, l, NTX_BUF_X, NTX_BUF_H, 0);
    add_kv(l, &has, NTX_BUF_X);
    norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm, NTX__ALWAYS, hp->n_head_kv, hp->head_k);
    rotate(hp, l, &has, NTX_BUF_K, hp->n_head_kv);
    ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K)->in[1] = NTX_BUF_V;
}

/* Behind the products: biases and norms of heads. */
static void add_head_norms(struct ntx_layer *l, const struct ntx__attention *has, const struct ntx_dims *w)
{
    if (has->v_norm)
        norm(l, NTX_BUF_V, has->v_of_k ? NTX_BUF_K : NTX_BUF_V, NTX_T_v, NTX__NEVER, w->n_head_kv, w->head_v);
    if (has->qk_norm != NTX__NEVER) {
        norm(l, NTX_BUF_Q, NTX_BUF_Q, NTX_T_q_norm, has->qk_norm, w->n_head, w->head_k);
        if (!has->borrows)
            norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm, has->qk_norm, w->n_head_kv, w->head_k);
    }
    if (has->qk_norm_all != NTX__NEVER) {
        norm(l, NTX_BUF_Q, NTX_BUF_Q, NTX_T_q_norm_all, has->qk_norm_all, 1, w->n_head * w->head_k);
        norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm_all, has->qk_norm_all, 1, w->n_head_kv * w->head_k);
    }
}

static void attend(struct ntx_layer *l, const struct ntx__attention *has, const struct ntx_dims *w)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ATTEND, NTX_BUF_ATTN, NTX_BUF_Q);
    s->window = has->window;
    s->stretch = has->stretch;
    s->temperature = has->temperature;
    s->cap = has->cap;
    s->scale = has->scale != 0 ? has->scale : 1.0f / sqrtf((float)w->head_k);
    s->width = w->n_head * w->head_v;
    takes(s, NTX_T_sinks, has->sinks);
    if (has->gated || has->head_gates) {
        s = ntx_layer_add(l, NTX_OP_GATE, NTX_BUF_ATTN, NTX_BUF_ATTN);
        s->in[1] = has->gated ? NTX_BUF_Z : NTX_BUF_A;
        s->width = w->n_head * w->head_v;
        s->by_head = has->head_gates;
        s->heads = has->head_gates ? w->n_head : 0;
    }
}

void ntx__add_attention(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__attention *has)
{
    const struct ntx_dims w = ntx_dims_of(hp, has->layer);
    const enum ntx_buf x = has->paired ? NTX_BUF_NORMED : NTX_BUF_X;
    if (has->paired)
        add_pair(hp, l);
    else
        norm(l, x, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    multiply(l, NTX_BUF_Q, x, has->gated ? NTX_T_q_gated : NTX_T_q);
    if (!has->borrows)
        add_kv(l, has, x);
    if (has->paired && hp->head.norm_residual)
        take(hp, l, NTX_BUF_H, NTX_BUF_NORMED, hp->n_embd);
    if (has->head_gates)
        multiply(l, NTX_BUF_A, NTX_BUF_X, NTX_T_head_gate);
    bias(hp, has->layer, l, NTX_BUF_Q, NTX_T_q_bias, has->qkv_bias);
    bias(hp, has->layer, l, NTX_BUF_K, NTX_T_k_bias, has->qkv_bias);
    bias(hp, has->layer, l, NTX_BUF_V, NTX_T_v_bias, has->qkv_bias);
    if (has->gated)
        split(l, NTX_BUF_Q, NTX_BUF_Z, w.n_head, w.head_k);
    add_head_norms(l, has, &w);
    if (!has->unturned)
        rotate(hp, l, has, NTX_BUF_Q, w.n_head);
    if (!has->unturned && !has->borrows)
        rotate(hp, l, has, NTX_BUF_K, w.n_head_kv);
    if (has->bare_norm) {
        norm(l, NTX_BUF_Q, NTX_BUF_Q, NTX_T_q_norm, NTX__NEVER, w.n_head, w.head_k);
        norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm, NTX__NEVER, w.n_head_kv, w.head_k);
    }
    if (!has->borrows)
        ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K)->in[1] = NTX_BUF_V;
    attend(l, has, &w);
    multiply(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_o);
    bias(hp, has->layer, l, NTX_BUF_Y, NTX_T_o_bias, has->o_bias);
    if (has->post_norm)
        norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_attn_post_norm, NTX__ALWAYS, 1, hp->n_embd);
    add(hp, l);
}

/* What is chosen by: its beginning is rotated, then it is turned as a whole, which leaves products of two as they are, but their roundings; or its end is, and no more. */
static void turn_index(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf b, uint32_t heads)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROPE, b, b);
    s->rotated = hp->rope_dim;
    s->pairs = (uint8_t)hp->index.pairs;
    s->heads = heads;
    s->width = hp->index.head;
    if (hp->index.behind) {
        s->offset = hp->index.head - hp->rope_dim;
        return;
    }
    s = ntx_layer_add(l, NTX_OP_HADAMARD, b, b);
    s->heads = heads;
    s->width = hp->index.head;
}

static void add_index_products(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    multiply(l, NTX_BUF_V, NTX_BUF_X, NTX_T_index_k);
    if (hp->index.every) {
        multiply(l, NTX_BUF_V, NTX_BUF_X, NTX_T_index_gate);
        l->step[l->n_steps - 1].offset = hp->index.head;
    }
    multiply(l, NTX_BUF_A, NTX_BUF_X, NTX_T_index_heads);
}

static void add_index_key(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_LAYERNORM, NTX_BUF_V, NTX_BUF_V);
    s->width = hp->index.head;
    s->eps = hp->index.behind ? hp->rms_eps : 0;
    takes(s, NTX_T_index_k_norm, NTX__ALWAYS);
    takes(s, NTX_T_index_k_bias, NTX__ALWAYS);
    if (!hp->index.every)
        turn_index(hp, l, NTX_BUF_V, 1);
}

static void add_choice(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    if (!hp->index.every)
        turn_index(hp, l, NTX_BUF_Z, hp->index.heads);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_CHOOSE, NTX_BUF_NONE, NTX_BUF_Z);
    s->in[1] = NTX_BUF_A;
    s->heads = hp->index.heads;
    s->width = hp->index.head;
    s->most = hp->index.most;
    s->scale = 1.0f / sqrtf((float)hp->index.head * (float)hp->index.heads);
    s->every = hp->index.every;
    s->keys = hp->index.every != 0;
    takes(s, NTX_T_index_place, hp->index.every ? NTX__ALWAYS : NTX__NEVER);
}

void ntx__add_latent_attention(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_latents_alone(hp, layer, l);
    add(hp, l);
}

/* What feeds the state comes first, and the norm of what q is made of last: that is what is multiplied next. */
void ntx__add_latents_alone(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    const uint32_t latent = hp->kv_lora + hp->rope_dim;
    const bool chooses = ntx_chooses(hp, layer);
    multiply(l, hp->q_lora ? NTX_BUF_Q_LOW : NTX_BUF_Q, NTX_BUF_X, hp->q_lora ? NTX_T_q_a : NTX_T_q);
    multiply(l, NTX_BUF_K, NTX_BUF_X, NTX_T_kv_a);
    if (hp->latents_gated)
        multiply(l, NTX_BUF_POOL_GATE, NTX_BUF_X, NTX_T_latent_gate); /* those of FFNs lie where attention's do */
    if (chooses)
        add_index_products(hp, l);
    norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_kv_a_norm, NTX__ALWAYS, 1, hp->kv_lora);
    if (!hp->latents_unturned)
        rotate_behind(hp, l, NTX_BUF_K, 1, latent);
    if (chooses)
        add_index_key(hp, l);
    ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K)->in[1] = chooses ? NTX_BUF_V : NTX_BUF_NONE;
    if (hp->q_lora) {
        norm(l, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW, NTX_T_q_a_norm, NTX__ALWAYS, 1, hp->q_lora);
        multiply(l, NTX_BUF_Q, NTX_BUF_Q_LOW, NTX_T_q_b);
        if (chooses)
            multiply(l, NTX_BUF_Z, NTX_BUF_Q_LOW, NTX_T_index_q);
    }
    if (!hp->latents_unturned)
        rotate_behind(hp, l, NTX_BUF_Q, hp->n_head, hp->head_k);
    if (chooses)
        add_choice(hp, l);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ATTEND, NTX_BUF_ATTN, NTX_BUF_Q);
    s->latent = true;
    s->chosen = hp->index.head != 0;
    s->temperature = hp->temperature;
    s->scale = hp->score_scale;
    s->width = hp->n_head * hp->head_v;
    takes(s, NTX_T_kv_b, hp->kv_joined ? NTX__ALWAYS : NTX__NEVER);
    takes(s, NTX_T_k_b, hp->kv_joined ? NTX__NEVER : NTX__ALWAYS);
    takes(s, NTX_T_v_b, hp->kv_joined ? NTX__NEVER : NTX__ALWAYS);
    if (hp->latents_gated) {
        takes(s, NTX_T_sinks, NTX__ALWAYS);
        s = ntx_layer_add(l, NTX_OP_GATE, NTX_BUF_ATTN, NTX_BUF_ATTN);
        s->in[1] = NTX_BUF_POOL_GATE;
        s->width = hp->n_head * hp->head_v;
    }
    multiply(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_o);
}

/* q, k and v through the convolution; q and k of length 1. */
static void add_convolution(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_tensor first, int n, float eps)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_CONV, NTX_BUF_Q, NTX_BUF_V);
    s->width = ntx_width(hp, 0, NTX_DIM_DELTA_MIX);
    s->taps = hp->delta.taps;
    for (int i = 0; i < n; i++)
        takes(s, (enum ntx_tensor)((int)first + i), NTX__ALWAYS);
    s = ntx_layer_add(l, NTX_OP_UNIT, NTX_BUF_Q, NTX_BUF_Q);
    s->heads = 2 * hp->delta.key_heads;
    s->width = hp->delta.head;
    s->eps = eps;
}

static void add_rates(const struct ntx_hparams *hp, struct ntx_layer *l, bool joined)
{
    if (joined)
        split(l, NTX_BUF_K, NTX_BUF_A, hp->delta.key_heads, hp->delta.heads / hp->delta.key_heads);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_RATES, NTX_BUF_A, NTX_BUF_A);
    s->in[1] = NTX_BUF_K;
    s->heads = s->width = hp->delta.heads;
    takes(s, NTX_T_delta_dt, NTX__ALWAYS);
    takes(s, NTX_T_delta_a, NTX__ALWAYS);
}

void ntx__add_delta(const struct ntx_hparams *hp, struct ntx_layer *l, bool joined)
{
    norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_delta_alone(hp, l, joined, false);
    add(hp, l);
}

/* What heads give, each normed, and gated. */
static void gate_delta(const struct ntx_hparams *hp, struct ntx_layer *l, bool sigmoid)
{
    norm(l, NTX_BUF_ATTN, NTX_BUF_ATTN, NTX_T_delta_norm, NTX__ALWAYS, hp->delta.heads, hp->delta.head);
    struct ntx_step *s = ntx_layer_add(l, sigmoid ? NTX_OP_GATE : NTX_OP_GLU, NTX_BUF_ATTN, sigmoid ? NTX_BUF_ATTN : NTX_BUF_Z);
    s->in[1] = sigmoid ? NTX_BUF_Z : NTX_BUF_ATTN;
    s->width = hp->delta.heads * hp->delta.head;
    s->act = NTX_FFN_SILU;
}

void ntx__add_delta_alone(const struct ntx_hparams *hp, struct ntx_layer *l, bool joined, bool sigmoid)
{
    multiply(l, NTX_BUF_V, NTX_BUF_X, NTX_T_delta_mix);
    multiply(l, NTX_BUF_Z, NTX_BUF_X, NTX_T_delta_gate);
    multiply(l, NTX_BUF_K, NTX_BUF_X, joined ? NTX_T_delta_rates : NTX_T_delta_beta);
    if (!joined)
        multiply(l, NTX_BUF_A, NTX_BUF_X, NTX_T_delta_alpha);
    add_convolution(hp, l, NTX_T_delta_conv, 1, sigmoid ? 1e-6f : 0);
    add_rates(hp, l, joined);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_DELTA, NTX_BUF_ATTN, NTX_BUF_Q);
    s->in[1] = NTX_BUF_K;
    s->heads = hp->delta.heads;
    s->key_heads = hp->delta.key_heads;
    s->width = hp->delta.head;
    s->tiled = !joined;
    s->scale = 1.0f / sqrtf((float)hp->delta.head);
    gate_delta(hp, l, sigmoid);
    multiply(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_delta_out);
}

/* A product of n values of which comes the next one: in the form that is multiplied. */
static void multiply_twice(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf between, uint32_t n, enum ntx_tensor second)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, between, between);
    s->width = n;
    s->scale = 1;
    multiply(l, out, between, second);
}

static void add_kda_products(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    const uint32_t n = hp->delta.heads * hp->delta.head;
    for (uint32_t i = 0; i < 3; i++) {
        multiply(l, NTX_BUF_V, NTX_BUF_X, (enum ntx_tensor)(NTX_T_kda_q + i));
        l->step[l->n_steps - 1].offset = i * n;
    }
    multiply(l, NTX_BUF_K, NTX_BUF_X, NTX_T_delta_beta);
    multiply(l, NTX_BUF_Q_LOW, NTX_BUF_X, NTX_T_kda_f_a);
    multiply(l, NTX_BUF_Y, NTX_BUF_X, NTX_T_kda_g_a);
    multiply_twice(l, NTX_BUF_A, NTX_BUF_Q_LOW, hp->delta.head, NTX_T_kda_f_b);
    multiply_twice(l, NTX_BUF_Z, NTX_BUF_Y, hp->delta.head, NTX_T_kda_g_b);
}

void ntx__add_kda(const struct ntx_hparams *hp, struct ntx_layer *l)
{
    norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_attn_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_kda_alone(hp, l, NTX_T_kda_a);
    add(hp, l);
}

void ntx__add_kda_alone(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_tensor a)
{
    const uint32_t n = hp->delta.heads * hp->delta.head;
    add_kda_products(hp, l);
    add_convolution(hp, l, NTX_T_kda_conv_q, 3, hp->streams.n ? 1e-6f : 0);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_RATES, NTX_BUF_A, NTX_BUF_A);
    s->in[1] = NTX_BUF_K;
    s->heads = hp->delta.heads;
    s->width = n;
    takes(s, NTX_T_kda_dt, NTX__ALWAYS);
    takes(s, a, NTX__ALWAYS);
    s->bound = hp->delta_bound;
    s = ntx_layer_add(l, NTX_OP_DELTA, NTX_BUF_ATTN, NTX_BUF_Q);
    s->in[1] = NTX_BUF_K;
    s->heads = s->key_heads = hp->delta.heads;
    s->width = hp->delta.head;
    s->by_key = true;
    s->scale = 1.0f / sqrtf((float)hp->delta.head);
    norm(l, NTX_BUF_ATTN, NTX_BUF_ATTN, NTX_T_delta_norm, NTX__ALWAYS, hp->delta.heads, hp->delta.head);
    s = ntx_layer_add(l, NTX_OP_GATE, NTX_BUF_ATTN, NTX_BUF_ATTN);
    s->in[1] = NTX_BUF_Z;
    s->width = n;
    multiply(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_kda_out);
}

/* Where layers add to what they share, the gate is a product like any other (and gets what is added to it: delta.c), and the first thin matrix of up is, too; what comes
 * of down's first one begins behind that in LOW, and its second one is added behind the groups. */
static void add_groups(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    const struct ntx_pack_layer *p = &m->pack[at];
    const struct ntx_pack_added *up = &p->added[NTX_PACK_UP], *down = &p->added[NTX_PACK_DOWN];
    struct ntx_step *s;
    const bool thin_up = ntx_pack_adds(p, NTX_PACK_UP) && !up->whole, thin_down = ntx_pack_adds(p, NTX_PACK_DOWN) && !down->whole;
    if (thin_up) {
        s = ntx_layer_add(l, NTX_OP_MM, NTX_BUF_LOW, NTX_BUF_X);
        s->width = up->rank;
        ntx_step_takes(s, NTX_T_up_low, false);
    }
    if (p->adds)
        multiply(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_gate);
    s = ntx_layer_add(l, NTX_OP_GROUPS, NTX_BUF_Y, NTX_BUF_X);
    s->act = (uint8_t)act;
    s->scale = thin_up ? ntx_delta_scale(&m->delta, 0, up->rank) : 1;
    s->offset = ntx_delta_behind(thin_up ? up->rank : 0);
    s->width = ntx_pack_adds(p, NTX_PACK_DOWN) ? down->rank : 0;
    takes(s, NTX_T_gate, p->adds || ntx_pack_has_gate(p) ? NTX__NEVER : NTX__ALWAYS);
    if (p->added_bytes)
        ntx_step_takes(s, NTX_T_groups_added, false);
    ntx_step_takes(s, NTX_T_groups, false);
    if (ntx_pack_adds(p, NTX_PACK_DOWN)) {
        const uint32_t from = s->offset;
        s = ntx_layer_add(l, NTX_OP_PLUS, NTX_BUF_Y, NTX_BUF_LOW);
        s->from = from;
        s->width = down->rank;
        s->scale = thin_down ? ntx_delta_scale(&m->delta, 0, down->rank) : 1;
        if (thin_down)
            ntx_step_takes(s, NTX_T_down_high, false);
    }
}

/* Without what comes behind its last product. */
static void dense(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_dense_alone(m, at, l, act);
}

void ntx__add_dense_alone(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    if (m->pack) {
        add_groups(m, at, l, act);
    } else {
        multiply(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_gate);
        multiply(l, NTX_BUF_UP, NTX_BUF_X, NTX_T_up);
        struct ntx_step *s = ntx_layer_add(l, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_GATE);
        s->in[1] = NTX_BUF_UP;
        s->width = ntx_dims_of(&m->hp, at).n_ff;
        s->act = (uint8_t)act;
        s->limit = s->gate_limit = m->hp.shared_limit;
        multiply(l, NTX_BUF_Y, NTX_BUF_GATE, NTX_T_down);
    }
}

void ntx__add_dense(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    dense(m, at, l, act);
    add(&m->hp, l);
}

void ntx__add_dense_normed(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    dense(m, at, l, act);
    norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_ffn_post_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    add(&m->hp, l);
}

static void take_experts(const struct ntx_model *m, struct ntx_step *s)
{
    if (m->hp.experts_fused)
        ntx_step_takes(s, NTX_T_expert_gate_up, false);
    for (int t = m->hp.experts_fused ? NTX_T_expert_down : NTX_T_expert_gate; t <= NTX_T_expert_down; t++)
        ntx_step_takes(s, (enum ntx_tensor)t, false);
}

/* A router's norm, which has a scale of its own, and experts, whose sum is normed: BESIDE. */
static void add_experts_beside(const struct ntx_model *m, struct ntx_layer *l, enum ntx_ffn_act act)
{
    const uint32_t n = m->hp.n_embd;
    norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_router_scale, NTX__ALWAYS, 1, n);
    l->step[l->n_steps - 1].scale = 1 / sqrtf((float)n);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROUTE, NTX_BUF_NONE, NTX_BUF_X);
    s->router = m->hp.router;
    takes(s, NTX_T_router, NTX__ALWAYS);
    takes(s, NTX_T_expert_scale, NTX__MAYBE);
    norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_pre_norm_2, NTX__ALWAYS, 1, n);
    s = ntx_layer_add(l, NTX_OP_EXPERTS, NTX_BUF_Y, NTX_BUF_X);
    s->act = (uint8_t)act;
    take_experts(m, s);
    norm(l, NTX_BUF_BESIDE, NTX_BUF_Y, NTX_T_ffn_post_norm_2, NTX__ALWAYS, 1, n);
}

void ntx__add_both(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    const uint32_t n = m->hp.n_embd;
    add_experts_beside(m, l, act);
    dense(m, at, l, act);
    norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_ffn_post_norm_1, NTX__ALWAYS, 1, n);
    ntx_layer_add(l, NTX_OP_ADD, NTX_BUF_Y, NTX_BUF_BESIDE)->width = n;
    norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_ffn_post_norm, NTX__ALWAYS, 1, n);
    add(&m->hp, l);
}

/* H, as a matrix may be multiplied by it. */
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
    multiply(l, NTX_BUF_INPUTS, NTX_BUF_X, NTX_T_inputs_proj);
    norm(l, NTX_BUF_INPUTS, NTX_BUF_INPUTS, NTX_T_inputs_norm, NTX__ALWAYS, m->hp.n_layers, n);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_INPUTS, NTX_BUF_INPUTS, NTX_BUF_INPUTS);
    s->width = n * m->hp.n_layers;
    s->scale = sqrtf((float)n);
}

void ntx__add_input(const struct ntx_model *m, uint32_t at, struct ntx_layer *l, enum ntx_ffn_act act)
{
    const uint32_t n = m->hp.n_input;
    copy_state(m, l, 1);
    multiply(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_input_gate);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_GATE);
    s->in[1] = NTX_BUF_INPUTS;
    s->from = at * n;
    s->width = n;
    s->act = (uint8_t)act;
    multiply(l, NTX_BUF_Y, NTX_BUF_GATE, NTX_T_input_proj);
    norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_input_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    add(&m->hp, l);
}

struct ntx_step *ntx__add_norm(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t heads, uint32_t width)
{
    norm(l, out, in, NTX_T_attn_norm, NTX__NEVER, heads, width);
    return &l->step[l->n_steps - 1];
}

void ntx__add_product(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t) { multiply(l, out, in, t); }

void ntx__add_experts(const struct ntx_model *m, struct ntx_layer *l, const struct ntx__experts *has)
{
    norm(l, NTX_BUF_X, NTX_BUF_H, NTX_T_ffn_norm, NTX__ALWAYS, 1, m->hp.n_embd);
    ntx__add_experts_alone(m, l, has);
    add(&m->hp, l);
}

void ntx__add_experts_alone(const struct ntx_model *m, struct ntx_layer *l, const struct ntx__experts *has)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROUTE, NTX_BUF_NONE, NTX_BUF_X);
    s->router = m->hp.router;
    takes(s, NTX_T_router, NTX__ALWAYS);
    takes(s, NTX_T_router_bias, has->biases);
    takes(s, NTX_T_router_choice, has->choice);
    takes(s, NTX_T_token_experts, has->numbered);
    s = ntx_layer_add(l, NTX_OP_EXPERTS, NTX_BUF_Y, NTX_BUF_X);
    s->act = (uint8_t)has->act;
    s->weighs_input = has->weighs_input;
    s->limit = s->gate_limit = m->hp.limit;
    s->shared_limit = s->shared_gate_limit = m->hp.shared_limit;
    for (int t = NTX_T_expert_gate_bias; t <= NTX_T_expert_down_bias; t++)
        takes(s, (enum ntx_tensor)t, has->biases);
    takes(s, NTX_T_shared_gate, has->shared_gate);
    for (int t = NTX_T_gate_shared; t <= NTX_T_down_shared; t++)
        takes(s, (enum ntx_tensor)t, has->shared);
    take_experts(m, s);
}
