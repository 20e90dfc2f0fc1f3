/* chat.h: chat templates, recognised by the shape of the GGUF's template text (not executed).
 *
 * One table (chat.c): llama-2, llama-3, chatml, mistral, plain. A conversation is rendered as pieces, so that text from people
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
 * with the opening of an assistant turn. *ids malloc'd; returns the count or a negative errno. */
int ntx_chat_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, const struct ntx_chat_msg *msgs,
                    unsigned from, unsigned n, int32_t **ids, struct ntx_err *err);

#endif
