/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/reader.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/util.h"

struct ntx_reader {
    void (*read)(struct ntx_prompt *p);
    ntx_reader_fn *done;
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    struct ntx_reading *first, **last;
    struct ntx_reading *now; /* being read */
    bool quit;
};

void ntx_reading_free(struct ntx_reading *r)
{
    if (!r)
        return;
    ntx_request_free(r->req);
    ntx_prompt_free(&r->prompt);
    ntx_reply_queue_unref(r->replies);
    free(r);
}

static struct ntx_reading *next_reading(struct ntx_reader *r)
{
    pthread_mutex_lock(&r->lock);
    while (!r->first && !r->quit)
        pthread_cond_wait(&r->wake, &r->lock);
    struct ntx_reading *g = r->quit ? NULL : r->first;
    if (g && !(r->first = g->next))
        r->last = &r->first;
    if (g)
        g->began_ns = ntx_now_ns();
    r->now = g;
    pthread_mutex_unlock(&r->lock);
    return g;
}

static void *reader_main(void *arg)
{
    struct ntx_reader *r = arg;
    for (struct ntx_reading *g; (g = next_reading(r));) {
        r->read(&g->prompt);
        pthread_mutex_lock(&r->lock);
        r->now = NULL;
        pthread_mutex_unlock(&r->lock);
        r->done(r->ctx, g);
    }
    return NULL;
}

int ntx_reader_new(void (*read)(struct ntx_prompt *p), ntx_reader_fn *done, void *ctx, struct ntx_reader **out)
{
    struct ntx_reader *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->read = read;
    r->done = done;
    r->ctx = ctx;
    r->last = &r->first;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    int rc = -pthread_create(&r->thread, NULL, reader_main, r);
    if (rc) {
        pthread_mutex_destroy(&r->lock);
        pthread_cond_destroy(&r->wake);
        free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void ntx_reader_put(struct ntx_reader *r, struct ntx_reading *g)
{
    g->next = NULL;
    pthread_mutex_lock(&r->lock);
    *r->last = g;
    r->last = &g->next;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

void ntx_reader_now(struct ntx_reader *r, ntx_reader_fn *fn, void *ctx)
{
    pthread_mutex_lock(&r->lock);
    if (r->now && !atomic_load(&r->now->unwanted))
        fn(ctx, r->now);
    pthread_mutex_unlock(&r->lock);
}

void ntx_reader_free(struct ntx_reader *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->quit = true;
    if (r->now)
        atomic_store(&r->now->unwanted, true);
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    for (struct ntx_reading *g = r->first, *after; g; g = after) {
        after = g->next;
        ntx_reading_free(g);
    }
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->wake);
    free(r);
}
