/* SPDX-License-Identifier: Apache-2.0 */
#include "client/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/util.h"

#define PREFIX        "ntx-run-"
#define MARK          ".ntx-run"
#define UNLOCKED_MARK ".ntx-run.new" /* the mark's name until it is locked */
#define LONGEST       80             /* keeps socket names within sun_path */

/* Names that daemons create in a runtime directory. Links are sockets named ci.N, cp.N, pi.N.M (proto/link.h). */
static bool made_by_daemons(const char *name, mode_t mode)
{
    static const char *const files[] = {"counters", ".counters.new", "ntx-iod.end", "ntx-predictor.end"},
                             *const sockets[] = {"ntx.sock", "new.sock", "region.sock"},
                             *const links[] = {"ci.", "cp.", "pi."};
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
        if (!strcmp(name, files[i]))
            return S_ISREG(mode);
    for (unsigned i = 0; i < sizeof sockets / sizeof *sockets; i++)
        if (!strcmp(name, sockets[i]))
            return S_ISSOCK(mode);
    for (unsigned i = 0; i < sizeof links / sizeof *links; i++)
        if (!strncmp(name, links[i], 3))
            return S_ISSOCK(mode) && !name[3 + strspn(name + 3, "0123456789.")];
    return false;
}

/* Removes our files in the directory `name` of `base`, the mark last; then the directory, if it is empty. */
static void remove_ours(int base, const char *name)
{
    struct stat st;
    int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (!fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) && made_by_daemons(e->d_name, st.st_mode))
            unlinkat(fd, e->d_name, 0);
    unlinkat(fd, MARK, 0);
    closedir(d);
    unlinkat(base, name, AT_REMOVEDIR);
}

void ntx_run_dir_remove(const char *dir, int mark)
{
    remove_ours(AT_FDCWD, dir);
    close(mark);
}

/* Opens the mark of the directory `name` of `base` for reading; -1: not our directory. */
static int open_mark(int base, const char *name)
{
    struct stat st;
    int dir = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd = -1;
    if (dir < 0)
        return -1;
    if (!fstat(dir, &st) && st.st_uid == geteuid())
        fd = openat(dir, MARK, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())) {
        close(fd);
        fd = -1;
    }
    close(dir);
    return fd;
}

static pid_t marked_pid(int fd)
{
    char text[32] = "";
    return pread(fd, text, sizeof text - 1, 0) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

struct looks {                                          /* one pass over the directories of a base */
    void (*see)(const char *dir, pid_t pid, void *arg); /* called for live runs; may be NULL */
    void *arg;
    bool sweep; /* remove dead runs */
};

static void look_at_dir(int base, const char *base_name, const char *name, const struct looks *l)
{
    char path[LONGEST + 1];
    int fd = open_mark(base, name);
    if (fd < 0)
        return;
    bool living = flock(fd, (l->sweep ? LOCK_EX : LOCK_SH) | LOCK_NB) && errno == EWOULDBLOCK;
    if (!living && l->sweep)
        remove_ours(base, name);
    if (living && l->see && (size_t)snprintf(path, sizeof path, "%s/%s", base_name, name) < sizeof path)
        l->see(path, marked_pid(fd), l->arg);
    close(fd);
}

static void look_at_all(const char *base, const struct looks *l)
{
    DIR *d = opendir(base);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, PREFIX, strlen(PREFIX)))
            look_at_dir(dirfd(d), base, e->d_name, l);
    closedir(d);
}

static const char *temporary_base(void)
{
    const char *s = getenv("TMPDIR");
    return s && *s ? s : "/tmp";
}

/* A run of another login may be in a place that our environment does not name; a variable set to nothing excludes
 * its place. */
void ntx_run_dir_living(void (*see)(const char *dir, pid_t pid, void *arg), void *arg)
{
    struct looks l = {.see = see, .arg = arg};
    char login[40];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    snprintf(login, sizeof login, "/run/user/%u", (unsigned)geteuid());
    runtime = runtime ? runtime : login;
    if (*runtime)
        look_at_all(runtime, &l);
    if (strcmp(runtime, temporary_base()))
        look_at_all(temporary_base(), &l);
}

/* The mark gets its name after it is locked: it never looks free while its run lives. */
static int make_mark(const char *dir)
{
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd, rc;
    if (d < 0)
        return -errno;
    fd = openat(d, UNLOCKED_MARK, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    rc = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || dprintf(fd, "%d\n", (int)getpid()) < 0 ||
                 renameat(d, UNLOCKED_MARK, d, MARK)
             ? -errno
             : fd;
    if (rc < 0 && fd >= 0) {
        unlinkat(d, UNLOCKED_MARK, 0);
        close(fd);
    }
    close(d);
    return rc;
}

int ntx_run_dir_make(char *dir, size_t n, int *mark, struct ntx_err *err)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    if (!base || !*base || access(base, W_OK))
        base = temporary_base();
    if ((size_t)snprintf(dir, n, "%s/" PREFIX "XXXXXX", base) > NTX_MIN(n - 1, LONGEST))
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long for sockets; set TMPDIR to a shorter one",
                           base);
    look_at_all(base, &(struct looks){.sweep = true});
    int rc = mkdtemp(dir) ? 0 : -errno;
    if (!rc && (rc = make_mark(dir)) < 0)
        rmdir(dir);
    if (rc < 0)
        return ntx_err_set(err, rc, "%s: cannot make a runtime directory: %s; %sset TMPDIR to a writable one", base,
                           strerror(-rc), rc == -ENOSPC || rc == -EDQUOT ? "make room, or " : "");
    *mark = rc;
    return 0;
}
