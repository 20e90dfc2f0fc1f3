/* SPDX-License-Identifier: Apache-2.0 */
/* kv_slots.h: memory for runs of K and V (kv_file.h) that come and go: slots of a few sizes, in one bound. A slot that
 * was used once keeps its pages for the next one: a read into pages that are there takes the drive's time and little
 * else, and where all slots are alike they lie in huge pages, which drives fill twice as fast
 * (docs/log/long-context.md). With several sizes, memory that one has no use for is given back when another one wants
 * more. One thread at a time calls. */
#ifndef NTX_COMPUTED_STATE_KV_SLOTS_H
#define NTX_COMPUTED_STATE_KV_SLOTS_H

#include <stdint.h>

#define NTX__KV_NO_SLOT UINT32_MAX

struct ntx__kv_slots;
struct ntx__kv_size {
    uint64_t bytes; /* of a slot, whole pages */
    uint32_t n;     /* that may be wanted at once */
};

int ntx__kv_slots_new(const struct ntx__kv_size *sizes, uint32_t n_sizes, uint64_t most, struct ntx__kv_slots **out);
void ntx__kv_slots_free(struct ntx__kv_slots *s);
uint32_t ntx__kv_slots_take(
    struct ntx__kv_slots *s,
    uint32_t size); /* what was in it before is still there; NTX__KV_NO_SLOT: all `most` bytes are taken */
void ntx__kv_slots_leave(struct ntx__kv_slots *s, uint32_t size, uint32_t slot);
void *ntx__kv_slots_at(const struct ntx__kv_slots *s, uint32_t size, uint32_t slot);

#endif
