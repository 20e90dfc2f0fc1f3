/* SPDX-License-Identifier: Apache-2.0 */
#include "common/printable.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define C1_END  0xa0u
#define ESCAPED 4 /* bytes of \xNN */

bool ntx_printable_steers(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < C1_END) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x206f);
}

unsigned ntx_utf8_bytes(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return 2 + (first >= 0xe0) + (first >= 0xf0);
}

size_t ntx_printable_at(const char *text, size_t n)
{
    static const uint32_t least[] = {0, 0, C1_END, 0x800, 0x10000}; /* least value of a character of that many bytes */
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80)
        return !ntx_printable_steers(p[0]);
    size_t k = ntx_utf8_bytes(p[0]);
    uint32_t v = p[0] & (0x7fu >> k);
    if (!k || k > n)
        return 0;
    for (size_t i = 1; i < k; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3fu);
    }
    return v >= least[k] && v <= 0x10ffff && (v < 0xd800 || v > 0xdfff) && !ntx_printable_steers(v) ? k : 0;
}

size_t ntx_printable(char *out, size_t room, const char *p, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        size_t k = ntx_printable_at(p + i, n - i), need = k ? k : ESCAPED;
        if (at + need >= room)
            break;
        if (k)
            memcpy(out + at, p + i, k);
        else
            snprintf(out + at, ESCAPED + 1, "\\x%02x", (unsigned)(unsigned char)p[i]);
        at += need;
        i += k ? k : 1;
    }
    out[at] = 0;
    return at;
}

char *ntx_printable_lines(const char *text)
{
    size_t room = ESCAPED * strlen(text) + 2, n = 0;
    char *out = malloc(room);
    for (size_t k; out && *text; text += k + (text[k] == '\n')) {
        k = strcspn(text, "\n");
        n += ntx_printable(out + n, room - n - 1, text, k);
        out[n++] = '\n';
    }
    if (out)
        out[n] = 0;
    return out;
}
