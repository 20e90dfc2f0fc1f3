/* SPDX-License-Identifier: Apache-2.0 */
/* Each source on a real file with known bytes; then the filters, alone and stacked. */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/util.h"
#include "iod/fault.h"
#include "temp.h"
#include "tests/lib/check.h"
#include "tests/lib/patient.h"
#include "tests/lib/others.h"

#define FILE_BYTES (6 * 1048576ull + 1234567)
#define SLOT       (1u << 20)
#define N_SLOTS    16u

struct bench {
    struct ntx_region r;
    struct ntx_iod_files files;
    struct ntx_source *s;
    unsigned n_results;
    struct {
        uint64_t tag;
        int32_t res;
        uint64_t at; /* ns */
    } result[4096];
};

static void setup(struct bench *b, int fd)
{
    struct ntx_region_geometry g = {.block = 4096,
                                    .n_files = 1,
                                    .n_chunks = 1,
                                    .n_desc = 1,
                                    .n_slots = N_SLOTS,
                                    .n_demands = 2,
                                    .n_layers = 1,
                                    .n_embd = 1,
                                    .slot_bytes = SLOT,
                                    .frame_bytes = 8192,
                                    .arena_bytes = 1 << 21};
    struct ntx_err err = {0};
    char note[256];
    memset(b, 0, sizeof(*b));
    CHECK_MSG(!ntx_region_create(&g, &b->r, note, sizeof(note), &err), "%s", err.text);
    b->files.n = 1;
    b->files.fd[0] = fd;
    ntx_iod_files_prepare(&b->files, 4096, note, sizeof(note));
}

static void teardown(struct bench *b)
{
    ntx_source_close(b->s);
    ntx_region_close(&b->r);
    close(b->files.fd[0]);
}

static void collect(void *ctx, uint64_t tag, int32_t res)
{
    struct bench *b = ctx;
    b->result[b->n_results].tag = tag;
    b->result[b->n_results].at = ntx_now_ns();
    b->result[b->n_results++].res = res;
}

/* Waits for n results, at most 20 s. Sleeps only on the source's own descriptors. */
static void wait_results(struct bench *b, unsigned n)
{
    int fds[NTX_SOURCE_MAX_FDS];
    struct pollfd p[NTX_SOURCE_MAX_FDS];
    unsigned n_fds = b->s->ops->fds(b->s, fds, 0);
    uint64_t end = ntx_now_ns() + patient_ns(20000000000ull);
    for (unsigned i = 0; i < n_fds; i++)
        p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    while (b->n_results < n) {
        CHECK_MSG(ntx_now_ns() < end, "%u of %u results came", b->n_results, n);
        poll(p, n_fds, 1000);
        b->s->ops->reap(b->s, collect, b);
    }
}

static struct ntx_iod_read at(uint64_t tag, uint64_t offset, uint64_t dest, uint32_t len)
{
    return (struct ntx_iod_read){.tag = tag,
                                 .offset = offset,
                                 .dest = dest,
                                 .len = len,
                                 .expect = (uint32_t)NTX_MIN(len, FILE_BYTES - offset),
                                 .chunk = (uint32_t)tag};
}

/* Reads the whole file in pieces of odd multiples of the block, to slots, frames and arena; the tail comes short. */
static void test_bytes(const char *which, const char *dir, bool direct)
{
    struct bench b;
    struct ntx_err err = {0};
    char note[256];
    setup(&b, temp_file(dir, FILE_BYTES));
    CHECK_EQ(b.files.direct[0], direct);
    CHECK_EQ(b.files.memory[0], dir != NULL);
    CHECK_MSG(!ntx_source_open(which, &b.r, &b.files, NULL, &b.s, note, sizeof(note), &err), "%s", err.text);
    CHECK_STR(b.s->ops->name, which);
    CHECK_EQ(b.s->ops->ring(b.s).fd >= 0, !strcmp(which, "uring"));
    const struct ntx_region_hdr *h = b.r.hdr;
    uint64_t offset = 0;
    while (offset < FILE_BYTES) {
        unsigned n = 0;
        struct ntx_iod_read rd[8];
        b.n_results = 0;
        for (; n < 8 && offset < FILE_BYTES; n++) {
            uint32_t len = 4096 * (1 + n * 36);
            uint64_t dest = n * 2 * SLOT;
            if (n == 0)
                dest = h->off_frames + 8192;
            else if (n == 7)
                dest = h->off_arena + 4096;
            len = (uint32_t)NTX_MIN(len, NTX_ROUND_UP(FILE_BYTES - offset, 4096));
            rd[n] = at(n, offset, dest, len);
            offset += len;
            CHECK_EQ(b.s->ops->submit(b.s, &rd[n]), 0);
        }
        CHECK_EQ(b.s->ops->flush(b.s), 0);
        CHECK_EQ(b.s->ops->inflight(b.s), n);
        wait_results(&b, n);
        CHECK_EQ(b.n_results, n);
        CHECK_EQ(b.s->ops->inflight(b.s), 0);
        for (unsigned i = 0; i < n; i++) {
            const struct ntx_iod_read *r = &rd[b.result[i].tag];
            CHECK_EQ(b.result[i].res, r->expect);
            CHECK(temp_same(b.r.base + r->dest, r->offset, r->expect));
        }
    }
    teardown(&b);
}

/* A read behind the end of the file gives a result and never hangs. A bad descriptor gives its error. */
static void test_refusals(const char *which)
{
    struct bench b;
    char note[256];
    setup(&b, temp_file(NULL, 8192));
    CHECK_EQ(ntx_source_open(which, &b.r, &b.files, NULL, &b.s, note, sizeof(note), NULL), 0);
    struct ntx_iod_read rd = {.tag = 77, .offset = 1 << 20, .dest = 0, .len = 4096, .expect = 4096};
    CHECK_EQ(b.s->ops->submit(b.s, &rd), 0);
    int fd = b.files.fd[0];
    b.s->ops->flush(b.s);
    wait_results(&b, 1);
    CHECK_EQ(b.result[0].tag, 77);
    CHECK_EQ(b.result[0].res, 0);
    b.files.fd[0] = -1;
    b.s->ops->submit(b.s, &rd);
    b.s->ops->flush(b.s);
    wait_results(&b, 2);
    CHECK_EQ(b.result[1].res, -EBADF);
    b.files.fd[0] = fd;
    teardown(&b);
}

static void test_open(void)
{
    struct bench b;
    struct ntx_err err = {0};
    char note[256];
    setup(&b, temp_file(NULL, 4096));
    CHECK_EQ(ntx_source_open("mmap", &b.r, &b.files, NULL, &b.s, note, sizeof(note), &err), -EINVAL);
    CHECK(strstr(err.text, "mmap"));
    CHECK_EQ(ntx_source_open("", &b.r, &b.files, NULL, &b.s, note, sizeof(note), &err), 0);
    teardown(&b);
}

/* `n` reads of `len`, `deep` at a time. Returns nanoseconds from first submission to last result. */
static uint64_t stream(struct bench *b, unsigned n, uint32_t len, unsigned deep)
{
    uint64_t began = ntx_now_ns();
    unsigned sent = 0;
    b->n_results = 0;
    while (b->n_results < n) {
        for (; sent < n && sent - b->n_results < deep; sent++) {
            /* any slot, since results may come in another order */
            uint64_t dest = sent % (N_SLOTS * SLOT / len) * len;
            struct ntx_iod_read rd = at(sent, (uint64_t)sent * len % (6 << 20), dest, len);
            CHECK_EQ(b->s->ops->submit(b->s, &rd), 0);
        }
        CHECK_EQ(b->s->ops->flush(b->s), 0);
        wait_results(b, b->n_results + 1);
    }
    return ntx_now_ns() - began;
}

/* An infinitely fast drive: every read is done at once, and no byte moves. */
struct instant {
    struct ntx_source base;
    int event;
    unsigned n;
    uint64_t tag[NTX_SOURCE_DEPTH];
    int32_t res[NTX_SOURCE_DEPTH];
};

static int instant_submit(struct ntx_source *s, const struct ntx_iod_read *rd)
{
    struct instant *t = (struct instant *)s;
    t->tag[t->n] = rd->tag;
    t->res[t->n++] = (int32_t)rd->expect;
    return 0;
}

static int instant_flush(struct ntx_source *s)
{
    struct instant *t = (struct instant *)s;
    return t->n ? eventfd_write(t->event, 1) : 0;
}

static void instant_reap(struct ntx_source *s, ntx_source_cb *cb, void *ctx)
{
    struct instant *t = (struct instant *)s;
    eventfd_t v;
    eventfd_read(t->event, &v);
    for (unsigned i = 0; i < t->n; i++)
        cb(ctx, t->tag[i], t->res[i]);
    t->n = 0;
}

static unsigned instant_fds(const struct ntx_source *s, int *fds, unsigned n)
{
    fds[n] = ((const struct instant *)s)->event;
    return n + 1;
}

static unsigned instant_inflight(const struct ntx_source *s) { return ((const struct instant *)s)->n; }
static void instant_close(struct ntx_source *s) { close(((struct instant *)s)->event); }

static const struct ntx_source_ops instant_ops = {.name = "instant",
                                                  .submit = instant_submit,
                                                  .flush = instant_flush,
                                                  .reap = instant_reap,
                                                  .fds = instant_fds,
                                                  .inflight = instant_inflight,
                                                  .close = instant_close};

static bool busy_with_others(struct others since)
{
    double share = others_share(since);
    printf("other processes took %.0f %% of the processors%s\n", share * 100,
           share > 0.2 ? ": only a rate that is too high would fail" : "");
    return share > 0.2;
}

static void test_throttle(double rate, unsigned n, uint32_t len)
{
    struct bench b;
    struct ntx_err err = {0};
    struct instant t = {.base.ops = &instant_ops, .event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    setup(&b, temp_file(NULL, FILE_BYTES));
    CHECK_EQ(ntx_source_throttle(&t.base, &(double){0}, 1, 1, NULL, &b.s, &err), -EINVAL);
    CHECK_EQ(ntx_source_throttle(&t.base, &rate, 1, 1, NULL, &b.s, &err), 0);
    double got = 0, least = 0.8 * rate;
    struct others before = others_now();
    /* several tries, since the machine may be busy */
    for (int tries = 0; tries < 10 && !(got > 0.97 * rate && got < 1.03 * rate); tries++) {
        uint64_t ns = stream(&b, n, len, 8);
        got = (double)n * len / (double)ns * 1e9;
        printf("throttle %.2f GB/s in reads of %u KiB: %.4f GB/s\n", rate / 1e9, len >> 10, got / 1e9);
    }
    /* Never above the rate; below it only while other processes take the cores. */
    if (got < least && busy_with_others(before))
        least = 0;
    CHECK_MSG(got > least && got < 1.03 * rate, "%.4f GB/s in place of %.4f", got / 1e9, rate / 1e9);
    teardown(&b);
}

/* ---- several drives that hold the same file */

static void add_copies(struct bench *b, unsigned n)
{
    char note[256];
    for (; b->files.n < n; b->files.n++)
        b->files.fd[b->files.n] = temp_file(NULL, FILE_BYTES);
    ntx_iod_files_prepare(&b->files, 4096, note, sizeof(note));
}

static void close_copies(struct bench *b)
{
    for (unsigned i = 1; i < b->files.n; i++)
        if (b->files.fd[i] >= 0)
            close(b->files.fd[i]);
    teardown(b);
}

static void read_one(struct bench *b, struct ntx_iod_read rd, int32_t expect)
{
    b->n_results = 0;
    CHECK_EQ(b->s->ops->submit(b->s, &rd), 0);
    CHECK_EQ(b->s->ops->flush(b->s), 0);
    wait_results(b, 1);
    CHECK_EQ(b->result[0].tag, rd.tag);
    CHECK_EQ(b->result[0].res, expect);
    if (expect > 0)
        CHECK(temp_same(b->r.base + rd.dest, rd.offset, (uint32_t)expect));
}

/* The right bytes in the right places for any size, up to the file's end. */
static void test_stripe_bytes(const char *which, unsigned drives)
{
    struct bench b;
    struct ntx_err err = {0};
    char note[256];
    setup(&b, temp_file(NULL, FILE_BYTES));
    add_copies(&b, drives);
    CHECK_MSG(!ntx_source_open(which, &b.r, &b.files, NULL, &b.s, note, sizeof(note), &err), "%s", err.text);
    CHECK_EQ(ntx_source_stripe(b.s, 0, 1, &b.s, &err), -EINVAL);
    CHECK_EQ(ntx_source_stripe(b.s, drives, 1, &b.s, &err), 0);
    uint64_t offset = 0, end = NTX_ROUND_UP(FILE_BYTES, 4096);
    for (unsigned n = 0; offset < end; n++) {
        uint32_t len = (uint32_t)NTX_MIN(4096ull * (1 + n * 61 % 1024), end - offset);
        struct ntx_iod_read rd = at(n, offset, 0, len);
        read_one(&b, rd, (int32_t)rd.expect);
        offset += len;
    }
    CHECK_EQ(b.s->ops->inflight(b.s), 0);
    close_copies(&b);
}

/* A drive that fails gets no more reads; the others do its work. */
static void test_stripe_failure(void)
{
    struct bench b;
    struct ntx_err err = {0};
    setup(&b, temp_file(NULL, FILE_BYTES));
    add_copies(&b, 2);
    close(b.files.fd[1]);
    b.files.fd[1] = -1;
    CHECK_EQ(ntx_source_pread(&b.r, &b.files, &b.s, &err), 0);
    CHECK_EQ(ntx_source_stripe(b.s, 2, 1, &b.s, &err), 0);
    read_one(&b, at(1, 0, 0, SLOT), -EBADF);
    for (unsigned i = 0; i < 6; i++)
        read_one(&b, at(2 + i, (uint64_t)i * SLOT, 0, SLOT), SLOT);
    close_copies(&b);
}

/* Rates add up, also those of different drives. */
static void test_stripe_rate(const double *rates, unsigned n, double least)
{
    struct bench b;
    struct ntx_err err = {0};
    struct instant t = {.base.ops = &instant_ops, .event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    double sum = 0, got = 0;
    struct others before = others_now();
    setup(&b, temp_file(NULL, FILE_BYTES));
    CHECK_EQ(ntx_source_throttle(&t.base, rates, n, 1, NULL, &b.s, &err), 0);
    CHECK_EQ(ntx_source_stripe(b.s, n, 1, &b.s, &err), 0);
    for (unsigned d = 0; d < n; d++)
        sum += rates[d];
    for (int tries = 0; tries < 3 && !(got > least * sum && got < 1.03 * sum); tries++) {
        got = 400.0 * SLOT / (double)stream(&b, 400, SLOT, 8) * 1e9;
        printf("stripe of %u drives, %.2f GB/s together: %.4f GB/s\n", n, sum / 1e9, got / 1e9);
    }
    if (got <= least * sum && busy_with_others(before))
        least = 0;
    CHECK_MSG(got > least * sum && got < 1.03 * sum, "%.4f GB/s in place of %.4f", got / 1e9, sum / 1e9);
    teardown(&b);
}

static void test_stripes(bool uring)
{
    for (unsigned drives = 1; drives <= 3; drives++) {
        test_stripe_bytes("pread", drives);
        if (uring)
            test_stripe_bytes("uring", drives);
    }
    test_stripe_failure();
    test_stripe_rate((double[]){5e8, 5e8}, 2, 0.97);
    test_stripe_rate((double[]){5e8, 5e8, 5e8}, 3, 0.97);
    test_stripe_rate((double[]){8e8, 4e8}, 2, 0.93);
}

static void over_fault(struct bench *b, const char *rules)
{
    struct ntx_err err = {0};
    setup(b, temp_file(NULL, FILE_BYTES));
    CHECK_EQ(ntx_source_pread(&b->r, &b->files, &b->s, &err), 0);
    CHECK_MSG(!ntx_source_fault(b->s, rules, 1, 4096, &b->s, &err), "%s", err.text);
}

static int32_t result_of(const struct bench *b, uint64_t tag)
{
    for (unsigned i = 0; i < b->n_results; i++)
        if (b->result[i].tag == tag)
            return b->result[i].res;
    return INT32_MIN;
}

static void test_fault_results(void)
{
    struct bench b;
    over_fault(&b, "eio@chunk=5,count=2; short@every=7; eio@nth=20");
    stream(&b, 30, 40960, 8); /* tags and chunks are 0, 1, ... so the nth read has tag n - 1 */
    for (unsigned i = 0; i < 30; i++) {
        int32_t expected = (i + 1) % 7 == 0 ? 20480 : 40960;
        CHECK_EQ(result_of(&b, i), i == 5 || i == 19 ? -EIO : expected);
    }
    teardown(&b);
}

static void test_fault_delay(void)
{
    struct bench b;
    over_fault(&b, "delay=500ms@nth=1");
    uint64_t began = ntx_now_ns();
    stream(&b, 4, 4096, 4);
    CHECK_EQ(b.result[3].tag, 0);
    CHECK(b.result[3].at - began >= 500000000u);
    teardown(&b);

    over_fault(&b, "stall=60ms@nth=3");
    stream(&b, 12, 4096, 2);
    for (unsigned i = 2; i < 12; i++) /* the third read was issued when the first was done */
        CHECK(b.result[i].at - b.result[0].at >= 60000000u);
    teardown(&b);
}

static void test_fault_reorder(void)
{
    struct bench b;
    unsigned moved = 0, seen[64] = {0};
    over_fault(&b, "reorder=8;seed=3");
    stream(&b, 64, 4096, 16);
    for (unsigned i = 0; i < 64; i++) {
        moved += b.result[i].tag != i;
        seen[b.result[i].tag]++;
    }
    for (unsigned i = 0; i < 64; i++)
        CHECK_EQ(seen[i], 1);
    CHECK(moved > 16);
    teardown(&b);
    over_fault(&b, "reorder=8"); /* fewer in flight than N: they come all the same */
    stream(&b, 20, 4096, 3);
    CHECK_EQ(b.n_results, 20);
    teardown(&b);
}

static uint32_t event(struct ntx__fault *f, enum ntx__fault_at where, uint32_t chunk, enum ntx_state st)
{
    struct ntx_iod_read rd = {.chunk = chunk};
    uint64_t delay = 0, stall = 0;
    return ntx__fault_event(f, where, &rd, st, &delay, &stall);
}

static void test_grammar(void)
{
    static const char *const bad[] = {
        "eoi",       "eio@",        "eio@chunk",       "eio@chunk=-1",    "delay@nth=1",         "delay=5@nth=1",
        "eio=5ms",   "short@nth=0", "kill@state=BUSY", "eio@state=READY", "kill@done=0",         "kill@done=2,chunk=1",
        "eio@p=1.5", "reorder=1",   "reorder=x",       "seed=",           "eio@nth=99999999999", "eio@demand=1",
        "stall=1h"};
    struct ntx__fault f;
    struct ntx_err err;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        bool empty_list = !strcmp(bad[i], "eio@");
        CHECK_MSG(ntx__fault_parse(bad[i], 1, &f, &err) == (empty_list ? 0 : -EINVAL), "%s", bad[i]);
        if (!empty_list)
            CHECK(strstr(err.text, bad[i]));
    }
    CHECK_EQ(ntx__fault_parse("", 1, &f, &err), 0);
    CHECK_EQ(f.n, 0);

    CHECK_EQ(ntx__fault_parse(" delay=50ms@every=9 ;kill@state=FILLING,nth=3; "
                              "kill@state=READY,nth=10;kill@read=4;stall=10s@demand,nth=2; kill@done=2,start=2; "
                              "reorder=8;seed=7",
                              1, &f, &err),
             0);
    CHECK_EQ(f.n, 6);
    CHECK_EQ(f.reorder, 8);
    CHECK_EQ(f.rule[0].ns, 50000000);
    CHECK_EQ(f.rule[4].ns, 10000000000);
    for (unsigned i = 1; i <= 9; i++) {
        uint32_t kill = i == 4 ? 1u << NTX__FAULT_KILL : 0, delay = i == 9 ? 1u << NTX__FAULT_DELAY : 0;
        CHECK_EQ(event(&f, NTX__AT_READ, 1, NTX_FREE), kill | delay);
    }
    CHECK_EQ(event(&f, NTX__AT_READ, UINT32_MAX, NTX_FREE), 0);
    CHECK_EQ(event(&f, NTX__AT_READ, UINT32_MAX, NTX_FREE), 1u << NTX__FAULT_STALL);
    for (unsigned i = 1; i <= 12; i++) {
        CHECK_EQ(event(&f, NTX__AT_STATE, 0, NTX_FILLING), i == 3 ? 1u << NTX__FAULT_KILL : 0);
        CHECK_EQ(event(&f, NTX__AT_STATE, 0, NTX_READY), i == 10 ? 1u << NTX__FAULT_KILL : 0);
        CHECK_EQ(event(&f, NTX__AT_DONE, 0, NTX_FREE), 0); /* start=2, but this is the first process */
    }
    /* A probability holds: the same reads for the same seed, others for another start. */
    unsigned hits[3] = {0}, differ = 0;
    struct ntx__fault g[3];
    for (int k = 0; k < 3; k++)
        CHECK_EQ(ntx__fault_parse("eio@p=0.25;seed=9", k == 2 ? 2 : 1, &g[k], &err), 0);
    for (unsigned i = 0; i < 4000; i++) {
        uint32_t e[3];
        for (int k = 0; k < 3; k++)
            hits[k] += (e[k] = event(&g[k], NTX__AT_READ, 0, NTX_FREE)) != 0;
        CHECK_EQ(e[0], e[1]);
        differ += e[0] != e[2];
    }
    CHECK(hits[0] > 900 && hits[0] < 1100 && hits[2] > 900 && hits[2] < 1100 && differ > 1000);
}

int main(void)
{
    struct bench b;
    struct ntx_err err = {0};
    bool shm = !access("/dev/shm", W_OK);
    test_grammar();
    setup(&b, temp_file(NULL, 4096));
    bool direct = b.files.direct[0], uring = !ntx_source_uring(&b.r, &b.files, NULL, &b.s, NULL, 0, &err);
    teardown(&b);
    printf("O_DIRECT %s, io_uring %s\n", direct ? "works here" : "does not work here", uring ? "works" : err.text);
    test_bytes("pread", NULL, direct);
    test_refusals("pread");
    if (uring) {
        test_bytes("uring", NULL, direct);
        test_refusals("uring");
    }
    test_open();
    test_fault_results();
    test_fault_delay();
    test_fault_reorder();
    if (shm) {
        test_bytes("pread", "/dev/shm", false);
        if (uring)
            test_bytes("uring", "/dev/shm", false);
    }
    test_stripes(uring);
    test_throttle(1e8, 200, 262144);
    test_throttle(3.3e9, 2000, 1048576);
    test_throttle(6.5e9, 4000, 1048576);
    return 0;
}
