/* SPDX-License-Identifier: Apache-2.0 */
/* tower_gemma4.c: the tower of Gemma 4: pictures of any shape, with learned positions of the row and of the column, and
 * a rotation by both. The mean of each square's states is multiplied by one matrix. In the smaller models the inputs
 * and outputs of each matrix of a layer are bounded. Source: transformers' modeling_gemma4. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "model/arch/arch_impl.h"

enum { MOST = 280 }; /* rows of a picture, as its processor has it without an option */

/* The file's mean and deviation are those of values from 0 to 1; the model itself takes -1 to 1. */
static void widen_range(struct ntx_tower *t)
{
    for (int i = 0; i < 3; i++) {
        t->mean[i] += t->deviation[i] / 2;
        t->deviation[i] /= 2;
    }
}

static int gemma4_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    int rc;
    if ((rc = ntx__tower_merge(k, t, "projector.scale_factor", 3)) || (rc = ntx__tower_area(k, t, 1, MOST)) ||
        (rc = ntx__tower_sides(k, t)) || (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_ALIKE, 100)))
        return rc;
    t->bounded = ntx_gguf_tensor(k->g, "v.blk.0.attn_q.input_min");
    t->fit = NTX_TOWER_FIT_FILL;
    t->table = NTX_TOWER_TABLE_SIDES;
    t->begin = "<|image>";
    t->end = "<image|>";
    t->bidirectional = true;
    widen_range(t);
    return 0;
}

static void gemma4_merger(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx_tower *t = m->hp.tower;
    ntx__merger_begin(m, l);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_MIX, NTX_BUF_Q_LOW, NTX_BUF_NORMED);
    s->heads = t->merge * t->merge;
    s->width = t->embd;
    ntx__tower_copy(l, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW, t->embd)->scale = sqrtf((float)t->embd);
    if (ntx_gguf_tensor(m->gguf, ntx_tensor_kinds[NTX_T_std_scale].name)) {
        s = ntx_layer_add(l, NTX_OP_AFFINE, NTX_BUF_Q_LOW, NTX_BUF_NONE);
        s->width = t->embd;
        ntx__takes(s, NTX_T_std_scale, NTX__ALWAYS);
        ntx__takes(s, NTX_T_std_bias, NTX__ALWAYS);
    }
    ntx__norm(l, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW, NTX_T_state_norm, NTX__NEVER, 1, t->embd);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_Q_LOW, NTX_T_state_out);
    ntx__merger_end(&m->hp, layer, l);
}

static void gemma4_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects)
        gemma4_merger(m, layer, l);
    else
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.qk_norm = true,
                                                    .v_norm = true,
                                                    .sum_norms = true,
                                                    .columns_first = true,
                                                    .rms = true,
                                                    .gated = true,
                                                    .pairs = NTX_ROPE_NEOX,
                                                    .act = NTX_FFN_GELU});
}

const struct ntx__arch ntx__arch_tower_gemma4 = {
    .tower = gemma4_tower,
    .layer = gemma4_layer,
    .name = ntx__tower_name,
    .names = {NTX__TOWER_NAMES, [NTX_T_attn_post_norm] = "attn_post_norm.weight",
              [NTX_T_ffn_post_norm] = "ffn_post_norm.weight"}};
