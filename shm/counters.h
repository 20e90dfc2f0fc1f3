/* SPDX-License-Identifier: Apache-2.0 */
/* counters.h: every counter of the pipeline, declared once. The statistics, ntx-top, the Prometheus text and the docs
 * are generated from this table. The counters live in a small file in the runtime directory ("counters", mode 0640),
 * which monitors map read-only. The file holds no hidden state, no weight and no text. Each counter has one writer,
 * named by its prefix. Values only grow, except gauges ("g"). */
#ifndef NTX_SHM_COUNTERS_H
#define NTX_SHM_COUNTERS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/util.h"
#include "shm/monitor.h"
#include "shm/trace.h"

/* X(name, kind c|g, unit, help) */
#define NTX_COUNTERS(X)                                                                                                \
    X(iod_bytes_read, c, "bytes", "bytes read from drives")                                                            \
    X(iod_bytes_stream, c, "bytes", "bytes read from drives for the scheduled stream")                                 \
    X(iod_bytes_host, c, "bytes", "bytes read from drives for the host arena: weights that stay in RAM")               \
    X(iod_bytes_demand, c, "bytes",                                                                                    \
      "bytes read from drives on demand: experts, groups of neurons, entries of the embedding")                        \
    X(iod_bytes_early, c, "bytes", "bytes of prefetch reads: no layer waited for them when they came")                 \
    X(iod_bytes_projector, c, "bytes", "bytes of a projector (--mmproj) that were read from drives for pictures")      \
    X(iod_bytes_fallback, c, "bytes", "bytes that went through the page cache, since O_DIRECT was refused")            \
    X(iod_reads, c, "reads", "read requests completed")                                                                \
    X(iod_busy_ns, c, "ns", "time in which ntx-iod had at least one read in flight")                                   \
    X(iod_best_bps, g, "bytes/s",                                                                                      \
      "best read rate over 32 MiB so far, counted while reads are in flight: the drive's observed ceiling")            \
    X(iod_inflight, g, "bytes", "bytes that ntx-iod has in flight now")                                                \
    X(iod_retries, c, "reads", "reads tried again after an error or a short read")                                     \
    X(iod_errors, c, "reads", "reads that failed for good")                                                            \
    X(iod_skipped_chunks, c, "chunks", "chunks of weights left out before they were read")                             \
    X(iod_wakeups, c, "wakes", "times that ntx-iod's event loop woke up")                                              \
    X(iod_cpu_ns, c, "ns", "CPU time of ntx-iod")                                                                      \
    X(iod_starts, c, "starts", "processes of ntx-iod attached so far (written by ntx-computed)")                       \
    X(pred_probes, c, "probes", "hidden states that ntx-predictor has answered")                                       \
    X(pred_draft_rows, c, "rows", "rows that the drafter of --draft FILE has computed in ntx-predictor")               \
    X(pred_cpu_ns, c, "ns", "CPU time of ntx-predictor")                                                               \
    X(pred_starts, c, "starts", "processes of ntx-predictor attached so far (written by ntx-computed)")                \
    X(comp_passes, c, "passes", "forward passes finished")                                                             \
    X(comp_rows, c, "rows", "rows of passes computed: a token of a session each")                                      \
    X(comp_rows_unasked, c, "rows",                                                                                    \
      "rows of passes that stored K, V and state in the last layer and stopped there, since no logits were wanted")    \
    X(comp_prompt_tokens, c, "tokens", "prompt tokens computed")                                                       \
    X(comp_cached_tokens, c, "tokens", "prompt tokens that were not computed: their KV was reused (prefix cache)")     \
    X(comp_pictures, c, "pictures", "pictures of prompts that became rows of the text")                                \
    X(comp_pictures_encoded, c, "pictures", "pictures among these that were encoded; the rest was known")              \
    X(comp_picture_rows, c, "rows", "rows of the text that pictures became: tokens of prompts")                        \
    X(comp_picture_ns, c, "ns", "time of decoding and encoding pictures, beside passes")                               \
    X(comp_tokens, c, "tokens", "tokens generated")                                                                    \
    X(comp_pass_ns, c, "ns", "time inside forward passes")                                                             \
    X(comp_stall_ns, c, "ns", "time inside forward passes spent waiting for reads")                                    \
    X(comp_decision_wait_ns, c, "ns", "time inside forward passes spent waiting for the predictor")                    \
    X(comp_expert_hits, c, "experts", "experts wanted by a layer that were in the cache or being read")                \
    X(comp_expert_misses, c, "experts", "experts wanted by a layer that had to be read")                               \
    X(comp_prefetch_wanted, c, "experts", "experts wanted by a layer for which a prediction had been made")            \
    X(comp_prefetch_right, c, "experts", "experts wanted by a layer that were predicted for it")                       \
    X(comp_prefetch_hits, c, "experts",                                                                                \
      "experts wanted by a layer that were in the cache, or being read, because of a prediction")                      \
    X(comp_prefetch_bytes, c, "bytes", "bytes of experts whose read was started by a prediction")                      \
    X(comp_prefetch_used_bytes, c, "bytes",                                                                            \
      "bytes of experts that were read on a prediction and then used; the rest of the predicted bytes is waste")       \
    X(comp_preload_bytes, c, "bytes",                                                                                  \
      "bytes of experts that were read at the start, since earlier loads used them most")                              \
    X(comp_frames, g, "frames", "places for experts in the cache")                                                     \
    X(comp_ffn_neurons, c, "neurons", "neurons of packed layers (--ffn-sparse), counted for each row")                 \
    X(comp_ffn_active, c, "neurons", "neurons of packed layers (--ffn-sparse) that were used, counted for each row")   \
    X(comp_ffn_groups, c, "groups", "groups of neurons of packed layers, counted for each pass")                       \
    X(comp_ffn_groups_used, c, "groups", "groups of neurons of packed layers that at least one row of a pass used")    \
    X(comp_ffn_predicted, c, "groups", "groups of neurons on demand that were predicted to be used")                   \
    X(comp_ffn_predicted_wanted, c, "groups",                                                                          \
      "groups of neurons on demand that were used by layers with a prediction")                                        \
    X(comp_ffn_predicted_right, c, "groups", "groups of neurons on demand that were predicted and then used")          \
    X(comp_ffn_between, c, "bytes", "bytes of unwanted groups of neurons, read because they lie between wanted ones")  \
    X(comp_draft_nodes, c, "tokens", "draft tokens (--draft) that were verified in passes")                            \
    X(comp_draft_hits, c, "tokens", "draft tokens that were accepted")                                                 \
    X(comp_draft_hits_lookup, c, "tokens",                                                                             \
      "accepted draft tokens that prompt lookup (--draft lookup) proposed; those that a drafter file proposed too "    \
      "count in both")                                                                                                 \
    X(comp_draft_hits_file, c, "tokens",                                                                               \
      "accepted draft tokens that a drafter file (--draft FILE), the model's own block (nextn) or its layers in "      \
      "memory (self) proposed; those that lookup proposed too count in both")                                          \
    X(comp_draft_passes, c, "passes",                                                                                  \
      "passes of generating sessions while --draft is on, with or without draft tokens")                               \
    X(comp_draft_wait_ns, c, "ns", "time between passes spent waiting for the drafter of --draft FILE")                \
    X(comp_rank_bytes, c, "bytes", "bytes exchanged between the machines that share a model, as rank 0 counts them")   \
    X(comp_rank_wait_ns, c, "ns",                                                                                      \
      "time inside forward passes that rank 0 waited for other machines or for its messages to leave")                 \
    X(comp_decisions, c, "decisions", "decisions received from ntx-predictor")                                         \
    X(comp_decisions_late, c, "decisions", "decisions received from ntx-predictor too late for their pass or row")     \
    X(comp_skip_early, c, "chunks", "chunks of skipped layers whose read was avoided")                                 \
    X(comp_skip_late, c, "chunks", "chunks of skipped layers whose read had already begun")                            \
    X(comp_skip_wasted, c, "bytes", "bytes of skipped layers whose read had already begun")                            \
    X(comp_quarantined_slots, g, "slots",                                                                              \
      "slots of the ring kept out of use until a dead process's reads are finished")                                   \
    X(comp_pass_layer, g, "layers",                                                                                    \
      "layer that the current pass has reached, from 1, the output last; 0 between passes")                            \
    X(comp_sessions, g, "sessions", "sessions that are generating")                                                    \
    X(comp_turns_waiting, g, "requests", "requests of ntx-gateway that wait for another model")                        \
    X(comp_queued, g, "sessions", "sessions that wait for memory")                                                     \
    X(comp_kv_blocks_used, g, "blocks", "blocks of KV held by sessions")                                               \
    X(comp_kv_blocks_kept, g, "blocks", "blocks of KV kept for prefix reuse: in use, or free to be taken")             \
    X(comp_kv_blocks, g, "blocks", "blocks of KV in all")                                                              \
    X(comp_ring_ready, g, "slots", "slots of the ring that are read and wait to be used")                              \
    X(comp_ring_slots, g, "slots", "slots of the ring in all")                                                         \
    X(comp_bytes_model, g, "bytes", "bytes of weights of the loaded model")                                            \
    X(comp_bytes_host, g, "bytes", "bytes of weights of the loaded model that are in RAM")                             \
    X(comp_bytes_device, g, "bytes", "bytes of weights of the loaded model that are in GPU memory")                    \
    X(comp_bytes_unlocked, g, "bytes",                                                                                 \
      "bytes of host memory for copies to the GPU that could not be locked, which makes the copies slow")              \
    X(comp_bytes_storage, g, "bytes", "bytes of weights of the loaded model that are read for every pass")             \
    X(comp_cpu_ns, c, "ns", "CPU time of ntx-computed")                                                                \
    X(comp_ceiling_bps, g, "bytes/s", "the emulated drive's rate (--link), 0: no emulation")                           \
    X(comp_pid, g, "pid", "process of ntx-computed")                                                                   \
    X(iod_pid, g, "pid", "process of ntx-iod; computed writes 0 when it is gone")                                      \
    X(pred_pid, g, "pid", "process of ntx-predictor; computed writes 0 when it is gone")

enum ntx_counter {
#define X(name, kind, unit, help) NTX_C_##name,
    NTX_COUNTERS(X)
#undef X
        NTX_N_COUNTERS
};

struct ntx_counters { /* the file */
    uint64_t magic;
    uint32_t version, n;
    uint64_t started_ns; /* CLOCK_MONOTONIC when computed made it */
    _Atomic uint64_t v[NTX_N_COUNTERS];
    struct ntx_monitor mon;               /* shm/monitor.h; computed */
    struct ntx_trace trace[NTX_N_TRACES]; /* shm/trace.h; the daemon of that index */
};

struct ntx_counter_info {
    const char *name, *unit, *help;
    char kind; /* 'c' or 'g' */
};
extern const struct ntx_counter_info ntx_counter_info[NTX_N_COUNTERS];

static inline void ntx_count(struct ntx_counters *c, enum ntx_counter i, uint64_t add)
{
    if (c)
        atomic_fetch_add_explicit(&c->v[i], add, memory_order_relaxed);
}
static inline void ntx_gauge(struct ntx_counters *c, enum ntx_counter i, uint64_t value)
{
    if (c)
        atomic_store_explicit(&c->v[i], value, memory_order_relaxed);
}
static inline uint64_t ntx_counter_get(const struct ntx_counters *c, enum ntx_counter i)
{
    return c ? atomic_load_explicit(&((struct ntx_counters *)(uintptr_t)c)->v[i], memory_order_relaxed) : 0;
}

static inline void ntx_observe(struct ntx_counters *c, enum ntx_histogram h, uint64_t millionths)
{
    if (c)
        ntx_hist_add(&c->mon.hist[h], h, millionths);
}
static inline void ntx_traced(struct ntx_counters *c, unsigned who, enum ntx_trace_kind kind, uint64_t t0, uint64_t t1,
                              uint32_t a, uint64_t b, uint64_t x)
{
    if (c && !ntx_trace_is_off(&c->trace[who]))
        ntx_trace_put(&c->trace[who], kind, t0, t1, a, b, x);
}
/* The time, or 0 where only the trace would use it and tracing is off. */
static inline uint64_t ntx_traced_now(struct ntx_counters *c, unsigned who)
{
    return c && !ntx_trace_is_off(&c->trace[who]) ? ntx_now_ns() : 0;
}

/* create: ntx-computed makes DIR/counters (mode 0640) and gets its descriptor, which it sends to the workers
 * (SCM_RIGHTS). open: monitors map the file read-only. map: workers map it from the descriptor, which the caller
 * keeps. */
int ntx_counters_create(const char *dir, struct ntx_counters **out, int *fd, struct ntx_err *err);
int ntx_counters_open(const char *dir, const struct ntx_counters **out, struct ntx_err *err);
int ntx_counters_map(int fd, struct ntx_counters **out, struct ntx_err *err);
void ntx_counters_close(struct ntx_counters *c);

#endif
