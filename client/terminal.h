/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.h: lines of text for the process's terminal, on standard error: the commands' notes, and text such as the
 * chat's /help. They are broken between words (wrap.h), and never stand behind a progress line or an unfinished line
 * of an answer (progress.h). Where standard error is no terminal, lines stay whole. */
#ifndef NTX_CLIENT_TERMINAL_H
#define NTX_CLIENT_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Columns of the terminal; 0: it is none, its width is unknown, or wrapping is off. */
unsigned ntx_terminal_columns(int fd);
void ntx_terminal_set_wrap(bool on); /* --no-wrap; default: on */
bool ntx_terminal_wraps(void);

/* Writes one or more lines, each with its newline; further lines of a wrapped one are indented. Any thread. */
void ntx_terminal_put(const char *text, size_t n, unsigned indent);
/* From now on ntx_say and ntx_log of this process go through ntx_terminal_put. */
void ntx_terminal_take_notes(void);

#endif
