/* SPDX-License-Identifier: Apache-2.0 */
/* chat_editor.h: a line of input on a terminal, by libedit: arrows, Emacs or vi keys (~/.editrc), history, several
 * lines at once.
 *
 * Pasted text keeps its newlines and is sent only by Enter (bracketed paste). A paste that would not fit on half of the
 * screen is shown as a mark, [pasted 1: 213 lines], which is replaced by the text when the line is taken. Alt-Enter
 * begins a new line. The history file, $XDG_STATE_HOME/ntx/history (else ~/.local/state/ntx/history), is readable only
 * by its user and keeps the newest NTX_HISTORY_MOST entries.
 *
 * Input typed between two lines is not echoed; it goes into the next line. One editor at a time: signals and the screen
 * belong to the process. It writes to standard error. */
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
