/* SPDX-License-Identifier: Apache-2.0 */
/* picture_kind.h: the kind of a file by its first bytes, for messages before anything decodes it. */
#ifndef NTX_COMMON_PICTURE_KIND_H
#define NTX_COMMON_PICTURE_KIND_H

#include <stddef.h>

#include "common/err.h"

enum ntx_picture_kind {
    NTX_PICTURE_NONE, /* not decoded */
    NTX_PICTURE_JPEG,
    NTX_PICTURE_PNG,
    NTX_PICTURE_WEBP,
    NTX_PICTURE_GIF,
    NTX_PICTURE_BMP,
};

enum ntx_picture_kind ntx_picture_kind(const void *data, size_t n);
/* 0: a kind that is decoded. -EINVAL: err names the kind that it is, and what to do. */
int ntx_picture_check(const void *data, size_t n, struct ntx_err *err);

#endif
