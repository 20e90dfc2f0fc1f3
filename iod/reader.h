/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h: reads one attached region: the core and a chain of sources in a libuv loop.
 *
 *   computed frees a slot --- wake eventfd --+
 *   a read is done ---------- source fds ----+--> results to the core, words to READY --> next reads, submit, sleep
 *   once a second ----------- tick ----------+
 *
 * Life: open (the source exists, nothing is read), configure (reads begin), stop (the reads in flight end). When none
 * is left and all handles are closed, hooks.closed is called and the reader is freed. One thread, the loop's. */
#ifndef NTX_IOD_READER_H
#define NTX_IOD_READER_H

#include <uv.h>

#include "common/err.h"
#include "iod/core.h"
#include "iod/source.h"
#include "shm/counters.h"

struct ntx_reader;

struct ntx_reader_hooks {
    void *ctx;
    /* A read failed for good (f; f->file is UINT32_MAX when no file is to blame), or something fell back (f NULL). text
     * says it without the file's name. */
    void (*told)(void *ctx, const struct ntx_iod_failure *f, const char *text);
    void (*closed)(void *ctx);
};

struct ntx_reader_config { /* as IodConfig of ntx.proto */
    double rate_bps;
    uint64_t inflight_bytes, piece_bytes;
    const char *source, *fault;
    uint32_t start; /* number of iod processes that attached so far, this one included */
};

/* fds: the n_fds descriptors of ATTACH (proto/attach.h); all are taken over, also on failure. ring: the process's own,
 * which outlives the reader. */
int ntx_reader_open(uv_loop_t *loop, struct ntx_iod_ring *ring, const int *fds, unsigned n_fds, uint64_t epoch,
                    struct ntx_counters *counters, const struct ntx_reader_hooks *hooks, struct ntx_reader **out,
                    struct ntx_err *err);
/* The io_uring for computed; fd -1: none. Call it before configure. */
struct ntx_source_ring ntx_reader_ring(const struct ntx_reader *r);
/* Starts reading; later calls do nothing. A wrong configuration fails every read with its text, so that computed and
 * its client see it. */
void ntx_reader_configure(struct ntx_reader *r, const struct ntx_reader_config *c);
bool ntx_reader_configured(const struct ntx_reader *r);
void ntx_reader_hint(struct ntx_reader *r, uint64_t pass, const uint8_t *skip, size_t n);
/* Starts no new reads. hooks.closed is called when those in flight are done, or after limit_ms at the latest (0: no
 * limit). */
void ntx_reader_stop(struct ntx_reader *r, unsigned limit_ms);

#endif
