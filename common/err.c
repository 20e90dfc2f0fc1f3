#include "common/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ntx_err_set(struct ntx_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return code;
}

int ntx_err_prefix(struct ntx_err *err, const char *fmt, ...)
{
    if (!err)
        return -1;
    char head[sizeof err->text], old[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    memcpy(old, err->text, sizeof old);
    size_t n = strnlen(head, sizeof head - 3);
    memcpy(err->text, head, n);
    memcpy(err->text + n, ": ", 2);
    size_t room = sizeof err->text - n - 3, m = strnlen(old, sizeof old);
    m = m < room ? m : room;
    memcpy(err->text + n + 2, old, m);
    err->text[n + 2 + m] = 0;
    return err->code;
}
