/* SPDX-License-Identifier: Apache-2.0 */
/* top_canvas.h: a picture made of characters, the same for the live screen, for --once and for the tests. A cell
 * holds one character of one column and its meaning; the screen chooses the colour. Text outside the picture is cut
 * off. */
#ifndef NTX_CLIENT_MONITOR_TOP_CANVAS_H
#define NTX_CLIENT_MONITOR_TOP_CANVAS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

#define NTX_CANVAS_W 240
#define NTX_CANVAS_H 100

enum ntx_mark {
    NTX_MARK_PLAIN,
    NTX_MARK_TITLE,
    NTX_MARK_DIM,
    NTX_MARK_GOOD,
    NTX_MARK_BUSY,
    NTX_MARK_BAD,
    NTX_MARK_FLOW,
    NTX_N_MARKS
};

struct ntx_cell {
    wchar_t ch;
    enum ntx_mark mark;
};

struct ntx_canvas {
    int w, h;
    bool ascii; /* ASCII only */
    struct ntx_cell cell[NTX_CANVAS_H][NTX_CANVAS_W];
};

void ntx_canvas_begin(struct ntx_canvas *c, int w, int h, bool ascii); /* empty; cut to the largest possible size */
/* Writes UTF-8 text at column x of row y; returns the column after it. Characters that are not one column wide, and
 * invalid bytes, become '?'. */
int ntx_canvas_text(struct ntx_canvas *c, int x, int y, enum ntx_mark mark, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The same, ending before column end. */
void ntx_canvas_right(struct ntx_canvas *c, int end, int y, enum ntx_mark mark, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Writes one character, or its ASCII form. */
void ntx_canvas_put(struct ntx_canvas *c, int x, int y, enum ntx_mark mark, wchar_t ch, char ascii);
void ntx_canvas_bar(struct ntx_canvas *c, int x, int y, int w, enum ntx_mark mark, double share);
void ntx_canvas_box(struct ntx_canvas *c, int x, int y, int w, int h, const char *title);
/* An arrow of w columns; its heavy part is the used share of the link's ceiling. */
void ntx_canvas_arrow(struct ntx_canvas *c, int x, int y, int w, double share);
/* The last w values as bars; the greatest one, or `least` if that is more, fills its cell. Returns the greatest. */
double ntx_canvas_spark(struct ntx_canvas *c, int x, int y, int w, enum ntx_mark mark, const float *v, unsigned n,
                        double least);

void ntx_canvas_print(const struct ntx_canvas *c, FILE *to); /* UTF-8, without blanks at the ends of lines */

#endif
