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
#define MOST_TOKENS (1u << 22) /* of one: 16 MiB of ids */
#define BUFFER      (1u << 20)
#define COVERED     16

struct file {
    char name[32];
    uint64_t scope, bytes, body_bytes;
    uint32_t n;
    int32_t *ids;                                /* NULL: it is not of this model or build, or torn */
    struct ntx_prefix_store_snapshot *snapshots; /* [n_snapshots], behind ids */
    uint32_t n_snapshots;
    double worth;       /* the clock when it was last wanted, and its cost for its bytes; without ids: -1 */
    struct timespec at; /* of its last use before this process */
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
    char alien[32]; /* of those that others may read or write, the first one, and how many they are */
    uint32_t n_aliens;
    uint8_t *buffer;
};

/* What of bytes are being written or read, and their sum (UMAC with a key that everybody knows: a sum, no secret). */
struct flow {
    int fd, rc;
    bool out;
    atomic_ullong *written;
    uint8_t *buffer;
    uint32_t n, at; /* in the buffer; of them given out */
    uint64_t left;  /* to be read */
    struct umac64_ctx sum;
};

static void begin_sum(struct umac64_ctx *sum)
{
    static const uint8_t key[16] = "prefixes on disk";
    umac64_set_key(sum, key);
}

/* Of ids and marks, which lie behind them. */
static size_t table_bytes(uint32_t n_tokens, uint32_t n_snapshots)
{
    return n_tokens * sizeof(int32_t) + n_snapshots * sizeof(struct ntx_prefix_store_snapshot);
}

static void head_sum(const struct ntx_prefix_store_head *h, const void *table, uint8_t out[8])
{
    struct umac64_ctx sum;
    struct ntx_prefix_store_head x = *h;
    memset(x.head_sum, 0, sizeof x.head_sum);
    begin_sum(&sum);
    umac64_update(&sum, sizeof x, (const uint8_t *)&x);
    umac64_update(&sum, table_bytes(h->n_tokens, h->n_snapshots), table);
    umac64_digest(&sum, 8, out);
}

/* ---- the table */

static double cost_of(const struct ntx_prefix_store *s, uint32_t n)
{
    double blocks = n / (double)NTX_KV_BLOCK;
    return blocks * (s->c.block_cost + s->c.token_cost * n / 2);
}

static void want(struct ntx_prefix_store *s, struct file *f)
{
    f->worth = f->ids ? s->clock + cost_of(s, f->n) / (double)f->bytes : -1;
}

static void forget(struct ntx_prefix_store *s, uint32_t i)
{
    s->bytes -= s->file[i].bytes;
    free(s->file[i].ids);
    free(s->file[i].snapshots);
    s->file[i] = s->file[--s->n];
}

static void drop(struct ntx_prefix_store *s, uint32_t i)
{
    s->clock = NTX_MAX(s->clock, s->file[i].worth);
    (void)unlinkat(s->dir, s->file[i].name, 0);
    forget(s, i);
}

/* A torn one, in whose place another stands. */
static void forget_named(struct ntx_prefix_store *s, const char *name)
{
    for (uint32_t i = s->n; i--;)
        if (!strcmp(s->file[i].name, name))
            forget(s, i);
}

static bool torn(int rc) { return rc == -EBADMSG || rc == -EPIPE; }

/* So many bytes more, and a place in the table. */
static void make_room(struct ntx_prefix_store *s, uint64_t bytes)
{
    while (s->n && (s->bytes + bytes > s->c.most || s->n == MOST_FILES)) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < s->n; i++)
            if (s->file[i].worth < s->file[least].worth)
                least = i;
        drop(s, least);
    }
}

static uint32_t alike(const int32_t *a, const int32_t *b, uint32_t n)
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

/* What is to be had of a file of which so many tokens are wanted. */
static uint32_t has_whole(const struct file *f, uint32_t same)
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
        uint32_t same = f->ids && (f->scope == scope || !f->scope) ? alike(f->ids, ids, NTX_MIN(n, f->n)) : 0;
        same = whole && f->ids ? has_whole(f, same) : same;
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

static int fill(struct flow *f)
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

static int drain(struct flow *f)
{
    f->rc = ntx_write_all(f->fd, f->buffer, f->n);
    umac64_update(&f->sum, f->n, f->buffer);
    if (!f->rc && f->written)
        atomic_fetch_add_explicit(f->written, f->n, memory_order_relaxed);
    f->n = 0;
    return f->rc;
}

static int part(void *ctx, void *at, size_t bytes)
{
    struct flow *f = ctx;
    uint8_t *p = at;
    while (bytes && !f->rc) {
        if (f->out ? f->n == BUFFER : f->at == f->n)
            f->rc = f->out ? drain(f) : fill(f);
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

/* Nothing that is told of it is believed but its size, and who may write it. */
static int open_file(const struct ntx_prefix_store *s, const char *name, struct stat *st)
{
    int fd = openat(s->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno == ELOOP ? -EPERM : -errno; /* a link */
    int rc = fstat(fd, st)                                                           ? -errno
             : !S_ISREG(st->st_mode) || st->st_uid != geteuid() || st->st_mode & 077 ? -EPERM
                                                                                     : 0;
    if (rc)
        close(fd);
    return rc ? rc : fd;
}

/* -ESTALE: of another model or build; -EBADMSG: torn, or no such file. */
static int check_head(const struct ntx_prefix_store *s, const struct ntx_prefix_store_head *h, uint64_t size)
{
    if (memcmp(h->magic, MAGIC, sizeof h->magic) || h->of[sizeof h->of - 1])
        return -EBADMSG;
    if (h->version != NTX_PREFIX_STORE_VERSION || strcmp(h->of, s->of))
        return -ESTALE;
    const uint64_t before = sizeof *h + table_bytes(NTX_MIN(h->n_tokens, MOST_TOKENS),
                                                    NTX_MIN(h->n_snapshots, (uint32_t)NTX_PREFIX_STORE_MARKS));
    return !h->n_tokens || h->n_tokens > MOST_TOKENS || h->n_snapshots > NTX_PREFIX_STORE_MARKS ||
                   h->body_bytes > size || size - h->body_bytes < before
               ? -EBADMSG
               : 0;
}

/* Of one text each, longer and longer, and all that lies behind the body. */
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

/* f: ids and marks. */
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

static const char *why(int rc)
{
    return torn(rc) ? "it is torn, or no file of ours" : rc == -EPERM ? "it is not ours alone" : strerror(-rc);
}

/* What comes, ends so: all of it was wanted, and its sum is right. */
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
    begin_sum(&f.sum);
    return end_flow(&f, ntx_kv_each_part(kv, h->n_tokens, true, part, &f), h->body_sum);
}

static int read_snapshot(struct ntx_prefix_store *s, int fd, const struct ntx_prefix_store_snapshot *m,
                         struct ntx_kv_pool *pool, bool must, struct ntx_kv_snapshot **out)
{
    struct flow f = {.fd = fd, .buffer = s->buffer, .left = m->bytes};
    int rc = ntx_kv_snapshot_blank(pool, m->n_tokens, must, out);
    if (rc)
        return lseek(fd, (off_t)m->bytes, SEEK_CUR) < 0 ? -errno : rc;
    begin_sum(&f.sum);
    rc = end_flow(&f, ntx_kv_snapshot_each_part(*out, true, part, &f), m->sum);
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

/* The very file that was found. */
static bool same_file(const struct file *a, const struct file *b)
{
    return a->n == b->n && a->scope == b->scope && a->n_snapshots == b->n_snapshots &&
           !memcmp(a->ids, b->ids, table_bytes(a->n, a->n_snapshots));
}

int ntx_prefix_store_read(struct ntx_prefix_store *s, uint32_t file, struct ntx_kv_pool *pool, struct ntx_kv_seq *kv,
                          uint32_t wanted, struct ntx_kv_snapshot *snapshots[NTX_PREFIX_STORE_MARKS],
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
        want(s, x);
    }
    if (fd >= 0)
        close(fd);
    free(is.ids);
    free(is.snapshots);
    while (rc && *n_snapshots)
        ntx_kv_snapshot_free(snapshots[--*n_snapshots]);
    if (rc) {
        ntx_log(NTX_LOG_WARN, "%s/%s is not used, and its text is computed again: %s", s->c.dir, x->name, why(rc));
        (torn(rc) ? drop : forget)(s, file); /* what may be read another time is left there */
    }
    return rc;
}

/* ---- writing */

static int write_flow(struct flow *f, int rc, uint8_t sum[8])
{
    if (!rc)
        rc = drain(f);
    umac64_digest(&f->sum, 8, sum);
    return rc;
}

/* table: ids, and behind them the marks, whose sums come now. */
static int write_body(struct ntx_prefix_store *s, int fd, struct ntx_kv_seq *kv,
                      struct ntx_kv_snapshot *const *snapshots, int32_t *table, struct ntx_prefix_store_head *h)
{
    struct flow f = {.fd = fd, .out = true, .written = s->c.written, .buffer = s->buffer};
    const off_t at = (off_t)(sizeof *h + table_bytes(h->n_tokens, h->n_snapshots));
    if (lseek(fd, at, SEEK_SET) != at)
        return -errno;
    begin_sum(&f.sum);
    int rc = write_flow(&f, ntx_kv_each_part(kv, h->n_tokens, false, part, &f), h->body_sum);
    h->body_bytes = (uint64_t)(lseek(fd, 0, SEEK_CUR) - at);
    for (uint32_t i = 0; i < h->n_snapshots && !rc; i++) {
        struct ntx_prefix_store_snapshot m = {.n_tokens = ntx_kv_snapshot_tokens(snapshots[i]),
                                              .bytes = ntx_kv_snapshot_bytes_of(snapshots[i])};
        begin_sum(&f.sum);
        rc = write_flow(&f, ntx_kv_snapshot_each_part(snapshots[i], false, part, &f), m.sum);
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

/* Of a text with so many tokens one that goes on from `most` of them is nearly as good. */
static bool near_enough(const struct ntx_prefix_store *s, uint32_t n, uint32_t most)
{
    return cost_of(s, n) - cost_of(s, most) <= cost_of(s, n) / COVERED;
}

/* Nearly all that f is good for can be had of the new one. */
static bool covers(const struct ntx_prefix_store *s, const struct file *new, const struct file *f)
{
    return near_enough(s, f->n, s->c.whole ? has_whole(new, f->n) : f->n);
}

static void drop_covered(struct ntx_prefix_store *s, const struct file *new)
{
    for (uint32_t i = s->n; i--;)
        if (s->file[i].ids && s->file[i].scope == new->scope &&
            s->file[i].n < new->n &&alike(s->file[i].ids, new->ids, s->file[i].n) ==
                s->file[i].n &&covers(s, new, &s->file[i]))
            drop(s, i);
}

static void name_file(char out[32], uint64_t scope, const int32_t *ids, uint32_t n, const char *of)
{
    struct umac64_ctx sum;
    uint8_t d[8];
    begin_sum(&sum);
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

/* Those that save half as much for their bytes as the text's own do at least: by what lies between one and the one
 * before. */
static uint32_t choose_snapshots(const struct ntx_prefix_store *s, const struct file *f,
                                 struct ntx_kv_snapshot *const *snapshots, uint32_t n,
                                 struct ntx_kv_snapshot *out[NTX_PREFIX_STORE_MARKS], uint64_t *bytes)
{
    const double least = cost_of(s, f->n) / (double)f->bytes / 2;
    uint32_t k = 0, last = 0;
    for (uint32_t i = 0; i < n && k < NTX_PREFIX_STORE_MARKS; i++) {
        const uint64_t of = ntx_kv_snapshot_bytes_of(snapshots[i]) + sizeof(struct ntx_prefix_store_snapshot);
        const uint32_t tokens = ntx_kv_snapshot_tokens(snapshots[i]);
        if (cost_of(s, tokens) - cost_of(s, last) < least * (double)of)
            continue;
        out[k++] = snapshots[i];
        *bytes += of;
        last = tokens;
    }
    return k;
}

/* What the file is known by, once it is there. */
static int describe(struct file *f, const int32_t *ids, struct ntx_kv_snapshot *const *snapshots)
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

static void say_full(struct ntx_prefix_store *s, int rc)
{
    if (rc && !s->full_said)
        ntx_log(NTX_LOG_WARN, "what was computed cannot be kept in %s, and is lost when the model goes: %s", s->c.dir,
                strerror(-rc));
    s->full_said = rc;
}

int ntx_prefix_store_write(struct ntx_prefix_store *s, uint64_t scope, const int32_t *ids, uint32_t n,
                           struct ntx_kv_seq *kv, struct ntx_kv_snapshot *const *snapshots, uint32_t n_snapshots)
{
    struct file f = {.scope = scope, .n = n};
    struct ntx_kv_snapshot *chosen[NTX_PREFIX_STORE_MARKS];
    uint32_t old = 0, old_n, most = ntx_prefix_store_find(s, scope, ids, n, s->c.whole, &old, &old_n);
    if (most == n || (most && alike(s->file[old].ids, ids, NTX_MIN(n, old_n)) < old_n && near_enough(s, n, most)))
        return 0;
    f.bytes = sizeof(struct ntx_prefix_store_head) + n * sizeof *ids + ntx_kv_parts_bytes(kv, n);
    uint64_t more = 0;
    f.n_snapshots = choose_snapshots(s, &f, snapshots, n_snapshots, chosen, &more);
    if (f.bytes + more > s->c.most)
        f.n_snapshots = 0, more = 0;
    f.bytes += more;
    if (f.bytes > s->c.most || n > MOST_TOKENS)
        return -EFBIG;
    make_room(s, f.bytes);
    name_file(f.name, scope, ids, n, s->of);
    int rc = describe(&f, ids, chosen);
    if (!rc) {
        rc = write_new(s, &f, kv, chosen);
        say_full(s, rc);
    }
    if (rc) {
        free_tables(&f);
        return rc;
    }
    memcpy(f.snapshots, f.ids + n, f.n_snapshots * sizeof *f.snapshots);
    forget_named(s, f.name);
    drop_covered(s, &f); /* now that it is there */
    want(s, &f);
    s->file[s->n++] = f;
    s->bytes += f.bytes;
    return 0;
}

/* ---- its life */

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

/* What the first thing is in which it differs from ours: "BUILD model DIGEST options". Files of another version are
 * another build's. */
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

/* One that cannot be believed is said, once; one that is torn has its bytes counted. One of another model is not looked
 * at more closely. */
static void take_up(struct ntx_prefix_store *s, const char *name)
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
        ntx_log(NTX_LOG_WARN, "%s/%s is not used: %s", s->c.dir, name, why(rc));
    if (rc && rc != -ESTALE && !torn(rc))
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

/* As if one file of the mean had gone while they were wanted, in the order of their last use: of files that cost about
 * the same, the one that was not wanted for longest goes. */
static void want_all(struct ntx_prefix_store *s)
{
    double sum = 0;
    qsort(s->file, s->n, sizeof *s->file, by_use);
    for (uint32_t i = 0; i < s->n; i++) {
        want(s, &s->file[i]);
        sum += NTX_MAX(s->file[i].worth, 0.0);
    }
    for (uint32_t i = 0, n = ntx_prefix_store_files(s), k = 0; i < s->n; i++) {
        if (s->file[i].ids)
            s->clock = sum / n * ++k / n;
        want(s, &s->file[i]);
    }
}

static void say_aliens(const struct ntx_prefix_store *s)
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
            take_up(s, e->d_name);
    }
    closedir(d);
    say_aliens(s);
    want_all(s);
    make_room(s, 0);
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
        forget(s, s->n - 1);
    if (s->dir >= 0)
        close(s->dir);
    free(s->file);
    free(s->buffer);
    free(s);
}
