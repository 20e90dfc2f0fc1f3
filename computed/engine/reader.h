/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h: the thread that finds the tokens of prompts, one prompt after the other, so that a long one keeps no pass
 * from beginning. What it takes is bounded by the prompt's limits: it ends as soon as there are more tokens than the
 * context holds.
 *
 *   engine --put--> [reader thread: ntx_prompt_read] --done--> engine
 *
 * A reading is the reader's from put until done is called in its thread, which hands it back; only `unwanted` may be
 * set meanwhile. */
#ifndef NTX_COMPUTED_ENGINE_READER_H
#define NTX_COMPUTED_ENGINE_READER_H

#include <stdatomic.h>

#include "computed/engine/session.h"

struct ntx_reading {
    struct ntx_reading *next;
    struct ntx_session *session; /* the engine's; NULL: nobody wants it any more */
    struct ntx_request *req;     /* owned: a generate */
    uint64_t asked_ns;
    atomic_bool unwanted; /* ends it soon */
    struct ntx_prompt prompt;
};

void ntx_reading_free(struct ntx_reading *r); /* NULL is fine */

struct ntx_reader;
typedef void ntx_reader_done_fn(void *ctx, struct ntx_reading *r);

int ntx_reader_new(ntx_reader_done_fn *done, void *ctx, struct ntx_reader **out);
void ntx_reader_put(struct ntx_reader *r, struct ntx_reading *g);
void ntx_reader_free(struct ntx_reader *r); /* what it still has is not read any more, but freed. NULL is fine */

#endif
