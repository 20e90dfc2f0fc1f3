/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.h: data for monitors beside plain counters: histograms, the placement and skips of each layer, sessions,
 * other machines. It is part of the counters' file (shm/counters.h), which monitors map read-only. Only ntx-computed
 * writes it.
 *
 * A monitor may read while a value is written: each word is consistent, but two words of a row may differ in time. So
 * the values are for display, not for decisions. */
#ifndef NTX_SHM_MONITOR_H
#define NTX_SHM_MONITOR_H

#include <stdatomic.h>
#include <stdint.h>

#define NTX_MON_LAYERS   513 /* as in the drop map: the output counts as one */
#define NTX_MON_RANKS    16  /* machines that share a model */
#define NTX_MON_SESSIONS 64  /* shown at most; there may be more */
#define NTX_HIST_BOUNDS  18  /* upper bounds: 1, 2.5, 5, 10, 25, ... times the first; the last bucket has no bound */

/* X(name, first bound in millionths of the unit, unit, help) */
#define NTX_HISTOGRAMS(X)                                                                                              \
    X(ttft, 1000, "seconds", "time from a request to its first token")                                                 \
    X(inter_token, 100, "seconds", "time between two tokens of an answer")                                             \
    X(throughput, 10000, "tokens_per_second", "rate of an answer after its first token")

enum ntx_histogram {
#define X(name, first, unit, help) NTX_H_##name,
    NTX_HISTOGRAMS(X)
#undef X
        NTX_N_HISTOGRAMS
};

struct ntx_hist {
    _Atomic uint64_t bucket[NTX_HIST_BOUNDS + 1]; /* values up to this bound and above the previous one */
    _Atomic uint64_t sum;                         /* millionths of the unit */
};

struct ntx_hist_info {
    const char *name, *unit, *help;
    uint64_t first;
};
extern const struct ntx_hist_info ntx_hist_info[NTX_N_HISTOGRAMS];

uint64_t ntx_hist_bound(enum ntx_histogram h, unsigned i); /* millionths */
void ntx_hist_add(struct ntx_hist *h, enum ntx_histogram which, uint64_t value /* millionths */);
uint64_t ntx_hist_count(const struct ntx_hist *h);
/* Quantile q, interpolated between the buckets' bounds, in units; 0 when empty. */
double ntx_hist_quantile(const struct ntx_hist *h, enum ntx_histogram which, double q);

struct ntx_mon_layer { /* a layer of the loaded model; bytes of its weights by placement */
    _Atomic uint64_t device, host, storage;
    _Atomic uint64_t skipped;   /* passes that skipped it */
    _Atomic uint64_t predicted; /* rows for which the predictor chose to skip it */
};

/* Another machine that shares the model, as its last answer reported; totals since it got the model. */
struct ntx_mon_rank {
    char name[64];
    _Atomic uint64_t bytes_read;  /* from its drive */
    _Atomic uint64_t stall_ns;    /* waiting for its drive */
    _Atomic uint64_t multiply_ns; /* in matrix products, stall_ns included */
    _Atomic uint64_t message_ns;  /* rank 0 waited for its answers while it computed no product: the messages' cost */
    _Atomic uint64_t kv_bytes;    /* its memory for K and V */
    _Atomic uint32_t ring_ready, ring_slots;
};

enum ntx_mon_state { NTX_MON_NONE, NTX_MON_WAITING, NTX_MON_READING, NTX_MON_WRITING, NTX_MON_KEPT };

struct ntx_mon_session {
    _Atomic uint64_t id;
    _Atomic uint32_t state;                       /* enum ntx_mon_state; NONE: this row has no session */
    _Atomic uint32_t prompt, past, generated;     /* tokens: of the request, in the KV cache, generated so far */
    _Atomic uint64_t asked_ns, first_ns, last_ns; /* CLOCK_MONOTONIC; 0: not yet */
};

/* The service's state, and one row for each part of it that may be in trouble. */
#define NTX_MON_SERVICES(X)                                                                                            \
    X(EMPTY, "empty")                                                                                                  \
    X(LOADING, "loading") X(UNLOADING, "unloading") X(READY, "ready") X(DEGRADED, "degraded") X(STOPPING, "stopping")
#define NTX_MON_PARTS(X) X(IOD, "iod") X(PREDICTOR, "predictor") X(FILES, "files") X(LOAD, "load")
#define X(name, text)    NTX_MON_SERVICE_##name,
enum ntx_mon_service { NTX_MON_SERVICES(X) NTX_MON_N_SERVICES };
#undef X
#define X(name, text) NTX_MON_PART_##name,
enum ntx_mon_part { NTX_MON_PARTS(X) NTX_MON_N_PARTS };
#undef X
extern const char *const ntx_mon_service_name[NTX_MON_N_SERVICES];
extern const char *const ntx_mon_part_name[NTX_MON_N_PARTS];

enum ntx_mon_grade {
    NTX_MON_WELL,   /* no trouble */
    NTX_MON_SERVED, /* trouble, but requests are answered */
    NTX_MON_STOPPED /* requests are not answered */
};

struct ntx_mon_trouble {
    _Atomic uint32_t grade; /* enum ntx_mon_grade */
    char text[400];         /* the cause and the remedy; "": no trouble */
};

struct ntx_monitor {
    char model[64], arch[32], kernel[16]; /* of the loaded model; "": none is loaded */
    char loading[64];                     /* of the model that is being loaded */
    _Atomic uint64_t loading_ns;          /* since when, CLOCK_MONOTONIC; 0: none is */
    _Atomic uint32_t n_layers;            /* 0: no model is loaded; else the tables are valid */
    _Atomic uint32_t service;             /* enum ntx_mon_service */
    struct ntx_mon_trouble trouble[NTX_MON_N_PARTS];
    struct ntx_hist hist[NTX_N_HISTOGRAMS];
    struct ntx_mon_layer layer[NTX_MON_LAYERS];
    struct ntx_mon_session session[NTX_MON_SESSIONS];
    _Atomic uint32_t n_ranks; /* 0: one machine has the model; else rank[1 .. n_ranks) are the others */
    struct ntx_mon_rank rank[NTX_MON_RANKS];
};

#endif
