/* SPDX-License-Identifier: Apache-2.0 */
/* receiver.h: the receiver, a separate process that takes a client's descriptors and reads the files first.
 *
 *   client ==Load + descriptors==> [ntx-computed --receive] --Load--> computed
 *                                          | <-------- order ---------
 *                                          | looks: kind of file, copies, headers
 *                                          | -- verdict + descriptors -->
 *
 * A client may pass a file whose read and close never return: FUSE asks its server at both. A thread that waits there
 * cannot be killed, and its process cannot end. So ntx-computed never takes such a descriptor. It reads its sockets
 * without room for descriptors (the kernel then drops those that come), checks whether the next byte brings some
 * (MSG_PEEK), and leaves that request to a receiver. The receiver may be killed at any time. One that the kernel cannot
 * end is left behind with its descriptors, and counts against its client's user. A path that the daemon opens itself
 * goes the same way: the receiver only reports whether it can be read.
 *
 * From users other than the daemon's own and root, files of user-space file systems are refused: ntx-iod would read
 * them as long as the model is loaded. */
#ifndef NTX_COMPUTED_SERVER_RECEIVER_H
#define NTX_COMPUTED_SERVER_RECEIVER_H

#include <stdint.h>

#include "common/err.h"

#define NTX_RECEIVER_SOCK 3 /* the receiver's descriptors at its start */
#define NTX_RECEIVER_CONN 4
#define NTX_RECEIVER_MAX  (1u << 20) /* most bytes of a request that comes with descriptors */

/* computed to receiver; then load_bytes of an encoded Load, if the receiver has no connection */
struct ntx_receiver_order {
    uint32_t load_bytes;
    uint32_t foreign; /* it comes from another user */
};

struct ntx_receiver_verdict { /* receiver to computed, with a client's descriptors on its first byte */
    int32_t rc;
    char text[sizeof((struct ntx_err *)0)->text];
};

/* The main function of a receiver. conn: it first reads a request from NTX_RECEIVER_CONN and sends its length (uint32)
 * and bytes. */
int ntx_receiver_main(int conn);

#endif
