/* SPDX-License-Identifier: Apache-2.0 */
/* printable.h: makes foreign bytes in texts safe to show.
 *
 * Names in files, paths, and data of clients and daemons may hold anything. On a terminal, ESC and the C1 controls have
 * effects; a newline in a log fakes another line; direction marks change the shown order. So each text for a terminal,
 * a journal or an error reply passes through here once, where it is formatted: ntx_err_set, ntx_log, ntx_say and
 * ntx_usage_error (util.h) do it. */
#ifndef NTX_COMMON_PRINTABLE_H
#define NTX_COMMON_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a UTF-8 character that begins with this byte; 0: no character begins with it. */
unsigned ntx_utf8_bytes(unsigned char first);

/* True for a character that controls the display: C0, DEL, C1, the line and paragraph separators (U+2028, U+2029), and
 * direction marks (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+206F), which make "gpj.exe" look like
 * "exe.jpg". */
bool ntx_printable_steers(uint32_t c);

/* Bytes of the character at p[0..n), n >= 1; 0: it controls the display, or is no UTF-8. */
size_t ntx_printable_at(const char *p, size_t n);

/* Copies p[0..n) as one terminated line of UTF-8 to out[0..room), room >= 1. Each byte of a control character or of
 * invalid UTF-8 becomes \xNN; a second call changes nothing. Whole characters that do not fit are left out. Returns the
 * length. */
size_t ntx_printable(char *out, size_t room, const char *p, size_t n);

/* All lines of the text so, each with a newline; malloc'd. NULL: no memory. */
char *ntx_printable_lines(const char *text);

#endif
