/* SPDX-License-Identifier: Apache-2.0 */
/* predict.h: the time of a pass, from the place of its bytes and the machine's rates: bytes that cross each link,
 * divided by the link's bandwidth.
 *
 *             drive        memory          PCIe           VRAM
 *   storage --------> RAM --------> CPU multiplies
 *                      |
 *                      +------------------------> GPU multiplies a copied share
 *                                                  GPU multiplies the weights in VRAM
 *
 *   pass = max(drive, memory, h2d, compute) + late
 *
 *   drive    streamed bytes, and K and V from the file, / the rate of reads of that size whose bytes are multiplied at
 *            once (ntx_hw_stream_bps): read ahead, so they overlap all else
 *   memory   bytes on the memory's bus: resident ones once, streamed ones twice (the drive's DMA writes them, the CPU
 *            reads them)
 *   h2d      bytes that are copied to the GPU
 *   compute  in sequence, since a layer needs the one before: the GPU's part, the CPU's part (kernel rates per type and
 *            row count), attention over the KV (its bytes or its arithmetic), the values of rows between matrices, and
 *            the fixed cost of each layer and pass. The GPU multiplies one row
 *            at the profile's rate for the type; without one, and for two to eight rows, at an estimate from the
 *            kernels' machine code (estimates.h), and the forecast says so
 *   late     reads that are not known before the layer's turn (experts that the router selects and RAM does not hold):
 *            they overlap nothing
 *
 * With a GPU, the share of the CPU's bytes that is copied to it is chosen for the shortest pass. Pure; no
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
    double expert_bytes[NTX_N_TIERS][NTX_TYPE_LIMIT]; /* those of them in experts, which get a part of the rows each: */
    uint32_t expert_rows;                             /* 0: all of them */
    /* Of the bytes, and not counted in the experts': used for asked rows only; */
    double end_bytes[NTX_N_TIERS][NTX_TYPE_LIMIT];
    uint32_t asked;    /* the number of those rows */
    double late_bytes; /* of the storage tier: known too late to overlap */
    double kv_bytes;   /* read by attention */
    enum ntx_kv_type kv_type;
    double attend_ops; /* its additions and multiplications */
    double scores;     /* its query heads times positions */
    double values;     /* of all rows, between matrices */
    double dots;       /* outputs of all rows, beyond those of matrices that are NTX_HW_WIDTH wide */
    double few_dots[NTX_N_TIERS][NTX_TYPE_LIMIT]; /* the same where only a few rows are multiplied */
    double kv_read_bytes; /* of them, those that come from the drive first, ahead of their layers */
    bool kv_on_device;
    uint64_t read_bytes;      /* size of a streamed read; 0: 512 KiB */
    uint64_t late_read_bytes; /* size of a late one; 0: the same */
    uint32_t rows, n_layers, threads;
    uint32_t width; /* values of a row; 0: unknown */
    enum ntx_multiply multiply;
};

struct ntx_forecast {
    double drive_s, memory_s, h2d_s, compute_s, late_s;
    double device_s, cpu_s; /* parts of compute_s */
    double pass_s;
    bool estimated;    /* the GPU's rates are estimated: its profile has no measured ones */
    double copied;     /* share of host and storage bytes that the GPU multiplies */
    const char *limit; /* "drive", "memory", "h2d", "vram" (mostly reading it), "compute" */
};

/* For host bytes of a type and so many rows: the best share to copy to the GPU while the CPU multiplies the rest.
 * Negative: the profile lacks a rate. */
double ntx_predict_share(const struct ntx_hw *hw, uint32_t type, uint32_t rows, uint32_t threads);

/* For a pass of many rows on the CPU that was measured: so many times what hw's rates give did its products and the
 * values between them take. 0: the profile lacks a rate. */
double ntx_predict_times(const struct ntx_hw *hw, const struct ntx_load_bytes *load, double measured_s);

/* -ENODATA: the profile lacks a rate that this load needs. */
int ntx_predict(const struct ntx_hw *hw, const struct ntx_load_bytes *load, struct ntx_forecast *out);

#endif
