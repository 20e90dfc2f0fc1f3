/* SPDX-License-Identifier: Apache-2.0 */
/* header.h: the header of a GGUF that is somewhere else, read by ranges before the rest is: what tells whether ntx can
 * run it, and how fast. */
#ifndef NTX_CLIENT_PULL_HEADER_H
#define NTX_CLIENT_PULL_HEADER_H

#include "client/pull/hub.h"

/* *fd: a memory file as long as the whole, of which the header is there and the rest is zeros. f's size, and hash where
 * the home tells it, are filled in. etag: of this version, or "". -EINVAL: it is no GGUF; -EMSGSIZE: the length is not
 * what the list tells, or nobody tells it. */
int ntx_header_get(struct ntx_web *w, struct ntx_hub_file *f, int *fd, char etag[200], struct ntx_err *err);

/* Where the header ends that begins at p: 0: behind p + n; UINT64_MAX: it is none. Nothing else is checked. */
uint64_t ntx_header_end(const void *p, size_t n);

#endif
