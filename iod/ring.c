/* SPDX-License-Identifier: Apache-2.0 */
#include "iod/ring.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "iod/source.h"

/* liburing 2.3 declares functions for these two registrations, but does not export them. */
static int do_register(const struct io_uring *u, unsigned what, void *arg, unsigned n)
{
    return syscall(SYS_io_uring_register, u->ring_fd, what, arg, n) ? -errno : 0;
}

/* Fails on a kernel without restrictions (before Linux 5.10); then no ring is used. */
static int restrict_to_reads(struct io_uring *u)
{
    struct io_uring_restriction may[] = {
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ_FIXED},
        {.opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_BUFFERS},
        {.opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_UNREGISTER_BUFFERS},
    };
    int rc = do_register(u, IORING_REGISTER_RESTRICTIONS, may, sizeof may / sizeof *may);
    return rc ? rc : do_register(u, IORING_REGISTER_ENABLE_RINGS, NULL, 0); /* the restrictions apply from here on */
}

int ntx_iod_ring_open(struct ntx_iod_ring *r)
{
    r->why = io_uring_queue_init(NTX_SOURCE_DEPTH, &r->u, IORING_SETUP_R_DISABLED);
    if (r->why)
        return r->why;
    io_uring_ring_dontfork(&r->u);
    if ((r->why = restrict_to_reads(&r->u)))
        io_uring_queue_exit(&r->u);
    return r->why;
}

void ntx_iod_ring_close(struct ntx_iod_ring *r)
{
    if (!r->why)
        io_uring_queue_exit(&r->u);
    r->why = -EBADF;
}
