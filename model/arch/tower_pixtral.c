/* SPDX-License-Identifier: Apache-2.0 */
/* tower_pixtral.c: the tower of Pixtral (arXiv 2410.07073) and of later Mistral models: pictures of any shape, RMS
 * norms, and a rotation by row and column with different frequencies. Later models make one state of each square of
 * patches first. */
#include <errno.h>

#include "model/arch/arch_impl.h"

static int pixtral_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    const bool merges = ntx_gguf_tensor(k->g, ntx_tensor_kinds[NTX_T_merge].name);
    float base;
    int rc;
    if ((rc = ntx__key_f32(k, "rope.freq_base", 10000, 1, 1e9f, &base)) ||
        (rc = ntx__tower_merge(k, t, "spatial_merge_size", 1)) ||
        (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_WOVEN, base)) || (rc = ntx__tower_hidden(k, t, "mm.1.weight")))
        return rc;
    if (merges != (t->merge > 1))
        return ntx_err_set(k->err, -EINVAL, "squares of %u x %u patches, %s tensor '%s'", t->merge, t->merge,
                           merges ? "and a" : "without a", ntx_tensor_kinds[NTX_T_merge].name);
    if (!t->silu)
        return ntx_err_set(k->err, -ENOTSUP, "key 'clip.use_silu' is not true, and no other activation is computed");
    t->fit = NTX_TOWER_FIT_LONGEST;
    t->join = NTX_TOWER_JOIN_VALUES;
    t->row_end = "[IMG_BREAK]";
    t->end = "[IMG_END]";
    return 0;
}

static void pixtral_merger(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx_tower *t = m->hp.tower;
    ntx__merger_begin(m, l);
    if (t->merge > 1) {
        ntx__add_product(l, NTX_BUF_ATTN, NTX_BUF_NORMED, NTX_T_merge);
        ntx__tower_copy(l, NTX_BUF_ATTN, NTX_BUF_ATTN, t->embd); /* quantised for the next product */
    }
    ntx__merger_mlp(&m->hp, l, t->merge > 1 ? NTX_BUF_ATTN : NTX_BUF_NORMED, NTX_BUF_Q_LOW, NTX_T_state_in, NTX__MAYBE);
    ntx__merger_end(&m->hp, layer, l);
}

static void pixtral_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects)
        pixtral_merger(m, layer, l);
    else
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.pre_norm = true,
                                                    .post_norm = m->hp.tower->merge > 1,
                                                    .rms = true,
                                                    .gated = true,
                                                    .qkv_bias = NTX__MAYBE,
                                                    .o_bias = NTX__MAYBE,
                                                    .ffn_bias = NTX__MAYBE,
                                                    .pairs = NTX_ROPE_NORM,
                                                    .act = NTX_FFN_SILU});
}

/* The norm behind the last layer belongs to what makes states of squares. */
const struct ntx__arch ntx__arch_tower_pixtral = {
    .tower = pixtral_tower,
    .layer = pixtral_layer,
    .name = ntx__tower_name,
    .names = {NTX__TOWER_NAMES, [NTX_T_post_norm] = "mm.input_norm.weight", [NTX_T_merge_in_bias] = "mm.1.bias",
              [NTX_T_merge_out] = "mm.2.weight", [NTX_T_merge_out_bias] = "mm.2.bias"}};
