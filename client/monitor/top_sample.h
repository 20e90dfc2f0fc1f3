/* SPDX-License-Identifier: Apache-2.0 */
/* top_sample.h: the measurements of ntx-top: samples of the counters' file, and the rates between two of them.
 *
 * Figures that are counted at the end of a pass (tokens, stalls, RAM) give rates over the time since the last sample
 * in which a pass ended, so that a model that needs seconds per token does not flicker between zero and too much. */
#ifndef NTX_CLIENT_MONITOR_TOP_SAMPLE_H
#define NTX_CLIENT_MONITOR_TOP_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/counters.h"

#define NTX_TOP_HISTORY 240

struct ntx_top_sample {
    uint64_t t_ns;
    uint64_t v[NTX_N_COUNTERS];
    struct {
        uint64_t read, stall, multiply, message;
    } rank[NTX_MON_RANKS];
};

struct ntx_top_layer {
    double device, host, storage; /* shares of the layer's bytes */
    double skipped, predicted;    /* share of the passes since the sample before; of the decisions */
};

struct ntx_top_session {
    uint64_t id;
    enum ntx_mon_state state;
    uint32_t prompt, past, generated;
    double ttft_s, tok_s, age_s; /* 0: none yet */
};

struct ntx_top_rank {                           /* another machine that shares the model */
    const char *name;                           /* sizeof rank[0].name bytes at most */
    double drive_bps, stall, multiply, message; /* shares of the time */
    uint64_t kv_bytes;
    uint32_t ring_ready, ring_slots;
};

struct ntx_top_process {
    const char *name;
    uint64_t pid, memory; /* bytes: proportional, else resident */
    double cpu;           /* share of a core */
};

struct ntx_top { /* all inputs of the views */
    const struct ntx_counters *c;
    struct ntx_top_sample a, b, pass; /* the sample before, the present one, the last one in which a pass had ended */
    uint64_t layer_skipped[NTX_MON_LAYERS], layer_predicted[NTX_MON_LAYERS], layer_passes,
        layer_decisions; /* at the sample before */

    double uptime_s, drive_bps, drive_ceiling_bps, ram_bps, ram_best_bps, ring_bps;
    double tok_s, prompt_s, pass_s, stall, decisions_s;
    double draft_passes, draft_nodes,
        draft_hits; /* with --draft, recently: passes that wrote, drafted tokens, accepted ones */
    double draft_lookup, draft_file,
        draft_wait; /* drafted by prompt lookup, by a file; share of the time spent waiting for a drafter */
    const char *limit;
    char limit_text[96];
    bool emulated;
    enum ntx_mon_service service;
    struct {
        enum ntx_mon_grade grade;
        char text[400];
    } trouble[NTX_MON_N_PARTS];
    struct ntx_top_process process[3];
    double rank_bps, rank_wait; /* bytes between machines; share of the time in which this machine waits for others */
    unsigned n_layers, n_sessions, n_ranks;  /* n_ranks: machines, including this one; 0: only one */
    struct ntx_top_rank rank[NTX_MON_RANKS]; /* [1 .. n_ranks) */
    struct ntx_top_layer layer[NTX_MON_LAYERS];
    struct ntx_top_session session[NTX_MON_SESSIONS];

    unsigned n_history; /* newest last */
    float drive_history[NTX_TOP_HISTORY], tok_history[NTX_TOP_HISTORY],
        stall_history[NTX_TOP_HISTORY]; /* GB/s, tok/s, share */
};

void ntx_top_begin(struct ntx_top *t, const struct ntx_counters *c);
void ntx_top_step(struct ntx_top *t); /* takes a sample and computes all figures */

static inline uint64_t ntx_top_now(const struct ntx_top *t, enum ntx_counter i) { return t->b.v[i]; }

#endif
