/* SPDX-License-Identifier: Apache-2.0 */
#include "client/out.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/printable.h"

static void put_stdout(void *arg, const char *text, size_t n)
{
    (void)arg;
    fwrite(text, 1, n, stdout);
}

void ntx_out_clean(const char *p, size_t n, void (*put)(void *arg, const char *text, size_t n), void *arg)
{
    size_t clean = 0; /* bytes before p that can be shown and wait */
    while (n) {
        size_t k = *p == '\n' || *p == '\t' ? 1 : ntx_printable_at(p, n);
        if (!k && clean)
            put(arg, p - clean, clean);
        clean = k ? clean + k : 0;
        if (!k && (*p != '\r' || n == 1 || p[1] != '\n')) {
            char shown[8];
            put(arg, shown, (size_t)snprintf(shown, sizeof shown, "\\x%02x", (unsigned)(unsigned char)*p));
        }
        k = k ? k : 1;
        p += k;
        n -= k;
    }
    if (clean)
        put(arg, p - clean, clean);
}

void ntx_out_text(const char *p, size_t n)
{
    if (isatty(STDOUT_FILENO))
        ntx_out_clean(p, n, put_stdout, NULL);
    else
        fwrite(p, 1, n, stdout);
}

/* JSON's own escapes for characters that control a terminal; they occur only within strings. */
static void put_json(const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t k = ntx_printable_at(p + i, n - i), bytes = 1;
        const unsigned char *u = (const unsigned char *)p + i;
        unsigned c = u[0] == 0x7f ? 0x7f : 0;
        if (!k && n - i > 1 && (u[0] & 0xe0) == 0xc0) {
            c = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
            bytes = 2;
        } else if (!k && n - i > 2 && u[0] == 0xe2) {
            c = (u[0] & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
            bytes = 3;
        }
        if (!k && c && ntx_printable_steers(c))
            printf("\\u%04x", c);
        else
            fwrite(p + i, 1, bytes = k ? k : 1, stdout);
        i += bytes;
    }
}

void ntx_out_json(const json_t *j, size_t flags)
{
    char *text = json_dumps(j, flags);
    if (text)
        ntx_out_json_text(text);
    free(text);
}

void ntx_out_json_text(const char *json)
{
    put_json(json, strlen(json));
    putchar('\n');
}

const char *ntx_out_line(const char *s, char *buf, size_t room)
{
    s = s ? s : "?";
    ntx_printable(buf, room, s, strlen(s));
    return buf;
}

static void put_line(const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t k = p[i] == '\n' || p[i] == '\t' ? 1 : ntx_printable_at(p + i, n - i);
        if (k)
            fwrite(p + i, 1, k, stdout);
        else
            printf("\\x%02x", (unsigned)(unsigned char)p[i]);
        i += k ? k : 1;
    }
}

void ntx_out_format(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n >= 0)
        put_line(text, (size_t)n);
    free(text);
}
