/* SPDX-License-Identifier: Apache-2.0 */
/* chat_show.c: the end of a conversation that goes on, as far as it helps to remember. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/chat.h"
#include "client/out.h"
#include "client/terminal.h"
#include "client/wrap.h"

enum { TURNS = 2, FIRST_LINES = 4, LAST_LINES = 4, UNKNOWN_WIDTH = 80 };

static void put_file(void *arg, const char *text, size_t n) { fwrite(text, 1, n, arg); }

struct wrapping {
    struct ntx_wrap *wrap;
    unsigned width;
};

static void wrap_text(void *arg, const char *text, size_t n)
{
    const struct wrapping *w = arg;
    ntx_wrap_text(w->wrap, w->width, text, n);
}

/* The text as lines of the terminal, malloc'd; NULL: no memory. */
static char *lines_of(const char *text, size_t n)
{
    char *lines = NULL;
    size_t n_lines = 0;
    unsigned width = ntx_terminal_columns(STDERR_FILENO);
    FILE *f = open_memstream(&lines, &n_lines);
    struct wrapping w = {.width = width ? width : UNKNOWN_WIDTH};
    if (!f)
        return NULL;
    w.wrap = ntx_wrap_new(&(struct ntx_wrap_to){.put = put_file, .arg = f, .markdown = true});
    if (w.wrap) {
        ntx_out_clean(text, n, wrap_text, &w);
        ntx_wrap_flush(w.wrap);
    }
    ntx_wrap_free(w.wrap);
    if (!fclose(f))
        return lines;
    free(lines);
    return NULL;
}

static unsigned count_lines(const char *text)
{
    unsigned n = 1;
    while ((text = strchr(text, '\n')))
        n++, text++;
    return n;
}

/* Prints the first and the last lines, and how many are between. */
static void show_text(const char *before, const char *text, size_t n)
{
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    char *lines = lines_of(text, n), *line = lines;
    unsigned all = lines ? count_lines(lines) : 0, left_out = 0;
    if (all > FIRST_LINES + LAST_LINES + 1)
        left_out = all - FIRST_LINES - LAST_LINES;
    for (unsigned i = 0; i < all; i++) {
        size_t k = strcspn(line, "\n");
        if (i == FIRST_LINES && left_out)
            fprintf(stderr, "[%u more lines]\n", left_out);
        if (i < FIRST_LINES || i >= FIRST_LINES + left_out)
            fprintf(stderr, "%s%.*s\n", i ? "" : before, (int)k, line);
        line += k + (line[k] == '\n');
    }
    free(lines);
}

void ntx_chat_show(struct ntx_chat *k)
{
    const struct ntx_talk *t = &k->talk;
    unsigned from = t->n > TURNS ? t->n - TURNS : 0;
    if (k->model)
        ntx_chat_model(k, k->model);
    if (!k->tty || k->o.quiet || !t->n)
        return;
    if (from)
        fprintf(stderr, "[%u earlier turn%s]\n", from, from == 1 ? "" : "s");
    for (unsigned i = from; i < t->n; i++) {
        show_text("> ", t->turns[i].asked, t->turns[i].n_asked);
        if (t->turns[i].answer)
            show_text("", t->turns[i].answer, t->turns[i].n_answer);
    }
}

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A private run knows its model's file, a service only its name: one is not compared with the other. */
void ntx_chat_model(struct ntx_chat *k, const char *model)
{
    struct ntx_talk *t = &k->talk;
    bool file = strchr(model, '/'), was_file = t->model && strchr(t->model, '/');
    if ((t->model && !strcmp(t->model, model)) || (was_file && !file))
        return;
    if (t->model && t->n && file == was_file)
        ntx_chat_tell(k, "the conversation was held with %s; from now on %s answers", file_of(t->model),
                      file_of(model));
    ntx_talk_set_model(t, model); /* without memory it is told once more */
}
