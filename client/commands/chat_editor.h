/* SPDX-License-Identifier: Apache-2.0 */
/* chat_editor.h: a line of input on a terminal, by libedit: arrows, Emacs or vi keys (~/.editrc), history, several
 * lines at once.
 *
 * What is pasted arrives as it is, its newlines included, and is sent by Enter only (bracketed paste). What would not
 * fit on half of the screen stands there as a mark, [pasted 1: 213 lines], for which the text is put in when the line
 * is taken. Alt-Enter begins a new line. History is kept over runs in $XDG_STATE_HOME/ntx/history (else
 * ~/.local/state/ntx/history), for nobody else's eyes: the newest NTX_HISTORY_MOST entries.
 *
 * Between two lines the terminal shows nothing that is typed; it waits for the next line. One editor at a time: signals
 * and the screen are the process's. It writes to standard error. */
#ifndef NTX_CLIENT_COMMANDS_CHAT_EDITOR_H
#define NTX_CLIENT_COMMANDS_CHAT_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

#define NTX_HISTORY_MOST 1000

struct ntx_editor;

/* Whether standard input and error are a terminal with line editing. */
bool ntx_editor_fits(void);
int ntx_editor_open(struct ntx_editor **out, struct ntx_err *err);
void ntx_editor_close(struct ntx_editor *e); /* restores the terminal */

/* Returns 1 and a malloc'd line without its end; 0: the end of input; -ECANCELED: Ctrl-C, the line had *n bytes;
 * -EINTR: another signal, which ends the program. */
int ntx_editor_read(struct ntx_editor *e, const char *prompt, char **text, size_t *n);
/* Adds the text to the history, also for later runs. */
void ntx_editor_remember(struct ntx_editor *e, const char *text);

/* ---- chat_history.c: the file. All functions may fail silently after a first note: history is a convenience. */
struct ntx_history;
int ntx_history_open(struct ntx_history **out);
/* Calls add for each entry, the oldest first. */
void ntx_history_load(struct ntx_history *h, void (*add)(void *ctx, const char *text), void *ctx);
void ntx_history_append(struct ntx_history *h, const char *text);
void ntx_history_close(struct ntx_history *h);

/* ntx_state_path: our file in $XDG_STATE_HOME/ntx, else ~/.local/state/ntx; -ENOENT: neither is set.
 * ntx_state_folders makes the folders on the way to it, mode 0700. */
int ntx_state_path(const char *file, char *path, size_t n);
int ntx_state_folders(char *path);

#endif
