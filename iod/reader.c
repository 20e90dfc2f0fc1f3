/* SPDX-License-Identifier: Apache-2.0 */
#include "iod/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"
#include "proto/attach.h"

#define TICK_MS     1000
#define RETRY_MS    10 /* after the kernel had no room for a submission */
/* Small reads are submitted together. A large one goes at once: the drive works while the next is prepared, and reads
 * end at different moments, so that it never stands still between two batches (10 to 30 % of the rate on a virtio
 * drive). */
#define FLUSH_BYTES (256u << 10)
#define WAKES_MOST  64 /* words whose waiters are woken together */

struct ntx_reader {
    uv_loop_t *loop;
    struct ntx_reader_hooks hooks;
    struct ntx_region region;
    struct ntx_iod_files files;
    int wake_fd;
    struct ntx_counters *counters;
    struct ntx_iod_ring *ring;
    struct ntx_source *source; /* the source in use, filters included */
    struct ntx_source *idle;   /* the source made at attach, when another one replaced it; else NULL */
    struct ntx_iod_core *core; /* NULL until configured */
    uv_poll_t wake, polls[NTX_SOURCE_MAX_FDS];
    uv_timer_t tick;
    unsigned n_polls, n_handles;
    uint32_t unflushed; /* bytes */
    _Atomic uint32_t *to_wake[WAKES_MOST];
    unsigned n_to_wake;
    bool stopping, closing;
    uint64_t stop_at; /* ns; 0: no limit */
    uint64_t cpu_ns;  /* counted so far */
    char note[256], config_error[256];
};

static void on_tick(uv_timer_t *t);

/* ---- results */

static void wake_waiters(struct ntx_reader *r)
{
    for (unsigned i = 0; i < r->n_to_wake; i++)
        ntx_futex_wake(r->to_wake[i]);
    r->n_to_wake = 0;
}

/* Waiters are woken after the drive has its next reads: a woken thread may take this processor from us, and a spinning
 * one sees the word now. */
static void on_word(void *ctx, _Atomic uint32_t *word, enum ntx_state s)
{
    struct ntx_reader *r = ctx;
    ntx_source_state(r->source, s);
    if (s == NTX_FILLING)
        return;
    if (r->n_to_wake == WAKES_MOST)
        wake_waiters(r);
    r->to_wake[r->n_to_wake++] = word;
}

static void on_failed(void *ctx, const struct ntx_iod_failure *f)
{
    struct ntx_reader *r = ctx;
    struct ntx_iod_failure told = *f;
    char text[512];
    if (r->config_error[0]) {
        told.file = UINT32_MAX; /* no file is the reason */
        snprintf(text, sizeof(text), "%s", r->config_error);
    } else {
        snprintf(text, sizeof(text), "cannot read %u bytes at offset %" PRIu64 ": %s%s", f->bytes, f->offset,
                 f->err == -ENODATA ? "the file has become shorter" : strerror(-f->err),
                 f->err == -EINVAL ? "" : " (tried 4 times)");
    }
    r->hooks.told(r->hooks.ctx, &told, text);
}

static void on_result(void *ctx, uint64_t tag, int32_t result)
{
    struct ntx_reader *r = ctx;
    struct ntx_iod_read rd;
    if (!ntx_iod_core_done(r->core, ntx_now_ns(), tag, result, &rd) || r->files.direct[rd.file])
        return;
    ntx_count(r->counters, NTX_C_iod_bytes_fallback, (uint32_t)result);
    if (!r->files.memory[rd.file]) /* it is in the region now, so the page cache need not keep it */
        posix_fadvise(r->files.fd[rd.file], (off_t)rd.offset, rd.len, POSIX_FADV_DONTNEED);
}

/* ---- asking and sleeping */

static void flush_source(struct ntx_reader *r)
{
    r->unflushed = 0;
    if (r->source->ops->flush(r->source) && !r->closing)
        uv_timer_start(&r->tick, on_tick, RETRY_MS, 0);
}

static void submit_read(struct ntx_reader *r, const struct ntx_iod_read *rd)
{
    int rc = r->source->ops->submit(r->source, rd);
    if (rc) { /* sources have room for all of the core's reads, so this is a fault */
        on_result(r, rd->tag, rc);
        return;
    }
    r->unflushed += rd->len;
    if (r->unflushed >= FLUSH_BYTES)
        flush_source(r);
}

/* Issues all reads that are allowed now. */
static void issue_reads(struct ntx_reader *r)
{
    struct ntx_iod_read rd;
    while (r->core && !r->closing && !r->stopping && ntx_iod_core_next_read(r->core, ntx_now_ns(), &rd))
        submit_read(r, &rd);
    if (r->core && !r->closing)
        flush_source(r);
    wake_waiters(r);
}

static void count_cpu(struct ntx_reader *r)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    ntx_count(r->counters, NTX_C_iod_cpu_ns, now - r->cpu_ns);
    r->cpu_ns = now;
}

/* ---- the end */

static void free_reader(struct ntx_reader *r)
{
    ntx_iod_core_free(r->core);
    ntx_source_close(r->source);
    ntx_source_close(r->idle);
    for (unsigned i = 0; i < r->files.n; i++)
        close(r->files.fd[i]);
    if (r->wake_fd >= 0)
        close(r->wake_fd);
    ntx_region_close(&r->region);
    free(r);
}

static void on_handle_closed(uv_handle_t *h)
{
    struct ntx_reader *r = h->data;
    if (--r->n_handles)
        return;
    struct ntx_reader_hooks hooks = r->hooks;
    free_reader(r);
    hooks.closed(hooks.ctx);
}

static void close_if_drained(struct ntx_reader *r)
{
    if (!r->stopping || r->closing)
        return;
    if (r->source->ops->inflight(r->source) && !(r->stop_at && ntx_now_ns() >= r->stop_at))
        return;
    r->closing = true;
    ntx_gauge(r->counters, NTX_C_iod_inflight, 0); /* results that a filter still holds are dropped */
    count_cpu(r);
    uv_close((uv_handle_t *)&r->wake, on_handle_closed);
    uv_close((uv_handle_t *)&r->tick, on_handle_closed);
    for (unsigned i = 0; i < r->n_polls; i++)
        uv_close((uv_handle_t *)&r->polls[i], on_handle_closed);
}

void ntx_reader_stop(struct ntx_reader *r, unsigned limit_ms)
{
    r->stopping = true;
    uint64_t at = limit_ms ? ntx_now_ns() + limit_ms * 1000000ull : 0;
    if (at && (!r->stop_at || at < r->stop_at)) {
        r->stop_at = at;
        uv_timer_start(&r->tick, on_tick, limit_ms, 0);
    }
    issue_reads(r); /* submitted reads must start, so that they can end */
    close_if_drained(r);
}

/* ---- events */

static void on_wake(uv_poll_t *h, int status, int events)
{
    struct ntx_reader *r = h->data;
    eventfd_t v;
    (void)status;
    (void)events;
    ntx_count(r->counters, NTX_C_iod_wakeups, 1);
    eventfd_read(r->wake_fd, &v);
    issue_reads(r);
}

static void on_source(uv_poll_t *h, int status, int events)
{
    struct ntx_reader *r = h->data;
    (void)status;
    (void)events;
    ntx_count(r->counters, NTX_C_iod_wakeups, 1);
    r->source->ops->reap(r->source, on_result, r);
    issue_reads(r);
    close_if_drained(r);
}

/* Scans the words again: a wake-up that was lost with a dead process costs at most a second. */
static void on_tick(uv_timer_t *t)
{
    struct ntx_reader *r = t->data;
    uv_timer_start(t, on_tick, TICK_MS, 0);
    count_cpu(r);
    issue_reads(r);
    close_if_drained(r);
}

/* ---- the beginning */

static int watch_fd(struct ntx_reader *r, uv_poll_t *h, int fd, uv_poll_cb cb)
{
    int rc = uv_poll_init(r->loop, h, fd);
    if (rc)
        return rc;
    h->data = r;
    r->n_handles++;
    uv_poll_start(h, UV_READABLE, cb);
    return 0;
}

static int watch_source(struct ntx_reader *r)
{
    int fds[NTX_SOURCE_MAX_FDS], rc = 0;
    unsigned n = r->source->ops->fds(r->source, fds, 0);
    while (!rc && r->n_polls < n) {
        rc = watch_fd(r, &r->polls[r->n_polls], fds[r->n_polls], on_source);
        r->n_polls += !rc;
    }
    return rc;
}

/* When computed wants another source than the open one, the open one stays: computed may hold a duplicate of its ring,
 * which remains empty, and reads by pread end with the process. */
static int choose_source(struct ntx_reader *r, const char *which, struct ntx_err *err)
{
    char note[256];
    struct ntx_source *other;
    if (!*which || !strcmp(which, "auto") || !strcmp(which, r->source->ops->name))
        return 0;
    int rc = ntx_source_open(which, &r->region, &r->files, r->ring, &other, note, sizeof(note), err);
    if (rc)
        return rc;
    r->idle = r->source;
    r->source = other;
    return 0;
}

static int add_filters(struct ntx_reader *r, const struct ntx_reader_config *c, struct ntx_err *err)
{
    unsigned n_files = r->region.hdr->n_files, drives = r->files.n / n_files;
    double rates[NTX_IOD_MAX_DRIVES];
    int rc = 0;
    if (drives > NTX_IOD_MAX_DRIVES)
        rc = ntx_err_set(err, -E2BIG, "%u copies of the model: at most %d can be read", drives, NTX_IOD_MAX_DRIVES);
    for (unsigned d = 0; d < NTX_IOD_MAX_DRIVES; d++)
        rates[d] = c->rate_bps;
    if (!rc && c->rate_bps > 0)
        rc = ntx_source_throttle(r->source, rates, drives, n_files, &r->region.ring->drive_until, &r->source, err);
    if (!rc && drives > 1)
        rc = ntx_source_stripe(r->source, drives, n_files, &r->source, err);
    if (!rc && *c->fault)
        rc = ntx_source_fault(r->source, c->fault, c->start, r->region.hdr->block, &r->source, err);
    return rc;
}

void ntx_reader_configure(struct ntx_reader *r, const struct ntx_reader_config *c)
{
    struct ntx_err err = {0};
    unsigned drives = r->files.n / r->region.hdr->n_files;
    struct ntx_iod_limits limits = {c->inflight_bytes * drives, c->piece_bytes};
    struct ntx_iod_hooks hooks = {.ctx = r, .state = on_word, .failed = on_failed};
    if (r->core || r->stopping)
        return;
    if (r->note[0])
        r->hooks.told(r->hooks.ctx, NULL, r->note);
    int rc = choose_source(r, c->source, &err);
    if (!rc)
        rc = add_filters(r, c, &err);
    if (rc) {
        snprintf(r->config_error, sizeof(r->config_error), "%.*s", (int)sizeof(r->config_error) - 1, err.text);
        /* reported once, before the first read fails */
        const struct ntx_iod_failure all = {.chunk = UINT32_MAX, .file = UINT32_MAX, .err = rc};
        r->hooks.told(r->hooks.ctx, &all, r->config_error);
        rc = ntx_source_fault(r->source, "eio", c->start, r->region.hdr->block, &r->source, &err);
    }
    if (!rc)
        rc = watch_source(r);
    if (!rc)
        rc = ntx_iod_core_new(&r->region, r->counters, &limits, &hooks, &r->core, &err);
    if (rc) {
        ntx_log(NTX_LOG_ERR, "cannot read: %s", err.text[0] ? err.text : strerror(-rc));
        return;
    }
    ntx_log(NTX_LOG_INFO, "reading with %s, at most %" PRIu64 " KiB in flight in pieces of %" PRIu64 " KiB",
            r->source->ops->name, limits.inflight_bytes >> 10, c->piece_bytes >> 10);
    issue_reads(r);
}

bool ntx_reader_configured(const struct ntx_reader *r) { return r->core != NULL; }

void ntx_reader_hint(struct ntx_reader *r, uint64_t pass, const uint8_t *skip, size_t n)
{
    if (r->core)
        ntx_iod_core_hint(r->core, pass, skip, n);
}

struct ntx_source_ring ntx_reader_ring(const struct ntx_reader *r) { return r->source->ops->ring(r->source); }

static int open_parts(struct ntx_reader *r, const int *region, uint64_t epoch, struct ntx_err *err)
{
    char note[256];
    int rc = ntx_region_attach(region, &r->region, err);
    if (rc)
        return rc;
    if (r->region.hdr->epoch != epoch || r->files.n % r->region.hdr->n_files)
        return ntx_err_set(err, -ESTALE,
                           "the region is of another epoch, or its %u files do not divide the %u that were sent",
                           r->region.hdr->n_files, r->files.n);
    ntx_iod_files_prepare(&r->files, r->region.hdr->block, r->note, sizeof(r->note));
    rc = ntx_source_open("auto", &r->region, &r->files, r->ring, &r->source, note, sizeof(note), err);
    if (rc)
        return rc;
    if (note[0])
        ntx_log(NTX_LOG_INFO, "%s", note);
    if (ntx_reader_ring(r).fd < 0 && !r->note[0])
        snprintf(r->note, sizeof(r->note), "%s", note);
    rc = watch_fd(r, &r->wake, r->wake_fd, on_wake);
    return rc ? ntx_err_set(err, rc, "cannot watch the wake descriptor: %s", uv_strerror(rc)) : 0;
}

int ntx_reader_open(uv_loop_t *loop, struct ntx_iod_ring *ring, const int *fds, unsigned n_fds, uint64_t epoch,
                    struct ntx_counters *counters, const struct ntx_reader_hooks *hooks, struct ntx_reader **out,
                    struct ntx_err *err)
{
    struct ntx_reader *r = calloc(1, sizeof(*r));
    if (!r || n_fds <= NTX_IOD_FDS || n_fds - NTX_IOD_FDS > NTX_MAX_FILES) {
        for (unsigned i = 0; i < n_fds; i++)
            close(fds[i]);
        free(r);
        return ntx_err_set(err, -ENOMEM, "no memory, or no files");
    }
    r->loop = loop;
    r->hooks = *hooks;
    r->counters = counters;
    r->ring = ring;
    r->wake_fd = fds[NTX_REGION_PARTS];
    r->files.n = n_fds - NTX_IOD_FDS;
    memcpy(r->files.fd, fds + NTX_IOD_FDS, r->files.n * sizeof(int));
    int rc = open_parts(r, fds, epoch, err);
    if (rc) {
        free_reader(r);
        return rc;
    }
    uv_timer_init(loop, &r->tick);
    r->tick.data = r;
    r->n_handles++;
    on_tick(&r->tick);
    *out = r;
    return 0;
}
