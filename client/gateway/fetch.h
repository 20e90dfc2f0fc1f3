/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h: pictures by URL. A connection's thread waits for them while it reads the request. */
#ifndef NTX_CLIENT_GATEWAY_FETCH_H
#define NTX_CLIENT_GATEWAY_FETCH_H

#include <stddef.h>
#include <stdint.h>

#include "client/gateway/fault.h"
#include "common/fence.h"

struct ntx_fetched { /* by one request so far */
    uint64_t bytes, until_ns;
};

/* The hosts that may be asked, for all requests; set before the first. Borrowed. n 0: nothing is fetched. */
void ntx_api_request_image_hosts(const char *const *patterns, unsigned n);
/* *data: malloc'd. -1 with f. */
int ntx__request_fetch(const char *url, struct ntx_fetched *all, const char *param, uint8_t **data, size_t *n,
                       struct ntx_fault *f);

#endif
