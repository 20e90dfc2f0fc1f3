/* SPDX-License-Identifier: Apache-2.0 */
/* place.h: folders of the store as descriptors, so that writing and removing files there follows no link that another
 * user made.
 *
 *   root      "/var/lib/ntx/models"   a link in it is followed if root or the caller made it (another drive)
 *   within    "OWNER/REPO"            no link is followed: `ntx pull` made these folders
 *
 * Root's `ntx pull` into another user's folder then ends with an error, instead of writing to one of root's files. */
#ifndef NTX_CLIENT_PULL_PLACE_H
#define NTX_CLIENT_PULL_PLACE_H

#include <stdbool.h>

#include "common/err.h"

/* A descriptor of the folder, for *at functions; created if missing and `make`. Else a negative errno: -ENOENT: it
 * does not exist; -ELOOP: a link is in the way. */
int ntx_place_open(const char *root, const char *within, bool make, struct ntx_err *err);

#endif
