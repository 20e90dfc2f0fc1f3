/* SPDX-License-Identifier: Apache-2.0 */
/* predict.h: how long a pass takes, from where its bytes lie and what the machine can do (bytes that must cross each
 * link, divided by that link's bandwidth).
 *
 *             drive        memory          PCIe           VRAM
 *   storage --------> RAM --------> CPU multiplies
 *                      |
 *                      +------------------------> GPU multiplies a copied share
 *                                                  GPU multiplies what lives in VRAM
 *
 *   pass = max(drive, memory, h2d, compute) + late
 *
 * drive    streamed bytes, and K and V that are not in memory, / the rate at which reads of that size come when they
 *          are multiplied at once (ntx_hw_stream_bps): prefetched, so they overlap all else
 * memory   what crosses the memory's bus: resident bytes once, streamed ones twice (the drive's DMA writes them, the
 *          CPU reads them)
 * h2d      bytes that are copied to the GPU
 * compute in sequence, since a layer needs the one before: the GPU's part, the CPU's part (kernel rates per type and
 * row count),
 *          attention over the KV, and the fixed cost of each layer and pass
 *          The GPU multiplies one row at the rate that the profile has for the type; where it has none, and of up to
 *            eight rows, at an estimate from the
 *          kernels' machine code (estimates.h), and the forecast says so
 * late     reads that nobody can know before the layer's turn (experts that the router names and RAM does not hold):
 *          they overlap nothing
 *
 * With a GPU the share of the CPU's bytes that is copied to it instead is chosen so that the pass is shortest. Pure; no
 * allocation. */
#ifndef NTX_COMPUTED_PLAN_PREDICT_H
#define NTX_COMPUTED_PLAN_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/plan/hw.h"
#include "model/quant.h"

enum ntx_tier { NTX_TIER_DEVICE, NTX_TIER_HOST, NTX_TIER_STORAGE, NTX_N_TIERS };

enum ntx_multiply {
    NTX_MULTIPLY_BEST, /* where it is faster */
    NTX_MULTIPLY_CPU,  /* the CPU multiplies all that is not in VRAM */
    NTX_MULTIPLY_GPU,  /* all is copied to the GPU */
};

struct ntx_load_bytes {
    double bytes[NTX_N_TIERS][NTX_TYPE_LIMIT];        /* weights that one pass multiplies by */
    double expert_bytes[NTX_N_TIERS][NTX_TYPE_LIMIT]; /* of them, experts', which get a part of the rows each: */
    uint32_t expert_rows;                             /* 0: all of them */
    double end_bytes[NTX_N_TIERS]
                    [NTX_TYPE_LIMIT]; /* of them, neither counted there: those that are for asked rows alone; */
    uint32_t asked;                   /* so many, of the rows */
    double late_bytes;                /* of the storage tier: known too late to overlap */
    double kv_bytes;                  /* that attention reads */
    double kv_read_bytes;             /* of them, those that come from the drive first, ahead of their layers */
    bool kv_on_device;
    uint64_t read_bytes;      /* size of a streamed read; 0: 512 KiB */
    uint64_t late_read_bytes; /* size of a late one; 0: the same */
    uint32_t rows, n_layers, threads;
    enum ntx_multiply multiply;
};

struct ntx_forecast {
    double drive_s, memory_s, h2d_s, compute_s, late_s;
    double device_s, cpu_s; /* parts of compute_s */
    double pass_s;
    bool estimated;    /* the GPU's rates are: its profile has none that were measured */
    double copied;     /* share of host and storage bytes that the GPU multiplies */
    const char *limit; /* "drive", "memory", "h2d", "vram" (mostly reading it), "compute" */
};

/* Of host bytes of a type, multiplied with so many rows: the share that is best copied to the GPU while the CPU
 * multiplies the rest. Negative: the profile lacks a rate. */
double ntx_predict_share(const struct ntx_hw *hw, uint32_t type, uint32_t rows, uint32_t threads);

/* -ENODATA: the profile lacks a rate that this load needs. */
int ntx_predict(const struct ntx_hw *hw, const struct ntx_load_bytes *load, struct ntx_forecast *out);

#endif
