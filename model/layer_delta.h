/* SPDX-License-Identifier: Apache-2.0 */
/* layer_delta.h: models whose layers share matrices, and low-rank or full additions to a matrix's outputs, by a layer
 * or by a fine-tune (LoRA). This header is the definition.
 *
 *   y = W x                                         W: the layer's matrix, or its base's
 *   y = W x + s B (A x)     low-rank: blk.N.X.weight.lora_a A [rank x in], blk.N.X.weight.lora_b B [out x rank]
 *   y = W x + D x           full:     blk.N.X.weight.delta   D [out x in]
 *
 * X: attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down of a dense FFN. The low-rank ones
 * have the names of llama.cpp's LoRA adapters.
 *
 * Keys, all of them optional:
 *   ntx.delta.base      (u32, one for each layer): the layer whose tensors a layer uses if the file has none of its
 *                       own. Shared tensors are read once and stay in memory; if the budget does not hold them, they
 *                       are streamed like all others, once for each layer that uses them
 *   ntx.delta.error     (f32): |W - W'| / |W| of the original matrices W and these, W'; |.| is the root of the sum
 *                       of squares. A model that was trained in this form has no such key
 *   ntx.delta.of        (string): in an adapter, the digest (digest.h) of its base model: other bases are refused
 *   ntx.delta.of_norms, ntx.delta.of_types (strings): the parts of that digest. A model with the same norms and other
 *                       types counts as a quantised copy of the base, and is accepted
 *   adapter.lora.alpha  (f32): s = alpha / rank; absent or 0: s = 1
 *
 * Adapters (--lora; gguf.h) are further files with such tensors and keys; tensors of adapter k are called NAME.k here.
 * They are streamed, or stay in memory, like any matrix. Each row of a pass has one adapter, or none, and gets the
 * additions of that one only. So several fine-tunes of one model run at once, and each row has the bits that it would
 * have alone.
 *
 * ntx pack makes groups of the FFNs of such models, too (pack.h): those of bases stay in memory, additions to ffn_up
 * and ffn_down are read by groups.
 *
 * Computation (computed/pass/lora.c): W x, z = A x, B z and D x follow the rules of their types (computed/cpu/cpu.h),
 * z is quantised like any input; then each output is y = fmaf(s, addition, W x). So values do not depend on streaming,
 * threads, rows or instruction sets. */
#ifndef NTX_MODEL_LAYER_DELTA_H
#define NTX_MODEL_LAYER_DELTA_H

#include "common/err.h"
#include "model/gguf.h"
#include "model/layer.h"

/* Limits of `ntx analyze --ranks`, here because the options of `ntx` check them: how many ranks, and the largest. */
#define NTX_ANALYZE_RANKS    8
#define NTX_ANALYZE_MAX_RANK 256u

struct ntx_deltas {
    uint32_t *base;                            /* [n_layers], malloc'd; NULL: no layer shares */
    float alpha[1 + NTX_ADAPTERS_MAX];         /* of the file itself (0) and of adapters; 0: s is 1 */
    float error;                               /* 0: none, or unknown */
    float adapter_error[1 + NTX_ADAPTERS_MAX]; /* the same for adapters (ntx pack --delta --base) */
    bool any;                                  /* some matrix has an addition */
};

int ntx_layer_delta_read(const struct ntx_gguf *g, uint32_t n_layers, struct ntx_deltas *out, struct ntx_err *err);
/* ntx_layer_delta_scale: s for two matrices of this rank, of the file itself (set 0) or of an adapter.
 * ntx_layer_delta_behind: the next free place in NTX_BUF_LOW after `width` values. */
float ntx_layer_delta_scale(const struct ntx_deltas *d, uint8_t set, uint32_t rank);
uint32_t ntx_layer_delta_behind(uint32_t width);
/* Inserts the steps that compute the file's additions into a layer. -ENOTSUP: too many steps. */
int ntx_layer_delta_steps(const struct ntx_gguf *g, struct ntx_deltas *d, uint32_t layer, struct ntx_layer *l,
                          struct ntx_err *err);
/* Rank of a layer's low-rank matrix `low` (ntx_low_of), by its rows; 0: absent. */
uint32_t ntx_layer_delta_rank(const struct ntx_gguf *g, uint32_t layer, enum ntx_tensor low);
uint32_t ntx_layer_delta_rank_of_high(const struct ntx_gguf *g, uint32_t layer,
                                      enum ntx_tensor low); /* the same, by the columns of its second matrix */

#endif
