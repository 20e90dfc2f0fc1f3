#include "infer/kv_io.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/util.h"

enum { DEPTH = 16 }; /* 8 MiB in flight: what drives want (DESIGN) */

struct piece { uint64_t at, tag; uint32_t bytes; void *to; };

struct ntx__kv_io {
    int fd;
    bool uring;
    struct io_uring ring;
    struct piece piece[DEPTH];
    uint32_t free[DEPTH], n_free;
    uint32_t waiting[DEPTH], n_waiting; /* without io_uring: not begun, the first first */
};

/* What the kernel has of it besides ours. */
static void give_back(int fd, bool write, uint64_t at, uint64_t bytes)
{
    if (fcntl(fd, F_GETFL) & O_DIRECT)
        return;
    if (write)
        (void)sync_file_range(fd, (off_t)at, (off_t)bytes, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
}

int ntx__kv_io_now(int fd, bool write, uint64_t at, uint64_t bytes, void *memory)
{
    uint8_t *p = memory;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = write ? pwrite(fd, p + done, bytes - done, (off_t)(at + done)) : pread(fd, p + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (!n)
            return -EIO;
        done += n > 0 ? (uint64_t)n : 0;
    }
    give_back(fd, write, at, bytes);
    return 0;
}

int ntx__kv_io_new(int fd, struct ntx__kv_io **out)
{
    struct ntx__kv_io *io = calloc(1, sizeof *io);
    if (!io)
        return -ENOMEM;
    io->fd = fd;
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

bool ntx__kv_io_room(const struct ntx__kv_io *io) { return io->n_free > 0; }
uint32_t ntx__kv_io_flying(const struct ntx__kv_io *io) { return DEPTH - io->n_free; }

void ntx__kv_io_read(struct ntx__kv_io *io, uint64_t at, uint32_t bytes, void *to, uint64_t tag)
{
    uint32_t i = io->free[--io->n_free];
    io->piece[i] = (struct piece){.at = at, .tag = tag, .bytes = bytes, .to = to};
    struct io_uring_sqe *e = io->uring ? io_uring_get_sqe(&io->ring) : NULL;
    if (e) {
        io_uring_prep_read(e, io->fd, to, bytes, at);
        io_uring_sqe_set_data64(e, i);
    }
    if (!e || io_uring_submit(&io->ring) != 1)
        io->waiting[io->n_waiting++] = i;
}

/* One that was never begun is done now. */
static int do_waiting(struct ntx__kv_io *io, uint32_t *piece)
{
    const struct piece *p = &io->piece[*piece = io->waiting[0]];
    for (uint32_t k = 1; k < io->n_waiting; k++)
        io->waiting[k - 1] = io->waiting[k];
    io->n_waiting--;
    return ntx__kv_io_now(io->fd, false, p->at, p->bytes, p->to);
}

static int reap(struct ntx__kv_io *io, uint32_t *piece)
{
    struct io_uring_cqe *c;
    int rc;
    while ((rc = io_uring_wait_cqe(&io->ring, &c)) == -EINTR)
        ;
    if (rc)
        return rc;
    const struct piece *p = &io->piece[*piece = (uint32_t)io_uring_cqe_get_data64(c)];
    int32_t n = c->res;
    io_uring_cqe_seen(&io->ring, c);
    if (n < 0 && n != -EAGAIN && n != -EINTR)
        return n;
    if (n == (int32_t)p->bytes) {
        give_back(io->fd, false, p->at, p->bytes);
        return 0;
    }
    return ntx__kv_io_now(io->fd, false, p->at, p->bytes, p->to); /* a short one */
}

int ntx__kv_io_wait(struct ntx__kv_io *io, uint64_t *tag)
{
    uint32_t piece = 0;
    int rc = io->n_waiting ? do_waiting(io, &piece) : reap(io, &piece);
    *tag = io->piece[piece].tag;
    io->free[io->n_free++] = piece;
    return rc;
}
