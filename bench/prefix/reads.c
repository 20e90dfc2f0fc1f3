/* SPDX-License-Identifier: Apache-2.0 */
/* bench_kv_reads: a drive's rate for reads like those of K and V in a file, by kind of target memory. CSV: kind of
 * pages, bytes of a read, depth, number of targets, GB/s, CPU s, s.
 *
 *   bench_kv_reads FILE [MIB=600] [HOLD_MIB=100]
 *
 * A missing FILE is made with MIB of bytes. Each line is the last of four passes over it in order, by io_uring and
 * O_DIRECT. Pages: new (each read has its own pages, which are dropped after HOLD_MIB of further reads), kept (HOLD_MIB
 * of 4 KiB pages are reused) and huge (the same in huge pages). */
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define MIB  ((uint64_t)1 << 20)
#define HUGE (2 * MIB)
enum { NEW, KEPT, HUGE_PAGES, MOST_DEPTH = 64, MOST_PLACES = 8, PASSES = 4 };

struct lab {
    int fd;
    uint8_t *memory;
    uint64_t bytes, hold;
};
struct how {
    int pages;
    uint32_t size, depth, places;
};

static void make_file(int fd, uint64_t bytes)
{
    static _Alignas(4096) uint8_t piece[MIB];
    for (uint64_t at = 0; at < bytes; at += MIB) {
        memset(piece, (int)(at / MIB), sizeof piece);
        if (pwrite(fd, piece, sizeof piece, (off_t)at) != (ssize_t)sizeof piece)
            exit(111);
    }
    fsync(fd);
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static uint8_t *place_of(const struct lab *l, const struct how *h, uint64_t read, uint32_t place)
{
    const uint32_t part = h->size / h->places;
    const uint64_t all = h->pages == NEW ? l->bytes : l->hold, n = all / part;
    return l->memory + (h->pages == NEW ? read * h->places + place : (read * h->places + place * 13) % n) * part;
}

static void post_read(const struct lab *l, const struct how *h, struct io_uring *ring, struct iovec *to, uint64_t read)
{
    struct io_uring_sqe *e = io_uring_get_sqe(ring);
    for (uint32_t i = 0; i < h->places; i++)
        to[i] = (struct iovec){place_of(l, h, read, i), h->size / h->places};
    io_uring_prep_readv(e, l->fd, to, h->places, read * h->size);
    io_uring_sqe_set_data(e, to);
}

static double pass(const struct lab *l, const struct how *h, struct io_uring *ring)
{
    static struct iovec to[MOST_DEPTH][MOST_PLACES];
    struct iovec *free_to[MOST_DEPTH];
    const uint64_t n = l->bytes / h->size, t0 = ntx_now_ns();
    uint32_t n_free = 0;
    while (n_free < h->depth) {
        free_to[n_free] = to[n_free];
        n_free++;
    }
    for (uint64_t asked = 0, done = 0; done < n; done++) {
        struct io_uring_cqe *c;
        while (asked < n && n_free)
            post_read(l, h, ring, free_to[--n_free], asked++);
        io_uring_submit(ring);
        if (io_uring_wait_cqe(ring, &c) || c->res != (int)h->size)
            exit(111);
        free_to[n_free++] = io_uring_cqe_get_data(c);
        io_uring_cqe_seen(ring, c);
        if (h->pages == NEW && (done + 1) * h->size >= l->hold)
            madvise(l->memory + ((done + 1) * h->size - l->hold) / h->size * h->size, h->size, MADV_DONTNEED);
    }
    return (double)(ntx_now_ns() - t0) / 1e9;
}

static void measure(struct lab *l, const struct how *h)
{
    static const char *const names[] = {"new", "kept", "huge"};
    struct io_uring ring;
    double s = 0, cpu = 0;
    uint8_t *map = mmap(NULL, l->bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                        0);
    if (map == MAP_FAILED || io_uring_queue_init(h->depth, &ring, 0))
        exit(111);
    l->memory = (uint8_t *)NTX_ROUND_UP((uintptr_t)map, HUGE);
    madvise(map, l->bytes + HUGE, h->pages == HUGE_PAGES ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (h->pages != NEW)
        memset(l->memory, 1, l->hold);
    for (int i = 0; i < PASSES; i++) {
        cpu = cpu_s();
        s = pass(l, h, &ring);
        cpu = cpu_s() - cpu;
    }
    printf("%s,%u,%u,%u,%.2f,%.3f,%.3f\n", names[h->pages], h->size, h->depth, h->places,
           (double)(l->bytes / h->size * h->size) / s / 1e9, cpu, s);
    fflush(stdout);
    io_uring_queue_exit(&ring);
    munmap(map, l->bytes + HUGE);
}

int main(int argc, char **argv)
{
    static const struct {
        uint32_t size, depth, places;
    } reads[] = {{128 << 10, 16, 1}, {512 << 10, 16, 1}, {1 << 20, 8, 1}, {1 << 20, 8, 8}, {1 << 20, 16, 8}};
    struct lab l = {.fd = argc > 1 ? open(argv[1], O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600) : -1};
    struct stat st;
    l.bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 600) * MIB;
    l.hold = (argc > 3 ? strtoull(argv[3], NULL, 10) : 100) * MIB;
    if (l.fd < 0 || fstat(l.fd, &st) || l.bytes < 2 * l.hold || l.hold < MIB) {
        fprintf(stderr, "usage: bench_kv_reads FILE [MIB=600] [HOLD_MIB=100], MIB twice as much at least\n");
        return 100;
    }
    if ((uint64_t)st.st_size < l.bytes)
        make_file(l.fd, l.bytes);
    printf("pages,bytes,depth,places,gb_s,cpu_s,s\n");
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        for (int pages = NEW; pages <= HUGE_PAGES; pages++)
            measure(&l, &(struct how){pages, reads[i].size, reads[i].depth, reads[i].places});
    return 0;
}
