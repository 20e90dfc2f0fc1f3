#include "doctor/doctor_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "shm/memlimit.h"

#define SECONDS 12.0
#define BUFFER (512ull << 20)     /* more than the caches of large machines hold */
#define STEPS_PER_LAYER 9         /* hand-overs to the pool in a layer's forward pass */

void ntx__doctor_say(struct ntx_doctor_report *r, const char *fmt, ...)
{
    va_list ap;
    if (r->n_findings == NTX_DOCTOR_FINDINGS)
        return;
    va_start(ap, fmt);
    vsnprintf(r->findings[r->n_findings++], sizeof r->findings[0], fmt, ap);
    va_end(ap);
}

static void tell(const struct ntx_doctor_config *c, const char *what)
{
    if (c->progress)
        c->progress(c->ctx, what);
}

static size_t buffer_size(double seconds)
{
    struct ntx_memlimit m;
    ntx_memlimit_read(&m);
    uint64_t want = seconds < 3 ? 32ull << 20 : BUFFER;
    return (size_t)NTX_ROUND_UP(NTX_MIN(want, m.available / 4), 2u << 20);
}

static int measure_memory(const struct ntx_doctor_config *c, double seconds, struct ntx_doctor_report *r, struct ntx_err *err)
{
    const struct ntx_cpu_ops *ops = ntx_cpu_pick(NULL);
    struct ntx_pool *one = NULL, *all = NULL;
    size_t bytes = buffer_size(seconds);
    void *buf = ntx__doctor_buffer(bytes);
    int rc = buf ? 0 : ntx_err_set(err, -ENOMEM, "no memory to measure with");
    snprintf(r->hw.kernel, sizeof r->hw.kernel, "%s", ops->name);
    if (!rc)
        memset(buf, 1, bytes);
    if (!rc && !(rc = ntx_pool_new(1, &one, err)))
        rc = ntx_pool_new(r->hw.threads, &all, err);
    if (!rc) {
        tell(c, "memory");
        r->hw.ram_bps_1 = ntx__doctor_read_rate(one, buf, bytes, seconds * 0.06);
        r->hw.ram_bps = ntx__doctor_read_rate(all, buf, bytes, seconds * 0.06);
        r->hw.layer_s = STEPS_PER_LAYER * ntx__doctor_step(all, seconds * 0.02);
        tell(c, "kernels");
        rc = ntx__doctor_kernels(one, all, ops, buf, bytes, seconds * 0.45, r);
    }
    ntx_pool_free(one);
    ntx_pool_free(all);
    ntx__doctor_buffer_free(buf, bytes);
    return rc;
}

int ntx_doctor_run(const struct ntx_doctor_config *c, struct ntx_doctor_report *out, struct ntx_err *err)
{
    struct ntx_doctor_report *r = calloc(1, sizeof *r);
    double seconds = c->seconds > 0 ? c->seconds : SECONDS, load = 0;
    if (!r)
        return ntx_err_set(err, -ENOMEM, "no memory");
    snprintf(r->hw.source, sizeof r->hw.source, "measured");
    r->hw.threads = c->threads ? c->threads : ntx__doctor_threads();
    if (getloadavg(&load, 1) < 1)
        load = 0;
    int rc = measure_memory(c, seconds, r, err);
    ntx__doctor_machine(load, r);
    if (!rc) {
        tell(c, "drive");
        rc = ntx__doctor_drive(c->dir, seconds * 0.4, r, err);
    }
    if (!rc)
        *out = *r;
    free(r);
    return rc;
}
