/* `ntx plan`'s quick placement against computed's, which counts every byte: for models from tiny to 70B, over budgets. */
#include <errno.h>
#include <math.h>

#include "plan/budget.h"
#include "plan/plan.h"
#include "plan/place.h"
#include "tests/check.h"
#include "tests/plan/shape.h"

#define MIB (1ull << 20)

static void compare(const struct shape *s, const struct ntx_outline *o, const struct ntx_hw *hw, uint64_t ram)
{
    struct ntx_plan_request q = {.ram_bytes = ram, .threads = 2, .hw = hw};
    struct ntx_place_request r = {.ram = ram, .vram = UINT64_MAX};
    struct ntx_plan *p = NULL;
    struct ntx_layout l;
    struct ntx_load_bytes load;
    struct ntx_forecast f;
    struct ntx_err err = {0};
    CHECK_MSG(!ntx_plan_make(s->model, &q, &p, &err), "%s", err.text);
    CHECK_MSG(!ntx_place(hw, o, &r, &l, &err), "%s with %llu: %s", s->name, (unsigned long long)ram, err.text);
    double off = ((double)l.bytes[NTX_TIER_HOST] - (double)p->bytes_host) / (double)ram;
    CHECK_MSG(fabs(off) < 0.06, "%s with %llu MiB: %.1f %% of the budget apart (host %.0f and %.0f MiB, ctx %u %u, rows %u %u)", s->name,
              (unsigned long long)(ram / MIB), off * 100, (double)l.bytes[NTX_TIER_HOST] / MIB, (double)p->bytes_host / MIB, l.ctx, p->ctx, l.rows, p->max_rows);
    CHECK_EQ(ntx_outline_model_bytes(o), p->bytes_model);
    CHECK_EQ(l.bytes[NTX_TIER_DEVICE], 0);
    CHECK_EQ(l.ctx, p->ctx);
    ntx_place_load(o, &l, 1, NTX_PLACE_TEXT < l.ctx ? NTX_PLACE_TEXT : l.ctx, &load);
    CHECK(!ntx_predict(hw, &load, &f));
    double apart = p->predicted_tok_s * f.pass_s - 1;
    CHECK_MSG(fabs(apart) < 0.1, "%s with %llu MiB: predictions are %.1f %% apart", s->name, (unsigned long long)(ram / MIB), apart * 100);
    ntx_plan_free(p);
}

/* The estimate for models by name beside the number that succeeds. */
static void compare_smallest(const struct shape *s, const struct ntx_outline *o, const struct ntx_hw *hw, uint32_t ctx)
{
    uint64_t held = ntx_budget_clients(o->n_vocab, 0, 0, 0).bytes + 100ull * o->n_vocab;
    struct ntx_plan_request q = {.threads = 2, .hw = hw, .other_bytes = held, .ctx = ctx};
    struct ntx_place_request r = {.ram = 1, .vram = UINT64_MAX, .ctx = ctx};
    struct ntx_plan *p = NULL;
    struct ntx_layout l;
    struct ntx_err err = {0};
    uint64_t least = ntx_plan_smallest(s->model, &q);
    q.ram_bytes = least - 1;
    CHECK_EQ(ntx_plan_make(s->model, &q, &p, &err), -ENOMEM);
    q.ram_bytes = least;
    CHECK_MSG(!ntx_plan_make(s->model, &q, &p, &err), "%s", err.text);
    CHECK_EQ(p->bytes_total, least);
    ntx_plan_free(p);
    CHECK_EQ(ntx_place(hw, o, &r, &l, &err), -ENOMEM);
    r.ram = least + least / 10;
    CHECK_MSG(!ntx_place(hw, o, &r, &l, &err), "%s, ctx %u: %llu would do: %s", s->name, ctx, (unsigned long long)least, err.text);
    CHECK_MSG(fabs((double)l.smallest / (double)least - 1) < 0.1, "%s, ctx %u: %.1f and %.1f MiB", s->name, ctx, (double)l.smallest / MIB, (double)least / MIB);
    r.smallest = r.ram + 1; /* who knows better is believed */
    CHECK_EQ(ntx_place(hw, o, &r, &l, &err), -ENOMEM);
}

int main(void)
{
    static const struct ntx_hw hw = {.threads = 2, .ram_bps = 30e9, .reads = {{65536, 2e9}, {1 << 20, 3.2e9}}, .n_reads = 2,
                                     .kernels = {{.type = NTX_HW_ANY, .rows = 1, .bps = 20e9}}, .n_kernels = 1};
    for (int i = SHAPE_1B; i < N_SHAPES; i++) {
        struct shape s;
        struct ntx_outline o;
        struct ntx_err err = {0};
        shape_open(&s, i);
        CHECK_MSG(!ntx_outline_gguf(s.gguf, s.name, &o, &err), "%s", err.text);
        uint64_t all = ntx_outline_model_bytes(&o);
        for (int tenths = 3; tenths <= 14; tenths++)
            compare(&s, &o, &hw, all / 10 * (unsigned)tenths);
        compare_smallest(&s, &o, &hw, 0);
        compare_smallest(&s, &o, &hw, 4096);
        shape_close(&s);
    }
    return 0;
}
