/* SPDX-License-Identifier: Apache-2.0 */
/* temporary.h: temporary files of tests: in $TMPDIR, or in /tmp when it is not set or too long. */
#ifndef NTX_TESTS_LIB_TEMPORARY_H
#define NTX_TESTS_LIB_TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/check.h"

/* "$TMPDIR/ntx-WHAT-XXXXXX" */
static inline void temporary_name(char *path, size_t size, const char *what)
{
    const char *dir = getenv("TMPDIR");
    if (!dir || !*dir || snprintf(path, size, "%s/ntx-%s-XXXXXX", dir, what) >= (int)size)
        CHECK(snprintf(path, size, "/tmp/ntx-%s-XXXXXX", what) < (int)size);
}

/* Makes a new directory, or file, and puts its name into path. */
static inline void temporary_dir(char *path, size_t size, const char *what)
{
    temporary_name(path, size, what);
    CHECK_MSG(mkdtemp(path), "%s", path);
}
static inline int temporary_file(char *path, size_t size, const char *what)
{
    temporary_name(path, size, what);
    int fd = mkstemp(path);
    CHECK_MSG(fd >= 0, "%s", path);
    return fd;
}

#endif
