/* SPDX-License-Identifier: Apache-2.0 */
/* describe.h: the description of a model to be made: its keys and its list of tensors. */
#ifndef NTX_TESTS_MKMODEL_DESCRIBE_H
#define NTX_TESTS_MKMODEL_DESCRIBE_H

#include "tests/mkmodel/gguf_write.h"

struct mk_options {
    const char *arch, *type, *name, *chat_template, *vocab_from;
    const char *rope_scaling;                                        /* "none", "linear", "yarn" */
    uint32_t layers, embd, ff, heads, kv, head_dim, ctx, vocab_size; /* head_dim, vocab_size: 0 for the default */
    uint32_t experts, experts_used, expert_ff, shared_ff;            /* experts 0: none; widths 0: ff */
    uint32_t latent; /* width of what experts read, where two more products surround them; 0: none */
    uint32_t q_lora, kv_lora, value_dim, expert_groups,
        expert_groups_used; /* MLA; value_dim 0: head_dim; groups of experts */
    bool kv_joined,
        sigmoid; /* joined: one tensor has both matrices of a head; sigmoid: the router's score, normalised */
    uint32_t window, dense, nextn,
        rotated; /* dense: leading layers without experts; nextn: blocks behind the layers; rotated 0: whole heads */
    uint32_t delta_head, delta_heads, delta_keys, delta_taps,
        attention_every; /* where layers are delta nets; 0: 32, 4, 2, 4, 4 */
    uint32_t window_head, full_kv, shared_kv,
        layer_input;       /* gemma4: widths of heads with a window; K and V heads of layers without one; last layers
                              without K and V; per-layer inputs. 0: head_dim, kv, none, none */
    uint32_t window_heads; /* step35: heads of layers with a window; 0: heads */
    float rope_base, rope_factor, logit_scale, expert_scale, log_multiplier,
        yarn_magnitude; /* log_multiplier: of YaRN, where the architecture has one; yarn_magnitude: yarn_attn_factor. 0:
                           no key */
    uint32_t rope_orig; /* context before scaling; 0: ctx / factor */
    uint32_t expert_every;                      /* llama4: the last of so many layers has experts; 0: 1 */
    uint32_t chunk, chunk_pattern, temperature; /* llama4: attention.sliding_window and its pattern; deepseek2,
                                                   mistral4: attention.temperature_length. 0: no key */
    uint32_t index_heads, index_head, index_most, index_every,
        index_pool;    /* deepseek32, glm-dsa: indexer: number of queries, their width, chosen positions, and the
                          first of so many layers has one; glm5-next: size of blocks; 0: 8, 64, 24, no key (all
                          layers), 4 */
    float delta_bound; /* glm5-next: -(bound of the log decay of delta nets); 0: none */
    uint32_t hashed, o_parts,
        o_lora; /* deepseek4: first layers whose experts follow from the token; blocks of the output matrix, and
                   values of each between its two products; 0: none, 2, 32 */
    uint32_t low_rank, gram_layer, gram_heads,
        gram_entries;  /* qwen4exp: rank of the products that mix streams; layer with n-gram embeddings, from 1 on;
                          table entries for each of two lengths of n-grams, and their number; 0: 16, none, 2, 97 */
    bool fused, no_v;  /* an expert's gate and up are one; gemma4: layers without a window have no V, phi3: q, k and v
                          are not one */
    bool delta_joined; /* qwen3next: a delta net's q, k, v and gate are one */
    uint32_t lora_rank;
    bool shared; /* model/layer_delta.h: rank of the additions, ffn_up's being full; all layers share the first one's
                    matrices. The program has no options for these */
    bool holes;  /* weights are zeros in holes of the file, which take no room on the drive */
    float nextn_agrees; /* factor that makes the layers' additions small, so that the next-token block, which uses
                           the token alone, mostly agrees; 0: no such factor */
    const char *taps;
    uint32_t state_width, draft_vocab,
        block; /* drafters: tapped layers, as text; width of states; known tokens; tokens drafted at once. NULL, 0:
                  "0,1,2", embd, all, 8 */
    bool norm_first, norm_residual, bare; /* bare: embedding and output are the large model's */
    bool scales;                          /* "X.scale" beside matrices "X.weight", and an "X.input_scale" */
    bool tied, rope_freqs, biases, qk_norms, repeat_layers; /* biases, qk_norms: if the architecture leaves them open */
    uint32_t version, parts;
    uint64_t seed;
};

/* Names of types for --help; a check of a name. */
const char *mk_type_names(void);
bool mk_type_known(const char *type);

bool mk_arch_known(const char *arch);
/* A layer behind the dense ones has experts, if the model has n. */
bool mk_arch_experts(const char *arch, uint32_t n);

/* Keys of the vocabulary (vocab.c): the built-in one, or a copy of another file's. *n: number of tokens. */
int mk_vocab(struct mk_file *f, const struct mk_options *o, uint32_t *n, struct ntx_err *err);

/* The same for a drafter of the kind that --arch names (head.c). */
bool mk_is_head(const char *arch);
int mk_describe_head(struct mk_file *f, const struct mk_options *o, struct ntx_err *err);

/* The same for a projector file with a vision tower of some kind, "mmproj-KIND" (tower.c). */
#define MK_TOWER "mmproj-"
bool mk_is_tower(const char *arch);
void mk_describe_tower(struct mk_file *f, const struct mk_options *o);

/* Adds all keys and tensors. *freqs is malloc'd if the model has rope_freqs: free it after writing. */
int mk_describe(struct mk_file *f, const struct mk_options *o, float **freqs, struct ntx_err *err);

#endif
