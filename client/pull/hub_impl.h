/* SPDX-License-Identifier: Apache-2.0 */
/* hub_impl.h: a repository from JSON that is there already, for the parts of client/pull. */
#ifndef NTX_CLIENT_PULL_HUB_IMPL_H
#define NTX_CLIENT_PULL_HUB_IMPL_H

#include <jansson.h>

#include "client/pull/hub.h"

/* As ntx_hub_parse. list becomes the repository's, also on failure. */
int ntx__hub_make(const char *hub, const char *name, json_t *list, struct ntx_hub_repo **out, struct ntx_err *err);

#endif
