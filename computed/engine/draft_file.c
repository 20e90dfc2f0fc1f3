/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/draft_file.h"

#include <string.h>

#include "common/util.h"

/* ---- asking */

static unsigned place_of(struct ntx_draft_file *f, uint64_t session)
{
    unsigned oldest = 0;
    for (unsigned i = 0; i < NTX_DRAFTS_TEXTS; i++) {
        if (f->text[i].session == session)
            return i;
        oldest = f->text[i].asked < f->text[oldest].asked ? i : oldest;
    }
    f->text[oldest].session = session;
    f->text[oldest].n = 0;
    return oldest;
}

void ntx_draft_file_request(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most)
{
    unsigned i = place_of(f, t->session);
    const struct ntx_sampling *s = t->sampling;
    f->text[i].asked = ++f->asked;
    if (!t->n || t->n > f->part->ctx ||
        (f->text[i].n == t->n && f->text[i].n_prompt == t->n_prompt && f->text[i].seed == s->seed))
        return;
    f->text[i].n = t->n;
    f->text[i].n_prompt = t->n_prompt;
    f->text[i].seed = s->seed;
    const struct ntx_drafts_text request = {
        .n = t->n,
        .n_prompt = t->n_prompt,
        .top_k = s->top_k,
        .repeat_last = s->repeat_last,
        .temp = s->temp,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repeat_penalty = s->repeat_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .most = most,
        .session = t->session,
        .seed = s->seed,
    };
    ntx_drafts_post_request(f->part, i, &request, t->tokens);
}

static void stop_text(struct ntx_draft_file *f, unsigned i)
{
    const struct ntx_drafts_text nothing = {0};
    const int32_t none = 0;
    if (!f->text[i].n)
        return;
    f->text[i].n = 0;
    ntx_drafts_post_request(f->part, i, &nothing, &none);
}

void ntx_draft_file_rest(struct ntx_draft_file *f)
{
    for (unsigned i = 0; i < NTX_DRAFTS_TEXTS; i++)
        stop_text(f, i);
}

void ntx_draft_file_leave(struct ntx_draft_file *f, uint64_t session)
{
    for (unsigned i = 0; i < NTX_DRAFTS_TEXTS; i++)
        if (f->text[i].session == session)
            stop_text(f, i);
}

/* ---- the answer: a tree for a text of n_text tokens, of which ours may be longer */

static bool take_answer(struct ntx_draft_file *f, const struct ntx_draft_text *t)
{
    struct ntx_drafts_tree *x = &f->tree;
    if (!ntx_drafts_answered(f->part, place_of(f, t->session), x))
        return false;
    return x->session == t->session && x->n_nodes && x->n_text && x->n_text <= t->n &&
           x->node[0].token == t->tokens[x->n_text - 1];
}

/* Logs a failure once. The text comes from another process, so it is cleaned. */
static bool has_failed(struct ntx_draft_file *f)
{
    char why[sizeof f->part->answers->why];
    /* pairs with the drafter's release */
    if (atomic_load_explicit(&f->part->answers->state, memory_order_acquire) != NTX_DRAFTS_FAILED)
        return false;
    memcpy(why, f->part->answers->why, sizeof why);
    why[sizeof why - 1] = 0;
    for (char *p = why; *p; p++)
        *p = *p >= ' ' && *p < 127 ? *p : '?';
    if (!f->failure_logged)
        ntx_log(NTX_LOG_WARN, "no drafts: the drafter: %s", why);
    f->failure_logged = true;
    return true;
}

#define CHILD 0.8f /* of its parent's chance: more than most likeliest children have */

/* A leaf may still get a child with CHILD of its chance, so only nodes above that are settled. */
bool ntx__draft_settled(const struct ntx_drafts_tree *x, uint32_t most, double cost)
{
    float path[NTX_DRAFTS_NODES] = {1}, open = 0;
    bool leaf[NTX_DRAFTS_NODES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_nodes; i++) {
        uint32_t up = x->node[i].parent;
        leaf[i] = true;
        path[i] = up < i ? path[up] * x->node[i].chance : 0;
        if (!i)
            path[i] = 1;
        leaf[up < i ? up : i] = up >= i;
    }
    for (uint32_t i = 0; i < x->n_nodes; i++)
        open = leaf[i] && path[i] > open ? path[i] : open;
    for (uint32_t i = 0; i < x->n_nodes; i++)
        n += path[i] >= open * CHILD;
    return n >= most || (double)(open * CHILD) <= cost;
}

struct watched_steps { /* of a draft model, while its tree is waited for */
    uint64_t since;    /* 0: no tree yet */
    uint32_t expanded;
};

/* A change of the tree ends a step. The first one may have begun before. */
static void watch_step(struct ntx_draft_file *f, struct watched_steps *w, uint64_t now)
{
    if (w->since && f->tree.n_expanded > w->expanded) {
        double ns = (double)(now - w->since);
        f->step_ns += (ns - f->step_ns) * (f->step_ns > 0 ? 0.2 : 1);
    }
    if (!w->since || f->tree.n_expanded != w->expanded)
        *w = (struct watched_steps){now, f->tree.n_expanded};
}

bool ntx_draft_file_wait(struct ntx_draft_file *f, const struct ntx_draft_text *t, uint32_t most, double cost,
                         double worth, uint64_t ns)
{
    uint64_t now = ntx_now_ns(), end = now + ns;
    struct watched_steps steps = {0};
    for (;; now = ntx_now_ns()) {
        /* pairs with the ring of the bell: earlier changes are seen */
        uint32_t bell = atomic_load_explicit(&f->part->answers->bell, memory_order_acquire);
        if (has_failed(f))
            return false;
        bool taken = take_answer(f, t) && f->tree.n_text == t->n;
        if (taken)
            watch_step(f, &steps, now);
        if (taken && (f->tree.done || ntx__draft_settled(&f->tree, most, NTX_MAX(cost, f->step_ns * worth))))
            return true;
        if (now >= end)
            return false;
        ntx_futex_wait(&f->part->answers->bell, bell, end - now);
    }
}

/* ---- a proposal */

/* Kind of a node, by the drafter's probability. */
static uint32_t kind_of_chance(float chance)
{
    static const float ends[] = {0.02f, 0.05f, 0.1f, 0.2f, 0.3f, 0.45f, 0.6f, 0.75f, 0.9f};
    uint32_t k = 0;
    while (k < sizeof ends / sizeof *ends && chance > ends[k])
        k++;
    return k;
}

static uint32_t child_node(const struct ntx_drafts_tree *x, uint32_t node, int32_t token)
{
    for (uint32_t i = node + 1; i < x->n_nodes; i++)
        if (x->node[i].parent == node && x->node[i].token == token)
            return i;
    return UINT32_MAX;
}

struct place_in_draft { /* a node of the tree, and its place in the proposal */
    uint8_t at;         /* its row */
    bool in, open;      /* whether it is in; whether its parent is, so that it may come in */
    uint8_t kind;
    double path; /* chance of its path, as learned */
};

static void open_children(const struct ntx_draft_file *f, const struct ntx_draft_chances *c,
                          const struct ntx_draft_text *t, struct place_in_draft *s, uint32_t node, uint32_t depth)
{
    const struct ntx_drafts_tree *x = &f->tree;
    for (uint32_t i = node + 1; i < x->n_nodes; i++) {
        const struct ntx_drafts_node *k = &x->node[i];
        if (k->parent != node || k->token < 0 || (uint32_t)k->token >= t->n_vocab || !(k->chance > 0))
            continue;
        s[i].kind = (uint8_t)(ntx_draft_first_kind(f->number) + kind_of_chance(k->chance));
        s[i].path = s[node].path * ntx_draft_chance(c, s[i].kind, depth, NTX_MIN(k->chance, 1.0f));
        s[i].open = true;
    }
}

/* Drafts in this thread. */
static bool draft_tree(struct ntx_draft_file *f, const struct ntx_draft_text *t)
{
    struct ntx_draft_node node[NTX_DRAFTER_NODES];
    const struct ntx_drafter_file_text text = {t->tokens, t->n, t->n_prompt, t->n_vocab};
    f->tree.n_nodes = ntx_drafter_file_tree(f->drafter_file, &text, node);
    f->tree.n_text = t->n;
    for (uint32_t i = 0; i < f->tree.n_nodes; i++)
        f->tree.node[i] = (struct ntx_drafts_node){node[i].token, node[i].parent, node[i].chance};
    return true;
}

static bool has_tree(struct ntx_draft_file *f, const struct ntx_draft_text *t)
{
    if (f->by_states)
        return f->tree.n_nodes && f->tree.n_text == t->n;
    return f->drafter_file ? draft_tree(f, t) : take_answer(f, t);
}

void ntx_draft_from_file(struct ntx_draft_file *f, struct ntx_draft *d, const struct ntx_draft_chances *c,
                         const struct ntx_draft_text *t, uint32_t most, uint32_t deepest, double cost)
{
    struct place_in_draft s[NTX_DRAFTS_NODES] = {0};
    const struct ntx_drafts_tree *x = &f->tree;
    uint32_t root = has_tree(f, t) ? 0 : UINT32_MAX;
    ntx_draft_root(d, t->tokens[t->n - 1], t->n);
    most = NTX_MIN(most, NTX_DRAFT_NODES);
    for (uint32_t i = x->n_text; root != UINT32_MAX && i < t->n; i++)
        root = child_node(x, root, t->tokens[i]);
    if (root == UINT32_MAX)
        return;
    s[root] = (struct place_in_draft){.in = true, .path = 1};
    open_children(f, c, t, s, root, 1);
    while (d->n < most) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = root + 1; i < x->n_nodes; i++)
            if (s[i].open && s[i].path > (best == UINT32_MAX ? cost : s[best].path) &&
                d->depth[s[x->node[i].parent].at] < deepest)
                best = i;
        if (best == UINT32_MAX)
            return;
        s[best].open = false;
        s[best].in = true;
        s[best].at = (uint8_t)ntx_draft_add(d, s[x->node[best].parent].at, s[best].kind, x->node[best].token,
                                            NTX_MIN(x->node[best].chance, 1.0f));
        open_children(f, c, t, s, best, d->depth[s[best].at] + 1u);
    }
}
