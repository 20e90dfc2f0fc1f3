/* SPDX-License-Identifier: Apache-2.0 */
#include "common/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/printable.h"

int ntx_err_set(struct ntx_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        char raw[sizeof err->text]; /* a copy, since err's own text may be among the arguments */
        err->code = code;
        vsnprintf(raw, sizeof raw, fmt, ap);
        ntx_printable(err->text, sizeof err->text, raw, strlen(raw));
        va_end(ap);
    }
    return code;
}

int ntx_err_prefix(struct ntx_err *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    char raw[2 * sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof err->text - 2, fmt, ap);
    va_end(ap);
    size_t n = strlen(raw);
    snprintf(raw + n, sizeof raw - n, ": %s", err->text);
    ntx_printable(err->text, sizeof err->text, raw, strlen(raw));
    return err->code;
}
