/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h: what a part of the shared region is made of: memory of a file of its own (memfd), with its size sealed, so
 * that no process that has it can shrink it under another's feet (SIGBUS). Whoever made it may seal it against writing
 * as well: then no descriptor, mapping or path in /proc is a way to change it. */
#ifndef NTX_SHM_SEGMENT_H
#define NTX_SHM_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_segment {
    int fd; /* -1: none */
    uint8_t *at;
    uint64_t bytes;
};
#define NTX_NO_SEGMENT ((struct ntx_segment){.fd = -1})

enum ntx_segment_use {
    NTX_SEGMENT_SHARED,   /* mapped for writing by whoever has it */
    NTX_SEGMENT_OWNED,    /* mapped for writing here and now, and by nobody after that */
    NTX_SEGMENT_CONSTANT, /* holds `from` for good, and is mapped by others only */
};

/* Makes a part of `bytes` bytes (rounded up to pages), called `name` in /proc. align: of its address. *p is untouched
 * on failure. */
int ntx_segment_make(const char *name, uint64_t bytes, enum ntx_segment_use use, uint64_t align, const void *from,
                     struct ntx_segment *p, struct ntx_err *err);
/* Maps one that was received: to write to, or to read what is promised not to be written by others than its maker
 * (OWNED) or by anybody (CONSTANT). Takes fd over. -EINVAL for what is no such part. */
int ntx_segment_take(int fd, enum ntx_segment_use use, uint64_t align, struct ntx_segment *p, struct ntx_err *err);
void ntx_segment_close(struct ntx_segment *p); /* a zeroed or closed one is fine */

#endif
