/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h: the one io_uring of a process, which can do nothing but read. What it is told to do passes by the process's
 * system call filter (common/sandbox.h), so the kernel itself refuses it everything but reads, and every registration
 * but that of buffers; then the process can be forbidden to make another one.
 *
 * Whoever holds a duplicate of it proves by it that the reads of a dead process are over (source.h, proto/attach.h): so
 * it has neither DEFER_TASKRUN nor SINGLE_ISSUER, and no request of it can go without its completion. */
#ifndef NTX_IOD_RING_H
#define NTX_IOD_RING_H

#include <liburing.h>

struct ntx_iod_ring {
    struct io_uring u;
    int why; /* negative errno: there is none to be had, and reads go through threads */
};

/* Returns why. Made once, before the process locks itself in; regions come and go. */
int ntx_iod_ring_open(struct ntx_iod_ring *r);
void ntx_iod_ring_close(struct ntx_iod_ring *r);

#endif
