/* SPDX-License-Identifier: Apache-2.0 */
/* hub_json.h: requests to the hub's API: one GET, whose answer is JSON of at most 16 MiB that comes within two
 * minutes. */
#ifndef NTX_CLIENT_PULL_HUB_JSON_H
#define NTX_CLIENT_PULL_HUB_JSON_H

#include <jansson.h>

#include "client/pull/web.h"

/* *out: an array or object; the caller frees it. more: the list goes on elsewhere (NULL: does not matter). Errors as of
 * ntx_web_get; -EPROTO: the answer is no JSON, is cut short, or has a key twice; -E2BIG. */
int ntx__hub_json_get(struct ntx_web *w, const char *url, json_t **out, bool *more, struct ntx_err *err);
int ntx__hub_json_parse(const char *text, size_t n, json_t **out, struct ntx_err *err);

#endif
