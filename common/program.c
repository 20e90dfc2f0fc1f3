/* SPDX-License-Identifier: Apache-2.0 */
#include "common/program.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/nearest.h"
#include "common/util.h"

/* Options that argp adds. */
static const struct argp_option standard_options[] = {
    {"help", '?', NULL, 0, NULL, 0}, {"usage", 256, NULL, 0, NULL, 0}, {"version", 'V', NULL, 0, NULL, 0}, {0}};

/* Calls see(arg, option) for each option of argp, of its children and of argp itself. */
static void each_option(const struct argp *argp, void (*see)(void *arg, const struct argp_option *o), void *arg)
{
    for (const struct argp_option *o = argp->options; o && (o->name || o->key); o++)
        see(arg, o);
    for (const struct argp_child *c = argp->children; c && c->argp; c++)
        each_option(c->argp, see, arg);
}

struct wanted {
    const char *name; /* of a long option; NULL: letter is meant */
    size_t len;
    int letter;
    bool known, exact, value; /* value: it takes one */
};

static void see_option(void *arg, const struct argp_option *o)
{
    struct wanted *w = arg;
    bool fits = w->name ? o->name && !strncmp(o->name, w->name, w->len) : o->key == w->letter;
    if (!fits || w->exact) /* getopt takes the beginning of a name, too */
        return;
    w->known = true;
    w->exact = w->name && !o->name[w->len];
    w->value = o->arg != NULL;
}

static bool is_option(const struct argp *argp, struct wanted *w)
{
    each_option(argp, see_option, w);
    each_option(&(struct argp){.options = standard_options}, see_option, w);
    return w->known;
}

static void offer_option(void *arg, const struct argp_option *o)
{
    if (o->name && !(o->flags & OPTION_HIDDEN))
        ntx_near_offer(arg, o->name, strlen(o->name));
}

/* "--tempp" */
static void refuse_option(const struct argp *argp, const char *program, const char *dashes, const char *word)
{
    struct argp_state st = {.root_argp = argp, .name = (char *)(uintptr_t)program, .err_stream = stderr};
    struct ntx_near near;
    ntx_near_begin(&near, word, "--");
    each_option(argp, offer_option, &near);
    each_option(&(struct argp){.options = standard_options}, offer_option, &near);
    ntx_usage_error(&st, "there is no option '%s%.64s'%s", dashes, word, near.hint);
}

/* Returns whether the option's value is the next argument. */
static bool check_long(const struct argp *argp, const char *program, const char *arg)
{
    char word[128];
    struct wanted w = {.name = arg + 2, .len = strcspn(arg + 2, "=")};
    if (is_option(argp, &w))
        return w.value && !w.name[w.len];
    snprintf(word, sizeof word, "%.*s", (int)w.len, w.name);
    refuse_option(argp, program, "--", word);
    return false;
}

static bool check_letters(const struct argp *argp, const char *program, const char *arg)
{
    for (const char *p = arg + 1; *p; p++) {
        struct wanted w = {.letter = *p};
        if (!is_option(argp, &w))
            refuse_option(argp, program, "-", arg[2] ? arg + 1 : p);
        if (w.value)
            return !p[1];
    }
    return false;
}

void ntx_check_options(const struct argp *argp, const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (argv[i][0] != '-' || !argv[i][1])
            continue;
        bool next = argv[i][1] == '-' ? check_long(argp, name, argv[i]) : check_letters(argp, name, argv[i]);
        i += next;
    }
}

void ntx_program_parse(const struct ntx_program *p, argp_parser_t parser, int argc, char **argv, void *input)
{
    char doc[4096];
    snprintf(doc, sizeof doc, "%s\v%s%sExamples:\n%s", p->doc, p->more ? p->more : "", p->more ? "\n\n" : "",
             p->examples);
    const struct argp argp = {.options = p->options, .parser = parser, .args_doc = "", .doc = doc};
    ntx_check_options(&argp, p->name, argc, argv);
    argp_parse(&argp, argc, argv, 0, NULL, input);
}
