/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ntx_buf_add(struct ntx_buf *b, const void *p, size_t n)
{
    if (b->bad || !n)
        return;
    if (b->n + n > b->room) {
        size_t room = (b->n + n) * 2;
        char *q = realloc(b->p, room);
        if (!q) {
            b->bad = true;
            return;
        }
        b->p = q;
        b->room = room;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void ntx_buf_text(struct ntx_buf *b, const char *text) { ntx_buf_add(b, text, strlen(text)); }

void ntx_buf_format(struct ntx_buf *b, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text)
        b->bad = true;
    else
        ntx_buf_add(b, text, (size_t)n);
}

static int dump_json(const char *p, size_t n, void *arg)
{
    struct ntx_buf *b = arg;
    ntx_buf_add(b, p, n);
    return b->bad ? -1 : 0;
}

void ntx_buf_json(struct ntx_buf *b, json_t *j)
{
    if (!j || json_dump_callback(j, dump_json, b, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)))
        b->bad = true;
    json_decref(j);
}

void ntx_buf_free(struct ntx_buf *b)
{
    free(b->p);
    *b = (struct ntx_buf){0};
}

/* Length in bytes of the UTF-8 character at p, 0 if it is none. */
static size_t utf8_length(const unsigned char *p, size_t n)
{
    size_t want = 0; /* for invalid first bytes */
    if (p[0] < 0x80)
        want = 1;
    else if (p[0] >= 0xc2 && p[0] < 0xe0)
        want = 2;
    else if (p[0] >= 0xe0 && p[0] < 0xf0)
        want = 3;
    else if (p[0] >= 0xf0 && p[0] < 0xf5)
        want = 4;
    if (!want || want > n)
        return 0;
    for (size_t i = 1; i < want; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool outside = (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f);
    return overlong || outside ? 0 : want;
}

json_t *ntx_json_text(const char *p, size_t n)
{
    json_t *j = json_stringn(n ? p : "", n);
    struct ntx_buf b = {0};
    if (j)
        return j;
    for (size_t i = 0, k; i < n; i += k ? k : 1) {
        k = utf8_length((const unsigned char *)p + i, n - i);
        ntx_buf_add(&b, k ? p + i : "\xef\xbf\xbd", k ? k : 3);
    }
    j = b.bad ? NULL : json_stringn(b.p, b.n);
    ntx_buf_free(&b);
    return j;
}
