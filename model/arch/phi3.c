/* SPDX-License-Identifier: Apache-2.0 */
/* phi3.c: Phi 3 and 4: llama's layers, with q, k, v in one matrix of the file and gate, up in another; RoPE may have
 * two lists of divisors, one of them for contexts beyond the original. Other programs ignore the window that files
 * declare; here it only bounds the default context. */
#include "model/arch/arch_impl.h"

static int phi3_keys(struct ntx__keys *k)
{
    k->hp->qkv_fused = ntx__has(k, 0, ntx_whole_names[NTX_WHOLE_qkv]);
    k->hp->gate_up_fused = true;
    return 0;
}

static void phi3_layer(const struct ntx_model *m, uint32_t l, struct ntx_layer *out)
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

const struct ntx__arch ntx__arch_phi3 = {
    .keys = phi3_keys, .rope_factors = true, .layer = phi3_layer, .models = models};
