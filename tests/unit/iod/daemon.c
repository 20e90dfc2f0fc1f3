/* SPDX-License-Identifier: Apache-2.0 */
/* A real ntx-iod with a test harness in place of computed: every byte of several passes, failures, deaths, restarts,
 * ends. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "temp.h"
#include "tests/lib/check.h"
#include "tests/lib/iod_harness.h"
#include "tests/lib/patient.h"

static const struct harness_shape shape = {.file_bytes = 24 * 1048576 + 54321,
                                           .chunk_bytes = 1300007,
                                           .host_every = 4,
                                           .n_desc = 5,
                                           .n_slots = 16,
                                           .n_demands = 3,
                                           .frame_bytes = 16384};

static void check_host(struct harness *h)
{
    for (uint32_t i = 0; i < h->region.hdr->n_chunks; i++) {
        const struct ntx_plan_chunk *p = &h->region.chunks[i];
        if (p->placement != NTX_PLACE_HOST)
            continue;
        CHECK_EQ(harness_wait_word(h, &h->region.state[i], 1u << NTX_READY | 1u << NTX_FAILED), NTX_READY);
        CHECK(temp_same(h->region.base + p->where, p->offset, p->bytes));
    }
}

static void consume_good(struct harness *h)
{
    const struct ntx_plan_chunk *p;
    CHECK_EQ(harness_wait_seq(h), NTX_READY);
    const uint8_t *bytes = harness_bytes(h, &p);
    CHECK(temp_same(bytes, p->offset, p->bytes));
    harness_release(h);
}

static void consume_passes(struct harness *h, unsigned n)
{
    uint64_t until = (h->seq / h->region.hdr->n_sched + n) * h->region.hdr->n_sched;
    while (h->seq < until)
        consume_good(h);
}

static void check_demand(struct harness *h, uint32_t frame, uint64_t offset, uint32_t bytes)
{
    struct ntx_demand *d = &h->region.demand[frame];
    CHECK(!h->region.request[frame].quarantined);
    uint32_t gen = harness_post(h, frame, offset, bytes);
    CHECK_EQ(harness_wait_word(h, &d->word, 1u << NTX_READY | 1u << NTX_FAILED), NTX_READY);
    CHECK_EQ(d->word, ntx_word(gen, NTX_READY));
    CHECK(temp_same(ntx_region_frame(&h->region, frame) + d->shift, offset, bytes));
    d->word = ntx_word(gen + 1, NTX_FREE);
}

/* Messages are separate from the words, and may come later. */
static void wait_messages(struct harness *h, unsigned errors, unsigned notices)
{
    for (uint64_t until = ntx_now_ns() + patient_ns(10000000000ull);
         (h->n_errors < errors || h->n_notices < notices) && ntx_now_ns() < until;)
        harness_turn(h, 10);
    CHECK_EQ(h->n_errors, errors);
    CHECK(h->n_notices >= notices); /* one more where the build tree has no O_DIRECT */
}

static void end_iod(struct harness *h)
{
    kill(h->pid, SIGTERM);
    harness_wait_exit(h);
    CHECK(WIFEXITED(h->exit_status) && !WEXITSTATUS(h->exit_status));
    CHECK_EQ(ntx_counter_get(h->counters, NTX_C_iod_inflight), 0);
}

static uint64_t counter(const struct harness *h, enum ntx_counter c) { return ntx_counter_get(h->counters, c); }

static void test_passes(const char *source, const char *fault, uint64_t piece)
{
    struct harness h;
    printf("passes: %s %s\n", source, fault);
    harness_open(&h, &shape, temp_file(NULL, shape.file_bytes));
    harness_start(&h, &(struct harness_config){.source = source, .fault = fault, .inflight = 3 << 20, .piece = piece});
    consume_passes(&h, 2);
    check_host(&h);
    check_demand(&h, 1, 777777, 9000);
    check_demand(&h, 0, shape.file_bytes - 10, 10);
    struct ntx_pass_map *m = &h.region.pass_map[3]; /* pass 3 drops layer 4 (chunks 8 and 9; 8 is a host chunk) */
    m->drop[0] = 1 << 4;
    atomic_store(&m->pass, 3);
    consume_passes(&h, 1);
    uint64_t end = 4 * h.region.hdr->n_sched, skipped = 0;
    while (h.seq < end) {
        enum ntx_state s = harness_wait_seq(&h);
        skipped += s == NTX_SKIPPED;
        CHECK_EQ(s, h.region.sched[h.seq % h.region.hdr->n_sched] == 9 ? NTX_SKIPPED : NTX_READY);
        harness_release(&h);
    }
    CHECK_EQ(skipped, 1);
    consume_passes(&h, 1);
    CHECK_EQ(counter(&h, NTX_C_iod_skipped_chunks), 1);
    CHECK_EQ(counter(&h, NTX_C_iod_errors), 0);
    CHECK_EQ(counter(&h, NTX_C_iod_pid), (uint64_t)h.pid);
    CHECK_EQ(counter(&h, NTX_C_iod_bytes_read), counter(&h, NTX_C_iod_bytes_stream) +
                                                    counter(&h, NTX_C_iod_bytes_host) +
                                                    counter(&h, NTX_C_iod_bytes_demand));
    CHECK(!!counter(&h, NTX_C_iod_retries) == (strstr(fault, "eio") != NULL));
    wait_messages(&h, 0, counter(&h, NTX_C_iod_bytes_fallback) ? 1 : 0);
    end_iod(&h);
    CHECK(counter(&h, NTX_C_iod_cpu_ns) > 0);
    harness_close(&h);
}

static uint64_t time_wake_ups(struct harness *h)
{
    uint64_t waited = 0;
    for (unsigned i = 0; i < 8; i++) {
        for (uint64_t until = ntx_now_ns() + patient_ns(30000000000ull); !atomic_load(&h->region.ring->iod_asleep);)
            CHECK(ntx_now_ns() < until);
        uint64_t began = ntx_now_ns();
        if (i % 2)
            check_demand(h, 0, i * 1000, 100);
        else
            for (unsigned k = 0; k < shape.n_desc + 1; k++)
                consume_good(h);
        waited += ntx_now_ns() - began;
    }
    return waited;
}

/* ntx-iod sleeps with a full ring and wakes at once: its own tick would take half a second on average. */
static void test_wake(void)
{
    struct harness h;
    harness_open(&h, &shape, temp_file(NULL, shape.file_bytes));
    harness_start(&h, &(struct harness_config){0});
    consume_passes(&h, 1);
    check_host(&h);
    uint64_t waited = UINT64_MAX;
    for (unsigned tries = 0; tries < 3 && waited >= 2000000000ull; tries++) /* the machine may be busy */
        waited = time_wake_ups(&h);
    CHECK_MSG(waited < 2000000000ull, "8 wake-ups took %llu ms", (unsigned long long)(waited / 1000000));
    end_iod(&h);
    harness_close(&h);
}

/* tmpfs has no O_DIRECT: reading works, the bytes are counted, and one message says so. */
static void test_fallback(void)
{
    struct harness h;
    if (access("/dev/shm", W_OK))
        return;
    harness_open(&h, &shape, temp_file("/dev/shm", shape.file_bytes));
    harness_start(&h, &(struct harness_config){0});
    consume_passes(&h, 2);
    check_host(&h);
    wait_messages(&h, 0, 1);
    CHECK(strstr(h.text, "page cache"));
    CHECK_EQ(counter(&h, NTX_C_iod_bytes_fallback), counter(&h, NTX_C_iod_bytes_read));
    end_iod(&h);
    harness_close(&h);
}

/* A chunk cannot be read: its word is FAILED, a message has the reason, the rest goes on. */
static void test_failing_chunk(void)
{
    struct harness h;
    harness_open(&h, &shape, temp_file(NULL, shape.file_bytes));
    harness_start(&h, &(struct harness_config){.fault = "eio@chunk=6;short@chunk=4"});
    uint64_t end = 2 * h.region.hdr->n_sched;
    for (; h.seq < end;) {
        bool bad = h.region.sched[h.seq % h.region.hdr->n_sched] == 6;
        CHECK_EQ(harness_wait_seq(&h), bad ? NTX_FAILED : NTX_READY);
        if (bad)
            CHECK_EQ(h.region.desc[h.seq % h.region.hdr->n_desc].err, -EIO);
        harness_release(&h);
    }
    CHECK_EQ(harness_wait_word(&h, &h.region.state[4], 1u << NTX_FAILED), NTX_FAILED);
    CHECK_EQ(ntx_word_gen(h.region.state[4]), ENODATA);
    wait_messages(&h, 3, 0);
    CHECK_EQ(h.err, -EIO);
    CHECK(strstr(h.text, "cannot read") && strstr(h.text, "Input/output error"));
    /* if we are slow, it has read ahead to chunk 6 of the third pass */
    const uint64_t errors = counter(&h, NTX_C_iod_errors);
    CHECK(errors == 3 || errors == 4);
    end_iod(&h);
    harness_close(&h);
}

/* An invalid configuration fails the first read, with a clear text. */
static void test_bad_config(const char *source, const char *fault, const char *word)
{
    struct harness h;
    harness_open(&h, &shape, temp_file(NULL, shape.file_bytes));
    harness_start(&h, &(struct harness_config){.source = source, .fault = fault});
    CHECK_EQ(harness_wait_seq(&h), NTX_FAILED);
    for (uint64_t until = ntx_now_ns() + patient_ns(5000000000ull); !h.n_errors && ntx_now_ns() < until;)
        harness_turn(&h, 10);
    CHECK_MSG(strstr(h.text, word), "%s", h.text);
    end_iod(&h);
    harness_close(&h);
}

/* ntx-iod kills itself at one transition; the next one brings the same bytes in other slots. */
static void test_death(const char *fault)
{
    struct harness h;
    printf("death: %s\n", fault);
    harness_open(&h, &shape, temp_file(NULL, shape.file_bytes));
    h.region.pass_map[0].drop[0] = 1 << 2;
    atomic_store(&h.region.pass_map[0].pass, 0);
    harness_start(&h, &(struct harness_config){.fault = fault, .inflight = 4 << 20});
    unsigned deaths = 0;
    uint64_t end = 3 * h.region.hdr->n_sched;
    while (h.seq < end) {
        enum ntx_state s = harness_wait_seq(&h);
        if (s == NTX_FILLING) {
            CHECK(WIFSIGNALED(h.exit_status) && WTERMSIG(h.exit_status) == SIGKILL);
            deaths++;
            harness_bury(&h);
            harness_start(&h, &h.config);
        } else if (s == NTX_SKIPPED) {
            CHECK(h.seq < h.region.hdr->n_sched);
            harness_release(&h);
        } else {
            consume_good(&h);
        }
    }
    CHECK_EQ(deaths, 1);
    check_host(&h);
    end_iod(&h);
    harness_close(&h);
}

/* kill -9 from outside, many times. There are spare slots for some quarantine, which ends when the dead ring shows that
 * all reads are done. */
static void test_random_deaths(unsigned n, uint32_t seed)
{
    struct harness h;
    harness_open(&h, &shape, temp_file(NULL, shape.file_bytes));
    harness_start(&h, &(struct harness_config){.inflight = 4 << 20, .piece = 512 << 10});
    for (unsigned k = 0; k < n; k++) {
        for (unsigned i = (seed = seed * 1664525u + 1013904223u) >> 28; i; i--)
            consume_good(&h);
        harness_post(&h, 2, 5000 + k, 8000);
        kill(h.pid, SIGKILL);
        harness_bury(&h);
        bool proof = h.ring_map != NULL;
        for (uint64_t until = ntx_now_ns() + patient_ns(10000000000ull); proof && !harness_drained(&h);)
            CHECK(ntx_now_ns() < until);
        harness_start(&h, &h.config);
        consume_good(&h);
        CHECK_EQ(harness_wait_word(&h, &h.region.demand[2].word, 1u << NTX_READY), NTX_READY);
        CHECK(temp_same(ntx_region_frame(&h.region, 2) + h.region.demand[2].shift, 5000 + k, 8000));
        h.region.demand[2].word = ntx_word(ntx_word_gen(h.region.demand[2].word) + 1, NTX_FREE);
        if (proof)
            harness_end_quarantine(&h);
    }
    consume_passes(&h, 1);
    check_host(&h);
    end_iod(&h);
    harness_close(&h);
}

static void test_ends(void)
{
    struct harness h;
    harness_open(&h, &shape, temp_file(NULL, shape.file_bytes));
    harness_start(&h, &(struct harness_config){.fault = "delay=20ms@every=3"});
    consume_passes(&h, 1);
    harness_detach(&h); /* with reads in flight; then the same region again */
    for (uint32_t i = 0; i < h.region.hdr->n_desc; i++)
        if (ntx_word_state(h.region.desc[i].word) == NTX_FILLING)
            h.region.desc[i].word = ntx_word(ntx_word_gen(h.region.desc[i].word), NTX_FREE);
    harness_attach(&h);
    consume_passes(&h, 1);
    close(h.alive[1]); /* the supervisor ends */
    h.alive[1] = -1;
    harness_wait_exit(&h);
    CHECK(WIFEXITED(h.exit_status) && !WEXITSTATUS(h.exit_status));
    harness_bury(&h);
    harness_end_quarantine(&h);

    harness_start(&h, &(struct harness_config){0});
    consume_passes(&h, 1);
    close(h.sock); /* computed ends */
    h.sock = -1;
    harness_wait_exit(&h);
    CHECK(WIFEXITED(h.exit_status) && !WEXITSTATUS(h.exit_status));
    harness_bury(&h);
    harness_close(&h);
}

int main(void)
{
    static const char *const deaths[] = {"kill@state=FILLING,nth=1,start=1",
                                         "kill@state=FILLING,nth=9,start=1",
                                         "kill@state=READY,nth=1,start=1",
                                         "kill@state=READY,nth=8,start=1",
                                         "kill@state=SKIPPED,nth=1,start=1",
                                         "kill@read=1,start=1",
                                         "kill@read=13,start=1",
                                         "kill@done=1,start=1",
                                         "kill@done=11,start=1",
                                         "eio@nth=2;kill@chunk=2,nth=1,start=1"};
    signal(SIGPIPE, SIG_IGN);
    test_passes("uring", "", 0);
    test_passes("pread", "", 0);
    test_passes("auto", "eio@every=29;short@every=23;delay=3ms@every=5;reorder=6", 256 << 10);
    test_wake();
    test_fallback();
    test_failing_chunk();
    test_bad_config("auto", "explode@read=1", "explode@read=1");
    test_bad_config("mmap", "", "mmap");
    for (unsigned i = 0; i < sizeof(deaths) / sizeof(*deaths); i++)
        test_death(deaths[i]);
    test_random_deaths(15, 7);
    test_ends();
    return 0;
}
