/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of faults, and their actions for a sequence of probes. */
#include "predictor/fault.h"

#include <errno.h>

#include "tests/lib/check.h"

static struct ntx_predictor_fault parse(const char *text, uint64_t start)
{
    struct ntx_predictor_fault f;
    struct ntx_err err = {0};
    CHECK_MSG(ntx_predictor_fault_parse(text, start, &f, &err) == 0, "%s: %s", text, err.text);
    return f;
}

static void test_delay(void)
{
    struct ntx_predictor_fault f = parse("delay=50ms", 1);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(ntx_predictor_fault_probe(&f).delay_ns, 50000000);
    f = parse("delay=2s@every=3;delay=300us@every=2", 1);
    static const uint64_t want[] = {0, 300000, 2000000000, 300000, 0, 2000300000};
    for (int i = 0; i < 6; i++)
        CHECK_EQ(ntx_predictor_fault_probe(&f).delay_ns, want[i]);
}

static void test_kill_and_mute(void)
{
    struct ntx_predictor_fault f = parse("kill@probe=3;kill@decision=2;mute@every=2", 1);
    for (int i = 1; i <= 6; i++) {
        struct ntx_predictor_fault_act a = ntx_predictor_fault_probe(&f);
        CHECK_EQ(a.kill, i == 3);
        CHECK_EQ(a.mute, i % 2 == 0);
        CHECK_EQ(a.delay_ns, 0);
        CHECK_EQ(ntx_predictor_fault_sent(&f), i == 2);
    }
    f = parse("mute", 1);
    CHECK(ntx_predictor_fault_probe(&f).mute);
}

static void test_start(void)
{
    CHECK_EQ(parse("kill@probe=3,start=1", 1).n_rules, 1);
    CHECK_EQ(parse("kill@probe=3,start=1", 2).n_rules, 0);
    CHECK_EQ(parse("mute@start=2,every=4;delay=1ms", 1).n_rules, 1);
    CHECK_EQ(parse("", 1).n_rules, 0);
}

static void test_refusals(void)
{
    static const char *const bad[] = {"delay",
                                      "delay=",
                                      "delay=5",
                                      "delay=-5ms",
                                      "delay=5h",
                                      "delay=2h",
                                      "delay=9999999s",
                                      "kill",
                                      "kill@every=3",
                                      "kill@probe=0",
                                      "kill@probe=x",
                                      "mute@probe=3",
                                      "mute@every=",
                                      "explode",
                                      "delay=5ms@x=1",
                                      ";",
                                      "mute;mute;mute;mute;mute;mute;mute;mute;mute"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ntx_predictor_fault f = {.n_rules = 77};
        struct ntx_err err = {0};
        CHECK_MSG(ntx_predictor_fault_parse(bad[i], 1, &f, &err) == -EINVAL, "%s was accepted", bad[i]);
        CHECK_EQ(f.n_rules, 77);
        CHECK(strstr(err.text, "fault"));
    }
}

int main(void)
{
    test_delay();
    test_kill_and_mute();
    test_start();
    test_refusals();
    return 0;
}
