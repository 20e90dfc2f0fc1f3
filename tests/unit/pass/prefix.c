/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix store: which text finds what, what is evicted for what, and that each sequence sees the values of its own
 * text, whatever others do. A value here is a hash of the text before it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/state/prefix.h"
#include "tests/lib/check.h"

enum { BLOCKS = 24, B = NTX_KV_BLOCK, MOST = BLOCKS * B };

enum { WINDOW = 50, ROWS = 2 * B };

static const struct ntx_hparams hp = {.n_layers = 2, .n_head_kv = 1, .head_k = 4, .head_v = 4};
static const struct ntx_hparams windowed = {
    .n_layers = 2, .n_head_kv = 1, .head_k = 4, .head_v = 4, .window = WINDOW, .windowed = {2}}; /* the second layer */

struct world {
    struct ntx_kv_pool *pool;
    struct ntx_prefix *prefix;
};

static const struct ntx_hparams *recurrent(void)
{
    static struct ntx_hparams x;
    x = hp;
    x.recurrent[0] = 2;
    x.delta.taps = 2, x.delta.head = x.delta.keys = 16, x.delta.heads = x.delta.key_heads = 1;
    return &x;
}

static bool folds; /* the second layer has a recurrent state */

/* rings: windows of so many sequences, or, if negative, so many state buffers in the second layer; 0: all layers keep
 * all positions. */
static void open_world(struct world *w, uint32_t blocks, int rings)
{
    struct ntx_prefix_config c = {.block_cost = 1, .token_cost = 0.001};
    struct ntx_kv_shape shape = {.blocks = blocks,
                                 .ring = rings > 0 ? (WINDOW + ROWS + B - 1) / B : 0,
                                 .states = rings < 0 ? (uint32_t)-rings : 0};
    shape.window_blocks = rings > 0 ? (uint32_t)rings * shape.ring : 0;
    folds = rings < 0;
    const struct ntx_hparams *of = rings < 0 ? recurrent() : &hp;
    CHECK_EQ(ntx_kv_pool_new(rings > 0 ? &windowed : of, NTX_KV_F16, &shape, &c.pool, NULL), 0);
    CHECK_EQ(ntx_prefix_new(&c, &w->prefix), 0);
    w->pool = c.pool;
}

static void close_world(struct world *w)
{
    CHECK_EQ(ntx_kv_pool_used(w->pool), 0);
    ntx_prefix_free(w->prefix);
    CHECK_EQ(ntx_kv_pool_used(w->pool), 0);
    struct ntx_kv_seq *all;
    CHECK_EQ(ntx_kv_seq_new(w->pool, ntx_kv_pool_blocks(w->pool) * B, &all), 0); /* nothing was lost */
    ntx_kv_seq_free(all);
    ntx_kv_pool_free(w->pool);
}

static uint64_t hash(uint64_t h, int32_t id) { return (h ^ (uint64_t)(uint32_t)id) * 0x9e3779b97f4a7c15u ^ h >> 29; }

static uint64_t hash_of(const int32_t *ids, uint32_t n)
{
    uint64_t h = 17;
    for (uint32_t i = 0; i < n; i++)
        h = hash(h, ids[i]);
    return h;
}

static uint64_t *value(const struct ntx_kv_seq *kv, uint32_t layer, uint32_t pos)
{
    return (uint64_t *)ntx_kv_k(kv, layer, 0, pos) + pos % B;
}

static void put_hash(float *at, uint64_t h)
{
    if (at)
        memcpy(at, &h, sizeof h);
}

/* The second layer's state of ids[0 .. n) is their hash. */
static void fold(struct ntx_kv_seq *kv, const int32_t *ids, uint32_t from, uint32_t to)
{
    uint64_t h = hash_of(ids, from);
    if (!folds || from == to)
        return;
    CHECK_EQ(ntx_recur_begin(kv, from), 0);
    for (uint32_t pos = from; pos < to; pos++) {
        h = hash(h, ids[pos]);
        put_hash(ntx_recur_stop_fold(kv, pos + 1, 1), h);
    }
    put_hash(ntx_recur_next_fold(kv, 1), h);
    ntx_recur_step(kv, to - from);
}

/* Like a pass. */
static void compute(struct ntx_kv_seq *kv, const int32_t *ids, uint32_t from, uint32_t to)
{
    uint64_t h = hash_of(ids, from);
    fold(kv, ids, from, to);
    for (uint32_t pos = from; pos < to; pos++) {
        h = hash(h, ids[pos]);
        ntx_kv_seq_reach(kv, pos);
        CHECK(!ntx_kv_shared(kv, pos));
        ntx_kv_written(kv, pos);
        *value(kv, 0, pos) = h;
        if (!folds)
            *value(kv, 1, pos) = ~h;
    }
}

static uint32_t window; /* layer 1 keeps so many; 0: all */

static void check_values(const struct ntx_kv_seq *kv, const int32_t *ids, uint32_t n)
{
    uint64_t h = 17;
    if (folds && n) {
        CHECK_EQ(ntx_recur_at(kv), n);
        CHECK_MSG(!memcmp(ntx_recur_fold(kv, 1), &(uint64_t){hash_of(ids, n)}, sizeof h),
                  "the state at %u is another text's", n);
    }
    for (uint32_t pos = 0; pos < n; pos++) {
        h = hash(h, ids[pos]);
        bool gone = folds || (window && pos + window < n);
        CHECK_MSG(*value(kv, 0, pos) == h && (gone || *value(kv, 1, pos) == ~h),
                  "position %u has another text's values", pos);
    }
}

static void count_up(int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)i;
}

static struct ntx_kv_seq *begin(struct world *w, uint64_t scope, const int32_t *ids, uint32_t n, uint32_t room,
                                uint32_t found)
{
    struct ntx_kv_seq *kv;
    uint32_t n_past;
    CHECK_EQ(ntx_prefix_begin(w->prefix, scope, ids, n, room, &kv, &n_past), 0);
    CHECK_EQ(n_past, found);
    check_values(kv, ids, n_past);
    return kv;
}

/* A text that finds so many of its tokens, computes the others, and ends. */
static void leave(struct world *w, uint64_t scope, const int32_t *ids, uint32_t n, uint32_t found)
{
    struct ntx_kv_seq *kv = begin(w, scope, ids, n, n, found);
    compute(kv, ids, found, n);
    ntx_prefix_keep(w->prefix, scope, kv, ids, n, NTX_PREFIX_LAST);
    ntx_kv_seq_free(kv);
}

/* Whole blocks are shared, the rest is copied, the last token is never found; other scopes find nothing. */
static void found(void)
{
    struct world w;
    int32_t ids[200], other[200];
    count_up(ids, 200);
    open_world(&w, 20, 0);
    struct ntx_kv_seq *a = begin(&w, 1, ids, 100, 110, 0);
    compute(a, ids, 0, 100);
    ntx_prefix_keep(w.prefix, 1, a, ids, 100, NTX_PREFIX_ON);
    CHECK_EQ(ntx_prefix_blocks(w.prefix), 3);
    struct ntx_kv_seq *b = begin(&w, 1, ids, 100, 110, 96), *c = begin(&w, 1, ids, 96, 100, 95),
                      *d = begin(&w, 2, ids, 100, 100, 0);
    CHECK_EQ(ntx_kv_pool_used(w.pool), 4 + 1 + 2 + 4); /* c has the third block as a copy */
    CHECK(ntx_kv_shared(a, 95) && ntx_kv_shared(b, 0) && !ntx_kv_shared(c, 95) && ntx_kv_shared(c, 63));
    memcpy(other, ids, sizeof ids);
    other[95] = 7;
    compute(c, other, 95, 100);
    check_values(a, ids, 100);
    compute(b, ids, 96, 100);
    ntx_prefix_keep(w.prefix, 1, a, ids, 100, NTX_PREFIX_LAST);
    ntx_kv_seq_free(a);
    ntx_prefix_keep(w.prefix, 1, b, ids, 100, NTX_PREFIX_LAST); /* the same again */
    CHECK_EQ(ntx_prefix_blocks(w.prefix), 4);
    ntx_prefix_keep(w.prefix, 1, c, other, 100, NTX_PREFIX_ON);
    CHECK_EQ(ntx_prefix_blocks(w.prefix), 5);
    ntx_kv_seq_free(b), ntx_kv_seq_free(c), ntx_kv_seq_free(d);
    CHECK_EQ(ntx_kv_pool_used(w.pool), 0);
    ntx_kv_seq_free(begin(&w, 1, ids, 200, 200, 100));
    ntx_kv_seq_free(begin(&w, 1, other, 200, 200, 96));
    ids[98] = -1;
    ntx_kv_seq_free(begin(&w, 1, ids, 200, 200, 98));
    close_world(&w);
}

/* Two sequences that compute the same at the same time end with one copy of it; one that is behind takes over what the
 * other has, and replaces its own half block. */
static void followed(void)
{
    struct world w;
    int32_t ids[200];
    count_up(ids, 200);
    open_world(&w, 20, 0);
    struct ntx_kv_seq *a = begin(&w, 1, ids, 150, 200, 0), *b = begin(&w, 1, ids, 130, 200, 0);
    compute(a, ids, 0, 70);
    compute(b, ids, 0, 40);
    CHECK_EQ(ntx_kv_pool_used(w.pool), 2 * 7);
    ntx_prefix_keep(w.prefix, 1, a, ids, 70, NTX_PREFIX_ON);
    ntx_prefix_keep(w.prefix, 1, b, ids, 40, NTX_PREFIX_ON);
    CHECK_EQ(ntx_kv_pool_used(w.pool), 2 * 7 - 1); /* b released its first block for a's */
    CHECK_EQ(ntx_prefix_follow(w.prefix, 1, b, ids, 130, 40), 64);
    CHECK_EQ(ntx_kv_pool_used(w.pool), 2 * 7 - 2);
    compute(a, ids, 70, 150);
    ntx_prefix_keep(w.prefix, 1, a, ids, 150, NTX_PREFIX_ON);
    CHECK_EQ(ntx_prefix_follow(w.prefix, 2, b, ids, 130, 64), 64);
    CHECK_EQ(ntx_prefix_follow(w.prefix, 1, b, ids, 130, 64), 128);
    check_values(b, ids, 128);
    compute(b, ids, 128, 130);
    ntx_kv_seq_free(a), ntx_kv_seq_free(b);
    close_world(&w);
}

/* Kept blocks are free for any sequence; those used last, and with the highest cost, stay longest; blocks in use
 * stay. */
static void given_up(void)
{
    struct world w;
    int32_t a[200], b[200];
    struct ntx_kv_seq *kv, *big, *none = NULL;
    count_up(a, 200);
    count_up(b, 200);
    b[0] = 99;
    open_world(&w, 10, 0);
    leave(&w, 1, a, 128, 0);
    kv = begin(&w, 1, b, 128, 128, 0);
    compute(kv, b, 0, 128);
    ntx_prefix_keep(w.prefix, 1, kv, b, 128, NTX_PREFIX_LAST);
    CHECK_EQ(ntx_prefix_begin(w.prefix, 2, a, 10, 7 * B, &none, &(uint32_t){0}), -EAGAIN); /* b's four are in use */
    CHECK_EQ(ntx_prefix_begin(w.prefix, 2, a, 10, 11 * B, &none, &(uint32_t){0}), -ENOSPC);
    CHECK(!none);
    ntx_kv_seq_free(kv);
    ntx_kv_seq_free(begin(&w, 1, a, 129, 129, 128)); /* used again */
    CHECK_EQ(ntx_kv_seq_promise(w.pool, 10 * B, NULL, 0, &big), 0);
    CHECK_EQ(ntx_prefix_blocks(w.prefix), 8); /* a promise takes nothing yet */
    ntx_kv_seq_reach(big, 5 * B - 1);
    CHECK_EQ(ntx_prefix_blocks(w.prefix), 5);
    ntx_kv_seq_free(big);
    ntx_kv_seq_free(begin(&w, 1, b, 200, 200, 32));
    ntx_kv_seq_free(begin(&w, 1, a, 200, 200, 128));
    CHECK_EQ(ntx_kv_seq_new(w.pool, 10 * B, &big), 0);
    CHECK_EQ(ntx_prefix_blocks(w.prefix), 0);
    ntx_kv_seq_free(big);
    close_world(&w);
}

/* Texts for all are found by all, and pinned ones are evicted last. */
static void for_all(void)
{
    struct world w;
    int32_t ids[200], other[200];
    struct ntx_kv_seq *big;
    count_up(ids, 200);
    count_up(other, 200);
    other[0] = 99;
    open_world(&w, 10, 0);
    leave(&w, NTX_PREFIX_ALL, ids, 70, 0);
    ntx_prefix_pin(w.prefix, NTX_PREFIX_ALL, ids, 70);
    leave(&w, 1, ids, 110, 70);
    ntx_kv_seq_free(begin(&w, 2, ids, 200, 200, 70));
    ntx_kv_seq_free(begin(&w, 1, ids, 200, 200, 110));
    leave(&w, 2, other, 100, 0);
    CHECK_EQ(ntx_kv_seq_new(w.pool, 8 * B, &big), 0);
    ntx_kv_seq_free(big);
    ntx_kv_seq_free(begin(&w, 2, other, 101, 101, 0));
    ntx_kv_seq_free(begin(&w, 3, ids, 200, 200, 64));
    CHECK_EQ(ntx_kv_seq_new(w.pool, 10 * B, &big), 0); /* but they are evicted */
    CHECK_EQ(ntx_prefix_blocks(w.prefix), 0);
    ntx_kv_seq_free(big);
    close_world(&w);
}

/* A scope's pins are evicted last only up to a quarter of the pool. */
static void bounded_pins(void)
{
    struct world w;
    int32_t ids[200], other[200];
    struct ntx_kv_seq *big;
    count_up(ids, 200);
    count_up(other, 200);
    other[0] = 99;
    open_world(&w, 8, 0);
    leave(&w, 1, ids, 4 * B, 0);
    ntx_prefix_pin(w.prefix, 1, ids, 4 * B);
    leave(&w, 2, other, 3 * B, 0);
    CHECK_EQ(ntx_kv_seq_new(w.pool, 6 * B, &big), 0);
    ntx_kv_seq_free(big);
    ntx_kv_seq_free(begin(&w, 1, ids, 200, 200, 2 * B));
    close_world(&w);
}

/* Going on from within a shared block: the others keep it. */
static void cut_back(void)
{
    struct world w;
    int32_t ids[200], other[200];
    count_up(ids, 200);
    count_up(other, 200);
    open_world(&w, 8, 0);
    struct ntx_kv_seq *a = begin(&w, 1, ids, 100, 8 * B, 0), *b;
    compute(a, ids, 0, 100);
    ntx_prefix_keep(w.prefix, 1, a, ids, 100, NTX_PREFIX_ON);
    CHECK_EQ(ntx_kv_own(a, 40), -EAGAIN); /* all is promised: there is no room for a copy */
    CHECK_EQ(ntx_kv_own(a, 32), 0);
    check_values(a, ids, 32);
    other[40] = -1;
    compute(a, other, 32, 100);
    ntx_kv_seq_free(a);
    a = begin(&w, 1, ids, 100, 4 * B, 96);
    compute(a, ids, 96, 100);
    b = begin(&w, 1, ids, 97, 4 * B, 96);
    CHECK_EQ(ntx_kv_own(a, 40), 0);
    compute(a, other, 40, 100);
    check_values(a, other, 100);
    check_values(b, ids, 96);
    ntx_kv_seq_free(a), ntx_kv_seq_free(b);
    close_world(&w);
}

/* With a window, a text goes on from where one ended, from behind the last whole block of a prompt's passes, and from
 * where two were seen to diverge. */
static void marked(void)
{
    struct world w;
    int32_t ids[400], other[400], third[400];
    count_up(ids, 400);
    memcpy(other, ids, sizeof ids);
    memcpy(third, ids, sizeof ids);
    other[140] = third[141] = -1;
    open_world(&w, 60, 4);
    window = WINDOW;
    struct ntx_kv_seq *a = begin(&w, 1, ids, 250, 300, 0);
    compute(a, ids, 0, 60);
    ntx_prefix_keep(w.prefix, 1, a, ids, 60, NTX_PREFIX_PROMPT);
    ntx_kv_seq_free(begin(&w, 1, ids, 250, 300, 32));
    for (uint32_t at = 60; at < 240; at += 60) {
        compute(a, ids, at, at + 60);
        ntx_prefix_keep(w.prefix, 1, a, ids, at + 60, NTX_PREFIX_PROMPT);
    }
    ntx_kv_seq_free(begin(&w, 1, ids, 200, 300, 160)); /* earlier passes left theirs */
    ntx_kv_seq_free(begin(&w, 1, ids, 250, 300, 224));
    compute(a, ids, 240, 250);
    ntx_prefix_keep(w.prefix, 1, a, ids, 250, NTX_PREFIX_LAST);
    ntx_kv_seq_free(a);
    ntx_kv_seq_free(begin(&w, 2, ids, 251, 300, 0));
    ntx_kv_seq_free(begin(&w, 1, ids, 251, 300, 250));
    ntx_kv_seq_free(begin(&w, 1, ids, 250, 300, 224)); /* its last token must be computed */
    a = begin(&w, 1, other, 200, 300, 96);             /* they diverge at 128, where there is no snapshot yet */
    compute(a, other, 96, 150);
    ntx_prefix_keep(w.prefix, 1, a, other, 150, NTX_PREFIX_PROMPT);
    struct ntx_kv_seq *b = begin(&w, 1, third, 200, 300, 128);
    compute(b, third, 128, 200);
    check_values(b, third, 200);
    ntx_kv_seq_free(a), ntx_kv_seq_free(b);
    struct ntx_kv_seq *all[4];
    for (int i = 0; i < 4; i++) /* every ring is free for new texts */
        CHECK_EQ(ntx_kv_seq_promise(w.pool, 15 * B, NULL, 0, &all[i]), 0);
    for (int i = 0; i < 4; i++)
        ntx_kv_seq_free(all[i]);
    ntx_kv_seq_free(begin(&w, 1, ids, 250, 300, 0));
    close_world(&w);
    window = 0;
}

/* With a recurrent state: the same, and a prompt's snapshot is the state that the pass was told to leave. */
static void snapped(void)
{
    struct world w;
    int32_t ids[400], other[400];
    count_up(ids, 400);
    memcpy(other, ids, sizeof ids);
    other[140] = -1;
    open_world(&w, 60, -8);
    struct ntx_kv_seq *a = begin(&w, 1, ids, 250, 300, 0), *b;
    for (uint32_t at = 0; at < 250; at += 125) {
        ntx_prefix_prepare(w.prefix, 1, a, ids, at, at + 125);
        compute(a, ids, at, at + 125);
        ntx_prefix_keep(w.prefix, 1, a, ids, at + 125, NTX_PREFIX_PROMPT);
        ntx_kv_snapshot_passed(a);
    }
    ntx_kv_seq_free(begin(&w, 1, ids, 250, 300, 224));
    compute(a, ids, 250, 260);
    ntx_prefix_keep(w.prefix, 1, a, ids, 260, NTX_PREFIX_LAST);
    ntx_kv_seq_free(a);
    ntx_kv_seq_free(begin(&w, 2, ids, 300, 300, 0));
    ntx_kv_seq_free(begin(&w, 1, ids, 261, 300, 260));
    /* the second text that diverges at 128 leaves a snapshot there */
    for (uint32_t found = 96; found <= 128; found += 32) {
        b = begin(&w, 1, other, 200, 300, found);
        ntx_prefix_prepare(w.prefix, 1, b, other, found, 200);
        compute(b, other, found, 200);
        check_values(b, other, 200);
        ntx_prefix_keep(w.prefix, 1, b, other, 200, NTX_PREFIX_PROMPT);
        ntx_kv_seq_free(b);
        other[141]--;
    }
    struct ntx_kv_seq *all[4];
    for (int i = 0; i < 4; i++) /* every buffer is free for new texts */
        CHECK_EQ(ntx_kv_seq_promise(w.pool, 15 * B, NULL, 0, &all[i]), 0);
    for (int i = 0; i < 4; i++)
        ntx_kv_seq_free(all[i]);
    ntx_kv_seq_free(begin(&w, 1, ids, 250, 300, 0));
    close_world(&w);
}

/* The snapshot that is cheapest to compute again is evicted: those of a long prompt stay apart from each other, and
 * where it ends. */
static void thinned(void)
{
    struct world w;
    static int32_t ids[40 * B];
    count_up(ids, 40 * B);
    open_world(&w, 60, -7); /* two buffers for a reader, and five */
    struct ntx_kv_seq *a = begin(&w, 1, ids, 32 * B, 32 * B, 0);
    for (uint32_t at = 0; at < 32 * B; at += B) {
        compute(a, ids, at, at + B);
        ntx_prefix_keep(w.prefix, 1, a, ids, at + B, NTX_PREFIX_PROMPT);
    }
    ntx_kv_seq_free(a);
    ntx_kv_seq_free(begin(&w, 1, ids, 33 * B, 33 * B, 32 * B));
    uint32_t last = 0, gap = 0;
    for (uint32_t k = 1; k < 32; k++) { /* what a text that diverges there finds */
        struct ntx_kv_seq *kv;
        uint32_t n_past;
        int32_t kept = ids[k * B];
        ids[k * B] = -1;
        CHECK_EQ(ntx_prefix_begin(w.prefix, 1, ids, 33 * B, 33 * B, &kv, &n_past), 0);
        ntx_kv_seq_free(kv);
        ids[k * B] = kept;
        gap = k * B - n_past > gap ? k * B - n_past : gap;
        last = n_past;
    }
    CHECK_MSG(last >= 16 * B && gap <= 16 * B, "last %u, gap %u", last, gap);
    close_world(&w);
}

/* ---- at random */

struct text {
    struct ntx_kv_seq *kv;
    int32_t ids[MOST];
    uint32_t n, n_past, room;
    uint64_t scope;
};

static uint32_t seed = 1;
static uint32_t draw(uint32_t n) { return (seed = seed * 1664525u + 1013904223u) / 256 % n; }

/* Texts diverge rarely, and anywhere. */
static void write_text(struct text *t)
{
    t->scope = draw(3); /* NTX_PREFIX_ALL is one */
    t->n = 1 + draw(draw(4) ? 6 * B : MOST / 2);
    uint32_t at = draw(t->n), to = draw(3);
    for (uint32_t i = 0; i < t->n; i++)
        t->ids[i] = (int32_t)(i / 40 + (draw(2) && i == at ? to : 0));
}

static void go(struct world *w, struct text *t)
{
    uint32_t to = t->n_past + draw(2 * B);
    t->n_past = ntx_prefix_follow(w->prefix, t->scope, t->kv, t->ids, t->n, t->n_past);
    to = to < t->n_past ? t->n_past : to;
    to = to > t->n ? t->n : to;
    if (draw(4))
        ntx_prefix_prepare(w->prefix, t->scope, t->kv, t->ids, t->n_past, to);
    compute(t->kv, t->ids, t->n_past, to);
    t->n_past = to;
    check_values(t->kv, t->ids, to);
    ntx_prefix_keep(w->prefix, t->scope, t->kv, t->ids, to, draw(2) ? NTX_PREFIX_PROMPT : NTX_PREFIX_ON);
    ntx_kv_snapshot_passed(t->kv);
}

static void end(struct world *w, struct text *t)
{
    if (draw(2))
        ntx_prefix_keep(w->prefix, t->scope, t->kv, t->ids, t->n_past, NTX_PREFIX_LAST);
    ntx_kv_seq_free(t->kv);
    t->kv = NULL;
}

static void back(struct text *t)
{
    uint32_t at = ntx_kv_return(t->kv, draw(t->n_past + 1)), own = at;
    if (ntx_kv_own(t->kv, at) && ntx_kv_own(t->kv, own = ntx_kv_return(t->kv, at / B * B))) {
        ntx_kv_seq_free(t->kv);
        t->kv = NULL;
        return;
    }
    t->n_past = own;
    for (uint32_t i = own; i < t->n; i++)
        t->ids[i] = (int32_t)(1000 + draw(3));
}

static void at_random(int rings)
{
    static struct text texts[6];
    struct world w;
    uint32_t refused = 0, shared = 0;
    open_world(&w, BLOCKS, rings);
    window = rings > 0 ? WINDOW : 0;
    for (int i = 0; i < 60000; i++) {
        struct text *t = &texts[draw(6)];
        if (!t->kv) {
            write_text(t);
            t->room = t->n + draw(3 * B);
            int rc = t->room > MOST ? -ENOSPC
                                    : ntx_prefix_begin(w.prefix, t->scope, t->ids, t->n, t->room, &t->kv, &t->n_past);
            refused += rc != 0;
            if (!rc)
                check_values(t->kv, t->ids, t->n_past);
            shared += rc ? 0 : t->n_past;
        } else if (draw(20) == 0 && t->n_past) {
            back(t);
        } else if (t->n_past == t->n || draw(15) == 0) {
            end(&w, t);
        } else {
            go(&w, t);
        }
        CHECK(ntx_kv_pool_used(w.pool) <= BLOCKS && ntx_prefix_blocks(w.prefix) <= BLOCKS);
    }
    CHECK(refused > 100 && shared > 10000);
    for (int i = 0; i < 6; i++) {
        ntx_kv_seq_free(texts[i].kv);
        texts[i].kv = NULL;
    }
    close_world(&w);
    window = 0;
}

int main(void)
{
    found();
    followed();
    given_up();
    for_all();
    bounded_pins();
    cut_back();
    marked();
    snapped();
    thinned();
    at_random(0);
    at_random(4);
    at_random(9);
    at_random(-12);
    at_random(-20);
    return 0;
}
