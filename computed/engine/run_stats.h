/* SPDX-License-Identifier: Apache-2.0 */
/* run_stats.h: data of a request's statistics: snapshots of the pipeline's counters, and its tokens (stats.h makes the
 * JSON). */
#ifndef NTX_COMPUTED_ENGINE_RUN_STATS_H
#define NTX_COMPUTED_ENGINE_RUN_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/engine/draft.h"
#include "shm/counters.h"

struct ntx_counts { /* a snapshot of the pipeline's counters */
    uint64_t passes, reads, bytes_read, busy_ns, stall_ns, pass_ns, expert_hits, expert_misses;
    uint64_t prefetch_wanted, prefetch_right, prefetch_hits, prefetch_bytes, prefetch_used_bytes;
    uint64_t ffn_neurons, ffn_active, ffn_groups, ffn_groups_used, ffn_between, ffn_predicted, ffn_predicted_wanted,
        ffn_predicted_right;
    uint64_t skip_early, skip_late, skip_wasted;
    uint64_t rank_bytes, rank_wait_ns;
};
/* bytes_read leaves out bytes that fill the host arena, and those of a projector. */
void ntx_counts_now(const struct ntx_counters *c, struct ntx_counts *out);

struct ntx_run_stats {
    uint64_t asked_ns, admitted_ns, first_ns, last_ns; /* CLOCK_MONOTONIC; 0: not yet */
    struct ntx_counts at_start, at_first, at_end;
    uint32_t prompt_tokens, cached_tokens, generated;    /* cached: prompt tokens that were not computed */
    uint32_t thinking;                                   /* of generated: in thoughts */
    uint32_t pictures, pictures_encoded, picture_tokens; /* of the prompt; these were encoded, the rest was known */
    uint64_t encode_ns;                                  /* time that this took */
    uint64_t draft_ns;                                   /* time spent waiting for drafters */
    uint32_t written_passes, draft_nodes,
        committed; /* passes in which it decoded; nodes that it proposed there; tokens accepted in them */
    uint32_t draft_hits[NTX_DRAFT_SOURCES], draft_file_hits; /* accepted nodes, by source; by any file */
    uint64_t seed, skipped_layers;
    bool predictor_lost;
    const char *finish;  /* "" when it does not apply */
    const char *options; /* JSON text, or NULL */
};

/* Events: the request was admitted, a token came, the request ended. */
void ntx_run_admitted(struct ntx_run_stats *r, const struct ntx_counters *c);
void ntx_run_token(struct ntx_run_stats *r, const struct ntx_counters *c);
void ntx_run_ended(struct ntx_run_stats *r, const struct ntx_counters *c);

#endif
