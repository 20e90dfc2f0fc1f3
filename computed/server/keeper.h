/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.h: keeps the served model over the death of ntx-computed: the Load message and the model's open files. Another
 * process holds the descriptors meanwhile, so they outlive this one, and no right to open the files again is needed.
 *
 *   ntx up, ntx serve   a pair of sockets that the supervisor made and every ntx-computed inherits (--keep R,W). A
 *                       message with the descriptors waits in it.
 *   systemd             its descriptor store (FDSTORE=1, FileDescriptorStoreMax= in the unit); they come back by
 *                       LISTEN_FDS
 *
 * Kept are a memfd with the message and the files' identities, and the files. Main thread only. */
#ifndef NTX_COMPUTED_SERVER_KEEPER_H
#define NTX_COMPUTED_SERVER_KEEPER_H

#include <stdbool.h>

#include "common/err.h"
#include "proto/ntx.pb-c.h"
#include "shm/region.h"

#define NTX_KEEP_TRIES 3 /* loads before it is given up, since each of them killed ntx-computed */

struct ntx_keeper {
    int in, out; /* the pair of sockets; -1: none */
    bool systemd;
    int memo; /* memfd of the kept model; -1: none */
};

struct ntx_kept {    /* everything that loads a model again */
    Ntx__Load *load; /* NULL: nothing is kept */
    int fds[NTX_MAX_FILES];
    unsigned n_fds;
};
void ntx_kept_free(struct ntx_kept *k); /* frees and zeroes it */

/* pair: of --keep, {-1, -1} for none. Takes over systemd's descriptors, and closes those that are not ours. */
void ntx_keeper_open(struct ntx_keeper *k, const int pair[2]);
/* Takes the model kept before this process. 1: *out has it (it stays kept, too); 0: there was none; negative errno: it
 * cannot be used, as err says. Counts a try. */
int ntx_keeper_take(struct ntx_keeper *k, struct ntx_kept *out, struct ntx_err *err);
/* Keeps this model instead. The descriptors stay the caller's. */
int ntx_keeper_put(struct ntx_keeper *k, const struct ntx_kept *what, struct ntx_err *err);
void ntx_keeper_drop(struct ntx_keeper *k);

#endif
