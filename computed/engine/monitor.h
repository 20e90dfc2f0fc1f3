/* SPDX-License-Identifier: Apache-2.0 */
/* monitor.h: data of ntx-computed for the monitors beside plain counters (shm/monitor.h): the model's layers, the
 * sessions, token times. Counters may be NULL: then nothing is reported. */
#ifndef NTX_COMPUTED_ENGINE_MONITOR_H
#define NTX_COMPUTED_ENGINE_MONITOR_H

#include "shm/counters.h"

struct ntx_loaded;
struct ntx_session;

void ntx_monitor_model(struct ntx_counters *c, const struct ntx_loaded *l); /* NULL: no model is loaded */
void ntx_monitor_sessions(struct ntx_counters *c, const struct ntx_session *first);
/* s got a token at run.last_ns; its last one before at before_ns (0: none). */
void ntx_monitor_token(struct ntx_counters *c, const struct ntx_session *s, uint64_t before_ns);
void ntx_monitor_answer(struct ntx_counters *c, const struct ntx_session *s); /* its request ended without an error */

#endif
