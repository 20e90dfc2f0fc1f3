/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.h: tables in a file whose values are indices (NTX_USE_NUMBERS): each token's experts.
 *
 * Such a value decides where a pass reads and writes, so it is checked twice: the whole table at load, from the
 * file, and each entry again when a pass uses it, since the bytes in memory were read later and may differ. */
#ifndef NTX_MODEL_NUMBERS_H
#define NTX_MODEL_NUMBERS_H

#include "common/err.h"
#include "model/arch.h"

/* Checks a token's experts in a layer, id [n_expert_used]: each exists, and none is named twice. -EINVAL, with a
 * text. */
int ntx_numbers_check(const struct ntx_model *m, uint32_t layer, int32_t token, const uint32_t *id,
                      struct ntx_err *err);

/* Checks all tokens and layers. fds: the model's files, open for reading, indexed by the file numbers of its
 * tensors. -EIO and the like: a file cannot be read. */
int ntx_numbers_check_files(const struct ntx_model *m, const int *fds, struct ntx_err *err);

#endif
