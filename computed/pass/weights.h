/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h: how the forward pass gets weights, wherever they are. Compute threads call. Implementations: the stream
 * from the shared region (computed/weights), weights_ram.h, and in tests a file in memory. */
#ifndef NTX_COMPUTED_PASS_WEIGHTS_H
#define NTX_COMPUTED_PASS_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_weights;

struct ntx_weights_ops {
    /* A pass begins. Chunks are then acquired in list order; a skipped chunk is passed to `skip` instead. One
     * thread. */
    int (*begin)(struct ntx_weights *w, uint64_t pass);
    /* Waits until the chunk's bytes are in memory. Any compute thread, also several for the same chunk. After a failure
     * every caller gets the same negative errno, and ntx_weights.error has its text. */
    int (*acquire)(struct ntx_weights *w, uint32_t chunk, const void **bytes);
    /* No thread uses the chunk any more in this pass: its slot may be overwritten. Once per acquired chunk, by one
     * thread. */
    void (*release)(struct ntx_weights *w, uint32_t chunk);
    /* No row of this pass needs the layer (n_layers: the output, when no row wants logits). Call it as early as it is
     * known: reads not yet begun are left out. */
    void (*drop_layer)(struct ntx_weights *w, uint32_t layer);
    /* Replaces acquire and release for chunks of a dropped layer, in list order. One thread. */
    void (*skip)(struct ntx_weights *w, uint32_t chunk);
    /* Of n_rows rows of this pass, rows[i] were routed to experts[i] (ascending) of a layer; it decides what stays in
     * memory. scores [n_expert]: for each expert the mean over the rows of the router's score, normalised per row to
     * mean 0 and standard deviation 1; NULL: not known. Once, before any is wanted. One thread. NULL: not used. */
    void (*routed)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, const uint32_t *rows, uint32_t n,
                   uint32_t n_rows, const float *scores);
    /* Experts (chunks with `expert` set) to which rows of this pass are routed, ascending. Takes as many of the first
     * ones as there is room for and starts their reads; only then may their chunks be acquired, in any order. Returns
     * how many, or a negative errno. must: none are taken now, so wait for at least one. late[i]: in, rows of expert i
     * (255: or more; experts with more rows are read first); out, whether it must still be read. One thread, as for
     * `done`. Both may be NULL if every expert is always in memory. */
    int (*want)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n, bool must, uint8_t *late);
    /* All chunks of these experts, taken by `want`, are released: they may be evicted. */
    void (*done)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
    /* Experts that `layer`, which is not computed yet, will probably want, likeliest first. They may be read when
     * nothing else is to be read. Replaces the previous list. One thread. NULL: nothing is prefetched. */
    void (*prefetch_experts)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
    /* These experts (n = 0: all) of `layer`, the next with experts, are almost certainly wanted, as for the many rows
     * of a prompt. Absent ones are read when nothing else is, in ascending order, and may evict others as if they were
     * wanted. Replaces the previous list. more_experts: finished reads make room for further ones. One thread. NULL: no
     * prefetch. */
    void (*stage_experts)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
    void (*more_experts)(struct ntx_weights *w);
    /* Whether acquiring the chunk would not wait: a resident chunk that has come, or one of a taken expert. One thread,
     * and only beside `prefetch_experts` and `prefetch_groups`. */
    bool (*there)(struct ntx_weights *w, uint32_t chunk);
    /* Groups of a packed layer's neurons (chunks with `on_demand` set), ascending, that rows of this pass use: starts
     * the reads of absent ones. Only then may their chunks be acquired, by the same thread, and only these groups be
     * used. NULL: all are always in memory. One thread. */
    int (*want_groups)(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n);
    /* Groups that the next layer will probably use: absent ones may be read before it asks, after those that this layer
     * wants. One thread, after want_groups of this layer. NULL: nothing is prefetched. */
    int (*prefetch_groups)(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n);
    /* The acquired chunk's bytes stay at their address until the weights end, nobody writes them any more, and the
     * caller may re-arrange them. May become true later, never false again. Any compute thread. NULL: never. */
    bool (*stays)(struct ntx_weights *w, uint32_t chunk);
    /* The pass is over. After a failure its chunks that were neither released nor skipped are released. One thread. */
    void (*end)(struct ntx_weights *w);
    /* Like `entries`, but asynchronous and each entry once: one call asks, and its ids stay valid until all have come.
     * more: collects what has come and posts further reads, without waiting. there: waits until all have come; a
     * negative errno. One thread, which asks for no others in between. The end of a pass forgets them. All NULL: use
     * `entries`. */
    int (*request_entries)(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes,
                           const int32_t *ids, uint32_t n, void *out);
    int (*more_entries)(struct ntx_weights *w);
    int (*entries_there)(struct ntx_weights *w);
    /* Copies entries ids[0..n) of a lookup table (an embedding, n-grams), each of entry_bytes, from (file, offset) to
     * out, one after the other. One thread. */
    int (*entries)(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                   uint32_t n, void *out);
};

struct ntx_weights { /* implementations embed it as their first member */
    const struct ntx_weights_ops *ops;
    struct ntx_err error;
};

#endif
