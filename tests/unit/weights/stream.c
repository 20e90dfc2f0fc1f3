/* SPDX-License-Identifier: Apache-2.0 */
/* The weights' stream against a thread that acts as iod: the right bytes over many passes, whatever is dropped, fails
 * or dies. Run as `stream CASE`, each case in its own process. */
#include "computed/weights/stream.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/weights/engine.h"

/* ---- cases */

static void passes(const struct shape *shape)
{
    struct engine e;
    set_up(&e, shape, 60);
    CHECK_EQ(counter(&e, NTX_C_comp_ring_slots), shape->n_desc);
    fake_start(&e.iod);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(run_pass(&e, 0, rnd(&e, 41)), 0);
    CHECK_EQ(e.used, 40 * e.r.hdr->n_chunks);
    wait_until_host_ready(&e);
    /* prefetched, but each at most once per pass, and only as far as the ring's size */
    uint64_t host = e.r.hdr->n_chunks - e.r.hdr->n_sched, read = atomic_load(&e.iod.read_chunks);
    CHECK(read >= 40 * (uint64_t)e.r.hdr->n_sched + host &&
          read <= 40 * (uint64_t)e.r.hdr->n_sched + host + shape->n_desc);
    CHECK(counter(&e, NTX_C_comp_stall_ns) > 0);
    CHECK_EQ(counter(&e, NTX_C_comp_skip_early) + counter(&e, NTX_C_comp_skip_late), 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

static void case_passes(void) { passes(&normal); }

static void case_shapes(void)
{
    struct shape s = normal;
    s.n_desc = s.n_slots = 1;
    passes(&s);
    s.n_desc = s.n_slots = 100; /* more than three passes ahead */
    passes(&s);
    s.host = false;
    s.n_demands = 1;
    s.n_desc = s.n_slots = 3;
    passes(&s);
}

static void drops(bool late)
{
    struct engine e;
    uint64_t skipped = 0;
    set_up(&e, &normal, 60);
    e.iod.skips_nothing = late;
    fake_start(&e.iod);
    for (int i = 0; i < 40; i++) {
        uint64_t drop = i % 3 ? rnd(&e, 64) & ~1u : 0;
        CHECK_EQ(run_pass(&e, drop, 2), 0);
        for (uint32_t c = 0; c < e.r.hdr->n_chunks; c++)
            skipped += e.r.chunks[c].placement == NTX_PLACE_STORAGE && e.r.chunks[c].layer &&
                       drop >> e.r.chunks[c].layer & 1;
    }
    CHECK_EQ(run_pass(&e, 0, 0), 0); /* takes everything that was late */
    CHECK_EQ(counter(&e, NTX_C_comp_skip_early) + counter(&e, NTX_C_comp_skip_late), skipped);
    if (late)
        CHECK_EQ(counter(&e, NTX_C_comp_skip_early), 0);
    else
        CHECK(counter(&e, NTX_C_comp_skip_early) > skipped / 4);
    fake_kill(&e.iod);
    tear_down(&e);
}

static void case_drops(void) { drops(false); }
static void case_late_drops(void) { drops(true); }

/* iod sleeps only with nothing to do, and is not woken for every single slot. */
static void case_wakes(void)
{
    struct engine e;
    struct shape s = normal;
    s.n_desc = 16;
    s.n_slots = 18;
    s.host = false;
    set_up(&e, &s, 60);
    e.iod.max_ticks = 0;
    fake_start(&e.iod);
    for (int i = 0; i < 60; i++)
        CHECK_EQ(run_pass(&e, 0, 0), 0);
    CHECK(atomic_load(&e.iod.wakes) <= e.used / 4);
    fake_kill(&e.iod);
    tear_down(&e);
}

static void *send_text(void *arg)
{
    usleep(20000); /* the text takes the longer way */
    ntx_stream_io_error(arg, 20, "model.gguf: reading at 12345: Input/output error");
    return NULL;
}

static void case_failures(void)
{
    struct engine e;
    pthread_t t;
    for (uint32_t chunk = 19; chunk < 22; chunk++) {
        const struct ntx_plan_chunk *c;
        char here[200], host[200];
        set_up_patient(&e, &normal, 60, chunk == 20 ? 60000 : 50);
        c = &e.r.chunks[chunk];
        snprintf(here, sizeof here, "the.gguf: cannot read %llu bytes at offset %llu: Input/output error",
                 (unsigned long long)c->bytes, (unsigned long long)c->offset);
        e.iod.fail_chunk = chunk;
        fake_start(&e.iod);
        if (chunk == 20)
            CHECK(!pthread_create(&t, NULL, send_text, e.s));
        CHECK_EQ(run_pass(&e, 0, 3), -EIO);
        CHECK_EQ(e.w->error.code, -EIO);
        if (chunk == 20)
            CHECK_STR(e.w->error.text, "model.gguf: reading at 12345: Input/output error");
        else
            CHECK_STR(e.w->error.text, here);
        CHECK_EQ(ntx_stream_host_failure(e.s, host, sizeof host), c->placement == NTX_PLACE_HOST);
        if (c->placement == NTX_PLACE_HOST)
            CHECK_STR(host, here);
        if (chunk == 20)
            pthread_join(t, NULL);
        for (int i = 0; i < 10; i++) /* a chunk of the arena is read again, too */
            CHECK_EQ(run_pass(&e, i & 2 ? 4 : 0, 3), 0);
        CHECK_EQ(atomic_load(&e.r.control->host_again), e.r.chunks[chunk].placement == NTX_PLACE_HOST);
        fake_kill(&e.iod);
        tear_down(&e);
    }
}

static void case_failed_entries(void)
{
    struct engine e;
    int32_t outside = N_ENTRIES + 5, negative = -1;
    uint8_t out[ENTRY_BYTES];
    set_up(&e, &normal, 60);
    e.iod.fail_demand = true;
    fake_start(&e.iod);
    ntx_stream_io_error(e.s, UINT32_MAX, "rows.gguf: gone");
    CHECK_EQ(run_pass(&e, 0, 40), -EIO);
    CHECK_STR(e.w->error.text, "rows.gguf: gone");
    for (int i = 0; i < 5; i++)
        CHECK_EQ(run_pass(&e, 0, 40), 0);
    CHECK_EQ(e.w->ops->begin(e.w, e.pass), 0);
    CHECK_EQ(e.w->ops->entries(e.w, 1, ENTRIES_AT, ENTRY_BYTES, &outside, 1, out), -EINVAL);
    e.w->ops->end(e.w);
    CHECK_EQ(e.w->ops->begin(e.w, ++e.pass), 0);
    CHECK_EQ(e.w->ops->entries(e.w, 1, ENTRIES_AT, ENTRY_BYTES, &negative, 1, out), -EINVAL);
    CHECK_EQ(e.w->ops->entries(e.w, 7, ENTRIES_AT, ENTRY_BYTES, &negative, 1, out), -EINVAL);
    e.w->ops->end(e.w);
    e.pass++;
    CHECK_EQ(run_pass(&e, 0, 40), 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

/* iod delivers another chunk than was wanted. */
static void case_wrong_chunk(void)
{
    struct engine e;
    set_up(&e, &normal, 60);
    e.iod.wrong_chunk = 10;
    fake_start(&e.iod);
    CHECK_EQ(run_pass(&e, 0, 1), -EPROTO);
    CHECK_MSG(strstr(e.w->error.text, "in place of chunk 10"), "%s", e.w->error.text);
    CHECK_EQ(run_pass(&e, 0, 1), 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

/* Values that a hijacked iod may write about the first chunk of the schedule: each case changes one. */
static const struct {
    const char *what;
    uint32_t state, slot, chunk, sched, shift, gen;
    uint64_t pass;
    int32_t err;
    int rc;
    const char *words;
} lies[] = {
    {"slot", .slot = 10, .rc = -EPROTO, .words = "which cannot be"}, /* the first that does not exist */
    {"slot", .slot = UINT32_MAX, .rc = -EPROTO, .words = "which cannot be"},
    {"slot", .slot = 1u << 31, .rc = -EPROTO, .words = "which cannot be"},
    {"shift", .shift = 1, .rc = -EPROTO, .words = "which cannot be"},
    {"shift", .shift = UINT32_MAX, .rc = -EPROTO, .words = "which cannot be"},
    {"chunk", .chunk = UINT32_MAX, .rc = -EPROTO, .words = "in place of chunk"},
    {"sched", .sched = UINT32_MAX, .rc = -EPROTO, .words = "in place of chunk"},
    {"pass", .pass = UINT64_MAX, .rc = -EPROTO, .words = "in place of chunk"},
    {"left out", .state = NTX_SKIPPED, .rc = -EPROTO, .words = "was left out"},
    {"failed with a good errno", .state = NTX_FAILED, .err = 5, .rc = -EIO, .words = "cannot read"},
    {"failed with no errno", .state = NTX_FAILED, .err = INT32_MIN, .rc = -EIO, .words = "cannot read"},
    {"another lap", .gen = 1, .rc = -ETIMEDOUT, .words = "did not come within"},
    {"no state", .state = 15, .rc = -ETIMEDOUT, .words = "did not come within"},
    {"no word at all", .state = NTX_FREE + 7, .gen = 0x0fffffff, .rc = -ETIMEDOUT, .words = "did not come within"},
};

static void tell_lie(const struct ntx_region *r, unsigned i)
{
    struct ntx_desc *d = &r->desc[0];
    uint32_t chunk = r->sched[0];
    d->slot = lies[i].slot;
    d->chunk = chunk ^ lies[i].chunk;
    d->sched = lies[i].sched;
    d->pass = lies[i].pass;
    d->shift = (uint32_t)(r->chunks[chunk].offset % BLOCK) ^ lies[i].shift;
    d->err = lies[i].err;
    atomic_store(&d->word, ntx_word(lies[i].gen, lies[i].state ? (enum ntx_state)lies[i].state : NTX_READY));
}

/* Each ends in an error that says what was wrong; iod's death then puts everything right for the next one. */
static void case_lies(void)
{
    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct engine e;
        const void *bytes = NULL;
        set_up_patient(&e, &normal, 1, 1);
        CHECK_EQ(e.w->ops->begin(e.w, e.pass), 0);
        tell_lie(&e.r, i);
        int rc = e.w->ops->acquire(e.w, e.r.sched[0], &bytes);
        CHECK_MSG(rc == lies[i].rc && strstr(e.w->error.text, lies[i].words) && !bytes, "%s: %d, %s", lies[i].what, rc,
                  e.w->error.text);
        e.w->ops->end(e.w);
        for (uint32_t k = 0; k < e.r.hdr->n_desc; k++)      /* every descriptor is nonsense when it dies */
            memset(&e.r.desc[k], 0xf1, sizeof e.r.desc[k]); /* FILLING, too */
        ntx_stream_iod_died(e.s);
        for (uint32_t k = 0; k < e.r.hdr->n_desc; k++)
            CHECK_EQ(ntx_word_state(atomic_load(&e.r.desc[k].word)), NTX_FREE);
        ntx_stream_end_quarantine(e.s);
        tear_down(&e);
    }
}

static void case_limit(void)
{
    struct engine e;
    set_up(&e, &normal, 1);
    uint64_t t = ntx_now_ns();
    CHECK_EQ(run_pass(&e, 0, 0), -ETIMEDOUT);
    CHECK(ntx_now_ns() - t >= 1000000000u &&
          ntx_now_ns() - t < 30000000000u); /* the default limit for a chunk is 60 s */
    CHECK_MSG(strstr(e.w->error.text, "chunk 0 did not come within 1 s"), "%s", e.w->error.text);
    fake_start(&e.iod);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(run_pass(&e, 0, 5), 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

struct runner {
    struct engine *e;
    int n, rc; /* n: passes at least */
    _Atomic bool go_on;
    uint64_t drop;
    pthread_t thread;
};

static void *run_passes(void *arg)
{
    struct runner *r = arg;
    for (int i = 0; (i < r->n || atomic_load(&r->go_on)) && !r->rc; i++)
        r->rc = run_pass(r->e, i % 4 == 3 ? r->drop : 0, 9);
    return NULL;
}

static void case_abort(void)
{
    struct engine e;
    set_up(&e, &normal, 60);
    struct runner r = {.e = &e, .n = 1};
    CHECK(!pthread_create(&r.thread, NULL, run_passes, &r)); /* waits: there is no iod */
    usleep(30000);
    uint64_t t = ntx_now_ns();
    ntx_stream_abort(e.s, -EPIPE, "ntx-iod does not come back");
    CHECK(!pthread_join(r.thread, NULL));
    CHECK(ntx_now_ns() - t < 30000000000u); /* and not after the default limit of 60 s */
    CHECK_EQ(r.rc, -EPIPE);
    CHECK_STR(e.w->error.text, "ntx-iod does not come back");
    for (int i = 0; i < 5; i++)
        CHECK_EQ(run_pass(&e, 0, 0), -EPIPE); /* at once */
    ntx_stream_abort(e.s, 0, NULL);
    fake_start(&e.iod);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(run_pass(&e, 0, 5), 0);
    /* pass numbers that never ran, and a wrong one */
    e.pass += 20;
    CHECK_EQ(run_pass(&e, 0, 5), 0);
    e.pass -= 2;
    CHECK_EQ(run_pass(&e, 0, 5), -EINVAL);
    CHECK_EQ(run_pass(&e, 0, 5), -EINVAL);
    CHECK_EQ(run_pass(&e, 0, 5), 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

/* This process is stopped for longer than the limit for a chunk, like a frozen container: that time does not count. */
static void case_stopped(void)
{
    struct engine e;
    set_up(&e, &normal, 4);
    struct runner r = {.e = &e, .n = 1};
    CHECK(!pthread_create(&r.thread, NULL, run_passes, &r)); /* waits: there is no iod yet */
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (!child) {
        usleep(50000);
        kill(parent, SIGSTOP);
        sleep(5);
        kill(parent, SIGCONT);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, NULL, 0), child);
    fake_start(&e.iod);
    CHECK(!pthread_join(r.thread, NULL));
    CHECK_MSG(!r.rc, "%s", e.w->error.text);
    fake_kill(&e.iod);
    tear_down(&e);
}

static void case_cancel(void)
{
    struct engine e;
    set_up(&e, &normal, 60);
    for (int round = 0; round < 8; round++) {
        struct runner r = {.e = &e, .n = 1};
        uint64_t pass = e.pass;
        CHECK(!pthread_create(&r.thread, NULL, run_passes, &r)); /* waits: there is no iod */
        if (round & 1)
            usleep(20000);
        uint64_t t = ntx_now_ns();
        ntx_stream_cancel(e.s, pass);
        CHECK(!pthread_join(r.thread, NULL));
        CHECK(ntx_now_ns() - t < 30000000000u); /* and not after the default limit of 60 s */
        CHECK_EQ(r.rc, -ECANCELED);
        CHECK_EQ(e.w->error.code, -ECANCELED);
        e.iod.n_under_way = 0;
        fake_start(&e.iod);
        ntx_stream_cancel(e.s, e.pass - 1); /* over already */
        for (int i = 0; i < 6; i++)
            CHECK_EQ(run_pass(&e, i == 3 ? 4 : 0, 9), 0);
        ntx_stream_cancel(e.s, e.pass + 1);
        CHECK_EQ(run_pass(&e, 0, 9), 0);
        CHECK_EQ(run_pass(&e, 0, 9), -ECANCELED); /* before it began */
        CHECK_EQ(run_pass(&e, 0, 9), 0);
        fake_kill(&e.iod);
        fake_land(&e.iod, true);
        ntx_stream_iod_died(e.s);
        ntx_stream_end_quarantine(e.s);
    }
    tear_down(&e);
}

#if defined(__SANITIZE_THREAD__)
#define LAND_ALL false /* equal bytes over equal bytes: fine for DMA, a race for the sanitizer */
#else
#define LAND_ALL true
#endif

/* Killed at random moments, with reads that land after its successor has begun. If quarantine is not obeyed, the bytes
 * of a slot in use change, and the checks fail. */
static void case_kills(void)
{
    struct engine e;
    struct shape s = normal;
    uint64_t seed = 3, quarantined = 0;
    s.n_slots = s.n_desc + 2 * FAKE_DEPTH;
    set_up(&e, &s, 60);
    e.iod.max_ticks = 6;
    struct runner r = {.e = &e, .n = 20, .drop = 2 | 8, .go_on = true};
    fake_start(&e.iod);
    CHECK(!pthread_create(&r.thread, NULL, run_passes, &r));
    for (int i = 0; i < 120 || (quarantined <= 10 && i < 4000);
         i++) { /* with other load on the processors, reads are under way less often */
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        usleep((useconds_t)(seed >> 33) % 3000);
        fake_kill(&e.iod);
        struct fake_iod dead = e.iod;
        ntx_stream_iod_died(e.s);
        quarantined += counter(&e, NTX_C_comp_quarantined_slots);
        e.iod.n_under_way = 0;
        e.iod.seed += (uint64_t)i;
        fake_start(&e.iod);
        usleep((useconds_t)(seed >> 40) % 2000);
        fake_land(&dead, LAND_ALL);
        ntx_stream_end_quarantine(e.s);
        CHECK_EQ(counter(&e, NTX_C_comp_quarantined_slots), 0);
    }
    atomic_store(&r.go_on, false);
    CHECK(!pthread_join(r.thread, NULL));
    CHECK_MSG(!r.rc, "%s", e.w->error.text);
    CHECK(quarantined > 10);
    for (uint32_t i = 0; i < ntx_region_all_demands(e.r.hdr); i++)
        CHECK_EQ(e.r.request[i].quarantined, 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

/* No spare slots: computing goes on when the old reads are over, not before. */
static void case_no_spares(void)
{
    struct engine e;
    struct shape s = normal;
    s.n_desc = s.n_slots = FAKE_DEPTH;
    s.host = false;
    set_up(&e, &s, 60);
    e.iod.max_ticks = 1000000000;
    fake_start(&e.iod);
    uint64_t end = ntx_now_ns() + 20000000000u;
    for (uint32_t i = 0; i < s.n_desc; i++)
        while (ntx_word_state(atomic_load(&e.r.desc[i].word)) != NTX_FILLING)
            CHECK(ntx_now_ns() < end);
    fake_kill(&e.iod);
    ntx_stream_iod_died(e.s);
    CHECK_EQ(counter(&e, NTX_C_comp_quarantined_slots), FAKE_DEPTH);
    struct fake_iod dead = e.iod;
    e.iod.n_under_way = 0;
    e.iod.max_ticks = 2;
    struct runner r = {.e = &e, .n = 10};
    fake_start(&e.iod);
    CHECK(!pthread_create(&r.thread, NULL, run_passes, &r));
    while (!atomic_load(&e.iod.sleeps))
        CHECK(ntx_now_ns() < end);
    CHECK_EQ(atomic_load(&e.iod.read_chunks), 0);
    fake_land(&dead, true);
    ntx_stream_end_quarantine(e.s);
    CHECK(!pthread_join(r.thread, NULL));
    CHECK_EQ(r.rc, 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

/* A host chunk that a dead iod may still write to is used, but not re-arranged before that is over. */
static void case_host_quarantine(void)
{
    struct engine e;
    set_up(&e, &normal, 60);
    e.iod.max_ticks = 1000000000;
    fake_start(&e.iod);
    uint64_t end = ntx_now_ns() + 20000000000u;
    uint32_t n = e.r.hdr->n_chunks, was = n, others = 0;
    while (was == n) {
        for (was = 0; was < n && !(host_chunk(&e, was) && ntx_word_state(atomic_load(&e.r.state[was])) == NTX_FILLING);)
            was++;
        CHECK(ntx_now_ns() < end);
    }
    fake_kill(&e.iod);
    bool filling[256] = {false};
    for (uint32_t i = 0; i < n; i++)
        filling[i] = host_chunk(&e, i) && ntx_word_state(atomic_load(&e.r.state[i])) == NTX_FILLING;
    CHECK(n <= 256 && filling[was]);
    ntx_stream_iod_died(e.s);
    struct fake_iod dead = e.iod;
    e.iod.n_under_way = 0;
    e.iod.max_ticks = 2;
    fake_start(&e.iod);
    CHECK_EQ(run_pass(&e, 0, 3), 0);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_EQ(e.w->ops->stays(e.w, i), host_chunk(&e, i) && !filling[i]);
        others += host_chunk(&e, i) && !filling[i];
    }
    CHECK(others);
    fake_land(&dead, LAND_ALL);
    ntx_stream_end_quarantine(e.s);
    for (uint32_t i = 0; i < n; i++)
        CHECK_EQ(e.w->ops->stays(e.w, i), host_chunk(&e, i));
    CHECK_EQ(run_pass(&e, 0, 3), 0);
    fake_kill(&e.iod);
    tear_down(&e);
}

/* Host chunks may be read once all memory that their reads go to exists, not before; streamed ones always. */
static void case_memory(void)
{
    struct engine e;
    set_up(&e, &normal, 60);
    uint32_t n = e.r.hdr->n_chunks, again = atomic_load(&e.r.control->host_again), third = UINT32_MAX, seen = 0;
    for (uint32_t i = 0; i < n; i++)
        if (host_chunk(&e, i) && seen++ == 2)
            third = i;
    const uint64_t ends[] = {e.r.hdr->off_arena, end_of(&e, third) - 1, end_of(&e, third), e.r.bytes};
    ntx_stream_await_memory(e.s);
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        ntx_stream_memory_there(e.s, ends[k]);
        CHECK_EQ(atomic_load(&e.r.control->host_again), again + k + 1);
        for (uint32_t i = 0; i < n; i++)
            CHECK_EQ(ntx_word_state(atomic_load(&e.r.state[i])),
                     host_chunk(&e, i) && end_of(&e, i) > ends[k] ? NTX_SKIPPED : NTX_FREE);
    }
    fake_start(&e.iod);
    CHECK_EQ(run_pass(&e, 0, 3), 0);
    ntx_stream_memory_there(e.s, e.r.bytes); /* nothing is read twice */
    for (uint32_t i = 0; i < n; i++)
        CHECK(!host_chunk(&e, i) || ntx_word_state(atomic_load(&e.r.state[i])) == NTX_READY);
    fake_kill(&e.iod);
    tear_down(&e);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"passes", case_passes},
    {"shapes", case_shapes},
    {"drops", case_drops},
    {"late-drops", case_late_drops},
    {"wakes", case_wakes},
    {"failures", case_failures},
    {"failed-entries", case_failed_entries},
    {"wrong-chunk", case_wrong_chunk},
    {"lies", case_lies},
    {"limit", case_limit},
    {"stopped", case_stopped},
    {"abort", case_abort},
    {"cancel", case_cancel},
    {"kills", case_kills},
    {"no-spares", case_no_spares},
    {"host-taint", case_host_quarantine},
    {"memory", case_memory},
};

int main(int argc, char **argv)
{
    bool found = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 2 || !strcmp(argv[1], cases[i].name)) {
            cases[i].run();
            found = true;
        }
    CHECK(found);
    return 0;
}
