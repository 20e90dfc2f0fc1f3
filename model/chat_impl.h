/* SPDX-License-Identifier: Apache-2.0 */
/* chat_impl.h: shared by chat.c (the built-in table) and chat_own.c (a model's own template). */
#ifndef NTX_MODEL_CHAT_IMPL_H
#define NTX_MODEL_CHAT_IMPL_H

#include "model/chat.h"
#include "model/tokenizer_impl.h"

struct ntx_template;
struct ntx_reply_format;

struct ntx_chat_template {
    const char *name;
    /* An entry fits a template that contains all of `all` and none of `none`. The first one that fits is used. */
    const char *all[3], *none[4];
    const char *turns[3]; /* texts that begin another turn, in a form without control tokens; NULL ends them */
    const char *preface;  /* written before everything; NULL: nothing */
    const char *system_open, *system_close;
    const char *user_open, *user_close;
    const char *answer_open; /* begins the assistant's turn, the last text before the model writes */
    const char *answer_lead; /* the model itself writes this before its text */
    const char *answer_close;
    bool system_in_user;                  /* the system text is put at the beginning of the next user turn */
    bool eos, bos;                        /* EOS after an answer; BOS before a user turn that follows one */
    bool trim;                            /* white space around texts is dropped */
    const char *channel;                  /* the channel for the user, if answers have channels; NULL: they have none */
    struct ntx_template *program;         /* the model's own template; NULL: an entry of the table */
    const struct ntx_reply_format *reply; /* with a program: how its model writes reasoning and tool calls */
    struct ntx_think_facts think;         /* what it can do about thoughts */
    int32_t closer;                       /* with a program: the control token that ends an answer, or -1 */
};

/* The answer without its reasoning block (<think>). */
struct ntx_chat_msg ntx__chat_without_asides(struct ntx_chat_msg m);
/* Sets more->text, if it is wanted: the text of n segments. 0 or -ENOMEM. */
int ntx__chat_text(const struct ntx_tokenizer *tok, const struct ntx__seg *segs, size_t n, struct ntx_chat_more *more);

/* ntx_chat_tokens_with for a template with a program. */
int ntx__chat_own_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok,
                         const struct ntx_chat_msg *msgs, unsigned from, unsigned n, struct ntx_chat_more *more,
                         const struct ntx_tok_limits *limits, int32_t **ids, struct ntx_err *err);

/* Other orders of a conversation, for a template that refuses it, or drops a system text, as it came. Each has the
 * changes of those before it. */
enum ntx__chat_order {
    NTX__ORDER_ASKED,  /* as it came */
    NTX__ORDER_JOINED, /* messages of one role in a row are one, with empty lines between their texts */
    NTX__ORDER_USERS,  /* system messages behind the first message are the user's; users' texts behind a tool's result
                        * are part of it */
    NTX__ORDER_ALL,    /* a system message at the beginning is the user's, too */
    NTX__N_ORDERS
};
struct ntx__chat_talk {
    struct ntx_chat_msg *msgs; /* [n] */
    unsigned n;
    char *texts;
};
/* msgs[from..n) in this order; those before stay. 0 or -ENOMEM; free it. */
int ntx__chat_reorder(const struct ntx_chat_msg *msgs, unsigned from, unsigned n, enum ntx__chat_order order,
                      struct ntx__chat_talk *out);
void ntx__chat_talk_free(struct ntx__chat_talk *t);
/* Whether the rendered text has the texts of all system messages. */
bool ntx__chat_says_systems(const struct ntx_chat_msg *msgs, unsigned from, unsigned n, const char *text, size_t len);

/* The token is a control token that marks a part of replies, and is shown. */
bool ntx__chat_own_mark(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, int32_t id);

#endif
