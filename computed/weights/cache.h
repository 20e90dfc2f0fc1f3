/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h: which experts are in memory, and which one is evicted when another is to come. A bundle is an expert's three
 * matrices, a frame a place in the host arena that any bundle of its class fits (frames.h). Pure: no clock, no I/O, one
 * thread.
 *
 *   bundle = layer * n_expert + expert
 *
 *   empty ---- take ----> used: held, or in its layer's heap ---- take of another ----> evicted
 *     |                     ^
 *     +-- prefetch --> prefetched ---- use
 *
 * Score: the chance that the layer's next row uses the expert. It is a mixture of three decayed counts (half-lives of
 * 0.5, 8 and 128 rows) and of "all experts alike". The shares of the mixture are learned online, over all layers, by
 * how well each part predicted what was then routed. Where the router's scores are known, too, the chance is
 * proportional to exp(a x8 + b x128) chance^c, where x is the expert's score, normalised over the row's experts and
 * averaged with a half-life of 8 or 128 rows; a, b and c are learned online (one step of gradient ascent of the
 * likelihood a pass). The victim is the expert with the largest expected time to its next use.
 *
 * A policy of one half-life alone, without scores, is for comparison: bench/experts replays recorded routing under each
 * (docs/log/experts.md).
 *
 * A pass of one layer changes only that layer's chances. So each layer has a heap, which is rebuilt at the first
 * eviction after its pass, and the victim is the best of the heaps' tops.
 *
 * A prefetched bundle is one that no row has used yet. It takes one of the frames kept for prefetches: an empty one, or
 * that of the oldest unused prefetch, never that of a used bundle. There is one exception: after the use of a
 * prefetched bundle its class has one used bundle too many, and the least valuable of them is evicted, as it would have
 * been without the prefetch. So wrong predictions never change what is cached. A staged bundle is as good as wanted: it
 * takes an empty frame, or that of the least valuable used bundle. If no row uses it after all, its frame is the next
 * to go. */
#ifndef NTX_COMPUTED_WEIGHTS_CACHE_H
#define NTX_COMPUTED_WEIGHTS_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/weights/frames.h"

#define NTX_NO_FRAME  UINT32_MAX
#define NTX_NO_BUNDLE UINT32_MAX

struct ntx_cache;

#define NTX_CACHE_HALVES 4

/* n half-lives, in rows, and the share of the mixture that each has at first. */
struct ntx_cache_policy {
    uint32_t n;
    float half[NTX_CACHE_HALVES], share[NTX_CACHE_HALVES];
};

enum ntx_cache_for {
    NTX_CACHE_WANTED,
    NTX_CACHE_PREFETCHED,
    NTX_CACHE_STAGED, /* almost certainly wanted: it may evict a used bundle; counts as prefetched until it is used */
};

/* policy NULL: the daemon's. -ENOMEM. */
int ntx_cache_new(const struct ntx_frames *f, uint32_t n_layers, uint32_t n_expert,
                  const struct ntx_cache_policy *policy, struct ntx_cache **out);
void ntx_cache_free(struct ntx_cache *c);
uint64_t ntx_cache_bytes(uint32_t n_bundles, uint32_t n_frames); /* bytes of memory that a cache takes */

uint32_t ntx_cache_frame(const struct ntx_cache *c, uint32_t bundle); /* NTX_NO_FRAME: not cached */
uint32_t ntx_cache_bundle(const struct ntx_cache *c, uint32_t frame); /* NTX_NO_BUNDLE: empty */
bool ntx_cache_is_prefetched(const struct ntx_cache *c, uint32_t frame);
/* Counts a pass of n_rows rows over a layer, once, before its experts are taken or used: rows[i] rows were routed to
 * experts[i]. scores [n_expert]: for each expert the mean over the rows of the router's score, after each row's scores
 * were normalised to mean 0 and standard deviation 1; NULL: not known. */
void ntx_cache_count(struct ntx_cache *c, uint32_t layer, const uint32_t *experts, const uint32_t *rows, uint32_t n,
                     uint32_t n_rows, const float *scores);
void ntx_cache_use(struct ntx_cache *c, uint32_t bundle); /* a prefetched bundle counts as used from then on */
/* Begins a layer that was not counted yet with what earlier loads learned: share[e] of its rows used expert e. */
void ntx_cache_begin(struct ntx_cache *c, uint32_t layer, const float *share);
/* Whether a wanted bundle would get an empty frame, so that none is evicted. */
bool ntx_cache_has_room(const struct ntx_cache *c, uint32_t bundle);
/* Whether the class keeps frames for prefetches (frames.h; so at first), or has them for wanted bundles. */
void ntx_cache_keep_spare(struct ntx_cache *c, uint32_t class, bool keep);
/* Gives an uncached bundle a frame: an empty one, else that of the least valuable bundle, never a held one. The new
 * bundle is held once. NTX_NO_FRAME: all frames are held. now: the layer that is being computed. */
uint32_t ntx_cache_take(struct ntx_cache *c, uint32_t bundle, uint32_t now, enum ntx_cache_for why);
/* A held frame keeps its bundle. Each hold needs one ntx_cache_let_go. */
void ntx_cache_hold(struct ntx_cache *c, uint32_t frame);
void ntx_cache_let_go(struct ntx_cache *c, uint32_t frame);
void ntx_cache_drop(struct ntx_cache *c,
                    uint32_t frame); /* the frame's content is lost, though the frame may still be held */

#endif
