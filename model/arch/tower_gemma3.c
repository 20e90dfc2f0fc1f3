/* SPDX-License-Identifier: Apache-2.0 */
/* tower_gemma3.c: the tower of Gemma 3 (arXiv 2503.19786): SigLIP (arXiv 2303.15343) over pictures of one size, the
 * mean of each square's states, and one matrix, which files have transposed. */
#include <errno.h>

#include "model/arch/arch_impl.h"

static int gemma3_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    int rc;
    if ((rc = ntx__tower_merge(k, t, "projector.scale_factor", 4)) || (rc = ntx__tower_side(k, t)))
        return rc;
    if (t->side * t->patch > t->size || t->size - t->side * t->patch >= t->patch || t->side % t->merge)
        return ntx_err_set(
            k->err, -EINVAL,
            "pictures of %u x %u pixels, patches of %u, %u x %u positions and squares of %u x %u patches "
            "do not fit together",
            t->size, t->size, t->patch, t->side, t->side, t->merge, t->merge);
    t->size = t->side * t->patch;
    t->fit = NTX_TOWER_FIT_SQUARE;
    t->table = NTX_TOWER_TABLE_EXACT;
    t->bilinear = true;
    t->begin = "\n\n<start_of_image>";
    t->end = "<end_of_image>\n\n";
    t->bidirectional = true;
    return 0;
}

static void gemma3_merger(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx_tower *t = m->hp.tower;
    ntx__merger_begin(m, l);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_MIX, NTX_BUF_Q_LOW, NTX_BUF_NORMED);
    s->heads = t->merge * t->merge;
    s->width = t->embd;
    ntx__norm(l, NTX_BUF_Q_LOW, NTX_BUF_Q_LOW, NTX_T_state_norm, NTX__ALWAYS, 1, t->embd);
    s = ntx_layer_add(l, NTX_OP_MMT, NTX_BUF_Y, NTX_BUF_Q_LOW);
    s->width = t->out;
    ntx__takes(s, NTX_T_state_turned, NTX__ALWAYS);
    ntx__merger_end(&m->hp, layer, l);
}

static void gemma3_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects)
        gemma3_merger(m, layer, l);
    else
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.post_norm = true,
                                                    .patch_bias = NTX__ALWAYS,
                                                    .qkv_bias = NTX__ALWAYS,
                                                    .o_bias = NTX__ALWAYS,
                                                    .ffn_bias = NTX__ALWAYS,
                                                    .map = NTX_MAP_GELU});
}

const struct ntx__arch ntx__arch_tower_gemma3 = {
    .tower = gemma3_tower,
    .layer = gemma3_layer,
    .name = ntx__tower_name,
    .names = {NTX__TOWER_NAMES, [NTX_T_state_norm] = "mm.soft_emb_norm.weight"}};
