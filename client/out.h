/* SPDX-License-Identifier: Apache-2.0 */
/* out.h: foreign text on standard output. Files and other people's daemons decide what is in it, and a terminal obeys
 * some of it (common/printable.h). */
#ifndef NTX_CLIENT_OUT_H
#define NTX_CLIENT_OUT_H

#include <jansson.h>
#include <stddef.h>

/* Text that a model wrote, in whole characters. Into a pipe or a file it goes byte by byte; on a terminal characters
 * that steer it (common/printable.h) but newline and tab are shown as \xNN: what a model writes cannot reorder the
 * screen (a carriage return before a newline is left out). */
void ntx_out_text(const char *p, size_t n);

/* JSON and a newline. What steers a terminal and JSON allows (DEL, C1, marks of direction) comes as \uNNNN: it is the
 * same JSON, and harmless to look at. */
void ntx_out_json(const json_t *j, size_t flags);
void ntx_out_json_text(const char *json); /* as it was dumped already */

/* As printf, for lines with foreign text in them: all but newline and tab that steers a terminal is shown as \xNN. */
void ntx_out_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* s as a printable line in a table: buf [room], returned. NULL: "?". */
const char *ntx_out_line(const char *s, char *buf, size_t room);

#endif
