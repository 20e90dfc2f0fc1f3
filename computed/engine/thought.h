/* SPDX-License-Identifier: Apache-2.0 */
/* thought.h: the thoughts (reasoning) in one answer: which tokens belong to them, and their limit. At the limit the
 * format's own end mark is written in the model's place.
 *
 *   tokens of the answer --take--> BEFORE --open mark--> IN --close mark--> AFTER
 *                                                         `--budget used up--> due: the tokens of the end mark
 *
 * Marks are found in the bytes of the tokens, control tokens included, however they are cut. */
#ifndef NTX_COMPUTED_ENGINE_THOUGHT_H
#define NTX_COMPUTED_ENGINE_THOUGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "model/reply/reply.h"
#include "model/think.h"
#include "model/tokenizer.h"

struct ntx_thought;

struct ntx_thought_config {
    const struct ntx_reply_format *format;
    const struct ntx_tokenizer *tok; /* borrowed as long as the thought is used */
    bool calls;                      /* the request has tools */
    bool begun;                      /* the answer begins in a thought */
    struct ntx_think think;          /* off: a budget of 0 */
};

int ntx_thought_new(const struct ntx_thought_config *c, struct ntx_thought **out); /* -ENOMEM */
void ntx_thought_free(struct ntx_thought *t);
/* The token that must come next; -1: any. t may be NULL in all of these. */
int32_t ntx_thought_due(struct ntx_thought *t);
void ntx_thought_take(struct ntx_thought *t, int32_t token); /* the next token of the answer */
uint32_t ntx_thought_tokens(const struct ntx_thought *t);    /* in thoughts so far, without marks */

#endif
