/* SPDX-License-Identifier: Apache-2.0 */
/* chat_clusters.h: grapheme clusters (client/cluster.h) for libedit, which edits single code points and takes a column
 * or two for each. Each cluster of several code points is one character in its line: a stand-in, out of scripts that
 * nobody types, of the same width. On the way to the screen it becomes the cluster again, and so does it in the line
 * that the user has ended.
 *
 *   keys --join--> libedit's line --stream--> screen
 *                                 --unfold--> text
 *
 * A terminal that shows no whole clusters (ntx_cluster_whole) gets the part of it that takes the stand-in's columns. A
 * stand-in keeps its meaning until the end. Where all are used, or a cluster is wider than two columns, its code points
 * are edited one by one. */
#ifndef NTX_CLIENT_COMMANDS_CHAT_CLUSTERS_H
#define NTX_CLIENT_COMMANDS_CHAT_CLUSTERS_H

#include <stdio.h>
#include <wchar.h>

struct ntx_clusters;

struct ntx_clusters *ntx_clusters_new(void); /* NULL: no memory */
void ntx_clusters_free(struct ntx_clusters *c);

/* The text with stand-ins, and the reverse, of n bytes; malloc'd. NULL: no memory. */
char *ntx_clusters_fold(struct ntx_clusters *c, const char *text);
char *ntx_clusters_unfold(const struct ntx_clusters *c, const char *text, size_t n);

/* The stand-in of the cluster that `next` makes of the character before it; 0: it begins a new one. */
wchar_t ntx_clusters_join(struct ntx_clusters *c, wchar_t before, wchar_t next);
/* The character itself, or its stand-in where libedit cannot show it. */
wchar_t ntx_clusters_alone(struct ntx_clusters *c, wchar_t one);

/* A stream to fd, for libedit, that puts clusters in place of stand-ins. Close it before ntx_clusters_free. */
FILE *ntx_clusters_stream(struct ntx_clusters *c, int fd);

#endif
