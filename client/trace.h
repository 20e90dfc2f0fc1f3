/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: records events of the daemons (shm/trace.h) in the background, and writes them as a Chrome trace (JSON
 * Array Format) for Perfetto and chrome://tracing: reads in lanes, ring slots, layers, waits, passes, decisions; for
 * each session its tokens as frames and its draft trees, each with the accepted path; and the drafters' work.
 *
 *   daemons -> rings in the counters' file -> [thread: every 10 ms] -> memory -> ntx_tracer_write */
#ifndef NTX_CLIENT_TRACE_H
#define NTX_CLIENT_TRACE_H

#include <stdint.h>

#include "common/err.h"
#include "shm/counters.h"

struct ntx_tracer;

struct ntx_trace_summary {                 /* seconds, over the whole trace */
    double wall, reading, computing, both; /* both: at the same time */
    double drafting, hidden;               /* hidden: while a pass ran */
    uint64_t records, missed;
};

/* Starts recording; dir is the daemons' runtime directory. */
int ntx_tracer_start(const char *dir, struct ntx_tracer **out, struct ntx_err *err);
/* Ends the recording and writes the file. */
int ntx_tracer_write(struct ntx_tracer *t, const char *path, struct ntx_trace_summary *s, struct ntx_err *err);
void ntx_tracer_free(struct ntx_tracer *t); /* NULL does nothing */

/* ---- trace_json.c: records of the daemons; ntx_trace_export needs them sorted by t0 */
struct ntx_trace_event {
    struct ntx_trace_record r;
    unsigned who;
};
void ntx_trace_sort(struct ntx_trace_event *e, size_t n);
int ntx_trace_export(const char *path, const struct ntx_trace_event *e, size_t n, uint64_t missed,
                     struct ntx_trace_summary *s, struct ntx_err *err);

#endif
