/* SPDX-License-Identifier: Apache-2.0 */
#include "iod/source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

/* 0, or why O_DIRECT does not work. Some file systems accept the flag and refuse the read, so one block is tried. */
static int try_direct(int fd, uint32_t block)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT))
        return -errno;
    void *buf = NULL;
    if (posix_memalign(&buf, block, block))
        return -ENOMEM;
    ssize_t n = pread(fd, buf, block, 0);
    int rc = n < 0 ? -errno : 0;
    free(buf);
    if (rc == -EINVAL) {
        fcntl(fd, F_SETFL, flags);
        return rc;
    }
    return 0; /* any other error is the drive's; the read that needs it will report it */
}

/* tmpfs accepts O_DIRECT, but still copies from its pages. */
static bool in_memory(int fd)
{
    struct statfs st;
    return !fstatfs(fd, &st) && (st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC);
}

void ntx_iod_files_prepare(struct ntx_iod_files *f, uint32_t block, char *note, unsigned note_len)
{
    if (note_len)
        note[0] = 0;
    for (unsigned i = 0; i < f->n; i++) {
        f->memory[i] = in_memory(f->fd[i]);
        int rc = f->memory[i] ? -EOPNOTSUPP : try_direct(f->fd[i], block);
        f->direct[i] = !rc;
        if (rc && note_len && !note[0])
            snprintf(note, note_len, "file %u is read through the page cache: %s", i,
                     f->memory[i] ? "it lies in memory (tmpfs)" : strerror(-rc));
    }
}

int ntx_source_open(const char *which, const struct ntx_region *r, const struct ntx_iod_files *f,
                    struct ntx_iod_ring *ring, struct ntx_source **out, char *note, unsigned note_len,
                    struct ntx_err *err)
{
    bool any = !*which || !strcmp(which, "auto");
    if (note_len)
        note[0] = 0;
    if (!strcmp(which, "pread"))
        return ntx_source_pread(r, f, out, err);
    if (!any && strcmp(which, "uring"))
        return ntx_err_set(err, -EINVAL, "source '%s': expected auto, uring or pread", which);
    struct ntx_err why = {0};
    int rc = ntx_source_uring(r, f, ring, out, note, note_len, &why);
    if (!rc)
        return 0;
    if (!any)
        return ntx_err_set(err, rc, "%s; --source auto or --source pread reads without it", why.text);
    rc = ntx_source_pread(r, f, out, err);
    if (!rc && note_len)
        snprintf(note, note_len, "reading with pread in threads: %s", why.text);
    return rc;
}
