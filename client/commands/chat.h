/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h: what the files of the chat share. The conversation is kept here, all of it; the daemon keeps KV of a part of
 * it.
 *
 *      turn 1 | turn 2 | turn 3 | turn 4 | turn 5 `first`: what lies before it has been left out, the context was full
 *               ^first                     ^under way
 *      \_____/  \_______________________/
 *      only here       in `session`, too: a new turn is sent alone, and where it cannot (there is no session any more,
 *                      or the
 *                      system's text is another), all from `first` on is sent again
 *
 *  chat.c          the loop: a message or a command, again
 *  chat_input.c    where the lines come from: chat_editor.c on a terminal, else as they are; """ for several
 *  chat_talk.c     the turns; their file
 *  chat_send.c     a turn and its answer; what is done when the context is full
 *  chat_names.c    conversations by name
 *  chat_command.c  /help and the others
 *
 * What is told goes to standard error, answers go to standard output. */
#ifndef NTX_CLIENT_COMMANDS_CHAT_H
#define NTX_CLIENT_COMMANDS_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "client/commands/commands.h"

/* ---- chat_talk.c */
struct ntx_turn {
    char *asked, *answer; /* malloc'd; answer NULL: none yet */
    size_t n_asked, n_answer;
};
struct ntx_talk {
    char *system; /* NULL: none */
    struct ntx_turn *turns;
    unsigned n, room;
};
int ntx_talk_ask(struct ntx_talk *t, const char *text, size_t len); /* a new turn */
void ntx_talk_answer(struct ntx_talk *t, char *text, size_t len);   /* the last turn's, which takes it over */
void ntx_talk_drop(struct ntx_talk *t);                             /* the last turn */
void ntx_talk_clear(struct ntx_talk *t);                            /* all turns, and the system's text */
/* {"ntx": "conversation", "messages": [{"role": ..., "content": ...}, ...]}, the form that other programs read, too. A
 * file that is there is replaced only if it is a conversation; it is the old or the new one at every instant. */
int ntx_talk_save(const struct ntx_talk *t, const char *path, struct ntx_err *err);
/* Also a bare list of messages. On failure t is as it was. */
int ntx_talk_load(struct ntx_talk *t, const char *path, struct ntx_err *err);

/* ---- chat_names.c: conversations by name, files of ntx_talk_save in $XDG_STATE_HOME/ntx/chats (else
 * ~/.local/state/ntx/chats). Anything else is a file's path. */
#define NTX_TALK_NAME 64
#define NTX_TALK_PATH 4096
bool ntx_talk_is_name(const char *text);
int ntx_talk_path(const char *name, char path[NTX_TALK_PATH], struct ntx_err *err);
unsigned ntx_talk_list(void); /* to the user; how many */

/* ---- chat_input.c */
struct ntx_chat_input;
int ntx_chat_input_open(struct ntx_chat_input **out, struct ntx_err *err);
void ntx_chat_input_close(struct ntx_chat_input *in);
bool ntx_chat_input_shown(const struct ntx_chat_input *in); /* somebody sits at a terminal */
/* The next message, malloc'd: a line, or what stands between """ and """. 1, or 0 at the end; -ECANCELED: Ctrl-C, *n:
 * how much was given up; -EINTR: another signal. */
int ntx_chat_input_next(struct ntx_chat_input *in, char **text, size_t *n, struct ntx_err *err);

/* ---- chat.c */
struct ntx_chat {
    struct ntx_client *c;
    struct ntx_options o; /* as /set left them */
    bool tty;
    struct ntx_talk talk;
    unsigned first;           /* turn */
    uint64_t session;         /* 0: none */
    unsigned held;            /* messages in it, answers too */
    unsigned before;          /* of them before its last turn */
    uint32_t used, ctx;       /* tokens of the context, as last heard */
    json_t *stats;            /* of the last answer, or NULL */
    char *file;               /* last saved or loaded */
    char name[NTX_TALK_NAME]; /* by which it is saved after each answer; "": none */
    bool unsaved;             /* which went wrong, and was told */
    char **texts;             /* that options point to */
    unsigned n_texts;
    bool lost; /* the connection to the service */
    bool done; /* /bye */
};
/* A line to the user, unless --quiet. */
void ntx_chat_tell(const struct ntx_chat *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- chat_send.c */
/* The answer to the last turn, which has none. 0 also when it was interrupted: the beginning counts as the answer. On
 * failure the turn is still there, unanswered, and everything is as it was before. */
int ntx_chat_send(struct ntx_chat *k, struct ntx_err *err);
/* The last answer once more, drawn otherwise. */
int ntx_chat_again(struct ntx_chat *k, struct ntx_err *err);
/* The daemon's part of the conversation is forgotten: what comes next begins anew. */
void ntx_chat_forget(struct ntx_chat *k);

/* ---- chat_names.c */
/* Saves it by this name, from now on after each answer, too. -EEXIST: another conversation has it. */
int ntx_chat_keep(struct ntx_chat *k, const char *name, struct ntx_err *err);
/* Goes on with the one of this name; NULL: with the one that was saved last. */
int ntx_chat_resume(struct ntx_chat *k, const char *name, struct ntx_err *err);

/* ---- chat_command.c */
/* Whether the message is a command: "/" and a word. */
bool ntx_chat_is_command(const char *text);
/* Does it. Failures are told, not returned, but those that end the chat. */
int ntx_chat_command(struct ntx_chat *k, const char *text, struct ntx_err *err);

#endif
