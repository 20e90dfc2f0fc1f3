/* SPDX-License-Identifier: Apache-2.0 */
#include "model/mmproj.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

bool ntx_mmproj_is_name(const char *file)
{
    const size_t n = strlen(file);
    return n > 5 && !strcasecmp(file + n - 5, ".gguf") && strcasestr(file, "mmproj");
}

/* Whether rows of this projector are as wide as the model's. A file that does not say so may suit. */
static bool suits(const struct ntx_gguf *model, int dir, const char *file)
{
    char key[128];
    struct ntx_str arch;
    struct ntx_gguf *g = NULL;
    struct stat st;
    uint64_t rows = 0, width = 0;
    int fd = openat(dir, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool good = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && !ntx_gguf_open(&fd, 1, &file, &g, NULL) &&
                !ntx_gguf_str(g, "general.architecture", &arch) && arch.n == 4 && !memcmp(arch.p, "clip", 4);
    if (good && !ntx_gguf_str(model, "general.architecture", &arch) && arch.n < 64) {
        snprintf(key, sizeof key, "%.*s.embedding_length", (int)arch.n, arch.p);
        good = ntx_gguf_u64(g, "clip.vision.projection_dim", &rows) || ntx_gguf_u64(model, key, &width) ||
               rows == width;
    }
    ntx_gguf_free(g);
    if (fd >= 0)
        close(fd);
    return good;
}

static size_t alike(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

bool ntx_mmproj_beside(const struct ntx_gguf *model, const char *path, char *found, size_t room)
{
    const char *slash = strrchr(path, '/'), *own = slash ? slash + 1 : path;
    char folder[4096], best[256] = "";
    size_t best_n = 0;
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 2, slash ? path : "./") >=
        (int)sizeof folder)
        return false;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        const size_t n = alike(e->d_name, own);
        if (!ntx_mmproj_is_name(e->d_name) || !strcmp(e->d_name, own) || strlen(e->d_name) >= sizeof best ||
            (*best && (n < best_n || (n == best_n && strcmp(e->d_name, best) > 0))) ||
            !suits(model, dirfd(d), e->d_name))
            continue;
        snprintf(best, sizeof best, "%s", e->d_name);
        best_n = n;
    }
    if (d)
        closedir(d);
    return *best && snprintf(found, room, "%s%s", folder, best) < (int)room;
}
