/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h: the thread that computes. One per loaded model; it owns the sessions, their KV and the forward pass.
 *
 *   main --jobs--> [engine thread: jobs -> admit -> pass -> results] --mail--> main
 *
 * Continuous batching: each pass takes a row of every session that is writing, and fills up with rows of prompts,
 * shared fairly among the sessions that are reading theirs. Who comes joins at the start of the next pass. A session
 * reserves all KV that it may need before its first pass; others wait in the order of their coming. A session whose
 * client does not read its answers rests. Nothing of this changes a token: the value of a row depends on its own
 * session only.
 *
 * A pass that nobody wants any more, all its requests being cancelled or their clients gone, is cut short within
 * milliseconds; one that still carries somebody goes on to its end.
 *
 * The tokens of a prompt are found apart (reader.h), in the order of the prompts; passes go on meanwhile. What sessions
 * hold beside their KV counts in the budget: where it is used up, conversations that nobody has gone on with for
 * longest are forgotten, those of the client first that holds most, and where there are none, requests are refused.
 *
 * A pass that fails (an unreadable file) ends the sessions that had rows in it, with the reason; the engine goes on. */
#ifndef NTX_COMPUTED_ENGINE_ENGINE_H
#define NTX_COMPUTED_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "computed/engine/request.h"
#include "computed/engine/engine_skip.h"
#include "computed/engine/load.h"
#include "computed/engine/reply_queue.h"

struct ntx_engine;

struct ntx_engine_config {
    struct ntx_loaded *loaded; /* borrowed, until the engine is freed */
    struct ntx_skip *skip;     /* the same */
    struct ntx_counters *counters;
    struct ntx_mailbox *mail;
    bool share_all;     /* prefixes are shared between users */
    uint32_t max_queue; /* requests that may wait for memory; 0: refuse at once */
};

int ntx_engine_new(const struct ntx_engine_config *c, struct ntx_engine **out, struct ntx_err *err);

/* Main thread. submit takes req over; replies go to writer. */
int ntx_engine_submit(struct ntx_engine *e, struct ntx_reply_queue *replies, struct ntx_request *req);
int ntx_engine_client_gone(struct ntx_engine *e, struct ntx_reply_queue *replies); /* frees all that it held */
void ntx_engine_cancel_all(struct ntx_engine *e);                                  /* answers end with "cancel" */
/* Tells the clients whose rows are in a pass that takes long how far it is. For a timer, a few times a second while it
 * is busy. */
void ntx_engine_tell_progress(struct ntx_engine *e);
#define NTX_PROGRESS_MS 250
void ntx_engine_poke(struct ntx_engine *e);            /* a writer has room again */
bool ntx_engine_busy(const struct ntx_engine *e);      /* something runs or waits; NTX_MAIL_IDLE tells its end */
void ntx_engine_quit(struct ntx_engine *e);            /* ends all; NTX_MAIL_STOPPED tells when to free */
uint64_t ntx_engine_saved(const struct ntx_engine *e); /* bytes of what was computed that it has written to --state so
                                                          far: it grows while the end waits for that */
void ntx_engine_free(struct ntx_engine *e);            /* joins the thread: at once after NTX_MAIL_STOPPED */

#endif
