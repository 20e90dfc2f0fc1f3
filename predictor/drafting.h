/* SPDX-License-Identifier: Apache-2.0 */
/* drafting.h: the thread of a drafter (computed/draft/drafter.h), which drafts tokens for the texts in shm/drafts.h. It
 * has a low priority: compute goes first. It expands a text's tree until no likely token is left or the text changes,
 * and publishes the tree after each step. */
#ifndef NTX_PREDICTOR_DRAFTING_H
#define NTX_PREDICTOR_DRAFTING_H

#include <stdint.h>

#include "common/err.h"
#include "shm/counters.h"

struct ntx_drafting;

/* requests, answers: shm/drafts.h; file: the drafter's; lent: its weights in memory (proto/attach.h), or -1. All are
 * taken over, also on failure. Errors of the file are reported in the answers. counters: borrowed, may be NULL.
 * number: index of this drafter, for the trace. */
int ntx_drafting_start(int requests, int answers, int file, int lent, uint64_t epoch, unsigned number,
                       struct ntx_counters *counters, struct ntx_drafting **out, struct ntx_err *err);
void ntx_drafting_stop(struct ntx_drafting *d); /* accepts NULL; waits for a step to end */

#endif
