/* SPDX-License-Identifier: Apache-2.0 */
#include "client/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/progress.h"
#include "client/wrap.h"
#include "common/util.h"

static bool wraps = true;

void ntx_terminal_set_wrap(bool on) { wraps = on; }
bool ntx_terminal_wraps(void) { return wraps; }

unsigned ntx_terminal_columns(int fd)
{
    struct winsize size;
    return wraps && !ioctl(fd, TIOCGWINSZ, &size) ? size.ws_col : 0;
}

static void put_piece(void *arg, const char *text, size_t n) { fwrite(text, 1, n, arg); }

void ntx_terminal_put(const char *text, size_t n, unsigned indent)
{
    unsigned width = ntx_terminal_columns(STDERR_FILENO);
    char *out = NULL;
    size_t n_out = 0;
    FILE *f = width ? open_memstream(&out, &n_out) : NULL;
    struct ntx_wrap *w = f ? ntx_wrap_new(&(struct ntx_wrap_to){.put = put_piece, .arg = f, .indent = indent}) : NULL;
    bool wrapped = w && !ntx_wrap_text(w, width, text, n);
    if (w)
        ntx_wrap_flush(w);
    ntx_wrap_free(w);
    if (f)
        wrapped = !fclose(f) && wrapped;
    ntx_progress_yield();
    ntx_write_all(STDERR_FILENO, wrapped ? out : text, wrapped ? n_out : n);
    free(out);
}

static void put_note(const char *line, size_t n) { ntx_terminal_put(line, n, sizeof "ntx: " - 1); }

void ntx_terminal_take_notes(void) { ntx_log_through(put_note); }
