/* SPDX-License-Identifier: Apache-2.0 */
/* read.c: read MB: two threads read MB million bytes of memory together without end, each its half in one run, and
 * write '[' after each round. This is the time of a token whose weights are only read. Built by hand:
 *
 *   cc -O2 -I . bench/turns/read.c bench/kernels/read.c -lpthread -o read */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/kernels/lab.h"

enum { THREADS = 2, PIECE = 1 << 20 };

static const size_t share = (size_t)768 << 20; /* of a thread */
static size_t token;                           /* of a thread */
static char *memory;
static pthread_barrier_t gate;
static volatile uint64_t seen;

static void *work(void *arg)
{
    const char *mine = arg;
    for (size_t at = 0;;) {
        for (size_t done = 0; done < token; done += PIECE, at = (at + PIECE) % share)
            seen ^= lab_read(mine + at, PIECE);
        pthread_barrier_wait(&gate);
        if (mine == memory && write(1, "[", 1) != 1)
            exit(111);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t other;
    token = argc == 2 ? (size_t)atoi(argv[1]) * 1000000 / THREADS : 0;
    memory = aligned_alloc(2u << 20, share * THREADS);
    if (!token || !memory)
        return fprintf(stderr, "usage: read MB\n"), 100;
    madvise(memory, share * THREADS, MADV_HUGEPAGE);
    memset(memory, 1, share * THREADS);
    pthread_barrier_init(&gate, NULL, THREADS);
    if (pthread_create(&other, NULL, work, memory + share))
        return 111;
    work(memory);
}
