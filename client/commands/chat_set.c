/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/commands/answer_stats.h"
#include "client/commands/chat.h"
#include "client/commands/prompt.h"
#include "client/terminal.h"
#include "common/printable.h"

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

static void show_settings(const struct ntx_chat *k)
{
    const struct ntx_options *o = &k->o;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return;
    fprintf(f,
            "temp %g  top-k %u  top-p %g  min-p %g  repeat-penalty %g  presence-penalty %g  frequency-penalty %g  seed "
            "%llu  ignore-eos %s  stats %s  wrap %s",
            (double)o->sampling.temp, o->sampling.top_k, (double)o->sampling.top_p, (double)o->sampling.min_p,
            (double)o->sampling.repeat_penalty, (double)o->sampling.presence_penalty,
            (double)o->sampling.frequency_penalty, (unsigned long long)o->sampling.seed, o->ignore_eos ? "on" : "off",
            o->tell_stats ? "on" : "off", ntx_terminal_wraps() ? "on" : "off");
    if (o->n)
        fprintf(f, "  n %u", o->n);
    if (o->think)
        fprintf(f, "  think %s", o->think);
    if (o->chat_template || o->template_file)
        fprintf(f, "  chat-template %s", o->chat_template ? o->chat_template : o->template_file);
    for (unsigned i = 0; i < o->n_stops; i++)
        fprintf(f, "  stop \"%s\"", o->stops[i]);
    fputc('\n', f);
    if (!fclose(f))
        ntx_terminal_put(text, n, 0);
    free(text);
}

/* The chat's own settings, which are on or off. */
static int set_display(struct ntx_chat *k, const char *name, const char *value, struct ntx_err *err)
{
    bool on = !strcmp(value, "on");
    if (!on && strcmp(value, "off"))
        return ntx_err_set(err, -EINVAL, "%s: '%s' is neither on nor off", name, value);
    if (!strcmp(name, "stats"))
        k->o.tell_stats = on;
    else
        ntx_terminal_set_wrap(on);
    return 0;
}

static int set_option(struct ntx_chat *k, const char *name, const char *value, struct ntx_err *err)
{
    const char *kept = keep_copy(k, value);
    struct ntx_options o = k->o;
    int rc = kept ? ntx_options_set(&o, name, kept, err) : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc)
        rc = ntx_prompt_check_form(&o, NULL, true, err);
    if (rc)
        return rc;
    if (o.chat_template != k->o.chat_template || o.think != k->o.think) /* either may change the prompt's beginning */
        ntx_chat_forget(k);
    k->o = o;
    return 0;
}

int ntx_chat_set(struct ntx_chat *k, char *rest, struct ntx_err *err)
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
    bool display = !strcmp(rest, "stats") || !strcmp(rest, "wrap");
    return display ? set_display(k, rest, value, err) : set_option(k, rest, value, err);
}

static void put_context(FILE *f, const struct ntx_chat *k)
{
    fprintf(f, "The conversation has %u turn%s", k->talk.n, k->talk.n == 1 ? "" : "s");
    if (*k->name)
        fprintf(f, " and is saved as %s", k->name);
    fputs(".\n", f);
    if (k->first == 1)
        fputs("Turn 1 is left out of the context.\n", f);
    else if (k->first)
        fprintf(f, "Turns 1 to %u are left out of the context.\n", k->first);
    if (k->used)
        fprintf(f, "The context has %u of %u tokens.\n", k->used, k->ctx);
}

int ntx_chat_stats(struct ntx_chat *k, char *rest, struct ntx_err *err)
{
    char *account = k->stats ? ntx_stats_account(k->stats) : NULL, *text = NULL, *safe;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    (void)rest;
    if (!f) {
        free(account);
        return ntx_err_set(err, -ENOMEM, "no memory");
    }
    put_context(f, k);
    fputs(account ? account : "There is no answer yet.\n", f);
    fclose(f);
    free(account);
    if ((safe = ntx_printable_lines(text)))
        ntx_terminal_put(safe, strlen(safe), 0);
    free(safe);
    free(text);
    return 0;
}
