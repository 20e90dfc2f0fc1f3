/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/draft.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/util.h"

#define MATCHES        4u    /* most matches that are followed */
#define LIKE_MOST      64u   /* most tokens that are compared */
#define REPLACED       6u    /* divides the length of a match whose last token differs (a name changed in a text) */
#define FORGET         0.02f /* decay of a chance's evidence with each node that should have held */
#define FORGET_DEPTH   0.02f
#define FORGET_LATELY  0.05f
#define LATELY         4.0f  /* nodes by which the present text counts as a usual one */
#define PACE_NEW       0.1   /* weight of a pass that tells of the slope */
#define PACE_FORGOTTEN 0.002 /* of one that does not */
#define PACE_PASSES    12.0
#define FEW_NEW        0.2     /* weight of a pass with few rows in its number's correction */
#define LOCAL          0.95    /* of the rate that a proposal promises is taken for that of the next passes */
#define SUREST         0.985   /* most chance of a node: a long chain does not become certain */
#define BREAKS         2.5     /* by look-up: 1 - 1 / (BREAKS x (RUN + tokens held in a row)) */
#define RUN            14.0    /* tokens in a row that a fresh text counts as */
#define WAITS          0.05    /* share of a pass that waits for the drive, where the drive limits it */
#define DRIFT          0.0002f /* a kind that never pays is still tried in about 1 % of the passes */

/* ---- chances, by the length of the match; those of the first match and of the others apart */

static uint32_t kind_of(uint32_t alike, uint32_t match)
{
    static const uint8_t ends[NTX_DRAFT_LOOKUP_KINDS / 2] = {1, 2, 3, 4, 6, 8, 12, 16, 32, 255};
    uint32_t k = 0;
    while (alike > ends[k])
        k++;
    return k + (match ? NTX_DRAFT_LOOKUP_KINDS / 2 : 0);
}

float ntx_draft_believed(uint32_t kind)
{
    static const float first[] = {0.2f, 0.4f, 0.5f, 0.6f, 0.7f, 0.75f, 0.8f, 0.85f, 0.95f, 0.97f};
    uint32_t half = NTX_DRAFT_LOOKUP_KINDS / 2;
    if (kind >= NTX_DRAFT_LOOKUP_KINDS)
        return 1;
    return kind < half ? first[kind] : 0.1f;
}

void ntx_draft_chances(struct ntx_draft_chances *c)
{
    struct ntx_draft_stats g;
    ntx_draft_stats_begin(&g, ntx_draft_believed);
    *c = g.chances;
}

void ntx_draft_chances_doubt(struct ntx_draft_chances *c)
{
    for (uint32_t k = 0; k < NTX_DRAFT_LOOKUP_KINDS; k++)
        c->held[k] = NTX_MIN(c->held[k], ntx_draft_believed(k) * c->said[k] / 2);
}

void ntx_draft_chances_drift(struct ntx_draft_chances *c)
{
    for (uint32_t k = 0; k < NTX_DRAFT_KINDS; k++)
        c->held[k] += (ntx_draft_believed(k) * c->said[k] - c->held[k]) * DRIFT;
    for (uint32_t s = 0; s < NTX_DRAFT_SOURCES; s++) {
        c->lately_held[s] += (c->lately_said[s] - c->lately_held[s]) * DRIFT;
        for (uint32_t d = 0; d < NTX_DRAFT_DEPTHS; d++)
            c->deep_held[s][d] += (c->deep_said[s][d] - c->deep_held[s][d]) * DRIFT;
    }
}

static uint32_t depth_class(uint32_t depth)
{
    static const uint8_t ends[NTX_DRAFT_DEPTHS] = {1, 2, 3, 4, 6, 8, 12, 255};
    uint32_t k = 0;
    while (depth > ends[k])
        k++;
    return k;
}

/* A longer match holds at least as often as a shorter one, which may be known better. */
static float kind_chance(const struct ntx_draft_chances *c, uint32_t kind, float said)
{
    const uint32_t others = NTX_DRAFT_LOOKUP_KINDS / 2;
    float best = c->held[kind] / c->said[kind];
    for (uint32_t k = kind < others ? 0 : others; k < kind && kind < NTX_DRAFT_LOOKUP_KINDS; k++)
        best = NTX_MAX(best, c->held[k] / c->said[k]);
    return said * best;
}

/* A text that was copied for long without a break goes on more surely. */
static double surest(const struct ntx_draft_chances *c, uint32_t source)
{
    return source == NTX_DRAFT_BY_LOOKUP ? 1 - 1 / (BREAKS * (RUN + c->run)) : SUREST;
}

/* Of a kind and depth, as learned over many texts. */
static double usual_chance(const struct ntx_draft_chances *c, uint32_t kind, uint32_t depth, float said)
{
    uint32_t s = ntx_draft_source(kind), d = depth_class(depth);
    return NTX_MIN(kind_chance(c, kind, said) * c->deep_held[s][d] / c->deep_said[s][d], surest(c, s));
}

/* The present part of a text may repeat more or less than usual, which its last few nodes tell. */
double ntx_draft_chance(const struct ntx_draft_chances *c, uint32_t kind, uint32_t depth, float said)
{
    uint32_t s = ntx_draft_source(kind);
    double lately = (c->lately_held[s] + LATELY) / (c->lately_said[s] + LATELY);
    return NTX_MIN(usual_chance(c, kind, depth, said) * lately, surest(c, s));
}

static void add_outcome(float *said, float *held, float forget, float s, bool h)
{
    float keep_match = 1 - forget * NTX_MIN(s, 1.0f);
    *said = *said * keep_match + s;
    *held = *held * keep_match + h;
}

/* The factor of a depth is learned relative to the chance of the kind. */
static void learn_node(struct ntx_draft_chances *c, uint32_t kind, uint32_t depth, float said, bool held)
{
    uint32_t s = ntx_draft_source(kind), d = depth_class(depth);
    add_outcome(&c->lately_said[s], &c->lately_held[s], FORGET_LATELY, (float)usual_chance(c, kind, depth, said), held);
    add_outcome(&c->deep_said[s][d], &c->deep_held[s][d], FORGET_DEPTH, kind_chance(c, kind, said), held);
    add_outcome(&c->said[kind], &c->held[kind], FORGET, said, held);
    if (kind < NTX_DRAFT_LOOKUP_KINDS / 2)
        c->run = held ? c->run + 1 : 0;
}

uint32_t ntx_draft_follow(const struct ntx_draft *d, struct ntx_draft_chances *c, uint32_t node, int32_t token)
{
    uint32_t next = 0;
    for (uint32_t i = node + 1; i < d->n; i++)
        if (d->parent[i] == node) {
            learn_node(c, d->kind[i], d->depth[i], d->said[i], d->token[i] == token);
            for (unsigned s = 0; s < NTX_DRAFT_SOURCES; s++)
                if (d->also[i][s] != NTX_DRAFT_ALONE)
                    learn_node(c, d->also[i][s], d->depth[i], d->also_said[i][s], d->token[i] == token);
            next = d->token[i] == token ? i : next;
        }
    return next;
}

/* ---- nodes */

void ntx_draft_root(struct ntx_draft *d, int32_t token, uint32_t n_text)
{
    d->n = 1;
    d->token[0] = token;
    d->parent[0] = d->depth[0] = d->kind[0] = 0;
    memset(d->also[0], NTX_DRAFT_ALONE, sizeof d->also[0]);
    d->path[0][0] = n_text - 1;
}

uint32_t ntx_draft_add(struct ntx_draft *d, uint32_t parent, uint32_t kind, int32_t token, float said)
{
    uint32_t i = d->n++;
    d->token[i] = token;
    d->kind[i] = (uint8_t)kind;
    d->said[i] = said;
    memset(d->also[i], NTX_DRAFT_ALONE, sizeof d->also[i]);
    d->parent[i] = (uint8_t)parent;
    d->depth[i] = (uint8_t)(d->depth[parent] + 1);
    memcpy(d->path[i], d->path[parent], d->depth[i] * sizeof d->path[i][0]);
    d->path[i][d->depth[i]] = d->path[0][0] + i;
    return i;
}

/* ---- several proposals */

struct part {
    const struct ntx_draft *d;
    bool in[NTX_DRAFT_NODES];
    uint8_t at[NTX_DRAFT_NODES]; /* node in the joined tree, if in */
};

/* Likeliest node of a part whose parent is in the joined tree; 0: none is likelier than *chance. */
static uint32_t likeliest_node(const struct part *h, const struct ntx_draft_chances *c, const double *path,
                               double *chance)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < h->d->n; i++) {
        if (h->in[i] || !h->in[h->d->parent[i]])
            continue;
        double x = path[h->at[h->d->parent[i]]] * ntx_draft_chance(c, h->d->kind[i], h->d->depth[i], h->d->said[i]);
        best = x > *chance ? i : best;
        *chance = x > *chance ? x : *chance;
    }
    return best;
}

static void take_node(struct part *h, uint32_t i, uint32_t node)
{
    h->in[i] = true;
    h->at[i] = (uint8_t)node;
}

/* `node` has joined the tree: if this part has it, too, the part goes on from there, however unlikely it found it. */
static void take_shared_node(struct ntx_draft *d, struct part *h, uint32_t node)
{
    for (uint32_t i = 1; i < h->d->n; i++) {
        uint32_t up = h->d->parent[i];
        if (h->in[i] || !h->in[up] || h->at[up] != d->parent[node] || h->d->token[i] != d->token[node])
            continue;
        take_node(h, i, node);
        unsigned s = ntx_draft_source(h->d->kind[i]);
        d->also[node][s] = h->d->kind[i];
        d->also_said[node][s] = h->d->said[i];
    }
}

void ntx_draft_join(struct ntx_draft *d, const struct ntx_draft *of, unsigned n, const struct ntx_draft_chances *c,
                    uint32_t most, double cost)
{
    struct part part[NTX_DRAFT_SOURCES] = {0};
    double path[NTX_DRAFT_NODES] = {1};
    ntx_draft_root(d, of[0].token[0], of[0].path[0][0] + 1);
    for (unsigned s = 0; s < n; s++) {
        part[s].d = &of[s];
        part[s].in[0] = true;
    }
    most = NTX_MIN(most, NTX_DRAFT_NODES);
    while (d->n < most) {
        double chance = cost;
        uint32_t best = 0, by = 0;
        for (unsigned s = 0; s < n; s++) {
            uint32_t i = likeliest_node(&part[s], c, path, &chance);
            best = i ? i : best;
            by = i ? s : by;
        }
        if (!best)
            return;
        struct part *h = &part[by];
        uint32_t node = ntx_draft_add(d, h->at[h->d->parent[best]], h->d->kind[best], h->d->token[best],
                                      h->d->said[best]);
        path[node] = chance;
        take_node(h, best, node);
        for (unsigned s = 0; s < n; s++)
            if (s != by)
                take_shared_node(d, &part[s], node);
    }
}

/* ---- times */

/* Arithmetic of a pass, by the line. */
static double line_ns(const struct ntx_pace *p, double rows)
{
    return p->n > 0 ? NTX_MAX(p->ns + (rows - p->rows) * ntx_pace_row(p), 0.0) : 0;
}

/* Index in `few`, or NTX_DRAFT_STATS_FEW. */
static uint32_t few_of(double rows)
{
    uint32_t n = rows <= NTX_DRAFT_STATS_FEW ? (uint32_t)rows : 0;
    return n && n == rows ? n - 1 : NTX_DRAFT_STATS_FEW;
}

static void learn_few(struct ntx_pace *p, double rows, double busy)
{
    const double line = line_ns(p, rows);
    const uint32_t k = few_of(rows);
    for (uint32_t i = 0; i < NTX_DRAFT_STATS_FEW; i++)
        p->few[i] += p->few[i] > 0 ? (1 - p->few[i]) * PACE_FORGOTTEN : 0;
    if (k == NTX_DRAFT_STATS_FEW || line <= 0)
        return;
    p->few[k] = p->few[k] > 0 ? p->few[k] : 1;
    p->few[k] += FEW_NEW * (busy / line - p->few[k]);
}

void ntx_pace_add(struct ntx_pace *p, double rows, double ns, double waited)
{
    learn_few(p, rows, NTX_MAX(ns - waited, 0.0));
    double busy = NTX_MAX(ns - waited, 0.0), more_rows = rows - p->rows, more_ns = busy - p->ns;
    double tells = more_rows * more_rows / (more_rows * more_rows + 1), new = NTX_MAX(PACE_NEW * tells, PACE_FORGOTTEN);
    if (p->n > 0) {
        p->rows2 += new *(more_rows * more_rows - p->rows2);
        p->rows_ns += new *(more_rows * more_ns - p->rows_ns);
    }
    p->n = NTX_MIN(p->n + 1, PACE_PASSES);
    p->rows += more_rows / p->n;
    p->ns += more_ns / p->n;
    if (waited > WAITS * ns)
        p->floor += (ns - p->floor) * (p->floor > 0 ? PACE_NEW : 1);
    else if (ns < p->floor)
        p->floor = ns;
}

/* Where all passes had about as many rows, the prior decides, so that drafts are tried. */
double ntx_pace_row(const struct ntx_pace *p)
{
    if (p->n == 0)
        return 0;
    double weight = 0.05, prior = NTX_MAX(p->row, p->ns / ((p->prior > 0 ? 1 / p->prior : 16) - 1 + p->rows));
    return NTX_MAX((p->rows_ns + weight * prior) / (p->rows2 + weight), 0.0);
}

double ntx_pace_union(double share, double rows)
{
    return share > 0 && share < 1 ? (1 - pow(1 - share, rows)) / share : rows;
}

uint32_t ntx_draft_best(const struct ntx_draft *d, const struct ntx_draft_chances *c, double rows, const double *ns,
                        double worth)
{
    double path[NTX_DRAFT_NODES] = {1}, tokens[NTX_DRAFT_NODES] = {rows}, local = 0;
    uint32_t n = 1;
    for (uint32_t i = 1; i < d->n; i++) {
        path[i] = path[d->parent[i]] * ntx_draft_chance(c, d->kind[i], d->depth[i], d->said[i]);
        tokens[i] = tokens[i - 1] + path[i];
    }
    for (uint32_t i = 0; i < d->n; i++)
        local = NTX_MAX(local, tokens[i] / ns[i]);
    worth = NTX_MAX(worth, local * LOCAL);
    for (uint32_t i = 1; i < d->n; i++)
        n = tokens[i] - worth * ns[i] > tokens[n - 1] - worth * ns[n - 1] ? i + 1 : n;
    return n;
}

/* Near the drive's time neither hides the other whole: a norm of both, at most a fifth above the larger. */
double ntx_pace_of(const struct ntx_pace *p, double rows)
{
    const uint32_t k = few_of(rows);
    double busy = line_ns(p, rows) * (k < NTX_DRAFT_STATS_FEW && p->few[k] > 0 ? p->few[k] : 1),
           more = NTX_MAX(busy, p->floor), less = NTX_MIN(busy, p->floor), part = more > 0 ? less / more : 0;
    return more * sqrt(sqrt(1 + part * part * part * part));
}

/* ---- turns */

#define TURN         16u /* passes that a rate is measured over */
#define TRIAL_OFF    4u  /* passes of a trial without drafts */
#define TRIAL_ON     6u  /* with drafts, the first SETTLE included */
#define TRIAL_MOST   16u /* most passes of a trial that is shorter than TRIAL_NS */
#define TRIAL_NS     4e7
#define SETTLE       2u   /* first passes, not counted: there is no tree yet, or the drafter still works */
#define REST_FIRST   256u /* passes between trials */
#define REST_LAST    16384u
#define SHARE        0.01 /* most share of the time that trials may lose */
#define AGAIN_BETTER 1.2
#define SURE         1.1 /* no trial is needed if drafting is so many times faster than passes without drafts can be */

void ntx_draft_turn_begin(struct ntx_draft_turn *t, bool on)
{
    *t = (struct ntx_draft_turn){.on = on, .left = on ? TURN : SETTLE + TRIAL_OFF, .rest = REST_FIRST};
}

static void start_turn(struct ntx_draft_turn *t, bool on, bool trial)
{
    t->on = on;
    t->trial = trial;
    t->tokens = t->ns = t->least = 0;
    t->passes = 0;
}

/* Passes until the loss of a trial, its first passes included, is within its share of the time. */
static uint32_t passes_to_repay(const struct ntx_draft_turn *t)
{
    double lost = (t->ns * t->rate[0] - t->tokens) * t->passes / (t->passes - SETTLE);
    return (uint32_t)NTX_MIN(NTX_MAX(lost / SHARE, 0.0), (double)REST_LAST);
}

static void end_trial(struct ntx_draft_turn *t)
{
    bool pays = t->rate[1] > t->rate[0] * 1.02;
    t->dear = t->on && !pays ? passes_to_repay(t) : 0;
    t->rest = pays ? REST_FIRST : NTX_MAX(NTX_MIN(4 * t->rest, REST_LAST), t->dear);
    t->left = t->rest;
    start_turn(t, pays, false);
}

void ntx_draft_turn_pass(struct ntx_draft_turn *t, uint32_t tokens, double ns, double least_ns)
{
    uint32_t trial = t->on ? TRIAL_ON : TRIAL_OFF, whole = t->trial ? trial : TURN;
    double *rate = &t->rate[t->on], counted;
    t->left -= t->left > 0;
    bool first = t->trial || *rate == 0;
    if (++t->passes <= SETTLE && first)
        return;
    t->tokens += tokens;
    t->ns += ns;
    t->least += least_ns;
    bool goes_on = t->trial ? t->passes < whole || (t->passes < TRIAL_MOST && t->ns < TRIAL_NS)
                            : t->passes < whole && t->left;
    if (goes_on)
        return;
    counted = t->passes - (first ? SETTLE : 0);
    if (t->ns > 0)
        *rate = *rate == 0 || t->trial ? t->tokens / t->ns : 0.7 * *rate + 0.3 * t->tokens / t->ns;
    if (t->trial) {
        end_trial(t);
        return;
    }
    bool sure = t->on && t->tokens / t->ns * t->least > SURE * counted,
         lost = t->on && t->rate[0] > 0 && t->rate[1] < t->rate[0];
    if (sure)
        t->left = REST_FIRST;
    if (!t->on && *rate * AGAIN_BETTER < t->rate[1]) /* the leading mode became slower */
        t->left = NTX_MIN(t->left, REST_FIRST);
    start_turn(t, t->on != (!t->left || lost), !t->left || lost);
}

#define LOOKS 0.004 /* share of the time */

void ntx_draft_look_pass(struct ntx_draft_look *l, double ns) { l->over_ns = NTX_MAX(l->over_ns - LOOKS * ns, 0.0); }

/* ---- prompt lookup */

struct match {
    uint32_t at, alike; /* so many tokens before `at` equal the end of the text */
    uint32_t node, len; /* nodes taken from it: the last one, and how many */
    double chance;      /* chance of the last node */
    int32_t taken[NTX_DRAFT_NODES];
};

/* Length of the common end of text[0..at) and text[0..n). */
static uint32_t common_end(const int32_t *text, uint32_t n, uint32_t at)
{
    uint32_t k = 0;
    while (k < at && k < LIKE_MOST && text[at - 1 - k] == text[n - 1 - k])
        k++;
    return k;
}

/* Keeps the longest matches, of equal ones the latest, each with another next token. */
static uint32_t keep_match(struct match *matches, uint32_t n, const int32_t *text, struct match w)
{
    for (uint32_t i = 0; i < n; i++)
        if (text[matches[i].at] == text[w.at]) {
            if (matches[i].alike >= w.alike)
                return n;
            memmove(&matches[i], &matches[i + 1], (--n - i) * sizeof *matches);
        }
    uint32_t i = n;
    while (i && matches[i - 1].alike < w.alike)
        i--;
    if (i == MATCHES)
        return n;
    n = NTX_MIN(n, MATCHES - 1);
    memmove(&matches[i + 1], &matches[i], (n - i) * sizeof *matches);
    matches[i] = w;
    return n + 1;
}

static uint32_t find_matches(struct match *matches, const int32_t *text, uint32_t n)
{
    uint32_t found = 0;
    for (uint32_t at = n - 1; at; at--) {
        uint32_t k = 0;
        if (text[at - 1] == text[n - 1])
            k = common_end(text, n, at);
        else if (at > 1 && text[at - 2] == text[n - 2])
            k = common_end(text, n - 1, at - 1) / REPLACED;
        if (k && text[at] >= 0) /* a row of an image is never proposed */
            found = keep_match(matches, found, text, (struct match){.at = at, .alike = k, .chance = 1});
    }
    return found;
}

/* The next token of a match. Past the end of the text it repeats its own tokens, so short periods are found, too. */
static int32_t next_token(const struct match *w, const int32_t *text, uint32_t n)
{
    uint32_t i = w->at + w->len;
    return i < n ? text[i] : w->taken[i - n];
}

static void extend_match(struct ntx_draft *d, struct match *w, uint32_t kind, int32_t token)
{
    w->node = ntx_draft_add(d, w->node, kind, token, 1);
    w->taken[w->len++] = token;
}

void ntx_draft_lookup(struct ntx_draft *d, const struct ntx_draft_chances *c, const int32_t *text, uint32_t n,
                      uint32_t most, uint32_t deepest, double cost)
{
    struct match matches[MATCHES];
    ntx_draft_root(d, text[n - 1], n);
    most = NTX_MIN(most, NTX_DRAFT_NODES);
    uint32_t n_matches = most > 1 ? find_matches(matches, text, n) : 0;
    while (d->n < most) {
        struct match *best = NULL;
        double chance = cost;
        uint32_t kind = 0;
        for (uint32_t i = 0; i < n_matches; i++) {
            uint32_t k = kind_of(matches[i].alike + matches[i].len, i && !matches[i].len);
            double x = matches[i].chance * ntx_draft_chance(c, k, matches[i].len + 1, 1);
            if (x > chance && matches[i].len < deepest && next_token(&matches[i], text, n) >= 0) {
                best = &matches[i];
                chance = x;
                kind = k;
            }
        }
        if (!best)
            return;
        best->chance = chance;
        extend_match(d, best, kind, next_token(best, text, n));
    }
}

void ntx_draft_straighten(struct ntx_draft *d)
{
    uint32_t n = 1, last = 0; /* the old number of node n - 1 */
    for (uint32_t i = 1; i < d->n; i++) {
        if (d->parent[i] != last)
            continue;
        last = i;
        d->token[n] = d->token[i];
        d->kind[n] = d->kind[i];
        d->said[n] = d->said[i];
        memcpy(d->also[n], d->also[i], sizeof d->also[n]);
        memcpy(d->also_said[n], d->also_said[i], sizeof d->also_said[n]);
        d->parent[n] = (uint8_t)(n - 1);
        d->depth[n] = (uint8_t)n;
        n++;
    }
    d->n = n;
}
