/* SPDX-License-Identifier: Apache-2.0 */
/* stripe.c: the same files on several drives. A large read is cut into a range for each drive, so that all of them work
 * on it at once. A small one goes to the drive with the fewest bytes queued.
 *
 *        read [0, len) of file f                  files of the source below, by drive:
 *        +------------+---------+                   0 .. n-1      the first copy's parts
 *        | drive 0    | drive 1 |                   n .. 2n-1     the second copy's, and so on
 *        +------------+---------+
 *
 * Ranges are chosen so that all drives have the same number of bytes queued: a slower drive finishes less, has more
 * left, and gets less of the next read. So rates need not be known, and add up. A read is done when its last range is;
 * its result ends where the first range came short. A drive that failed once gets no more reads while another one
 * works: the next try finds the bytes elsewhere. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "iod/source.h"

#define SPLIT_LEAST (128u << 10) /* smallest read that is cut */
#define GRAIN       (64u << 10)  /* ranges are multiples of this: smaller reads are slow */

struct range {
    uint32_t start, len, expect;
    int32_t result;
};

struct whole { /* a read from above, and its ranges */
    uint64_t tag;
    struct range range[NTX_IOD_MAX_DRIVES];
    unsigned left; /* ranges that are not done; 0: this entry is unused */
};

struct stripe {
    struct ntx_source base;
    struct ntx_source *over;
    unsigned n_drives, n_files;
    uint64_t before[NTX_IOD_MAX_DRIVES]; /* bytes queued at the drive */
    bool failed[NTX_IOD_MAX_DRIVES];
    struct whole whole[NTX_IOD_MAX_READS];
    unsigned n_wholes, n_ranges; /* unfinished */
    ntx_source_cb *cb;           /* while reaping */
    void *ctx;
};

/* Tag of a range in the source below. */
static uint64_t tag_of(const struct stripe *s, const struct whole *w, unsigned drive)
{
    return (uint64_t)(w - s->whole) * NTX_IOD_MAX_DRIVES + drive;
}

static struct whole *unused_entry(struct stripe *s)
{
    for (unsigned i = 0; i < NTX_IOD_MAX_READS; i++)
        if (!s->whole[i].left)
            return &s->whole[i];
    return NULL;
}

static bool is_usable(const struct stripe *s, unsigned drive)
{
    if (!s->failed[drive])
        return true;
    for (unsigned d = 0; d < s->n_drives; d++)
        if (!s->failed[d])
            return false;
    return true; /* all have failed: use any */
}

static unsigned least_busy(const struct stripe *s)
{
    unsigned best = s->n_drives;
    for (unsigned d = 0; d < s->n_drives; d++)
        if (is_usable(s, d) && (best == s->n_drives || s->before[d] < s->before[best]))
            best = d;
    return best;
}

/* Bytes queued at each drive once `len` more are spread evenly. Drives that have more already take no part. */
static uint64_t level_drives(const struct stripe *s, uint64_t len, bool part[NTX_IOD_MAX_DRIVES])
{
    for (;;) {
        uint64_t sum = len, n = 0, at;
        for (unsigned d = 0; d < s->n_drives; d++)
            if (part[d]) {
                sum += s->before[d];
                n++;
            }
        at = sum / n;
        bool all = true;
        for (unsigned d = 0; d < s->n_drives; d++)
            if (part[d] && s->before[d] > at)
                part[d] = all = false;
        if (all)
            return at;
    }
}

static void cut_read(const struct stripe *s, const struct ntx_iod_read *rd, struct whole *w)
{
    bool part[NTX_IOD_MAX_DRIVES];
    uint32_t start = 0, share[NTX_IOD_MAX_DRIVES] = {0}, given = 0;
    /* The source below keeps room for one range of each read that may still come. */
    bool room = s->n_ranges + s->n_drives + (NTX_IOD_MAX_READS - 1 - s->n_wholes) <= NTX_SOURCE_DEPTH;
    for (unsigned d = 0; d < s->n_drives; d++)
        part[d] = is_usable(s, d);
    uint64_t at = room && rd->len >= SPLIT_LEAST ? level_drives(s, rd->len, part) : 0;
    for (unsigned d = 0; d < s->n_drives; d++)
        if (at && part[d])
            share[d] = (uint32_t)((at - s->before[d]) / GRAIN * GRAIN);
    for (unsigned d = 0; d < s->n_drives; d++)
        given += share[d];
    share[least_busy(s)] += rd->len - given;
    for (unsigned d = 0; d < s->n_drives; d++) {
        uint32_t expect = start < rd->expect ? NTX_MIN(share[d], rd->expect - start) : 0;
        w->range[d] = (struct range){.start = start, .len = share[d], .expect = expect};
        start += share[d];
    }
}

static int32_t result_of(const struct stripe *s, const struct whole *w)
{
    int32_t got = 0;
    for (unsigned d = 0; d < s->n_drives; d++)
        if (w->range[d].len && w->range[d].result < 0)
            return w->range[d].result;
    for (unsigned d = 0; d < s->n_drives; d++) {
        got += w->range[d].result;
        if (w->range[d].result < (int32_t)w->range[d].len)
            break; /* bytes after a gap are useless; at the end of the file there are none */
    }
    return got;
}

static void range_done(struct stripe *s, struct whole *w, unsigned drive, int32_t result)
{
    w->range[drive].result = result;
    s->before[drive] -= w->range[drive].len;
    s->n_ranges--;
    if (result < 0 && !s->failed[drive] && s->n_drives > 1) {
        s->failed[drive] = true;
        ntx_log(NTX_LOG_WARN, "drive %u of %u failed (%s): its copy of the model is read no more", drive + 1,
                s->n_drives, strerror(-result));
    }
    if (--w->left)
        return;
    s->n_wholes--;
    s->cb(s->ctx, w->tag, result_of(s, w));
}

static void on_range_below(void *ctx, uint64_t tag, int32_t result)
{
    struct stripe *s = ctx;
    range_done(s, &s->whole[tag / NTX_IOD_MAX_DRIVES], (unsigned)(tag % NTX_IOD_MAX_DRIVES), result);
}

/* The source below has room for all ranges (see cut_read), so a refusal is its fault and becomes the range's result.
 * The whole read can only be refused while none of its ranges was submitted. */
static int stripe_submit(struct ntx_source *base, const struct ntx_iod_read *rd)
{
    struct stripe *s = (struct stripe *)base;
    struct whole *w = unused_entry(s);
    if (!w)
        return -EAGAIN;
    w->tag = rd->tag;
    cut_read(s, rd, w);
    for (unsigned d = 0; d < s->n_drives; d++) {
        const struct range *r = &w->range[d];
        struct ntx_iod_read part = *rd;
        if (!r->len)
            continue;
        part.tag = tag_of(s, w, d);
        part.offset += r->start;
        part.dest += r->start;
        part.len = r->len;
        part.expect = r->expect;
        part.file += d * s->n_files;
        int rc = s->over->ops->submit(s->over, &part);
        if (rc && !w->left)
            return rc;
        if (rc) { /* the submitted ranges bring fewer bytes than wanted, so the read is tried again */
            w->range[d].len = 0;
            break;
        }
        w->left++;
        s->n_ranges++;
        s->before[d] += r->len;
    }
    s->n_wholes++;
    return 0;
}

static int stripe_flush(struct ntx_source *base)
{
    struct stripe *s = (struct stripe *)base;
    return s->over->ops->flush(s->over);
}

static void stripe_reap(struct ntx_source *base, ntx_source_cb *cb, void *ctx)
{
    struct stripe *s = (struct stripe *)base;
    s->cb = cb;
    s->ctx = ctx;
    s->over->ops->reap(s->over, on_range_below, s);
}

static unsigned stripe_fds(const struct ntx_source *base, int *fds, unsigned n)
{
    const struct stripe *s = (const struct stripe *)base;
    return s->over->ops->fds(s->over, fds, n);
}

static unsigned stripe_inflight(const struct ntx_source *base)
{
    const struct stripe *s = (const struct stripe *)base;
    return s->over->ops->inflight(s->over);
}

static struct ntx_source_ring stripe_ring(const struct ntx_source *base)
{
    const struct stripe *s = (const struct stripe *)base;
    return s->over->ops->ring(s->over);
}

static void stripe_close(struct ntx_source *base)
{
    struct stripe *s = (struct stripe *)base;
    ntx_source_close(s->over);
    free(s);
}

static const struct ntx_source_ops stripe_ops = {
    .name = "stripe",
    .submit = stripe_submit,
    .flush = stripe_flush,
    .reap = stripe_reap,
    .fds = stripe_fds,
    .inflight = stripe_inflight,
    .ring = stripe_ring,
    .close = stripe_close,
};

int ntx_source_stripe(struct ntx_source *over, unsigned n_drives, unsigned n_files, struct ntx_source **out,
                      struct ntx_err *err)
{
    if (!n_drives || n_drives > NTX_IOD_MAX_DRIVES || !n_files)
        return ntx_err_set(err, -EINVAL, "%u copies of the model: expected 1 to %d", n_drives, NTX_IOD_MAX_DRIVES);
    struct stripe *s = calloc(1, sizeof *s);
    if (!s)
        return ntx_err_set(err, -ENOMEM, "no memory for a byte source");
    s->base.ops = &stripe_ops;
    s->over = over;
    s->n_drives = n_drives;
    s->n_files = n_files;
    *out = &s->base;
    return 0;
}
