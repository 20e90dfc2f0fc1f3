/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c: ntx-computed reads what a faulty ntx-iod writes to the region, under libFuzzer: changed descriptors and
 * chunk states (fuzz.h) and, in ring_demands.c, answers to demands. The first byte picks one of the two. Acquired
 * bytes lie in a slot or in the arena, or the pass fails with a reason. Nothing sleeps: the linker wraps
 * ntx_futex_wait, and each wait plays a step of iod instead. */
#include <errno.h>
#include <sys/eventfd.h>

#include "common/util.h"
#include "iod/core.h"
#include "computed/weights/stream_impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/ring.h"
#include "tests/fuzz/saved.h"
#include "tests/unit/shm/make_region.h"

static struct ntx_region r;
static struct fuzz_saved right;
static int wake_fd;
static struct ntx_stream *playing;
static struct ntx_iod_core *successor;
static uint32_t answered;

/* ---- a healthy iod takes over from a broken one */

static void on_state(void *ctx, _Atomic uint32_t *word, enum ntx_state st)
{
    (void)ctx;
    (void)word;
    answered += st != NTX_FILLING;
}

static void on_failed(void *ctx, const struct ntx_iod_failure *f)
{
    (void)ctx;
    (void)f;
    MUST(!"what computed asks for can be read");
}

static void serve(void)
{
    struct ntx_iod_read rd, was;
    const uint32_t before = answered;
    while (ntx_iod_core_next(successor, 1, &rd))
        MUST(ntx_iod_core_done(successor, 1, rd.tag, (int32_t)rd.expect, &was));
    if (answered == before)
        ntx_stream_abort(playing, -EIO, "over");
}

void fuzz_successor(struct ntx_stream *s, const struct ntx_region *r)
{
    const struct ntx_iod_limits limits = {0};
    const struct ntx_iod_hooks hooks = {.state = on_state, .failed = on_failed};
    playing = s;
    MUST(!ntx_iod_core_new(r, NULL, &limits, &hooks, &successor, NULL));
    ntx_stream_abort(s, 0, NULL);
}

void fuzz_successor_gone(void)
{
    ntx_iod_core_free(successor);
    successor = NULL;
}

/* ---- the ring */

int __wrap_ntx_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns);
int __wrap_ntx_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    (void)word;
    (void)seen;
    (void)timeout_ns;
    if (successor)
        serve();
    else if (!fuzz_demands_wait()) /* nobody fills the ring here: a missing chunk never comes */
        ntx_stream_abort(playing, -EIO, "over");
    return 0;
}

/* The state that a healthy ntx-iod leaves: the ring holds as much of the first pass as fits. */
static void fill(void)
{
    for (uint32_t i = 0; i < r.hdr->n_chunks; i++)
        if (r.chunks[i].placement == NTX_PLACE_HOST)
            atomic_store(&r.state[i], ntx_word(0, NTX_READY));
    for (uint32_t i = 0; i < r.hdr->n_desc; i++) {
        struct ntx_desc *d = &r.desc[i];
        d->slot = i;
        d->sched = i;
        d->chunk = r.sched[i];
        d->shift = (uint32_t)(r.chunks[d->chunk].offset % r.hdr->block);
        atomic_store(&d->word, ntx_word(0, NTX_READY));
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    ntx_log_init("fuzz_ring", NTX_LOG_ERR); /* each death with invalid words logs a warning */
    const struct shape shape = {
        .n_layers = 2, .per_layer = 3, .n_desc = 6, .n_slots = 8, .n_demands = 2, .chunk_bytes = 12000, .host = true};
    make_region(&shape, &r);
    wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fill();
    MUST(wake_fd >= 0);
    fuzz_save(&right, &r);
    fuzz_demands_init();
    if (!fuzz_seed_dir())
        return 0;
    for (unsigned field = 0; field < 7; field++) { /* of descriptor 1: word, slot, chunk, sched, pass, shift */
        uint32_t at = (uint32_t)(sizeof(struct ntx_desc) + 4 * field) / 4;
        const uint8_t seed[9] = {0, (uint8_t)at, (uint8_t)(at >> 8), 0, 4, 1};
        char name[16];
        snprintf(name, sizeof name, "field%u", field);
        fuzz_seed(name, seed, sizeof seed);
    }
    fuzz_seed("host", (const uint8_t[]){1, 0, 0, 0, 4, 1}, 6);
    /* want, entries, prediction of all; each wait serves what is posted, or a demand fails, comes for another, dies */
    static const uint8_t steps[] = {0x05, 0xcf, 0,    0x12, 0x3f, 0, 0x15, 0xcf, 0,    0x01, 0x47,
                                    0x35, 0x25, 0xf8, 0,    0x00, 0, 0,    0x15, 0xd5, 0};
    for (uint8_t kind = 2; kind < 4; kind++)
        for (uint8_t how = 0; how < 8; how++) {
            uint8_t seed[1 + sizeof steps + 40];
            char name[16];
            seed[0] = kind;
            memcpy(seed + 1, steps, sizeof steps);
            for (uint8_t i = 0; i < 20; i++) {
                seed[1 + sizeof steps + 2 * i] = i % 3 ? 0x80 : i;
                seed[2 + sizeof steps + 2 * i] = (uint8_t)(how | i << 3);
            }
            snprintf(name, sizeof name, "demands%u%u", kind, how);
            fuzz_seed(name, seed, sizeof seed);
        }
    for (uint8_t fill = 0; fill < 4; fill++) { /* nonsense in all words */
        uint8_t seed[1 + 3 * 200];
        char name[16];
        seed[0] = fill & 1;
        for (uint32_t i = 1; i < sizeof seed; i++)
            seed[i] = (uint8_t)(i * 37 * (fill + 1u) ^ i >> 3);
        snprintf(name, sizeof name, "scribble%u", fill);
        fuzz_seed(name, seed, sizeof seed);
    }
    for (uint8_t kind = 2; kind < 4;
         kind++) { /* demands that iod reports as skipped: once, the engine waited for them for ever */
        uint8_t seed[4 + 2 * 14] = {kind, 0x05, 0xff, 0};
        for (uint8_t i = 0; i < 14; i++) {
            seed[4 + 2 * i] = i;
            seed[5 + 2 * i] = 5 | NTX_SKIPPED << 3;
        }
        fuzz_seed(kind == 2 ? "skipped2" : "skipped3", seed, sizeof seed);
    }
    exit(0);
}

static void use_chunk(struct ntx_weights *w, uint32_t chunk, bool must)
{
    const struct ntx_plan_chunk *c = &r.chunks[chunk];
    const void *bytes = NULL;
    if (w->ops->acquire(w, chunk, &bytes)) {
        MUST(w->error.code < 0 && w->error.text[0] && !bytes && !must);
        return;
    }
    const uint8_t *p = bytes, *low = r.base;
    MUST(p >= low && p + c->bytes <= r.base + r.hdr->bytes);
    MUST((size_t)(p - r.base) % r.hdr->block == c->offset % r.hdr->block);
    if (c->placement == NTX_PLACE_STORAGE)
        MUST((size_t)(p - low) % r.hdr->slot_bytes + c->bytes <= r.hdr->slot_bytes &&
             p < low + r.hdr->n_slots * r.hdr->slot_bytes);
    w->ops->release(w, chunk);
}

static void fuzz_ring(const uint8_t *data, size_t size)
{
    struct ntx_stream *s;
    struct ntx_stream_config c = {.region = &r, .wake_fd = wake_fd, .wait_limit_s = 60, .text_wait_ms = 1};
    fuzz_put_back(&right, &r);
    MUST(!ntx_stream_new(&c, &s));
    struct ntx_weights *w = ntx_stream_weights(s);
    playing = s;
    MUST(!w->ops->begin(w, 0));
    /* restores all that ntx-iod may write; the first byte says where the changes begin */
    uint8_t *from = size && data[0] & 1 ? (uint8_t *)r.state : (uint8_t *)r.desc;
    if (size)
        fuzz_patch(from, (size_t)(r.part[NTX_REGION_RING].at + r.part[NTX_REGION_RING].bytes - from), data + 1,
                   size - 1);
    for (uint32_t i = 0; i < r.hdr->n_chunks; i++) {
        if (size > 1 && data[1] & 1)
            ntx_stream_io_error(s, i, "told");
        use_chunk(w, i, false);
    }
    char text[256];
    MUST(!ntx_stream_host_failure(s, text, sizeof text) || text[0]);
    w->ops->end(w);
    ntx_stream_iod_died(s);
    ntx_stream_end_quarantine(s);
    MUST(ntx_stream_host_ready(s) <= r.hdr->bytes);
    fuzz_successor(s, &r);
    for (uint64_t pass = 1; pass < 4;
         pass++) { /* in the first pass a chunk may really have failed or been skipped; later passes succeed */
        MUST(!w->ops->begin(w, pass));
        for (uint32_t i = 0; i < r.hdr->n_chunks; i++)
            use_chunk(w, i, pass > 1);
        w->ops->end(w);
    }
    fuzz_successor_gone();
    ntx_stream_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] & 2)
        fuzz_demands(data + 1, size - 1, data[0] & 1);
    else
        fuzz_ring(data, size);
    return 0;
}
