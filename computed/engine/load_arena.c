/* SPDX-License-Identifier: Apache-2.0 */
/* load_arena.c: the arena's memory comes in by a thread of its own, part by part, while the workers attach and iod
 * reads into the parts that are there: zeroing runs at about 12 GB/s, the fastest drives fill them at half of that. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/load.h"

#define PART_LEAST (32ull << 20)
#define PARTS      64u /* at most: both sides look at all chunks for each */

struct ntx_arena {
    struct ntx_loaded *l;
    pthread_t thread;
    _Atomic bool stop; /* who frees it */
    _Atomic bool
        done; /* the thread, last of all; then rc and err are constant, and so are the region's pages and the note */
    int rc;
    struct ntx_err err;
};

int ntx__load_begin_region(struct ntx_loaded *l, struct ntx_err *err)
{
    int rc = ntx_region_begin(&l->plan->geo, &l->region, err);
    return rc ? rc : ntx_region_bring_in(&l->region, l->region.hdr->off_arena, err);
}

static void *bring_in(void *arg)
{
    struct ntx_arena *a = arg;
    struct ntx_loaded *l = a->l;
    uint64_t part = NTX_MAX(PART_LEAST, l->region.bytes / PARTS);
    ntx_stream_memory_there(l->stream,
                            l->region.pages.at); /* a small arena may share the last page of what came first */
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
    int rc = -pthread_create(&a->thread, NULL, bring_in, a);
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
