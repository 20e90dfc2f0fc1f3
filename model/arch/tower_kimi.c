/* SPDX-License-Identifier: Apache-2.0 */
/* tower_kimi.c: MoonViT, the tower of Kimi K2.5 and later, and of GLM-5.2-V: learned positions, interpolated
 * bicubically, a rotation by column and row, and a norm of each state before a square's states are joined. Source:
 * transformers' modeling_kimi_k25; "Kimi-VL Technical Report" (arXiv 2504.07491). */
#include "model/arch/arch_impl.h"

enum { SIDE = 512 }; /* most patches of a side, as its processor has it */

static int kimi_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    int rc;
    if ((rc = ntx__tower_merge(k, t, "projector.scale_factor", 2)) || (rc = ntx__tower_side(k, t)) ||
        (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_ALIKE, 10000)) || (rc = ntx__tower_area(k, t, 1, 4096)) ||
        (rc = ntx__tower_hidden(k, t, "mm.1.weight")))
        return rc;
    t->table = NTX_TOWER_TABLE_CENTRES;
    t->fit = NTX_TOWER_FIT_PADDED;
    t->size = SIDE * t->patch;
    t->begin = "<|media_begin|>image<|media_content|>";
    t->end = "<|media_end|>";
    t->glm_begin = "<|begin_of_image|>";
    t->glm_end = "<|end_of_image|>";
    return 0;
}

/* llama.cpp's converter has moved the pairs that go by the column before the others. */
static void kimi_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx_hparams *hp = &m->hp;
    if (hp->projects) {
        ntx__merger_begin(m, l);
        ntx__merger_mlp(hp, l, NTX_BUF_NORMED, NTX_BUF_ATTN, NTX_T_merge_in, NTX__ALWAYS);
        ntx__merger_end(hp, layer, l);
        return;
    }
    ntx__tower_layer(m, layer, l,
                     &(struct ntx__tower_block){.post_norm = true,
                                                .columns_first = true,
                                                .patch_bias = NTX__ALWAYS,
                                                .qkv_bias = NTX__ALWAYS,
                                                .o_bias = NTX__ALWAYS,
                                                .ffn_bias = NTX__ALWAYS,
                                                .pairs = NTX_ROPE_NORM,
                                                .map = NTX_MAP_GELU});
    if (layer + 1 == hp->n_layers)
        ntx__tower_layernorm(l, NTX_BUF_H, hp->n_embd, hp->rms_eps, NTX_T_state_norm, NTX_T_state_norm_bias,
                             NTX__ALWAYS);
}

const struct ntx__arch ntx__arch_tower_kimik25 = {
    .tower = kimi_tower,
    .layer = kimi_layer,
    .name = ntx__tower_name,
    .names = {NTX__TOWER_NAMES, [NTX_T_merge_in] = "mm.1.weight", [NTX_T_merge_in_bias] = "mm.1.bias",
              [NTX_T_merge_out] = "mm.2.weight", [NTX_T_merge_out_bias] = "mm.2.bias"}};
