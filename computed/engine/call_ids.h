/* SPDX-License-Identifier: Apache-2.0 */
/* call_ids.h: ids of calls for chat templates that take only their own form of them. Mistral's refuse all but nine
 * letters and digits, while clients send "call_0f3a..." or none.
 *
 * An id becomes nine letters and digits by a hash, the same for a call and its result, in every request. A call without
 * an id gets one by its number, and results without an id get those of the calls before them, in order. */
#ifndef NTX_COMPUTED_ENGINE_CALL_IDS_H
#define NTX_COMPUTED_ENGINE_CALL_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/chat.h"

struct ntx_call_ids {
    char **text; /* [n] the fields of the messages that were changed */
    size_t n;
};

/* Makes the fields of msgs[0..n) point into `made`, which is freed after them. False: there are no calls and no
 * results, or no memory. Free `made` in either case. */
bool ntx_call_ids_shorten(struct ntx_chat_msg *msgs, size_t n, struct ntx_call_ids *made);
void ntx_call_ids_free(struct ntx_call_ids *made);

/* ntx_chat_tokens_with; where the template refuses the conversation, once more with such ids. msgs: their fields may be
 * changed, and are then freed. */
int ntx_call_ids_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, struct ntx_chat_msg *msgs,
                        unsigned from, unsigned n, struct ntx_chat_more *more, const struct ntx_tok_limits *limits,
                        int32_t **ids, struct ntx_err *err);

#endif
