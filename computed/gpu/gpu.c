/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/gpu/gpu.h"

#include "common/backends.h"
#include "common/plugin.h"
#include "computed/gpu/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>

#define ENTRY(name, library, variable) {name, library, variable, (library) ? &ntx_device_backend : NULL},
const struct ntx_back_kind ntx_back_kinds[] = {NTX_BACKENDS(ENTRY){0}};
#undef ENTRY

static int open_library(struct ntx_gpu_back *b, struct ntx_err *err)
{
    char path[PATH_MAX + 64];
    struct ntx_err why = {0};
    const struct ntx_gpu_ops *(*table)(void);
    if (ntx_plugin_open(b->kind->library, b->kind->variable, NTX_GPU_SYMBOL, false, path, sizeof path, &b->library,
                        (void **)&table, &why))
        return ntx_err_set(err, -ENODEV, "the %s plug-in cannot be loaded: %s", b->kind->name, why.text);
    if (table()->abi != NTX_GPU_ABI)
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
