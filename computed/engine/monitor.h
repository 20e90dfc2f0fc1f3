/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.h: what ntx-computed tells the monitors beside plain counters (shm/monitor.h): the model's layers, the
 * sessions, how long tokens took. Counters may be NULL: then nothing is told. */
#ifndef NTX_COMPUTED_ENGINE_MONITOR_H
#define NTX_COMPUTED_ENGINE_MONITOR_H

#include "shm/counters.h"

struct ntx_loaded;
struct ntx_session;

void ntx_monitor_model(struct ntx_counters *c, const struct ntx_loaded *l); /* NULL: none is loaded */
void ntx_monitor_sessions(struct ntx_counters *c, const struct ntx_session *first);
/* A token came to s at run.last_ns; the one before came at before_ns (0: it is the first). */
void ntx_monitor_token(struct ntx_counters *c, const struct ntx_session *s, uint64_t before_ns);
void ntx_monitor_answer(struct ntx_counters *c, const struct ntx_session *s); /* its request ended well */

#endif
