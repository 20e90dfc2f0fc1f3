/* cache.h: which experts are in which frames, and which one goes when another is to come. Pure: no clock, no I/O, one thread.
 *
 *   bundle = layer * n_expert + expert        frame = a place in the host arena that any bundle fits
 *
 * Time is counted in passes. Of each bundle it is remembered when it was last used and a count of its uses that halves every
 * NTX_CACHE_HALF passes; a policy makes a value of these, and the least valuable bundle is replaced.
 *   lru    the pass of the last use
 *   lfu    the ageing count
 *   next   the layers that will be computed until it is probably used again, from the ageing count and from where in the pass
 *          its layer lies: what has just been used cannot be used again before the next pass
 * bench/experts replays recorded choices under each of them (bench/experts/LOG.md); ntx uses NTX_CACHE_POLICY. */
#ifndef NTX_COMPUTED_CACHE_H
#define NTX_COMPUTED_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define NTX_NO_FRAME UINT32_MAX
#define NTX_NO_BUNDLE UINT32_MAX
#define NTX_CACHE_HALF 4.0f
#define NTX_CACHE_POLICY "next"

struct ntx_cache;

/* policy: a name, NULL for the default. -EINVAL: there is no such policy, -ENOMEM. */
int ntx_cache_new(uint32_t n_layers, uint32_t n_expert, uint32_t n_frames, const char *policy, struct ntx_cache **out);
void ntx_cache_free(struct ntx_cache *c);
uint64_t ntx_cache_bytes(uint32_t n_bundles, uint32_t n_frames); /* memory it takes */
const char *ntx_cache_policies(void);                            /* comma separated */

uint32_t ntx_cache_frame(const struct ntx_cache *c, uint32_t bundle); /* NTX_NO_FRAME: it is in none */
uint32_t ntx_cache_bundle(const struct ntx_cache *c, uint32_t frame); /* NTX_NO_BUNDLE: it is empty */
void ntx_cache_use(struct ntx_cache *c, uint32_t bundle, uint64_t pass);
/* The frame to put another bundle into while `layer` of `pass` is computed: an empty one, else the one with the least
 * valuable bundle; only such as may(ctx, frame). NTX_NO_FRAME when there is none. */
uint32_t ntx_cache_choose(const struct ntx_cache *c, uint64_t pass, uint32_t layer, bool (*may)(void *ctx, uint32_t frame), void *ctx);
void ntx_cache_put(struct ntx_cache *c, uint32_t frame, uint32_t bundle); /* what was there is there no more */
void ntx_cache_drop(struct ntx_cache *c, uint32_t frame);

#endif
