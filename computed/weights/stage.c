/* SPDX-License-Identifier: Apache-2.0 */
/* The stage's requests are a ring: read r of the list uses request r modulo their number. So reads are collected in the
 * order of the list, whatever order they complete in. `lock` guards a pass; it is taken outside the stream's locks. */
#include "computed/weights/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/weights/stream_impl.h"

#define SLICE_NS 10000000u /* how often a sleeper checks whether the wait has become pointless */

struct ntx_stage {
    struct ntx_stream *s;
    uint32_t first, n; /* its requests */
    pthread_mutex_t lock;
    struct ntx_stage_pass pass;     /* reads NULL: none is under way */
    uint32_t allowed, posted, done; /* the first reads of the list */
    struct ntx_err error;           /* of this pass; code 0: none */
};

uint8_t *ntx_stage_memory(const struct ntx_stage *g) { return g->s->r->base + g->s->r->hdr->off_stage; }

struct ntx_stage *ntx_stream_stage(struct ntx_stream *s) { return s->stage; }

static uint32_t request_of(const struct ntx_stage *g, uint32_t read) { return g->first + read % g->n; }

static uint32_t load_word(const struct ntx_stage *g, uint32_t request)
{
    /* Acquire: pairs with iod's release of the state; the bytes are there. */
    return atomic_load_explicit(&g->s->r->demand[request].word, memory_order_acquire);
}

static bool is_quarantined(const struct ntx_stage *g)
{
    for (uint32_t i = g->first; i < g->first + g->n; i++)
        if (atomic_load_explicit(&g->s->r->request[i].quarantined, memory_order_acquire))
            return true;
    return false;
}

static void fail_stage(struct ntx_stage *g, int rc, const char *text)
{
    if (!g->error.code)
        ntx_err_set(&g->error, rc, "%s", text);
}

/* ---- requests */

static void post_read(struct ntx_stage *g, uint32_t read)
{
    const struct ntx_stage_read *from = &g->pass.reads[read];
    const uint32_t i = request_of(g, read);
    const struct ntx_region_hdr *h = g->s->r->hdr;
    struct ntx_read_request *a = &g->s->r->request[i];
    a->file = g->pass.file;
    a->offset = from->offset;
    a->bytes = from->bytes;
    a->dest = h->off_stage + from->at - from->offset % h->block;
    atomic_store_explicit(&a->early, NTX_PREFETCH_READ, memory_order_relaxed);
    ntx__own_post(g->s, i);
}

static void fail_read(struct ntx_stage *g, uint32_t read)
{
    const struct ntx_stage_read *from = &g->pass.reads[read];
    const int rc = ntx__iod_errno(g->s->r->demand[request_of(g, read)].err);
    char text[256];
    if (!ntx__stream_wait_text(g->s, NTX_STAGE_CHUNK, text, sizeof text))
        snprintf(text, sizeof text, "cannot read %u bytes at offset %llu: %s", from->bytes,
                 (unsigned long long)from->offset, strerror(-rc));
    fail_stage(g, rc, text);
}

/* The next read of the list is done: its request is free again. False: not yet. */
static bool collect_read(struct ntx_stage *g)
{
    const uint32_t i = request_of(g, g->done), w = load_word(g, i);
    if (!ntx__settled(w, ntx__own_gen(g->s, i)))
        return false;
    if (ntx__demand_state(w) == NTX_FAILED)
        fail_read(g, g->done);
    ntx__own_free_demand(g->s, i);
    g->done++;
    return true;
}

/* Collects what is done, and posts what may be read. */
static void move_on(struct ntx_stage *g)
{
    uint32_t n = 0;
    while (!g->error.code && g->done < g->posted && collect_read(g))
        ;
    const bool may = !g->error.code && g->posted < g->allowed && !is_quarantined(g);
    for (; may && g->posted < g->allowed && g->posted - g->done < g->n; n++)
        post_read(g, g->posted++);
    if (!n)
        return;
    /* seq_cst, as in ntx__own_post: these stores precede the load of iod_asleep */
    atomic_fetch_add_explicit(&g->s->r->control->demand_posted, n, memory_order_seq_cst);
    ntx__stream_wake(g->s);
}

/* ---- waiting */

/* Fails the pass where waiting has become pointless. */
static void check_wait(struct ntx_stage *g, struct ntx_patience *patience)
{
    struct ntx_stream *s = g->s;
    char text[sizeof s->abort_text];
    const int rc = ntx__stream_aborted(s, text);
    if (rc)
        fail_stage(g, rc, text[0] ? text : strerror(-rc));
    else if (g->pass.unwanted && atomic_load_explicit(g->pass.unwanted, memory_order_relaxed))
        fail_stage(g, -ECANCELED, "cancelled");
    else if (g->done == g->posted && atomic_load_explicit(&s->unproved, memory_order_relaxed) && is_quarantined(g))
        fail_stage(g, -EIO, "ntx-iod died, and what it was reading may still come at any time: load the model again");
    else if (ntx_patience_over(patience))
        fail_stage(g, -ETIMEDOUT, "no byte came for too long: the drive hangs, or ntx-iod does not run");
}

/* Sleeps on the word of a request while it holds `seen`, without the lock. */
static void sleep_on(struct ntx_stage *g, uint32_t request, uint32_t seen)
{
    pthread_mutex_unlock(&g->lock);
    ntx__stream_wake(g->s);
    ntx_futex_wait(&g->s->r->demand[request].word, seen, SLICE_NS);
    pthread_mutex_lock(&g->lock);
}

int ntx_stage_wait(struct ntx_stage *g, uint32_t n, struct ntx_err *err)
{
    struct ntx_patience patience = ntx_patience(g->s->limit_ns);
    pthread_mutex_lock(&g->lock);
    for (uint32_t before = 0;; before = g->done) {
        move_on(g);
        if (g->error.code || g->done >= n)
            break;
        if (g->done != before)
            patience = ntx_patience(g->s->limit_ns);
        const uint32_t i = request_of(g, g->done), seen = load_word(g, i);
        check_wait(g, &patience);
        if (!g->error.code && !(g->done < g->posted && ntx__settled(seen, ntx__own_gen(g->s, i))))
            sleep_on(g, i, seen);
    }
    const int rc = g->error.code;
    if (rc)
        *err = g->error;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

void ntx_stage_allow(struct ntx_stage *g, uint32_t n)
{
    pthread_mutex_lock(&g->lock);
    g->allowed = NTX_MAX(g->allowed, NTX_MIN(n, g->pass.n));
    move_on(g);
    pthread_mutex_unlock(&g->lock);
}

/* ---- from one pass to the next */

/* The first request that iod has not let go since the pass before; first + n: none. */
static uint32_t busy_request(struct ntx_stage *g)
{
    for (uint32_t i = g->first; i < g->first + g->n; i++) {
        if (ntx_word_state(g->s->said[i]) == NTX_FREE || ntx__own_take_back(g->s, i))
            continue;
        if (!ntx__settled(load_word(g, i), ntx__own_gen(g->s, i)))
            return i;
        ntx__own_free_demand(g->s, i);
    }
    return g->first + g->n;
}

int ntx_stage_begin(struct ntx_stage *g, const struct ntx_stage_pass *p, struct ntx_err *err)
{
    struct ntx_patience patience = ntx_patience(g->s->limit_ns);
    pthread_mutex_lock(&g->lock);
    g->pass = *p;
    g->allowed = g->posted = g->done = 0;
    g->error = (struct ntx_err){0};
    ntx__stream_forget_texts(g->s, NTX_STAGE_CHUNK);
    for (;;) {
        const uint32_t i = busy_request(g), on = NTX_MIN(i, g->first + g->n - 1), seen = load_word(g, on);
        if (i == g->first + g->n && !is_quarantined(g))
            break;
        check_wait(g, &patience);
        if (g->error.code)
            break;
        if (i != on || !ntx__settled(seen, ntx__own_gen(g->s, i)))
            sleep_on(g, on, seen);
    }
    const int rc = g->error.code;
    if (rc)
        *err = g->error;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

void ntx_stage_end(struct ntx_stage *g)
{
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = g->first; i < g->first + g->n; i++)
        if (ntx_word_state(g->s->said[i]) == NTX_POSTED && !ntx__own_take_back(g->s, i))
            atomic_store_explicit(&g->s->r->request[i].early, NTX_CANCELLED, memory_order_relaxed);
    g->pass = (struct ntx_stage_pass){0};
    g->allowed = g->posted = g->done = 0;
    pthread_mutex_unlock(&g->lock);
}

/* ---- making */

int ntx__stage_new(struct ntx_stream *s, struct ntx_stage **out)
{
    const struct ntx_region_hdr *h = s->r->hdr;
    if (!h->n_stage_reads)
        return 0;
    struct ntx_stage *g = calloc(1, sizeof *g);
    if (!g)
        return -ENOMEM;
    *g = (struct ntx_stage){.s = s, .first = ntx_region_first_stage(h), .n = h->n_stage_reads};
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return 0;
}

void ntx__stage_free(struct ntx_stage *g)
{
    if (!g)
        return;
    pthread_mutex_destroy(&g->lock);
    free(g);
}
