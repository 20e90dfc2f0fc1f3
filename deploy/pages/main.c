/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-pages DIR: writes the man pages of all programs, commands and of ntx.conf below DIR, from the tables from which
 * the programs get their options. It runs in the build, on the building machine; NTX_DATE is the pages' date. */
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/commands/table.h"
#include "common/programs.h"
#include "deploy/pages/roff.h"
#include "proto/config.h"

#define EXITS                                                                                                          \
    "0\tDone.\n"                                                                                                       \
    "100\tWrong usage, or a wrong configuration.\n"                                                                    \
    "111\tA failure at run time; one line on standard error says which.\n"

static int failed;

static void close_page(FILE *f, const char *name)
{
    if (f && !roff_close(f))
        return;
    fprintf(stderr, "ntx-pages: %s: %s\n", name, strerror(errno));
    failed = 1;
}

static void put_exits(FILE *f, const char *more)
{
    roff_list(f, "EXIT STATUS", EXITS);
    for (const char *end; more && (end = strchr(more, '\n')); more = end + 1) {
        char subject[16], text[256];
        size_t n = strcspn(more, "\t");
        snprintf(subject, sizeof subject, "%.*s", (int)n, more);
        snprintf(text, sizeof text, "%.*s", (int)(end - more - (ptrdiff_t)n - 1), more + n + 1);
        roff_item(f, subject, text);
    }
}

static void put_argp(FILE *f, const struct argp_option *options)
{
    for (const struct argp_option *o = options; o->name || o->key; o++)
        if (o->name && !(o->flags & OPTION_HIDDEN))
            roff_option(f, o->name, o->key, o->arg, o->doc);
}

/* ---- programs */

static void write_program(const char *dir, const struct ntx_program *p)
{
    static const struct argp_option standard[] = {{"help", '?', NULL, 0, "show the options", 0},
                                                  {"usage", 256, NULL, 0, "show a short usage", 0},
                                                  {"version", 'V', NULL, 0, "print the version", 0},
                                                  {0}};
    FILE *f = roff_open(dir, p->name, p->section, p->brief);
    if (f) {
        fprintf(f, ".SH SYNOPSIS\n.B %s\n[\\fIOPTION\\fR...]\n.SH DESCRIPTION\n", p->name);
        roff_text(f, p->doc);
        if (p->more) {
            fputs(".PP\n", f);
            roff_text(f, p->more);
        }
        fputs(".SH OPTIONS\n", f);
        put_argp(f, p->options);
        put_argp(f, standard);
        roff_list(f, "FILES", p->files);
        roff_list(f, "ENVIRONMENT", p->environment);
        put_exits(f, p->exits);
        roff_lines(f, "EXAMPLES", p->examples);
        roff_see(f, p->see);
    }
    close_page(f, p->name);
}

/* ---- commands of ntx */

#define CONF_FILES                                                                                                     \
    "$XDG_CONFIG_HOME/ntx/ntx.conf\tDefaults of the user: the model, and options.\n" NTX_CONF_FILE                     \
    "\tThe service's configuration: ntx.conf(5).\n"
#define MODEL_FILES                                                                                                    \
    "$XDG_DATA_HOME/ntx/models/\tModels of `ntx pull`.\n"                                                              \
    "/var/lib/ntx/models/\tModels of the service and of root.\n"
#define DAEMON_FILES "/run/ntx/ntx.sock\tThe service's socket.\n"

#define CONF_PLACE   "XDG_CONFIG_HOME\tDefault: ~/.config.\n"
#define MODEL_PLACE  "XDG_DATA_HOME\tDefault: ~/.local/share.\n"
#define DAEMON_PLACE                                                                                                   \
    "NTX_RUNTIME\tThe runtime directory of the daemons.\n"                                                             \
    "XDG_RUNTIME_DIR\tWithout NTX_RUNTIME, it is ntx below this directory.\n"

struct titled {
    FILE *f;
    const char *title;
};

static void put_setting(void *arg, const char *title, const struct ntx_setting *s)
{
    struct titled *t = arg;
    char help[NTX_OPTION_HELP];
    if (!t->title || strcmp(t->title, title)) {
        t->title = title;
        fprintf(t->f, ".SS %.*s\n", (int)strcspn(title, ":"), title);
    }
    roff_option(t->f, s->name, s->key, s->arg, ntx_option_help(s, help));
}

/* "Answer one prompt" -> "answer one prompt" */
static const char *lower_first(const char *brief, char *buf, size_t n)
{
    snprintf(buf, n, "%s", brief);
    if (!isupper((unsigned char)buf[1]))
        buf[0] = (char)tolower((unsigned char)buf[0]);
    return buf;
}

static void put_files(FILE *f, const struct ntx_command *c)
{
    const unsigned g = ntx_command_groups(c);
    const bool loads = g & NTX_OPT_LOAD, connects = g & NTX_OPT_SOCKET, model = g & NTX_OPT_MODEL;
    const bool names = model || c->kind == NTX_KIND_MODELS;
    char files[1024], places[1024];
    snprintf(files, sizeof files, "%s%s%s", CONF_FILES, names ? MODEL_FILES : "",
             loads || connects ? DAEMON_FILES : "");
    snprintf(
        places, sizeof places, "%s%s%s%s", CONF_PLACE, names ? MODEL_PLACE : "", loads || connects ? DAEMON_PLACE : "",
        g & NTX_OPT_PULL ? "HF_TOKEN\tThe hub's token, for restricted models.\nNTX_HUB\tA mirror of the hub.\n" : "");
    roff_list(f, "FILES", files);
    roff_list(f, "ENVIRONMENT", places);
}

/* The other commands of its kind. */
static void put_related(FILE *f, const struct ntx_command *c)
{
    char see[1024] = "ntx(1)";
    for (unsigned i = 0; i < ntx_n_commands; i++)
        if (ntx_commands[i].kind == c->kind && &ntx_commands[i] != c) {
            const size_t n = strlen(see);
            snprintf(see + n, sizeof see - n, ", ntx-%s(1)", ntx_commands[i].name);
        }
    const size_t n = strlen(see);
    snprintf(see + n, sizeof see - n, ", ntx.conf(5)");
    roff_see(f, see);
}

static void write_command(const char *dir, const struct ntx_command *c)
{
    char name[64], brief[128];
    const char *more = NULL;
    if (!strcmp(c->name, "config"))
        more = "1\tThe configuration has errors.\n";
    else if (c->groups & NTX_OPT_LOGITS)
        more = "1\t--compare found a difference.\n";
    snprintf(name, sizeof name, "ntx-%s", c->name);
    FILE *f = roff_open(dir, name, 1, lower_first(c->brief, brief, sizeof brief));
    if (f) {
        struct titled t = {.f = f};
        fprintf(f, ".SH SYNOPSIS\n.B ntx ");
        for (const char *p = c->name; *p; p++)
            fputs(*p == '-' ? "\\-" : (char[]){*p, 0}, f);
        fputs("\n[\\fIOPTION\\fR...]\n", f);
        if (*c->args)
            roff_text(f, c->args);
        fputs(".SH DESCRIPTION\n", f);
        fprintf(f, "%s.\n", c->brief);
        if (c->doc) {
            fputs(".PP\n", f);
            roff_text(f, c->doc);
        }
        fputs(".SH OPTIONS\n", f);
        ntx_command_options(c, put_setting, &t);
        fputs(t.title ? ".SS Common\n" : "", f);
        put_argp(f, ntx_common_options);
        put_files(f, c);
        put_exits(f, more);
        roff_lines(f, "EXAMPLES", c->examples);
        put_related(f, c);
    }
    close_page(f, name);
}

static void write_ntx(const char *dir)
{
    FILE *f = roff_open(dir, "ntx", 1, "run language models bigger than memory");
    if (f) {
        fputs(".SH SYNOPSIS\n.B ntx\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n", f);
        roff_text(f, "Runs language models bigger than memory: three daemons stream the weights from the drive "
                     "(offload). `ntx run` starts private daemons for one answer or one chat; `ntx up`, `ntx serve` "
                     "and the service keep them running. A page of its own, such as ntx-run(1), has each command's "
                     "options. Sizes are written 512M, 3G (binary), rates 3.3G (bytes per second).");
        fputs(".SH COMMANDS\n", f);
        for (unsigned kind = 0; kind < NTX_N_KINDS; kind++) {
            fprintf(f, ".SS %s\n", ntx_command_kinds[kind]);
            for (const struct ntx_command *c = ntx_commands; c < ntx_commands + ntx_n_commands; c++) {
                char subject[128];
                snprintf(subject, sizeof subject, "ntx %s %s", c->name, c->args);
                if (c->kind == kind)
                    roff_item(f, subject, c->brief);
            }
        }
        fputs(".SH OPTIONS\n", f);
        roff_option(f, "help", 'h', NULL, "list the commands; after a command: its usual options");
        roff_option(f, "help-all", 0, NULL, "after a command: all its options, with more words");
        roff_option(f, "version", 'V', NULL, "print the version");
        roff_list(f, "FILES", CONF_FILES MODEL_FILES DAEMON_FILES);
        roff_list(f, "ENVIRONMENT", CONF_PLACE MODEL_PLACE DAEMON_PLACE);
        put_exits(f, NULL);
        roff_lines(f, "EXAMPLES",
                   "  ntx pull hf:OWNER/REPO:Q4_K_M\n"
                   "  ntx run OWNER/REPO:Q4_K_M \"Why is the sky blue?\"\n"
                   "  ntx serve OWNER/REPO:Q4_K_M --ram 16G");
        roff_see(f, "ntx-run(1), ntx-serve(1), ntx-top(1), ntx-gateway(1), ntx-metrics(1), ntx.conf(5), "
                    "ntx-computed(8), ntx-iod(8), ntx-predictor(8)");
    }
    close_page(f, "ntx");
}

/* ---- ntx.conf */

static void put_key(FILE *f, const struct ntx_setting *s)
{
    char subject[128];
    const char *value = s->open ? s->open : s->preset;
    snprintf(subject, sizeof subject, "%s =%s%s", s->in_conf, *value ? " " : "", value);
    roff_item(f, subject, s->about);
}

static void write_conf(const char *dir)
{
    static const char *const sections[] = {"model", "links", "clients", "prefix", "metrics", "gateway"};
    const struct ntx_setting *s;
    FILE *f = roff_open(dir, "ntx.conf", 5, "configuration of the ntx service");
    if (f) {
        fputs(".SH SYNOPSIS\n.I " NTX_CONF_FILE "\n.SH DESCRIPTION\n", f);
        roff_text(f,
                  "The configuration that ntx-computed, ntx-gateway and ntx-metrics read at start. Lines are \"key = "
                  "value\" below a line \"[section]\"; comments begin with # or ; at the start of a line. Every key "
                  "may be left out. `ntx config check` finds errors; with one, the service does not start, and "
                  "`systemctl status ntx-computed` shows it. After a change: systemctl restart ntx.target\n\n"
                  "Sizes are written 512M, 3G (binary units), rates 3.3G (bytes per second, decimal units). A size "
                  "without a unit would be bytes.");
        fputs(".SH KEYS\nEach key is shown with its default.\n", f);
        for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
            fprintf(f, ".SS [%s]\n", sections[i]);
            for (unsigned pass = 0; pass < 2; pass++) /* the section's own keys, then settings of a load */
                for (unsigned k = 0; (s = ntx_config_key(k, NULL, NULL)); k++)
                    if (s->section && !strcmp(s->section, sections[i]) && (k < ntx_load_settings.n) == pass)
                        put_key(f, s);
        }
        roff_list(f, "FILES",
                  NTX_CONF_FILE "\tRead by the service.\n"
                                "$XDG_CONFIG_HOME/ntx/ntx.conf\tDefaults of a user: [model] as here, and "
                                "[options] with options of ntx-run(1), without their dashes.\n");
        roff_lines(f, "EXAMPLES",
                   "  [model]\n"
                   "  path = /var/lib/ntx/models/OWNER/REPO/model-Q4_K_M.gguf\n"
                   "  ram = 16G\n"
                   "\n"
                   "  [gateway]\n"
                   "  listen = 127.0.0.1:8080");
        roff_see(f, "ntx(1), ntx-config(1), ntx-computed(8), ntx-gateway(1), ntx-metrics(1)");
    }
    close_page(f, "ntx.conf");
}

int main(int argc, char **argv)
{
    static const struct ntx_program *const programs[] = {&ntx_computed_program,  &ntx_iod_program,
                                                         &ntx_predictor_program, &ntx_gateway_program,
                                                         &ntx_top_program,       &ntx_metrics_program};
    if (argc != 2 || !getenv("NTX_DATE"))
        return fputs("usage: NTX_DATE=YYYY-MM-DD ntx-pages DIR\n", stderr), 100;
    write_ntx(argv[1]);
    for (unsigned i = 0; i < ntx_n_commands; i++)
        write_command(argv[1], &ntx_commands[i]);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        write_program(argv[1], programs[i]);
    write_conf(argv[1]);
    return failed;
}
