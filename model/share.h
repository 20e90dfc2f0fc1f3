/* SPDX-License-Identifier: Apache-2.0 */
/* share.h: a model dealt over several machines: which outputs of a matrix each of them has. An output's sum is never
 * cut, so its bits are those of one machine.
 *
 *   rows     every machine (a rank; 0 is the one with the sessions) reads and multiplies by some outputs of each
 *            matrix, always the same: the share's part of
 *            them, in whole slices of 16. Matrices of too few to be worth a message are rank 0's
 *   layers   one machine has all matrices of a layer, and the layers go round, so that a drive reads ahead while the
 *            others compute: fewer and smaller
 *            messages, but only one machine multiplies at a time. The output matrix is dealt by outputs
 *
 *   heads    as rows, and keys and values are dealt, too: by heads, each machine keeping those of its own and attending
 *            with them (computed/ranks/ranks.h)
 *
 * What is no matrix, and what is always resident, rank 0 has alone; the others do not have it at all. */
#ifndef NTX_MODEL_SHARE_H
#define NTX_MODEL_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define NTX_RANKS_MAX    16u
#define NTX_SHARE_UNIT   16u /* outputs: NTX_SLICE_OUTS */

#define NTX_SHARE_LAYERS 513u /* the output counts as one (shm/board.h) */
enum ntx_split { NTX_SPLIT_ROWS, NTX_SPLIT_HEADS, NTX_SPLIT_LAYERS, NTX_SPLITS };

struct ntx_share {
    uint32_t n, rank;                /* how many machines, which is this one */
    uint32_t part[NTX_RANKS_MAX];    /* [n] of each matrix, or of the bytes of all layers, in proportion to their sum,
                                        which is below 2^32 */
    uint32_t split;                  /* enum ntx_split */
    uint8_t owner[NTX_SHARE_LAYERS]; /* LAYERS: which machine has each layer's matrices; NTX_SHARE_ALL: all have, by
                                        outputs */
};
#define NTX_SHARE_ALL UINT8_MAX

struct ntx_share_range {
    uint32_t first, n;
}; /* of outputs, or of heads */

/* A matrix of so many outputs has some on another machine than rank 0. share NULL: there is one. layer: n_layers is the
 * output's. */
bool ntx_share_deals(const struct ntx_share *s, uint32_t layer, uint32_t n_out);
/* Those of one rank. Where the matrix is not dealt, rank 0's are all. */
struct ntx_share_range ntx_share_of(const struct ntx_share *s, uint32_t layer, uint32_t n_out, uint32_t rank);
/* Of the heads of K and V of a layer, those that a rank keeps, by the parts; rank 0 at least one. share NULL: all.
 * Where there are fewer than machines, some have none. */
struct ntx_share_range ntx_share_heads(const struct ntx_share *s, uint32_t n_heads, uint32_t rank);
/* That rank has outputs of what is dealt of the layer. */
static inline bool ntx_share_whole(const struct ntx_share *s, uint32_t layer)
{
    return s->split == NTX_SPLIT_LAYERS && s->owner[layer] != NTX_SHARE_ALL;
}
static inline bool ntx_share_asks(const struct ntx_share *s, uint32_t layer, uint32_t rank)
{
    return !ntx_share_whole(s, layer) || s->owner[layer] == rank;
}
extern const char *const ntx_split_names[NTX_SPLITS];
/* Deals whole layers of so many bytes each by the parts, one after another to who then has least of what is his due;
 * and the output matrix by outputs. */
void ntx_share_layers(struct ntx_share *s, const uint64_t *bytes, uint32_t n_layers);

/* LAYERS: bytes that a machine has to read ahead so that its drive is busy while others compute: what comes of its
 * longest run of layers in the others' part of the time. streamed: its bytes for a token that neither stay nor lie
 * there. More than that, and those have to be streamed, too. */
double ntx_share_ahead(const struct ntx_share *s, uint32_t rank, uint32_t n_layers, double streamed);

#define NTX_SHARE_KEEPS                                                                                                \
    0.75 /* of a budget becomes weights that stay, or thereabouts: the rest is keys and values, activations, the ring  \
          */

/* What a token takes: of `dense` bytes all, of `experts` the part `used` (0 to 1). And of K and V: bytes that its
 * attention reads, and that are kept in all, when the context is full. */
struct ntx_share_work {
    double dense, experts, used;
    double kv_read, kv_kept;
};
static inline double ntx_share_bytes(const struct ntx_share_work *w) { return w->dense + w->experts; }
static inline double ntx_share_taken(const struct ntx_share_work *w) { return w->dense + w->used * w->experts; }

/* What a machine can do for a token: so many bytes of weights stay in its memory, read at `memory` bytes a second; the
 * others come from its drive at `drive`, while those are multiplied. Dense ones stay before experts, and a token's
 * experts are any: as if a text had no favourites. */
struct ntx_share_machine {
    double keeps, memory, drive;
    double kv_room;                   /* bytes that K and V may take */
    double prompt_s, prompt_expert_s; /* to multiply a byte of dense weights, and of experts, by all rows of a prompt's
                                         pass; 0: unknown */
};
/* What a machine with this part (0 to 1) of all matrices reads for a token. */
double ntx_share_reads(const struct ntx_share_machine *m, const struct ntx_share_work *w, double part);
/* Parts with which all machines need the same time, or 0 and nothing is set: a rate is missing. Every part is at least
 * one hundredth of the largest. Returns that time in seconds. */
double ntx_share_even(const struct ntx_share_machine *m, uint32_t n, const struct ntx_share_work *w,
                      struct ntx_share *out);

#endif
