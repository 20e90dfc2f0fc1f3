/* SPDX-License-Identifier: Apache-2.0 */
/* tape.c: the launches of a pass of a few rows, kept from pass to pass. Launches that repeat the last such pass run as
 * CUDA graphs.
 *
 *   a launch     it equals that of the pass before: it is put off
 *                it differs: the launches put off are issued, and so are this one and the rest of the part
 *   a part ends  all launches were equal: the part's graph is launched. It is recorded when the part has come twice
 *                in a row. A part has at most NTX__TAPE_PART launches, so that the device begins early, and it ends
 *                before every command that is not a launch (ntx__queue)
 *
 * A graph holds the arguments with which it was recorded. A pass with other arguments (attention over one more split,
 * another session's adapters) is issued launch by launch. Arguments do not depend on positions, sessions or top-k
 * lists: those are in device memory. If the device cannot record graphs, all passes are issued launch by launch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/gpu/device_impl.h"

#define KERNELS(X)                                                                                                     \
    X(PRODUCT, product)                                                                                                \
    X(NORM, norm)                                                                                                      \
    X(QUANTIZE, quantize)                                                                                              \
    X(ROTATE, rotate)                                                                                                  \
    X(ATTEND, attend)                                                                                                  \
    X(PREFILL, prefill)                                                                                                \
    X(WIDEN, widen)                                                                                                    \
    X(NARROW, narrow)                                                                                                  \
    X(SCALE, scale)                                                                                                    \
    X(GATHER, gather)                                                                                                  \
    X(COMBINE, combine)                                                                                                \
    X(BEST, best)                                                                                                      \
    X(HIDDEN, hidden)                                                                                                  \
    X(COLUMNS, columns)                                                                                                \
    X(MOVE, move)                                                                                                      \
    X(STEP, step)                                                                                                      \
    X(CONV, recur)                                                                                                     \
    X(DELTA, recur)                                                                                                    \
    X(INDEX, index) X(INDEX_TOPK, index_topk) X(POOL, pool) X(UNPOOLED, pool) X(ROUTE, route) X(SORT, sort)
#define FILL NTX_GPU_N_KERNELS /* not a kernel: fills with zeros */

struct fill {
    void *dev;
    uint64_t bytes;
};

#define X(name, type) struct ntx_gpu_##type name;
union args {
    KERNELS(X)
    struct fill fill;
};
#undef X
#define X(name, type) [NTX_GPU_##name] = sizeof(struct ntx_gpu_##type),
static const uint16_t bytes_of[FILL + 1] = {KERNELS(X)[FILL] = sizeof(struct fill)};
#undef X

/* Padding between members is set to zero, so that equal arguments compare equal. */
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#if __has_builtin(__builtin_clear_padding)
#define CLEAR_PADDING(p) __builtin_clear_padding(p)
#else
#define CLEAR_PADDING(p) (void)(p) /* equal launches may compare unequal: slower, not wrong */
#endif

#define X(name, type)                                                                                                  \
    case NTX_GPU_##name:                                                                                               \
        memcpy(&to->name, args, sizeof to->name);                                                                      \
        CLEAR_PADDING(&to->name);                                                                                      \
        break;
static void take_args(union args *to, uint32_t what, const void *args)
{
    switch (what) {
        KERNELS(X)
    default: memcpy(&to->fill, args, sizeof to->fill);
    }
}
#undef X

struct ntx__tape_part {
    struct ntx_gpu_graph *graph;
    bool fresh; /* the graph holds these launches */
    uint32_t n;
    struct {
        uint32_t what; /* enum ntx_gpu_kernel, or FILL */
        union args args;
    } launch[NTX__TAPE_PART];
};

static int issue_one(struct ntx_device *d, uint32_t what, const void *args)
{
    const struct fill *f = args;
    return what == FILL ? d->ops->fill(d->compute, f->dev, 0, f->bytes)
                        : d->ops->launch(d->compute, (enum ntx_gpu_kernel)what, args);
}

static int issue_launches(struct ntx_device *d, const struct ntx__tape_part *p, uint32_t from, uint32_t to)
{
    int rc = 0;
    for (uint32_t i = from; i < to && !rc; i++)
        rc = issue_one(d, p->launch[i].what, &p->launch[i].args);
    return rc;
}

/* Notes why nothing is recorded (ntx_device_graphs). */
static void refuse_graphs(struct ntx_device *d)
{
    d->tapes.refused = true;
    snprintf(d->tapes.why, sizeof d->tapes.why, "%s", d->ops->error(d->c.gpu));
}

/* Returns false if recording is not possible; nothing is queued then. */
static bool record_graph(struct ntx_device *d, struct ntx__tape_part *p)
{
    int rc = d->ops->capture(d->compute);
    if (!rc) {
        rc = issue_launches(d, p, 0, p->n);
        const int end = d->ops->captured(d->compute, &p->graph);
        rc = rc ? rc : end;
    }
    if (rc)
        refuse_graphs(d);
    p->fresh = !rc;
    return !rc;
}

static int launch_same(struct ntx_device *d, struct ntx__tape_part *p)
{
    if (p->n >= NTX__TAPE_LEAST && !d->tapes.refused && (p->fresh || record_graph(d, p)))
        return d->ops->graph_launch(d->compute, p->graph);
    return issue_launches(d, p, 0, p->n);
}

/* The current part of the tape; NULL: no memory, or too many parts. */
static struct ntx__tape_part *part_now(struct ntx_device *d)
{
    struct ntx__tape *t = d->tapes.now;
    if (d->tapes.part == NTX__TAPE_PARTS)
        return NULL;
    if (!t->part[d->tapes.part])
        t->part[d->tapes.part] = calloc(1, sizeof *t->part[0]);
    return t->part[d->tapes.part];
}

/* Ends the part: launches its graph, or issues the launches that were put off. */
static int end_part(struct ntx_device *d)
{
    struct ntx__tapes *t = &d->tapes;
    struct ntx__tape_part *p = t->at ? t->now->part[t->part] : NULL;
    int rc = 0;
    if (!p)
        return 0;
    p->fresh &= t->same && t->at == p->n;
    if (t->same && t->at == p->n)
        rc = launch_same(d, p);
    else if (t->same)
        rc = issue_launches(d, p, 0, t->at);
    p->n = t->at;
    t->part++;
    t->at = 0;
    t->same = true;
    return rc;
}

static int put_on_tape(struct ntx_device *d, uint32_t what, const void *args)
{
    struct ntx__tapes *t = &d->tapes;
    int rc = t->at == NTX__TAPE_PART ? end_part(d) : t->rc;
    struct ntx__tape_part *p = part_now(d);
    union args a;
    if (rc || !p) {
        t->on = false; /* no launch is put off at this point */
        return rc ? rc : issue_one(d, what, args);
    }
    take_args(&a, what, args);
    if (t->same && t->at < p->n && p->launch[t->at].what == what &&
        !memcmp(&p->launch[t->at].args, &a, bytes_of[what])) {
        t->at++;
        return 0;
    }
    rc = t->same ? issue_launches(d, p, 0, t->at) : 0;
    t->same = p->fresh = false;
    p->launch[t->at].what = what;
    memcpy(&p->launch[t->at].args, &a, bytes_of[what]);
    t->at++;
    return rc ? rc : issue_launches(d, p, t->at - 1, t->at);
}

int ntx__device_launch(struct ntx_device *d, enum ntx_gpu_kernel k, const void *args)
{
    return d->tapes.on ? put_on_tape(d, k, args) : d->ops->launch(d->compute, k, args);
}

int ntx__device_zero(struct ntx_device *d, void *dev, uint64_t bytes)
{
    const struct fill f = {dev, bytes};
    return d->tapes.on ? put_on_tape(d, FILL, &f) : d->ops->fill(d->compute, dev, 0, bytes);
}

struct ntx_gpu_stream *ntx__queue(struct ntx_device *d)
{
    int rc = d->tapes.on ? end_part(d) : 0;
    d->tapes.rc = d->tapes.rc ? d->tapes.rc : rc;
    return d->compute;
}

void ntx__device_tape_begin(struct ntx_device *d)
{
    const uint32_t n = d->f->b->n_rows;
    d->tapes.on = d->tapes.possible && !d->tapes.refused && n <= NTX__TAPE_ROWS && d->all.n_exact == n;
    if (d->tapes.on)
        d->tapes.now = &d->tapes.of[n - 1];
    d->tapes.part = d->tapes.at = 0;
    d->tapes.same = true;
    d->tapes.rc = 0;
}

int ntx__device_tape_end(struct ntx_device *d, int rc)
{
    int late = d->tapes.on && !rc ? end_part(d) : 0;
    d->tapes.on = false;
    if (rc)
        return rc;
    return d->tapes.rc ? d->tapes.rc : late;
}

/* Tries to record a graph at load, so that ntx_device_graphs can report it. Graphs are used only if the device holds
 * the whole model: otherwise the copies take the time. */
int ntx__device_tape_try(struct ntx_device *d)
{
    struct ntx_gpu_graph *g = NULL;
    bool whole = true;
    for (uint32_t i = 0; i < d->c.chunks->n; i++)
        whole &= d->at[i] != NULL;
    d->tapes.possible = whole && !d->c.no_graphs;
    if (!d->tapes.possible)
        return 0;
    int rc = d->ops->capture(d->compute);
    if (!rc) {
        rc = d->ops->fill(d->compute, d->m.pos, 0, sizeof *d->m.pos);
        const int end = d->ops->captured(d->compute, &g);
        rc = rc ? rc : end;
    }
    if (rc)
        refuse_graphs(d);
    else
        rc = d->ops->graph_launch(d->compute, g);
    d->ops->graph_free(g);
    return d->tapes.refused ? 0 : rc;
}

void ntx__device_tape_free(struct ntx_device *d)
{
    for (uint32_t n = 0; n < NTX__TAPE_ROWS; n++)
        for (uint32_t i = 0; i < NTX__TAPE_PARTS; i++)
            if (d->tapes.of[n].part[i]) {
                d->ops->graph_free(d->tapes.of[n].part[i]->graph);
                free(d->tapes.of[n].part[i]);
            }
}

const char *ntx_device_graphs(const struct ntx_device *d)
{
    if (d->tapes.refused)
        return d->tapes.why;
    return d->tapes.possible ? "" : NULL;
}
