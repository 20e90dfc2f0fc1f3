/* SPDX-License-Identifier: Apache-2.0 */
#include "common/pieces.h"

#include <pthread.h>

#include "common/util.h"

#define MAX_THREADS 64u

struct work {
    const struct ntx_pieces *p;
    pthread_mutex_t lock; /* of all fields below */
    uint32_t next, done;
    int rc;
    struct ntx_err *err;
};

static bool take_piece(struct work *w, uint32_t *i)
{
    pthread_mutex_lock(&w->lock);
    bool more = !w->rc && w->next < w->p->n;
    *i = w->next;
    w->next += more;
    pthread_mutex_unlock(&w->lock);
    return more;
}

static void finish_piece(struct work *w, int rc, const struct ntx_err *err)
{
    pthread_mutex_lock(&w->lock);
    if (rc && !w->rc) {
        w->rc = rc;
        if (w->err)
            *w->err = *err;
    }
    if (!rc && w->p->progress)
        w->p->progress(w->p->progress_ctx, ++w->done, w->p->n);
    pthread_mutex_unlock(&w->lock);
}

static void *run_pieces(void *arg)
{
    struct work *w = arg;
    for (uint32_t i; take_piece(w, &i);) {
        struct ntx_err err = {0};
        finish_piece(w, w->p->one(w->p->ctx, i, &err), &err);
    }
    return NULL;
}

int ntx_pieces_do(const struct ntx_pieces *p, struct ntx_err *err)
{
    struct work w = {.p = p, .lock = PTHREAD_MUTEX_INITIALIZER, .err = err};
    const uint32_t n = NTX_MIN(NTX_MIN(p->threads, MAX_THREADS), p->n);
    pthread_t threads[MAX_THREADS];
    uint32_t made = 0;
    while (made + 1 < n && !pthread_create(&threads[made], NULL, run_pieces, &w))
        made++;
    run_pieces(&w);
    while (made)
        pthread_join(threads[--made], NULL);
    pthread_mutex_destroy(&w.lock);
    return w.rc;
}
