/* SPDX-License-Identifier: Apache-2.0 */
/* printable.h: foreign bytes in texts for people.
 *
 * Names in files, paths, and what clients and daemons send may hold anything. On a terminal ESC and the C1 controls
 * steer it; a newline in a log begins a line that nobody wrote, and marks of direction show a text in another order
 * than it has. So every text that leaves for a terminal, a journal or an error reply passes through here, once, where
 * it is put together: ntx_err_set, ntx_log, ntx_say and ntx_usage_error (util.h) do it with all that they format. */
#ifndef NTX_COMMON_PRINTABLE_H
#define NTX_COMMON_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether a character steers what shows it: C0, DEL, C1, the ends of lines and paragraphs (U+2028, U+2029), and what
 * changes the direction of text (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+206F): "gpj.exe" and "exe.jpg"
 * look alike with them. */
bool ntx_printable_steers(uint32_t c);

/* The bytes of the character at p[0..n), n >= 1; 0 where there is one that steers, or none that is UTF-8. */
size_t ntx_printable_at(const char *p, size_t n);

/* p[0..n) as one line of UTF-8, terminated, in out[0..room), room >= 1: each byte of a character that steers and each
 * that is no UTF-8 as \xNN, all else as it is (so that doing it again changes nothing). What does not fit is left out,
 * by whole characters. Returns the length. */
size_t ntx_printable(char *out, size_t room, const char *p, size_t n);

#endif
