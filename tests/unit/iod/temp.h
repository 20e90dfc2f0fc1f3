/* SPDX-License-Identifier: Apache-2.0 */
/* temp.h: a file of known bytes, for tests of sources. */
#ifndef NTX_TESTS_UNIT_IOD_TEMP_H
#define NTX_TESTS_UNIT_IOD_TEMP_H

#include <stdint.h>

#include "iod/source.h"
#include "shm/region.h"

/* The byte at `offset` of any test file. */
uint8_t temp_byte(uint64_t offset);
/* An unlinked file of that size with those bytes, in the build tree (a real file system) or under `dir`. */
int temp_file(const char *dir, uint64_t bytes);
/* 1 when [from, from + n) of the file is at p. */
int temp_same(const uint8_t *p, uint64_t from, uint64_t n);

#endif
