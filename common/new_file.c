/* SPDX-License-Identifier: Apache-2.0 */
#include "common/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int ntx_folder_of(const char *path, char folder[NTX_NEW_FILE_PATH])
{
    if (snprintf(folder, NTX_NEW_FILE_PATH, "%s", path) >= NTX_NEW_FILE_PATH)
        return -ENAMETOOLONG;
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    else
        memcpy(folder, ".", 2);
    return 0;
}

/* Path by which an unnamed file can be linked without a privilege. */
static void fd_path(int fd, char name[32]) { snprintf(name, 32, "/proc/self/fd/%d", fd); }

static int open_unnamed(const char *path)
{
    char folder[NTX_NEW_FILE_PATH], name[32];
    int rc = ntx_folder_of(path, folder), fd = rc ? rc : open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return fd;
    fd_path(fd, name);
    if (!faccessat(AT_FDCWD, name, F_OK, AT_SYMLINK_NOFOLLOW))
        return fd;
    close(fd);
    return -1;
}

int ntx_new_file_open(struct ntx_new_file *f, const char *path)
{
    *f = (struct ntx_new_file){.fd = -1};
    if (snprintf(f->temp, sizeof f->temp, "%s.%d.tmp", path, (int)getpid()) >= (int)sizeof f->temp)
        return -ENAMETOOLONG;
    f->fd = open_unnamed(path);
    f->unnamed = f->fd >= 0;
    if (!f->unnamed)
        f->fd = open(f->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return f->fd < 0 ? -errno : 0;
}

/* A link does not replace a file of that name, but a rename does. */
static int take_name(struct ntx_new_file *f, const char *path)
{
    char name[32];
    fd_path(f->fd, name);
    if (!linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
        return 0;
    if (errno != EEXIST || (linkat(AT_FDCWD, name, AT_FDCWD, f->temp, AT_SYMLINK_FOLLOW) && errno != EEXIST))
        return -errno;
    f->unnamed = false;
    return rename(f->temp, path) ? -errno : 0;
}

int ntx_new_file_name(struct ntx_new_file *f, const char *path)
{
    int rc = 0;
    if (f->unnamed)
        rc = take_name(f, path);
    else if (rename(f->temp, path))
        rc = -errno;
    if (rc)
        return rc;
    rc = close(f->fd) ? -errno : 0;
    f->fd = -1;
    return rc;
}

void ntx_new_file_drop(struct ntx_new_file *f)
{
    if (f->temp[0] == 0 || f->fd < 0)
        return;
    close(f->fd);
    f->fd = -1;
    if (!f->unnamed)
        unlink(f->temp);
}
