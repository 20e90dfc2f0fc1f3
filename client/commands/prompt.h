/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.h: what is asked: the prompt's parts, and what of an order can be known to be wrong before a model is loaded.
 *
 * A prompt is made, in this order, of PROMPT, the text of -f, and standard input: the latter with '-', or when neither
 * of the others is given and it is not a terminal. Parts are joined by a newline; the newline that ends a file's or a
 * pipe's text is dropped, one of them. */
#ifndef NTX_CLIENT_COMMANDS_PROMPT_H
#define NTX_CLIENT_COMMANDS_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/commands/commands.h"

struct ntx_prompt {
    char *text; /* malloc'd and terminated; NULL: it is to be a chat */
    size_t len;
    bool took_input; /* standard input has been read */
    bool told;       /* that it was left */
};

/* words[0..n): PROMPT and '-', as far as given. */
int ntx_prompt_read(const struct ntx_options *o, const char *const *words, unsigned n, struct ntx_prompt *p,
                    struct ntx_err *err);
/* A note, once, where the prompt is continued as it is because the model has no chat template. */
void ntx_prompt_tell_form(const struct ntx_options *o, const struct ntx_model_files *f, const struct ntx_prompt *p);
void ntx_prompt_tell_note(const char *note); /* the daemon's, on the form of a prompt */
void ntx_prompt_free(struct ntx_prompt *p);
/* A note, once, when standard input is a pipe in which something waits that nobody asked for. It is not read. */
void ntx_prompt_tell_left(const struct ntx_options *o, struct ntx_prompt *p);

/* Whether there is a form for this model's conversations, or one is named. chat: a conversation, which needs one; else
 * only messages of a model that has a template do. f NULL: the model is somebody else's, only the options are looked
 * at. */
int ntx_prompt_check_form(const struct ntx_options *o, const struct ntx_model_files *f, bool chat, struct ntx_err *err);

#endif
