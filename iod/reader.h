/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h: one attached region, being read: the core and a chain of sources in a libuv loop.
 *
 *   computed frees a slot --- wake eventfd --+
 *   a read is done ---------- source fds ----+--> results to the core, words to READY --> ask the core, submit, sleep
 *   once a second ----------- tick ----------+
 *
 * Life: open (the source exists, nothing is read), configure (reads begin), stop (reads under way end), and when none
 * is left and all handles are closed, hooks.closed; the reader is freed then. One thread, the loop's. */
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
    /* A read failed for good (f; of file f->file, or of none: UINT32_MAX), or something fell back (f NULL); in words,
     * without the file's name. */
    void (*told)(void *ctx, const struct ntx_iod_failure *f, const char *text);
    void (*closed)(void *ctx);
};

struct ntx_reader_config { /* as IodConfig of ntx.proto */
    double rate_bps;
    uint64_t inflight_bytes, piece_bytes;
    const char *source, *fault;
    uint32_t start; /* how many iod processes attached before, and this one */
};

/* fds: as ATTACH brings them to iod (proto/attach.h), n_fds in all; all are taken over, also on failure. ring: the
 * process's own, which outlives the reader. */
int ntx_reader_open(uv_loop_t *loop, struct ntx_iod_ring *ring, const int *fds, unsigned n_fds, uint64_t epoch,
                    struct ntx_counters *counters, const struct ntx_reader_hooks *hooks, struct ntx_reader **out,
                    struct ntx_err *err);
/* The io_uring for computed, if there is one. To be asked before configure. */
struct ntx_source_ring ntx_reader_ring(const struct ntx_reader *r);
/* Starts reading; later calls change nothing. What is wrong with the configuration fails every read, with that text:
 * computed and its client learn it where they look. */
void ntx_reader_configure(struct ntx_reader *r, const struct ntx_reader_config *c);
bool ntx_reader_configured(const struct ntx_reader *r);
void ntx_reader_hint(struct ntx_reader *r, uint64_t pass, const uint8_t *skip, size_t n);
/* No new reads. hooks.closed is called when those under way are over, or at the latest after limit_ms (0: no limit). */
void ntx_reader_stop(struct ntx_reader *r, unsigned limit_ms);

#endif
