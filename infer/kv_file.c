/* kv_file.c: a turn is a layer of the pass. The thread is at most `ahead` turns before the one that is computed; what it holds for turns is what `keep` leaves of
 * the memory. All of it is counted by runs. Runs at whose ends a page is shared with a neighbour leave that in memory (heads of very few values only). Runs that are
 * neighbours, and alike, are read, written and dropped together: a stretch, within a cluster.
 * A turn is given room for all of it, also where a pass chooses: how much that will be nobody knows before. */
#include "infer/kv_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
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
enum { IN = 1, CHANGED = 2, STORED = 4, WANTED = 8 }; /* of a run: in memory; as the file does not have it; the file has had it; it was chosen, and is not asked for yet */

struct stretch { uint32_t first, n, part; }; /* blocks; n 0: none */

struct ntx_kv_file {
    int fd;
    uint8_t *base;
    struct ntx_kv_layout l; /* its arrays are ours */
    uint64_t most;
    uint32_t n_clusters;
    uint32_t *last;         /* [n_parts] the last layer that reads it */
    uint8_t *state;         /* [n_blocks x n_parts], of runs by their first block */
    uint32_t *age;          /* [n_clusters] blocks behind the youngest of a sequence; FAR: not in this pass */
    bool *writes;           /* [n_clusters] the pass writes there */
    bool *lost;             /* [n_clusters] could not be read; under the lock */
    uint32_t *list, n_list; /* clusters of the pass, the youngest first */
    uint32_t keep;          /* of them, those that stay */
    bool early;             /* what is written to must be read, or dropped, as its layer's turn comes */
    struct guest { uint32_t block, part[2]; } guest[GUESTS];
    uint32_t next_guest;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ntx__kv_io *io;  /* the thread's */
    uint32_t *pending;      /* [n_layers + 1] reads under way for the turn, and for what was chosen, the thread's */
    uint32_t cursor;        /* in the turn that is asked for: clusters x parts x blocks */
    struct stretch now;     /* is being asked for, */
    uint32_t for_turn, piece; /* of which so many pieces are */
    bool chooses;           /* the pass */
    uint32_t *wanted, n_wanted, next_wanted, wanted_part; /* [n_blocks] runs that were chosen; the engine's until it waits for them */
    bool fetching;          /* it waits */
    bool serving;           /* the thread's: likewise, as its step began; and the turns that it may ask for before this one */
    uint32_t until;
    uint32_t ahead, asked, loaded, done, dropped; /* turns: dropped <= done, loaded <= asked <= done + ahead */
    bool started, paused, busy, stop;
    int error;
    struct ntx_kv_file_stats stats;
};

/* ---- bytes */

static uint32_t run_blocks(const struct ntx_kv_layout *l, uint32_t part) { return l->part[part].run ? l->part[part].run : l->cluster; }

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

/* A guest is one run, or one of each of the two parts that a layer's K and keys are. */
static uint64_t guests_bytes(const struct ntx_kv_layout *l)
{
    uint64_t most = 0, chosen = 0;
    for (uint32_t i = 0; i < l->n_parts; i++) {
        const uint64_t run = (uint64_t)l->part[i].row * run_blocks(l, i);
        most = l->part[i].chosen ? most : NTX_MAX(most, run);
        chosen = l->part[i].chosen ? NTX_MAX(chosen, run) : chosen;
    }
    return GUESTS * (most + chosen);
}

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

/* Of runs, those that have one of so many places at least. */
static double share_chosen(uint32_t n_blocks, uint32_t run, double places)
{
    const double runs = (double)((n_blocks + run - 1) / run);
    return runs > 1 ? 1 - pow(1 - 1 / runs, places) : 1;
}

uint64_t ntx_kv_file_reads(const struct ntx_kv_layout *l, uint32_t n_blocks, uint64_t most, uint32_t rows)
{
    uint32_t n = (n_blocks + l->cluster - 1) / l->cluster, keep;
    double of_block = 0;
    turns(l, n, most, &keep);
    for (uint32_t i = 0; i < l->n_parts; i++)
        of_block += (double)l->part[i].row * (rows && l->part[i].chosen ? share_chosen(n_blocks, run_blocks(l, i), (double)rows * l->choices) : 1);
    return (uint64_t)((double)(n - keep) * l->cluster * of_block);
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

static uint32_t run_of(const struct ntx_kv_file *f, uint32_t part) { return run_blocks(&f->l, part); }
static uint8_t *state_of(const struct ntx_kv_file *f, uint32_t block, uint32_t part) { return &f->state[(size_t)NTX_ROUND_DOWN(block, run_of(f, part)) * f->l.n_parts + part]; }
static uint32_t cluster_of(const struct ntx_kv_file *f, uint32_t block) { return block / f->l.cluster; }
static uint32_t cluster_end(const struct ntx_kv_file *f, uint32_t cluster) { return NTX_MIN(f->l.n_blocks, (cluster + 1) * f->l.cluster); }

/* From that run on, within its cluster: those that have the same of `bits`. */
static struct stretch alike(const struct ntx_kv_file *f, uint32_t block, uint32_t part, uint8_t bits)
{
    const uint32_t run = run_of(f, part), first = NTX_ROUND_DOWN(block, run), end = cluster_end(f, cluster_of(f, block));
    const uint8_t has = *state_of(f, first, part) & bits;
    uint32_t to = first + run;
    while (to < end && (*state_of(f, to, part) & bits) == has)
        to += run;
    return (struct stretch){first, NTX_MIN(to, end) - first, part};
}

static uint64_t bytes_of(const struct ntx_kv_file *f, struct stretch s) { return (uint64_t)s.n * f->l.part[s.part].row; }

/* Its whole pages: from there, so many bytes. */
static uint64_t pages_of(const struct ntx_kv_file *f, struct stretch s, uint64_t *bytes)
{
    const uint32_t first = cluster_of(f, s.first) * f->l.cluster, n = cluster_end(f, cluster_of(f, s.first)) - first;
    const struct ntx_kv_part *p = &f->l.part[s.part];
    const uint64_t page = ntx_page_bytes();
    uint64_t at = first * f->l.block_bytes + (uint64_t)n * p->before + (uint64_t)(s.first - first) * p->row, from = NTX_ROUND_UP(at, page), end = NTX_ROUND_DOWN(at + bytes_of(f, s), page);
    *bytes = end > from ? end - from : 0;
    return from;
}

static void mark(struct ntx_kv_file *f, struct stretch s, uint8_t clear, uint8_t set)
{
    for (uint32_t b = s.first; b < s.first + s.n; b += run_of(f, s.part))
        *state_of(f, b, s.part) = (uint8_t)((*state_of(f, b, s.part) & ~clear) | set);
}

/* What a turn did. */
struct moved { uint64_t taken, read, written, dropped; uint32_t lost; /* a cluster and one; 0: none */ };

static int store(struct ntx_kv_file *f, struct stretch s, struct moved *m)
{
    uint64_t bytes, at = pages_of(f, s, &bytes);
    int rc = ntx__kv_io_now(f->fd, true, at, bytes, f->base + at);
    if (rc)
        return rc;
    m->written += bytes;
    mark(f, s, CHANGED, STORED);
    return 0;
}

/* What cannot be written stays. */
static int drop(struct ntx_kv_file *f, struct stretch s, struct moved *m)
{
    uint64_t bytes, at = pages_of(f, s, &bytes);
    int rc = *state_of(f, s.first, s.part) & CHANGED ? store(f, s, m) : 0;
    if (rc)
        return rc;
    if (bytes && madvise(f->base + at, bytes, MADV_DONTNEED))
        return -errno;
    mark(f, s, IN, 0);
    m->dropped += bytes_of(f, s);
    return 0;
}

/* What a cluster has of a part. */
static int drop_part(struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct moved *m)
{
    int rc = 0;
    for (uint32_t b = cluster * f->l.cluster; b < cluster_end(f, cluster) && !rc;) {
        const struct stretch s = alike(f, b, part, IN | CHANGED);
        rc = *state_of(f, b, part) & IN ? drop(f, s, m) : 0;
        b = s.first + s.n;
    }
    return rc;
}

static struct stretch run_at(const struct ntx_kv_file *f, uint32_t block, uint32_t part)
{
    const uint32_t first = NTX_ROUND_DOWN(block, run_of(f, part));
    return (struct stretch){first, NTX_MIN(f->l.n_blocks - first, run_of(f, part)), part};
}

static int drop_run(struct ntx_kv_file *f, uint32_t block, uint32_t part, struct moved *m)
{
    return *state_of(f, block, part) & IN ? drop(f, run_at(f, block, part), m) : 0;
}

static int load_run(struct ntx_kv_file *f, uint32_t block, uint32_t part, struct moved *m)
{
    const struct stretch s = run_at(f, block, part);
    uint8_t *state = state_of(f, block, part);
    uint64_t bytes, at = pages_of(f, s, &bytes);
    int rc = *state & IN || !(*state & STORED) || !bytes ? 0 : ntx__kv_io_now(f->fd, false, at, bytes, f->base + at);
    if (rc) {
        m->lost = cluster_of(f, block) + 1;
        return rc;
    }
    if (*state & IN)
        return 0;
    m->taken += bytes_of(f, s);
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

/* turn: 11 bits, part: 13, blocks less one: 8, the first: 32 */
static uint64_t tag_of(uint32_t turn, struct stretch s) { return turn | (uint64_t)s.part << 11 | (uint64_t)(s.n - 1) << 24 | (uint64_t)s.first << 32; }
static struct stretch stretch_of(uint64_t tag) { return (struct stretch){(uint32_t)(tag >> 32), (uint32_t)(tag >> 24 & 0xff) + 1, (uint32_t)(tag >> 11 & 0x1fff)}; }

/* Runs that are not in memory. Nobody looks before their reads have come. */
static void begin_stretch(struct ntx_kv_file *f, struct stretch s, uint32_t turn, struct moved *m)
{
    uint64_t bytes;
    (void)pages_of(f, s, &bytes);
    f->now = s;
    f->for_turn = turn;
    mark(f, s, WANTED, IN);
    m->taken += bytes_of(f, s);
    m->read += *state_of(f, s.first, s.part) & STORED ? bytes : 0;
}

/* false: no more reads may be under way. */
static bool ask_pieces(struct ntx_kv_file *f)
{
    uint64_t bytes, at = pages_of(f, f->now, &bytes);
    for (uint64_t i; *state_of(f, f->now.first, f->now.part) & STORED && (i = f->piece * NTX__KV_IO_PIECE) < bytes; f->piece++) {
        if (!ntx__kv_io_room(f->io))
            return false;
        ntx__kv_io_read(f->io, at + i, (uint32_t)NTX_MIN(NTX__KV_IO_PIECE, bytes - i), f->base + at + i, tag_of(f->for_turn, f->now));
        f->pending[f->for_turn]++;
    }
    f->now.n = f->piece = 0;
    return true;
}

/* The next of what was chosen. */
static bool begin_wanted(struct ntx_kv_file *f, struct moved *m)
{
    while (f->serving && f->next_wanted < f->n_wanted) {
        const uint32_t block = f->wanted[f->next_wanted++], state = *state_of(f, block, f->wanted_part);
        if (state & WANTED) {
            begin_stretch(f, alike(f, block, f->wanted_part, IN | WANTED | STORED), f->l.n_layers, m);
            return true;
        }
    }
    return false;
}

/* The next of the turn's runs that are not in memory, the oldest clusters first. false: there is none. */
static bool begin_next(struct ntx_kv_file *f, struct moved *m)
{
    const uint32_t cluster = f->l.cluster, all = f->n_list * NTX_KV_READS * cluster;
    while (f->cursor < all) {
        const uint32_t c = f->list[f->n_list - 1 - f->cursor / cluster / NTX_KV_READS], part = part_of(&f->l, f->asked, f->cursor / cluster % NTX_KV_READS), block = c * cluster + f->cursor % cluster;
        if (part == NTX_KV_NO_PART || block >= cluster_end(f, c) || (f->chooses && f->l.part[part].chosen && !f->writes[c])) {
            f->cursor = NTX_ROUND_DOWN(f->cursor, cluster) + cluster;
            continue;
        }
        const struct stretch s = alike(f, block, part, IN | STORED);
        f->cursor += s.n;
        if (*state_of(f, block, part) & IN)
            continue;
        begin_stretch(f, s, f->asked, m);
        return true;
    }
    return false;
}

/* As many reads as may be under way: what is chosen before what is ahead. Ends with the turn: true. */
static bool ask(struct ntx_kv_file *f, struct moved *m)
{
    for (;;) {
        if (f->now.n && !ask_pieces(f))
            return false;
        if (begin_wanted(f, m))
            continue;
        if (f->asked >= f->until)
            return false;
        if (!begin_next(f, m)) {
            f->cursor = 0;
            return true;
        }
    }
}

/* Runs of which a read failed are not there, and nothing was written to them. */
static int await_read(struct ntx_kv_file *f, struct moved *m)
{
    uint64_t tag;
    int rc = ntx__kv_io_wait(f->io, &tag);
    const struct stretch s = stretch_of(tag);
    f->pending[tag & 0x7ff]--;
    if (rc && *state_of(f, s.first, s.part) & IN) {
        mark(f, s, IN | CHANGED, 0);
        m->dropped += bytes_of(f, s);
    }
    if (rc)
        m->lost = cluster_of(f, s.first) + 1;
    return rc;
}

static int drop_turn(struct ntx_kv_file *f, uint32_t layer, struct moved *m)
{
    int rc = 0;
    for (uint32_t i = f->keep; i < f->n_list; i++)
        for (uint32_t k = 0; k < NTX_KV_READS; k++) {
            const uint32_t part = part_of(&f->l, layer, k);
            int failed = part == NTX_KV_NO_PART || f->last[part] != layer ? 0 : drop_part(f, f->list[i], part, m);
            rc = rc ? rc : failed;
        }
    return rc;
}

static bool may_drop(const struct ntx_kv_file *f) { return !f->paused && f->dropped < f->done; }

static uint32_t until(const struct ntx_kv_file *f) { return f->paused || f->error ? 0 : NTX_MIN(f->l.n_layers, f->done + f->ahead); }
static bool serves(const struct ntx_kv_file *f) { return f->fetching && !f->error && f->next_wanted < f->n_wanted; }

/* A stretch that was begun is gone through with. */
static bool may_ask(const struct ntx_kv_file *f) { return f->io && ntx__kv_io_room(f->io) && (f->now.n || serves(f) || f->asked < until(f)); }

static void step(struct ntx_kv_file *f)
{
    const bool drops = may_drop(f), asks = !drops && may_ask(f);
    struct moved m = {0};
    bool whole = false;
    int rc = 0;
    f->busy = true;
    f->serving = serves(f);
    f->until = until(f);
    pthread_mutex_unlock(&f->lock);
    if (drops)
        rc = drop_turn(f, f->dropped, &m);
    else if (asks)
        whole = ask(f, &m);
    else
        rc = await_read(f, &m);
    pthread_mutex_lock(&f->lock);
    f->busy = false;
    f->dropped += drops;
    f->asked += whole;
    f->error = f->error ? f->error : rc;
    while (f->loaded < f->asked && !f->pending[f->loaded])
        f->loaded++;
    f->fetching = f->fetching && (f->next_wanted < f->n_wanted || f->pending[f->l.n_layers] || (f->now.n && f->for_turn == f->l.n_layers));
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
    f->wanted = calloc(l->n_blocks, sizeof *f->wanted);
    f->last = calloc(l->n_parts, sizeof *f->last);
    f->state = calloc((size_t)l->n_blocks * l->n_parts, 1);
    f->age = malloc(f->n_clusters * sizeof *f->age);
    f->writes = calloc(f->n_clusters, sizeof *f->writes);
    f->lost = calloc(f->n_clusters, sizeof *f->lost);
    f->list = malloc(f->n_clusters * sizeof *f->list);
    f->pending = calloc(l->n_layers + 1, sizeof *f->pending);
    if (!part || !reads || !f->last || !f->state || !f->age || !f->writes || !f->lost || !f->list || !f->pending || !f->wanted)
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
        f->guest[i].block = NOBODY;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    int rc = copy_layout(f, l);
    (void)madvise(base, NTX_ROUND_UP(l->n_blocks * l->block_bytes, ntx_page_bytes()), MADV_NOHUGEPAGE); /* a run that came would bring its neighbours' memory */
    if (!rc && !(rc = ntx__kv_io_new(fd, &f->io))) {
        f->started = true; /* before anybody else looks */
        rc = -pthread_create(&f->thread, NULL, work, f);
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
    free(f->last);
    free(f->state);
    free(f->age);
    free(f->writes);
    free(f->lost);
    free(f->list);
    free(f->wanted);
    free(f->pending);
    free(f);
}

/* ---- a pass */

/* The thread stands still until it is told to go on, and nothing is under way. */
static void pause_thread(struct ntx_kv_file *f)
{
    f->paused = true;
    while (f->busy || f->now.n || flying(f))
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
            rc = drop_part(f, c, p, m);
    for (uint32_t i = f->keep; i < f->n_list; i++)
        for (uint32_t p = 0; p < f->l.n_parts && !rc; p++)
            if (f->last[p] >= f->ahead)
                rc = drop_part(f, f->list[i], p, m);
    for (uint32_t i = 0; i < GUESTS; i++)
        f->guest[i].block = NOBODY;
    return rc;
}

/* Where the pass writes, and whether its layers must wait for that. */
static void note_written(struct ntx_kv_file *f)
{
    uint32_t n = 0;
    f->early = false;
    for (uint32_t i = 0; i < f->n_list && f->writes[f->list[i]]; i++, n++)
        for (uint32_t p = 0; p < f->l.n_parts; p++)
            for (uint32_t b = f->list[i] * f->l.cluster; b < cluster_end(f, f->list[i]); b += run_of(f, p)) {
                uint8_t *state = state_of(f, b, p);
                f->early |= *state & STORED && !(*state & IN);
                *state |= CHANGED;
            }
    f->early |= n > f->keep;
}

void ntx_kv_file_begin(struct ntx_kv_file *f, bool chooses)
{
    struct moved m = {0};
    pthread_mutex_lock(&f->lock);
    pause_thread(f);
    f->n_list = 0;
    for (uint32_t c = 0; c < f->n_clusters; c++)
        if (f->age[c] != FAR)
            f->list[f->n_list++] = c;
    qsort_r(f->list, f->n_list, sizeof *f->list, by_age, f->age);
    f->chooses = chooses;
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

bool ntx_kv_file_chooses(const struct ntx_kv_file *f) { return f->chooses; }

void ntx_kv_file_choose(struct ntx_kv_file *f, uint32_t block, uint32_t part)
{
    uint8_t *state = state_of(f, block, part);
    if (*state & (IN | WANTED))
        return;
    *state |= WANTED;
    f->wanted_part = part;
    f->wanted[f->n_wanted++] = NTX_ROUND_DOWN(block, run_of(f, part));
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int ntx_kv_file_chosen(struct ntx_kv_file *f)
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
        *state_of(f, f->wanted[i], f->wanted_part) &= (uint8_t)~WANTED;
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

static int be_guest(struct ntx_kv_file *f, uint32_t block, const uint32_t part[2], struct moved *m)
{
    struct guest *g = &f->guest[f->next_guest];
    int rc = 0;
    for (uint32_t i = 0; i < GUESTS; i++)
        if (f->guest[i].block != NOBODY && !memcmp(f->guest[i].part, part, sizeof g->part) && NTX_ROUND_DOWN(f->guest[i].block, run_of(f, *part)) == NTX_ROUND_DOWN(block, run_of(f, *part)))
            return 0;
    for (uint32_t i = 0; i < 2 && g->block != NOBODY && !rc; i++)
        rc = g->part[i] == NTX_KV_NO_PART ? 0 : drop_run(f, g->block, g->part[i], m);
    if (rc)
        return rc;
    *g = (struct guest){block, {part[0], part[1]}};
    f->next_guest = (f->next_guest + 1) % GUESTS;
    return 0;
}

int ntx_kv_file_touch(struct ntx_kv_file *f, uint32_t block, uint32_t part, uint32_t other, bool written)
{
    const uint32_t both[2] = {part, other}, n = other == NTX_KV_NO_PART ? 1 : 2;
    struct moved m = {0};
    bool in = true;
    pthread_mutex_lock(&f->lock);
    const bool paused = f->paused;
    pause_thread(f);
    for (uint32_t i = 0; i < n; i++)
        in = in && *state_of(f, block, both[i]) & IN;
    int rc = in ? 0 : be_guest(f, block, both, &m);
    for (uint32_t i = 0; i < n && !rc; i++)
        if (!(rc = load_run(f, block, both[i], &m)) && written)
            *state_of(f, block, both[i]) |= CHANGED;
    count(f, &m);
    f->paused = paused;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void ntx_kv_file_forget(struct ntx_kv_file *f, uint32_t block)
{
    const uint32_t cluster = cluster_of(f, block);
    pthread_mutex_lock(&f->lock);
    const bool paused = f->paused;
    pause_thread(f);
    for (uint32_t p = 0; p < f->l.n_parts; p++)
        for (uint32_t b = cluster * f->l.cluster; b < cluster_end(f, cluster); b += run_of(f, p))
            *state_of(f, b, p) &= IN;
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
