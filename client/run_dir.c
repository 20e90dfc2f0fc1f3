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
#define UNLOCKED_MARK ".ntx-run.new" /* not yet the mark */
#define LONGEST       80             /* room for socket names within sun_path */

/* What daemons make in a runtime directory. Links are sockets named ci.N, cp.N, pi.N.M (proto/link.h). */
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

/* What is ours in the directory `name` of `base`, the mark last; then the directory, where that was all. */
static void empty(int base, const char *name)
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
    empty(AT_FDCWD, dir);
    close(mark);
}

/* The mark of the directory `name` of `base`, open for reading; -1 where it is not one of ours. */
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

struct looks {                                          /* at the directories of one base */
    void (*see)(const char *dir, pid_t pid, void *arg); /* the living; NULL: nobody asks */
    void *arg;
    bool sweep; /* the dead go */
};

static void look_at(int base, const char *base_name, const char *name, const struct looks *l)
{
    char path[LONGEST + 1];
    int fd = open_mark(base, name);
    if (fd < 0)
        return;
    bool living = flock(fd, (l->sweep ? LOCK_EX : LOCK_SH) | LOCK_NB) && errno == EWOULDBLOCK;
    if (!living && l->sweep)
        empty(base, name);
    if (living && l->see && (size_t)snprintf(path, sizeof path, "%s/%s", base_name, name) < sizeof path)
        l->see(path, marked_pid(fd), l->arg);
    close(fd);
}

static void look(const char *base, const struct looks *l)
{
    DIR *d = opendir(base);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (!strncmp(e->d_name, PREFIX, strlen(PREFIX)))
            look_at(dirfd(d), base, e->d_name, l);
    closedir(d);
}

static const char *temporary(void)
{
    const char *s = getenv("TMPDIR");
    return s && *s ? s : "/tmp";
}

/* A run of another login may lie where our environment would not have put it; a variable that is set to nothing says
 * not to look. */
void ntx_run_dir_living(void (*see)(const char *dir, pid_t pid, void *arg), void *arg)
{
    struct looks l = {.see = see, .arg = arg};
    char login[40];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    snprintf(login, sizeof login, "/run/user/%u", (unsigned)geteuid());
    runtime = runtime ? runtime : login;
    if (*runtime)
        look(runtime, &l);
    if (strcmp(runtime, temporary()))
        look(temporary(), &l);
}

/* The mark gets its name when it is locked: nobody ever sees it free while its run lives. */
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
        base = temporary();
    if ((size_t)snprintf(dir, n, "%s/" PREFIX "XXXXXX", base) > NTX_MIN(n - 1, LONGEST))
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long for sockets; set TMPDIR to a shorter one",
                           base);
    look(base, &(struct looks){.sweep = true});
    int rc = mkdtemp(dir) ? 0 : -errno;
    if (!rc && (rc = make_mark(dir)) < 0)
        rmdir(dir);
    if (rc < 0)
        return ntx_err_set(err, rc, "%s: cannot make a runtime directory: %s; %sset TMPDIR to a writable one", base,
                           strerror(-rc), rc == -ENOSPC || rc == -EDQUOT ? "make room, or " : "");
    *mark = rc;
    return 0;
}
