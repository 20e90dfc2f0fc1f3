/* SPDX-License-Identifier: Apache-2.0 */
/* phi3.c: Phi 3 and 4: llama's layers, whose q, k and v are one matrix in the file, and gate and up one other; rotation
 * may be divided by one of two lists of factors, one for contexts beyond what it was before. A window that files name
 * is not computed by others either: it bounds the context that nobody asked for. */
#include "model/arch/arch_impl.h"

static int keys(struct ntx__keys *k)
{
    k->hp->qkv_fused = ntx__has(k, 0, ntx_whole_names[NTX_WHOLE_qkv]);
    k->hp->gate_up_fused = true;
    return 0;
}

static void layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
{
    ntx__add_attention(&m->hp, out, &(struct ntx__attention){.rope = NTX_ROPE_NEOX});
    ntx__add_dense(m, l, out, NTX_FFN_SILU);
}

/* ---- models by name (model/arch.h) */

static const struct ntx_known models[] = {
    {"phi-3-mini", 32, 3072, 8192, 32, 32, 96, 32064, 131072, 0, 0, 0, "", "blk.0.attn_qkv.weight"},
    {"phi-4-mini", 32, 3072, 8192, 24, 8, 128, 200064, 131072, 0, 0, 0, "", "blk.0.attn_qkv.weight"},
    {"phi-4", 40, 5120, 17920, 40, 10, 128, 100352, 16384, 0, 0, 0, "", "blk.0.attn_qkv.weight"},
    {0},
};

const struct ntx__arch ntx__arch_phi3 = {.keys = keys, .rope_factors = true, .layer = layer, .models = models};
