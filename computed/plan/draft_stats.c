/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/plan/draft_stats.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/plan/learned_file.h"

/* Up to 0.2 the folder and the file's version had other names: they are still read. */
#define FOLDER     "drafts"
#define OLD_FOLDER "guesses"
#define KEY        "ntx_draft_stats"
#define OLD_KEY    "ntx_guesses"

#define SOME       20.0f  /* the initial estimate by depth counts as so many nodes */
#define PASSES     2000.0 /* passes that ranks cover, roughly; older ones count half, and half again */
#define SEEN       8.0    /* attempts at a rank that are needed to judge it */
#define FALLS      0.95   /* factor per rank beyond those seen */
#define LIKE       0.1    /* places whose streamed bytes differ by less are the same */
#define BIG        1e18
#define PAYS       1.02  /* the least gain over no drafts */
#define WORTH      1.005 /* memory that makes plain passes this much faster is worth giving back */
#define TOLD       256.0 /* tokens that tell whether texts are copied */
#define AWAY       16u /* loads without a drafter that did not pay, at first; doubled each time, three times at most */

void ntx_draft_stats_begin(struct ntx_draft_stats *g, float (*first)(uint32_t kind))
{
    struct ntx_draft_chances *c = &g->chances;
    *g = (struct ntx_draft_stats){0};
    for (uint32_t k = 0; k < NTX_DRAFT_KINDS; k++) {
        c->said[k] = 4;
        c->held[k] = 4 * first(k);
    }
    for (uint32_t s = 0; s < NTX_DRAFT_SOURCES; s++)
        for (uint32_t d = 0; d < NTX_DRAFT_DEPTHS; d++)
            c->deep_held[s][d] = c->deep_said[s][d] = SOME;
}

/* ---- ranks */

void ntx_draft_stats_rank(struct ntx_draft_stats_ranks *r, uint32_t n, const uint64_t held[2])
{
    for (uint32_t i = 0; i < NTX_DRAFT_STATS_RANKS && r->passes > PASSES; i++) {
        r->tried[i] /= 2;
        r->held[i] /= 2;
    }
    r->passes = (r->passes > PASSES ? r->passes / 2 : r->passes) + 1;
    for (uint32_t i = 0; i < NTX_MIN(n, NTX_DRAFT_STATS_RANKS); i++) {
        r->tried[i]++;
        r->held[i] += held[(i + 1) / 64] >> (i + 1) % 64 & 1;
    }
}

/* Measured with the demo's drafter, and with look-up in ordinary texts. */
static double common_gain(uint32_t way, uint32_t i)
{
    return way ? 0.75 / (1 + 0.25 * i) : 0.4 / ((1.0 + i) * (1.0 + i));
}

/* Prompt look-up proposes what exists. A drafter's tree may end by the pass's time, which says nothing of later
 * nodes. */
double ntx_draft_stats_gain(const struct ntx_draft_stats *g, uint32_t way, uint32_t i, bool *known)
{
    const struct ntx_draft_stats_ranks *r = &g->ranks[way];
    double gain = 1;
    *known = r->tried[0] >= SEEN;
    if (!*known)
        return common_gain(way, i);
    for (uint32_t k = 0; k <= i && k < NTX_DRAFT_STATS_RANKS; k++) {
        double seen = way ? gain * FALLS : 0;
        if (r->tried[k] >= SEEN)
            seen = r->held[k] / (way ? r->tried[k] : r->passes);
        gain = NTX_MIN(gain, seen);
    }
    return gain;
}

bool ntx_draft_stats_known(const struct ntx_draft_stats *g, uint32_t way) { return g->ranks[way].passes >= SEEN; }

/* Of the counted passes, those with more than n draft tokens. */
static double tried_beyond(const struct ntx_draft_stats_ranks *r, uint32_t n)
{
    return n < NTX_DRAFT_STATS_RANKS ? NTX_MIN(r->tried[n] / r->passes, 1.0) : 0;
}

double ntx_draft_stats_share(const struct ntx_draft_stats *g, uint32_t way, uint32_t n, uint32_t most)
{
    const struct ntx_draft_stats_ranks *r = &g->ranks[way];
    return (n ? tried_beyond(r, n - 1) : 1) - (n < most ? tried_beyond(r, n) : 0);
}

double ntx_draft_stats_held(const struct ntx_draft_stats *g, uint32_t way, uint32_t i)
{
    return i < NTX_DRAFT_STATS_RANKS ? g->ranks[way].held[i] / g->ranks[way].passes : 0;
}

/* ---- places */

const struct ntx_draft_stats_place *ntx_draft_stats_place(const struct ntx_draft_stats *g, uint32_t way,
                                                          uint32_t threads, uint64_t streamed)
{
    for (uint32_t i = 0; i < g->n_places; i++) {
        const struct ntx_draft_stats_place *p = &g->place[i];
        if (p->way == way && p->threads == threads &&
            fabs((double)p->streamed - (double)streamed) <= LIKE * (double)streamed)
            return p;
    }
    return NULL;
}

void ntx_draft_stats_settle(struct ntx_draft_stats *g, const struct ntx_draft_stats_place *p)
{
    const struct ntx_draft_stats_place *same = ntx_draft_stats_place(g, p->way, p->threads, p->streamed), new = *p;
    uint32_t at = same ? (uint32_t)(same - g->place) : NTX_MIN(g->n_places, NTX_DRAFT_STATS_PLACES - 1);
    g->n_places = NTX_MAX(g->n_places, at + 1);
    memmove(&g->place[1], &g->place[0], at * sizeof *g->place);
    g->place[0] = new;
}

/* Whether look-up alone would have been faster, where passes wait for the drive: by the passes that it would have taken
 * and their time, which pace[5] is with the drafters in memory. */
static bool was_copied(const struct ntx_draft_stats_place *p, double faster)
{
    return p->way == 2 && p->texts.tokens >= TOLD && p->pace[5] > 0 &&
           p->texts.alone * p->pace[5] / faster * PAYS < p->texts.ns;
}

bool ntx_draft_stats_leave_out(struct ntx_draft_stats_place *p, double faster)
{
    bool known = p->rate[0] > 0 && p->rate[1] > 0, lost = known && !(p->on && p->rate[1] > p->rate[0] * faster * PAYS);
    if (faster < WORTH || (!lost && !was_copied(p, faster)))
        return false;
    if (p->away++ < AWAY << NTX_MIN(p->tries, 3u))
        return true;
    p->away = 0;
    p->tries++;
    return false;
}

/* ---- the file */

static json_t *float_list_json(const float *x, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_real((double)x[i]));
    return a;
}

static json_t *list_json(const double *x, size_t n)
{
    json_t *a = json_array();
    while (n && x[n - 1] == 0)
        n--; /* values left out are 0 */
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_real(x[i]));
    return a;
}

static json_t *place_json(const struct ntx_draft_stats_place *p)
{
    const double texts[] = {p->texts.tokens, p->texts.ns, p->texts.alone};
    return json_pack("{s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "way", (json_int_t)p->way,
                     "threads", (json_int_t)p->threads, "streamed", (json_int_t)p->streamed, "on", p->on, "left",
                     (json_int_t)p->left, "rest", (json_int_t)p->rest, "away", (json_int_t)p->away, "tries",
                     (json_int_t)p->tries, "rate", list_json(p->rate, 2), "line", list_json(p->pace, 6), "few",
                     list_json(p->few, NTX_DRAFT_STATS_FEW), "texts", list_json(texts, 3));
}

char *ntx_draft_stats_dump(const struct ntx_draft_stats *g)
{
    const struct ntx_draft_chances *c = &g->chances;
    json_t *ranks = json_array(), *places = json_array();
    for (uint32_t w = 0; w < NTX_DRAFT_STATS_WAYS; w++)
        json_array_append_new(ranks, json_pack("{s:f, s:o, s:o}", "passes", g->ranks[w].passes, "tried",
                                               list_json(g->ranks[w].tried, NTX_DRAFT_STATS_RANKS), "held",
                                               list_json(g->ranks[w].held, NTX_DRAFT_STATS_RANKS)));
    for (uint32_t i = 0; i < g->n_places; i++)
        json_array_append_new(places, place_json(&g->place[i]));
    json_t *drafters = json_array();
    for (unsigned i = 0; i < NTX_DRAFT_STATS_FILES && *g->drafter[i]; i++)
        json_array_append_new(drafters, json_string(g->drafter[i]));
    json_t *j = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", KEY, 2, "drafters", drafters, "held",
                          float_list_json(c->held, NTX_DRAFT_KINDS), "said", float_list_json(c->said, NTX_DRAFT_KINDS),
                          "deep_held", float_list_json(c->deep_held[0], NTX_DRAFT_SOURCES * NTX_DRAFT_DEPTHS),
                          "deep_said", float_list_json(c->deep_said[0], NTX_DRAFT_SOURCES * NTX_DRAFT_DEPTHS), "ranks",
                          ranks, "places", places);
    char *text = json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(7));
    json_decref(j);
    return text;
}

static bool take_number(const json_t *o, double least, double most, double *x)
{
    *x = json_is_number(o) ? json_number_value(o) : NAN;
    return *x >= least && *x <= most;
}

static bool take_list(const json_t *o, size_t n, bool whole, double *x)
{
    if (!json_is_array(o) || json_array_size(o) > n || (whole && json_array_size(o) != n))
        return false;
    for (size_t i = 0; i < n; i++) {
        x[i] = 0;
        if (i < json_array_size(o) && !take_number(json_array_get(o, i), 0, BIG, &x[i]))
            return false;
    }
    return true;
}

/* Two lists whose quotients are used: no `said` may be 0. */
static bool take_chances(const json_t *held, const json_t *said, size_t n, float *h, float *s)
{
    double x[2][NTX_DRAFT_KINDS];
    if (!take_list(held, n, true, x[0]) || !take_list(said, n, true, x[1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (x[1][i] < 1e-3 || x[1][i] > 1e6 || x[0][i] > 1e6)
            return false;
        h[i] = (float)x[0][i];
        s[i] = (float)x[1][i];
    }
    return true;
}

static bool take_whole(const json_t *o, uint64_t most, uint64_t *n)
{
    double x = 0;
    bool good = take_number(o, 0, (double)most, &x) && x == floor(x);
    *n = good ? (uint64_t)x : 0;
    return good;
}

static bool take_place(const json_t *o, struct ntx_draft_stats_place *p)
{
    uint64_t way = 0, threads = 0, left = 0, rest = 0, away = 0,
             tries = 0; /* the last two, and the lists, came later */
    const json_t *a = json_object_get(o, "away"), *b = json_object_get(o, "tries"), *line = json_object_get(o, "line"),
                 *few = json_object_get(o, "few"), *told = json_object_get(o, "texts");
    double texts[3] = {0};
    bool good = take_whole(json_object_get(o, "way"), NTX_DRAFT_STATS_WAYS - 1, &way) &&
                take_whole(json_object_get(o, "threads"), 65536, &threads) &&
                take_whole(json_object_get(o, "streamed"), 1ull << 50, &p->streamed) &&
                take_whole(json_object_get(o, "left"), 1u << 20, &left) &&
                take_whole(json_object_get(o, "rest"), 1u << 20, &rest) && (!a || take_whole(a, 1u << 20, &away)) &&
                (!b || take_whole(b, 1u << 20, &tries)) && take_list(json_object_get(o, "rate"), 2, false, p->rate) &&
                (!line || take_list(line, 6, false, p->pace)) &&
                (!few || take_list(few, NTX_DRAFT_STATS_FEW, false, p->few)) &&
                (!told || take_list(told, 3, false, texts));
    p->texts = (struct ntx_draft_texts){texts[0], texts[1], texts[2]};
    p->way = (uint32_t)way;
    p->threads = (uint32_t)threads;
    p->left = (uint32_t)left;
    p->rest = (uint32_t)rest;
    p->away = (uint32_t)away;
    p->tries = (uint32_t)tries;
    p->on = json_is_true(json_object_get(o, "on"));
    return good;
}

static bool take_drafters(const json_t *list_json, struct ntx_draft_stats *g)
{
    if (!json_is_array(list_json) || json_array_size(list_json) > NTX_DRAFT_STATS_FILES)
        return false;
    for (size_t i = 0; i < json_array_size(list_json); i++) {
        const char *s = json_string_value(json_array_get(list_json, i));
        if (!s || strlen(s) != NTX_DRAFT_STATS_DIGEST - 1)
            return false;
        memcpy(g->drafter[i], s, NTX_DRAFT_STATS_DIGEST);
    }
    return true;
}

static bool take_all(const json_t *j, struct ntx_draft_stats *g)
{
    struct ntx_draft_chances *c = &g->chances;
    const json_t *ranks = json_object_get(j, "ranks"), *places = json_object_get(j, "places");
    bool good = (json_integer_value(json_object_get(j, KEY)) == 2 ||
                 json_integer_value(json_object_get(j, OLD_KEY)) == 2) &&
                take_drafters(json_object_get(j, "drafters"), g) &&
                take_chances(json_object_get(j, "held"), json_object_get(j, "said"), NTX_DRAFT_KINDS, c->held,
                             c->said) &&
                take_chances(json_object_get(j, "deep_held"), json_object_get(j, "deep_said"),
                             NTX_DRAFT_SOURCES * NTX_DRAFT_DEPTHS, c->deep_held[0], c->deep_said[0]) &&
                json_array_size(ranks) == NTX_DRAFT_STATS_WAYS && json_is_array(places) &&
                json_array_size(places) <= NTX_DRAFT_STATS_PLACES;
    for (uint32_t w = 0; w < NTX_DRAFT_STATS_WAYS && good; w++) {
        const json_t *r = json_array_get(ranks, w);
        good = take_number(json_object_get(r, "passes"), 0, BIG, &g->ranks[w].passes) &&
               take_list(json_object_get(r, "tried"), NTX_DRAFT_STATS_RANKS, false, g->ranks[w].tried) &&
               take_list(json_object_get(r, "held"), NTX_DRAFT_STATS_RANKS, false, g->ranks[w].held);
    }
    g->n_places = good ? (uint32_t)json_array_size(places) : 0;
    for (uint32_t i = 0; i < g->n_places && good; i++)
        good = take_place(json_array_get(places, i), &g->place[i]);
    return good;
}

int ntx_draft_stats_parse(const char *json, struct ntx_draft_stats *out, struct ntx_err *err)
{
    struct ntx_draft_stats g = {0};
    json_t *j = json_loads(json, 0, NULL);
    bool good = take_all(j, &g);
    json_decref(j);
    if (!good)
        return ntx_err_set(err, -EINVAL, "the statistics of drafts in this file are damaged");
    *out = g;
    return 0;
}

#define FILE_MOST 65536u

/* Takes what was learned of one drafter. */
static void take_file(struct ntx_draft_stats *g, unsigned i, const struct ntx_draft_stats *from, unsigned k)
{
    const uint32_t to = NTX_DRAFT_STATS_LOOKUP_KINDS + i * NTX_DRAFT_STATS_FILE_KINDS,
                   at = NTX_DRAFT_STATS_LOOKUP_KINDS + k * NTX_DRAFT_STATS_FILE_KINDS;
    memcpy(g->chances.held + to, from->chances.held + at, NTX_DRAFT_STATS_FILE_KINDS * sizeof *g->chances.held);
    memcpy(g->chances.said + to, from->chances.said + at, NTX_DRAFT_STATS_FILE_KINDS * sizeof *g->chances.said);
    memcpy(g->chances.deep_held[1 + i], from->chances.deep_held[1 + k], sizeof g->chances.deep_held[0]);
    memcpy(g->chances.deep_said[1 + i], from->chances.deep_said[1 + k], sizeof g->chances.deep_said[0]);
}

/* Another drafter's chances say nothing of this one's. */
static void take_stats(struct ntx_draft_stats *g, const struct ntx_draft_stats *kept)
{
    const struct ntx_draft_stats now = *g;
    *g = *kept;
    if (!*now.drafter[0] || !memcmp(now.drafter, kept->drafter, sizeof now.drafter))
        return;
    memcpy(g->drafter, now.drafter, sizeof g->drafter);
    for (unsigned i = 0; i < NTX_DRAFT_STATS_FILES; i++) {
        take_file(g, i, &now, i);
        for (unsigned k = 0; k < NTX_DRAFT_STATS_FILES; k++)
            if (*now.drafter[i] && !strcmp(now.drafter[i], kept->drafter[k]))
                take_file(g, i, kept, k);
    }
    memset(&g->ranks[1], 0, 2 * sizeof g->ranks[1]);
    g->n_places = 0;
}

int ntx_draft_stats_load(const char *digest, struct ntx_draft_stats *g, struct ntx_err *err)
{
    char *text = NULL;
    struct ntx_draft_stats kept;
    int rc = ntx_learned_read(FOLDER, digest, FILE_MOST, &text, err);
    if (rc == -ENOENT)
        rc = ntx_learned_read(OLD_FOLDER, digest, FILE_MOST, &text, err);
    if (!rc && !(rc = ntx_draft_stats_parse(text, &kept, err)))
        take_stats(g, &kept);
    free(text);
    return rc;
}

int ntx_draft_stats_store(const char *digest, const struct ntx_draft_stats *g, struct ntx_err *err)
{
    char *text = ntx_draft_stats_dump(g);
    int rc = text ? ntx_learned_store(FOLDER, digest, text, 0644) : -ENOMEM;
    free(text);
    return rc ? ntx_err_set(err, rc, "the statistics of drafts cannot be stored: %s", strerror(-rc)) : 0;
}
