/* SPDX-License-Identifier: Apache-2.0 */
/* learned_file.h: files with what was learned of a model over its loads, beside the hardware profile:
 * FOLDER/DIGEST.json in the user's cache directory, else in the service's. DIGEST is the model's (model/digest.h). */
#ifndef NTX_COMPUTED_PLAN_LEARNED_FILE_H
#define NTX_COMPUTED_PLAN_LEARNED_FILE_H

#include <stdint.h>

#include "common/err.h"

/* *text: malloc'd, with a NUL. -ENOENT, without text: there is none; -EFBIG: it has `most` bytes or more. */
int ntx_learned_read(const char *folder, const char *digest, uint32_t most, char **text, struct ntx_err *err);
/* mode: its permissions. A negative errno: it can be stored in neither place. */
int ntx_learned_store(const char *folder, const char *digest, const char *text, unsigned mode);

#endif
