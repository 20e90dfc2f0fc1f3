/* SPDX-License-Identifier: Apache-2.0 */
/* eagle3.c: EAGLE-3 drafters. From the inputs of three layers of the large model a drafter makes a state; from that
 * and the next token's embedding one layer predicts the token after it. It may know only a part of the vocabulary.
 * Not a model by itself. Source: the EAGLE-3 paper (arXiv 2503.01840), and the graph of llama.cpp. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "model/arch/arch_impl.h"
#include "model/quant.h"

enum { TAPS = 3 };

static int read_taps(struct ntx__keys *k)
{
    const struct ntx_gguf_kv *kv = ntx_gguf_find(k->g, ntx__key_of(k, "target_layers"));
    if (!kv || kv->type != NTX_GGUF_ARR || (kv->elem != NTX_GGUF_U32 && kv->elem != NTX_GGUF_I32) || !kv->count ||
        kv->count > NTX_TAPS_MAX)
        return ntx_err_set(k->err, -EINVAL, "key '%s' is not a list of 1 to %d layers", k->key, NTX_TAPS_MAX);
    k->hp->head.n_taps = (uint32_t)kv->count;
    for (uint32_t i = 0; i < kv->count; i++) {
        memcpy(&k->hp->head.tap[i], (const uint8_t *)kv->data + 4 * (size_t)i, 4);
        if (k->hp->head.tap[i] > NTX_MAX_LAYERS || (i && k->hp->head.tap[i] <= k->hp->head.tap[i - 1]))
            return ntx_err_set(k->err, -EINVAL, "key '%s' has no ascending layers", k->key);
    }
    return 0;
}

int ntx__key_taps(struct ntx__keys *k)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor(k->g, "d2t");
    k->hp->head.n_out = k->hp->n_vocab;
    if (t && (t->type != NTX_I64 || t->ne[1] != 1 || t->ne[2] != 1 || t->ne[3] != 1 || t->ne[0] > k->hp->n_vocab))
        return ntx_err_set(k->err, -EINVAL, "tensor 'd2t' is not a list of 64-bit numbers of 1 to %u tokens",
                           k->hp->n_vocab);
    if (t)
        k->hp->head.n_out = (uint32_t)t->ne[0];
    return read_taps(k);
}

int ntx__key_truth(struct ntx__keys *k, const char *suffix, bool *out)
{
    int rc = ntx_gguf_bool(k->g, ntx__key_of(k, suffix), out);
    return rc && rc != -ENOENT ? ntx_err_set(k->err, -EINVAL, "key '%s' is no truth value", k->key) : 0;
}

static int eagle3_keys(struct ntx__keys *k)
{
    int rc = ntx__key_taps(k);
    if (rc || (rc = ntx__key_u32(k, "target_hidden_size", -1, 1, NTX__MAX_WIDTH, &k->hp->head.width)) ||
        (rc = ntx__key_truth(k, "norm_before_residual", &k->hp->head.norm_residual)) ||
        (rc = ntx__key_truth(k, "norm_before_fc", &k->hp->head.norm_first)))
        return rc;
    if (k->hp->head.n_taps != TAPS || k->hp->n_layers != 1)
        return ntx_err_set(
            k->err, -EINVAL,
            "it goes by %u layers' states, and has %u layers: a drafter of the EAGLE-3 kind goes by %d, and has one",
            k->hp->head.n_taps, k->hp->n_layers, TAPS);
    return 0;
}

static void eagle3_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    if (m->hp.head.fuses) {
        ntx__add_fuse(&m->hp, out);
        return;
    }
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NORM, .paired = true});
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

const struct ntx__arch ntx__arch_eagle3 = {
    .keys = eagle3_keys, .layer = eagle3_layer, .names = {[NTX_T_nextn_hnorm] = "attn_norm_2.weight"}};
