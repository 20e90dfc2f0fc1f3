/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: finds and opens the plug-ins of back ends (common/backends.h), or says why one cannot be used.
 *
 * The library is searched in this order: the file that the environment variable names; beside this program;
 * ../lib/ntx/ from there; the dynamic loader's path. */
#ifndef NTX_COMPUTED_GPU_GPU_H
#define NTX_COMPUTED_GPU_GPU_H

#include "common/err.h"
#include "cuda/ntx_cuda.h"

struct ntx_backend;
struct ntx_back_kind { /* an entry of the table of back ends */
    const char *name;
    const char *library, *variable;  /* NULL: the CPU */
    const struct ntx_backend *table; /* its operations; NULL: those of the CPU */
};
extern const struct ntx_back_kind ntx_back_kinds[]; /* the CPU is first; an entry without a name ends the table */

struct ntx_gpu_back {
    const struct ntx_back_kind *kind;
    void *library;
    const struct ntx_gpu_ops *ops;
    struct ntx_gpu *gpu;
    struct ntx_gpu_info info;
};

/* Returns -ENODEV with one line in err: no library, a library of another build, no driver, no device, or one of them
 * too old. kind must have a library; NULL: tries all kinds, and gives the last one's reason. */
int ntx_gpu_back_open(const struct ntx_back_kind *kind, struct ntx_gpu_back *out, struct ntx_err *err);
void ntx_gpu_back_close(struct ntx_gpu_back *b); /* a zeroed one is allowed */

#endif
