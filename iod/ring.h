/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h: the one io_uring of a process, which the kernel restricts to reads. Requests in a ring bypass the process's
 * system call filter (common/sandbox.h). So the kernel refuses this ring everything but reads, and every registration
 * but that of buffers; after that the process can be forbidden to make another ring.
 *
 * The holder of a duplicate proves with it that a dead process's reads have ended (source.h, proto/attach.h). So the
 * ring has neither DEFER_TASKRUN nor SINGLE_ISSUER, and every request gets its completion. */
#ifndef NTX_IOD_RING_H
#define NTX_IOD_RING_H

#include <liburing.h>

struct ntx_iod_ring {
    struct io_uring u;
    int why; /* negative errno: there is no ring, and reads go through threads */
};

/* Returns why. Called once, before the process enters the sandbox; regions come and go. */
int ntx_iod_ring_open(struct ntx_iod_ring *r);
void ntx_iod_ring_close(struct ntx_iod_ring *r);

#endif
