/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of prompts beside answers: emulated machines, whose pass takes what a formula says, against the target. */
#include "computed/engine/gap.h"
#include "tests/lib/check.h"

enum { MOST = 512 };

struct machine {
    double sweep, decode, row, deep; /* seconds: of the drive, a pass without prompts, a row, a row and position */
};

static double pass_s(const struct machine *m, uint32_t rows, double depths)
{
    double compute = m->decode + rows * m->row + depths * m->deep;
    return compute > m->sweep ? compute : m->sweep;
}

struct read {
    double longest, seconds; /* of a pass; of all */
    uint32_t passes, empty;  /* empty: without rows of the prompt */
};

/* Reads a prompt of n tokens from position `from` beside answers. calm: passes that do not count for `longest`. */
static struct read read_prompt(struct ntx_gap *g, const struct machine *m, uint32_t from, uint32_t n, uint32_t calm)
{
    struct read r = {0};
    for (uint32_t pos = from; pos < from + n; r.passes++) {
        uint32_t rows = ntx_gap_rows(g, pos, MOST), left = from + n - pos;
        rows = rows < left ? rows : left;
        double depths = rows * (pos + (rows - 1) / 2.0), s = pass_s(m, rows, depths);
        ntx_gap_pass(g, rows, depths, true, s * 1e9);
        r.longest = r.passes >= calm && s > r.longest ? s : r.longest;
        r.seconds += s;
        r.empty += !rows;
        pos += rows;
        CHECK(r.passes < 100000);
    }
    return r;
}

static void near_target(const struct machine *m, double most)
{
    struct ntx_gap g;
    ntx_gap_begin(&g, 0);
    struct read r = read_prompt(&g, m, 0, 3000, 0);
    CHECK_MSG(r.longest <= most, "a pass of %g s", r.longest);
    CHECK(r.empty >= 1 && r.empty <= 1 + r.passes / 64);
    /* the passes are nearly as long as they may be */
    CHECK_MSG(r.seconds / r.passes > 0.6 * most, "%u passes of %g s", r.passes, r.seconds / r.passes);
    /* the next prompt has its rows at once, and a deep one fewer of them */
    r = read_prompt(&g, m, 0, 600, 0);
    CHECK_MSG(r.longest <= 1.1 * most && r.empty <= 1, "a pass of %g s, %u empty", r.longest, r.empty);
    r = read_prompt(&g, m, 20000, 600, 0);
    CHECK_MSG(r.longest <= 1.6 * most, "a pass of %g s at depth", r.longest);
}

/* A model in memory: the target counts. One whose plain passes take longer: twice their time. */
static void test_targets(void)
{
    near_target(&(struct machine){0, 0.084, 0.0055, 1e-7}, 0.35 * 1.1);
    near_target(&(struct machine){0, 0.4, 0.025, 1e-6}, 0.8 * 1.1);
    near_target(&(struct machine){2, 0.1, 0.02, 1e-6}, 4 * 1.25);
}

/* A drive limits, and a full chunk costs nothing: it comes after a few passes. */
static void test_drive(void)
{
    const struct machine m = {3, 0.1, 0.004, 0};
    struct ntx_gap g;
    ntx_gap_begin(&g, 0);
    struct read r = read_prompt(&g, &m, 0, 8 * MOST, 0);
    CHECK(r.longest == 3);
    CHECK_MSG(r.passes <= 1 + 6 + 8, "%u passes", r.passes);
}

/* Costs that were learned where the prompt was alone count beside answers: no pass is far too long. */
static void test_alone_before(void)
{
    const struct machine m = {0, 0.08, 0.0055, 0};
    struct ntx_gap g;
    ntx_gap_begin(&g, 0.2);
    ntx_gap_pass(&g, MOST, 512 * 255.5, false, 1e9 * pass_s(&m, MOST, 0));
    for (int i = 0; i < 3; i++)
        ntx_gap_pass(&g, 0, 0, true, 1e9 * pass_s(&m, 0, 0));
    uint32_t rows = ntx_gap_rows(&g, 0, MOST);
    CHECK_MSG(rows >= 15 && rows <= 22, "%u rows", rows);
    struct read r = read_prompt(&g, &m, 0, 3000, 0);
    CHECK(r.longest < 0.22 && r.empty <= 2);
}

/* The machine becomes slow, and fast again: the rows follow. */
static void test_follow(void)
{
    struct machine m = {0, 0.08, 0.005, 0};
    struct ntx_gap g;
    ntx_gap_begin(&g, 0.25);
    read_prompt(&g, &m, 0, 1000, 0);
    m.row *= 3;
    CHECK(read_prompt(&g, &m, 0, 1000, 12).longest < 0.3);
    m.row /= 3;
    read_prompt(&g, &m, 0, 1000, 0);
    uint32_t rows = ntx_gap_rows(&g, 0, MOST);
    CHECK_MSG(!rows || (rows >= 28 && rows <= 36), "%u rows", rows);
}

static void test_bounds(void)
{
    struct ntx_gap g;
    ntx_gap_begin(&g, NTX_GAP_NEVER);
    CHECK_EQ(ntx_gap_rows(&g, 0, MOST), MOST);
    ntx_gap_begin(&g, 0.01); /* less than a plain pass: a row at least */
    ntx_gap_pass(&g, 0, 0, true, 1e9);
    ntx_gap_pass(&g, 100, 0, true, 1e12);
    CHECK_EQ(ntx_gap_rows(&g, 0, MOST), 1);
    CHECK_EQ(ntx_gap_rows(&g, 0, 0), 0);
}

int main(void)
{
    test_targets();
    test_drive();
    test_alone_before();
    test_follow();
    test_bounds();
    return 0;
}
