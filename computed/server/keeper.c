/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/server/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define NAME     "ntx-model" /* its name in systemd's store */
#define FIRST_FD 3           /* first descriptor that systemd passes on */
#define MAX_FDS  (NTX_MAX_FILES + 1)

static const uint64_t magic = 0x3170656b78746e6eull;

struct memo { /* the memfd: this head, an identity for each file, the packed Load */
    uint64_t magic;
    uint32_t tries, n_files, load_bytes, reserved;
};
struct identity {
    uint64_t dev, ino;
};

void ntx_kept_free(struct ntx_kept *k)
{
    if (k->load)
        ntx__load__free_unpacked(k->load, NULL);
    for (unsigned i = 0; i < k->n_fds; i++)
        close(k->fds[i]);
    *k = (struct ntx_kept){0};
}

/* ---- the memo */

static int write_memo(const struct ntx_kept *what, int *out)
{
    const size_t n = ntx__load__get_packed_size(what->load);
    const struct memo m = {.magic = magic, .n_files = what->n_fds, .load_bytes = (uint32_t)n};
    int fd = n > UINT32_MAX ? -1 : memfd_create("ntx-model", MFD_CLOEXEC);
    uint8_t *load = malloc(n + 1);
    int rc = fd < 0 ? -errno : 0;
    if (!rc)
        rc = load ? ntx_write_all(fd, &m, sizeof m) : -ENOMEM;
    for (unsigned i = 0; i < what->n_fds && !rc; i++) {
        struct stat st;
        struct identity id;
        rc = fstat(what->fds[i], &st) ? -errno : 0;
        id = (struct identity){rc ? 0 : st.st_dev, rc ? 0 : st.st_ino};
        if (!rc)
            rc = ntx_write_all(fd, &id, sizeof id);
    }
    if (!rc) {
        ntx__load__pack(what->load, load);
        rc = ntx_write_all(fd, load, n);
    }
    free(load);
    if (rc && fd >= 0)
        close(fd);
    else
        *out = fd;
    return rc;
}

static bool read_at(int fd, void *to, size_t n, size_t at) { return pread(fd, to, n, (off_t)at) == (ssize_t)n; }

static bool is_memo(int fd, struct memo *m)
{
    return fcntl(fd, F_GET_SEALS) >= 0 && read_at(fd, m, sizeof *m, 0) && m->magic == magic;
}

/* Takes the memo's files out of fds, in its order. */
static int match_files(const struct memo *m, int memo, int *fds, unsigned n, struct ntx_kept *out)
{
    for (unsigned k = 0; k < m->n_files; k++) {
        struct identity id;
        struct stat st;
        unsigned i = 0;
        if (!read_at(memo, &id, sizeof id, sizeof *m + k * sizeof id))
            return -EBADMSG;
        while (i < n &&
               (fds[i] < 0 || fds[i] == memo || fstat(fds[i], &st) || st.st_dev != id.dev || st.st_ino != id.ino))
            i++;
        if (i == n)
            return -ENOENT;
        out->fds[out->n_fds++] = fds[i];
        fds[i] = -1;
    }
    return 0;
}

static int read_load(const struct memo *m, int memo, struct ntx_kept *out)
{
    uint8_t *bytes = m->load_bytes <= 16u << 20 ? malloc(m->load_bytes + 1) : NULL;
    if (bytes && read_at(memo, bytes, m->load_bytes, sizeof *m + m->n_files * sizeof(struct identity)))
        out->load = ntx__load__unpack(NULL, m->load_bytes, bytes);
    free(bytes);
    return out->load && out->load->n_names ? 0 : -EBADMSG;
}

/* Counts before the try, since this process may die in it. */
static int count_try(struct memo *m, int memo, const struct ntx_kept *what, struct ntx_err *err)
{
    if (m->tries >= NTX_KEEP_TRIES)
        return ntx_err_set(err, -ELOOP, "%s is not loaded again: ntx-computed has ended %u times while it was loaded",
                           what->load->names[0], m->tries);
    m->tries++;
    if (pwrite(memo, &m->tries, sizeof m->tries, offsetof(struct memo, tries)) != sizeof m->tries)
        return ntx_err_set(err, -EIO, "%s is not loaded again: its tries cannot be counted", what->load->names[0]);
    return 0;
}

/* Reads a kept model from descriptors in any order, and takes all of them over. */
static int read_kept(struct ntx_keeper *k, int *fds, unsigned n, struct ntx_kept *out, struct ntx_err *err)
{
    struct memo m = {0};
    int memo = -1, rc = -ENOENT;
    for (unsigned i = 0; i < n && memo < 0; i++)
        if (is_memo(fds[i], &m))
            memo = fds[i];
    if (memo >= 0 && m.n_files && m.n_files <= NTX_MAX_FILES)
        rc = read_load(&m, memo, out);
    if (!rc)
        rc = match_files(&m, memo, fds, n, out);
    if (!rc)
        rc = count_try(&m, memo, out, err);
    else
        ntx_err_set(err, rc, "the model that was served before is not loaded again: not all of its files were kept%s%s",
                    out->load ? ": " : "", out->load ? out->load->names[0] : "");
    for (unsigned i = 0; i < n; i++)
        if (fds[i] >= 0 && fds[i] != memo)
            close(fds[i]);
    k->memo = memo;
    if (rc)
        ntx_kept_free(out);
    return rc ? rc : 1;
}

/* ---- a pair of sockets */

static int receive_fds(struct ntx_keeper *k, int *fds, unsigned *n, int flags)
{
    char byte;
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } ctl;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.bytes, .msg_controllen = sizeof ctl.bytes};
    *n = 0;
    if (recvmsg(k->in, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | flags) <= 0)
        return -EAGAIN;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        *n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), *n * sizeof *fds);
    }
    return 0;
}

static bool drop_one(struct ntx_keeper *k)
{
    int fds[MAX_FDS];
    unsigned n;
    if (receive_fds(k, fds, &n, 0))
        return false;
    while (n)
        close(fds[--n]);
    return true;
}

/* ---- systemd */

/* Number of descriptors that systemd passes to this process. */
static unsigned passed_on(void)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    unsigned many = pid && n && atoi(pid) == (int)getpid() ? (unsigned)atoi(n) : 0;
    return NTX_MIN(many, 4096u);
}

static int take_stored(struct ntx_keeper *k, struct ntx_kept *out, struct ntx_err *err)
{
    int fds[MAX_FDS];
    unsigned n = 0, many = passed_on();
    for (unsigned i = 0; i < many; i++) {
        int fd = FIRST_FD + (int)i;
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        if (n < MAX_FDS)
            fds[n++] = fd;
        else
            close(fd);
    }
    unsetenv("LISTEN_PID"); /* child processes must not take them */
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return n ? read_kept(k, fds, n, out, err) : 0;
}

/* ---- the interface */

void ntx_keeper_open(struct ntx_keeper *k, const int pair[2])
{
    *k = (struct ntx_keeper){
        .in = pair[0], .out = pair[1], .systemd = pair[0] < 0 && getenv("NOTIFY_SOCKET"), .memo = -1};
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            fcntl(pair[i], F_SETFD, FD_CLOEXEC);
}

int ntx_keeper_take(struct ntx_keeper *k, struct ntx_kept *out, struct ntx_err *err)
{
    int fds[MAX_FDS];
    unsigned n;
    *out = (struct ntx_kept){0};
    if (k->systemd)
        return take_stored(k, out, err);
    if (k->in < 0 || receive_fds(k, fds, &n, MSG_PEEK))
        return 0;
    return read_kept(k, fds, n, out, err);
}

void ntx_keeper_drop(struct ntx_keeper *k)
{
    if (k->systemd && k->memo >= 0)
        ntx_notify("FDSTOREREMOVE=1\nFDNAME=" NAME);
    while (k->in >= 0 && drop_one(k))
        ;
    if (k->memo >= 0)
        close(k->memo);
    k->memo = -1;
}

int ntx_keeper_put(struct ntx_keeper *k, const struct ntx_kept *what, struct ntx_err *err)
{
    int fds[MAX_FDS], memo;
    if (k->in < 0 && !k->systemd)
        return 0;
    int rc = write_memo(what, &memo);
    if (!rc) {
        ntx_keeper_drop(k); /* first, since the store takes no file twice */
        fds[0] = k->memo = memo;
        memcpy(fds + 1, what->fds, what->n_fds * sizeof *fds);
        rc = k->systemd ? ntx_notify_fds("FDSTORE=1\nFDNAME=" NAME, fds, what->n_fds + 1)
                        : ntx_send_fds(k->out, "k", 1, fds, what->n_fds + 1);
    }
    return rc ? ntx_err_set(err, rc, "if ntx-computed dies, %s is not loaded again: its files cannot be kept (%s)",
                            what->load->names[0], strerror(-rc))
              : 0;
}
