/* recur.h: what a session keeps in layers without K and V: of each such layer a TAIL, the last inputs of its convolution, and a FOLD, a matrix of each head that
 * every token is folded into. It does not grow with the text, and has no entries for positions: it is what all tokens up to `at` made of it.
 *
 * A session has two sides, each all of that. A pass reads one, `now`, and writes the other, `next`; when it is over, ntx_recur_step makes next the one
 * that counts. So a pass that failed, or was cancelled, has changed nothing; and the side before is still there to go back to, until the next pass.
 * Snapshots are sides of their own, from the same pool: of what a session is now, or, of what it will be within the next pass, which leaves it there as it
 * comes by (a stop).
 *
 *   side     [layers that are recurrent]{ tail, fold }, or of those that pool what they keep { what is still to be pooled } as a tail (forward_pool.c)
 *   tail     float [taps - 1][width of the convolution], the oldest first
 *   fold     float [heads][panels][head: by key][panel: by value]     columns of a panel lie together: a panel stays in the first cache for all rows of a pass
 *
 * Not thread-safe: the engine thread calls; compute threads fill what ntx_recur_next gave, each its own part. */
#ifndef NTX_COMPUTED_RECUR_H
#define NTX_COMPUTED_RECUR_H

#include "common/err.h"
#include "common/util.h"
#include "model/arch.h"

#define NTX_RECUR_STOPS 3 /* of a session in a pass */

struct ntx_recur_pool;
struct ntx_recur;      /* a session's */
struct ntx_recur_snap; /* a snapshot */

/* Columns of a head's matrix that lie together. */
static inline uint32_t ntx_recur_panel(const struct ntx_hparams *hp) { return hp->delta.head % 32 ? 16 : 32; }

/* Floats of a layer. */
static inline size_t ntx__recur_tail(const struct ntx_hparams *hp) { return (size_t)(hp->delta.taps - 1) * ntx_width(hp, 0, NTX_DIM_DELTA_MIX); }
static inline size_t ntx__recur_fold(const struct ntx_hparams *hp) { return (size_t)hp->delta.heads * hp->delta.head * hp->delta.head; }
/* Of one that may be none of either. */
static inline size_t ntx__recur_floats(const struct ntx_hparams *hp, uint32_t layer)
{
    if (hp->pool[layer])
        return (size_t)hp->pool[layer] * ntx_pool_spans(hp, layer) * ntx_pool_row(hp, layer);
    return ntx_is_recurrent(hp, layer) ? ntx__recur_tail(hp) + ntx__recur_fold(hp) : 0;
}
/* Of a session; 0: the model keeps nothing of the kind. */
static inline uint64_t ntx_recur_bytes(const struct ntx_hparams *hp)
{
    uint64_t floats = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        floats += ntx__recur_floats(hp, l);
    return 2 * NTX_ROUND_UP(floats * sizeof(float), 4096);
}

/* Of so many sides, two for each session, and one for each snapshot. */
int ntx_recur_pool_new(const struct ntx_hparams *hp, uint32_t n_sides, struct ntx_recur_pool **out, struct ntx_err *err);
void ntx_recur_pool_free(struct ntx_recur_pool *p);
uint32_t ntx_recur_pool_left(const struct ntx_recur_pool *p); /* sides that nobody has */

/* Nothing in it yet. -EAGAIN: no room now. */
int ntx_recur_new(struct ntx_recur_pool *p, struct ntx_recur **out);
void ntx_recur_free(struct ntx_recur *r);
uint32_t ntx_recur_at(const struct ntx_recur *r); /* tokens in it */

/* A snapshot, and from one: `to`, of the same pool, becomes what r is with its first n tokens. -ENODATA: that is not there. */
int ntx_recur_copy(const struct ntx_recur *r, uint32_t n, struct ntx_recur *to);
/* Goes back to the first n tokens. Returns with how many it goes on: n, or 0 where that is not there any more. */
uint32_t ntx_recur_return(struct ntx_recur *r, uint32_t n);
/* The next pass leaves what it is with its first n tokens, more than it has now. -EAGAIN: no room, or too many of them. */
int ntx_recur_stop(struct ntx_recur *r, uint32_t n);
void ntx_recur_unstop(struct ntx_recur *r); /* all of them, whatever became of them */
/* What r is with its first n tokens: of a stop, which it takes over, or a copy. -ENODATA: that is not there; -EAGAIN: no room for a copy. */
int ntx_recur_snap_new(struct ntx_recur *r, uint32_t n, struct ntx_recur_snap **out);
bool ntx_recur_has(const struct ntx_recur *r, uint32_t n, bool *copies); /* ... and whether it would be a copy */
void ntx_recur_snap_put(const struct ntx_recur_snap *s, struct ntx_recur *r); /* r becomes that */
void ntx_recur_snap_free(struct ntx_recur_snap *s);
/* What r is, as memory: to be written out, or to be filled; and then it is with its first n tokens. */
void *ntx_recur_memory(const struct ntx_recur *r, size_t *bytes);
void ntx_recur_restored(struct ntx_recur *r, uint32_t n);

/* A pass begins with the token at position pos: 0 begins anew. -EINVAL: it is another's turn. */
int ntx_recur_begin(struct ntx_recur *r, uint32_t pos);
/* Of a layer that is recurrent. NULL: nothing yet, which counts as zeros. */
const float *ntx_recur_tail(const struct ntx_recur *r, uint32_t layer);
const float *ntx_recur_fold(const struct ntx_recur *r, uint32_t layer);
float *ntx_recur_next_tail(const struct ntx_recur *r, uint32_t layer); /* to be filled, all of it */
float *ntx_recur_next_fold(const struct ntx_recur *r, uint32_t layer);
/* Of a stop with the first n tokens, to be filled; NULL: there is none. */
float *ntx_recur_stop_tail(const struct ntx_recur *r, uint32_t n, uint32_t layer);
float *ntx_recur_stop_fold(const struct ntx_recur *r, uint32_t n, uint32_t layer);
/* Where these lie, in bytes from the beginning of all sessions' states: for a device, which has them in the same places. */
uint64_t ntx_recur_side(const struct ntx_recur *r, bool next);
uint64_t ntx_recur_layer(const struct ntx_hparams *hp, uint32_t layer); /* its tail, from a side's beginning on; the fold follows */
/* What was filled counts: n tokens more. */
void ntx_recur_step(struct ntx_recur *r, uint32_t n);

#endif
