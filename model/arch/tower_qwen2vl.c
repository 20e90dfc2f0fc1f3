/* SPDX-License-Identifier: Apache-2.0 */
/* tower_qwen2vl.c: the towers of Qwen2-VL (arXiv 2409.12191) and Qwen2.5-VL (arXiv 2502.13923): a rotation by row and
 * column, no learned positions, and squares of 2 x 2 patches. The second has RMS norms, gated FFNs, and layers that
 * attend within windows. */
#include "common/util.h"
#include "model/arch/arch_impl.h"

static int qwen2vl_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    int rc;
    if ((rc = ntx__tower_merge(k, t, "spatial_merge_size", 2)) ||
        (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_ALIKE, 10000)) || (rc = ntx__tower_area(k, t, 8, 4096)))
        return rc;
    t->begin = "<|vision_start|>";
    t->end = "<|vision_end|>";
    t->mrope = true;
    return ntx__tower_hidden(k, t, "mm.0.weight");
}

/* Windows are 112 pixels wide in all published models. */
static int qwen25vl_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    uint32_t pixels;
    int rc = qwen2vl_tower(k, t);
    if (rc || (rc = ntx__key_u32(k, "n_wa_pattern", -1, 1, NTX_MAX_LAYERS, &t->whole_every)) ||
        (rc = ntx__key_u32(k, "window_size", 112, 1, NTX_TOWER_SIDE_MAX, &pixels)))
        return rc;
    t->window = NTX_MAX(pixels / (t->patch * t->merge), 1u);
    return 0;
}

static void qwen2vl_merger(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    ntx__merger_begin(m, l);
    ntx__merger_mlp(&m->hp, l, NTX_BUF_NORMED, NTX_BUF_ATTN, NTX_T_merge_in, NTX__ALWAYS);
    ntx__merger_end(&m->hp, layer, l);
}

static void qwen2vl_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects)
        qwen2vl_merger(m, layer, l);
    else
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.two_moments = true,
                                                    .post_norm = true,
                                                    .qkv_bias = NTX__ALWAYS,
                                                    .o_bias = NTX__ALWAYS,
                                                    .ffn_bias = NTX__ALWAYS,
                                                    .pairs = NTX_ROPE_NEOX,
                                                    .map = m->hp.tower->gelu ? NTX_MAP_GELU : NTX_MAP_GELU_QUICK});
}

static void qwen25vl_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects)
        qwen2vl_merger(m, layer, l);
    else
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.two_moments = true,
                                                    .post_norm = true,
                                                    .rms = true,
                                                    .windowed = (layer + 1) % m->hp.tower->whole_every,
                                                    .gated = true,
                                                    .qkv_bias = NTX__ALWAYS,
                                                    .o_bias = NTX__ALWAYS,
                                                    .ffn_bias = NTX__ALWAYS,
                                                    .pairs = NTX_ROPE_NEOX,
                                                    .act = NTX_FFN_SILU});
}

const struct ntx__arch ntx__arch_tower_qwen2vl = {
    .tower = qwen2vl_tower, .layer = qwen2vl_layer, .name = ntx__tower_name, .names = {NTX__TOWER_NAMES}};
const struct ntx__arch ntx__arch_tower_qwen25vl = {
    .tower = qwen25vl_tower, .layer = qwen25vl_layer, .name = ntx__tower_name, .names = {NTX__TOWER_NAMES}};
