/* SPDX-License-Identifier: Apache-2.0 */
#include "predictor/drafting.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/draft/drafter.h"
#include "shm/drafts.h"

_Static_assert(NTX_DRAFTS_NODES >= NTX_DRAFTER_NODES && NTX_DRAFTS_TEXTS <= NTX_DRAFTER_TEXTS, "");

#define NICE    10
#define LOOK_NS 100000000u /* longest wait before it checks for a stop */

struct followed { /* a text that wants a draft */
    uint32_t seq; /* seq of the text that the drafter has; 0: none yet */
    int number;   /* the drafter's number for the text; negative: it has none */
    bool done;
    struct ntx_drafts_text request;
};

struct ntx_drafting {
    struct ntx_drafts part;
    struct ntx_drafter *drafter;
    pthread_t thread;
    atomic_bool stop;
    int file;
    struct ntx_segment lent; /* the file's weights in memory, by their offsets; or none */
    unsigned number;
    struct ntx_counters *counters;
    int32_t *tokens; /* [ctx] */
    struct followed text[NTX_DRAFTS_TEXTS];
    struct ntx_draft_node nodes[NTX_DRAFTER_NODES];
};

static void publish_tree(struct ntx_drafting *d, unsigned i)
{
    const struct followed *f = &d->text[i];
    struct ntx_drafts_tree *t = &d->part.answers->tree[i];
    uint32_t n = f->number < 0 ? 0 : ntx_drafter_tree(d->drafter, (unsigned)f->number, d->nodes);
    ntx_drafts_open_seq(&t->seq);
    t->n_text = f->request.n;
    t->session = f->request.session;
    t->n_nodes = n;
    t->n_expanded = n ? ntx_drafter_expanded(d->drafter, (unsigned)f->number) : 0;
    t->done = f->done;
    for (uint32_t k = 0; k < n; k++)
        t->node[k] = (struct ntx_drafts_node){d->nodes[k].token, d->nodes[k].parent, d->nodes[k].chance};
    ntx_drafts_close_seq(&t->seq, &d->part.answers->bell);
}

/* Texts share the drafter's slots: a text that lost its slot is followed anew at its next request. */
static void assign_slot(struct ntx_drafting *d, unsigned i, int number)
{
    for (unsigned k = 0; k < NTX_DRAFTS_TEXTS; k++)
        if (k != i && d->text[k].number == number)
            d->text[k].number = -1;
    d->text[i].number = number;
}

static void take_request(struct ntx_drafting *d, unsigned i)
{
    struct followed *f = &d->text[i];
    uint32_t seq = atomic_load_explicit(&d->part.requests->text[i].seq, memory_order_relaxed);
    struct ntx_drafts_text request = {0};
    if (seq == f->seq || !ntx_drafts_read_request(&d->part, i, &request, d->tokens, &seq))
        return;
    f->request = request; /* copied only now: the text that is followed stays unchanged on failure */
    const struct ntx_drafts_text *a = &f->request;
    const struct ntx_drafter_text t = {
        .session = a->session,
        .tokens = d->tokens,
        .n = a->n,
        .n_prompt = a->n_prompt,
        .sampling = {.temp = a->temp,
                     .top_p = a->top_p,
                     .min_p = a->min_p,
                     .repeat_penalty = a->repeat_penalty,
                     .presence_penalty = a->presence_penalty,
                     .frequency_penalty = a->frequency_penalty,
                     .top_k = a->top_k,
                     .repeat_last = a->repeat_last,
                     .seed = a->seed},
    };
    f->seq = seq;
    f->done = !a->n;
    if (f->done) /* no draft is wanted; the drafter keeps the text */
        return;
    assign_slot(d, i, ntx_drafter_follow(d->drafter, &t));
    f->done = f->number < 0;
    publish_tree(d, i);
}

static void expand_tree(struct ntx_drafting *d, unsigned i)
{
    struct followed *f = &d->text[i];
    if (!f->seq || f->done || f->number < 0)
        return;
    uint64_t t0 = ntx_traced_now(d->counters, NTX_TRACE_PREDICTOR);
    int rows = ntx_drafter_grow(d->drafter, (unsigned)f->number, f->request.most);
    f->done = rows <= 0;
    if (rows > 0)
        ntx_traced(d->counters, NTX_TRACE_PREDICTOR, NTX_TR_DRAFTING, t0,
                   ntx_traced_now(d->counters, NTX_TRACE_PREDICTOR), (uint32_t)rows, d->number, f->request.session);
    ntx_count(d->counters, NTX_C_pred_draft_rows, (uint64_t)NTX_MAX(rows, 0));
    publish_tree(d, i);
}

static void publish_state(struct ntx_drafting *d, enum ntx_drafts_state state, const char *why)
{
    struct ntx_drafts_answers *a = d->part.answers;
    snprintf(a->why, sizeof a->why, "%.*s", (int)sizeof a->why - 1, why);
    /* pairs with computed's acquire, after which it reads why */
    atomic_store_explicit(&a->state, (uint32_t)state, memory_order_release);
    atomic_fetch_add_explicit(&a->bell, 1, memory_order_release);
    ntx_futex_wake(&a->bell);
}

static bool serve_texts(struct ntx_drafting *d)
{
    bool busy = false;
    for (unsigned i = 0; i < NTX_DRAFTS_TEXTS; i++) {
        take_request(d, i);
        expand_tree(d, i);
        busy |= d->text[i].seq && !d->text[i].done;
    }
    return busy;
}

static void *run_drafter(void *arg)
{
    struct ntx_drafting *d = arg;
    struct ntx_err err = {0};
    if (setpriority(PRIO_PROCESS, (id_t)gettid(), NICE))
        ntx_log(NTX_LOG_WARN, "drafting has no lower priority: %s", strerror(errno));
    d->tokens = malloc(d->part.ctx * sizeof *d->tokens);
    const struct ntx_drafter_lent lent = {d->lent.at, d->lent.bytes};
    int rc = d->tokens ? 0 : ntx_err_set(&err, -ENOMEM, "no memory");
    if (!rc)
        rc = ntx_drafter_new(d->file, d->part.ctx, lent.at ? &lent : NULL, &d->drafter, &err);
    publish_state(d, rc ? NTX_DRAFTS_FAILED : NTX_DRAFTS_READY, err.text);
    while (!rc && !atomic_load_explicit(&d->stop, memory_order_relaxed)) {
        /* pairs with computed's ring of the bell: changes made before it are seen */
        uint32_t bell = atomic_load_explicit(&d->part.requests->bell, memory_order_acquire);
        if (!serve_texts(d))
            ntx_futex_wait(&d->part.requests->bell, bell, LOOK_NS);
    }
    return NULL;
}

static void free_drafting(struct ntx_drafting *d)
{
    ntx_drafter_free(d->drafter);
    ntx_drafts_close(&d->part);
    free(d->tokens);
    ntx_segment_close(&d->lent);
    close(d->file);
    free(d);
}

int ntx_drafting_start(int requests, int answers, int file, int lent, uint64_t epoch, unsigned number,
                       struct ntx_counters *counters, struct ntx_drafting **out, struct ntx_err *err)
{
    struct ntx_drafting *d = calloc(1, sizeof *d);
    if (!d) {
        close(requests);
        close(answers);
        close(file);
        if (lent >= 0)
            close(lent);
        return ntx_err_set(err, -ENOMEM, "no memory for a drafter");
    }
    d->lent = NTX_NO_SEGMENT;
    d->file = file;
    d->number = number;
    d->counters = counters;
    int rc = ntx_drafts_attach(requests, answers, epoch, &d->part, err);
    int mapped = lent < 0 ? 0 : ntx_segment_take(lent, NTX_SEGMENT_OWNED, 2u << 20, &d->lent, err);
    rc = rc ? rc : mapped;
    if (!rc && (rc = -pthread_create(&d->thread, NULL, run_drafter, d)))
        ntx_err_set(err, rc, "cannot start a thread: %s", strerror(-rc));
    if (rc) {
        free_drafting(d);
        return rc;
    }
    *out = d;
    return 0;
}

void ntx_drafting_stop(struct ntx_drafting *d)
{
    if (!d)
        return;
    atomic_store_explicit(&d->stop, true, memory_order_relaxed);
    pthread_join(d->thread, NULL);
    free_drafting(d);
}
