/* SPDX-License-Identifier: Apache-2.0 */
#include "client/doctor/doctor_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "shm/memlimit.h"

#define SECONDS          18.0
#define BRIEF            3.0            /* for a moment, before a plan */
#define BUFFER           (512ull << 20) /* more than the caches of large machines */
#define BRIEF_BUFFER     (128ull << 20) /* more than those of most */
#define N_STREAMS        2
#define ROUNDS_LEAST     3 /* their median leaves out one in which the machine stood still */
#define ROUNDS_PER_LAYER 4 /* products, each of all matrices that have one input */
#define STEPS_PER_LAYER  5 /* other pool runs in a layer's forward pass */

static const uint32_t stream_reads[N_STREAMS] = {512u << 10, 1u << 20}; /* sizes of a model's chunks */

void ntx__doctor_say(struct ntx_doctor_report *r, const char *fmt, ...)
{
    va_list ap;
    if (r->n_findings == NTX_DOCTOR_FINDINGS)
        return;
    va_start(ap, fmt);
    vsnprintf(r->findings[r->n_findings++], sizeof r->findings[0], fmt, ap);
    va_end(ap);
}

static void report_step(const struct ntx_doctor_config *c, const char *what)
{
    if (c->progress)
        c->progress(c->ctx, what);
}

static size_t buffer_size(double seconds)
{
    struct ntx_memlimit m;
    ntx_memlimit_read(&m);
    uint64_t want = seconds < BRIEF ? BRIEF_BUFFER : BUFFER;
    return (size_t)NTX_ROUND_UP(NTX_MIN(want, m.available / 4), 2u << 20);
}

static int prepare_bench(struct ntx__doctor_bench *b, double seconds, uint32_t threads, struct ntx_err *err)
{
    b->ops = ntx_cpu_pick(NULL);
    b->bytes = buffer_size(seconds);
    if (!(b->buf = ntx__doctor_buffer(b->bytes)))
        return ntx_err_set(err, -ENOMEM, "no memory to measure with");
    ntx__doctor_fill(b->buf, b->bytes);
    int rc = ntx_pool_new(1, &b->one, err);
    return rc ? rc : ntx_pool_new(threads, &b->all, err);
}

static void release_bench(struct ntx__doctor_bench *b)
{
    ntx_pool_free(b->one);
    ntx_pool_free(b->all);
    ntx__doctor_buffer_free(b->buf, b->bytes);
}

/* All that reads from the drive. */
struct drives {
    struct ntx__doctor_drive *plain;
    struct ntx__doctor_stream *streams[N_STREAMS];
};

static int open_drives(const struct ntx_doctor_config *c, double seconds, struct ntx_doctor_report *r, struct drives *d,
                       struct ntx_err *err)
{
    int rc = ntx__doctor_drive_open(c->dir, seconds, r, &d->plain, err);
    for (unsigned i = 0; !rc && i < N_STREAMS; i++) {
        uint64_t bytes;
        int fd = ntx__doctor_drive_file(d->plain, &bytes);
        rc = ntx__doctor_stream_open(fd, bytes, stream_reads[i], &d->streams[i], err);
    }
    return rc;
}

static void close_drives(struct drives *d)
{
    for (unsigned i = 0; i < N_STREAMS; i++)
        ntx__doctor_stream_close(d->streams[i]);
    ntx__doctor_drive_close(d->plain);
}

static int measure_drives(const struct drives *d, const struct ntx__doctor_bench *b, double seconds, struct ntx_hw *hw,
                          struct ntx_err *err)
{
    int rc = ntx__doctor_drive_measure(d->plain, seconds * 0.4, hw, err);
    for (unsigned i = 0; !rc && i < N_STREAMS; i++) {
        struct ntx_hw_read *r = &hw->streams[hw->n_streams++];
        r->bytes = stream_reads[i];
        rc = ntx__doctor_stream_measure(d->streams[i], b, seconds * 0.6 / N_STREAMS, &r->bps, err);
    }
    return rc;
}

/* One round of measurements. */
static int measure_round(const struct ntx__doctor_bench *b, const struct drives *d, double seconds, struct ntx_hw *hw,
                         struct ntx_err *err)
{
    hw->ram_bps_1 = ntx__doctor_read_rate(b->one, b->buf, b->bytes, seconds * 0.06);
    hw->ram_bps = ntx__doctor_read_rate(b->all, b->buf, b->bytes, seconds * 0.06);
    hw->layer_s = STEPS_PER_LAYER * ntx__doctor_step(b->all, seconds * 0.01);
    double round_s = 0;
    int rc = ntx__doctor_round(b, seconds * 0.01, &round_s);
    hw->layer_s += ROUNDS_PER_LAYER * round_s;
    if (!rc)
        rc = ntx__doctor_kernels(b, seconds * 0.42, hw);
    if (!rc)
        rc = ntx__doctor_rows(b, seconds * 0.03, hw);
    return rc ? ntx_err_set(err, rc, "no memory to measure with") : measure_drives(d, b, seconds * 0.55, hw, err);
}

static int measure_rounds(const struct ntx_doctor_config *c, double seconds, struct ntx_doctor_report *r,
                          struct ntx_err *err)
{
    struct ntx__doctor_bench b = {0};
    struct drives d = {0};
    struct ntx__doctor_layers *layers = NULL;
    struct ntx_hw *rounds = calloc(NTX_DOCTOR_ROUNDS, sizeof *rounds);
    int rc = rounds ? prepare_bench(&b, seconds, r->hw.threads, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc)
        rc = open_drives(c, seconds * 0.4, r, &d, err);
    if (!rc)
        rc = ntx__doctor_layers_open(&b, seconds < BRIEF, &layers, err);
    unsigned n = 0;
    for (uint64_t end = ntx_now_ns() + (uint64_t)(1.3e9 * seconds);
         !rc && n < NTX_DOCTOR_ROUNDS && (n < ROUNDS_LEAST || ntx_now_ns() < end); n++) {
        char what[64];
        snprintf(what, sizeof what, "memory, kernels, drive: round %u of %d", n + 1, NTX_DOCTOR_ROUNDS);
        report_step(c, what);
        rc = measure_round(&b, &d, seconds / NTX_DOCTOR_ROUNDS, &rounds[n], err);
        if (!rc)
            rc = ntx__doctor_layers_measure(layers, err);
    }
    if (!rc) {
        snprintf(r->hw.kernel, sizeof r->hw.kernel, "%s", b.ops->name);
        ntx__doctor_median(rounds, n, &r->hw);
        ntx__doctor_layers_rate(layers, &r->hw);
    }
    ntx__doctor_layers_close(layers);
    close_drives(&d);
    release_bench(&b);
    free(rounds);
    return rc;
}

double ntx_doctor_load(void)
{
    double load = 0;
    return getloadavg(&load, 1) < 1 ? 0 : load / ntx__doctor_threads();
}

int ntx_doctor_run(const struct ntx_doctor_config *c, struct ntx_doctor_report *out, struct ntx_err *err)
{
    struct ntx_doctor_report *r = calloc(1, sizeof *r);
    double seconds = c->seconds > 0 ? c->seconds : SECONDS;
    if (!r)
        return ntx_err_set(err, -ENOMEM, "no memory");
    snprintf(r->hw.source, sizeof r->hw.source, "measured");
    r->hw.threads = c->threads ? c->threads : ntx__doctor_threads();
    r->hw.load = ntx_doctor_load();
    int rc = measure_rounds(c, seconds, r, err);
    if (!rc) {
        ntx__doctor_machine(r);
        *out = *r;
    }
    free(r);
    return rc;
}
