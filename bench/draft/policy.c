/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c: how many drafts pay, without a clock: bench_policy COSTS [DRAFTS...] < TEXTS
 *
 * Replays recorded texts through the engine's policy (computed/engine/draft_policy.h). A text is the same with any
 * drafts, so what is proposed at each place, and how much of it holds, follow from what record.c recorded: TEXTS, and
 * for each drafter what it says at each place of them. (texts.txt: prompts.txt, answered by Qwen2.5-Coder 1.5B.) The
 * time of a pass follows from COSTS (costs.txt). One setting a line: a name, the model's bytes, the memory for weights
 * and drafters (0: everything fits), the drive's bytes per second, and pairs of rows and the ns that they take without
 * the drive (linear between them). DRAFTS is FILE:BYTES:NS: the drafter's memory, and the time of one row in it.
 *
 * A drafter's tree grows best first. Below a node that is not the text's, chances are those that it said at the place
 * of the same depth. While a pass waits for the drive, the drafter works ahead; what it made counts where the text
 * goes on in its tree. For the rest the pass waits, as long as the engine would.
 *
 * Ways: off; lookup, each drafter, and both with a fixed number of drafts; and with as many as pay (auto). A way with a
 * drafter has less memory for weights. Each text begins with what was learned of none (fresh) and then with what the
 * texts before it taught (kept). CSV: setting, state, text, and tokens per second of each way; at the end of a setting
 * the rates over all texts, and for auto its share of the best fixed way for each text with the same memory: mean and
 * least; and of texts below 0.95 the most that was lost, in mean passes of auto. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/draft_file.h"
#include "computed/engine/draft_policy.h"

enum { CTX = 1024, TEXTS = 64, POINTS = 16, DRAFTERS = 3, PLACES = 512, KIDS = 8, WAYS = 48 };
#define EXPANDED_MOST 48u
#define NEAR          0.95 /* a text with less of its best fixed way lost time, counted in its own mean passes */

struct text {
    char name[32];
    float temp;
    uint32_t n, n_prompt;
    int32_t tokens[CTX];
};
struct costs {
    char name[32];
    double file, ram, rate, rows[POINTS], ns[POINTS];
    int n;
};
struct drafter {
    char name[64];
    double bytes, ns;
    struct {
        int32_t token[KIDS];
        float chance[KIDS];
        uint32_t n;
    } said[TEXTS][PLACES];
};
struct way {
    int drafter; /* -1: none */
    bool lookup;
    int nodes; /* of each pass; -1: as many as pay */
};

static struct text texts[TEXTS];
static struct drafter drafters[DRAFTERS];
static struct way ways[WAYS];
static uint32_t n_texts, n_drafters, n_ways;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_policy: %s: %s\n", what, why);
    exit(111);
}

/* ---- reading */

static void read_texts(FILE *f)
{
    unsigned long long seed;
    for (struct text *t = texts; n_texts < TEXTS; t = &texts[++n_texts]) {
        if (fscanf(f, "%31s %u %f %llu", t->name, &t->n_prompt, &t->temp, &seed) != 4)
            return;
        while (t->n < CTX && fscanf(f, "%d", &t->tokens[t->n]) == 1)
            t->n++;
        int end = fscanf(f, " ;"); /* each text ends with a semicolon */
        if (end == EOF && ferror(f))
            fail("TEXTS", "cannot be read");
        if (t->n < t->n_prompt + 2 || t->n - t->n_prompt > PLACES)
            fail(t->name, "too short or too long");
    }
}

static void read_drafter(char *arg)
{
    struct drafter *d = &drafters[n_drafters++];
    char *bytes = strchr(arg, ':'), *ns = bytes ? strchr(bytes + 1, ':') : NULL, name[32];
    if (!ns)
        fail(arg, "say FILE:BYTES:NS");
    *bytes = *ns = 0;
    const char *slash = strrchr(arg, '/');
    snprintf(d->name, sizeof d->name, "%.60s", slash ? slash + 1 : arg);
    d->bytes = strtod(bytes + 1, NULL);
    d->ns = strtod(ns + 1, NULL);
    FILE *f = fopen(arg, "re");
    if (!f)
        fail(arg, "cannot be opened");
    for (uint32_t t = 0; t < n_texts; t++) {
        uint32_t places;
        if (fscanf(f, "%31s %u", name, &places) != 2 || strcmp(name, texts[t].name) ||
            places != texts[t].n - texts[t].n_prompt - 1)
            fail(arg, "it is not of these texts");
        for (uint32_t i = 0; i < places; i++) {
            uint32_t k = 0;
            while (k < KIDS && fscanf(f, "%d %f", &d->said[t][i].token[k], &d->said[t][i].chance[k]) == 2)
                k++;
            d->said[t][i].n = k;
            if (fscanf(f, " ;") == EOF)
                fail(arg, "it is cut");
        }
    }
    fclose(f);
}

static bool read_costs(FILE *f, struct costs *c)
{
    char line[512], *at = line;
    int used = 0;
    c->n = 0;
    if (!fgets(line, sizeof line, f) ||
        sscanf(line, "%31s %lf %lf %lf%n", c->name, &c->file, &c->ram, &c->rate, &used) != 4)
        return false;
    for (at += used; c->n < POINTS && sscanf(at, "%lf %lf%n", &c->rows[c->n], &c->ns[c->n], &used) == 2; at += used)
        c->n++;
    return c->n > 1;
}

/* ---- times */

static double busy_ns(const struct costs *c, double rows)
{
    int i = 1;
    while (i < c->n - 1 && c->rows[i] < rows)
        i++;
    double part = (rows - c->rows[i - 1]) / (c->rows[i] - c->rows[i - 1]);
    return c->ns[i - 1] + part * (c->ns[i] - c->ns[i - 1]);
}

static bool fits(const struct costs *c, const struct way *w)
{
    return w->drafter < 0 || !(c->ram > 0) || drafters[w->drafter].bytes <= c->ram;
}

static double drive_ns(const struct costs *c, const struct way *w)
{
    double left = c->ram - (w->drafter < 0 ? 0 : drafters[w->drafter].bytes);
    return c->ram > 0 ? NTX_MAX(c->file - left, 0.0) / c->rate * 1e9 : 0;
}

/* Passes take up to 3 % more or less, the same for each way. */
static double pass_ns(const struct costs *c, double drive, double rows, uint32_t pass, double *waited)
{
    double busy = busy_ns(c, rows), ns = NTX_MAX(busy, drive), noise = 1 + 0.03 * ((pass * 7919 % 201) / 100.0 - 1);
    *waited = (ns - busy) * noise;
    return ns * noise;
}

/* ---- a drafter's tree */

static struct ntx_draft_file file;
struct growing {
    bool expanded, right;
    uint32_t depth;
    float path;
};

/* The tree below text[0 .. n). `ahead` nodes are expanded, and then those whose likeliest child has a chance above
 * `cost`, `most` in all. Returns how many. */
static uint32_t grow_tree(const struct drafter *d, uint32_t text, uint32_t n, uint32_t ahead, uint32_t most,
                          double cost)
{
    static struct growing g[NTX_DRAFTS_NODES];
    const struct text *t = &texts[text];
    struct ntx_drafts_tree *x = &file.tree;
    x->n_text = n;
    x->n_nodes = 1;
    x->node[0] = (struct ntx_drafts_node){t->tokens[n - 1], 0, 1};
    g[0] = (struct growing){.right = true, .path = 1};
    for (uint32_t e = 0; e < most; e++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < x->n_nodes; i++)
            if (!g[i].expanded && n + g[i].depth < t->n && (best == UINT32_MAX || g[i].path > g[best].path))
                best = i;
        if (best == UINT32_MAX || g[best].path < 0.0005f || (e >= ahead && g[best].path * 0.8 <= cost))
            return e;
        g[best].expanded = true;
        uint32_t at = n + g[best].depth, place = at - t->n_prompt - 1;
        for (uint32_t k = 0; k < d->said[text][place].n && x->n_nodes < NTX_DRAFTS_NODES; k++) {
            float chance = d->said[text][place].chance[k];
            int32_t token = d->said[text][place].token[k];
            g[x->n_nodes] = (struct growing){.right = g[best].right && token == t->tokens[at],
                                             .depth = g[best].depth + 1,
                                             .path = g[best].path * chance};
            x->node[x->n_nodes++] = (struct ntx_drafts_node){token, best, chance};
        }
    }
    return most;
}

/* Whether the drafter said the token at this place: then what it made ahead counts. */
static bool was_said(const struct drafter *d, uint32_t text, uint32_t at)
{
    const struct text *t = &texts[text];
    uint32_t place = at - t->n_prompt - 1;
    for (uint32_t k = 0; at < t->n && k < d->said[text][place].n; k++)
        if (d->said[text][place].token[k] == t->tokens[at] && d->said[text][place].chance[k] > 0.1f)
            return true;
    return false;
}

/* ---- replay */

/* Accepted tokens of a proposal for the first n tokens. *looked: those of them that look-up proposed. */
static uint32_t follow(const struct ntx_draft *d, struct ntx_draft_chances *c, const struct text *t, uint32_t n,
                       uint32_t *looked)
{
    uint32_t at = 0, tokens = 0;
    do {
        at = ntx_draft_follow(d, c, at, t->tokens[n + tokens++]);
        *looked += at && (ntx_draft_source(d->kind[at]) == NTX_DRAFT_BY_LOOKUP ||
                          d->also[at][NTX_DRAFT_BY_LOOKUP] != NTX_DRAFT_ALONE);
    } while (at && n + tokens < t->n);
    return tokens;
}

struct run {
    const struct costs *c;
    const struct way *way;
    struct ntx_draft_policy p;
    struct ntx_draft_chances chances;
    double ahead;    /* nodes that the drafter expanded while the last pass waited */
    uint32_t passes; /* of the last text */
};

/* ns that the engine waits for a drafter at most (computed/engine/engine_draft.c). */
static double patience(const struct ntx_draft_policy *p)
{
    double plain = ntx_draft_policy_plain(p, 1), pass = NTX_MAX(plain, ntx_pace_of(&p->pace, 1 + p->drafted)),
           worth = NTX_MIN(p->gain * plain / 2, pass), most = p->asked ? NTX_MAX(pass, 1e8) : NTX_MAX(pass / 4, worth);
    return NTX_MIN(most, 1e9) * NTX_MIN(p->gain / 2, 1.0);
}

/* Proposes for text[0 .. n). Returns ns that the pass waits for the drafter. */
static double propose(struct run *r, uint32_t text, uint32_t n, struct ntx_draft *d)
{
    static struct ntx_draft part[2];
    const struct way *w = r->way;
    const struct text *t = &texts[text];
    struct ntx_draft_policy *p = &r->p;
    bool drafts = w->drafter >= 0 && p->turn.on, several = drafts && w->lookup;
    uint32_t room = t->n - n - 1, most = w->nodes < 0 ? NTX_DRAFT_NODES : (uint32_t)w->nodes + 1;
    double least = ntx_draft_policy_least(p, 1), cost = several ? least / 4 : least, late = 0;
    if (drafts) {
        const struct drafter *g = &drafters[w->drafter];
        const struct ntx_draft_text x = {
            .tokens = t->tokens, .n = n, .n_prompt = t->n_prompt, .n_vocab = UINT32_MAX / 2};
        double wanted = w->nodes < 0 ? (double)EXPANDED_MOST : w->nodes, in_time = r->ahead + patience(p) / g->ns,
               wait_cost = w->nodes < 0 ? NTX_MAX(NTX_MAX(least, 0.02), g->ns * ntx_draft_policy_worth(p, 1)) : 0;
        uint32_t ahead = (uint32_t)NTX_MIN(r->ahead, (double)EXPANDED_MOST),
                 expanded = grow_tree(g, text, n, ahead, (uint32_t)NTX_MIN(in_time, wanted), wait_cost);
        late = NTX_MAX((double)expanded - ahead, 0.0) * g->ns;
        file.by_states = (struct ntx_drafter *)&file; /* the tree is taken as it is */
        ntx_draft_from_file(&file, several ? &part[1] : d, &r->chances, &x, most, room, cost);
    }
    if (w->lookup)
        ntx_draft_lookup(several ? &part[0] : d, &r->chances, t->tokens, n, w->nodes ? most : 1, room,
                         w->nodes < 0 ? NTX_MIN(cost, 0.05) : 0);
    if (several)
        ntx_draft_join(d, part, 2, &r->chances, most, least);
    else if (!drafts && !w->lookup)
        ntx_draft_root(d, t->tokens[n - 1], n);
    return late;
}

/* Seconds of a text's passes. */
static double replay(struct run *r, uint32_t text)
{
    static struct ntx_draft d;
    const struct text *t = &texts[text];
    struct ntx_draft_policy *p = &r->p;
    double all = 0, waited, drive = drive_ns(r->c, r->way);
    uint32_t n = t->n_prompt + 1;
    ntx_draft_policy_prompt(p, t->n_prompt, busy_ns(r->c, t->n_prompt), 0);
    r->ahead = r->passes = 0;
    for (uint32_t pass = 0, tokens; n < t->n; pass++, n += tokens) {
        uint32_t looked = 0;
        ntx_draft_chances_drift(&r->chances);
        bool drafting = r->way->drafter >= 0 && p->turn.on;
        double late = propose(r, text, n, &d);
        uint32_t proposed = d.n;
        ntx_draft_policy_cut(p, &d, &r->chances, 1);
        uint32_t rows = d.n;
        ntx_draft_policy_proposed(p, rows - 1);
        if (rows == 1) { /* its first nodes are learned from */
            d.n = proposed;
            ntx_draft_follow(&d, &r->chances, 0, t->tokens[n]);
            tokens = 1;
        } else {
            tokens = follow(&d, &r->chances, t, n, &looked);
            p->gain += 0.05 * ((double)tokens - 1 - p->gain);
        }
        double ns = pass_ns(r->c, drive, rows, pass, &waited);
        ntx_draft_policy_pass(p, rows, ns, waited);
        ntx_draft_policy_wrote(p, tokens, looked, 1, ns + late, waited);
        r->ahead = drafting && was_said(&drafters[r->way->drafter], text, n + tokens - 1)
                       ? waited / drafters[r->way->drafter].ns
                       : 0;
        if (getenv("BENCH_POLICY_TRACE") && r->way->nodes < 0)
            fprintf(stderr, "%s %s%+d %s %u: %u of %u nodes, %u tokens, %.0f + %.0f ms; row %.2f ms, turn %d\n",
                    r->c->name, r->way->lookup ? "lookup" : "", r->way->drafter, t->name, n, rows - 1, proposed - 1,
                    tokens, ns / 1e6, late / 1e6, ntx_pace_row(&p->pace) / 1e6, p->turn.on);
        all += ns + late;
        r->passes++;
    }
    return all / 1e9;
}

static void begin(struct run *r, const struct costs *c, const struct way *w)
{
    r->c = c;
    r->way = w;
    r->p = (struct ntx_draft_policy){.automatic = w->nodes<0, .models = w->drafter >= 0, .reads = drive_ns(c, w)> 0,
                                     .asked = w->nodes < 0 ? 0 : (uint32_t)w->nodes,
                                     .gain = 2};
    ntx_draft_turn_begin(&r->p.turn, r->p.reads || r->p.asked || w->drafter < 0);
    ntx_draft_chances(&r->chances);
    if (w->nodes < 0 && !r->p.reads)
        ntx_draft_chances_doubt(&r->chances);
}

/* ---- ways and results */

static void add_ways(void)
{
    static const int nodes[] = {4, 8, 16, 32, 63, -1};
    ways[n_ways++] = (struct way){-1, false, 0};
    for (int d = -1; d < (int)n_drafters; d++)
        for (int both = d >= 0 ? 0 : 1; both < 2; both++)
            for (size_t k = 0; k < sizeof nodes / sizeof *nodes; k++)
                if (d < 0 || nodes[k] < 32)
                    ways[n_ways++] = (struct way){d, both, nodes[k]};
}

static void print_way(const struct way *w)
{
    printf(",%s%s%s", w->drafter >= 0 ? drafters[w->drafter].name : "", w->drafter >= 0 && w->lookup ? "+" : "",
           w->lookup ? "lookup" : "");
    if (w->nodes < 0)
        printf(":auto");
    else
        printf(w->nodes ? ":%d" : "off", w->nodes);
}

/* Whether w, with a fixed number of drafts, is to be had with the memory of `of`. */
static bool is_rival(const struct way *w, const struct way *of)
{
    return w->nodes >= 0 && (w->drafter == of->drafter || w->drafter < 0);
}

struct shares {
    double sum, least, sum_off, least_off, lost;
};

/* passes: of this text, by the way. */
static void add_share(struct shares *s, const struct costs *c, const double *rate, uint32_t way, uint32_t passes)
{
    double best = 0;
    struct way mine = ways[way];
    for (uint32_t k = 0; k < n_ways; k++) /* without the drafter, a way has more memory: not a rival in this layout */
        if (is_rival(&ways[k], &mine) && (ways[k].drafter == mine.drafter || !(c->ram > 0)))
            best = NTX_MAX(best, rate[k]);
    s->sum += rate[way] / best;
    s->least = NTX_MIN(s->least, rate[way] / best);
    s->lost = NTX_MAX(s->lost, rate[way] < NEAR * best ? passes * (1 - rate[way] / best) : 0);
    s->sum_off += rate[way] / rate[0];
    s->least_off = NTX_MIN(s->least_off, rate[way] / rate[0]);
}

static void play(const struct costs *c, bool kept)
{
    static struct run runs[WAYS];
    double all[WAYS] = {0}, tokens = 0;
    struct shares shares[WAYS];
    for (uint32_t k = 0; k < n_ways; k++)
        shares[k] = (struct shares){.least = 99, .least_off = 99};
    for (uint32_t i = 0; i < n_texts; i++) {
        double rate[WAYS] = {0}, its = texts[i].n - texts[i].n_prompt - 1;
        printf("%s,%s,%s@%.1f", c->name, kept ? "kept" : "fresh", texts[i].name, (double)texts[i].temp);
        for (uint32_t k = 0; k < n_ways; k++) {
            if (!i || !kept)
                begin(&runs[k], c, &ways[k]);
            double s = fits(c, &ways[k]) ? replay(&runs[k], i) : INFINITY;
            rate[k] = its / s;
            all[k] += s;
            printf(",%.2f", rate[k]);
        }
        puts("");
        tokens += its;
        for (uint32_t k = 0; k < n_ways; k++)
            if (ways[k].nodes < 0)
                add_share(&shares[k], c, rate, k, runs[k].passes);
    }
    printf("%s,%s,all", c->name, kept ? "kept" : "fresh");
    for (uint32_t k = 0; k < n_ways; k++)
        printf(",%.2f", tokens / all[k]);
    puts("");
    for (uint32_t k = 0; k < n_ways; k++)
        if (ways[k].nodes < 0 && fits(c, &ways[k])) {
            printf("%s,%s,share", c->name, kept ? "kept" : "fresh");
            print_way(&ways[k]);
            printf(",of best,%.3f,%.3f,of off,%.3f,%.3f,lost,%.2f\n", shares[k].sum / n_texts, shares[k].least,
                   shares[k].sum_off / n_texts, shares[k].least_off, shares[k].lost);
        }
}

int main(int argc, char **argv)
{
    struct costs c;
    FILE *f = argc > 1 && argc <= 2 + DRAFTERS ? fopen(argv[1], "re") : NULL;
    if (!f) {
        fprintf(stderr, "usage: bench_policy COSTS [FILE:BYTES:NS]... < TEXTS (at most %d drafters)\n", DRAFTERS);
        return 100;
    }
    read_texts(stdin);
    for (int i = 2; i < argc; i++)
        read_drafter(argv[i]);
    add_ways();
    printf("setting,state,text");
    for (uint32_t k = 0; k < n_ways; k++)
        print_way(&ways[k]);
    puts("");
    while (read_costs(f, &c))
        for (int kept = 0; kept < 2; kept++)
            play(&c, kept);
    fclose(f);
    return 0;
}
