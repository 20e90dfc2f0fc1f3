/* SPDX-License-Identifier: Apache-2.0 */
/* share_file.h: the file of one machine's share (share.h), for machines that have no room for the whole model: `ntx
 * pack --share I/N`.
 *
 * A GGUF with all tensors at their full size, in which only what this machine reads has bytes; the rest is a hole,
 * which takes no room on the drive (a copy keeps it so with cp --sparse=always, rsync -S or tar -S). Keys tell whose
 * share it is, and the digest of the whole:
 *
 *     ntx.share.rank    u32        of this machine; 0 has what is not dealt, and rows of tokens, too
 *     ntx.share.parts   [u32]      struct ntx_share: of all machines
 *     ntx.share.owners  [u32]      where layers are dealt whole: whose each one is (the output is dealt by rows)
 *     ntx.share.digest  string     digest.h, of the whole model
 *
 * By itself such a file is no model: only machines that together have all shares compute with it. */
#ifndef NTX_MODEL_SHARE_FILE_H
#define NTX_MODEL_SHARE_FILE_H

#include <stdint.h>

#include "model/arch.h"
#include "model/share.h"

/* share->n 0: g is a whole model. -EINVAL: its keys make no sense. */
int ntx_share_file_of(const struct ntx_gguf *g, struct ntx_share *share, struct ntx_err *err);
/* For who needs the whole: -EINVAL with words if g is a share. name: of the file. */
int ntx_share_file_refuse(const struct ntx_gguf *g, const char *name, struct ntx_err *err);

/* Writes share->rank's file. fds: of the parts of m's file. *bytes: that have been written, which is what it takes.
 * tell: NULL, or called with them now and then. */
int ntx_share_file_make(const struct ntx_model *m, const int *fds, const struct ntx_share *share, const char *path,
                        void (*tell)(uint64_t done, uint64_t all), uint64_t *bytes, struct ntx_err *err);

/* Deals whole layers of m by s's parts (ntx_share_layers). bytes [n_layers]: what of each can be dealt; NULL: nobody
 * asks. */
int ntx_share_by_layers(const struct ntx_model *m, struct ntx_share *s, uint64_t *bytes, struct ntx_err *err);

#endif
