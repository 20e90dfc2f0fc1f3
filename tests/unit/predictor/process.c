/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-predictor with a test harness in place of computed (predictor_harness.h). argv[1] names the scenario. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "tests/lib/check.h"
#include "tests/lib/patient.h"
#include "tests/lib/predictor_harness.h"

static void up(struct harness *h, const char *policy, const char *fault)
{
    harness_start(h);
    harness_spawn(h);
    harness_attach(h);
    harness_policy(h, policy, fault);
}

static void script(void)
{
    struct harness h;
    up(&h, "script:3,5@0;7@1", "");
    CHECK_STR(h.policy, "script:3,5@0;7@1");
    CHECK_STR(h.error, "");
    CHECK(h.skips);
    CHECK_EQ(h.probe_layer, 0);
    static const uint64_t want[] = {1 << 3 | 1 << 5, 1 << 7, 0};
    for (uint32_t row = 0; row < 3; row++) {
        harness_show(&h, row + 1, 100 + row, 9, row);
        harness_notice(&h, row + 1, 100 + row, 9);
    }
    harness_wait(&h, &h.decisions, 3);
    for (uint32_t row = 0; row < 3; row++) {
        const struct harness_decision *d = &h.decision[row];
        CHECK_EQ(d->index, row + 1);
        CHECK_EQ(d->gen, 100 + row);
        CHECK_EQ(d->pass, 9);
        CHECK_EQ(d->row, row);
        CHECK_EQ(d->skip, want[row]);
    }
    /* A probe that is no longer on the board, or never was, gets no answer; the next one does. */
    harness_notice(&h, 1, 99, 9);
    harness_notice(&h, 1, 101, 9);
    harness_notice(&h, 1, 100, 8);
    harness_notice(&h, 8, 0, 9);
    harness_notice(&h, 4000000000u, 0, 9);
    harness_notice(&h, 2, 101, 9);
    harness_wait(&h, &h.decisions, 4);
    CHECK_EQ(h.decision[3].index, 2);
    while (ntx_counter_get(h.counters, NTX_C_pred_probes) < 4) /* counted a moment after the decision was sent */
        harness_run(&h, 1);
    CHECK_EQ(ntx_counter_get(h.counters, NTX_C_pred_pid), (uint64_t)h.pid);
    CHECK_EQ(h.hellos, 1); /* answered, so not sent again */
    harness_end(&h);
}

static void none(void)
{
    struct harness h;
    up(&h, "", "");
    CHECK_STR(h.policy, "none");
    CHECK(!h.skips);
    harness_peers(&h, 4);
    harness_show(&h, 0, 1, 1, 0);
    harness_notice(&h, 0, 1, 1);
    harness_wait(&h, &h.decisions, 1);
    CHECK_EQ(h.decision[0].skip, 0);
    harness_run(&h, 50);
    CHECK_EQ(h.hints, 0);
    harness_end(&h);
}

static void refused(void)
{
    struct harness h;
    up(&h, "script:12", "");
    CHECK(strstr(h.error, "no layer 12, the model has layers 0 to 7"));
    harness_end(&h);
    up(&h, "none", "explode");
    CHECK(strstr(h.error, "fault 'explode'"));
    harness_end(&h);
}

static void delayed(void)
{
    struct harness h;
    up(&h, "script:3", "delay=1s@every=2");
    uint64_t t0 = ntx_now_ns();
    for (uint32_t i = 0; i < 4; i++) {
        harness_show(&h, i, 1, 1, i);
        harness_notice(&h, i, 1, 1);
    }
    harness_wait(&h, &h.decisions, 4);
    static const uint32_t order[] = {0, 2, 1, 3}; /* a delayed decision does not delay the others */
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_EQ(h.decision[i].index, order[i]);
        CHECK_EQ(h.decision[i].skip, 1 << 3);
    }
    CHECK(h.decision[2].at_ns - t0 >= 990000000);
    /* A decision is delayed when the process ends: nothing leaks, no decision comes. */
    harness_show(&h, 5, 1, 2, 0);
    harness_notice(&h, 5, 1, 2);
    harness_notice(&h, 5, 1, 2);
    harness_wait(&h, &h.decisions, 5);
    harness_end(&h);
}

static void mute(void)
{
    struct harness h;
    up(&h, "script:3", "mute@every=2");
    harness_show(&h, 0, 1, 1, 0);
    harness_notice(&h, 0, 1, 1);
    harness_wait(&h, &h.decisions, 1);
    harness_show(&h, 0, 2, 2, 0);
    harness_notice(&h, 0, 2, 2);
    harness_run(&h, 50);
    CHECK_EQ(h.decisions, 1);
    harness_notice(&h, 0, 2, 2); /* asked again: it answers */
    harness_wait(&h, &h.decisions, 2);
    CHECK_EQ(h.decision[1].gen, 2);
    harness_end(&h);
}

/* The predictor is killed after it saw a probe, then after it sent a decision. Each successor is asked again from the
 * board, which is unchanged. */
static void killed(void)
{
    static const char fault[] = "kill@probe=2,start=1;kill@decision=1,start=2";
    struct harness h;
    up(&h, "script:3,5", fault);
    harness_show(&h, 0, 1, 1, 0);
    harness_show(&h, 1, 1, 1, 1);
    harness_notice(&h, 0, 1, 1);
    harness_notice(&h, 1, 1, 1);
    int status = harness_reap(&h);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(h.decisions <= 1);

    h.decisions = 0;
    harness_spawn(&h);
    harness_attach(&h);
    harness_policy(&h, "script:3,5", fault);
    harness_notice(&h, 1, 1, 1);
    harness_wait(&h, &h.decisions, 1); /* the decision was sent before the death */
    CHECK_EQ(h.decision[0].index, 1);
    CHECK_EQ(h.decision[0].skip, 1 << 3 | 1 << 5);
    status = harness_reap(&h);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    harness_spawn(&h);
    harness_attach(&h);
    harness_policy(&h, "script:3,5", fault);
    for (unsigned i = 2; i < 6; i++) {
        harness_notice(&h, 1, 1, 1);
        harness_wait(&h, &h.decisions, i);
        CHECK_EQ(h.decision[i - 1].skip, 1 << 3 | 1 << 5);
    }
    harness_end(&h);
}

/* Hints reach each process of iod: the layers that all rows of the pass seen so far may skip. */
static void iod(void)
{
    struct harness h;
    uint64_t pass = 0, end = ntx_now_ns() + patient_ns(20000000000ull);
    up(&h, "script:3,5@0;5,7@1", "");
    for (uint32_t instance = 1; instance <= 3; instance++) {
        harness_peers(&h, instance);
        h.hints = 0;
        while (!h.hints) { /* iod connects at some time; earlier hints are lost */
            CHECK(ntx_now_ns() < end);
            pass++;
            h.decisions = 0;
            harness_show(&h, 0, (uint32_t)pass, pass, 0);
            harness_notice(&h, 0, (uint32_t)pass, pass);
            harness_wait(&h, &h.decisions, 1);
            harness_run(&h, 2);
        }
        CHECK_EQ(h.hint_skip, 1 << 3 | 1 << 5);
        pass++;
        h.decisions = 0;
        harness_show(&h, 0, (uint32_t)pass, pass, 0);
        harness_show(&h, 1, (uint32_t)pass, pass, 1);
        harness_notice(&h, 0, (uint32_t)pass, pass);
        harness_notice(&h, 1, (uint32_t)pass, pass);
        while (h.hint_pass != pass || h.hint_skip != 1 << 5) {
            CHECK(ntx_now_ns() < end);
            harness_run(&h, 1);
        }
    }
    harness_end(&h);
}

/* The region is detached and another attached: nothing of the old one stays mapped, and Hello starts again. */
static void detach(void)
{
    struct harness h;
    up(&h, "script:3", "delay=30s");
    harness_show(&h, 0, 1, 1, 0);
    harness_notice(&h, 0, 1, 1); /* delayed when the region is detached */
    struct ntx_attach_msg m = {.kind = NTX_AT_DETACH, .epoch = HARNESS_EPOCH};
    CHECK_EQ(ntx_attach_send(h.sock, &m, NULL, 0), 0);
    CHECK(harness_recv(&h, &m));
    CHECK_EQ(m.kind, NTX_AT_DETACHED);
    CHECK_EQ(m.epoch, HARNESS_EPOCH);
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)h.pid);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f))
        CHECK_MSG(!strstr(line, "memfd:"), "still mapped: %s", line);
    fclose(f);
    harness_attach(&h);
    harness_policy(&h, "script:4", "");
    harness_notice(&h, 0, 1, 1);
    harness_wait(&h, &h.decisions, 1);
    CHECK_EQ(h.decision[0].skip, 1 << 4);
    harness_end(&h);
}

/* Hello is repeated until it is answered, and only with a region. */
static void hello(void)
{
    struct harness h;
    harness_start(&h);
    harness_spawn(&h);
    harness_run(&h, 150);
    CHECK_EQ(h.hellos, 0);
    harness_attach(&h);
    uint64_t t0 = ntx_now_ns();
    while (h.hellos < 4)
        harness_run(&h, 1);
    CHECK(ntx_now_ns() - t0 >= 190000000); /* every 100 ms */
    h.hellos = 0;
    harness_policy(&h, "none", "");
    harness_end(&h);
}

/* After computed's end, the supervisor's end, SIGTERM or a refusal the predictor ends, within the deadline. */
static void ends(void)
{
    struct harness h;
    up(&h, "none", "");
    close(h.sock);
    h.sock = -1;
    CHECK_EQ(harness_reap(&h), 0);

    harness_spawn(&h);
    harness_attach(&h);
    close(h.alive[1]);
    h.alive[1] = -1;
    CHECK_EQ(harness_reap(&h), 0);
    harness_end(&h);

    up(&h, "none", "");
    kill(h.pid, SIGTERM);
    CHECK_EQ(harness_reap(&h), 0);
    harness_spawn(&h);
    struct ntx_attach_msg odd = {.kind = NTX_AT_DETACHED};
    CHECK_EQ(ntx_attach_send(h.sock, &odd, NULL, 0), 0);
    int status = harness_reap(&h);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 111);
    harness_end(&h);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"script", script}, {"none", none}, {"refused", refused}, {"delayed", delayed}, {"mute", mute},
                     {"killed", killed}, {"iod", iod},   {"detach", detach},   {"hello", hello},     {"ends", ends}};
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc == 2 && !strcmp(argv[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    fprintf(stderr, "usage: %s SCENARIO\n", argv[0]);
    return 1;
}
