/* SPDX-License-Identifier: Apache-2.0 */
/* err.h: errors for people.
 *
 * Functions return 0 or a negative errno. Those near the user (load, configuration, command line) also fill a struct
 * ntx_err with one line that says what is wrong, with which file and number, and what to do. Outputs are written last
 * and stay untouched on failure. A NULL err is allowed everywhere. A text may contain any bytes of others: it becomes
 * one printable line (printable.h). */
#ifndef NTX_COMMON_ERR_H
#define NTX_COMMON_ERR_H

struct ntx_err {
    int code;       /* negative errno; 0: not set */
    char text[512]; /* one line, no newline at its end */
};

/* Fills err (when not NULL) and returns code, so that a caller can write `return ntx_err_set(...)`. */
int ntx_err_set(struct ntx_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "PREFIX: " before the present text. Returns err->code. */
int ntx_err_prefix(struct ntx_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
