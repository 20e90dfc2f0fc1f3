/* SPDX-License-Identifier: Apache-2.0 */
/* drafting.h: the thread that guesses tokens (computed/draft/drafter.h) for the texts that computed shows
 * (shm/drafts.h). It has the lowest claim on a core: computing goes first. It works on a text until nothing likely is
 * left or the next change comes, and says after each step what it has. */
#ifndef NTX_PREDICTOR_DRAFTING_H
#define NTX_PREDICTOR_DRAFTING_H

#include <stdint.h>

#include "common/err.h"
#include "shm/counters.h"

struct ntx_drafting;

/* asks, answers: shm/drafts.h; file: the drafter's. All are taken over, also on failure. What is wrong with the file is
 * said in the answers. counters: borrowed, may be NULL. number: which of several it is, for the trace. */
int ntx_drafting_start(int asks, int answers, int file, uint64_t epoch, unsigned number, struct ntx_counters *counters,
                       struct ntx_drafting **out, struct ntx_err *err);
void ntx_drafting_stop(struct ntx_drafting *d); /* NULL is fine; waits for a step to end */

#endif
