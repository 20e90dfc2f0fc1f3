/* SPDX-License-Identifier: Apache-2.0 */
/* tower_deepseek4v.c: the tower of DeepSeek-V4-Flash-Vision: pictures of any shape, a rotation by row and column, RMS
 * norms, and squares of 3 x 3 patches, of which those at the border may be incomplete. Four learned rows stand around
 * the others and between them. Source: llama.cpp's converter, and the names of the published tensors. */
#include <errno.h>

#include "model/arch/arch_impl.h"
#include "model/quant.h"

enum { ROWS = 384 }; /* most rows of a picture, as its processor has it */

static int find_marks(struct ntx__keys *k, struct ntx_tower *t)
{
    static const char *const names[NTX_TOWER_MARKS] = {[NTX_TOWER_MARK_BEGIN] = "v.token_embd.img_start",
                                                       [NTX_TOWER_MARK_END] = "v.token_embd.img_end",
                                                       [NTX_TOWER_MARK_LINE] = "v.image_newline",
                                                       [NTX_TOWER_MARK_PAD] = "v.token_embd.img_pad"};
    for (int i = 0; i < NTX_TOWER_MARKS; i++) {
        const struct ntx_gguf_tensor *m = ntx_gguf_tensor(k->g, names[i]);
        if (!m || m->type != NTX_F32 || m->ne[0] != t->out || ntx_gguf_rows(m) != 1)
            return ntx_err_set(k->err, -EINVAL, "tensor '%s' is %s", names[i],
                               m ? "not an F32 vector as wide as a row" : "missing");
        t->marks[i] = (uint32_t)(m - ntx_gguf_tensor_at(k->g, 0));
    }
    t->marked = true;
    return 0;
}

static int deepseek4v_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    uint32_t least;
    int rc;
    if ((rc = ntx__tower_merge(k, t, "projector.scale_factor", 3)) ||
        (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_ALIKE, 10000)) ||
        (rc = ntx__key_u32(k, "image_min_pixels", 1, 1, NTX_TOWER_SIDE_MAX * NTX_TOWER_SIDE_MAX, &least)) ||
        (rc = find_marks(k, t)))
        return rc;
    t->min_pixels = least;
    t->max_pixels = (uint64_t)ROWS * t->patch * t->merge * t->patch * t->merge;
    t->most_rows = ROWS;
    t->fit = NTX_TOWER_FIT_ROWS;
    t->join = NTX_TOWER_JOIN_VALUES;
    t->bidirectional = true;
    return ntx__tower_hidden(k, t, "mm.1.weight");
}

static void deepseek4v_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects) {
        ntx__merger_begin(m, l);
        ntx__merger_mlp(&m->hp, l, NTX_BUF_NORMED, NTX_BUF_ATTN, NTX_T_merge_in, NTX__ALWAYS);
        ntx__merger_end(&m->hp, layer, l);
        return;
    }
    ntx__tower_layer(m, layer, l,
                     &(struct ntx__tower_block){.post_norm = true,
                                                .rms = true,
                                                .gated = true,
                                                .patch_bias = NTX__MAYBE,
                                                .qkv_bias = NTX__MAYBE,
                                                .o_bias = NTX__MAYBE,
                                                .ffn_bias = NTX__MAYBE,
                                                .pairs = NTX_ROPE_NEOX,
                                                .act = NTX_FFN_SILU});
}

const struct ntx__arch ntx__arch_tower_deepseek4v = {
    .tower = deepseek4v_tower,
    .layer = deepseek4v_layer,
    .name = ntx__tower_name,
    .names = {NTX__TOWER_NAMES, [NTX_T_merge_in] = "mm.1.weight", [NTX_T_merge_in_bias] = "mm.1.bias",
              [NTX_T_merge_out] = "mm.2.weight", [NTX_T_merge_out_bias] = "mm.2.bias"}};
