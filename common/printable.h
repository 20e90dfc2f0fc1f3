/* printable.h: foreign bytes in texts for people.
 *
 * Names in files, paths, and what clients and daemons send may hold anything. On a terminal ESC and the C1 controls steer it; a newline in a log
 * begins a line that nobody wrote. So every text that leaves for a terminal, a journal or an error reply passes through here, once, where it is
 * put together: ntx_err_set, ntx_log, ntx_say and ntx_usage_error (util.h) do it with all that they format. */
#ifndef NTX_COMMON_PRINTABLE_H
#define NTX_COMMON_PRINTABLE_H

#include <stddef.h>

/* The bytes of the character at p[0..n), n >= 1; 0 where there is a control character (C0, DEL, C1), or none that is UTF-8. */
size_t ntx_printable_at(const char *p, size_t n);

/* p[0..n) as one line of UTF-8, terminated, in out[0..room), room >= 1: each byte of a control character and each that is no UTF-8 as \xNN, all
 * else as it is (so that doing it again changes nothing). What does not fit is left out, by whole characters. Returns the length. */
size_t ntx_printable(char *out, size_t room, const char *p, size_t n);

#endif
