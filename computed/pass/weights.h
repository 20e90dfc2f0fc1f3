/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h: how the forward pass gets at weights, wherever they live. Compute threads call; implementations:
 * stream.c (ring and host arena of the shared region) and, in tests, a file in memory. */
#ifndef NTX_COMPUTED_PASS_WEIGHTS_H
#define NTX_COMPUTED_PASS_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_weights;

struct ntx_weights_ops {
    /* A pass begins; chunk numbers are then acquired in list order (a skipped chunk is passed to `skip` instead). One
     * thread. */
    int (*begin)(struct ntx_weights *w, uint64_t pass);
    /* Waits until chunk's bytes are in memory. Any compute thread, several at once for the same chunk. On failure every
     * caller gets the same negative errno, and ntx_weights.error tells it in words. */
    int (*acquire)(struct ntx_weights *w, uint32_t chunk, const void **bytes);
    /* No thread uses the chunk any more in this pass: its slot may be overwritten. Called once per acquired chunk, by
     * one thread. */
    void (*release)(struct ntx_weights *w, uint32_t chunk);
    /* Layer `layer` is needed by no row of this pass (n_layers: the output, where no row wants logits): announce as
     * early as it is known, reads not yet begun are left out. */
    void (*drop_layer)(struct ntx_weights *w, uint32_t layer);
    /* Instead of acquire/release for chunks of a dropped layer, in list order. One thread. */
    void (*skip)(struct ntx_weights *w, uint32_t chunk);
    /* Of n_rows rows of this pass, rows[i] chose experts[i] (ascending) of a layer: what stays in memory follows from
     * that. scores [n_expert]: what the router said of each expert, the mean of rows, of each row as so many standard
     * deviations above the mean of its experts; NULL: not known. Once, before any is wanted. One thread. NULL: nothing
     * does. */
    void (*chosen)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, const uint32_t *rows, uint32_t n,
                   uint32_t n_rows, const float *scores);
    /* Experts (chunks with `expert` set) that rows of this pass chose in a layer, ascending: takes as many of the first
     * ones as there is room for and starts their reads; only then may their chunks be acquired, in any order. Returns
     * how many, or a negative errno. `must`: none are taken now, so at least one is waited for. late[i]: in, how many
     * rows chose expert i (255: or more): those of more rows are read first; out, whether it has yet to be read. One
     * thread, as the next. Both may be NULL where every expert is always there. */
    int (*want)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n, bool must, uint8_t *late);
    /* Experts taken by `want`, all of whose chunks are released: they may be replaced. */
    void (*done)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
    /* Experts that `layer`, which is not being computed yet, will probably want, the likeliest first: they may be read
     * when nothing else is to be read. Takes the place of any list before. One thread. NULL: nothing is prefetched. */
    void (*prefetch_experts)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
    /* These experts of `layer` (n = 0: all), the next that has any, are as good as sure to be wanted, as by the many
     * rows of a prompt: those that are not there are read when nothing else is, in the order of their numbers, and
     * replace others as if they were wanted. In place of a list before. more_experts: what has come makes room for
     * further ones. One thread. NULL: nothing is prefetched. */
    void (*stage_experts)(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n);
    void (*more_experts)(struct ntx_weights *w);
    /* The bytes of a chunk that always stays in memory, or of an expert that was taken, are there: to acquire it does
     * not wait. One thread; beside `prefetch_experts` and `prefetch_groups` only. */
    bool (*there)(struct ntx_weights *w, uint32_t chunk);
    /* Groups of a packed layer's neurons (chunks with `on_demand` set), ascending, that rows of this pass use: starts
     * the reads of those that are not in memory. Only then may their chunks be acquired, by the same thread, and only
     * these groups of them be used. NULL where all are always there. One thread. */
    int (*want_groups)(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n);
    /* Groups that the next layer will probably use: those that are not in memory may be read before it asks, after what
     * this one wants. One thread; after want_groups of this layer. NULL: nothing is prefetched. */
    int (*prefetch_groups)(struct ntx_weights *w, uint32_t layer, const uint32_t *groups, uint32_t n);
    /* The bytes of an acquired chunk stay at their place until the weights' end, nobody writes there any more, and they
     * are ours to re-arrange. May become true later, never false again. Any compute thread. NULL: none do. */
    bool (*stays)(struct ntx_weights *w, uint32_t chunk);
    /* The pass is over; after a failure all its chunks that were neither released nor skipped are let go. One thread.
     * */
    void (*end)(struct ntx_weights *w);
    /* Entries of a table as for `entries`, each asked for once, which come while other things are done: asked for by
     * one call, whose ids stay where they are until all have come. more: what has come makes room for further ones,
     * without waiting. there: all have come, or a negative errno. One thread, which asks for no others in between. What
     * was asked for is forgotten when the pass ends. All NULL: `entries` does as well. */
    int (*ask_entries)(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                       uint32_t n, void *out);
    int (*more_entries)(struct ntx_weights *w);
    int (*entries_there)(struct ntx_weights *w);
    /* Copies entries ids[0..n) of a table that is looked up (an embedding, n-grams), each of entry_bytes, at (file,
     * offset) into out, one after the other. One thread. */
    int (*entries)(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                   uint32_t n, void *out);
};

struct ntx_weights { /* implementations embed it as their first member */
    const struct ntx_weights_ops *ops;
    struct ntx_err error;
};

#endif
