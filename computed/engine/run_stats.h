/* SPDX-License-Identifier: Apache-2.0 */
/* run_stats.h: what a request's statistics are made of: moments of the pipeline's counters, and what became of its
 * tokens (stats.h makes the JSON). */
#ifndef NTX_COMPUTED_ENGINE_RUN_STATS_H
#define NTX_COMPUTED_ENGINE_RUN_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/engine/draft.h"
#include "shm/counters.h"

struct ntx_counts { /* a moment of the pipeline's counters */
    uint64_t passes, reads, bytes_read, busy_ns, stall_ns, pass_ns, expert_hits, expert_misses;
    uint64_t prefetch_wanted, prefetch_right, prefetch_hits, prefetch_bytes, prefetch_used_bytes;
    uint64_t ffn_neurons, ffn_active, ffn_groups, ffn_groups_used, ffn_between, ffn_predicted, ffn_predicted_wanted,
        ffn_predicted_right;
    uint64_t skip_early, skip_late, skip_wasted;
    uint64_t rank_bytes, rank_wait_ns;
};
void ntx_counts_now(const struct ntx_counters *c,
                    struct ntx_counts *out); /* bytes_read without those that fill the host arena */

struct ntx_run_stats {                                 /* of one request */
    uint64_t asked_ns, admitted_ns, first_ns, last_ns; /* CLOCK_MONOTONIC; 0: not yet */
    struct ntx_counts at_start, at_first, at_end;
    uint32_t prompt_tokens, cached_tokens, generated; /* cached: of the prompt's, not computed */
    uint64_t draft_ns;                                /* waited for a drafter */
    uint32_t written_passes, draft_nodes,
        committed; /* passes that it wrote in, nodes that it proposed there, tokens that were fed by them for good */
    uint32_t draft_hits[NTX_DRAFT_SOURCES], draft_file_hits; /* nodes that held, by who guessed them; by any file */
    uint64_t seed, skipped_layers;
    bool predictor_lost;
    const char *finish;  /* "" when it does not apply */
    const char *options; /* JSON text, or NULL */
};

/* Marks: the request was admitted, a token came, the request ended. */
void ntx_run_admitted(struct ntx_run_stats *r, const struct ntx_counters *c);
void ntx_run_token(struct ntx_run_stats *r, const struct ntx_counters *c);
void ntx_run_ended(struct ntx_run_stats *r, const struct ntx_counters *c);

#endif
