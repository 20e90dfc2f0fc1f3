/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt lookup: its proposals and what it learns; the cost of one more row; turns of drafting. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "computed/engine/draft.h"
#include "tests/lib/check.h"

static struct ntx_draft_chances chances;

static void lookup(struct ntx_draft *d, const char *text, uint32_t most, uint32_t deepest, double cost)
{
    int32_t ids[256];
    uint32_t n = (uint32_t)strlen(text);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = text[i];
    ntx_draft_lookup(d, &chances, ids, n, most, deepest, cost);
    CHECK(d->n && d->n <= NTX_DRAFT_NODES && d->n <= (most ? most : 1));
    CHECK_EQ(d->token[0], text[n - 1]);
    for (uint32_t i = 0; i < d->n; i++) { /* parents come first, and slots ascend to the node's own */
        CHECK(i ? d->parent[i] < i && d->depth[i] == d->depth[d->parent[i]] + 1 : !d->depth[0]);
        CHECK(d->depth[i] <= deepest);
        for (uint32_t k = 0, at = i; k <= d->depth[i]; k++, at = d->parent[at])
            CHECK_EQ(d->path[i][d->depth[i] - k], n - 1 + at);
    }
}

/* The tokens of the first child of each node. */
static const char *chain(const struct ntx_draft *d)
{
    static char text[NTX_DRAFT_NODES];
    uint32_t at = 0, n = 0;
    for (uint32_t i = 1; i < d->n; i++)
        if (d->parent[i] == at) {
            text[n++] = (char)d->token[i];
            at = i;
        }
    text[n] = 0;
    return text;
}

/* Rows of images (numbers below -1) may be what a text has in common. They are not proposed, nor what follows them. */
static void over_images(void)
{
    enum { IMAGE = -7 };
    static const struct {
        int32_t text[16];
        uint32_t n;
        const char *proposed;
    } cases[] = {
        {{'a', 'b', 'c', IMAGE, IMAGE - 1, 'd', 'e', 'a', 'b', 'c'}, 10, ""},
        {{'a', 'b', 'c', 'd', IMAGE, IMAGE - 1, 'e', 'a', 'b', 'c'}, 10, "d"},
        {{'a', IMAGE, IMAGE - 1, 'b', 'c', 'd', 'a', IMAGE, IMAGE - 1}, 9, "bcda"},
        {{IMAGE, IMAGE, IMAGE, IMAGE, IMAGE}, 5, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ntx_draft d;
        ntx_draft_chances(&chances);
        ntx_draft_lookup(&d, &chances, cases[i].text, cases[i].n, 32, 32, 0);
        for (uint32_t k = 1; k < d.n; k++)
            CHECK(d.token[k] >= 0);
        CHECK_MSG(!strcmp(chain(&d), cases[i].proposed), "%zu: '%s'", i, chain(&d));
    }
}

static void looked_up(void)
{
    struct ntx_draft d;
    ntx_draft_chances(&chances);
    lookup(&d, "abcdef", 32, 32, 0);
    CHECK_EQ(d.n, 1);
    lookup(&d, "the cat sat. the c", 9, 32, 0);
    CHECK_MSG(!strncmp(chain(&d), "at sat. ", 8), "%s", chain(&d));
    lookup(&d, "abab", 9, 32, 0); /* goes on past the end of the text */
    CHECK_MSG(!strcmp(chain(&d), "abababab"), "%s", chain(&d));
    lookup(&d, "abab", 9, 3, 0);
    CHECK_EQ(strlen(chain(&d)), 3);
    lookup(&d, "xyzA.....xyzB..xyz", 32, 32, 0); /* two matches: the later first */
    CHECK_EQ(d.token[1], 'B');
    bool both = false;
    for (uint32_t i = 2; i < d.n; i++)
        both |= d.token[i] == 'A' && !d.parent[i];
    CHECK(both);
    lookup(&d, "xbcd....abcD...abc", 2, 32, 0); /* the longer match, earlier or later */
    CHECK_EQ(d.token[1], 'D');
    lookup(&d, "abcD...xbcd....abc", 2, 32, 0);
    CHECK_EQ(d.token[1], 'D');
    lookup(&d, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 32, 64, 0.999);
    CHECK_EQ(d.n, 1); /* no node is that likely */
    lookup(&d, "a", 32, 64, 0);
    CHECK_EQ(d.n, 1);
    lookup(&d, "the cat Tom sat. the cat B", 6, 64, 0); /* another name, and the text goes on as before */
    CHECK_MSG(!strcmp(chain(&d), "om sa"), "%s", chain(&d));
    lookup(&d, "catX...atY", 32, 64, 0); /* two common tokens are too few for that */
    CHECK_EQ(d.n, 1);
    lookup(&d, "abab", 0, 64, 0);
    CHECK_EQ(d.n, 1);
}

static void learned(void)
{
    struct ntx_draft d;
    static const char text[] = "the cat sat. the c";
    ntx_draft_chances(&chances);
    lookup(&d, text, 32, 32, 0.3);
    uint32_t before = d.n;
    CHECK(before > 2);
    CHECK_EQ(ntx_draft_follow(&d, &chances, 0, 'a'), 1);
    CHECK_EQ(ntx_draft_follow(&d, &chances, 1, 'X'), 0);
    for (int i = 0; i < 50; i++)
        ntx_draft_follow(&d, &chances, 0, 'X');
    lookup(&d, text, 32, 32, 0.3);
    CHECK_EQ(d.n, 1);
    struct ntx_draft one;
    ntx_draft_root(&one, 0, 1);
    ntx_draft_add(&one, 0, d.kind[0], 'a', 1);
    for (int i = 0; i < 200; i++)
        ntx_draft_follow(&one, &chances, 0, 'a');
    CHECK_EQ(ntx_draft_follow(&d, &chances, 0, 'a'), 0);
}

/* Chances by depth: drafts that hold near the text and not far from it. The other source learns nothing. */
static void by_depth(void)
{
    const uint32_t kind = ntx_draft_first_kind(0) + 5;
    struct ntx_draft d;
    ntx_draft_chances(&chances);
    CHECK(ntx_draft_chance(&chances, kind, 1, 0.5f) == 0.5 && ntx_draft_chance(&chances, kind, 9, 0.5f) == 0.5);
    ntx_draft_root(&d, 'x', 7);
    for (uint32_t i = 0; i < 9; i++)
        ntx_draft_add(&d, i, kind, 'a', 0.5f);
    for (int i = 0; i < 400; i++) {
        ntx_draft_follow(&d, &chances, 0, i % 10 ? 'a' : 'b');
        ntx_draft_follow(&d, &chances, 8, i % 10 ? 'b' : 'a');
    }
    double near = ntx_draft_chance(&chances, kind, 1, 0.5f), far = ntx_draft_chance(&chances, kind, 9, 0.5f),
           unseen = ntx_draft_chance(&chances, kind, 2, 0.5f);
    CHECK_MSG(near > 0.75 && near <= 1 && far < 0.25 && unseen > 0.4 && unseen < 0.6, "%f %f %f", near, far, unseen);
    CHECK(ntx_draft_chance(&chances, kind, 1, 1) > 0.95 && ntx_draft_chance(&chances, kind, 1, 1) < 1);
    CHECK(fabs(ntx_draft_chance(&chances, 0, 9, 1) - 0.2) < 1e-6);
}

/* A text whose last drafts held gets higher chances, of kinds that were not tried, too; else lower ones. */
static void lately(void)
{
    struct ntx_draft d;
    ntx_draft_chances(&chances);
    ntx_draft_root(&d, 'x', 7);
    ntx_draft_add(&d, 0, 2, 'a', 1);
    double usual = ntx_draft_chance(&chances, 4, 1, 1),
           file = ntx_draft_chance(&chances, ntx_draft_first_kind(0), 1, 1);
    for (int i = 0; i < 6; i++)
        ntx_draft_follow(&d, &chances, 0, 'a');
    CHECK(ntx_draft_chance(&chances, 4, 1, 1) > 1.1 * usual);
    for (int i = 0; i < 20; i++)
        ntx_draft_follow(&d, &chances, 0, 'b');
    CHECK(ntx_draft_chance(&chances, 4, 1, 1) < 0.9 * usual);
    CHECK(ntx_draft_chance(&chances, ntx_draft_first_kind(0), 1, 1) == file); /* of another source */
}

/* Two proposals for "..x": lookup has a, ab, abc; the drafter b, bc, and a (0.9), which makes lookup's b and c likelier
 * than alone. */
static void joined(void)
{
    static struct ntx_draft d, of[3];
    const uint32_t file = ntx_draft_first_kind(0) + 8;
    ntx_draft_chances(&chances);
    for (int i = 0; i < 2; i++)
        ntx_draft_root(&of[i], 'x', 7);
    uint32_t a = ntx_draft_add(&of[0], 0, 0, 'a', 1),
             b = ntx_draft_add(&of[0], a, 5, 'b', 1); /* 0.2, and 0.75 below it */
    ntx_draft_add(&of[0], b, 6, 'c', 1);              /* 0.8 */
    a = ntx_draft_add(&of[1], 0, file, 'a', 0.9f);
    b = ntx_draft_add(&of[1], 0, file, 'b', 0.08f);
    ntx_draft_add(&of[1], b, file, 'c', 0.5f); /* 0.04 */
    ntx_draft_join(&d, of, 2, &chances, 32, 0);
    CHECK_EQ(d.n, 6); /* x, a (0.9), ab (0.675), abc (0.54), b, bc */
    CHECK(d.token[1] == 'a' && d.token[2] == 'b' && d.token[3] == 'c' && d.token[4] == 'b' && d.token[5] == 'c');
    CHECK(d.parent[2] == 1 && d.parent[3] == 2 && !d.parent[4] && d.parent[5] == 4 && d.depth[3] == 3);
    CHECK(d.kind[1] == file && d.also[1][NTX_DRAFT_BY_LOOKUP] == 0 && d.also[2][NTX_DRAFT_BY_FILE] == NTX_DRAFT_ALONE &&
          ntx_draft_source(d.kind[1]) == NTX_DRAFT_BY_FILE);
    for (uint32_t k = 0; k < 4; k++)
        CHECK_EQ(d.path[3][k], 6 + k);
    ntx_draft_join(&d, of, 2, &chances, 32, 0.5);
    CHECK_EQ(d.n, 4);
    ntx_draft_join(&d, of, 2, &chances, 3, 0);
    CHECK_EQ(d.n, 3);
    float looked = chances.held[0], drafted = chances.held[file];
    CHECK_EQ(ntx_draft_follow(&d, &chances, 0, 'a'), 1); /* both learn from it */
    CHECK(chances.held[0] > looked && chances.held[file] > drafted);
    ntx_draft_root(&of[1], 'x', 7); /* an empty proposal leaves lookup's */
    ntx_draft_join(&d, of, 2, &chances, 32, 0);
    CHECK_EQ(d.n, 4);
    const uint32_t second = ntx_draft_first_kind(1) + 9;
    ntx_draft_root(&of[2], 'x', 7); /* a third one has a, too, as the second file: each source learns for itself */
    ntx_draft_add(&of[2], 0, second, 'a', 0.95f);
    ntx_draft_add(&of[1], 0, file, 'a', 0.9f);
    ntx_draft_join(&d, of, 3, &chances, 32, 0);
    CHECK(d.n == 4 && d.kind[1] == second && ntx_draft_source(second) == NTX_DRAFT_BY_FILE + 1 &&
          d.also[1][NTX_DRAFT_BY_LOOKUP] == 0 && d.also[1][NTX_DRAFT_BY_FILE] == file);
    float of_first = chances.held[file], of_second = chances.held[second], other = chances.held[second - 1];
    CHECK_EQ(ntx_draft_follow(&d, &chances, 0, 'b'), 0);
    CHECK(chances.held[file] < of_first && chances.held[second] < of_second && chances.held[second - 1] == other);
}

static void paced(void)
{
    struct ntx_pace p = {0};
    CHECK(ntx_pace_row(&p) == 0 && ntx_pace_of(&p, 1) == 0);
    for (int i = 0; i < 5; i++)
        ntx_pace_add(&p, 1, 160, 0);
    CHECK(fabs(ntx_pace_row(&p) - 10) < 1e-9 && fabs(ntx_pace_of(&p, 1) - 160) < 1e-9); /* the prior: it is tried */
    p.row = 25;
    CHECK(fabs(ntx_pace_row(&p) - 25) < 1e-9); /* rows of the prompt took more */
    for (uint32_t i = 0; i < 200; i++)
        ntx_pace_add(&p, 1 + i % 8, 100 + 40.0 * (1 + i % 8), 0);
    CHECK(ntx_pace_row(&p) > 38 && ntx_pace_row(&p) < 41);
    CHECK(ntx_pace_of(&p, 1) > 130 && ntx_pace_of(&p, 1) < 150);
    for (uint32_t i = 0; i < 100; i++) /* plain passes do not make it forget */
        ntx_pace_add(&p, 1, 140, 0);
    CHECK_MSG(ntx_pace_row(&p) > 35 && ntx_pace_row(&p) < 42, "%f", ntx_pace_row(&p));
    for (uint32_t i = 0; i < 200; i++)
        ntx_pace_add(&p, 1 + i % 8, 1000, 0);
    CHECK(ntx_pace_row(&p) < 5);
}

/* A drive of 500 ns a pass hides rows of 20 ns as far as it can. */
static void hidden(void)
{
    struct ntx_pace p = {0};
    for (uint32_t i = 0; i < 60; i++) {
        double rows = 1 + 15 * (i % 3 == 0), busy = 40 + 20 * rows;
        ntx_pace_add(&p, rows, 500, 500 - busy);
    }
    double one = ntx_pace_of(&p, 1), ten = ntx_pace_of(&p, 10), many = ntx_pace_of(&p, 64);
    CHECK_MSG(one > 495 && one < 505 && ten < 520 && many > 1200 && many < 1400, "%f %f %f", one, ten, many);
}

/* Simulates passes of a machine on which drafting costs `dear` plain passes and gives `gain` tokens. Returns the share
 * of time lost against the better mode. */
static double lost(double dear, double gain, uint32_t passes, bool begins_on, bool drive)
{
    struct ntx_draft_turn t;
    double tokens = 0, ns = 0;
    ntx_draft_turn_begin(&t, begins_on);
    for (uint32_t i = 0; i < passes; i++) {
        double took = t.on ? dear * 1000 : 1000, got = t.on ? gain : 1;
        tokens += got;
        ns += took;
        ntx_draft_turn_pass(&t, (uint32_t)got, took, drive ? 900 : 0);
    }
    return ns / tokens / (dear < gain ? 1000 * dear / gain : 1000) - 1;
}

static void turns(void)
{
    for (int on = 0; on < 2; on++) {
        CHECK(lost(1.1, 5, on ? 100 : 2000, on, true) < 0.02); /* a slow drive: nothing is tried */
        CHECK(lost(2, 4, 4000, on, false) < 0.02);
        CHECK(lost(1.5, 1, 4000, on, true) < 0.02); /* drafts that never hold */
        CHECK(lost(6, 4, 8000, on, false) < 0.02);  /* expensive rows */
    }
    struct ntx_draft_turn t;
    ntx_draft_turn_begin(&t, true);
    for (int i = 0; i < 5000; i++) /* drafting stops paying and is left; it pays again, and is resumed */
        ntx_draft_turn_pass(&t, t.on && i < 1000 ? 4 : 1, t.on ? 1500 : 1000, 1000);
    CHECK(!t.on && t.rate[1] < t.rate[0]);
    for (int i = 0; i < 20000; i++)
        ntx_draft_turn_pass(&t, t.on ? 4 : 1, t.on ? 1500 : 1000, 1000);
    CHECK(t.on);
}

/* Drafts that never hold, however expensive: trials take 1 % of the time, and the
 * first one's cost. */
static void bounded(void)
{
    for (double times = 1.5; times < 100; times *= 2) {
        struct ntx_draft_turn t;
        double lost = 0;
        uint32_t trials = 0, passes = 8000;
        ntx_draft_turn_begin(&t, false);
        for (uint32_t i = 0; i < passes; i++) {
            bool on = t.on;
            lost += on ? times - 1 : 0;
            ntx_draft_turn_pass(&t, 1, on ? 1e7 * times : 1e7, 0);
            trials += on && !t.on;
        }
        CHECK_MSG(trials && lost <= 0.01 * passes + 6 * (times - 1), "%g times: %u trials lost %g of %u passes", times,
                  trials, lost, passes);
    }
}

/* Where rows are dear, prompt lookup is doubted at first; a file is not. */
static void doubted(void)
{
    ntx_draft_chances(&chances);
    ntx_draft_chances_doubt(&chances);
    CHECK(fabs(ntx_draft_chance(&chances, 2, 1, 1) - 0.25) < 1e-6 &&
          fabs(ntx_draft_chance(&chances, ntx_draft_first_kind(1), 1, 0.5f) - 0.5) < 1e-6);
}

static uint32_t best_of(const struct ntx_draft *d, double rows, double plain, double share, double row, double worth)
{
    double ns[NTX_DRAFT_NODES];
    for (uint32_t i = 0; i < d->n; i++)
        ns[i] = plain + row * (ntx_pace_union(share, rows + i) - ntx_pace_union(share, rows));
    return ntx_draft_best(d, &chances, rows, ns, worth);
}

/* With shared experts few drafts do not pay and many do. With dense rows, as many as are worth their rows. */
static void most_of_a_pass(void)
{
    struct ntx_draft d;
    const uint32_t kind = ntx_draft_first_kind(0);
    ntx_draft_chances(&chances);
    ntx_draft_root(&d, 'x', 3);
    for (uint32_t i = 0; i < 8; i++)
        ntx_draft_add(&d, i, kind, 'a', 0.7f); /* 0.7, 0.49, 0.343, 0.24, 0.168, 0.118, 0.082, 0.058 */
    CHECK_EQ(best_of(&d, 1, 100, 0, 80, 0.01), 1);
    CHECK_EQ(best_of(&d, 1, 100, 0, 60, 0.01), 2); /* 0.7 tokens for 60 ns, and then 0.49 */
    CHECK_EQ(best_of(&d, 1, 100, 0, 10, 0.01), 5); /* the rate is 0.021 tokens a ns then, so 0.168 for 10 ns is less */
    CHECK_EQ(best_of(&d, 1, 100, 0, 10, 0.04), 3); /* time is worth more elsewhere */
    CHECK_EQ(best_of(&d, 1, 100, 0.5, 80, 0.01), 9); /* the first two are dear, all others nearly free */
    CHECK_EQ(best_of(&d, 4, 100, 0, 10, 0.04), 3);   /* beside three other rows, which wait */
    const double hidden[9] = {100, 100, 100, 100, 100, 200, 300, 400, 500};
    CHECK_EQ(ntx_draft_best(&d, &chances, 1, hidden, 0.01), 5); /* as many as the drive hides */
}

/* Rows that share experts: the first ones cost nearly a row each, later ones less and less. */
static void shared(void)
{
    CHECK(ntx_pace_union(0, 7) == 7 && fabs(ntx_pace_union(0.25, 1) - 1) < 1e-9 &&
          fabs(ntx_pace_union(0.25, 2) - 1.75) < 1e-9 && fabs(ntx_pace_union(0.25, 100) - 4) < 1e-6);
    struct ntx_pace p = {.prior = 0.5};
    ntx_pace_add(&p, 1, 160, 0);
    CHECK(fabs(ntx_pace_row(&p) - 80) < 1e-9);
    for (uint32_t i = 0; i < 200; i++)
        ntx_pace_add(&p, ntx_pace_union(0.25, 1 + i % 8), 100 + 40 * ntx_pace_union(0.25, 1 + i % 8), 0);
    CHECK(fabs(ntx_pace_row(&p) - 40) < 3); /* the prior still weighs a little */
}

/* A search that takes 0.05 in passes of 1 gets at most 0.5 % of the time; one of 0.002 is due in each pass. */
static void looks(void)
{
    const double ns[] = {5e4, 2e3};
    for (int k = 0; k < 2; k++) {
        struct ntx_draft_look l = {0};
        uint32_t n = 0;
        for (uint32_t i = 0; i < 2000; i++) {
            n += ntx_draft_look_due(&l);
            l.over_ns += ntx_draft_look_due(&l) ? ns[k] : 0;
            ntx_draft_look_pass(&l, 1e6);
        }
        CHECK_MSG(k ? n == 2000 : n * ns[k] <= 0.005 * 2000 * 1e6 && n > 100, "%u looks", n);
    }
}

/* A product of two rows costs hardly more than one of one row, and three rows more than four. */
static void few_rows(void)
{
    static const double ns[] = {0, 100, 105, 180, 150};
    struct ntx_pace p = {0};
    for (int i = 0; i < 60; i++)
        ntx_pace_add(&p, 1 + i % 4, ns[1 + i % 4], 0);
    for (int n = 1; n <= 4; n++)
        CHECK_MSG(fabs(ntx_pace_of(&p, n) - ns[n]) < 0.03 * ns[n], "%d rows: %f", n, ntx_pace_of(&p, n));
    double three = ntx_pace_of(&p, 3), line = ntx_pace_of(&p, 3.001);
    CHECK(three > 1.1 * line);
    for (int i = 0; i < 1500; i++) /* three rows are not tried any more: after a while they are believed cheaper */
        ntx_pace_add(&p, 1, 100, 0);
    CHECK(ntx_pace_of(&p, 3) < 1.02 * ntx_pace_of(&p, 3.001));
}

/* Matches of three tokens held, so that longer ones are trusted, though none was seen. */
static void longer_matches(void)
{
    struct ntx_draft_chances c;
    ntx_draft_chances(&c);
    ntx_draft_chances_doubt(&c);
    const double before = ntx_draft_chance(&c, 8, 1, 1), shorter = ntx_draft_chance(&c, 1, 1, 1);
    c.held[2] = c.said[2] = 20;
    CHECK(before < 0.5 && ntx_draft_chance(&c, 8, 1, 1) > 0.95);
    CHECK(fabs(ntx_draft_chance(&c, 1, 1, 1) - shorter) < 1e-9);
    CHECK(ntx_draft_chance(&c, NTX_DRAFT_LOOKUP_KINDS / 2 + 3, 1, 1) < 0.1); /* of other matches than the first */
}

/* A text that was copied for long goes on more surely; a break ends that. */
static void unbroken(void)
{
    struct ntx_draft d;
    struct ntx_draft_chances c;
    ntx_draft_chances(&c);
    ntx_draft_root(&d, 'x', 5);
    ntx_draft_add(&d, 0, 9, 'a', 1);
    for (int i = 0; i < 60; i++)
        ntx_draft_follow(&d, &c, 0, 'a');
    CHECK(fabs(ntx_draft_chance(&c, 9, 1, 1) - (1 - 1 / (2.5 * 74))) < 1e-6);
    ntx_draft_follow(&d, &c, 0, 'b');
    CHECK(ntx_draft_chance(&c, 9, 1, 1) < 1 - 1 / 35.0 + 1e-6);
}

int main(void)
{
    doubted();
    hidden();
    looks();
    shared();
    most_of_a_pass();
    turns();
    bounded();
    looked_up();
    over_images();
    learned();
    by_depth();
    lately();
    joined();
    paced();
    few_rows();
    longer_matches();
    unbroken();
    return 0;
}
