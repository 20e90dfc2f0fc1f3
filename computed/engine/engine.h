/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h: the compute thread. One per loaded model; it owns the sessions, their KV and the forward pass.
 *
 * A request's hops, from the socket to the reply:
 *
 *   main thread     1. computed/server/client.c   take_frames: whole frames of the connection
 *                   2. computed/server/request.c  ntx__request, compute: checks, or waits for a model that loads
 *                   3. computed/server/wire.c     ntx_request_of: the message as a struct ntx_request
 *                   4. engine_submit.c            ntx_engine_submit: a job for the engine thread
 *   engine thread   5. engine.c                   do_jobs
 *                   6. engine_submit.c            ntx__engine_job, begin_request: a session; read_prompt
 *   reader thread   7. session_prompt.c           ntx_prompt_read: chat template, tokens, constraint (reader.c)
 *   engine thread   8. engine_submit.c            ntx__engine_read; session.c: ntx_session_generate
 *                   9. engine_admit.c             ntx__engine_enqueue, ntx__engine_admit: slot and memory
 *                  10. engine_prefix.c            ntx__engine_begin: KV, with a kept prefix
 *                  11. engine_pass.c              ntx__engine_pass: rows of the pass, with drafts (engine_draft.c)
 *                  12. computed/pass/forward.c    ntx_forward_run
 *                  13. engine_draft.c             ntx__engine_give_token, ntx__engine_verify: tokens drawn
 *                  14. session.c                  ntx_session_sample: sampler or constraint, then text
 *                  15. engine_reply.c             ntx__engine_send_token, ntx__engine_finish
 *                  16. reply_queue.c              ntx_mail_reply: encoded, posted to the main thread
 *   main thread    17. computed/server/server.c   on_mail; client.c: ntx__conn_send
 *
 * Continuous batching: each pass takes a row of every decoding session, and fills up with rows of prompts, shared
 * equally among clients; beside answers only as far as the gap between their tokens may grow (gap.h). A new session
 * joins at the next pass. It reserves all KV that it may need before its first pass; others wait, and clients take
 * turns. A session whose client takes no replies pauses. None of this changes a token: the value of a row depends only
 * on its own session.
 *
 * A pass whose requests were all cancelled is cut short within milliseconds; a pass with other requests goes on.
 *
 * The reader thread finds the tokens of prompts in their order (reader.h), while passes go on. Memory of sessions
 * beside their KV counts in the budget. When it is used up, the longest idle sessions are dropped, first those of the
 * client that holds most; without idle sessions, requests are refused.
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
    struct ntx_skip *skip;     /* borrowed likewise */
    struct ntx_counters *counters;
    struct ntx_mailbox *mail;
    bool share_all;     /* users share prefixes */
    uint32_t max_queue; /* requests that may wait for memory; 0: refuse at once */
};

int ntx_engine_new(const struct ntx_engine_config *c, struct ntx_engine **out, struct ntx_err *err);

/* Main thread. submit takes req over; replies go to `replies`. */
int ntx_engine_submit(struct ntx_engine *e, struct ntx_reply_queue *replies, struct ntx_request *req);
int ntx_engine_client_gone(struct ntx_engine *e, struct ntx_reply_queue *replies); /* frees all that the client held */
void ntx_engine_cancel_all(struct ntx_engine *e);                                  /* all answers end with "cancel" */
/* Reports the progress of a long pass to the clients that have rows in it. For a timer, a few times a second while the
 * engine is busy. */
void ntx_engine_tell_progress(struct ntx_engine *e);
#define NTX_PROGRESS_MS 250
void ntx_engine_poke(struct ntx_engine *e);       /* a reply queue has room again */
bool ntx_engine_busy(const struct ntx_engine *e); /* something runs or waits; NTX_MAIL_IDLE reports the end */
void ntx_engine_quit(struct ntx_engine *e);       /* ends all; after NTX_MAIL_STOPPED it can be freed */
/* Bytes of states written to --state so far: they grow while the end waits for them. */
uint64_t ntx_engine_saved(const struct ntx_engine *e);
void ntx_engine_free(struct ntx_engine *e); /* joins the thread; does not block after NTX_MAIL_STOPPED */

#endif
