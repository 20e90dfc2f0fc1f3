/* SPDX-License-Identifier: Apache-2.0 */
/* Experts on demand and on predictions, against an iod that the test acts out step by step, in one thread. Whatever is
 * predicted, fails, dies or lands late, wanted experts have their own bytes; and predictions are counted, cancelled and
 * never in the way. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/weights/stream.h"
#include "shm/region.h"
#include "tests/lib/check.h"
#include "tests/lib/temporary.h"
#include "tests/unit/weights/list_experts.h"

enum {
    LAYERS = 4,
    EXPERTS = 8,
    PARTS = NTX_EXPERT_PARTS,
    CHUNKS = LAYERS * EXPERTS * PARTS,
    DEMANDS = 24,
    ROWS = 2,
    USED = 2,
    BLOCK = 4096
};

struct late { /* a read of a dead iod */
    uint64_t offset, to, bytes;
};

struct rig {
    struct ntx_region r;
    struct ntx_counters *counters;
    struct ntx_stream *s;
    struct ntx_weights *w;
    struct ntx_chunk list[CHUNKS];
    struct ntx_layer_weights layers[LAYERS];
    struct ntx_chunks chunks;
    struct ntx_frames frames;
    int wake_fd;
    uint64_t pass, seed;
    uint32_t fail; /* one of so many prefetch reads fails; 0: none */
    struct late late[DEMANDS];
    uint32_t n_late;
};

static uint8_t pattern(uint64_t offset) { return (uint8_t)((offset + 1) * 0x9e3779b97f4a7c15u >> 53); }

static uint32_t rnd(struct rig *t, uint32_t n)
{
    t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->seed >> 33) % n;
}

static uint64_t counter(const struct rig *t, enum ntx_counter c) { return ntx_counter_get(t->counters, c); }

/* ---- set-up */

static void open_rig(struct rig *t, uint32_t n_frames, uint32_t spare)
{
    char dir[256], path[300], note[512];
    struct ntx_err err = {0};
    int fd;
    *t = (struct rig){.seed = 5};
    t->chunks = (struct ntx_chunks){
        .list = t->list, .n = CHUNKS, .layers = t->layers, .n_layers = LAYERS, .n_expert = EXPERTS};
    uint64_t file = list_experts(&t->chunks, t->list, t->layers, BLOCK, &t->frames);
    CHECK_EQ(t->frames.n_classes, 2);
    ntx_frames_share(&t->frames, n_frames, USED, spare);
    struct ntx_region_geometry g = {.block = BLOCK,
                                    .n_files = 1,
                                    .n_chunks = CHUNKS,
                                    .n_demands = ROWS,
                                    .n_bundle_demands = DEMANDS,
                                    .n_probes = 1,
                                    .n_layers = LAYERS,
                                    .n_embd = 1,
                                    .frame_bytes = BLOCK,
                                    .arena_bytes = ntx_frames_bytes(&t->frames),
                                    .epoch = 1};
    CHECK_MSG(!ntx_region_create(&g, &t->r, note, sizeof note, &err), "%s", err.text);
    t->r.hdr->file_bytes[0] = file;
    for (uint32_t i = 0; i < CHUNKS; i++)
        t->r.chunks[i] = (struct ntx_plan_chunk){.offset = t->list[i].offset,
                                                 .bytes = t->list[i].bytes,
                                                 .layer = t->list[i].layer,
                                                 .placement = NTX_PLACE_FRAME};
    temporary_dir(dir, sizeof dir, "prefetch");
    CHECK_EQ(ntx_counters_create(dir, &t->counters, &fd, NULL), 0);
    close(fd);
    snprintf(path, sizeof path, "%s/counters", dir);
    CHECK(!unlink(path) && !rmdir(dir));
    t->wake_fd = eventfd(0, EFD_CLOEXEC);
    struct ntx_stream_config c = {.region = &t->r,
                                  .counters = t->counters,
                                  .wake_fd = t->wake_fd,
                                  .wait_limit_s = 1,
                                  .chunks = &t->chunks,
                                  .frames = &t->frames,
                                  .frames_at = t->r.hdr->off_arena,
                                  .prefetch = true};
    CHECK_EQ(ntx_stream_new(&c, &t->s), 0);
    t->w = ntx_stream_weights(t->s);
    CHECK(t->w->ops->prefetch_experts && t->w->ops->there);
}

static void close_rig(struct rig *t)
{
    ntx_stream_free(t->s);
    ntx_counters_close(t->counters);
    ntx_region_close(&t->r);
    close(t->wake_fd);
}

/* ---- iod */

static struct ntx_demand *demand(struct rig *t, uint32_t i) { return &t->r.demand[ROWS + i]; }
static struct ntx_read_request *request_of(struct rig *t, uint32_t i) { return &t->r.request[ROWS + i]; }
static enum ntx_state state(struct rig *t, uint32_t i) { return ntx_word_state(demand(t, i)->word); }
static void set(struct ntx_demand *d, enum ntx_state st) { d->word = ntx_word(ntx_word_gen(d->word), st); }

static void land(struct rig *t, uint64_t offset, uint64_t to, uint64_t bytes)
{
    CHECK(to >= t->r.hdr->off_arena && to + bytes <= t->r.hdr->off_arena + t->r.hdr->arena_bytes);
    for (uint64_t i = 0; i < bytes; i++)
        t->r.base[to + i] = pattern(offset + i);
}

static void begin(struct rig *t, uint32_t i)
{
    CHECK_EQ(state(t, i), NTX_POSTED);
    demand(t, i)->shift = (uint32_t)(request_of(t, i)->offset % BLOCK);
    set(demand(t, i), NTX_FILLING);
}

static void finish(struct rig *t, uint32_t i)
{
    struct ntx_demand *d = demand(t, i);
    const struct ntx_read_request *a = request_of(t, i);
    if (t->fail && a->early && !rnd(t, t->fail)) {
        d->err = -EIO;
        set(d, NTX_FAILED);
        return;
    }
    uint64_t start = NTX_ROUND_DOWN(a->offset, (uint64_t)BLOCK);
    land(t, start, a->dest, NTX_ROUND_UP(a->offset + a->bytes, (uint64_t)BLOCK) - start);
    set(d, NTX_READY);
}

static void step(struct rig *t)
{
    uint32_t i = rnd(t, DEMANDS);
    if (state(t, i) == NTX_POSTED)
        begin(t, i);
    else if (state(t, i) == NTX_FILLING)
        finish(t, i);
}

/* Serves all demand reads. */
static void serve(struct rig *t)
{
    for (uint32_t i = 0; i < DEMANDS; i++) {
        if (state(t, i) == NTX_POSTED && !request_of(t, i)->early)
            begin(t, i);
        if (state(t, i) == NTX_FILLING && !request_of(t, i)->early)
            finish(t, i);
    }
}

static void die(struct rig *t)
{
    for (uint32_t i = 0; i < DEMANDS; i++)
        if (state(t, i) == NTX_FILLING && t->n_late < DEMANDS) {
            uint64_t start = NTX_ROUND_DOWN(request_of(t, i)->offset, (uint64_t)BLOCK);
            t->late[t->n_late++] = (struct late){
                start, request_of(t, i)->dest,
                NTX_ROUND_UP(request_of(t, i)->offset + request_of(t, i)->bytes, (uint64_t)BLOCK) - start};
        }
    ntx_stream_iod_died(t->s);
}

static void land_late(struct rig *t)
{
    for (uint32_t i = 0; i < t->n_late; i++)
        land(t, t->late[i].offset, t->late[i].to, t->late[i].bytes);
    t->n_late = 0;
    ntx_stream_end_quarantine(t->s);
}

static uint32_t count(struct rig *t, enum ntx_state st, bool early)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < DEMANDS; i++)
        n += state(t, i) == st && (st == NTX_FREE || request_of(t, i)->early == early);
    return n;
}

/* ---- a layer */

static void check_expert(struct rig *t, uint32_t layer, uint32_t e)
{
    for (int p = 0; p < PARTS; p++) {
        uint32_t chunk = ntx_expert_chunk(&t->layers[layer], e, (enum ntx_expert_part)p);
        const void *bytes;
        CHECK_MSG(!t->w->ops->acquire(t->w, chunk, &bytes), "%s", t->w->error.text);
        for (uint64_t i = 0; i < t->list[chunk].bytes; i++)
            CHECK_MSG(((const uint8_t *)bytes)[i] == pattern(t->list[chunk].offset + i),
                      "pass %llu layer %u expert %u part %d byte %llu", (unsigned long long)t->pass, layer, e, p,
                      (unsigned long long)i);
        t->w->ops->release(t->w, chunk);
    }
}

static void want(struct rig *t, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    uint8_t late[EXPERTS] = {0};
    const uint32_t rows[EXPERTS] = {1, 1, 1, 1, 1, 1, 1, 1};
    t->w->ops->routed(t->w, layer, experts, rows, n, 1, NULL);
    CHECK_EQ(t->w->ops->want(t->w, layer, experts, n, true, late), n);
    serve(t);
    for (uint32_t i = 0; i < n; i++)
        check_expert(t, layer, experts[i]);
    t->w->ops->done(t->w, layer, experts, n);
}

static void begin_pass(struct rig *t) { CHECK_EQ(t->w->ops->begin(t->w, t->pass), 0); }

static void end_pass(struct rig *t)
{
    t->w->ops->end(t->w);
    t->pass++;
}

static uint64_t bundle_bytes(const struct rig *t, uint32_t layer)
{
    uint32_t chunk = ntx_expert_chunk(&t->layers[layer], 0, NTX_EXPERT_GATE);
    return t->list[chunk].bytes + t->list[chunk + 1].bytes + t->list[chunk + 2].bytes;
}

/* ---- cases */

static void case_right_and_wrong(void)
{
    struct rig t;
    open_rig(&t, 24, 2);
    begin_pass(&t);
    t.w->ops->prefetch_experts(t.w, 1, (const uint32_t[]){5, 2}, 2);
    CHECK_EQ(count(&t, NTX_POSTED, true), 2 * PARTS);
    CHECK_EQ(count(&t, NTX_POSTED, false), 0);
    for (uint32_t i = 0; i < PARTS; i++) { /* the likelier one first: all of it, and the beginning of the other */
        CHECK_EQ(request_of(&t, i)->offset, t.list[ntx_expert_chunk(&t.layers[1], 5, (enum ntx_expert_part)i)].offset);
        begin(&t, i);
        finish(&t, i);
    }
    begin(&t, PARTS);
    want(&t, 1, (const uint32_t[]){5, 7}, 2); /* 2 was wrong */
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_wanted), 2);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_right), 1);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_hits), 1);
    CHECK_EQ(counter(&t, NTX_C_comp_expert_hits), 1);
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), 1);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_bytes), bundle_bytes(&t, 1));
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_used_bytes), bundle_bytes(&t, 1));
    CHECK_EQ(state(&t, PARTS), NTX_FILLING); /* it had begun, and is cancelled; its other parts were withdrawn */
    CHECK_EQ(request_of(&t, PARTS)->early, NTX_CANCELLED);
    CHECK_EQ(state(&t, PARTS + 1), NTX_FREE);
    CHECK_EQ(ntx_word_gen(demand(&t, PARTS + 1)->word), 1);
    CHECK_EQ(state(&t, PARTS + 2), NTX_FREE);
    finish(&t, PARTS);
    want(&t, 2, (const uint32_t[]){0}, 1);
    uint64_t wasted = t.list[ntx_expert_chunk(&t.layers[1], 2, NTX_EXPERT_GATE)].bytes;
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_bytes), bundle_bytes(&t, 1) + wasted);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_wanted), 2); /* layer 2 was not predicted */
    end_pass(&t);

    begin_pass(&t); /* predicted, and not begun: no hit; the rest of it is read first of all */
    t.w->ops->prefetch_experts(t.w, 3, (const uint32_t[]){1, 4}, 2);
    for (uint32_t i = 0, seen = 0; i < DEMANDS && !seen; i++)
        if (state(&t, i) == NTX_POSTED) {
            begin(&t, i);
            seen = 1;
        }
    uint8_t late[2] = {0};
    CHECK_EQ(t.w->ops->want(t.w, 3, (const uint32_t[]){1, 4}, 2, true, late), 2);
    CHECK_EQ(count(&t, NTX_POSTED, true) + count(&t, NTX_FILLING, true), 0);
    CHECK(late[0] && late[1]);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_right), 3);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_hits), 2);
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), 3);
    serve(&t);
    check_expert(&t, 3, 1);
    check_expert(&t, 3, 4);
    t.w->ops->done(t.w, 3, (const uint32_t[]){1, 4}, 2);
    end_pass(&t);
    begin_pass(&t);
    want(&t, 2, (const uint32_t[]){0}, 1);
    CHECK_EQ(count(&t, NTX_FREE, false), DEMANDS); /* all were freed */
    end_pass(&t);
    close_rig(&t);
}

/* A failed prefetch read is ignored until the expert is wanted: then it is read again. */
static void case_failed_prefetch(void)
{
    struct rig t;
    open_rig(&t, 24, 2);
    begin_pass(&t);
    t.w->ops->prefetch_experts(t.w, 1, (const uint32_t[]){3}, 1);
    t.fail = 1;
    begin(&t, 1);
    finish(&t, 1);
    CHECK_EQ(state(&t, 1), NTX_FAILED);
    t.fail = 0;
    want(&t, 0, (const uint32_t[]){6}, 1); /* the rest is withdrawn */
    want(&t, 1, (const uint32_t[]){3}, 1);
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), 2);
    end_pass(&t);
    close_rig(&t);
}

static void give_up(struct rig *t, uint32_t i, uint32_t got)
{
    demand(t, i)->err = -ECANCELED;
    demand(t, i)->got = got;
    set(demand(t, i), NTX_FAILED);
}

/* A cancelled read ends as iod says, and its bytes count as read in vain, but never more than requested. An expert that
 * is wanted again waits for that end; if all of it has come, it stays. */
static void case_cancelled(void)
{
    struct rig t;
    uint8_t late[1] = {0};
    open_rig(&t, 24, 2);
    begin_pass(&t);
    t.w->ops->prefetch_experts(t.w, 1, (const uint32_t[]){3}, 1);
    for (uint32_t i = 0; i < PARTS; i++)
        begin(&t, i);
    const uint64_t down = request_of(&t, 2)->bytes, gate = request_of(&t, 0)->bytes;
    finish(&t, 0);
    want(&t, 1, (const uint32_t[]){6}, 1);
    CHECK(request_of(&t, 1)->early == NTX_CANCELLED && request_of(&t, 2)->early == NTX_CANCELLED);
    give_up(&t, 1, 512);
    CHECK_EQ(t.w->ops->want(t.w, 1, (const uint32_t[]){3}, 1, false, late), 0); /* the third part may still land */
    give_up(&t, 2, UINT32_MAX);
    want(&t, 1, (const uint32_t[]){3}, 1);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_bytes), gate + 512 + down);
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), 2);
    t.w->ops->prefetch_experts(t.w, 3, (const uint32_t[]){5}, 1);
    for (uint32_t i = 0; i < DEMANDS; i++)
        if (state(&t, i) == NTX_POSTED)
            begin(&t, i);
    want(&t, 3, (const uint32_t[]){0}, 1);
    for (uint32_t i = 0; i < DEMANDS; i++)
        if (state(&t, i) == NTX_FILLING)
            finish(&t, i);
    const uint64_t misses = counter(&t, NTX_C_comp_expert_misses);
    want(&t, 3, (const uint32_t[]){5}, 1); /* all of it has come */
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), misses);
    end_pass(&t);
    close_rig(&t);
}

/* A new list for the same layer: reads in both lists that have begun go on. */
static void case_predicted_again(void)
{
    struct rig t;
    open_rig(&t, 30, 3);
    begin_pass(&t);
    t.w->ops->prefetch_experts(t.w, 1, (const uint32_t[]){3, 4}, 2);
    begin(&t, 0);
    begin(&t, PARTS);
    t.w->ops->prefetch_experts(t.w, 1, (const uint32_t[]){6, 3}, 2);
    CHECK_EQ(request_of(&t, 0)->early, NTX_PREFETCH_READ);
    CHECK_EQ(request_of(&t, PARTS)->early, NTX_CANCELLED);
    CHECK_EQ(count(&t, NTX_POSTED, true), PARTS + PARTS - 1);
    give_up(&t, PARTS, 0);
    want(&t, 1, (const uint32_t[]){3, 6}, 2);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_hits), 1);
    end_pass(&t);
    close_rig(&t);
}

/* Predictions that never come true do not change which experts are in memory when they are wanted. Once they are no
 * longer read, wanted experts use their frames, too. */
static void case_no_harm(void)
{
    struct rig with, without;
    open_rig(&with, 16, 2);
    open_rig(&without, 16, 2);
    for (int pass = 0; pass < 300; pass++) {
        begin_pass(&with);
        begin_pass(&without);
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint32_t e[] = {rnd(&with, 3), 3 + rnd(&with, 3)};
            want(&with, l, e, 2);
            want(&without, l, e, 2);
            if (l + 1 < LAYERS)
                with.w->ops->prefetch_experts(with.w, l + 1, (const uint32_t[]){6, 7}, 2);
            for (uint32_t i = rnd(&with, 40); i > 0; i--)
                step(&with);
        }
        end_pass(&with);
        end_pass(&without);
        const uint64_t hits = counter(&with, NTX_C_comp_expert_hits),
                       others = counter(&without, NTX_C_comp_expert_hits);
        CHECK(pass < 52 ? hits == others : hits >= others);
    }
    CHECK_EQ(counter(&with, NTX_C_comp_prefetch_right), 0);
    CHECK_EQ(counter(&with, NTX_C_comp_prefetch_used_bytes), 0);
    CHECK(counter(&with, NTX_C_comp_prefetch_bytes) > 0);
    CHECK(counter(&with, NTX_C_comp_expert_hits) > counter(&without, NTX_C_comp_expert_hits) + 100);
    CHECK_EQ(counter(&with, NTX_C_comp_prefetch_wanted), 300 * (LAYERS - 1) * 2);
    close_rig(&with);
    close_rig(&without);
}

/* A layer whose predictions were mostly wrong of late is not prefetched; it is watched, and prefetched again once they
 * are right. */
static void case_gives_up(void)
{
    struct rig t;
    uint32_t posted = 0, last = 0, again = 0;
    open_rig(&t, 16, 2);
    for (uint32_t pass = 0; pass < 200; pass++) {
        const bool right = pass >= 100;
        begin_pass(&t);
        for (uint32_t l = 1; l <= 3; l += 2) { /* layer 3's predictions are always right */
            const uint32_t e[] = {pass % 8, (pass + 3) % 8}, wrong[] = {(pass + 1) % 8, (pass + 5) % 8};
            t.w->ops->prefetch_experts(t.w, l, right || l == 3 ? e : wrong, 2);
            const uint32_t n = count(&t, NTX_POSTED, true);
            if (l == 1 && n) {
                posted += !right;
                last = right ? last : pass;
                again = right && !again ? pass : again;
            }
            want(&t, l, e, 2);
        }
        end_pass(&t);
    }
    CHECK_MSG(posted > 45 && last == 51, "%u passes asked for what was wrong, the last one was %u", posted,
              last); /* (63 / 64)^(2 x 52) is less than a fifth */
    CHECK_MSG(again == 106, "read again in pass %u",
              again); /* 1 - (63 / 64)^(2 x 6) of the missing rest is less than a quarter */
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_wanted), 800);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_right), 600);
    close_rig(&t);
}

/* After right predictions one used bundle is too many: the next prediction evicts neither a predicted bundle nor one
 * that the coming layer may want sooner than all others. */
static void case_keeps_the_predicted(void)
{
    struct rig t;
    open_rig(&t, 24, 2); /* 12 for layers 0 and 2, of which 2 for predictions */
    begin_pass(&t);
    want(&t, 2, (const uint32_t[]){0, 1, 2, 3, 4}, 5);
    end_pass(&t);
    for (int pass = 0; pass < 30; pass++) {
        begin_pass(&t);
        want(&t, 0, (const uint32_t[]){0, 1, 2, 3, 4}, 5);
        end_pass(&t);
    }
    begin_pass(&t);
    t.w->ops->prefetch_experts(t.w, 2, (const uint32_t[]){5, 6}, 2);
    want(&t, 2, (const uint32_t[]){5, 6}, 2); /* now there are 12 used ones */
    end_pass(&t);
    begin_pass(&t);
    t.w->ops->prefetch_experts(t.w, 2, (const uint32_t[]){7, 0, 1, 2}, 4);
    CHECK_EQ(count(&t, NTX_POSTED, true), PARTS);
    uint64_t misses = counter(&t, NTX_C_comp_expert_misses);
    want(&t, 2, (const uint32_t[]){0, 1, 2}, 3);
    want(&t, 0, (const uint32_t[]){0, 1, 2, 3, 4}, 5);
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), misses);
    end_pass(&t);
    close_rig(&t);
}

/* Experts with more rows are requested first: gate and up of all, then down. */
static void case_shared_first(void)
{
    static const uint32_t want_order[] = {4, 1, 6, 3}, rows[] = {3, 1, 9, 2}, number[] = {1, 3, 4, 6};
    struct rig t;
    uint8_t late[4];
    open_rig(&t, 20, 2);
    for (int i = 0; i < 4; i++)
        late[i] = (uint8_t)rows[i];
    begin_pass(&t);
    CHECK_EQ(t.w->ops->want(t.w, 1, number, 4, true, late), 4);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(late[i], 1);
    for (uint32_t i = 0; i < 4 * PARTS; i++) {
        bool down = i >= 8;
        uint32_t e = want_order[down ? i - 8 : i / 2], part = i % 2 ? NTX_EXPERT_UP : NTX_EXPERT_GATE;
        if (down)
            part = NTX_EXPERT_DOWN;
        CHECK_EQ(request_of(&t, i)->offset,
                 t.list[ntx_expert_chunk(&t.layers[1], e, (enum ntx_expert_part)part)].offset);
    }
    serve(&t);
    t.w->ops->done(t.w, 1, number, 4);
    end_pass(&t);
    close_rig(&t);
}

/* The offset of the first posted request, or 0. */
static uint64_t first_posted(struct rig *t, uint32_t *i)
{
    for (*i = 0; *i < DEMANDS; ++*i)
        if (state(t, *i) == NTX_POSTED)
            return request_of(t, *i)->offset;
    return 0;
}

/* Stages all of a layer, in order, as requests come free: in place of another layer's used experts, not of each other.
 * Those that nobody wants are evicted next. */
static void case_staged(void)
{
    struct rig t;
    uint32_t i;
    open_rig(&t, 20, 2); /* 10 for layers 1 and 3 */
    begin_pass(&t);
    want(&t, 1, (const uint32_t[]){2}, 1); /* in memory already */
    want(&t, 3, (const uint32_t[]){0, 1, 2, 3, 4, 5, 6}, 7);
    t.w->ops->stage_experts(t.w, 1, NULL, 0);
    CHECK_EQ(count(&t, NTX_POSTED, true), 7 * PARTS);
    for (uint32_t e = 0; e < EXPERTS; e++)
        for (int part = 0; e != 2 && part < PARTS; part++) {
            CHECK_EQ(first_posted(&t, &i),
                     t.list[ntx_expert_chunk(&t.layers[1], e, (enum ntx_expert_part)part)].offset);
            begin(&t, i);
            finish(&t, i);
        }
    uint64_t misses = counter(&t, NTX_C_comp_expert_misses), recalled = counter(&t, NTX_C_comp_prefetch_wanted);
    want(&t, 1, (const uint32_t[]){0, 1, 2, 3, 4, 5}, 6); /* 6 and 7 are not used */
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), misses);
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_wanted), recalled); /* nothing was predicted */
    CHECK_EQ(counter(&t, NTX_C_comp_prefetch_hits), 5);
    end_pass(&t);
    begin_pass(&t);
    want(&t, 1, (const uint32_t[]){0, 1, 2, 3, 4, 5}, 6);
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), misses);
    t.w->ops->stage_experts(t.w, 3, (const uint32_t[]){7}, 1); /* this one alone */
    CHECK_EQ(count(&t, NTX_POSTED, true), PARTS);
    t.w->ops->stage_experts(t.w, 3, NULL, 0); /* replaces it */
    t.w->ops->more_experts(t.w);
    uint32_t posted = count(&t, NTX_POSTED, true);
    CHECK(posted > PARTS && posted <= DEMANDS);
    for (uint32_t k = 0; k < PARTS; k++) {
        first_posted(&t, &i);
        begin(&t, i);
        finish(&t, i);
    }
    want(&t, 0, (const uint32_t[]){3},
         1); /* another layer came first: requests not begun are withdrawn, and no more are posted */
    t.w->ops->more_experts(t.w);
    CHECK_EQ(count(&t, NTX_POSTED, true), 0);
    end_pass(&t);
    close_rig(&t);
}

/* Frames that were staged in vain are evicted before any used ones. */
static void case_staged_for_nothing(void)
{
    struct rig t;
    open_rig(&t, 20, 2);
    begin_pass(&t);
    want(&t, 3, (const uint32_t[]){0, 1, 2}, 3);
    t.w->ops->stage_experts(t.w, 1, NULL, 0);
    for (uint32_t i; first_posted(&t, &i);) {
        begin(&t, i);
        finish(&t, i);
    }
    uint64_t misses = counter(&t, NTX_C_comp_expert_misses);
    want(&t, 3, (const uint32_t[]){3, 4, 5, 6, 7}, 5);
    CHECK_EQ(counter(&t, NTX_C_comp_expert_misses), misses + 5);
    want(&t, 3, (const uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7},
         8); /* the five did not evict each other, and of the three only one: 10 frames, 8 staged */
    CHECK(counter(&t, NTX_C_comp_expert_misses) <= misses + 6);
    end_pass(&t);
    close_rig(&t);
}

/* A layer whose later experts hold all frames of its class: they are evicted, the last one first, and all are computed
 * in some waves. */
static void case_later_ones_hold_all(void)
{
    struct rig t;
    uint8_t late[EXPERTS] = {0};
    static const uint32_t all[EXPERTS] = {0, 1, 2, 3, 4, 5, 6, 7};
    open_rig(&t, 8, 0);
    begin_pass(&t);
    want(&t, 3, all + 4, 4); /* its class has four frames */
    for (uint32_t at = 0; at < EXPERTS;) {
        CHECK_EQ(t.w->ops->want(t.w, 3, all + at, EXPERTS - at, false, late) > 0, at >= 4);
        int n = at < 4 ? t.w->ops->want(t.w, 3, all + at, EXPERTS - at, true, late) : (int)(EXPERTS - at);
        CHECK_MSG(n > 0, "%u: %d, %s", at, n, t.w->error.text);
        serve(&t);
        for (int i = 0; i < n; i++)
            check_expert(&t, 3, all[at + (uint32_t)i]);
        t.w->ops->done(t.w, 3, all + at, (uint32_t)n);
        at += (uint32_t)n;
    }
    end_pass(&t);
    close_rig(&t);
}

/* ntx-iod skips no request. If a word says so, the pass fails: nothing is computed with the bytes in its place. */
static void case_left_out(void)
{
    struct rig t;
    uint8_t late[1] = {0};
    const void *bytes = NULL;
    open_rig(&t, 20, 2);
    begin_pass(&t);
    CHECK_EQ(t.w->ops->want(t.w, 0, (const uint32_t[]){3}, 1, true, late), 1);
    for (uint32_t i = 0; i < DEMANDS; i++)
        if (state(&t, i) == NTX_POSTED) {
            demand(&t, i)->shift = (uint32_t)(request_of(&t, i)->offset % BLOCK);
            demand(&t, i)->err = INT32_MIN; /* and not an errno either */
            set(demand(&t, i), NTX_SKIPPED);
        }
    CHECK_EQ(t.w->ops->acquire(t.w, ntx_expert_chunk(&t.layers[0], 3, NTX_EXPERT_GATE), &bytes), -EIO);
    CHECK_MSG(!bytes && strstr(t.w->error.text, "cannot read"), "%s", t.w->error.text);
    end_pass(&t);
    begin_pass(&t);
    want(&t, 0, (const uint32_t[]){3}, 1); /* read again */
    end_pass(&t);
    close_rig(&t);
}

/* Random operations in random order, with deaths and failures. */
static void case_anything(void)
{
    struct rig t;
    open_rig(&t, 20, 2);
    t.fail = 9;
    for (int pass = 0; pass < 1500; pass++) {
        begin_pass(&t);
        for (uint32_t l = 0; l < LAYERS; l++) {
            uint32_t n = 1 + rnd(&t, 2), e[2] = {rnd(&t, 4), 4 + rnd(&t, 4)},
                     g[3] = {rnd(&t, 3), 3 + rnd(&t, 2), 5 + rnd(&t, 3)};
            if (t.n_late && !rnd(&t, 3))
                land_late(&t);
            for (uint32_t i = rnd(&t, 60); i > 0; i--)
                step(&t);
            if (!t.n_late && !rnd(&t, 8))
                die(&t);
            if (t.n_late) /* with quarantined frames there may be none left */
                land_late(&t);
            for (uint32_t i = 0; i < DEMANDS; i++) /* requests that have begun end, so that want never has to wait */
                if (state(&t, i) == NTX_FILLING)
                    finish(&t, i);
            want(&t, l, e, n);
            if (!rnd(&t, 10))
                die(&t);
            if (rnd(&t, 4))
                t.w->ops->prefetch_experts(t.w, (l + 1) % LAYERS, g, 1 + rnd(&t, 3));
            else
                t.w->ops->stage_experts(t.w, (l + 1) % LAYERS, g, rnd(&t, 4));
            for (uint32_t i = rnd(&t, 10); i > 0; i--) {
                step(&t);
                t.w->ops->more_experts(t.w);
            }
        }
        end_pass(&t);
    }
    CHECK(counter(&t, NTX_C_comp_prefetch_right) > 300);
    CHECK(counter(&t, NTX_C_comp_prefetch_used_bytes) > 0 &&
          counter(&t, NTX_C_comp_prefetch_used_bytes) < counter(&t, NTX_C_comp_prefetch_bytes));
    close_rig(&t);
}

int main(void)
{
    case_right_and_wrong();
    case_failed_prefetch();
    case_cancelled();
    case_predicted_again();
    case_no_harm();
    case_gives_up();
    case_keeps_the_predicted();
    case_shared_first();
    case_staged();
    case_staged_for_nothing();
    case_later_ones_hold_all();
    case_left_out();
    case_anything();
    return 0;
}
