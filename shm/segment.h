/* SPDX-License-Identifier: Apache-2.0 */
/* segment.h: one part of the shared region: a memory file (memfd) whose size is sealed, so that no process can shrink
 * it while another uses it (SIGBUS). Its maker may seal it against writing as well: then no descriptor, mapping or path
 * in /proc allows a change. */
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
    NTX_SEGMENT_SHARED,   /* every process that has it may write */
    NTX_SEGMENT_OWNED,    /* only its maker, which has mapped it already, may write */
    NTX_SEGMENT_CONSTANT, /* holds `from`, and nobody can write */
};

/* Makes a part of `bytes` bytes (rounded up to pages); /proc shows it as `name`. align: alignment of its address. *p is
 * untouched on failure. */
int ntx_segment_make(const char *name, uint64_t bytes, enum ntx_segment_use use, uint64_t align, const void *from,
                     struct ntx_segment *p, struct ntx_err *err);
/* Maps a received part: SHARED for writing, OWNED and CONSTANT for reading. Takes over fd, also on failure. -EINVAL
 * when fd is no memory file with the expected seals. */
int ntx_segment_take(int fd, enum ntx_segment_use use, uint64_t align, struct ntx_segment *p, struct ntx_err *err);
void ntx_segment_close(struct ntx_segment *p); /* accepts a zeroed or closed segment */

#endif
