/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.h: cuts a model's tensors into chunks, the unit of placement and of streaming.
 * Where several machines share a model, each has a list of its own outputs (share.h).
 *
 * The list is in the order in which the layers' steps take their weights (layer.h): rope_freqs, and rope_long and
 * rope_short, come first of all, then layer by layer what the steps name, experts one after the other with gate, up and
 * down each; then output_norm and output. token_embd is not in it (entries of it are read on demand, or where there is
 * room all of them stay: ntx_chunks_keep_entries) unless it is the tied output matrix, which then is the last tensor.
 * In a packed layer (pack.h) the groups are cut into runs of whole groups like a matrix. Tensors that several layers
 * have (layer_delta.h) are cut once, for the first of them, and are fixed. A matrix is cut into runs of whole outputs
 * of at most chunk_bytes (one at least). All chunks of one tensor but its last have the same number of outputs. What is
 * always resident (enum ntx_use) is one chunk, marked `fixed`. */
#ifndef NTX_MODEL_CHUNK_H
#define NTX_MODEL_CHUNK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/arch.h"
#include "model/share.h"

struct ntx_chunk {
    uint32_t tensor;      /* index in the GGUF */
    uint32_t layer;       /* 0..n_layers-1; n_layers for what follows the last layer; 0 for what comes before it */
    uint32_t file;        /* part of a split model */
    uint32_t out0, n_out; /* outputs of the matrix; of what is no matrix: groups, entries */
    uint64_t offset;      /* exact, in that file; not aligned to the drive's block */
    uint64_t bytes;
    uint32_t users; /* layers that have it (layer_delta.h), `layer` being the first; of more than one it is fixed, where
                       such are kept. 0: 1 */
    bool fixed;
    bool lookup;    /* entries of a table, which nothing multiplies by; fixed, too. Behind all others */
    bool device;    /* the planner's: it lives on the GPU */
    bool on_demand; /* groups of a packed layer that are not streamed in order: only those are read that rows use
                       (weights.h) */
    bool end;    /* of the last layer, and of no use to rows of which nobody wants more than they leave in its state */
    bool expert; /* one of an expert's three matrices, whole; a pass takes those of the experts that it wants
                    (weights.h) */
};

#define NTX_EXPERT_BYTES_MAX (1ull << 31) /* of one of its matrices: it is one read */
enum ntx_expert_part { NTX_EXPERT_GATE, NTX_EXPERT_UP, NTX_EXPERT_DOWN, NTX_EXPERT_PARTS };

/* What the forward pass multiplies by: a tensor and where its chunks stand in the list. */
struct ntx_weight {
    uint32_t tensor;      /* NTX_NO_TENSOR when absent; then nothing else is set */
    uint32_t type;        /* enum ntx_type */
    uint32_t n_in, n_out; /* inputs and outputs of a matrix, as long and as many as its rows in the file; of a vector
                             n_in is its length and n_out 1 */
    uint32_t row_bytes;
    uint32_t chunk0, n_chunks; /* in ntx_chunks.list */
    uint32_t chunk_outs;       /* of every chunk but the last */
    uint32_t layer; /* that its chunks are of: of a tensor that several have, the first. n_layers: behind them */
    uint16_t kind;  /* enum ntx_tensor; NTX_N_TENSORS: none of a layer's */
    bool dealt;     /* its chunks are this machine's share of its outputs (share.h) */
    bool scaled; /* what comes of it is multiplied by value scale_at of the chunk `scale`, which stands behind its own,
                    or before all experts */
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
        struct { /* the last ones by part: those of expert 0, see ntx_expert_weight; and an output for each expert */
            struct ntx_weight others[NTX_N_TENSORS - 2 * NTX_EXPERT_PARTS], expert_bias[NTX_EXPERT_PARTS],
                expert[NTX_EXPERT_PARTS];
        };
    };
    struct ntx_pack_layer pack; /* with groups: up, down (and gate where in the groups) then tell type and width, one
                                   for each neuron [n_ff x n_embd], and have no chunks of their own */
};

struct ntx_chunks {
    struct ntx_chunk *list;
    uint32_t n;
    struct ntx_layer_weights *layers; /* [n_layers] */
    union { /* what belongs to no layer (tensors.h), or absent. Of NTX_USE_LOOKUP: type, n_in, n_out, row_bytes only;
               n_chunks 0, but where its entries are kept. output_norm.chunk0: where it would be, too */
        struct ntx_weight end[NTX_N_ENDS];
        struct {
#define X(field, name, in, out, use, has) struct ntx_weight field;
            NTX_END_TENSORS(X)
#undef X
        };
    };
    struct ntx_share share; /* n 0: all is here */
    uint32_t n_layers, n_expert;
    uint64_t matrix_bytes; /* of all chunks that are not fixed */
    uint64_t fixed_bytes;  /* without: */
    uint64_t lookup_bytes; /* of tables that are kept */
};

/* Bundle numbers: layer * n_expert + expert. */
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

#define NTX_CHUNKS_MAX (2u << 20) /* of a model: 8 TiB in chunks of 4 MiB. What is hostile is not planned for long */
/* -E2BIG: there are more than that. */
int ntx_chunks_make(const struct ntx_model *m, uint64_t chunk_bytes, struct ntx_chunks **out, struct ntx_err *err);

struct ntx_chunk_bounds {
    uint64_t most;           /* chunks; one more: -E2BIG */
    const atomic_bool *stop; /* set by somebody else: -ECANCELED, soon; NULL: nobody does */
    const struct ntx_share
        *share; /* whose outputs; NULL: all. Machines other than the first have no chunks of what is not dealt */
    bool apart; /* tensors that several layers have are no matter: each layer has chunks of its own, but of groups to
                   which layers add */
    bool count_only; /* the list is NULL, only the sums and the layers are there, and no memory is taken */
};
int ntx_chunks_make_bounded(const struct ntx_model *m, uint64_t chunk_bytes, const struct ntx_chunk_bounds *b,
                            struct ntx_chunks **out, struct ntx_err *err);
/* Of a packed layer, the groups that are read for a pass: what it adds to those that it shares, if it does. */
static inline const struct ntx_weight *ntx_read_groups(const struct ntx_layer_weights *w)
{
    return w->groups_added.tensor != NTX_NO_TENSOR ? &w->groups_added : &w->groups;
}
/* These become `on_demand`. */
void ntx_chunks_on_demand(struct ntx_chunks *c);
/* A table of c->end gets chunks behind all others, which are `lookup`: its entries are kept. What was added last goes
 * again with ntx_chunks_drop_entries. */
int ntx_chunks_keep_entries(struct ntx_chunks *c, const struct ntx_model *m, struct ntx_weight *table,
                            uint64_t chunk_bytes, struct ntx_err *err);
void ntx_chunks_drop_entries(struct ntx_chunks *c, struct ntx_weight *table);
void ntx_chunks_free(struct ntx_chunks *c);

#endif
