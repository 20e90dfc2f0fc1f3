/* SPDX-License-Identifier: Apache-2.0 */
/* arch_impl.h: shared by the files of this folder; no other file includes it.
 *
 *   keys.c             hyper-parameters that most architectures have; special ones are in the architecture's file
 *   pieces.c           steps that most layers have
 *   pieces_mla.c       keys and steps of multi-head latent attention (MLA)
 *   pieces_delta.c     keys and steps of delta nets
 *   pieces_scan.c      keys and steps of Mamba-2 scans, and of short convolutions
 *   pieces_streams.c   keys and steps of hyper-connections
 *   pieces_limits.c    limits of activations by layer
 *   tower.c            keys and steps of vision towers (tower.h)
 *   the others         one architecture each (and its relatives), or one kind of drafter or of tower
 *
 * A new architecture needs a file here and an entry of NTX_ARCHS; a new tensor needs an entry in tensors.h. */
#ifndef NTX_MODEL_ARCH_ARCH_IMPL_H
#define NTX_MODEL_ARCH_ARCH_IMPL_H

#include "model/arch.h"

/* Symbol and GGUF name. */
#define NTX_ARCHS(X)                                                                                                   \
    X(llama, "llama")                                                                                                  \
    X(llama_relu, "llama-relu")                                                                                        \
    X(qwen2, "qwen2")                                                                                                  \
    X(qwen2vl, "qwen2vl")                                                                                              \
    X(qwen3, "qwen3")                                                                                                  \
    X(qwen2moe, "qwen2moe")                                                                                            \
    X(qwen3moe, "qwen3moe")                                                                                            \
    X(gpt_oss, "gpt-oss")                                                                                              \
    X(glm4moe, "glm4moe")                                                                                              \
    X(minimax_m2, "minimax-m2")                                                                                        \
    X(minimax_m3, "minimax-m3")                                                                                        \
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
    X(granitehybrid, "granitehybrid")                                                                                  \
    X(falcon_h1, "falcon-h1")                                                                                          \
    X(nemotron_h, "nemotron_h")                                                                                        \
    X(nemotron_h_moe, "nemotron_h_moe")                                                                                \
    X(jamba, "jamba")                                                                                                  \
    X(deci, "deci")                                                                                                    \
    X(lfm2, "lfm2")                                                                                                    \
    X(lfm2moe, "lfm2moe")                                                                                              \
    X(qwen4exp, "qwen4exp")                                                                                            \
    X(phi3, "phi3")                                                                                                    \
    X(llama4, "llama4")                                                                                                \
    X(step35, "step35")                                                                                                \
    X(hy_v4, "hy_v4")                                                                                                  \
    X(qwen3vl, "qwen3vl")                                                                                              \
    X(qwen3vlmoe, "qwen3vlmoe")                                                                                        \
    X(glm4, "glm4")                                                                                                    \
    X(hunyuan_moe, "hunyuan-moe")                                                                                      \
    X(hy_v3, "hy_v3")                                                                                                  \
    X(dots1, "dots1")                                                                                                  \
    X(ernie4_5_moe, "ernie4_5-moe")                                                                                    \
    X(seed_oss, "seed_oss")                                                                                            \
    X(afmoe, "afmoe")                                                                                                  \
    X(exaone_moe, "exaone-moe")                                                                                        \
    X(bailingmoe2, "bailingmoe2")                                                                                      \
    X(bailingmoe3, "bailingmoe3")                                                                                      \
    X(laguna, "laguna")                                                                                                \
    X(apertus, "apertus")                                                                                              \
    X(mimo2, "mimo2")                                                                                                  \
    X(grok, "grok")                                                                                                    \
    X(grovemoe, "grovemoe")                                                                                            \
    X(dbrx, "dbrx")                                                                                                    \
    X(kimi_k3, "kimi-k3")                                                                                              \
    X(cohere2, "cohere2")                                                                                              \
    X(cohere2moe, "cohere2moe")

/* Drafters that use states of another model's layers; they are not models by themselves. */
#define NTX_HEADS(X) X(eagle3, "eagle3", "EAGLE-3") X(dflash, "dflash", "DFlash")

/* Vision towers, by the key clip.projector_type. */
#define NTX_TOWERS(X)                                                                                                  \
    X(tower_qwen2vl, "qwen2vl_merger")                                                                                 \
    X(tower_qwen25vl, "qwen2.5vl_merger")                                                                              \
    X(tower_qwen3vl, "qwen3vl_merger")                                                                                 \
    X(tower_glm4v, "glm4v")                                                                                            \
    X(tower_glm5v, "glm5v")                                                                                            \
    X(tower_kimik25, "kimik25")                                                                                        \
    X(tower_gemma3, "gemma3")                                                                                          \
    X(tower_minimax, "minimax_m3")                                                                                     \
    X(tower_llama4, "llama4")                                                                                          \
    X(tower_deepseek4v, "deepseek4v")                                                                                  \
    X(tower_mimovl, "mimovl")                                                                                          \
    X(tower_gemma4, "gemma4v")                                                                                         \
    X(tower_pixtral, "pixtral")

#define NTX__OWN_KEYS       16
#define NTX__UNREAD_TENSORS 4

enum ntx__presence { NTX__NEVER, NTX__MAYBE /* the file's keys or tensors tell */, NTX__ALWAYS };

struct ntx__keys;
struct ntx__arch {
    enum ntx__presence experts;
    bool own_name;    /* no other program knows this name */
    bool expert_norm; /* default of router.norm */
    uint8_t score;    /* default of router.score: enum ntx_score */
    bool any_score;   /* a key may change the score */
    /* `keys` reads the architecture's own keys, after the shared ones; NULL: it has none. `own` lists keys that
     * other architectures refuse or read differently. */
    bool rope_factors;  /* a file may have two lists of RoPE divisors: for contexts beyond rope_ctx_orig, and for
                           others */
    bool per_layer;     /* `keys` handles numbers of heads and FFN widths that differ from layer to layer */
    bool unturned;      /* RoPE may be absent */
    bool interleaved;   /* sections of RoPE take turns */
    bool layer_norm;    /* norms may subtract the mean: attention.layer_norm_epsilon may stand for the other epsilon */
    bool kv_heads_tell; /* a layer with attention.head_count_kv 0 is recurrent; `keys` handles that */
    int (*keys)(struct ntx__keys *k);
    int (*tower)(struct ntx__keys *k, struct ntx_tower *t); /* the same for a vision tower; NULL: it is none */
    const char *own[NTX__OWN_KEYS];
    bool nextn; /* a next-token block is its common beginning and then a layer like those behind the dense and
                   recurrent ones */
    /* Appends the steps of layer l. */
    void (*layer)(const struct ntx_model *m, uint32_t l, struct ntx_layer *out);
    uint32_t (*width)(const struct ntx_hparams *hp,
                      enum ntx_dim d); /* a width that differs from tensors.h; 0: it does not. May be NULL */
    /* Of a tower: the name of a layer's tensor in the file, `of` being its name in tensors.h or in NTX_WHOLES. NULL:
     * the rule for language models. */
    void (*name)(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t, const char *of, char *name,
                 size_t size);
    const char *names[NTX_N_TENSORS];        /* names that differ from tensors.h */
    const char *output_norm;                 /* another name of output_norm.weight that files may have, or NULL */
    bool kept[NTX_N_TENSORS];                /* matrices that a quantiser does not touch, besides those of all
                                               architectures (model/mix.c) */
    const char *unread[NTX__UNREAD_TENSORS]; /* tensors of a layer, named as in tensors.h, that may be in a file and are
                                                not computed: for images, or for a choice of positions */
    const struct ntx_known *models;          /* known models, ended by one without a name; or NULL */
};

/* Keys of several known models. */
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
#define X(symbol, name) extern const struct ntx__arch ntx__arch_##symbol;
NTX_TOWERS(X)
#undef X

/* ---- pieces.c */
struct ntx__experts;
void ntx__takes(struct ntx_step *s, enum ntx_tensor t, enum ntx__presence has);
void ntx__norm(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t, enum ntx__presence has,
               uint32_t heads, uint32_t width);
void ntx__split(struct ntx_layer *l, enum ntx_buf b, enum ntx_buf other, uint32_t heads, uint32_t width);
void ntx__add_state(const struct ntx_hparams *hp, struct ntx_layer *l); /* h += y */
struct ntx_step *ntx__add_norm(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t heads,
                               uint32_t width); /* a norm without a weight */
void ntx__add_product(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, enum ntx_tensor t);
void ntx__add_experts_alone(const struct ntx_model *m, struct ntx_layer *out,
                            const struct ntx__experts *has); /* y = experts(x) */
struct ntx__attention {                                      /* features of a layer's attention besides q, k, v and o */
    uint32_t layer;                                          /* the layer, since widths may differ */
    enum ntx_rope_kind rope;
    enum ntx__presence qkv_bias, o_bias, sinks;
    enum ntx__presence qk_norm, qk_norm_all; /* for each head; over all heads, if there are no biases */
    bool paired;   /* input of q, k, v: the token's embedding and the state of the token before it, each normed; h is
                      that state */
    bool unturned; /* no RoPE */
    enum ntx_rotation turn;
    bool post_norm;   /* a norm after the last product, also of FFNs */
    bool gated;       /* q's matrix also computes gates of the output */
    bool head_gates;  /* a matrix computes one gate for each head */
    bool value_gates; /* a matrix computes one gate for each value */
    bool soft_gates;  /* gates are softplus, else sigmoid */
    float clamp;      /* q, k and v are clamped to +-clamp; 0: not */
    float v_scale;    /* factor of V; 0: none */
    bool turned_norm; /* the norms of q and k follow RoPE */
    bool normed;      /* x is there already */
    float scale;      /* of scores; 0: 1 / sqrt(width of a head) */
    float cap;        /* soft cap of scores; 0: none */
    bool borrows;     /* it reads another layer's K and V, and has none */
    bool v_of_k;      /* V is K before its norm */
    bool v_norm;      /* a norm of each head of V, without a scale */
    bool bare_norm;   /* a norm of each head of q and k after RoPE, without a scale */
    bool blocks;      /* each head of K and V chooses blocks of positions */
    bool causal;      /* rows of an image see no later ones */
    uint32_t window,
        chunk; /* window: positions that a row sees, its own included; chunk: size of attention chunks; 0: none */
    struct ntx_temperature temperature;
};
/* h = eh(norm of the token's embedding, norm of the state of the token before it) */
void ntx__add_nextn(const struct ntx_hparams *hp, struct ntx_layer *out);
/* h = fuse(states), with a norm before or after */
void ntx__add_fuse(const struct ntx_hparams *hp, struct ntx_layer *out);
/* Stores K and V of h in the layer's state. */
void ntx__add_kv_alone(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out);
/* h += o(attend(q, k, v of norm(h))) */
void ntx__add_attention(const struct ntx_hparams *hp, struct ntx_layer *out, const struct ntx__attention *has);
/* Subtracts the mean of b, and divides it by its deviation and multiplies it by t; no bias. */
void ntx__mean_norm(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf b, enum ntx_tensor t, float eps);
/* out = in */
void ntx__copy_values(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t n);
struct ntx__mla {     /* features of MLA besides the common ones */
    bool gated;       /* each output value has a gate, and each head a sink */
    bool unturned;    /* no RoPE: the rope_dim values of a key are simply shared by all heads */
    bool keys_behind; /* the indexer's queries and keys: RoPE at their end, and no Hadamard transform */
    bool head_gates;  /* a matrix computes one gate for each head */
    bool no_sinks;    /* gated, but without sinks */
};
/* h += o(MLA(norm(h))). RoPE rotates adjacent pairs behind the plain part of a head. With hp->index, attention reads
 * the indexer's top-k. */
void ntx__add_mla_attention(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out,
                            const struct ntx__mla *has);
/* h += out(gate(delta net of norm(h))). joined: one matrix makes its rates, and neighbouring heads share a key head. */
void ntx__add_delta(const struct ntx_hparams *hp, struct ntx_layer *out, bool joined);
/* y = the same of x. sigmoid: the gate's activation, instead of SiLU, with the q and k normalisation of qwen4exp. */
void ntx__add_delta_alone(const struct ntx_hparams *hp, struct ntx_layer *out, bool joined, bool sigmoid);
struct ntx__kda {
    enum ntx_tensor a;
    struct ntx_rates_step rates;
    bool whole;      /* decays and gates are made by one product each, else by two */
    bool whole_gate; /* the gates alone are */
};
/* h += gate(delta net with a decay for each key channel (KDA), of norm(h)) */
void ntx__add_kda(const struct ntx_hparams *hp, struct ntx_layer *out, const struct ntx__kda *has);
/* y = the same of x, for models with several residual streams. */
void ntx__add_kda_alone(const struct ntx_hparams *hp, struct ntx_layer *out, const struct ntx__kda *has);
/* Q = the convolution of V, with its bias, before a scan. */
void ntx__add_scan_convolution(const struct ntx_hparams *hp, struct ntx_layer *out);
/* y = out(norm(gate(Mamba-2 scan of x))); without `norm` there is no norm. */
void ntx__add_scan_alone(const struct ntx_hparams *hp, struct ntx_layer *out, enum ntx__presence norm);
/* h += the same of norm(h) */
void ntx__add_scan(const struct ntx_hparams *hp, struct ntx_layer *out);
/* h += short convolution of norm(h), with factors of its input and output */
void ntx__add_short(const struct ntx_hparams *hp, struct ntx_layer *out);
void ntx__add_mla_alone(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out,
                        const struct ntx__mla *has);
void ntx__add_dense_alone(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, enum ntx_ffn_act act);
/* Hyper-connections (pieces_streams.c). begin: all streams = h. enter: x = norm of the mixed streams, by tensor
 * `mix` and the two after it. leave: spreads y over the streams. mean: h = their mean. join: h = their mean, or in
 * the last layer their learned mix. */
void ntx__streams_begin(const struct ntx_hparams *hp, struct ntx_layer *l);
void ntx__streams_enter(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_tensor mix, enum ntx_tensor norm);
void ntx__streams_leave(const struct ntx_hparams *hp, struct ntx_layer *l);
void ntx__streams_mean(const struct ntx_hparams *hp, struct ntx_layer *l);
void ntx__streams_join(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l);
/* h += ffn(norm(h)); packed if the file is. */
void ntx__add_dense(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, enum ntx_ffn_act act);
void ntx__add_dense_normed(const struct ntx_model *m, uint32_t l, struct ntx_layer *out,
                           enum ntx_ffn_act act); /* with a norm of the FFN's output */
struct ntx__experts {                             /* features of a layer's experts besides router and three matrices */
    enum ntx_ffn_act act;
    enum ntx__presence biases, choice;      /* biases of router and experts; bias of the choice alone */
    enum ntx__presence sees;                /* another bias of the choice, for rows of images */
    bool weighs_input;                      /* weights multiply the experts' input, not their output */
    enum ntx__presence numbered;            /* a table has the experts of each token */
    enum ntx__presence shared, shared_gate; /* the shared expert, and its gate */
};
/* h += norm(norm(ffn(norm(h))) + norm(experts(norm(h)))); the router has a norm of its own. */
void ntx__add_both(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, enum ntx_ffn_act act);
/* The two halves of y = experts(x): chooses them; adds up what they make of x. */
void ntx__add_route(const struct ntx_model *m, struct ntx_layer *out, const struct ntx__experts *has);
void ntx__add_routed(const struct ntx_model *m, struct ntx_layer *out, const struct ntx__experts *has);
/* h += experts(norm(h)). */
void ntx__add_experts(const struct ntx_model *m, struct ntx_layer *out, const struct ntx__experts *has);
void ntx__add_experts_normed(const struct ntx_model *m, struct ntx_layer *out,
                             const struct ntx__experts *has); /* with a norm of their sum */
/* h += ffn(norm(h)) in the hp->n_dense first layers, else experts. */
void ntx__add_dense_or_experts(const struct ntx_model *m, uint32_t l, struct ntx_layer *out,
                               const struct ntx__experts *has);

/* ntx__add_input: h += norm(proj(act(gate h) * the token's input of this layer)). ntx__add_inputs, before layer 0:
 * computes these inputs for all layers. */
void ntx__add_inputs(const struct ntx_model *m, struct ntx_layer *out);
void ntx__add_input(const struct ntx_model *m, uint32_t l, struct ntx_layer *out, enum ntx_ffn_act act);

/* ---- keys.c */
struct ntx__keys {
    const struct ntx_gguf *g;
    const struct ntx__arch *arch;
    const char *name; /* the architecture's name */
    struct ntx_model *m;
    struct ntx_hparams *hp; /* the model's numbers, being filled in */
    struct ntx_err *err;
    char key[96]; /* the last key that was read */
};
int ntx__read_keys(struct ntx__keys *k);

/* "ARCH.SUFFIX", which is stored in k->key. */
const char *ntx__key_of(struct ntx__keys *k, const char *suffix);
/* Reads an integer in [min, max]. An absent key gives `fallback`, or an error if that is -1. */
int ntx__key_u32(struct ntx__keys *k, const char *suffix, int64_t fallback, uint64_t min, uint64_t max, uint32_t *out);
/* Reads a float. An absent key gives `fallback`, or an error if that is NAN. */
int ntx__key_f32(struct ntx__keys *k, const char *suffix, float fallback, float min, float max, float *out);
/* Reads attention.sliding_window (fallback as above) and its pattern: an array names the layers with a window, or
 * all but the last of each `every` layers have it (a number in the key replaces `every`). */
int ntx__key_windows(struct ntx__keys *k, int64_t fallback, uint32_t every);
/* The same, but without a pattern all but the first of each `every` layers have it. */
int ntx__key_windows_behind(struct ntx__keys *k, int64_t fallback, uint32_t every);
/* Makes hp->dims: numbers of heads, K and V heads and FFN widths from the keys' numbers or arrays, all else from hp. */
int ntx__make_dims(struct ntx__keys *k);
/* Allocates hp->own: `size` zero bytes for a struct of the architecture's file. NULL: no memory, and the error is
 * set. */
void *ntx__own(struct ntx__keys *k, size_t size);
/* The layer has a tensor of this name. */
bool ntx__has(const struct ntx__keys *k, uint32_t layer, const char *name);
/* leading_dense_block_count; expert_shared_count, from which n_ff_shexp follows. */
int ntx__key_dense(struct ntx__keys *k);
int ntx__key_shared_count(struct ntx__keys *k);
/* Sets experts_fused if the first layer with experts (hp->n_dense) has gates and ups in one matrix. */
void ntx__find_fused_experts(struct ntx__keys *k);
/* Keys of MLA and of its indexer (pieces_mla.c). */
int ntx__key_mla(struct ntx__keys *k);
struct ntx__indexer {
    bool all;    /* each layer has an indexer, and a key must not say otherwise */
    bool fourth; /* without a key, the first three layers and every fourth after them have one; else all */
    enum ntx_rope_kind pairs;
};
int ntx__key_indexer(struct ntx__keys *k, const struct ntx__indexer *has);
/* The number of residual streams; the number and their mixing (pieces_streams.c); a limit of gates for all layers;
 * keys of KDA (pieces_delta.c). */
int ntx__key_stream_count(struct ntx__keys *k);
int ntx__key_streams(struct ntx__keys *k);
int ntx__key_limit(struct ntx__keys *k, const char *suffix, float fallback, float *out);
int ntx__key_kda(struct ntx__keys *k);
/* Limits of activations, one for each layer (pieces_limits.c): reads a list, or one number for all; absent: 0. Gives a
 * layer's experts the limit, and its shared expert and dense FFN `shared`: SiLU and its factor are clamped. */
int ntx__key_limits(struct ntx__keys *k, const char *suffix, float *out);
void ntx__set_limits(struct ntx_layer *l, float limit, float shared);
/* Numbers of a layer with a window, if they differ: rope.dimension_count_swa and rope.freq_base_swa; such layers are
 * not scaled. */
int ntx__key_window_rope(struct ntx__keys *k);
/* The layers that are delta nets, and their widths (pieces_delta.c). Checks that RoPE sections cover all pairs
 * (qwen35.c). */
int ntx__key_recurrent(struct ntx__keys *k);
int ntx__key_delta(struct ntx__keys *k);
int ntx__key_scan(struct ntx__keys *k); /* widths of Mamba-2 scans */
int ntx__check_sections(struct ntx__keys *k);
/* target_layers, and the drafter's vocabulary (eagle3.c). */
int ntx__key_taps(struct ntx__keys *k);
int ntx__key_truth(struct ntx__keys *k, const char *suffix, bool *out); /* an absent key leaves *out */
/* Recurrent layers, as attention.head_count_kv names them: 0 there, and `heads` in all other layers. */
int ntx__key_recurrent_kv(struct ntx__keys *k, uint32_t heads);
/* nextn_predict_layers: so many of the last blocks are next-token blocks. Their tensors are accepted, and not read. */
int ntx__key_nextn(struct ntx__keys *k);

/* ---- tower.c: vision towers (model/tower.h) */
int ntx__tower_keys(struct ntx__keys *k);
/* Turns a tower's numbers into its projector's, or into those of what converts its states. */
void ntx__tower_projects(struct ntx_hparams *hp);
void ntx__tower_converts(struct ntx_hparams *hp);
/* For the towers' own keys: the side of the table of learned positions; a rotation; the sizes of pictures, in
 * squares, without a key; how many patches are a square's side; the width between the products of the projector. */
int ntx__tower_side(struct ntx__keys *k, struct ntx_tower *t);
int ntx__tower_sides(struct ntx__keys *k, struct ntx_tower *t);
int ntx__tower_turns(struct ntx__keys *k, struct ntx_tower *t, enum ntx_tower_turn turn, float base);
int ntx__tower_area(struct ntx__keys *k, struct ntx_tower *t, uint32_t least, uint32_t most);
int ntx__tower_merge(struct ntx__keys *k, struct ntx_tower *t, const char *suffix, uint32_t fallback);
int ntx__tower_hidden(struct ntx__keys *k, struct ntx_tower *t, const char *tensor);
int ntx__tower_converted(struct ntx__keys *k, struct ntx_tower *t, const char *tensor); /* and the state's width */
/* The usual names of a tower's tensors. */
#define NTX__TOWER_NAMES                                                                                               \
    [NTX_T_attn_norm] = "ln1.weight", [NTX_T_ffn_norm] = "ln2.weight", [NTX_T_o] = "attn_out.weight",                  \
    [NTX_T_o_bias] = "attn_out.bias"
void ntx__tower_name(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t, const char *of, char *name,
                     size_t size);
struct ntx__tower_block {     /* features of a tower's layers */
    bool two_moments;         /* the patches' pixels have two matrices, as in films */
    bool pre_norm, post_norm; /* norms before the first layer and after the last */
    bool patch_norm;          /* an RMS norm of a patch before its position is added */
    bool qk_norm;             /* norms of the heads of q and k */
    bool v_norm;              /* norms of the heads of v, without a scale; nor are scores scaled */
    bool sum_norms;           /* norms of what attention and FFN add */
    bool behind;              /* the turned values are behind as many unturned ones as half of them; rows come first */
    bool columns_first;       /* each half of a head turns by itself: the first by the column, the second by the row */
    bool rms;                 /* norms are RMS norms, else layer norms with biases */
    bool windowed;            /* this layer attends within windows */
    bool mean_behind;         /* a layer norm without a bias behind the last layer, whatever the others are */
    enum ntx_tower_view view; /* of this layer; with a band, heads have sinks */
    bool gated;               /* the FFN's hidden values are act(gate) * up, else map(up) */
    enum ntx__presence patch_bias, qkv_bias, o_bias, ffn_bias;
    enum ntx_rope_kind pairs;
    enum ntx_ffn_act act;
    enum ntx_map_kind map;
};
/* h = the patch's state, before the first layer */
void ntx__tower_begin(const struct ntx_hparams *hp, struct ntx_layer *l, const struct ntx__tower_block *has);
void ntx__tower_layer(const struct ntx_model *m, uint32_t layer, struct ntx_layer *l,
                      const struct ntx__tower_block *has); /* a whole layer, with what is before and behind all */
/* Single steps: a copy (out = in), out += bias, b = f(b), b = layer norm of b. */
struct ntx_step *ntx__tower_copy(struct ntx_layer *l, enum ntx_buf out, enum ntx_buf in, uint32_t width);
void ntx__tower_bias(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf out, enum ntx_tensor t,
                     enum ntx__presence has);
void ntx__tower_map(struct ntx_layer *l, enum ntx_buf b, uint32_t width, enum ntx_map_kind kind);
void ntx__tower_layernorm(struct ntx_layer *l, enum ntx_buf b, uint32_t width, float eps, enum ntx_tensor scale,
                          enum ntx_tensor bias, enum ntx__presence has);
/* The projector, whose layer l makes part l of a row. begin: keeps what it gets. mlp: y = second(gelu(first(in))), with
 * hidden values in a buffer. end: y becomes part l. */
void ntx__merger_begin(const struct ntx_model *m, struct ntx_layer *l);
void ntx__merger_mlp(const struct ntx_hparams *hp, struct ntx_layer *l, enum ntx_buf in, enum ntx_buf hidden,
                     enum ntx_tensor first, enum ntx__presence bias);
/* Two products with a GELU between them make another state of each state. */
void ntx__merger_convert(const struct ntx_model *m, struct ntx_layer *l);
void ntx__merger_end(const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *l);

double ntx__yarn_magnitude(const struct ntx_hparams *hp, double by); /* 1 + 0.1 `by` ln(rope_factor) */
#define NTX__MAX_WIDTH                                                                                                 \
    (1u << 20) /* largest number of inputs of a matrix, far above real models: bounds later arithmetic */

#endif
