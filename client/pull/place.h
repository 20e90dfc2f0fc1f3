/* SPDX-License-Identifier: Apache-2.0 */
/* place.h: folders of the store as descriptors, so that what is written or removed there goes through no link that
 * somebody else put on the way.
 *
 *   root      "/var/lib/ntx/models"   a link in it is followed where root or the caller made it (another drive)
 *   within    "OWNER/REPO"            no link is followed: `ntx pull` made these folders
 *
 * Root's `ntx pull` into a folder of another user then ends with an error, and not in a file of root's. */
#ifndef NTX_CLIENT_PULL_PLACE_H
#define NTX_CLIENT_PULL_PLACE_H

#include <stdbool.h>

#include "common/err.h"

/* A descriptor of the folder, for *at functions; made where it is missing if `make`. Else a negative errno:
 * -ENOENT: it is not there; -ELOOP: a link is in the way. */
int ntx_place_open(const char *root, const char *within, bool make, struct ntx_err *err);

#endif
