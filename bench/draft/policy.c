/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c: how many drafts pay, without a clock: bench_policy COSTS < TEXTS
 *
 * Replays recorded texts through the engine's policy (computed/engine/draft_policy.h). A text is the same with any
 * drafts, so what prompt lookup proposes at each place, and how much of it holds, follow from the tokens alone; the
 * time of a pass follows from COSTS. TEXTS: each a name, the number of prompt tokens, all token ids, and a semicolon.
 * COSTS: one setting a line, a name, 1 if the model streams, the drive's ns of a pass, and pairs of rows and the ns
 * that they take without the drive (linear between them).
 *
 * Each text begins with what was learned of none (fresh) and then with what the texts before it taught (kept). CSV:
 * setting, text, and tokens per second of off, of lookup with 4, 8, 16, 32 and 63 drafts, of auto, and auto's share of
 * the best. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/engine/draft_policy.h"

enum { CTX = 4096, TEXTS = 64, POINTS = 16, FIXED = 6 };
static const uint32_t nodes_of[FIXED] = {0, 4, 8, 16, 32, 63};

struct text {
    char name[32];
    uint32_t n, n_prompt;
    int32_t tokens[CTX];
};
struct costs {
    char name[32];
    int reads;
    double drive, rows[POINTS], ns[POINTS];
    int n;
};

static struct text texts[TEXTS];

static uint32_t read_texts(FILE *f)
{
    uint32_t n = 0;
    while (n < TEXTS && fscanf(f, "%31s %u", texts[n].name, &texts[n].n_prompt) == 2) {
        struct text *t = &texts[n++];
        while (t->n < CTX && fscanf(f, "%d", &t->tokens[t->n]) == 1)
            t->n++;
        int end = fscanf(f, " ;"); /* each text ends with a semicolon */
        (void)end;
    }
    return n;
}

static bool read_costs(FILE *f, struct costs *c)
{
    char line[512], *at = line;
    int used = 0;
    c->n = 0;
    if (!fgets(line, sizeof line, f) || sscanf(line, "%31s %d %lf%n", c->name, &c->reads, &c->drive, &used) != 3)
        return false;
    for (at += used; c->n < POINTS && sscanf(at, "%lf %lf%n", &c->rows[c->n], &c->ns[c->n], &used) == 2; at += used)
        c->n++;
    return c->n > 1;
}

static double busy_ns(const struct costs *c, double rows)
{
    int i = 1;
    while (i < c->n - 1 && c->rows[i] < rows)
        i++;
    double part = (rows - c->rows[i - 1]) / (c->rows[i] - c->rows[i - 1]);
    return c->ns[i - 1] + part * (c->ns[i] - c->ns[i - 1]);
}

/* Passes take up to 3 % more or less, the same for each way. */
static double pass_ns(const struct costs *c, double rows, uint32_t pass, double *waited)
{
    double busy = busy_ns(c, rows), ns = NTX_MAX(busy, c->drive), noise = 1 + 0.03 * ((pass * 7919 % 201) / 100.0 - 1);
    *waited = (ns - busy) * noise;
    return ns * noise;
}

/* Accepted tokens of a proposal for the first n tokens. */
static uint32_t follow(const struct ntx_draft *d, struct ntx_draft_chances *c, const struct text *t, uint32_t n)
{
    uint32_t at = 0, tokens = 0;
    do {
        at = ntx_draft_follow(d, c, at, t->tokens[n + tokens++]);
    } while (at && n + tokens < t->n);
    return tokens;
}

/* Seconds of a text's passes. way: drafts of each pass, or -1 for auto; 0: none. */
static double replay(const struct text *t, const struct costs *c, int way, struct ntx_draft_policy *p,
                     struct ntx_draft_chances *chances)
{
    static struct ntx_draft d;
    double all = 0, waited;
    uint32_t n = t->n_prompt + 1, pass = 0;
    ntx_draft_policy_prompt(p, t->n_prompt, busy_ns(c, t->n_prompt), 0);
    for (; n < t->n; pass++) {
        uint32_t room = t->n - n - 1, most = way < 0 ? NTX_DRAFT_NODES : (uint32_t)way + 1, tokens;
        double least = NTX_MIN(ntx_draft_policy_least(p, 1), 0.05);
        ntx_draft_chances_drift(chances);
        ntx_draft_lookup(&d, chances, t->tokens, n, way ? most : 1, room, way < 0 ? least : 0);
        uint32_t proposed = d.n;
        if (way < 0)
            ntx_draft_policy_cut(p, &d, chances, 1);
        uint32_t rows = d.n;
        ntx_draft_policy_proposed(p, rows - 1);
        if (rows == 1) { /* its first nodes are learned from */
            d.n = proposed;
            ntx_draft_follow(&d, chances, 0, t->tokens[n]);
            tokens = 1;
        } else {
            tokens = follow(&d, chances, t, n);
        }
        double ns = pass_ns(c, rows, pass, &waited);
        ntx_draft_policy_pass(p, rows, ns, waited);
        ntx_draft_policy_wrote(p, tokens, ns, waited);
        if (getenv("BENCH_POLICY_TRACE") && way < 0)
            fprintf(stderr, "%s %u: %u of %u nodes, %u tokens, %.0f ms; row %.2f ms, least %.3f\n", t->name, n,
                    rows - 1, proposed - 1, tokens, ns / 1e6, ntx_pace_row(&p->pace) / 1e6, least);
        all += ns;
        n += tokens;
    }
    return all / 1e9;
}

static struct ntx_draft_policy fresh_policy(const struct costs *c, int way)
{
    struct ntx_draft_policy p = {
        .automatic = way < 0, .reads = c->reads, .asked = way < 0 ? 0 : (uint32_t)way, .gain = 2};
    ntx_draft_turn_begin(&p.turn, true);
    return p;
}

static void show(const struct costs *c, const char *kind, const struct text *t, const double *s)
{
    double tokens = t->n - t->n_prompt - 1, best = 1e30;
    printf("%s,%s,%s", c->name, kind, t->name);
    for (int k = 0; k <= FIXED; k++) {
        printf(",%.2f", tokens / s[k]);
        best = k < FIXED ? NTX_MIN(best, s[k]) : best;
    }
    printf(",%.3f,%.3f\n", best / s[FIXED], s[0] / s[FIXED]);
}

int main(int argc, char **argv)
{
    struct costs c;
    FILE *f = argc == 2 ? fopen(argv[1], "re") : NULL;
    if (!f) {
        fprintf(stderr, "usage: bench_policy COSTS < TEXTS\n");
        return 1;
    }
    const uint32_t n = read_texts(stdin);
    puts("setting,state,text,off,4,8,16,32,63,auto,of_best,of_off");
    while (read_costs(f, &c))
        for (int kept = 0; kept < 2; kept++) {
            struct ntx_draft_chances chances[FIXED + 1];
            struct ntx_draft_policy p[FIXED + 1];
            for (uint32_t i = 0; i < n; i++) {
                double s[FIXED + 1];
                for (int k = 0; k <= FIXED; k++) {
                    int way = k < FIXED ? (int)nodes_of[k] : -1;
                    if (!i || !kept) {
                        ntx_draft_chances(&chances[k]);
                        p[k] = fresh_policy(&c, way);
                    }
                    s[k] = replay(&texts[i], &c, way, &p[k], &chances[k]);
                }
                show(&c, kept ? "kept" : "fresh", &texts[i], s);
            }
        }
    fclose(f);
    return 0;
}
