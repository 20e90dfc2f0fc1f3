/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h: chat templates: how a conversation becomes tokens, and how an answer is shown.
 *
 * A model's own template is executed (ntx_chat_open; model/template). Models without one, and clients that ask for
 * another, use the built-in table (chat.c): llama-2, llama-3, chatml, mistral (also mistral-v1 and mistral-v7, with
 * other spacing), harmony (gpt-oss; also harmony-low and harmony-high, for less and more reasoning), and plain
 * ("User: ...", "Assistant: ..." on lines of their own, for models without a template). The table does not imitate
 * what templates compute (dates, default system texts, tools), except harmony's system message, without which that
 * model does not know its channels.
 *
 * A conversation is rendered as pieces, so that users' text never parses as special tokens: template pieces are
 * tokenized with NTX_TOK_SPECIAL, users' text without. */
#ifndef NTX_MODEL_CHAT_H
#define NTX_MODEL_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/think.h"
#include "model/tokenizer.h"

struct ntx_reply_format;
struct ntx_chat_template; /* an entry of the table (static), or a model's own */

struct ntx_chat_msg {
    const char
        *role; /* "system", "user" or "assistant"; a model's own template may accept others ("tool", "developer") */
    const char *text;
    size_t len;
    const char *fields; /* [n_fields] a JSON object: other fields of the message (tool_calls, tool_call_id,
                           reasoning_content; content in place of text) */
    size_t n_fields;
};

/* Input of a model's own template besides the messages, and its result. */
struct ntx_chat_more {
    const char *variables; /* [n_variables] a JSON object: tools, documents, enable_thinking, reasoning_effort, ... */
    size_t n_variables;
    const char *think; /* [n_think] "", or such an object for thoughts, which the variables override */
    size_t n_think;
    int64_t now; /* for dates and times that the template writes, in seconds since 1970; 0: the present */
    bool silent; /* if the template opens a reasoning block, the prompt closes it again */
    bool thinks; /* out: the template opened a reasoning block ("<think>"), which the answer continues */
    bool wants_text;
    /* out, if wants_text: [n_text] the rendered conversation, without the token that begins every text; free it */
    char *text;
    size_t n_text;
};

/* Opens a model's own template. The arguments are not kept; the tokenizer is the model's. The caller frees it.
 * Errors are one line. */
int ntx_chat_open(const char *jinja, size_t len, const struct ntx_tokenizer *tok, struct ntx_chat_template **out,
                  struct ntx_err *err);
void ntx_chat_free(struct ntx_chat_template *t);
/* Checks a template as ntx_chat_open does. */
int ntx_chat_check(const char *jinja, size_t len, struct ntx_err *err);

/* An entry of the table by name ("llama-3"). NULL: unknown. */
const struct ntx_chat_template *ntx_chat_by_name(const char *name);
/* An entry of the table by the template text of a GGUF. NULL: no entry fits. */
const struct ntx_chat_template *ntx_chat_by_shape(const char *jinja, size_t len);
const char *ntx_chat_name(
    const struct ntx_chat_template *t); /* of a model's own template: the entry that fits its text, or "own" */
/* Texts with which the model would begin another turn itself, ended by NULL: an answer ends before them. Only forms
 * without control tokens (plain) have any, since others end answers by one. t may be NULL. */
const char *const *ntx_chat_turns(const struct ntx_chat_template *t);
/* The reply format (model/reply/reply.h) that parses what a view shows. t may be NULL. */
const char *ntx_chat_reply(const struct ntx_chat_template *t);
/* Calls `each` with every name that a model's own template reads, its variables among them; entries of the table
 * read none. t may be NULL. */
void ntx_chat_reads(const struct ntx_chat_template *t, void (*each)(void *arg, const char *p, size_t n), void *arg);
/* The template's variables for thoughts, and whether it knows any. t may be NULL. */
const struct ntx_think_facts *ntx_chat_think(const struct ntx_chat_template *t);
/* The format of the answers' thoughts; with an entry of the table, too, and for t NULL. */
const struct ntx_reply_format *ntx_chat_thoughts(const struct ntx_chat_template *t);
const char *ntx_chat_names(void); /* comma separated, for messages */

/* Token ids of msgs[from..n), rendered as the continuation of a conversation whose first `from` messages are in the
 * context already (from 0: the beginning, with BOS if the vocabulary asks for it). It ends with the start of an
 * assistant turn; if the last message is the assistant's, its turn stays open and the model continues its text.
 *
 * With from > 0, msgs[from - 1] is an answer of the assistant, whose text is in the context without the end of its
 * turn (the token that ended the generation is not fed back): the ids begin with that end.
 *
 * *ids: malloc'd. Returns their number or a negative errno. -EINVAL: a role that is not one of the three, nothing to
 * render, or the model's own template refused the conversation. */
int ntx_chat_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, const struct ntx_chat_msg *msgs,
                    unsigned from, unsigned n, int32_t **ids, struct ntx_err *err);
/* ntx_chat_tokens with variables, which only a model's own template takes, and within limits (or NULL). An error by
 * the limits has no text. */
int ntx_chat_tokens_with(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok,
                         const struct ntx_chat_msg *msgs, unsigned from, unsigned n, struct ntx_chat_more *more,
                         const struct ntx_tok_limits *limits, int32_t **ids, struct ntx_err *err);

/* Tokens of a text of the model's form (marks parse as such) that follows other tokens. Returns as ntx_tokenize. */
int ntx_chat_text_tokens(const struct ntx_tokenizer *tok, const char *text, int32_t **ids);

/* How the tokens of an answer become text.
 *
 * Templates with channels (harmony): the model writes several messages, each with a head that names its channel.
 * Heads are not shown; messages on other channels than the answer's stand between "<think>\n" and "\n</think>\n\n",
 * as other models write their reasoning. ntx_chat_tokens leaves such a beginning out of past answers.
 *
 * A model's own template: the control tokens with which the model marks reasoning and tool calls are shown. If tools
 * were offered (marks), its channels are shown, too: the heads of messages name the calls, and model/reply parses
 * them. Otherwise other marks of reasoning than <think> ([THINK], Gemma 4's channel) are shown as <think>.
 *
 * All other answers are shown as by ntx_detokenize_one, after "<think>\n" if the template opened a reasoning block.
 * Begin an answer with {.chat = its template, or NULL, .thinks = as ntx_chat_more has it}. */
struct ntx_chat_view {
    const struct ntx_chat_template *chat;
    enum { NTX_VIEW_TEXT, NTX_VIEW_ROLE, NTX_VIEW_CHANNEL } at;
    bool aside;  /* inside the reasoning marks */
    bool marks;  /* own template with channels: nothing is hidden */
    bool thinks; /* the template opened a reasoning block: its mark is shown first */
    uint8_t n;
    char channel[15]; /* [n] the beginning of the channel's name */
    bool opening;     /* a mark of several tokens has begun */
    uint8_t opened;   /* bytes of it that came after its control token */
};

/* ntx_detokenize_one without `special`, for the next token of the answer. room: NTX_VIEW_MORE beyond what the token
 * takes. */
#define NTX_VIEW_MORE 32
int ntx_chat_view_token(struct ntx_chat_view *v, const struct ntx_tokenizer *tok, int32_t id, bool first, char *buf,
                        size_t room);
/* The token ends an answer: ntx_chat_tokens with from > 0 begins with it, so it is not fed back. t may be NULL. */
bool ntx_chat_closes(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, int32_t id);

#endif
