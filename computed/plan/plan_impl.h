/* SPDX-License-Identifier: Apache-2.0 */
/* plan_impl.h: shared by plan.c (which choices are made) and plan_fit.c (what a set of choices costs). */
#ifndef NTX_COMPUTED_PLAN_PLAN_IMPL_H
#define NTX_COMPUTED_PLAN_PLAN_IMPL_H

#include "computed/pass/forward.h"
#include "computed/plan/plan.h"

#define NTX__INFLIGHT      (4ull << 20) /* bytes in flight, and in one read; measured: docs/log/stream.md */
#define NTX__BLOCK         4096u        /* file reads begin and end at multiples of this */
#define NTX__BUNDLE_READS  192u         /* parts of experts requested at once, at most */
#define NTX__GROUP_READS   1024u        /* runs of groups requested at once, at most */
#define NTX__WINDOWS       2u           /* the current layer, and the next one if it is predicted */
#define NTX__ALL           1000u        /* thousandths of a layer's groups */
#define NTX__SPARE_DEMANDS 8u           /* frames beyond one per row, for quarantined ones */

/* Everything that determines memory. */
struct ntx__shape {
    const struct ntx_model *model;
    const struct ntx_chunks *chunks;
    uint64_t other; /* the caller's */
    uint64_t stage; /* bytes of it */
    uint32_t ctx, sessions, threads, rows;
    enum ntx_kv_type kv_type;
    const struct ntx_kv_shape *kv; /* given; NULL: derived from the rest */
    bool kv_all;
    uint32_t snapshots; /* snapshots beyond what sessions leave (computed/state/kv.h) */
    uint64_t kv_ram;
    struct ntx_ffn_mode ffn;          /* which groups of neurons are on demand, and what their selection takes */
    uint32_t n_desc;                  /* 0: nothing is streamed */
    uint64_t slot_bytes, arena_bytes; /* the arena without frames */
    uint32_t n_sched;
    struct ntx_frames frames;         /* n 0: none */
    struct ntx_forward_widths widths; /* of the layers and chunks */
    uint64_t window_bytes;            /* 0: no windows */
    uint32_t n_windows;
};

/* Memory that computed keeps for each chunk; the first list was grown by doubling. */
#define NTX__LIST_BYTES (2 * sizeof(struct ntx_chunk) + sizeof(struct ntx_plan_chunk) + sizeof(uint32_t))

struct ntx__bill {                                  /* bytes */
    uint64_t region, kv, activations, other, total; /* total: UINT64_MAX when it overflows */
};

/* Sets predicted_tok_s and limit of a plan that is otherwise complete. hw may be NULL. */
void ntx__plan_predict(const struct ntx_model *m, const struct ntx_hw *hw, struct ntx_plan *p);

struct ntx_region_geometry ntx__plan_geometry(const struct ntx__shape *s);
struct ntx__bill ntx__plan_bill(const struct ntx__shape *s);

uint32_t ntx__plan_spares(uint32_t n_desc, uint64_t slot_bytes);
struct ntx_kv_shape ntx__plan_kv(const struct ntx__shape *s);

/* Marks chunks that fit into `bytes` of GPU memory (each with `extra`): the output, then layer after layer, then
 * experts of whole layers. */
void ntx__plan_device(struct ntx_chunks *c, uint64_t bytes, uint64_t extra);

/* Sums over the chunk list, without chunks on the device. */
struct ntx__sizes {
    uint64_t fixed, matrix, experts, groups; /* in whole blocks; matrix: without experts and groups on demand */
    uint32_t n_bundles;
    uint64_t slot; /* for the largest matrix chunk */
    uint32_t n_matrix;
};
struct ntx__sizes ntx__plan_sizes(const struct ntx_chunks *c);
/* Bytes of resident groups when each layer keeps so many thousandths; *window: bytes of the largest rest of a layer. */
uint64_t ntx__plan_groups(const struct ntx_chunks *c, uint32_t kept, uint64_t *window);
/* Classes of the bundles, at most n_classes of them. */
struct ntx_frames ntx__plan_classes(const struct ntx_chunks *c, uint32_t n_classes);

/* Places each chunk: fixed ones, and others up to arena_bytes, evenly spread, go to the arena; the rest is scheduled.
 * Of groups on demand, the first kept_groups thousandths of each layer's chunks are resident beside that. Experts go to
 * the arena beside that, or with `frames` to frames. without: only these layers' chunks are scheduled; NULL: any.
 * table [chunks->n], sched [chunks->n]. Returns the number scheduled; *slot: bytes of the largest of those; *arena:
 * bytes used. */
uint32_t ntx__plan_place(const struct ntx_chunks *c, uint64_t arena_bytes, bool frames, uint32_t kept_groups,
                         const uint64_t *without, struct ntx_plan_chunk *table, uint32_t *sched, uint64_t *slot,
                         uint64_t *arena);
/* The fewest layers that hold what such an arena has no room for, as bits [NTX_MAX_LAYERS / 64]. Returns their number;
 * 0: that would be most layers, or more. */
uint32_t ntx__plan_without(const struct ntx_chunks *c, uint64_t arena_bytes, uint64_t *without);

#endif
