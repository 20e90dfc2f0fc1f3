/* SPDX-License-Identifier: Apache-2.0 */
/* Chrome's trace format: slices ("X") on threads of processes. Process 1 is the drive, with as many lanes as
 * concurrent reads; process 2 the ring, a thread per slot; process 3 computing; process 4 the other machines, if
 * any, a thread each; process 5 the drafters. Slices of one thread never overlap. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/trace.h"
#include "common/util.h"

enum { DRIVE = 1, RING = 2, COMPUTE = 3, MACHINES = 4, PREDICT = 5 };
enum { T_PASSES = 1, T_LAYERS, T_WAITS, T_DECISIONS, T_COPIES, T_EXPERTS, T_SESSION };
#define MAX_LANES 256
#define MAX_NAMED 4096

struct out {
    FILE *f;
    uint64_t begin;
    bool comma;
    uint64_t lane_end[MAX_LANES];
    unsigned n_lanes;
    uint64_t slot_end[MAX_NAMED]; /* 0: never used */
    bool session[MAX_NAMED], trees[MAX_NAMED], rank[64], drafter[64];
};

static void put_separator(struct out *o)
{
    fputs(o->comma ? ",\n" : "\n", o->f);
    o->comma = true;
}

/* args: JSON members, or "" */
static void put_slice(struct out *o, int pid, unsigned tid, uint64_t t0, uint64_t t1, const char *name,
                      const char *args)
{
    put_separator(o);
    fprintf(o->f, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\",\"args\":{%s}}", pid,
            tid, (double)(t0 - o->begin) / 1e3, (double)(t1 > t0 ? t1 - t0 : 0) / 1e3, name, args);
}

static void put_name(struct out *o, const char *what, int pid, unsigned tid, const char *text)
{
    put_separator(o);
    fprintf(o->f, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", pid, tid, what,
            text);
}

static unsigned lane_for(struct out *o, uint64_t t0, uint64_t t1)
{
    unsigned i = 0;
    while (i < o->n_lanes && o->lane_end[i] > t0)
        i++;
    i = NTX_MIN(i, MAX_LANES - 1u);
    o->lane_end[i] = t1;
    o->n_lanes = NTX_MAX(o->n_lanes, i + 1);
    return i;
}

/* ntx-iod reads the clock just before it looks at the slot, so that it may seem to take the slot before its release. */
static void slot_slice(struct out *o, uint32_t slot, uint64_t t0, uint64_t t1, const char *text)
{
    if (slot >= MAX_NAMED)
        return;
    t0 = NTX_MAX(t0, o->slot_end[slot]);
    put_slice(o, RING, slot, t0, t1, text, "");
    o->slot_end[slot] = NTX_MAX(t1, t0);
}

static void read_event(struct out *o, const struct ntx_trace_record *r)
{
    char text[64], args[128];
    uint32_t chunk = (uint32_t)r->b, to = (uint32_t)(r->b >> 32);
    if (to == NTX_TR_TO_FRAME)
        snprintf(text, sizeof text, "rows on demand");
    else if (to == NTX_TR_TO_STAGE)
        snprintf(text, sizeof text, "projector");
    else
        snprintf(text, sizeof text, "%s %u", to == NTX_TR_TO_ARENA ? "to arena, chunk" : "chunk", chunk);
    snprintf(args, sizeof args, "\"bytes\":%" PRIu64 ",\"gb_s\":%.3f", r->c,
             r->t1 > r->t0 ? (double)r->c / (double)(r->t1 - r->t0) : 0);
    put_slice(o, DRIVE, lane_for(o, r->t0, r->t1), r->t0, r->t1, text, args);
    snprintf(text, sizeof text, "fill %u", chunk);
    if (to == NTX_TR_TO_SLOT)
        slot_slice(o, r->a, r->t0, r->t1, text);
}

static void slot_event(struct out *o, const struct ntx_trace_record *r)
{
    char text[64];
    if (r->c && r->c >= o->begin && r->c < r->t0)
        slot_slice(o, r->a, r->c, r->t0, "ready");
    snprintf(text, sizeof text, "use %" PRIu64, r->b);
    slot_slice(o, r->a, r->t0, r->t1, text);
}

/* Up to 64 experts. */
static void experts_event(struct out *o, const struct ntx_trace_record *r)
{
    char args[512];
    int n = snprintf(args, sizeof args, "\"layer\":%u,\"pass\":%" PRIu64 ",\"experts\":[", r->a & 0xffff, r->b);
    const char *comma = "";
    for (unsigned k = 0; k < 64; k++)
        if (r->c >> k & 1) {
            n += snprintf(args + n, sizeof args - (size_t)n, "%s%u", comma, (r->a >> 16) * 64 + k);
            comma = ",";
        }
    snprintf(args + n, sizeof args - (size_t)n, "]");
    put_slice(o, COMPUTE, T_EXPERTS, r->t0, r->t1, "experts", args);
}

static unsigned tree_track(struct out *o, uint64_t session)
{
    o->trees[session % MAX_NAMED] = true;
    return T_SESSION + MAX_NAMED + (unsigned)(session % MAX_NAMED);
}

/* The accepted path, by the numbers of its nodes in their tree. */
static void path_event(struct out *o, const struct ntx_trace_record *r)
{
    char args[640], text[64];
    unsigned held = 0;
    int n = snprintf(args, sizeof args, "\"nodes\":[");
    for (unsigned k = 1; k < 128; k++)
        if ((k < 64 ? r->b : r->c) >> k % 64 & 1)
            n += snprintf(args + n, sizeof args - (size_t)n, "%s%u", held++ ? "," : "", k);
    snprintf(args + n, sizeof args - (size_t)n, "]");
    snprintf(text, sizeof text, "computed: %u held", held);
    put_slice(o, COMPUTE, tree_track(o, r->a), r->t0, r->t1, text, args);
}

static void compute_event(struct out *o, const struct ntx_trace_record *r)
{
    static const char *const waits[NTX_WAITS] = {"chunk", "expert", "neurons", "row"};
    char text[64], args[96];
    switch ((enum ntx_trace_kind)r->kind) {
    case NTX_TR_LAYER:
        snprintf(text, sizeof text, "layer %u", r->a);
        snprintf(args, sizeof args, "\"pass\":%" PRIu64 ",\"rows\":%" PRIu64, r->b, r->c);
        put_slice(o, COMPUTE, T_LAYERS, r->t0, r->t1, text, args);
        return;
    case NTX_TR_PASS:
        snprintf(text, sizeof text, "pass %" PRIu64, r->b);
        snprintf(args, sizeof args, "\"rows\":%u", r->a);
        put_slice(o, COMPUTE, T_PASSES, r->t0, r->t1, text, args);
        return;
    case NTX_TR_STALL:
        snprintf(args, sizeof args, "\"for\":\"%s\"", r->a < NTX_WAITS ? waits[r->a] : "?");
        put_slice(o, COMPUTE, T_WAITS, r->t0, r->t1, "waits for a read", args);
        return;
    case NTX_TR_DECISION:
        snprintf(args, sizeof args, "\"pass\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"layers_left_out\":%u", r->b, r->c,
                 r->a);
        put_slice(o, COMPUTE, T_DECISIONS, r->t0, r->t1, "decision", args);
        return;
    case NTX_TR_TOKEN:
        snprintf(text, sizeof text, "token %" PRIu64, r->c);
        o->session[r->b % MAX_NAMED] = true;
        put_slice(o, COMPUTE, T_SESSION + (unsigned)(r->b % MAX_NAMED), r->t0, r->t1, text, "");
        return;
    case NTX_TR_COPY:
        snprintf(text, sizeof text, "chunk %" PRIu64 " to the GPU", r->b);
        snprintf(args, sizeof args, "\"bytes\":%" PRIu64, r->c);
        put_slice(o, COMPUTE, T_COPIES, r->t0, r->t1, text, args);
        return;
    case NTX_TR_DRAFT:
        snprintf(text, sizeof text, "%u drafts", r->a & 0xff);
        snprintf(args, sizeof args, "\"pass\":%" PRIu64 ",\"held\":%u,\"by_lookup\":%u,\"by_file\":%u", r->b,
                 r->a >> 8 & 0xff, r->a >> 16 & 0xff, r->a >> 24);
        put_slice(o, COMPUTE, tree_track(o, r->c), r->t0, r->t1, text, args);
        return;
    case NTX_TR_PATH: path_event(o, r); return;
    case NTX_TR_RANK:
        snprintf(text, sizeof text, "layer %" PRIu64, r->b);
        snprintf(args, sizeof args, "\"waits_us\":%.1f", (double)r->c / 1e3);
        o->rank[r->a % 64] = true;
        put_slice(o, MACHINES, r->a % 64, NTX_MAX(r->t0, o->begin), r->t1, text, args);
        return;
    case NTX_TR_EXPERTS: experts_event(o, r); return;
    case NTX_TR_DRAFTING:
        snprintf(text, sizeof text, "%u rows", r->a);
        snprintf(args, sizeof args, "\"session\":%" PRIu64, r->c);
        o->drafter[r->b % 64] = true;
        put_slice(o, PREDICT, (unsigned)(r->b % 64), r->t0, r->t1, text, args);
        return;
    default: return;
    }
}

static void put_event(struct out *o, const struct ntx_trace_event *e)
{
    if (e->r.kind == NTX_TR_READ)
        read_event(o, &e->r);
    else if (e->r.kind == NTX_TR_SLOT)
        slot_event(o, &e->r);
    else
        compute_event(o, &e->r);
}

static void put_names(struct out *o)
{
    static const char *const threads[] = {[T_PASSES] = "passes",       [T_LAYERS] = "layers", [T_WAITS] = "waits",
                                          [T_DECISIONS] = "decisions", [T_COPIES] = "copies", [T_EXPERTS] = "experts"};
    char text[64];
    put_name(o, "process_name", DRIVE, 0, "drive (ntx-iod)");
    put_name(o, "process_name", RING, 0, "ring");
    put_name(o, "process_name", COMPUTE, 0, "ntx-computed");
    for (unsigned i = 0; i < 64; i++)
        if (o->rank[i]) {
            snprintf(text, sizeof text, "machine of rank %u", i);
            put_name(o, "process_name", MACHINES, 0, "other machines: products");
            put_name(o, "thread_name", MACHINES, i, text);
        }
    for (unsigned i = 0; i < 64; i++)
        if (o->drafter[i]) {
            snprintf(text, sizeof text, "drafter %u", i + 1);
            put_name(o, "process_name", PREDICT, 0, "ntx-predictor");
            put_name(o, "thread_name", PREDICT, i, text);
        }
    for (unsigned i = 0; i < o->n_lanes; i++) {
        snprintf(text, sizeof text, "reads %u", i + 1);
        put_name(o, "thread_name", DRIVE, i, text);
    }
    for (unsigned i = T_PASSES; i <= T_EXPERTS; i++)
        put_name(o, "thread_name", COMPUTE, i, threads[i]);
    for (unsigned i = 0; i < MAX_NAMED; i++) {
        if (o->slot_end[i]) {
            snprintf(text, sizeof text, "slot %u", i);
            put_name(o, "thread_name", RING, i, text);
        }
        if (o->session[i]) {
            snprintf(text, sizeof text, "session %u: tokens", i);
            put_name(o, "thread_name", COMPUTE, T_SESSION + i, text);
        }
        if (o->trees[i]) {
            snprintf(text, sizeof text, "session %u: drafts", i);
            put_name(o, "thread_name", COMPUTE, T_SESSION + MAX_NAMED + i, text);
        }
    }
}

/* ---- duration of reading, of computing, and of both at once: a sweep over the edges of all intervals */

struct edge {
    uint64_t t;
    int read, pass, stall, draft; /* +1 begins, -1 ends */
};

static int compare_times(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return x->t < y->t ? -1 : x->t > y->t;
}

static int summarize(const struct ntx_trace_event *e, size_t n, struct ntx_trace_summary *s)
{
    struct edge *edges = malloc((2 * n + 1) * sizeof *edges);
    size_t k = 0;
    int reading = 0, passes = 0, stalls = 0, drafts = 0;
    if (!edges)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        int r = e[i].r.kind == NTX_TR_READ, p = e[i].r.kind == NTX_TR_PASS, w = e[i].r.kind == NTX_TR_STALL,
            d = e[i].r.kind == NTX_TR_DRAFTING;
        if (!r && !p && !w && !d)
            continue;
        edges[k++] = (struct edge){e[i].r.t0, r, p, w, d};
        edges[k++] = (struct edge){e[i].r.t1, -r, -p, -w, -d};
    }
    qsort(edges, k, sizeof *edges, compare_times);
    for (size_t i = 0; i + 1 < k; i++) {
        double dt = (double)(edges[i + 1].t - edges[i].t) / 1e9;
        reading += edges[i].read;
        passes += edges[i].pass;
        stalls += edges[i].stall;
        drafts += edges[i].draft;
        bool computing = passes > 0 && stalls <= 0;
        s->reading += reading > 0 ? dt : 0;
        s->computing += computing ? dt : 0;
        s->drafting += drafts > 0 ? dt : 0;
        s->hidden += drafts > 0 && passes > 0 ? dt : 0;
        s->both += reading > 0 && computing ? dt : 0;
    }
    s->wall = k ? (double)(edges[k - 1].t - edges[0].t) / 1e9 : 0;
    free(edges);
    return 0;
}

static int compare_begins(const void *a, const void *b)
{
    const struct ntx_trace_event *x = a, *y = b;
    return x->r.t0 < y->r.t0 ? -1 : x->r.t0 > y->r.t0;
}

void ntx_trace_sort(struct ntx_trace_event *e, size_t n)
{
    if (n)
        qsort(e, n, sizeof *e, compare_begins);
}

int ntx_trace_export(const char *path, const struct ntx_trace_event *e, size_t n, uint64_t missed,
                     struct ntx_trace_summary *s, struct ntx_err *err)
{
    struct ntx_trace_summary sum = {.records = n, .missed = missed};
    struct out *o = calloc(1, sizeof *o);
    int rc = o ? summarize(e, n, &sum) : -ENOMEM;
    if (rc) {
        free(o);
        return ntx_err_set(err, rc, "no memory");
    }
    o->f = fopen(path, "we");
    if (!o->f) {
        rc = ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
        free(o);
        return rc;
    }
    o->begin = n ? e[0].r.t0 : 0;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", o->f);
    for (size_t i = 0; i < n; i++)
        put_event(o, &e[i]);
    put_names(o);
    fprintf(o->f,
            "\n],\"otherData\":{\"wall_s\":%.6f,\"reading_s\":%.6f,\"computing_s\":%.6f,\"both_s\":%.6f,\"drafting_s\":"
            "%.6f,\"drafting_in_passes_s\":%.6f,\"records\":%" PRIu64 ",\"missed\":%" PRIu64 "}}\n",
            sum.wall, sum.reading, sum.computing, sum.both, sum.drafting, sum.hidden, sum.records, sum.missed);
    bool bad = ferror(o->f);
    if (fclose(o->f) || bad)
        rc = ntx_err_set(err, -EIO, "%s: cannot be written: %s", path, strerror(errno));
    free(o);
    if (!rc)
        *s = sum;
    return rc;
}
