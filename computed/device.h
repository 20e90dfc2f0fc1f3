/* device.h: the forward pass on a GPU. Hidden states, KV, norms, attention and logits live on the device; each chunk of a matrix is
 * multiplied where it lives, as the plan's table says:
 *
 *   device   by the GPU, from its place in device memory
 *   host     by the CPU, in place, while the GPU multiplies others of the same step; from `copy_rows` rows on copied to the GPU
 *   storage  copied from the ring's slot to a stage on the device, on a stream of copies beside the compute; the slot is given
 *            back when an event says that the copy is over
 *
 * Rows of decoding are the CPU's bits wherever a chunk lives (but for attention over more than NTX_GPU_SPLIT positions). Rows of prompts
 * (ntx_row.prompt) go through the matrix units in groups padded to one size, so their values depend on the plan
 * only; they are within F16's rounding of the CPU's. Where cuBLAS is missing, they are computed like the others.
 *
 * One thread calls (the engine's; the other threads of the pool multiply host chunks). The table and the chunks are borrowed. */
#ifndef NTX_COMPUTED_DEVICE_H
#define NTX_COMPUTED_DEVICE_H

#include <stdint.h>

#include "common/err.h"
#include "cuda/ntx_cuda.h"
#include "model/chunk.h"
#include "shm/region.h"

struct ntx_device_config {
    const struct ntx_gpu_ops *ops;
    struct ntx_gpu *gpu;
    const struct ntx_model *model;
    const struct ntx_chunks *chunks;
    const struct ntx_plan_chunk *table; /* [chunks->n]; only placements are looked at */
    uint32_t max_rows, ctx, kv_blocks, logits_rows;
    uint32_t in_flight;   /* streamed chunks held at once, at least 1; less than the ring has slots */
    uint32_t copy_rows;   /* 0: 4 */
};

struct ntx_device;
struct ntx_forward;

/* NULL, or why this model cannot be computed on a GPU. */
const char *ntx_device_refuses(const struct ntx_model *m);
/* Device memory for all but the matrices placed there; those take their bytes and NTX_DEVICE_CHUNK_EXTRA each. */
uint64_t ntx_device_bytes(const struct ntx_device_config *c);
#define NTX_DEVICE_CHUNK_EXTRA 512u
uint64_t ntx_device_host_bytes(const struct ntx_device_config *c); /* locked memory of the host beside it */

int ntx_device_new(const struct ntx_device_config *c, struct ntx_device **out, struct ntx_err *err);
void ntx_device_free(struct ntx_device *d);
/* Brings vectors and device chunks there. read: the chunk's bytes into `to`, 0 or a negative errno with words in err. */
int ntx_device_fill(struct ntx_device *d, int (*read)(void *ctx, uint32_t chunk, void *to, struct ntx_err *err), void *ctx, struct ntx_err *err);

/* The layers and the output of a pass, after embedding and angles (forward.c). 0, or a negative errno with words in the weights' error. */
int ntx__device_pass(struct ntx_device *d, struct ntx_forward *f);

#endif
