/* SPDX-License-Identifier: Apache-2.0 */
/* pread.c: plain reads in a few threads, for systems that refuse io_uring. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/util.h"
#include "iod/source.h"

#define N_THREADS 4 /* as many reads as keep a drive busy */

struct result {
    uint64_t tag;
    int32_t res;
};

struct pread_source {
    struct ntx_source base;
    const struct ntx_region *r;
    const struct ntx_iod_files *files;
    unsigned inflight; /* used by the loop's thread only */
    int event;
    pthread_t thread[N_THREADS];
    unsigned n_threads;

    pthread_mutex_t lock; /* of all fields below */
    pthread_cond_t work;
    bool stop;
    struct ntx_iod_read todo[NTX_SOURCE_DEPTH]; /* a ring: [first, first + n_todo) */
    unsigned first, n_todo;
    struct result done[NTX_SOURCE_DEPTH];
    unsigned n_done;
};

/* A short read continues at once, as far as O_DIRECT accepts the offset; else the core tries the piece again. */
static int32_t read_piece(const struct pread_source *p, const struct ntx_iod_read *rd)
{
    uint8_t *buf = p->r->base + rd->dest;
    uint32_t got = 0;
    while (got < rd->expect) {
        ssize_t n = pread(p->files->fd[rd->file], buf + got, rd->len - got, (off_t)(rd->offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        got += (uint32_t)n;
        if (!n || (p->files->direct[rd->file] && got % p->r->hdr->block))
            break;
    }
    return (int32_t)got;
}

static void *reading_thread(void *arg)
{
    struct pread_source *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->n_todo && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->stop)
            break;
        struct ntx_iod_read rd = p->todo[p->first];
        p->first = (p->first + 1) % NTX_SOURCE_DEPTH;
        p->n_todo--;
        pthread_mutex_unlock(&p->lock);
        int32_t res = read_piece(p, &rd);
        pthread_mutex_lock(&p->lock);
        p->done[p->n_done++] = (struct result){rd.tag, res};
        if (p->n_done == 1)
            eventfd_write(p->event, 1);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int pread_submit(struct ntx_source *s, const struct ntx_iod_read *rd)
{
    struct pread_source *p = (struct pread_source *)s;
    if (p->inflight == NTX_SOURCE_DEPTH)
        return -EAGAIN;
    p->inflight++;
    pthread_mutex_lock(&p->lock);
    p->todo[(p->first + p->n_todo++) % NTX_SOURCE_DEPTH] = *rd;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static int pread_flush(struct ntx_source *s)
{
    (void)s;
    return 0;
}

static void pread_reap(struct ntx_source *s, ntx_source_cb *cb, void *ctx)
{
    struct pread_source *p = (struct pread_source *)s;
    struct result got[NTX_SOURCE_DEPTH];
    eventfd_t v;
    pthread_mutex_lock(&p->lock);
    unsigned n = p->n_done;
    memcpy(got, p->done, n * sizeof(got[0]));
    p->n_done = 0;
    if (n)
        eventfd_read(p->event, &v);
    pthread_mutex_unlock(&p->lock);
    p->inflight -= n;
    for (unsigned i = 0; i < n; i++)
        cb(ctx, got[i].tag, got[i].res);
}

static unsigned pread_fds(const struct ntx_source *s, int *fds, unsigned n)
{
    fds[n] = ((const struct pread_source *)s)->event;
    return n + 1;
}

static unsigned pread_inflight(const struct ntx_source *s) { return ((const struct pread_source *)s)->inflight; }

static struct ntx_source_ring pread_ring(const struct ntx_source *s)
{
    (void)s;
    return (struct ntx_source_ring){.fd = -1};
}

static void pread_close(struct ntx_source *s)
{
    struct pread_source *p = (struct pread_source *)s;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    while (p->n_threads)
        pthread_join(p->thread[--p->n_threads], NULL);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    if (p->event >= 0)
        close(p->event);
    free(p);
}

static const struct ntx_source_ops pread_ops = {
    .name = "pread",
    .submit = pread_submit,
    .flush = pread_flush,
    .reap = pread_reap,
    .fds = pread_fds,
    .inflight = pread_inflight,
    .ring = pread_ring,
    .close = pread_close,
};

int ntx_source_pread(const struct ntx_region *r, const struct ntx_iod_files *f, struct ntx_source **out,
                     struct ntx_err *err)
{
    struct pread_source *p = calloc(1, sizeof(*p));
    if (!p)
        return ntx_err_set(err, -ENOMEM, "no memory for a byte source");
    p->base.ops = &pread_ops;
    p->r = r;
    p->files = f;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    p->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = p->event < 0 ? -errno : 0;
    while (!rc && p->n_threads < N_THREADS) {
        rc = -pthread_create(&p->thread[p->n_threads], NULL, reading_thread, p);
        p->n_threads += !rc;
    }
    if (rc) {
        pread_close(&p->base);
        return ntx_err_set(err, rc, "cannot start reading threads: %s", strerror(-rc));
    }
    *out = &p->base;
    return 0;
}
