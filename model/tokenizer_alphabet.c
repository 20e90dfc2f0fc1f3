/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_alphabet.c: the alphabet of byte-level BPE, which writes each byte as a printable character. 188 bytes
 * are themselves (as Latin-1 code points); the others, in order, are U+0100, U+0101, ... */
#include "model/tokenizer_impl.h"

static bool stands_for_itself(unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; }

void ntx__alphabet_init(struct ntx__alphabet *a)
{
    unsigned next = 256;
    for (unsigned i = 0; i < 324; i++)
        a->byte[i] = -1;
    for (unsigned b = 0; b < 256; b++)
        a->byte[stands_for_itself(b) ? b : next++] = (int16_t)b;
}

int64_t ntx__alphabet_decode(const struct ntx__alphabet *a, const char *text, size_t n, char *out)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    char *o = out;
    while (p < end) {
        unsigned cp = *p++;
        if (cp >= 0x80) { /* two bytes suffice: the alphabet ends at U+0143 */
            if (cp < 0xC2 || cp > 0xDF || p == end || (*p & 0xC0) != 0x80)
                return -1;
            cp = (cp & 0x1F) << 6 | (*p++ & 0x3F);
        }
        if (cp >= 324 || a->byte[cp] < 0)
            return -1;
        *o++ = (char)a->byte[cp];
    }
    return o - out;
}
