/* SPDX-License-Identifier: Apache-2.0 */
#include "client/commands/complete.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "client/commands/commands.h"
#include "client/commands/table.h"
#include "client/options_brief.h"
#include "client/out.h"
#include "model/mix.h"

struct completion {
    const char *word; /* the one to complete, */
    char head[128];   /* after this: "--kv-type=" */
    const struct ntx_command *command;
};

/* Prints a value if the word is its beginning. Letters' case counts in no name of a model. */
static bool offer_value(const struct completion *k, const char *value, size_t len, const char *text)
{
    size_t n = strlen(k->word);
    if (n > len || strncasecmp(k->word, value, n) != 0)
        return false;
    ntx_out_format("%s%.*s\t%s\n", k->head, (int)len, value, text);
    return true;
}

static void offer_model(void *arg, const char *name) { offer_value(arg, name, strlen(name), "a model of `ntx list`"); }

static void offer_models(struct completion *k)
{
    ntx_model_names(offer_model, k);
    puts(":gguf");
}

/* A word in capitals stands for names. */
static void offer_word(struct completion *k, const char *word, size_t len, const char *text)
{
    static const char *const files[] = {"FILE", "PATH", "OUT", "TEXT", "BASE", "SIDECAR"};
    if (len == 5 && !memcmp(word, "MODEL", len)) {
        offer_models(k);
        return;
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strlen(files[i]) == len && !memcmp(files[i], word, len)) {
            puts(":files");
            return;
        }
    if (len == 3 && !memcmp(word, "DIR", len)) {
        puts(":dirs");
        return;
    }
    if (offer_value(k, word, len, text) && strchr("=:/", word[len - 1]))
        puts(":more");
}

static void offer_words(struct completion *k, const char *words, const char *between)
{
    for (size_t len; *words; words += strspn(words, between)) {
        len = strcspn(words, between);
        offer_word(k, words, len, "");
        words += len;
    }
}

static void offer_types(struct completion *k)
{
    char names[1024];
    ntx_mix_names(names, sizeof names);
    offer_words(k, "fit:", "|");
    offer_words(k, names, ", ");
}

/* The values of an option. */
static void offer_values(struct completion *k, const struct ntx_setting *s)
{
    if (s->kind == NTX_SET_WORD)
        offer_words(k, strchr(s->choices, ':') + 1, "|");
    else if (s->kind == NTX_SET_ON)
        offer_words(k, "on|off", "|");
    else if (s->values)
        offer_words(k, s->values, "|");
    else if (s->arg)
        offer_word(k, s->arg, strlen(s->arg), "");
}

/* ---- options */

struct option_search {
    const char *name; /* long, or */
    size_t len;
    int letter;
    const struct ntx_setting *found;
};

static void see_setting(void *arg, const char *title, const struct ntx_setting *s)
{
    struct option_search *o = arg;
    (void)title;
    bool same = o->name ? strlen(s->name) == o->len && !memcmp(s->name, o->name, o->len)
                        : s->key == o->letter || (!s->name[1] && s->name[0] == o->letter);
    if (same && !o->found)
        o->found = s;
}

/* The option "--name...", "-n"; NULL: the word is none. */
static const struct ntx_setting *find_option(const struct ntx_command *c, const char *word)
{
    struct option_search o = {.name = word + 2, .len = strcspn(word + (*word ? 2 : 0), "=")};
    if (word[0] != '-' || !word[1] || (word[1] != '-' && word[2]))
        return NULL;
    if (word[1] != '-')
        o = (struct option_search){.letter = word[1]};
    ntx_command_options(c, see_setting, &o);
    return o.found;
}

static void offer_option(void *arg, const char *title, const struct ntx_setting *s)
{
    const struct completion *k = arg;
    char name[80], buf[NTX_OPTION_HELP], text[NTX_OPTION_HELP];
    const char *help = ntx_option_help(s, buf);
    (void)title;
    int n = snprintf(name, sizeof name, "%s%s", s->name[1] ? "--" : "-", s->name);
    snprintf(text, sizeof text, "%.*s", (int)strcspn(help, ";:("), help);
    offer_value(k, name, (size_t)n, text);
}

static void offer_options(struct completion *k)
{
    char name[80];
    ntx_command_options(k->command, offer_option, k);
    for (const struct argp_option *o = ntx_common_options; o->name || o->key; o++)
        if (o->name) {
            int n = snprintf(name, sizeof name, "--%s", o->name);
            offer_value(k, name, (size_t)n, o->doc);
        }
}

/* ---- arguments */

/* The i-th argument, of a text such as "MODEL [PROMPT] [-]". */
static void offer_argument(struct completion *k, unsigned i)
{
    const char *at = k->command->args;
    size_t len = strcspn(at, " ");
    for (; i && at[len]; i--) {
        at += len + 1;
        len = strcspn(at, " ");
    }
    if (i && (len < 3 || strncmp(at + len - 3, "...", 3) != 0)) /* no more of them */
        return;
    bool optional = *at == '[';
    at += optional;
    len = strcspn(at, "] .");
    if (!strcmp(k->command->name, "rm"))
        ntx_model_names(offer_model, k);
    else if (!strcmp(k->command->name, "pull"))
        offer_words(k, "hf:|https://", "|");
    else if (len == 4 && !memcmp(at, "TYPE", len))
        offer_types(k);
    else if (len && memcmp(at, "PROMPT", len) != 0 && memcmp(at, "NAME", len) != 0)
        offer_word(k, at, len, "");
}

static void offer_commands(const struct completion *k)
{
    for (unsigned i = 0; i < ntx_n_commands; i++)
        offer_value(k, ntx_commands[i].name, strlen(ntx_commands[i].name), ntx_commands[i].brief);
}

/* Completes the last word, behind a command. */
static void complete_command(struct completion *k, int n, char **words)
{
    const struct ntx_setting *option = NULL;
    unsigned args = 0;
    for (int i = 1; i < n - 1; i++) {
        const bool value = option != NULL;
        const struct ntx_setting *s = value ? NULL : find_option(k->command, words[i]);
        option = s && s->arg && !strchr(words[i], '=') ? s : NULL;
        args += !value && (words[i][0] != '-' || !words[i][1]);
    }
    const char *equal = strncmp(k->word, "--", 2) ? NULL : strchr(k->word, '=');
    if (option) {
        offer_values(k, option);
    } else if (equal && (option = find_option(k->command, k->word))) {
        snprintf(k->head, sizeof k->head, "%.*s", (int)(equal + 1 - k->word), k->word);
        k->word = equal + 1;
        offer_values(k, option);
    } else if (k->word[0] == '-') {
        offer_options(k);
    } else {
        offer_argument(k, args);
    }
}

int ntx_complete(int n, char **words)
{
    if (n && !strcmp(words[0], "--")) {
        n--;
        words++;
    }
    struct completion k = {.word = n ? words[n - 1] : ""};
    if (n > 1)
        k.command = ntx_command_find(words[0]);
    if (n < 2 || (n == 2 && !strcmp(words[0], "help")))
        offer_commands(&k);
    if (n < 2)
        offer_words(&k, "help|--help|--version", "|");
    if (k.command)
        complete_command(&k, n, words);
    return 0;
}
