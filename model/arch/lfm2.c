/* SPDX-License-Identifier: Apache-2.0 */
/* lfm2.c: LFM2 and LFM2.5: most layers are short convolutions with factors of their input and output, the others
 * attention with norms of each head's q and k. Dense, or with experts behind the first layers, chosen by a sigmoid with
 * a bias for the choice. */
#include "common/util.h"
#include "model/arch/arch_impl.h"

static int lfm2_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    int rc;
    if ((rc = ntx__key_recurrent_kv(k, hp->n_head_kv)) ||
        (rc = ntx__key_u32(k, "shortconv.l_cache", -1, 2, NTX_DELTA_TAPS_MAX, &hp->delta.taps)) ||
        (rc = ntx__key_u32(k, "leading_dense_block_count", 0, 0, hp->n_layers, &hp->n_dense)))
        return rc;
    hp->delta.heads = 1;
    hp->delta.head = hp->n_embd;
    return 0;
}

static void lfm2_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    if (ntx_is_recurrent(&m->hp, l))
        ntx__add_short(&m->hp, out);
    else
        ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX, .qk_norm = NTX__ALWAYS});
    if (!m->hp.n_expert || l < m->hp.n_dense)
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
    else
        ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .choice = NTX__ALWAYS});
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"lfm2-1.2b", 16, 2048, 8192, 32, 0, 64, 65536, 128000, 0, 0, 0,
     "attention.head_count_kv=0x2,8,0x2,8,0x2,8,0,8,0,8,0,8,0 shortconv.l_cache=3", ""},
    {0},
};
static const struct ntx_known models_moe[] = {
    {"lfm2-8b-a1b", 24, 2048, 7168, 32, 0, 64, 65536, 128000, 32, 4, 1792,
     "attention.head_count_kv=0x2,8,0x3,8,0x3,8,0x3,8,0x3,8,0x2,8,0x2 shortconv.l_cache=3 leading_dense_block_count=2",
     ""},
    {0},
};

#define OWN                                                                                                            \
    {                                                                                                                  \
        "leading_dense_block_count"                                                                                    \
    }
const struct ntx__arch ntx__arch_lfm2 = {.models = models,
                                         .kv_heads_tell = true,
                                         .output_norm = "token_embd_norm.weight",
                                         .keys = lfm2_keys,
                                         .layer = lfm2_layer};
const struct ntx__arch ntx__arch_lfm2moe = {.models = models_moe,
                                            .experts = NTX__ALWAYS,
                                            .expert_norm = true,
                                            .score = NTX_SCORE_SIGMOID,
                                            .kv_heads_tell = true,
                                            .output_norm = "token_embd_norm.weight",
                                            .keys = lfm2_keys,
                                            .own = OWN,
                                            .layer = lfm2_layer};
