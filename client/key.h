/* SPDX-License-Identifier: Apache-2.0 */
/* key.h: reads an API key from a file that only its owner may read. */
#ifndef NTX_CLIENT_KEY_H
#define NTX_CLIENT_KEY_H

#include "common/err.h"

#define NTX_KEY_ROOM 520u

/* -EINVAL when others may read the file (mode beyond 0700), or it is not one line of 8 to 512 printable characters
 * without blanks. */
int ntx_key_read(const char *path, char key[NTX_KEY_ROOM], struct ntx_err *err);

#endif
