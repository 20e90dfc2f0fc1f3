/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cluster.h"

#include <utf8proc.h>

static bool terminal_whole;

void ntx_cluster_set_whole(bool whole) { terminal_whole = whole; }
bool ntx_cluster_whole(void) { return terminal_whole; }

/* Reads one code point; a wrong byte is U+FFFD. Returns its bytes, n >= 1. */
static size_t read_point(const char *p, size_t n, int32_t *c)
{
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n, c);
    if (k > 0)
        return (size_t)k;
    *c = 0xfffd;
    return 1;
}

size_t ntx_cluster_at(const char *p, size_t n)
{
    int32_t before, c, state = 0;
    size_t at = read_point(p, n, &before);
    while (at < n) {
        size_t k = read_point(p + at, n - at, &c);
        if (utf8proc_grapheme_break_stateful(before, c, &state))
            break;
        before = c;
        at += k;
    }
    return at;
}

static bool joins_emoji(int32_t c) { return c == 0x200d || c == 0xfe0f || (c >= 0x1f3fb && c <= 0x1f3ff); }

/* utf8proc gives spacing marks no column, and the later jamo of a syllable one each: terminals do the opposite. */
static unsigned point_columns(int32_t c)
{
    if (utf8proc_category(c) == UTF8PROC_CATEGORY_MC)
        return 1;
    if (c >= 0x1160 && c <= 0x11ff)
        return 0;
    return (unsigned)utf8proc_charwidth(c);
}

size_t ntx_cluster_shown(const char *p, size_t n)
{
    int32_t c;
    size_t at = read_point(p, n, &c);
    if (terminal_whole)
        return n;
    for (size_t k; at < n; at += k) {
        k = read_point(p + at, n - at, &c);
        if (joins_emoji(c))
            break;
    }
    return at;
}

unsigned ntx_cluster_columns(const char *p, size_t n)
{
    unsigned columns = 0;
    bool emoji = false;
    int32_t c;
    for (size_t at = 0; at < n;) {
        bool first = !at;
        at += read_point(p + at, n - at, &c);
        columns += point_columns(c);
        emoji |= !first && joins_emoji(c);
    }
    if (terminal_whole)
        return emoji || columns > 2 ? 2 : columns;
    return columns;
}

static bool opens(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_PS || k == UTF8PROC_CATEGORY_PI;
}

/* Punctuation, the mark of a long vowel, the small kana and the repetition marks begin no line. */
static bool closes(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    if (k == UTF8PROC_CATEGORY_PE || k == UTF8PROC_CATEGORY_PF || k == UTF8PROC_CATEGORY_PO)
        return true;
    return k == UTF8PROC_CATEGORY_LM || c == 0x3041 || c == 0x3043 || c == 0x3045 || c == 0x3047 || c == 0x3049 ||
           c == 0x3063 || c == 0x3083 || c == 0x3085 || c == 0x3087 || c == 0x30a1 || c == 0x30a3 || c == 0x30a5 ||
           c == 0x30a7 || c == 0x30a9 || c == 0x30c3 || c == 0x30e3 || c == 0x30e5 || c == 0x30e7;
}

bool ntx_cluster_breaks(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int32_t before, after;
    read_point(a, n_a, &before);
    read_point(b, n_b, &after);
    return (point_columns(before) == 2 || point_columns(after) == 2) && !opens(before) && !closes(after);
}
