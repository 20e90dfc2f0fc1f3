/* kv_file.c: a turn is a layer of the pass. The thread is at most `ahead` turns before the one that is computed; what it holds for turns is what `keep` leaves of
 * the memory. All of it is counted by runs, each of which has a slot while it is in memory (kv_slots.h), and one place in the file: a part's runs lie there one after the other, so
 * that what a layer reads are long reads, into slots that lie anywhere.
 * A turn is given room for all of it, also where a pass chooses: how much that will be nobody knows before. */
#include "infer/kv_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "common/util.h"
#include "infer/kv_io.h"
#include "infer/kv_slots.h"

#define FS_TMPFS 0x01021994

enum { AHEAD = 3, LEAST_AHEAD = 2, FAR = UINT32_MAX, GUESTS = 2, NOBODY = UINT32_MAX };
/* Of a run: in memory, or on its way; as the file does not have it; the file has had it; it was chosen, and is not asked for yet; a read of it failed. */
enum { IN = 1, CHANGED = 2, STORED = 4, WANTED = 8, BAD = 16 };

struct run { uint32_t part, i; /* of the part's; NOBODY: none */ };

struct ntx_kv_file {
    int fd;
    struct ntx_kv_layout l; /* its arrays are ours */
    uint64_t most;
    uint32_t n_clusters;
    struct place {          /* [n_parts] */
        uint64_t at, bytes; /* in the file, and of a run there and in memory */
        uint32_t first, size; /* its first run's number among all; of slots */
        uint32_t last;      /* layer that reads it */
    } *place;
    uint8_t *state;         /* [all runs] */
    uint32_t *slot;         /* [all runs] of those that are IN */
    struct ntx__kv_slots *slots;
    uint32_t n_bad;
    uint32_t *age;          /* [n_clusters] blocks behind the youngest of a sequence; FAR: not in this pass */
    bool *writes;           /* [n_clusters] the pass writes there */
    bool *lost;             /* [n_clusters] could not be read; under the lock */
    uint32_t *list, n_list; /* clusters of the pass, the youngest first; */
    uint32_t *in_file;      /* and as they lie there: of several texts, too, neighbours are read together */
    uint32_t keep;          /* of them, those that stay */
    bool early;             /* what is written to must be read, or dropped, as its layer's turn comes */
    struct guest { uint32_t block, part[2]; } guest[GUESTS];
    uint32_t next_guest;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ntx__kv_io *io;  /* the thread's */
    uint32_t *pending;      /* [n_layers + 1] reads under way for the turn, and for what was chosen, the thread's */
    uint32_t cursor;        /* in the turn that is asked for: parts x clusters x blocks */
    struct batch {          /* runs that are neighbours in the file */
        struct run first;
        uint32_t n, turn;
        uint64_t asked;     /* bytes, where one run is several reads */
    } now;                  /* is being asked for; n 0: none */
    bool chooses;           /* the pass */
    uint32_t *wanted, n_wanted, next_wanted, wanted_part; /* [n_blocks] runs that were chosen; the engine's until it waits for them */
    bool fetching;          /* it waits */
    bool serving;           /* the thread's: likewise, as its step began; and the turns that it may ask for before this one */
    uint32_t until;
    uint32_t ahead, asked, loaded, done, dropped; /* turns: dropped <= done and loaded, loaded <= asked <= dropped + ahead */
    bool started, paused, busy, stop;
    int error;
    struct ntx_kv_file_stats stats;
};

/* ---- bytes: of a cluster, where nothing else is said */

static uint32_t run_blocks(const struct ntx_kv_layout *l, uint32_t part) { return l->part[part].run ? l->part[part].run : l->cluster; }
static uint64_t run_bytes(const struct ntx_kv_layout *l, uint32_t part) { return NTX_ROUND_UP((uint64_t)l->part[part].row * run_blocks(l, part), ntx_page_bytes()); }
static uint64_t part_bytes(const struct ntx_kv_layout *l, uint32_t part) { return l->cluster / run_blocks(l, part) * run_bytes(l, part); }
static uint32_t clusters(const struct ntx_kv_layout *l, uint32_t n_blocks) { return (n_blocks + l->cluster - 1) / l->cluster; }

static uint64_t all_parts(const struct ntx_kv_layout *l)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n_parts; i++)
        n += part_bytes(l, i);
    return n;
}

uint64_t ntx_kv_file_bytes(const struct ntx_kv_layout *l) { return all_parts(l) * clusters(l, l->n_blocks); }

static uint16_t part_of(const struct ntx_kv_layout *l, uint32_t layer, uint32_t i) { return l->reads[layer][i]; }

static uint64_t largest_turn(const struct ntx_kv_layout *l)
{
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < l->n_layers; layer++) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < NTX_KV_READS; i++)
            n += part_of(l, layer, i) == NTX_KV_NO_PART ? 0 : part_bytes(l, part_of(l, layer, i));
        most = NTX_MAX(most, n);
    }
    return most;
}

/* Parts that several layers read stay from the first of them to the last. */
static uint64_t shared_parts(const struct ntx_kv_layout *l)
{
    uint64_t n = 0;
    for (uint32_t p = 0; p < l->n_parts; p++) {
        uint32_t readers = 0;
        for (uint32_t layer = 0; layer < l->n_layers; layer++)
            for (uint32_t i = 0; i < NTX_KV_READS; i++)
                readers += part_of(l, layer, i) == p;
        n += readers > 1 ? part_bytes(l, p) : 0;
    }
    return n;
}

/* A guest is one run, or one of each of the two parts that a layer's K and keys are. */
static uint64_t guests_bytes(const struct ntx_kv_layout *l)
{
    uint64_t most = 0, chosen = 0;
    for (uint32_t i = 0; i < l->n_parts; i++) {
        most = l->part[i].chosen ? most : NTX_MAX(most, run_bytes(l, i));
        chosen = l->part[i].chosen ? NTX_MAX(chosen, run_bytes(l, i)) : chosen;
    }
    return GUESTS * (most + chosen);
}

uint64_t ntx_kv_file_least(const struct ntx_kv_layout *l) { return (LEAST_AHEAD * largest_turn(l) + shared_parts(l)) * clusters(l, l->n_blocks) + all_parts(l) + guests_bytes(l); }

/* Turns that are held, and clusters that stay, where a pass has so many clusters. */
static uint32_t turns(const struct ntx_kv_layout *l, uint32_t n_clusters, uint64_t most, uint32_t *keep)
{
    uint64_t turn = largest_turn(l) * n_clusters, cluster = all_parts(l), other = shared_parts(l) * n_clusters + guests_bytes(l);
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
    uint32_t n = clusters(l, n_blocks), keep;
    double of_cluster = 0;
    turns(l, n, most, &keep);
    for (uint32_t i = 0; i < l->n_parts; i++)
        of_cluster += (double)part_bytes(l, i) * (rows && l->part[i].chosen ? share_chosen(n_blocks, run_blocks(l, i), (double)rows * l->choices) : 1);
    return (uint64_t)((double)(n - keep) * of_cluster);
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

static struct run run_at(const struct ntx_kv_file *f, uint32_t block, uint32_t part) { return (struct run){part, block / run_blocks(&f->l, part)}; }
static uint8_t *state_of(const struct ntx_kv_file *f, struct run r) { return &f->state[f->place[r.part].first + r.i]; }
static uint32_t *slot_of(const struct ntx_kv_file *f, struct run r) { return &f->slot[f->place[r.part].first + r.i]; }
static uint64_t bytes_of(const struct ntx_kv_file *f, struct run r) { return f->place[r.part].bytes; }
static uint64_t place_of(const struct ntx_kv_file *f, struct run r) { return f->place[r.part].at + r.i * bytes_of(f, r); }
static uint8_t *memory_of(const struct ntx_kv_file *f, struct run r) { return ntx__kv_slots_at(f->slots, f->place[r.part].size, *slot_of(f, r)); }
static uint32_t cluster_of(const struct ntx_kv_file *f, struct run r) { return r.i * run_blocks(&f->l, r.part) / f->l.cluster; }

/* Of a cluster, those of a part: [from, to). */
static void runs_of(const struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct run *from, uint32_t *to)
{
    const uint32_t n = f->l.cluster / run_blocks(&f->l, part);
    *from = (struct run){part, cluster * n};
    *to = f->l.part[part].row ? from->i + n : from->i;
}

void *ntx_kv_file_at(const struct ntx_kv_file *f, uint32_t block, uint32_t part)
{
    const struct run r = run_at(f, block, part);
    return *state_of(f, r) & IN ? memory_of(f, r) : NULL;
}

/* What a turn did. */
struct moved { uint64_t taken, read, written, dropped; struct run lost; uint32_t n_lost; };

/* It has memory, with nothing in it where the file has nothing. The arithmetic above has room for it. */
static int bring(struct ntx_kv_file *f, struct run r, struct moved *m)
{
    uint8_t *state = state_of(f, r);
    const uint32_t slot = ntx__kv_slots_take(f->slots, f->place[r.part].size);
    if (slot == NTX__KV_NO_SLOT)
        return -ENOMEM;
    *slot_of(f, r) = slot;
    *state = (uint8_t)((*state & ~WANTED) | IN);
    m->taken += bytes_of(f, r);
    if (!(*state & STORED))
        memset(memory_of(f, r), 0, bytes_of(f, r)); /* places that nobody has written count nothing, be they what they may but no number */
    return 0;
}

static void give_up(struct ntx_kv_file *f, struct run r, struct moved *m)
{
    ntx__kv_slots_leave(f->slots, f->place[r.part].size, *slot_of(f, r));
    *state_of(f, r) &= (uint8_t)~IN;
    m->dropped += bytes_of(f, r);
}

/* What cannot be written stays. */
static int drop(struct ntx_kv_file *f, struct run r, struct moved *m)
{
    uint8_t *state = state_of(f, r);
    if (!(*state & IN))
        return 0;
    if (*state & CHANGED) {
        int rc = ntx__kv_io_now(f->fd, true, place_of(f, r), bytes_of(f, r), memory_of(f, r));
        if (rc)
            return rc;
        m->written += bytes_of(f, r);
        *state = (uint8_t)((*state & ~CHANGED) | STORED);
    }
    give_up(f, r, m);
    return 0;
}

/* What a cluster has of a part. */
static int drop_part(struct ntx_kv_file *f, uint32_t cluster, uint32_t part, struct moved *m)
{
    struct run r;
    uint32_t to;
    int rc = 0;
    for (runs_of(f, cluster, part, &r, &to); r.i < to && !rc; r.i++)
        rc = drop(f, r, m);
    return rc;
}

static int load_run(struct ntx_kv_file *f, struct run r, struct moved *m)
{
    const uint8_t state = *state_of(f, r);
    int rc = state & IN ? 0 : bring(f, r, m);
    if (rc || state & IN || !(state & STORED))
        return rc;
    if (!(rc = ntx__kv_io_now(f->fd, false, place_of(f, r), bytes_of(f, r), memory_of(f, r)))) {
        m->read += bytes_of(f, r);
        return 0;
    }
    give_up(f, r, m);
    m->lost = r;
    m->n_lost = 1;
    return rc;
}

static void count(struct ntx_kv_file *f, const struct moved *m)
{
    f->stats.read_bytes += m->read;
    f->stats.written_bytes += m->written;
    f->stats.held_bytes += m->taken - m->dropped;
    f->stats.held_most = NTX_MAX(f->stats.held_most, f->stats.held_bytes);
    for (uint32_t i = 0; i < m->n_lost; i++)
        f->lost[cluster_of(f, (struct run){m->lost.part, m->lost.i + i})] = true;
}

/* ---- turns, done by the thread without the lock: meanwhile nobody else changes the list, or what is in memory */

/* turn: 11 bits, part: 13, runs less one: 7, the first: 32 */
static uint64_t tag_of(const struct batch *b) { return b->turn | (uint64_t)b->first.part << 11 | (uint64_t)(b->n - 1) << 24 | (uint64_t)b->first.i << 32; }
static struct batch batch_of(uint64_t tag) { return (struct batch){.first = {(uint32_t)(tag >> 11 & 0x1fff), (uint32_t)(tag >> 32)}, .n = (uint32_t)(tag >> 24 & 0x7f) + 1, .turn = (uint32_t)(tag & 0x7ff)}; }

/* false: no more reads may be under way. */
static bool ask_batch(struct ntx_kv_file *f)
{
    struct batch *b = &f->now;
    struct iovec to[NTX__KV_IO_PARTS];
    while (b->n) {
        const uint64_t bytes = bytes_of(f, b->first), piece = NTX_MIN(bytes - b->asked, NTX__KV_IO_PIECE);
        if (!ntx__kv_io_room(f->io))
            return false;
        for (uint32_t i = 0; i < b->n; i++)
            to[i] = (struct iovec){memory_of(f, (struct run){b->first.part, b->first.i + i}) + b->asked, piece};
        ntx__kv_io_read(f->io, place_of(f, b->first) + b->asked, to, b->n, tag_of(b));
        f->pending[b->turn]++;
        if ((b->asked += piece) == bytes)
            b->n = 0;
    }
    return true;
}

/* Of what was chosen the next that is not in memory. */
static struct run next_chosen(struct ntx_kv_file *f)
{
    for (; f->next_wanted < f->n_wanted; f->next_wanted++) {
        const struct run r = {f->wanted_part, f->wanted[f->next_wanted]};
        if (!(*state_of(f, r) & IN))
            return r;
    }
    return (struct run){NOBODY, 0};
}

/* Of the turn, part by part. */
static struct run next_of_turn(struct ntx_kv_file *f)
{
    const uint32_t cluster = f->l.cluster, each = f->n_list * cluster;
    while (f->cursor < NTX_KV_READS * each) {
        const uint32_t part = part_of(&f->l, f->asked, f->cursor / each), c = f->in_file[f->cursor % each / cluster], block = c * cluster + f->cursor % cluster;
        if (part == NTX_KV_NO_PART) {
            f->cursor = NTX_ROUND_DOWN(f->cursor, each) + each;
            continue;
        }
        if (block >= f->l.n_blocks || (f->chooses && f->l.part[part].chosen && !f->writes[c])) {
            f->cursor = NTX_ROUND_DOWN(f->cursor, cluster) + cluster;
            continue;
        }
        const struct run r = run_at(f, block, part);
        if (!(*state_of(f, r) & IN))
            return r;
        f->cursor += run_blocks(&f->l, part);
    }
    return (struct run){NOBODY, 0};
}

static bool goes_on(const struct ntx_kv_file *f, const struct batch *b, struct run r, bool stored)
{
    return stored && r.part == b->first.part && r.i == b->first.i + b->n && b->n < NTX__KV_IO_PARTS && (b->n + 1) * bytes_of(f, r) <= NTX__KV_IO_PIECE;
}

/* What is next, and the neighbours that a read has room for. Nobody looks before it has come; what was never written is there at once. 1: it is to be asked for; 0: nothing is
 * left; or negative errno. */
static int begin_batch(struct ntx_kv_file *f, bool chosen, struct moved *m)
{
    struct batch b = {.turn = chosen ? f->l.n_layers : f->asked};
    struct run r;
    int rc = 0;
    while ((r = chosen ? next_chosen(f) : next_of_turn(f)).part != NOBODY) {
        const bool stored = *state_of(f, r) & STORED;
        if ((b.n && !goes_on(f, &b, r, stored)) || (rc = bring(f, r, m)))
            break;
        if (!stored)
            continue;
        b.first = b.n++ ? b.first : r;
        m->read += bytes_of(f, r);
    }
    f->now = b;
    return b.n ? 1 : rc;
}

/* As many reads as may be under way: what is chosen before what is ahead. Ends with the turn: *whole. */
static int ask(struct ntx_kv_file *f, bool *whole, struct moved *m)
{
    int rc;
    for (;;) {
        if (!ask_batch(f))
            return 0;
        if (f->serving && (rc = begin_batch(f, true, m))) {
            if (rc < 0)
                return rc;
            continue;
        }
        if (f->asked >= f->until)
            return 0;
        if ((rc = begin_batch(f, false, m)) <= 0) {
            f->cursor = 0;
            *whole = !rc;
            return rc;
        }
    }
}

/* Runs of which a read failed keep their memory until none is under way. */
static int await_read(struct ntx_kv_file *f, struct moved *m)
{
    uint64_t tag;
    int rc = ntx__kv_io_wait(f->io, &tag);
    const struct batch b = batch_of(tag);
    f->pending[b.turn]--;
    if (!rc)
        return 0;
    for (uint32_t i = 0; i < b.n; i++) {
        uint8_t *state = state_of(f, (struct run){b.first.part, b.first.i + i});
        f->n_bad += !(*state & BAD);
        *state |= BAD;
    }
    m->lost = b.first;
    m->n_lost = b.n;
    return rc;
}

static int drop_turn(struct ntx_kv_file *f, uint32_t layer, struct moved *m)
{
    int rc = 0;
    for (uint32_t i = f->keep; i < f->n_list; i++)
        for (uint32_t k = 0; k < NTX_KV_READS; k++) {
            const uint32_t part = part_of(&f->l, layer, k);
            int failed = part == NTX_KV_NO_PART || f->place[part].last != layer ? 0 : drop_part(f, f->list[i], part, m);
            rc = rc ? rc : failed;
        }
    return rc;
}

/* Nothing is on its way into what is dropped, also of a layer that did not wait for it. */
static bool may_drop(const struct ntx_kv_file *f) { return !f->paused && !f->error && f->dropped < NTX_MIN(f->done, f->loaded); }

static uint32_t until(const struct ntx_kv_file *f) { return f->paused || f->error ? 0 : NTX_MIN(f->l.n_layers, f->dropped + f->ahead); }
static bool serves(const struct ntx_kv_file *f) { return f->fetching && !f->error && f->next_wanted < f->n_wanted; }

/* A batch that was begun is gone through with. */
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
        rc = ask(f, &whole, &m);
    else
        rc = await_read(f, &m);
    pthread_mutex_lock(&f->lock);
    f->busy = false;
    f->dropped += drops;
    f->asked += whole;
    f->error = f->error ? f->error : rc;
    while (f->loaded < f->asked && !f->pending[f->loaded])
        f->loaded++;
    f->fetching = f->fetching && (f->next_wanted < f->n_wanted || f->pending[f->l.n_layers] || (f->now.n && f->now.turn == f->l.n_layers));
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

static uint32_t size_for(struct ntx__kv_size *size, uint32_t *n, uint64_t bytes)
{
    uint32_t i = 0;
    while (i < *n && size[i].bytes != bytes)
        i++;
    if (i == *n)
        size[(*n)++] = (struct ntx__kv_size){.bytes = bytes};
    return i;
}

/* Where each part lies in the file, and which slots it takes. */
static int place_parts(struct ntx_kv_file *f, uint32_t *n_runs)
{
    struct ntx__kv_size *size = calloc(f->l.n_parts + 1, sizeof *size);
    uint64_t at = 0;
    uint32_t n_sizes = 0;
    if (!size || !f->place)
        return free(size), -ENOMEM;
    *n_runs = 0;
    for (uint32_t p = 0; p < f->l.n_parts; p++) {
        const uint32_t n = f->n_clusters * (f->l.cluster / run_blocks(&f->l, p));
        f->place[p] = (struct place){.at = at, .bytes = run_bytes(&f->l, p), .first = *n_runs};
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
    f->n_clusters = clusters(l, l->n_blocks);
    f->place = calloc(l->n_parts, sizeof *f->place);
    int rc = place_parts(f, &n_runs);
    if (rc)
        return rc;
    f->wanted = calloc(l->n_blocks, sizeof *f->wanted);
    f->state = calloc(n_runs + 1, 1);
    f->slot = calloc(n_runs + 1, sizeof *f->slot);
    f->age = malloc(f->n_clusters * sizeof *f->age);
    f->writes = calloc(f->n_clusters, sizeof *f->writes);
    f->lost = calloc(f->n_clusters, sizeof *f->lost);
    f->list = malloc(f->n_clusters * sizeof *f->list);
    f->in_file = malloc(f->n_clusters * sizeof *f->in_file);
    f->pending = calloc(l->n_layers + 1, sizeof *f->pending);
    if (!f->state || !f->slot || !f->age || !f->writes || !f->lost || !f->list || !f->in_file || !f->pending || !f->wanted)
        return -ENOMEM;
    memset(f->age, 0xff, f->n_clusters * sizeof *f->age);
    for (uint32_t layer = 0; layer < l->n_layers; layer++)
        for (uint32_t i = 0; i < NTX_KV_READS; i++)
            if (reads[layer][i] != NTX_KV_NO_PART)
                f->place[reads[layer][i]].last = layer;
    return 0;
}

int ntx_kv_file_new(int fd, const struct ntx_kv_layout *l, uint64_t most, struct ntx_drive drive, struct ntx_kv_file **out, struct ntx_err *err)
{
    struct ntx_kv_file *f = calloc(1, sizeof *f);
    if (!f) {
        close(fd);
        return ntx_err_set(err, -ENOMEM, "no memory");
    }
    f->fd = fd;
    f->most = most;
    f->paused = true;
    for (uint32_t i = 0; i < GUESTS; i++)
        f->guest[i].block = NOBODY;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    int rc = copy_layout(f, l);
    if (!rc && !(rc = ntx__kv_io_new(fd, drive, &f->io))) {
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
    ntx__kv_slots_free(f->slots);
    free(f->place);
    free(f->slot);
    free(f->state);
    free(f->age);
    free(f->writes);
    free(f->lost);
    free(f->list);
    free(f->in_file);
    free(f->wanted);
    free(f->pending);
    free(f);
}

/* ---- a pass */

/* What could not be read is not there, and nothing was written to it. */
static void give_up_bad(struct ntx_kv_file *f)
{
    struct moved m = {0};
    struct run r;
    uint32_t to;
    for (uint32_t p = 0; p < f->l.n_parts && f->n_bad; p++)
        for (uint32_t c = 0; c < f->n_clusters; c++)
            for (runs_of(f, c, p, &r, &to); r.i < to; r.i++)
                if (*state_of(f, r) & BAD) {
                    give_up(f, r, &m);
                    *state_of(f, r) &= (uint8_t)~(BAD | CHANGED);
                }
    f->n_bad = 0;
    count(f, &m);
}

/* The thread stands still until it is told to go on, and nothing is under way. */
static void pause_thread(struct ntx_kv_file *f)
{
    f->paused = true;
    while (f->busy || f->now.n || flying(f))
        pthread_cond_wait(&f->changed, &f->lock);
    give_up_bad(f);
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
    const uint64_t wants = all_parts(&f->l) * f->n_list;
    const bool room = f->stats.held_bytes + wants <= f->most;
    int rc = 0;
    for (uint32_t c = 0; c < f->n_clusters && !room; c++)
        for (uint32_t p = 0; p < f->l.n_parts && f->age[c] == FAR && !rc; p++)
            rc = drop_part(f, c, p, m);
    for (uint32_t i = f->keep; i < f->n_list; i++)
        for (uint32_t p = 0; p < f->l.n_parts && !rc; p++)
            if (f->place[p].last >= f->ahead)
                rc = drop_part(f, f->list[i], p, m);
    for (uint32_t i = 0; i < GUESTS; i++)
        f->guest[i].block = NOBODY;
    return rc;
}

/* Where the pass writes, and whether its layers must wait for that. If not, what they write to for the first time has its memory now. */
static int note_written(struct ntx_kv_file *f, struct moved *m)
{
    struct run r;
    uint32_t n = 0, to;
    int rc = 0;
    f->early = false;
    for (; n < f->n_list && f->writes[f->list[n]]; n++)
        for (uint32_t p = 0; p < f->l.n_parts; p++)
            for (runs_of(f, f->list[n], p, &r, &to); r.i < to; r.i++) {
                f->early |= *state_of(f, r) & STORED && !(*state_of(f, r) & IN);
                *state_of(f, r) |= CHANGED;
            }
    f->early |= n > f->keep;
    for (uint32_t i = 0; i < n && !f->early; i++)
        for (uint32_t p = 0; p < f->l.n_parts; p++)
            for (runs_of(f, f->list[i], p, &r, &to); r.i < to && !rc; r.i++)
                rc = *state_of(f, r) & IN ? 0 : bring(f, r, m);
    return rc;
}

void ntx_kv_file_begin(struct ntx_kv_file *f, bool chooses)
{
    struct moved m = {0};
    pthread_mutex_lock(&f->lock);
    pause_thread(f);
    f->n_list = 0;
    for (uint32_t c = 0; c < f->n_clusters; c++)
        if (f->age[c] != FAR)
            f->list[f->n_list] = f->in_file[f->n_list] = c, f->n_list++;
    qsort_r(f->list, f->n_list, sizeof *f->list, by_age, f->age);
    f->chooses = chooses;
    f->ahead = turns(&f->l, f->n_list, f->most, &f->keep);
    f->error = drop_others(f, &m);
    const int rc = note_written(f, &m);
    f->error = f->error ? f->error : rc;
    count(f, &m);
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
    const struct run r = run_at(f, block, part);
    if (*state_of(f, r) & (IN | WANTED))
        return;
    *state_of(f, r) |= WANTED;
    f->wanted_part = part;
    f->wanted[f->n_wanted++] = r.i;
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
        *state_of(f, (struct run){f->wanted_part, f->wanted[i]}) &= (uint8_t)~WANTED;
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
        if (f->guest[i].block != NOBODY && !memcmp(f->guest[i].part, part, sizeof g->part) && run_at(f, f->guest[i].block, *part).i == run_at(f, block, *part).i)
            return 0;
    for (uint32_t i = 0; i < 2 && g->block != NOBODY && !rc; i++)
        rc = g->part[i] == NTX_KV_NO_PART ? 0 : drop(f, run_at(f, g->block, g->part[i]), m);
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
        in = in && *state_of(f, run_at(f, block, both[i])) & IN;
    int rc = in ? 0 : be_guest(f, block, both, &m);
    for (uint32_t i = 0; i < n && !rc; i++)
        if (!(rc = load_run(f, run_at(f, block, both[i]), &m)) && written)
            *state_of(f, run_at(f, block, both[i])) |= CHANGED;
    count(f, &m);
    f->paused = paused;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void ntx_kv_file_forget(struct ntx_kv_file *f, uint32_t block)
{
    const uint32_t cluster = block / f->l.cluster;
    struct run r;
    uint32_t to;
    pthread_mutex_lock(&f->lock);
    const bool paused = f->paused;
    pause_thread(f);
    for (uint32_t p = 0; p < f->l.n_parts; p++)
        for (runs_of(f, cluster, p, &r, &to); r.i < to; r.i++)
            *state_of(f, r) &= IN;
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
