/* SPDX-License-Identifier: Apache-2.0 */
/* header.h: reads the header of a remote GGUF by HTTP ranges, before the rest: it shows whether ntx can run the
 * model, and how fast. */
#ifndef NTX_CLIENT_PULL_HEADER_H
#define NTX_CLIENT_PULL_HEADER_H

#include "client/pull/hub.h"

/* *fd: a memory file as long as the model's, with the header and zeros after it. Fills in f's size, and its hash if
 * the server reports it. etag: of this version, or "". -EINVAL: not a GGUF; -EMSGSIZE: the length differs from the
 * list's, or is unknown. most_s: seconds for each request, 0: no limit; -EAGAIN: it took longer. */
int ntx_header_get(struct ntx_web *w, struct ntx_hub_file *f, unsigned most_s, int *fd, char etag[200],
                   struct ntx_err *err);

/* The end of the header that begins at p; 0: it is beyond p + n; UINT64_MAX: not a header. Nothing else is checked. */
uint64_t ntx_header_end(const void *p, size_t n);

#endif
