/* SPDX-License-Identifier: Apache-2.0 */
/* tower_qwen3vl.c: the tower of Qwen3-VL, Qwen3.5 and Qwen3.6: learned positions, interpolated to the grid, a rotation
 * by row and column, squares of 2 x 2 patches, and deep states for the text model's first layers (DeepStack,
 * arXiv 2406.04334). Source: "Qwen3-VL Technical Report" (arXiv 2511.21631), and transformers' modeling_qwen3_vl. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/arch_impl.h"

/* A layer leaves a deep state if it has a projector. */
static int find_deep(struct ntx__keys *k, struct ntx_tower *t)
{
    char name[64];
    for (uint32_t l = 0; l < k->hp->n_layers; l++) {
        snprintf(name, sizeof name, "v.deepstack.%u.fc1.weight", l);
        if (!ntx_gguf_tensor(k->g, name))
            continue;
        if (t->n_deep == NTX_TOWER_DEEP_MAX || l + 1 == k->hp->n_layers)
            return ntx_err_set(k->err, -ENOTSUP,
                               "tensor '%s': at most %u layers, and not the last, may leave states for the text model",
                               name, NTX_TOWER_DEEP_MAX);
        t->deep[t->n_deep++] = l + 1;
    }
    return 0;
}

static int qwen3vl_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    int rc;
    if ((rc = ntx__tower_merge(k, t, "spatial_merge_size", 2)) || (rc = ntx__tower_side(k, t)) ||
        (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_ALIKE, 10000)) || (rc = ntx__tower_area(k, t, 8, 4096)) ||
        (rc = ntx__tower_hidden(k, t, "mm.0.weight")))
        return rc;
    t->table = NTX_TOWER_TABLE_CORNERS;
    t->begin = "<|vision_start|>";
    t->end = "<|vision_end|>";
    t->mrope = true;
    return find_deep(k, t);
}

static void qwen3vl_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx_hparams *hp = &m->hp;
    const struct ntx_tower *t = hp->tower;
    if (!hp->projects) {
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.two_moments = true,
                                                    .patch_bias = NTX__ALWAYS,
                                                    .post_norm = true,
                                                    .qkv_bias = NTX__ALWAYS,
                                                    .o_bias = NTX__ALWAYS,
                                                    .ffn_bias = NTX__ALWAYS,
                                                    .pairs = NTX_ROPE_NEOX,
                                                    .map = NTX_MAP_GELU});
        return;
    }
    const uint32_t square = t->embd * t->merge * t->merge;
    if (!layer)
        ntx__merger_begin(m, l);
    ntx__tower_copy(l, NTX_BUF_Q_LOW, NTX_BUF_NORMED, square)->from = layer * square;
    if (layer)
        ntx__tower_layernorm(l, NTX_BUF_Q_LOW, square, hp->rms_eps, NTX_T_merge_norm, NTX_T_merge_norm_bias,
                             NTX__ALWAYS);
    ntx__merger_mlp(hp, l, NTX_BUF_Q_LOW, NTX_BUF_ATTN, NTX_T_merge_in, NTX__ALWAYS);
    ntx__merger_end(hp, layer, l);
}

/* Tensors of a deep state's projector. */
static void qwen3vl_name(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t, const char *of, char *name,
                         size_t size)
{
    static const struct {
        enum ntx_tensor t;
        const char *is;
    } deep[] = {{NTX_T_merge_norm, "norm.weight"}, {NTX_T_merge_norm_bias, "norm.bias"},
                {NTX_T_merge_in, "fc1.weight"},    {NTX_T_merge_in_bias, "fc1.bias"},
                {NTX_T_merge_out, "fc2.weight"},   {NTX_T_merge_out_bias, "fc2.bias"}};
    ntx__tower_name(hp, layer, t, of, name, size);
    for (size_t i = 0; hp->projects && layer && i < sizeof deep / sizeof *deep; i++)
        if (deep[i].t == t)
            snprintf(name, size, "v.deepstack.%u.%s", hp->tower->deep[layer - 1] - 1, deep[i].is);
}

const struct ntx__arch ntx__arch_tower_qwen3vl = {
    .tower = qwen3vl_tower, .layer = qwen3vl_layer, .name = qwen3vl_name, .names = {NTX__TOWER_NAMES}};
