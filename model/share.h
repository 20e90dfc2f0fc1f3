/* share.h: a model dealt over several machines: which rows of a matrix each of them has.
 *
 * Every machine (a rank; 0 is the one with the sessions) reads and multiplies some rows of each matrix, always the same: the share's part of them, in whole
 * slices of 16 rows. An output's sum is untouched by that, so its bits are. What is no matrix, what is always resident, and matrices of too few rows to be
 * worth a message, rank 0 has alone; the others do not have them at all. */
#ifndef NTX_MODEL_SHARE_H
#define NTX_MODEL_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define NTX_RANKS_MAX 16u
#define NTX_SHARE_UNIT 16u /* rows: NTX_SLICE_ROWS */

struct ntx_share {
    uint32_t n, rank;               /* how many machines, which is this one */
    uint32_t part[NTX_RANKS_MAX];   /* [n] of each matrix, in proportion to their sum, which is below 2^32 */
};

struct ntx_share_rows { uint32_t row0, n; };

/* A matrix of so many rows has some on every machine. share NULL: there is one. */
bool ntx_share_deals(const struct ntx_share *s, uint32_t n_out);
/* Those of one rank. Where the matrix is not dealt, rank 0's are all. */
struct ntx_share_rows ntx_share_of(const struct ntx_share *s, uint32_t n_out, uint32_t rank);

#define NTX_SHARE_KEEPS 0.75 /* of a budget becomes weights that stay, or thereabouts: the rest is keys and values, activations, the ring */

/* What a token takes: of `dense` bytes all, of `experts` the part `used` (0 to 1). */
struct ntx_share_work {
    double dense, experts, used;
};
static inline double ntx_share_bytes(const struct ntx_share_work *w) { return w->dense + w->experts; }
static inline double ntx_share_taken(const struct ntx_share_work *w) { return w->dense + w->used * w->experts; }

/* What a machine can do for a token: so many bytes of weights stay in its memory, read at `memory` bytes a second; the others come from its drive at
 * `drive`, while those are multiplied. Dense ones stay before experts, and a token's experts are any: as if a text had no favourites. */
struct ntx_share_machine {
    double keeps, memory, drive;
};
/* What a machine with this part (0 to 1) of all matrices reads for a token. */
double ntx_share_reads(const struct ntx_share_machine *m, const struct ntx_share_work *w, double part);
/* Parts with which all machines need the same time, or 0 and nothing is set: a rate is missing. Every part is at least one
 * hundredth of the largest. Returns that time in seconds. */
double ntx_share_even(const struct ntx_share_machine *m, uint32_t n, const struct ntx_share_work *w, struct ntx_share *out);

#endif
