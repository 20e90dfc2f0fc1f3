/* SPDX-License-Identifier: Apache-2.0 */
/* ring_demands.c: demands of ntx-computed (entries, experts, neuron groups) and the answers of ntx-iod, part of
 * fuzz_ring. The input is read from both ends. The front has the engine's actions, three bytes each; the back has
 * iod's actions, two bytes each, one whenever the engine waits. When the ends meet, iod answers no more. An answer
 * may be right, late, failed, misplaced, of another generation or a spurious wake-up; iod may also die. In every
 * case the bytes that the engine gets lie in the arena, in a place for their kind. */
#include <errno.h>
#include <limits.h>
#include <sys/eventfd.h>

#include "common/util.h"
#include "computed/weights/stream.h"
#include "tests/lib/check.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/ring.h"
#include "tests/fuzz/saved.h"
#include "tests/unit/weights/list_experts.h"

enum {
    LAYERS = 3,
    EXPERTS = 6,
    PARTS = NTX_EXPERT_PARTS,
    DEMANDS = 12,
    ROWS = 2,
    GROUPS = 24,
    PER_CHUNK = 6,
    STAY = 1,
    WINDOWS = 2,
    BLOCK = 4096,
    ENTRY = 1000
};

struct rig {
    struct ntx_region r;
    struct ntx_chunk *list;
    struct ntx_layer_weights layers[LAYERS];
    struct ntx_chunks chunks;
    struct ntx_frames frames;
    uint64_t places, places_end; /* file offsets between which experts or groups lie */
    uint64_t window_bytes;
    struct fuzz_saved right;
    int wake_fd;
};

static struct rig experts_rig, groups_rig;

static struct { /* this run's */
    struct rig *t;
    struct ntx_stream *s;
    struct ntx_weights *w;
    const uint8_t *next, *end;
    uint64_t pass;
    bool in_pass, forged; /* forged: iod has made demands of its own */
} now;

/* ---- the valid state */

static void make(struct rig *t, uint32_t n_chunks, uint64_t file, uint64_t arena)
{
    struct ntx_region_geometry g = {.block = BLOCK,
                                    .n_files = 1,
                                    .n_chunks = n_chunks,
                                    .n_demands = ROWS,
                                    .n_bundle_demands = DEMANDS,
                                    .n_probes = 1,
                                    .n_layers = LAYERS,
                                    .n_embd = 1,
                                    .frame_bytes = BLOCK,
                                    .arena_bytes = arena,
                                    .epoch = 1};
    struct ntx_err err = {0};
    char note[512];
    MUST(!ntx_region_create(&g, &t->r, note, sizeof note, &err));
    t->r.hdr->file_bytes[0] = file;
    for (uint32_t i = 0; i < n_chunks; i++)
        t->r.chunks[i] = (struct ntx_plan_chunk){.offset = t->list[i].offset,
                                                 .bytes = t->list[i].bytes,
                                                 .layer = t->list[i].layer,
                                                 .placement = NTX_PLACE_FRAME};
}

static void keep(struct rig *t)
{
    t->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    MUST(t->wake_fd >= 0);
    fuzz_save(&t->right, &t->r);
}

/* Layer 1 has larger experts: two classes of frames, fewer than there are experts. */
static void make_experts(struct rig *t)
{
    t->list = calloc((size_t)LAYERS * EXPERTS * PARTS, sizeof *t->list);
    MUST(t->list);
    t->chunks = (struct ntx_chunks){
        .list = t->list, .n = LAYERS * EXPERTS * PARTS, .layers = t->layers, .n_layers = LAYERS, .n_expert = EXPERTS};
    uint64_t offset = list_experts(&t->chunks, t->list, t->layers, BLOCK, &t->frames);
    ntx_frames_share(&t->frames, 8, 2, 1);
    make(t, t->chunks.n, offset, ntx_frames_bytes(&t->frames));
    t->places = t->r.hdr->off_arena;
    t->places_end = t->places + ntx_frames_bytes(&t->frames);
    keep(t);
}

/* The first chunk of each layer's groups stays in the arena, behind the windows. */
static void make_groups(struct rig *t)
{
    const uint32_t per_layer = GROUPS / PER_CHUNK, each = 2 * BLOCK;
    const uint64_t stay = (uint64_t)PER_CHUNK * each, window = (uint64_t)(GROUPS - PER_CHUNK) * each;
    t->window_bytes = window;
    t->list = calloc((size_t)LAYERS * per_layer, sizeof *t->list);
    MUST(t->list);
    t->chunks = (struct ntx_chunks){.list = t->list, .n = LAYERS * per_layer, .layers = t->layers, .n_layers = LAYERS};
    for (uint32_t i = 0; i < t->chunks.n; i++)
        t->list[i] = (struct ntx_chunk){.layer = i / per_layer,
                                        .out0 = i % per_layer * PER_CHUNK,
                                        .n_out = PER_CHUNK,
                                        .offset = i * stay,
                                        .bytes = stay,
                                        .on_demand = true};
    for (uint32_t l = 0; l < LAYERS; l++) {
        t->layers[l].groups = (struct ntx_weight){.n_out = GROUPS,
                                                  .chunk0 = l * per_layer,
                                                  .n_chunks = per_layer,
                                                  .chunk_outs = PER_CHUNK,
                                                  .row_bytes = each};
        t->layers[l].groups_added.tensor = NTX_NO_TENSOR;
        t->layers[l].pack = (struct ntx_pack_layer){.group = 4, .n_groups = GROUPS, .group_bytes = each};
    }
    make(t, t->chunks.n, t->chunks.n * stay, WINDOWS * window + LAYERS * stay);
    t->places = t->r.hdr->off_arena;
    t->places_end = t->places + WINDOWS * window;
    for (uint32_t l = 0; l < LAYERS; l++) {
        t->r.chunks[l * per_layer].placement = NTX_PLACE_HOST;
        t->r.chunks[l * per_layer].where = t->places_end + l * stay;
        atomic_store(&t->r.state[l * per_layer], ntx_word(0, NTX_READY));
    }
    keep(t);
}

void fuzz_demands_init(void)
{
    make_experts(&experts_rig);
    make_groups(&groups_rig);
}

/* ---- ntx-iod */

static void answer(uint32_t i, uint8_t how)
{
    static const int32_t errors[] = {-EIO, 0, 5, INT32_MIN, -ENODATA, -100000, INT32_MAX, -1};
    struct ntx_demand *d = &now.t->r.demand[i];
    uint32_t w = atomic_load(&d->word), gen = ntx_word_gen(w);
    d->shift = (uint32_t)(now.t->r.request[i].offset % BLOCK);
    switch (how & 7) {
    case 0: /* as it should be, step by step */
    case 1:
        if (ntx_word_state(w) == NTX_POSTED)
            atomic_store(&d->word, ntx_word(gen, NTX_FILLING));
        else if (ntx_word_state(w) == NTX_FILLING)
            atomic_store(&d->word, ntx_word(gen, NTX_READY));
        break;
    case 2:
        d->err = errors[how >> 3 & 7];
        if (how & 64)
            ntx_stream_io_error(now.s, UINT32_MAX, "told");
        atomic_store(&d->word, ntx_word(gen, NTX_FAILED));
        break;
    case 3:
        d->shift += how >> 3;
        atomic_store(&d->word, ntx_word(gen, NTX_READY));
        break;
    case 4: atomic_store(&d->word, ntx_word(gen + (how >> 3), NTX_READY)); break;
    case 5:
        now.forged = true;
        atomic_store(&d->word, ntx_word(gen, (enum ntx_state)(how >> 3 & 7)));
        break;
    case 6: ntx_stream_iod_died(now.s); break;
    default: ntx_stream_end_quarantine(now.s);
    }
}

/* All that is posted is read. */
static void serve(void)
{
    for (uint32_t i = 0; i < ROWS + DEMANDS; i++) {
        struct ntx_demand *d = &now.t->r.demand[i];
        uint32_t w = atomic_load(&d->word);
        if (ntx_word_state(w) != NTX_POSTED && ntx_word_state(w) != NTX_FILLING)
            continue;
        d->shift = (uint32_t)(now.t->r.request[i].offset % BLOCK);
        atomic_store(&d->word, ntx_word(ntx_word_gen(w), NTX_READY));
    }
}

/* Before a read iod checks its target (iod/core_pick.c); a posted request must pass that check. */
static void check_posted(void)
{
    const struct ntx_region_hdr *h = now.t->r.hdr;
    for (uint32_t i = 0; i < ROWS + DEMANDS && !now.forged; i++) {
        const struct ntx_read_request *a = &now.t->r.request[i];
        if (ntx_word_state(now.t->r.demand[i].word) != NTX_POSTED)
            continue;
        MUST(a->bytes && a->file < h->n_files && a->offset < h->file_bytes[a->file] &&
             a->bytes <= h->file_bytes[a->file] - a->offset);
        if (i >= ROWS)
            MUST(a->dest % BLOCK == 0 && a->dest >= now.t->places &&
                 a->dest + NTX_ROUND_UP(a->offset % BLOCK + a->bytes, (uint64_t)BLOCK) <= now.t->places_end);
    }
}

bool fuzz_demands_wait(void)
{
    if (!now.s)
        return false;
    check_posted();
    if (now.end - now.next < 2) {
        ntx_stream_abort(now.s, -EIO, "over");
        return true;
    }
    now.end -= 2;
    if (now.end[0] & 0x80)
        serve();
    else
        answer(now.end[0] % (ROWS + DEMANDS), now.end[1]);
    return true;
}

/* ---- ntx-computed */

static void failed(void) { MUST(now.w->error.code < 0 && now.w->error.text[0]); }

static void entries(uint8_t a, uint8_t b)
{
    static const uint64_t at[] = {0, 4000, 99999999, UINT64_MAX - 5};
    const int32_t ids[4] = {a % 16, b % 16, a % 16, b == 255 ? -1 : b / 16};
    uint8_t out[4][ENTRY];
    if (now.w->ops->entries(now.w, b == 254, at[a >> 6], ENTRY, ids, 1 + (a & 3), out))
        failed();
}

static void use_chunk(uint32_t chunk, uint64_t low, uint64_t high, uint64_t bytes)
{
    const void *p = NULL;
    const struct ntx_region *r = &now.t->r;
    if (now.w->ops->acquire(now.w, chunk, &p)) {
        failed();
        MUST(!p);
        return;
    }
    uint64_t at = (uint64_t)((const uint8_t *)p - r->base);
    MUST(at >= low && at + bytes <= high && at % BLOCK == r->chunks[chunk].offset % BLOCK);
    now.w->ops->release(now.w, chunk);
}

static uint32_t list_of(uint8_t mask, uint32_t most, uint32_t step, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < most; i++)
        if (mask >> (i * step % 8) & 1)
            out[n++] = i;
    return n;
}

static void want(uint32_t layer, uint8_t mask)
{
    uint32_t list[EXPERTS], n = list_of(mask, EXPERTS, 1, list);
    uint8_t late[EXPERTS] = {0};
    int taken = n ? now.w->ops->want(now.w, layer, list, n, mask & 128, late) : 0;
    if (taken < 0)
        failed();
    for (int i = 0; i < taken; i++)
        for (int p = 0; p < PARTS && mask & 64; p++) {
            uint32_t chunk = ntx_expert_chunk(&now.t->layers[layer], list[i], (enum ntx_expert_part)p);
            use_chunk(chunk, now.t->places, now.t->places_end, now.t->list[chunk].bytes);
        }
    if (taken > 0 && mask != 255) /* else they are held until the pass ends */
        now.w->ops->done(now.w, layer, list, (uint32_t)taken);
}

static void want_groups(uint32_t layer, uint8_t mask)
{
    uint32_t list[GROUPS], n = list_of(mask, GROUPS, 5, list);
    const struct ntx_weight *g = &now.t->layers[layer].groups;
    if (now.w->ops->want_groups(now.w, layer, list, n)) {
        failed();
        return;
    }
    for (uint32_t c = STAY; c < g->n_chunks; c++)
        use_chunk(g->chunk0 + c, now.t->places, now.t->places_end, now.t->list[g->chunk0 + c].bytes);
}

static void ahead(uint32_t layer, uint8_t mask, bool sure)
{
    uint32_t list[GROUPS];
    if (now.t == &experts_rig && sure)
        now.w->ops->stage_experts(now.w, layer, list, list_of(mask, EXPERTS, 1, list));
    else if (now.t == &experts_rig)
        now.w->ops->prefetch_experts(now.w, layer, list, list_of(mask, EXPERTS, 1, list));
    else if (now.w->ops->prefetch_groups(now.w, layer, list, list_of(mask, GROUPS, 3, list)))
        failed();
}

static void begin(void)
{
    ntx_stream_abort(now.s, 0, NULL);
    if (now.in_pass)
        now.w->ops->end(now.w);
    now.in_pass = !now.w->ops->begin(now.w, now.pass++);
    if (!now.in_pass)
        failed();
}

static void step(const uint8_t *b)
{
    uint32_t layer = (b[0] >> 4) % LAYERS;
    switch (b[0] & 7) {
    case 0: begin(); break;
    case 1: entries(b[1], b[2]); break;
    case 2: ahead(layer, b[1], b[2] & 1); break;
    case 3:
        (void)fuzz_demands_wait(); /* a step of iod while nobody waits */
        now.w->ops->more_experts(now.w);
        break;
    case 4: ntx_stream_cancel(now.s, now.pass - (b[1] & 1)); break;
    default:
        if (now.t == &experts_rig)
            want(layer, b[1]);
        else
            want_groups(layer, b[1]);
    }
}

static void use_chunk_must(uint32_t chunk)
{
    const void *bytes = NULL;
    MUST(!now.w->ops->acquire(now.w, chunk, &bytes) && bytes);
}

/* The broken iod dies and a working one starts: from then on every request is answered. */
static void recover(void)
{
    static const int32_t ids[4] = {1, 2, 3, 1};
    uint8_t out[4][ENTRY], late[EXPERTS] = {0};
    struct ntx_weights *w = now.w;
    ntx_stream_iod_died(now.s);
    ntx_stream_end_quarantine(now.s);
    fuzz_successor(now.s, &now.t->r);
    MUST(!w->ops->begin(w, now.pass + 1)); /* the one before may have been cancelled */
    w->ops->end(w);                        /* so much was wanted outside of passes, too */
    MUST(!w->ops->begin(w, now.pass + 2));
    MUST(!w->ops->entries(w, 0, 0, ENTRY, ids, 4, out));
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        uint32_t list[GROUPS], n = list_of(255, now.t == &experts_rig ? EXPERTS : GROUPS, 1, list);
        const struct ntx_weight *g = &now.t->layers[layer].groups;
        MUST(now.t == &experts_rig || !w->ops->want_groups(w, layer, list, n));
        for (uint32_t c = STAY; now.t != &experts_rig && c < g->n_chunks; c++)
            use_chunk_must(g->chunk0 + c);
        for (uint32_t e = 0; now.t == &experts_rig && e < n; e++) {
            MUST(w->ops->want(w, layer, &list[e], 1, true, late) == 1);
            for (int p = 0; p < PARTS; p++)
                use_chunk_must(ntx_expert_chunk(&now.t->layers[layer], list[e], (enum ntx_expert_part)p));
            w->ops->done(w, layer, &list[e], 1);
        }
    }
    w->ops->end(w);
    fuzz_successor_gone();
}

void fuzz_demands(const uint8_t *data, size_t size, bool groups)
{
    struct rig *t = groups ? &groups_rig : &experts_rig;
    struct ntx_stream_config c = {.region = &t->r,
                                  .wake_fd = t->wake_fd,
                                  .wait_limit_s = 60,
                                  .text_wait_ms = 1,
                                  .chunks = &t->chunks,
                                  .prefetch = true};
    if (groups) {
        c.windows_at = t->places;
        c.window_bytes = t->window_bytes;
        c.n_windows = WINDOWS;
        c.read_gap = 2 * BLOCK;
    } else {
        c.frames = &t->frames;
        c.frames_at = t->places;
    }
    fuzz_put_back(&t->right, &t->r);
    MUST(!ntx_stream_new(&c, &now.s));
    now.t = t;
    now.w = ntx_stream_weights(now.s);
    now.pass = 0;
    now.forged = false;
    now.next = data;
    now.end = data + size;
    begin();
    while (now.end - now.next >= 3) {
        now.next += 3;
        step(now.next - 3);
    }
    now.w->ops->end(now.w);
    recover();
    ntx_stream_free(now.s);
    now.s = NULL;
}
