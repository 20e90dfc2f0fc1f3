/* SPDX-License-Identifier: Apache-2.0 */
/* tower.c: keys and steps that vision towers have in common. Names of keys and tensors are those of llama.cpp's
 * converter. Sources: "An Image is Worth 16x16 Words" (arXiv 2010.11929), and the papers of the single towers. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

#define MERGED_MAX (1u << 20) /* most values of a square of patches */
#define MEAN_EPS   1e-6f
#define PIXELS_MAX (NTX_TOWER_SIDE_MAX * NTX_TOWER_SIDE_MAX)

/* ---- keys */

/* Reads three floats. */
static int key_colours(struct ntx__keys *k, const char *suffix, float least, float *out)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, suffix));
    float v[3];
    if (!kv || kv->type != NTX_GGUF_ARR || kv->elem != NTX_GGUF_F32 || kv->count < 3)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of three floating-point numbers", k->key);
    memcpy(v, kv->data, sizeof v);
    for (int i = 0; i < 3; i++)
        if (!(v[i] >= least && v[i] <= 1e3f))
            return ntx_err_set(k->err, -EINVAL, "key '%s' has %g; %g to 1000 are possible", k->key, (double)v[i],
                               (double)least);
    memcpy(out, v, sizeof v);
    return 0;
}

static int key_act(struct ntx__keys *k, const char *key, bool *out)
{
    int rc = ntx_gguf_bool(k->g, key, out);
    return rc && rc != -ENOENT ? ntx_err_set(k->err, -EINVAL, "key '%s' is neither true nor false", key) : 0;
}

static int get_tower_sizes(struct ntx__keys *k, struct ntx_tower *t)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_u32(k, "block_count", -1, 1, NTX_MAX_LAYERS, &hp->n_layers)) ||
        (rc = ntx__key_u32(k, "embedding_length", -1, 4, NTX__MAX_WIDTH, &hp->n_embd)) ||
        (rc = ntx__key_u32(k, "attention.head_count", -1, 1, NTX__MAX_WIDTH, &hp->n_head)) ||
        (rc = ntx__key_f32(k, "attention.layer_norm_epsilon", NAN, 0, 1, &hp->rms_eps)) ||
        (rc = ntx__key_u32(k, "image_size", -1, 1, NTX_TOWER_SIDE_MAX, &t->size)) ||
        (rc = ntx__key_u32(k, "patch_size", -1, 1, NTX_TOWER_PATCH_MAX, &t->patch)) ||
        (rc = ntx__key_u32(k, "projection_dim", -1, 1, NTX__MAX_WIDTH, &t->out)) ||
        (rc = key_colours(k, "image_mean", -1e3f, t->mean)) ||
        (rc = key_colours(k, "image_std", 1e-6f, t->deviation)) || (rc = key_act(k, "clip.use_gelu", &t->gelu)) ||
        (rc = key_act(k, "clip.use_silu", &t->silu)))
        return rc;
    if (t->gelu && t->silu)
        return ntx_err_set(k->err, -EINVAL, "keys 'clip.use_gelu' and 'clip.use_silu' are both true");
    return 0;
}

/* A fused matrix of q, k and v tells how wide a head is, else all heads are as wide as a state. */
static int get_heads(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_tensor *fused = ntx_gguf_tensor(k->g, "v.blk.0.attn_qkv.weight");
    int rc = ntx__key_u32(k, "attention.head_count_kv", hp->n_head, 1, hp->n_head, &hp->n_head_kv);
    if (rc)
        return rc;
    const uint64_t values = fused ? fused->ne[1] : hp->n_embd,
                   heads = hp->n_head + (fused ? 2 * (uint64_t)hp->n_head_kv : 0);
    if (values % heads || values / heads > NTX_MAX_HEAD)
        return ntx_err_set(k->err, -EINVAL, "%llu values are not %llu heads of at most %d values",
                           (unsigned long long)values, (unsigned long long)heads, NTX_MAX_HEAD);
    if (hp->n_head % hp->n_head_kv)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %u, which does not divide %u heads", k->key, hp->n_head_kv,
                           hp->n_head);
    hp->qkv_fused = fused;
    hp->head_k = hp->head_v = (uint32_t)(values / heads);
    return 0;
}

/* The width of an FFN is that of its tensors: the key is wrong in some files. Some files exchange the names of its two
 * matrices. */
static int find_ffn(struct ntx__keys *k, struct ntx_tower *t)
{
    const struct ntx_gguf_tensor *up = ntx_gguf_tensor(k->g, "v.blk.0.ffn_up.weight"),
                                 *down = ntx_gguf_tensor(k->g, "v.blk.0.ffn_down.weight");
    if (!up || !down)
        return ntx_err_set(k->err, -EINVAL, "tensor 'v.blk.0.ffn_%s.weight' is missing", up ? "down" : "up");
    t->swapped = up->ne[0] != k->hp->n_embd && down->ne[0] == k->hp->n_embd;
    const uint64_t n = (t->swapped ? down : up)->ne[1];
    if (n > NTX__MAX_WIDTH)
        return ntx_err_set(k->err, -EINVAL, "an FFN of %llu values; %u are possible", (unsigned long long)n,
                           NTX__MAX_WIDTH);
    k->hp->n_ff = (uint32_t)n;
    return 0;
}

/* The number of learned positions is a square. */
int ntx__tower_side(struct ntx__keys *k, struct ntx_tower *t)
{
    const struct ntx_gguf_tensor *places = ntx_gguf_tensor(k->g, ntx_tensor_kinds[NTX_T_places].name);
    const uint64_t n = places ? places->ne[1] * places->ne[2] : 0;
    uint32_t side = 0;
    while (side < NTX_TOWER_SIDE_MAX && (uint64_t)(side + 1) * (side + 1) <= n)
        side++;
    if (!side || (uint64_t)side * side != n || (places->ne[2] > 1 && places->ne[2] != side))
        return ntx_err_set(k->err, -EINVAL, "tensor '%s' has %llu positions: they are not a square",
                           ntx_tensor_kinds[NTX_T_places].name, (unsigned long long)n);
    t->side = side;
    t->n_places = side * side;
    return 0;
}

/* Two tables of learned positions, which reach as far as the largest picture does. */
int ntx__tower_sides(struct ntx__keys *k, struct ntx_tower *t)
{
    const struct ntx_gguf_tensor *places = ntx_gguf_tensor(k->g, ntx_tensor_kinds[NTX_T_places].name);
    const uint64_t n = places ? places->ne[1] : 0, square = (uint64_t)t->patch * t->merge * t->patch * t->merge,
                   most = t->max_pixels / square * t->merge;
    if (n < most || n > NTX_TOWER_TABLE_MAX)
        return ntx_err_set(
            k->err, -EINVAL, "tensor '%s' has %llu positions of a side; pictures have up to %llu, and %u are possible",
            ntx_tensor_kinds[NTX_T_places].name, (unsigned long long)n, (unsigned long long)most, NTX_TOWER_TABLE_MAX);
    t->side = (uint32_t)n;
    t->n_places = 2 * t->side;
    return 0;
}

int ntx__tower_turns(struct ntx__keys *k, struct ntx_tower *t, enum ntx_tower_turn turn, float base)
{
    struct ntx_hparams *hp = k->hp;
    if (hp->head_k % 4)
        return ntx_err_set(k->err, -ENOTSUP, "heads of %u values: a multiple of 4 can turn in two dimensions",
                           hp->head_k);
    t->turn = turn;
    hp->rope_dim = hp->head_k;
    hp->rope_base = base;
    hp->rope_sections[1] = hp->rope_sections[2] = hp->head_k / 4;
    return 0;
}

/* Areas of so many squares, unless keys give pixels. */
int ntx__tower_area(struct ntx__keys *k, struct ntx_tower *t, uint32_t least, uint32_t most)
{
    const uint64_t square = (uint64_t)t->patch * t->merge * t->patch * t->merge;
    uint32_t from, to;
    int rc = ntx__key_u32(k, "image_min_pixels", (int64_t)(least * square), 1, PIXELS_MAX, &from);
    if (rc || (rc = ntx__key_u32(k, "image_max_pixels", (int64_t)(most * square), 1, PIXELS_MAX, &to)))
        return rc;
    if (from > to || to < square)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is %u: pictures of %u to %u pixels are not possible", k->key, to,
                           from, to);
    t->min_pixels = from;
    t->max_pixels = to;
    return 0;
}

int ntx__tower_merge(struct ntx__keys *k, struct ntx_tower *t, const char *suffix, uint32_t fallback)
{
    int rc = ntx__key_u32(k, suffix, fallback, 1, NTX_TOWER_MERGE_MAX, &t->merge);
    if (!rc && (uint64_t)t->state * t->merge * t->merge > MERGED_MAX)
        rc = ntx_err_set(k->err, -EINVAL, "squares of %u x %u states of %u values: %u values are possible", t->merge,
                         t->merge, t->state, MERGED_MAX);
    return rc;
}

static int rows_of(struct ntx__keys *k, const char *tensor, uint32_t *out)
{
    const struct ntx_gguf_tensor *w = ntx_gguf_tensor(k->g, tensor);
    if (!w || w->ne[1] > NTX__MAX_WIDTH)
        return ntx_err_set(k->err, -EINVAL, w ? "tensor '%s' has too many rows" : "tensor '%s' is missing", tensor);
    *out = (uint32_t)w->ne[1];
    return 0;
}

/* The width between the two products of the projector. */
int ntx__tower_hidden(struct ntx__keys *k, struct ntx_tower *t, const char *tensor)
{
    return rows_of(k, tensor, &t->hidden);
}

int ntx__tower_converted(struct ntx__keys *k, struct ntx_tower *t, const char *tensor)
{
    t->state = t->out;
    return rows_of(k, tensor, &t->converted);
}

int ntx__tower_keys(struct ntx__keys *k)
{
    struct ntx_tower *t = ntx__own(k, sizeof *t);
    struct ntx_hparams *hp = k->hp;
    int rc = t ? get_tower_sizes(k, t) : -ENOMEM;
    if (rc || (rc = get_heads(k)))
        return rc;
    t->kind = hp->arch;
    t->embd = t->state = hp->n_embd;
    t->merge = 1;
    t->begin = t->end = "";
    hp->tower = t;
    hp->by_state = hp->no_output_norm = true;
    hp->n_vocab = 1;
    hp->embd_scale = hp->logit_scale = hp->rope_factor = hp->rope_attn_factor = 1;
    hp->rope_base = 10000;
    hp->ctx_train = INT32_MAX;
    rc = find_ffn(k, t);
    return rc ? rc : k->arch->tower(k, t);
}

/* Layers without attention, which leave rows of so many values. */
static void become_rows(struct ntx_hparams *hp, uint32_t layers, uint32_t width, uint32_t hidden)
{
    hp->n_layers = layers;
    hp->n_embd = width;
    hp->n_ff = hidden;
    hp->n_head = hp->n_head_kv = 1;
    hp->head_k = hp->head_v = 16;
    hp->rope_dim = 0;
    hp->qkv_fused = false;
}

void ntx__tower_projects(struct ntx_hparams *hp)
{
    const struct ntx_tower *t = hp->tower;
    hp->projects = true;
    become_rows(hp, 1 + t->n_deep, t->out * (1 + t->n_deep), t->hidden);
}

void ntx__tower_converts(struct ntx_hparams *hp)
{
    hp->converts = true;
    become_rows(hp, 1, hp->tower->state, hp->tower->converted);
}

uint32_t ntx_tower_in(const struct ntx_model *part)
{
    const struct ntx_tower *t = part->hp.tower;
    if (part->hp.converts)
        return t->embd;
    return part->hp.projects ? (1 + t->n_deep) * t->state * t->merge * t->merge : 3 * t->patch * t->patch;
}

/* ---- names */

static enum ntx_tensor unswapped(enum ntx_tensor t)
{
    switch (t) {
    case NTX_T_up: return NTX_T_down;
    case NTX_T_down: return NTX_T_up;
    case NTX_T_up_bias: return NTX_T_down_bias;
    case NTX_T_down_bias: return NTX_T_up_bias;
    default: return t;
    }
}

void ntx__tower_name(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t, const char *of, char *name,
                     size_t size)
{
    if (hp->tower->swapped && unswapped(t) != t)
        of = ntx_tensor_kinds[unswapped(t)].name;
    if (!strncmp(of, "v.", 2) || !strncmp(of, "mm.", 3))
        snprintf(name, size, "%s", of);
    else
        snprintf(name, size, "v.blk.%u.%s", layer, of);
}

/* ---- steps */

struct ntx_step *ntx__tower_copy(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t width)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_SCALE, out, in);
    s->width = width;
    s->scale = 1;
    return s;
}

void ntx__tower_bias(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_tensor t,
                     enum ntx__presence has)
{
    if (has == NTX__NEVER)
        return;
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_BIAS, out, NTX_BUF_NONE);
    s->width = ntx_width(hp, 0, (enum ntx_dim)ntx_tensor_kinds[t].in);
    ntx__takes(s, t, has);
}

void ntx__tower_map(struct ntx_layer *l, enum ntx_buf b, uint32_t width, enum ntx_map_kind kind)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_MAP, b, b);
    s->width = width;
    s->scale = 1;
    s->map.kind = (uint8_t)kind;
}

void ntx__tower_layernorm(struct ntx_layer *l, enum ntx_buf b, uint32_t width, float eps, enum ntx_tensor scale,
                          enum ntx_tensor bias, enum ntx__presence has)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_LAYERNORM, b, NTX_BUF_NONE);
    s->width = width;
    s->layernorm.eps = eps;
    ntx__takes(s, scale, has);
    ntx__takes(s, bias, has);
}

static enum ntx_tensor bias_of(enum ntx_tensor norm)
{
    switch (norm) {
    case NTX_T_pre_norm: return NTX_T_pre_norm_bias;
    case NTX_T_post_norm: return NTX_T_post_norm_bias;
    case NTX_T_attn_norm: return NTX_T_attn_norm_bias;
    default: return NTX_T_ffn_norm_bias;
    }
}

/* The lower bound of a matrix's inputs; its upper bound and both bounds of its outputs follow. */
static enum ntx_tensor bounds_of(enum ntx_tensor matrix)
{
    switch (matrix) {
    case NTX_T_q: return NTX_T_q_in_min;
    case NTX_T_k: return NTX_T_k_in_min;
    case NTX_T_v: return NTX_T_v_in_min;
    case NTX_T_o: return NTX_T_o_in_min;
    case NTX_T_gate: return NTX_T_gate_in_min;
    case NTX_T_up: return NTX_T_up_in_min;
    default: return NTX_T_down_in_min;
    }
}

static void add_clamp(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t width, int min)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_CLAMP, out, in);
    s->width = width;
    ntx__takes(s, (enum ntx_tensor)min, NTX__ALWAYS);
    ntx__takes(s, (enum ntx_tensor)(min + 1), NTX__ALWAYS);
}

/* out = W in, with bounds if the tower has them */
static void tower_product(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in,
                          enum ntx_tensor t)
{
    const struct ntx_tensor_kind *k = &ntx_tensor_kinds[t];
    const int bounds = (int)bounds_of(t);
    if (!hp->tower->bounded) {
        ntx__add_product(l, out, in, t);
        return;
    }
    add_clamp(l, NTX_BUF_Z, in, ntx_width(hp, 0, (enum ntx_dim)k->in), bounds);
    ntx__add_product(l, out, NTX_BUF_Z, t);
    add_clamp(l, out, out, ntx_width(hp, 0, (enum ntx_dim)k->out), bounds + 2);
}

/* x = norm(h), or h = norm(h) */
static void tower_norm(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__tower_block *has,
                       enum ntx_buf out, enum ntx_tensor scale, enum ntx__presence presence)
{
    if (has->rms) {
        ntx__norm(l, out, NTX_BUF_H, scale, presence, 1, hp->n_embd);
        return;
    }
    if (out != NTX_BUF_H)
        ntx__tower_copy(l, out, NTX_BUF_H, hp->n_embd);
    ntx__tower_layernorm(l, out, hp->n_embd, hp->rms_eps, scale, bias_of(scale), presence);
}

void ntx__tower_begin(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__tower_block *has)
{
    const struct ntx_tower *t = hp->tower;
    ntx__tower_copy(l, NTX_BUF_NORMED, NTX_BUF_NORMED, 3 * t->patch * t->patch);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_NORMED, NTX_T_patch);
    if (has->two_moments) { /* a picture is two equal ones, one after the other */
        ntx__add_product(l, NTX_BUF_Z, NTX_BUF_NORMED, NTX_T_patch_2);
        ntx_layer_add(l, NTX_OP_ADD, NTX_BUF_Y, NTX_BUF_Z)->width = hp->n_embd;
    }
    ntx__tower_bias(hp, l, NTX_BUF_Y, NTX_T_patch_bias, has->patch_bias);
    if (has->patch_norm)
        ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_patch_norm, NTX__ALWAYS, 1, hp->n_embd);
    if (t->table != NTX_TOWER_TABLE_NONE) {
        struct ntx_step *s = ntx_layer_add(l, NTX_OP_PLACE, NTX_BUF_Y, NTX_BUF_NONE);
        s->width = hp->n_embd;
        ntx__takes(s, NTX_T_places, NTX__ALWAYS);
        if (t->extra != NTX_TOWER_EXTRA_NONE)
            ntx__takes(s, NTX_T_extra, NTX__ALWAYS);
    }
    ntx__tower_copy(l, NTX_BUF_H, NTX_BUF_Y, hp->n_embd);
    if (has->pre_norm)
        tower_norm(hp, l, has, NTX_BUF_H, NTX_T_pre_norm, NTX__ALWAYS);
}

/* Pairs of a head turn by the angles from `first` on. */
static void add_turn(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf b, enum ntx_rope_kind pairs,
                     uint32_t offset, uint32_t rotated, uint32_t first)
{
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_ROPE, b, b);
    s->heads = b == NTX_BUF_K ? hp->n_head_kv : hp->n_head;
    s->width = hp->head_k;
    s->offset = offset;
    s->rope.rotated = rotated;
    s->rope.first = first;
    s->rope.pairs = (uint8_t)pairs;
}

static void tower_turn(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf b,
                       const struct ntx__tower_block *has)
{
    const uint32_t half = hp->rope_dim / 2;
    if (has->behind) {
        add_turn(hp, l, b, has->pairs, half, half, 0);
        add_turn(hp, l, b, has->pairs, 2 * half, half, half / 2);
        return;
    }
    if (!has->columns_first) {
        add_turn(hp, l, b, has->pairs, 0, hp->rope_dim, 0);
        return;
    }
    add_turn(hp, l, b, has->pairs, 0, half, half / 2);
    add_turn(hp, l, b, has->pairs, half, half, 0);
}

/* One bias of q, k and v together, or three. */
static void tower_biases(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx__presence has)
{
    static const enum ntx_buf of[] = {NTX_BUF_Q, NTX_BUF_K, NTX_BUF_V};
    static const enum ntx_tensor apart[] = {NTX_T_q_bias, NTX_T_k_bias, NTX_T_v_bias};
    for (uint32_t i = 0, from = 0; has != NTX__NEVER && i < 3; i++) {
        struct ntx_step *s = ntx_layer_add(l, NTX_OP_BIAS, of[i], NTX_BUF_NONE);
        s->width = (i ? hp->n_head_kv : hp->n_head) * hp->head_k;
        s->from = hp->qkv_fused ? from : 0;
        from += s->width;
        ntx__takes(s, hp->qkv_fused ? NTX_T_qkv_bias : apart[i], has);
    }
}

static void tower_attention(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__tower_block *has)
{
    tower_norm(hp, l, has, NTX_BUF_X, NTX_T_attn_norm, NTX__ALWAYS);
    tower_product(hp, l, NTX_BUF_Q, NTX_BUF_X, NTX_T_q);
    tower_product(hp, l, NTX_BUF_K, NTX_BUF_X, NTX_T_k);
    tower_product(hp, l, NTX_BUF_V, NTX_BUF_X, NTX_T_v);
    tower_biases(hp, l, has->qkv_bias);
    if (has->qk_norm) {
        ntx__norm(l, NTX_BUF_Q, NTX_BUF_Q, NTX_T_q_norm, NTX__ALWAYS, hp->n_head, hp->head_k);
        ntx__norm(l, NTX_BUF_K, NTX_BUF_K, NTX_T_k_norm, NTX__ALWAYS, hp->n_head_kv, hp->head_k);
    }
    if (has->v_norm)
        ntx__norm(l, NTX_BUF_V, NTX_BUF_V, NTX_T_v, NTX__NEVER, hp->n_head_kv, hp->head_v);
    if (hp->tower->turn != NTX_TOWER_TURN_NONE) {
        tower_turn(hp, l, NTX_BUF_Q, has);
        tower_turn(hp, l, NTX_BUF_K, has);
    }
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_PUT, NTX_BUF_NONE, NTX_BUF_K);
    s->in[1] = NTX_BUF_V;
    s->put.columns = has->view == NTX_TOWER_VIEW_COLUMNS;
    s = ntx_layer_add(l, NTX_OP_ATTEND, NTX_BUF_ATTN, NTX_BUF_Q);
    s->attend.block = has->windowed;
    s->attend.columns = has->view == NTX_TOWER_VIEW_COLUMNS;
    s->attend.band = has->view == NTX_TOWER_VIEW_WHOLE ? 0 : hp->tower->band;
    if (has->view != NTX_TOWER_VIEW_WHOLE)
        ntx__takes(s, NTX_T_sinks, NTX__ALWAYS);
    s->scale = has->v_norm ? 1 : 1.0f / sqrtf((float)hp->head_k);
    s->width = hp->n_head * hp->head_v;
    tower_product(hp, l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_o);
    ntx__tower_bias(hp, l, NTX_BUF_Y, NTX_T_o_bias, has->o_bias);
    if (has->sum_norms)
        ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_attn_post_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_state(hp, l);
}

static void tower_ffn(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__tower_block *has)
{
    tower_norm(hp, l, has, NTX_BUF_X, NTX_T_ffn_norm, NTX__ALWAYS);
    tower_product(hp, l, NTX_BUF_GATE, NTX_BUF_X, has->gated ? NTX_T_gate : NTX_T_up);
    if (has->gated) {
        tower_product(hp, l, NTX_BUF_UP, NTX_BUF_X, NTX_T_up);
        ntx__tower_bias(hp, l, NTX_BUF_GATE, NTX_T_gate_bias, has->ffn_bias);
        ntx__tower_bias(hp, l, NTX_BUF_UP, NTX_T_up_bias, has->ffn_bias);
        struct ntx_step *s = ntx_layer_add(l, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_GATE);
        s->in[1] = NTX_BUF_UP;
        s->width = hp->n_ff;
        s->glu.hidden = (struct ntx_activation){
            .limit = hp->tower->limit, .gate_limit = hp->tower->limit, .act = (uint8_t)has->act};
    } else {
        ntx__tower_bias(hp, l, NTX_BUF_GATE, NTX_T_up_bias, has->ffn_bias);
        ntx__tower_map(l, NTX_BUF_GATE, hp->n_ff, has->map);
    }
    tower_product(hp, l, NTX_BUF_Y, NTX_BUF_GATE, NTX_T_down);
    ntx__tower_bias(hp, l, NTX_BUF_Y, NTX_T_down_bias, has->ffn_bias);
    if (has->sum_norms)
        ntx__norm(l, NTX_BUF_Y, NTX_BUF_Y, NTX_T_ffn_post_norm, NTX__ALWAYS, 1, hp->n_embd);
    ntx__add_state(hp, l);
}

void ntx__tower_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l,
                      const struct ntx__tower_block *has)
{
    if (!layer)
        ntx__tower_begin(&m->hp, l, has);
    tower_attention(&m->hp, l, has);
    tower_ffn(&m->hp, l, has);
    if (layer + 1 < m->hp.n_layers)
        return;
    if (has->mean_behind)
        ntx__mean_norm(&m->hp, l, NTX_BUF_H, NTX_T_post_norm, MEAN_EPS);
    else if (has->post_norm)
        tower_norm(&m->hp, l, has, NTX_BUF_H, NTX_T_post_norm, NTX__ALWAYS);
}

/* ---- the projector */

void ntx__merger_begin(const struct ntx_model *m, struct ntx_layer *l)
{
    ntx__tower_copy(l, NTX_BUF_NORMED, NTX_BUF_NORMED, ntx_tower_in(m));
}

void ntx__merger_end(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l)
{
    ntx__tower_copy(l, NTX_BUF_H, NTX_BUF_Y, hp->tower->out)->offset = layer * hp->tower->out;
}

void ntx__merger_mlp(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf in, enum ntx_buf hidden,
                     enum ntx_tensor first, enum ntx__presence bias)
{
    ntx__add_product(l, hidden, in, first);
    ntx__tower_bias(hp, l, hidden, NTX_T_merge_in_bias, bias);
    ntx__tower_map(l, hidden, hp->tower->hidden, NTX_MAP_GELU_ERF);
    ntx__add_product(l, NTX_BUF_Y, hidden, NTX_T_merge_out);
    ntx__tower_bias(hp, l, NTX_BUF_Y, NTX_T_merge_out_bias, bias);
}

void ntx__merger_convert(const struct ntx_model *m, struct ntx_layer *l)
{
    const struct ntx_tower *t = m->hp.tower;
    ntx__merger_begin(m, l);
    ntx__add_product(l, NTX_BUF_ATTN, NTX_BUF_NORMED, NTX_T_convert_in);
    ntx__tower_bias(&m->hp, l, NTX_BUF_ATTN, NTX_T_convert_in_bias, NTX__ALWAYS);
    ntx__tower_map(l, NTX_BUF_ATTN, t->converted, NTX_MAP_GELU_ERF);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_ATTN, NTX_T_convert_out);
    ntx__tower_bias(&m->hp, l, NTX_BUF_Y, NTX_T_convert_out_bias, NTX__ALWAYS);
    ntx__tower_copy(l, NTX_BUF_H, NTX_BUF_Y, t->state);
}
