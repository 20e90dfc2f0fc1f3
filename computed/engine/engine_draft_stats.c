/* SPDX-License-Identifier: Apache-2.0 */
/* Draft statistics (computed/plan/draft_stats.h) outlive the load: a short run begins with acceptance chances and
 * speeds that hold for its model. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/engine_impl.h"

#define NEWS 8u /* passes, or tokens where drafts held; fewer are not worth writing the file */

unsigned ntx__engine_draft_place(const struct ntx_engine *e)
{
    if (!e->n_files)
        return 0;
    return e->lookup ? 2 : 1;
}

static const struct ntx_draft_stats_place *find_place(const struct ntx_engine *e)
{
    return ntx_draft_stats_place(&e->draft_stats, ntx__engine_draft_place(e), e->l->plan->threads,
                                 e->l->plan->bytes_storage);
}

/* The turn resumes where the last load ended: drafts that did not pay are tried again when their rest is over. Drafts
 * that paid in memory are tried anew, since few short passes decided that. */
static void resume_turn(struct ntx_engine *e, const struct ntx_draft_stats_place *p)
{
    struct ntx_draft_turn *turn = &e->policy.turn;
    const double *pace = p->pace, prior = e->policy.pace.prior;
    e->policy.pace = (struct ntx_pace){pace[0], pace[1], pace[2], pace[3], pace[4], pace[5], .prior = prior};
    memcpy(e->policy.pace.few, p->few, sizeof p->few);
    e->policy.texts = p->texts;
    bool doubtful = p->on && !e->l->plan->geo.n_sched;
    if (e->l->set.draft_nodes || !e->policy.models || p->rate[p->on] <= 0 || doubtful)
        return;
    *turn = (struct ntx_draft_turn){.on = p->on,
                                    .rate = {p->rate[0], p->rate[1]},
                                    .left = NTX_MAX(p->left, 1u),
                                    .rest = NTX_MAX(p->rest, turn->rest)};
    if (p->tries && !p->on) /* another load had it on trial */
        turn->left = 1;
}

void ntx__engine_draft_stats_new(struct ntx_engine *e)
{
    struct ntx_err err = {0};
    ntx_draft_stats_begin(&e->draft_stats, ntx_draft_believed);
    int rc = e->drafting && e->l->gguf ? ntx_load_draft_stats(e->l, &e->draft_stats, e->digest, &err) : -ENOENT;
    if (rc && rc != -ENOENT)
        ntx_log(NTX_LOG_WARN, "draft statistics begin anew: %s", err.text);
    if (rc && e->policy.automatic && !e->l->plan->geo.n_sched)
        ntx_draft_chances_doubt(&e->draft_stats.chances);
    if (!rc && find_place(e))
        resume_turn(e, find_place(e));
}

/* Stores this load's results. A trial under way decides nothing, so the state before it is stored. */
static void settle_stats(struct ntx_engine *e)
{
    const struct ntx_draft_turn *t = &e->policy.turn;
    const struct ntx_pace *pace = &e->policy.pace;
    struct ntx_draft_stats_place p = {
        .way = ntx__engine_draft_place(e),
        .threads = e->l->plan->threads,
        .streamed = e->l->plan->bytes_storage,
        .on = t->trial ? !t->on : t->on,
        .left = t->trial ? 1 : t->left,
        .rest = t->rest,
        .rate = {t->rate[0], t->rate[1]},
        .pace = {pace->n, pace->rows, pace->ns, pace->rows2, NTX_MAX(pace->rows_ns, 0.0), pace->floor},
    };
    memcpy(p.few, pace->few, sizeof p.few);
    p.texts = e->policy.texts;
    const struct ntx_draft_stats_place *before = find_place(e);
    p.tries = before && !p.on ? before->tries : 0;
    if (e->l->set.draft_nodes && before) { /* the user set the nodes, so nothing was learned of what pays */
        p.on = before->on;
        p.left = before->left;
        p.rest = before->rest;
        memcpy(p.rate, before->rate, sizeof p.rate);
    }
    ntx_draft_stats_settle(&e->draft_stats, &p);
}

void ntx__engine_draft_stats_keep(struct ntx_engine *e)
{
    struct ntx_err err = {0};
    if (!*e->digest || e->draft_news < NEWS)
        return;
    e->draft_news = 0;
    settle_stats(e);
    if (!ntx_draft_stats_store(e->digest, &e->draft_stats, &err))
        return;
    ntx_log(NTX_LOG_DEBUG, "%s", err.text);
    *e->digest = 0; /* one failure ends it */
}
