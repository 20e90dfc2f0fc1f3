/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h: threads that work on prompts before the engine does, one prompt after the other, so that a long prompt or a
 * picture delays no pass. A prompt's limits bound the work: it ends as soon as there are more tokens than the context
 * holds.
 *
 *   engine --put--> [reader: ntx_prompt_read] --done--> engine
 *                              |                          ^
 *                     pictures to encode                  |
 *                              v                          |
 *                    [encoder: ntx_prompt_encode] --done--'
 *
 * A reader owns a reading from put until it calls done, in its thread. Only `unwanted` may be set meanwhile. */
#ifndef NTX_COMPUTED_ENGINE_READER_H
#define NTX_COMPUTED_ENGINE_READER_H

#include <stdatomic.h>

#include "computed/engine/session.h"

struct ntx_reading {
    struct ntx_reading *next;
    struct ntx_session *session;     /* the engine's; NULL: the reading is unwanted */
    struct ntx_request *req;         /* owned; a generate */
    struct ntx_reply_queue *replies; /* a reference */
    uint64_t asked_ns;
    uint64_t began_ns;    /* when its reader took it up */
    atomic_bool unwanted; /* set: the reading ends soon */
    struct ntx_prompt prompt;
};

void ntx_reading_free(struct ntx_reading *r); /* NULL is fine */

struct ntx_reader;
typedef void ntx_reader_fn(void *ctx, struct ntx_reading *r);

/* read works on a prompt; done gets it. Both in the new thread. */
int ntx_reader_new(void (*read)(struct ntx_prompt *p), ntx_reader_fn *done, void *ctx, struct ntx_reader **out);
void ntx_reader_put(struct ntx_reader *r, struct ntx_reading *g);
/* Calls fn for the prompt under way, if there is one that is wanted. fn is brief and calls no reader. Any thread. */
void ntx_reader_now(struct ntx_reader *r, ntx_reader_fn *fn, void *ctx);
void ntx_reader_free(struct ntx_reader *r); /* Frees readings that still wait. NULL is fine. */

#endif
