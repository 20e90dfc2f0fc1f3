/* SPDX-License-Identifier: Apache-2.0 */
#include "client/monitor/top_screen.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <term.h>
#include <unistd.h>

#include "common/util.h"

static attr_t attr_of(enum ntx_mark m)
{
    static const attr_t plain[NTX_N_MARKS] = {
        [NTX_MARK_TITLE] = A_BOLD, [NTX_MARK_DIM] = A_DIM, [NTX_MARK_GOOD] = A_BOLD, [NTX_MARK_BAD] = A_REVERSE};
    static const short pair[NTX_N_MARKS] = {
        [NTX_MARK_GOOD] = 1, [NTX_MARK_BUSY] = 2, [NTX_MARK_BAD] = 3, [NTX_MARK_FLOW] = 4};
    return plain[m] | (COLORS ? (attr_t)COLOR_PAIR(pair[m]) : 0);
}

static void start_colours(bool wanted)
{
    static const short of[] = {COLOR_GREEN, COLOR_YELLOW, COLOR_RED, COLOR_CYAN};
    if (!wanted || !has_colors() || start_color() == ERR) /* COLORS then stays 0 */
        return;
    short back = use_default_colors() == OK ? -1 : COLOR_BLACK;
    for (short i = 0; i < 4; i++)
        init_pair((short)(i + 1), of[i], back);
}

int ntx_screen_open(bool colour, struct ntx_err *err)
{
    const char *term = getenv("TERM");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return ntx_err_set(err, -ENOTTY, "standard input and output are no terminal; try --once or --json");
    bool fit = false; /* the cursor can be moved: not with TERM=dumb */
    if (setupterm(NULL, STDOUT_FILENO, &(int){0}) == OK) {
        const char *place = tigetstr("cup");
        fit = place && place != (const char *)-1;
        del_curterm(cur_term);
    }
    if (!fit || !newterm(NULL, stdout, stdin))
        return ntx_err_set(err, -ENOTTY,
                           "the terminal '%s' cannot show a live picture; try --once or --json, or set TERM",
                           term ? term : "");
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    start_colours(colour);
    return 0;
}

void ntx_screen_close(void) { endwin(); }

void ntx_screen_size(int *w, int *h) { getmaxyx(stdscr, *h, *w); }

void ntx_screen_show(const struct ntx_canvas *c)
{
    erase();
    for (int y = 0; y < c->h; y++)
        for (int x = 0; x < c->w; x++) {
            wchar_t text[2] = {c->cell[y][x].ch, 0};
            cchar_t cell;
            attr_t a = attr_of(c->cell[y][x].mark);
            setcchar(&cell, text, a & ~A_COLOR, PAIR_NUMBER(a), NULL);
            mvadd_wch(y, x, &cell);
        }
    refresh();
}

int ntx_screen_key(int timeout_ms)
{
    timeout(NTX_MAX(timeout_ms, 0));
    int k = getch();
    struct pollfd gone = {.fd = STDIN_FILENO};
    if (k == ERR &&
        poll(&gone, 1, 0) > 0) /* the terminal is closed while SIGHUP is ignored: getch() would return at once from
                                * now on */
        return NTX_KEY_GONE;
    if (k == ERR)
        return NTX_KEY_NONE;
    return k == KEY_RESIZE ? NTX_KEY_SIZE : k;
}
