/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_text.h: the counters' file as Prometheus text (exposition format 0.0.4), generated from the tables in
 * shm/. A counter X(iod_busy_ns, c, "ns", ...) becomes ntx_iod_busy_seconds_total; gauges have no _total; times are
 * in seconds, rates in bytes_per_second. Process ids are left out. */
#ifndef NTX_CLIENT_MONITOR_METRICS_TEXT_H
#define NTX_CLIENT_MONITOR_METRICS_TEXT_H

#include <stddef.h>

#include "shm/counters.h"

/* malloc'd text, its length in *len; NULL: out of memory. c NULL: no daemons run, and the text says only that. */
char *ntx_metrics_text(const struct ntx_counters *c, size_t *len);

#endif
