/* SPDX-License-Identifier: Apache-2.0 */
/* part.h: one file from an address to a name in the store, across failures and interruptions. A file under its own name
 * is whole. A try that is broken off, or stalls (web.h), is followed by another; after six in a row that brought less
 * than 64 KiB each, it is given up.
 *
 *   .FILE.part  as far as it has come, in order; locked (flock) by who pulls it -- length, sha256 --> FILE, by a rename
 *   .FILE.from  what that is a part of: a line of length and sha256, or ETag. Of another one nothing is kept */
#ifndef NTX_CLIENT_PULL_PART_H
#define NTX_CLIENT_PULL_PART_H

#include <stdbool.h>

#include "client/pull/hub.h"

struct ntx_pull_part {
    const char *dir;                      /* where it goes, for messages */
    int folder;                           /* the same as a descriptor (place.h), by which alone it is reached */
    const struct ntx_hub_file *file;      /* with its size */
    const char *etag;                     /* of the version that was looked at, or "" */
    void (*at)(void *arg, uint64_t have); /* so many of its bytes are there now; may be NULL */
    void (*again)(void *arg, const char *why,
                  unsigned seconds); /* it broke, and is tried again in so many; may be NULL */
    void *arg;
    unsigned wait_ms; /* before the first new try; each further one waits twice as long */
};

/* What of it is there already: all of it when *whole. -EEXIST: something else is there under its name. */
int ntx_part_have(const struct ntx_pull_part *p, uint64_t *bytes, bool *whole, struct ntx_err *err);
/* 0: it is there. -EBUSY: another ntx pulls it. -EPERM: the part that is there has a second name elsewhere. What
 * has come stays for the next time, unless its hash was wrong (-EBADMSG) or it is another one's. */
int ntx_part_pull(struct ntx_web *w, const struct ntx_pull_part *p, struct ntx_err *err);

#endif
