/* SPDX-License-Identifier: Apache-2.0 */
/* out.h: writes foreign text to standard output. Files and other users' daemons decide its content, and a terminal
 * obeys control characters (common/printable.h). */
#ifndef NTX_CLIENT_OUT_H
#define NTX_CLIENT_OUT_H

#include <jansson.h>
#include <stddef.h>

/* Text that a model wrote, in whole characters. A pipe or a file gets it unchanged; on a terminal, control
 * characters (common/printable.h) except newline and tab are shown as \xNN, so that a model cannot rearrange the
 * screen (a carriage return before a newline is dropped). */
void ntx_out_text(const char *p, size_t n);
/* The same for a terminal, in pieces that `put` gets. */
void ntx_out_clean(const char *p, size_t n, void (*put)(void *arg, const char *text, size_t n), void *arg);

/* JSON and a newline. Terminal controls that JSON allows (DEL, C1, direction marks) become \uNNNN: the same JSON,
 * and safe to look at. */
void ntx_out_json(const json_t *j, size_t flags);
void ntx_out_json_text(const char *json); /* already dumped JSON */

/* Like printf, for lines with foreign text: terminal controls except newline and tab are shown as \xNN. */
void ntx_out_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* s as a printable line of a table: returns buf [room]. NULL: "?". */
const char *ntx_out_line(const char *s, char *buf, size_t room);

#endif
