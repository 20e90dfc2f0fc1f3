/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"
#include "model/state.h"

/* Cost of one more row that shares no expert, of the experts' bytes of a pass, until it is measured (0.95 to 1.1
 * where a pass reads nothing else). */
#define EXPERTS_ROW 0.95
#define LATER       300u /* passes: a small draft model takes a core from passes, so in memory it is tried late */
#define SAVE_NS     5000000000u /* for writing states at the end */

static void free_job(struct ntx_job *j)
{
    ntx_reply_queue_unref(j->replies);
    ntx_request_free(j->req);
    free(j);
}

/* Takes all jobs and all prompts that were read. wait: blocks until there is one, or a poke. */
static struct ntx_job *take_jobs(struct ntx_engine *e, bool wait, struct ntx_reading **read)
{
    pthread_mutex_lock(&e->lock);
    while (wait && !e->jobs && !e->read && !e->poked)
        pthread_cond_wait(&e->wake, &e->lock);
    *read = e->read;
    e->read = NULL;
    e->last_read = &e->read;
    struct ntx_job *j = e->jobs;
    e->jobs = NULL;
    e->last_job = &e->jobs;
    e->poked = false;
    pthread_mutex_unlock(&e->lock);
    return j;
}

static void do_jobs(struct ntx_engine *e, bool wait)
{
    struct ntx_reading *read;
    for (struct ntx_job *j = take_jobs(e, wait, &read), *next; j; j = next) {
        next = j->next;
        ntx__engine_job(e, j);
        free_job(j);
    }
    for (struct ntx_reading *r = read, *next; r; r = next) {
        next = r->next;
        ntx__engine_read(e, r);
        ntx_reading_free(r);
    }
}

/* Reports once to the main thread that all requests have ended. */
static void tell_idle(struct ntx_engine *e)
{
    bool busy = ntx_engine_busy(e);
    if (e->was_busy && !busy)
        ntx_mail_note(e->c.mail, NTX_MAIL_IDLE);
    e->was_busy = busy;
}

static void *engine_main(void *arg)
{
    struct ntx_engine *e = arg;
    bool idle = !e->preloading;
    while (!e->quit) {
        do_jobs(e, idle);
        e->was_busy = true; /* a job that failed at once was work, too */
        ntx__engine_read_more(e);
        ntx__engine_admit(e);
        ntx__engine_gauges(e);
        idle = e->quit || !ntx__engine_pass(e);
        ntx__engine_gauges(e);
        tell_idle(e);
        if (idle) {
            ntx__engine_draft_stats_keep(e);
            ntx__engine_heat_keep(e);
        }
        idle = idle && !ntx__engine_prefix_store_save(e) && !ntx__engine_preload(e);
    }
    for (struct ntx_session *s = e->sessions; s; s = s->next)
        if (s->state == NTX_SESSION_IDLE && s->n_past)
            ntx__engine_keep(e, s, true);
    for (uint64_t until = ntx_now_ns() + SAVE_NS; ntx_now_ns() < until && ntx__engine_prefix_store_save(e);)
        ;
    ntx__engine_draft_stats_keep(e);
    ntx__engine_heat_keep(e);
    while (e->sessions)
        ntx__engine_drop(e, e->sessions);
    ntx__engine_gauges(e);
    ntx_mail_note(e->c.mail, NTX_MAIL_STOPPED);
    return NULL;
}

/* Share of a plain pass's time that one more row takes: bytes of experts outside memory among all bytes read. Matrices
 * read for every pass are read once for all rows. */
static double experts_row(const struct ntx_plan *p, double share)
{
    double always = 0;
    for (uint32_t i = 0; i < p->geo.n_sched; i++)
        always += (double)p->chunks->list[p->sched[i]].bytes;
    double experts = share * NTX_MAX((double)p->bytes_storage - always, 0.0);
    return experts > 0 ? NTX_MAX(EXPERTS_ROW * experts / (experts + always), 1 / 16.0) : EXPERTS_ROW;
}

static int make_buffers(struct ntx_engine *e)
{
    size_t rows = e->l->logits_rows;
    e->max_rows = e->l->plan->max_rows;
    e->live = calloc(e->l->max_sessions, sizeof *e->live);
    e->rows = calloc(e->max_rows, sizeof *e->rows);
    e->logits = malloc(rows * e->l->env.n_vocab * sizeof *e->logits);
    e->draws_few = !e->l->device && !e->l->machines;
    e->n_few = e->draws_few ? NTX_MIN(e->l->few_rows, e->max_rows) : 0;
    e->few = calloc(e->n_few + (size_t)e->l->max_sessions, sizeof *e->few);
    e->best = malloc((e->l->device ? rows : 1) * NTX_BEST_MAX * sizeof *e->best);
    e->members = calloc(e->l->max_sessions, sizeof *e->members);
    const char *never = ntx__load_undrafted(e->l);
    e->chains = !ntx_keeps_rows_only(&e->l->model->hp);
    e->lookup = (ntx_draft_looks_up(e->l->set.draft) || e->l->drafters_unfit) && !never;
    e->n_files = never ? 0 : e->l->n_drafters;
    e->drafting = e->n_files || e->lookup;
    if (never && ntx_draft_looks_up(e->l->set.draft) && !ntx_draft_auto(e->l->set.draft))
        ntx_log(NTX_LOG_WARN, "--draft lookup is off: layers of a %s model keep a recurrent state, and %s",
                e->l->model->hp.arch, never);
    bool model = false;
    for (unsigned i = 0; i < e->n_files; i++) {
        struct ntx_load_drafter *d = &e->l->drafter[i];
        e->file[i] = (struct ntx_draft_file){.number = i,
                                             .drafter_file = d->drafter_file,
                                             .by_states = d->by_states,
                                             .part = d->drafter_file || d->by_states ? NULL : &d->drafts};
        e->by_states = d->by_states ? &e->file[i] : e->by_states;
        e->left_width += d->by_states ? d->needs.n_taps * e->l->model->hp.n_embd : 0;
        model |= !d->drafter_file;
    }
    e->left = e->left_width ? malloc((size_t)e->max_rows * e->left_width * sizeof *e->left) : NULL;
    ntx_gap_begin(&e->gap, (double)e->l->set.max_gap);
    const struct ntx_hparams *hp = &e->l->model->hp;
    bool reads = e->l->plan->geo.n_sched || e->l->plan->frames.n; /* for every pass: there drafts mostly pay */
    struct ntx_draft_policy *p = &e->policy;
    *p = (struct ntx_draft_policy){
        .automatic = ntx_draft_auto(e->l->set.draft) && !e->l->set.draft_nodes,
        .models = model,
        .reads = reads,
        .asked = e->l->set.draft_nodes,
        .expert_share = hp->n_expert && e->l->plan->frames.n ? (double)hp->n_expert_used / hp->n_expert : 0,
        .gain = 2,
    };
    p->pace.prior = p->expert_share > 0 ? experts_row(e->l->plan, p->expert_share) : 0;
    ntx_draft_turn_begin(&p->turn, !model || p->asked || reads);
    if (p->automatic && model && !reads)
        p->turn.left = p->turn.rest = LATER;
    e->drafts = calloc(e->drafting ? e->l->max_sessions : 1, sizeof *e->drafts);
    e->parts = calloc(NTX_DRAFT_SOURCES, sizeof *e->parts);
    ntx__engine_draft_stats_new(e);
    ntx__engine_heat_new(e);
    if (ntx__engine_prefix_new(e))
        return -ENOMEM;
    ntx__engine_prefix_store_new(e);
    uint32_t n = e->l->capture_rows;
    e->captures = calloc(n + 1, sizeof *e->captures);
    e->capture_memory = calloc(n * ntx_capture_floats(e->l->model, e->l->capture_ffns) + 1, sizeof(float));
    return (!e->left_width || e->left) && e->drafts && e->parts && e->live && e->rows && e->logits && e->few &&
                   e->best && e->captures && e->capture_memory && e->members
               ? 0
               : -ENOMEM;
}

static void free_engine(struct ntx_engine *e)
{
    ntx_reader_free(e->reader); /* before the encoder, which gets prompts from it */
    ntx_reader_free(e->encoder);
    for (struct ntx_reading *r = e->read, *next; r; r = next) {
        next = r->next;
        ntx_reading_free(r);
    }
    for (struct ntx_job *j = e->jobs, *next; j; j = next) {
        next = j->next;
        free_job(j);
    }
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    ntx__engine_prefix_store_free(e);
    ntx_prefix_free(e->prefix);
    free(e->live);
    free(e->rows);
    free(e->logits);
    free(e->left);
    free(e->few);
    free(e->best);
    free(e->members);
    free(e->drafts);
    free(e->parts);
    free(e->captures);
    free(e->capture_memory);
    free(e);
}

/* In the reader's or the encoder's thread. */
static void on_seen(void *ctx, struct ntx_reading *r)
{
    struct ntx_engine *e = ctx;
    r->next = NULL;
    pthread_mutex_lock(&e->lock);
    *e->last_read = r;
    e->last_read = &r->next;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* In the reader's thread. */
static void on_read(void *ctx, struct ntx_reading *r)
{
    struct ntx_engine *e = ctx;
    if (r->prompt.unseen && !atomic_load(&r->unwanted))
        ntx_reader_put(e->encoder, r);
    else
        on_seen(e, r);
}

int ntx_engine_new(const struct ntx_engine_config *c, struct ntx_engine **out, struct ntx_err *err)
{
    struct ntx_engine *e = calloc(1, sizeof *e);
    if (!e)
        return ntx_err_set(err, -ENOMEM, "no memory");
    e->c = *c;
    e->l = c->loaded;
    e->last_job = &e->jobs;
    e->last_read = &e->read;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    int rc = make_buffers(e);
    ntx_forward_watch(e->l->forward, ntx__engine_step, e);
    if (!rc)
        rc = ntx_reader_new(ntx_prompt_encode, on_seen, e, &e->encoder);
    if (!rc)
        rc = ntx_reader_new(ntx_prompt_read, on_read, e, &e->reader);
    if (!rc)
        rc = -pthread_create(&e->thread, NULL, engine_main, e);
    if (rc) {
        free_engine(e);
        return ntx_err_set(err, rc, "cannot start the engine: %s", strerror(-rc));
    }
    *out = e;
    return 0;
}

void ntx_engine_poke(struct ntx_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->poked = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

uint64_t ntx_engine_saved(const struct ntx_engine *e)
{
    return atomic_load_explicit(&((struct ntx_engine *)(uintptr_t)e)->saved, memory_order_relaxed);
}

bool ntx_engine_busy(const struct ntx_engine *e)
{
    struct ntx_engine *q = (struct ntx_engine *)(uintptr_t)e;
    return atomic_load(&q->n_working);
}

void ntx_engine_free(struct ntx_engine *e)
{
    if (!e)
        return;
    pthread_join(e->thread, NULL);
    free_engine(e);
}
