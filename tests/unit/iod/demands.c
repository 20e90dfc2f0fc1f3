/* SPDX-License-Identifier: Apache-2.0 */
/* The core on a region in memory: read requests for frames and bundles, prefetch reads, cancelled reads. */
#include <errno.h>

#include "fake.h"
#include "tests/lib/check.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static const struct fake_shape ring = {
    .n_chunks = 10, .n_desc = 4, .n_slots = 6, .chunk_bytes = 300000, .inflight = 64 * MIB};

static void post(struct fake *f, uint32_t i, uint64_t offset, uint32_t bytes)
{
    struct ntx_demand *d = &f->r.demand[i];
    f->r.request[i].offset = offset;
    f->r.request[i].bytes = bytes;
    d->word = ntx_word(ntx_word_gen(d->word), NTX_POSTED);
    f->r.control->demand_posted++;
}

static void test_demands(void)
{
    struct fake_shape s = ring;
    s.n_demands = 3;
    s.inflight = 1;
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read rd = fake_next(&f);
    CHECK_EQ(rd.chunk, 0);
    post(&f, 2, 5000, 8000);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    fake_done(&f, &rd, (int32_t)rd.expect);
    rd = fake_next(&f); /* before the ring */
    CHECK_EQ(ntx_iod_tag_kind(rd.tag), NTX_IOD_FRAME);
    CHECK_EQ(rd.chunk, UINT32_MAX);
    CHECK_EQ(rd.offset, 4096);
    CHECK_EQ(rd.len, 3 * FAKE_BLOCK);
    CHECK_EQ(rd.dest, f.r.hdr->off_frames + 2 * f.r.hdr->frame_bytes);
    CHECK_EQ(f.r.demand[2].word, ntx_word(0, NTX_FILLING));
    post(&f, 0, 3000000 + 900, 99); /* the last bytes of the file */
    fake_done(&f, &rd, (int32_t)rd.expect);
    CHECK_EQ(f.r.demand[2].word, ntx_word(0, NTX_READY));
    CHECK_EQ(f.r.demand[2].shift, 904);
    rd = fake_next(&f);
    CHECK_EQ(ntx_iod_tag_index(rd.tag), 0);
    CHECK_EQ(rd.expect, (3001000 - 1) % FAKE_BLOCK + 1);
    fake_done(&f, &rd, (int32_t)rd.expect);
    /* Outside the file, wider than a frame, empty, no such file: refused, the ring goes on. */
    static const struct {
        uint64_t offset;
        uint32_t bytes, file;
    } bad[] = {{3001000, 1, 0}, {3000999, 2, 0}, {4095, 4 * FAKE_BLOCK, 0},
               {0, 0, 0},       {0, 1, 1},       {UINT64_MAX, 4096, 0}};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        f.r.request[1].file = bad[i].file;
        post(&f, 1, bad[i].offset, bad[i].bytes);
        rd = fake_next(&f);
        CHECK_EQ(f.r.demand[1].word, ntx_word(0, NTX_FAILED));
        CHECK_EQ(f.r.demand[1].err, -EINVAL);
        if (rd.tag != UINT64_MAX)
            fake_done(&f, &rd, (int32_t)rd.expect);
    }
    CHECK_EQ(f.n_failures, 6);
    fake_free(&f);
}

static const struct fake_shape bundles = {.n_chunks = 4,
                                          .n_desc = 2,
                                          .n_slots = 2,
                                          .n_demands = 1,
                                          .n_bundle_demands = 6,
                                          .chunk_bytes = 4 * MIB,
                                          .inflight = 4 * MIB,
                                          .piece = 512 * KIB};

static void post_bundle(struct fake *f, uint32_t i, uint64_t offset, uint32_t bytes, uint64_t dest, bool early)
{
    f->r.request[i].dest = dest;
    f->r.request[i].early = early;
    post(f, i, offset, bytes);
}

/* A demand waits behind few ring reads; without bundles only the window limits them. */
static void test_ring_beside_demands(void)
{
    struct fake_shape s = {.n_chunks = 20,
                           .n_desc = 16,
                           .n_slots = 16,
                           .n_demands = 1,
                           .n_bundle_demands = 6,
                           .chunk_bytes = 60000,
                           .inflight = 4 * MIB,
                           .piece = 512 * KIB};
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read rd[NTX_IOD_RING_READS], demand;
    for (int i = 0; i < NTX_IOD_RING_READS; i++)
        CHECK_EQ(ntx_iod_tag_kind((rd[i] = fake_next(&f)).tag), NTX_IOD_SLOT);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    CHECK(!ntx_iod_core_idle(f.core)); /* not idle: the next result continues */
    post_bundle(&f, 1, 8192, 8192, f.r.hdr->off_arena, false);
    CHECK_EQ(ntx_iod_tag_kind((demand = fake_next(&f)).tag), NTX_IOD_FRAME);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    fake_done(&f, &demand, (int32_t)demand.expect);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    fake_done(&f, &rd[1], (int32_t)rd[1].expect);
    CHECK_EQ(ntx_iod_tag_kind(fake_next(&f).tag), NTX_IOD_SLOT);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    fake_free(&f);
    s.n_bundle_demands = 0;
    fake_new(&f, &s);
    for (int i = 0; i < 16; i++)
        CHECK(fake_next(&f).tag != UINT64_MAX);
    fake_free(&f);
}

static struct ntx_demand *settled(struct fake *f, uint32_t i, enum ntx_state st)
{
    CHECK_EQ(ntx_word_state(f->r.demand[i].word), st);
    f->r.demand[i].word = ntx_word(ntx_word_gen(f->r.demand[i].word) + 1, NTX_FREE);
    return &f->r.demand[i];
}

/* iod never reads to a place outside the arena, whatever the request says. */
static void test_bundle_dest(void)
{
    struct fake f;
    fake_new(&f, &bundles);
    fake_settle(&f);
    const struct ntx_region_hdr *h = f.r.hdr;
    const uint64_t arena = h->off_arena, end = arena + h->arena_bytes;
    const struct {
        uint64_t dest, offset;
        uint32_t bytes;
        bool good;
    } cases[] = {
        {arena, 0, 4096, true},
        {end - 4096, 0, 4096, true},
        {arena + 8192, 100, 3996, true},
        {arena, 1000, 15000000, true},
        {end - 8192, 4095, 2, true}, /* two blocks */
        {0, 0, 1, false},
        {4096, 0, 1, false},
        {h->off_frames, 0, 1, false},
        {arena - 4096, 0, 1, false}, /* before the arena */
        {end, 0, 1, false},
        {end + 4096, 0, 1, false}, /* behind it */
        /* begins inside and ends behind, because of the first block's bytes before the offset */
        {end - 4096, 4095, 2, false},
        {end - 4096, 0, 4097, false},
        {end - 8192, 1, 8192, false},
        {arena + 1, 0, 1, false},
        {arena + 512, 0, 1, false},
        {arena + 4095, 0, 1, false}, /* not on a block */
        {UINT64_MAX, 0, 1, false},
        {UINT64_MAX - 4095, 0, 4096, false},
        {1ull << 63, 0, 1, false}, /* sums that wrap around */
        {(1ull << 63) + arena, 0, 1, false},
        {arena, 0, 0, false},
        {arena, 0, UINT32_MAX, false},
        {arena, UINT64_MAX, 4096, false},
    };
    unsigned refused = 0;
    for (unsigned k = 0; k < sizeof(cases) / sizeof(*cases); k++)
        for (int early = 0; early < 2; early++) {
            uint32_t i = 1 + k % 6;
            post_bundle(&f, i, cases[k].offset, cases[k].bytes, cases[k].dest, early);
            struct ntx_iod_read rd = fake_next(&f);
            CHECK_MSG((rd.tag != UINT64_MAX) == cases[k].good, "case %u", k);
            if (cases[k].good) {
                CHECK_EQ(rd.dest, cases[k].dest);
                do {
                    CHECK(rd.dest >= arena && rd.dest + rd.len <= end);
                    fake_done(&f, &rd, (int32_t)rd.expect);
                } while ((rd = fake_next(&f)).tag != UINT64_MAX);
                settled(&f, i, NTX_READY);
            } else {
                CHECK_EQ(settled(&f, i, NTX_FAILED)->err, -EINVAL);
                CHECK_EQ(f.n_failures, ++refused);
            }
        }
    post_bundle(&f, 0, 0, 16384, arena, false); /* a table entry's demand has its own frame, whatever `dest` says */
    struct ntx_iod_read rd = fake_next(&f);
    CHECK_EQ(rd.dest, h->off_frames);
    fake_free(&f);
}

/* Prefetch reads: after all else, few in flight, and cancellable before they are begun. */
static void test_early(void)
{
    struct fake f;
    fake_new(&f, &bundles);
    fake_settle(&f);
    const uint64_t arena = f.r.hdr->off_arena;
    struct ntx_iod_read rd[16], wanted;
    uint32_t n = 0;
    post_bundle(&f, 1, 0, 3 * MIB, arena, true);
    post_bundle(&f, 2, 3 * MIB, MIB, arena + 3 * MIB, true);
    post_bundle(&f, 3, 4 * MIB, MIB, arena + 4 * MIB, true);
    for (; n < NTX_IOD_EARLY_READS; n++)
        CHECK_EQ((rd[n] = fake_next(&f)).dest, arena + n * 512 * KIB);
    CHECK(fake_next(&f).tag == UINT64_MAX); /* although four more would fit */
    CHECK(!ntx_iod_core_idle(f.core));
    CHECK_EQ(ntx_word_state(f.r.demand[2].word), NTX_POSTED);
    post_bundle(&f, 4, 8 * MIB, MIB, arena + 8 * MIB, false);
    wanted = fake_next(&f); /* in addition to the reads in flight */
    CHECK_EQ(wanted.dest, arena + 8 * MIB);
    rd[n] = fake_next(&f);
    CHECK_EQ(ntx_iod_tag_index(rd[n++].tag), 4);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    fake_done(&f, &rd[0], (int32_t)rd[0].expect);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_bytes_early), 512 * KIB);
    rd[0] = fake_next(&f);
    CHECK_EQ(ntx_iod_tag_index(rd[0].tag), 1);
    /* a layer now waits for it: all of it is read at once, before demands that came later */
    f.r.request[1].early = NTX_DEMAND_READ;
    f.r.control->demand_posted++;
    post_bundle(&f, 5, 9 * MIB, 4096, arena + 9 * MIB, false);
    CHECK_EQ(ntx_iod_tag_index((rd[n++] = fake_next(&f)).tag), 1);
    rd[n] = fake_next(&f);
    CHECK_EQ(ntx_iod_tag_index(rd[n++].tag), 5);
    f.r.demand[3].word = ntx_word(1, NTX_FREE); /* cancelled */
    f.r.request[2].early = NTX_DEMAND_READ;
    f.r.control->demand_posted++;
    for (uint32_t k = 0; k < n; k++)
        fake_done(&f, &rd[k], (int32_t)rd[k].expect);
    for (uint32_t k = 0; k < 2; k++)
        CHECK_EQ(ntx_iod_tag_index((rd[k] = fake_next(&f)).tag), 2);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    for (uint32_t k = 0; k < 2; k++)
        fake_done(&f, &rd[k], (int32_t)rd[k].expect);
    fake_done(&f, &wanted, (int32_t)wanted.expect);
    CHECK(fake_next(&f).tag == UINT64_MAX && ntx_iod_core_idle(f.core));
    for (uint32_t i = 1; i < 6; i++)
        CHECK_EQ(f.r.demand[i].word, i == 3 ? ntx_word(1, NTX_FREE) : ntx_word(0, NTX_READY));
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_bytes_early), 512 * KIB);
    fake_free(&f);
}

/* Bundles that a layer waits for have more bytes in flight than other reads, up to their own limit. */
static void test_deeper(void)
{
    struct fake f;
    struct ntx_iod_read rd;
    fake_new(&f, &bundles);
    fake_settle(&f);
    const uint64_t arena = f.r.hdr->off_arena;
    uint64_t bytes = 0;
    for (uint32_t i = 1; i < 6; i++)
        post_bundle(&f, i, 0, 4 * MIB, arena, false);
    while ((rd = fake_next(&f)).tag != UINT64_MAX)
        bytes += rd.len;
    CHECK_EQ(bytes, NTX_IOD_DEEPER * 4 * MIB);
    fake_free(&f);
}

/* A cancelled prefetch ends with its reads in flight, as no error, and the next begins at once; unless all of it was
 * issued already. */
static void test_cancelled(void)
{
    struct fake f;
    fake_new(&f, &bundles);
    fake_settle(&f);
    const uint64_t arena = f.r.hdr->off_arena, failures = ntx_counter_get(&f.counters, NTX_C_iod_errors);
    struct ntx_iod_read rd[8];
    post_bundle(&f, 1, 0, 4 * MIB, arena, true);
    post_bundle(&f, 2, 4 * MIB, 2 * MIB, arena + 4 * MIB, true);
    for (uint32_t i = 0; i < 4; i++)
        rd[i] = fake_next(&f);
    fake_done(&f, &rd[0], (int32_t)rd[0].expect);
    f.r.request[1].early = NTX_CANCELLED;
    rd[0] = fake_next(&f); /* a read of the other one, while three of the first are in flight */
    CHECK_EQ(ntx_iod_tag_index(rd[0].tag), 2);
    fake_done(&f, &rd[1], -EIO); /* not tried again */
    fake_done(&f, &rd[2], (int32_t)rd[2].expect);
    CHECK_EQ(ntx_word_state(f.r.demand[1].word), NTX_FILLING); /* a read of it could still land */
    fake_done(&f, &rd[3], (int32_t)rd[3].expect);
    CHECK_EQ(f.r.demand[1].word, ntx_word(0, NTX_FAILED));
    CHECK_EQ(f.r.demand[1].err, -ECANCELED);
    CHECK_EQ(f.r.demand[1].got, 3 * 512 * KIB);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_errors), failures);
    for (uint32_t i = 1; i < 4; i++)
        CHECK_EQ(ntx_iod_tag_index((rd[i] = fake_next(&f)).tag), 2);
    f.r.request[2].early = NTX_CANCELLED; /* all its pieces are issued */
    for (uint32_t i = 0; i < 4; i++)
        fake_done(&f, &rd[i], (int32_t)rd[i].expect);
    CHECK_EQ(f.r.demand[2].word, ntx_word(0, NTX_READY));
    post_bundle(&f, 4, 0, 4 * MIB, arena, true);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(ntx_iod_tag_index((rd[i] = fake_next(&f)).tag), 4);
    f.r.request[4].early = NTX_CANCELLED;
    for (uint32_t i = 0; i < 4; i++) /* no read is issued meanwhile: it ends all the same */
        fake_done(&f, &rd[i], (int32_t)rd[i].expect);
    CHECK_EQ(f.r.demand[4].word, ntx_word(0, NTX_FAILED));
    post_bundle(&f, 3, 8 * MIB, MIB, arena + 8 * MIB, true);
    f.r.request[3].early = NTX_CANCELLED; /* as after a death: posted again */
    CHECK(fake_next(&f).tag != UINT64_MAX);
    fake_free(&f);
}

/* The stage: after all else where anything rests, and a share beside reads that never rest. */
static void test_stage(void)
{
    struct fake_shape s = bundles;
    s.n_stage_reads = 3;
    struct fake f;
    fake_new(&f, &s);
    fake_settle(&f);
    const struct ntx_region_hdr *h = f.r.hdr;
    const uint32_t first = ntx_region_first_stage(h);
    const uint64_t stage = h->off_stage, arena = h->off_arena;
    struct ntx_iod_read rd[NTX_IOD_STAGE_READS + 1], other;
    post_bundle(&f, first + 1, 4096, 3 * MIB, stage, true);
    for (int i = 0; i < NTX_IOD_STAGE_READS; i++) {
        rd[i] = fake_next(&f);
        CHECK_EQ(ntx_iod_tag_kind(rd[i].tag), NTX_IOD_STAGE);
        CHECK_EQ(rd[i].chunk, NTX_STAGE_CHUNK);
        CHECK_EQ(rd[i].dest, stage + (uint64_t)i * 512 * KIB);
    }
    CHECK(fake_next(&f).tag == UINT64_MAX && !ntx_iod_core_idle(f.core)); /* few in flight */
    post_bundle(&f, 1, 0, 4096, arena, true);
    other = fake_next(&f); /* a prefetch goes first */
    CHECK_EQ(ntx_iod_tag_kind(other.tag), NTX_IOD_FRAME);
    fake_done(&f, &other, (int32_t)other.expect);
    settled(&f, 1, NTX_READY);
    fake_done(&f, &rd[0], (int32_t)rd[0].expect);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_bytes_projector), 512 * KIB);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_bytes_early), 4096);
    /* demands without end, one in flight at a time */
    uint64_t bytes[4] = {0};
    fake_done(&f, &rd[1], (int32_t)rd[1].expect);
    for (int i = 0; i < 40; i++) {
        if (ntx_word_state(f.r.demand[2].word) != NTX_POSTED && ntx_word_state(f.r.demand[2].word) != NTX_FILLING) {
            f.r.demand[2].word = ntx_word(0, NTX_FREE);
            post_bundle(&f, 2, 0, 4 * MIB, arena, false);
        }
        other = fake_next(&f);
        bytes[ntx_iod_tag_kind(other.tag)] += other.len;
        fake_done(&f, &other, (int32_t)other.expect);
    }
    CHECK_EQ(bytes[NTX_IOD_STAGE], 4 * 512 * KIB);
    CHECK_EQ(bytes[NTX_IOD_FRAME], 36 * 512 * KIB);
    CHECK_EQ(f.r.demand[first + 1].word, ntx_word(0, NTX_READY));
    fake_settle(&f);
    /* cancelled, tried again, and refused outside the stage */
    post_bundle(&f, first, 0, 3 * MIB, stage, true);
    rd[0] = fake_next(&f);
    f.r.request[first].early = NTX_CANCELLED;
    fake_done(&f, &rd[0], (int32_t)rd[0].expect);
    CHECK_EQ(settled(&f, first, NTX_FAILED)->err, -ECANCELED);
    CHECK_EQ(f.n_failures, 0);
    post_bundle(&f, first, 0, 4096, stage + h->stage_bytes - 4096, true);
    for (int i = 0; i < NTX_IOD_TRIES; i++) {
        rd[0] = fake_next(&f);
        fake_done(&f, &rd[0], -EIO);
    }
    CHECK_EQ(settled(&f, first, NTX_FAILED)->err, -EIO);
    CHECK_EQ(f.failure.chunk, NTX_STAGE_CHUNK);
    const uint64_t bad[] = {arena, stage - 4096, stage + h->stage_bytes, stage + 512};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        post_bundle(&f, first + 2, 0, 4096, bad[i], true);
        CHECK(fake_next(&f).tag == UINT64_MAX);
        CHECK_EQ(settled(&f, first + 2, NTX_FAILED)->err, -EINVAL);
    }
    post_bundle(&f, 3, 0, 4096, stage, false); /* nor does a bundle go there */
    CHECK(fake_next(&f).tag == UINT64_MAX);
    CHECK_EQ(settled(&f, 3, NTX_FAILED)->err, -EINVAL);
    fake_free(&f);
}

/* A restarted iod serves demands that were posted before it came. */
static void test_demand_restart(void)
{
    struct fake_shape s = ring;
    s.n_demands = 2;
    struct fake f;
    fake_new(&f, &s);
    fake_settle(&f);
    post(&f, 1, 0, 10);
    fake_restart(&f, &s);
    CHECK_EQ(fake_settle(&f), 1);
    CHECK_EQ(f.r.demand[1].word, ntx_word(0, NTX_READY));
    fake_free(&f);
}

int main(void)
{
    test_demands();
    test_demand_restart();
    test_bundle_dest();
    test_ring_beside_demands();
    test_early();
    test_deeper();
    test_cancelled();
    test_stage();
    return 0;
}
