/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.h: what loads the served model again after the death of ntx-computed: the Load message and the model's open
 * files, as descriptors that somebody else holds meanwhile, so that they outlive the process and need no right to open
 * the files again.
 *
 *   ntx up, ntx serve   a pair of sockets that the supervisor made and every ntx-computed inherits (--keep R,W): a
 * message with the descriptors waits in it systemd             its store of descriptors (FDSTORE=1,
 * FileDescriptorStoreMax= in the unit), which come back by LISTEN_FDS
 *
 * Kept are a memfd with the message and the files' identity, and the files. Main thread only. */
#ifndef NTX_COMPUTED_SERVER_KEEPER_H
#define NTX_COMPUTED_SERVER_KEEPER_H

#include <stdbool.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"
#include "shm/region.h"

#define NTX_KEEP_TRIES 3 /* to load it again, before that is given up: each of them ended ntx-computed */

struct ntx_keeper {
    int in, out; /* the pair; -1: there is none */
    bool systemd;
    int memo; /* what is kept now: its memfd; -1: nothing is */
};

struct ntx_kept {    /* what loads a model again */
    Ntx__Load *load; /* NULL: nothing is kept */
    int fds[NTX_MAX_FILES];
    unsigned n_fds;
};
void ntx_kept_free(struct ntx_kept *k); /* and zeroes it */

/* pair: of --keep, {-1, -1} for none. Takes over what systemd passes on; what is not ours of it is closed. */
void ntx_keeper_open(struct ntx_keeper *k, const int pair[2]);
/* What was kept before this process: 1, and it is *out's (it stays kept, too); 0: nothing was; or a negative errno: it
 * cannot be used, as err says. Counts a try. */
int ntx_keeper_take(struct ntx_keeper *k, struct ntx_kept *out, struct ntx_err *err);
/* Instead of what was kept. The descriptors stay the caller's. */
int ntx_keeper_put(struct ntx_keeper *k, const struct ntx_kept *what, struct ntx_err *err);
void ntx_keeper_drop(struct ntx_keeper *k);

#endif
