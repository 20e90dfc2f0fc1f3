/* SPDX-License-Identifier: Apache-2.0 */
#include "client/options.h"
#include "client/options_brief.h"
#include "client/options_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/nearest.h"
#include "common/program.h"
#include "common/util.h"
#include "model/chat.h"
#include "proto/frame.h"

enum { N_GROUPS = NTX__N_OPTION_GROUPS, GROUP_KEYS = NTX__GROUP_KEYS };

static const struct option_group *const groups = ntx__option_groups;

/* ---- argp */

struct parse {
    const struct ntx_command *cmd;
    struct ntx_options *o;
    struct argp *argp;
    struct section *sections; /* [N_GROUPS] */
    struct argp_child *kids;
    unsigned n_kids; /* sections in use */
    unsigned groups; /* groups of options that the command takes */
    char doc[4096];
};

static void describe_command(struct parse *p, bool all);

/* NULL: it is none of the entries. */
static const struct ntx_setting *find_key(int key, unsigned selected, const struct option_group **of)
{
    for (const struct option_group *g = groups; g < groups + N_GROUPS; g++)
        for (unsigned i = 0; selected & g->group && i < ntx__option_entries(g)->n; i++)
            if (ntx__option_entries(g)->entry[i].help && ntx__option_key(g, i) == key)
                return *of = g, &ntx__option_entries(g)->entry[i];
    return NULL;
}

/* A path that was made whole; options borrow it until the program ends. */
struct whole {
    struct whole *next;
    char path[];
};

static const char *whole_path(const char *path)
{
    static struct whole *kept;
    char *dir = *path && *path != '/' ? getcwd(NULL, 0) : NULL;
    size_t n = dir ? strlen(dir) + strlen(path) + 2 : 0;
    struct whole *w = n ? malloc(sizeof *w + n) : NULL;
    if (w) {
        snprintf(w->path, n, "%s/%s", dir, path);
        w->next = kept;
        kept = w;
    }
    free(dir);
    return w ? w->path : path;
}

static error_t row_opt(int key, const char *arg, struct parse *p, struct argp_state *st)
{
    const struct option_group *g;
    const struct ntx_setting *s = find_key(key, p->groups, &g);
    struct ntx_err err = {0};
    if (!s)
        return ARGP_ERR_UNKNOWN;
    if (s->kind == NTX_SET_PATH) /* the daemons stand elsewhere */
        arg = whole_path(arg);
    if (ntx_setting_read(s, arg, (char *)p->o + g->base, &err))
        ntx_usage_error(st, "%s%s: %s", s->name[1] ? "--" : "-", s->name, err.text);
    return 0;
}

static error_t common_opt(int key, struct parse *p, struct argp_state *st)
{
    switch (key) {
    case 'v': p->o->verbose = true; return 0;
    case 'h':
    case '?': argp_state_help(st, stdout, ARGP_HELP_STD_HELP); return 0;
    case NTX__HELP_ALL:
        describe_command(p, true);
        argp_state_help(st, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case NTX__USAGE:
        describe_command(p, true);
        argp_state_help(st, stdout, ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
        return 0;
    case 'V': puts(argp_program_version); exit(0);
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Puts what came by an option where it would stand as an argument. */
static void insert_arg(struct parse *p, unsigned at, const char *what, struct argp_state *st)
{
    struct ntx_options *o = p->o;
    if (o->n_args == p->cmd->max_args)
        ntx_usage_error(st, "unexpected argument '%s': the model or the prompt is given twice", o->args[o->n_args - 1]);
    if (at > o->n_args)
        ntx_usage_error(st, "%s needs %s", p->cmd->name, p->cmd->args);
    memmove(o->args + at + 1, o->args + at, (o->n_args - at) * sizeof *o->args);
    o->args[at] = what;
    o->n_args++;
}

static error_t parse_opt(int key, char *arg, struct argp_state *st)
{
    struct parse *p = st->input;
    bool prompts = strstr(p->cmd->args, "PROMPT") != NULL; /* behind which only a '-' may stand */
    switch (key) {
    case ARGP_KEY_ARG:
        if (p->o->n_args == p->cmd->max_args || (prompts && p->o->n_args + 1 == p->cmd->max_args && strcmp(arg, "-")))
            ntx_usage_error(st, "unexpected argument '%s'%s", arg,
                            prompts ? "; a prompt of several words goes in quotes" : "");
        p->o->args[p->o->n_args++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (!p->o->n_args && p->groups & NTX_OPT_MODEL && !p->o->list && !p->o->respawn && !p->o->resume)
            p->o->model = p->o->model ? p->o->model : p->o->defaults.model;
        if (p->o->model)
            insert_arg(p, 0, p->o->model, st);
        if (p->o->prompt)
            insert_arg(p, p->groups & NTX_OPT_MODEL ? 1 : 0, p->o->prompt, st);
        if (p->o->n_args < p->cmd->min_args && !p->o->resume)
            ntx_usage_error(st, "%s needs %s", p->cmd->name, p->cmd->args);
        return 0;
    case ARGP_KEY_INIT:
        for (unsigned i = 0; i < p->n_kids; i++)
            st->child_inputs[i] = p;
        return 0;
    }
    error_t rc = row_opt(key, arg, p, st);
    return rc == ARGP_ERR_UNKNOWN ? common_opt(key, p, st) : rc;
}

static error_t parse_child(int key, char *arg, struct argp_state *st)
{
    if (key == ARGP_KEY_ARG || key == ARGP_KEY_END || key == ARGP_KEY_INIT)
        return ARGP_ERR_UNKNOWN;
    return parse_opt(key, arg, st);
}

/* One titled part of the help. */
struct section {
    struct argp_option options[GROUP_KEYS]; /* the last is {0} */
    char help[GROUP_KEYS][NTX_OPTION_HELP]; /* of those that show a preset */
    struct argp argp;
};

/* Without `all`, the options that have a short text (options_brief.c) are shown, the others only parsed. */
static void add_options(struct section *s, const struct option_group *g, bool all)
{
    unsigned n = 0;
    while (s->options[n].name)
        n++;
    for (unsigned i = 0; i < ntx__option_entries(g)->n && n + 1 < GROUP_KEYS; i++) {
        const struct ntx_setting *e = &ntx__option_entries(g)->entry[i];
        if (!e->help)
            continue;
        const char *brief = ntx__option_brief(g->group, e->name);
        const char *text = all || !brief ? ntx_option_help(e, s->help[n]) : brief;
        s->options[n] = (struct argp_option){
            e->name, ntx__option_key(g, i), e->arg, all || brief ? 0 : OPTION_HIDDEN, text, 0};
        n++;
    }
}

static bool any_shown(const struct section *s)
{
    for (const struct argp_option *o = s->options; o->name; o++)
        if (!(o->flags & OPTION_HIDDEN))
            return true;
    return false;
}

/* Returns the number of sections. */
static unsigned make_sections(unsigned selected, bool all, struct section *sections, struct argp_child *kids)
{
    unsigned n = 0;
    const char *title = "";
    memset(sections, 0, N_GROUPS * sizeof *sections);
    for (unsigned i = 0; i < N_GROUPS; i++) {
        if (!(selected & groups[i].group))
            continue;
        if (strcmp(title, groups[i].title)) {
            title = groups[i].title;
            sections[n].argp = (struct argp){sections[n].options, parse_child, 0, 0, 0, 0, 0};
            kids[n] = (struct argp_child){&sections[n].argp, 0, title, (int)n + 1};
            n++;
        }
        add_options(&sections[n - 1], &groups[i], all);
    }
    for (unsigned i = 0; i < n; i++)
        if (!any_shown(&sections[i]))
            kids[i].header = NULL;
    return n;
}

/* Makes the help's text: --help has the usual options and examples, --help-all every option and the explanation. */
static void describe_command(struct parse *p, bool all)
{
    const struct ntx_command *c = p->cmd;
    const char *more = all && c->doc ? c->doc : "";
    p->n_kids = make_sections(p->groups, all, p->sections, p->kids);
    snprintf(p->doc, sizeof p->doc, "%s.\v%s%sExamples:\n%s", c->brief, more, *more ? "\n\n" : "", c->examples);
    p->argp->doc = p->doc;
}

/* Leaves out argp's note on short options. */
static char *filter_help(int key, const char *text, void *input)
{
    (void)input;
    return key == ARGP_KEY_HELP_DUP_ARGS_NOTE ? NULL : (char *)text;
}

/* "predictive" and its options become the policy's text (predictor/policy.h). */
static void compose_skip(struct ntx_options *o)
{
    if (!o->load.skip || (strcmp(o->load.skip, "static") && strcmp(o->load.skip, "predictive")))
        return;
    int n = snprintf(o->skip_policy, sizeof o->skip_policy, "%s", o->load.skip);
    if (o->skip_threshold >= 0)
        n += snprintf(o->skip_policy + n, sizeof o->skip_policy - (size_t)n, ":threshold=%g",
                      (double)o->skip_threshold);
    if (o->skip_most)
        snprintf(o->skip_policy + n, sizeof o->skip_policy - (size_t)n, "%smax=%u", o->skip_threshold >= 0 ? "," : ":",
                 o->skip_most);
}

static void new_seed(struct ntx_options *o)
{
    uint64_t *seed = &o->sampling.seed;
    o->sampling.has_seed = false;
    if (getrandom(seed, sizeof *seed, 0) == sizeof *seed)
        *seed &= 0xffffffff; /* short enough to type again */
}

static bool same_name(const char *option, const char *name)
{
    for (; *option && (*option == *name || (*option == '-' && *name == '_')); option++)
        name++;
    return !*option && !*name;
}

static void refuse_template(const char *path, int errnum, struct ntx_err *err)
{
    struct ntx_near near;
    ntx_near_begin(&near, path, "");
    ntx_near_offer_list(&near, ntx_chat_names());
    ntx_err_set(err, -ENOENT, "--chat-template: '%s' is neither a name (%s) nor a file that can be read: %s%s", path,
                ntx_chat_names(), strerror(errnum), near.hint);
}

/* The text of the file, which options borrow until the program ends. */
static const char *template_text(const char *path, struct ntx_err *err)
{
    enum { MOST = 1 << 20 };
    static char *kept;
    FILE *f = fopen(path, "rb");
    char *p = f ? malloc(MOST + 2) : NULL;
    size_t n = p ? fread(p, 1, MOST + 1, f) : 0;
    if (!f)
        refuse_template(path, errno, err);
    else if (!p || ferror(f) || !n || n > MOST || memchr(p, 0, n))
        ntx_err_set(err, -EINVAL, "--chat-template %s: it must be a text of 1 byte to 1 MiB", path);
    else
        ntx_chat_check(p, n, err);
    if (f)
        fclose(f);
    if (err->code) {
        free(p);
        return NULL;
    }
    p[n] = 0;
    free(kept);
    return kept = p;
}

/* --chat-template: a name of the table, or else a file. running: the model is another process's. */
static int read_template(struct ntx_options *o, bool running, struct ntx_err *err)
{
    struct ntx_err why = {0};
    if (!o->chat_template || ntx_chat_by_name(o->chat_template))
        return 0;
    const char *text = template_text(o->chat_template, &why);
    if (!text)
        return ntx_err_set(err, why.code, strncmp(why.text, "--", 2) ? "--chat-template %s: %s" : "%.0s%s",
                           o->chat_template, why.text);
    if (running)
        return ntx_err_set(err, -EINVAL,
                           "--chat-template %s: the running daemons have their model's template: give the file to `ntx "
                           "load`, `ntx up` or `ntx serve`",
                           o->chat_template);
    o->template_file = o->chat_template;
    o->template_text = text;
    o->chat_template = NULL;
    return 0;
}

/* Takes the key of one's own ntx.conf as if it were an option. */
static void take_load_template(struct ntx_options *o)
{
    const char *set = o->load.chat_template;
    o->chat_template = o->chat_template || !set || !*set ? o->chat_template : set;
    o->load.chat_template = NULL;
}

/* A default of a person's own ntx.conf, of a command that knows it. */
static int take_default(void *arg, const char *section, const char *name, const char *value, struct ntx_err *err)
{
    struct parse *p = arg;
    bool model = strcmp(section, "options") != 0;
    for (const struct option_group *g = groups; g < groups + N_GROUPS; g++)
        for (unsigned i = 0; g->group & (NTX_OPT_LOAD | NTX_OPT_GEN) && i < ntx__option_entries(g)->n; i++) {
            const struct ntx_setting *s = &ntx__option_entries(g)->entry[i];
            if (model ? !s->section || strcmp(s->section, section) || strcmp(s->in_conf, name)
                      : !s->help || !same_name(s->name, name))
                continue;
            bool open = model && s->open && !strcmp(value, s->open);
            return !open && p->groups & g->group ? ntx_setting_read(s, value, (char *)p->o + g->base, err) : 0;
        }
    return ntx_err_set(err, -ENOENT, "no such key");
}

void ntx_options_parse(const struct ntx_command *cmd, int argc, char **argv, struct ntx_options *o)
{
    static struct section sections[N_GROUPS]; /* too big for a small stack */
    struct argp_child kids[N_GROUPS + 1] = {0};
    struct ntx_err err = {0};
    char name[64];
    const unsigned selected = ntx_command_groups(cmd);
    struct argp argp = {ntx_common_options, parse_opt, cmd->args, NULL, kids, filter_help, NULL};
    struct parse p = {.cmd = cmd, .o = o, .argp = &argp, .sections = sections, .kids = kids, .groups = selected};
    describe_command(&p, false);
    *o = (struct ntx_options){.skip_threshold = -1, .threshold = -1};
    for (unsigned i = 0; i < N_GROUPS; i++)
        ntx_settings_preset(ntx__option_entries(&groups[i]), (char *)o + groups[i].base);
    snprintf(name, sizeof name, "ntx %s", cmd->name);
    argv[0] = name;
    if (selected & (NTX_OPT_LOAD | NTX_OPT_GEN | NTX_OPT_MODEL) &&
        ntx_defaults_read(&o->defaults, take_default, &p, &err)) {
        ntx_say("%s", err.text);
        exit(NTX_EXIT_USAGE);
    }
    ntx_check_options(&argp, name, argc, argv);
    argp_parse(&argp, argc, argv, ARGP_NO_HELP, NULL, &p);
    if (o->raw && !o->sampling.has_temp)
        o->sampling.temp = 0;
    compose_skip(o);
    if (!o->sampling.has_seed || o->sampling.seed == UINT32_MAX) /* as llama.cpp writes -1 */
        new_seed(o);
    take_load_template(o);
    if (read_template(o, !(selected & NTX_OPT_LOAD), &err)) {
        ntx_say("%s", err.text);
        exit(NTX_EXIT_USAGE);
    }
}

/* One of the text's that may change within a conversation; NULL: none is called so. */
static const struct ntx_setting *find_name(const char *name, const struct option_group **of)
{
    for (const struct option_group *g = groups; g < groups + N_GROUPS; g++)
        for (unsigned i = 0; g->group == NTX_OPT_GEN && i < ntx__option_entries(g)->n; i++)
            if (ntx__option_entries(g)->entry[i].help && same_name(ntx__option_entries(g)->entry[i].name, name))
                return *of = g, &ntx__option_entries(g)->entry[i];
    return NULL;
}

int ntx_options_set(struct ntx_options *o, const char *name, const char *value, struct ntx_err *err)
{
    const struct option_group *g;
    const struct ntx_setting *s = find_name(name, &g);
    struct ntx_err why = {0};
    if (!s || !strcmp(s->name, "raw") || !strcmp(s->name, "no-special") || !strcmp(s->name, "file") ||
        !strcmp(s->name, "system") || !strcmp(s->name, "image") || !strcmp(s->name, "grammar") ||
        !strcmp(s->name, "json-schema"))
        return ntx_err_set(err, -EINVAL, "there is no option '%s' that can be set here", name);
    if (!strcmp(s->name, "seed") && (!strcmp(value, "random") || !strcmp(value, "-1")))
        return new_seed(o), 0;
    if (!strcmp(s->name, "stop") && !strcmp(value, "none"))
        return o->n_stops = 0;
    int rc = ntx_setting_read(s, value, (char *)o + g->base, &why);
    return rc ? ntx_err_set(err, rc, "%s: %s", s->name, why.text) : 0;
}

void ntx_options_load(const struct ntx_options *o, Ntx__Load *m)
{
    struct ntx_load_settings s = o->load;
    if (o->skip_policy[0])
        s.skip = o->skip_policy;
    s.think = o->think ? o->think : s.think;
    s.chat_template = o->template_text ? o->template_text : o->chat_template;
    ntx_settings_to_wire(&ntx_load_settings, &s, m);
    m->copies = o->n_also + 1;
}

void ntx_options_sampling(const struct ntx_options *o, Ntx__Sampling *m)
{
    ntx_settings_to_wire(&ntx_sampling_settings, &o->sampling, m);
    m->top_p = m->top_p > 0 ? m->top_p : NTX_LEAST_SHARE;
    m->typical_p = m->typical_p > 0 ? m->typical_p : NTX_LEAST_SHARE;
    if (o->sampling.has_repeat_last && !o->sampling.repeat_last)
        m->repeat_penalty = 0; /* in the message, repeat_last 0 is the default */
}
