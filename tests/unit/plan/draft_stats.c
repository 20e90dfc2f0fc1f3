/* SPDX-License-Identifier: Apache-2.0 */
/* Draft statistics: stored and read again; what a tree's nodes gain; hostile files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "computed/plan/draft_stats.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

static float first(uint32_t kind) { return kind < 20 ? 0.25f : 1; }

static void ranked(void)
{
    struct ntx_draft_stats g;
    bool known = true;
    ntx_draft_stats_begin(&g, first);
    CHECK(fabs(ntx_draft_stats_gain(&g, 1, 0, &known) - 0.75) < 1e-9 && !known);
    CHECK(ntx_draft_stats_gain(&g, 0, 0, &known) < 0.5);
    for (int i = 0; i < 100; i++) /* the first draft token always holds, the second every other time, the third never */
        ntx_draft_stats_rank(&g.ranks[1], 3, (uint64_t[2]){i % 2 ? 6 : 2, 0});
    CHECK(ntx_draft_stats_gain(&g, 1, 0, &known) == 1 && known);
    CHECK(ntx_draft_stats_gain(&g, 1, 1, &known) == 0.5);
    CHECK(ntx_draft_stats_gain(&g, 1, 2, &known) == 0 && ntx_draft_stats_gain(&g, 1, 9, &known) == 0);
    for (int i = 0; i < 100; i++) { /* look-up proposes two nodes every other time, so a pass gains half of that */
        ntx_draft_stats_rank(&g.ranks[0], 2 * (i % 2), (uint64_t[2]){i % 2 ? 7 : 1, 0});
        ntx_draft_stats_rank(&g.ranks[2], 2, (uint64_t[2]){3, 0});
    }
    CHECK(ntx_draft_stats_gain(&g, 0, 0, &known) == 0.5 && ntx_draft_stats_gain(&g, 0, 1, &known) == 0.5 &&
          ntx_draft_stats_gain(&g, 0, 2, &known) == 0);
    CHECK(ntx_draft_stats_gain(&g, 2, 0, &known) == 1 && ntx_draft_stats_gain(&g, 2, 1, &known) == 0);
    /* of these passes, half had no draft and half had two, both of which held */
    CHECK(ntx_draft_stats_known(&g, 0) && ntx_draft_stats_share(&g, 0, 0, 126) == 0.5 &&
          ntx_draft_stats_share(&g, 0, 1, 126) == 0 && ntx_draft_stats_share(&g, 0, 2, 126) == 0.5 &&
          ntx_draft_stats_share(&g, 0, 3, 126) == 0 && ntx_draft_stats_share(&g, 0, 1, 1) == 0.5);
    CHECK(ntx_draft_stats_held(&g, 0, 1) == 0.5 && ntx_draft_stats_held(&g, 0, 2) == 0 &&
          ntx_draft_stats_held(&g, 0, 200) == 0);
    struct ntx_draft_stats_ranks r = {0};
    for (int i = 0; i < 200; i++)
        ntx_draft_stats_rank(&r, 127, (uint64_t[2]){UINT64_MAX, UINT64_MAX});
    CHECK(r.held[62] == 200 && r.held[63] == 200 && r.held[126] == 200);
    for (int i = 0; i < 5000; i++) /* old trees count less and less */
        ntx_draft_stats_rank(&r, 1, (uint64_t[2]){1, 0});
    CHECK(r.passes <= 2001 && r.held[0] < 60);
}

static struct ntx_draft_stats_place place(uint32_t way, uint64_t streamed, double rate)
{
    return (struct ntx_draft_stats_place){.way = way,
                                          .threads = 2,
                                          .streamed = streamed,
                                          .on = true,
                                          .left = 7,
                                          .rest = 256,
                                          .away = 3,
                                          .tries = 2,
                                          .rate = {rate, 2 * rate},
                                          .pace = {1, 2, 3, 4, 5, 6},
                                          .few = {1, 0, 1.5},
                                          .texts = {100, 3e9, 50}};
}

static void placed(void)
{
    struct ntx_draft_stats g;
    ntx_draft_stats_begin(&g, first);
    CHECK(!ntx_draft_stats_place(&g, 0, 2, 0));
    for (uint32_t i = 0; i < 12; i++) {
        struct ntx_draft_stats_place p = place(1, 1000u << i, 1 + i);
        ntx_draft_stats_settle(&g, &p);
    }
    CHECK_EQ(g.n_places, NTX_DRAFT_STATS_PLACES);
    CHECK(!ntx_draft_stats_place(&g, 1, 2, 1000) && ntx_draft_stats_place(&g, 1, 2, 1000u << 11)->rate[0] == 12);
    CHECK(ntx_draft_stats_place(&g, 1, 2, 8200u << 3)->rate[0] == 7); /* nearly 64000 */
    CHECK(!ntx_draft_stats_place(&g, 0, 2, 1000u << 11) && !ntx_draft_stats_place(&g, 1, 3, 1000u << 11));
    struct ntx_draft_stats_place p = place(1, 64000, 99);
    ntx_draft_stats_settle(&g, &p);
    CHECK(g.n_places == NTX_DRAFT_STATS_PLACES && ntx_draft_stats_place(&g, 1, 2, 64000) == &g.place[0] &&
          g.place[0].rate[0] == 99 && g.place[1].rate[0] == 12);
}

/* Drafters that did not pay leave their memory to weights, for more loads each time before they are tried again. */
static void left_out(void)
{
    struct ntx_draft_stats_place p = place(1, 1000, 10);
    p.away = p.tries = 0;
    struct ntx_draft_stats_place pays = p, unknown = p;
    CHECK(!ntx_draft_stats_leave_out(&pays, 1.9) &&
          !pays.away); /* twice the rate, more than weights in its place would gain */
    unknown.rate[1] = 0;
    CHECK(!ntx_draft_stats_leave_out(&unknown, 1.5) && !unknown.away);
    p.on = false;
    CHECK(!ntx_draft_stats_leave_out(&p, 1.001) && !p.away); /* the gain is too small */
    for (uint32_t times = 0; times < 5; times++) {
        uint32_t loads = 0;
        while (ntx_draft_stats_leave_out(&p, 1.1))
            loads++;
        CHECK_EQ(loads, 16u << (times < 3 ? times : 3));
        CHECK(!p.away && p.tries == times + 1);
    }
    p.on = true;
    CHECK(!ntx_draft_stats_leave_out(&p, 1.9) && ntx_draft_stats_leave_out(&p, 1.99));
}

/* Texts took 3 s in passes of 0.3 s with the drafters. Without them passes take 0.15 s, so that look-up alone is faster
 * with up to 19 passes. It is known by texts of 256 tokens, where look-up takes part and passes wait for the drive. */
static void copied(void)
{
    struct ntx_draft_stats_place p = {
        .way = 2, .on = true, .pace = {[5] = 3e8}, .texts = {.tokens = 256, .ns = 3e9, .alone = 19}};
    struct ntx_draft_stats_place q = p;
    CHECK(ntx_draft_stats_leave_out(&q, 2) && q.away == 1 && ntx_draft_stats_leave_out(&q, 2) && q.away == 2);
    q = p;
    q.texts.alone = 20;
    CHECK(!ntx_draft_stats_leave_out(&q, 2) && !q.away);
    q = p;
    q.texts.tokens = 255;
    CHECK(!ntx_draft_stats_leave_out(&q, 2) && !q.away);
    q = p;
    q.way = 1;
    CHECK(!ntx_draft_stats_leave_out(&q, 2) && !q.away);
    q = p;
    q.pace[5] = 0;
    CHECK(!ntx_draft_stats_leave_out(&q, 2) && !q.away);
    CHECK(!ntx_draft_stats_leave_out(&p, 1.001) && !p.away);
}

static const char first_file[NTX_DRAFT_STATS_DIGEST] = "00112233445566778899aabbccddeeff",
                  other_file[NTX_DRAFT_STATS_DIGEST] = "ffeeddccbbaa99887766554433221100";

static struct ntx_draft_stats some(void)
{
    struct ntx_draft_stats g;
    ntx_draft_stats_begin(&g, first);
    memcpy(g.drafter[0], first_file, sizeof first_file);
    memcpy(g.drafter[1], other_file, sizeof other_file);
    for (uint32_t k = 0; k < NTX_DRAFT_KINDS; k++)
        g.chances.held[k] = (float)(k + 1) / 16;
    g.chances.deep_held[1][7] = 3.5f;
    g.chances.deep_held[2][7] = 4.5f;
    for (int i = 0; i < 20; i++)
        ntx_draft_stats_rank(&g.ranks[1], 40, (uint64_t[2]){0xffff, 0});
    struct ntx_draft_stats_place p = place(1, 12345678, 1e-8);
    ntx_draft_stats_settle(&g, &p);
    return g;
}

static void kept(void)
{
    char dir[256], path[400];
    struct ntx_draft_stats g = some(), back;
    struct ntx_err err = {0};
    temporary_dir(dir, sizeof dir, "drafts");
    CHECK(!setenv("XDG_CACHE_HOME", dir, 1));
    ntx_draft_stats_begin(&back, first);
    CHECK_EQ(ntx_draft_stats_load("none", &back, &err), -ENOENT);
    CHECK_EQ(ntx_draft_stats_store("abc", &g, &err), 0);
    memcpy(back.drafter, g.drafter, sizeof back.drafter);
    CHECK_EQ(ntx_draft_stats_load("abc", &back, &err), 0);
    CHECK(back.chances.held[29] == 30.0f / 16 && back.chances.deep_held[1][7] == 3.5f && back.ranks[1].held[14] == 20 &&
          back.ranks[1].held[15] == 0);
    CHECK(back.ranks[1].tried[39] == 20 && back.n_places == 1 && back.place[0].streamed == 12345678 &&
          back.place[0].on && back.place[0].left == 7 && back.place[0].away == 3 && back.place[0].tries == 2);
    CHECK(fabs(back.place[0].rate[1] - 2e-8) < 1e-14 && back.place[0].pace[4] == 5 && back.place[0].pace[5] == 6);
    CHECK(back.place[0].texts.tokens == 100 && back.place[0].texts.ns == 3e9 && back.place[0].texts.alone == 50);
    CHECK(back.place[0].few[0] == 1 && !back.place[0].few[1] && back.place[0].few[2] == 1.5 && !back.place[0].few[3]);
    ntx_draft_stats_begin(&back, first);
    CHECK_EQ(ntx_draft_stats_load("abc", &back, &err),
             0); /* without a drafter, what is known of the stored ones is kept */
    CHECK(!strcmp(back.drafter[0], first_file) && back.ranks[1].passes == 20);
    ntx_draft_stats_begin(&back, first);
    /* another drafter first, then the second of the stored ones */
    memset(back.drafter[0], 'a', NTX_DRAFT_STATS_DIGEST - 1);
    memcpy(back.drafter[1], back.drafter[0], NTX_DRAFT_STATS_DIGEST);
    memcpy(back.drafter[0], other_file, NTX_DRAFT_STATS_DIGEST);
    CHECK_EQ(ntx_draft_stats_load("abc", &back, &err), 0);
    CHECK(back.chances.held[19] == 20.0f / 16 && back.chances.held[20] == 31.0f / 16 && back.chances.held[30] == 4 &&
          back.chances.deep_held[2][7] == 20 && back.chances.deep_held[1][7] == 4.5f);
    CHECK(!back.ranks[1].passes && !back.n_places && !strcmp(back.drafter[0], other_file) && back.drafter[1][5] == 'a');
    snprintf(path, sizeof path, "%s/ntx/drafts/abc.json", dir);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("{\"ntx_draft_stats\": 1}", f) > 0 && !fclose(f));
    CHECK_EQ(ntx_draft_stats_load("abc", &back, &err), -EINVAL);
    CHECK(back.chances.held[19] == 20.0f / 16); /* nothing has changed */
    CHECK(!unlink(path));
    snprintf(path, sizeof path, "%s/ntx/drafts", dir);
    CHECK(!rmdir(path));
    snprintf(path, sizeof path, "%s/ntx", dir);
    CHECK(!rmdir(path) && !rmdir(dir));
}

/* A file of version 0.2 is read under its old names, until one is stored under the new ones. */
static void old_names(void)
{
    static const char old[] = "{\"ntx_guesses\": 2";
    char dir[256], now[400], before[400];
    struct ntx_draft_stats g = some(), back;
    struct ntx_err err = {0};
    temporary_dir(dir, sizeof dir, "drafts");
    CHECK(!setenv("XDG_CACHE_HOME", dir, 1));
    snprintf(now, sizeof now, "%s/ntx", dir);
    CHECK(!mkdir(now, 0700));
    snprintf(before, sizeof before, "%s/ntx/guesses", dir);
    CHECK(!mkdir(before, 0700));
    snprintf(before, sizeof before, "%s/ntx/guesses/abc.json", dir);
    FILE *f = fopen(before, "w");
    char *text = ntx_draft_stats_dump(&g), *rest = strchr(text, ',');
    CHECK(f && rest && fputs(old, f) >= 0 && fputs(rest, f) >= 0 && !fclose(f));
    free(text);
    ntx_draft_stats_begin(&back, first);
    CHECK_EQ(ntx_draft_stats_load("abc", &back, &err), 0);
    CHECK(back.chances.held[29] == 30.0f / 16);
    g.chances.held[29] = 7;
    CHECK_EQ(ntx_draft_stats_store("abc", &g, &err), 0);
    CHECK_EQ(ntx_draft_stats_load("abc", &back, &err), 0);
    CHECK(back.chances.held[29] == 7);
    snprintf(now, sizeof now, "%s/ntx/drafts/abc.json", dir);
    CHECK(!unlink(now) && !unlink(before));
    *strrchr(now, '/') = *strrchr(before, '/') = 0;
    CHECK(!rmdir(now) && !rmdir(before));
    *strrchr(now, '/') = 0;
    CHECK(!rmdir(now) && !rmdir(dir));
}

/* Replaces one word of a good file. */
static void refused(const char *old, const char *new)
{
    struct ntx_draft_stats g = some(), back = {.n_places = 5};
    struct ntx_err err = {0};
    char *good = ntx_draft_stats_dump(&g), *at = strstr(good, old), *bad = NULL;
    CHECK_MSG(at, "%s is not in it", old);
    CHECK(asprintf(&bad, "%.*s%s%s", (int)(at - good), good, new, at + strlen(old)) > 0);
    CHECK_MSG(ntx_draft_stats_parse(bad, &back, &err) == -EINVAL && back.n_places == 5 && *err.text,
              "%s for %s was taken", new, old);
    free(bad);
    free(good);
}

int main(void)
{
    ranked();
    placed();
    left_out();
    copied();
    kept();
    old_names();
    refused("\"ntx_draft_stats\": 2", "\"ntx_draft_stats\": 1");
    refused("00112233", "0011");
    refused("\"00112233445566778899aabbccddeeff\"", "5");
    refused("3.5", "1e300");
    refused("3.5", "\"x\"");
    refused("3.5", "-3.5");
    refused("3.5", "3.5, 1");
    refused("4.0", "0.0");
    refused("\"way\": 1", "\"way\": 3");
    refused("\"left\": 7", "\"left\": 7e9");
    refused("\"rest\": 256", "\"rest\": null");
    refused("\"away\": 3", "\"away\": -3");
    refused("12345678", "1e30");
    refused("{", "[");
    return 0;
}
