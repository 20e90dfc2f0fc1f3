/* SPDX-License-Identifier: Apache-2.0 */
/* tower_llama4.c: the tower of Llama 4 (Scout and Maverick): a picture in tiles of one size and then as a whole, a row
 * without a patch in each of them, learned positions, and a rotation by column and row. The projector joins the states
 * of a square ("pixel shuffle"). Source: transformers' modeling_llama4 and its processors. */
#include <errno.h>

#include "model/arch/arch_impl.h"

enum { TILES = 16 }; /* most tiles, as its processor has it */

/* The table has a position for each patch of a tile, and one for the row without a patch. */
static int find_positions(struct ntx__keys *k, struct ntx_tower *t)
{
    const struct ntx_gguf_tensor *places = ntx_gguf_tensor(k->g, ntx_tensor_kinds[NTX_T_places].name);
    const uint32_t side = t->size / t->patch;
    if (t->size % t->patch || side % t->merge || !places || places->ne[1] != (uint64_t)side * side + 1)
        return ntx_err_set(k->err, -EINVAL,
                           "tiles of %u x %u pixels, patches of %u, squares of %u x %u patches and %llu positions do "
                           "not fit together",
                           t->size, t->size, t->patch, t->merge, t->merge,
                           (unsigned long long)(places ? places->ne[1] : 0));
    t->side = side;
    t->n_places = side * side + 1;
    return 0;
}

static int llama4_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    int rc;
    if ((rc = ntx__tower_merge(k, t, "projector.scale_factor", 2)) || (rc = find_positions(k, t)) ||
        (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_ALIKE, 10000)) ||
        (rc = ntx__tower_hidden(k, t, "mm.model.mlp.1.weight")))
        return rc;
    t->misnamed = !ntx_gguf_tensor(k->g, "v.blk.0.ln2.weight") &&
                  ntx_gguf_tensor(k->g, "v.blk.0.attn_post_norm.weight");
    t->fit = NTX_TOWER_FIT_TILES;
    t->tiles = TILES;
    t->table = NTX_TOWER_TABLE_EXACT;
    t->extra = NTX_TOWER_EXTRA_BEHIND;
    t->turn_from = 1;
    t->bilinear = true;
    t->bfloat = true;
    t->begin = "<|image_start|>";
    t->end = "<|image_end|>";
    t->tile_end = "<|tile_x_separator|>";
    t->line_end = "<|tile_y_separator|>";
    t->whole = "<|image|>";
    return 0;
}

static void llama4_merger(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    const struct ntx_tower *t = m->hp.tower;
    ntx__merger_begin(m, l);
    ntx__add_product(l, NTX_BUF_ATTN, NTX_BUF_NORMED, NTX_T_merge_in);
    ntx__tower_map(l, NTX_BUF_ATTN, t->hidden, NTX_MAP_GELU_ERF);
    ntx__add_product(l, NTX_BUF_Q_LOW, NTX_BUF_ATTN, NTX_T_merge_again);
    ntx__tower_map(l, NTX_BUF_Q_LOW, t->hidden, NTX_MAP_GELU_ERF);
    ntx__add_product(l, NTX_BUF_Y, NTX_BUF_Q_LOW, NTX_T_merge_out);
    ntx__merger_end(&m->hp, layer, l);
}

static void llama4_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects)
        llama4_merger(m, layer, l);
    else
        ntx__tower_layer(m, layer, l,
                         &(struct ntx__tower_block){.pre_norm = true,
                                                    .post_norm = true,
                                                    .columns_first = true,
                                                    .windowed = true,
                                                    .qkv_bias = NTX__ALWAYS,
                                                    .o_bias = NTX__ALWAYS,
                                                    .ffn_bias = NTX__ALWAYS,
                                                    .pairs = NTX_ROPE_NORM,
                                                    .map = NTX_MAP_GELU_ERF});
}

/* llama.cpp's converter gives the second norm of a layer this name since it knows Gemma 4. */
static void llama4_name(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t, const char *of, char *name,
                        size_t size)
{
    if (hp->tower->misnamed && t == NTX_T_ffn_norm)
        of = "attn_post_norm.weight";
    else if (hp->tower->misnamed && t == NTX_T_ffn_norm_bias)
        of = "attn_post_norm.bias";
    ntx__tower_name(hp, layer, t, of, name, size);
}

const struct ntx__arch ntx__arch_tower_llama4 = {
    .tower = llama4_tower,
    .layer = llama4_layer,
    .name = llama4_name,
    .names = {NTX__TOWER_NAMES, [NTX_T_merge_in] = "mm.model.mlp.1.weight",
              [NTX_T_merge_again] = "mm.model.mlp.2.weight", [NTX_T_merge_out] = "mm.model.fc.weight"}};
