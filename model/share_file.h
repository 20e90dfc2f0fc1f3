/* SPDX-License-Identifier: Apache-2.0 */
/* share_file.h: the file of one machine's share (share.h), for machines that have no room for the whole model: `ntx
 * pack --share I/N`.
 *
 * A GGUF with all tensors at their full size, in which only the parts that this machine reads have bytes; the rest is a
 * hole, which takes no room on the drive (copy it with cp --sparse=always, rsync -S or tar -S). Keys name the share and
 * the whole model:
 *
 *     ntx.share.rank    u32        of this machine; rank 0 also has tensors that are not dealt, and token tables
 *     ntx.share.parts   [u32]      of all machines (struct ntx_share)
 *     ntx.share.owners  [u32]      the owner of each layer, if layers are dealt whole (the output is dealt by rows)
 *     ntx.share.digest  string     digest.h, of the whole model
 *
 * Such a file is not a model by itself: the machines need all shares together. */
#ifndef NTX_MODEL_SHARE_FILE_H
#define NTX_MODEL_SHARE_FILE_H

#include <stdint.h>

#include "model/arch.h"
#include "model/share.h"

/* Reads the share from the keys. share->n 0: g is a whole model. -EINVAL: the keys are inconsistent. */
int ntx_share_file_of(const struct ntx_gguf *g, struct ntx_share *share, struct ntx_err *err);
/* Refuses a share where a whole model is needed: -EINVAL, with a text. name: of the file. */
int ntx_share_file_refuse(const struct ntx_gguf *g, const char *name, struct ntx_err *err);

/* Writes the file of share->rank. fds: of the parts of m's file. *bytes: bytes written, the room on the drive. tell:
 * NULL, or called with the progress. */
int ntx_share_file_make(const struct ntx_model *m, const int *fds, const struct ntx_share *share, const char *path,
                        void (*tell)(uint64_t done, uint64_t all), uint64_t *bytes, struct ntx_err *err);

/* Deals whole layers of m by the parts of s (ntx_share_layers). bytes [n_layers]: dealt bytes of each layer; or
 * NULL. */
int ntx_share_by_layers(const struct ntx_model *m, struct ntx_share *s, uint64_t *bytes, struct ntx_err *err);

#endif
