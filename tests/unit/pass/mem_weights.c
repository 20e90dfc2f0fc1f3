/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/pass/mem_weights.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/check.h"
#include "tests/lib/patient.h"

#define DEADLINE_MS 20000

static struct mem_weights *of(struct ntx_weights *w) { return (struct mem_weights *)w; }

/* May be taken in any order, or not at all. */
static bool free_order(const struct mem_weights *m, uint32_t chunk)
{
    return m->chunks->list[chunk].expert || m->chunks->list[chunk].on_demand;
}

/* Not part of the scheduled stream. */
static bool anytime(const struct mem_weights *m, uint32_t chunk)
{
    const struct ntx_chunk *c = &m->chunks->list[chunk];
    return c->fixed || c->expert || c->on_demand || (m->table && m->table[chunk].placement != NTX_PLACE_STORAGE);
}

/* A device has it: no pass acquires it. */
static bool elsewhere(const struct mem_weights *m, uint32_t chunk)
{
    bool freqs = m->chunks->rope_freqs.tensor != NTX_NO_TENSOR && chunk == m->chunks->rope_freqs.chunk0;
    return m->table && !freqs && (m->chunks->list[chunk].fixed || m->table[chunk].placement == NTX_PLACE_DEVICE);
}

static bool stays(struct ntx_weights *w, uint32_t chunk)
{
    const struct mem_weights *m = of(w);
    return m->stay_every && chunk % m->stay_every == 0 && !m->chunks->list[chunk].fixed;
}

static int begin(struct ntx_weights *w, uint64_t pass)
{
    struct mem_weights *m = of(w);
    CHECK(!m->open);
    if (m->fail_begin)
        return ntx_err_set(&w->error, -EIO, "no pass today");
    m->open = true;
    m->failed = false;
    m->pass = pass;
    m->begins++;
    m->first_open = m->n_acquired = m->n_skipped = m->n_drops = 0;
    memset(m->wanted, 0, sizeof m->wanted);
    for (uint32_t i = 0; i < m->chunks->n; i++)
        m->state[i] = elsewhere(m, i) ? MEM_RELEASED : MEM_IDLE;
    return 0;
}

static void advance(struct mem_weights *m)
{
    while (m->first_open < m->chunks->n && (m->state[m->first_open] >= MEM_RELEASED || free_order(m, m->first_open)))
        m->first_open++;
    pthread_cond_broadcast(&m->moved);
}

static uint32_t first_open_matrix(const struct mem_weights *m)
{
    uint32_t i = m->first_open;
    while (i < m->chunks->n && (anytime(m, i) || m->state[i] >= MEM_RELEASED))
        i++;
    return i;
}

static void wait_for_room(struct mem_weights *m, uint32_t chunk)
{
    unsigned waited_ms = 0;
    bool bound = m->window && !anytime(m, chunk);
    while (bound && !m->failed && m->rank[chunk] >= m->rank[first_open_matrix(m)] + m->window)
        CHECK_MSG(patient_wait(&m->moved, &m->lock, &waited_ms, DEADLINE_MS),
                  "chunk %u waits for chunk %u, which nobody gives back", chunk, m->first_open);
}

static int acquire(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    struct mem_weights *m = of(w);
    int rc = 0;
    pthread_mutex_lock(&m->lock);
    CHECK(m->open && chunk < m->chunks->n);
    CHECK(m->state[chunk] <= MEM_HELD || m->chunks->list[chunk].fixed ||
          stays(w, chunk)); /* a resident chunk may be taken again */
    wait_for_room(m, chunk);
    if (chunk == m->fail_chunk && !m->failed) {
        m->failed = true;
        ntx_err_set(&w->error, -EIO, "chunk %u cannot be read", chunk);
        pthread_cond_broadcast(&m->moved);
    }
    if (m->failed) {
        rc = -EIO;
    } else if (m->state[chunk] != MEM_HELD) {
        const struct ntx_chunk *c = &m->chunks->list[chunk];
        CHECK(c->offset + c->bytes <= m->file_bytes[c->file]);
        if (!m->copy[chunk]) {
            m->copy[chunk] = malloc(c->bytes + m->slack); /* exact: sanitizers see a read beyond the end */
            memcpy(m->copy[chunk], m->files[c->file] + c->offset, c->bytes);
        }
        m->state[chunk] = MEM_HELD;
        m->n_acquired++;
    }
    if (!rc)
        *bytes = m->copy[chunk];
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static void let_go(struct mem_weights *m, uint32_t chunk)
{
    if (stays(&m->w, chunk))
        return;
    memset(m->copy[chunk], 0xff, m->chunks->list[chunk].bytes); /* NaN in every type */
    free(m->copy[chunk]);
    m->copy[chunk] = NULL;
}

static void release(struct ntx_weights *w, uint32_t chunk)
{
    struct mem_weights *m = of(w);
    pthread_mutex_lock(&m->lock);
    CHECK(m->open && chunk < m->chunks->n && m->state[chunk] == MEM_HELD);
    let_go(m, chunk);
    m->state[chunk] = MEM_RELEASED;
    advance(m);
    pthread_mutex_unlock(&m->lock);
}

static void drop_layer(struct ntx_weights *w, uint32_t layer)
{
    struct mem_weights *m = of(w);
    CHECK(m->open);
    m->drop_at[m->n_drops] = m->n_acquired;
    m->drops[m->n_drops++] = layer;
}

static void skip(struct ntx_weights *w, uint32_t chunk)
{
    struct mem_weights *m = of(w);
    bool announced = false;
    pthread_mutex_lock(&m->lock);
    CHECK(m->open && chunk < m->chunks->n);
    if (elsewhere(m, chunk)) {
        pthread_mutex_unlock(&m->lock);
        return;
    }
    advance(m);
    CHECK(m->state[chunk] == MEM_IDLE || m->chunks->list[chunk].fixed);
    CHECK(m->first_open == chunk || free_order(m, chunk) ||
          m->chunks->list[chunk].fixed); /* list order, and no earlier chunk is still held */
    for (unsigned i = 0; i < m->n_drops; i++)
        announced |= m->drops[i] == m->chunks->list[chunk].layer ||
                     (m->drops[i] == NTX_END_OF_LAST(m->chunks->n_layers) &&
                      m->chunks->list[chunk].layer + 1 == m->chunks->n_layers);
    CHECK(announced);
    m->state[chunk] = MEM_SKIPPED;
    m->n_skipped++;
    advance(m);
    pthread_mutex_unlock(&m->lock);
}

static void end(struct ntx_weights *w)
{
    struct mem_weights *m = of(w);
    CHECK(m->open);
    for (uint32_t i = 0; i < m->chunks->n; i++) {
        CHECK(m->failed || m->fail_rows || m->forgive || m->state[i] >= MEM_RELEASED || free_order(m, i));
        if (m->state[i] == MEM_HELD)
            let_go(m, i);
    }
    m->open = false;
    m->ends++;
}

static int entries(struct ntx_weights *w, uint32_t file, uint64_t offset, uint32_t entry_bytes, const int32_t *ids,
                   uint32_t n, void *out)
{
    struct mem_weights *m = of(w);
    CHECK(m->open);
    m->entry_reads++;
    if (m->fail_rows)
        return ntx_err_set(&w->error, -EIO, "an embedding's entry cannot be read");
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = offset + (uint64_t)ids[i] * entry_bytes;
        CHECK(at + entry_bytes <= m->file_bytes[file]);
        memcpy((char *)out + (size_t)i * entry_bytes, m->files[file] + at, entry_bytes);
    }
    return 0;
}

static void prefetch_experts(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    struct mem_weights *m = of(w);
    CHECK(m->open && m->chunks->layers[layer].expert[NTX_EXPERT_GATE].n_chunks);
    m->prefetch[layer] = 0;
    for (uint32_t i = 0; i < n; i++)
        m->prefetch[layer] |= (uint64_t)1 << experts[i];
    m->n_prefetched++;
}

static int want(struct ntx_weights *w, uint32_t layer, const uint32_t *experts, uint32_t n, bool must, uint8_t *late)
{
    struct mem_weights *m = of(w);
    (void)must;
    for (uint32_t i = 0; i < n; i++) {
        m->wanted[layer] |= (uint64_t)1 << experts[i];
        late[i] = m->late_of && experts[i] % m->late_of == 0;
    }
    return (int)n;
}

static bool there(struct ntx_weights *w, uint32_t chunk)
{
    const struct ntx_chunk *c = &of(w)->chunks->list[chunk];
    return c->expert ? !of(w)->late_of : c->fixed || (stays(w, chunk) && of(w)->copy[chunk]);
}

#define OPS                                                                                                            \
    .begin = begin, .acquire = acquire, .release = release, .drop_layer = drop_layer, .skip = skip, .end = end,        \
    .entries = entries, .stays = stays
static const struct ntx_weights_ops ops = {OPS}, prefetching = {OPS, .prefetch_experts = prefetch_experts, .want = want,
                                                                .there = there};
#undef OPS

void mem_weights_prefetch(struct mem_weights *m) { m->w.ops = &prefetching; }

void mem_weights_init(struct mem_weights *m, const int *fds, unsigned n_fds)
{
    *m = (struct mem_weights){.w.ops = &ops, .fail_chunk = UINT32_MAX};
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->moved, NULL);
    CHECK(n_fds <= 8);
    for (unsigned i = 0; i < n_fds; i++) {
        struct stat st;
        CHECK(!fstat(fds[i], &st));
        m->file_bytes[i] = (size_t)st.st_size;
        m->files[i] = malloc(m->file_bytes[i]);
        CHECK(pread(fds[i], m->files[i], m->file_bytes[i], 0) == st.st_size);
    }
}

void mem_weights_chunks(struct mem_weights *m, const struct ntx_chunks *c)
{
    m->chunks = c;
    m->state = calloc(c->n, sizeof *m->state);
    m->copy = calloc(c->n, sizeof *m->copy);
    m->rank = calloc(c->n + 1, sizeof *m->rank);
    for (uint32_t i = 0; i < c->n; i++)
        m->rank[i + 1] = m->rank[i] + !anytime(m, i);
}

void mem_weights_table(struct mem_weights *m, const struct ntx_plan_chunk *table)
{
    m->table = table;
    for (uint32_t i = 0; i < m->chunks->n; i++)
        m->rank[i + 1] = m->rank[i] + !anytime(m, i);
}

void mem_weights_done(struct mem_weights *m)
{
    CHECK(!m->open);
    CHECK_EQ(m->begins, m->ends);
    for (int i = 0; i < 8; i++)
        free(m->files[i]);
    free(m->state);
    m->stay_every = 0;
    for (uint32_t i = 0; m->copy && i < m->chunks->n; i++)
        if (m->copy[i])
            let_go(m, i);
    free(m->copy);
    free(m->rank);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->moved);
}
