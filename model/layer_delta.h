/* SPDX-License-Identifier: Apache-2.0 */
/* layer_delta.h: models whose layers share matrices, and what is added to a matrix's outputs: by each layer its own, or
 * by a fine-tune. This header is the definition.
 *
 *   y = W x                                         W: the layer's matrix, or its base's
 *   y = W x + s B (A x)     two thin matrices blk.N.X.weight.lora_a A [rank x in], blk.N.X.weight.lora_b B [out x rank]
 *   y = W x + D x           or a whole one          blk.N.X.weight.delta   D [out x in]
 *
 * X: attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down of a dense FFN. The names of the thin ones are
 * those of adapters for llama.cpp ("LoRA").
 *
 * Keys, all of them optional:
 *   ntx.delta.base      (u32, one of each layer): the layer whose tensors a layer has where the file has none of its
 *                       own name. Such tensors are there once, are
 *                       read once, and stay in memory; where the budget does not even hold these, they are streamed
 *                         like all others, once for each layer that has them
 *   ntx.delta.error     (f32): |W - W'| / |W| of the matrices as they were and as they are now, |.| the root of the sum
 *                       of squares: what was lost. A model that was
 *                       trained in this form has lost nothing, and has no such key
 *   ntx.delta.of        (string): of an adapter, the digest (digest.h) of the model that it was made of: with another
 *                       one it is refused
 *   ntx.delta.of_norms, ntx.delta.of_types (strings): the parts of that digest. A model of the same norms and of other
 *     types is taken for a quantised copy, which fits:
 *                       W below is then the copy's, and what is added is what it was
 *   adapter.lora.alpha  (f32): s = alpha / rank; without it, and where it is 0, s = 1
 *
 * Adapters (--lora; gguf.h) are files of such tensors and keys beside the model's: of the k-th the tensors are called
 * NAME.k here. They are streamed, or stay in memory, as any matrix. Each row of a pass has one adapter, or none: what
 * others would add is not added to it. So several fine-tunes of one model answer at once, and each row has the bits
 * that it would have alone.
 *
 * ntx pack makes groups of the FFNs of such a model, too (pack.h): those of bases stay, what is added to ffn_up and
 * ffn_down is read by groups.
 *
 * What is computed (computed/pass/lora.c): W x, A x, B z and D x each by the rule of their types (computed/cpu/cpu.h),
 * z being rounded as any input; then for each output y = fmaf(s, what is added, W x). So values do not depend on what
 * is streamed, nor on threads, rows or instruction sets. */
#ifndef NTX_MODEL_LAYER_DELTA_H
#define NTX_MODEL_LAYER_DELTA_H

#include "common/err.h"
#include "model/gguf.h"
#include "model/layer.h"

/* Limits of `ntx analyze --ranks`, here because the options of `ntx` check them: how many ranks, and the largest. */
#define NTX_ANALYZE_RANKS    8
#define NTX_ANALYZE_MAX_RANK 256u

struct ntx_deltas {
    uint32_t *base;                            /* [n_layers], malloc'd; NULL: each layer has its own */
    float alpha[1 + NTX_ADAPTERS_MAX];         /* the file's own, and adapters'; 0: s is 1 */
    float error;                               /* 0: unknown, or none */
    float adapter_error[1 + NTX_ADAPTERS_MAX]; /* the same, of what an adapter was made of (ntx pack --delta --base) */
    bool any;                                  /* some matrix has something added */
};

int ntx_layer_delta_read(const struct ntx_gguf *g, uint32_t n_layers, struct ntx_deltas *out, struct ntx_err *err);
/* s of two thin matrices of that rank: of the file itself (0), or of an adapter; and in NTX_BUF_LOW, where what lies
 * behind so many values begins. */
float ntx_layer_delta_scale(const struct ntx_deltas *d, uint8_t set, uint32_t rank);
uint32_t ntx_layer_delta_behind(uint32_t width);
/* Into a layer as its architecture made it: the steps that add what the file has. -ENOTSUP: there are too many. */
int ntx_layer_delta_steps(const struct ntx_gguf *g, struct ntx_deltas *d, uint32_t layer, struct ntx_layer *l,
                          struct ntx_err *err);
/* Rows of layer's thin matrix `low` (ntx_low_of), 0: it is not there. */
uint32_t ntx_layer_delta_rank(const struct ntx_gguf *g, uint32_t layer, enum ntx_tensor low);
uint32_t ntx_layer_delta_rank_of_high(const struct ntx_gguf *g, uint32_t layer,
                                      enum ntx_tensor low); /* the same, by the other one's columns */

#endif
