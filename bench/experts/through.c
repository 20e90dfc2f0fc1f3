/* SPDX-License-Identifier: Apache-2.0 */
/* through: are experts read faster through a few warm slots? Reads of an expert's matrix go
 *
 *   cold   to places all over a large arena, as frames of experts are;
 *   warm   to a few slots that are used again at once;
 *
 * and there they are left alone, or multiplied. The multiplying thread then copies a share of the warm ones to a place
 * in the arena.
 *
 *   through FILE [SECONDS=1] [ROUNDS=2] [ARENA_MIB=1700] [THREADS=2]
 *
 * io_uring, O_DIRECT, huge pages, as cold.c; THREADS compute threads take completed reads. "Multiplied" bytes are
 * read once, which takes less than any product. CSV: round, bytes of a read, reads in flight, slots, use, GB/s. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define BLOCK       4096u
#define MAX_SLOTS   64u
#define SLOTS_BYTES (32ull << 20)

struct way {
    const char *name;
    bool cold, multiplied, flushed; /* flushed: removed from the caches after the product */
    double copied;                  /* share */
};

static const struct way ways[] = {{"cold", true, false, false, 0},
                                  {"warm", false, false, false, 0},
                                  {"cold multiplied", true, true, false, 0},
                                  {"warm multiplied", false, true, false, 0},
                                  {"warm multiplied flushed", false, true, true, 0},
                                  {"warm multiplied all copied", false, true, false, 1}};

struct queue { /* of places */
    uint8_t *at[MAX_SLOTS];
    unsigned n;
};

struct lab {
    int fd;
    uint64_t file_bytes, arena_bytes, seed, moved; /* moved: next place in the arena */
    uint8_t *slots, *arena;
    struct io_uring ring;
    uint32_t bytes;
    struct way way;
    pthread_mutex_t lock;
    pthread_cond_t come; /* a read is complete, or the run ends */
    struct queue ready, spare;
    bool over;
    uint64_t sum;
};

static uint64_t rnd(struct lab *l, uint64_t n)
{
    l->seed = l->seed * 6364136223846793005u + 1442695040888963407u;
    return (l->seed >> 20) % n;
}

/* Locked. */
static uint8_t *arena_place(struct lab *l) { return l->arena + l->moved++ % (l->arena_bytes / l->bytes) * l->bytes; }

static void post_read(struct lab *l, uint8_t *to)
{
    struct io_uring_sqe *s = io_uring_get_sqe(&l->ring);
    io_uring_prep_read(s, l->fd, to, l->bytes, rnd(l, (l->file_bytes - l->bytes) / BLOCK) * BLOCK);
    io_uring_sqe_set_data(s, to);
    io_uring_submit(&l->ring);
}

static uint64_t multiply(const uint8_t *at, uint32_t bytes)
{
    const uint64_t *w = (const uint64_t *)(const void *)at;
    uint64_t sum[4] = {0};
    for (uint32_t i = 0; i < bytes / 8; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] ^= w[i + k];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

__attribute__((target("clflushopt"))) static void *compute(void *arg)
{
    struct lab *l = arg;
    uint64_t sum = 0, n = 0;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->ready.n && !l->over)
            pthread_cond_wait(&l->come, &l->lock);
        if (!l->ready.n)
            break;
        uint8_t *at = l->ready.at[--l->ready.n], *to = NULL;
        if ((double)(n * 7919 % 1000) < l->way.copied * 1000)
            to = arena_place(l);
        n++;
        pthread_mutex_unlock(&l->lock);
        if (l->way.multiplied)
            sum ^= multiply(at, l->bytes);
        if (to)
            memcpy(to, at, l->bytes);
        for (uint32_t i = 0; l->way.flushed && i < l->bytes; i += 64)
            __builtin_ia32_clflushopt(at + i);
        pthread_mutex_lock(&l->lock);
        l->spare.at[l->spare.n++] = l->way.cold ? arena_place(l) : at;
    }
    l->sum ^= sum;
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* GB/s, negative on failure. */
static double measure(struct lab *l, double seconds, unsigned depth, unsigned slots, unsigned threads)
{
    pthread_t thread[8];
    unsigned inflight = 0;
    uint64_t done = 0;
    l->ready.n = l->spare.n = 0;
    l->over = false;
    for (unsigned i = 0; i < slots; i++)
        l->spare.at[l->spare.n++] = l->way.cold ? arena_place(l) : l->slots + (size_t)i * l->bytes;
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, compute, l);
    uint64_t begin = ntx_now_ns(), end = begin + (uint64_t)(seconds * 1e9), now = begin;
    bool failed = false;
    while ((now < end || inflight) && !failed) {
        struct io_uring_cqe *c;
        pthread_mutex_lock(&l->lock);
        while (now < end && inflight < depth && l->spare.n) {
            post_read(l, l->spare.at[0]);
            memmove(l->spare.at, l->spare.at + 1, --l->spare.n * sizeof *l->spare.at);
            inflight++;
        }
        pthread_mutex_unlock(&l->lock);
        if (inflight && !io_uring_wait_cqe(&l->ring, &c)) {
            failed = c->res != (int)l->bytes;
            uint8_t *at = io_uring_cqe_get_data(c);
            io_uring_cqe_seen(&l->ring, c);
            inflight--;
            done += l->bytes;
            pthread_mutex_lock(&l->lock);
            l->ready.at[l->ready.n++] = at;
            pthread_cond_signal(&l->come);
            pthread_mutex_unlock(&l->lock);
        }
        now = ntx_now_ns();
    }
    pthread_mutex_lock(&l->lock);
    l->over = true;
    pthread_cond_broadcast(&l->come);
    pthread_mutex_unlock(&l->lock);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return failed ? -1 : (double)done / (double)(ntx_now_ns() - begin);
}

static uint8_t *huge(uint64_t bytes)
{
    uint8_t *p = mmap(NULL, bytes + (2u << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    p = (uint8_t *)NTX_ROUND_UP((uintptr_t)p, 2u << 20);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

static int open_lab(struct lab *l, const char *path)
{
    struct stat st;
    l->fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (l->fd < 0 || fstat(l->fd, &st))
        return -errno;
    l->file_bytes = (uint64_t)st.st_size;
    l->slots = huge(SLOTS_BYTES + l->arena_bytes);
    l->arena = l->slots + SLOTS_BYTES;
    return l->slots ? io_uring_queue_init(MAX_SLOTS, &l->ring, 0) : -ENOMEM;
}

int main(int argc, char **argv)
{
    static const struct {
        uint32_t kib;
        unsigned depth, slots;
    } shapes[] = {{432, 9, 16}, {560, 8, 24}, {864, 6, 12}, {1280, 5, 10}};
    struct lab l = {.seed = 1,
                    .arena_bytes = (argc > 4 ? strtoull(argv[4], NULL, 10) : 1700) << 20,
                    .lock = PTHREAD_MUTEX_INITIALIZER,
                    .come = PTHREAD_COND_INITIALIZER};
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    unsigned threads = argc > 5 ? (unsigned)atoi(argv[5]) : 2;
    int rounds = argc > 3 ? atoi(argv[3]) : 2,
        rc = argc < 2 || !threads || threads > 8 ? -EINVAL : open_lab(&l, argv[1]);
    if (rc) {
        fprintf(stderr, "through FILE [SECONDS] [ROUNDS] [ARENA_MIB] [THREADS, 1 to 8]: %s\n", strerror(-rc));
        return 100;
    }
    printf("round,bytes,inflight,slots,way,gb_s\n");
    for (int r = 1; r <= rounds; r++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
                l.bytes = shapes[i].kib << 10;
                l.way = ways[k];
                printf("%d,%u,%u,%u,%s,%.3f\n", r, l.bytes, shapes[i].depth, shapes[i].slots, l.way.name,
                       measure(&l, seconds, shapes[i].depth, shapes[i].slots, threads));
            }
    return 0;
}
