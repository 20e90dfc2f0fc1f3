/* SPDX-License-Identifier: Apache-2.0 */
/* link.h: one NN_PAIR over ipc:// between two daemons, driven from a libuv loop.
 *
 * nanomsg loses messages, so this layer adds epoch and sequence, drops stale ones, never blocks, and its addresses name
 * both incarnations: "DIR/ci.I" (computed binds, iod I connects), "DIR/cp.P" (computed binds, predictor P connects),
 * "DIR/pi.P.I" (predictor P binds, iod I connects). All calls from the loop's thread. */
#ifndef NTX_PROTO_LINK_H
#define NTX_PROTO_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"

#define NTX_LINK_MAX 65536 /* bytes of one packed message */

struct ntx_link;

/* A valid, fresh message of the current epoch (or Hello of any). Freed after the call returns. */
typedef void ntx_link_cb(void *ctx, const Ntx__Peer *m);

/* A path (no scheme); b counts for "pi" only. Empty when it does not fit: open then refuses it. */
void ntx_link_address(char *buf, size_t n, const char *dir, const char *kind /* "ci" "cp" "pi" */, uint32_t a,
                      uint32_t b);
int ntx_link_open(uv_loop_t *loop, const char *address, bool bind, ntx_link_cb *cb, void *ctx, struct ntx_link **out,
                  struct ntx_err *err);
/* NULL is fine; unlinks a bound address. Allowed inside the callback, which is not called again; the memory goes when
 * the loop runs next. */
void ntx_link_close(struct ntx_link *l);
void ntx_link_set_epoch(struct ntx_link *l, uint64_t epoch); /* what is sent, and what is accepted */

/* Fills in epoch and seq. 0, -EAGAIN when it would block (hints: forget; control: try at the next tick), -EMSGSIZE. */
int ntx_link_send(struct ntx_link *l, Ntx__Peer *m);

/* Field by field validation (sizes, ranges, strings); used by the link and by the fuzzer. */
int ntx_peer_validate(const Ntx__Peer *m);

#endif
