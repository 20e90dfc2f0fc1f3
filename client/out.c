#include "client/out.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/printable.h"

void ntx_out_text(const char *p, size_t n)
{
    if (!isatty(STDOUT_FILENO)) {
        fwrite(p, 1, n, stdout);
        return;
    }
    for (size_t i = 0; i < n;) {
        size_t k = p[i] == '\n' || p[i] == '\t' ? 1 : ntx_printable_at(p + i, n - i);
        if (k)
            fwrite(p + i, 1, k, stdout);
        else if (p[i] != '\r' || i + 1 == n || p[i + 1] != '\n')
            printf("\\x%02x", (unsigned)(unsigned char)p[i]);
        i += k ? k : 1;
    }
}

/* Neither occurs outside of strings. */
static void put_json(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool c1 = (unsigned char)p[i] == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] < 0xa0;
        if (c1 || p[i] == 0x7f)
            printf("\\u00%02x", (unsigned)(unsigned char)p[i + c1]);
        else
            putchar(p[i]);
        i += c1;
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
