/* SPDX-License-Identifier: Apache-2.0 */
/* attach.h: how a worker gets the region: by the SOCK_SEQPACKET socket "region.sock" in the runtime directory, fixed
 * structs, descriptors by SCM_RIGHTS (nanomsg cannot pass them). The connection lives as long as the worker: by its end
 * each side learns that the other died (computed also holds a pidfd).
 *
 *   worker                               computed
 *   connect, HELLO(role, pid, build) ->  checks SO_PEERCRED (same user, or root) and build
 *                                   <-   WELCOME(instance) + counters descriptor, or REFUSED(text; instance 1: do not
 *                                        try again)
 *                                   <-   PEERS(iod instance, predictor instance), again whenever one changes
 *                                   <-   ATTACH(epoch, role) + descriptors, when a model is loaded. To iod: the
 *                                        region's parts plan, control, ring and bytes (shm/region.h), wake eventfd,
 *                                        model files. To the predictor: the probe board (shm/board.h); the skip
 *                                        policy's sidecar if there is one; for each drafter model requests, answers
 *                                        (shm/drafts.h), its file, and its weights in memory (sealed; in the places
 *                                        of its file), or once more its file
 *   ATTACHED(ring_fd, or text)      ->   ring_fd: iod's io_uring descriptor number, for pidfd_getfd; -1 none
 *                                   <-   DETACH(epoch)   release everything of that region
 *   DETACHED(epoch)                 ->   no part of it is read or mapped any more
 *
 * iod's RING (ATTACHED) is how computed proves that a dead iod's reads have ended. computed duplicates ring_fd while
 * iod lives, and after its death waits until the CQ tail equals the SQ head. So the ring has IORING_FEAT_SINGLE_MMAP,
 * carries only requests with exactly one completion each (no multishot, no CQE_SKIP, no SQPOLL), never overflows its
 * CQ, and is made without DEFER_TASKRUN and SINGLE_ISSUER. iod calls prctl(PR_SET_PTRACER, computed's pid from
 * SO_PEERCRED) before it sends ATTACHED.
 *
 *   ring_fd >= 0   all asynchronous reads use this ring. With liburing: ring_bytes = ring.sq.ring_sz,
 *                  ring_sq_head = (char *)ring.sq.khead - (char *)ring.sq.ring_ptr, ring_cq_tail likewise from
 *                  ring.cq.ktail. ring_bytes == 0: unknown; computed reads the two numbers from the duplicate's fdinfo
 *   ring_fd == -1  no ring: reads are system calls that end before the process does (pread)
 *   text not empty the attach failed: iod reads nothing
 *
 * iod reads nothing before ATTACHED is sent; computed handles its Hello only after ATTACHED has come.
 *
 * Each process of a worker has its own instance number and so its own nanomsg addresses (ntx_link_address): no new
 * worker meets an old connection. computed refuses a second worker of a role while the first lives. Workers cannot
 * remove files: the predictor binds the link between the two, and computed removes its socket when one of them has
 * died. */
#ifndef NTX_PROTO_ATTACH_H
#define NTX_PROTO_ATTACH_H

#include <stdint.h>
#include <sys/un.h>

#include "common/err.h"

#define NTX_ATTACH_MAGIC   0x4e545841u
#define NTX_ATTACH_VERSION 5u
#define NTX_IOD_FDS        5 /* descriptors of ATTACH to iod, before the model files */
#define NTX_PREDICTOR_FDS  1 /* to the predictor, before the sidecar */
#define NTX_DRAFTER_FDS    4 /* after the sidecar, for each drafter */
#define NTX_DRAFTERS       3 /* drafters at most */
#define NTX_ATTACH_MAX_FDS 105

enum ntx_role { NTX_ROLE_IOD = 1, NTX_ROLE_PREDICTOR = 2 };

enum ntx_attach_kind {
    NTX_AT_HELLO = 1,
    NTX_AT_WELCOME,
    NTX_AT_REFUSED,
    NTX_AT_PEERS,
    NTX_AT_ATTACH,
    NTX_AT_ATTACHED,
    NTX_AT_DETACH,
    NTX_AT_DETACHED,
};

struct ntx_attach_msg { /* one packet, both directions; unused fields zero */
    uint32_t magic, version, kind, role;
    int32_t pid;
    uint32_t instance;
    uint64_t epoch;
    uint32_t iod_instance, predictor_instance; /* PEERS; 0: there is none */
    uint32_t n_files;                    /* ATTACH to iod: model files. To the predictor: 1 if there is a sidecar */
    uint32_t drafters;                   /* ATTACH to the predictor: drafter models */
    uint32_t lent;                       /* ATTACH to the predictor: bit i: drafter i has its weights in memory */
    int32_t ring_fd;                     /* ATTACHED, see above */
    uint32_t ring_sq_head, ring_cq_tail; /* ATTACHED with a ring: byte offsets of the two words in its mapping */
    uint64_t ring_bytes;                 /* ATTACHED with a ring: bytes of its one mapping at IORING_OFF_SQ_RING */
    char build[64];                      /* HELLO */
    char text[256];                      /* REFUSED, ATTACHED on failure */
};

/* Worker's side. Connects, sends HELLO and waits (at most 5 s) for WELCOME. Returns the socket (non-blocking,
 * close-on-exec). Retries the connect for up to wait_ms while computed does not listen yet. -EPERM: refused for good;
 * -EBUSY: refused for now. */
int ntx_attach_connect(const char *dir, enum ntx_role role, unsigned wait_ms, uint32_t *instance, int *counters_fd,
                       struct ntx_err *err);

/* Both sides. Fills in region.sock's address in dir and returns a socket, non-blocking and close-on-exec. */
int ntx_attach_socket(const char *dir, struct sockaddr_un *a, struct ntx_err *err);

/* Sends or receives one validated packet (magic, version, kind, terminated strings, number of descriptors). recv
 * returns 1: a message, 0: end of file, -EAGAIN: none yet, or another negative errno. fds has room for
 * NTX_ATTACH_MAX_FDS. */
int ntx_attach_send(int sock, struct ntx_attach_msg *m, const int *fds, unsigned n_fds);
int ntx_attach_recv(int sock, struct ntx_attach_msg *m, int *fds, unsigned *n_fds);

#endif
