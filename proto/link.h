/* SPDX-License-Identifier: Apache-2.0 */
/* link.h: one NN_PAIR over ipc:// between two daemons, driven from a libuv loop.
 *
 * nanomsg may lose messages. This layer adds epoch and sequence, drops stale messages and never blocks. Its addresses
 * name both processes: "DIR/ci.I" (computed binds, iod I connects), "DIR/cp.P" (computed binds, predictor P connects),
 * "DIR/pi.P.I" (predictor P binds, iod I connects). All calls come from the loop's thread. */
#ifndef NTX_PROTO_LINK_H
#define NTX_PROTO_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"

#define NTX_LINK_MAX 65536 /* bytes of one packed message */

struct ntx_link;

/* Called for each valid, fresh message of the current epoch (or Hello of any). The message is freed after the call. */
typedef void ntx_link_cb(void *ctx, const Ntx__Peer *m);

/* Makes the path (no scheme); b is for "pi" only. The path is empty when it does not fit: open then refuses it. */
void ntx_link_address(char *buf, size_t n, const char *dir, const char *kind /* "ci" "cp" "pi" */, uint32_t a,
                      uint32_t b);
int ntx_link_open(uv_loop_t *loop, const char *address, bool bind, ntx_link_cb *cb, void *ctx, struct ntx_link **out,
                  struct ntx_err *err);
/* Closes a link (NULL is accepted) and unlinks a bound address. Allowed inside the callback, which is not called again;
 * the memory is freed when the loop runs next. */
void ntx_link_close(struct ntx_link *l);
void ntx_link_set_epoch(struct ntx_link *l, uint64_t epoch); /* epoch of sent and of accepted messages */

/* Fills in epoch and seq and sends. 0; -EAGAIN: it would block (drop a hint, retry a control message at the next tick);
 * -EMSGSIZE. */
int ntx_link_send(struct ntx_link *l, Ntx__Peer *m);

/* Validates each field (sizes, ranges, strings); for the link and the fuzzer. */
int ntx_peer_validate(const Ntx__Peer *m);

#endif
