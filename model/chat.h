/* chat.h: chat templates, recognised by the shape of the GGUF's template text (not executed).
 *
 * One table (chat.c): llama-2, llama-3, chatml, mistral (also mistral-v1 and mistral-v7, which space it otherwise), and plain
 * ("User: ...", "Assistant: ..." in lines of their own, for models without a template). What a template computes (dates,
 * default system texts, tools) is not imitated. A conversation is rendered as pieces, so that text from people
 * never parses as special tokens: template pieces are tokenized with NTX_TOK_SPECIAL, people's text without. */
#ifndef NTX_MODEL_CHAT_H
#define NTX_MODEL_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/tokenizer.h"

struct ntx_chat_template; /* static, one per known shape */

struct ntx_chat_msg {
    const char *role; /* "system", "user" or "assistant" */
    const char *text;
    size_t len;
};

/* By name ("llama-3"); NULL when unknown. */
const struct ntx_chat_template *ntx_chat_by_name(const char *name);
/* By the template text of a GGUF; NULL when its shape is unknown. */
const struct ntx_chat_template *ntx_chat_by_shape(const char *jinja, size_t len);
const char *ntx_chat_name(const struct ntx_chat_template *t);
const char *ntx_chat_names(void); /* comma separated, for messages */

/* Token ids of msgs[from..n), rendered as the continuation of a conversation whose first `from` messages have been
 * rendered before (from 0: the beginning, with BOS where the vocabulary asks for it). A conversation ends
 * with the opening of an assistant turn; when the last message is the assistant's, its turn is left open and the model goes on
 * with its text. With from > 0, msgs[from - 1] is an answer of the assistant whose text is in the context already, but not
 * the end of its turn (the token that ended the generation is not fed back): the ids begin with that end.
 * *ids malloc'd; returns the count or a negative errno (-EINVAL: a role that is none of the three, nothing to render). */
int ntx_chat_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, const struct ntx_chat_msg *msgs,
                    unsigned from, unsigned n, int32_t **ids, struct ntx_err *err);

#endif
