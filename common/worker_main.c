/* SPDX-License-Identifier: Apache-2.0 */
#include "common/worker_main.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/util.h"
#include "ntx_version.h"

enum { EXIT_USAGE = 100, EXIT_RUNTIME = 111 };
enum { O_RUNTIME = 256, O_ALIVE_FD, O_QUIET };

struct arguments {
    const char *dir;
    int alive_fd;
    bool quiet;
};

static const struct argp_option options[] = {
    {"runtime", O_RUNTIME, "DIR", 0, "runtime directory (default: $NTX_RUNTIME, else $XDG_RUNTIME_DIR/ntx)", 0},
    {"alive-fd", O_ALIVE_FD, "N", 0, "inherited descriptor whose end of file ends this process", 0},
    {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},
    {"quiet", O_QUIET, NULL, 0, "log warnings and errors only", 0},
    {0}};

static error_t on_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    char *rest;
    long v;
    switch (key) {
    case O_RUNTIME: a->dir = arg; return 0;
    case O_ALIVE_FD:
        v = strtol(arg, &rest, 10);
        if (*rest || rest == arg || v < 0 || v > 1 << 20)
            ntx_usage_error(state, "--alive-fd %s: not a descriptor's number", arg);
        a->alive_fd = (int)v;
        return 0;
    case 'h': argp_state_help(state, stdout, ARGP_HELP_STD_HELP); return 0;
    case O_QUIET: a->quiet = true; return 0;
    case ARGP_KEY_ARG: ntx_usage_error(state, "'%s': no arguments are expected", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int ntx_worker_main(int argc, char **argv, const char *name, const char *doc,
                    int (*run)(const char *dir, int alive_fd, struct ntx_err *err))
{
    char version[128], dir[200];
    const struct argp argp = {.options = options, .parser = on_option, .doc = doc};
    struct arguments a = {.alive_fd = -1};
    struct ntx_err err = {0};
    ntx_stdio_init();
    snprintf(version, sizeof version, "%s %s", name, NTX_BUILD);
    argp_program_version = version;
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return EXIT_USAGE;
    ntx_log_init(name, a.quiet ? NTX_LOG_WARN : NTX_LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
    umask(0077); /* sockets that it binds are for its user only; it may not change modes later */
    if (a.alive_fd >= 0 && fcntl(a.alive_fd, F_SETFD, FD_CLOEXEC)) {
        ntx_log(NTX_LOG_ERR, "--alive-fd %d: no such descriptor", a.alive_fd);
        return EXIT_USAGE;
    }
    int rc = ntx_need_descriptors(NTX_DAEMON_DESCRIPTORS, &err), unfit = 0;
    if (!rc && !a.dir)
        rc = ntx_runtime_dir(false, dir, sizeof dir, &err);
    if (!rc)
        rc = unfit = run(a.dir ? a.dir : dir, a.alive_fd, &err);
    if (rc)
        ntx_log(NTX_LOG_ERR, "%s", err.text);
    argp_program_version = NULL;
    if (unfit == -EPERM)
        return NTX_EXIT_UNFIT;
    return rc ? EXIT_RUNTIME : 0;
}
