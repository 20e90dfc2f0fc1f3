/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h: chat templates: how a conversation becomes tokens, and how an answer is shown.
 *
 * A model's own template is executed (ntx_chat_open; model/template). Where it has none, or another is asked for, there
 * is one table (chat.c): llama-2, llama-3, chatml, mistral (also mistral-v1 and mistral-v7, which space it otherwise),
 * harmony (gpt-oss; also harmony-low and harmony-high, which ask for less and more thinking), and plain ("User: ...",
 * "Assistant: ..." in lines of their own, for models without a template). What templates of the table's kinds compute
 * (dates, default system texts, tools) is not imitated there, but for harmony's system message, without which that
 * model does not know its channels. A conversation is rendered as pieces, so that text from people never parses as
 * special tokens: template pieces are tokenized with NTX_TOK_SPECIAL, people's text without. */
#ifndef NTX_MODEL_CHAT_H
#define NTX_MODEL_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "model/tokenizer.h"

struct ntx_chat_template; /* static, one per entry of the table, or a model's own */

struct ntx_chat_msg {
    const char
        *role; /* "system", "user" or "assistant"; a model's own template may know others ("tool", "developer") */
    const char *text;
    size_t len;
    const char *fields; /* [n_fields] a JSON object: what else the message has (tool_calls, tool_call_id,
                           reasoning_content; content in place of the text) */
    size_t n_fields;
};

/* What a model's own template gets besides the messages, and what it tells. */
struct ntx_chat_more {
    const char *variables; /* [n_variables] a JSON object: tools, documents, enable_thinking, reasoning_effort, ... */
    size_t n_variables;
    bool thinks; /* out: the template has opened a thought ("<think>"), which the answer goes on with */
};

/* A model's own template, which keeps nothing of the arguments; the tokenizer is the model's. The caller frees it. It
 * fails with one line. */
int ntx_chat_open(const char *jinja, size_t len, const struct ntx_tokenizer *tok, struct ntx_chat_template **out,
                  struct ntx_err *err);
void ntx_chat_free(struct ntx_chat_template *t);
/* Whether it would open. */
int ntx_chat_check(const char *jinja, size_t len, struct ntx_err *err);

/* By name ("llama-3"); NULL when unknown. */
const struct ntx_chat_template *ntx_chat_by_name(const char *name);
/* By the template text of a GGUF; NULL when its shape is unknown. */
const struct ntx_chat_template *ntx_chat_by_shape(const char *jinja, size_t len);
const char *ntx_chat_name(
    const struct ntx_chat_template *t); /* of a model's own: the shape's that it has, else "own" */
/* How what a view shows is taken apart: the name of a format of model/reply/reply.h. t may be NULL. */
const char *ntx_chat_reply(const struct ntx_chat_template *t);
/* Calls each with every name that a model's own template reads: its variables are among them. Of others: with none. t
 * may be NULL. */
void ntx_chat_reads(const struct ntx_chat_template *t, void (*each)(void *arg, const char *p, size_t n), void *arg);
const char *ntx_chat_names(void); /* comma separated, for messages */

/* Token ids of msgs[from..n), rendered as the continuation of a conversation whose first `from` messages have been
 * rendered before (from 0: the beginning, with BOS where the vocabulary asks for it). A conversation ends with the
 * opening of an assistant turn; when the last message is the assistant's, its turn is left open and the model goes on
 * with its text. With from > 0, msgs[from - 1] is an answer of the assistant whose text is in the context already, but
 * not the end of its turn (the token that ended the generation is not fed back): the ids begin with that end. *ids
 * malloc'd; returns the count or a negative errno (-EINVAL: a role that is none of the three, nothing to render, or
 * what a model's own template refuses). */
int ntx_chat_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, const struct ntx_chat_msg *msgs,
                    unsigned from, unsigned n, int32_t **ids, struct ntx_err *err);
/* The same with variables, which only a model's own template takes, and within limits (or NULL); what they forbid is
 * not put into words. */
int ntx_chat_tokens_with(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok,
                         const struct ntx_chat_msg *msgs, unsigned from, unsigned n, struct ntx_chat_more *more,
                         const struct ntx_tok_limits *limits, int32_t **ids, struct ntx_err *err);

/* How an answer by a template is shown. Where the template has channels (harmony), the model writes several messages,
 * each with a head that names its channel. Heads are not shown; what is not on the channel of the answer stands between
 * "<think>\n" and "\n</think>\n\n", as models of other kinds write it themselves. ntx_chat_tokens leaves such a
 * beginning of an answer out again. A model's own template tells the marks by which it writes thoughts and calls of
 * tools; where they are control tokens, they are shown. So are a template's channels where tools were offered (marks):
 * calls are told by their heads, which only model/reply takes apart. Every other template's answers are shown as
 * ntx_detokenize_one gives them, after "<think>\n" where the template itself opened a thought. Begin an answer with
 * {.chat = its template, or NULL, .thinks = as ntx_chat_more has it}. */
struct ntx_chat_view {
    const struct ntx_chat_template *chat;
    enum { NTX_VIEW_TEXT, NTX_VIEW_ROLE, NTX_VIEW_CHANNEL } at;
    bool aside;  /* between the marks */
    bool marks;  /* of a model's own template with channels: nothing is hidden */
    bool thinks; /* the template opened a thought: the mark that opens it is shown first */
    uint8_t n;
    char channel[15]; /* [n] the beginning of what the head names */
};

/* As ntx_detokenize_one without `special`, for the next token of the answer; room is at least 16, and 16 more than the
 * token takes. */
int ntx_chat_view_token(struct ntx_chat_view *v, const struct ntx_tokenizer *tok, int32_t id, bool first, char *buf,
                        size_t room);
/* Whether the token is the one that ntx_chat_tokens with from > 0 begins with: written last, it is not to be fed
 * either. t may be NULL. */
bool ntx_chat_closes(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, int32_t id);

#endif
