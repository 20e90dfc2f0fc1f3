/* SPDX-License-Identifier: Apache-2.0 */
/* request_fields.h: shared by fields.c and the readers of several APIs. */
#ifndef NTX_CLIENT_GATEWAY_REQUEST_FIELDS_H
#define NTX_CLIENT_GATEWAY_REQUEST_FIELDS_H

#include <stddef.h>

#include "client/gateway/api_request.h"
#include "client/gateway/field.h"

#define NTX_MOST_TOKENS 268435456.0 /* beyond any context (proto/frame.h) */
#define AT(x)           offsetof(struct ntx_api_request, x)

struct ntx_api_request_tokenize {
    bool bos, special, pieces;
};
#define NTX_TOKENIZE_BOS     offsetof(struct ntx_api_request_tokenize, bos)
#define NTX_TOKENIZE_SPECIAL offsetof(struct ntx_api_request_tokenize, special)
#define NTX_TOKENIZE_PIECES  offsetof(struct ntx_api_request_tokenize, pieces)

/* Lists of both of OpenAI's APIs: stop (a string or strings) and stream_options.include_usage. */
int ntx__request_stops(struct ntx_api_request *a, const json_t *v, const char *name, struct ntx_fault *f);
int ntx__request_openai(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);

#endif
