/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/out.h"
#include "client/terminal.h"
#include "client/wrap.h"
#include "model/reply/reply.h"

struct ntx_shown {
    struct ntx_reply *reply; /* NULL: reasoning is not set apart */
    struct ntx_wrap *wrap;   /* NULL: standard output is no terminal */
    bool dim;
};

static void put_stdout(void *arg, const char *text, size_t n)
{
    (void)arg;
    fwrite(text, 1, n, stdout);
}

static void wrap_text(void *arg, const char *text, size_t n)
{
    ntx_wrap_text(arg, ntx_terminal_columns(STDOUT_FILENO), text, n); /* without memory it is shown all the same */
}

static void show_text(struct ntx_shown *s, const char *p, size_t n)
{
    if (s->wrap)
        ntx_out_clean(p, n, wrap_text, s->wrap);
    else
        ntx_out_text(p, n);
}

static int show_part(void *arg, const struct ntx_reply_part *p)
{
    struct ntx_shown *s = arg;
    bool dim = p->kind == NTX_REPLY_THOUGHT;
    if (dim != s->dim) {
        if (s->wrap)
            ntx_wrap_flush(s->wrap);
        fputs(dim ? "\033[2m" : "\033[22m", stdout);
        if (!dim)
            show_text(s, "\n\n", 2);
    }
    s->dim = dim;
    show_text(s, p->text, p->len);
    return 0;
}

bool ntx_shown_apart(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb");
}

struct ntx_shown *ntx_shown_begin(bool apart)
{
    struct ntx_shown *s = calloc(1, sizeof *s);
    struct ntx_reply_options options = {.format = ntx_reply_by_name("plain"), .part = show_part, .arg = s};
    if (s && isatty(STDOUT_FILENO))
        s->wrap = ntx_wrap_new(&(struct ntx_wrap_to){.put = put_stdout, .markdown = true});
    if (s && apart && ntx_reply_new(&options, &s->reply))
        s->reply = NULL;
    return s;
}

void ntx_shown_text(struct ntx_shown *s, const char *p, size_t n)
{
    if (!s)
        ntx_out_text(p, n);
    else if (s->reply)
        ntx_reply_feed(s->reply, p, n); /* without memory the rest is not shown, but it is kept */
    else
        show_text(s, p, n);
}

bool ntx_shown_midline(const struct ntx_shown *s) { return s && s->wrap && ntx_wrap_midline(s->wrap); }

void ntx_shown_end(struct ntx_shown *s)
{
    if (!s)
        return;
    if (s->reply)
        ntx_reply_end(s->reply);
    if (s->wrap)
        ntx_wrap_flush(s->wrap);
    if (s->dim)
        fputs("\033[22m", stdout);
    ntx_reply_free(s->reply);
    ntx_wrap_free(s->wrap);
    free(s);
}
