/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: back ends (common/backends.h), and their plug-ins: found, opened, and the reason where one cannot be had.
 *
 * Looked for: the file that the environment's variable names; the library beside this program; ../lib/ntx/ from there;
 * where the loader looks. */
#ifndef NTX_COMPUTED_GPU_GPU_H
#define NTX_COMPUTED_GPU_GPU_H

#include "common/err.h"
#include "cuda/ntx_cuda.h"

struct ntx_backend;
struct ntx_back_kind { /* an entry of the table */
    const char *name;
    const char *library, *variable;  /* NULL: it is the CPU */
    const struct ntx_backend *table; /* its operations; NULL: the pass's own */
};
extern const struct ntx_back_kind ntx_back_kinds[]; /* the CPU is the first; the last has no name */

struct ntx_gpu_back {
    const struct ntx_back_kind *kind;
    void *library;
    const struct ntx_gpu_ops *ops;
    struct ntx_gpu *gpu;
    struct ntx_gpu_info info;
};

/* -ENODEV with one line: no library, no driver, too old a driver, no device, too old a device, or another build's
 * library. kind has a library; NULL: the first one that can be had, or the last one's reason. */
int ntx_gpu_back_open(const struct ntx_back_kind *kind, struct ntx_gpu_back *out, struct ntx_err *err);
void ntx_gpu_back_close(struct ntx_gpu_back *b); /* a zeroed one is fine */

#endif
