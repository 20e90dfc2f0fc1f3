/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h: the client protocol on a byte stream: a uint32 little-endian length, then one packed Request or Reply. A
 * pure decoder (bytes in, messages out) for the event loop and the fuzzer, and blocking calls for simple clients. */
#ifndef NTX_PROTO_FRAME_H
#define NTX_PROTO_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"

#define NTX_FRAME_MAX  (16u << 20)
/* Limits of a request's numbers and texts. */
#define NTX_COUNT_MAX  (1u << 20) /* threads, sessions, slots, rows: more than any machine has, and no sum overflows */
#define NTX_CTX_MAX    (1u << 28)
#define NTX_BYTES_MAX  (1ull << 50)
#define NTX_WORD_MAX   64u   /* names of back ends, kernels, sources, roles */
#define NTX_OPTION_MAX 4096u /* fault and policy texts, stop strings */
#define NTX_KNOWN_NAME 256u  /* names of known models */
#define NTX_KNOWN_LIST 65536u

struct ntx_frame_in { /* zero-initialised; holds the bytes of one frame and the surplus of the last feed */
    uint8_t *buf;
    size_t len, room, used; /* used: bytes at the front that were taken already */
};
/* Adds received bytes. Take the frames out with next before feeding again. -ENOMEM; -EMSGSIZE when more than a frame
 * and a feed pile up. */
int ntx_frame_feed(struct ntx_frame_in *in, const void *buf, size_t len);
/* The next whole frame's body. 1: *body is valid until the next call. 0: none yet (a large buffer is freed when empty).
 * -EMSGSIZE: the length is 0 or too large; close the connection. */
int ntx_frame_next(struct ntx_frame_in *in, const uint8_t **body, size_t *len);
/* Bytes that the current frame still lacks, as far as is known; 0: the next byte begins a frame. A caller that reads no
 * more at a time never reads beyond a frame. */
size_t ntx_frame_wants(const struct ntx_frame_in *in);
void ntx_frame_free(struct ntx_frame_in *in);

/* True when the body is known and all fields are within the limits above. */
bool ntx_request_valid(const Ntx__Request *m);

/* Unpacks and validates, in memory of at most a small multiple of len. NULL: malformed. Free with protobuf-c's function
 * (ntx__request__free_unpacked(m, NULL)). took (or NULL): bytes of memory of the message. */
Ntx__Request *ntx_request_decode(const uint8_t *body, size_t len, size_t *took);
Ntx__Reply *ntx_reply_decode(const uint8_t *body, size_t len);

/* Makes a malloc'd frame, length included. */
int ntx_request_encode(const Ntx__Request *m, uint8_t **frame, size_t *len);
int ntx_reply_encode(const Ntx__Reply *m, uint8_t **frame, size_t *len);

/* Blocking, for clients. */
int ntx_frame_send_request(int sock, const Ntx__Request *m, const int *fds, unsigned n_fds);

#endif
