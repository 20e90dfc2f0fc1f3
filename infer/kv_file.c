/* kv_file.c: a turn is a layer of the pass. The thread is at most `ahead` turns before the one that is computed; what it holds for turns is what `keep` leaves of
 * the memory. All of it is counted by runs. Runs at whose ends a page is shared with a neighbour leave that in memory (heads of very few values only). */
#include "infer/kv_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "common/util.h"
#include "infer/kv_io.h"

#define FS_TMPFS 0x01021994

enum { AHEAD = 3, LEAST_AHEAD = 2, FAR = UINT32_MAX, GUESTS = 2, NOBODY = UINT32_MAX };
enum { IN = 1, CHANGED = 2, STORED = 4 }; /* of a run: in memory; as the file does not have it; the file has had it */

struct ntx_kv_file {
    int fd;
    uint8_t *base;
    struct ntx_kv_layout l; /* its arrays are ours */
    uint64_t most;
    uint32_t n_clusters;
    uint32_t *last;         /* [n_parts] the last layer that reads it */
    uint8_t *state;         /* [n_clusters x n_parts] */
    uint32_t *age;          /* [n_clusters] blocks behind the youngest of a sequence; FAR: not in this pass */
    bool *writes;           /* [n_clusters] the pass writes there */
    bool *lost;             /* [n_clusters] could not be read; under the lock */
    uint32_t *list, n_list; /* clusters of the pass, the youngest first */
    uint32_t keep;          /* of them, those that stay */
    bool early;             /* what is written to must be read, or dropped, as its layer's turn comes */
    struct guest { uint32_t cluster, part; } guest[GUESTS];
    uint32_t next_guest;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ntx__kv_io *io;  /* the thread's */
    uint32_t *pending;      /* [n_layers] reads under way for the turn, the thread's */
    uint32_t cursor, piece; /* in the turn that is asked for: of its runs, of the run's pieces */
    uint32_t ahead, asked, loaded, done, dropped; /* turns: dropped <= done, loaded <= asked <= done + ahead */
    bool started, paused, busy, stop;
    int error;
    struct ntx_kv_file_stats stats;
};

/* ---- bytes */

static uint64_t largest_part(const struct ntx_kv_layout *l)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < l->n_parts; i++)
        most = NTX_MAX(most, (uint64_t)l->part[i].row);
    return most;
}

static uint64_t all_parts(const struct ntx_kv_layout *l)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n_parts; i++)
        n += l->part[i].row;
    return n;
}

static uint16_t part_of(const struct ntx_kv_layout *l, uint32_t layer, uint32_t i) { return l->reads[layer][i]; }

/* Of a block. */
static uint64_t largest_turn(const struct ntx_kv_layout *l)
{
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < l->n_layers; layer++) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < NTX_KV_READS; i++)
            n += part_of(l, layer, i) == NTX_KV_NO_PART ? 0 : l->part[part_of(l, layer, i)].row;
        most = NTX_MAX(most, n);
    }
    return most;
}

/* Parts that several layers read stay from the first of them to the last: of a block, so much. */
static uint64_t shared_parts(const struct ntx_kv_layout *l)
{
    uint64_t n = 0;
    for (uint32_t p = 0; p < l->n_parts; p++) {
        uint32_t readers = 0;
        for (uint32_t layer = 0; layer < l->n_layers; layer++)
            for (uint32_t i = 0; i < NTX_KV_READS; i++)
                readers += part_of(l, layer, i) == p;
        n += readers > 1 ? l->part[p].row : 0;
    }
    return n;
}

static uint64_t guests_bytes(const struct ntx_kv_layout *l) { return GUESTS * largest_part(l) * l->cluster; }

uint64_t ntx_kv_file_least(const struct ntx_kv_layout *l)
{
    return (LEAST_AHEAD * largest_turn(l) + shared_parts(l)) * NTX_ROUND_UP(l->n_blocks, l->cluster) + l->cluster * all_parts(l) + guests_bytes(l);
}

/* Turns that are held, and clusters that stay, where a pass has so many clusters. */
static uint32_t turns(const struct ntx_kv_layout *l, uint32_t n_clusters, uint64_t most, uint32_t *keep)
{
    uint64_t blocks = (uint64_t)l->cluster * n_clusters, turn = largest_turn(l) * blocks, cluster = all_parts(l) * l->cluster, other = shared_parts(l) * blocks + guests_bytes(l);
    if (cluster * n_clusters + guests_bytes(l) <= most) {
        *keep = n_clusters;
        return l->n_layers;
    }
    uint32_t ahead = AHEAD * turn + other + cluster <= most ? AHEAD : LEAST_AHEAD;
    *keep = ahead * turn + other < most ? (uint32_t)((most - ahead * turn - other) / cluster) : 0;
    return ahead;
}

uint64_t ntx_kv_file_reads(const struct ntx_kv_layout *l, uint32_t n_blocks, uint64_t most)
{
    uint32_t n = (n_blocks + l->cluster - 1) / l->cluster, keep;
    turns(l, n, most, &keep);
    return (uint64_t)(n - keep) * l->cluster * all_parts(l);
}

/* ---- the file */

int ntx_kv_file_open(const char *dir, uint64_t bytes, struct ntx_err *err)
{
    struct statfs fs;
    (void)mkdir(dir, 0700); /* open() says what is wrong */
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL)
        fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return ntx_err_set(err, -errno, "--kv-ram: no file for K and V can be made in %s: %s", dir, strerror(errno));
    if (!fstatfs(fd, &fs) && fs.f_type == FS_TMPFS) {
        close(fd);
        return ntx_err_set(err, -EINVAL, "--kv-ram: %s lies in memory itself (tmpfs): --state needs a directory on a drive", dir);
    }
    int rc = posix_fallocate(fd, 0, (off_t)NTX_ROUND_UP(bytes, ntx_page_bytes()));
    if (rc) {
        char size[32];
        close(fd);
        return ntx_err_set(err, -rc, "--kv-ram: K and V need %s in %s: %s; make room, or use a smaller --ctx", ntx_format_size(bytes, size, sizeof size), dir, strerror(rc));
    }
    return fd;
}

/* ---- runs */

static uint8_t *state_of(const struct ntx_kv_file *f, uint32_t cluster, uint32_t part) { return &f->state[(size_t)cluster * f->l.n_parts + part]; }

static uint64_t run_bytes(const struct ntx_kv_file *f, uint32_t cluster, uint32_t part)
{
    return (uint64_t)NTX_MIN(f->l.n_blocks - cluster * f->l.cluster, f->l.cluster) * f->l.part[part].row;
}

/* The whole pages of a run: from there, so many bytes. */
static uint64_t pages_of(const struct ntx_kv_file *f, uint32_t cluster, uint32_t part, uint64_t *bytes)
{
    uint32_t first = cluster * f->l.cluster, n = NTX_MIN(f->l.n_blocks - first, f->l.cluster);
    const uint64_t page = ntx_page_bytes();
    uint64_t at = first * f->l.block_bytes + (uint64_t)n * f->l.part[part].before, from = NTX_ROUND_UP(at, page), end = NTX_ROUND_DOWN(at + (uint64_t)n * f->l.part[part].row, page);
    *bytes = end > from ? end - from : 0;
    return from;
}

/* What a turn did. */
struct moved { uint64_t taken, read, written, dropped; uint32_t lost; /* a cluster and one; 0: none */ };

static int store_run(struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct moved *m)
{
    uint8_t *state = state_of(f, cluster, part);
    uint64_t bytes, at = pages_of(f, cluster, part, &bytes);
    int rc = *state & CHANGED ? ntx__kv_io_now(f->fd, true, at, bytes, f->base + at) : 0;
    if (rc || !(*state & CHANGED))
        return rc;
    m->written += bytes;
    *state = (uint8_t)((*state & ~CHANGED) | STORED);
    return 0;
}

/* What cannot be written stays. */
static int drop_run(struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct moved *m)
{
    uint64_t bytes, at = pages_of(f, cluster, part, &bytes);
    int rc = *state_of(f, cluster, part) & IN ? store_run(f, cluster, part, m) : 0;
    if (rc || !(*state_of(f, cluster, part) & IN))
        return rc;
    if (bytes && madvise(f->base + at, bytes, MADV_DONTNEED))
        return -errno;
    *state_of(f, cluster, part) &= (uint8_t)~IN;
    m->dropped += run_bytes(f, cluster, part);
    return 0;
}

static int load_run(struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct moved *m)
{
    uint8_t *state = state_of(f, cluster, part);
    uint64_t bytes, at = pages_of(f, cluster, part, &bytes);
    int rc = *state & IN || !(*state & STORED) || !bytes ? 0 : ntx__kv_io_now(f->fd, false, at, bytes, f->base + at);
    if (rc) {
        m->lost = cluster + 1;
        return rc;
    }
    if (*state & IN)
        return 0;
    m->taken += run_bytes(f, cluster, part);
    m->read += *state & STORED ? bytes : 0;
    *state |= IN;
    return 0;
}

static void count(struct ntx_kv_file *f, const struct moved *m)
{
    f->stats.read_bytes += m->read;
    f->stats.written_bytes += m->written;
    f->stats.held_bytes += m->taken - m->dropped;
    f->stats.held_most = NTX_MAX(f->stats.held_most, f->stats.held_bytes);
    if (m->lost)
        f->lost[m->lost - 1] = true;
}

/* ---- turns, done by the thread without the lock: meanwhile nobody else changes the list, or what is in memory */

static uint64_t tag_of(uint32_t layer, uint32_t cluster, uint32_t part) { return layer | part << 16 | (uint64_t)cluster << 32; }

/* As many reads as may be under way, of the turn's runs that are not in memory, the oldest clusters first. Ends with the turn, or with a run begun. */
static bool ask_turn(struct ntx_kv_file *f, struct moved *m)
{
    const uint32_t layer = f->asked;
    for (; f->cursor < f->n_list * NTX_KV_READS; f->cursor++, f->piece = 0) {
        const uint32_t cluster = f->list[f->n_list - 1 - f->cursor / NTX_KV_READS], part = part_of(&f->l, layer, f->cursor % NTX_KV_READS);
        uint8_t *state = part == NTX_KV_NO_PART ? NULL : state_of(f, cluster, part);
        uint64_t bytes, at = state ? pages_of(f, cluster, part, &bytes) : 0;
        if (!state || (*state & IN && !f->piece))
            continue;
        if (!ntx__kv_io_room(f->io))
            return false;
        if (!f->piece) {
            *state |= IN; /* nobody looks before its reads have come */
            m->taken += run_bytes(f, cluster, part);
            m->read += *state & STORED ? bytes : 0;
        }
        for (uint64_t i; *state & STORED && (i = f->piece * NTX__KV_IO_PIECE) < bytes; f->piece++) {
            if (!ntx__kv_io_room(f->io))
                return false;
            ntx__kv_io_read(f->io, at + i, (uint32_t)NTX_MIN(NTX__KV_IO_PIECE, bytes - i), f->base + at + i, tag_of(layer, cluster, part));
            f->pending[layer]++;
        }
    }
    f->cursor = 0;
    return true;
}

/* A run of which a read failed is not there, and nothing was written to it. */
static int await_read(struct ntx_kv_file *f, struct moved *m)
{
    uint64_t tag;
    int rc = ntx__kv_io_wait(f->io, &tag);
    const uint32_t cluster = (uint32_t)(tag >> 32), part = (uint32_t)(tag >> 16) & 0xffff;
    uint8_t *state = state_of(f, cluster, part);
    f->pending[tag & 0xffff]--;
    if (rc)
        m->lost = cluster + 1;
    if (rc && *state & IN) {
        *state &= (uint8_t) ~(IN | CHANGED);
        m->dropped += run_bytes(f, cluster, part);
    }
    return rc;
}

static int drop_turn(struct ntx_kv_file *f, uint32_t layer, struct moved *m)
{
    int rc = 0;
    for (uint32_t i = f->keep; i < f->n_list; i++)
        for (uint32_t k = 0; k < NTX_KV_READS; k++) {
            const uint32_t part = part_of(&f->l, layer, k);
            int failed = part == NTX_KV_NO_PART || f->last[part] != layer ? 0 : drop_run(f, f->list[i], part, m);
            rc = rc ? rc : failed;
        }
    return rc;
}

static bool may_drop(const struct ntx_kv_file *f) { return !f->paused && f->dropped < f->done; }

/* A run that was begun is gone through with. */
static bool may_ask(const struct ntx_kv_file *f)
{
    return f->io && ntx__kv_io_room(f->io) && (f->piece || (!f->paused && !f->error && f->asked < NTX_MIN(f->l.n_layers, f->done + f->ahead)));
}

static void step(struct ntx_kv_file *f)
{
    const bool drops = may_drop(f), asks = !drops && may_ask(f);
    struct moved m = {0};
    bool whole = false;
    int rc = 0;
    f->busy = true;
    pthread_mutex_unlock(&f->lock);
    if (drops)
        rc = drop_turn(f, f->dropped, &m);
    else if (asks)
        whole = ask_turn(f, &m);
    else
        rc = await_read(f, &m);
    pthread_mutex_lock(&f->lock);
    f->busy = false;
    f->dropped += drops;
    f->asked += whole;
    f->error = f->error ? f->error : rc;
    while (f->loaded < f->asked && !f->pending[f->loaded])
        f->loaded++;
    count(f, &m);
    pthread_cond_broadcast(&f->changed);
}

static bool flying(const struct ntx_kv_file *f) { return f->io && ntx__kv_io_flying(f->io); }

static void *work(void *arg)
{
    struct ntx_kv_file *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop || flying(f))
        if (may_drop(f) || may_ask(f) || flying(f))
            step(f);
        else
            pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- its life */

static int copy_layout(struct ntx_kv_file *f, const struct ntx_kv_layout *l)
{
    struct ntx_kv_part *part = calloc(l->n_parts, sizeof *part);
    uint16_t(*reads)[NTX_KV_READS] = calloc(l->n_layers, sizeof *reads);
    f->l = *l;
    f->l.part = part;
    f->l.reads = (const uint16_t(*)[NTX_KV_READS])reads;
    f->n_clusters = (l->n_blocks + l->cluster - 1) / l->cluster;
    f->last = calloc(l->n_parts, sizeof *f->last);
    f->state = calloc((size_t)f->n_clusters * l->n_parts, 1);
    f->age = malloc(f->n_clusters * sizeof *f->age);
    f->writes = calloc(f->n_clusters, sizeof *f->writes);
    f->lost = calloc(f->n_clusters, sizeof *f->lost);
    f->list = malloc(f->n_clusters * sizeof *f->list);
    f->pending = calloc(l->n_layers, sizeof *f->pending);
    if (!part || !reads || !f->last || !f->state || !f->age || !f->writes || !f->lost || !f->list || !f->pending)
        return -ENOMEM;
    memcpy(part, l->part, l->n_parts * sizeof *part);
    memcpy(reads, l->reads, l->n_layers * sizeof *reads);
    memset(f->age, 0xff, f->n_clusters * sizeof *f->age);
    for (uint32_t layer = 0; layer < l->n_layers; layer++)
        for (uint32_t i = 0; i < NTX_KV_READS; i++)
            if (reads[layer][i] != NTX_KV_NO_PART)
                f->last[reads[layer][i]] = layer;
    return 0;
}

int ntx_kv_file_new(int fd, void *base, const struct ntx_kv_layout *l, uint64_t most, struct ntx_kv_file **out, struct ntx_err *err)
{
    struct ntx_kv_file *f = calloc(1, sizeof *f);
    if (!f) {
        close(fd);
        return ntx_err_set(err, -ENOMEM, "no memory");
    }
    f->fd = fd;
    f->base = base;
    f->most = most;
    f->paused = true;
    for (uint32_t i = 0; i < GUESTS; i++)
        f->guest[i].cluster = NOBODY;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    int rc = copy_layout(f, l);
    (void)madvise(base, NTX_ROUND_UP(l->n_blocks * l->block_bytes, ntx_page_bytes()), MADV_NOHUGEPAGE); /* a run that came would bring its neighbours' memory */
    if (!rc && !(rc = ntx__kv_io_new(fd, &f->io)))
        rc = -pthread_create(&f->thread, NULL, work, f);
    f->started = !rc;
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
    free(f->last);
    free(f->state);
    free(f->age);
    free(f->writes);
    free(f->lost);
    free(f->list);
    free(f->pending);
    free(f);
}

/* ---- a pass */

/* The thread stands still until it is told to go on, and nothing is under way. */
static void pause_thread(struct ntx_kv_file *f)
{
    f->paused = true;
    while (f->busy || f->piece || flying(f))
        pthread_cond_wait(&f->changed, &f->lock);
}

static void go_on(struct ntx_kv_file *f)
{
    f->asked = f->loaded = f->dropped = f->done = f->cursor = 0;
    f->paused = false;
    pthread_cond_broadcast(&f->changed);
}

void ntx_kv_file_add(struct ntx_kv_file *f, const uint32_t *blocks, uint32_t n, uint32_t written)
{
    pthread_mutex_lock(&f->lock);
    if (!f->paused) {
        pause_thread(f);
        for (uint32_t i = 0; i < f->n_clusters; i++) {
            f->age[i] = FAR;
            f->writes[i] = false;
        }
    }
    pthread_mutex_unlock(&f->lock);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t cluster = blocks[i] / f->l.cluster;
        f->writes[cluster] |= i >= written;
        f->age[cluster] = f->writes[cluster] ? 0 : NTX_MIN(f->age[cluster], n - i);
    }
}

static int by_age(const void *a, const void *b, void *ctx)
{
    const uint32_t *age = ctx, x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return age[x] != age[y] ? (age[x] < age[y] ? -1 : 1) : (x > y) - (x < y);
}

/* What other passes left, where this one wants the room; and of its own, what will not stay and comes late. */
static int drop_others(struct ntx_kv_file *f, struct moved *m)
{
    const uint64_t wants = all_parts(&f->l) * f->l.cluster * f->n_list;
    const bool room = f->stats.held_bytes + wants <= f->most;
    int rc = 0;
    for (uint32_t c = 0; c < f->n_clusters && !room; c++)
        for (uint32_t p = 0; p < f->l.n_parts && f->age[c] == FAR && !rc; p++)
            rc = drop_run(f, c, p, m);
    for (uint32_t i = f->keep; i < f->n_list; i++)
        for (uint32_t p = 0; p < f->l.n_parts && !rc; p++)
            if (f->last[p] >= f->ahead)
                rc = drop_run(f, f->list[i], p, m);
    for (uint32_t i = 0; i < GUESTS; i++)
        f->guest[i].cluster = NOBODY;
    return rc;
}

/* Where the pass writes, and whether its layers must wait for that. */
static void note_written(struct ntx_kv_file *f)
{
    uint32_t n = 0;
    f->early = false;
    for (uint32_t i = 0; i < f->n_list && f->writes[f->list[i]]; i++, n++)
        for (uint32_t p = 0; p < f->l.n_parts; p++) {
            uint8_t *state = state_of(f, f->list[i], p);
            f->early |= *state & STORED && !(*state & IN);
            *state |= CHANGED;
        }
    f->early |= n > f->keep;
}

void ntx_kv_file_begin(struct ntx_kv_file *f)
{
    struct moved m = {0};
    pthread_mutex_lock(&f->lock);
    pause_thread(f);
    f->n_list = 0;
    for (uint32_t c = 0; c < f->n_clusters; c++)
        if (f->age[c] != FAR)
            f->list[f->n_list++] = c;
    qsort_r(f->list, f->n_list, sizeof *f->list, by_age, f->age);
    f->ahead = turns(&f->l, f->n_list, f->most, &f->keep);
    f->error = drop_others(f, &m);
    count(f, &m);
    note_written(f);
    go_on(f);
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

void ntx_kv_file_done(struct ntx_kv_file *f, uint32_t layer)
{
    pthread_mutex_lock(&f->lock);
    f->done = NTX_MAX(f->done, layer + 1);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

/* A pass that failed has not had all its turns. What its error was, the next one need not have. */
void ntx_kv_file_end(struct ntx_kv_file *f)
{
    struct moved m = {0};
    pthread_mutex_lock(&f->lock);
    pause_thread(f);
    f->error = 0;
    for (uint32_t l = f->dropped; l < f->l.n_layers && !f->error; l++)
        f->error = drop_turn(f, l, &m);
    count(f, &m);
    go_on(f);
    pthread_mutex_unlock(&f->lock);
}

/* ---- beside passes */

static int be_guest(struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct moved *m)
{
    struct guest *g = &f->guest[f->next_guest];
    for (uint32_t i = 0; i < GUESTS; i++)
        if (f->guest[i].cluster == cluster && f->guest[i].part == part)
            return 0;
    int rc = g->cluster == NOBODY ? 0 : drop_run(f, g->cluster, g->part, m);
    if (rc)
        return rc;
    *g = (struct guest){cluster, part};
    f->next_guest = (f->next_guest + 1) % GUESTS;
    return 0;
}

int ntx_kv_file_touch(struct ntx_kv_file *f, uint32_t block, uint32_t part, bool written)
{
    const uint32_t cluster = block / f->l.cluster;
    struct moved m = {0};
    pthread_mutex_lock(&f->lock);
    const bool paused = f->paused;
    pause_thread(f);
    int rc = *state_of(f, cluster, part) & IN ? 0 : be_guest(f, cluster, part, &m);
    if (!rc && !(rc = load_run(f, cluster, part, &m)) && written)
        *state_of(f, cluster, part) |= CHANGED;
    count(f, &m);
    f->paused = paused;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void ntx_kv_file_forget(struct ntx_kv_file *f, uint32_t block)
{
    const uint32_t cluster = block / f->l.cluster;
    pthread_mutex_lock(&f->lock);
    const bool paused = f->paused;
    pause_thread(f);
    for (uint32_t p = 0; p < f->l.n_parts; p++)
        *state_of(f, cluster, p) &= IN;
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
