/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pull/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MOST = 40, FOLDER = O_PATH | O_NOFOLLOW | O_CLOEXEC };

struct walk {
    char rest[2 * PATH_MAX], name[NAME_MAX + 1]; /* remaining components, and the current one */
    int at;                                      /* the folder reached */
    unsigned links;                              /* number of links followed */
    bool make, follow;
};

/* Moves the next component into name. False: there is none. */
static bool next_name(struct walk *w, int *rc)
{
    size_t skip = strspn(w->rest, "/"), n = strcspn(w->rest + skip, "/");
    *rc = n < sizeof w->name ? 0 : -ENAMETOOLONG;
    if (!n || *rc)
        return false;
    memcpy(w->name, w->rest + skip, n);
    w->name[n] = 0;
    memmove(w->rest, w->rest + skip + n, strlen(w->rest + skip + n) + 1);
    return true;
}

static int enter_folder(struct walk *w, int fd)
{
    if (w->at >= 0)
        close(w->at);
    w->at = fd;
    return fd < 0 ? -errno : 0;
}

/* The link's target is walked component by component, too, since others may have put links there. */
static int follow_link(struct walk *w, int link, const struct stat *st, struct ntx_err *err)
{
    char to[PATH_MAX];
    ssize_t n = readlinkat(link, "", to, sizeof to - 1);
    if (!w->follow)
        return ntx_err_set(err, -ELOOP,
                           "%s is a symbolic link: nothing is written or removed through one within "
                           "the store; put a folder in its place",
                           w->name);
    if (st->st_uid && st->st_uid != geteuid())
        return ntx_err_set(err, -ELOOP,
                           "%s is a symbolic link of another user (uid %u): set XDG_DATA_HOME to the "
                           "folder that it leads to",
                           w->name, (unsigned)st->st_uid);
    if (n < 0)
        return -errno;
    to[n] = 0;
    size_t more = strlen(w->rest);
    if (++w->links > LINKS_MOST || (size_t)n + 1 + more >= sizeof w->rest)
        return -ELOOP;
    memmove(w->rest + n + 1, w->rest, more + 1);
    memcpy(w->rest, to, (size_t)n);
    w->rest[n] = '/';
    return *to == '/' ? enter_folder(w, open("/", FOLDER | O_DIRECTORY)) : 0;
}

static int walk_step(struct walk *w, struct ntx_err *err)
{
    struct stat st;
    int fd = openat(w->at, w->name, FOLDER);
    if (fd < 0 && errno == ENOENT && w->make) {
        if (mkdirat(w->at, w->name, 0777) && errno != EEXIST)
            return -errno;
        fd = openat(w->at, w->name, FOLDER);
    }
    if (fd < 0 || fstat(fd, &st))
        return fd < 0 ? -errno : (close(fd), -EIO);
    if (S_ISDIR(st.st_mode))
        return enter_folder(w, fd);
    int rc = S_ISLNK(st.st_mode) ? follow_link(w, fd, &st, err) : -ENOTDIR;
    close(fd);
    return rc;
}

static int walk(struct walk *w, const char *path, bool links, struct ntx_err *err)
{
    int rc = 0;
    w->follow = links;
    if (strlen(path) >= sizeof w->rest)
        return -ENAMETOOLONG;
    strcpy(w->rest, path);
    while (!rc && next_name(w, &rc))
        rc = walk_step(w, err);
    return rc;
}

int ntx_place_open(const char *root, const char *within, bool make, struct ntx_err *err)
{
    struct walk w = {.at = -1, .make = make};
    struct ntx_err why = {0};
    int rc = enter_folder(&w, open("/", FOLDER | O_DIRECTORY)), fd = -1;
    if (!rc)
        rc = walk(&w, root, true, &why);
    if (!rc)
        rc = walk(&w, within, false, &why);
    if (!rc && (fd = openat(w.at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = -errno;
    if (w.at >= 0)
        close(w.at);
    if (!rc)
        return fd;
    return ntx_err_set(err, rc, "%s%s%s: %s", root, *within ? "/" : "", within, *why.text ? why.text : strerror(-rc));
}
