/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h: shared by the files of the chat. This process keeps the whole conversation; the daemon keeps the KV cache of
 * a part of it.
 *
 *      turn 1 | turn 2 | turn 3 | turn 4 | turn 5
 *               ^first                     ^under way
 *      \_____/  \_______________________/
 *      only here       also in `session`
 *
 * The turns before `first` were dropped because the context was full. A new turn is sent alone; without a session, or
 * after a change of the system message, all turns from `first` on are sent again.
 *
 *  chat.c          the loop: reads and handles a message or a command
 *  chat_input.c    the input: chat_editor.c on a terminal, else plain lines; """ for several lines
 *  chat_talk.c     the turns, and their file
 *  chat_pictures.c pictures of the next message
 *  chat_send.c     sends a turn and gets its answer; handles a full context
 *  chat_names.c    named conversations
 *  chat_show.c     shows the end of a conversation that goes on; its model
 *  chat_command.c  /help and the other commands
 *  chat_save.c     /save, /load and /list
 *  chat_set.c      /set and /stats
 *
 * Notes go to standard error, answers to standard output. */
#ifndef NTX_CLIENT_COMMANDS_CHAT_H
#define NTX_CLIENT_COMMANDS_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "client/commands/commands.h"

/* ---- chat_talk.c */
struct ntx_turn {
    char *asked, *answer; /* malloc'd; answer NULL: not yet answered */
    size_t n_asked, n_answer;
    char **images; /* [n_images] files of pictures before the question, whole paths */
    unsigned n_images;
};
struct ntx_talk {
    char *system; /* NULL: no system message */
    char *model;  /* the model's file or name, as it was held; NULL: unknown */
    struct ntx_turn *turns;
    unsigned n, room;
};
int ntx_talk_add_user(struct ntx_talk *t, const char *text, size_t len); /* adds a turn */
void ntx_talk_answer(struct ntx_talk *t, char *text, size_t len);        /* of the last turn; takes text over */
void ntx_talk_drop(struct ntx_talk *t);                                  /* removes the last turn */
int ntx_talk_add_image(struct ntx_talk *t, const char *path);            /* to the last turn */
void ntx_talk_clear(struct ntx_talk *t);                       /* removes all turns, the system message and the model */
int ntx_talk_set_model(struct ntx_talk *t, const char *model); /* NULL: unknown */
/* Writes {"ntx": "conversation", "model": ..., "messages": [{"role": ..., "content": ...}, ...]}, a form that other
 * programs read, too. Replaces an existing file only if that is a conversation, and atomically. */
int ntx_talk_save(const struct ntx_talk *t, const char *path, struct ntx_err *err);
int ntx_talk_may_replace(const char *path, struct ntx_err *err); /* 0: path is free, or such a file */
/* Also reads a bare list of messages. On failure t is unchanged. */
int ntx_talk_load(struct ntx_talk *t, const char *path, struct ntx_err *err);

/* ---- chat_names.c: named conversations: files of ntx_talk_save in $XDG_STATE_HOME/ntx/chats (else
 * ~/.local/state/ntx/chats). Any other text is the path of a file. */
#define NTX_TALK_NAME 64
#define NTX_TALK_PATH 4096
bool ntx_talk_is_name(const char *text);
int ntx_talk_path(const char *name, char path[NTX_TALK_PATH], struct ntx_err *err);
unsigned ntx_talk_list(void); /* prints them; returns their number */
/* The model's file that the conversation of this name (NULL: the last one) was held with. -ENOENT: it is unknown, or
 * gone; err says how to go on. */
int ntx_talk_model(const char *name, char model[NTX_TALK_PATH], struct ntx_err *err);

/* ---- chat_input.c */
struct ntx_chat_input;
int ntx_chat_input_open(struct ntx_chat_input **out, struct ntx_err *err);
void ntx_chat_input_close(struct ntx_chat_input *in);
bool ntx_chat_input_shown(const struct ntx_chat_input *in); /* input is a terminal */
/* Reads the next message, malloc'd: a line, or the text between """ and """. Returns 1, or 0 at the end; -ECANCELED:
 * Ctrl-C, *n bytes were dropped; -EINTR: another signal. */
int ntx_chat_input_next(struct ntx_chat_input *in, char **text, size_t *n, struct ntx_err *err);
/* Prints the question and reads an answer; true: yes. Where input is no terminal, it is no. */
bool ntx_chat_input_confirm(struct ntx_chat_input *in, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- chat.c */
struct ntx_chat {
    struct ntx_client *c;
    struct ntx_chat_input *in;
    struct ntx_options o; /* as changed by /set */
    bool tty;
    char *model; /* whole path of a private run's model; NULL: the daemons have their own */
    struct ntx_talk talk;
    unsigned first;           /* first turn that is in the context */
    uint64_t session;         /* 0: no session */
    unsigned held;            /* messages in the session, including answers */
    unsigned before;          /* of them, before the last turn */
    uint32_t used, ctx;       /* tokens of the context, from the last reply */
    json_t *stats;            /* of the last answer, or NULL */
    char *file;               /* last one saved or loaded */
    char name[NTX_TALK_NAME]; /* saved under this name after each answer; "": not saved */
    bool unsaved;             /* saving failed, and the user knows */
    char **texts;             /* texts that options point to */
    unsigned n_texts;
    const char *told; /* the setting of `think` of which a note was given, or NULL */
    bool noted;       /* a note on the conversation's form was given */
    char **images;    /* [n_images] files that go with the next message */
    unsigned n_images;
    bool lost; /* the service's connection was lost */
    bool done; /* /bye was typed */
};
/* Prints a line to the user, unless --quiet. */
void ntx_chat_tell(const struct ntx_chat *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- chat_send.c */
/* Answers the last turn. Returns 0 also when interrupted: the beginning then counts as the answer. On failure the
 * turn stays, unanswered, and everything else is unchanged. */
int ntx_chat_send(struct ntx_chat *k, struct ntx_err *err);
/* Generates the last answer again, with another seed. */
int ntx_chat_again(struct ntx_chat *k, struct ntx_err *err);
/* Drops the daemon's session; the next request sends the conversation again. */
void ntx_chat_forget(struct ntx_chat *k);

/* ---- chat_names.c */
/* Saves the conversation under this name, now and after each answer. */
int ntx_chat_keep(struct ntx_chat *k, const char *name, struct ntx_err *err);
/* Whether another conversation has the name. */
bool ntx_chat_taken(const struct ntx_chat *k, const char *name);
/* Continues the conversation of this name; NULL: the one that was saved last. */
int ntx_chat_resume(struct ntx_chat *k, const char *name, struct ntx_err *err);

/* ---- chat_show.c */
/* Prints the last turns, shortened, of a conversation that was loaded, and what became of its model. */
void ntx_chat_show(struct ntx_chat *k);
/* Notes which model holds the conversation; a note tells of a change. */
void ntx_chat_model(struct ntx_chat *k, const char *model);

/* ---- chat_save.c; chat_set.c; arguments without blanks around them */
int ntx_chat_save(struct ntx_chat *k, char *rest, struct ntx_err *err);
int ntx_chat_load(struct ntx_chat *k, char *rest, struct ntx_err *err);
int ntx_chat_set(struct ntx_chat *k, char *rest, struct ntx_err *err);
int ntx_chat_stats(struct ntx_chat *k, char *rest, struct ntx_err *err);

/* ---- chat_pictures.c */
int ntx_chat_image(struct ntx_chat *k, char *rest, struct ntx_err *err); /* for the next message */
/* Takes paths of pictures, as terminals paste files that are dropped, out of the text. */
int ntx_chat_take_paths(struct ntx_chat *k, char *text, size_t *n, struct ntx_err *err);
/* The files go with the last turn. */
int ntx_chat_attach(struct ntx_chat *k);
void ntx_chat_drop_images(struct ntx_chat *k);

/* ---- chat_command.c */
/* Whether the message is a command: "/" and a word. */
bool ntx_chat_is_command(const char *text);
/* Runs the command. Failures are printed, and only those that end the chat are returned. */
int ntx_chat_command(struct ntx_chat *k, const char *text, struct ntx_err *err);

#endif
