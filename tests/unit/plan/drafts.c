/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts in the cost model: the time of a draft model counts where the drive does not hide it. */
#include <math.h>

#include "computed/plan/machine.h"
#include "computed/plan/place.h"
#include "tests/lib/check.h"

#define GIB (1ull << 30)

static float common(uint32_t kind)
{
    (void)kind;
    return 0.5f;
}

static struct ntx_draft_forecast forecast(const struct ntx_hw *hw, const struct ntx_outline *o,
                                          const struct ntx_draft_request *d)
{
    const struct ntx_place_request r = {
        .plan = {.ram_bytes = 3 * GIB, .ctx = 512, .sessions = 1}, .logits_rows = 32, .drafts = *d};
    struct ntx_layout l;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_place(hw, o, &r, &l, &err), "%s", err.text);
    CHECK(l.predicted && l.bytes[NTX_TIER_STORAGE]);
    return l.drafts;
}

int main(void)
{
    static struct ntx_draft_stats g;
    struct ntx_hw hw = {0};
    struct ntx_outline o;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_machine_parse("ram=64G,drive=2G,cores=16", false, &hw, &err), "%s", err.text);
    CHECK_MSG(!ntx_outline_named("llama-2-7b@q4_k_m", &o, &err), "%s", err.text);
    ntx_draft_stats_begin(&g, common);
    struct ntx_draft_request d = {.stats = &g, .kind = 1};
    const struct ntx_draft_forecast at_once = forecast(&hw, &o, &d);
    CHECK(at_once.nodes > 4 && at_once.tokens > 3 && !at_once.known);
    d.row_s = 1e-3; /* hidden by the drive, nearly */
    const struct ntx_draft_forecast fast = forecast(&hw, &o, &d);
    CHECK_MSG(fast.tok_s <= at_once.tok_s && fast.tok_s > 0.9 * at_once.tok_s, "%f, %f of %u, %u", fast.tok_s,
              at_once.tok_s, fast.nodes, at_once.nodes);
    d.row_s = 0.2; /* waited for */
    const struct ntx_draft_forecast slow = forecast(&hw, &o, &d);
    CHECK(slow.tok_s < at_once.tok_s && slow.nodes < at_once.nodes);
    d.row_s = 100; /* a drafter that never pays */
    CHECK_EQ(forecast(&hw, &o, &d).nodes, 0);
    d.row_s = 0;
    d.nodes = 4;
    CHECK_EQ(forecast(&hw, &o, &d).nodes, 4);
    d.learned = true; /* nothing was learned of drafts yet */
    d.nodes = 0;
    CHECK(forecast(&hw, &o, &d).tok_s == 0);
    for (int i = 0; i < 20; i++) /* passes with three drafts, of which two held */
        ntx_draft_stats_rank(&g.ranks[1], 3, (const uint64_t[2]){6, 0});
    const struct ntx_draft_forecast before = forecast(&hw, &o, &d);
    CHECK(before.known && before.nodes == 3 && fabs(before.tokens - 3) < 1e-9 && before.tok_s > 0);

    double row_s = 0;
    const uint64_t copy = ntx_draft_copy(&hw, o.model, &row_s), all = ntx_outline_model_bytes(&o);
    CHECK_MSG(copy > all / 2 && copy < all * 7 / 10 && row_s > 0, "%llu of %llu, %f s", (unsigned long long)copy,
              (unsigned long long)all, row_s);
    ntx_outline_free(&o);
    return 0;
}
