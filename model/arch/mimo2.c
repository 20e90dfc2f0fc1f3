/* SPDX-License-Identifier: Apache-2.0 */
/* mimo2.c: MiMo-V2 Flash, 2.5 and 2.5 Pro: heads of K wider than those of V, RoPE of a part of each head; layers with
 * a window have other numbers of K and V heads, another RoPE base, and attention sinks; V is scaled. Dense layers, or
 * experts chosen by a sigmoid with a bias for the choice. Next-token blocks are left out. */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

struct own {
    float v_scale;              /* 0: none */
    bool dense[NTX_MAX_LAYERS]; /* layers without a router */
};

static int window_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    const struct ntx_gguf_kv *pattern = ntx_gguf_find(k->g, ntx__key_of(k, "attention.sliding_window_pattern"));
    int rc;
    if (!pattern || pattern->type != NTX_GGUF_ARR)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is missing, or no array", k->key);
    if ((rc = ntx__key_windows(k, -1, 1)) || (rc = ntx__key_window_rope(k)))
        return rc;
    return hp->rope_scaling == NTX_ROPE_SCALE_NONE
               ? 0
               : ntx_err_set(k->err, -ENOTSUP, "key '%s': a scaled %s model is not supported",
                             ntx__key_of(k, "rope.scaling.type"), k->name);
}

/* Files do not say which layers are dense: those have no router. */
static void find_dense(struct ntx__keys *k, struct own *own)
{
    const bool told = ntx_gguf_find(k->g, ntx__key_of(k, "leading_dense_block_count"));
    for (uint32_t l = 0; l < k->hp->n_layers; l++)
        own->dense[l] = told ? l < k->hp->n_dense : !ntx__has(k, l, ntx_tensor_kinds[NTX_T_router].name);
}

static int mimo2_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    struct own *own = ntx__own(k, sizeof *own);
    int rc = own ? ntx__key_nextn(k) : -ENOMEM;
    if (rc || (rc = window_keys(k)) || (rc = ntx__make_dims(k)) || (rc = ntx__key_dense(k)) ||
        (rc = ntx__key_f32(k, "attention.value_scale", 0, 0, 1e3f, &own->v_scale)))
        return rc;
    find_dense(k, own);
    if (own->v_scale == 1)
        own->v_scale = 0;
    hp->router.norm = true;
    hp->qkv_fused = ntx__has(k, 0, ntx_whole_names[NTX_WHOLE_qkv]);
    return 0;
}

static void mimo2_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct own *own = m->hp.own;
    const bool windowed = ntx_windowed(&m->hp, l);
    const struct ntx__attention attention = {.layer = l,
                                             .rope = NTX_ROPE_NEOX,
                                             .sinks = NTX__MAYBE,
                                             .v_scale = own ? own->v_scale : 0,
                                             .turn = windowed ? NTX_ROTATION_WINDOW : NTX_ROTATION_ALL,
                                             .window = windowed ? m->hp.window : 0};
    ntx__add_attention(&m->hp, out, &attention);
    if (own ? own->dense[l] : l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__MAYBE});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"mimo-v2.5", 48, 4096, 16384, 64, 0, 0, 152576, 262144, 256, 8, 2048,
     "attention.head_count_kv=4,8x4,4,8x5,4,8x5,4,8x5,4,8x5,4,8x5,4,8x5,4,8x5,4 attention.key_length=192 "
     "attention.value_length=128 "
     "attention.sliding_window=128 "
     "attention.sliding_window_pattern=0,1x4,0,1x5,0,1x5,0,1x5,0,1x5,0,1x5,0,1x5,0,1x5,0 "
     "rope.dimension_count=64 leading_dense_block_count=1 attention.value_scale=0.707",
     ""},
    {0},
};

const struct ntx__arch ntx__arch_mimo2 = {
    .models = models,
    .experts = NTX__ALWAYS,
    .score = NTX_SCORE_SIGMOID,
    .per_layer = true,
    .keys = mimo2_keys,
    .layer = mimo2_layer,
    .own = {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa",
            "rope.dimension_count_swa", "leading_dense_block_count", "nextn_predict_layers", "attention.value_scale"},
};
