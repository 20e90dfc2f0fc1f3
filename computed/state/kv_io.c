/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/state/kv_io.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"

enum { DEPTH = 32 };
#define NOTHING UINT64_MAX
#define FLYING  ((uint64_t)8 << 20) /* bytes under way: what drives want */

struct piece {
    uint64_t at, tag, due;
    uint32_t bytes, n;
    struct iovec to[NTX__KV_IO_PARTS];
};

struct ntx__kv_io {
    int fd;
    bool uring;
    struct ntx_drive drive;
    uint64_t flying; /* bytes */
    uint64_t credit; /* ns, of the emulated drive */
    struct io_uring ring;
    struct piece piece[DEPTH];
    uint32_t free[DEPTH], n_free;
    uint32_t waiting[DEPTH], n_waiting; /* without io_uring: not begun, in order */
};

/* Drops the kernel's cached copy. */
static void drop_cached(int fd, bool write, uint64_t at, uint64_t bytes)
{
    if (fcntl(fd, F_GETFL) & O_DIRECT)
        return;
    if (write)
        (void)sync_file_range(fd, (off_t)at, (off_t)bytes,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
}

int ntx__kv_io_now(int fd, bool write, uint64_t at, uint64_t bytes, void *memory)
{
    uint8_t *p = memory;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = write ? pwrite(fd, p + done, bytes - done, (off_t)(at + done))
                          : pread(fd, p + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (!n)
            return -EIO;
        done += n > 0 ? (uint64_t)n : 0;
    }
    drop_cached(fd, write, at, bytes);
    return 0;
}

int ntx__kv_io_new(int fd, struct ntx_drive drive, struct ntx__kv_io **out)
{
    struct ntx__kv_io *io = calloc(1, sizeof *io);
    if (!io)
        return -ENOMEM;
    io->fd = fd;
    io->drive = drive;
    io->credit = NTX_DRIVE_CREDIT_NS;
    io->uring = !io_uring_queue_init(DEPTH, &io->ring, 0);
    for (; io->n_free < DEPTH; io->n_free++)
        io->free[io->n_free] = io->n_free;
    *out = io;
    return 0;
}

void ntx__kv_io_free(struct ntx__kv_io *io)
{
    if (io && io->uring)
        io_uring_queue_exit(&io->ring);
    free(io);
}

bool ntx__kv_io_room(const struct ntx__kv_io *io) { return io->n_free > 0 && io->flying < FLYING; }
uint32_t ntx__kv_io_flying(const struct ntx__kv_io *io) { return DEPTH - io->n_free; }

void ntx__kv_io_read(struct ntx__kv_io *io, uint64_t at, const struct iovec *to, uint32_t n, uint64_t tag)
{
    const uint32_t i = io->free[--io->n_free];
    struct piece *p = &io->piece[i];
    p->at = at;
    p->tag = tag;
    p->n = n;
    p->bytes = 0;
    for (uint32_t k = 0; k < n; k++)
        p->bytes += (uint32_t)(p->to[k] = to[k]).iov_len;
    io->flying += p->bytes;
    p->due = io->drive.until ? ntx_drive_due(io->drive, p->bytes, ntx_now_ns(), io->credit) : 0;
    struct io_uring_sqe *e = io->uring ? io_uring_get_sqe(&io->ring) : NULL;
    if (e) {
        if (n == 1)
            io_uring_prep_read(e, io->fd, to->iov_base, p->bytes, at);
        else
            io_uring_prep_readv(e, io->fd, p->to, n, at);
        io_uring_sqe_set_data64(e, i);
    }
    if (e && io_uring_submit(&io->ring) == 1)
        return;
    if (e) { /* it is in the ring; when the ring goes on it must do nothing */
        io_uring_prep_nop(e);
        io_uring_sqe_set_data64(e, NOTHING);
    }
    io->waiting[io->n_waiting++] = i;
}

static int do_now(const struct ntx__kv_io *io, const struct piece *p)
{
    int rc = 0;
    for (uint64_t k = 0, at = p->at; k < p->n && !rc; at += p->to[k++].iov_len)
        rc = ntx__kv_io_now(io->fd, false, at, p->to[k].iov_len, p->to[k].iov_base);
    return rc;
}

/* A read that was never begun is done now. */
static int do_waiting(struct ntx__kv_io *io, uint32_t *piece)
{
    const struct piece *p = &io->piece[ *piece = io->waiting[0]];
    for (uint32_t k = 1; k < io->n_waiting; k++)
        io->waiting[k - 1] = io->waiting[k];
    io->n_waiting--;
    return do_now(io, p);
}

static int reap(struct ntx__kv_io *io, uint32_t *piece)
{
    struct io_uring_cqe *c;
    int rc;
    while ((rc = io_uring_wait_cqe(&io->ring, &c)) == -EINTR || (!rc && io_uring_cqe_get_data64(c) == NOTHING))
        if (!rc)
            io_uring_cqe_seen(&io->ring, c);
    if (rc)
        return rc;
    const struct piece *p = &io->piece[ *piece = (uint32_t)io_uring_cqe_get_data64(c)];
    int32_t n = c->res;
    io_uring_cqe_seen(&io->ring, c);
    if (n < 0 && n != -EAGAIN && n != -EINTR)
        return n;
    if (n == (int32_t)p->bytes) {
        drop_cached(io->fd, false, p->at, p->bytes);
        return 0;
    }
    return do_now(io, p); /* a short read */
}

/* Waits until the emulated drive would have delivered. Later reads have not come before: it delivers in order. */
static void hold_back(struct ntx__kv_io *io, uint64_t due)
{
    const struct timespec t = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
    while (due > ntx_now_ns() && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
    io->credit = ntx_drive_credit(ntx_now_ns() - due);
}

int ntx__kv_io_wait(struct ntx__kv_io *io, uint64_t *tag)
{
    uint32_t piece = 0;
    int rc = io->n_waiting ? do_waiting(io, &piece) : reap(io, &piece);
    if (io->piece[piece].due)
        hold_back(io, io->piece[piece].due);
    *tag = io->piece[piece].tag;
    io->flying -= io->piece[piece].bytes;
    io->free[io->n_free++] = piece;
    return rc;
}
