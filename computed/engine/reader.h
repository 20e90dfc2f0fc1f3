/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h: the thread that finds the tokens of prompts, one prompt after the other, so that a long prompt delays no
 * pass. The prompt's limits bound its work: it ends as soon as there are more tokens than the context holds.
 *
 *   engine --put--> [reader thread: ntx_prompt_read] --done--> engine
 *
 * The reader owns a reading from put until it calls done, in its thread. Only `unwanted` may be set meanwhile. */
#ifndef NTX_COMPUTED_ENGINE_READER_H
#define NTX_COMPUTED_ENGINE_READER_H

#include <stdatomic.h>

#include "computed/engine/session.h"

struct ntx_reading {
    struct ntx_reading *next;
    struct ntx_session *session; /* the engine's; NULL: the reading is unwanted */
    struct ntx_request *req;     /* owned; a generate */
    uint64_t asked_ns;
    atomic_bool unwanted; /* set: the reading ends soon */
    struct ntx_prompt prompt;
};

void ntx_reading_free(struct ntx_reading *r); /* NULL is fine */

struct ntx_reader;
typedef void ntx_reader_done_fn(void *ctx, struct ntx_reading *r);

int ntx_reader_new(ntx_reader_done_fn *done, void *ctx, struct ntx_reader **out);
void ntx_reader_put(struct ntx_reader *r, struct ntx_reading *g);
void ntx_reader_free(struct ntx_reader *r); /* Frees readings that still wait. NULL is fine. */

#endif
