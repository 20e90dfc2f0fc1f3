/* kv_file.c: a turn is a layer of the pass. The thread is at most `ahead` turns before the one that is computed; what it holds for turns is what `keep` leaves of
 * the memory. All of it is counted by runs. */
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

#define PAGE ((uint64_t)4096)
#define READ_BYTES ((uint64_t)512 << 10) /* of a request to read ahead: kernels take no more of one than the drive does of a transfer */
#define FS_TMPFS 0x01021994

enum { AHEAD = 3, LEAST_AHEAD = 2, FAR = UINT32_MAX };

struct ntx_kv_file {
    int fd;
    uint8_t *base;
    struct ntx_kv_layout l; /* its arrays are ours */
    uint64_t most;
    uint32_t n_clusters;
    bool *in;               /* [n_clusters x n_layers] */
    uint32_t *age;          /* [n_clusters] blocks behind the youngest of a sequence; FAR: not in this pass */
    uint32_t *list, n_list; /* clusters of the pass, the youngest first */
    uint32_t keep;          /* of them, those that stay */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t ahead, asked, loaded, done, dropped; /* turns: dropped <= done, loaded <= asked <= done + ahead */
    bool started, paused, busy, stop;
    int error;
    struct ntx_kv_file_stats stats;
};

/* ---- bytes */

static uint64_t largest_row(const struct ntx_kv_layout *l)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < l->n_layers; i++)
        most = NTX_MAX(most, (uint64_t)l->row[i]);
    return most;
}

static uint64_t all_rows(const struct ntx_kv_layout *l)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n_layers; i++)
        n += l->row[i];
    return n;
}

uint64_t ntx_kv_file_least(const struct ntx_kv_layout *l)
{
    return LEAST_AHEAD * largest_row(l) * NTX_ROUND_UP(l->n_blocks, l->cluster) + l->cluster * all_rows(l);
}

/* Turns that are held, and clusters that stay, where a pass has so many clusters. */
static uint32_t turns(const struct ntx_kv_layout *l, uint32_t n_clusters, uint64_t most, uint32_t *keep)
{
    uint64_t turn = largest_row(l) * l->cluster * n_clusters, cluster = all_rows(l) * l->cluster;
    if (cluster * n_clusters <= most) {
        *keep = n_clusters;
        return l->n_layers;
    }
    uint32_t ahead = AHEAD * turn + cluster <= most ? AHEAD : LEAST_AHEAD;
    *keep = ahead * turn < most ? (uint32_t)((most - ahead * turn) / cluster) : 0;
    return ahead;
}

uint64_t ntx_kv_file_reads(const struct ntx_kv_layout *l, uint32_t n_blocks, uint64_t most)
{
    uint32_t n = (n_blocks + l->cluster - 1) / l->cluster, keep;
    turns(l, n, most, &keep);
    return (uint64_t)(n - keep) * l->cluster * all_rows(l);
}

/* ---- the file */

int ntx_kv_file_open(const char *dir, uint64_t bytes, struct ntx_err *err)
{
    struct statfs fs;
    (void)mkdir(dir, 0700); /* open() says what is wrong */
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return ntx_err_set(err, -errno, "--kv-ram: no file for K and V can be made in %s: %s", dir, strerror(errno));
    if (!fstatfs(fd, &fs) && fs.f_type == FS_TMPFS) {
        close(fd);
        return ntx_err_set(err, -EINVAL, "--kv-ram: %s lies in memory itself (tmpfs): --state needs a directory on a drive", dir);
    }
    int rc = posix_fallocate(fd, 0, (off_t)bytes);
    if (rc) {
        char size[32];
        close(fd);
        return ntx_err_set(err, -rc, "--kv-ram: K and V need %s in %s: %s; make room, or use a smaller --ctx", ntx_format_size(bytes, size, sizeof size), dir, strerror(rc));
    }
    return fd;
}

/* ---- runs */

static bool *in_of(const struct ntx_kv_file *f, uint32_t cluster, uint32_t layer) { return &f->in[(size_t)cluster * f->l.n_layers + layer]; }

static uint64_t run_of(const struct ntx_kv_file *f, uint32_t cluster, uint32_t layer, uint64_t *bytes)
{
    uint32_t first = cluster * f->l.cluster, n = NTX_MIN(f->l.n_blocks - first, f->l.cluster);
    *bytes = (uint64_t)n * f->l.row[layer];
    return first * f->l.block_bytes + (uint64_t)n * f->l.before[layer];
}

/* Neighbours' pages at both ends stay. */
static int drop_run(struct ntx_kv_file *f, uint32_t cluster, uint32_t layer)
{
    uint64_t bytes, at = run_of(f, cluster, layer, &bytes), from = NTX_ROUND_UP(at, PAGE), end = NTX_ROUND_DOWN(at + bytes, PAGE);
    if (end <= from)
        return 0;
    if (madvise(f->base + from, end - from, MADV_DONTNEED) ||
        sync_file_range(f->fd, (off_t)from, (off_t)(end - from), SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER))
        return -errno;
    return -posix_fadvise(f->fd, (off_t)from, (off_t)(end - from), POSIX_FADV_DONTNEED);
}

static void ask_run(const struct ntx_kv_file *f, uint32_t cluster, uint32_t layer)
{
    uint64_t bytes, at = run_of(f, cluster, layer, &bytes);
    for (uint64_t i = 0; i < bytes; i += READ_BYTES)
        (void)posix_fadvise(f->fd, (off_t)(at + i), (off_t)NTX_MIN(READ_BYTES, bytes - i), POSIX_FADV_WILLNEED);
}

/* An older kernel (before 5.14) maps pages when they are touched. */
static int await_run(const struct ntx_kv_file *f, uint32_t cluster, uint32_t layer)
{
    uint64_t bytes, at = run_of(f, cluster, layer, &bytes), from = NTX_ROUND_DOWN(at, PAGE), end = NTX_ROUND_UP(at + bytes, PAGE);
    return madvise(f->base + from, end - from, MADV_POPULATE_READ) && errno != EINVAL ? -EIO : 0;
}

/* ---- turns, done by the thread without the lock: meanwhile nobody changes the list, and only it changes `in` */

/* The drive begins. */
static void ask_turn(const struct ntx_kv_file *f, uint32_t layer)
{
    for (uint32_t i = f->n_list; i-- > 0 && f->l.row[layer];)
        if (!*in_of(f, f->list[i], layer))
            ask_run(f, f->list[i], layer);
}

static int load_turn(struct ntx_kv_file *f, uint32_t layer, uint64_t *read)
{
    uint64_t bytes;
    int rc = 0;
    if (!f->l.row[layer])
        return 0;
    for (uint32_t i = f->n_list; i-- > 0 && !rc;)
        if (!*in_of(f, f->list[i], layer) && !(rc = await_run(f, f->list[i], layer))) {
            *in_of(f, f->list[i], layer) = true;
            run_of(f, f->list[i], layer, &bytes);
            *read += bytes;
        }
    return rc;
}

static int drop_turn(struct ntx_kv_file *f, uint32_t layer, uint64_t *dropped)
{
    uint64_t bytes;
    int rc = 0;
    for (uint32_t i = f->keep; i < f->n_list && f->l.row[layer]; i++)
        if (*in_of(f, f->list[i], layer)) {
            int failed = drop_run(f, f->list[i], layer);
            rc = rc ? rc : failed;
            *in_of(f, f->list[i], layer) = false;
            run_of(f, f->list[i], layer, &bytes);
            *dropped += bytes;
        }
    return rc;
}

static bool may_drop(const struct ntx_kv_file *f) { return !f->paused && f->dropped < f->done; }

static bool may_load(const struct ntx_kv_file *f) { return !f->paused && f->loaded < f->l.n_layers && f->loaded < f->done + f->ahead; }

static void turn(struct ntx_kv_file *f)
{
    bool drops = may_drop(f);
    uint32_t layer = drops ? f->dropped : f->loaded;
    uint64_t read = 0, dropped = 0;
    uint32_t ask = NTX_MIN(f->l.n_layers, f->done + f->ahead);
    f->busy = true;
    pthread_mutex_unlock(&f->lock);
    for (; f->asked < ask; f->asked++) /* only the thread's, while it is busy */
        ask_turn(f, f->asked);
    int rc = drops ? drop_turn(f, layer, &dropped) : load_turn(f, layer, &read);
    pthread_mutex_lock(&f->lock);
    f->busy = false;
    f->dropped += drops;
    f->loaded += !drops;
    f->error = f->error ? f->error : rc;
    f->stats.read_bytes += read;
    f->stats.dropped_bytes += dropped;
    f->stats.held_bytes += read - dropped;
    f->stats.held_most = NTX_MAX(f->stats.held_most, f->stats.held_bytes);
    pthread_cond_broadcast(&f->changed);
}

static void *work(void *arg)
{
    struct ntx_kv_file *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop)
        if (may_drop(f) || may_load(f))
            turn(f);
        else
            pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- its life */

static int copy_layout(struct ntx_kv_file *f, const struct ntx_kv_layout *l)
{
    size_t n = l->n_layers * sizeof *l->row, *before = malloc(n), *row = malloc(n);
    f->l = *l;
    f->l.before = before;
    f->l.row = row;
    if (!before || !row)
        return -ENOMEM;
    memcpy(before, l->before, n);
    memcpy(row, l->row, n);
    f->n_clusters = (l->n_blocks + l->cluster - 1) / l->cluster;
    f->in = calloc((size_t)f->n_clusters * l->n_layers, sizeof *f->in);
    f->age = malloc(f->n_clusters * sizeof *f->age);
    f->list = malloc(f->n_clusters * sizeof *f->list);
    if (!f->in || !f->age || !f->list)
        return -ENOMEM;
    memset(f->age, 0xff, f->n_clusters * sizeof *f->age);
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
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    int rc = copy_layout(f, l);
    if (!rc && mmap(base, l->n_blocks * l->block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        rc = -errno;
    if (!rc)
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
    f->stop = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (f->started)
        pthread_join(f->thread, NULL);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    close(f->fd);
    free((void *)f->l.before);
    free((void *)f->l.row);
    free(f->in);
    free(f->age);
    free(f->list);
    free(f);
}

/* ---- a pass */

/* The thread stands still until it is told to go on. */
static void pause_thread(struct ntx_kv_file *f)
{
    f->paused = true;
    while (f->busy)
        pthread_cond_wait(&f->changed, &f->lock);
}

void ntx_kv_file_add(struct ntx_kv_file *f, const uint32_t *blocks, uint32_t n)
{
    pthread_mutex_lock(&f->lock);
    if (!f->paused) {
        pause_thread(f);
        for (uint32_t i = 0; i < f->n_clusters; i++)
            f->age[i] = FAR;
    }
    pthread_mutex_unlock(&f->lock);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *age = &f->age[blocks[i] / f->l.cluster];
        *age = NTX_MIN(*age, n - 1 - i);
    }
}

static int by_age(const void *a, const void *b, void *ctx)
{
    const uint32_t *age = ctx, x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return age[x] != age[y] ? (age[x] < age[y] ? -1 : 1) : (x > y) - (x < y);
}

/* What other passes left, where this one wants the room. */
static void drop_others(struct ntx_kv_file *f)
{
    const uint64_t wants = all_rows(&f->l) * f->l.cluster * f->n_list;
    uint64_t bytes;
    if (f->stats.held_bytes + wants <= f->most)
        return;
    for (uint32_t c = 0; c < f->n_clusters; c++)
        for (uint32_t l = 0; l < f->l.n_layers && f->age[c] == FAR; l++)
            if (*in_of(f, c, l)) {
                int rc = drop_run(f, c, l);
                f->error = f->error ? f->error : rc;
                *in_of(f, c, l) = false;
                run_of(f, c, l, &bytes);
                f->stats.dropped_bytes += bytes;
                f->stats.held_bytes -= bytes;
            }
}

void ntx_kv_file_begin(struct ntx_kv_file *f)
{
    pthread_mutex_lock(&f->lock);
    pause_thread(f);
    f->n_list = 0;
    for (uint32_t c = 0; c < f->n_clusters; c++)
        if (f->age[c] != FAR)
            f->list[f->n_list++] = c;
    qsort_r(f->list, f->n_list, sizeof *f->list, by_age, f->age);
    f->ahead = turns(&f->l, f->n_list, f->most, &f->keep);
    drop_others(f);
    f->asked = f->loaded = f->dropped = f->done = 0;
    f->paused = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

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

/* A pass that failed has not had all its turns. */
void ntx_kv_file_end(struct ntx_kv_file *f)
{
    pthread_mutex_lock(&f->lock);
    pause_thread(f);
    for (uint32_t l = f->dropped; l < f->l.n_layers; l++) {
        uint64_t dropped = 0;
        int rc = drop_turn(f, l, &dropped);
        f->error = f->error ? f->error : rc;
        f->stats.dropped_bytes += dropped;
        f->stats.held_bytes -= dropped;
    }
    f->asked = f->loaded = f->dropped = f->done = 0;
    f->paused = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

struct ntx_kv_file_stats ntx_kv_file_stats(struct ntx_kv_file *f)
{
    pthread_mutex_lock(&f->lock);
    struct ntx_kv_file_stats s = f->stats;
    pthread_mutex_unlock(&f->lock);
    return s;
}
