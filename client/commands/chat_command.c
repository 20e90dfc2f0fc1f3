/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/chat.h"
#include "client/commands/prompt.h"
#include "common/printable.h"

struct command {
    const char *name, *also, *args, *help;
    int (*run)(struct ntx_chat *k, char *rest,
               struct ntx_err *err); /* rest: the arguments, without blanks around them */
};

static int help_command(struct ntx_chat *k, char *rest, struct ntx_err *err);

/* Copies a text that options point to; it lives as long as the chat. */
static const char *keep_copy(struct ntx_chat *k, const char *text)
{
    char **p = realloc(k->texts, (k->n_texts + 1) * sizeof *p), *copy = p ? strdup(text) : NULL;
    if (p)
        k->texts = p;
    if (copy)
        k->texts[k->n_texts++] = copy;
    return copy;
}

/* Prints a text that others wrote, line by line, without control characters. */
static void print_safely(const char *text)
{
    size_t n = strlen(text);
    char *line = malloc(4 * n + 1);
    for (size_t k; line && *text; text += k + (text[k] == '\n')) {
        k = strcspn(text, "\n");
        ntx_printable(line, 4 * n + 1, text, k);
        fprintf(stderr, "%s\n", line);
    }
    free(line);
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

/* Expands "~/" to the user's home. NULL: no home, or no memory. */
static char *path_of(const struct ntx_chat *k, const char *rest)
{
    const char *home = getenv("HOME");
    char *path = NULL;
    if (!*rest)
        return k->file ? strdup(k->file) : NULL;
    if (strncmp(rest, "~/", 2) || !home)
        return strdup(rest);
    return asprintf(&path, "%s/%s", home, rest + 2) < 0 ? NULL : path;
}

static int with_file(struct ntx_chat *k, const char *rest, bool load, struct ntx_err *err)
{
    char *path = path_of(k, rest);
    if (!path)
        return ntx_err_set(err, -EINVAL, "/%s needs a file's name", load ? "load" : "save");
    int rc = load ? ntx_talk_load(&k->talk, path, err) : ntx_talk_save(&k->talk, path, err);
    if (rc) {
        free(path);
        return rc;
    }
    free(k->file);
    k->file = path;
    if (load) {
        *k->name = 0;
        k->first = 0;
        ntx_chat_forget(k);
    }
    ntx_chat_tell(k, "%u turn%s %s %s", k->talk.n, k->talk.n == 1 ? "" : "s", load ? "from" : "saved to", path);
    return 0;
}

static int save_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    const char *name = *rest ? rest : k->name;
    if (!ntx_talk_is_name(name))
        return with_file(k, rest, false, err);
    int rc = ntx_chat_keep(k, name, err);
    if (!rc)
        ntx_chat_tell(k, "%u turn%s saved as %s, and after each answer from now on; --resume %s goes on with it",
                      k->talk.n, k->talk.n == 1 ? "" : "s", k->name, k->name);
    return rc;
}

/* A name without a saved conversation may be the name of a file. */
static int load_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    char path[NTX_TALK_PATH];
    struct ntx_err ignored;
    bool named = ntx_talk_is_name(rest) && !ntx_talk_path(rest, path, &ignored) && !access(path, F_OK);
    return named ? ntx_chat_resume(k, rest, err) : with_file(k, rest, true, err);
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

static void show_settings(const struct ntx_chat *k)
{
    const struct ntx_options *o = &k->o;
    fprintf(stderr,
            "temp %g  top-k %u  top-p %g  min-p %g  repeat-penalty %g  presence-penalty %g  frequency-penalty %g  seed "
            "%llu  ignore-eos %s",
            (double)o->sampling.temp, o->sampling.top_k, (double)o->sampling.top_p, (double)o->sampling.min_p,
            (double)o->sampling.repeat_penalty, (double)o->sampling.presence_penalty,
            (double)o->sampling.frequency_penalty, (unsigned long long)o->sampling.seed, o->ignore_eos ? "on" : "off");
    if (o->n)
        fprintf(stderr, "  n %u", o->n);
    if (o->chat_template)
        fprintf(stderr, "  chat-template %s", o->chat_template);
    for (unsigned i = 0; i < o->n_stops; i++)
        fprintf(stderr, "  stop \"%s\"", o->stops[i]);
    fputc('\n', stderr);
}

static int set_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    if (!*rest)
        return show_settings(k), 0;
    char *value = rest + strcspn(rest, " \t=");
    if (*value) {
        *value++ = 0;
        value += strspn(value, " \t=");
    }
    if (!*value)
        return ntx_err_set(err, -EINVAL, "/set NAME VALUE; /set alone shows all values");
    const char *kept = keep_copy(k, value);
    struct ntx_options o = k->o;
    int rc = kept ? ntx_options_set(&o, rest, kept, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc)
        rc = ntx_prompt_check_form(&o, NULL, true, err);
    if (rc)
        return rc;
    if (o.chat_template != k->o.chat_template)
        ntx_chat_forget(k);
    k->o = o;
    return 0;
}

static int stats_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    static const char *const keys[] = {"model",
                                       "prompt_tokens",
                                       "prefill_tok_s",
                                       "generated_tokens",
                                       "decode_tok_s",
                                       "ttft_s",
                                       "bytes_read_per_token",
                                       "io_gb_s",
                                       "predicted_tok_s",
                                       "limit",
                                       "peak_bytes",
                                       "finish",
                                       "seed"};
    (void)rest;
    (void)err;
    fprintf(stderr, "%-22s %u", "turns", k->talk.n);
    if (k->first)
        fprintf(stderr, ", of which 1 to %u are left out", k->first);
    fputc('\n', stderr);
    if (k->used)
        fprintf(stderr, "%-22s %u of %u tokens\n", "context", k->used, k->ctx);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(k->stats, keys[i]);
        char *s = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(4)) : NULL;
        if (s) {
            fprintf(stderr, "%-22s ", keys[i]);
            print_safely(s);
        }
        free(s);
    }
    return 0;
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
     "saves the conversation, now and after each answer, to be gone on with by --resume NAME; or, /save FILE, writes "
     "it as JSON (alone: the last one named)",
     save_command},
    {"load", NULL, "NAME", "goes on with a conversation that was saved; or with that of a FILE", load_command},
    {"list", NULL, "", "conversations that were saved by name, and when", list_command},
    {"system", NULL, "TEXT", "sets the system's text; alone shows it; none removes it", system_text},
    {"regenerate", "again", "", "writes the last answer again, with a new seed", regenerate_command},
    {"set", NULL, "NAME VALUE",
     "temp, top-k, top-p, min-p, repeat-penalty, presence-penalty, frequency-penalty, seed, n, stop, ignore-eos, "
     "chat-template; alone shows them",
     set_command},
    {"stats", NULL, "", "the conversation, its context, and the last answer in figures", stats_command},
    {"bye", "exit", "", "ends the chat, as Ctrl-D does", bye_command},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int help_command(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    (void)k;
    (void)rest;
    (void)err;
    for (unsigned i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "  /%-10s %-10s  %s\n", commands[i].name, commands[i].args, commands[i].help);
    fputs("A text of several lines is pasted, or written between \"\"\" and \"\"\"; Alt-Enter begins a new line.\n"
          "Up and Down browse the history, Ctrl-R searches it. Ctrl-C stops an answer, Ctrl-D ends the chat.\n",
          stderr);
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
