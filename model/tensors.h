/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.h: every kind of tensor of a layer, and of a model outside of its layers, declared once: its name in the
 * file, its shape in named widths, and its use.
 *
 * From this table come the fields of struct ntx_layer and of struct ntx_layer_weights, the checks at load, how
 * tensors are cut into chunks, what is always resident, the widths of activations, and the tensors that the tests'
 * model maker writes. The steps of a layer (layer.h) decide which of them it has, and their order.
 *
 * To add a tensor, add an entry. Names that differ in an architecture are in the architecture's file. */
#ifndef NTX_MODEL_TENSORS_H
#define NTX_MODEL_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

/* Widths for shapes (ntx_width): X(name, number of values), from the model's numbers hp and its layer's w. A new
 * width is a new entry. */
/* clang-format off */
#define NTX_DIMS(X) \
    X(ONE,                  1) \
    X(EMBD,                 hp->n_embd) \
    X(EMBD_2,               2 * hp->n_embd) \
    X(FF,                   w.n_ff) \
    X(HEADS,                w.n_head) \
    X(HEAD_K,               w.head_k) \
    X(HEADS_K,              w.n_head * w.head_k) \
    X(HEADS_V,              w.n_head * w.head_v) \
    X(KV_HEADS_K,           w.n_head_kv * w.head_k) \
    X(KV_HEADS_V,           w.n_head_kv * w.head_v) \
    X(Q_LORA,               hp->q_lora) \
    X(KV_LORA,              hp->kv_lora) \
    X(MLA,               hp->kv_lora + hp->rope_dim) \
    X(HEAD_PLAIN,           hp->head_k - hp->rope_dim) \
    X(HEAD_V,               hp->head_v) \
    X(HEAD_KV,              hp->head_k - hp->rope_dim + hp->head_v) \
    X(EXPERTS,              hp->n_expert) \
    X(EXPERT_FF,            hp->n_ff_exp) \
    X(EXPERT_FF_2,          hp->experts_ungated ? hp->n_ff_exp : 2 * hp->n_ff_exp) \
    X(EXPERT_IN,            hp->n_latent ? hp->n_latent : hp->n_embd) \
    X(ADJUGATE_FF,          hp->adjugate.ff) \
    X(LAYER_INPUT,          hp->n_input) \
    X(LAYER_INPUTS,         hp->n_input * hp->n_layers) \
    X(SHARED_FF,            hp->n_ff_shexp) \
    X(GROUP_BYTES,          1) /* depends on the layer */ \
    X(GROUPS,               1) \
    X(GATED_HEADS_K,        2 * w.n_head * w.head_k) \
    X(DELTA_TAPS,           hp->delta.taps) \
    X(DELTA_HEAD,           hp->delta.head) \
    X(DELTA_HEADS,          hp->delta.heads) \
    X(DELTA_RATES,          2 * hp->delta.heads) \
    X(DELTA_VALUES,         hp->delta.heads * hp->delta.head) \
    X(DELTA_MIX,            2 * hp->delta.key_heads * hp->delta.keys + hp->delta.heads * hp->delta.head) \
    X(DELTA_KEYS,           hp->delta.keys) \
    X(DELTA_RANK,           hp->delta.rank) \
    X(SCAN_GROUP,           hp->delta.key_heads ? hp->delta.heads * hp->delta.head / hp->delta.key_heads : 1) \
    X(SCAN_GROUPS,          hp->delta.key_heads) \
    X(INDEX_HEAD,           hp->index.head) \
    X(INDEX_EVERY,          hp->index.every) \
    X(INDEX_HEADS,          hp->index.heads) \
    X(INDEX_HEADS_K,        hp->index.heads * hp->index.head) \
    X(POOL_SPAN,            hp->pool[layer]) \
    X(POOL,                 ntx_pool_spans(hp, layer) * w.head_k) \
    X(KEY_POOL,             ntx_pool_spans(hp, layer) * hp->index.head) \
    X(PART_IN,              hp->o_parts ? w.n_head * w.head_v / hp->o_parts : 1) \
    X(PARTS,                hp->o_parts * hp->o_lora) \
    X(STREAMS,              hp->streams.n * hp->n_embd) \
    X(STREAM_COUNT,         hp->streams.n) \
    X(STREAM_LOW,           hp->streams.low) \
    X(GRAM_TAPS,            hp->grams.taps) \
    X(MIX,                  (2 + (hp->streams.rounds ? hp->streams.n : 0)) * hp->streams.n) \
    X(MIX_SCALES,           hp->streams.rounds ? 3 : 2) \
    X(EXPERTS_USED,         hp->n_expert_used) \
    X(TAPS,                 hp->head.n_taps * hp->head.width) \
    X(FUSED,                hp->head.norm_first ? hp->head.n_taps * hp->head.width : hp->n_embd) \
    X(VOCAB,                hp->n_vocab) \
    X(OUT_VOCAB,            hp->head.n_out ? hp->head.n_out : hp->n_vocab) \
    X(FREQS,                hp->rope_dim / 2) /* RoPE divisors */ \
    X(GRAM_WIDTH,           hp->grams.width) \
    X(GRAM_ENTRIES,            hp->grams.entries) \
    X(PATCH,                hp->tower ? 3 * hp->tower->patch * hp->tower->patch : 1) \
    X(QKV,                  w.n_head * w.head_k + w.n_head_kv * (w.head_k + w.head_v)) \
    X(PLACES,               hp->tower ? hp->tower->n_places : 1) \
    X(STATE,                hp->tower ? hp->tower->embd : 1) /* a tower's, in its projector */ \
    X(MERGED,               hp->tower ? hp->tower->state * hp->tower->merge * hp->tower->merge : 1) \
    X(MERGER,               hp->tower ? hp->tower->hidden : 1) \
    X(CONVERTED,            hp->tower ? hp->tower->converted : 1) \
    X(PICTURE,              hp->tower ? hp->tower->out : 1) \
    X(RANK,                 1) /* depends on the matrix */
/* clang-format on */

enum ntx_dim {
#define X(name, values) NTX_DIM_##name,
    NTX_DIMS(X)
#undef X
};

enum ntx_use {
    NTX_USE_MATRIX,   /* a matrix; cut into chunks, which the plan places */
    NTX_USE_RESIDENT, /* a matrix; one chunk, always in memory */
    NTX_USE_HEADS,    /* like RESIDENT: a matrix for each head, or group of experts, one after the other */
    NTX_USE_VECTOR,   /* an F32 vector; one chunk, always in memory */
    NTX_USE_VECTORS,  /* like VECTOR: one vector for each expert, or each channel */
    NTX_USE_TABLE,    /* like VECTORS, of any type */
    NTX_USE_EXPERT,   /* a matrix for each expert, one after the other in one tensor; each is a chunk */
    NTX_USE_GROUPS,   /* bytes of groups of neurons, in a packed layer (pack.h) */
    NTX_USE_LOOKUP,   /* a table of any type; a row is read when a token needs it. It has no chunks */
    NTX_USE_NUMBERS,  /* an I32 table, some numbers for each token; one chunk, always in memory */
};

/* Additions to a matrix's outputs (layer_delta.h): two low-rank matrices, or a full one; one set for the file
 * itself, and one for each adapter that may be loaded with it. */
#define NTX_LOWS(X, set, end)                                                                                          \
    X(q_low##set, "attn_q.weight.lora_a" end, EMBD, RANK, MATRIX)                                                      \
    X(q_high##set, "attn_q.weight.lora_b" end, RANK, HEADS_K, MATRIX)                                                  \
    X(q_rest##set, "attn_q.weight.delta" end, EMBD, HEADS_K, MATRIX)                                                   \
    X(k_low##set, "attn_k.weight.lora_a" end, EMBD, RANK, MATRIX)                                                      \
    X(k_high##set, "attn_k.weight.lora_b" end, RANK, KV_HEADS_K, MATRIX)                                               \
    X(k_rest##set, "attn_k.weight.delta" end, EMBD, KV_HEADS_K, MATRIX)                                                \
    X(v_low##set, "attn_v.weight.lora_a" end, EMBD, RANK, MATRIX)                                                      \
    X(v_high##set, "attn_v.weight.lora_b" end, RANK, KV_HEADS_V, MATRIX)                                               \
    X(v_rest##set, "attn_v.weight.delta" end, EMBD, KV_HEADS_V, MATRIX)                                                \
    X(o_low##set, "attn_output.weight.lora_a" end, HEADS_V, RANK, MATRIX)                                              \
    X(o_high##set, "attn_output.weight.lora_b" end, RANK, EMBD, MATRIX)                                                \
    X(o_rest##set, "attn_output.weight.delta" end, HEADS_V, EMBD, MATRIX)                                              \
    X(gate_low##set, "ffn_gate.weight.lora_a" end, EMBD, RANK, MATRIX)                                                 \
    X(gate_high##set, "ffn_gate.weight.lora_b" end, RANK, FF, MATRIX)                                                  \
    X(gate_rest##set, "ffn_gate.weight.delta" end, EMBD, FF, MATRIX)                                                   \
    X(up_low##set, "ffn_up.weight.lora_a" end, EMBD, RANK, MATRIX)                                                     \
    X(up_high##set, "ffn_up.weight.lora_b" end, RANK, FF, MATRIX)                                                      \
    X(up_rest##set, "ffn_up.weight.delta" end, EMBD, FF, MATRIX)                                                       \
    X(down_low##set, "ffn_down.weight.lora_a" end, FF, RANK, MATRIX)                                                   \
    X(down_high##set, "ffn_down.weight.lora_b" end, RANK, EMBD, MATRIX)                                                \
    X(down_rest##set, "ffn_down.weight.delta" end, FF, EMBD, MATRIX)
#define NTX_ADAPTERS_MAX 4u

/* Bounds of the inputs and of the outputs of a tower's matrix (Gemma 4). */
#define NTX_BOUNDS(X, m, name)                                                                                         \
    X(m##_in_min, name ".input_min", ONE, ONE, VECTOR)                                                                 \
    X(m##_in_max, name ".input_max", ONE, ONE, VECTOR)                                                                 \
    X(m##_out_min, name ".output_min", ONE, ONE, VECTOR)                                                               \
    X(m##_out_max, name ".output_max", ONE, ONE, VECTOR)

/* The last six tensors have the order of enum ntx_expert_part (chunk.h). */
#define NTX_LAYER_TENSORS(X)                                                                                           \
    /*field               name in the file              row length      rows         use */                            \
    X(nextn_enorm, "nextn.enorm.weight", EMBD, ONE, VECTOR)    /* next-token block: norm of the token's embedding, */  \
    X(nextn_hnorm, "nextn.hnorm.weight", EMBD, ONE, VECTOR)    /* norm of the previous token's state, */               \
    X(nextn_eh, "nextn.eh_proj.weight", EMBD_2, EMBD, MATRIX)  /* and the matrix that fuses both */                    \
    X(fuse_norm, "enc.output_norm.weight", FUSED, ONE, VECTOR) /* drafter: norm before or after the next, */           \
    X(fuse, "fc.weight", TAPS, EMBD, MATRIX)                   /* fuses states of several layers */                    \
    X(patch, "v.patch_embd.weight", PATCH, EMBD, MATRIX)       /* vision tower: pixels of a patch, */                  \
    X(patch_2, "v.patch_embd.weight.1", PATCH, EMBD, MATRIX)   /* and of the same place a moment later */              \
    X(patch_bias, "v.patch_embd.bias", EMBD, ONE, VECTOR)                                                              \
    X(places, "v.position_embd.weight", EMBD, PLACES, VECTORS) /* learned positions */                                 \
    X(convert_in, "mm.1.weight", STATE, CONVERTED, MATRIX)     /* two products of a state before it is joined, */      \
    X(convert_in_bias, "mm.1.bias", CONVERTED, ONE, VECTOR)                                                            \
    X(convert_out, "mm.2.weight", CONVERTED, PICTURE, MATRIX)                                                          \
    X(convert_out_bias, "mm.2.bias", PICTURE, ONE, VECTOR)                                                             \
    X(extra, "v.class_embd", EMBD, ONE, VECTOR)       /* what a row without a patch begins with */                     \
    X(pre_norm, "v.pre_ln.weight", EMBD, ONE, VECTOR) /* norm before its layers, */                                    \
    X(pre_norm_bias, "v.pre_ln.bias", EMBD, ONE, VECTOR)                                                               \
    X(post_norm, "v.post_ln.weight", EMBD, ONE, VECTOR) /* and after them */                                           \
    X(post_norm_bias, "v.post_ln.bias", EMBD, ONE, VECTOR)                                                             \
    X(attn_norm_bias, "ln1.bias", EMBD, ONE, VECTOR)                                                                   \
    X(qkv_bias, "attn_qkv.bias", QKV, ONE, VECTOR) /* of q, k and v, one behind the other */                           \
    X(ffn_norm_bias, "ln2.bias", EMBD, ONE, VECTOR)                                                                    \
    X(gate_bias, "ffn_gate.bias", FF, ONE, VECTOR)                                                                     \
    X(up_bias, "ffn_up.bias", FF, ONE, VECTOR)                                                                         \
    X(down_bias, "ffn_down.bias", EMBD, ONE, VECTOR)                                                                   \
    X(merge_norm, "merge_norm.weight", MERGED, ONE, VECTOR) /* projector: norm of a square's states, */                \
    X(merge_norm_bias, "merge_norm.bias", MERGED, ONE, VECTOR)                                                         \
    X(state_norm, "mm.input_norm.weight", STATE, ONE, VECTOR) /* or of one state, */                                   \
    X(state_norm_bias, "mm.input_norm.bias", STATE, ONE, VECTOR)                                                       \
    X(merge, "mm.patch_merger.weight", MERGED, STATE, MATRIX) /* a state of the square's, */                           \
    X(merge_in, "mm.0.weight", MERGED, MERGER, MATRIX)        /* two products of all states, */                        \
    X(merge_in_bias, "mm.0.bias", MERGER, ONE, VECTOR)                                                                 \
    X(merge_again, "mm.1.weight", MERGER, MERGER, MATRIX) /* of Llama 4 with one between them, */                      \
    X(merge_out, "mm.2.weight", MERGER, PICTURE, MATRIX)                                                               \
    X(merge_out_bias, "mm.2.bias", PICTURE, ONE, VECTOR)                                                               \
    X(state_in, "mm.1.weight", STATE, MERGER, MATRIX)                    /* the first of two products of one state, */ \
    X(state_turned, "mm.input_projection.weight", PICTURE, STATE, TABLE) /* or one product, transposed */              \
    X(patch_norm, "v.norm_embd.weight", EMBD, ONE, VECTOR)               /* norm of a patch before its position */     \
    X(square, "mm.patch_merger.weight", MERGED, PICTURE, MATRIX) /* projector of GLM: one state of a square, */        \
    X(square_bias, "mm.patch_merger.bias", PICTURE, ONE, VECTOR)                                                       \
    X(square_fc, "mm.model.fc.weight", PICTURE, PICTURE, MATRIX) /* a product with a norm behind it, */                \
    X(square_norm, "mm.post_norm.weight", PICTURE, ONE, VECTOR)                                                        \
    X(square_norm_bias, "mm.post_norm.bias", PICTURE, ONE, VECTOR)                                                     \
    X(square_gate, "mm.gate.weight", PICTURE, MERGER, MATRIX) /* and an FFN */                                         \
    X(square_up, "mm.up.weight", PICTURE, MERGER, MATRIX)                                                              \
    X(std_bias, "v.std_bias", STATE, ONE, VECTOR)   /* projector of Gemma 4: what is subtracted from a mean state, */  \
    X(std_scale, "v.std_scale", STATE, ONE, VECTOR) /* a factor of each of its values, */                              \
    X(state_out, "mm.input_projection.weight", STATE, PICTURE, MATRIX) /* and one product */                           \
    NTX_BOUNDS(X, q, "attn_q")                                                                                         \
    NTX_BOUNDS(X, k, "attn_k")                                                                                         \
    NTX_BOUNDS(X, v, "attn_v")                                                                                         \
    NTX_BOUNDS(X, o, "attn_out")                                                                                       \
    NTX_BOUNDS(X, gate, "ffn_gate")                                                                                    \
    NTX_BOUNDS(X, up, "ffn_up")                                                                                        \
    NTX_BOUNDS(X, down, "ffn_down")                                                                                    \
    X(attn_norm, "attn_norm.weight", EMBD, ONE, VECTOR)                                                                \
    X(q, "attn_q.weight", EMBD, HEADS_K, MATRIX)                                                                       \
    X(k, "attn_k.weight", EMBD, KV_HEADS_K, MATRIX)                                                                    \
    X(v, "attn_v.weight", EMBD, KV_HEADS_V, MATRIX)                                                                    \
    X(q_bias, "attn_q.bias", HEADS_K, ONE, VECTOR)                                                                     \
    X(k_bias, "attn_k.bias", KV_HEADS_K, ONE, VECTOR)                                                                  \
    X(v_bias, "attn_v.bias", KV_HEADS_V, ONE, VECTOR)                                                                  \
    X(q_norm, "attn_q_norm.weight", HEAD_K, ONE, VECTOR)                                                               \
    X(k_norm, "attn_k_norm.weight", HEAD_K, ONE, VECTOR)                                                               \
    X(q_norm_all, "attn_q_norm.weight", HEADS_K, ONE, VECTOR) /* over all heads */                                     \
    X(k_norm_all, "attn_k_norm.weight", KV_HEADS_K, ONE, VECTOR)                                                       \
    X(q_a, "attn_q_a.weight", EMBD, Q_LORA, MATRIX) /* low-rank q */                                                   \
    X(q_a_norm, "attn_q_a_norm.weight", Q_LORA, ONE, VECTOR)                                                           \
    X(q_b, "attn_q_b.weight", Q_LORA, HEADS_K, MATRIX)                                                                 \
    X(kv_a, "attn_kv_a_mqa.weight", EMBD, MLA, MATRIX) /* MLA latent, and the shared part of the key */                \
    X(kv_a_norm, "attn_kv_a_norm.weight", KV_LORA, ONE, VECTOR)                                                        \
    X(k_b, "attn_k_b.weight", HEAD_PLAIN, KV_LORA, HEADS) /* of K, transposed: it multiplies q */                      \
    X(v_b, "attn_v_b.weight", KV_LORA, HEAD_V, HEADS)                                                                  \
    X(kv_b, "attn_kv_b.weight", KV_LORA, HEAD_KV, HEADS)                 /* K and V, the rows of K first */            \
    X(index_q, "indexer.attn_q_b.weight", Q_LORA, INDEX_HEADS_K, MATRIX) /* indexer: queries, */                       \
    X(index_k, "indexer.attn_k.weight", EMBD, INDEX_HEAD, MATRIX)        /* a key for each position */                 \
    X(index_k_norm, "indexer.k_norm.weight", INDEX_HEAD, ONE, VECTOR)                                                  \
    X(index_k_bias, "indexer.k_norm.bias", INDEX_HEAD, ONE, VECTOR)                                                    \
    X(index_gate, "indexer_compressor_gate.weight", EMBD, INDEX_HEAD,                                                  \
      MATRIX) /* if several positions share a key: weight of each position, */                                         \
    X(index_place, "indexer_compressor_ape.weight", INDEX_HEAD, INDEX_EVERY, TABLE) /* and its bias by place */        \
    X(index_heads, "indexer.proj.weight", EMBD, INDEX_HEADS, RESIDENT)              /* weight of each query */         \
    X(block_q, "indexer.q_proj.weight", EMBD, INDEX_HEADS_K,                                                           \
      MATRIX) /* indexer of blocks of positions: queries, and a key for each position, */                              \
    X(block_k, "indexer.k_proj.weight", EMBD, INDEX_HEAD, MATRIX)                                                      \
    X(block_q_norm, "indexer.q_norm.weight", INDEX_HEAD, ONE, VECTOR)                                                  \
    X(block_k_norm, "indexer.k_norm.weight", INDEX_HEAD, ONE, VECTOR) /* norm of a block's mean */                     \
    X(kv, "attn_kv.weight", EMBD, HEAD_K, MATRIX)                     /* one K for all heads, which is also V */       \
    X(kv_norm, "attn_kv_a_norm.weight", HEAD_K, ONE, VECTOR)                                                           \
    X(pool, "attn_compressor_kv.weight", EMBD, POOL, MATRIX)            /* pooled K: values, */                        \
    X(pool_gate, "attn_compressor_gate.weight", EMBD, POOL, MATRIX)     /* weights, */                                 \
    X(pool_place, "attn_compressor_ape.weight", POOL, POOL_SPAN, TABLE) /* and what is added to that by its place */   \
    X(pool_norm, "attn_compressor_norm.weight", HEAD_K, ONE, VECTOR)                                                   \
    X(key_pool, "indexer_compressor_kv.weight", EMBD, KEY_POOL, MATRIX) /* the same for the indexer's keys */          \
    X(key_pool_gate, "indexer_compressor_gate.weight", EMBD, KEY_POOL, MATRIX)                                         \
    X(key_pool_place, "indexer_compressor_ape.weight", KEY_POOL, POOL_SPAN, TABLE)                                     \
    X(key_pool_norm, "indexer_compressor_norm.weight", INDEX_HEAD, ONE, VECTOR)                                        \
    X(o_a, "attn_output_a.weight", PART_IN, PARTS,                                                                     \
      MATRIX) /* block-diagonal: each block has some heads and some rows; the first of two output products */          \
    X(o_b, "attn_output_b.weight", PARTS, EMBD, MATRIX)                                                                \
    X(attn_mix, "hc_attn_fn.weight", STREAMS, MIX,                                                                     \
      MATRIX) /* hyper-connections: weights that mix the streams before and after attention */                         \
    X(attn_mix_scale, "hc_attn_scale.weight", MIX_SCALES, ONE, VECTOR)                                                 \
    X(attn_mix_base, "hc_attn_base.weight", MIX, ONE, VECTOR)                                                          \
    X(ffn_mix, "hc_ffn_fn.weight", STREAMS, MIX, MATRIX)                                                               \
    X(ffn_mix_scale, "hc_ffn_scale.weight", MIX_SCALES, ONE, VECTOR)                                                   \
    X(ffn_mix_base, "hc_ffn_base.weight", MIX, ONE, VECTOR)                                                            \
    X(head_mix, "output_hc_fn.weight", STREAMS, STREAM_COUNT, MATRIX) /* the model's; the last layer uses it */        \
    X(head_mix_scale, "output_hc_scale.weight", ONE, ONE, VECTOR)                                                      \
    X(head_mix_base, "output_hc_base.weight", STREAM_COUNT, ONE, VECTOR)                                               \
    X(head_low_norm, "output_hc_norm.weight", STREAMS, ONE,                                                            \
      VECTOR) /* the model's: mixing by two products, as below */                                                      \
    X(head_low, "output_hc_down.weight", STREAMS, STREAM_LOW, MATRIX)                                                  \
    X(head_high, "output_hc_up.weight", STREAM_LOW, STREAMS, MATRIX)                                                   \
    X(end_norm, "output_norm.weight", EMBD, ONE, VECTOR) /* the model's; the last layer subtracts the mean by it */    \
    X(end_recall, "output_res_score.weight", EMBD, ONE, VECTOR) /* the model's: mix of layers' outputs, at the end, */ \
    X(attn_recall, "attn_res_score.weight", EMBD, ONE, VECTOR)  /* before attention, */                                \
    X(ffn_recall, "ffn_res_score.weight", EMBD, ONE, VECTOR)    /* and before the FFN */                               \
    X(attn_low_norm, "hc_attn_norm.weight", STREAMS, ONE, VECTOR) /* mixing by two products: norm of the streams, */   \
    X(attn_spread, "hc_attn_inject.weight", STREAMS, STREAM_COUNT, RESIDENT) /* weights of the output in each, */      \
    X(attn_low, "hc_attn_down.weight", STREAMS, STREAM_LOW, MATRIX)          /* and gates of their values, low-rank */ \
    X(attn_high, "hc_attn_up.weight", STREAM_LOW, STREAMS, MATRIX)                                                     \
    X(ffn_low_norm, "hc_ffn_norm.weight", STREAMS, ONE, VECTOR)                                                        \
    X(ffn_spread, "hc_ffn_inject.weight", STREAMS, STREAM_COUNT, RESIDENT)                                             \
    X(ffn_low, "hc_ffn_down.weight", STREAMS, STREAM_LOW, MATRIX)                                                      \
    X(ffn_high, "hc_ffn_up.weight", STREAM_LOW, STREAMS, MATRIX)                                                       \
    X(gram_key, "ple_key.weight", EMBD, STREAMS, MATRIX)  /* n-gram embeddings: keys, */                               \
    X(gram_value, "ple_value.weight", EMBD, EMBD, MATRIX) /* a value, */                                               \
    X(gram_key_norm, "ple_norm_key.weight", STREAMS, ONE, VECTOR)                                                      \
    X(gram_query_norm, "ple_norm_query.weight", STREAMS, ONE,                                                          \
      VECTOR) /* norm of the queries, which are the streams, */                                                        \
    X(gram_conv_norm, "ple_norm_conv.weight", STREAMS, ONE, VECTOR)                                                    \
    X(gram_conv, "ple_conv1d.weight", GRAM_TAPS, STREAMS, TABLE)              /* and a convolution */                  \
    X(token_experts, "ffn_gate_tid2eid.weight", EXPERTS_USED, VOCAB, NUMBERS) /* experts by token, without a router */ \
    X(q_gated, "attn_q.weight", EMBD, GATED_HEADS_K, MATRIX) /* for each head q, then a gate of its output */          \
    X(delta_mix, "attn_qkv.weight", EMBD, DELTA_MIX,                                                                   \
      MATRIX) /* gated delta net: q and k of its key heads, v of its heads */                                          \
    X(delta_gate, "attn_gate.weight", EMBD, DELTA_VALUES, MATRIX)   /* gate of its output */                           \
    X(delta_beta, "ssm_beta.weight", EMBD, DELTA_HEADS, RESIDENT)   /* write rate of each head */                      \
    X(delta_alpha, "ssm_alpha.weight", EMBD, DELTA_HEADS, RESIDENT) /* decay of each head */                           \
    X(delta_rates, "ssm_ba.weight", EMBD, DELTA_RATES, RESIDENT)    /* both, by key head */                            \
    X(delta_conv, "ssm_conv1d.weight", DELTA_TAPS, DELTA_MIX, VECTORS)                                                 \
    X(delta_dt, "ssm_dt.bias", DELTA_HEADS, ONE, VECTOR)                                                               \
    X(delta_a, "ssm_a", DELTA_HEADS, ONE, VECTOR)                                                                      \
    X(delta_norm, "ssm_norm.weight", DELTA_HEAD, ONE, VECTOR) /* of each head's output */                              \
    X(delta_out, "ssm_out.weight", DELTA_VALUES, EMBD, MATRIX)                                                         \
    X(kda_q, "attn_q.weight", EMBD, DELTA_VALUES, MATRIX) /* KDA delta net: q, k and v of its heads, */                \
    X(kda_k, "attn_k.weight", EMBD, DELTA_VALUES, MATRIX)                                                              \
    X(kda_v, "attn_v.weight", EMBD, DELTA_VALUES, MATRIX)                                                              \
    X(kda_f_a, "ssm_f_a.weight", EMBD, DELTA_HEAD, MATRIX) /* decays, in two products, */                              \
    X(kda_f_b, "ssm_f_b.weight", DELTA_HEAD, DELTA_VALUES, MATRIX)                                                     \
    X(kda_g_a, "ssm_g_a.weight", EMBD, DELTA_HEAD, MATRIX) /* and the gate of its output, likewise */                  \
    X(kda_g_b, "ssm_g_b.weight", DELTA_HEAD, DELTA_VALUES, MATRIX)                                                     \
    X(kda_f, "ssm_f_a.weight", EMBD, DELTA_VALUES, MATRIX) /* or in one product each */                                \
    X(kda_g, "ssm_g_a.weight", EMBD, DELTA_VALUES, MATRIX)                                                             \
    X(kda_conv_q, "ssm_conv1d_q.weight", DELTA_TAPS, DELTA_VALUES, VECTORS)                                            \
    X(kda_conv_k, "ssm_conv1d_k.weight", DELTA_TAPS, DELTA_VALUES, VECTORS)                                            \
    X(kda_conv_v, "ssm_conv1d_v.weight", DELTA_TAPS, DELTA_VALUES, VECTORS)                                            \
    X(kda_dt, "ssm_dt.bias", DELTA_VALUES, ONE, VECTOR)                                                                \
    X(kda_a, "ssm_a", ONE, DELTA_HEADS, VECTORS)                                                                       \
    X(kda_out, "attn_output.weight", DELTA_VALUES, EMBD, MATRIX)                                                       \
    X(scan_gate, "ssm_z.weight", EMBD, DELTA_VALUES, MATRIX)  /* Mamba-2, fused in files: gate of its output, */       \
    X(scan_mix, "ssm_xbc.weight", EMBD, DELTA_MIX, MATRIX)    /* x, B and C, */                                        \
    X(scan_dt, "ssm_rates.weight", EMBD, DELTA_HEADS, MATRIX) /* and the rate of each head */                          \
    X(scan_conv_bias, "ssm_conv1d.bias", DELTA_MIX, ONE, VECTOR)                                                       \
    X(scan_a, "ssm_a", ONE, DELTA_HEADS, VECTORS)                                                                      \
    X(scan_d, "ssm_d", ONE, DELTA_HEADS, VECTORS)                                                                      \
    X(scan_norm, "ssm_norm.weight", SCAN_GROUP, SCAN_GROUPS, VECTORS)                                                  \
    X(each_in, "ssm_xs.weight", EMBD, DELTA_VALUES, MATRIX)         /* Mamba-1, fused in files: x, */                  \
    X(each_gate, "ssm_zs.weight", EMBD, DELTA_VALUES, MATRIX)       /* and the gate of its output; */                  \
    X(each_low, "ssm_low.weight", DELTA_VALUES, DELTA_RANK, MATRIX) /* fused, too: of x, low-rank rates, */            \
    X(each_b, "ssm_b.weight", DELTA_VALUES, DELTA_KEYS, MATRIX)     /* B, */                                           \
    X(each_c, "ssm_c.weight", DELTA_VALUES, DELTA_KEYS, MATRIX)     /* and C, */                                       \
    X(each_low_norm, "ssm_dt_norm.weight", DELTA_RANK, ONE, VECTOR) /* their norms, */                                 \
    X(each_b_norm, "ssm_b_norm.weight", DELTA_KEYS, ONE, VECTOR)                                                       \
    X(each_c_norm, "ssm_c_norm.weight", DELTA_KEYS, ONE, VECTOR)                                                       \
    X(each_dt, "ssm_dt.weight", DELTA_RANK, DELTA_VALUES, MATRIX) /* and the rate of each value */                     \
    X(each_a, "ssm_a", DELTA_KEYS, DELTA_VALUES, VECTORS)                                                              \
    X(each_d, "ssm_d", DELTA_VALUES, ONE, VECTOR)                                                                      \
    X(short_gate, "shortconv.b.weight", EMBD, EMBD, MATRIX)     /* short convolution, fused in files: factor of its */ \
    X(short_out_gate, "shortconv.c.weight", EMBD, EMBD, MATRIX) /* input and of its output, */                         \
    X(short_in, "shortconv.x.weight", EMBD, EMBD, MATRIX)       /* and the input */                                    \
    X(short_conv, "shortconv.conv.weight", DELTA_TAPS, EMBD, VECTORS)                                                  \
    X(short_out, "shortconv.out_proj.weight", EMBD, EMBD, MATRIX)                                                      \
    X(mla_gate, "attn_gate.weight", EMBD, HEADS_V, MATRIX)  /* gate of the output of MLA */                            \
    X(head_gate, "attn_gate.weight", EMBD, HEADS, RESIDENT) /* of each head's output */                                \
    X(sinks, "attn_sinks.weight", HEADS, ONE, VECTOR)       /* attention sink: a score without a value */              \
    X(o, "attn_output.weight", HEADS_V, EMBD, MATRIX)                                                                  \
    X(o_bias, "attn_output.bias", EMBD, ONE, VECTOR)                                                                   \
    X(attn_post_norm, "post_attention_norm.weight", EMBD, ONE, VECTOR) /* norm of what attention adds */               \
    X(ffn_norm, "ffn_norm.weight", EMBD, ONE, VECTOR)                                                                  \
    X(gate, "ffn_gate.weight", EMBD, FF, MATRIX)                                                                       \
    X(up, "ffn_up.weight", EMBD, FF, MATRIX)                                                                           \
    X(down, "ffn_down.weight", FF, EMBD, MATRIX)                                                                       \
    X(ffn_post_norm, "post_ffw_norm.weight", EMBD, ONE, VECTOR)   /* norm of what the FFN adds */                      \
    X(ffn_pre_norm_2, "pre_ffw_norm_2.weight", EMBD, ONE, VECTOR) /* experts beside a dense FFN: norm before them, */  \
    X(ffn_post_norm_2, "post_ffw_norm_2.weight", EMBD, ONE, VECTOR) /* after them, */                                  \
    X(ffn_post_norm_1, "post_ffw_norm_1.weight", EMBD, ONE, VECTOR) /* and after that FFN */                           \
    X(layer_scale, "layer_output_scale.weight", ONE, ONE, VECTOR)                                                      \
    X(inputs_proj, "per_layer_model_proj.weight", EMBD, LAYER_INPUTS, MATRIX) /* the model's; layer 0 uses it */       \
    X(inputs_norm, "per_layer_proj_norm.weight", LAYER_INPUT, ONE, VECTOR)    /* the model's, too */                   \
    X(input_gate, "inp_gate.weight", EMBD, LAYER_INPUT, MATRIX)                                                        \
    X(input_proj, "proj.weight", LAYER_INPUT, EMBD, MATRIX)                                                            \
    X(input_norm, "post_norm.weight", EMBD, ONE, VECTOR)                                                               \
    X(groups, NTX_PACK_TENSOR, GROUP_BYTES, GROUPS, GROUPS)             /* replaces up, down and maybe gate */         \
    X(groups_added, NTX_PACK_ADDED_TENSOR, GROUP_BYTES, GROUPS, GROUPS) /* additions of such a layer to its base's */  \
    NTX_LOWS(X, , "")                                                                                                  \
    NTX_LOWS(X, _1, ".1")                                                                                              \
    NTX_LOWS(X, _2, ".2")                                                                                              \
    NTX_LOWS(X, _3, ".3")                                                                                              \
    NTX_LOWS(X, _4, ".4")                                                                                              \
    X(router, "ffn_gate_inp.weight", EMBD, EXPERTS, RESIDENT)                                                          \
    X(router_bias, "ffn_gate_inp.bias", EXPERTS, ONE, VECTOR)                                                          \
    X(router_select, "exp_probs_b.bias", EXPERTS, ONE, VECTOR)     /* bias for the choice alone */                     \
    X(router_sees, "exp_probs_b_vl.bias", EXPERTS, ONE, VECTOR)    /* the same for rows of images */                   \
    X(router_scale, "ffn_gate_inp.scale", EMBD, ONE, VECTOR)       /* scale of the norm before it */                   \
    X(expert_scale, "ffn_down_exps.scale", EXPERTS, ONE, VECTOR)   /* factor of each expert's weight */                \
    X(shared_gate, "ffn_gate_inp_shexp.weight", EMBD, ONE, VECTOR) /* a matrix of one row */                           \
    X(gate_shared, "ffn_gate_shexp.weight", EMBD, SHARED_FF, MATRIX)                                                   \
    X(up_shared, "ffn_up_shexp.weight", EMBD, SHARED_FF, MATRIX)                                                       \
    X(down_shared, "ffn_down_shexp.weight", SHARED_FF, EMBD, MATRIX)                                                   \
    X(gate_beside, "ffn_gate_shexp.weight", EMBD, SHARED_FF, MATRIX) /* a shared expert beside those of latents */     \
    X(up_beside, "ffn_up_shexp.weight", EMBD, SHARED_FF, MATRIX)                                                       \
    X(down_beside, "ffn_down_shexp.weight", SHARED_FF, EMBD, MATRIX)                                                   \
    X(latent_down, "ffn_latent_down.weight", EMBD, EXPERT_IN, MATRIX)    /* experts of latents: before them, */        \
    X(latent_up, "ffn_latent_up.weight", EXPERT_IN, EMBD, MATRIX)        /* and after them, */                         \
    X(latent_norm, "ffn_routed_norm.weight", EXPERT_IN, ONE, VECTOR)     /* with a norm in between */                  \
    X(adjugate_gate, "ffn_gate_chexps.weight", EMBD, ADJUGATE_FF, HEADS) /* an expert of each group, beside others */  \
    X(adjugate_up, "ffn_up_chexps.weight", EMBD, ADJUGATE_FF, HEADS)                                                   \
    X(adjugate_down, "ffn_down_chexps.weight", ADJUGATE_FF, EMBD, HEADS)                                               \
    X(expert_gate_up, "ffn_gate_up_exps.weight", EXPERT_IN, EXPERT_FF_2,                                               \
      EXPERT) /* an expert's gate, then its up; or the halves of its up, without gates */                              \
    X(expert_gate_bias, "ffn_gate_exps.bias", EXPERT_FF, EXPERTS, VECTORS)                                             \
    X(expert_up_bias, "ffn_up_exps.bias", EXPERT_FF, EXPERTS, VECTORS)                                                 \
    X(expert_down_bias, "ffn_down_exps.bias", EMBD, EXPERTS, VECTORS)                                                  \
    X(expert_gate, "ffn_gate_exps.weight", EXPERT_IN, EXPERT_FF, EXPERT)                                               \
    X(expert_up, "ffn_up_exps.weight", EXPERT_IN, EXPERT_FF, EXPERT)                                                   \
    X(expert_down, "ffn_down_exps.weight", EXPERT_FF, EXPERT_IN, EXPERT)

enum ntx_tensor {
#define X(field, name, in, out, use) NTX_T_##field,
    NTX_LAYER_TENSORS(X)
#undef X
        NTX_N_TENSORS
};

/* Tensors of no layer, in their order of use. From this table come fields of struct ntx_model and of struct
 * ntx_chunks, checks, and the tensors of outlines, sketches (computed/plan/) and the model maker. The last column
 * computes from a model's numbers whether the tensor exists. */
enum ntx_has { NTX_NEVER, NTX_MAYBE /* it depends on the file */, NTX_ALWAYS };
#define NTX_END_TENSORS(X)                                                                                             \
    /*field               name in the file              row length      rows         use */                            \
    X(token_embd, "token_embd.weight", EMBD, VOCAB, LOOKUP, NTX_ALWAYS)                                                \
    X(input_embd, "per_layer_token_embd.weight", LAYER_INPUTS, VOCAB, LOOKUP,                                          \
      hp->n_input ? NTX_ALWAYS : NTX_NEVER) /* inputs of all layers */                                                 \
    X(gram_embd, "per_layer_token_embd.weight", GRAM_WIDTH, GRAM_ENTRIES, LOOKUP,                                      \
      hp->grams.layer ? NTX_ALWAYS : NTX_NEVER)                       /* of n-grams */                                 \
    X(rope_freqs, "rope_freqs.weight", FREQS, ONE, VECTOR, NTX_MAYBE) /* RoPE divisors (Llama 3.1) */                  \
    X(rope_long, "rope_factors_long.weight", FREQS, ONE, VECTOR,                                                       \
      hp->by && hp->by->rope_factors ? NTX_MAYBE : NTX_NEVER) /* RoPE divisors for contexts beyond rope_ctx_orig, */   \
    X(rope_short, "rope_factors_short.weight", FREQS, ONE, VECTOR,                                                     \
      hp->by && hp->by->rope_factors ? NTX_MAYBE : NTX_NEVER) /* and for others */                                     \
    X(output_norm, "output_norm.weight", EMBD, ONE, VECTOR, hp->no_output_norm ? NTX_NEVER : NTX_ALWAYS)               \
    X(output, "output.weight", EMBD, OUT_VOCAB, MATRIX, NTX_MAYBE) /* absent: it is token_embd */

enum ntx_end {
#define X(field, name, in, out, use, has) NTX_END_##field,
    NTX_END_TENSORS(X)
#undef X
        NTX_N_ENDS
};

/* Tensors of a layer that are fused in files of some architectures. */
#define NTX_WHOLES(X)                                                                                                  \
    /* symbol, name in the file, condition, first and last part, length of interleaved runs (0: contiguous) */         \
    X(qkv, "attn_qkv.weight", hp->qkv_fused, q, v, 0)                                                                  \
    X(gate_up, "ffn_up.weight", hp->gate_up_fused, gate, up, 0)                                                        \
    X(delta, "ssm_in.weight", hp->delta_joined, delta_mix, delta_gate,                                                 \
      hp->delta.head) /* for each key head q and k, then v of its heads, then the gates of their outputs */            \
    X(scan, "ssm_in.weight", true, scan_gate, scan_dt, 0)                                                              \
    X(each_in, "ssm_in.weight", true, each_in, each_gate, 0)                                                           \
    X(each_low, "ssm_x.weight", true, each_low, each_c, 0)                                                             \
    X(short_conv, "shortconv.in_proj.weight", true, short_gate, short_in, 0)

enum ntx_whole_kind {
#define X(symbol, name, has, first, last, run) NTX_WHOLE_##symbol,
    NTX_WHOLES(X)
#undef X
        NTX_N_WHOLES
};

struct ntx_tensor_kind {
    const char *name; /* in a layer "blk.N." precedes it */
    uint8_t in, out;  /* enum ntx_dim: length of a row, and number of rows */
    uint8_t use;      /* enum ntx_use */
};

extern const struct ntx_tensor_kind ntx_tensor_kinds[NTX_N_TENSORS], ntx_end_kinds[NTX_N_ENDS];
extern const char *const ntx_whole_names[NTX_N_WHOLES];

/* For code that reads files without a model. ntx_is_called: a tensor's name contains t's ("blk.3.ffn_up.weight").
 * ntx_is_kin: it contains the part of t's name before the first dot, like the names of routed and shared experts
 * ("blk.3.ffn_up_exps.weight"). */
bool ntx_is_called(const char *name, enum ntx_tensor t);
bool ntx_is_kin(const char *name, enum ntx_tensor t);
bool ntx_is_experts(const char *name); /* the tensor has a matrix for each expert */

/* The tensor belongs to the model, though a layer's steps use it: its name has no "blk.N.". */
static inline int ntx_is_models(enum ntx_tensor t)
{
    return t == NTX_T_end_norm || t == NTX_T_end_recall || t == NTX_T_inputs_proj || t == NTX_T_inputs_norm ||
           t == NTX_T_fuse || t == NTX_T_fuse_norm || (t >= NTX_T_head_mix && t <= NTX_T_head_high);
}

/* One matrix for each group of experts (adjugate experts). */
static inline int ntx_is_adjugate(enum ntx_tensor t) { return t >= NTX_T_adjugate_gate && t <= NTX_T_adjugate_down; }

/* Rows are multiplied by this tensor, wherever it is stored. */
static inline int ntx_is_matrix(enum ntx_tensor t)
{
    uint8_t use = ntx_tensor_kinds[t].use;
    return use == NTX_USE_MATRIX || use == NTX_USE_RESIDENT || use == NTX_USE_HEADS || use == NTX_USE_EXPERT;
}

/* The first of the three tensors that may add to a matrix's outputs; NTX_N_TENSORS: the matrix cannot have them. */
static inline enum ntx_tensor ntx_low_of(enum ntx_tensor t)
{
    switch (t) {
    case NTX_T_q: return NTX_T_q_low;
    case NTX_T_k: return NTX_T_k_low;
    case NTX_T_v: return NTX_T_v_low;
    case NTX_T_o: return NTX_T_o_low;
    case NTX_T_gate: return NTX_T_gate_low;
    case NTX_T_up: return NTX_T_up_low;
    case NTX_T_down: return NTX_T_down_low;
    default: return NTX_N_TENSORS;
    }
}
static inline int ntx_is_low(enum ntx_tensor t) { return t >= NTX_T_q_low && t <= NTX_T_down_rest_4; }
enum ntx_low_part { NTX_LOW, NTX_HIGH, NTX_REST, NTX_LOW_PARTS };
#define NTX_LOW_SET                                                                                                    \
    (NTX_T_q_low_1 - NTX_T_q_low) /* from one adapter's to the next one's; the file's own come first   \
                                                   */
static inline enum ntx_low_part ntx_low_part_of(enum ntx_tensor t)
{
    return (enum ntx_low_part)((t - NTX_T_q_low) % NTX_LOW_PARTS);
}

/* A matrix "X.weight" that may have an F32 "X.scale", as in files of NVFP4: its products are multiplied by that, one
 * value, or one for each expert. (The router's "X.scale" is router_scale.) */
static inline int ntx_is_scalable(enum ntx_tensor t)
{
    return ntx_is_matrix(t) && ntx_tensor_kinds[t].use != NTX_USE_HEADS && t != NTX_T_router && !ntx_is_low(t);
}

#endif
