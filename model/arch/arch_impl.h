/* SPDX-License-Identifier: Apache-2.0 */
/* arch_impl.h: what the files of this folder share with arch.c; nobody else includes it.
 *
 *   keys.c      hyper-parameters, as most architectures' keys name them; what is one architecture's own stands in its
 *               file
 *   pieces.c    steps that most layers are made of
 *   pieces_mla.c pieces_delta.c pieces_streams.c what several architectures have of attention over latents, of delta
 *     nets and of residual streams: keys, and steps
 *   the others  an architecture each (and its cousins), or a kind of file that guesses: what its keys say, and what its
 *               layers do
 *
 * A new architecture is a file here and an entry of NTX_ARCHS; a tensor that no other has is one of tensors.h. */
#ifndef NTX_MODEL_ARCH_ARCH_IMPL_H
#define NTX_MODEL_ARCH_ARCH_IMPL_H

#include "model/arch.h"

/* Symbol and GGUF name. */
#define NTX_ARCHS(X)                                                                                                   \
    X(llama, "llama")                                                                                                  \
    X(llama_relu, "llama-relu")                                                                                        \
    X(qwen2, "qwen2")                                                                                                  \
    X(qwen3, "qwen3")                                                                                                  \
    X(qwen2moe, "qwen2moe")                                                                                            \
    X(qwen3moe, "qwen3moe")                                                                                            \
    X(gpt_oss, "gpt-oss")                                                                                              \
    X(glm4moe, "glm4moe")                                                                                              \
    X(minimax_m2, "minimax-m2")                                                                                        \
    X(olmoe, "olmoe")                                                                                                  \
    X(smollm3, "smollm3")                                                                                              \
    X(mistral3, "mistral3")                                                                                            \
    X(granite, "granite")                                                                                              \
    X(granitemoe, "granitemoe")                                                                                        \
    X(gemma2, "gemma2")                                                                                                \
    X(gemma3, "gemma3")                                                                                                \
    X(gemma4, "gemma4")                                                                                                \
    X(deepseek, "deepseek")                                                                                            \
    X(deepseek2, "deepseek2")                                                                                          \
    X(mistral4, "mistral4")                                                                                            \
    X(deepseek32, "deepseek32")                                                                                        \
    X(glm_dsa, "glm-dsa")                                                                                              \
    X(deepseek4, "deepseek4")                                                                                          \
    X(qwen3next, "qwen3next")                                                                                          \
    X(qwen35, "qwen35")                                                                                                \
    X(qwen35moe, "qwen35moe")                                                                                          \
    X(kimi_linear, "kimi-linear")                                                                                      \
    X(glm5_next, "glm5-next")                                                                                          \
    X(qwen4exp, "qwen4exp") X(phi3, "phi3") X(llama4, "llama4") X(step35, "step35") X(hy_v4, "hy_v4")

/* Files that guess by states of another model's layers: no models by themselves. */
#define NTX_HEADS(X)       X(eagle3, "eagle3", "EAGLE-3") X(dflash, "dflash", "DFlash")

#define NTX__OWN_KEYS      16
#define NTX__IMAGE_TENSORS 4

enum ntx__presence { NTX__NEVER, NTX__MAYBE /* the file's keys or tensors tell */, NTX__ALWAYS };

struct ntx__keys;
struct ntx__arch {
    enum ntx__presence experts;
    bool own_name;    /* no other program knows it by this name */
    bool expert_norm; /* unless a key says otherwise */
    uint8_t score;    /* the same: enum ntx_score */
    bool any_score;   /* a key may say otherwise */
    /* Its own keys, after the shared ones: NULL: it has none. `own` names those that would be refused or mean something
     * else with others. */
    bool rope_factors; /* a file may have two lists of divisors of frequencies: for a context beyond rope_ctx_orig, and
                          for others */
    bool per_layer;    /* counts of heads and widths of FFNs may differ from layer to layer: its own keys see to that */
    bool unturned;     /* heads may have no part that is rotated */
    bool kv_heads_tell; /* a layer of which attention.head_count_kv is 0 keeps a state: its own keys see to that */
    int (*keys)(struct ntx__keys *k);
    const char *own[NTX__OWN_KEYS];
    bool
        nextn; /* a next-token block is, behind what all such begin with, a layer behind the dense and recurrent ones */
    /* The steps of layer l. */
    void (*layer)(const struct ntx_model *m, uint32_t l, struct ntx_layer *out);
    uint32_t (*width)(const struct ntx_hparams *hp,
                      enum ntx_dim d); /* where it is another one than tensors.h says; 0: it is not. Or NULL */
    const char *names[NTX_N_TENSORS];  /* of tensors that it calls otherwise than tensors.h */
    bool kept[NTX_N_TENSORS];          /* matrices whose precision a quantiser leaves, beside those of which that holds
                                          everywhere (model/mix.c) */
    const char *images[NTX__IMAGE_TENSORS]; /* tensors of a layer, named as in tensors.h, that only images use: a file
                                               may have them */
    const struct ntx_known *models;         /* that are known by name, up to one without; or NULL */
};

/* Keys that several of these have. */
#define NTX__QWEN_DELTA " ssm.state_size=128 ssm.group_count=16 ssm.conv_kernel=4"
#define NTX__QWEN_TURN  " rope.dimension_count=64 rope.dimension_sections=11,11,10,0"
#define NTX__MLA        "attention.kv_lora_rank=512 rope.dimension_count=64 "
#define NTX__INDEXER(heads)                                                                                            \
    " attention.indexer.head_count=" heads " attention.indexer.key_length=128 attention.indexer.top_k=2048"

#define X(symbol, name) extern const struct ntx__arch ntx__arch_##symbol;
NTX_ARCHS(X)
#undef X
#define X(symbol, name, kind) extern const struct ntx__arch ntx__arch_##symbol;
NTX_HEADS(X)
#undef X

/* ---- pieces.c */
struct ntx__experts;
void ntx__takes(struct ntx_step *s, enum ntx_tensor t, enum ntx__presence has);
void ntx__norm(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t, enum ntx__presence has,
               uint32_t heads, uint32_t width);
void ntx__split(struct ntx_layer *l, enum ntx_buf b, enum ntx_buf other, uint32_t heads, uint32_t width);
void ntx__add_state(const struct ntx_hparams *hp, struct ntx_layer *l); /* h += y */
struct ntx_step *ntx__add_norm(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t heads,
                               uint32_t width); /* without a weight */
void ntx__add_product(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t);
void ntx__add_experts_alone(const struct ntx_model *m, struct ntx_layer *out,
                            const struct ntx__experts *has); /* y = experts(x), x being there */
struct ntx__attention {                                      /* what a layer's attention has beside q, k, v and o */
    uint32_t layer;                                          /* where layers differ in widths */
    enum ntx_rope_kind rope;
    enum ntx__presence qkv_bias, o_bias, sinks;
    enum ntx__presence qk_norm, qk_norm_all; /* of each head; of all at once, where there are no biases before */
    bool paired;   /* q, k and v are of the token's embedding and of the state that came with it, each normed; h is that
                      state */
    bool unturned; /* q and k are not rotated */
    enum ntx_rotation turn;
    bool post_norm;  /* of what is added; the same of FFNs */
    bool gated;      /* q's matrix gives each head a gate of its output, too */
    bool head_gates; /* a matrix gives each head one number that gates its output */
    float scale;     /* of scores; 0: one by the root of a head's width */
    float cap;       /* of scores; 0: none */
    bool borrows;    /* another layer's K and V are read: it has none */
    bool v_of_k;     /* V is what K is before its norm */
    bool v_norm;     /* of each head of V, without a scale */
    bool bare_norm;  /* of each head of q and k, without a scale, behind the rotation */
    uint32_t window,
        stretch; /* positions that a row sees, its own included; of stretches of so many, its own only. 0: all */
    struct ntx_temperature temperature;
};
/* h = eh(norm of the token's embedding, norm of the state that came with it) */
void ntx__add_nextn(const struct ntx_hparams *hp, struct ntx_layer *out);
/* h = fuse(states), with a norm before it or behind it */
void ntx__add_fuse(const struct ntx_hparams *hp, struct ntx_layer *out);
/* K and V of h, into the layer's state */
void ntx__add_kv_alone(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out);
/* h += o(attend(q, k, v of norm(h))) */
void ntx__add_attention(const struct ntx_hparams *hp, struct ntx_layer *out, const struct ntx__attention *has);
struct ntx__mla {     /* what attention over latents has beside these */
    bool gated;       /* each value that comes out has a gate, and each head a sink */
    bool unturned;    /* nothing is turned: rope_dim values of a key are of all heads all the same */
    bool keys_behind; /* of what positions are chosen by the last values are rotated, and it is not turned as a whole */
};
/* The same by latents (hp->kv_lora): adjacent pairs behind the part of a head that is not rotated are. To positions
 * that are chosen, where hp->index says so. */
void ntx__add_mla_attention(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out,
                            const struct ntx__mla *has);
/* h += out(gate(delta net of norm(h))): joined: its rates come of one matrix, and neighbouring heads share a key head.
 * */
void ntx__add_delta(const struct ntx_hparams *hp, struct ntx_layer *out, bool joined);
/* The same of x, which is there, and into y; `sigmoid`: of the gate, not SiLU; and lengths of q and k are those of
 * qwen4exp. */
void ntx__add_delta_alone(const struct ntx_hparams *hp, struct ntx_layer *out, bool joined, bool sigmoid);
/* h += gate(delta net that forgets by the key, of norm(h)) */
void ntx__add_kda(const struct ntx_hparams *hp, struct ntx_layer *out);
/* The same of x, which is there, and into y: of several residual streams. */
void ntx__add_kda_alone(const struct ntx_hparams *hp, struct ntx_layer *out, enum ntx_tensor a,
                        float bound); /* bound: as RATES has it */
void ntx__add_mla_alone(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out,
                        const struct ntx__mla *has);
void ntx__add_dense_alone(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, enum ntx_ffn_act act);
/* Residual streams (pieces_streams.c): they become h's copies; x of them, by tensor `mix` and the two behind it, and
 * then `norm`; y goes back into them; h is their mean, or, of the last layer, what they weigh together in the end. */
void ntx__streams_begin(const struct ntx_hparams *hp, struct ntx_layer *l);
void ntx__streams_enter(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_tensor mix, enum ntx_tensor norm);
void ntx__streams_leave(const struct ntx_hparams *hp, struct ntx_layer *l);
void ntx__streams_mean(const struct ntx_hparams *hp, struct ntx_layer *l);
void ntx__streams_join(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l);
/* h += ffn(norm(h)): dense, or packed where the file is. */
void ntx__add_dense(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, enum ntx_ffn_act act);
void ntx__add_dense_normed(const struct ntx_model *m, uint32_t l, struct ntx_layer *out,
                           enum ntx_ffn_act act); /* with a norm of what it adds */
struct ntx__experts {                             /* what a layer's experts have beside a router and three matrices */
    enum ntx_ffn_act act;
    enum ntx__presence biases, choice; /* of the router and of each expert; added to the scores for the choice alone */
    bool weighs_input;                 /* shares multiply what experts get, not what they give */
    enum ntx__presence numbered;       /* a token's experts are in a table */
    enum ntx__presence shared, shared_gate; /* one that every row goes through; what weighs it */
};
/* h += norm(norm(ffn(norm(h))) + norm(experts(norm(h)))), the router having a norm of its own, too */
void ntx__add_both(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, enum ntx_ffn_act act);
/* The same by experts. */
void ntx__add_experts(const struct ntx_model *m, struct ntx_layer *out, const struct ntx__experts *has);

/* h += norm(proj(act(gate h) * the token's input of this layer)); and before layer 0, the inputs of all layers. */
void ntx__add_inputs(const struct ntx_model *m, struct ntx_layer *out);
void ntx__add_input(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, enum ntx_ffn_act act);

/* ---- keys.c */
struct ntx__keys {
    const struct ntx_gguf *g;
    const struct ntx__arch *arch;
    const char *name; /* of the architecture */
    struct ntx_model *m;
    struct ntx_hparams *hp; /* the model's */
    struct ntx_err *err;
    char key[96]; /* the last one asked for */
};
int ntx__read_keys(struct ntx__keys *k);

/* "ARCH.SUFFIX", which stays in k->key. */
const char *ntx__key_of(struct ntx__keys *k, const char *suffix);
/* Its value: an integer in [min, max]; `fallback` when absent, or an error where that is -1. */
int ntx__key_u32(struct ntx__keys *k, const char *suffix, int64_t fallback, uint64_t min, uint64_t max, uint32_t *out);
/* `fallback` when absent, or an error where that is NAN. */
int ntx__key_f32(struct ntx__keys *k, const char *suffix, float fallback, float min, float max, float *out);
/* attention.sliding_window and its pattern: hp->window, `fallback` as above, and which layers have it: as an array
 * tells, or of so many in a row (`every`, where the key does not say otherwise) all but the last. */
int ntx__key_windows(struct ntx__keys *k, int64_t fallback, uint32_t every);
/* Makes hp->dims: heads, K and V heads and FFNs as the keys' numbers or arrays say, all else as hp says. */
int ntx__make_dims(struct ntx__keys *k);
/* hp->own: `size` bytes of 0, for a struct of the architecture's file. NULL: there is no memory, as the error says. */
void *ntx__own(struct ntx__keys *k, size_t size);
/* Whether a layer has a tensor of that name. */
bool ntx__has(const struct ntx__keys *k, uint32_t layer, const char *name);
/* Where the first layer with experts (hp->n_dense) has their gates and ups in one matrix, all have. */
void ntx__find_fused_experts(struct ntx__keys *k);
/* Widths of attention over latents, and of what chooses its positions (pieces_mla.c). */
int ntx__key_mla(struct ntx__keys *k);
struct ntx__indexer {
    bool all;    /* each layer chooses, and no key says otherwise */
    bool fourth; /* where no key says which layers do: the first three and every fourth behind them; else all */
    enum ntx_rope_kind pairs;
};
int ntx__key_indexer(struct ntx__keys *k, const struct ntx__indexer *has);
/* How many residual streams there are (pieces_streams.c); the same, and how they are mixed with one another; a limit of
 * gates that all layers have; a delta net's that forgets by the key (pieces_delta.c). */
int ntx__key_stream_count(struct ntx__keys *k);
int ntx__key_streams(struct ntx__keys *k);
int ntx__key_limit(struct ntx__keys *k, const char *suffix, float fallback, float *out);
int ntx__key_kda(struct ntx__keys *k);
/* Which layers are delta nets, and how wide these are (pieces_delta.c); sections of rotated pairs, which must leave
 * none out (qwen35.c). */
int ntx__key_recurrent(struct ntx__keys *k);
int ntx__key_delta(struct ntx__keys *k);
int ntx__check_sections(struct ntx__keys *k);
/* target_layers, and what a file that guesses by their states knows of the vocabulary (eagle3.c). */
int ntx__key_taps(struct ntx__keys *k);
int ntx__key_truth(struct ntx__keys *k, const char *suffix, bool *out); /* which stays as it is where there is none */
/* Layers that keep a state, as attention.head_count_kv tells. */
int ntx__key_recurrent_kv(struct ntx__keys *k);
/* nextn_predict_layers: that many of the last blocks are not layers of the text's; what they hold is known, and never
 * read. */
int ntx__key_nextn(struct ntx__keys *k);
double ntx__yarn_magnitude(const struct ntx_hparams *hp, double by); /* 1 + 0.1 by ln(rope_factor) */
#define NTX__MAX_WIDTH (1u << 20) /* of a matrix's inputs; a bound for arithmetic further on, far above real models */

#endif
