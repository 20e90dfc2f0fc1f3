/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/chat.h"
#include "client/terminal.h"
#include "common/printable.h"

struct command {
    const char *name, *also, *args, *help;
    int (*run)(struct ntx_chat *k, char *rest,
               struct ntx_err *err); /* rest: the arguments, without blanks around them */
};

static int help_command(struct ntx_chat *k, char *rest, struct ntx_err *err);

/* Prints a text that others wrote, without control characters. */
static void print_safely(const char *text)
{
    char *lines = ntx_printable_lines(text);
    if (lines)
        ntx_terminal_put(lines, strlen(lines), 0);
    free(lines);
}

static int clear_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    (void)rest;
    (void)err;
    while (k->talk.n)
        ntx_talk_drop(&k->talk);
    k->first = 0;
    *k->name = 0;
    ntx_chat_forget(k);
    ntx_chat_tell(k, "the conversation begins anew%s", k->talk.system ? "; the system's text stays" : "");
    return 0;
}

static int list_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    (void)rest;
    (void)err;
    if (!ntx_talk_list())
        ntx_chat_tell(k, "no conversation was saved by name: /save NAME does it");
    return 0;
}

static int system_text(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    if (!*rest) {
        print_safely(k->talk.system ? k->talk.system : "there is no system text: /system TEXT gives one");
        return 0;
    }
    bool none = !strcmp(rest, "none");
    char *text = none ? NULL : strdup(rest);
    if (!none && !text)
        return ntx_err_set(err, -ENOMEM, "no memory");
    free(k->talk.system);
    k->talk.system = text;
    ntx_chat_forget(k);
    ntx_chat_tell(k, none ? "there is no system text any more" : "the system's text holds from the next message on");
    return 0;
}

static int regenerate_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    (void)rest;
    if (!k->talk.n)
        return ntx_err_set(err, -EINVAL, "there is no answer to write again");
    if (!(k->o.sampling.temp > 0))
        ntx_chat_tell(k, "with a temperature of 0 the answer can only be the same; /set temp 0.8 would change that");
    return ntx_chat_again(k, err);
}

static int bye_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    (void)rest;
    (void)err;
    k->done = true;
    return 0;
}

static const struct command commands[] = {
    {"help", "?", "", "this list", help_command},
    {"clear", NULL, "", "starts over; the system message and settings stay", clear_command},
    {"save", NULL, "NAME",
     "saves the conversation, now and after each answer, for --resume NAME; /save FILE writes it as JSON once (with "
     "blanks in quotes)",
     ntx_chat_save},
    {"load", NULL, "NAME", "goes on with a saved conversation, or a FILE's", ntx_chat_load},
    {"list", NULL, "", "conversations that were saved by name, and when", list_command},
    {"system", NULL, "TEXT", "the system's text; alone shows it, none removes it", system_text},
    {"image", NULL, "FILE",
     "a picture for the next message; a pasted path of a picture in a message does the same; none takes them back",
     ntx_chat_image},
    {"regenerate", "again", "", "writes the last answer again, with a new seed", regenerate_command},
    {"set", NULL, "NAME VALUE",
     "temp, top-k, top-p, min-p, repeat-penalty, presence-penalty, frequency-penalty, seed, n, stop, ignore-eos, "
     "think, chat-template; stats on: a line of statistics after each answer; wrap off: lines are not broken between "
     "words. Alone shows them",
     ntx_chat_set},
    {"stats", NULL, "", "an account of the chat and its last answer", ntx_chat_stats},
    {"bye", "exit", "", "ends the chat, as Ctrl-D does", bye_command},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* Commands and their help stand side by side where there is room for both. */
static int help_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    static const char keys[] =
        "A text of several lines is pasted, or written between \"\"\" and \"\"\"; Alt-Enter begins a new line.\n"
        "Up and Down browse the history, Ctrl-R searches it. Ctrl-C stops an answer, Ctrl-D ends the chat.\n";
    enum { BESIDE = 60, INDENT = 26 };
    unsigned width = ntx_terminal_columns(STDERR_FILENO);
    bool below = width && width < BESIDE;
    (void)k;
    (void)rest;
    (void)err;
    for (unsigned i = 0; i < N_COMMANDS; i++) {
        char line[512];
        int n = snprintf(line, sizeof line, below ? "/%s %s\n" : "  /%-10s %-10s  ", commands[i].name,
                         commands[i].args);
        n += snprintf(line + n, sizeof line - (size_t)n, "%s%s\n", below ? "    " : "", commands[i].help);
        ntx_terminal_put(line, (size_t)n, below ? 4 : INDENT);
    }
    ntx_terminal_put(keys, sizeof keys - 1, 0);
    return 0;
}

static size_t word_of(const char *text)
{
    return strspn(text + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?");
}

bool ntx_chat_is_command(const char *text)
{
    size_t n = *text == '/' ? word_of(text) : 0;
    return n && (!text[1 + n] || strchr(" \t\n", text[1 + n])) && (!strchr(text, '\n') || !strncmp(text, "/system", 7));
}

int ntx_chat_command(struct ntx_chat *k, const char *text, struct ntx_err *err)
{
    size_t n = word_of(text);
    char *rest = strdup(text + 1 + n);
    int rc = rest ? -ENOENT : ntx_err_set(err, -ENOMEM, "no memory");
    for (unsigned i = 0; rest && i < N_COMMANDS; i++) {
        const struct command *c = &commands[i];
        if ((strlen(c->name) != n || strncmp(c->name, text + 1, n)) &&
            (!c->also || strlen(c->also) != n || strncmp(c->also, text + 1, n)))
            continue;
        char *begin = rest + strspn(rest, " \t\n"), *end = begin + strlen(begin);
        while (end > begin && strchr(" \t\n", end[-1]))
            *--end = 0;
        rc = c->run(k, begin, err);
        break;
    }
    if (rest && rc == -ENOENT && !err->code)
        ntx_err_set(err, rc, "there is no /%.*s; /help lists the commands; a space before the / makes it a message",
                    (int)n, text + 1);
    free(rest);
    return rc;
}
