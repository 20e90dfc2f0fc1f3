/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/out.h"
#include "model/reply/reply.h"

struct ntx_shown {
    struct ntx_reply *reply;
    bool dim;
};

static int show_part(void *arg, const struct ntx_reply_part *p)
{
    struct ntx_shown *s = arg;
    bool dim = p->kind == NTX_REPLY_THOUGHT;
    if (dim != s->dim)
        fputs(dim ? "\033[2m" : "\033[22m\n\n", stdout);
    s->dim = dim;
    ntx_out_text(p->text, p->len);
    return 0;
}

bool ntx_shown_apart(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb");
}

struct ntx_shown *ntx_shown_begin(bool apart)
{
    struct ntx_shown *s = apart ? calloc(1, sizeof *s) : NULL;
    struct ntx_reply_options ask = {.format = ntx_reply_by_name("plain"), .part = show_part, .arg = s};
    if (s && ntx_reply_new(&ask, &s->reply)) {
        free(s);
        s = NULL;
    }
    return s;
}

void ntx_shown_text(struct ntx_shown *s, const char *p, size_t n)
{
    if (!s)
        ntx_out_text(p, n);
    else
        ntx_reply_feed(s->reply, p, n); /* without memory the rest is not shown, but it is kept */
}

void ntx_shown_end(struct ntx_shown *s)
{
    if (!s)
        return;
    ntx_reply_end(s->reply);
    if (s->dim)
        fputs("\033[22m", stdout);
    ntx_reply_free(s->reply);
    free(s);
}
