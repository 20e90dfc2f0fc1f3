/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: from a client's messages to the plain structs that loading and the engine take. Whatever stands behind this
 * and computed/engine/reply_queue.c knows no protobuf. */
#ifndef NTX_COMPUTED_SERVER_WIRE_H
#define NTX_COMPUTED_SERVER_WIRE_H

#include "proto/ntx.pb-c.h"
#include "computed/engine/request.h"
#include "computed/engine/load.h"

/* The files that a client's Load announces against the number of descriptors that came with it: fewer, more or
 * other ones would be taken for one another. */
int ntx_load_request_check(const Ntx__Load *m, unsigned came, struct ntx_err *err);
/* From a Load message and the descriptors that came with it (taken over, also on failure). */
int ntx_load_request_new(const Ntx__Load *m, const int *fds, unsigned n_fds, struct ntx_load_request **out,
                         struct ntx_err *err);

/* Of a Generate, LogitsReq, ScoreReq, StatesReq, Cancel or CloseSession, which is taken over. NULL: no memory; req is
 * still the caller's. */
struct ntx_request *ntx_request_of(Ntx__Request *req);

#endif
