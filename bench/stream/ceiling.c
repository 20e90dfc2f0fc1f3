/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling: what the drive gives when nobody looks at the bytes, and when the CPU reads them.
 *
 *   ceiling FILE [SECONDS=1] [ROUNDS=5] [BUFFERS_MIB=8]
 *
 * 512-KiB reads, 8 in flight, io_uring and O_DIRECT, into hugetlb pages; the buffer used last is used next, as ntx-iod
 * does. In turn: nobody reads the buffers (as in fio); one thread reads each once before it is used again (as inference
 * must). On a machine whose drive is emulated the second may be far less than the first: the host writes into lines
 * that our cores hold. CSV: round, GB/s, GB/s with a reader. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define PIECE    (512u << 10)
#define DEPTH    8
#define LOG_SIZE 4096u /* more than there are buffers */

struct lab {
    int fd;
    uint64_t file_bytes, offset;
    uint8_t *base;
    unsigned free[LOG_SIZE], n_free, inflight;
    struct io_uring ring;
    /* arrived[i]: the buffer of the i-th completed read; the reader follows `ready` and publishes `done` */
    unsigned arrived[LOG_SIZE];
    _Atomic uint64_t ready, done;
    uint64_t taken_back;
    _Atomic bool look, stop;
    uint64_t sum; /* so that the loads are not left out */
};

static void *reader(void *arg)
{
    struct lab *l = arg;
    uint64_t seen = 0;
    while (!atomic_load(&l->stop)) {
        if (atomic_load(&l->ready) == seen) {
            usleep(20);
            continue;
        }
        const uint64_t *p = (const uint64_t *)(l->base + (size_t)l->arrived[seen % LOG_SIZE] * PIECE);
        for (size_t i = 0; atomic_load_explicit(&l->look, memory_order_relaxed) && i < PIECE / 8; i += 8)
            l->sum += p[i]; /* a word per cache line */
        atomic_store(&l->done, ++seen);
    }
    return NULL;
}

static void submit(struct lab *l)
{
    uint64_t done = atomic_load(&l->done);
    for (; l->taken_back < done; l->taken_back++)
        l->free[l->n_free++] = l->arrived[l->taken_back % LOG_SIZE];
    while (l->inflight < DEPTH && l->n_free) {
        unsigned b = l->free[--l->n_free];
        struct io_uring_sqe *s = io_uring_get_sqe(&l->ring);
        io_uring_prep_read(s, l->fd, l->base + (size_t)b * PIECE, PIECE, l->offset);
        io_uring_sqe_set_data64(s, b);
        l->offset = l->offset + 2 * PIECE > l->file_bytes ? 0 : l->offset + PIECE;
        l->inflight++;
        io_uring_submit(&l->ring);
    }
}

/* Bytes of one completion at least; -errno. */
static int64_t collect(struct lab *l)
{
    struct io_uring_cqe *c;
    int64_t bytes = 0;
    int rc = io_uring_wait_cqe(&l->ring, &c);
    for (; !rc; rc = io_uring_peek_cqe(&l->ring, &c)) {
        if (c->res < 0)
            return c->res;
        bytes += c->res;
        l->arrived[l->ready % LOG_SIZE] = (unsigned)io_uring_cqe_get_data64(c);
        io_uring_cqe_seen(&l->ring, c);
        atomic_fetch_add(&l->ready, 1);
        l->inflight--;
    }
    return rc == -EAGAIN ? bytes : rc;
}

/* Bytes per nanosecond, which are GB/s; negative on failure. */
static double measure(struct lab *l, double seconds, bool look)
{
    uint64_t begin = ntx_now_ns(), end = begin + (uint64_t)(seconds * 1e9), bytes = 0;
    atomic_store(&l->look, look);
    while (ntx_now_ns() < end || l->inflight) {
        if (ntx_now_ns() < end)
            submit(l);
        if (!l->inflight)
            continue; /* the reader holds them all */
        int64_t n = collect(l);
        if (n < 0)
            return -1;
        bytes += (uint64_t)n;
    }
    double rate = (double)bytes / (double)(ntx_now_ns() - begin);
    while (atomic_load(&l->done) < atomic_load(&l->ready))
        usleep(100);
    return rate;
}

static int open_lab(struct lab *l, const char *path, size_t bytes)
{
    struct stat st;
    l->fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (l->fd < 0 || fstat(l->fd, &st))
        return -errno;
    l->file_bytes = (uint64_t)st.st_size;
    if (l->file_bytes < 2 * PIECE)
        return -EINVAL;
    l->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (l->base == MAP_FAILED)
        return -errno;
    memset(l->base, 1, bytes);
    for (size_t i = 0; i < bytes / PIECE; i++)
        l->free[l->n_free++] = (unsigned)i;
    return io_uring_queue_init(2 * DEPTH, &l->ring, 0);
}

int main(int argc, char **argv)
{
    static struct lab l;
    pthread_t thread;
    if (argc < 2 || argc > 5) {
        fprintf(stderr, "usage: ceiling FILE [SECONDS=1] [ROUNDS=5] [BUFFERS_MIB=8]\n");
        return 100;
    }
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    size_t bytes = (argc > 4 ? (size_t)atoi(argv[4]) : 8) << 20;
    if (seconds <= 0 || rounds < 1 || bytes < (size_t)DEPTH * PIECE || bytes / PIECE > LOG_SIZE / 2) {
        fprintf(stderr, "ceiling: seconds and rounds above 0, 4 to 1024 MiB of buffers\n");
        return 100;
    }
    int rc = open_lab(&l, argv[1], bytes);
    if (rc) {
        fprintf(stderr, "ceiling: %s: %s (hugetlb pages: echo %zu > /proc/sys/vm/nr_hugepages)\n", argv[1],
                strerror(-rc), bytes >> 21);
        return 111;
    }
    if (pthread_create(&thread, NULL, reader, &l))
        return 111;
    for (int i = 0; i < rounds; i++) {
        double plain = measure(&l, seconds, false), read = measure(&l, seconds, true);
        if (plain < 0 || read < 0) {
            fprintf(stderr, "ceiling: a read of %s failed\n", argv[1]);
            return 111;
        }
        printf("%d,%.3f,%.3f\n", i, plain, read);
        fflush(stdout);
    }
    atomic_store(&l.stop, true);
    pthread_join(thread, NULL);
    return l.sum == 1; /* never */
}
