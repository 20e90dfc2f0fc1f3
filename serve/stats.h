/* stats.h: the numbers that people see, as JSON with the names of the interface: of a model, of one request, of the daemon. */
#ifndef NTX_SERVE_STATS_H
#define NTX_SERVE_STATS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "serve/draft.h"
#include "shm/counters.h"

struct ntx_loaded;

struct ntx_counts { /* a moment of the pipeline's counters */
    uint64_t passes, reads, bytes_read, busy_ns, stall_ns, pass_ns, expert_hits, expert_misses;
    uint64_t prefetch_wanted, prefetch_right, prefetch_hits, prefetch_bytes, prefetch_used_bytes;
    uint64_t ffn_neurons, ffn_active, ffn_groups, ffn_groups_used, ffn_between, ffn_predicted, ffn_predicted_wanted, ffn_predicted_right;
    uint64_t skip_early, skip_late, skip_wasted;
    uint64_t rank_bytes, rank_wait_ns;
};
void ntx_counts_now(const struct ntx_counters *c, struct ntx_counts *out); /* bytes_read without those that fill the host arena */

struct ntx_run_stats { /* of one request */
    uint64_t asked_ns, admitted_ns, first_ns, last_ns; /* CLOCK_MONOTONIC; 0: not yet */
    struct ntx_counts at_start, at_first, at_end;
    uint32_t prompt_tokens, cached_tokens, generated; /* cached: of the prompt's, not computed */
    uint64_t draft_ns; /* waited for a drafter */
    uint32_t written_passes, draft_nodes, committed; /* passes that it wrote in, nodes that it proposed there, tokens that were fed by them for good */
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

/* malloc'd JSON text; NULL: out of memory. */
char *ntx_stats_run(const struct ntx_run_stats *r, const struct ntx_loaded *l, const struct ntx_counters *c);
char *ntx_stats_info(const struct ntx_loaded *l); /* of a loaded model, for Loaded */
/* Adds the model's figures (name, placement, plan) to a JSON object. */
int ntx_stats_add_model(json_t *j, const struct ntx_loaded *l);

/* Proportional set size of processes plus hugetlb memory they hold, bytes; what cannot be read counts nothing. */
uint64_t ntx_stats_memory(const pid_t *pids, unsigned n);

#endif
