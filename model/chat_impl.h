/* SPDX-License-Identifier: Apache-2.0 */
/* chat_impl.h: what chat.c (the table of shapes) and chat_own.c (a model's own template, executed) share. */
#ifndef NTX_MODEL_CHAT_IMPL_H
#define NTX_MODEL_CHAT_IMPL_H

#include "model/chat.h"
#include "model/tokenizer_impl.h"

struct ntx_template;
struct ntx_reply_format;

struct ntx_chat_template {
    const char *name;
    /* Shape: the file's template holds all of these and none of those. The first entry that fits is taken. */
    const char *all[3], *none[4];
    const char *preface; /* stands before everything; NULL: nothing does */
    const char *system_open, *system_close;
    const char *user_open, *user_close;
    const char *answer_open; /* opens the assistant's turn: the last thing before the model writes */
    const char *answer_lead; /* what the model itself writes before its text */
    const char *answer_close;
    bool system_in_user; /* the system's text stands at the beginning of the user's next turn */
    bool eos, bos;       /* EOS after an answer; BOS before a user's turn that follows one */
    bool trim;           /* blanks around texts are dropped */
    const char *channel; /* an answer is messages on channels: the one that is meant for the user; NULL: it is a text */
    struct ntx_template *program;         /* the model's own template; NULL: an entry of the table */
    const struct ntx_reply_format *reply; /* with a program: how its model writes thoughts and calls */
    int32_t closer;                       /* with a program: the control token that ends an answer, or -1 */
};

/* The answer without what a view has put between marks before it. */
struct ntx_chat_msg ntx__chat_without_asides(struct ntx_chat_msg m);

/* As ntx_chat_tokens_with, where t has a program. */
int ntx__chat_own_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok,
                         const struct ntx_chat_msg *msgs, unsigned from, unsigned n, struct ntx_chat_more *more,
                         const struct ntx_tok_limits *limits, int32_t **ids, struct ntx_err *err);

/* Whether the token is a control token that stands for a mark of the model's replies, which is shown. */
bool ntx__chat_own_mark(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, int32_t id);

#endif
