/* SPDX-License-Identifier: Apache-2.0 */
/* answer_stats.h: the statistics of an answer (docs/protocol.md, Done) in words. A rate is left out where it would be
 * measured over less than 10 ms, and for tokens that were cached. */
#ifndef NTX_CLIENT_COMMANDS_ANSWER_STATS_H
#define NTX_CLIENT_COMMANDS_ANSWER_STATS_H

#include <jansson.h>
#include <stddef.h>

/* One line, without a newline: "128 tokens at 40.0 tokens/s; prompt of 45 tokens (30 cached); seed 7". */
void ntx_stats_line(const json_t *stats, char *buf, size_t n);

/* The account of /stats: sentences, each on a line of its own; malloc'd, NULL: no memory. */
char *ntx_stats_account(const json_t *stats);

#endif
