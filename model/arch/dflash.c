/* SPDX-License-Identifier: Apache-2.0 */
/* dflash.c: DFlash drafters. From the inputs of some layers of the large model a drafter makes K and V of its own
 * layers for each token of the text, and drafts a block of tokens at once, of which the first is known. Not a model
 * by itself. Source: "DFlash: Block Diffusion for Flash Speculative Decoding" (arXiv 2602.06036), and the graph of
 * llama.cpp. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"

#define BLOCK_MOST 64u

/* Refuses later variants. */
static int refuse_others(struct ntx__keys *k)
{
    struct ntx_str act;
    if (ntx_gguf_tensor(k->g, "markov_w1.weight"))
        return ntx_err_set(k->err, -ENOTSUP,
                           "it is of the DSpark kind (tensor 'markov_w1.weight'), which is not computed here");
    if (ntx_gguf_tensor(k->g, "selector_hidden.weight"))
        return ntx_err_set(k->err, -ENOTSUP,
                           "it is of the DFlash 2 kind (tensor 'selector_hidden.weight'), which is not computed here");
    if (!ntx_gguf_str(k->g, ntx__key_of(k, "hidden_activation"), &act) && (act.n != 4 || memcmp(act.p, "silu", 4)))
        return ntx_err_set(k->err, -ENOTSUP, "key '%s' is not silu, and no other is computed", k->key);
    return 0;
}

static int get_mask(struct ntx__keys *k)
{
    uint64_t mask;
    int rc = ntx_gguf_u64(k->g, "tokenizer.ggml.mask_token_id", &mask);
    if (rc || mask >= k->hp->n_vocab)
        return ntx_err_set(k->err, -EINVAL,
                           "key 'tokenizer.ggml.mask_token_id' names no token: drafted tokens are read under it");
    k->hp->head.mask = (uint32_t)mask;
    return 0;
}

/* M-RoPE sections: only the first one, for positions in a text, may have pairs. */
static int check_sections(struct ntx__keys *k)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "rope.dimension_sections"));
    uint32_t n[4] = {0};
    if (!kv)
        return 0;
    if (kv->type != NTX_GGUF_ARR || (kv->elem != NTX_GGUF_I32 && kv->elem != NTX_GGUF_U32) || kv->count > 4)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of up to four integers", k->key);
    memcpy(n, kv->data, 4 * kv->count);
    return n[0] != k->hp->rope_dim / 2 || n[1] || n[2] || n[3]
               ? ntx_err_set(k->err, -ENOTSUP, "key '%s' leaves pairs to other positions than a text's", k->key)
               : 0;
}

static int dflash_keys(struct ntx__keys *k)
{
    struct ntx_hparams *hp = k->hp;
    float scale;
    int rc = refuse_others(k);
    if (rc || (rc = ntx__key_taps(k)) || (rc = ntx__key_u32(k, "block_size", 16, 2, BLOCK_MOST, &hp->head.block)) ||
        (rc = ntx__key_truth(k, "attention.causal", &hp->head.causal)) ||
        (rc = ntx__key_f32(k, "embedding_scale", 1, 0, 1e6f, &scale)) ||
        (rc = ntx__key_f32(k, "attention.scale", 0, 0, 1e3f, &hp->score_scale)) || (rc = ntx__key_windows(k, 0, 1)) ||
        (rc = get_mask(k)))
        return rc;
    hp->embd_scale = scale != 0 ? scale : 1;
    hp->head.width = hp->n_embd;
    return check_sections(k);
}

static void dflash_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    if (m->hp.head.fuses) {
        if (!l)
            ntx__add_fuse(&m->hp, out);
        ntx__add_kv_alone(&m->hp, l, out);
        return;
    }
    ntx__add_attention(&m->hp, out,
                       &(struct ntx__attention){.layer = l,
                                                .rope = NTX_ROPE_NEOX,
                                                .qk_norm = NTX__ALWAYS,
                                                .sinks = NTX__MAYBE,
                                                .scale = m->hp.score_scale,
                                                .window = ntx_windowed(&m->hp, l) ? m->hp.window : 0});
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

/* Only the order of logits matters, so scales and caps of logits are ignored, as in llama.cpp. */
const struct ntx__arch ntx__arch_dflash = {
    .keys = dflash_keys,
    .layer = dflash_layer,
    .own = {"attention.causal", "attention.scale", "attention.sliding_window", "attention.sliding_window_pattern",
            "embedding_scale", "final_logit_softcapping", "logit_scale", "rope.dimension_sections"}};
