/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h: the name that the user may have meant. */
#ifndef NTX_COMMON_NEAREST_H
#define NTX_COMMON_NEAREST_H

#include <stddef.h>

/* The name among `n` (at(i) is the i-th) with the smallest edit distance to `word`: characters left out, inserted,
 * changed or swapped, ignoring case. NULL when more than a third of the letters differ. */
const char *ntx_nearest(const char *word, const char *(*at)(size_t i), size_t n);
const char *ntx_nearest_of(const char *word, const char *const *names, size_t n);

#endif
