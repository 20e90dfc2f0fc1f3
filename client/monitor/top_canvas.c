/* SPDX-License-Identifier: Apache-2.0 */
#include "client/monitor/top_canvas.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/printable.h"
#include "common/util.h"

void ntx_canvas_begin(struct ntx_canvas *c, int w, int h, bool ascii)
{
    c->w = NTX_MAX(0, NTX_MIN(w, NTX_CANVAS_W));
    c->h = NTX_MAX(0, NTX_MIN(h, NTX_CANVAS_H));
    c->ascii = ascii;
    for (int y = 0; y < c->h; y++)
        for (int x = 0; x < c->w; x++)
            c->cell[y][x] = (struct ntx_cell){L' ', NTX_MARK_PLAIN};
}

void ntx_canvas_put(struct ntx_canvas *c, int x, int y, enum ntx_mark mark, wchar_t ch, char ascii)
{
    if (x >= 0 && y >= 0 && x < c->w && y < c->h)
        c->cell[y][x] = (struct ntx_cell){c->ascii ? (wchar_t)ascii : ch, mark};
}

/* Decodes the next character of UTF-8 text, '?' for invalid bytes and characters that are not one column wide;
 * returns its length in bytes. Needs no locale. */
static int decode(const char *s, wchar_t *out)
{
    const unsigned char *p = (const unsigned char *)s;
    int n = 1;
    if (*p >= 0xc2 && *p < 0xe0)
        n = 2;
    else if (*p >= 0xe0 && *p < 0xf0)
        n = 3;
    else if (*p >= 0xf0 && *p < 0xf5)
        n = 4;
    uint32_t v = n == 1 ? *p : *p & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            *out = L'?';
            return i;
        }
        v = v << 6 | (p[i] & 0x3f);
    }
    bool shown = !ntx_printable_steers(v) && (n == 1 || wcwidth((wchar_t)v) == 1);
    *out = shown ? (wchar_t)v : L'?';
    return n;
}

static int put_text(struct ntx_canvas *c, int x, int y, enum ntx_mark mark, const char *s)
{
    while (*s) {
        wchar_t ch;
        s += decode(s, &ch);
        ntx_canvas_put(c, x++, y, mark, ch, ch < 0x80 ? (char)ch : '?');
    }
    return x;
}

int ntx_canvas_text(struct ntx_canvas *c, int x, int y, enum ntx_mark mark, const char *fmt, ...)
{
    char buf[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    return put_text(c, x, y, mark, buf);
}

void ntx_canvas_right(struct ntx_canvas *c, int end, int y, enum ntx_mark mark, const char *fmt, ...)
{
    char buf[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    put_text(c, NTX_MAX(0, end - n), y, mark, buf);
}

void ntx_canvas_bar(struct ntx_canvas *c, int x, int y, int w, enum ntx_mark mark, double share)
{
    int full = (int)(NTX_MAX(0.0, NTX_MIN(1.0, share)) * w + 0.5);
    for (int i = 0; i < w; i++)
        ntx_canvas_put(c, x + i, y, i < full ? mark : NTX_MARK_DIM, i < full ? L'█' : L'░', i < full ? '#' : '.');
}

void ntx_canvas_box(struct ntx_canvas *c, int x, int y, int w, int h, const char *title)
{
    for (int i = 1; i < w - 1; i++) {
        ntx_canvas_put(c, x + i, y, NTX_MARK_DIM, L'─', '-');
        ntx_canvas_put(c, x + i, y + h - 1, NTX_MARK_DIM, L'─', '-');
    }
    for (int i = 1; i < h - 1; i++) {
        ntx_canvas_put(c, x, y + i, NTX_MARK_DIM, L'│', '|');
        ntx_canvas_put(c, x + w - 1, y + i, NTX_MARK_DIM, L'│', '|');
    }
    ntx_canvas_put(c, x, y, NTX_MARK_DIM, L'┌', '+');
    ntx_canvas_put(c, x + w - 1, y, NTX_MARK_DIM, L'┐', '+');
    ntx_canvas_put(c, x, y + h - 1, NTX_MARK_DIM, L'└', '+');
    ntx_canvas_put(c, x + w - 1, y + h - 1, NTX_MARK_DIM, L'┘', '+');
    ntx_canvas_text(c, x + 2, y, NTX_MARK_TITLE, " %s ", title);
}

void ntx_canvas_arrow(struct ntx_canvas *c, int x, int y, int w, double share)
{
    int heavy = (int)(NTX_MAX(0.0, NTX_MIN(1.0, share)) * (w - 1) + 0.5);
    for (int i = 0; i < w - 1; i++)
        ntx_canvas_put(c, x + i, y, i < heavy ? NTX_MARK_FLOW : NTX_MARK_DIM, i < heavy ? L'━' : L'─',
                       i < heavy ? '=' : '-');
    ntx_canvas_put(c, x + w - 1, y, heavy ? NTX_MARK_FLOW : NTX_MARK_DIM, L'▶', '>');
}

double ntx_canvas_spark(struct ntx_canvas *c, int x, int y, int w, enum ntx_mark mark, const float *v, unsigned n,
                        double least)
{
    static const wchar_t fine[] = L" ▁▂▃▄▅▆▇█";
    static const char coarse[] = " _.-:=+*#";
    unsigned shown = NTX_MIN(n, (unsigned)NTX_MAX(w, 0));
    double top = least, seen = 0;
    for (unsigned i = n - shown; i < n; i++) {
        top = NTX_MAX(top, (double)v[i]);
        seen = NTX_MAX(seen, (double)v[i]);
    }
    for (unsigned i = 0; i < shown; i++) {
        double share = top > 0 ? (double)v[n - shown + i] / top : 0;
        int k = share > 0 ? (int)(NTX_MIN(share, 1.0) * 7.999) + 1 : 0;
        ntx_canvas_put(c, x + w - (int)shown + (int)i, y, mark, fine[k], coarse[k]);
    }
    return seen;
}

static void put_utf8(wchar_t ch, FILE *to)
{
    uint32_t v = (uint32_t)ch;
    if (v < 0x80) {
        putc((int)v, to);
    } else if (v < 0x800) {
        putc((int)(0xc0 | v >> 6), to);
        putc((int)(0x80 | (v & 0x3f)), to);
    } else {
        if (v >= 0x10000)
            putc((int)(0xf0 | v >> 18), to);
        putc((int)(v >= 0x10000 ? 0x80 | (v >> 12 & 0x3f) : 0xe0 | v >> 12), to);
        putc((int)(0x80 | (v >> 6 & 0x3f)), to);
        putc((int)(0x80 | (v & 0x3f)), to);
    }
}

void ntx_canvas_print(const struct ntx_canvas *c, FILE *to)
{
    for (int y = 0; y < c->h; y++) {
        int end = c->w;
        while (end > 0 && c->cell[y][end - 1].ch == L' ')
            end--;
        for (int x = 0; x < end; x++)
            put_utf8(c->cell[y][x].ch, to);
        putc('\n', to);
    }
}
