/* SPDX-License-Identifier: Apache-2.0 */
/* kv_slots.h: memory for runs of K and V (kv_file.h) that come and go: slots of a few sizes, within one bound. A slot
 * keeps its pages for the next use, since a read into present pages takes little more than the drive's time. Where all
 * slots have one size they are in huge pages, which drives fill twice as fast (docs/log/long-context.md). With several
 * sizes, unused memory of one size is returned when another needs more. One thread at a time calls. */
#ifndef NTX_COMPUTED_STATE_KV_SLOTS_H
#define NTX_COMPUTED_STATE_KV_SLOTS_H

#include <stdint.h>

#define NTX__KV_NO_SLOT UINT32_MAX

struct ntx__kv_slots;
struct ntx__kv_size {
    uint64_t bytes; /* of a slot, in whole pages */
    uint32_t n;     /* wanted at once, at most */
};

int ntx__kv_slots_new(const struct ntx__kv_size *sizes, uint32_t n_sizes, uint64_t most, struct ntx__kv_slots **out);
void ntx__kv_slots_free(struct ntx__kv_slots *s);
/* A slot with its old content; NTX__KV_NO_SLOT: all `most` bytes are taken. */
uint32_t ntx__kv_slots_take(struct ntx__kv_slots *s, uint32_t size);
void ntx__kv_slots_leave(struct ntx__kv_slots *s, uint32_t size, uint32_t slot);
void *ntx__kv_slots_at(const struct ntx__kv_slots *s, uint32_t size, uint32_t slot);

#endif
