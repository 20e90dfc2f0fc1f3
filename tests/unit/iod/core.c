/* SPDX-License-Identifier: Apache-2.0 */
/* The core on a region in memory: order, limits, drop maps, failures, quarantine, restart from any words. */
#include <errno.h>

#include "common/util.h"
#include "fake.h"
#include "tests/lib/check.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static const struct fake_shape ring = {
    .n_chunks = 10, .n_desc = 4, .n_slots = 6, .chunk_bytes = 300000, .inflight = 64 * MIB};

static void test_ring_order_and_laps(void)
{
    struct fake f;
    fake_new(&f, &ring);
    for (uint64_t seq = 0; seq < 35; seq++) { /* three and a half passes, with no gap between passes */
        fake_settle(&f);
        CHECK(ntx_iod_core_idle(f.core));
        fake_consume(&f, seq, NTX_READY);
    }
    CHECK_EQ(f.n_state[NTX_FILLING], 38);
    CHECK_EQ(f.n_state[NTX_READY], 38);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_reads), 38);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_bytes_read), ntx_counter_get(&f.counters, NTX_C_iod_bytes_stream));
    fake_free(&f);
}

/* A chunk of 2.5 MiB in pieces of at most 1 MiB: 3 equal ones that cover its blocks exactly. */
static void test_pieces(void)
{
    struct fake_shape s = {
        .n_chunks = 2, .n_desc = 1, .n_slots = 1, .chunk_bytes = 5 * MIB / 2, .inflight = 64 * MIB, .piece = MIB};
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read rd[3];
    uint64_t at = 0;
    for (int i = 0; i < 3; i++) {
        rd[i] = fake_next(&f);
        CHECK_EQ(rd[i].offset, at);
        CHECK_EQ(rd[i].dest, at);
        CHECK_EQ(rd[i].len % FAKE_BLOCK, 0);
        CHECK(rd[i].len <= MIB && rd[i].len >= MIB / 2);
        CHECK_EQ(rd[i].expect, rd[i].len);
        CHECK_EQ(ntx_iod_tag_kind(rd[i].tag), NTX_IOD_SLOT);
        CHECK_EQ(ntx_iod_tag_index(rd[i].tag), 0);
        CHECK_EQ(ntx_iod_tag_piece(rd[i].tag), i);
        at += rd[i].len;
    }
    CHECK_EQ(at, NTX_ROUND_UP(1000 + s.chunk_bytes, FAKE_BLOCK));
    CHECK(fake_next(&f).tag == UINT64_MAX);
    fake_done(&f, &rd[2], (int32_t)rd[2].len);
    fake_done(&f, &rd[0], (int32_t)rd[0].len);
    CHECK_EQ(fake_word(&f, 0), ntx_word(0, NTX_FILLING));
    fake_done(&f, &rd[1], (int32_t)rd[1].len);
    CHECK_EQ(fake_word(&f, 0), ntx_word(0, NTX_READY));
    fake_free(&f);
}

/* The last blocks of a file are read as whole blocks and come short. */
static void test_end_of_file(void)
{
    struct fake_shape s = {.n_chunks = 1, .n_desc = 1, .n_slots = 1, .chunk_bytes = 10001};
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read rd = fake_next(&f);
    CHECK_EQ(rd.len, 3 * FAKE_BLOCK);
    CHECK_EQ(rd.expect, 11001);
    fake_done(&f, &rd, 11001);
    CHECK_EQ(fake_word(&f, 0), ntx_word(0, NTX_READY));
    fake_free(&f);
}

static void test_window(void)
{
    struct fake_shape s = {
        .n_chunks = 20, .n_desc = 16, .n_slots = 16, .chunk_bytes = 4 * MIB - 1000, .inflight = 5 * MIB, .piece = MIB};
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read rd[5], more;
    for (int i = 0; i < 5; i++)
        CHECK(((rd[i] = fake_next(&f)).tag != UINT64_MAX));
    CHECK(fake_next(&f).tag == UINT64_MAX);
    CHECK(!ntx_iod_core_idle(f.core));
    CHECK_EQ(ntx_iod_core_inflight(f.core), 5 * MIB);
    CHECK_EQ(f.n_state[NTX_FILLING], 2); /* a job begins only when a piece of it may go */
    fake_done(&f, &rd[3], MIB);
    more = fake_next(&f);
    CHECK(more.tag != UINT64_MAX);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_inflight), 5 * MIB);
    fake_free(&f);

    s.inflight = MIB / 2; /* less than a piece: one piece at a time */
    fake_new(&f, &s);
    rd[0] = fake_next(&f);
    CHECK_EQ(rd[0].len, MIB);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    fake_done(&f, &rd[0], MIB);
    CHECK(fake_next(&f).tag != UINT64_MAX);
    fake_free(&f);
}

static void set_map(struct fake *f, uint64_t pass, uint64_t bits)
{
    struct ntx_pass_map *m = &f->r.pass_map[pass % NTX_PASS_MAPS];
    m->drop[0] = bits;
    m->pass = pass;
}

/* Layer 1 is chunks 2 and 3, layer 4 is chunks 8 and 9. */
static void test_drop_map(void)
{
    struct fake f;
    fake_new(&f, &ring);
    set_map(&f, 0, 1 << 1);
    set_map(&f, 1, 1 << 4);
    set_map(&f, 2, 0);
    f.r.pass_map[2].drop[0] = ~0ull;
    f.r.pass_map[2].pass = 6; /* another pass with the same map: pass 2 ignores it */
    for (uint64_t seq = 0; seq < 30; seq++) {
        fake_settle(&f);
        uint64_t pass = seq / 10, layer = seq % 10 / 2;
        bool drop = (pass == 0 && layer == 1) || (pass == 1 && layer == 4);
        fake_consume(&f, seq, drop ? NTX_SKIPPED : NTX_READY);
    }
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_skipped_chunks), 4);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_reads), 33 - 4); /* three chunks are read ahead */
    fake_free(&f);
}

/* A chunk that was begun is finished; one that was not is skipped, even while the window is full. */
static void test_drop_late(void)
{
    struct fake_shape s = ring;
    s.inflight = 1;
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read rd = fake_next(&f);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    set_map(&f, 0, 1 << 0);
    fake_done(&f, &rd, (int32_t)rd.len);
    rd = fake_next(&f);
    CHECK_EQ(rd.chunk, 2);
    fake_consume(&f, 0, NTX_READY);
    fake_consume(&f, 1, NTX_SKIPPED);
    fake_free(&f);
}

static void test_retry(void)
{
    struct fake f;
    fake_new(&f, &ring);
    struct ntx_iod_read rd = fake_next(&f), again;
    for (uint32_t i = 1; i < NTX_IOD_TRIES; i++) {
        fake_done(&f, &rd, i == 2 ? 4096 : -EIO);
        again = fake_next(&f);
        CHECK_EQ(again.offset, rd.offset);
        CHECK_EQ(again.dest, rd.dest);
        CHECK_EQ(ntx_iod_tag_tries(again.tag), i);
        rd = again;
    }
    fake_done(&f, &rd, (int32_t)rd.len);
    CHECK_EQ(fake_word(&f, 0), ntx_word(0, NTX_READY));
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_retries), 3);
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_errors), 0);
    fake_free(&f);
}

/* A chunk becomes FAILED only after the last of its pieces is back, and the ring goes on. */
static void test_failure(void)
{
    struct fake_shape s = {
        .n_chunks = 4, .n_desc = 2, .n_slots = 3, .chunk_bytes = 2 * MIB - 1000, .inflight = 64 * MIB, .piece = MIB};
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read bad = fake_next(&f), other = fake_next(&f), chunk1 = fake_next(&f);
    for (int i = 0; i < NTX_IOD_TRIES; i++) {
        fake_done(&f, &bad, -EIO);
        if (i < NTX_IOD_TRIES - 1)
            bad = fake_next(&f);
    }
    CHECK_EQ(fake_word(&f, 0), ntx_word(0, NTX_FILLING));
    fake_done(&f, &other, MIB);
    CHECK_EQ(fake_word(&f, 0), ntx_word(0, NTX_FAILED));
    CHECK_EQ(f.r.desc[0].err, -EIO);
    CHECK_EQ(f.n_failures, 1);
    CHECK_EQ(f.failure.chunk, 0);
    CHECK_EQ(f.failure.offset, 0);
    CHECK_EQ(f.failure.err, -EIO);
    CHECK_EQ(chunk1.chunk, 1);
    fake_done(&f, &chunk1, MIB);
    f.r.desc[0].word = ntx_word(1, NTX_FREE);
    fake_settle(&f);
    CHECK_EQ(fake_word(&f, 1), ntx_word(0, NTX_READY));
    CHECK_EQ(fake_word(&f, 0), ntx_word(1, NTX_READY));
    fake_free(&f);
}

/* Short four times: the file has ended early. Retries of the chunk's other piece are dropped. */
static void test_failure_short(void)
{
    struct fake_shape s = {
        .n_chunks = 2, .n_desc = 1, .n_slots = 2, .chunk_bytes = 2 * MIB - 1000, .inflight = 64 * MIB, .piece = MIB};
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read a = fake_next(&f), b = fake_next(&f);
    for (int i = 0; i < NTX_IOD_TRIES - 1; i++) {
        fake_done(&f, &a, 100);
        a = fake_next(&f);
        CHECK_EQ(ntx_iod_tag_piece(a.tag), 0);
    }
    fake_done(&f, &b, -EIO); /* waits for its retry */
    fake_done(&f, &a, 100);
    CHECK_EQ(fake_word(&f, 0), ntx_word(0, NTX_FAILED));
    CHECK_EQ(f.r.desc[0].err, -ENODATA);
    CHECK(fake_next(&f).tag == UINT64_MAX);
    fake_free(&f);
}

static void test_slots_and_quarantine(void)
{
    struct fake f;
    fake_new(&f, &ring);
    f.r.quarantine[0] = f.r.quarantine[2] = 1;
    for (uint64_t seq = 0; seq < 25; seq++) {
        fake_settle(&f);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t slot = f.r.desc[i].slot;
            CHECK(slot == 1 || slot >= 3);
            for (uint32_t k = 0; k < i; k++)
                CHECK(f.r.desc[k].slot != slot);
        }
        fake_consume(&f, seq, NTX_READY);
    }
    /* All spare slots and one more are quarantined: three descriptors are served, the fourth waits. */
    fake_settle(&f);
    f.r.quarantine[1] = 1;
    uint32_t i1 = 0;
    while (f.r.desc[i1].slot != 1)
        i1++;
    for (uint64_t seq = 25; seq < 29; seq++)
        fake_consume(&f, seq, NTX_READY);
    fake_settle(&f);
    CHECK(ntx_iod_core_idle(f.core));
    CHECK_EQ(ntx_word_state(fake_word(&f, 29 % 4)), NTX_READY);
    CHECK_EQ(ntx_word_state(fake_word(&f, 32 % 4)), NTX_FREE);
    f.r.quarantine[0] = 0;
    CHECK_EQ(fake_settle(&f), 1);
    CHECK_EQ(f.r.desc[32 % 4].slot, 0);
    fake_free(&f);
}

/* computed's work when iod dies: FILLING words become FREE at their lap and the slots are quarantined. */
static void handle_death(struct fake *f)
{
    for (uint32_t i = 0; i < f->r.hdr->n_desc; i++) {
        uint32_t w = fake_word(f, i);
        if (ntx_word_state(w) == NTX_FILLING) {
            f->r.quarantine[f->r.desc[i].slot] = 1;
            f->r.desc[i].word = ntx_word(ntx_word_gen(w), NTX_FREE);
        }
    }
    for (uint32_t i = 0; i < f->r.hdr->n_chunks; i++)
        if (ntx_word_state(f->r.state[i]) == NTX_FILLING)
            f->r.state[i] = ntx_word(0, NTX_FREE);
}

static uint32_t draw(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* Random deaths, with reads in flight and completed out of order: every sequence is read once, in order, whole, into a
 * slot that no old read can reach. */
static void test_restart_anywhere(uint32_t seed)
{
    struct fake_shape s = {.n_chunks = 9,
                           .n_desc = 5,
                           .n_slots = 12,
                           .chunk_bytes = 700000,
                           .host_every = 4,
                           .inflight = 4 * MIB,
                           .piece = 512 * KIB};
    struct fake f;
    struct ntx_iod_read fly[64];
    unsigned n = 0;
    uint64_t consumed = 0;
    fake_new(&f, &s);
    while (consumed < 60) {
        uint32_t what = draw(&seed) % 16;
        if (what < 8 && n < 64) {
            if ((fly[n] = fake_next(&f)).tag != UINT64_MAX) {
                for (uint32_t t = 0; t < s.n_slots; t++)
                    CHECK(!(f.r.quarantine[t] && ntx_iod_tag_kind(fly[n].tag) == NTX_IOD_SLOT &&
                            ntx_iod_tag_index(fly[n].tag) == t));
                n++;
            }
        } else if (what < 13 && n) {
            unsigned k = draw(&seed) % n;
            fake_done(&f, &fly[k], (int32_t)fly[k].expect);
            fly[k] = fly[--n];
        } else if (what < 15) {
            if (ntx_word_state(fake_word(&f, consumed % s.n_desc)) == NTX_READY) {
                CHECK(!f.r.quarantine[f.r.desc[consumed % s.n_desc].slot]);
                fake_consume(&f, consumed++, NTX_READY);
                f.r.control->current_pass = consumed / f.r.hdr->n_sched;
            }
        } else if (draw(&seed) % 8 == 0) {
            handle_death(&f);
            n = 0;
            fake_restart(&f, &s);
        } else {
            for (uint32_t t = 0; t < s.n_slots; t++) /* old reads have ended */
                f.r.quarantine[t] = 0;
        }
    }
    for (uint32_t i = 0; i < s.n_chunks; i += 4)
        CHECK_EQ(f.r.state[i], ntx_word(0, NTX_READY));
    fake_free(&f);
}

/* Words that a previous process may leave: a hole before READY ones, and laps of more than 28 bits. */
static void test_restart_words(void)
{
    struct fake f;
    fake_new(&f, &ring);
    fake_settle(&f);
    f.r.desc[1].word = ntx_word(0, NTX_FREE);
    fake_restart(&f, &ring);
    struct ntx_iod_read rd = fake_next(&f);
    CHECK_EQ(rd.chunk, 1);
    fake_done(&f, &rd, (int32_t)rd.expect);
    CHECK(fake_next(&f).tag == UINT64_MAX);

    uint64_t first = (1ull << 32) * 40; /* lap 40 * 2^30 of 4 descriptors; a multiple of both 4 and 10 */
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t last = first + i - 4;
        f.r.desc[i].pass = last / 10;
        f.r.desc[i].sched = (uint32_t)(last % 10);
        f.r.desc[i].word = ntx_word((uint32_t)((first + i) / 4), NTX_FREE);
    }
    fake_restart(&f, &ring);
    fake_settle(&f);
    for (uint64_t seq = first; seq < first + 4; seq++) {
        CHECK_EQ(f.r.desc[seq % 4].pass, seq / 10);
        CHECK_EQ(fake_word(&f, seq % 4), ntx_word((uint32_t)(seq / 4), NTX_READY));
    }
    fake_free(&f);
}

/* Cold start: everything in order of use; then, with the ring full, the rest of the arena; then nothing. */
static void test_cold_start(void)
{
    struct fake_shape s = {.n_chunks = 12, .n_desc = 3, .n_slots = 4, .chunk_bytes = 100000, .host_every = 2};
    struct fake f;
    fake_new(&f, &s);
    static const uint32_t want[] = {0, 1, 2, 3, 4, 5, 6, 8, 10}; /* 1, 3, 5 fill the ring of three */
    for (unsigned i = 0; i < sizeof(want) / sizeof(*want); i++) {
        struct ntx_iod_read rd = fake_next(&f);
        CHECK_EQ(rd.chunk, want[i]);
        fake_done(&f, &rd, (int32_t)rd.expect);
        if (i == 6) { /* computed begins: the ring's next chunk is 7, wanted before 8 */
            fake_consume(&f, 0, NTX_READY);
            rd = fake_next(&f);
            CHECK_EQ(rd.chunk, 7);
            fake_done(&f, &rd, (int32_t)rd.expect);
        }
    }
    CHECK(fake_next(&f).tag == UINT64_MAX && ntx_iod_core_idle(f.core));
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < 12; i += 2) {
        const struct ntx_plan_chunk *p = &f.r.chunks[i];
        CHECK_EQ(f.r.state[i], ntx_word(0, NTX_READY));
        blocks += NTX_ROUND_UP(p->offset + p->bytes, FAKE_BLOCK) - NTX_ROUND_DOWN(p->offset, FAKE_BLOCK);
    }
    CHECK_EQ(ntx_counter_get(&f.counters, NTX_C_iod_bytes_host), blocks);
    fake_free(&f);
}

static void test_host_failure(void)
{
    struct fake_shape s = {.n_chunks = 2, .n_desc = 0, .chunk_bytes = 100000, .host_every = 1};
    struct fake f;
    fake_new(&f, &s);
    for (int i = 0; i < NTX_IOD_TRIES; i++) {
        struct ntx_iod_read rd = fake_next(&f);
        CHECK_EQ(rd.chunk, 0);
        fake_done(&f, &rd, -EIO);
    }
    CHECK_EQ(f.r.state[0], ntx_word(EIO, NTX_FAILED));
    CHECK_EQ(fake_settle(&f), 1);
    CHECK_EQ(f.r.state[1], ntx_word(0, NTX_READY));
    /* computed wants it again: iod has passed it, and looks again only when host_again changes */
    f.r.state[0] = ntx_word(0, NTX_FREE);
    CHECK_EQ(fake_settle(&f), 0);
    f.r.control->host_again++;
    CHECK_EQ(fake_settle(&f), 1);
    CHECK_EQ(f.r.state[0], ntx_word(0, NTX_READY));
    fake_free(&f);
}

/* Chunks without memory are left alone; the others are read meanwhile. */
static void test_host_memory(void)
{
    struct fake_shape s = {.n_chunks = 3, .n_desc = 0, .chunk_bytes = 100000, .host_every = 1};
    struct fake f;
    fake_new(&f, &s);
    f.r.state[1] = f.r.state[2] = ntx_word(0, NTX_SKIPPED);
    CHECK_EQ(fake_settle(&f), 1);
    CHECK_EQ(f.r.state[0], ntx_word(0, NTX_READY));
    f.r.state[1] = ntx_word(0, NTX_FREE);
    f.r.control->host_again++;
    CHECK_EQ(fake_settle(&f), 1);
    CHECK_EQ(f.r.state[1], ntx_word(0, NTX_READY));
    CHECK_EQ(f.r.state[2], ntx_word(0, NTX_SKIPPED));
    fake_free(&f);
}

static void test_hint_and_stop(void)
{
    struct fake f;
    fake_new(&f, &ring);
    uint8_t skip = 1 << 1; /* layer 1: chunks 2 and 3 */
    ntx_iod_core_hint(f.core, 0, &skip, 1);
    fake_settle(&f);
    for (uint64_t seq = 0; seq < 4; seq++)
        fake_consume(&f, seq, NTX_READY); /* held back, not left out */
    static const uint32_t want[] = {4, 5, 6, 7};
    for (unsigned i = 0; i < 4; i++) {
        struct ntx_iod_read rd = fake_next(&f);
        CHECK_EQ(rd.chunk, want[i]);
        fake_done(&f, &rd, (int32_t)rd.expect);
    }
    for (uint64_t seq = 4; seq < 8; seq++)
        fake_consume(&f, seq, NTX_READY);
    skip = 1 << 4; /* chunks 8 and 9: now behind 0 and 1 of the next pass */
    ntx_iod_core_hint(f.core, 0, &skip, 1);
    static const uint32_t want2[] = {0, 1, 8, 9};
    for (unsigned i = 0; i < 4; i++) {
        struct ntx_iod_read rd = fake_next(&f);
        CHECK_EQ(rd.chunk, want2[i]);
        fake_done(&f, &rd, (int32_t)rd.expect);
    }
    for (uint64_t seq = 8; seq < 12; seq++)
        fake_consume(&f, seq, NTX_READY);
    f.r.control->stop = 1;
    CHECK(fake_next(&f).tag == UINT64_MAX && ntx_iod_core_idle(f.core));
    fake_free(&f);
}

/* Many more small reads than may be in flight at once. */
static void test_many_small(void)
{
    struct fake_shape s = {
        .n_chunks = 700, .n_desc = 300, .n_slots = 300, .chunk_bytes = 4096, .n_demands = 4, .inflight = 64 * MIB};
    struct fake f;
    fake_new(&f, &s);
    struct ntx_iod_read rd[NTX_IOD_MAX_READS];
    unsigned n = 0;
    for (; n < NTX_IOD_MAX_READS; n++)
        CHECK(((rd[n] = fake_next(&f)).tag != UINT64_MAX));
    CHECK(fake_next(&f).tag == UINT64_MAX && !ntx_iod_core_idle(f.core));
    for (unsigned i = 0; i < n; i++)
        fake_done(&f, &rd[i], -EIO); /* all wait for their retry, none may overtake */
    for (unsigned i = 0; i < n; i++) {
        struct ntx_iod_read again = fake_next(&f);
        CHECK_EQ(again.chunk, rd[i].chunk);
        CHECK_EQ(ntx_iod_tag_tries(again.tag), 1);
        rd[i] = again;
    }
    CHECK(fake_next(&f).tag == UINT64_MAX);
    for (unsigned i = 0; i < n; i++)
        fake_done(&f, &rd[i], (int32_t)rd[i].expect);
    fake_settle(&f);
    CHECK_EQ(f.n_state[NTX_READY], 300);
    fake_free(&f);
}

int main(void)
{
    test_ring_order_and_laps();
    test_pieces();
    test_end_of_file();
    test_window();
    test_drop_map();
    test_drop_late();
    test_retry();
    test_failure();
    test_failure_short();
    test_slots_and_quarantine();
    test_restart_words();
    for (uint32_t seed = 1; seed <= 200; seed++)
        test_restart_anywhere(seed);
    test_cold_start();
    test_host_failure();
    test_host_memory();
    test_hint_and_stop();
    test_many_small();
    return 0;
}
