/* SPDX-License-Identifier: Apache-2.0 */
/* kv_file.c: a turn is a layer of the pass. The thread is at most `ahead` turns before the layer that is computed; the
 * memory for turns is what `keep` leaves. Everything is counted in runs. Each run has a slot while it is in memory
 * (kv_slots.h), and one place in the file. A part's runs are consecutive there, so that a layer takes long reads, into
 * slots anywhere. A turn has room for all of its runs, also for a top-k, whose size is not known before. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "computed/state/kv_file_impl.h"

void *ntx_kv_file_at(const struct ntx_kv_file *f, uint32_t block, uint32_t part)
{
    const struct ntx__kv_run r = ntx__kv_file_run_at(f, block, part);
    return *ntx__kv_file_state_of(f, r) & NTX__KV_IN ? ntx__kv_file_memory_of(f, r) : NULL;
}

/* ---- life */

static uint32_t size_for(struct ntx__kv_size *size, uint32_t *n, uint64_t bytes)
{
    uint32_t i = 0;
    while (i < *n && size[i].bytes != bytes)
        i++;
    if (i == *n)
        size[(*n)++] = (struct ntx__kv_size){.bytes = bytes};
    return i;
}

/* Sets each part's place in the file, and the size of its slots. */
static int place_parts(struct ntx_kv_file *f, uint32_t *n_runs)
{
    struct ntx__kv_size *size = calloc(f->l.n_parts + 1, sizeof *size);
    uint64_t at = 0;
    uint32_t n_sizes = 0;
    if (!size || !f->place)
        return free(size), -ENOMEM;
    *n_runs = 0;
    for (uint32_t p = 0; p < f->l.n_parts; p++) {
        const uint32_t n = f->n_clusters * (f->l.cluster / ntx__kv_file_run_blocks(&f->l, p));
        f->place[p] = (struct place){.at = at, .bytes = ntx__kv_file_run_bytes(&f->l, p), .first = *n_runs};
        if (!f->place[p].bytes)
            continue;
        f->place[p].size = size_for(size, &n_sizes, f->place[p].bytes);
        size[f->place[p].size].n += n;
        at += n * f->place[p].bytes;
        *n_runs += n;
    }
    int rc = ntx__kv_slots_new(size, n_sizes, f->most, &f->slots);
    free(size);
    return rc;
}

static int copy_layout(struct ntx_kv_file *f, const struct ntx_kv_layout *l)
{
    struct ntx_kv_part *part = calloc(l->n_parts, sizeof *part);
    uint16_t(*reads)[NTX_KV_READS] = calloc(l->n_layers, sizeof *reads);
    uint32_t n_runs;
    f->l = *l;
    f->l.part = part;
    f->l.reads = (const uint16_t(*)[NTX_KV_READS])reads;
    if (!part || !reads)
        return -ENOMEM;
    memcpy(part, l->part, l->n_parts * sizeof *part);
    memcpy(reads, l->reads, l->n_layers * sizeof *reads);
    f->n_clusters = ntx__kv_file_clusters(l, l->n_blocks);
    f->place = calloc(l->n_parts, sizeof *f->place);
    int rc = place_parts(f, &n_runs);
    if (rc)
        return rc;
    f->wanted = calloc(l->n_blocks, sizeof *f->wanted);
    f->state = calloc(n_runs + 1, 1);
    f->slot = calloc(n_runs + 1, sizeof *f->slot);
    f->age = malloc(f->n_clusters * sizeof *f->age);
    f->writes = calloc(f->n_clusters, sizeof *f->writes);
    f->joins = calloc(f->n_clusters, sizeof *f->joins);
    f->lost = calloc(f->n_clusters, sizeof *f->lost);
    f->list = malloc(f->n_clusters * sizeof *f->list);
    f->in_file = malloc(f->n_clusters * sizeof *f->in_file);
    f->pending = calloc(l->n_layers + 1, sizeof *f->pending);
    if (!f->state || !f->slot || !f->age || !f->writes || !f->joins || !f->lost || !f->list || !f->in_file ||
        !f->pending || !f->wanted)
        return -ENOMEM;
    memset(f->age, 0xff, f->n_clusters * sizeof *f->age);
    for (uint32_t layer = 0; layer < l->n_layers; layer++)
        for (uint32_t i = 0; i < NTX_KV_READS; i++)
            if (reads[layer][i] != NTX_KV_NO_PART)
                f->place[reads[layer][i]].last = layer;
    return 0;
}

int ntx_kv_file_new(int fd, const struct ntx_kv_layout *l, uint64_t most, struct ntx_drive drive,
                    struct ntx_kv_file **out, struct ntx_err *err)
{
    struct ntx_kv_file *f = calloc(1, sizeof *f);
    if (!f) {
        close(fd);
        return ntx_err_set(err, -ENOMEM, "no memory");
    }
    f->fd = fd;
    f->most = most;
    f->paused = true;
    for (uint32_t i = 0; i < NTX__KV_TOUCHED; i++)
        f->touched[i].block = NTX__KV_NOBODY;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    int rc = copy_layout(f, l);
    if (!rc && !(rc = ntx__kv_io_new(fd, drive, &f->io))) {
        f->started = true; /* before the thread starts */
        rc = -pthread_create(&f->thread, NULL, ntx__kv_file_work, f);
        if (rc)
            f->started = false;
    }
    if (rc) {
        ntx_kv_file_free(f);
        return ntx_err_set(err, rc, "--kv-ram: the file of K and V cannot be used: %s", strerror(-rc));
    }
    *out = f;
    return 0;
}

void ntx_kv_file_free(struct ntx_kv_file *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stop = f->paused = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (f->started)
        pthread_join(f->thread, NULL);
    ntx__kv_io_free(f->io);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    close(f->fd);
    free((void *)f->l.part);
    free((void *)f->l.reads);
    ntx__kv_slots_free(f->slots);
    free(f->place);
    free(f->slot);
    free(f->state);
    free(f->age);
    free(f->writes);
    free(f->joins);
    free(f->lost);
    free(f->list);
    free(f->in_file);
    free(f->wanted);
    free(f->pending);
    free(f);
}

/* ---- a pass */

/* Runs whose read failed are not in memory, and were not written to. */
static void drop_failed_runs(struct ntx_kv_file *f)
{
    struct ntx__kv_moved m = {0};
    struct ntx__kv_run r;
    uint32_t to;
    for (uint32_t p = 0; p < f->l.n_parts && f->n_bad; p++)
        for (uint32_t c = 0; c < f->n_clusters; c++)
            for (ntx__kv_file_runs_of(f, c, p, &r, &to); r.i < to; r.i++)
                if (*ntx__kv_file_state_of(f, r) & NTX__KV_BAD) {
                    ntx__kv_file_give_up(f, r, &m);
                    *ntx__kv_file_state_of(f, r) &= (uint8_t) ~(NTX__KV_BAD | NTX__KV_CHANGED);
                }
    f->n_bad = 0;
    ntx__kv_file_count(f, &m);
}

/* Stops the thread, and waits until nothing is under way. */
static void pause_thread(struct ntx_kv_file *f)
{
    f->paused = true;
    while (f->busy || f->now.n || ntx__kv_file_flying(f))
        pthread_cond_wait(&f->changed, &f->lock);
    drop_failed_runs(f);
}

static void resume_thread(struct ntx_kv_file *f)
{
    f->asked = f->loaded = f->dropped = f->done = f->cursor = 0;
    f->paused = false;
    pthread_cond_broadcast(&f->changed);
}

void ntx_kv_file_add(struct ntx_kv_file *f, const uint32_t *blocks, uint32_t n, uint32_t joined, uint32_t written)
{
    pthread_mutex_lock(&f->lock);
    if (!f->paused) {
        pause_thread(f);
        for (uint32_t i = 0; i < f->n_clusters; i++) {
            f->age[i] = NTX__KV_FAR;
            f->writes[i] = f->joins[i] = false;
        }
    }
    pthread_mutex_unlock(&f->lock);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t cluster = blocks[i] / f->l.cluster;
        f->writes[cluster] |= i >= written;
        f->joins[cluster] |= i >= joined;
        f->age[cluster] = f->writes[cluster] ? 0 : NTX_MIN(f->age[cluster], n - i);
    }
}

static int by_age(const void *a, const void *b, void *ctx)
{
    const uint32_t *age = ctx, x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (age[x] != age[y])
        return age[x] < age[y] ? -1 : 1;
    return (x > y) - (x < y);
}

/* Drops what other passes left, if this one needs the room; and its own runs that will not stay and are read late. */
static int drop_others(struct ntx_kv_file *f, struct ntx__kv_moved *m)
{
    const uint64_t wants = ntx__kv_file_all_parts(&f->l) * f->n_list;
    const bool room = f->stats.held_bytes + wants <= f->most;
    int rc = 0;
    for (uint32_t c = 0; c < f->n_clusters && !room; c++)
        for (uint32_t p = 0; p < f->l.n_parts && f->age[c] == NTX__KV_FAR && !rc; p++)
            rc = ntx__kv_file_drop_part(f, c, p, m);
    for (uint32_t i = f->keep; i < f->n_list; i++)
        for (uint32_t p = 0; p < f->l.n_parts && !rc; p++)
            if (f->place[p].last >= f->ahead)
                rc = ntx__kv_file_drop_part(f, f->list[i], p, m);
    for (uint32_t i = 0; i < NTX__KV_TOUCHED; i++)
        f->touched[i].block = NTX__KV_NOBODY;
    return rc;
}

/* Marks the runs that the pass writes, and sets f->early if layers must wait for them. If not, runs without memory get
 * it now. */
static int note_written(struct ntx_kv_file *f, struct ntx__kv_moved *m)
{
    struct ntx__kv_run r;
    uint32_t n = 0, to;
    int rc = 0;
    f->early = false;
    for (; n < f->n_list && f->writes[f->list[n]]; n++)
        for (uint32_t p = 0; p < f->l.n_parts; p++)
            for (ntx__kv_file_runs_of(f, f->list[n], p, &r, &to); r.i < to; r.i++) {
                f->early |= *ntx__kv_file_state_of(f, r) & NTX__KV_STORED &&
                            !(*ntx__kv_file_state_of(f, r) & NTX__KV_IN);
                *ntx__kv_file_state_of(f, r) |= NTX__KV_CHANGED;
            }
    f->early |= n > f->keep;
    for (uint32_t i = 0; i < n && !f->early; i++)
        for (uint32_t p = 0; p < f->l.n_parts; p++)
            for (ntx__kv_file_runs_of(f, f->list[i], p, &r, &to); r.i < to && !rc; r.i++)
                rc = *ntx__kv_file_state_of(f, r) & NTX__KV_IN ? 0 : ntx__kv_file_bring(f, r, m);
    return rc;
}

void ntx_kv_file_begin(struct ntx_kv_file *f, uint32_t attends, bool chooses)
{
    struct ntx__kv_moved m = {0};
    pthread_mutex_lock(&f->lock);
    pause_thread(f);
    f->n_list = 0;
    for (uint32_t c = 0; c < f->n_clusters; c++)
        if (f->age[c] != NTX__KV_FAR)
            f->list[f->n_list] = f->in_file[f->n_list] = c, f->n_list++;
    qsort_r(f->list, f->n_list, sizeof *f->list, by_age, f->age);
    f->chooses = chooses;
    f->attends = attends;
    f->ahead = ntx__kv_file_turns(&f->l, f->n_list, f->most, &f->keep);
    f->error = drop_others(f, &m);
    const int rc = note_written(f, &m);
    f->error = f->error ? f->error : rc;
    ntx__kv_file_count(f, &m);
    resume_thread(f);
    pthread_mutex_unlock(&f->lock);
}

int ntx_kv_file_starts(struct ntx_kv_file *f, uint32_t layer) { return f->early ? ntx_kv_file_wants(f, layer) : 0; }

int ntx_kv_file_wants(struct ntx_kv_file *f, uint32_t layer)
{
    pthread_mutex_lock(&f->lock);
    uint64_t t0 = f->loaded <= layer ? ntx_now_ns() : 0;
    while (f->loaded <= layer && !f->error)
        pthread_cond_wait(&f->changed, &f->lock);
    f->stats.waited_ns += t0 ? ntx_now_ns() - t0 : 0;
    int rc = f->error;
    pthread_mutex_unlock(&f->lock);
    return rc;
}

bool ntx_kv_file_has_topk(const struct ntx_kv_file *f) { return f->chooses; }

void ntx_kv_file_set_topk(struct ntx_kv_file *f, uint32_t block, uint32_t part)
{
    const struct ntx__kv_run r = ntx__kv_file_run_at(f, block, part);
    if (*ntx__kv_file_state_of(f, r) & (NTX__KV_IN | NTX__KV_WANTED))
        return;
    *ntx__kv_file_state_of(f, r) |= NTX__KV_WANTED;
    f->wanted_part = part;
    f->wanted[f->n_wanted++] = r.i;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int ntx_kv_file_topk(struct ntx_kv_file *f)
{
    if (!f->n_wanted)
        return 0;
    qsort(f->wanted, f->n_wanted, sizeof *f->wanted, by_number);
    pthread_mutex_lock(&f->lock);
    uint64_t t0 = ntx_now_ns();
    f->next_wanted = 0;
    f->fetching = true;
    pthread_cond_broadcast(&f->changed);
    while (f->fetching && (!f->error || f->busy))
        pthread_cond_wait(&f->changed, &f->lock);
    f->fetching = false;
    for (uint32_t i = 0; i < f->n_wanted; i++)
        *ntx__kv_file_state_of(f, (struct ntx__kv_run){f->wanted_part, f->wanted[i]}) &= (uint8_t)~NTX__KV_WANTED;
    f->n_wanted = 0;
    f->stats.waited_ns += ntx_now_ns() - t0;
    int rc = f->error;
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void ntx_kv_file_done(struct ntx_kv_file *f, uint32_t layer)
{
    pthread_mutex_lock(&f->lock);
    f->done = NTX_MAX(f->done, layer + 1);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* A failed pass may have had fewer turns. Its error does not carry over to the next one. */
void ntx_kv_file_end(struct ntx_kv_file *f)
{
    struct ntx__kv_moved m = {0};
    pthread_mutex_lock(&f->lock);
    pause_thread(f);
    f->error = 0;
    for (uint32_t l = f->dropped; l < f->l.n_layers && !f->error; l++)
        f->error = ntx__kv_file_drop_turn(f, l, &m);
    ntx__kv_file_count(f, &m);
    resume_thread(f);
    pthread_mutex_unlock(&f->lock);
}

/* ---- outside passes */

/* Whether it was touched before; then it is now the last one touched. */
static bool was_touched(struct ntx_kv_file *f, uint32_t block, const uint32_t part[2])
{
    for (uint32_t i = 0; i < NTX__KV_TOUCHED; i++) {
        const struct touched *g = &f->touched[i];
        if (g->block == NTX__KV_NOBODY || memcmp(g->part, part, sizeof g->part) ||
            ntx__kv_file_run_at(f, g->block, *part).i != ntx__kv_file_run_at(f, block, *part).i)
            continue;
        f->next_touched = (i + 1) % NTX__KV_TOUCHED;
        return true;
    }
    return false;
}

/* Neighbouring top-k runs of K may share a run of keys. */
static bool another_has(const struct ntx_kv_file *f, const struct touched *but, struct ntx__kv_run r)
{
    for (uint32_t i = 0; i < NTX__KV_TOUCHED; i++)
        for (uint32_t k = 0; k < 2; k++) {
            const struct touched *g = &f->touched[i];
            if (g != but && g->block != NTX__KV_NOBODY && g->part[k] == r.part &&
                ntx__kv_file_run_at(f, g->block, r.part).i == r.i)
                return true;
        }
    return false;
}

static int replace_touched(struct ntx_kv_file *f, uint32_t block, const uint32_t part[2], struct ntx__kv_moved *m)
{
    struct touched *g = &f->touched[f->next_touched];
    int rc = 0;
    for (uint32_t i = 0; i < 2 && g->block != NTX__KV_NOBODY && !rc; i++) {
        if (g->part[i] == NTX_KV_NO_PART)
            continue;
        const struct ntx__kv_run r = ntx__kv_file_run_at(f, g->block, g->part[i]);
        rc = another_has(f, g, r) ? 0 : ntx__kv_file_drop(f, r, m);
    }
    if (rc)
        return rc;
    *g = (struct touched){block, {part[0], part[1]}};
    f->next_touched = (f->next_touched + 1) % NTX__KV_TOUCHED;
    return 0;
}

int ntx_kv_file_touch(struct ntx_kv_file *f, uint32_t block, uint32_t part, uint32_t other, bool written)
{
    const uint32_t both[2] = {part, other}, n = other == NTX_KV_NO_PART ? 1 : 2;
    struct ntx__kv_moved m = {0};
    bool in = true;
    pthread_mutex_lock(&f->lock);
    const bool paused = f->paused;
    pause_thread(f);
    for (uint32_t i = 0; i < n; i++)
        in = in && *ntx__kv_file_state_of(f, ntx__kv_file_run_at(f, block, both[i])) & NTX__KV_IN;
    int rc = was_touched(f, block, both) || in ? 0 : replace_touched(f, block, both, &m);
    for (uint32_t i = 0; i < n && !rc; i++)
        if (!(rc = ntx__kv_file_load_run(f, ntx__kv_file_run_at(f, block, both[i]), &m)) && written)
            *ntx__kv_file_state_of(f, ntx__kv_file_run_at(f, block, both[i])) |= NTX__KV_CHANGED;
    ntx__kv_file_count(f, &m);
    f->paused = paused;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void ntx_kv_file_forget(struct ntx_kv_file *f, uint32_t block)
{
    const uint32_t cluster = block / f->l.cluster;
    struct ntx__kv_run r;
    uint32_t to;
    pthread_mutex_lock(&f->lock);
    const bool paused = f->paused;
    pause_thread(f);
    for (uint32_t p = 0; p < f->l.n_parts; p++)
        for (ntx__kv_file_runs_of(f, cluster, p, &r, &to); r.i < to; r.i++)
            *ntx__kv_file_state_of(f, r) &= NTX__KV_IN;
    f->lost[cluster] = false;
    f->paused = paused;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

bool ntx_kv_file_lost(struct ntx_kv_file *f, uint32_t block)
{
    pthread_mutex_lock(&f->lock);
    bool lost = f->lost[block / f->l.cluster];
    pthread_mutex_unlock(&f->lock);
    return lost;
}

struct ntx_kv_file_stats ntx_kv_file_stats(struct ntx_kv_file *f)
{
    pthread_mutex_lock(&f->lock);
    struct ntx_kv_file_stats s = f->stats;
    pthread_mutex_unlock(&f->lock);
    return s;
}
