/* SPDX-License-Identifier: Apache-2.0 */
/* cold: the drive's rate for random reads of the length of an expert's matrix, into memory that is reused at once,
 * and into places all over a large arena, where frames of experts are. This is the ceiling for reads on demand.
 *
 *   cold FILE [SECONDS=1] [ROUNDS=3] [ARENA_MIB=1700]
 *
 * It uses io_uring, O_DIRECT and huge pages, and submits each read by itself. CSV: round, bytes of a read, reads in
 * flight, footprint in MiB, GB/s. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define BLOCK     4096u
#define MAX_DEPTH 32

struct lab {
    int fd;
    uint64_t file_bytes, arena_bytes, seed;
    uint8_t *arena;
    struct io_uring ring;
};

static uint64_t rnd(struct lab *l, uint64_t n)
{
    l->seed = l->seed * 6364136223846793005u + 1442695040888963407u;
    return (l->seed >> 20) % n;
}

/* A random piece of the file into place `place` of the footprint. */
static void post_read(struct lab *l, uint32_t bytes, uint64_t place)
{
    struct io_uring_sqe *s = io_uring_get_sqe(&l->ring);
    io_uring_prep_read(s, l->fd, l->arena + place * bytes, bytes, rnd(l, (l->file_bytes - bytes) / BLOCK) * BLOCK);
    io_uring_sqe_set_data64(s, place);
    io_uring_submit(&l->ring);
}

/* in_place: the next read reuses the memory of the last one; else reads move on through the arena. Returns GB/s,
 * negative on failure. */
static double measure(struct lab *l, double seconds, uint32_t bytes, unsigned depth, bool in_place)
{
    uint64_t begin = ntx_now_ns(), end = begin + (uint64_t)(seconds * 1e9), done = 0, places = l->arena_bytes / bytes,
             next = 0;
    unsigned inflight = 0;
    for (; inflight < depth; inflight++)
        post_read(l, bytes, next++);
    while (inflight) {
        struct io_uring_cqe *c;
        if (io_uring_wait_cqe(&l->ring, &c) || c->res != (int)bytes)
            return -1;
        uint64_t place = io_uring_cqe_get_data64(c);
        io_uring_cqe_seen(&l->ring, c);
        done += bytes;
        if (ntx_now_ns() < end)
            post_read(l, bytes, in_place ? place : next++ % places);
        else
            inflight--;
    }
    return (double)done / (double)(ntx_now_ns() - begin);
}

static int open_lab(struct lab *l, const char *path, uint64_t arena_bytes)
{
    struct stat st;
    l->fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (l->fd < 0 || fstat(l->fd, &st))
        return -errno;
    l->file_bytes = (uint64_t)st.st_size;
    l->arena_bytes = arena_bytes;
    uint8_t *p = mmap(NULL, arena_bytes + (2u << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -ENOMEM;
    l->arena = (uint8_t *)NTX_ROUND_UP((uintptr_t)p, 2u << 20);
    madvise(l->arena, arena_bytes, MADV_HUGEPAGE);
    memset(l->arena, 1, arena_bytes);
    return io_uring_queue_init(MAX_DEPTH, &l->ring, 0);
}

int main(int argc, char **argv)
{
    static const struct {
        uint32_t kib;
        unsigned depth;
    } shapes[] = {{432, 9}, {432, 19}, {864, 4}, {864, 9}, {1280, 6}, {432, 1}, {864, 1}, {432, 2}};
    struct lab l = {.seed = 1};
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    int rounds = argc > 3 ? atoi(argv[3]) : 3, rc = -EINVAL;
    uint64_t arena_mib = argc > 4 ? strtoull(argv[4], NULL, 10) : 1700;
    if (argc >= 2)
        rc = open_lab(&l, argv[1], arena_mib << 20);
    if (rc) {
        fprintf(stderr, "cold FILE [SECONDS] [ROUNDS] [ARENA_MIB]: %s\n", strerror(-rc));
        return 100;
    }
    printf("round,bytes,inflight,footprint_mib,gb_s\n");
    for (int r = 1; r <= rounds; r++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int in_place = 1; in_place >= 0; in_place--) {
                uint32_t bytes = shapes[i].kib << 10;
                double rate = measure(&l, seconds, bytes, shapes[i].depth, in_place);
                printf("%d,%u,%u,%llu,%.3f\n", r, bytes, shapes[i].depth,
                       (unsigned long long)(in_place ? shapes[i].depth * (uint64_t)bytes : l.arena_bytes) >> 20, rate);
            }
    return 0;
}
