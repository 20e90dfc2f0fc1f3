/* SPDX-License-Identifier: Apache-2.0 */
/* gemma4.c: Gemma 4. Like Gemma 3 (gemma.c), but layers without a window have wider heads, fewer K and V
 * heads, and maybe no V matrix. V is normed; scores are not scaled. The last layers may read K and V of earlier ones
 * and have wider FFNs. Experts run beside the dense FFN. Each layer may get its own input of the token, and may
 * scale its output. Rows of an image see one another in layers with a window alone. */
#include <errno.h>
#include <math.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

static int window_keys(struct ntx__keys *k, uint32_t *head_k, uint32_t *head_v)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *pattern = ntx_gguf_find(k->g, ntx__key_of(k, "attention.sliding_window_pattern"));
    int rc;
    if (!pattern || pattern->type != NTX_GGUF_ARR)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing, or no array", k->key);
    if ((rc = ntx__key_windows(k, -1, 1)) ||
        (rc = ntx__key_u32(k, "attention.key_length_swa", hp->head_k, 1, NTX_MAX_HEAD, head_k)) ||
        (rc = ntx__key_u32(k, "attention.value_length_swa", hp->head_v, 1, NTX_MAX_HEAD, head_v)) ||
        (rc = ntx__key_u32(k, "rope.dimension_count_swa", NTX_MIN(hp->rope_dim, *head_k), 2, *head_k,
                           &hp->rope_dim_window)))
        return rc;
    if (*head_k != *head_v || hp->head_k != hp->head_v || hp->rope_dim_window % 2)
        return ntx_err_set(
            k->err, -ENOTSUP,
            "heads of %u and %u values, within a window of %u and %u, of which %u turn, are not supported", hp->head_k,
            hp->head_v, *head_k, *head_v, hp->rope_dim_window);
    hp->rope_factor_window = 1;
    return ntx__key_f32(k, "rope.freq_base_swa", 10000, 1, 1e12f, &hp->rope_base_window);
}

/* The last layers read K and V of the last layer that has them, of those with or without a window like theirs: the
 * two layers before. */
static int share_kv(struct ntx__keys *k, uint32_t n_shared)
{
    struct ntx_hparams *hp = k->hp;
    struct ntx_dims *d = k->m->dims;
    uint32_t own = hp->n_layers - n_shared;
    if (n_shared && own < 2)
        return ntx_err_set(k->err, -EINVAL, "%u of %u layers read what others keep: two at least must keep something",
                           n_shared, hp->n_layers);
    for (uint32_t l = own; l < hp->n_layers; l++) {
        d[l].kv_of = own - (ntx_windowed(hp, l) ? 2 : 1);
        if (ntx_windowed(hp, d[l].kv_of) != ntx_windowed(hp, l) || d[d[l].kv_of].n_head_kv != d[l].n_head_kv)
            return ntx_err_set(k->err, -ENOTSUP,
                               "layer %u would read what layer %u keeps, which is of another kind: not supported", l,
                               d[l].kv_of);
    }
    return 0;
}

static int dims(struct ntx__keys *k, uint32_t head_k, uint32_t head_v)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t n_shared, full = hp->n_layers;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.shared_kv_layers", 0, 0, hp->n_layers, &n_shared)) || (rc = ntx__make_dims(k)))
        return rc;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        if (ntx_windowed(hp, l)) {
            k->m->dims[l].head_k = head_k;
            k->m->dims[l].head_v = head_v;
        } else if (full == hp->n_layers) {
            full = l;
        }
    }
    hp->head_k = NTX_MAX(hp->head_k, head_k);
    hp->head_v = NTX_MAX(hp->head_v, head_v);
    hp->v_of_k = full < hp->n_layers && !ntx__has(k, full, ntx_tensor_kinds[NTX_T_v].name);
    return share_kv(k, n_shared);
}

static int gemma4_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t head_k, head_v;
    int rc;
    if ((rc = window_keys(k, &head_k, &head_v)) || (rc = dims(k, head_k, head_v)) ||
        (rc = ntx__key_u32(k, "embedding_length_per_layer_input", -1, 0, NTX__MAX_WIDTH / hp->n_layers,
                           &hp->n_input)) ||
        (rc = ntx__key_f32(k, "final_logit_softcapping", 30, 0, 1e6f, &hp->logit_cap)))
        return rc;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->score_scale = 1;
    hp->router.norm = true;
    hp->router.scale = 1;
    ntx__find_fused_experts(k);
    return 0;
}

static void gemma4_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    bool windowed = ntx_windowed(hp, l);
    const struct ntx__attention attention = {
        .layer = l,
        .rope = NTX_ROPE_NEOX,
        .qk_norm = NTX__ALWAYS,
        .post_norm = true,
        .scale = 1,
        .turn = windowed ? NTX_ROTATION_WINDOW : NTX_ROTATION_ALL,
        .window = windowed ? hp->window : 0,
        .causal = !windowed,
        .borrows = ntx_dims_of(hp, l).kv_of != l,
        .v_of_k = hp->v_of_k && !windowed,
        .v_norm = ntx_dims_of(hp, l).kv_of == l,
    };
    if (hp->n_input && !l)
        ntx__add_inputs(m, out);
    ntx__add_attention(hp, out, &attention);
    if (hp->n_expert)
        ntx__add_both(m, l, out, NTX_FFN_GELU);
    else
        ntx__add_dense_normed(m, l, out, NTX_FFN_GELU);
    if (hp->n_input)
        ntx__add_input(m, l, out, NTX_FFN_GELU);
    struct ntx_step *s = ntx_layer_add(out, NTX_OP_SCALE, NTX_BUF_H, NTX_BUF_H);
    s->width = hp->n_embd;
    ntx_step_takes(s, NTX_T_layer_scale, true);
}

/* ---- models by name (model/arch.h) */

#define HEADS_SWA "attention.key_length_swa=256 attention.value_length_swa=256 "
static const struct ntx_known models[] = {
    {"gemma-4-e2b", 35, 1536, 0, 8, 1, 512, 262144, 131072, 0, 0, 0,
     "attention.sliding_window=512 attention.sliding_window_pattern=1x4,0 " HEADS_SWA
     "embedding_length_per_layer_input=256 attention.shared_kv_layers=20 feed_forward_length=6144x15,12288x20",
     "blk.4.attn_v.weight"},
    {"gemma-4-e4b", 42, 2560, 10240, 8, 2, 512, 262144, 131072, 0, 0, 0,
     "attention.sliding_window=512 attention.sliding_window_pattern=1x5,0 " HEADS_SWA
     "embedding_length_per_layer_input=256 attention.shared_kv_layers=18",
     "blk.5.attn_v.weight"},
    {"gemma-4-26b-a4b", 30, 2816, 2112, 16, 0, 512, 262144, 262144, 128, 8, 704,
     "attention.sliding_window=1024 attention.sliding_window_pattern=1x5,0 " HEADS_SWA
     "embedding_length_per_layer_input=0 attention.head_count_kv=8x5,2",
     ""},
    {"gemma-4-31b", 60, 5376, 21504, 32, 0, 512, 262144, 262144, 0, 0, 0,
     "attention.sliding_window=1024 attention.sliding_window_pattern=1x5,0 " HEADS_SWA
     "embedding_length_per_layer_input=0 attention.head_count_kv=16x5,4",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_gemma4 = {
    .models = models,
    .experts = NTX__MAYBE,
    .per_layer = true,
    .keys = gemma4_keys,
    .layer = gemma4_layer,
    .own = {"attention.sliding_window", "attention.sliding_window_pattern", "final_logit_softcapping",
            "rope.freq_base_swa", "attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa",
            "attention.shared_kv_layers"},
};
