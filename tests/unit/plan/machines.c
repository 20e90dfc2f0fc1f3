/* SPDX-License-Identifier: Apache-2.0 */
/* Several machines together: shares that take the same time; the number and bytes of messages. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "computed/plan/machine.h"
#include "computed/cpu/cpu.h"
#include "computed/plan/machines.h"
#include "tests/lib/check.h"

#define NEAR(a, b) CHECK_MSG(fabs((double)(a) / (double)(b)-1) < 1e-3, "%g, expected %g", (double)(a), (double)(b))

static struct ntx_hw machine(const char *words)
{
    struct ntx_err err = {0};
    struct ntx_hw hw;
    CHECK_MSG(!ntx_machine_parse(words, false, &hw, &err), "%s", err.text);
    return hw;
}

static double input(uint32_t type, uint32_t n) { return (double)ntx_act_row_bytes(ntx_act_for(type), n); }

/* Without K and V. */
static int forecast(const struct ntx_outline *o, const struct ntx_hw *hw, const uint64_t *budget, uint32_t n,
                    const struct ntx_machines_link *link, enum ntx_split split, struct ntx_machines_forecast *f,
                    struct ntx_err *err)
{
    const struct ntx_machines_request request = {.hw = hw, .budget = budget, .n = n, .link = *link, .no_text = true};
    return ntx_machines_forecast(o, &request, split, f, err);
}

static struct ntx_outline outline(const char *model)
{
    struct ntx_err err = {0};
    struct ntx_outline o;
    CHECK_MSG(!ntx_outline_named(model, &o, &err), "%s", err.text);
    return o;
}

/* K and V by heads: each machine keeps and reads its part, at the cost of one more exchange per layer. A split is
 * chosen by a prompt and an answer. */
static void test_texts(void)
{
    struct ntx_err err = {0};
    struct ntx_outline o;
    struct ntx_machines_forecast by[NTX_SPLITS];
    const struct ntx_hw hw[2] = {machine("ram=64G,drive=1G"), machine("ram=64G,drive=1G")};
    const uint64_t budget[2] = {32000000000, 32000000000};
    struct ntx_machines_request request = {.hw = hw, .budget = budget, .n = 2, .link = {117e6, 100e-6}, .ctx = 8192};
    CHECK_MSG(!ntx_outline_named("llama-2-7b@q4_0", &o, &err), "%s", err.text);
    const double memory = ntx_hw_ram_bps(&hw[0], 0), token = 32 * 2 * 4096 * 2; /* bytes: 32 layers, F16 */
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS; s++)
        CHECK_MSG(!ntx_machines_forecast(&o, &request, (enum ntx_split)s, &by[s], &err), "%s", err.text);
    const struct ntx_machines_forecast *rows = &by[NTX_SPLIT_ROWS], *heads = &by[NTX_SPLIT_HEADS];
    NEAR(rows->attend_s, 4096 * token / memory);
    NEAR(heads->attend_s, 4096 * token / memory / 2);
    NEAR(rows->of[0].kv, 8192 * token);
    CHECK(rows->of[1].kv == 0);
    NEAR(heads->of[1].kv, 8192 * token / 2);
    CHECK_EQ(heads->runs, rows->runs + 32);
    NEAR(heads->crosses - rows->crosses,
         32 * (150 + 4 * (2048 + 2 * 2048 + 2048))); /* q, K and V of half the heads out, and attention's output back */
    NEAR(rows->token_s, rows->products_s + rows->attend_s + rows->messages_s);
    CHECK_EQ(ntx_machines_choose("auto", by, false), NTX_SPLIT_ROWS);
    NEAR(ntx_machines_turn(rows), rows->prompt_pass_s + 256 * rows->token_s);
    NEAR(rows->prompt_pass_s, rows->prompt_products_s + rows->messages_s + 511 * rows->prompt_s);
    /* in the last layer 511 rows only leave K and V, and only one row goes through the output */
    const struct ntx_share_machine can = ntx_machines_can(o.model, &hw[0], budget[0]);
    const double end = (2 * 4096.0 * 4096 + 3 * 4096.0 * 11008) * 18 / 32 + 4096.0 * 32000 * 210 / 256 + 4096 * 4.0;
    NEAR(rows->prompt_products_s,
         rows->of[1].share * (((double)ntx_outline_model_bytes(&o) - end) * can.prompt_s + end / can.memory));
    NEAR(rows->prompt_s, (31 * (3 * input(NTX_Q4_0, 4096) + input(NTX_Q4_0, 11008)) + input(NTX_Q4_0, 4096) +
                          4 * (31 * (3 * 4096 + 4096 + 11008 + 4096) + 2 * 4096) / 2.0 + 125 * 150) /
                             117e6);
    CHECK(by[NTX_SPLIT_LAYERS].prompt_products_s > 1.9 * rows->prompt_products_s && rows->prompt_products_s > 0);
    /* a better network and a long text: by heads; a short text: not */
    request.link = (struct ntx_machines_link){1.17e9, 30e-6};
    request.ctx = 65536;
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS; s++)
        CHECK_EQ(ntx_machines_forecast(&o, &request, (enum ntx_split)s, &by[s], &err), 0);
    CHECK_EQ(ntx_machines_choose(NULL, by, true), NTX_SPLIT_HEADS);
    CHECK(rows->of[0].share < rows->of[1].share); /* its K and V leave no room for more weights */
    NEAR(heads->of[0].share, 0.5);
    request.ctx = 131072; /* 64 GiB: no machine has that much, nor half of it */
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS; s++)
        CHECK_EQ(ntx_machines_forecast(&o, &request, (enum ntx_split)s, &by[s], &err), 0);
    CHECK(rows->lacks == 1 && heads->lacks == 1);
    request.ctx = 81920; /* 40 GiB: two machines have them */
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS; s++)
        CHECK_EQ(ntx_machines_forecast(&o, &request, (enum ntx_split)s, &by[s], &err), 0);
    CHECK(rows->lacks == 1 && by[NTX_SPLIT_LAYERS].lacks == 1 && !heads->lacks);
    by[NTX_SPLIT_HEADS].token_s *= 10;
    CHECK_EQ(ntx_machines_choose(NULL, by, true), NTX_SPLIT_HEADS);
    CHECK_EQ(ntx_machines_choose("rows", by, true), NTX_SPLIT_ROWS);
    request.ctx = 256;
    for (int s = NTX_SPLIT_ROWS; s < NTX_SPLITS; s++)
        CHECK_EQ(ntx_machines_forecast(&o, &request, (enum ntx_split)s, &by[s], &err), 0);
    CHECK_EQ(ntx_machines_choose(NULL, by, true), NTX_SPLIT_ROWS);
    ntx_outline_free(&o);
}

/* Equal machines, half each. Three quarters of a budget are resident, the rest is read. */
static void test_rows(const struct ntx_outline *o)
{
    const struct ntx_hw hw[2] = {machine("ram=16G,drive=1G"), machine("ram=16G,drive=1G")};
    const uint64_t budget[2] = {1000000000, 1000000000};
    const struct ntx_machines_link link = {0};
    const double bytes = (double)ntx_outline_model_bytes(o);
    struct ntx_machines_forecast f;
    struct ntx_err err = {0};
    CHECK_MSG(!forecast(o, hw, budget, 2, &link, NTX_SPLIT_ROWS, &f, &err), "%s", err.text);
    NEAR(f.of[0].share, 0.5);
    NEAR(f.of[1].reads, bytes / 2 - 0.75e9);
    NEAR(f.drives_s, (bytes / 2 - 0.75e9) / ntx_hw_stream_bps(&hw[0], ntx_hw_read_bytes(&hw[0])));
    CHECK_EQ(f.runs, 32 * 4 + 1); /* q k v, o, gate up, down; the output */
    CHECK(f.messages_s == 0);
    CHECK_STR(f.limit, "drives");
    /* bytes sent: inputs of 4096, 4096, 4096 and 11008 values, of the output 4096, and half of all outputs, gate and up
     * as one; and 150 bytes per exchange */
    NEAR(f.crosses, 32 * (3 * input(NTX_Q4_0, 4096) + input(NTX_Q4_0, 11008)) + input(NTX_Q6_K, 4096) +
                        4 * (32 * (3 * 4096 + 4096 + 11008 + 4096) + 32000) / 2.0 + 129 * 150);
}

/* Whole layers: a drive's time is that of rows, apart from 16 and 17 layers; q, k, v, o and the result of gate and up
 * are sent once; no machine waits for gate and up; the output is split by rows. */
static void test_layers(const struct ntx_outline *o)
{
    const struct ntx_hw hw[2] = {machine("ram=16G,drive=1G"), machine("ram=16G,drive=1G")};
    const uint64_t budget[2] = {1000000000, 1000000000};
    struct ntx_machines_link link = {0};
    struct ntx_machines_forecast f, l;
    uint32_t away = 0;
    CHECK_EQ(forecast(o, hw, budget, 2, &link, NTX_SPLIT_ROWS, &f, &(struct ntx_err){0}), 0);
    CHECK_EQ(forecast(o, hw, budget, 2, &link, NTX_SPLIT_LAYERS, &l, &(struct ntx_err){0}), 0);
    for (uint32_t i = 0; i < 32; i++)
        away += l.parts.owner[i] == 1;
    CHECK_MSG(away == 16 || away == 17, "%u", away);
    CHECK(l.parts.owner[32] == NTX_SHARE_ALL && fabs(l.of[1].share - 0.5) < 0.02 &&
          fabs(l.drives_s / f.drives_s - 1) < 0.05);
    NEAR(f.products_s, (double)ntx_outline_model_bytes(o) / 2 / ntx_hw_ram_bps(&hw[0], 0));
    NEAR(l.products_s, 2 * f.products_s);
    CHECK_EQ(l.runs, away * 3 + 1);
    NEAR(l.crosses, away * (3 * input(NTX_Q4_0, 4096) + 4 * (3 * 4096 + 4096 + 4096) + 3.5 * 150) +
                        input(NTX_Q6_K, 4096) + 4 * 16000 + 150);
    link = (struct ntx_machines_link){117e6, 100e-6};
    CHECK_EQ(forecast(o, hw, budget, 2, &link, NTX_SPLIT_ROWS, &f, &(struct ntx_err){0}), 0);
    NEAR(f.messages_s, 129 * 200e-6 + f.crosses / 117e6);
    CHECK(f.token_s == f.drives_s &&
          f.messages_s + f.products_s < f.drives_s); /* the drives read on while messages are under way */
    CHECK_EQ(forecast(o, hw, budget, 2, &link, NTX_SPLIT_LAYERS, &l, &(struct ntx_err){0}), 0);
    CHECK(l.messages_s < f.messages_s / 2);
}

static void test_choices(void)
{
    struct ntx_machines_forecast by[NTX_SPLITS];
    for (int s = 0; s < NTX_SPLITS; s++)
        by[s] = (struct ntx_machines_forecast){.token_s = 1, .prompt_pass_s = 10};
    CHECK_EQ(ntx_machines_choose("rows", by, true), NTX_SPLIT_ROWS);
    CHECK_EQ(ntx_machines_choose("layers", by, true), NTX_SPLIT_LAYERS);
    CHECK_EQ(ntx_machines_choose("heads", by, true), NTX_SPLIT_HEADS);
    by[NTX_SPLIT_LAYERS].token_s = 0.94;
    CHECK_EQ(ntx_machines_choose("auto", by, true), NTX_SPLIT_LAYERS);
    by[NTX_SPLIT_LAYERS].prompt_pass_s = 20; /* more than the answer gains */
    CHECK_EQ(ntx_machines_choose("", by, true), NTX_SPLIT_ROWS);
    by[NTX_SPLIT_LAYERS].token_s = 0.97;
    by[NTX_SPLIT_LAYERS].prompt_pass_s = 10;
    CHECK_EQ(ntx_machines_choose(NULL, by, true), NTX_SPLIT_ROWS);
}

/* A drive of three times the rate; nothing is resident. */
static void test_unequal(const struct ntx_outline *o)
{
    const struct ntx_hw hw[2] = {machine("ram=16G,drive=1G"), machine("ram=16G,drive=3G")};
    const uint64_t budget[2] = {0};
    const struct ntx_machines_link link = {117e6, 100e-6};
    struct ntx_machines_forecast f;
    CHECK_EQ(forecast(o, hw, budget, 2, &link, NTX_SPLIT_ROWS, &f, &(struct ntx_err){0}), 0);
    NEAR(f.of[1].reads / f.of[0].reads, 3);
}

/* All is resident, and the network is slow. */
static void test_slow_network(const struct ntx_outline *o)
{
    const struct ntx_hw hw[2] = {machine("ram=16G,drive=1G"), machine("ram=16G,drive=3G")};
    const uint64_t budget[2] = {64000000000, 64000000000};
    const struct ntx_machines_link link = {117e6, 1};
    struct ntx_machines_forecast f;
    CHECK_EQ(forecast(o, hw, budget, 2, &link, NTX_SPLIT_ROWS, &f, &(struct ntx_err){0}), 0);
    CHECK(f.of[0].reads == 0 && f.of[1].reads == 0);
    CHECK_STR(f.limit, "network");
    NEAR(f.token_s, f.products_s + f.messages_s);
    CHECK_EQ(forecast(o, hw, budget, 1, &link, NTX_SPLIT_ROWS, &f, &(struct ntx_err){0}), -EINVAL);
}

static void test_experts(const struct ntx_outline *o)
{
    const struct ntx_hw hw[2] = {machine("ram=16G,drive=1G"), machine("ram=16G,drive=1G")};
    const uint64_t budget[2] = {8000000000, 8000000000};
    const struct ntx_machines_link link = {117e6, 1};
    struct ntx_machines_forecast f, l;
    struct ntx_err err = {0};
    /* experts: 2 of 8 for a token; dense weights are resident first, then experts */
    const double dense = (double)(ntx_outline_bytes(o, NTX_PART_DENSE) + ntx_outline_bytes(o, NTX_PART_HEAD)),
                 experts = (double)ntx_outline_bytes(o, NTX_PART_EXPERT);
    CHECK_MSG(!forecast(o, hw, budget, 2, &link, NTX_SPLIT_ROWS, &f, &err), "%s", err.text);
    NEAR(f.of[0].reads, (experts / 2 - (0.75 * 8e9 - dense / 2)) / 4);
    NEAR(f.experts_s, f.of[1].reads / ntx_hw_stream_bps(&hw[0], ntx_hw_read_bytes(&hw[0])));
    CHECK(f.drives_s == 0);
    NEAR(f.token_s, f.products_s + f.messages_s + f.experts_s);
    CHECK_EQ(forecast(o, hw, budget, 2, &link, NTX_SPLIT_LAYERS, &l, &err), 0);
    CHECK(fabs(l.experts_s / f.experts_s - 2) < 0.1); /* one machine reads at a time */
    CHECK_EQ(l.runs, 3 * 16 + 1);
    CHECK_EQ(f.runs, 32 * 4 + 1); /* q k v, o, experts in and out; the output */
    /* a row is sent once for both of its experts, and their sum comes back */
    NEAR(f.crosses, 32 * (3 * input(NTX_Q4_0, 4096) + 2 * input(NTX_Q4_0, 14336)) + input(NTX_Q6_K, 4096) +
                        4 * (32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096) + 32000) / 2.0 + 129 * 150);
    NEAR(f.prompt_s, (31 * (3 * input(NTX_Q4_0, 4096) + 2 * input(NTX_Q4_0, 14336)) + input(NTX_Q4_0, 4096) +
                      4 * (31 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096) + 2 * 1024) / 2.0 + 125 * 150) /
                         117e6);
}

/* A prompt limited by the drives reads all of 31 layers, and of the last one two experts of eight. */
static void test_prompt_reads(const struct ntx_outline *o)
{
    const struct ntx_hw hw[2] = {machine("ram=16G,drive=50M"), machine("ram=16G,drive=50M")};
    const uint64_t budget[2] = {8000000000, 8000000000};
    const struct ntx_machines_link link = {0};
    const double dense = (double)(ntx_outline_bytes(o, NTX_PART_DENSE) + ntx_outline_bytes(o, NTX_PART_HEAD)),
                 experts = (double)ntx_outline_bytes(o, NTX_PART_EXPERT);
    struct ntx_machines_forecast f;
    CHECK_EQ(forecast(o, hw, budget, 2, &link, NTX_SPLIT_ROWS, &f, &(struct ntx_err){0}), 0);
    NEAR(f.prompt_pass_s, (f.of[0].bytes - f.of[0].keeps) * (1 - 0.75 * experts / 32 / (dense + experts)) /
                              ntx_hw_stream_bps(&hw[0], ntx_hw_read_bytes(&hw[0])));
}

int main(void)
{
    struct ntx_outline dense = outline("llama-2-7b@q4_0"), experts = outline("mixtral-8x7b@q4_0");
    test_rows(&dense);
    test_layers(&dense);
    test_choices();
    test_unequal(&dense);
    test_slow_network(&dense);
    test_experts(&experts);
    test_prompt_reads(&experts);
    test_texts();
    ntx_outline_free(&dense);
    ntx_outline_free(&experts);
    return 0;
}
