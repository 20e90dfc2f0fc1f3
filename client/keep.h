/* SPDX-License-Identifier: Apache-2.0 */
/* keep.h: how long a model is kept without requests. */
#ifndef NTX_CLIENT_KEEP_H
#define NTX_CLIENT_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "5m", "30s", "2h", "500ms", "10" (seconds); negative: NTX_KEEP_EVER. False: it is none of these. */
#define NTX_KEEP_EVER (-1)
bool ntx_keep_read(const char *text, int64_t *ms);

#endif
