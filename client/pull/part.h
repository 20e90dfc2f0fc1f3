/* SPDX-License-Identifier: Apache-2.0 */
/* part.h: downloads one file into the store, across failures and interruptions. A file under its own name is complete.
 * A try that fails, or stalls (web.h), is followed by another; after six tries in a row that brought less than 64 KiB
 * each, the download ends.
 *
 *   .FILE.part  the bytes so far, in order; locked (flock) by its process
 *               -- length, sha256 --> FILE, by a rename
 *   .FILE.from  the version of that part: a line of length and sha256, or ETag. A part of another version is dropped */
#ifndef NTX_CLIENT_PULL_PART_H
#define NTX_CLIENT_PULL_PART_H

#include <stdbool.h>

#include "client/pull/hub.h"

struct ntx_pull_part {
    const char *dir;                      /* destination, for messages */
    int folder;                           /* its descriptor (place.h); the folder is used only through it */
    const struct ntx_hub_file *file;      /* with its size */
    const char *etag;                     /* of the version that was looked at, or "" */
    void (*at)(void *arg, uint64_t have); /* `have` bytes are present now; may be NULL */
    void (*again)(void *arg, const char *why,
                  unsigned seconds); /* a try failed, the next one starts after so many seconds; may be NULL */
    void *arg;
    unsigned wait_ms; /* before the second try; each further wait is twice as long */
};

/* How much is present: all of it when *whole. -EEXIST: the name is taken by something else. */
int ntx_part_have(const struct ntx_pull_part *p, uint64_t *bytes, bool *whole, struct ntx_err *err);
/* 0: complete. -EBUSY: another ntx pulls it. -EPERM: the present part is a hard link to another file. The bytes so
 * far stay for the next time, unless the hash was wrong (-EBADMSG) or they belong to another version. */
int ntx_part_pull(struct ntx_web *w, const struct ntx_pull_part *p, struct ntx_err *err);

#endif
