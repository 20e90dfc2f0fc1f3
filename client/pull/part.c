/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/part.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

enum { TRIES = 6, WAIT_MOST_MS = 30000, GAIN = 64 << 10 };

struct pulling {
    const struct ntx_pull_part *p;
    int fd; /* .FILE.part */
    char part[300], from[300];
    uint64_t have, most; /* bytes; the largest value so far */
    struct sha256_ctx sha;
    bool begun;         /* the current answer has sent something */
    struct ntx_err why; /* error of take_bytes() */
};

static void set_names(struct pulling *x)
{
    snprintf(x->part, sizeof x->part, ".%s.part", x->p->file->name);
    snprintf(x->from, sizeof x->from, ".%s.from", x->p->file->name);
}

/* ---- present files */

int ntx_part_have(const struct ntx_pull_part *p, uint64_t *bytes, bool *whole, struct ntx_err *err)
{
    char part[300];
    struct stat st;
    *whole = !fstatat(p->folder, p->file->name, &st, AT_SYMLINK_NOFOLLOW);
    if (*whole && (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != p->file->size))
        return ntx_err_set(err, -EEXIST, "%s/%s is there, and is another file: take it away first (ntx rm)", p->dir,
                           p->file->name);
    if (!*whole) {
        snprintf(part, sizeof part, ".%s.part", p->file->name);
        if (fstatat(p->folder, part, &st, AT_SYMLINK_NOFOLLOW) || (uint64_t)st.st_size > p->file->size)
            st.st_size = 0;
    }
    *bytes = (uint64_t)st.st_size;
    return 0;
}

/* Describes the version that the part must belong to. */
static void describe_version(const struct ntx_pull_part *p, char line[400])
{
    snprintf(line, 400, "%llu %s\n", (unsigned long long)p->file->size, *p->file->sha256 ? p->file->sha256 : p->etag);
}

static bool is_same(const struct pulling *x)
{
    char want[400], got[400] = "";
    int fd = openat(x->p->folder, x->from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, got, sizeof got - 1);
    if (fd >= 0)
        close(fd);
    describe_version(x->p, want);
    got[NTX_MAX(n, 0)] = 0;
    return (*x->p->file->sha256 || *x->p->etag) && !strcmp(want, got);
}

static int write_all(int fd, const char *p, size_t n)
{
    for (ssize_t k; n; p += k, n -= (size_t)k)
        if ((k = write(fd, p, n)) < 0)
            return -errno;
    return 0;
}

static int note_from(const struct pulling *x)
{
    char line[400];
    describe_version(x->p, line);
    unlinkat(x->p->folder, x->from, 0); /* made again: the present one may be a hard link to another file */
    int fd = openat(x->p->folder, x->from, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    int rc = fd < 0 ? -errno : write_all(fd, line, strlen(line));
    if (fd >= 0 && close(fd) && !rc)
        rc = -errno;
    return rc;
}

static int start_over(struct pulling *x)
{
    x->have = 0;
    sha256_init(&x->sha);
    return ftruncate(x->fd, 0) || lseek(x->fd, 0, SEEK_SET) ? -errno : note_from(x);
}

/* Hashes the present bytes; the descriptor is then after them. */
static int hash_present(struct pulling *x)
{
    uint8_t buf[1 << 16];
    struct stat st;
    if (fstat(x->fd, &st))
        return -errno;
    if (!is_same(x) || (uint64_t)st.st_size > x->p->file->size)
        return start_over(x);
    sha256_init(&x->sha);
    for (ssize_t n; (n = read(x->fd, buf, sizeof buf)) != 0; x->have += (uint64_t)n) {
        if (n < 0)
            return -errno;
        if (*x->p->file->sha256)
            sha256_update(&x->sha, (size_t)n, buf);
    }
    return 0;
}

/* In another user's folder it may be a hard link to any file. */
static int check_part(const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return -EINVAL;
    return st->st_nlink == 1 ? 0 : -EPERM;
}

/* Locks the part and checks that the name still means this file. */
static int lock_part(struct pulling *x)
{
    struct stat mine, named;
    for (;;) {
        x->fd = openat(x->p->folder, x->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (x->fd < 0)
            return -errno;
        if (flock(x->fd, LOCK_EX | LOCK_NB))
            return errno == EWOULDBLOCK ? -EBUSY : -errno;
        if (!fstat(x->fd, &mine) && !fstatat(x->p->folder, x->part, &named, AT_SYMLINK_NOFOLLOW) &&
            mine.st_ino == named.st_ino && mine.st_dev == named.st_dev)
            return check_part(&mine);
        close(x->fd); /* another process has finished it meanwhile */
    }
}

/* ---- the download */

/* The first bytes of an answer: a server without ranges, or with another version, starts over. */
static int begin_answer(struct pulling *x, const struct ntx_web_answer *a)
{
    const struct ntx_hub_file *f = x->p->file;
    x->begun = true;
    if (a->size != NTX_WEB_UNKNOWN && a->size != f->size)
        return ntx_err_set(&x->why, -EMSGSIZE, "the server has %llu bytes of it, expected %llu",
                           (unsigned long long)a->size, (unsigned long long)f->size);
    if (a->from == x->have)
        return 0;
    if (a->from)
        return ntx_err_set(&x->why, -EPROTO, "the server sends it from byte %llu, which was not asked for",
                           (unsigned long long)a->from);
    int rc = start_over(x);
    return rc ? ntx_err_set(&x->why, rc, "%s/%s: %s", x->p->dir, x->part, strerror(-rc)) : 0;
}

static int take_bytes(void *arg, const struct ntx_web_answer *a, const void *p, size_t n)
{
    struct pulling *x = arg;
    const struct ntx_hub_file *f = x->p->file;
    int rc = x->begun ? 0 : begin_answer(x, a);
    if (!rc && n > f->size - x->have)
        rc = ntx_err_set(&x->why, -EMSGSIZE, "the server sends more than the expected %llu bytes",
                         (unsigned long long)f->size);
    if (rc)
        return rc;
    if ((rc = write_all(x->fd, p, n)))
        return ntx_err_set(&x->why, rc, "%s/%s: %s; the part stays, and ntx pull continues with it", x->p->dir, x->part,
                           strerror(-rc));
    x->have += n;
    if (*f->sha256)
        sha256_update(&x->sha, n, p);
    if (x->p->at)
        x->p->at(x->p->arg, x->have);
    return 0;
}

/* One try. -EAGAIN: try again. */
static int get_rest(struct pulling *x, struct ntx_web *w, struct ntx_err *err)
{
    struct ntx_web_answer a;
    bool sure = *x->p->file->sha256,
         same = sure || *x->p->etag; /* the hash shows at the end whether all parts were of one version */
    int rc = same || !x->have ? 0 : start_over(x);
    struct ntx_web_request q = {
        .url = x->p->file->url, .from = x->have, .if_range = sure ? "" : x->p->etag, .take = take_bytes, .arg = x};
    x->begun = false;
    x->why = (struct ntx_err){0};
    if (!rc)
        rc = ntx_web_get(w, &q, &a, err);
    if (x->why.code)
        *err = x->why;
    if (!rc && x->have < x->p->file->size)
        rc = ntx_err_set(err, -EAGAIN, "the server sent %llu of %llu bytes", (unsigned long long)x->have,
                         (unsigned long long)x->p->file->size);
    return rc;
}

/* Counts the tries that add little to the bytes of all before. */
static int get_all(struct pulling *x, struct ntx_web *w, struct ntx_err *err)
{
    unsigned wait = x->p->wait_ms;
    int rc = 0;
    for (unsigned tries = 0; x->have < x->p->file->size;) {
        rc = get_rest(x, w, err);
        if (rc == -ERANGE && x->have && !(rc = start_over(x)))
            rc = -EAGAIN;
        if (rc != -EAGAIN)
            break;
        if (x->have >= x->most + GAIN) { /* a server that drips is no better than a silent one */
            tries = 0;
            wait = x->p->wait_ms;
        }
        x->most = NTX_MAX(x->most, x->have);
        if (++tries == TRIES)
            break;
        if (x->p->again)
            x->p->again(x->p->arg, err->text, (wait + 999) / 1000);
        poll(NULL, 0, (int)wait);
        wait = NTX_MIN(2 * wait, (unsigned)WAIT_MOST_MS);
    }
    return rc;
}

/* ---- the end */

static int check_hash(struct pulling *x, struct ntx_err *err)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t sum[SHA256_DIGEST_SIZE];
    char text[2 * SHA256_DIGEST_SIZE + 1] = "";
    if (!*x->p->file->sha256)
        return 0;
    sha256_digest(&x->sha, sizeof sum, sum);
    for (unsigned i = 0; i < sizeof sum; i++) {
        text[2 * i] = hex[sum[i] >> 4];
        text[2 * i + 1] = hex[sum[i] & 15];
    }
    if (!strcmp(text, x->p->file->sha256))
        return 0;
    unlinkat(x->p->folder, x->part, 0);
    unlinkat(x->p->folder, x->from, 0);
    return ntx_err_set(err, -EBADMSG, "%s: its SHA-256 is %s, not %s: the download is discarded", x->p->file->name,
                       text, x->p->file->sha256);
}

static int rename_part(struct pulling *x, struct ntx_err *err)
{
    int rc = fsync(x->fd) ? -errno : 0;
    if (!rc && renameat2(x->p->folder, x->part, x->p->folder, x->p->file->name, RENAME_NOREPLACE))
        /* EINVAL: a file system without RENAME_NOREPLACE */
        rc = errno == EINVAL && !renameat(x->p->folder, x->part, x->p->folder, x->p->file->name) ? 0 : -errno;
    if (rc)
        return ntx_err_set(err, rc, "%s/%s: %s", x->p->dir, x->p->file->name, strerror(-rc));
    unlinkat(x->p->folder, x->from, 0);
    fsync(x->p->folder);
    return 0;
}

static int pull_locked(struct pulling *x, struct ntx_web *w, struct ntx_err *err)
{
    uint64_t bytes;
    bool whole;
    int rc = ntx_part_have(x->p, &bytes, &whole, err); /* another process may have finished it before we got the lock */
    if (rc || whole) {
        unlinkat(x->p->folder, x->part, 0);
        return rc;
    }
    if ((rc = hash_present(x)))
        return ntx_err_set(err, rc, "%s/%s: %s", x->p->dir, x->part, strerror(-rc));
    x->most = x->have;
    rc = get_all(x, w, err);
    if (rc && !err->code)
        ntx_err_set(err, rc, "%s: %s", x->p->file->name, strerror(-rc));
    if (!rc)
        rc = check_hash(x, err);
    return rc ? rc : rename_part(x, err);
}

int ntx_part_pull(struct ntx_web *w, const struct ntx_pull_part *p, struct ntx_err *err)
{
    struct pulling x = {.p = p, .fd = -1};
    set_names(&x);
    int rc = lock_part(&x);
    if (rc == -EPERM)
        ntx_err_set(err, rc,
                    "%s/%s: the file has a second name elsewhere (a hard link): take it away first (ntx "
                    "rm)",
                    p->dir, x.part);
    else if (rc == -EBUSY)
        ntx_err_set(err, rc, "%s is being pulled by another ntx", p->file->name);
    else if (rc)
        ntx_err_set(err, rc, "%s/%s: %s", p->dir, x.part, strerror(-rc));
    else
        rc = pull_locked(&x, w, err);
    if (x.fd >= 0)
        close(x.fd);
    return rc;
}
