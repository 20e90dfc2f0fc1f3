/* SPDX-License-Identifier: Apache-2.0 */
/* tower_mimovl.c: the tower of MiMo-V2.5: that of Qwen2.5-VL (arXiv 2502.13923) with fewer heads of K and V, heads that
 * are wider than their share of a state, and bands in place of windows. Patches are in the order of their squares. In
 * some layers a patch sees a number of them before and behind it, in others as many in the order that goes from column
 * to column; heads have sinks there. Source: the configuration and the tensors of MiMo-V2.5. */
#include <errno.h>
#include <string.h>

#include "model/arch/arch_impl.h"

enum { LEAST = 8, MOST = 8192 }; /* rows of a picture, as its processor has it */
enum { BAND_MAX = 1 << 20 };

/* The list has -1 for layers that see the whole picture, 0 for bands by rows, 1 for bands by columns. */
static int find_views(struct ntx__keys *k, struct ntx_tower *t)
{
    const uint32_t n = k->hp->n_layers;
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "wa_pattern_mode"));
    if (!kv || kv->type != NTX_GGUF_ARR || kv->elem != NTX_GGUF_I32 || kv->count != n || n > NTX_TOWER_VIEWS_MAX)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of a number for each of %u layers, at most %u",
                           k->key, n, NTX_TOWER_VIEWS_MAX);
    for (uint32_t l = 0; l < n; l++) {
        int32_t mode;
        memcpy(&mode, (const char *)kv->data + l * sizeof mode, sizeof mode);
        if (mode < -1 || mode > 1)
            return ntx_err_set(k->err, -EINVAL, "key '%s' has %d; -1, 0 and 1 are possible", k->key, mode);
        t->views[l] = (uint8_t)(mode + 1 + NTX_TOWER_VIEW_WHOLE);
    }
    return 0;
}

static int mimovl_tower(struct ntx__keys *k, struct ntx_tower *t)
{
    int rc;
    if ((rc = ntx__tower_merge(k, t, "spatial_merge_size", 2)) ||
        (rc = ntx__key_u32(k, "window_size", -1, 1, BAND_MAX, &t->band)) || (rc = find_views(k, t)) ||
        (rc = ntx__tower_turns(k, t, NTX_TOWER_TURN_ALIKE, 10000)) || (rc = ntx__tower_area(k, t, LEAST, MOST)))
        return rc;
    t->begin = "<|vision_start|>";
    t->end = "<|vision_end|>";
    return ntx__tower_hidden(k, t, "mm.0.weight");
}

static void mimovl_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l)
{
    if (m->hp.projects) {
        ntx__merger_begin(m, l);
        ntx__merger_mlp(&m->hp, l, NTX_BUF_NORMED, NTX_BUF_ATTN, NTX_T_merge_in, NTX__NEVER);
        ntx__merger_end(&m->hp, layer, l);
        return;
    }
    ntx__tower_layer(m, layer, l,
                     &(struct ntx__tower_block){.two_moments = true,
                                                .rms = true,
                                                .mean_behind = true,
                                                .view = (enum ntx_tower_view)m->hp.tower->views[layer],
                                                .gated = true,
                                                .qkv_bias = NTX__ALWAYS,
                                                .o_bias = NTX__ALWAYS,
                                                .ffn_bias = NTX__ALWAYS,
                                                .pairs = NTX_ROPE_NEOX,
                                                .act = NTX_FFN_SILU});
}

const struct ntx__arch ntx__arch_tower_mimovl = {.tower = mimovl_tower,
                                                 .layer = mimovl_layer,
                                                 .name = ntx__tower_name,
                                                 .names = {NTX__TOWER_NAMES, [NTX_T_sinks] = "attn_sinks"}};
