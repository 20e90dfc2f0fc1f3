/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h: the name that somebody may have meant. */
#ifndef NTX_COMMON_NEAREST_H
#define NTX_COMMON_NEAREST_H

#include <stddef.h>

/* Of `n` names, the i-th of which `at` tells, the one from which `word` differs by the fewest characters left out, put
 * in, changed or swapped, letters' case aside; NULL when it is none of them with a third of its letters wrong. */
const char *ntx_nearest(const char *word, const char *(*at)(size_t i), size_t n);

#endif
