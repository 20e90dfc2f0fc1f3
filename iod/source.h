/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: sources of bytes. A source takes reads (read.h) and returns results in any order, without blocking the
 * event loop. Two of them read (uring, pread); three are filters over another one (throttle, stripe, fault). The chain
 * in use:
 *
 *     core -> [fault ->] [stripe ->] [throttle ->] uring | pread -> drives
 *
 *   uring     io_uring; registered buffers where locked memory allows. Its ring can only read (ring.h). Each submission
 *             gives exactly one completion: by that, computed, which holds a duplicate of the ring, proves that a dead
 *             iod's reads have ended.
 *   pread     reading threads, where io_uring is refused. A killed process is not gone (pidfd, sockets) while one of
 *             its threads is inside a direct read. So no read outlives it, and no proof is needed.
 *   throttle  a drive or link of a given rate: a result is held back until the bytes would have come at that rate. With
 *             several drives each has that rate.
 *   stripe    several drives that hold the same files: a read is cut, and each drive reads a part (stripe.c).
 *   fault     injected failures of drives and kernels, for tests; the grammar is below.
 *
 * All calls come from the loop's thread. A filter owns the source below it.
 *
 * FAULTS, by IodConfig.fault: rules separated by ';', each "what@condition,condition..." or a setting.
 *
 *   eio              the read is done, its result becomes -EIO
 *   short            the result becomes half of its size, in whole blocks
 *   delay=TIME       the result comes later by TIME (50ms, 2s, 300us)
 *   stall=TIME       from this read on no result comes for TIME: a stuck drive
 *   kill             SIGKILL to this process, once the read is in flight
 *
 * Conditions on reads, all of which must hold:
 *
 *   chunk=N          reads of chunk N;  demand: reads on demand;  stage: reads of a projector
 *   every=N          each Nth of those;  nth=N: only the Nth of them (read=N is the same);  count=N: at most N times
 *   p=X              with probability X (0..1), by the seed
 *   start=N          only in the Nth iod process that attached (counter iod_starts)
 *
 * And for kill, in place of reads:
 *
 *   done=N           when the Nth result came, before any other code learns of it
 *   state=S          when a word became FILLING READY FAILED SKIPPED (with nth, every, p, start), before a waiter wakes
 *
 * Settings:
 *
 *   reorder=N        results are collected up to N and delivered in random order
 *   seed=N           of the above (default 1; the process's start number is mixed in) */
#ifndef NTX_IOD_SOURCE_H
#define NTX_IOD_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "iod/read.h"
#include "shm/region.h"

/* The model's descriptors, prepared for reading. Sources borrow them; their receiver owns them. */
struct ntx_iod_files {
    unsigned n;
    int fd[NTX_MAX_FILES];
    bool direct[NTX_MAX_FILES]; /* O_DIRECT is on; else reads go through the page cache */
    bool memory[NTX_MAX_FILES]; /* a file in memory (tmpfs): its pages are the file, so they are not dropped */
};

/* Sets O_DIRECT where the file system accepts it. Else note names the first such file and the reason (one line, or
 * empty). */
void ntx_iod_files_prepare(struct ntx_iod_files *f, uint32_t block, char *note, unsigned note_len);

struct ntx_source;
struct ntx_iod_ring; /* ring.h */

/* Result of one read: bytes or negative errno. */
typedef void ntx_source_cb(void *ctx, uint64_t tag, int32_t result);

#define NTX_SOURCE_MAX_FDS 4
#define NTX_IOD_MAX_DRIVES 4                       /* with the same files */
#define NTX_SOURCE_DEPTH   (2 * NTX_IOD_MAX_READS) /* of uring, pread and throttle, since a stripe above cuts reads */

/* An io_uring, described for a process that has a duplicate of fd: a mapping of `bytes` at IORING_OFF_SQ_RING holds two
 * words that count the reads that the kernel took and those that are done. */
struct ntx_source_ring {
    int fd;
    uint64_t bytes;            /* 0: it cannot be had in one mapping */
    uint32_t sq_head, cq_tail; /* byte offsets */
};

struct ntx_source_ops {
    const char *name;
    /* Takes a read; at most NTX_IOD_MAX_READS may be unfinished (NTX_SOURCE_DEPTH below a stripe). The read need not
     * start before flush. 0, or -EAGAIN: full. */
    int (*submit)(struct ntx_source *s, const struct ntx_iod_read *rd);
    /* Starts the submitted reads, by one system call where possible. Negative errno: call again later; nothing is
     * lost. */
    int (*flush)(struct ntx_source *s);
    /* Calls cb for each result. A result counts as taken once cb has returned. */
    void (*reap)(struct ntx_source *s, ntx_source_cb *cb, void *ctx);
    /* Appends to fds the descriptors that become readable when reap has results; returns the new count. */
    unsigned (*fds)(const struct ntx_source *s, int *fds, unsigned n);
    /* Reads whose bytes may still land. Results that a filter holds back do not count. */
    unsigned (*inflight)(const struct ntx_source *s);
    /* Its io_uring; fd is -1 when there is none. */
    struct ntx_source_ring (*ring)(const struct ntx_source *s);
    /* A word of the region became `state`. May be NULL (see ntx_source_state). */
    void (*state)(struct ntx_source *s, enum ntx_state state);
    /* Frees the source; inflight must be 0. */
    void (*close)(struct ntx_source *s);
};

struct ntx_source { /* implementations embed it as their first member */
    const struct ntx_source_ops *ops;
};

/* Region, files and ring must outlive the source. ring NULL: the source makes its own. note (may be NULL) says in one
 * line what fell back, or is empty. */
int ntx_source_uring(const struct ntx_region *r, const struct ntx_iod_files *f, struct ntx_iod_ring *ring,
                     struct ntx_source **out, char *note, unsigned note_len, struct ntx_err *err);
int ntx_source_pread(const struct ntx_region *r, const struct ntx_iod_files *f, struct ntx_source **out,
                     struct ntx_err *err);
/* The filters take ownership of `over` on success. */
/* bytes_per_s: a rate for each of n_drives; each drive has n_files files (as for stripe). first: shared due time of the
 * first drive, where other processes read from it too (shm/drive.h); or NULL. */
int ntx_source_throttle(struct ntx_source *over, const double *bytes_per_s, unsigned n_drives, unsigned n_files,
                        _Atomic uint64_t *first, struct ntx_source **out, struct ntx_err *err);
int ntx_source_stripe(struct ntx_source *over, unsigned n_drives, unsigned n_files, struct ntx_source **out,
                      struct ntx_err *err);
int ntx_source_fault(struct ntx_source *over, const char *rules, uint32_t start, uint32_t block,
                     struct ntx_source **out, struct ntx_err *err);

/* which: "auto", "uring" or "pread" ("" is auto). auto falls back to pread where io_uring is refused, and notes it. */
int ntx_source_open(const char *which, const struct ntx_region *r, const struct ntx_iod_files *f,
                    struct ntx_iod_ring *ring, struct ntx_source **out, char *note, unsigned note_len,
                    struct ntx_err *err);

static inline void ntx_source_state(struct ntx_source *s, enum ntx_state state)
{
    if (s->ops->state)
        s->ops->state(s, state);
}
static inline void ntx_source_close(struct ntx_source *s) /* NULL is fine */
{
    if (s)
        s->ops->close(s);
}

#endif
