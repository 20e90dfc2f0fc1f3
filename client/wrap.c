/* SPDX-License-Identifier: Apache-2.0 */
#include "client/wrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster.h"

enum { NARROWEST = 8, CODE_INDENT = 4, TAB = 8 };

struct ntx_wrap {
    struct ntx_wrap_to to;
    unsigned width, column; /* of the terminal; of the cursor */
    /* held back: blanks [0..gap), a word [gap..end), and perhaps more that was not looked at [end..n) */
    char *held;
    size_t n, room, gap, end, last; /* last: where the word's last cluster begins */
    unsigned gap_columns, word_columns;
    bool begun;      /* the line has a word */
    bool as_is;      /* the line is not wrapped */
    bool tail;       /* the word's beginning, longer than a line, is shown already */
    unsigned indent; /* of the lines that the wrap begins */
    char fence;      /* '`' or '~': within a block of code; else 0 */
    unsigned ticks;  /* of a line within it: fence characters at its beginning */
    bool only_ticks;
};

struct ntx_wrap *ntx_wrap_new(const struct ntx_wrap_to *to)
{
    struct ntx_wrap *w = calloc(1, sizeof *w);
    if (w) {
        w->to = *to;
        w->indent = to->indent;
    }
    return w;
}

void ntx_wrap_free(struct ntx_wrap *w)
{
    if (!w)
        return;
    free(w->held);
    free(w);
}

static void show_piece(struct ntx_wrap *w, const char *p, size_t n)
{
    if (n)
        w->to.put(w->to.arg, p, n);
}

/* The terminal itself has begun a new line where the text has reached its width. */
static void move_cursor(struct ntx_wrap *w, unsigned columns)
{
    w->column += columns;
    if (w->width && w->column > w->width)
        w->column = (w->column - 1) % w->width + 1;
}

static void begin_line(struct ntx_wrap *w)
{
    w->column = w->gap_columns = w->word_columns = 0;
    w->begun = w->as_is = w->tail = false;
    w->indent = w->to.indent;
    w->ticks = 0;
    w->only_ticks = true;
}

/* Removes the first n bytes of what is held back. */
static void drop_held(struct ntx_wrap *w, size_t n)
{
    memmove(w->held, w->held + n, w->n -= n);
    w->end -= n;
    w->gap = w->end;
    w->gap_columns = w->word_columns = 0;
}

static bool is_marker(const char *p, size_t n)
{
    size_t digits = 0;
    if (n == 1)
        return strchr("-*+", *p) != NULL;
    while (digits < n && p[digits] >= '0' && p[digits] <= '9')
        digits++;
    return digits && digits + 1 == n && strchr(".)", p[digits]);
}

static unsigned count_same(const char *p, size_t n)
{
    unsigned k = 0;
    while (k < n && p[k] == *p)
        k++;
    return k;
}

/* Looks at a line's first word: how is the line shown? */
static void classify_line(struct ntx_wrap *w)
{
    const char *word = w->held + w->gap;
    size_t n = w->end - w->gap;
    bool marker = is_marker(word, n);
    w->begun = true;
    if (!w->to.markdown)
        return;
    if (strchr("`~", *word) && count_same(word, n) >= 3) {
        w->fence = *word;
        w->as_is = true;
    } else if (*word == '|' || (!marker && (w->gap_columns >= CODE_INDENT || memchr(w->held, '\t', w->gap)))) {
        w->as_is = true;
    } else {
        w->indent = w->gap_columns + (marker ? w->word_columns + 1 : 0);
        if (w->indent > w->width / 2)
            w->indent = 0;
    }
}

/* Shows the word, on a new line where it does not fit, and the blanks before it. */
static void place_word(struct ntx_wrap *w)
{
    static const char blanks[] = "                                ";
    if (w->gap == w->end)
        return;
    if (!w->begun)
        classify_line(w);
    bool full = w->column + w->gap_columns + w->word_columns > w->width;
    if (!w->as_is && !w->tail && full && w->column > w->indent) {
        show_piece(w, "\n", 1);
        for (unsigned left = w->indent, k; left; left -= k)
            show_piece(w, blanks, k = left < sizeof blanks ? left : sizeof blanks - 1);
        w->column = w->indent;
    } else {
        show_piece(w, w->held, w->gap);
        move_cursor(w, w->gap_columns);
    }
    show_piece(w, w->held + w->gap, w->end - w->gap);
    move_cursor(w, w->word_columns);
    drop_held(w, w->end);
}

/* Shows text of a line that stays as it is, up to its end. */
static void pass_line(struct ntx_wrap *w)
{
    const char *line = w->held, *end = memchr(line, '\n', w->n);
    size_t n = end ? (size_t)(end - line) : w->n;
    for (size_t i = 0; w->fence && i < n && w->only_ticks; i++) {
        w->ticks += line[i] == w->fence;
        w->only_ticks = line[i] == w->fence || line[i] == ' ';
    }
    show_piece(w, line, n + (end != NULL));
    for (size_t i = 0, k; i < n; i += k) {
        k = ntx_cluster_at(line + i, n - i);
        move_cursor(w, line[i] == '\t' ? TAB - w->column % TAB : ntx_cluster_columns(line + i, k));
    }
    w->end = n + (end != NULL);
    drop_held(w, w->end);
    if (!end)
        return;
    bool opening = w->begun; /* the line that began the block */
    if (!opening && w->only_ticks && w->ticks >= 3)
        w->fence = 0;
    begin_line(w);
}

static void end_line(struct ntx_wrap *w)
{
    place_word(w);
    if (w->as_is) /* its first word was its only one */
        return;
    show_piece(w, "\n", 1);
    w->end++;
    drop_held(w, w->end);
    begin_line(w);
}

static void take_blank(struct ntx_wrap *w)
{
    place_word(w);
    if (w->as_is)
        return;
    char c = w->held[w->end];
    w->tail = false;
    w->gap_columns += c == '\t' ? TAB - (w->column + w->gap_columns) % TAB : 1;
    w->gap = ++w->end;
}

/* Adds a cluster to the word. Returns false if it may still grow. */
static bool take_cluster(struct ntx_wrap *w, bool ended)
{
    const char *p = w->held + w->end;
    size_t k = ntx_cluster_at(p, w->n - w->end);
    if (w->end + k == w->n && !ended)
        return false;
    if (w->end > w->gap && ntx_cluster_breaks(w->held + w->last, w->end - w->last, p, k)) {
        place_word(w);
        return true; /* once more, now as the first of a word */
    }
    w->last = w->end;
    w->end += k;
    w->word_columns += ntx_cluster_columns(p, k);
    if (w->word_columns >= w->width) {
        place_word(w);
        w->tail = true;
    }
    return true;
}

static void look_further(struct ntx_wrap *w, bool ended)
{
    while (w->end < w->n) {
        char c = w->held[w->end];
        if (w->as_is || (w->fence && !w->begun))
            pass_line(w);
        else if (c == '\n')
            end_line(w);
        else if (c == ' ' || c == '\t')
            take_blank(w);
        else if (!take_cluster(w, ended))
            break;
    }
}

int ntx_wrap_text(struct ntx_wrap *w, unsigned width, const char *p, size_t n)
{
    if (width < NARROWEST) {
        ntx_wrap_flush(w);
        show_piece(w, p, n);
        if (n)
            w->column = p[n - 1] != '\n';
        return 0;
    }
    w->width = width;
    if (w->column > width) /* the window has become narrower, and the terminal has cut the line */
        move_cursor(w, 0);
    if (w->n + n > w->room) {
        char *more = realloc(w->held, 2 * (w->n + n));
        if (!more) {
            ntx_wrap_flush(w);
            show_piece(w, p, n);
            return -ENOMEM;
        }
        w->held = more;
        w->room = 2 * (w->n + n);
    }
    memcpy(w->held + w->n, p, n);
    w->n += n;
    look_further(w, false);
    return 0;
}

void ntx_wrap_flush(struct ntx_wrap *w)
{
    look_further(w, true);
    place_word(w);
    show_piece(w, w->held, w->gap);
    move_cursor(w, w->gap_columns);
    if (w->n)
        drop_held(w, w->n);
}

bool ntx_wrap_midline(const struct ntx_wrap *w) { return w->column > 0; }
