/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.h: cuts a model's tensors into chunks, the unit of placement and of streaming. If several machines share a
 * model, each has a list of its own outputs (share.h).
 *
 * The list has the order in which the layers' steps use their weights (layer.h): rope_freqs, rope_long and
 * rope_short first; then layer by layer the weights of the steps, experts one after the other with gate, up and down
 * each; then output_norm and output. token_embd is missing, unless it is the tied output matrix, which then is the
 * last tensor: its entries are read on demand, or are all kept if there is room (ntx_chunks_keep_entries).
 *
 * A matrix is cut into runs of whole outputs of at most chunk_bytes (at least one output); all chunks of a tensor
 * but the last have equally many outputs. Groups of a packed layer (pack.h) are cut like a matrix. Tensors that
 * several layers share (layer_delta.h) are cut once, for the first of them, and are fixed. A tensor that is always
 * resident (enum ntx_use) is one chunk, marked `fixed`. */
#ifndef NTX_MODEL_CHUNK_H
#define NTX_MODEL_CHUNK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/arch.h"
#include "model/share.h"

struct ntx_chunk {
    uint32_t tensor;      /* index in the GGUF */
    uint32_t layer;       /* 0..n_layers-1; n_layers: behind the last layer; before the first: 0 */
    uint32_t file;        /* number of the file, in a split model */
    uint32_t out0, n_out; /* outputs of the matrix; or groups, or entries */
    uint64_t offset;      /* exact position in that file; not aligned to blocks of the drive */
    uint64_t bytes;
    uint32_t users; /* layers that share it (layer_delta.h), `layer` being the first; a shared chunk is fixed, if
                       such are kept. 0 means 1 */
    bool fixed;
    bool lookup;        /* entries of a table, never multiplied; fixed, too. Behind all other chunks */
    bool device;        /* set by the planner: it is in GPU memory */
    bool on_demand;     /* groups of a packed layer that are read only when rows use them (weights.h) */
    bool end;           /* of the last layer, and unused for rows that only feed its state */
    uint16_t of_groups; /* matrices of so many groups of experts, of which a row uses its experts' groups; 0: it uses
                           all of it */
    bool expert;        /* one whole matrix of an expert; a pass reads those of the experts that it uses (weights.h) */
};

#define NTX_EXPERT_BYTES_MAX (1ull << 31) /* largest matrix of an expert: it is one read */
enum ntx_expert_part { NTX_EXPERT_GATE, NTX_EXPERT_UP, NTX_EXPERT_DOWN, NTX_EXPERT_PARTS };

/* A weight of the forward pass: a tensor and its chunks in the list. */
struct ntx_weight {
    uint32_t tensor;      /* NTX_NO_TENSOR: absent, and nothing else is set */
    uint32_t type;        /* enum ntx_type */
    uint32_t n_in, n_out; /* inputs and outputs of a matrix: length and number of its rows in the file. A vector: its
                             length and 1 */
    uint32_t row_bytes;
    uint32_t chunk0, n_chunks; /* indices in ntx_chunks.list */
    uint32_t chunk_outs;       /* outputs of every chunk but the last */
    uint32_t layer;            /* layer of its chunks: the first of those that share it. n_layers: behind them */
    uint16_t kind;             /* enum ntx_tensor; NTX_N_TENSORS: of no layer */
    bool dealt;                /* its chunks are this machine's share of the outputs (share.h) */
    bool scaled; /* products are multiplied by value scale_at of the chunk `scale`, which follows its own chunks, or
                    precedes all experts */
    uint32_t scale, scale_at;
};

struct ntx_layer_weights {
    union {
        struct ntx_weight of[NTX_N_TENSORS];
        struct {
#define X(field, name, in, out, use) struct ntx_weight field;
            NTX_LAYER_TENSORS(X)
#undef X
        };
        struct { /* the last tensors by part: weights of expert 0 (see ntx_expert_weight); their biases have one
                    output for each expert */
            struct ntx_weight others[NTX_N_TENSORS - 2 * NTX_EXPERT_PARTS], expert_bias[NTX_EXPERT_PARTS],
                expert[NTX_EXPERT_PARTS];
        };
    };
    struct ntx_pack_layer pack; /* if packed, up, down (and gate, if it is in the groups) have type and width of one
                                   row for each neuron [n_ff x n_embd], and no chunks of their own */
};

struct ntx_chunks {
    struct ntx_chunk *list;
    uint32_t n;
    struct ntx_layer_weights *layers; /* [n_layers] */
    union { /* tensors of no layer (tensors.h), or absent. NTX_USE_LOOKUP: only type, n_in, n_out, row_bytes;
               n_chunks is 0 unless its entries are kept. output_norm.chunk0 is set even if it is absent */
        struct ntx_weight end[NTX_N_ENDS];
        struct {
#define X(field, name, in, out, use, has) struct ntx_weight field;
            NTX_END_TENSORS(X)
#undef X
        };
    };
    struct ntx_share share; /* n 0: this machine has everything */
    uint32_t n_layers, n_expert;
    uint64_t matrix_bytes; /* of chunks that are not fixed */
    uint64_t fixed_bytes;  /* of fixed chunks, without lookup_bytes */
    uint64_t lookup_bytes; /* of tables that are kept */
};

/* Numbers of bundles: layer * n_expert + expert. */
static inline uint32_t ntx_expert_chunk(const struct ntx_layer_weights *w, uint32_t expert, enum ntx_expert_part part)
{
    return w->expert[NTX_EXPERT_GATE].chunk0 + expert * NTX_EXPERT_PARTS + (uint32_t)part;
}
static inline struct ntx_weight ntx_expert_weight(const struct ntx_layer_weights *w, uint32_t expert,
                                                  enum ntx_expert_part part)
{
    struct ntx_weight e = w->expert[part];
    e.chunk0 = ntx_expert_chunk(w, expert, part);
    e.scale_at = expert;
    return e;
}

/* The matrices of a layer's experts can be dealt over machines. Halves of an up, and latents, are not. */
static inline bool ntx_experts_deal(const struct ntx_hparams *hp, const struct ntx_share *s, uint32_t layer)
{
    return !hp->experts_ungated && !hp->n_latent && ntx_share_deals(s, layer, hp->n_ff_exp) &&
           ntx_share_deals(s, layer, hp->n_embd);
}

#define NTX_CHUNKS_MAX (2u << 20) /* per model: 8 TiB in chunks of 4 MiB. Bounds the cost of a hostile file */
/* Makes the list of chunks. -E2BIG: more than NTX_CHUNKS_MAX. */
int ntx_chunks_make(const struct ntx_model *m, uint64_t chunk_bytes, struct ntx_chunks **out, struct ntx_err *err);

struct ntx_chunk_bounds {
    uint64_t most;           /* most chunks; more: -E2BIG */
    const atomic_bool *stop; /* another thread sets it: -ECANCELED soon after; NULL: no cancellation */
    const struct ntx_share
        *share; /* the share to list; NULL: everything. Machines other than the first have no chunks of tensors that
                   are not dealt */
    bool apart; /* each layer has chunks of its own even for shared tensors, except for groups that layers add to */
    bool count_only; /* only the sums and layers are computed; the list is NULL and takes no memory */
};
int ntx_chunks_make_bounded(const struct ntx_model *m, uint64_t chunk_bytes, const struct ntx_chunk_bounds *b,
                            struct ntx_chunks **out, struct ntx_err *err);
/* The groups of a packed layer that passes read: the additions, if the layer adds to shared groups. */
static inline const struct ntx_weight *ntx_read_groups(const struct ntx_layer_weights *w)
{
    return w->groups_added.tensor != NTX_NO_TENSOR ? &w->groups_added : &w->groups;
}
/* Marks these groups `on_demand`. */
void ntx_chunks_on_demand(struct ntx_chunks *c);
/* Appends chunks of a table of c->end, marked `lookup`: its entries are kept. ntx_chunks_drop_entries undoes the
 * last such call. */
int ntx_chunks_keep_entries(struct ntx_chunks *c, const struct ntx_model *m, struct ntx_weight *table,
                            uint64_t chunk_bytes, struct ntx_err *err);
void ntx_chunks_drop_entries(struct ntx_chunks *c, struct ntx_weight *table);
void ntx_chunks_free(struct ntx_chunks *c);

#endif
