/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h: which bundles (experts) are in which frames, and which one goes when another is to come. Pure: no clock, no
 * I/O, one thread.
 *
 *   bundle = layer * n_expert + expert frame = a place in the host arena that any bundle of its class fits (frames.h)
 *
 *   empty ---- take ----> used: held or in its layer's heap ---- take of another ----> gone
 *     |                     ^
 *     +-- prefetch --> prefetched ---- use
 *
 * Of each layer's passes it is counted how many rows chose each bundle. Counts age by the rows that follow, with
 * several half-lives side by side: a bundle's share of the last few rows, of some, of many. Each of these, and "all
 * bundles alike", is believed as much as it foretold what was then chosen, of all layers; together they are the chance
 * that a row chooses the bundle. Where routers' scores are told, too, more is known of bundles that were nearly chosen,
 * or far from it: the chance is proportional to exp(a x8 + b x128) chance^c, x being a bundle's score less the mean of
 * the row's, by their spread, on average of some rows and of many; a, b and c are learned as they foretell choices (a
 * step of gradient ascent of the likelihood a pass). The one to go is that which will probably be used last: so many
 * rows of all layers, and as many layers of this pass as are computed until then.
 *   mixed        these: half-lives of 0.5, 8 and 128 rows, of scores 8 and 128. ntx's
 *   next:HALF    one half-life alone (12)
 *   lru          the one that was used longest ago
 * bench/experts replays recorded choices under each of them (docs/log/experts.md).
 *
 * Chances of a layer's bundles change with its passes alone. So each layer has a heap, made anew for the first choice
 * after a pass of it, and the victim is the best of the heaps' tops.
 *
 * A prefetched bundle is one that no row has asked for yet. It takes one of the frames kept for such: an empty one, or
 * that of an older one that nobody wanted, never one of a used bundle; unless a prefetched bundle was asked for and
 * thereby became one of the used: then the least valuable of these goes, as it would have gone at once had that bundle
 * not been prefetched. So wrong predictions change nothing of what is cached. A staged bundle takes an empty frame, or
 * that of the least valuable used one, as if it were wanted. Where nobody asks for it after all, its frame is the next
 * that goes. */
#ifndef NTX_COMPUTED_WEIGHTS_CACHE_H
#define NTX_COMPUTED_WEIGHTS_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/weights/frames.h"

#define NTX_NO_FRAME  UINT32_MAX
#define NTX_NO_BUNDLE UINT32_MAX

struct ntx_cache;

enum ntx_cache_for {
    NTX_CACHE_WANTED,
    NTX_CACHE_PREFETCHED,
    NTX_CACHE_STAGED, /* as good as wanted: it takes the place of what is used, as it would a little later, and is a
                         prefetched one until it is asked for */
};

/* policy: NULL: ntx's. -EINVAL: there is no such policy, -ENOMEM. */
int ntx_cache_new(const struct ntx_frames *f, uint32_t n_layers, uint32_t n_expert, const char *policy,
                  struct ntx_cache **out);
void ntx_cache_free(struct ntx_cache *c);
uint64_t ntx_cache_bytes(uint32_t n_bundles, uint32_t n_frames); /* memory it takes */

uint32_t ntx_cache_frame(const struct ntx_cache *c, uint32_t bundle); /* NTX_NO_FRAME: it is in none */
uint32_t ntx_cache_bundle(const struct ntx_cache *c, uint32_t frame); /* NTX_NO_BUNDLE: it is empty */
bool ntx_cache_is_prefetched(const struct ntx_cache *c, uint32_t frame);
/* Of a pass of n_rows rows, rows[i] chose experts[i] of this layer; once, before they are taken or used. scores
 * [n_expert]: of all experts, the mean of the rows' scores, each row's less their mean and divided by their standard
 * deviation; NULL: not known. */
void ntx_cache_count(struct ntx_cache *c, uint32_t layer, const uint32_t *experts, const uint32_t *rows, uint32_t n,
                     uint32_t n_rows, const float *scores);
void ntx_cache_use(struct ntx_cache *c, uint32_t bundle); /* a prefetched one is a used one from then on */
/* Whether a class keeps frames for what is prefetched (frames.h), as at first, or has them for what is wanted. */
void ntx_cache_keep_spare(struct ntx_cache *c, uint32_t class, bool keep);
/* Gives a bundle that is in none a frame: an empty one, else that of the least valuable bundle. Never a held one; the
 * new one is held once. NTX_NO_FRAME when there is none. now: the layer that is being computed. */
uint32_t ntx_cache_take(struct ntx_cache *c, uint32_t bundle, uint32_t now, enum ntx_cache_for why);
/* A held frame keeps its bundle. As often as it was held it has to be let go. */
void ntx_cache_hold(struct ntx_cache *c, uint32_t frame);
void ntx_cache_let_go(struct ntx_cache *c, uint32_t frame);
void ntx_cache_drop(struct ntx_cache *c,
                    uint32_t frame); /* what is there is there no more, though it may still be held */

#endif
