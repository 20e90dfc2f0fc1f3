/* SPDX-License-Identifier: Apache-2.0 */
/* tower.c: keys and tensors of projector files (mmproj): a small vision tower of the KIND in --arch mmproj-KIND. States
 * are --state-width values (48), in heads of 16 (twice as many in mimovl); the text model is --embd wide. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/quant.h"
#include "tests/mkmodel/describe.h"

enum { PATCH = 4, MERGE = 2, SIDE = 6, FF = 80, HIDDEN = 64, HEAD = 16, BAND = 9 };

static const struct kind {
    const char *name;
    bool two_moments, gated, rms, fused, biases, places, places_bias, deep, windows, silu, gelu;
    bool head_norms, sum_norms, bounds, limit, kimi; /* norms of heads, of sums; bounds of matrices, of FFNs */
    bool pre, extra;                                 /* a norm before the layers; a row without a patch */
    bool bands;                                      /* of patches that one sees, in some layers */
    bool marks;                                      /* learned rows around those of a picture */
    const char *post, *merge_key;                    /* the norm behind the last layer, or NULL */
} kinds[] = {
    {.name = "qwen2vl_merger",
     .two_moments = true,
     .biases = true,
     .post = "v.post_ln",
     .merge_key = "spatial_merge_size"},
    {.name = "qwen2.5vl_merger",
     .two_moments = true,
     .gated = true,
     .rms = true,
     .biases = true,
     .windows = true,
     .silu = true,
     .post = "v.post_ln",
     .merge_key = "spatial_merge_size"},
    {.name = "qwen3vl_merger",
     .two_moments = true,
     .fused = true,
     .biases = true,
     .places = true,
     .places_bias = true,
     .deep = true,
     .gelu = true,
     .post = "v.post_ln",
     .merge_key = "spatial_merge_size"},
    {.name = "glm4v",
     .two_moments = true,
     .gated = true,
     .rms = true,
     .fused = true,
     .places = true,
     .places_bias = true,
     .silu = true,
     .post = "v.post_ln",
     .merge_key = "spatial_merge_size"},
    {.name = "glm5v",
     .two_moments = true,
     .gated = true,
     .rms = true,
     .fused = true,
     .places_bias = true,
     .silu = true,
     .head_norms = true,
     .limit = true,
     .post = "v.post_ln",
     .merge_key = "spatial_merge_size"},
    {.name = "kimik25",
     .fused = true,
     .biases = true,
     .places = true,
     .places_bias = true,
     .gelu = true,
     .kimi = true,
     .post = "v.post_ln",
     .merge_key = "projector.scale_factor"},
    {.name = "gemma3",
     .biases = true,
     .places = true,
     .places_bias = true,
     .gelu = true,
     .post = "v.post_ln",
     .merge_key = "projector.scale_factor"},
    {.name = "gemma4v",
     .gated = true,
     .rms = true,
     .gelu = true,
     .head_norms = true,
     .sum_norms = true,
     .bounds = true,
     .merge_key = "projector.scale_factor"},
    {.name = "mimovl",
     .two_moments = true,
     .gated = true,
     .rms = true,
     .fused = true,
     .biases = true,
     .silu = true,
     .bands = true,
     .post = "v.post_ln",
     .merge_key = "spatial_merge_size"},
    {.name = "deepseek4v",
     .gated = true,
     .rms = true,
     .fused = true,
     .silu = true,
     .marks = true,
     .post = "v.post_ln",
     .merge_key = "projector.scale_factor"},
    {.name = "minimax_m3",
     .two_moments = true,
     .biases = true,
     .gelu = true,
     .pre = true,
     .merge_key = "spatial_merge_size"},
    {.name = "llama4",
     .biases = true,
     .gelu = true,
     .pre = true,
     .extra = true,
     .post = "v.post_ln",
     .merge_key = "projector.scale_factor"},
    {.name = "pixtral",
     .gated = true,
     .rms = true,
     .silu = true,
     .pre = true,
     .post = "mm.input_norm",
     .merge_key = "spatial_merge_size"},
};

struct maker {
    struct mk_file *f;
    const struct mk_options *o;
    const struct kind *k;
    uint32_t state, heads, kv_heads;
};

static const struct kind *kind_called(const char *name)
{
    for (size_t i = 0; !strncmp(name, MK_TOWER, strlen(MK_TOWER)) && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name + strlen(MK_TOWER)))
            return &kinds[i];
    return NULL;
}

bool mk_is_tower(const char *arch) { return kind_called(arch); }

static void add_vector(struct maker *m, const char *stem, const char *end, uint32_t n, float mean)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", stem, end);
    struct mk_tensor *t = mk_tensor_add(m->f, name, NTX_F32, n, 0, mean != 0 ? 0.1f : 0.2f);
    if (t)
        t->mean = mean;
}

static void add_matrix_of(struct maker *m, const char *stem, uint32_t n_in, uint32_t n_out, bool bias)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", stem);
    uint32_t type = NTX_F32;
    if (!strcmp(m->o->type, "F16"))
        type = NTX_F16;
    else if (!strcmp(m->o->type, "Q8_0") && n_in % 32 == 0)
        type = NTX_Q8_0;
    mk_tensor_add(m->f, name, type, n_in, n_out, 1 / sqrtf((float)n_in));
    if (bias)
        add_vector(m, stem, "bias", n_out, 0);
}

static void add_tower_norm(struct maker *m, const char *stem, uint32_t n, bool bias)
{
    add_vector(m, stem, "weight", n, 1);
    if (bias)
        add_vector(m, stem, "bias", n, 0);
}

static void add_patches(struct maker *m, const char *name)
{
    struct mk_tensor *t = mk_tensor_add(m->f, name, NTX_F32, PATCH, PATCH, 0.3f);
    if (!t)
        return;
    t->n_dims = 4;
    t->ne[2] = 3;
    t->ne[3] = m->state;
}

static void add_places(struct maker *m, uint32_t n, uint32_t each)
{
    struct mk_tensor *t = mk_tensor_add(m->f, "v.position_embd.weight", NTX_F32, m->state, n, 0.5f);
    if (!t || each == 1)
        return;
    t->n_dims = 3;
    t->ne[2] = each;
}

/* Bounds that some values exceed. */
static void add_bounds(struct maker *m, const char *stem)
{
    add_vector(m, stem, "input_min", 1, -1.5f);
    add_vector(m, stem, "input_max", 1, 1.5f);
    add_vector(m, stem, "output_min", 1, -2);
    add_vector(m, stem, "output_max", 1, 2);
}

static void add_more_norms(struct maker *m, uint32_t l)
{
    static const char *const of[] = {"attn_q_norm", "attn_k_norm", "attn_post_norm", "ffn_post_norm"};
    char stem[48];
    for (int i = 0; i < (m->k->sum_norms ? 4 : 2); i++) {
        snprintf(stem, sizeof stem, "v.blk.%u.%s", l, of[i]);
        add_vector(m, stem, "weight", i < 2 ? HEAD : m->state, 1);
    }
}

/* All patches, and bands by rows and by columns. */
static int32_t view_of(uint32_t layer) { return (int32_t)((layer + 1) % 3) - 1; }

static void add_block(struct maker *m, uint32_t l)
{
    const struct kind *k = m->k;
    static const char *const apart[] = {"attn_q", "attn_k", "attn_v"}, *const all[] = {"attn_q",   "attn_k",   "attn_v",
                                                                                       "attn_out", "ffn_gate", "ffn_up",
                                                                                       "ffn_down"};
    char stem[48];
#define NAMED(what) (snprintf(stem, sizeof stem, "v.blk.%u.%s", l, what), stem)
    for (int i = 0; k->bounds && i < 7; i++)
        add_bounds(m, NAMED(all[i]));
    if (k->head_norms)
        add_more_norms(m, l);
    add_tower_norm(m, NAMED("ln1"), m->state, !k->rms);
    if (k->fused)
        add_matrix_of(m, NAMED("attn_qkv"), m->state, (m->heads + 2 * m->kv_heads) * HEAD, k->biases);
    for (int i = 0; i < 3 && !k->fused; i++)
        add_matrix_of(m, NAMED(apart[i]), m->state, m->state, k->biases);
    add_matrix_of(m, NAMED("attn_out"), m->heads * HEAD, m->state, k->biases);
    if (k->bands && view_of(l) >= 0)
        mk_tensor_add(m->f, NAMED("attn_sinks"), NTX_F32, m->heads, 0, 1);
    add_tower_norm(m, NAMED("ln2"), m->state, !k->rms);
    if (k->gated)
        add_matrix_of(m, NAMED("ffn_gate"), m->state, FF, k->biases);
    add_matrix_of(m, NAMED("ffn_up"), m->state, FF, k->biases);
    add_matrix_of(m, NAMED("ffn_down"), FF, m->state, k->biases);
#undef NAMED
}

/* GLM's projector, which begins with a convolution over the patches of a square. */
static void add_squares(struct maker *m)
{
    const uint32_t out = m->o->embd;
    struct mk_tensor *t = mk_tensor_add(m->f, "mm.patch_merger.weight", NTX_F32, MERGE, MERGE, 0.07f);
    if (t) {
        t->n_dims = 4;
        t->ne[2] = m->state;
        t->ne[3] = out;
    }
    add_vector(m, "mm.patch_merger", "bias", out, 0);
    add_matrix_of(m, "mm.model.fc", out, out, false);
    add_tower_norm(m, "mm.post_norm", out, true);
    add_matrix_of(m, "mm.gate", out, HIDDEN, false);
    add_matrix_of(m, "mm.up", out, HIDDEN, false);
    add_matrix_of(m, "mm.down", HIDDEN, out, false);
}

static void add_projector(struct maker *m)
{
    const uint32_t square = m->state * MERGE * MERGE, out = m->o->embd;
    if (!strcmp(m->k->name, "gemma3")) {
        add_vector(m, "mm.soft_emb_norm", "weight", m->state, 1);
        mk_tensor_add(m->f, "mm.input_projection.weight", NTX_F16, out, m->state, 1 / sqrtf((float)m->state));
        return;
    }
    if (!strcmp(m->k->name, "gemma4v")) {
        add_vector(m, "v", "std_bias", m->state, 0);
        add_vector(m, "v", "std_scale", m->state, 1);
        add_matrix_of(m, "mm.input_projection", m->state, out, false);
        return;
    }
    if (m->k->extra) {
        add_matrix_of(m, "mm.model.mlp.1", square, HIDDEN, false);
        add_matrix_of(m, "mm.model.mlp.2", HIDDEN, HIDDEN, false);
        add_matrix_of(m, "mm.model.fc", HIDDEN, out, false);
        return;
    }
    if (!strcmp(m->k->name, "minimax_m3")) {
        add_matrix_of(m, "mm.1", m->state, HIDDEN, true);
        add_matrix_of(m, "mm.2", HIDDEN, out, true);
        add_matrix_of(m, "mm.merger.fc1", out * MERGE * MERGE, HIDDEN, true);
        add_matrix_of(m, "mm.merger.fc2", HIDDEN, out, true);
        return;
    }
    if (m->k->marks) {
        static const char *const marks[] = {"v.token_embd.img_start", "v.token_embd.img_end", "v.image_newline",
                                            "v.token_embd.img_pad"};
        for (int i = 0; i < 4; i++)
            mk_tensor_add(m->f, marks[i], NTX_F32, out, 0, 1);
        add_matrix_of(m, "mm.1", square, HIDDEN, true);
        add_matrix_of(m, "mm.2", HIDDEN, out, true);
        return;
    }
    if (m->k->kimi) {
        add_tower_norm(m, "mm.input_norm", m->state, true);
        add_matrix_of(m, "mm.1", square, HIDDEN, true);
        add_matrix_of(m, "mm.2", HIDDEN, out, true);
        return;
    }
    if (!strncmp(m->k->name, "glm", 3)) {
        add_squares(m);
        return;
    }
    if (!strcmp(m->k->name, "pixtral")) {
        mk_tensor_add(m->f, "v.token_embd.img_break", NTX_F32, out, 0, 1);
        add_matrix_of(m, "mm.patch_merger", square, m->state, false);
        add_matrix_of(m, "mm.1", m->state, HIDDEN, false);
        add_matrix_of(m, "mm.2", HIDDEN, out, false);
        return;
    }
    add_matrix_of(m, "mm.0", square, HIDDEN, !m->k->bands);
    add_matrix_of(m, "mm.2", HIDDEN, out, !m->k->bands);
    if (!m->k->deep)
        return;
    add_tower_norm(m, "v.deepstack.1.norm", square, true);
    add_matrix_of(m, "v.deepstack.1.fc1", square, HIDDEN, true);
    add_matrix_of(m, "v.deepstack.1.fc2", HIDDEN, out, true);
}

static void tower_number(struct maker *m, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "clip.vision.%s", suffix);
    mk_kv_u32(m->f, key, v);
}

static void add_bands(struct maker *m)
{
    enum { LAYERS = 16 };
    int32_t views[LAYERS];
    for (uint32_t l = 0; l < LAYERS; l++)
        views[l] = view_of(l);
    tower_number(m, "attention.head_count_kv", m->kv_heads);
    tower_number(m, "window_size", BAND);
    tower_number(m, "image_min_pixels", MERGE * PATCH * MERGE * PATCH);
    tower_number(m, "image_max_pixels", 1024 * MERGE * PATCH * MERGE * PATCH);
    mk_kv_arr(m->f, "clip.vision.wa_pattern_mode", NTX_GGUF_I32, views, m->o->layers < LAYERS ? m->o->layers : LAYERS);
}

static void add_tower_keys(struct maker *m)
{
    const float half[] = {0.5f, 0.5f, 0.5f}, none[] = {0, 0, 0}, one[] = {1, 1, 1};
    mk_kv_str(m->f, "general.architecture", "clip");
    mk_kv_str(m->f, "general.type", "mmproj");
    mk_kv_str(m->f, "general.name", m->o->name);
    mk_kv_str(m->f, "clip.projector_type", m->k->name);
    mk_kv_bool(m->f, "clip.has_vision_encoder", true);
    mk_kv_bool(m->f, "clip.use_gelu", m->k->gelu);
    mk_kv_bool(m->f, "clip.use_silu", m->k->silu);
    tower_number(m, "block_count", m->o->layers);
    tower_number(m, "embedding_length", m->state);
    tower_number(m, "feed_forward_length", FF);
    tower_number(m, "attention.head_count", m->heads);
    tower_number(m, "projection_dim", m->o->embd);
    tower_number(m, "image_size", SIDE * PATCH);
    tower_number(m, "patch_size", PATCH);
    tower_number(m, m->k->merge_key, MERGE);
    if (!strcmp(m->k->name, "gemma4v"))
        tower_number(m, "image_max_pixels", SIDE * SIDE * MERGE * PATCH * MERGE * PATCH);
    if (m->k->limit) {
        tower_number(m, "image_min_pixels", MERGE * PATCH * MERGE * PATCH);
        tower_number(m, "image_max_pixels", 4 * SIDE * SIDE * MERGE * PATCH * MERGE * PATCH);
        mk_kv_f32(m->f, "clip.vision.swiglu_clamp", 0.5f);
    }
    if (m->k->bands)
        add_bands(m);
    if (m->k->marks)
        tower_number(m, "image_min_pixels", 64 * MERGE * PATCH * MERGE * PATCH);
    if (m->k->windows)
        tower_number(m, "n_wa_pattern", 2);
    mk_kv_f32(m->f, "clip.vision.attention.layer_norm_epsilon", 1e-5f);
    mk_kv_arr(m->f, "clip.vision.image_mean", NTX_GGUF_F32, m->k->sum_norms ? none : half, 3);
    mk_kv_arr(m->f, "clip.vision.image_std", NTX_GGUF_F32, m->k->sum_norms ? one : half, 3);
}

void mk_describe_tower(struct mk_file *f, const struct mk_options *o)
{
    struct maker m = {.f = f, .o = o, .k = kind_called(o->arch), .state = o->state_width ? o->state_width : 48};
    m.heads = m.kv_heads = m.state / HEAD;
    if (m.k->bands) { /* wider than a state, and several of q for one of K and V */
        m.heads *= 2;
        m.kv_heads = m.heads / 2;
    }
    f->version = o->version;
    f->seed = o->seed;
    add_tower_keys(&m);
    if (m.k->extra)
        mk_tensor_add(m.f, "v.patch_embd.weight", NTX_F32, 3 * PATCH * PATCH, m.state, 0.3f);
    else
        add_patches(&m, "v.patch_embd.weight");
    if (m.k->two_moments)
        add_patches(&m, "v.patch_embd.weight.1");
    if (m.k->places_bias)
        add_vector(&m, "v.patch_embd", "bias", m.state, 0);
    if (m.k->places)
        add_places(&m, m.k->kimi ? SIDE : SIDE * SIDE, m.k->kimi ? SIDE : 1);
    if (!strcmp(m.k->name, "gemma4v"))
        add_places(&m, SIDE * SIDE * MERGE, 2); /* by column, and by row */
    if (m.k->extra) {
        mk_tensor_add(m.f, "v.class_embd", NTX_F32, m.state, 0, 1);
        add_places(&m, SIDE * SIDE + 1, 1);
    }
    if (m.k->pre)
        add_tower_norm(&m, "v.pre_ln", m.state, !m.k->rms);
    if (!strcmp(m.k->name, "glm4v"))
        add_tower_norm(&m, "v.norm_embd", m.state, false);
    for (uint32_t l = 0; l < o->layers; l++)
        add_block(&m, l);
    if (m.k->post)
        add_tower_norm(&m, m.k->post, m.state, !m.k->rms);
    add_projector(&m);
}
