/* SPDX-License-Identifier: Apache-2.0 */
/* valid.h: checks that the validators of frames and of peers' messages share. Internal to proto/. */
#ifndef NTX_PROTO_VALID_H
#define NTX_PROTO_VALID_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* protobuf-c gives absent strings as "", never NULL; messages made in code may have NULL. */
static inline bool ntx__text_fits(const char *s, size_t max) { return s && strnlen(s, max + 1) <= max; }

static inline bool ntx__not_negative(double v) { return isfinite(v) && v >= 0; }

#endif
