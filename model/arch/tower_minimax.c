/* SPDX-License-Identifier: Apache-2.0 */
/* tower_minimax.c: the tower of MiniMax-M3: pictures of any shape, a rotation by row and column, and states that go
 * through two products each before a square's are joined. A head has three equal runs of values, which turn by moment,
 * row and column, and a rest; a picture is at moment 0, so the first run does not turn. Source: transformers'
 * modeling_minimax_m3_vl. */
#include <errno.h>

#include "model/arch/arch_impl.h"

enum { LEAST = 4, MOST = 576 }; /* rows of a picture, as its processor has it */

static int minimax_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    struct ntx_hparams *hp = k->hp;
    const uint32_t run = hp->head_k / 6 * 2;
    int rc;
    if (!run)
        return ntx_err_set(k->err, -ENOTSUP, "heads of %u values: three runs of pairs need 6", hp->head_k);
    if ((rc = ntx__tower_converted(k, t, "mm.1.weight")) || (rc = ntx__tower_merge(k, t, "spatial_merge_size", 2)) ||
        (rc = ntx__tower_area(k, t, LEAST, MOST)) || (rc = ntx__tower_hidden(k, t, "mm.merger.fc1.weight")))
        return rc;
    t->turn = NTX_TOWER_TURN_ALIKE;
    hp->rope_dim = 2 * run;
    hp->rope_sections[1] = hp->rope_sections[2] = run / 2;
    t->begin = "]<]start of image[>[";
    t->end = "]<]end of image[>[";
    return 0;
}

/* llama.cpp's converter has put the pairs of each run together. */
static void minimax_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.converts) {
        ntx__merger_convert(m, l);
    } else if (m->hp.projects) {
        ntx__merger_begin(m, l);
        ntx__merger_mlp(&m->hp, l, NTX_BUF_NORMED, NTX_BUF_ATTN, NTX_T_merge_in, NTX__ALWAYS);
        ntx__merger_end(&m->hp, layer, l);
    } else {
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.two_moments = true,
                                                    .pre_norm = true,
                                                    .behind = true,
                                                    .qkv_bias = NTX__ALWAYS,
                                                    .o_bias = NTX__ALWAYS,
                                                    .ffn_bias = NTX__ALWAYS,
                                                    .pairs = NTX_ROPE_NEOX,
                                                    .map = NTX_MAP_GELU_ERF});
    }
}

const struct ntx__arch ntx__arch_tower_minimax = {
    .tower = minimax_tower,
    .layer = minimax_layer,
    .name = ntx__tower_name,
    .names = {NTX__TOWER_NAMES, [NTX_T_merge_in] = "mm.merger.fc1.weight", [NTX_T_merge_in_bias] = "mm.merger.fc1.bias",
              [NTX_T_merge_out] = "mm.merger.fc2.weight", [NTX_T_merge_out_bias] = "mm.merger.fc2.bias"}};
