/* SPDX-License-Identifier: Apache-2.0 */
/* dir.h: a temporary directory for one test. */
#ifndef NTX_TESTS_UNIT_PROTO_DIR_H
#define NTX_TESTS_UNIT_PROTO_DIR_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/check.h"
#include "tests/lib/temporary.h"

static inline void make_dir(char dir[64]) { temporary_dir(dir, 64, "test"); }

/* Fails when something was left in it. */
static inline void drop_dir(const char *dir) { CHECK_MSG(rmdir(dir) == 0, "%s is not empty", dir); }

#endif
