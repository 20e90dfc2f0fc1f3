/* SPDX-License-Identifier: Apache-2.0 */
/* device.h: the forward pass on a GPU. Hidden states, KV, norms, attention and logits live on the device; each chunk of
 * a matrix is multiplied where it lives, as the plan's table says:
 *
 *   device   by the GPU, from its place in device memory
 *   host     by the CPU, in place, while the GPU multiplies others of the same step; or copied to the GPU: as many of a
 *            matrix' chunks as the cost model says for the type and the rows (ntx_copy_share). Frames of experts
 *              likewise
 *   storage  copied from the ring's slot to a stage on the device, on a stream of copies beside the compute; the slot
 *            is given
 *            back when an event says that the copy is over
 *
 * A GPU whose memory is the host's (in_place) copies nothing: it multiplies by chunks on the host, and in the ring's
 * slots, where they are; a slot is given back when its product is over.
 *
 * Rows of decoding are the CPU's bits wherever a chunk lives (but for attention over more than NTX_GPU_SPLIT
 * positions). Rows of prompts (ntx_row.rounded) go through the matrix units (cuBLAS), within F16's rounding of the
 * CPU's: panel by panel, of outputs by the matrix' shape alone and of 128 rows, padded. So for each shape of a matrix
 * the library is always asked for the same product, and an output always stands at the same place of it: budget, chunks
 * and where they live, and whether they are streamed, change no bit on one card with one version of the library, of
 * which this takes that it repeats itself. Which of the 128 rows a token is depends on how its prompt is cut into
 * passes, and on who shares them: that this changes no bit either takes that the library computes the rows of a product
 * alike, which nobody promises. Where cuBLAS is missing, they are computed like the others, exactly. Experts and their
 * routers, and all of a packed layer's FFN, multiply all rows exactly, more than eight on the integer matrix units
 * (cuda/many.h); which groups of neurons a row takes is chosen by the CPU, from the gates; which experts likewise, from
 * the router's logits, but where the device has them all: it chooses by itself, sorts the rows by expert, and the host
 * does not wait. Groups on the host or the drive are computed by the CPU in place, or copied for as many rows as the
 * cost model says.
 *
 * The pass is the CPU's (forward.c), layer skip too: the states after the probe layer come down, decisions go up as
 * lists of rows, and holes as bits.
 *
 * One thread calls (the engine's; the other threads of the pool multiply host chunks). The table and the chunks are
 * borrowed. */
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

/* How many 64ths of the host's bytes are copied, by the rows of a product (the last entry: and more). Prompts' are
 * always copied, so that a row's value does not depend on who shares its pass. */
#define NTX_SHARE_ROWS 64u
struct ntx_copy_share {
    uint8_t of[NTX_TYPE_LIMIT][NTX_SHARE_ROWS + 1]; /* [type][rows] */
};
void ntx_copy_share_default(struct ntx_copy_share *s); /* none below 4 rows, all from there on */

struct ntx_device_config {
    const struct ntx_gpu_ops *ops;
    struct ntx_gpu *gpu;
    const struct ntx_model *model;
    const struct ntx_chunks *chunks;
    const struct ntx_plan_chunk *table; /* [chunks->n]; only placements are looked at */
    uint32_t max_rows, ctx, logits_rows;
    struct ntx_kv_shape
        kv;             /* the host's: a session's blocks and sides have the same numbers here (computed/state/kv.h) */
    uint32_t in_flight; /* streamed chunks held at once, at least 1; less than the ring has slots */
    enum ntx_kv_type kv_type;
    struct ntx_ffn_mode ffn; /* of a packed model */
    const void *in_place;    /* [in_place_bytes] of the host that the GPU has registered, and reads as fast as its own
                                memory (ntx_gpu_info.integrated); NULL: none */
    uint64_t in_place_bytes;
    double h2d_bps; /* a slower link is emulated: chunks are copied at this rate; 0: as fast as it goes */
    const struct ntx_copy_share *share; /* copied; NULL: the default */
    uint32_t panel_outs; /* most outputs of a matrix that go through the matrix units together, of prompts' rows; 0: as
                            many as 16 MiB hold in F16 */
    bool no_graphs;      /* passes of a few rows are launched one by one also where they are as the pass before */
};

struct ntx_device;
extern const struct ntx_backend ntx_device_backend; /* for struct ntx_forward_config, beside the device */

/* Device memory for all but the matrices placed there; those take their bytes and NTX_DEVICE_CHUNK_EXTRA each. */
uint64_t ntx_device_bytes(const struct ntx_device_config *c);
#define NTX_DEVICE_CHUNK_EXTRA 512u
uint64_t ntx_device_host_bytes(const struct ntx_device_config *c); /* locked memory of the host beside it */

int ntx_device_new(const struct ntx_device_config *c, struct ntx_device **out, struct ntx_err *err);
void ntx_device_free(struct ntx_device *d);
/* Brings vectors and device chunks there. read: the chunk's bytes into `to`, 0 or a negative errno with words in err.
 * */
int ntx_device_fill(struct ntx_device *d, int (*read)(void *ctx, uint32_t chunk, void *to, struct ntx_err *err),
                    void *ctx, struct ntx_err *err);
/* A pass failed because of the device, and so will all others: only a new process gets it back. */
bool ntx_device_lost(const struct ntx_device *d);
/* Whether passes of a few rows go as graphs: ""; or why they cannot be made; NULL: they are not wanted, or the device
 * has not all of the model. */
const char *ntx_device_graphs(const struct ntx_device *d);

#endif
