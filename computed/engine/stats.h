/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h: statistics of a model, a request and the daemon, as JSON with the names of the interface. */
#ifndef NTX_COMPUTED_ENGINE_STATS_H
#define NTX_COMPUTED_ENGINE_STATS_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "computed/engine/run_stats.h"

struct ntx_loaded;

/* malloc'd JSON text; NULL: out of memory. */
char *ntx_stats_run(const struct ntx_run_stats *r, const struct ntx_loaded *l, const struct ntx_counters *c);
char *ntx_stats_info(const struct ntx_loaded *l); /* of a loaded model, for a Loaded reply */
/* Adds the model's figures (name, placement, plan) to a JSON object. */
int ntx_stats_add_model(json_t *j, const struct ntx_loaded *l);

/* Proportional set size of processes plus their hugetlb memory, in bytes. A process that cannot be read counts 0. */
uint64_t ntx_stats_memory(const pid_t *pids, unsigned n);

#endif
