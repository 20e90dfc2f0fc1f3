/* SPDX-License-Identifier: Apache-2.0 */
/* device.h: the forward pass on a GPU. Hidden states, the KV cache, norms, attention and logits live in device memory.
 * Each chunk of a matrix is multiplied where it is placed (struct ntx_plan_chunk):
 *
 *   device   the GPU multiplies it in device memory
 *   host     the CPU multiplies it in place while the GPU multiplies others of the same step, or it is copied to the
 *            GPU. The cost model says how many chunks of a matrix are copied, by type and rows (ntx_copy_share).
 *            Expert frames are treated alike
 *   storage  it is copied from the ring's slot to a stage in device memory, on a copy stream beside the compute
 *            stream. The slot is released when an event reports that the copy is finished
 *
 * A GPU that shares the host's memory (in_place) copies nothing. It reads chunks on the host and in the ring's slots;
 * a slot is released when its product is finished.
 *
 * Decode rows have the CPU's bits wherever a chunk is placed, except for attention over more than NTX_GPU_SPLIT
 * positions. Prompt rows (ntx_row.rounded) use the matrix units (cuBLAS), and differ from the CPU by F16 rounding.
 * They are multiplied panel by panel. A panel has a number of outputs that depends on the matrix's shape alone, and
 * 128 rows, padded. So the library gets the same product for each shape of a matrix, and an output always has the same
 * place in it. Budget, chunk borders, placement and streaming therefore change no bit, on one card and with one
 * version of the library, provided that the library repeats itself. The place of a token among the 128 rows depends on
 * how its prompt is cut into passes, and on the other sessions in them. This changes no bit only if the library
 * computes all rows of a product alike, which nobody promises. Without cuBLAS, prompt rows are computed exactly, as
 * decode rows are.
 *
 * Experts, their routers, and the FFN of a packed layer multiply all rows exactly; more than eight rows use the
 * integer matrix units (cuda/many.h). The CPU selects groups of neurons from the gates. It selects experts from the
 * router's logits, unless the device has all experts of the layer: then the device selects them and sorts the rows by
 * expert, and the host does not wait. Groups on the host or the drive are computed by the CPU in place, or copied when
 * there are as many rows as the cost model says.
 *
 * The pass itself is the CPU's (forward.c), layer skip included: the states after the probe layer are downloaded;
 * decisions are uploaded as lists of rows, and KV holes as bits.
 *
 * Only the engine thread calls these functions; the pool's other threads multiply host chunks. The table and the
 * chunks are borrowed. */
#ifndef NTX_COMPUTED_GPU_DEVICE_H
#define NTX_COMPUTED_GPU_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "computed/cpu/cpu.h"
#include "computed/pass/ffn_mode.h"
#include "computed/state/kv.h"
#include "cuda/ntx_cuda.h"
#include "model/chunk.h"
#include "shm/region.h"

/* How many 64ths of the host's bytes are copied, by type and rows of the product; the last entry also holds for more
 * rows. For prompts all bytes are copied, so that a row's value does not depend on other rows of its pass. */
#define NTX_SHARE_ROWS 64u
struct ntx_copy_share {
    uint8_t of[NTX_TYPE_LIMIT][NTX_SHARE_ROWS + 1]; /* [type][rows] */
};
void ntx_copy_share_default(struct ntx_copy_share *s); /* none below 4 rows, all from 4 rows on */

struct ntx_device_config {
    const struct ntx_gpu_ops *ops;
    struct ntx_gpu *gpu;
    const struct ntx_model *model;
    const struct ntx_chunks *chunks;
    const struct ntx_plan_chunk *table; /* [chunks->n]; only the placements are read */
    uint32_t max_rows, ctx, logits_rows;
    /* as on the host: KV blocks and state buffers have the same numbers (computed/state/kv.h) */
    struct ntx_kv_shape kv;
    uint32_t in_flight; /* streamed chunks held at once, at least 1; less than the ring has slots */
    enum ntx_kv_type kv_type;
    struct ntx_ffn_mode ffn; /* for packed models */
    /* [in_place_bytes] host memory that the GPU has registered and reads as fast as its own
     * (ntx_gpu_info.integrated); NULL: none */
    const void *in_place;
    uint64_t in_place_bytes;
    double h2d_bps;                     /* bytes per second of an emulated link; 0: the real speed */
    const struct ntx_copy_share *share; /* copied; NULL: the default */
    uint32_t panel_outs; /* most outputs of a panel on the matrix units; 0: as many as 16 MiB hold in F16 */
    bool no_graphs;      /* always launch kernels one by one, without CUDA graphs */
};

struct ntx_device;
extern const struct ntx_backend ntx_device_backend; /* goes into struct ntx_forward_config with the device */

/* Bytes of device memory without matrices. A matrix chunk placed there takes its bytes and NTX_DEVICE_CHUNK_EXTRA. */
uint64_t ntx_device_bytes(const struct ntx_device_config *c);
#define NTX_DEVICE_CHUNK_EXTRA 512u
uint64_t ntx_device_host_bytes(const struct ntx_device_config *c); /* locked host memory that it needs besides */

int ntx_device_new(const struct ntx_device_config *c, struct ntx_device **out, struct ntx_err *err);
void ntx_device_free(struct ntx_device *d);
/* Uploads vectors and device chunks. read() writes a chunk's bytes to `to`; it returns 0, or a negative errno with a
 * message in err. */
int ntx_device_fill(struct ntx_device *d, int (*read)(void *ctx, uint32_t chunk, void *to, struct ntx_err *err),
                    void *ctx, struct ntx_err *err);
/* A pass failed because of the device. All later passes fail too; only a new process can open the device again. */
bool ntx_device_lost(const struct ntx_device *d);
/* Whether passes of a few rows run as CUDA graphs. "": they do. Text: why graphs cannot be made. NULL: graphs are off,
 * or the device does not hold the whole model. */
const char *ntx_device_graphs(const struct ntx_device *d);

#endif
