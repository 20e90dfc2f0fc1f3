/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define MAGIC   0x7372746e75636e78ULL
#define VERSION 4u

const struct ntx_counter_info ntx_counter_info[NTX_N_COUNTERS] = {
#define KIND_c                    'c'
#define KIND_g                    'g'
#define X(name, kind, unit, help) {#name, unit, help, KIND_##kind},
    NTX_COUNTERS(X)
#undef X
};

static int counters_path(const char *dir, const char *name, char *buf, struct ntx_err *err)
{
    int n = snprintf(buf, PATH_MAX, "%s/%s", dir, name);
    return n < 0 || n >= PATH_MAX ? ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir) : 0;
}

static int map_counters(int fd, int prot, const char *name, struct ntx_counters **out, struct ntx_err *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return ntx_err_set(err, -errno, "%s: %s", name, strerror(errno));
    if (st.st_size != sizeof(struct ntx_counters))
        return ntx_err_set(err, -EPROTO, "%s: %lld bytes, expected %zu: written by another version of ntx", name,
                           (long long)st.st_size, sizeof(struct ntx_counters));
    void *p = mmap(NULL, sizeof(struct ntx_counters), prot, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return ntx_err_set(err, -errno, "%s: %s", name, strerror(errno));
    *out = p;
    return 0;
}

static int map_checked(int fd, int prot, const char *name, struct ntx_counters **out, struct ntx_err *err)
{
    struct ntx_counters *c = NULL;
    int rc = map_counters(fd, prot, name, &c, err);
    if (rc)
        return rc;
    if (c->magic != MAGIC || c->version != VERSION || c->n != NTX_N_COUNTERS) {
        ntx_counters_close(c);
        return ntx_err_set(err, -EPROTO, "%s: not the counters of this version of ntx", name);
    }
    *out = c;
    return 0;
}

/* The file is made under another name first, so that a monitor never sees half a file. */
int ntx_counters_create(const char *dir, struct ntx_counters **out, int *fd_out, struct ntx_err *err)
{
    char path[PATH_MAX], tmp[PATH_MAX];
    struct ntx_counters *c = NULL;
    int rc = counters_path(dir, "counters", path, err);
    if (rc || (rc = counters_path(dir, ".counters.new", tmp, err)))
        return rc;
    unlink(tmp);
    int fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: %s", tmp, strerror(errno));
    /* allocate all of it now: a full file system must fail here, not with SIGBUS at the first count */
    if ((rc = fchmod(fd, 0640) ? -errno : -posix_fallocate(fd, 0, sizeof *c))) {
        ntx_err_set(err, rc,
                    "%s: %s: the counters take %zu bytes there; make room, or set NTX_RUNTIME to another directory",
                    tmp, strerror(-rc), sizeof *c);
        goto fail;
    }
    if ((rc = map_counters(fd, PROT_READ | PROT_WRITE, tmp, &c, err)))
        goto fail;
    c->magic = MAGIC;
    c->version = VERSION;
    c->n = NTX_N_COUNTERS;
    c->started_ns = ntx_now_ns();
    if (rename(tmp, path)) {
        rc = ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
        goto fail;
    }
    *out = c;
    *fd_out = fd;
    return 0;
fail:
    ntx_counters_close(c);
    unlink(tmp);
    close(fd);
    return rc;
}

int ntx_counters_open(const char *dir, const struct ntx_counters **out, struct ntx_err *err)
{
    char path[PATH_MAX];
    struct ntx_counters *c = NULL;
    int rc = counters_path(dir, "counters", path, err);
    if (rc)
        return rc;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return ntx_err_set(
            err, -ENOENT,
            "%s: no such file; no daemons run there (start them with `ntx up MODEL` or `systemctl start ntx.target`)",
            path);
    if (fd < 0 && errno == EACCES)
        return ntx_err_set(err, -EACCES, "%s: permission denied; the service's counters are for members of group ntx",
                           path);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: %s", path, strerror(errno));
    rc = map_checked(fd, PROT_READ, path, &c, err);
    close(fd);
    if (!rc)
        *out = c;
    return rc;
}

int ntx_counters_map(int fd, struct ntx_counters **out, struct ntx_err *err)
{
    return map_checked(fd, PROT_READ | PROT_WRITE, "counters", out, err);
}

void ntx_counters_close(struct ntx_counters *c)
{
    if (c)
        munmap(c, sizeof *c);
}
