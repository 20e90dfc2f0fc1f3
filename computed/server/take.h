/* SPDX-License-Identifier: Apache-2.0 */
/* take.h: a process of its own takes a client's descriptors, and reads them first.
 *
 *   client ==Load + descriptors==> [ntx-computed --take] --Load--> computed
 *                                          | <-------- order ---------
 *                                          | looks: kind of file, copies, headers
 *                                          | -- verdict + descriptors -->
 *
 * A client may pass a file whose reads never return, and whose close does not return either: FUSE asks its server at
 * both, and a thread that waits there cannot be killed, nor can its process end. So computed never takes such a
 * descriptor in: it reads its sockets without room for descriptors (the kernel then drops those that come), looks first
 * whether the next byte brings some (MSG_PEEK), and leaves that one request to a taker. The taker may be killed at any
 * time; one that the kernel does not let die is left behind, with what it holds, and counted against its client's user.
 * A path that the daemon opens itself goes the same way: the taker only says whether it can be read.
 *
 * From another user than the daemon's own and root no file of a user-space file system is taken at all: ntx-iod would
 * read it as long as the model is there. */
#ifndef NTX_COMPUTED_SERVER_TAKE_H
#define NTX_COMPUTED_SERVER_TAKE_H

#include <stdint.h>

#include "common/err.h"

#define NTX_TAKE_SOCK 3 /* the taker's descriptors at its start */
#define NTX_TAKE_CONN 4
#define NTX_TAKE_MAX  (1u << 20) /* bytes of a request that comes with descriptors */

struct ntx_take_order { /* computed to taker; then load_bytes of an encoded Load: without a connection, the taker has
                           none yet */
    uint32_t load_bytes;
    uint32_t foreign; /* it comes from another user */
};

struct ntx_take_verdict { /* taker to computed, with the descriptors on its first byte where they came from a client */
    int32_t rc;
    char text[sizeof((struct ntx_err *)0)->text];
};

/* The taker's life. conn: it begins with a request to be read from NTX_TAKE_CONN, which it sends on as length (uint32)
 * and bytes. */
int ntx_take_main(int conn);

#endif
