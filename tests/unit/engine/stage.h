/* SPDX-License-Identifier: Apache-2.0 */
/* stage.h: the engine alone, with a small model in memory; requests are structs, there is no socket and no daemon. Each
 * pass stops at the skip policy's probe until the test lets it go on, so the rows of each pass are known exactly. */
#ifndef NTX_TESTS_UNIT_ENGINE_STAGE_H
#define NTX_TESTS_UNIT_ENGINE_STAGE_H

#include <pthread.h>

#include "computed/engine/engine_impl.h"
#include "proto/frame.h"
#include "tests/unit/pass/rig.h"

enum { ROWS = 8, CTX = 64, MOST_PASSES = 256, MOST_REPLIES = 1024, DEADLINE_MS = 60000 };

struct seen_row {
    uint64_t session;
    uint32_t pos;
    bool prompt;
};

struct seen_pass {
    uint32_t n;
    struct seen_row row[ROWS];
};

struct reply {
    const struct ntx_reply_queue *to;
    uint64_t id, session;
    Ntx__Reply__BodyCase kind;
    int32_t token, err;
    uint32_t cached;
    char text[256]; /* text of an error, or why the answer ended */
};

struct stage {
    struct rig rig;
    struct ntx_loaded l;
    struct ntx_counters *counters;
    struct ntx_skip *skip;
    struct ntx_engine *e;
    uv_loop_t loop;
    struct ntx_output_budget output_budget;
    struct ntx_mailbox *mail;
    struct ntx_reply_queue *ann, *bob;
    bool stopped;
    const struct ntx_reply_queue *deaf;      /* takes no replies: */
    size_t untaken[MOST_REPLIES], n_untaken; /* lengths of the replies that wait for it */
    struct reply replies[MOST_REPLIES];
    unsigned n_replies;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t moved;
    struct seen_pass pass[MOST_PASSES];
    unsigned n_passes, allowed;
};

/* kv_tokens: room for K and V. draft: value of --draft; NULL: off. shares: with the prefix cache. */
void stage_open_with(struct stage *g, uint32_t kv_tokens, uint32_t max_queue, const char *draft, bool shares);
void stage_open(struct stage *g, uint32_t kv_tokens, uint32_t max_queue);
void stage_allow(struct stage *g, unsigned passes);
void stage_nap(void);
void stage_close(struct stage *g);
/* Waits until the pass of that number (from 1) has begun, and is held. */
const struct seen_pass *stage_reached(struct stage *g, unsigned pass);
const struct reply *stage_find(const struct stage *g, uint64_t id, Ntx__Reply__BodyCase kind, unsigned nth);
/* Waits for the nth reply of that kind to the request. */
const struct reply *stage_reply(struct stage *g, uint64_t id, Ntx__Reply__BodyCase kind, unsigned nth);
/* Waits for the end of the answer to request id, with that reason. */
void stage_ended(struct stage *g, uint64_t id, const char *why);
void stage_submit(struct stage *g, struct ntx_reply_queue *who, struct ntx_request q);
struct ntx_request stage_generation(uint64_t id, const int32_t *ids, uint32_t n_ids, uint32_t n);
/* Asks for an answer of n tokens to `ids`, which must stay. */
void stage_generate(struct stage *g, struct ntx_reply_queue *who, uint64_t id, const int32_t *ids, uint32_t n_ids,
                    uint32_t n);
/* While a pass is held: waits until requests first to last that have not started are read; they then wait for its
 * end. */
void stage_prompts_read(struct stage *g, uint64_t first, uint64_t last);
/* The greedy answer of the forward pass alone. */
void stage_expected(const int32_t *ids, uint32_t n_ids, int32_t *out, uint32_t n);
void stage_same_answer(struct stage *g, uint64_t id, const int32_t *want, uint32_t n);
uint64_t stage_session_of(struct stage *g, uint64_t id);
/* Checks that only these sessions have rows, in this order. */
void stage_rows_are(const struct seen_pass *p, uint64_t a, uint32_t n_a, uint64_t b, uint32_t n_b);
/* Lets the held pass go on and waits for the next one; counts *pass up. */
const struct seen_pass *stage_next(struct stage *g, unsigned *pass);

#endif
