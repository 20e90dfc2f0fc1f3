/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h: measures this machine with the product's own code, and reports settings that should be changed.
 *
 *   drive    ntx-iod's source (io_uring, O_DIRECT, the region's huge pages): random reads of 4 KiB to 1 MiB, at most
 *            4 MiB in flight
 *   streams  the same drive in the pipeline: ntx-iod's reader fills a ring, the compute threads multiply its chunks
 *   memory   reads of far more than the caches hold, with one thread and with all
 *   kernels  each quantised type from memory: one row, 8 and 64 rows
 *   prompts  whole layers of four widths, run by the pass: what they take beyond these rates
 *   steps    the cost of handing a step of a layer to all threads
 *   GPU      by the plug-in: copies within its memory and to it, one-row products of each type, the matrix units
 *   machine  huge pages, locked memory, io_uring, NUMA, an unusable GPU
 *
 * All but the last two run in nine rounds, fewer if these take too long. The profile has their medians, because other
 * processes change the rates within seconds. It takes about `seconds` (18 by default) plus a third; nothing else should
 * run. */
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

/* Processes per processor that want to run, averaged over the last minute; 0: unknown. */
double ntx_doctor_load(void);
int ntx_doctor_run(const struct ntx_doctor_config *c, struct ntx_doctor_report *out, struct ntx_err *err);

#endif
