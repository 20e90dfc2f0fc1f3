#include "infer/device/gpu.h"

#include "common/backends.h"
#include "infer/device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROW(name, library, variable) {name, library, variable, (library) ? &ntx_device_backend : NULL},
const struct ntx_back_kind ntx_back_kinds[] = {NTX_BACKENDS(ROW) {0}};
#undef ROW

/* The directory of this program; "." when it cannot be told. */
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

static bool found(const char *path)
{
    return !access(path, F_OK);
}

static void find(const struct ntx_back_kind *k, char *path, size_t n)
{
    char dir[PATH_MAX];
    const char *set = getenv(k->variable);
    own_directory(dir, sizeof dir);
    if (set && *set) {
        snprintf(path, n, "%s", set);
        return;
    }
    snprintf(path, n, "%s/%s", dir, k->library);
    if (!found(path))
        snprintf(path, n, "%s/../lib/ntx/%s", dir, k->library);
    if (!found(path))
        snprintf(path, n, "%s", k->library);
}

static int open_library(struct ntx_gpu_back *b, struct ntx_err *err)
{
    char path[PATH_MAX + 64];
    const struct ntx_gpu_ops *(*table)(void);
    find(b->kind, path, sizeof path);
    if (!(b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        return ntx_err_set(err, -ENODEV, "the %s plug-in cannot be loaded: %s", b->kind->name, dlerror());
    *(void **)&table = dlsym(b->library, NTX_GPU_SYMBOL);
    if (!table || table()->abi != NTX_GPU_ABI)
        return ntx_err_set(err, -ENODEV, "%s is not the plug-in of this build for back end %s", path, b->kind->name);
    b->ops = table();
    return 0;
}

static int open_kind(const struct ntx_back_kind *kind, struct ntx_gpu_back *out, struct ntx_err *err)
{
    struct ntx_gpu_back b = {.kind = kind};
    char why[256] = "";
    int rc = open_library(&b, err);
    if (!rc && b.ops->open(0, &b.gpu, why, sizeof why))
        rc = ntx_err_set(err, -ENODEV, "%s", why);
    if (!rc && b.ops->info(b.gpu, &b.info))
        rc = ntx_err_set(err, -ENODEV, "%s", b.ops->error(b.gpu));
    if (rc) {
        ntx_gpu_back_close(&b);
        return rc;
    }
    *out = b;
    return 0;
}

int ntx_gpu_back_open(const struct ntx_back_kind *kind, struct ntx_gpu_back *out, struct ntx_err *err)
{
    int rc = -ENODEV;
    if (kind)
        return open_kind(kind, out, err);
    for (kind = ntx_back_kinds; kind->name && rc; kind++)
        if (kind->library)
            rc = open_kind(kind, out, err);
    return rc;
}

void ntx_gpu_back_close(struct ntx_gpu_back *b)
{
    if (b->gpu)
        b->ops->close(b->gpu);
    if (b->library)
        dlclose(b->library);
    *b = (struct ntx_gpu_back){0};
}
