/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c: copies of chunks to the device. The engine thread queues them in the order of use.
 *
 *   copies    wait until the stage's last user is finished | upload | event copied
 *   compute   wait for copied | products | event used
 *
 * A stage is used again when the compute stream has passed its event; a ring's slot is released when its copy is
 * finished. At most in_flight chunks are held, so the ring never waits for this thread while this thread waits for the
 * ring. A chunk that the GPU reads in place is not copied; its stage only holds it until it is used. */
#include <errno.h>
#include <time.h>

#include "common/util.h"
#include "computed/gpu/device_impl.h"

#define LATE_NS 200000u /* oversleeping that the emulated link makes up for */

/* The link carries one copy at a time: a copy begins when the one before has ended. */
static void trace_copy(struct ntx_device *d, const struct ntx__stage *s)
{
    uint64_t now = ntx_traced_now(d->f->c.counters, NTX_TRACE_COMPUTED);
    ntx_traced(d->f->c.counters, NTX_TRACE_COMPUTED, NTX_TR_COPY, NTX_MAX(s->queued_ns, d->copied_ns), now, 0, s->chunk,
               s->copied_bytes);
    d->copied_ns = now;
}

static bool is_in_place(const struct ntx__stage *s) { return s->bytes != s->own; }

/* The event after which the host's bytes are not needed any more. */
static struct ntx_gpu_event *source_free(const struct ntx__stage *s) { return is_in_place(s) ? s->used : s->copied; }

static int release_slot(struct ntx_device *d, struct ntx__stage *s)
{
    if (s->chunk == NTX__NO_CHUNK)
        return 0;
    int rc = d->ops->event_sync(source_free(s));
    if (!rc) {
        if (!is_in_place(s))
            trace_copy(d, s);
        d->f->c.weights->ops->release(d->f->c.weights, s->chunk);
        s->chunk = NTX__NO_CHUNK;
    }
    return rc;
}

/* Releases slots whose copies are finished, in the order of the copies. Does not wait. */
static int release_finished(struct ntx_device *d)
{
    for (uint32_t k = 0; k < d->n_stages; k++) {
        struct ntx__stage *s = &d->stages[(d->next_stage + k) % d->n_stages];
        int rc = s->chunk == NTX__NO_CHUNK ? 1 : d->ops->event_query(source_free(s));
        if (rc <= 0)
            return rc;
        if ((rc = release_slot(d, s)))
            return rc;
    }
    return 0;
}

int ntx__device_settle(struct ntx_device *d)
{
    int rc = 0;
    for (uint32_t k = 0; k < d->n_stages; k++) {
        int one = release_slot(d, &d->stages[(d->next_stage + k) % d->n_stages]);
        rc = rc ? rc : one;
        if (one)
            d->stages[(d->next_stage + k) % d->n_stages].chunk = NTX__NO_CHUNK; /* the end of the pass releases it */
    }
    return rc;
}

/* Waits until a link of that rate would have carried the chunk; the real copy comes after. */
static void emulate_link(struct ntx_device *d, uint64_t bytes)
{
    if (d->c.h2d_bps <= 0)
        return;
    uint64_t now = ntx_now_ns(), from = NTX_MAX(d->link_free_ns, now - LATE_NS);
    d->link_free_ns = from + (uint64_t)((double)bytes / d->c.h2d_bps * 1e9);
    const struct timespec end = {(time_t)(d->link_free_ns / 1000000000u), (long)(d->link_free_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        ;
}

/* Adjacent groups are copied together. */
static int upload_part(struct ntx_device *d, const struct ntx_chunk *c, const uint8_t *bytes,
                       const struct ntx__device_part *part, struct ntx__stage *s)
{
    int rc = 0;
    for (uint32_t i = 0, n; !rc && i < part->n; i += n) {
        for (n = 1; i + n < part->n && part->list[i + n] == part->list[i] + n;)
            n++;
        uint64_t at = (part->list[i] - c->out0) * part->each;
        rc = d->ops->upload(d->copies, s->own + at, bytes + at, n * part->each);
    }
    return rc;
}

static int upload_chunk(struct ntx_device *d, uint32_t chunk, const void *bytes, const struct ntx__device_part *part,
                        struct ntx__stage *s)
{
    const struct ntx_chunk *c = &d->c.chunks->list[chunk];
    bool whole = !part || !part->list;
    int rc;
    s->queued_ns = ntx_traced_now(d->f->c.counters, NTX_TRACE_COMPUTED);
    s->copied_bytes = whole ? c->bytes : part->n * part->each;
    emulate_link(d, s->copied_bytes);
    d->copied = true;
    if ((rc = d->ops->stream_wait(d->copies, s->used)))
        return rc;
    rc = whole ? d->ops->upload(d->copies, s->own, bytes, c->bytes) : upload_part(d, c, bytes, part, s);
    if (rc || (rc = d->ops->event_record(s->copied, d->copies)))
        return rc;
    return d->ops->stream_wait(ntx__queue(d), s->copied);
}

/* Checks the copied part of a chunk for NaN and infinity before its first use (finite.h). */
static int check_finite(struct ntx_forward *f, uint32_t chunk, const uint8_t *bytes,
                        const struct ntx__device_part *part)
{
    const struct ntx_chunk *c = &f->c.chunks->list[chunk];
    bool packed = ntx_gguf_tensor_at(f->c.model->gguf, c->tensor)->type == NTX_I8, some = part && part->list;
    int rc = packed ? 0 : ntx__finite_outs(f, chunk, bytes, 0, c->n_out);
    if (!rc && !packed)
        ntx__finite_done(f, chunk);
    for (uint32_t i = 0; packed && !rc && i < (some ? part->n : c->n_out); i++) {
        uint32_t group = some ? part->list[i] - c->out0 : i;
        rc = ntx__finite_group(f, chunk, bytes + group * (c->bytes / c->n_out), group);
    }
    return rc;
}

/* Device address of a chunk in host memory, if the bytes that kernels may read behind it are mapped too; NULL: it must
 * be copied. */
static const uint8_t *address_in_place(const struct ntx_device *d, uint32_t chunk, const void *bytes)
{
    uint64_t at = (uint64_t)((uintptr_t)bytes - (uintptr_t)d->c.in_place),
             n = d->c.chunks->list[chunk].bytes + NTX_GPU_SLACK;
    return d->in_place && at <= d->c.in_place_bytes && n <= d->c.in_place_bytes - at ? d->in_place + at : NULL;
}

int ntx__device_bring(struct ntx_device *d, uint32_t chunk, const struct ntx__device_part *part,
                      struct ntx__stage **stage)
{
    struct ntx__stage *s = &d->stages[d->next_stage];
    const void *bytes;
    int rc;
    if ((rc = release_finished(d)) || (rc = release_slot(d, s)))
        return ntx__device_fail(d, rc, "a copy");
    if ((rc = ntx__acquire(d->f, chunk, &bytes)) || (rc = check_finite(d->f, chunk, bytes, part)))
        return rc;
    s->bytes = address_in_place(d, chunk, bytes);
    if (!s->bytes)
        s->bytes = s->own;
    s->chunk = chunk;
    d->next_stage = (d->next_stage + 1) % d->n_stages;
    *stage = s;
    rc = is_in_place(s) ? 0 : upload_chunk(d, chunk, bytes, part, s);
    return rc ? ntx__device_fail(d, rc, "a streamed product") : 0;
}

int ntx__device_used(struct ntx_device *d, struct ntx__stage *s)
{
    int rc = d->ops->event_record(s->used, ntx__queue(d));
    return rc ? ntx__device_fail(d, rc, "a streamed product") : 0;
}
