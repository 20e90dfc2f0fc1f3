/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/prefix_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/umac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define MAGIC       "ntxstate"
#define MOST_FILES  4096
#define MOST_TOKENS (1u << 22) /* of one file: 16 MiB of ids */
#define BUFFER      (1u << 20)
#define COVERED     16

struct file {
    char name[32];
    uint64_t scope, bytes, body_bytes;
    uint32_t n;
    int32_t *ids;                                /* NULL: of another model or build, or torn */
    struct ntx_prefix_store_snapshot *snapshots; /* [n_snapshots], stored after ids */
    uint32_t n_snapshots;
    double worth;       /* GreedyDual: clock at its last use plus its cost per byte; without ids: -1 */
    struct timespec at; /* its last use before this process */
};

struct ntx_prefix_store {
    struct ntx_prefix_store_config c;
    char of[sizeof((struct ntx_prefix_store_head *)0)->of];
    int dir;
    struct file *file; /* [MOST_FILES] */
    uint32_t n;
    uint64_t bytes;
    double clock;
    bool full_said;
    struct ntx_prefix_store_others others;
    char alien[32]; /* the first file that others may read or write, and how many there are */
    uint32_t n_aliens;
    uint8_t *buffer;
};

/* Bytes being written or read, and their checksum (UMAC with a public key). */
struct flow {
    int fd, rc;
    bool out;
    atomic_ullong *written;
    uint8_t *buffer;
    uint32_t n, at; /* in the buffer; of them consumed */
    uint64_t left;  /* yet to be read */
    struct umac64_ctx sum;
};

static void start_sum(struct umac64_ctx *sum)
{
    static const uint8_t key[16] = "prefixes on disk";
    umac64_set_key(sum, key);
}

/* Bytes of ids and the snapshots' heads after them. */
static size_t table_bytes(uint32_t n_tokens, uint32_t n_snapshots)
{
    return n_tokens * sizeof(int32_t) + n_snapshots * sizeof(struct ntx_prefix_store_snapshot);
}

static void head_sum(const struct ntx_prefix_store_head *h, const void *table, uint8_t out[8])
{
    struct umac64_ctx sum;
    struct ntx_prefix_store_head x = *h;
    memset(x.head_sum, 0, sizeof x.head_sum);
    start_sum(&sum);
    umac64_update(&sum, sizeof x, (const uint8_t *)&x);
    umac64_update(&sum, table_bytes(h->n_tokens, h->n_snapshots), table);
    umac64_digest(&sum, 8, out);
}

/* ---- the table */

static double compute_cost(const struct ntx_prefix_store *s, uint32_t n)
{
    double blocks = n / (double)NTX_KV_BLOCK;
    return blocks * (s->c.block_cost + s->c.token_cost * n / 2);
}

static void touch_file(struct ntx_prefix_store *s, struct file *f)
{
    f->worth = f->ids ? s->clock + compute_cost(s, f->n) / (double)f->bytes : -1;
}

static void forget_file(struct ntx_prefix_store *s, uint32_t i)
{
    s->bytes -= s->file[i].bytes;
    free(s->file[i].ids);
    free(s->file[i].snapshots);
    s->file[i] = s->file[--s->n];
}

static void drop_file(struct ntx_prefix_store *s, uint32_t i)
{
    s->clock = NTX_MAX(s->clock, s->file[i].worth);
    (void)unlinkat(s->dir, s->file[i].name, 0);
    forget_file(s, i);
}

/* Forgets a torn file that a new one has replaced. */
static void forget_named(struct ntx_prefix_store *s, const char *name)
{
    for (uint32_t i = s->n; i--;)
        if (!strcmp(s->file[i].name, name))
            forget_file(s, i);
}

static bool is_torn(int rc) { return rc == -EBADMSG || rc == -EPIPE; }

/* Evicts files until there is room for so many bytes and a place in the table. */
static void evict_for(struct ntx_prefix_store *s, uint64_t bytes)
{
    while (s->n && (s->bytes + bytes > s->c.most || s->n == MOST_FILES)) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < s->n; i++)
            if (s->file[i].worth < s->file[least].worth)
                least = i;
        drop_file(s, least);
    }
}

static uint32_t common_tokens(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

uint32_t ntx_prefix_store_files(const struct ntx_prefix_store *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += s->file[i].ids != NULL;
    return n;
}

uint32_t ntx_prefix_store_useless(const struct ntx_prefix_store *s) { return s->n - ntx_prefix_store_files(s); }

struct ntx_prefix_store_others ntx_prefix_store_others(const struct ntx_prefix_store *s) { return s->others; }

/* How many of a text's `same` common tokens the file can serve. */
static uint32_t tokens_served(const struct file *f, uint32_t same)
{
    uint32_t most = same >= f->n ? f->n : 0;
    for (uint32_t i = 0; i < f->n_snapshots && !most; i++)
        if (f->snapshots[f->n_snapshots - 1 - i].n_tokens <= same)
            most = f->snapshots[f->n_snapshots - 1 - i].n_tokens;
    return most;
}

uint32_t ntx_prefix_store_find(const struct ntx_prefix_store *s, uint64_t scope, const int32_t *ids, uint32_t n,
                               bool whole, uint32_t *file, uint32_t *n_tokens)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct file *f = &s->file[i];
        uint32_t same = f->ids && (f->scope == scope || !f->scope) ? common_tokens(f->ids, ids, NTX_MIN(n, f->n)) : 0;
        same = whole && f->ids ? tokens_served(f, same) : same;
        if (same <= most)
            continue;
        most = same;
        *file = i;
        *n_tokens = f->n;
    }
    return most;
}

const int32_t *ntx_prefix_store_ids(const struct ntx_prefix_store *s, uint32_t file, uint64_t *scope)
{
    *scope = s->file[file].scope;
    return s->file[file].ids;
}

/* ---- reading */

static int fill_buffer(struct flow *f)
{
    f->at = 0;
    f->n = (uint32_t)NTX_MIN(f->left, (uint64_t)BUFFER);
    if (!f->n)
        return -ENODATA;
    f->rc = ntx_read_all(f->fd, f->buffer, f->n);
    f->left -= f->n;
    if (!f->rc)
        umac64_update(&f->sum, f->n, f->buffer);
    return f->rc;
}

static int write_buffer(struct flow *f)
{
    f->rc = ntx_write_all(f->fd, f->buffer, f->n);
    umac64_update(&f->sum, f->n, f->buffer);
    if (!f->rc && f->written)
        atomic_fetch_add_explicit(f->written, f->n, memory_order_relaxed);
    f->n = 0;
    return f->rc;
}

static int move_part(void *ctx, void *at, size_t bytes)
{
    struct flow *f = ctx;
    uint8_t *p = at;
    while (bytes && !f->rc) {
        if (f->out ? f->n == BUFFER : f->at == f->n)
            f->rc = f->out ? write_buffer(f) : fill_buffer(f);
        size_t n = NTX_MIN(bytes, (size_t)(f->out ? BUFFER - f->n : f->n - f->at));
        if (f->rc)
            break;
        memcpy(f->out ? f->buffer + f->n : p, f->out ? p : f->buffer + f->at, n);
        *(f->out ? &f->n : &f->at) += (uint32_t)n;
        p += n;
        bytes -= n;
    }
    return f->rc;
}

/* Opens a file that only we may read or write; else -EPERM. */
static int open_file(const struct ntx_prefix_store *s, const char *name, struct stat *st)
{
    int fd = openat(s->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno == ELOOP ? -EPERM : -errno;
    int rc = fstat(fd, st) ? -errno : 0;
    if (!rc && (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || st->st_mode & 077))
        rc = -EPERM;
    if (rc)
        close(fd);
    return rc ? rc : fd;
}

/* -ESTALE: of another model or build; -EBADMSG: torn, or not such a file. */
static int check_head(const struct ntx_prefix_store *s, const struct ntx_prefix_store_head *h, uint64_t size)
{
    if (memcmp(h->magic, MAGIC, sizeof h->magic) || h->of[sizeof h->of - 1])
        return -EBADMSG;
    if (h->version != NTX_PREFIX_STORE_VERSION || strcmp(h->of, s->of))
        return -ESTALE;
    const uint64_t before = sizeof *h + table_bytes(NTX_MIN(h->n_tokens, MOST_TOKENS),
                                                    NTX_MIN(h->n_snapshots, (uint32_t)NTX_PREFIX_STORE_SNAPSHOTS));
    return !h->n_tokens || h->n_tokens > MOST_TOKENS || h->n_snapshots > NTX_PREFIX_STORE_SNAPSHOTS ||
                   h->body_bytes > size || size - h->body_bytes < before
               ? -EBADMSG
               : 0;
}

/* Whether snapshots have growing lengths within the text, and fill all bytes after the body. */
static bool good_snapshots(const struct ntx_prefix_store_head *h, const struct ntx_prefix_store_snapshot *m,
                           uint64_t size)
{
    uint64_t left = size - sizeof *h - table_bytes(h->n_tokens, h->n_snapshots) - h->body_bytes;
    for (uint32_t i = 0, n = 0; i < h->n_snapshots; n = m[i++].n_tokens) {
        if (m[i].n_tokens <= n || m[i].n_tokens >= h->n_tokens || m[i].bytes > left)
            return false;
        left -= m[i].bytes;
    }
    return !left;
}

/* Reads the head; f gets ids and the snapshots' heads. */
static int read_head(const struct ntx_prefix_store *s, int fd, uint64_t size, struct ntx_prefix_store_head *h,
                     struct file *f)
{
    uint8_t sum[8];
    int rc = ntx_read_all(fd, h, sizeof *h);
    if (rc || (rc = check_head(s, h, size)))
        return rc == -EPIPE ? -EBADMSG : rc;
    const size_t bytes = table_bytes(h->n_tokens, h->n_snapshots);
    int32_t *ids = malloc(bytes + sizeof(struct ntx_prefix_store_snapshot));
    struct ntx_prefix_store_snapshot *snapshots = ids ? malloc((h->n_snapshots + 1) * sizeof *snapshots) : NULL;
    rc = snapshots ? ntx_read_all(fd, ids, bytes) : -ENOMEM;
    if (!rc) {
        head_sum(h, ids, sum);
        memcpy(snapshots, ids + h->n_tokens, h->n_snapshots * sizeof *snapshots);
        rc = memcmp(sum, h->head_sum, sizeof sum) || !good_snapshots(h, snapshots, size) ? -EBADMSG : 0;
    }
    if (rc) {
        free(ids);
        free(snapshots);
        return rc;
    }
    *f = (struct file){
        .ids = ids, .snapshots = snapshots, .n = h->n_tokens, .n_snapshots = h->n_snapshots, .scope = h->scope};
    return 0;
}

static const char *reason(int rc)
{
    if (is_torn(rc))
        return "it is torn, or no file of ours";
    return rc == -EPERM ? "it is not ours alone" : strerror(-rc);
}

/* End of a flow read: all bytes consumed and the checksum matches. */
static int end_flow(struct flow *f, int rc, const uint8_t sum[8])
{
    uint8_t is[8];
    umac64_digest(&f->sum, 8, is);
    if (rc && !f->rc)
        return rc;
    if (f->rc == -ENODATA || (!f->rc && (f->left || f->at < f->n || memcmp(is, sum, sizeof is))))
        f->rc = -EBADMSG;
    return f->rc;
}

static int read_body(struct ntx_prefix_store *s, int fd, const struct ntx_prefix_store_head *h, struct ntx_kv_seq *kv)
{
    struct flow f = {.fd = fd, .buffer = s->buffer, .left = h->body_bytes};
    start_sum(&f.sum);
    return end_flow(&f, ntx_kv_each_part(kv, h->n_tokens, true, move_part, &f), h->body_sum);
}

static int read_snapshot(struct ntx_prefix_store *s, int fd, const struct ntx_prefix_store_snapshot *m,
                         struct ntx_kv_pool *pool, bool must, struct ntx_kv_snapshot **out)
{
    struct flow f = {.fd = fd, .buffer = s->buffer, .left = m->bytes};
    int rc = ntx_kv_snapshot_blank(pool, m->n_tokens, must, out);
    if (rc)
        return lseek(fd, (off_t)m->bytes, SEEK_CUR) < 0 ? -errno : rc;
    start_sum(&f.sum);
    rc = end_flow(&f, ntx_kv_snapshot_each_part(*out, true, move_part, &f), m->sum);
    if (rc)
        ntx_kv_snapshot_free(*out);
    return rc;
}

static int read_snapshots(struct ntx_prefix_store *s, int fd, const struct file *x, struct ntx_kv_pool *pool,
                          uint32_t wanted, struct ntx_kv_snapshot **snapshots, uint32_t *n)
{
    int rc = 0;
    for (uint32_t i = 0; i < x->n_snapshots && !rc; i++) {
        rc = read_snapshot(s, fd, &x->snapshots[i], pool, x->snapshots[i].n_tokens == wanted, &snapshots[*n]);
        *n += !rc;
        rc = rc == -EAGAIN ? 0 : rc;
    }
    return rc;
}

/* Whether the file is still the one that was found. */
static bool same_file(const struct file *a, const struct file *b)
{
    return a->n == b->n && a->scope == b->scope && a->n_snapshots == b->n_snapshots &&
           !memcmp(a->ids, b->ids, table_bytes(a->n, a->n_snapshots));
}

int ntx_prefix_store_read(struct ntx_prefix_store *s, uint32_t file, struct ntx_kv_pool *pool, struct ntx_kv_seq *kv,
                          uint32_t wanted, struct ntx_kv_snapshot *snapshots[NTX_PREFIX_STORE_SNAPSHOTS],
                          uint32_t *n_snapshots)
{
    struct file *x = &s->file[file], is = {0};
    struct ntx_prefix_store_head h;
    struct stat st;
    int fd = open_file(s, x->name, &st), rc = fd < 0 ? fd : read_head(s, fd, (uint64_t)st.st_size, &h, &is);
    *n_snapshots = 0;
    if (!rc && !same_file(&is, x))
        rc = -EBADMSG;
    if (!rc && !(rc = read_body(s, fd, &h, kv)) &&
        !(rc = read_snapshots(s, fd, x, pool, wanted, snapshots, n_snapshots))) {
        (void)futimens(fd, NULL);
        ntx_kv_restored(kv, x->n);
        touch_file(s, x);
    }
    if (fd >= 0)
        close(fd);
    free(is.ids);
    free(is.snapshots);
    while (rc && *n_snapshots)
        ntx_kv_snapshot_free(snapshots[--*n_snapshots]);
    if (rc) {
        ntx_log(NTX_LOG_WARN, "%s/%s is not used, and its text is computed again: %s", s->c.dir, x->name, reason(rc));
        (is_torn(rc) ? drop_file : forget_file)(s, file); /* a file that may be readable later stays */
    }
    return rc;
}

/* ---- writing */

static int write_flow(struct flow *f, int rc, uint8_t sum[8])
{
    if (!rc)
        rc = write_buffer(f);
    umac64_digest(&f->sum, 8, sum);
    return rc;
}

/* table: ids, and the snapshots' heads after them, which get their sums here. */
static int write_body(struct ntx_prefix_store *s, int fd, struct ntx_kv_seq *kv,
                      struct ntx_kv_snapshot *const *snapshots, int32_t *table, struct ntx_prefix_store_head *h)
{
    struct flow f = {.fd = fd, .out = true, .written = s->c.written, .buffer = s->buffer};
    const off_t at = (off_t)(sizeof *h + table_bytes(h->n_tokens, h->n_snapshots));
    if (lseek(fd, at, SEEK_SET) != at)
        return -errno;
    start_sum(&f.sum);
    int rc = write_flow(&f, ntx_kv_each_part(kv, h->n_tokens, false, move_part, &f), h->body_sum);
    h->body_bytes = (uint64_t)(lseek(fd, 0, SEEK_CUR) - at);
    for (uint32_t i = 0; i < h->n_snapshots && !rc; i++) {
        struct ntx_prefix_store_snapshot m = {.n_tokens = ntx_kv_snapshot_tokens(snapshots[i]),
                                              .bytes = ntx_kv_snapshot_bytes_of(snapshots[i])};
        start_sum(&f.sum);
        rc = write_flow(&f, ntx_kv_snapshot_each_part(snapshots[i], false, move_part, &f), m.sum);
        memcpy((uint8_t *)table + table_bytes(h->n_tokens, i), &m, sizeof m);
    }
    if (rc)
        return rc;
    head_sum(h, table, h->head_sum);
    if (lseek(fd, 0, SEEK_SET))
        return -errno;
    rc = ntx_write_all(fd, h, sizeof *h);
    return rc ? rc : ntx_write_all(fd, table, table_bytes(h->n_tokens, h->n_snapshots));
}

/* Whether going on from `most` of n tokens costs at most 1/COVERED of the text's time. */
static bool is_near_enough(const struct ntx_prefix_store *s, uint32_t n, uint32_t most)
{
    return compute_cost(s, n) - compute_cost(s, most) <= compute_cost(s, n) / COVERED;
}

/* Whether `new` serves nearly everything that f serves. */
static bool covers_file(const struct ntx_prefix_store *s, const struct file *added, const struct file *f)
{
    return is_near_enough(s, f->n, s->c.whole ? tokens_served(added, f->n) : f->n);
}

static void drop_covered(struct ntx_prefix_store *s, const struct file *added)
{
    for (uint32_t i = s->n; i--;) {
        const struct file *f = &s->file[i];
        if (f->ids && f->scope == added->scope && f->n < added->n && common_tokens(f->ids, added->ids, f->n) == f->n &&
            covers_file(s, added, f))
            drop_file(s, i);
    }
}

static void name_file(char out[32], uint64_t scope, const int32_t *ids, uint32_t n, const char *of)
{
    struct umac64_ctx sum;
    uint8_t d[8];
    start_sum(&sum);
    umac64_update(&sum, sizeof scope, (const uint8_t *)&scope);
    umac64_update(&sum, strlen(of), (const uint8_t *)of);
    umac64_update(&sum, n * sizeof *ids, (const uint8_t *)ids);
    umac64_digest(&sum, 8, d);
    snprintf(out, 32, "%02x%02x%02x%02x%02x%02x%02x%02x.prefix", d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]);
}

static int write_new(struct ntx_prefix_store *s, struct file *x, struct ntx_kv_seq *kv,
                     struct ntx_kv_snapshot *const *snapshots)
{
    char tmp[40];
    struct ntx_prefix_store_head h = {
        .version = NTX_PREFIX_STORE_VERSION, .n_tokens = x->n, .scope = x->scope, .n_snapshots = x->n_snapshots};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.of, s->of, sizeof h.of);
    snprintf(tmp, sizeof tmp, "%s.new", x->name);
    (void)unlinkat(s->dir, tmp, 0);
    int fd = openat(s->dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int rc = write_body(s, fd, kv, snapshots, x->ids, &h);
    if (close(fd) && !rc)
        rc = -errno;
    if (!rc && renameat(s->dir, tmp, s->dir, x->name))
        rc = -errno;
    if (rc)
        (void)unlinkat(s->dir, tmp, 0);
    return rc;
}

/* Chooses the snapshots that save at least half as much time per byte as the text itself, counted from the snapshot
 * before. */
static uint32_t choose_snapshots(const struct ntx_prefix_store *s, const struct file *f,
                                 struct ntx_kv_snapshot *const *snapshots, uint32_t n,
                                 struct ntx_kv_snapshot *out[NTX_PREFIX_STORE_SNAPSHOTS], uint64_t *bytes)
{
    const double least = compute_cost(s, f->n) / (double)f->bytes / 2;
    uint32_t k = 0, last = 0;
    for (uint32_t i = 0; i < n && k < NTX_PREFIX_STORE_SNAPSHOTS; i++) {
        const uint64_t of = ntx_kv_snapshot_bytes_of(snapshots[i]) + sizeof(struct ntx_prefix_store_snapshot);
        const uint32_t tokens = ntx_kv_snapshot_tokens(snapshots[i]);
        if (compute_cost(s, tokens) - compute_cost(s, last) < least * (double)of)
            continue;
        out[k++] = snapshots[i];
        *bytes += of;
        last = tokens;
    }
    return k;
}

/* Fills the tables of a new file. */
static int fill_tables(struct file *f, const int32_t *ids, struct ntx_kv_snapshot *const *snapshots)
{
    const size_t bytes = f->n * sizeof *ids;
    f->ids = malloc(table_bytes(f->n, f->n_snapshots));
    f->snapshots = f->ids ? calloc(f->n_snapshots + 1, sizeof *f->snapshots) : NULL;
    if (!f->snapshots)
        return -ENOMEM;
    memcpy(f->ids, ids, bytes);
    for (uint32_t i = 0; i < f->n_snapshots; i++)
        f->snapshots[i].n_tokens = ntx_kv_snapshot_tokens(snapshots[i]);
    return 0;
}

static void free_tables(struct file *f)
{
    free(f->ids);
    free(f->snapshots);
}

static void log_full(struct ntx_prefix_store *s, int rc)
{
    if (rc && !s->full_said)
        ntx_log(NTX_LOG_WARN, "states cannot be kept in %s, and are lost when the model is unloaded: %s", s->c.dir,
                strerror(-rc));
    s->full_said = rc;
}

int ntx_prefix_store_write(struct ntx_prefix_store *s, uint64_t scope, const int32_t *ids, uint32_t n,
                           struct ntx_kv_seq *kv, struct ntx_kv_snapshot *const *snapshots, uint32_t n_snapshots)
{
    struct file f = {.scope = scope, .n = n};
    struct ntx_kv_snapshot *kept[NTX_PREFIX_STORE_SNAPSHOTS];
    uint32_t old = 0, old_n, most = ntx_prefix_store_find(s, scope, ids, n, s->c.whole, &old, &old_n);
    if (most == n ||
        (most && common_tokens(s->file[old].ids, ids, NTX_MIN(n, old_n)) < old_n && is_near_enough(s, n, most)))
        return 0;
    f.bytes = sizeof(struct ntx_prefix_store_head) + n * sizeof *ids + ntx_kv_parts_bytes(kv, n);
    uint64_t more = 0;
    f.n_snapshots = choose_snapshots(s, &f, snapshots, n_snapshots, kept, &more);
    if (f.bytes + more > s->c.most)
        f.n_snapshots = 0, more = 0;
    f.bytes += more;
    if (f.bytes > s->c.most || n > MOST_TOKENS)
        return -EFBIG;
    evict_for(s, f.bytes);
    name_file(f.name, scope, ids, n, s->of);
    int rc = fill_tables(&f, ids, kept);
    if (!rc) {
        rc = write_new(s, &f, kv, kept);
        log_full(s, rc);
    }
    if (rc) {
        free_tables(&f);
        return rc;
    }
    memcpy(f.snapshots, f.ids + n, f.n_snapshots * sizeof *f.snapshots);
    forget_named(s, f.name);
    drop_covered(s, &f); /* once the new file is complete */
    touch_file(s, &f);
    s->file[s->n++] = f;
    s->bytes += f.bytes;
    return 0;
}

/* ---- open and close */

static int open_dir(struct ntx_prefix_store *s, struct ntx_err *err)
{
    struct stat st;
    if (mkdir(s->c.dir, 0700) && errno != EEXIST)
        return ntx_err_set(err, -errno, "%s cannot be made: %s", s->c.dir, strerror(errno));
    if ((s->dir = open(s->c.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || fstat(s->dir, &st))
        return ntx_err_set(err, -errno, "%s cannot be opened: %s", s->c.dir, strerror(errno));
    if (st.st_uid != geteuid() || st.st_mode & 022)
        return ntx_err_set(err, -EPERM, "%s is not a directory that only we may write in", s->c.dir);
    if (flock(s->dir, LOCK_EX | LOCK_NB))
        return ntx_err_set(err, -errno, "%s is in use by another ntx-computed", s->c.dir);
    return 0;
}

/* Counts a file by the first difference from ours in "BUILD model DIGEST options". Another version of the format counts
 * as another build. */
static void note_other(struct ntx_prefix_store *s, const struct ntx_prefix_store_head *h, uint64_t bytes)
{
    static const char model[] = " model ";
    const char *ours = strstr(s->of, model),
               *its = h->version == NTX_PREFIX_STORE_VERSION ? strstr(h->of, model) : NULL;
    const size_t build = ours ? (size_t)(ours - s->of) : 0, digest = ours ? strcspn(ours + strlen(model), " ") : 0;
    s->others.bytes += bytes;
    if (!ours || !its || (size_t)(its - h->of) != build || memcmp(s->of, h->of, build))
        s->others.build++;
    else if (strncmp(ours, its, strlen(model) + digest))
        s->others.model++;
    else
        s->others.options++;
}

/* Adds a found file. A damaged one is logged, and a torn one counts with its bytes. One of another model is not read
 * further. */
static void add_file(struct ntx_prefix_store *s, const char *name)
{
    struct file f = {0};
    struct ntx_prefix_store_head h;
    struct stat st;
    int fd = open_file(s, name, &st), rc = fd < 0 ? fd : read_head(s, fd, (uint64_t)st.st_size, &h, &f);
    if (fd >= 0)
        close(fd);
    if (rc == -EPERM && !s->n_aliens++)
        memcpy(s->alien, name, strlen(name) + 1);
    if (rc && rc != -ESTALE && rc != -EPERM)
        ntx_log(NTX_LOG_WARN, "%s/%s is not used: %s", s->c.dir, name, reason(rc));
    if (rc && rc != -ESTALE && !is_torn(rc))
        return;
    if (rc == -ESTALE)
        note_other(s, &h, (uint64_t)st.st_size);
    memcpy(f.name, name, strlen(name) + 1);
    f.bytes = (uint64_t)st.st_size;
    f.at = st.st_mtim;
    s->bytes += f.bytes;
    s->file[s->n++] = f;
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct file *)a)->at, *y = &((const struct file *)b)->at;
    return x->tv_sec != y->tv_sec ? (x->tv_sec > y->tv_sec) - (x->tv_sec < y->tv_sec)
                                  : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && n < sizeof((struct file *)0)->name && !strcmp(name + n - k, end);
}

/* Sets the files' worth at start, as if the clock had advanced in the order of their last use: of files with like
 * costs, the longest unused is evicted first. */
static void order_by_use(struct ntx_prefix_store *s)
{
    double sum = 0;
    qsort(s->file, s->n, sizeof *s->file, by_use);
    for (uint32_t i = 0; i < s->n; i++) {
        touch_file(s, &s->file[i]);
        sum += NTX_MAX(s->file[i].worth, 0.0);
    }
    for (uint32_t i = 0, n = ntx_prefix_store_files(s), k = 0; i < s->n; i++) {
        if (s->file[i].ids)
            s->clock = sum / n * ++k / n;
        touch_file(s, &s->file[i]);
    }
}

static void log_aliens(const struct ntx_prefix_store *s)
{
    char more[32] = "";
    if (s->n_aliens > 1)
        snprintf(more, sizeof more, ", and %u more are not", s->n_aliens - 1);
    if (s->n_aliens)
        ntx_log(NTX_LOG_WARN,
                "%s/%s is not used%s: not ours alone. They must be files, no links, of user %u and of mode 600: chown "
                "and chmod them, or remove them",
                s->c.dir, s->alien, more, (unsigned)geteuid());
}

static int read_dir(struct ntx_prefix_store *s, struct ntx_err *err)
{
    int fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int rc = -errno;
        if (fd >= 0)
            close(fd);
        return ntx_err_set(err, rc, "%s cannot be read: %s", s->c.dir, strerror(-rc));
    }
    for (struct dirent *e; (e = readdir(d)) && s->n < MOST_FILES;) {
        if (strlen(e->d_name) > 11 && !strcmp(e->d_name + strlen(e->d_name) - 11, ".prefix.new"))
            (void)unlinkat(s->dir, e->d_name, 0);
        else if (ends_with(e->d_name, ".prefix"))
            add_file(s, e->d_name);
    }
    closedir(d);
    log_aliens(s);
    order_by_use(s);
    evict_for(s, 0);
    return 0;
}

int ntx_prefix_store_open(const struct ntx_prefix_store_config *c, struct ntx_prefix_store **out, struct ntx_err *err)
{
    struct ntx_prefix_store *s = calloc(1, sizeof *s);
    if (!s)
        return ntx_err_set(err, -ENOMEM, "no memory");
    s->c = *c;
    s->dir = -1;
    snprintf(s->of, sizeof s->of, "%s", c->of);
    s->file = calloc(MOST_FILES + 1, sizeof *s->file);
    s->buffer = malloc(BUFFER);
    int rc = s->file && s->buffer ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
    if (rc || (rc = open_dir(s, err)) || (rc = read_dir(s, err))) {
        ntx_prefix_store_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void ntx_prefix_store_free(struct ntx_prefix_store *s)
{
    if (!s)
        return;
    while (s->n)
        forget_file(s, s->n - 1);
    if (s->dir >= 0)
        close(s->dir);
    free(s->file);
    free(s->buffer);
    free(s);
}
