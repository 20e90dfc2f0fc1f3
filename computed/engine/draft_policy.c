/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/draft_policy.h"

#include "common/util.h"

#define UNKNOWN   0.1        /* least chance of a node before a pass was measured */
#define LEAST     0.005      /* of any node */
#define SURER     1.05       /* margin by which drafts must pay under --draft auto */
#define PRIOR     (1 / 16.0) /* time of one more row, in plain passes */
#define MANY_ROWS 4u
#define FADE      0.9
#define TEXTS     20000.0 /* tokens over which texts are learned from */

/* ns of a pass of so many rows. */
static double pass_ns(const struct ntx_draft_policy *p, double rows)
{
    return ntx_pace_of(&p->pace, ntx_pace_union(p->expert_share, rows));
}

/* A pass with n drafts beside `rows` others. Rows of experts are computed after what is read for them. */
static double drafting_ns(const struct ntx_draft_policy *p, double rows, double n)
{
    return pass_ns(p, rows + n) + (p->expert_share > 0 ? p->row_ns * n : 0);
}

static bool is_measured(const struct ntx_draft_policy *p) { return p->pace.n > 0; }

double ntx_draft_policy_plain(const struct ntx_draft_policy *p, uint32_t writers)
{
    double paced = pass_ns(p, writers), measured = p->turn.rate[0] > 0 ? writers / p->turn.rate[0] : paced;
    return p->models ? NTX_MIN(paced, measured) : paced;
}

double ntx_draft_policy_worth(const struct ntx_draft_policy *p, uint32_t writers)
{
    double plain = ntx_draft_policy_plain(p, writers), rate = p->rate_ns > 0 ? p->rate / p->rate_ns : 0;
    return NTX_MAX(plain > 0 ? writers / plain : 0, rate) * (p->automatic ? SURER : 1);
}

double ntx_draft_policy_least(const struct ntx_draft_policy *p, uint32_t writers)
{
    if (p->asked)
        return 0;
    if (!is_measured(p))
        return p->automatic && (!p->reads || p->expert_share > 0) ? 1 : UNKNOWN;
    double none = drafting_ns(p, writers, 0),
           more = drafting_ns(p, writers, p->drafted + 1) - drafting_ns(p, writers, p->drafted);
    for (uint32_t n = 1; n < NTX_DRAFT_STATS_FEW; n++) /* the first rows may be cheap together */
        more = NTX_MIN(more, (drafting_ns(p, writers, n) - none) / n);
    return NTX_MAX(more * ntx_draft_policy_worth(p, writers), LEAST);
}

/* Before any pass was measured: time of a pass with n drafts, in plain passes. */
static double expected_passes(const struct ntx_draft_policy *p, uint32_t writers, uint32_t n)
{
    const double row = p->pace.prior > 0 ? p->pace.prior : PRIOR;
    return 1 + (ntx_pace_union(p->expert_share, writers + n) - ntx_pace_union(p->expert_share, writers)) * row;
}

void ntx_draft_policy_cut(const struct ntx_draft_policy *p, struct ntx_draft *d, const struct ntx_draft_chances *c,
                          uint32_t writers)
{
    double ns[NTX_DRAFT_NODES], worth = ntx_draft_policy_worth(p, writers);
    bool measured = is_measured(p);
    if (p->asked)
        return;
    if (!measured)
        worth = p->automatic ? writers * SURER : writers;
    for (uint32_t i = 0; i < d->n; i++)
        ns[i] = measured ? drafting_ns(p, writers, i) : expected_passes(p, writers, i);
    d->n = ntx_draft_best(d, c, writers, ns, worth);
}

void ntx_draft_policy_proposed(struct ntx_draft_policy *p, uint32_t nodes) { p->drafted += 0.1 * (nodes - p->drafted); }

/* Compute time of a row, by the pass with the most rows. A disturbance only adds time. */
static void learn_row_ns(struct ntx_draft_policy *p, uint32_t rows, double busy)
{
    if (rows < MANY_ROWS || rows < p->row_ns_of)
        return;
    double row = busy / rows;
    p->row_ns = p->row_ns_of ? NTX_MIN(p->row_ns, row) : row;
    p->row_ns_of = rows;
    if (!p->expert_share)
        p->pace.row = p->row_ns;
}

void ntx_draft_policy_prompt(struct ntx_draft_policy *p, uint32_t rows, double ns, double waited)
{
    learn_row_ns(p, rows, NTX_MAX(ns - waited, 0.0));
}

void ntx_draft_policy_pass(struct ntx_draft_policy *p, uint32_t rows, double ns, double waited)
{
    learn_row_ns(p, rows, NTX_MAX(ns - waited, 0.0));
    ntx_pace_add(&p->pace, ntx_pace_union(p->expert_share, rows), ns, p->expert_share > 0 ? 0 : waited);
}

/* Look-up alone would have needed another pass where its proposal ended, and would then have gone on as lately. */
static void learn_texts(struct ntx_draft_policy *p, uint32_t tokens, double looked, double others, double ns)
{
    struct ntx_draft_texts *t = &p->texts;
    const double keep = 1 - NTX_MIN(tokens / TEXTS, 1.0);
    t->tokens = t->tokens * keep + tokens;
    t->ns = t->ns * keep + ns;
    t->alone = t->alone * keep + 1 + others / (1 + p->looked);
    p->looked = p->looked * FADE + looked * (1 - FADE);
}

void ntx_draft_policy_wrote(struct ntx_draft_policy *p, uint32_t tokens, uint32_t looked, uint32_t texts, double ns,
                            double waited)
{
    p->rate = p->rate * FADE + tokens;
    p->rate_ns = p->rate_ns * FADE + ns;
    if (!p->models || p->asked)
        return;
    if (p->turn.on && texts)
        learn_texts(p, tokens, (double)looked / texts, (double)(tokens - looked) / texts - 1, ns);
    ntx_draft_turn_pass(&p->turn, tokens, ns, waited);
}
