/* SPDX-License-Identifier: Apache-2.0 */
/* echo.h: completions that begin with their prompt (`echo`), with the logprob of each of its tokens. Programs that
 * measure models ask so how likely a text is. The values are those of a pass over the prompt alone. */
#ifndef NTX_CLIENT_GATEWAY_ECHO_H
#define NTX_CLIENT_GATEWAY_ECHO_H

#include "client/gateway/answer.h"

/* Fills `shown`, and with logprobs `logprobs`, of each prompt of a; prompts become tokens. A negative errno with
 * err. */
int ntx_echo_read(struct ntx_call *c, struct ntx_api_request *a, struct ntx_err *err);

#endif
