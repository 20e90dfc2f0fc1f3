/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h: what this machine can do, measured once with the product's own parts, and what should be set otherwise.
 *
 *   drive    iod's source (io_uring, O_DIRECT, the region's huge pages), random reads of 4 KiB to 1 MiB, at most 4 MiB
 *            in flight
 *   streams  the same drive as a model meets it: iod's reader fills a ring, and the compute threads multiply what it
 *            brings at once
 *   memory   reading far more than caches hold, with one thread and with all
 *   kernels  each quant type from memory: one row, 8 and 64 rows
 *   steps    what handing a step of a layer to all threads costs
 *   GPU      by the plug-in: copying in its memory, copying to it from locked memory, each type's products of one row,
 *            the matrix units (a moment)
 *   machine  huge pages, locked memory, io_uring, NUMA, a GPU that cannot be used
 *
 * All but the last two in nine rounds, fewer where these take too long; their medians are the profile: others' work on
 * the same machine changes what it can do within seconds. Takes about `seconds` (18 by default) and a third more, of
 * one process; nothing else should run. */
#ifndef NTX_CLIENT_DOCTOR_DOCTOR_H
#define NTX_CLIENT_DOCTOR_DOCTOR_H

#include "common/err.h"
#include "computed/plan/hw.h"

#define NTX_DOCTOR_FINDINGS 16
#define NTX_DOCTOR_ROUNDS   9

struct ntx_doctor_config {
    const char *dir;  /* folder of the models: its largest file is read; if it has none, a temporary file is written */
    double seconds;   /* for all measurements, about; 0: 18 */
    uint32_t threads; /* 0: all that this process may use */
    void (*progress)(void *ctx, const char *what);
    void *ctx;
};

struct ntx_doctor_report {
    struct ntx_hw hw;
    char findings[NTX_DOCTOR_FINDINGS][400]; /* sentences; nothing is said of things in order */
    unsigned n_findings;
    char drive_note[300]; /* which file was read, and how */
};

int ntx_doctor_run(const struct ntx_doctor_config *c, struct ntx_doctor_report *out, struct ntx_err *err);

#endif
