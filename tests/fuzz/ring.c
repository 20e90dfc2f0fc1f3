/* ring.c: what ntx-iod says in the region, read by ntx-computed, under libFuzzer: descriptors, states of chunks and answers to demands
 * with changes (fuzz.h). Bytes that are handed out lie in a slot or in the arena, or the pass fails with its reason. */
#include <errno.h>
#include <sys/eventfd.h>

#include "computed/stream_impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/shm/make_region.h"

static struct ntx_region r;
static uint8_t *front;
static size_t front_bytes;
static int wake_fd;

/* As ntx-iod leaves it when it is well: the first pass is there, as far as the ring holds it. */
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
    const struct shape shape = {.n_layers = 2, .per_layer = 3, .n_desc = 6, .n_slots = 8, .n_demands = 2, .chunk_bytes = 12000, .host = true};
    make_region(&shape, &r);
    wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fill();
    front_bytes = r.hdr->off_probe;
    front = malloc(front_bytes);
    MUST(front && wake_fd >= 0);
    memcpy(front, r.base, front_bytes);
    if (!fuzz_seed_dir())
        return 0;
    for (unsigned field = 0; field < 7; field++) { /* of descriptor 1: word, slot, chunk, sched, pass, shift */
        uint32_t at = (uint32_t)(sizeof(struct ntx_desc) + 4 * field) / 4;
        const uint8_t seed[9] = {0, (uint8_t)at, (uint8_t)(at >> 8), 0, 4, 1};
        char name[16];
        snprintf(name, sizeof name, "field%u", field);
        fuzz_seed(name, seed, sizeof seed);
    }
    exit(0);
}

/* Nobody delivers here: a chunk that is not there by now never comes. */
static void nobody_waits(struct ntx_stream *s, uint32_t chunk)
{
    const struct ntx_plan_chunk *c = &r.chunks[chunk];
    uint32_t host = atomic_load(&r.state[chunk]), ring = atomic_load(&r.desc[c->sched % r.hdr->n_desc].word);
    enum ntx_state st = ntx_word_state(host);
    if (c->placement == NTX_PLACE_HOST ? st != NTX_READY && st != NTX_FAILED : !ntx__settled(ring, c->sched / r.hdr->n_desc))
        ntx_stream_abort(s, -EIO, "over");
    ntx_stream_io_error(s, chunk, "told");
}

static void use_chunk(struct ntx_weights *w, uint32_t chunk)
{
    const struct ntx_plan_chunk *c = &r.chunks[chunk];
    const void *bytes = NULL;
    if (w->ops->acquire(w, chunk, &bytes)) {
        MUST(w->error.code < 0 && w->error.text[0] && !bytes);
        return;
    }
    const uint8_t *p = bytes, *low = r.base + r.hdr->off_slots;
    MUST(p >= low && p + c->bytes <= r.base + r.hdr->bytes);
    MUST((size_t)(p - r.base) % r.hdr->block == c->offset % r.hdr->block);
    if (c->placement == NTX_PLACE_STORAGE)
        MUST((size_t)(p - low) % r.hdr->slot_bytes + c->bytes <= r.hdr->slot_bytes && p < low + r.hdr->n_slots * r.hdr->slot_bytes);
    w->ops->release(w, chunk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ntx_stream *s;
    struct ntx_stream_config c = {.region = &r, .wake_fd = wake_fd, .wait_limit_s = 1};
    memcpy(r.base, front, front_bytes);
    MUST(!ntx_stream_new(&c, &s));
    struct ntx_weights *w = ntx_stream_weights(s);
    MUST(!w->ops->begin(w, 0));
    /* what is ntx-iod's to write; the first byte says which table the changes are in */
    if (size && data[0] & 1)
        fuzz_patch((uint8_t *)r.state, r.hdr->off_desc - r.hdr->off_state, data + 1, size - 1);
    else if (size)
        fuzz_patch((uint8_t *)r.desc, r.hdr->off_probe - r.hdr->off_desc, data + 1, size - 1);
    for (uint32_t i = 0; i < r.hdr->n_chunks; i++) {
        nobody_waits(s, i);
        use_chunk(w, i);
    }
    w->ops->end(w);
    ntx_stream_iod_died(s);
    ntx_stream_untaint(s);
    MUST(ntx_stream_host_ready(s) <= r.hdr->bytes);
    ntx_stream_free(s);
    return 0;
}
