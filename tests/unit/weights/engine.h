/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h: a miniature forward pass over the weights' stream: several threads take chunks, entries are looked up, and
 * each byte is checked. fake_iod.h is the other side. */
#ifndef NTX_TESTS_UNIT_WEIGHTS_ENGINE_H
#define NTX_TESTS_UNIT_WEIGHTS_ENGINE_H

#include <sys/eventfd.h>
#include <unistd.h>

#include "computed/weights/stream.h"
#include "tests/unit/weights/fake_iod.h"
#include "tests/lib/temporary.h"

#define THREADS    3
#define ENTRIES_AT 50u /* offset of entry 0 in file 1 */

/* ---- miniature forward pass: THREADS threads multiply each chunk together */

struct engine {
    struct ntx_stream *s;
    struct ntx_weights *w;
    struct ntx_region r;
    struct ntx_counters *counters;
    struct fake_iod iod;
    struct shape shape;
    int wake_fd;
    pthread_t helper[THREADS - 1];
    pthread_barrier_t gate, done;
    uint32_t chunk; /* the chunk that the threads take now; UINT32_MAX: they end */
    int rc[THREADS];
    uint64_t pass, seed;
    uint64_t used; /* chunks whose bytes were checked */
};

static inline void check_bytes(const struct engine *e, uint32_t chunk, const uint8_t *bytes, unsigned thread)
{
    const struct ntx_plan_chunk *c = &e->r.chunks[chunk];
    for (uint64_t i = thread; i < c->bytes; i += THREADS)
        CHECK_MSG(bytes[i] == pattern(c->file, c->offset + i), "pass %llu chunk %u byte %llu",
                  (unsigned long long)e->pass, chunk, (unsigned long long)i);
}

static inline void take_part(struct engine *e, unsigned thread)
{
    const void *bytes = NULL;
    e->rc[thread] = e->w->ops->acquire(e->w, e->chunk, &bytes);
    if (!e->rc[thread])
        check_bytes(e, e->chunk, bytes, thread);
}

struct helper_arg {
    struct engine *e;
    unsigned thread;
};

static inline void *help(void *arg)
{
    struct helper_arg a = *(struct helper_arg *)arg;
    free(arg);
    for (;;) {
        pthread_barrier_wait(&a.e->gate);
        if (a.e->chunk == UINT32_MAX)
            return NULL;
        take_part(a.e, a.thread);
        pthread_barrier_wait(&a.e->done);
    }
}

static inline int use_chunk(struct engine *e, uint32_t chunk)
{
    e->chunk = chunk;
    pthread_barrier_wait(&e->gate);
    take_part(e, 0);
    pthread_barrier_wait(&e->done);
    for (unsigned t = 1; t < THREADS; t++)
        CHECK_EQ(e->rc[t], e->rc[0]); /* all get the same result */
    if (!e->rc[0]) {
        e->w->ops->release(e->w, chunk);
        e->used++;
    }
    return e->rc[0];
}

static inline uint32_t rnd(struct engine *e, uint32_t n)
{
    e->seed = e->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(e->seed >> 33) % n;
}

static inline int use_entries(struct engine *e, uint32_t n)
{
    int32_t ids[40] = {0};
    static uint8_t out[40 * ENTRY_BYTES];
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)rnd(e, i % 3 ? N_ENTRIES : 4); /* equal ones are frequent */
    int rc = e->w->ops->entries(e->w, 1, ENTRIES_AT, ENTRY_BYTES, ids, n, out);
    for (uint32_t i = 0; !rc && i < n * ENTRY_BYTES; i++)
        CHECK_EQ(out[i], pattern(1, ENTRIES_AT + (uint64_t)ids[i / ENTRY_BYTES] * ENTRY_BYTES + i % ENTRY_BYTES));
    return rc;
}

/* One pass; layers of `drop` are dropped after layer 0. Ends at the first failure. */
static inline int run_pass(struct engine *e, uint64_t drop, uint32_t n_rows)
{
    int rc = e->w->ops->begin(e->w, e->pass);
    if (rc) {
        e->pass++;
        return rc;
    }
    rc = use_entries(e, n_rows);
    for (uint32_t i = 0; !rc && i < e->r.hdr->n_chunks; i++) {
        uint32_t layer = e->r.chunks[i].layer;
        if (i == e->shape.per_layer)
            for (uint32_t l = 1; l < 64; l++)
                if (drop >> l & 1)
                    e->w->ops->drop_layer(e->w, l);
        if (layer && drop >> layer & 1)
            e->w->ops->skip(e->w, i);
        else
            rc = use_chunk(e, i);
    }
    e->w->ops->end(e->w);
    e->pass++;
    return rc;
}

/* ---- set-up */

static const struct shape normal = {
    .n_layers = 5, .per_layer = 6, .n_desc = 7, .n_slots = 10, .n_demands = 4, .chunk_bytes = 9000, .host = true};

static inline void set_up_patient(struct engine *e, const struct shape *shape, uint32_t limit_s, uint32_t text_wait_ms)
{
    char dir[256], path[300];
    int fd;
    *e = (struct engine){.shape = *shape, .seed = 7};
    make_region(shape, &e->r);
    temporary_dir(dir, sizeof dir, "stream");
    CHECK_EQ(ntx_counters_create(dir, &e->counters, &fd, NULL), 0);
    close(fd);
    snprintf(path, sizeof path, "%s/counters", dir);
    CHECK(!unlink(path) && !rmdir(dir));
    e->wake_fd = eventfd(0, EFD_CLOEXEC);
    e->iod = (struct fake_iod){.r = &e->r,
                               .wake_fd = e->wake_fd,
                               .seed = 99,
                               .max_ticks = 4,
                               .fail_chunk = UINT32_MAX,
                               .wrong_chunk = UINT32_MAX};
    static const char *const names[NTX_MAX_FILES] = {"the.gguf"};
    struct ntx_stream_config c = {.region = &e->r,
                                  .counters = e->counters,
                                  .wake_fd = e->wake_fd,
                                  .wait_limit_s = limit_s,
                                  .text_wait_ms = text_wait_ms,
                                  .names = names};
    CHECK_EQ(ntx_stream_new(&c, &e->s), 0);
    e->w = ntx_stream_weights(e->s);
    pthread_barrier_init(&e->gate, NULL, THREADS);
    pthread_barrier_init(&e->done, NULL, THREADS);
    for (unsigned t = 1; t < THREADS; t++) {
        struct helper_arg *a = malloc(sizeof *a);
        *a = (struct helper_arg){e, t};
        CHECK(!pthread_create(&e->helper[t - 1], NULL, help, a));
    }
}

static inline void set_up(struct engine *e, const struct shape *shape, uint32_t limit_s)
{
    set_up_patient(e, shape, limit_s, 0);
}

static inline void tear_down(struct engine *e)
{
    e->chunk = UINT32_MAX;
    pthread_barrier_wait(&e->gate);
    for (unsigned t = 1; t < THREADS; t++)
        pthread_join(e->helper[t - 1], NULL);
    ntx_stream_free(e->s);
    ntx_counters_close(e->counters);
    ntx_region_close(&e->r);
    close(e->wake_fd);
}

static inline uint64_t counter(const struct engine *e, enum ntx_counter c) { return ntx_counter_get(e->counters, c); }

static inline void wait_until_host_ready(struct engine *e)
{
    uint64_t want = 0, end = ntx_now_ns() + 20000000000u;
    for (uint32_t i = 0; i < e->r.hdr->n_chunks; i++)
        want += e->r.chunks[i].placement == NTX_PLACE_HOST ? e->r.chunks[i].bytes : 0;
    while (ntx_stream_host_ready(e->s) != want)
        CHECK(ntx_now_ns() < end);
    CHECK(want || !e->shape.host);
}

static inline bool host_chunk(const struct engine *e, uint32_t i) { return e->r.chunks[i].placement == NTX_PLACE_HOST; }

static inline uint64_t end_of(const struct engine *e, uint32_t chunk)
{
    return NTX_ROUND_UP(e->r.chunks[chunk].where + e->r.chunks[chunk].bytes, (uint64_t)BLOCK);
}

#endif
