/* SPDX-License-Identifier: Apache-2.0 */
/* load_arena.c: a thread faults in the arena's memory part by part, while the workers attach and ntx-iod reads into the
 * parts that are there. Zeroing runs at about 12 GB/s; the fastest drives fill at half of that. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/load.h"

#define PART_LEAST (32ull << 20)
#define PARTS      64u /* at most: both sides scan all chunks for each */

struct ntx_arena {
    struct ntx_loaded *l;
    pthread_t thread;
    _Atomic bool stop; /* set by the thread that frees it */
    /* set last by the thread; then rc, err, the region's pages and the note are constant */
    _Atomic bool done;
    int rc;
    struct ntx_err err;
};

int ntx__load_begin_region(struct ntx_loaded *l, struct ntx_err *err)
{
    int rc = ntx_region_begin(&l->plan->geo, &l->region, err);
    return rc ? rc : ntx_region_bring_in(&l->region, l->region.hdr->off_arena, err);
}

static void *arena_main(void *arg)
{
    struct ntx_arena *a = arg;
    struct ntx_loaded *l = a->l;
    uint64_t part = NTX_MAX(PART_LEAST, l->region.bytes / PARTS);
    /* a small arena may share the last page with the tables before it */
    ntx_stream_memory_there(l->stream, l->region.pages.at);
    while (!a->rc && l->region.pages.at < l->region.bytes && !atomic_load_explicit(&a->stop, memory_order_relaxed))
        if (!(a->rc = ntx_region_bring_in(&l->region, part, &a->err)))
            ntx_stream_memory_there(l->stream, l->region.pages.at);
    if (l->region.pages.at == l->region.bytes)
        ntx_region_settle(&l->region, l->note, sizeof l->note);
    atomic_store_explicit(&a->done, true, memory_order_release);
    return NULL;
}

int ntx__load_arena_start(struct ntx_loaded *l, struct ntx_err *err)
{
    struct ntx_arena *a = calloc(1, sizeof *a);
    sigset_t all, old;
    if (!a)
        return ntx_err_set(err, -ENOMEM, "no memory");
    a->l = l;
    ntx_stream_await_memory(l->stream);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = -pthread_create(&a->thread, NULL, arena_main, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        free(a);
        return ntx_err_set(err, rc, "cannot start a thread: %s", strerror(-rc));
    }
    l->arena = a;
    return 0;
}

int ntx_load_arena(const struct ntx_loaded *l, struct ntx_err *err)
{
    const struct ntx_arena *a = l->arena;
    if (!a)
        return 0;
    if (!atomic_load_explicit(&a->done, memory_order_acquire))
        return -EAGAIN;
    if (a->rc)
        *err = a->err;
    return a->rc;
}

void ntx__load_arena_free(struct ntx_loaded *l)
{
    if (!l->arena)
        return;
    atomic_store_explicit(&l->arena->stop, true, memory_order_relaxed);
    pthread_join(l->arena->thread, NULL);
    free(l->arena);
    l->arena = NULL;
}
