/* SPDX-License-Identifier: Apache-2.0 */
#include "common/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The directory of this program; "." when unknown. */
static void own_directory(char *dir, size_t n)
{
    ssize_t len = readlink("/proc/self/exe", dir, n - 1);
    dir[len > 0 ? len : 0] = 0;
    char *slash = strrchr(dir, '/');
    if (slash)
        *slash = 0;
    else
        snprintf(dir, n, ".");
}

static bool exists(const char *path) { return !access(path, F_OK); }

static void find_library(const char *library, const char *variable, char *path, size_t n)
{
    char dir[PATH_MAX];
    const char *set = getenv(variable);
    own_directory(dir, sizeof dir);
    if (set && *set) {
        snprintf(path, n, "%s", set);
        return;
    }
    snprintf(path, n, "%s/%s", dir, library);
    if (!exists(path))
        snprintf(path, n, "%s/../lib/ntx/%s", dir, library);
    if (!exists(path))
        snprintf(path, n, "%s", library);
}

int ntx_plugin_open(const char *library, const char *variable, const char *symbol, bool global, char *path, size_t n,
                    void **handle, void **fn, struct ntx_err *err)
{
    find_library(library, variable, path, n);
    /* It stays in memory: libraries behind it have threads and exit handlers. */
    if (!(*handle = dlopen(path, RTLD_NOW | RTLD_NODELETE | (global ? RTLD_GLOBAL : RTLD_LOCAL))))
        return ntx_err_set(err, -ENODEV, "%s", dlerror());
    if ((*fn = dlsym(*handle, symbol)))
        return 0;
    dlclose(*handle);
    *handle = NULL;
    return ntx_err_set(err, -ENODEV, "%s is no plug-in of this build", path);
}
