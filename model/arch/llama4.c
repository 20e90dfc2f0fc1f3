/* llama4.c: Llama 4: each fourth layer turns nothing by its position; q and k of the others are normed without a scale behind the rotation (where there are not 128
 * experts); of so many layers one has experts, whose input is multiplied by the share before them, and one more without a gate. From 8,192 tokens on some layers
 * see the last such stretch only, and scores of the others grow with the position: no further a text goes here. */
#include "common/util.h"
#include "model/arch/arch_impl.h"

enum { UNTURNED_EVERY = 4, STRETCH = 8192, UNNORMED_EXPERTS = 128 };

static int keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    uint32_t window;
    int rc;
    if ((rc = ntx__key_u32(k, "attention.sliding_window", STRETCH, 0, UINT32_MAX, &window)) ||
        (rc = ntx__key_u32(k, "interleave_moe_layer_step", -1, 0, NTX_MAX_LAYERS, &hp->expert_every)))
        return rc;
    hp->unturned_every = window ? UNTURNED_EVERY : hp->n_layers;
    if (window)
        hp->ctx_train = hp->ctx_most = NTX_MIN(hp->ctx_train, (uint32_t)STRETCH - 1);
    hp->n_ff_shexp = hp->n_ff_exp;
    hp->router.norm = false;
    return 0;
}

static void layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    const struct ntx_hparams *hp = &m->hp;
    bool turned = !hp->unturned_every || (l + 1) % hp->unturned_every;
    ntx__add_attention(hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NORM, .unturned = !turned, .bare_norm = turned && hp->n_expert != UNNORMED_EXPERTS});
    if (hp->expert_every && (l + 1) % hp->expert_every == 0)
        ntx__add_experts(m, out, &(struct ntx__experts){.act = NTX_FFN_SILU, .shared = NTX__ALWAYS, .weighs_input = true});
    else
        ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

const struct ntx__arch ntx__arch_llama4 = {
    .experts = NTX__ALWAYS, .score = NTX_SCORE_SIGMOID, .keys = keys, .own = {"attention.sliding_window", "interleave_moe_layer_step"}, .layer = layer,
};
