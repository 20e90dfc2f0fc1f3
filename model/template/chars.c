/* SPDX-License-Identifier: Apache-2.0 */
/* chars.c: characters of UTF-8 in arbitrary bytes. */
#include "common/printable.h"
#include "model/template/tpl.h"

size_t ntx__tpl_char(const char *p, size_t n, uint32_t *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char b = (unsigned char)p[0];
    unsigned k = ntx_utf8_bytes(b);
    uint32_t v = k < 2 ? b : b & (0x7fu >> k);
    bool whole = k && k <= n;
    for (unsigned i = 1; whole && i < k; i++) {
        whole = ((unsigned char)p[i] & 0xc0) == 0x80;
        v = v << 6 | ((unsigned char)p[i] & 0x3f);
    }
    if (!whole || v < least[k] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) {
        *c = 0xfffd;
        return 1;
    }
    *c = v;
    return k;
}

size_t ntx__tpl_put_char(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = 2 + (c >= 0x800) + (c >= 0x10000);
    for (size_t i = n - 1; i; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> n & 0xf0) | c);
    return n;
}

size_t ntx__tpl_count(const char *p, size_t n)
{
    size_t count = 0;
    uint32_t c;
    for (size_t i = 0; i < n; count++)
        i += ntx__tpl_char(p + i, n - i, &c);
    return count;
}

size_t ntx__tpl_offset(const char *p, size_t n, size_t chars)
{
    size_t i = 0;
    uint32_t c;
    for (; chars && i < n; chars--)
        i += ntx__tpl_char(p + i, n - i, &c);
    return i;
}

bool ntx__tpl_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool ntx__tpl_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}
