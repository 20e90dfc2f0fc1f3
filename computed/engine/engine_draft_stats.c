/* SPDX-License-Identifier: Apache-2.0 */
/* What is learned of guesses (computed/plan/draft_stats.h) outlives the load: so a short run, too, begins with chances
 * that hold for its model, and with what paid. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"

#define NEWS 8u /* passes; fewer are not worth a file */

unsigned ntx__engine_draft_place(const struct ntx_engine *e)
{
    return e->lookup && e->n_files ? 2 : e->n_files ? 1 : 0;
}

static const struct ntx_draft_stats_place *place(const struct ntx_engine *e)
{
    return ntx_draft_stats_place(&e->guesses, ntx__engine_draft_place(e), e->l->plan->threads,
                                 e->l->plan->bytes_storage);
}

/* A turn goes on where the one before ended: what did not pay then is tried again when its rest is over. That it paid
 * in memory is not believed, where what a few short passes took decided it: that is tried anew. */
static void resume(struct ntx_engine *e, const struct ntx_draft_stats_place *p)
{
    e->pace = (struct ntx_pace){p->pace[0], p->pace[1], p->pace[2], p->pace[3], p->pace[4], e->pace.guess};
    bool doubtful = p->on && !e->l->plan->geo.n_sched;
    if (e->l->set.draft_nodes || p->rate[p->on] <= 0 || doubtful)
        return;
    e->turn = (struct ntx_draft_turn){.on = p->on,
                                      .rate = {p->rate[0], p->rate[1]},
                                      .left = NTX_MAX(p->left, 1u),
                                      .rest = NTX_MAX(p->rest, e->turn.rest)};
    if (p->tries && !p->on) /* taken again to be tried */
        e->turn.left = 1;
}

void ntx__engine_draft_stats_new(struct ntx_engine *e)
{
    struct ntx_err err = {0};
    ntx_draft_stats_begin(&e->guesses, ntx_draft_believed);
    int rc = e->drafting && e->l->gguf ? ntx_load_draft_stats(e->l, &e->guesses, e->digest, &err) : -ENOENT;
    if (rc && rc != -ENOENT)
        ntx_log(NTX_LOG_WARN, "guesses begin anew: %s", err.text);
    if (rc && e->automatic && !e->l->plan->geo.n_sched)
        ntx_draft_chances_doubt(&e->guesses.chances);
    if (!rc && place(e))
        resume(e, place(e));
}

/* Nothing is known of a row by fewer passes, or of what pays while a trial is under way. */
static void settle(struct ntx_engine *e)
{
    const struct ntx_draft_turn *t = &e->turn;
    struct ntx_draft_stats_place p = {
        .way = ntx__engine_draft_place(e),
        .threads = e->l->plan->threads,
        .streamed = e->l->plan->bytes_storage,
        .on = t->trial ? !t->on : t->on,
        .left = t->trial ? 1 : t->left,
        .rest = t->rest,
        .rate = {t->rate[0], t->rate[1]},
        .pace = {e->pace.n, e->pace.rows, e->pace.rows2, e->pace.ns, e->pace.rows_ns},
    };
    const struct ntx_draft_stats_place *before = place(e);
    p.tries = before && !p.on ? before->tries : 0;
    if (e->l->set.draft_nodes && before) { /* nobody asked whether it pays */
        p.on = before->on;
        p.left = before->left;
        p.rest = before->rest;
        memcpy(p.rate, before->rate, sizeof p.rate);
    }
    ntx_draft_stats_settle(&e->guesses, &p);
}

void ntx__engine_draft_stats_keep(struct ntx_engine *e)
{
    struct ntx_err err = {0};
    if (!*e->digest || e->draft_news < NEWS)
        return;
    e->draft_news = 0;
    settle(e);
    if (!ntx_draft_stats_store(e->digest, &e->guesses, &err))
        return;
    ntx_log(NTX_LOG_DEBUG, "%s", err.text);
    *e->digest = 0; /* once is enough */
}
