/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: records events of the daemons (shm/trace.h) in the background, and writes them as a Chrome trace (JSON Array
 * Format), which Perfetto and chrome://tracing show: reads in lanes, each ring slot, layers, waits, passes, decisions,
 * and of each session its tokens as frames, and its trees of guesses, each with the path that held; and when drafters
 * worked.
 *
 *   daemons -> rings in the counters' file -> [thread: every 10 ms] -> memory -> ntx_tracer_write */
#ifndef NTX_CLIENT_TRACE_H
#define NTX_CLIENT_TRACE_H

#include <stdint.h>

#include "common/err.h"
#include "shm/counters.h"

struct ntx_tracer;

struct ntx_trace_summary {                 /* seconds, of the whole trace */
    double wall, reading, computing, both; /* both: at the same time */
    double drafting, hidden;               /* hidden: while a pass ran */
    uint64_t records, missed;
};

/* From now on; dir is the daemons' runtime directory. */
int ntx_tracer_start(const char *dir, struct ntx_tracer **out, struct ntx_err *err);
/* Ends the recording and writes the file. */
int ntx_tracer_write(struct ntx_tracer *t, const char *path, struct ntx_trace_summary *s, struct ntx_err *err);
void ntx_tracer_free(struct ntx_tracer *t); /* NULL is fine */

/* ---- trace_json.c: records of the daemons; export wants them sorted by t0 */
struct ntx_trace_event {
    struct ntx_trace_record r;
    unsigned who;
};
void ntx_trace_sort(struct ntx_trace_event *e, size_t n);
int ntx_trace_export(const char *path, const struct ntx_trace_event *e, size_t n, uint64_t missed,
                     struct ntx_trace_summary *s, struct ntx_err *err);

#endif
