/* SPDX-License-Identifier: Apache-2.0 */
/* arch.h: from a validated GGUF to typed hyper-parameters, and to layers with their steps and weights, with no string
 * look-ups afterwards.
 *
 * An architecture is a file in arch/: what its keys say, and which steps a layer is made of (layer.h). They are
 * NTX_ARCHS (arch/arch_impl.h); llama-relu is llama with relu(gate) * up. What a model needs and ntx lacks (an unknown
 * rope scaling, an unknown router, an unknown architecture) is refused here with its name. */
#ifndef NTX_MODEL_ARCH_H
#define NTX_MODEL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "model/gguf.h"
#include "model/layer_delta.h"
#include "model/layer.h"
#include "model/pack.h"
#include "model/share.h"

#define NTX_MAX_LAYERS  512
#define NTX_MAX_EXPERTS 1024u /* of a layer */
#define NTX_MAX_HEAD    1024  /* values of a head */
#define NTX_POOL_OVERLAPS                                                                                              \
    4 /* where behind so many positions there is one more K, it is of twice as many, and chosen \
                               */
#define NTX_GRAM_MAX        8 /* tokens that entries of a table follow from, at most */
#define NTX_GRAM_HEADS_MAX  64
#define NTX_INDEX_HEADS_MAX 128 /* queries that positions are chosen by, and their values */
#define NTX_INDEX_HEAD_MAX  256
#define NTX_INDEX_EVERY_MAX 16   /* positions whose keys become one */
#define NTX_INDEX_BLOCK_MAX 1024 /* the same where it is their mean */
#define NTX_DELTA_TAPS_MAX  8
#define NTX_TAPS_MAX        16 /* layers whose states a file that guesses goes by */
#define NTX_DELTA_HEAD_STEP 16 /* the width of a delta net's heads is a multiple */

enum ntx_rope_scaling { NTX_ROPE_SCALE_NONE, NTX_ROPE_SCALE_LINEAR, NTX_ROPE_SCALE_YARN };

/* Of a layer, where layers differ in them. */
struct ntx_dims {
    uint32_t n_head, n_head_kv, head_k, head_v, n_ff;
    uint32_t kv_of; /* the layer whose K and V its attention reads: itself, or one before it that keeps them */
};

struct ntx_hparams {
    char arch[16];
    const struct ntx__arch *by; /* its architecture (arch/); NULL: of one that is not known */
    char name[64];              /* general.name, may be empty */
    uint32_t n_layers, n_embd, n_ff, n_vocab;
    uint32_t n_nextn; /* blocks behind the layers that predict tokens: models of their own (ntx_model_open_nextn) */
    bool by_state;    /* it is such a block: each row brings the state that the token before it left
                         (computed/pass/forward.h) */
    uint32_t n_dense; /* of a model with experts: so many layers at the beginning have none */
    uint32_t n_head, n_head_kv;
    uint32_t head_k, head_v; /* widths of a key and a value head */
    uint32_t kv_lora; /* width of the latent that K and V of all heads would be made of, and that is kept in their place
                         (computed/pass/mla.c); 0: they are kept */
    bool kv_joined;   /* then: one tensor has both matrices of a head */
    uint32_t q_lora;  /* q is made in two products, with so many values between; 0: in one */
    uint32_t n_input; /* values that each layer gets of the token, from a table beside the embedding's; 0: none */
    bool v_of_k;      /* layers without a window have no V matrix: their V is the K matrix's product, too */
    bool experts_fused;            /* an expert's gate and up are one matrix */
    bool qkv_fused, gate_up_fused; /* these are one matrix in the file (ntx_whole_of) */
    bool delta_joined;             /* the same of a delta net's q, k and v and the gate of its output */
    uint32_t expert_every;         /* of architectures where the last of so many layers has experts */
    const struct ntx_dims *dims;   /* [n_layers], the model's, where layers differ in these and in n_ff: which are then
                                      the largest; NULL: they do not */
    const void
        *own; /* numbers that no file but the architecture's wants (arch/), the model's; NULL: as if no key told any */
    uint32_t
        ctx_train; /* or the sliding window of all layers, where that is smaller: within it full attention is exact */
    uint32_t ctx_plain; /* in a context beyond it attention is what the CPU alone computes (stretches, temperatures); 0:
                           there is no such end */
    uint32_t window;    /* of some layers (their steps say which): a row sees this many positions, its own included; 0:
                           there is none */
    uint64_t windowed[NTX_MAX_LAYERS / 64]; /* bit l: layer l has it */
    float rms_eps;
    struct ntx_temperature temperature; /* of some layers (their steps say which) */
    float score_scale;                  /* as a key tells; 0: none */
    float logit_cap;                    /* logits x become cap * tanh(x / cap); 0: they stay */
    float embd_scale,
        logit_scale;   /* what the embedding, and the input of the output matrix, are multiplied by; 1: nothing */
    uint32_t rope_dim; /* rotated part of a head */
    float rope_base;
    enum ntx_rope_scaling rope_scaling;
    float rope_factor;        /* >= 1 with a scaling, else 1 */
    float rope_attn_factor;   /* multiplies the yarn magnitude, 1 by default */
    bool yarn_magnitude_told; /* the product of both is what the file has, not what follows from the factor */
    uint32_t rope_ctx_orig;   /* yarn: context before scaling */
    float yarn_ext_factor, yarn_beta_fast, yarn_beta_slow;
    bool yarn_exact; /* the ends of YaRN's ramp are real numbers, not those of whole pairs around them */
    uint32_t rope_dim_window;
    float rope_base_window,
        rope_factor_window; /* of layers with a window, where those turn by NTX_TURN_WINDOW (layer.h) */
    /* Experts, of the layers that have them: a row goes through n_expert_used of n_expert. */
    uint32_t n_expert, n_expert_used; /* 0: there are none */
    uint32_t n_ff_exp;                /* width of an expert */
    uint32_t n_ff_shexp;              /* width of the expert that every row goes through too; 0: none */
    struct ntx_router router;         /* as the keys tell */
    /* Layers that keep a state instead of K and V (bit l): gated delta nets of so many heads over fewer key heads,
     * behind a convolution. */
    uint64_t recurrent[NTX_MAX_LAYERS / 64];
    struct {
        uint32_t taps, head, heads, key_heads;
    } delta;
    /* Attention to chosen positions, `most` of them: by `heads` queries of `head` values each. Layers `in` (bit l)
     * choose, the others go by the last one that did; head 0: to all. */
    struct {
        uint32_t heads, head, most, every /* so many positions have one key, and are chosen together, with those behind
                                             the last of such; 0: each has its own */
            ;
        enum ntx_rope_kind pairs;
        uint64_t in[NTX_MAX_LAYERS / 64];
    } index;
    bool index_beside; /* keys that positions are chosen by lie in a layer of their own, n_layers + its number: V is a
                          layer's own (kv.h) */
    struct {
        uint32_t n, rounds /* of what mixes them; 0: nothing does */,
            low /* values between the two products that say what goes in; 0: it is said otherwise */;
        float eps;
    } streams; /* residual ones; n 0: there is one */
    /* Layer `layer` - 1 adds what follows from the last `n` tokens (computed/pass/grams.c): of each `heads` entries of
     * `width` values of a table, at first[h] + hash modulo size[h], each n-gram of 2 to n tokens having heads / (n - 1)
     * of them; and a convolution of `taps` taps, n positions apart. Tokens before one that ends a text (`eos`) do not
     * count. layer 0: there is none. */
    struct {
        uint32_t layer, n, heads, width, taps, eos, entries, first[NTX_GRAM_HEADS_MAX], size[NTX_GRAM_HEADS_MAX];
        uint64_t by[NTX_GRAM_MAX];
    } grams;
    bool no_output_norm;           /* what the last layer leaves is multiplied as it is */
    uint16_t pool[NTX_MAX_LAYERS]; /* behind so many positions a layer keeps one more K of them, which lasts where its
                                      others have a window; 0: none */
    bool v_is_k;                   /* all heads have one K, which is V, too */
    uint32_t o_parts, o_lora;  /* attention's output is made in two products, the first of so many parts, with so many
                                  values of each between */
    uint32_t n_token_experts;  /* so many layers at the beginning take experts by the token */
    float limit, shared_limit; /* of gates and ups of experts; 0: none */
    const struct ntx_share *
        kv_share; /* K and V are dealt by heads over several machines: those of this one are kept here; NULL: all are */
    bool plain_window; /* NTX_TURN_WINDOW scales no magnitudes */
    /* Of a file that guesses by states of the large model's layers (ntx_model_open_head): what goes into each layer
     * `tap` (its number of layers: what the last one leaves), `width` values each, of which the first part makes
     * n_embd. It knows n_out tokens. block 0: it guesses token by token, else so many at once, behind a text's last
     * token, in whose places stand tokens `mask`, which see one another unless they are `causal`. n_taps 0: it is no
     * such. */
    struct {
        uint32_t n_taps, tap[NTX_TAPS_MAX], width, n_out, block, mask;
        bool causal, fuses /* it is the first part */, norm_first /* before what makes n_embd of them, not behind it */,
            norm_residual /* the residual stream begins with the state normed */;
    } head;
};

struct ntx_model {
    struct ntx_hparams hp;
    union { /* what belongs to no layer (tensors.h): indices in the GGUF, or NTX_NO_TENSOR. output == token_embd when
               tied */
        uint32_t end[NTX_N_ENDS];
        struct {
#define X(field, name, in, out, use, has) uint32_t field;
            NTX_END_TENSORS(X)
#undef X
        };
    };
    uint32_t output_scale; /* F32, what logits are multiplied by, or none */
    uint32_t
        trunk_norm; /* of a next-token block: what is done to the states of the model before they come to it; or none */
    struct ntx_layer *layers;    /* [n_layers] */
    struct ntx_dims *dims;       /* hp.dims */
    void *own;                   /* hp.own */
    struct ntx_pack_layer *pack; /* [n_layers], or NULL: the FFNs are not packed */
    struct ntx_deltas delta;     /* what layers share, and what is added to their matrices' outputs */
    const struct ntx_gguf *gguf; /* borrowed */
};

static inline bool ntx_windowed(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->windowed[layer / 64] >> layer % 64 & 1;
}
static inline struct ntx_dims ntx_dims_of(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->dims ? hp->dims[layer]
                    : (struct ntx_dims){hp->n_head, hp->n_head_kv, hp->head_k, hp->head_v, hp->n_ff, layer};
}
static inline bool ntx_has_indexer(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->index.in[layer / 64] >> layer % 64 & 1;
}
/* Values of a position by which it is chosen: a key, and what it weighs where several become one, which then lies in
 * the place of the last one's. */
static inline uint32_t ntx_index_kept(const struct ntx_hparams *hp)
{
    return (hp->index.every ? 2 : 1) * hp->index.head;
}
/* What a layer keeps of a position: so many heads of K and of V. Of latents one vector, with the rotated part of the
 * key, whose beginning is V; what is kept in V's place is the key that positions are chosen by. */
static inline struct ntx_share_range ntx_own_heads(const struct ntx_hparams *hp,
                                                   uint32_t layer) /* of K and V, where each has its own */
{
    const uint32_t n = ntx_dims_of(hp, layer).n_head_kv;
    return hp->kv_share ? ntx_share_heads(hp->kv_share, n, hp->kv_share->rank) : (struct ntx_share_range){0, n};
}
static inline uint32_t ntx_kept_heads(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->kv_lora ? 1 : ntx_own_heads(hp, layer).n;
}
static inline uint32_t ntx_kept_k(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->kv_lora ? hp->kv_lora + hp->rope_dim : ntx_dims_of(hp, layer).head_k;
}
static inline uint32_t ntx_kept_v(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->v_is_k                   ? 0
           : !hp->kv_lora               ? ntx_dims_of(hp, layer).head_v
           : ntx_has_indexer(hp, layer) ? ntx_index_kept(hp)
                                        : 0;
}
static inline bool ntx_has_grams(const struct ntx_hparams *hp, uint32_t layer) { return hp->grams.layer == layer + 1; }
static inline bool ntx_is_recurrent(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->recurrent[layer / 64] >> layer % 64 & 1;
}
/* Of values that it pools: those of the last so many spans. */
static inline uint32_t ntx_pool_spans(const struct ntx_hparams *hp, uint32_t layer)
{
    return !hp->pool[layer] ? 0 : hp->pool[layer] == NTX_POOL_OVERLAPS ? 2 : 1;
}
/* Floats that it keeps of a position to be pooled. */
static inline uint32_t ntx_pool_row(const struct ntx_hparams *hp, uint32_t layer)
{
    return 2 * ntx_pool_spans(hp, layer) * (hp->head_k + (ntx_has_indexer(hp, layer) ? hp->index.head : 0));
}
uint32_t ntx_count_recurrent(
    const struct ntx_hparams *hp); /* layers that keep a recurrent state, or what is to be pooled */
/* All but every n-th. */
void ntx_set_recurrent(struct ntx_hparams *hp, uint32_t every);

/* Why the FFNs of such a model cannot be packed (pack.h), or NULL. */
const char *ntx_pack_refuses(const struct ntx_hparams *hp);
/* Why a model's K and V cannot be dealt by heads over several machines (share.h), or NULL. */
const char *ntx_heads_refuse(const struct ntx_model *m);

uint32_t ntx_width(const struct ntx_hparams *hp, uint32_t layer,
                   enum ntx_dim d); /* of groups, which differ from layer to layer: 1 */
/* Values that a step writes into a row of its `out`, and the place behind the last of them. */
uint32_t ntx_step_width(const struct ntx_hparams *hp, uint32_t layer, const struct ntx_step *s);
uint32_t ntx_step_end(const struct ntx_hparams *hp, uint32_t layer, const struct ntx_step *s);
/* Values that the widest step of any layer leaves in a row of a buffer; 0: none uses it. */
uint32_t ntx_buf_width(const struct ntx_model *m, enum ntx_buf b);
struct ntx_shape {
    uint32_t n_in, n_out, n_each; /* inputs, outputs, and of experts' matrices how many */
};
struct ntx_shape ntx_shape_of(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t); /* of groups: 1 x 1 */
static inline const struct ntx_gguf_tensor *ntx_end_tensor(const struct ntx_gguf *g, enum ntx_end t)
{
    return ntx_gguf_tensor(g, ntx_end_kinds[t].name);
} /* NULL: there is none */
struct ntx_shape ntx_end_shape(const struct ntx_hparams *hp, enum ntx_end t);
enum ntx_has ntx_end_has(const struct ntx_hparams *hp, enum ntx_end t);
/* Tensors of a layer that are one in the file: its name behind "blk.N.", its shape, and where t's outputs begin in it.
 * false: t is by itself. */
struct ntx_whole {
    const char *name;
    struct ntx_shape shape;
    uint32_t out0;
    uint32_t run; /* so many of t's outputs lie together; 0: all do */
};
bool ntx_whole_of(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t, struct ntx_whole *out);
/* Where there are runs: where run i of t's outputs begins in it. So it is where a matrix is of parts of its inputs,
 * each a run: no chunk has outputs of two. */
uint32_t ntx_whole_run(const struct ntx_hparams *hp, enum ntx_tensor t, uint32_t i);
/* The steps of a layer as an architecture makes it from these numbers, without a file: each step with all that it may
 * take. false: there is no such architecture. */
bool ntx_layer_describe(const char *arch, const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out);
/* As the architecture calls it, behind "blk.N." (but see ntx_is_models). */
const char *ntx_tensor_name(const char *arch, enum ntx_tensor t);
/* A tensor of a file, whose precision a quantiser leaves as it is by what its architecture says. */
bool ntx_arch_keeps(const struct ntx_gguf *g, const char *tensor);

/* A model that one may not have, by its published numbers; its architecture's file has it. 0: the key is left out. */
struct ntx_known {
    const char *name; /* "llama-70b"; NULL behind the last one */
    uint32_t layers, embd, ff, heads, kv, head, vocab, ctx;
    uint32_t experts, used, expert_ff;
    const char *keys,
        *has; /* more keys; and tensors by whose presence the architecture tells (computed/plan/sketch.h) */
};
/* The i-th of all, and its architecture's name; NULL: there are fewer. */
const struct ntx_known *ntx_known_at(size_t i, const char **arch);

/* Every shape and type is checked (vectors are F32), and every tensor of the file must have its place.
 * The model borrows g, which must outlive it. */
int ntx_model_open(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err);
/* The first block behind the layers, which predicts tokens, as a model of one layer: of a token and of the state,
 * normed, that the token before it left behind all layers, it says what comes next; and with the state that it leaves
 * itself, what comes then. -ENOENT: there is none; -ENOTSUP: of this architecture it is not computed. */
int ntx_model_open_nextn(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err);
/* A file that guesses by states of a large model's layers: "EAGLE-3" (arch/eagle3.c), "DFlash" (arch/dflash.c); NULL:
 * it is none that is computed here. */
const char *ntx_head_kind(const struct ntx_gguf *g);
/* One of the two models that it is made of: `fuses`: of the states of rows (computed/pass/forward.h) it makes what the
 * other one goes by; the other is as a next-token block. Or, of what guesses several tokens at once, it makes K and V
 * of the other's layers, which is as an ordinary model then. What it borrows of the large model (its embedding, its
 * output) was lent to g (ntx_gguf_lend). */
int ntx_model_open_head(const struct ntx_gguf *g, bool fuses, struct ntx_model **out, struct ntx_err *err);
/* A model's numbers alone, for who makes the rest of them up (computed/plan/sketch.h): of a header that has the keys,
 * and of tensors token_embd.weight and those by which the architecture tells what else there is. No layers. */
int ntx_model_open_keys(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err);
void ntx_model_free(struct ntx_model *m);

/* Names of the known architectures, comma separated, for who makes models (tests). */
const char *ntx_arch_names(void);
/* The i-th of those that other programs know, too; NULL: there are fewer. */
const char *ntx_arch_at(size_t i);

#endif
