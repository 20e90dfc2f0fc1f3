/* SPDX-License-Identifier: Apache-2.0 */
/* tower_glm4v.c: the tower of GLM-4.1V and GLM-4.5V (arXiv 2507.01006): learned positions, interpolated bicubically, a
 * rotation by row and column, RMS norms and gated FFNs. The projector makes one state of a square, and has a gated FFN.
 * GLM-5.3-Flash has norms of q and k instead of learned positions, and bounds its FFNs' hidden values (transformers'
 * modeling_glm5_next). */
#include <errno.h>
#include <math.h>

#include "model/arch/arch_impl.h"

static int glm_tower(struct ntx__keys *k, struct ntx_tower *t, uint32_t least, uint32_t most)
{
    int rc;
    if ((rc = ntx__tower_merge(k, t, "spatial_merge_size", 2)) ||
        (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_ALIKE, 10000)) || (rc = ntx__tower_area(k, t, least, most)) ||
        (rc = ntx__tower_hidden(k, t, "mm.gate.weight")))
        return rc;
    if (!t->silu)
        return ntx_err_set(k->err, -ENOTSUP, "key 'clip.use_silu' is not true, and no other activation is computed");
    t->join = NTX_TOWER_JOIN_VALUES;
    t->begin = "<|begin_of_image|>";
    t->end = "<|end_of_image|>";
    t->mrope = true;
    return 0;
}

static int glm4v_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    t->table = NTX_TOWER_TABLE_CENTRES;
    int rc = glm_tower(k, t, 8, 4096);
    return rc ? rc : ntx__tower_side(k, t);
}

static int glm5v_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    int rc = glm_tower(k, t, 16, 8000);
    t->mrope = false;
    t->fit = NTX_TOWER_FIT_CANVAS;
    return rc ? rc : ntx__key_f32(k, "swiglu_clamp", NAN, 1e-3f, 1e6f, &t->limit);
}

static void glm4v_merger(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx_tower *t = m->hp.tower;
    ntx__merger_begin(m, l);
    ntx__add_product(l, NTX_BUF_Q_LOW, NTX_BUF_NORMED, NTX_T_square);
    ntx__tower_bias(&m->hp, l, NTX_BUF_Q_LOW, NTX_T_square_bias, NTX__ALWAYS);
    ntx__add_product(l, NTX_BUF_X, NTX_BUF_Q_LOW, NTX_T_square_fc);
    ntx__tower_layernorm(l, NTX_BUF_X, t->out, 1e-5f, NTX_T_square_norm, NTX_T_square_norm_bias, NTX__ALWAYS);
    ntx__tower_map(l, NTX_BUF_X, t->out, NTX_MAP_GELU_ERF);
    ntx__add_product(l, NTX_BUF_GATE, NTX_BUF_X, NTX_T_square_gate);
    ntx__add_product(l, NTX_BUF_UP, NTX_BUF_X, NTX_T_square_up);
    struct ntx_step *s = ntx_layer_add(l, NTX_OP_GLU, NTX_BUF_GATE, NTX_BUF_GATE);
    s->in[1] = NTX_BUF_UP;
    s->width = t->hidden;
    s->glu.hidden = (struct ntx_activation){.limit = t->limit, .gate_limit = t->limit, .act = NTX_FFN_SILU};
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_GATE, NTX_T_merge_out);
    ntx__merger_end(&m->hp, layer, l);
}

static void glm4v_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects)
        glm4v_merger(m, layer, l);
    else
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.two_moments = true,
                                                    .patch_bias = NTX__ALWAYS,
                                                    .patch_norm = !m->hp.tower->limit,
                                                    .post_norm = true,
                                                    .qk_norm = m->hp.tower->limit,
                                                    .rms = true,
                                                    .gated = true,
                                                    .qkv_bias = NTX__MAYBE,
                                                    .o_bias = NTX__MAYBE,
                                                    .ffn_bias = NTX__MAYBE,
                                                    .pairs = NTX_ROPE_NEOX,
                                                    .act = NTX_FFN_SILU});
}

const struct ntx__arch ntx__arch_tower_glm5v = {.tower = glm5v_tower,
                                                .layer = glm4v_layer,
                                                .name = ntx__tower_name,
                                                .names = {NTX__TOWER_NAMES, [NTX_T_merge_out] = "mm.down.weight"}};
const struct ntx__arch ntx__arch_tower_glm4v = {.tower = glm4v_tower,
                                                .layer = glm4v_layer,
                                                .name = ntx__tower_name,
                                                .names = {NTX__TOWER_NAMES, [NTX_T_merge_out] = "mm.down.weight"}};
