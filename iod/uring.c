/* SPDX-License-Identifier: Apache-2.0 */
/* uring.c: reads by io_uring. The loop polls the ring's own descriptor (readable while completions wait), which saves
 * an eventfd and a read per wake-up. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "iod/ring.h"
#include "iod/source.h"

#define PART_MAX  (1u << 30) /* the kernel accepts no larger registered buffer */
#define MAX_PARTS 1024

struct uring {
    struct ntx_source base;
    struct io_uring *ring;
    struct ntx_iod_ring *own; /* when the caller gave none */
    const struct ntx_region *r;
    const struct ntx_iod_files *files;
    unsigned inflight; /* submitted but not reaped, unflushed ones included */
    unsigned unflushed;
    bool fixed;                     /* buffers are registered: first slots, then frames, in parts of whole ones */
    uint64_t slot_part, frame_part; /* bytes of a part */
    unsigned n_slot_parts;
};

/* Registered buffer of a destination; -1: none. The arena is read once, so pinning it would gain nothing. */
static int part_of(const struct uring *u, uint64_t dest)
{
    const struct ntx_region_hdr *h = u->r->hdr;
    if (!u->fixed || dest >= h->off_arena)
        return -1;
    if (dest >= h->off_frames)
        return (int)(u->n_slot_parts + (dest - h->off_frames) / u->frame_part);
    return (int)(dest / u->slot_part);
}

static int uring_submit(struct ntx_source *s, const struct ntx_iod_read *rd)
{
    struct uring *u = (struct uring *)s;
    struct io_uring_sqe *sqe = io_uring_get_sqe(u->ring);
    if (!sqe)
        return -EAGAIN;
    uint8_t *buf = u->r->base + rd->dest;
    int part = part_of(u, rd->dest), fd = u->files->fd[rd->file];
    if (part >= 0)
        io_uring_prep_read_fixed(sqe, fd, buf, rd->len, rd->offset, part);
    else
        io_uring_prep_read(sqe, fd, buf, rd->len, rd->offset);
    io_uring_sqe_set_data64(sqe, rd->tag);
    u->inflight++;
    u->unflushed++;
    return 0;
}

static int uring_flush(struct ntx_source *s)
{
    struct uring *u = (struct uring *)s;
    while (u->unflushed) {
        int n = io_uring_submit(u->ring);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n ? n : -EAGAIN;
        u->unflushed -= (unsigned)n;
    }
    return 0;
}

static void uring_reap(struct ntx_source *s, ntx_source_cb *cb, void *ctx)
{
    struct uring *u = (struct uring *)s;
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    io_uring_for_each_cqe(u->ring, head, cqe) {
        u->inflight--;
        cb(ctx, cqe->user_data, cqe->res);
        n++;
    }
    /* After the words are written: a completion stays in the ring while its slot is still FILLING. */
    io_uring_cq_advance(u->ring, n);
}

static unsigned uring_fds(const struct ntx_source *s, int *fds, unsigned n)
{
    fds[n] = ((const struct uring *)s)->ring->ring_fd;
    return n + 1;
}

static unsigned uring_inflight(const struct ntx_source *s) { return ((const struct uring *)s)->inflight; }

static struct ntx_source_ring uring_ring(const struct ntx_source *s)
{
    const struct io_uring *ring = ((const struct uring *)s)->ring;
    struct ntx_source_ring r = {.fd = ring->ring_fd};
    const char *base = ring->sq.ring_ptr;
    if (ring->features & IORING_FEAT_SINGLE_MMAP) {
        r.bytes = ring->sq.ring_sz;
        r.sq_head = (uint32_t)((const char *)ring->sq.khead - base);
        r.cq_tail = (uint32_t)((const char *)ring->cq.ktail - base);
    }
    return r;
}

static void close_own(struct ntx_iod_ring *own)
{
    if (own)
        ntx_iod_ring_close(own);
    free(own);
}

static void uring_close(struct ntx_source *s)
{
    struct uring *u = (struct uring *)s;
    if (!u->own && u->fixed && !u->inflight) /* else they are released with the ring, or with the process */
        io_uring_unregister_buffers(u->ring);
    close_own(u->own);
    free(u);
}

static const struct ntx_source_ops uring_ops = {
    .name = "uring",
    .submit = uring_submit,
    .flush = uring_flush,
    .reap = uring_reap,
    .fds = uring_fds,
    .inflight = uring_inflight,
    .ring = uring_ring,
    .close = uring_close,
};

static unsigned add_parts(struct iovec *v, unsigned n, uint8_t *base, uint64_t count, uint64_t each, uint64_t *part)
{
    *part = NTX_MAX(PART_MAX / each, 1) * each;
    for (uint64_t at = 0, all = count * each; at < all && n < MAX_PARTS; at += *part)
        v[n++] = (struct iovec){base + at, NTX_MIN(*part, all - at)};
    return n;
}

/* 0, or why buffers were not registered. Plain reads into the same pages run at the same rate, for a little more CPU
 * time. */
static int register_buffers(struct uring *u)
{
    const struct ntx_region_hdr *h = u->r->hdr;
    struct iovec v[MAX_PARTS];
    unsigned n = 0;
    if (!h->n_slots && !h->n_demands)
        return 0;
    if (h->slot_bytes > PART_MAX || h->frame_bytes > PART_MAX ||
        (h->n_slots * h->slot_bytes + h->n_demands * h->frame_bytes) / PART_MAX >= MAX_PARTS / 2)
        return -E2BIG;
    if (h->n_slots)
        n = add_parts(v, n, u->r->base, h->n_slots, h->slot_bytes, &u->slot_part);
    u->n_slot_parts = n;
    if (h->n_demands && h->frame_bytes)
        n = add_parts(v, n, u->r->base + h->off_frames, h->n_demands, h->frame_bytes, &u->frame_part);
    int rc = io_uring_register_buffers(u->ring, v, n);
    u->fixed = !rc;
    return rc;
}

static int open_own(struct ntx_iod_ring **ring)
{
    struct ntx_iod_ring *own = calloc(1, sizeof *own);
    if (!own)
        return -ENOMEM;
    int rc = ntx_iod_ring_open(own);
    if (rc)
        free(own);
    else
        *ring = own;
    return rc;
}

int ntx_source_uring(const struct ntx_region *r, const struct ntx_iod_files *f, struct ntx_iod_ring *ring,
                     struct ntx_source **out, char *note, unsigned note_len, struct ntx_err *err)
{
    struct ntx_iod_ring *own = NULL;
    int rc = ring ? ring->why : open_own(&own);
    if (rc)
        return ntx_err_set(err, rc, "io_uring is refused here: %s", strerror(-rc));
    struct uring *u = calloc(1, sizeof(*u));
    if (!u) {
        close_own(own);
        return ntx_err_set(err, -ENOMEM, "no memory for a byte source");
    }
    *u = (struct uring){.base.ops = &uring_ops, .ring = ring ? &ring->u : &own->u, .own = own, .r = r, .files = f};
    rc = register_buffers(u);
    if (note && note_len)
        snprintf(note, note_len, "%s%s%s", rc ? "buffers are not registered (" : "", rc ? strerror(-rc) : "",
                 rc ? "): plain reads" : "");
    *out = &u->base;
    return 0;
}
