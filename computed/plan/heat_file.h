/* SPDX-License-Identifier: Apache-2.0 */
/* heat_file.h: the uses of a model's experts (computed/weights/heat.h) as a file, beside the hardware profile:
 *
 *   heat/DIGEST.json
 *     { "ntx_heat": 1, "experts": 64, "rows": [1, 5210, ...], "uses": [[], [12, 0, 310, ...], ...] }     by layer
 *
 * It shows which experts the texts of all users took together, so only its owner may read it (0600). No text depends on
 * it: it decides only what is read first. */
#ifndef NTX_COMPUTED_PLAN_HEAT_FILE_H
#define NTX_COMPUTED_PLAN_HEAT_FILE_H

#include "common/err.h"
#include "computed/weights/heat.h"

/* digest: the model's (model/digest.h). -ENOENT, without text: nothing is stored; -EINVAL: the file is damaged, or is
 * for another shape. h changes only on success. */
int ntx_heat_load(const char *digest, struct ntx_heat *h, struct ntx_err *err);
int ntx_heat_store(const char *digest, const struct ntx_heat *h, struct ntx_err *err);
int ntx_heat_parse(const char *json, struct ntx_heat *h, struct ntx_err *err);
char *ntx_heat_dump(const struct ntx_heat *h); /* malloc'd; NULL: no memory */

#endif
