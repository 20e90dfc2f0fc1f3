/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/draft_predict.h"

#include <math.h>

#include "common/util.h"
#include "computed/plan/predict.h"
#include "model/arch.h"
#include "model/gguf.h"

#define AHEAD       0.5  /* of the time that a pass waits for the drive: the draft model's work that is of use */
#define SHARED      2    /* times as long a step takes where the pass has all cores */
#define STEPS       0.5  /* of the draft model for a node of a tree; a chain, which is expected at first, takes one */
#define MISSED      0.47 /* drafts that do not hold, for each share of the layers that is left out, */
#define MISSED_MORE 1.5  /* and more of those beyond half (docs/log/drafts.md) */
#define WAITS       0.6  /* of a pass is computing at most, where it does not matter where in the model reads are */
#define COPY_BITS   2.96 /* per weight of a block in the mix Q2_K, mean */
#define OUTPUT_BITS 6.56 /* per weight of its output matrix */

static bool draft_by_layers(const struct ntx_plan *p, const struct ntx_draft_request *r)
{
    return r->layers && p->n_without;
}

static double layers_step_s(const struct ntx_hw *hw, const struct ntx_model *m, const struct ntx_plan *p)
{
    struct ntx_load_bytes load;
    struct ntx_forecast f;
    ntx_plan_load_draft(m, p, NTX_MIN(p->ctx, NTX_PLAN_TEXT), &load);
    return ntx_predict(hw, &load, &f) ? 0 : f.pass_s;
}

bool ntx_draft_layers_free(const struct ntx_forecast *plain) { return plain->compute_s <= WAITS * plain->drive_s; }

/* Tokens that the i-th draft (from 0) adds: of a chain, by layers; else by statistics of all models. */
static double gain_of(const struct ntx_model *m, const struct ntx_plan *p, const struct ntx_draft_request *r,
                      uint32_t i, bool *known)
{
    const double out = (double)p->n_without / m->hp.n_layers;
    if (draft_by_layers(p, r))
        return pow(1 - MISSED * out - MISSED_MORE * NTX_MAX(out - 0.5, 0.0), i + 1);
    return ntx_draft_stats_gain(r->stats, r->kind, i, known);
}

/* Seconds of a pass with n drafts beside one row, which take the draft model so many steps. 0: unknown. */
static double pass_s(const struct ntx_hw *hw, const struct ntx_model *m, const struct ntx_plan *p,
                     const struct ntx_draft_request *r, uint32_t n, double steps)
{
    struct ntx_load_bytes load;
    struct ntx_forecast f;
    if (!ntx_plan_load(m, p, n + 1, n + 1, NTX_MIN(p->ctx, NTX_PLAN_TEXT), &load) || ntx_predict(hw, &load, &f))
        return 0;
    if (draft_by_layers(p, r))
        return f.pass_s + steps * layers_step_s(hw, m, p);
    const double step = r->row_s * (p->threads < hw->threads ? 1 : SHARED),
                 ahead = AHEAD * NTX_MAX(f.pass_s - f.compute_s, 0.0);
    return f.pass_s + NTX_MAX(steps * step - ahead, 0.0);
}

static uint32_t most_nodes(const struct ntx_plan *p)
{
    return NTX_MAX(NTX_MIN(p->max_rows, p->clients.logits_rows + p->clients.few_rows), 1u) - 1;
}

/* As many drafts as the passes of earlier loads had, of which as many held. */
static void expect_as_before(const struct ntx_hw *hw, const struct ntx_model *m, const struct ntx_plan *p,
                             const struct ntx_draft_request *r, struct ntx_draft_forecast *out)
{
    const uint32_t most = most_nodes(p);
    double tokens = 1, s = 0, nodes = 0;
    for (uint32_t n = 0; n <= most; n++) {
        double share = ntx_draft_stats_share(r->stats, r->kind, n, most);
        s += share > 0 ? share * pass_s(hw, m, p, r, n, n * STEPS) : 0;
        nodes += n * share;
        tokens += n ? ntx_draft_stats_held(r->stats, r->kind, n - 1) : 0;
    }
    *out = (struct ntx_draft_forecast){(uint32_t)(nodes + 0.5), tokens, s > 0 ? tokens / s : 0, true};
}

/* The number of draft tokens that gives the most tokens a second, or the requested one. */
void ntx_draft_predict(const struct ntx_hw *hw, const struct ntx_model *m, const struct ntx_plan *p,
                       const struct ntx_draft_request *r, struct ntx_draft_forecast *out)
{
    const struct ntx_draft_request by_text = {.stats = r->stats, .nodes = r->nodes, .learned = r->learned};
    if (r->layers && !p->n_without) /* they are too few, or all */
        r = &by_text;
    if (!r->nodes && !draft_by_layers(p, r) && ntx_draft_stats_known(r->stats, r->kind)) {
        expect_as_before(hw, m, p, r, out);
        return;
    }
    if (r->learned)
        return;
    uint32_t most = NTX_MIN(r->nodes ? r->nodes : NTX_DRAFT_STATS_RANKS, most_nodes(p));
    double tokens = 1;
    for (uint32_t n = 0; n <= most; n++) {
        tokens += n ? gain_of(m, p, r, n - 1, &out->known) : 0;
        double s = n < most && r->nodes ? 0 : pass_s(hw, m, p, r, n, n);
        if (s <= 0 || tokens / s <= out->tok_s)
            continue;
        out->nodes = n;
        out->tokens = tokens;
        out->tok_s = tokens / s;
    }
}

static bool is_looked_up(const struct ntx_model *m, uint32_t tensor)
{
    return (tensor == m->token_embd && tensor != m->output) || tensor == m->input_embd || tensor == m->gram_embd;
}

/* The weights that a row is multiplied by, in memory; in a copy, in the types that the mix Q2_K gives them. */
static struct ntx_load_bytes row_load(const struct ntx_model *m, bool copy)
{
    struct ntx_load_bytes l = {.rows = 1, .asked = 1, .threads = 1, .n_layers = m->hp.n_layers};
    for (uint32_t i = 0; i < ntx_gguf_n_tensors(m->gguf); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, i);
        if (t->n_dims < 2 || is_looked_up(m, i))
            continue;
        double n = (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2];
        if (copy && i != m->output)
            l.bytes[NTX_TIER_HOST][NTX_Q2_K] += n * COPY_BITS / 8;
        else if (copy)
            l.bytes[NTX_TIER_HOST][NTX_Q6_K] += n * OUTPUT_BITS / 8;
        else
            l.bytes[NTX_TIER_HOST][t->type] += (double)t->bytes;
    }
    return l;
}

uint64_t ntx_draft_copy(const struct ntx_hw *hw, const struct ntx_model *m, double *row_s)
{
    const struct ntx_load_bytes l = row_load(m, true);
    struct ntx_forecast f;
    if (m->hp.n_expert || ntx_predict(hw, &l, &f))
        return 0;
    *row_s = f.pass_s;
    return (uint64_t)(l.bytes[NTX_TIER_HOST][NTX_Q2_K] + l.bytes[NTX_TIER_HOST][NTX_Q6_K]);
}

double ntx_draft_row_s(const struct ntx_hw *hw, int fd)
{
    struct ntx_gguf *g = NULL;
    struct ntx_model *m = NULL;
    struct ntx_err ignored = {0};
    double s = 0;
    if (!ntx_gguf_open(&fd, 1, NULL, &g, &ignored) && !ntx_model_open(g, &m, &ignored)) {
        const struct ntx_load_bytes l = row_load(m, false);
        struct ntx_forecast f;
        s = ntx_predict(hw, &l, &f) ? 0 : f.pass_s;
    }
    ntx_model_free(m);
    ntx_gguf_free(g);
    return s;
}
