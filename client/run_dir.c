#include "client/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"

#define PREFIX "ntx-run-"
#define SETTLED_S 60 /* longer than a start takes until its socket answers, or is given up */
#define LONGEST 80   /* room for socket names within sun_path */

void ntx_run_dir_remove(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(dir);
}

/* Is anybody listening on its socket? When in doubt, yes. */
static bool answers(const char *dir)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path, sizeof a.sun_path, "%s/ntx.sock", dir);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool none = n > 0 && (size_t)n < sizeof a.sun_path && s >= 0 && connect(s, (struct sockaddr *)&a, sizeof a) && (errno == ECONNREFUSED || errno == ENOENT);
    if (s >= 0)
        close(s);
    return !none;
}

static void sweep(const char *base)
{
    DIR *d = opendir(base);
    char path[LONGEST + 1];
    struct stat st;
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) || (size_t)snprintf(path, sizeof path, "%s/%s", base, e->d_name) >= sizeof path)
            continue;
        bool ours = !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
        if (ours && time(NULL) - st.st_mtime >= SETTLED_S && !answers(path))
            ntx_run_dir_remove(path);
    }
    closedir(d);
}

int ntx_run_dir_make(char *dir, size_t n, struct ntx_err *err)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    if (!base || access(base, W_OK))
        base = (base = getenv("TMPDIR")) && *base ? base : "/tmp";
    if ((size_t)snprintf(dir, n, "%s/" PREFIX "XXXXXX", base) > NTX_MIN(n - 1, LONGEST))
        return ntx_err_set(err, -ENAMETOOLONG, "%s: the path is too long for sockets; set TMPDIR to a shorter one", base);
    sweep(base);
    if (!mkdtemp(dir))
        return ntx_err_set(err, -errno, "%s: cannot make a runtime directory: %s; set TMPDIR to a writable one", base, strerror(errno));
    return 0;
}
