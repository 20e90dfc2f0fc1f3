/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: makes plain structs of clients' messages, for loads and the engine. Code behind this and
 * computed/engine/reply_queue.c knows no protobuf. */
#ifndef NTX_COMPUTED_SERVER_WIRE_H
#define NTX_COMPUTED_SERVER_WIRE_H

#include "proto/ntx.pb-c.h"
#include "computed/engine/request.h"
#include "computed/engine/load.h"

/* Checks the files that a client's Load announces against the number of descriptors that came: with fewer, more or
 * others, files would be mistaken for one another. */
int ntx_load_request_check(const Ntx__Load *m, unsigned came, struct ntx_err *err);
/* Makes a request of a Load message and its descriptors, which are taken over, also on an error. */
int ntx_load_request_new(const Ntx__Load *m, const int *fds, unsigned n_fds, struct ntx_load_request **out,
                         struct ntx_err *err);

/* Makes a request of a Generate, LogitsReq, ScoreReq, StatesReq, Cancel or CloseSession, which is taken over. NULL: no
 * memory; req is still the caller's. */
struct ntx_request *ntx_request_of(Ntx__Request *req);

#endif
