/* SPDX-License-Identifier: Apache-2.0 */
/* arch.h: turns a validated GGUF into typed hyper-parameters, and into layers with their steps and weights. No
 * strings are looked up afterwards.
 *
 * An architecture is a file in arch/: it reads its keys and lists the steps of a layer (layer.h). NTX_ARCHS
 * (arch/arch_impl.h) lists them; llama-relu is llama with relu(gate) * up. A model that needs something that ntx
 * lacks (an unknown RoPE scaling, router or architecture) is refused with the name of that. */
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
#include "model/tower.h"

#define NTX_MAX_LAYERS        512
#define NTX_MAX_EXPERTS       1024u /* of a layer */
#define NTX_MAX_HEAD          1024  /* values of a head */
#define NTX_POOL_OVERLAPS     4 /* pooled K that stand for so many positions overlap (spans: 2), and have an indexer */
#define NTX_GRAM_MAX          8 /* longest n-gram of n-gram embeddings */
#define NTX_GRAM_HEADS_MAX    64
#define NTX_INDEX_HEADS_MAX   128 /* indexer: most queries, and their most values */
#define NTX_INDEX_HEAD_MAX    256
#define NTX_INDEX_EVERY_MAX   16   /* most positions that share one key of the indexer */
#define NTX_INDEX_BLOCK_HEADS 16   /* most heads of K and V that choose blocks of their own */
#define NTX_INDEX_BLOCK_MAX   1024 /* the same if the key is their mean */
#define NTX_DELTA_TAPS_MAX    8
#define NTX_TAPS_MAX          16 /* layers whose states a drafter may use */
#define NTX_SCAN_STATE_MAX    64 /* widest state of a value in a Mamba-1 scan */
#define NTX_DELTA_HEAD_STEP   16 /* a delta net's heads have a multiple of this width */

enum ntx_rope_scaling { NTX_ROPE_SCALE_NONE, NTX_ROPE_SCALE_LINEAR, NTX_ROPE_SCALE_YARN };

/* Numbers of a layer, if layers differ. */
struct ntx_dims {
    uint32_t n_head, n_head_kv, head_k, head_v, n_ff;
    uint32_t kv_of; /* the layer whose K and V its attention reads: itself, or an earlier one */
};

struct ntx_hparams {
    char arch[16];
    const struct ntx__arch *by; /* its architecture (arch/); NULL: unknown */
    char name[64];              /* general.name; may be empty */
    uint32_t n_layers, n_embd, n_ff, n_vocab;
    uint32_t n_nextn; /* next-token blocks behind the layers: models of their own (ntx_model_open_nextn) */
    bool by_state;    /* this model is such a block: each row brings the state of the token before it
                         (computed/pass/forward.h) */
    uint32_t n_dense; /* so many layers at the beginning have no experts */
    uint32_t n_head, n_head_kv;
    uint32_t head_k, head_v; /* widths of a key and a value head */
    uint32_t kv_lora;        /* MLA: width of the latent that K and V of all heads are made of, which is cached
                                instead (computed/pass/mla.c); 0: no MLA */
    bool kv_joined;          /* MLA: one tensor has both matrices of a head */
    uint32_t q_lora;         /* rank of a low-rank q; 0: q is one product */
    uint32_t n_input;        /* values of each layer's own input of the token, from a second embedding table; 0: none */
    bool v_of_k;             /* layers without a window have no V matrix: V is the product of the K matrix */
    bool experts_fused;      /* an expert's gate and up are one matrix */
    bool experts_ungated;    /* experts have no gate; experts_fused: the halves of their up count as gate and up */
    bool qkv_fused, gate_up_fused; /* these are fused in the file (ntx_whole_of) */
    bool ungated;                  /* FFNs have no gate */
    bool delta_joined;             /* so are a delta net's q, k, v and the gate of its output */
    uint32_t expert_every;         /* the last of so many layers has experts, in some architectures */
    const struct ntx_dims *dims;   /* [n_layers], if layers differ in these numbers and in n_ff, which then have the
                                      largest values; NULL: layers are equal */
    const void *own;    /* numbers of the architecture's file alone (arch/), owned by the model; NULL: defaults */
    uint32_t ctx_train; /* trained context, or the sliding window of all layers, if that is smaller: full attention
                           is exact only within it */
    uint32_t ctx_plain; /* beyond this context only the CPU computes attention (chunks, temperatures); 0: no such
                           limit */
    uint32_t window;    /* sliding window of some layers (their steps say which): positions that a row sees, its own
                           included; 0: none */
    uint64_t windowed[NTX_MAX_LAYERS / 64]; /* bit l: layer l has the window */
    float rms_eps;
    struct ntx_temperature temperature; /* of some layers (their steps say which) */
    float score_scale;                  /* attention scale of a key; 0: none */
    float logit_cap;                    /* soft cap of logits, cap * tanh(x / cap); 0: none */
    float embd_scale, logit_scale;      /* factors of the embedding, and of the input of the output matrix; 1: none */
    uint32_t rope_dim;                  /* rotated values of a head */
    /* M-RoPE: pairs that turn by an image's time, row and column (rope.h); 0, 0, 0: all turn by the position */
    uint32_t rope_sections[3];
    bool rope_interleaved; /* pairs take turns in these, else sections follow one another */
    float rope_base;
    enum ntx_rope_scaling rope_scaling;
    float rope_factor;        /* >= 1 with a scaling, else 1 */
    float rope_attn_factor;   /* multiplies the yarn magnitude, 1 by default */
    bool yarn_magnitude_told; /* the file has the product of both, so it is not computed from the factor */
    uint32_t rope_ctx_orig;   /* yarn: context before scaling */
    float yarn_ext_factor, yarn_beta_fast, yarn_beta_slow;
    bool yarn_exact; /* the ends of YaRN's ramp are not rounded to whole pairs */
    uint32_t rope_dim_window;
    float rope_base_window,
        rope_factor_window; /* RoPE of layers with a window, if they use NTX_ROTATION_WINDOW (layer.h) */
    /* Experts, in layers that have them: each row uses n_expert_used of n_expert. */
    uint32_t n_expert, n_expert_used; /* 0: no experts */
    uint32_t n_ff_exp;                /* width of an expert */
    uint32_t n_ff_shexp;              /* width of the shared expert; 0: none */
    struct {                          /* adjugate experts: `each` neighbouring experts form a group, which has one of */
        uint32_t ff, each;            /* `ff` hidden values; it counts `scale` times. ff 0: none */
        float scale;
    } adjugate;
    uint32_t n_latent;        /* experts read and write so many values, between two more products; 0: n_embd */
    struct ntx_router router; /* from the keys */
    /* Recurrent layers (bit l), behind a convolution: delta nets with `heads` heads of `head` values over key_heads key
     * heads of `keys` values; or Mamba-2 scans, where key_heads is the number of groups, and `keys` the width of a
     * state. keys 0: a convolution alone, over `head` channels. */
    uint64_t recurrent[NTX_MAX_LAYERS / 64];
    struct {
        uint32_t taps, head, heads, keys, key_heads, rank /* of the rates of a Mamba-1 scan */;
    } delta;
    bool recurrent_attends; /* recurrent layers attend as well: they keep K and V, too */
    /* Indexer: `heads` queries of `head` values choose `most` positions. Layers `in` (bit l) have one; the others
     * reuse the choice of the last one before them. head 0: no indexer. */
    struct {
        uint32_t heads, head, most, every /* so many positions share a key, and are chosen as a block; positions
                                             behind the last block are always read. 0: each has its own key */
            ;
        uint32_t block, last; /* each K and V head chooses `most` blocks of so many positions, among them the `last`
                                 ones; 0: all heads read the same positions */
        enum ntx_rope_kind pairs;
        uint64_t in[NTX_MAX_LAYERS / 64];
    } index;
    bool index_beside; /* the indexer's keys are stored in a layer of their own, n_layers + the layer's number, since
                          V is the layer's own (kv.h) */
    struct {
        uint32_t n, rounds /* of Sinkhorn's normalisation; 0: streams are not mixed */,
            low /* rank of the mix by two products; 0: another form */;
        float eps;
    } streams; /* hyper-connections; n 0: one residual stream */
    /* n-gram embeddings (computed/pass/grams.c), added in layer `layer` - 1: `heads` table entries of `width`
     * values, at first[h] + hash modulo size[h]. Each length of n-grams, 2 to n tokens, has heads / (n - 1) of them.
     * A convolution of `taps` taps, n positions apart, follows. Tokens before one that ends a text (`eos`) do not
     * count. layer 0: none. */
    struct {
        uint32_t layer, n, heads, width, taps, eos, entries, first[NTX_GRAM_HEADS_MAX], size[NTX_GRAM_HEADS_MAX];
        uint64_t by[NTX_GRAM_MAX];
    } grams;
    bool no_output_norm;           /* the output of the last layer is not normed */
    uint16_t pool[NTX_MAX_LAYERS]; /* pooled K: one for so many positions, kept also where other K have a window; 0:
                                      none */
    bool v_is_k;                   /* all heads share one K, which is also V */
    uint32_t o_parts, o_lora;  /* attention's output is two products, the first block-diagonal with o_parts blocks of
                                  o_lora outputs */
    uint32_t n_token_experts;  /* experts follow from the token in so many layers at the beginning */
    float limit, shared_limit; /* limits of gates and ups of experts, and of shared ones; 0: none */
    const struct ntx_share
        *kv_share;     /* K and V heads are dealt over several machines: this one keeps its own; NULL: all */
    bool plain_window; /* NTX_ROTATION_WINDOW scales no magnitudes */
    /* A drafter (ntx_model_open_head) that uses states of the large model: the inputs of its layers `tap` (tap =
     * number of layers: the output of the last one), `width` values each, which the first part fuses into n_embd. It
     * knows n_out tokens.
     *
     * block 0: it drafts token by token; else `block` tokens at once, with placeholder tokens `mask` behind the
     * text's last token, which see one another unless the drafter is `causal`. n_taps 0: not a drafter. */
    struct {
        uint32_t n_taps, tap[NTX_TAPS_MAX], width, n_out, block, mask;
        bool causal, fuses /* this model is the first part */, norm_first /* the norm is before the fusing product,
                                                                             not after it */
            ,
            norm_residual /* the residual stream begins with the normed state */;
    } head;
    const struct ntx_tower *tower; /* this model is a vision tower (tower.h); NULL: it is not. Its rows have `in` values
                                      (ntx_tower_in), no tokens */
    bool projects;                 /* it is the tower's projector, */
    bool converts;                 /* or what each state goes through before it */
};

struct ntx_model {
    struct ntx_hparams hp;
    union { /* tensors of no layer (tensors.h): indices in the GGUF, or NTX_NO_TENSOR. output == token_embd if tied */
        uint32_t end[NTX_N_ENDS];
        struct {
#define X(field, name, in, out, use, has) uint32_t field;
            NTX_END_TENSORS(X)
#undef X
        };
    };
    uint32_t output_scale; /* F32 factor of logits, or NTX_NO_TENSOR */
    uint32_t
        trunk_norm; /* next-token block: norm of the model's states before the block reads them; or NTX_NO_TENSOR */
    struct ntx_layer *layers;    /* [n_layers] */
    struct ntx_dims *dims;       /* hp.dims */
    void *own;                   /* hp.own */
    struct ntx_pack_layer *pack; /* [n_layers], or NULL: the FFNs are not packed */
    struct ntx_deltas delta;     /* layers' shared tensors and additions */
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
/* The layer in whose memory its attention's K and V are. All rows of a vision tower go through a layer in one pass, so
 * its layers use the same memory one after another. */
static inline uint32_t ntx_kv_place(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->tower ? 0 : ntx_dims_of(hp, layer).kv_of;
}
static inline bool ntx_has_indexer(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->index.in[layer / 64] >> layer % 64 & 1;
}
/* Positions that a row reads at most, if its attention reads what an indexer chose; behind them those that no block
 * has yet. */
static inline uint64_t ntx_index_reach(const struct ntx_hparams *hp)
{
    uint32_t each = hp->index.every ? hp->index.every : 1;
    if (hp->index.block)
        each = hp->index.block;
    return (uint64_t)hp->index.most * (hp->v_is_k ? NTX_POOL_OVERLAPS : each);
}
/* Values of the indexer that are cached for a position: a key, and its weight if several positions share one (the
 * shared key is then stored in place of the last one's). */
static inline uint32_t ntx_index_kept(const struct ntx_hparams *hp)
{
    return (hp->index.every ? 2 : 1) * hp->index.head;
}
/* Cached per position: K and V of so many heads. MLA caches one vector: the latent, which is also V, and the rotated
 * part of the key behind it; in V's place it caches the indexer's key. */
static inline struct ntx_share_range ntx_own_heads(const struct ntx_hparams *hp,
                                                   uint32_t layer) /* this machine's heads of K and V */
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
    if (hp->v_is_k)
        return 0;
    if (!hp->kv_lora)
        return ntx_dims_of(hp, layer).head_v;
    return ntx_has_indexer(hp, layer) ? ntx_index_kept(hp) : 0;
}
static inline uint32_t ntx_expert_width(const struct ntx_hparams *hp)
{
    return hp->n_latent ? hp->n_latent : hp->n_embd;
}
static inline bool ntx_has_grams(const struct ntx_hparams *hp, uint32_t layer) { return hp->grams.layer == layer + 1; }
static inline bool ntx_is_recurrent(const struct ntx_hparams *hp, uint32_t layer)
{
    return hp->recurrent[layer / 64] >> layer % 64 & 1;
}
/* A pooled K is made of so many spans of positions. */
static inline uint32_t ntx_pool_spans(const struct ntx_hparams *hp, uint32_t layer)
{
    if (!hp->pool[layer])
        return 0;
    return hp->pool[layer] == NTX_POOL_OVERLAPS ? 2 : 1;
}
/* Floats of the state per position to be pooled. */
static inline uint32_t ntx_pool_row(const struct ntx_hparams *hp, uint32_t layer)
{
    return 2 * ntx_pool_spans(hp, layer) * (hp->head_k + (ntx_has_indexer(hp, layer) ? hp->index.head : 0));
}
uint32_t ntx_count_recurrent(
    const struct ntx_hparams *hp); /* layers with a recurrent state, or with values to be pooled */
/* Marks all layers but every n-th as recurrent. */
void ntx_set_recurrent(struct ntx_hparams *hp, uint32_t every);

/* The reason why the FFNs of such a model cannot be packed (pack.h), or NULL. */
const char *ntx_pack_refuses(const struct ntx_hparams *hp);
/* The reason why K and V cannot be dealt by heads over several machines (share.h), or NULL. */
const char *ntx_heads_refuse(const struct ntx_model *m);

uint32_t ntx_width(const struct ntx_hparams *hp, uint32_t layer,
                   enum ntx_dim d); /* 1 for groups, which differ from layer to layer */
/* Values that a step writes into a row of `out`, and the end of them in the row. */
uint32_t ntx_step_width(const struct ntx_hparams *hp, uint32_t layer, const struct ntx_step *s);
uint32_t ntx_step_end(const struct ntx_hparams *hp, uint32_t layer, const struct ntx_step *s);
/* Values of a row of a buffer: those of the widest step of any layer; 0: unused. */
uint32_t ntx_buf_width(const struct ntx_model *m, enum ntx_buf b);
struct ntx_shape {
    uint32_t n_in, n_out, n_each; /* inputs, outputs, and number of matrices (one for each expert or head) */
};
struct ntx_shape ntx_shape_of(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t); /* groups: 1 x 1 */
static inline const struct ntx_gguf_tensor *ntx_end_tensor(const struct ntx_gguf *g, enum ntx_end t)
{
    return ntx_gguf_tensor(g, ntx_end_kinds[t].name);
} /* NULL: absent */
struct ntx_shape ntx_end_shape(const struct ntx_hparams *hp, enum ntx_end t);
enum ntx_has ntx_end_has(const struct ntx_hparams *hp, enum ntx_end t);
/* Finds the fused tensor that has t in the file: its name behind "blk.N.", its shape, and its first output that is
 * t's. false: t is a tensor of its own. */
struct ntx_whole {
    const char *name;
    struct ntx_shape shape;
    uint32_t out0;
    uint32_t run; /* length of t's runs of outputs; 0: they are contiguous */
};
bool ntx_whole_of(const struct ntx_hparams *hp, uint32_t layer, enum ntx_tensor t, struct ntx_whole *out);
/* Where run i of t's outputs begins in the fused tensor. A block-diagonal matrix also has runs, one per block: no
 * chunk has outputs of two runs. */
uint32_t ntx_whole_run(const struct ntx_hparams *hp, enum ntx_tensor t, uint32_t i);
/* The steps of a layer by these numbers alone, without a file; each step has all weights that it may take. false:
 * unknown architecture. */
bool ntx_layer_describe(const char *arch, const struct ntx_hparams *hp, uint32_t layer, struct ntx_layer *out);
/* The name in files of this architecture, behind "blk.N." (but see ntx_is_models). */
const char *ntx_tensor_name(const char *arch, enum ntx_tensor t);
/* The architecture wants a quantiser to leave this tensor of a file alone. */
bool ntx_arch_keeps(const struct ntx_gguf *g, const char *tensor);

/* A published model by its numbers, from its architecture's file, for plans without the file. 0: the key is left
 * out. */
struct ntx_known {
    const char *name; /* "llama-70b"; NULL ends the list */
    uint32_t layers, embd, ff, heads, kv, head, vocab, ctx;
    uint32_t experts, used, expert_ff;
    const char *keys, *has; /* further keys; tensors whose presence the architecture checks (computed/plan/sketch.h) */
};
/* Known model number i, and its architecture; NULL: there are fewer. */
const struct ntx_known *ntx_known_at(size_t i, const char **arch);

/* Opens a model. Every shape and type is checked (vectors are F32), and every tensor of the file must be used. The
 * model borrows g, which must outlive it. */
int ntx_model_open(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err);
/* Opens the first next-token block (MTP) as a model of one layer: from a token and the normed state that the token
 * before it left behind all layers, it predicts the next token; with its own output state, the one after that.
 * -ENOENT: the file has none; -ENOTSUP: not supported for this architecture. */
int ntx_model_open_nextn(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err);
/* The kind of a drafter that uses states of a large model: "EAGLE-3" (arch/eagle3.c), "DFlash" (arch/dflash.c);
 * NULL: not a supported drafter. */
const char *ntx_head_kind(const struct ntx_gguf *g);
/* Opens one of the two models of a drafter. `fuses`: the one that turns states of rows (computed/pass/forward.h)
 * into the input of the other. The other works like a next-token block; a drafter of several tokens instead makes K
 * and V of the other's layers, which is then an ordinary model. Tensors of the large model (its embedding, its
 * output) were lent to g (ntx_gguf_lend). */
int ntx_model_open_head(const struct ntx_gguf *g, bool fuses, struct ntx_model **out, struct ntx_err *err);
/* Opens a model's numbers alone, for code that makes up the rest (computed/plan/sketch.h). g needs the keys, and of
 * tensors token_embd.weight and those whose presence the architecture checks. The model has no layers. */
int ntx_model_open_keys(const struct ntx_gguf *g, struct ntx_model **out, struct ntx_err *err);
void ntx_model_free(struct ntx_model *m);

/* Names of the known architectures, comma separated, for programs that make models (tests). */
const char *ntx_arch_names(void);
/* Architecture number i of those that other programs know, too; NULL: there are fewer. */
const char *ntx_arch_at(size_t i);

#endif
