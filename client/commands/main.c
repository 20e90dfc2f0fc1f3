/* SPDX-License-Identifier: Apache-2.0 */
/* ntx: the command line. Each command of the table (table.c) takes groups of options (options.c). */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client/commands/commands.h"
#include "client/commands/complete.h"
#include "client/commands/table.h"
#include "client/commands/trace.h"
#include "client/terminal.h"
#include "common/nearest.h"
#include "common/util.h"
#include "ntx_version.h"

/* Every command of the table (table.c) is here. */
static const struct {
    const char *name;
    int (*run)(struct ntx_options *o); /* an exit code */
} functions[] = {
    {"run", ntx_cmd_run},
    {"chat", ntx_cmd_chat},
    {"generate", ntx_cmd_generate},
    {"up", ntx_cmd_up},
    {"serve", ntx_cmd_serve},
    {"load", ntx_cmd_load},
    {"unload", ntx_cmd_unload},
    {"prefix", ntx_cmd_prefix},
    {"status", ntx_cmd_status},
    {"stop", ntx_cmd_stop},
    {"pull", ntx_cmd_pull},
    {"search", ntx_cmd_search},
    {"list", ntx_cmd_list},
    {"rm", ntx_cmd_rm},
    {"inspect", ntx_cmd_inspect},
    {"quantize", ntx_cmd_quantize},
    {"imatrix", ntx_cmd_imatrix},
    {"pack", ntx_cmd_pack},
    {"calibrate", ntx_cmd_calibrate},
    {"draft-index", ntx_cmd_draft_index},
    {"doctor", ntx_cmd_doctor},
    {"plan", ntx_cmd_plan},
    {"bench", ntx_cmd_bench},
    {"perplexity", ntx_cmd_perplexity},
    {"eval", ntx_cmd_eval},
    {"trace", ntx_cmd_trace},
    {"analyze", ntx_cmd_analyze},
    {"tokenize", ntx_cmd_tokenize},
    {"detokenize", ntx_cmd_detokenize},
    {"logits", ntx_cmd_logits},
    {"config", ntx_cmd_config},
};

const char *argp_program_version = "ntx " NTX_BUILD;

static int run_command(const struct ntx_command *c, struct ntx_options *o)
{
    size_t i = 0;
    while (strcmp(functions[i].name, c->name) != 0)
        i++;
    return functions[i].run(o);
}

static int refuse_command(const char *name)
{
    struct ntx_near near;
    ntx_near_begin(&near, name, "ntx ");
    for (unsigned i = 0; i < ntx_n_commands; i++)
        ntx_near_offer(&near, ntx_commands[i].name, strlen(ntx_commands[i].name));
    ntx_say("'%.100s' is not a command%s `ntx --help` lists them", name, *near.hint ? near.hint : ";");
    return NTX_EXIT_USAGE;
}

static void print_usage(FILE *to)
{
    fputs("Usage: ntx COMMAND [OPTION...]\nRuns language models bigger than memory: three daemons stream the weights "
          "from\nthe drive (offload).\n",
          to);
    for (unsigned kind = 0; kind < NTX_N_KINDS; kind++) {
        fprintf(to, "\n%s:\n", ntx_command_kinds[kind]);
        for (const struct ntx_command *c = ntx_commands; c < ntx_commands + ntx_n_commands; c++)
            if (c->kind == kind)
                fprintf(to, "  ntx %-11s %-18s %s\n", c->name, c->args, c->brief);
    }
    fputs(
        "\n`ntx COMMAND --help` shows a command's usual options and examples,\n`ntx COMMAND --help-all` every option. "
        "Sizes are written 512M, 3G (binary),\nrates 3.3G (bytes per second). "
        "Exit codes: 0 done, 100 wrong usage,\n111 run-time failure.\n",
        to);
}

/* A command has succeeded only when its output has been written. */
static int flush_output(int code)
{
    errno = 0;
    bool bad = fflush(stdout) || ferror(stdout);
    if (!bad || code)
        return code;
    ntx_say("standard output: %s", errno ? strerror(errno) : "not all of it could be written");
    return NTX_EXIT_FAILED;
}

/* After cleaning up, an interrupted program dies by the signal, as shells expect. */
static int end_by_signal(int code)
{
    int sig = ntx_client_signalled();
    if (code != 128 + sig || !sig)
        return code;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    signal(sig, SIG_DFL);
    fflush(NULL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(sig);
    return code;
}

int main(int argc, char **argv)
{
    struct ntx_options o;
    struct ntx_err err = {0};
    char path[1400], talk_model[4096];
    ntx_stdio_init();
    argp_err_exit_status = NTX_EXIT_USAGE;
    ntx_log_init("ntx", NTX_LOG_INFO);
    ntx_terminal_take_notes();
    if (argc < 2)
        return print_usage(stderr), NTX_EXIT_USAGE;
    if (!strcmp(argv[1], "help") && argc > 2 && ntx_command_find(argv[2])) { /* ntx help run */
        argv[1] = argv[2];
        argv[2] = (char *)"--help";
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "-?") ||
        (!strcmp(argv[1], "help") && argc == 2))
        return print_usage(stdout), flush_output(0);
    if (!strcmp(argv[1], "help"))
        argv[1] = argv[2]; /* the error below names it */
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        return puts(argp_program_version), flush_output(0);
    if (!strcmp(argv[1], "complete")) /* for the shells' completion */
        return flush_output(ntx_complete(argc - 2, argv + 2));
    const struct ntx_command *c = ntx_command_find(argv[1]);
    if (c) {
        ntx_options_parse(c, argc - 1, argv + 1, &o);
        ntx_terminal_set_wrap(!o.no_wrap);
        o.tell_stats = o.verbose;
        if (!strcmp(c->name, "run") && ntx_run_resumes(&o, talk_model, &err))
            return ntx_fail(&err);
        if (ntx_command_takes_model(c) && strcmp(c->name, "serve") && o.n_args &&
            ntx_model_by_name(&o.args[0], path, &err))
            return ntx_fail(&err);
        if (ntx_check_output_guard(c, &o, &err) || ntx_check_writable(o.stats, &err) ||
            ntx_check_writable(o.trace, &err))
            return ntx_fail(&err);
        return end_by_signal(flush_output(run_command(c, &o)));
    }
    return refuse_command(argv[1]);
}
