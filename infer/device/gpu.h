/* gpu.h: the GPU plug-in: found, opened, and the reason where it cannot be had.
 *
 * Looked for: $NTX_CUDA_LIBRARY; libntx-cuda.so beside this program; ../lib/ntx/ from there; where the loader looks. */
#ifndef NTX_COMPUTED_GPU_H
#define NTX_COMPUTED_GPU_H

#include "common/err.h"
#include "cuda/ntx_cuda.h"

struct ntx_gpu_back {
    void *library;
    const struct ntx_gpu_ops *ops;
    struct ntx_gpu *gpu;
    struct ntx_gpu_info info;
};

/* -ENODEV with one line: no library, no driver, too old a driver, no device, too old a device, or another build's library. */
int ntx_gpu_back_open(struct ntx_gpu_back *out, struct ntx_err *err);
void ntx_gpu_back_close(struct ntx_gpu_back *b); /* a zeroed one is fine */

#endif
