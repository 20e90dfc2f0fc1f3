/* SPDX-License-Identifier: Apache-2.0 */
/* prompt.h: the prompt and its parts, and checks of the options before a model is loaded. A prompt has these parts,
 * in this order: PROMPT, the text of -f, and standard input. Standard input is read with '-', or when neither of the
 * others is given and it is not a terminal. A newline joins the parts; the final newline of a file or a pipe is
 * dropped. */
#ifndef NTX_CLIENT_COMMANDS_PROMPT_H
#define NTX_CLIENT_COMMANDS_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/commands/commands.h"
#include "client/commands/pictures.h"

struct ntx_prompt {
    char *text; /* malloc'd and terminated; NULL: start a chat */
    size_t len;
    bool took_input;              /* standard input was read */
    bool told;                    /* the user knows of unread input */
    struct ntx_pictures pictures; /* of --image */
};

/* words[0..n): PROMPT and '-', as far as given. Pictures of a chat are only looked at. */
int ntx_prompt_read(const struct ntx_options *o, const char *const *words, unsigned n, struct ntx_prompt *p,
                    struct ntx_err *err);
void ntx_prompt_tell_note(const char *note); /* the daemon's note on the form of a prompt */
void ntx_prompt_tell_think(const struct ntx_options *o, const char *note); /* on --think; "": none */
void ntx_prompt_free(struct ntx_prompt *p);
/* Prints a note, once, if standard input is a pipe with data that the command does not read. */
void ntx_prompt_tell_left(const struct ntx_options *o, struct ntx_prompt *p);

/* Whether this model's conversations have a form, or the options name one. chat: a conversation, which needs one;
 * else only the messages of a model with a template do. f NULL: another process has the model, only the options are
 * checked. */
int ntx_prompt_check_form(const struct ntx_options *o, const struct ntx_model_files *f, bool chat, struct ntx_err *err);

#endif
