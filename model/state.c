/* SPDX-License-Identifier: Apache-2.0 */
#include "model/state.h"

uint32_t ntx_states_of(const struct ntx_hparams *hp, uint32_t l, struct ntx_kept_state out[NTX_STATES_MOST])
{
    const uint32_t every = hp->pool[l];
    uint32_t n = 0;
    if (ntx_is_recurrent(hp, l)) {
        out[n++] = (struct ntx_kept_state){
            .keep = NTX_KEEP_TAIL, .floats = (size_t)(hp->delta.taps - 1) * ntx_width(hp, l, NTX_DIM_DELTA_MIX)};
        if (hp->delta.keys)
            out[n++] = (struct ntx_kept_state){.keep = NTX_KEEP_FOLD, .floats = ntx_fold_floats(hp)};
        if (ntx_has_grams(hp, l))
            out[n++] = (struct ntx_kept_state){.keep = NTX_KEEP_TAIL, .floats = ntx_grams_floats(hp)};
        if (!hp->recurrent_attends)
            return n;
    }
    if (ntx_kv_place(hp, l) == l && ntx_kept_heads(hp, l))
        out[n++] = (struct ntx_kept_state){.keep = NTX_KEEP_ROWS,
                                           .windowed = ntx_windowed(hp, l),
                                           .every = 1,
                                           .heads = ntx_kept_heads(hp, l),
                                           .k = ntx_kept_k(hp, l),
                                           .v = ntx_kept_v(hp, l)};
    if (hp->index_beside && ntx_has_indexer(hp, l))
        out[n++] = (struct ntx_kept_state){
            .keep = NTX_KEEP_ROWS, .beside = true, .every = 1, .heads = 1, .k = hp->index.head};
    if (every) {
        out[n++] = (struct ntx_kept_state){.keep = NTX_KEEP_ROWS,
                                           .beside = true,
                                           .every = (uint16_t)every,
                                           .heads = 1,
                                           .k = hp->head_k,
                                           .v = ntx_has_indexer(hp, l) ? hp->index.head : 0};
        out[n++] = (struct ntx_kept_state){.keep = NTX_KEEP_TAIL,
                                           .floats = (size_t)every * ntx_pool_spans(hp, l) * ntx_pool_row(hp, l)};
    }
    return n;
}

size_t ntx_state_floats(const struct ntx_hparams *hp, uint32_t l)
{
    struct ntx_kept_state kept[NTX_STATES_MOST];
    size_t floats = 0;
    for (uint32_t i = ntx_states_of(hp, l, kept); i--;)
        floats += kept[i].floats;
    return floats;
}

bool ntx_keeps_rows_only(const struct ntx_hparams *hp)
{
    for (uint32_t l = 0; l < hp->n_layers; l++)
        if (ntx_state_floats(hp, l))
            return false;
    return true;
}
