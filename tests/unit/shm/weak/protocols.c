/* SPDX-License-Identifier: Apache-2.0 */
/* The protocols of the shared region on a machine with a weak memory order: ntx-iod's core and computed's stream, as
 * shipped, on one region; a death of ntx-iod at any moment; the seqlocks of trace and drafts. Each protocol runs in
 * many schedules, all of which must succeed. Then it runs with weaker barriers, and some runs must fail: this proves
 * that the test notices missing barriers. NTX_LONG: more schedules, and each barrier by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "computed/weights/stream.h"
#include "computed/weights/stream_impl.h"
#include "iod/core.h"
#include "shm/drafts.h"
#include "shm/trace.h"
#include "tests/lib/emulated.h"
#include "tests/unit/shm/make_region.h"
#include "tests/unit/shm/weak/weak.h"

enum { IOD_WAKES, SECOND_BEGINS, LOCK, OWN, N_EVENTS, WAKE_FD = 1000000, QUEUE = 16 };

static struct {
    struct ntx_region r;
    uint8_t *start[NTX_REGION_PARTS]; /* initial content of control page and ring */
    struct ntx_stream *s;
    struct ntx_weights *w;
    bool memory_comes, over;
    bool threads;        /* threads run: mutexes are emulated */
    bool once[N_EVENTS]; /* a mutex was taken for the first time */
    struct daemon {
        struct ntx_iod_core *core;
        struct ntx_iod_read queue[QUEUE]; /* reads that the drive has to do */
        unsigned n;
        _Atomic uint32_t *to_wake[QUEUE];
        unsigned n_to_wake;
    } iod[2];
    uint64_t now;
} t;

/* ---- the outside world */

uint64_t __wrap_ntx_now_ns(void);
uint64_t __wrap_ntx_now_ns(void) { return t.now += 100000; }

int __wrap_ntx_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout);
int __wrap_ntx_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout)
{
    (void)timeout; /* a sleeper that only a time-out would wake was forgotten: a bug */
    weak_sleep_while(word, seen);
    return 0;
}

void __wrap_ntx_futex_wake(_Atomic uint32_t *word);
void __wrap_ntx_futex_wake(_Atomic uint32_t *word) { weak_wake(word); }

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    if (fd != WAKE_FD)
        return __real_write(fd, p, n);
    weak_post(IOD_WAKES);
    return (ssize_t)n;
}

/* A mutex of the stream is emulated by an event that is posted while it is free, since all threads are coroutines of
 * one thread. */
static int event_of(const pthread_mutex_t *m)
{
    if (!t.threads)
        return -1;
    if (m == &t.s->lock)
        return LOCK;
    return m == &t.s->own ? OWN : -1;
}

int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    int event = event_of(m);
    if (event < 0)
        return __real_pthread_mutex_lock(m);
    if (t.once[event])
        weak_await((unsigned)event);
    t.once[event] = true;
    return 0;
}

int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    int event = event_of(m);
    if (event < 0)
        return __real_pthread_mutex_unlock(m);
    weak_post((unsigned)event);
    return 0;
}

/* The content of a file's block, as far as the test needs it. */
static uint64_t stamp(uint32_t file, uint64_t offset) { return (uint64_t)(file + 1) << 48 | offset / BLOCK * BLOCK; }

/* A read writes its bytes. late: the dead ntx-iod's read; the stamps show whether that memory was reused too early. */
static void land_read(const struct ntx_iod_read *rd, bool late)
{
    for (uint64_t at = 0; at < rd->len; at += BLOCK) {
        uint64_t v = stamp(rd->file, rd->offset + at);
        if (!late)
            weak_writes(t.r.base + rd->dest + at, sizeof v);
        *(uint64_t *)(void *)(t.r.base + rd->dest + at) = v;
    }
}

static void check_bytes(const void *bytes, uint32_t file, uint64_t offset)
{
    const uint8_t *block = (const uint8_t *)bytes - offset % BLOCK;
    weak_reads(block, 8);
    if (*(const uint64_t *)(const void *)block != stamp(file, offset))
        weak_fail("file %u at %llu: the bytes of another place came: %llx", file, (unsigned long long)offset,
                  (unsigned long long)*(const uint64_t *)(const void *)block);
}

/* ---- ntx-iod */

static void on_word(void *ctx, _Atomic uint32_t *word, enum ntx_state s)
{
    struct daemon *d = ctx;
    if (s != NTX_FILLING)
        d->to_wake[d->n_to_wake++] = word;
}

static void on_failed(void *ctx, const struct ntx_iod_failure *f)
{
    (void)ctx;
    weak_fail("a read failed, by %d", f->err);
}

/* As iod/reader.c: issues all reads that are allowed, wakes waiters, and sleeps until a read is done or the eventfd was
 * written. */
static void serve(struct daemon *d)
{
    const struct ntx_iod_hooks hooks = {d, on_word, on_failed};
    const struct ntx_iod_limits limits = {2 * BLOCK, BLOCK};
    struct ntx_err err;
    struct ntx_iod_read rd;
    if (ntx_iod_core_new(&t.r, NULL, &limits, &hooks, &d->core, &err))
        weak_fail("%s", err.text);
    while (!t.over) {
        while (d->n < QUEUE && ntx_iod_core_next_read(d->core, 0, &rd))
            d->queue[d->n++] = rd;
        for (; d->n_to_wake; d->n_to_wake--)
            ntx_futex_wake(d->to_wake[d->n_to_wake - 1]);
        if (d->n) {
            unsigned i = weak_choose(d->n);
            weak_yield();
            rd = d->queue[i];
            d->queue[i] = d->queue[--d->n];
            land_read(&rd, false);
            ntx_iod_core_done(d->core, 0, rd.tag, (int32_t)rd.expect, &rd);
        } else {
            weak_await(IOD_WAKES);
        }
    }
}

static void first_iod(void) { serve(&t.iod[0]); }

static void second_iod(void)
{
    weak_await(SECOND_BEGINS);
    if (!t.over)
        serve(&t.iod[1]);
}

/* ---- ntx-computed */

static void check_work(int rc)
{
    if (rc)
        weak_fail("%s", t.w->error.text);
}

static void end_all(void)
{
    t.over = true;
    weak_post(IOD_WAKES);
    weak_post(SECOND_BEGINS);
}

static void use_chunk(uint32_t chunk)
{
    const void *bytes = NULL;
    check_work(t.w->ops->acquire(t.w, chunk, &bytes));
    check_bytes(bytes, t.r.chunks[chunk].file, t.r.chunks[chunk].offset);
    weak_yield();
    check_bytes(bytes, t.r.chunks[chunk].file, t.r.chunks[chunk].offset);
    t.w->ops->release(t.w, chunk);
}

static void run_passes(unsigned n, uint32_t dropped_in)
{
    for (uint32_t p = 0; p < n; p++) {
        check_work(t.w->ops->begin(t.w, p));
        if (p == dropped_in)
            t.w->ops->drop_layer(t.w, 0);
        for (uint32_t c = 0; c < t.r.hdr->n_chunks; c++)
            if (p == dropped_in && t.r.chunks[c].layer == 0)
                t.w->ops->skip(t.w, c);
            else
                use_chunk(c);
        t.w->ops->end(t.w);
    }
}

static void computed(void)
{
    run_passes(3, UINT32_MAX);
    end_all();
}

static void computed_drops(void)
{
    run_passes(3, 1);
    end_all();
}

static void take_entries(const int32_t *ids, uint32_t n)
{
    static uint8_t out[4][ENTRY_BYTES];
    memset(out, 0, sizeof out);
    check_work(t.w->ops->entries(t.w, 1, 0, ENTRY_BYTES, ids, n, out));
}

static void computed_entries(void)
{
    check_work(t.w->ops->begin(t.w, 0));
    take_entries((const int32_t[]){5, 60, 5, 100}, 4);
    take_entries((const int32_t[]){60, 7}, 2);
    for (uint32_t c = 0; c < t.r.hdr->n_chunks; c++)
        use_chunk(c);
    t.w->ops->end(t.w);
    end_all();
}

static void computed_twice(void)
{
    run_passes(2, UINT32_MAX);
    take_entries((const int32_t[]){5, 60}, 2);
    end_all();
}

/* Another thread populates the memory in two steps. */
static void bring_in(void)
{
    const struct ntx_plan_chunk *first = &t.r.chunks[0];
    ntx_stream_memory_there(t.s, NTX_ROUND_UP(first->where + first->bytes, (uint64_t)BLOCK));
    ntx_stream_memory_there(t.s, t.r.bytes);
}

/* computed's main thread after the death of ntx-iod. Reads that were in flight still land, in any order; then the
 * quarantine ends. */
static void undertaker(void)
{
    struct daemon *d = &t.iod[0];
    weak_pause(400);
    weak_kill(0);
    if (t.over)
        return;
    ntx_stream_iod_died(t.s);
    weak_post(SECOND_BEGINS);
    while (d->n) {
        weak_pause(400);
        unsigned i = weak_choose(d->n);
        land_read(&d->queue[i], true);
        d->queue[i] = d->queue[--d->n];
    }
    weak_pause(100);
    ntx_stream_end_quarantine(t.s);
}

/* ---- set-up */

static void restart(void)
{
    const struct ntx_stream_config c = {.region = &t.r, .wake_fd = WAKE_FD, .wait_limit_s = UINT32_MAX};
    t.threads = false;
    memset(t.once, 0, sizeof t.once);
    for (int i = 0; i < 2; i++) {
        ntx_iod_core_free(t.iod[i].core);
        t.iod[i] = (struct daemon){0};
    }
    ntx_stream_free(t.s);
    for (int i = NTX_REGION_CONTROL; i <= NTX_REGION_RING; i++)
        memcpy(t.r.part[i].at, t.start[i], t.r.part[i].bytes);
    for (uint64_t at = 0; at < t.r.hdr->off_arena + t.r.hdr->arena_bytes; at += BLOCK)
        memset(t.r.base + at, 0xee, 8);
    t.over = false;
    CHECK(!ntx_stream_new(&c, &t.s));
    t.w = ntx_stream_weights(t.s);
    if (t.memory_comes)
        ntx_stream_await_memory(t.s);
    t.threads = true;
}

static void open_region(uint32_t per_layer, uint32_t n_desc, uint32_t n_slots)
{
    const struct shape s = {.n_layers = 1,
                            .per_layer = per_layer,
                            .n_desc = n_desc,
                            .n_slots = n_slots,
                            .n_demands = 2,
                            .chunk_bytes = 5000,
                            .host = true};
    make_region(&s, &t.r);
    weak_forget();
    for (int i = NTX_REGION_CONTROL; i <= NTX_REGION_RING; i++) {
        t.start[i] = malloc(t.r.part[i].bytes);
        memcpy(t.start[i], t.r.part[i].at, t.r.part[i].bytes);
        weak_share(t.r.part[i].at, t.r.part[i].bytes, WEAK_CHECKED);
    }
    weak_share(t.r.base, t.r.hdr->off_arena + t.r.hdr->arena_bytes, WEAK_CHECKED);
}

static void close_region(void)
{
    t.threads = false;
    for (int i = 0; i < 2; i++) {
        ntx_iod_core_free(t.iod[i].core);
        t.iod[i] = (struct daemon){0};
    }
    ntx_stream_free(t.s);
    t.s = NULL;
    for (int i = NTX_REGION_CONTROL; i <= NTX_REGION_RING; i++)
        free(t.start[i]);
    ntx_region_close(&t.r);
}

/* ---- the trace: two writers, and a reader of a record that a writer is about to overwrite */

static struct ntx_trace trace;

static void put_record(uint64_t n) { ntx_trace_put(&trace, NTX_TR_READ, n, n, (uint32_t)n, n, n); }

static void writer(void)
{
    put_record(1);
    put_record(2);
}

static void other_writer(void) { put_record(3); }

static void monitor(void)
{
    uint64_t next = weak_choose(2) * NTX_TRACE_RECORDS,
             missed = 0; /* the records that are about to be overwritten, or the new ones */
    struct ntx_trace_record out[2];
    for (int look = 0; look < 2; look++) {
        unsigned n = ntx_trace_take(&trace, &next, out, 2, &missed);
        for (unsigned i = 0; i < n; i++)
            if ((out[i].seq <= 4) != (out[i].a >= 100) || out[i].t0 != out[i].a || out[i].t1 != out[i].a ||
                out[i].b != out[i].a || out[i].c != out[i].a || out[i].kind != NTX_TR_READ)
                weak_fail("a record is torn: %llu %llu %llu %llu %u", (unsigned long long)out[i].t0,
                          (unsigned long long)out[i].t1, (unsigned long long)out[i].b, (unsigned long long)out[i].c,
                          out[i].a);
    }
}

/* One lap is done: the next record goes to the slot of record 0. */
static void restart_trace(void)
{
    for (uint32_t i = 0; i < 4; i++)
        trace.r[i] = (struct ntx_trace_record){
            .seq = i + 1, .t0 = 100 + i, .t1 = 100 + i, .b = 100 + i, .c = 100 + i, .a = 100 + i, .kind = NTX_TR_READ};
    atomic_store(&trace.head, NTX_TRACE_RECORDS);
}

/* ---- drafts */

enum { CTX = 4 };
static struct ntx_drafts drafts;
static struct ntx_drafts_requests requests;
static struct ntx_drafts_answers answers;
static int32_t tokens[NTX_DRAFTS_TEXTS * CTX];

static void asker(void)
{
    for (uint32_t n = 1; n <= 3; n++) {
        const struct ntx_drafts_text text = {.n = n, .n_prompt = n, .session = n, .seed = n, .top_k = n};
        const int32_t ids[CTX] = {(int32_t)n, (int32_t)n, (int32_t)n, (int32_t)n};
        ntx_drafts_post_request(&drafts, 0, &text, ids);
    }
}

static void drafter_file(void)
{
    uint32_t seq, newest = 0;
    while (newest < 3) {
        struct ntx_drafts_text text = {0};
        int32_t ids[CTX] = {0};
        uint32_t bell = weak_acquire(&requests.bell);
        if (!ntx_drafts_read_request(&drafts, 0, &text, ids, &seq)) {
            ntx_futex_wait(&requests.bell, bell, 0);
            continue;
        }
        if (text.n != text.session || text.n != text.seed || text.n != text.top_k || text.n < newest)
            weak_fail("a text is torn: %u %llu %llu %u", text.n, (unsigned long long)text.session,
                      (unsigned long long)text.seed, text.top_k);
        for (uint32_t i = 0; i < text.n; i++)
            if (ids[i] != (int32_t)text.n)
                weak_fail("tokens of %u and %d", text.n, ids[i]);
        newest = text.n;
        if (newest < 3)
            ntx_futex_wait(&requests.bell, bell, 0);
    }
}

static void restart_drafts(void)
{
    memset(&requests, 0, sizeof requests);
    memset(tokens, 0, sizeof tokens);
    drafts = (struct ntx_drafts){.ctx = CTX, .requests = &requests, .answers = &answers, .tokens = tokens};
}

/* ---- running */

enum { ACQ = 1, REL = 2, SC = 4 };

struct protocol {
    struct weak_scenario s;
    uint32_t per_layer, n_desc, n_slots;
    bool memory_comes;
    unsigned needs; /* barriers that it needs */
};

static const struct protocol protocols[] = {
    {{"ring", 2, {first_iod, computed}, restart}, 2, 2, 2, false, ACQ | REL | SC},
    {{"dropped layer", 2, {first_iod, computed_drops}, restart}, 2, 2, 3, false, ACQ | REL},
    {{"rows", 2, {first_iod, computed_entries}, restart}, 2, 2, 2, false, ACQ | REL | SC},
    {{"memory that comes", 3, {first_iod, computed, bring_in}, restart}, 2, 2, 2, true, ACQ | REL},
    {{"death", 4, {first_iod, computed_twice, undertaker, second_iod}, restart}, 3, 2, 3, false, ACQ | REL},
    {{"trace", 3, {writer, other_writer, monitor}, restart_trace}, 0, 0, 0, false, ACQ | REL},
    {{"drafts", 2, {asker, drafter_file}, restart_drafts}, 0, 0, 0, false, ACQ | REL},
};

static void open_protocol(const struct protocol *p)
{
    t.memory_comes = p->memory_comes;
    if (p->n_desc) {
        open_region(p->per_layer, p->n_desc, p->n_slots);
        return;
    }
    weak_forget();
    weak_share(&trace.head, sizeof trace.head, WEAK_RACY);
    weak_share(trace.r, 4 * sizeof trace.r[0], WEAK_RACY);
    weak_share(&requests, sizeof requests, WEAK_RACY);
    weak_share(tokens, sizeof tokens, WEAK_RACY);
}

static void check_holds(const struct protocol *p, const struct weak_how *how, const char *what)
{
    struct weak_result r;
    weak_run(&p->s, how, &r);
    CHECK_MSG(!r.failed, "%s, %llu. run: %s", what, (unsigned long long)r.runs, r.why);
    printf("%s: %s: %llu runs%s, %llu steps: all went well\n", p->s.name, what, (unsigned long long)r.runs,
           r.whole ? ", which are all there are" : "", (unsigned long long)r.steps);
}

static void check_fails(const struct protocol *p, int weaken, const char *what, uint64_t most)
{
    const struct weak_how how = {.seeds = most, .switches = -1, .old = -1, .weaken = weaken};
    struct weak_result r;
    weak_run(&p->s, &how, &r);
    CHECK_MSG(r.failed, "%s: without %s nothing went wrong in %llu runs", p->s.name, what, (unsigned long long)r.runs);
    printf("%s: without %s the %llu. run fails: %s\n", p->s.name, what, (unsigned long long)r.runs, r.why);
}

/* Helps to find barriers that are not needed: `addr2line -e PROGRAM` translates the addresses. */
static void each_site(const struct protocol *p, uint64_t most)
{
    struct weak_result r;
    for (int i = 0; i < weak_sites(); i++) {
        const struct weak_how how = {.seeds = most, .switches = -1, .old = -1, .weaken = i};
        weak_run(&p->s, &how, &r);
        printf("%s: relaxed at %p: %s\n", p->s.name, weak_site(i), r.failed ? r.why : "nothing goes wrong");
    }
}

int main(int argc, char **argv)
{
    const bool more = getenv("NTX_LONG") != NULL;
    /* Under an emulator fewer runs suffice: C11's order is emulated, and the same on every machine. */
    uint64_t runs = more ? 100000 / emulated_step(100) : 1000;
    if (argc > 1)
        runs = strtoull(argv[1], NULL, 10);
    for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++) {
        const struct protocol *p = &protocols[i];
        open_protocol(p);
        check_holds(p, &(struct weak_how){.seeds = runs, .switches = -1, .old = -1, .weaken = WEAK_NONE}, "drawn");
        check_holds(p, &(struct weak_how){.switches = 1, .old = 1, .most = runs, .weaken = WEAK_NONE},
                    "one switch, one old store");
        if (p->needs & ACQ)
            check_fails(p, WEAK_ACQUIRE, "acquire", 10 * runs);
        if (p->needs & REL)
            check_fails(p, WEAK_RELEASE, "release", 10 * runs);
        if (p->needs & SC)
            check_fails(p, WEAK_SEQ_CST, "seq_cst", 10 * runs);
        if (argc > 2)
            each_site(p, runs);
        if (p->n_desc)
            close_region();
    }
    return 0;
}
