/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.h: grapheme clusters (Unicode UAX #29): what a reader sees as one character, such as a letter with accents or
 * an emoji of several code points, and the columns of a terminal that it takes.
 *
 * Terminals differ: most count the columns of each code point, some show a cluster as a whole ("mode 2027"). The
 * process has one terminal; ntx_cluster_whole says that it does the latter. */
#ifndef NTX_CLIENT_CLUSTER_H
#define NTX_CLIENT_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the first cluster of p[0..n), n >= 1. A byte that is no UTF-8 counts as one. */
size_t ntx_cluster_at(const char *p, size_t n);

/* Columns of the cluster p[0..n) on the terminal. */
unsigned ntx_cluster_columns(const char *p, size_t n);

/* Bytes at the beginning of the cluster that the terminal shows in at most two columns: all of it on a terminal that
 * shows whole clusters, else the part before a joiner, a variation selector or a skin tone. */
size_t ntx_cluster_shown(const char *p, size_t n);

/* Whether a line may break between these neighbouring clusters, which no blank separates: between wide characters
 * (Chinese, Japanese, Korean), but not before closing punctuation or after opening punctuation. */
bool ntx_cluster_breaks(const char *a, size_t n_a, const char *b, size_t n_b);

void ntx_cluster_set_whole(bool whole); /* default: false */
bool ntx_cluster_whole(void);

#endif
