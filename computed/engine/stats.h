/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h: the numbers that people see, as JSON with the names of the interface: of a model, of one request, of the
 * daemon. */
#ifndef NTX_COMPUTED_ENGINE_STATS_H
#define NTX_COMPUTED_ENGINE_STATS_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "computed/engine/run_stats.h"

struct ntx_loaded;

/* malloc'd JSON text; NULL: out of memory. */
char *ntx_stats_run(const struct ntx_run_stats *r, const struct ntx_loaded *l, const struct ntx_counters *c);
char *ntx_stats_info(const struct ntx_loaded *l); /* of a loaded model, for Loaded */
/* Adds the model's figures (name, placement, plan) to a JSON object. */
int ntx_stats_add_model(json_t *j, const struct ntx_loaded *l);

/* Proportional set size of processes plus hugetlb memory they hold, bytes; what cannot be read counts nothing. */
uint64_t ntx_stats_memory(const pid_t *pids, unsigned n);

#endif
