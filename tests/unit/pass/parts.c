/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces under the pass: KV blocks and holes, angles, the pool of threads. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "computed/cpu/pool.h"
#include "computed/pass/rope.h"
#include "computed/state/kv.h"
#include "tests/lib/check.h"

/* ---- KV */

static void kv_blocks(void)
{
    const struct ntx_hparams hp = {.n_layers = 3, .n_head_kv = 2, .head_k = 8, .head_v = 4};
    struct ntx_kv_pool *p;
    struct ntx_kv_seq *a, *b, *c = NULL;
    CHECK_EQ(ntx_kv_block_bytes(&hp, NTX_KV_F16), 3 * 2 * 32 * (8 + 4) * 2);
    CHECK_EQ(ntx_kv_pool_new(&hp, NTX_KV_F16, &(struct ntx_kv_shape){.blocks = 5}, &p, NULL), 0);
    CHECK_EQ(ntx_kv_seq_new(p, 6 * 32, &c), -ENOSPC);
    CHECK_EQ(ntx_kv_seq_new(p, 33, &a), 0);
    CHECK_EQ(ntx_kv_seq_room(a), 64);
    CHECK_EQ(ntx_kv_seq_new(p, 96, &b), 0);
    CHECK_EQ(ntx_kv_pool_used(p), 5);
    CHECK_EQ(ntx_kv_seq_new(p, 1, &c), -EAGAIN);
    CHECK(!c);
    /* each (session, layer, head, position) has its own place */
    struct ntx_kv_seq *all[] = {a, b};
    for (int pass = 0; pass < 2; pass++)
        for (uint16_t s = 0; s < 2; s++)
            for (uint32_t l = 0; l < 3; l++)
                for (uint32_t h = 0; h < 2; h++)
                    for (uint32_t pos = 0; pos < ntx_kv_seq_room(all[s]); pos++) {
                        uint16_t tag = (uint16_t)(((s * 3 + l) * 2 + h) * 96 + pos), other = tag ^ 0xffff,
                                 *k = (uint16_t *)ntx_kv_k(all[s], l, h, pos) + pos % 32 * 8,
                                 *v = (uint16_t *)ntx_kv_v(all[s], l, h, pos) + pos % 32 * 4;
                        for (int i = 0; i < 8; i++)
                            CHECK(pass ? k[i] == tag : (k[i] = tag, true));
                        for (int i = 0; i < 4; i++)
                            CHECK(pass ? v[i] == other : (v[i] = other, true));
                    }
    CHECK(ntx_kv_k(a, 1, 1, 31) == ntx_kv_k(a, 1, 1, 0) && ntx_kv_v(a, 1, 0, 32) != ntx_kv_v(a, 1, 0, 0));
    ntx_kv_seq_free(a);
    CHECK_EQ(ntx_kv_pool_used(p), 3);
    CHECK_EQ(ntx_kv_seq_new(p, 64, &c), 0);
    ntx_kv_seq_free(b);
    ntx_kv_seq_free(c);
    ntx_kv_seq_free(NULL);
    CHECK_EQ(ntx_kv_pool_used(p), 0);
    CHECK_EQ(ntx_kv_pool_blocks(p), 5);
    ntx_kv_pool_free(p);
    ntx_kv_pool_free(NULL);
}

/* The first of every two layers has a window: it keeps at most so many blocks of a session, whatever the session's
 * length. */
static void kv_windows(void)
{
    const struct ntx_hparams hp = {
        .n_layers = 5, .n_head_kv = 1, .head_k = 4, .head_v = 4, .window = 40, .windowed = {1 | 1 << 2 | 1 << 4}};
    const uint64_t layer = 32 * (4 + 4) * 2;
    struct ntx_kv_shape all = ntx_kv_shape_for(&hp, 1024, 2, 30, true),
                        some = ntx_kv_shape_for(&hp, 1024, 2, 30, false),
                        small = ntx_kv_shape_for(&hp, 64, 1, 30, false);
    struct ntx_kv_pool *p;
    struct ntx_kv_seq *s, *t, *u = NULL;
    CHECK(all.blocks == 64 && !all.window_blocks && small.blocks == 2 && !small.window_blocks);
    CHECK(some.blocks == 64 && some.ring == 3 && some.window_blocks == 9);
    CHECK_EQ(ntx_kv_shape_bytes(&hp, NTX_KV_F16, &all), 5 * 64 * layer);
    CHECK_EQ(ntx_kv_shape_bytes(&hp, NTX_KV_F16, &some), (2 * 64 + 3 * 9) * layer);
    CHECK_EQ(ntx_kv_pool_new(&hp, NTX_KV_F16, &some, &p, NULL), 0);
    CHECK_EQ(ntx_kv_seq_new(p, 1024, &s), 0);
    CHECK_EQ(ntx_kv_seq_new(p, 1024 - 128, &t), 0);
    for (uint32_t l = 0; l < 5;
         l++) { /* positions a ring's length apart share a place, where there is a ring; no two layers share any */
        CHECK((ntx_kv_k(s, l, 0, 0) == ntx_kv_k(s, l, 0, 96)) == (l % 2 == 0));
        CHECK(ntx_kv_k(s, l, 0, 64) != ntx_kv_k(s, l, 0, 96) && ntx_kv_k(s, l, 0, 0) != ntx_kv_k(t, l, 0, 0) &&
              ntx_kv_k(s, l, 0, 0) != ntx_kv_v(s, l, 0, 0));
        for (uint32_t k = 0; k < l; k++)
            CHECK(ntx_kv_k(s, l, 0, 0) != ntx_kv_k(s, k, 0, 0));
    }
    CHECK_EQ(ntx_kv_seq_new(p, 64, &u), 0);
    ntx_kv_seq_free(u);
    CHECK_EQ(ntx_kv_seq_new(p, 160, &u), -EAGAIN);
    ntx_kv_written(s, 95);
    CHECK_EQ(ntx_kv_return(s, 20), 20);
    ntx_kv_written(s, 150); /* 0 .. 54 are overwritten */
    CHECK_EQ(ntx_kv_return(s, 95), 95);
    CHECK_EQ(ntx_kv_return(s, 94), 0);
    CHECK_EQ(ntx_kv_return(s, 94), 94); /* which starts afresh, from nothing */
    ntx_kv_seq_free(s), ntx_kv_seq_free(t);
    CHECK_EQ(ntx_kv_pool_used(p), 0);
    ntx_kv_pool_free(p);
}

static void kv_holes(void)
{
    const struct ntx_hparams hp = {.n_layers = 4, .n_head_kv = 1, .head_k = 2, .head_v = 2};
    struct ntx_kv_pool *p;
    struct ntx_kv_seq *s;
    CHECK_EQ(ntx_kv_pool_new(&hp, NTX_KV_F16, &(struct ntx_kv_shape){.blocks = 2}, &p, NULL), 0);
    CHECK_EQ(ntx_kv_seq_new(p, 64, &s), 0);
    CHECK(!ntx_kv_holes(s, 2));
    ntx_kv_set_hole(s, 2, 3);
    ntx_kv_set_hole(s, 2, 3);
    ntx_kv_set_hole(s, 2, 13);
    ntx_kv_set_hole(s, 2, 63);
    CHECK(ntx_kv_holes(s, 2)[0] == 8 && ntx_kv_holes(s, 2)[1] == 32 && ntx_kv_holes(s, 2)[7] == 128);
    CHECK(!ntx_kv_holes(s, 1) && !ntx_kv_holes(s, 3));
    ntx_kv_truncate(s, 64);
    CHECK_EQ(ntx_kv_holes(s, 2)[7], 128);
    ntx_kv_truncate(s, 14);
    CHECK(ntx_kv_holes(s, 2)[1] == 32 && ntx_kv_holes(s, 2)[7] == 0);
    ntx_kv_truncate(s, 13);
    CHECK(ntx_kv_holes(s, 2)[0] == 8 && ntx_kv_holes(s, 2)[1] == 0);
    ntx_kv_truncate(s, 0);
    CHECK(!ntx_kv_holes(s, 2));
    ntx_kv_seq_free(s);
    ntx_kv_pool_free(p);
}

/* ---- angles */

static void angles(void)
{
    struct ntx_hparams hp = {.rope_dim = 8,
                             .rope_base = 10000,
                             .rope_factor = 1,
                             .rope_attn_factor = 1,
                             .rope_ctx_orig = 64,
                             .yarn_beta_fast = 32,
                             .yarn_beta_slow = 1};
    double f[4];
    float cs[4], sn[4];
    const float factors[] = {1, 2, 4, 8};
    ntx_rope_frequencies(&hp, NTX_ROTATION_ALL, NULL, f);
    CHECK(fabs(f[0] - 1) < 1e-15 && fabs(f[1] - 0.1) < 1e-15 && fabs(f[2] - 0.01) < 1e-15 &&
          fabs(f[3] - 0.001) < 1e-15);
    ntx_rope_angles(&hp, NTX_ROTATION_ALL, f, 5, cs, sn);
    CHECK(cs[0] == (float)cos(5.0) && sn[1] == (float)sin(5 * f[1]));
    ntx_rope_frequencies(&hp, NTX_ROTATION_ALL, factors, f);
    CHECK(fabs(f[1] - 0.05) < 1e-15 && fabs(f[3] - 0.000125) < 1e-15);
    hp.rope_scaling = NTX_ROPE_SCALE_LINEAR;
    hp.rope_factor = 4;
    ntx_rope_frequencies(&hp, NTX_ROTATION_ALL, NULL, f);
    CHECK(fabs(f[0] - 0.25) < 1e-15 && fabs(f[2] - 0.0025) < 1e-15);
    /* YaRN: within 64 positions pair 0 turns 10 times, pair 1 once: pair 0 is nearer to "fast", the slow ones are
     * divided */
    hp.rope_scaling = NTX_ROPE_SCALE_YARN;
    hp.yarn_ext_factor = 1;
    ntx_rope_frequencies(&hp, NTX_ROTATION_ALL, NULL, f);
    CHECK(fabs(f[0] - 1) < 1e-12 && fabs(f[2] - 0.0025) < 1e-12 && fabs(f[3] - 0.00025) < 1e-12);
    ntx_rope_angles(&hp, NTX_ROTATION_ALL, f, 0, cs, sn);
    CHECK(cs[0] == (float)(1 + 0.1 * log(4.0)) && sn[0] == 0);
    /* layers with a window rotate without YaRN, and without a magnitude if their table is plain (deepseek4) */
    hp.rope_dim_window = 8;
    hp.rope_base_window = 10000;
    hp.rope_factor_window = 1;
    hp.rope_attn_factor = 0.5f;
    hp.plain_window = true;
    ntx_rope_frequencies(&hp, NTX_ROTATION_WINDOW, NULL, f);
    ntx_rope_angles(&hp, NTX_ROTATION_WINDOW, f, 0, cs, sn);
    CHECK(fabs(f[2] - 0.01) < 1e-15 && fabs(f[3] - 0.001) < 1e-15 && cs[0] == 1);
    hp.plain_window = false;
    ntx_rope_angles(&hp, NTX_ROTATION_WINDOW, f, 0, cs, sn);
    CHECK(cs[0] == 0.5f);
}

/* gpt-oss as published (base 150000, YaRN by 32 from 4096 positions, "truncate": false), by transformers' formula; and
 * with the ends of the ramp rounded to 8 and 18. */
static void exact_ramp(void)
{
    static const struct {
        uint32_t pair;
        double exact, rounded;
    } is[] = {{0, 1, 1},
              {8, 0.0508132748155, 0.0508132748155},
              {9, 0.0317056961847, 0.0316207522753},
              {12, 0.00679495948973, 0.0070157139105},
              {15, 0.00105260210139, 0.00120613096904},
              {16, 0.000456483919223, 0.000580947501931},
              {17, 0.000129318701245, 0.000227947795795},
              {18, 3.83088123738e-05, 3.83088123738e-05},
              {31, 3.02351142812e-07, 3.02351142812e-07}};
    struct ntx_hparams hp = {.rope_dim = 64,
                             .rope_base = 150000,
                             .rope_scaling = NTX_ROPE_SCALE_YARN,
                             .rope_factor = 32,
                             .rope_attn_factor = 1,
                             .rope_ctx_orig = 4096,
                             .yarn_ext_factor = 1,
                             .yarn_beta_fast = 32,
                             .yarn_beta_slow = 1};
    double f[32];
    for (int exact = 0; exact < 2; exact++) {
        hp.yarn_exact = exact;
        ntx_rope_frequencies(&hp, NTX_ROTATION_ALL, NULL, f);
        for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
            const double want = exact ? is[i].exact : is[i].rounded;
            CHECK_MSG(fabs(f[is[i].pair] - want) < 1e-10 * want, "pair %u turns by %.12g, not %.12g", is[i].pair,
                      f[is[i].pair], want);
        }
    }
}

/* ---- threads */

struct count {
    _Atomic unsigned next, calls, by[8];
    unsigned done[64]; /* the thread that took an item writes it: ordered by the pool */
};

static void tick(void *ctx, unsigned thread)
{
    struct count *c = ctx;
    atomic_fetch_add(&c->calls, 1);
    atomic_fetch_add(&c->by[thread], 1);
    for (unsigned i; (i = atomic_fetch_add(&c->next, 1)) < 64;)
        c->done[i]++;
}

static void threads(unsigned n, unsigned rounds)
{
    struct ntx_pool *p;
    struct count c = {0};
    struct timespec nap = {.tv_nsec = 300000}; /* longer than the spinning: both ways of waiting are used */
    CHECK_EQ(ntx_pool_new(n, &p, NULL), 0);
    CHECK_EQ(ntx_pool_threads(p), n);
    for (unsigned i = 1; i <= rounds; i++) {
        unsigned before = atomic_load(&c.calls);
        atomic_store(&c.next, 0);
        ntx_pool_run(p, tick, &c);
        for (unsigned k = 0; k < 64; k++)
            CHECK_EQ(c.done[k], i);
        CHECK(atomic_load(&c.calls) > before && atomic_load(&c.calls) <= before + n);
        CHECK_EQ(atomic_load(&c.by[0]), i);
        if (i % 64 == 0)
            nanosleep(&nap, NULL);
    }
    for (unsigned t = 0; t < n; t++)
        CHECK(atomic_load(&c.by[t]) <= rounds);
    ntx_pool_free(p);
}

/* Workers come while there is work: none ends before all have met. */
static void meet(void *ctx, unsigned thread)
{
    struct count *c = ctx;
    (void)thread;
    atomic_fetch_add(&c->calls, 1);
    for (time_t end = time(NULL) + 20; atomic_load(&c->calls) < 4 && time(NULL) < end;)
        sched_yield();
}

static void all_come(void)
{
    struct ntx_pool *p;
    CHECK_EQ(ntx_pool_new(4, &p, NULL), 0);
    for (int i = 0; i < 20; i++) {
        struct count c = {0};
        ntx_pool_run(p, meet, &c);
        CHECK_EQ(atomic_load(&c.calls), 4);
    }
    ntx_pool_free(p);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct slow {
    struct timespec nap;
    _Atomic bool inside;
};

static void hold_up(void *ctx, unsigned thread)
{
    struct slow *s = ctx;
    if (thread == 1) {
        atomic_store(&s->inside, true);
        nanosleep(&s->nap, NULL);
    } else {
        while (!atomic_load(&s->inside)) {
            struct timespec step = {.tv_nsec = 100000};
            nanosleep(&step, NULL);
        }
    }
}

/* Neither a caller that waits for a slow worker nor idle workers use a processor. */
static void waiting_is_cheap(void)
{
    struct ntx_pool *p;
    struct slow s = {.nap = {.tv_nsec = 200000000}};
    CHECK_EQ(ntx_pool_new(2, &p, NULL), 0);
    double t0 = cpu_seconds();
    ntx_pool_run(p, hold_up, &s);
    nanosleep(&s.nap, NULL);
    double used = cpu_seconds() - t0;
    CHECK_MSG(used < 0.05, "%g s of CPU while waiting 0.4 s", used);
    ntx_pool_free(p);
}

/* Free state buffers: there is room for so many stops. */
static uint32_t buffers_left(struct ntx_kv_seq *s)
{
    uint32_t n = 0;
    while (n < NTX_RECUR_STOPS) {
        ntx_kv_snapshot_ahead(s, 1000 + n);
        if (!ntx_recur_stop_fold(s, 1000 + n, 0))
            break;
        n++;
    }
    ntx_kv_snapshot_passed(s);
    return n;
}

/* a has 9 tokens, the last three a pass ago; b has none, and there is room for one buffer. */
static void snapshots(struct ntx_kv_seq *a, struct ntx_kv_seq *b)
{
    struct ntx_kv_snapshot *s, *none;
    CHECK_EQ(ntx_kv_snapshot_new(a, 8, &s), -ENODATA);
    CHECK_EQ(ntx_kv_reach(a, 6), 6);
    CHECK_EQ(ntx_kv_snapshot_new(a, 6, &s), 0);
    CHECK_EQ(ntx_kv_snapshot_new(a, 9, &none), -EAGAIN);
    ntx_kv_snapshot_ahead(a, 11);
    CHECK(!ntx_recur_stop_fold(a, 11, 0));
    ntx_kv_snapshot_put(s, b);
    ntx_kv_snapshot_free(s), ntx_kv_snapshot_free(NULL);
    CHECK(ntx_recur_at(b) == 6 && ntx_recur_fold(b, 4)[0] == 14.5f && ntx_recur_tail(b, 1)[5] == 11);
    CHECK_EQ(ntx_recur_begin(b, 6), 0);
    ntx_kv_snapshot_ahead(b, 8); /* a pass that does not come to it leaves nothing, */
    ntx_recur_stop_fold(b, 8, 1)[0] = 77;
    CHECK(!ntx_recur_stop_fold(b, 7, 1) && ntx_kv_reach(b, 8) == 6);
    CHECK_EQ(ntx_kv_snapshot_new(b, 8, &s), -ENODATA);
    ntx_recur_step(b, 1);
    CHECK_EQ(ntx_kv_snapshot_new(b, 8, &s), -ENODATA);
    CHECK_EQ(ntx_recur_begin(b, 7), 0);
    ntx_recur_step(b, 2);
    CHECK_EQ(ntx_kv_snapshot_new(b, 8, &s), 0); /* a pass that comes to it leaves its state */
    CHECK_EQ(buffers_left(b), 0);
    ntx_kv_snapshot_put(s, b);
    CHECK(ntx_recur_at(b) == 8 && ntx_recur_fold(b, 1)[0] == 77);
    ntx_kv_snapshot_free(s);
    ntx_kv_snapshot_ahead(b, 9);
    CHECK(ntx_recur_stop_fold(b, 9, 1));
    ntx_kv_snapshot_passed(b);
    CHECK_EQ(buffers_left(b), 1);
}

/* Kept state of layers without K and V: a session has its own, goes back by one pass, and can be copied. */
static void recurrent_states(void)
{
    struct ntx_hparams hp = {.n_layers = 5, .n_head = 2, .n_head_kv = 2, .head_k = 8, .head_v = 8};
    ntx_set_recurrent(&hp, 4); /* 0 1 2 and 4 */
    hp.delta.taps = 4, hp.delta.head = hp.delta.keys = 48, hp.delta.heads = 4, hp.delta.key_heads = 2;
    const size_t tail = 3 * 48 * 8, fold = 4 * 48 * 48;
    const struct ntx_kv_shape shape = {.blocks = 8, .states = 5};
    struct ntx_kv_pool *p;
    struct ntx_kv_seq *a, *b, *c = NULL;
    CHECK_EQ(ntx_count_recurrent(&hp), 4);
    CHECK_EQ(ntx_recur_panel(&hp), 16);
    CHECK_EQ(ntx_recur_bytes(&hp), 2 * ((4 * (tail + fold) * 4 + 4095) / 4096 * 4096));
    CHECK_EQ(ntx_kv_pool_new(&hp, NTX_KV_F16, &shape, &p, NULL), 0);
    CHECK_EQ(ntx_kv_seq_new(p, 32, &a), 0);
    CHECK(!ntx_recur_at(a) && !ntx_recur_tail(a, 0) && !ntx_recur_fold(a, 4));
    CHECK_EQ(ntx_recur_begin(a, 1), -EINVAL);
    for (uint32_t pass = 0; pass < 3; pass++) { /* of 3 tokens: each writes its number everywhere */
        CHECK_EQ(ntx_recur_begin(a, 3 * pass), 0);
        for (uint32_t l = 0; l < 5; l += 1 + (l == 2)) {
            for (size_t i = 0; i < tail; i++)
                ntx_recur_next_tail(a, l)[i] = (float)(10 * pass + l);
            for (size_t i = 0; i < fold; i++)
                ntx_recur_next_fold(a, l)[i] = (float)(10 * pass + l) + 0.5f;
        }
        ntx_recur_step(a, 3);
    }
    CHECK_EQ(ntx_recur_at(a), 9);
    CHECK_EQ(ntx_kv_seq_fork(a, 5, 0, &b), -ENODATA);
    CHECK_EQ(ntx_kv_seq_fork(a, 6, 0, &b), 0); /* as it was one pass ago */
    CHECK_EQ(ntx_recur_at(b), 6);
    CHECK_EQ(ntx_kv_seq_new(p, 32, &c), -EAGAIN);
    CHECK_EQ(buffers_left(a), 1);
    for (uint32_t l = 0; l < 5; l += 1 + (l == 2)) {
        CHECK(ntx_recur_tail(a, l)[0] == 20 + (float)l && ntx_recur_tail(a, l)[tail - 1] == 20 + (float)l &&
              ntx_recur_fold(a, l)[fold - 1] == 20.5f + (float)l);
        CHECK(ntx_recur_tail(b, l)[tail - 1] == 10 + (float)l && ntx_recur_fold(b, l)[0] == 10.5f + (float)l);
    }
    CHECK_EQ(ntx_recur_begin(b, 6), 0); /* a failed pass changes nothing, */
    ntx_recur_next_fold(b, 0)[0] = 7;
    CHECK(ntx_recur_at(b) == 6 && ntx_recur_fold(b, 0)[0] == 10.5f);
    CHECK_EQ(ntx_recur_begin(b, 6), 0);
    CHECK_EQ(ntx_kv_return(b, 3), 0); /* and the state before it is gone */
    CHECK(!ntx_recur_fold(b, 0));
    snapshots(a, b);
    CHECK_EQ(ntx_kv_return(a, 6), 6);
    CHECK(ntx_recur_fold(a, 1)[0] == 11.5f);
    CHECK_EQ(ntx_kv_return(a, 9), 9);
    CHECK_EQ(ntx_recur_begin(a, 0), 0); /* from the beginning */
    CHECK(!ntx_recur_at(a));
    ntx_kv_seq_free(b), ntx_kv_seq_free(NULL);
    CHECK_EQ(ntx_kv_seq_new(p, 32, &b), 0);
    CHECK(!ntx_recur_at(b));
    ntx_kv_seq_free(a), ntx_kv_seq_free(b);
    ntx_kv_pool_free(p);
}

/* Attention reads everything, at most a window, or a top-k and all index keys. */
static void reads_of_layers(void)
{
    const struct ntx_hparams window = {
        .n_layers = 2, .n_head = 2, .n_head_kv = 2, .head_k = 8, .head_v = 4, .window = 40, .windowed = {2}};
    CHECK_EQ(ntx_kv_layer_reads(&window, NTX_KV_F16, 0, 1000), 2 * (8 + 4) * 2 * 1000);
    CHECK_EQ(ntx_kv_layer_reads(&window, NTX_KV_F16, 1, 1000), 2 * (8 + 4) * 2 * 40);
    CHECK_EQ(ntx_kv_layer_reads(&window, NTX_KV_F16, 1, 30), 2 * (8 + 4) * 2 * 30);
    /* MLA: the second layer uses the first one's top-k, and has no keys */
    const struct ntx_hparams hp = {.n_layers = 2,
                                   .n_head = 2,
                                   .n_head_kv = 1,
                                   .kv_lora = 64,
                                   .rope_dim = 16,
                                   .index = {.heads = 2, .head = 32, .most = 100, .in = {1}}};
    CHECK_EQ(ntx_kv_layer_reads(&hp, NTX_KV_F16, 0, 1000), 2 * (80 * 100 + 32 * 1000));
    CHECK_EQ(ntx_kv_layer_reads(&hp, NTX_KV_F16, 1, 1000), 2 * 80 * 100);
    CHECK_EQ(ntx_kv_layer_reads(&hp, NTX_KV_F16, 0, 50), 2 * (80 + 32) * 50);
}

/* The pool of rows beside it: layers without K and V take none of it, and a session without a state is refused. */
static void rows_beside_states(void)
{
    struct ntx_hparams hp = {.n_layers = 4, .n_head = 2, .n_head_kv = 2, .head_k = 8, .head_v = 8};
    ntx_set_recurrent(&hp, 2);
    hp.delta.taps = 2, hp.delta.head = hp.delta.keys = 16, hp.delta.heads = 1, hp.delta.key_heads = 1;
    struct ntx_kv_shape shape = ntx_kv_shape_for(&hp, 64, 2, 8, false);
    struct ntx_kv_pool *p;
    struct ntx_kv_seq *a, *b, *c = NULL;
    CHECK_EQ(shape.states, 2 * 2 + 2);
    shape.states = 5;
    CHECK_EQ(ntx_kv_block_bytes(&hp, NTX_KV_F16), 2 * 2 * 32 * (8 + 8) * 2);
    CHECK_EQ(ntx_kv_shape_bytes(&hp, NTX_KV_F16, &shape),
             4 * ntx_kv_block_bytes(&hp, NTX_KV_F16) + 5 * (ntx_recur_bytes(&hp) / 2));
    CHECK_EQ(ntx_kv_pool_new(&hp, NTX_KV_F16, &shape, &p, NULL), 0);
    CHECK_EQ(ntx_kv_seq_new(p, 32, &a), 0);
    CHECK_EQ(ntx_kv_seq_new(p, 32, &b), 0);
    CHECK_EQ(ntx_kv_seq_new(p, 32, &c), -EAGAIN); /* there are blocks, but no state */
    CHECK(ntx_recur_buffer(a, false) != ntx_recur_buffer(b, false));
    ntx_kv_seq_free(a);
    CHECK_EQ(ntx_kv_seq_new(p, 32, &a), 0);
    ntx_kv_seq_free(a), ntx_kv_seq_free(b);
    ntx_kv_pool_free(p);
}

static int count_bytes(void *ctx, void *at, size_t bytes)
{
    (void)at;
    *(size_t *)ctx += bytes;
    return 0;
}

/* A model with all kinds: every operation on a sequence applies to each of them, and it goes back only as far as all
 * reach. */
static void all_kinds(void)
{
    struct ntx_hparams hp = {.n_layers = 3,
                             .n_head = 2,
                             .n_head_kv = 2,
                             .head_k = 8,
                             .head_v = 8,
                             .window = 40,
                             .windowed = {2},
                             .recurrent = {4}}; /* all positions, a window, a state */
    hp.delta.taps = 2, hp.delta.head = hp.delta.keys = 16, hp.delta.heads = hp.delta.key_heads = 1;
    const size_t block = 2 * 32 * 16 * 2, tail = 3 * 16, fold = 16 * 16;
    struct ntx_kv_shape shape = {.blocks = 16, .ring = 3, .window_blocks = 9, .states = 5};
    struct ntx_kept_state kept[NTX_STATES_MOST];
    struct ntx_kv_pool *p;
    struct ntx_kv_seq *a, *b;
    struct ntx_kv_snapshot *m;
    size_t bytes = 0;
    CHECK(ntx_states_of(&hp, 0, kept) == 1 && kept[0].keep == NTX_KEEP_ROWS && !kept[0].windowed &&
          kept[0].heads == 2 && kept[0].k == 8 && kept[0].every == 1);
    CHECK(ntx_states_of(&hp, 1, kept) == 1 && kept[0].keep == NTX_KEEP_ROWS && kept[0].windowed);
    CHECK(ntx_states_of(&hp, 2, kept) == 2 && kept[0].keep == NTX_KEEP_TAIL && kept[0].floats == tail &&
          kept[1].keep == NTX_KEEP_FOLD && kept[1].floats == fold);
    CHECK(!ntx_keeps_rows_only(&hp));
    CHECK_EQ(ntx_recur_layer(&hp, 2, NTX_KEEP_FOLD), tail * 4);
    CHECK_EQ(ntx_kv_shape_bytes(&hp, NTX_KV_F16, &shape), 16 * block + 9 * block + 5 * 4096);
    CHECK_EQ(ntx_kv_pool_new(&hp, NTX_KV_F16, &shape, &p, NULL), 0);
    CHECK(ntx_kv_pool_snapshots(p));
    CHECK_EQ(ntx_kv_seq_new(p, 256, &a), 0);
    for (uint32_t at = 0; at < 100; at += 50) { /* two passes of 50 */
        CHECK_EQ(ntx_recur_begin(a, at), 0);
        for (uint32_t pos = at; pos < at + 50; pos++) {
            ntx_kv_written(a, pos);
            *(uint16_t *)ntx_kv_k(a, 1, 0, pos) = (uint16_t)(pos / 32 + 1);
        }
        ntx_recur_next_fold(a, 2)[0] = (float)(at + 50);
        ntx_recur_step(a, 50);
    }
    CHECK_EQ(ntx_kv_each_part(a, 100, false, count_bytes, &bytes), 0);
    CHECK_EQ(ntx_kv_parts_bytes(a, 100), bytes);
    CHECK_EQ(bytes, 4 * block + 3 * block + 4096); /* positions 60 .. 99 of the window */
    CHECK_EQ(ntx_kv_reach(a, 100), 100);
    CHECK_EQ(ntx_kv_reach(a, 99),
             50); /* the state is there, and positions 10 .. 49 are in the ring, which begins at 4 */
    CHECK_EQ(ntx_kv_snapshot_new(a, 99, &m), -ENODATA);
    CHECK_EQ(ntx_kv_snapshot_new(a, 100, &m), 0);
    CHECK_EQ(ntx_kv_seq_promise(p, 256, NULL, 0, &b), 0);
    ntx_kv_snapshot_put(m, b);
    CHECK(ntx_recur_at(b) == 100 && ntx_recur_fold(b, 2)[0] == 100 && *(uint16_t *)ntx_kv_k(b, 1, 0, 70) == 3 &&
          ntx_kv_k(b, 1, 0, 70) != ntx_kv_k(a, 1, 0, 70));
    ntx_kv_snapshot_free(m), ntx_kv_seq_free(b);
    ntx_kv_written(a, 120);           /* 0 .. 24 are overwritten */
    CHECK_EQ(ntx_kv_reach(a, 99), 0); /* 50 tokens would need the window from 10 on */
    CHECK_EQ(ntx_kv_return(a, 99), 0);
    CHECK(ntx_recur_at(a) == 0 && ntx_kv_reach(a, 1) == 0);
    ntx_kv_seq_free(a);
    ntx_kv_pool_free(p);
}

int main(void)
{
    recurrent_states();
    all_kinds();
    reads_of_layers();
    rows_beside_states();
    struct ntx_pool *p = NULL;
    kv_blocks();
    kv_windows();
    kv_holes();
    angles();
    exact_ramp();
    threads(1, 100);
    threads(2, 5000);
    threads(5, 500);
    all_come();
    waiting_is_cheap();
    CHECK_EQ(ntx_pool_new(0, &p, NULL), -EINVAL);
    CHECK(!p);
    return 0;
}
