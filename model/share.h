/* SPDX-License-Identifier: Apache-2.0 */
/* share.h: a model dealt over several machines (ranks): which outputs of a matrix each of them has. The sum of one
 * output is never split, so its bits are those of one machine.
 *
 *   rows     every rank reads and multiplies its part of each matrix's outputs, always the same, in whole slices of
 *            16. Rank 0 has the sessions, and matrices with too few outputs to be worth a message
 *   layers   one rank has all matrices of a layer, and layers are dealt in turn, so that a drive reads ahead while
 *            others compute: fewer and smaller messages, but one rank computes at a time. The output matrix is dealt
 *            by outputs
 *   heads    like rows, and K and V are dealt by heads: each rank keeps its heads and attends with them
 *            (computed/ranks/ranks.h)
 *
 * Tensors that are not matrices, and those that are always resident, exist on rank 0 alone. */
#ifndef NTX_MODEL_SHARE_H
#define NTX_MODEL_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define NTX_RANKS_MAX    16u
#define NTX_SHARE_UNIT   16u /* outputs of a slice: NTX_SLICE_OUTS */

#define NTX_SHARE_LAYERS 513u /* the output matrix counts as a layer (shm/board.h) */
enum ntx_split { NTX_SPLIT_ROWS, NTX_SPLIT_HEADS, NTX_SPLIT_LAYERS, NTX_SPLITS };

struct ntx_share {
    uint32_t n, rank;                /* number of ranks; this rank */
    uint32_t part[NTX_RANKS_MAX];    /* [n] relative parts of each matrix, or of the bytes of all layers; their sum
                                        is below 2^32 */
    uint32_t split;                  /* enum ntx_split */
    uint8_t owner[NTX_SHARE_LAYERS]; /* LAYERS: the rank that has each layer's matrices; NTX_SHARE_ALL: dealt by
                                        outputs */
};
#define NTX_SHARE_ALL UINT8_MAX

struct ntx_share_range {
    uint32_t first, n;
}; /* of outputs, or of heads */

/* A matrix with n_out outputs is dealt: ranks other than 0 have some. share NULL: there is one machine. layer
 * n_layers: the output matrix. */
bool ntx_share_deals(const struct ntx_share *s, uint32_t layer, uint32_t n_out);
/* The outputs of one rank. A matrix that is not dealt belongs to rank 0. */
struct ntx_share_range ntx_share_of(const struct ntx_share *s, uint32_t layer, uint32_t n_out, uint32_t rank);
/* The K and V heads of a layer that a rank keeps, by the parts; rank 0 has at least one. share NULL: all. With fewer
 * heads than ranks, some have none. */
struct ntx_share_range ntx_share_heads(const struct ntx_share *s, uint32_t n_heads, uint32_t rank);
/* ntx_share_whole: the layer belongs to one rank. ntx_share_has_outputs: that rank has outputs of the layer. */
static inline bool ntx_share_whole(const struct ntx_share *s, uint32_t layer)
{
    return s->split == NTX_SPLIT_LAYERS && s->owner[layer] != NTX_SHARE_ALL;
}
static inline bool ntx_share_has_outputs(const struct ntx_share *s, uint32_t layer, uint32_t rank)
{
    return !ntx_share_whole(s, layer) || s->owner[layer] == rank;
}
extern const char *const ntx_split_names[NTX_SPLITS];
/* Deals whole layers of these sizes by the parts: each to the rank that is furthest below its part. The output
 * matrix is dealt by outputs. */
void ntx_share_layers(struct ntx_share *s, const uint64_t *bytes, uint32_t n_layers);

/* LAYERS: bytes that a rank must read ahead to keep its drive busy while others compute: those of its longest run of
 * layers during the others' time. streamed: bytes per token that do not stay in memory. If read-ahead takes more
 * memory, more bytes must be streamed. */
double ntx_share_ahead(const struct ntx_share *s, uint32_t rank, uint32_t n_layers, double streamed);

#define NTX_SHARE_KEEPS                                                                                                \
    0.75 /* fraction of a budget that holds weights, roughly; the rest is K and V, activations and the ring buffer */

/* Work for one token: all of `dense` bytes, and the part `used` (0 to 1) of `experts`. kv_read: bytes of K and V
 * that its attention reads; kv_kept: bytes kept in all; both with a full context. */
struct ntx_share_work {
    double dense, experts, used;
    double kv_read, kv_kept;
};
static inline double ntx_share_bytes(const struct ntx_share_work *w) { return w->dense + w->experts; }
static inline double ntx_share_taken(const struct ntx_share_work *w) { return w->dense + w->used * w->experts; }

/* Speed of a machine: `keeps` bytes of weights stay in its memory, read at `memory` bytes a second; the others come
 * from its drive at `drive`, while those are multiplied. Dense weights stay before experts. A token's experts are
 * assumed uniformly random. */
struct ntx_share_machine {
    double keeps, memory, drive;
    double kv_room;                   /* bytes for K and V */
    double prompt_s, prompt_expert_s; /* seconds to multiply a byte of dense weights, and of experts, by all rows of
                                         a prompt's pass; 0: unknown */
};
/* Bytes that a machine with this part (0 to 1) of all matrices reads from its drive for a token. */
double ntx_share_reads(const struct ntx_share_machine *m, const struct ntx_share_work *w, double part);
/* Finds parts with which all machines take equal time, each at least a hundredth of the largest. Returns that time
 * in seconds; 0: a rate is missing, and nothing is set. */
double ntx_share_even(const struct ntx_share_machine *m, uint32_t n, const struct ntx_share_work *w,
                      struct ntx_share *out);

#endif
