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

struct arguments {
    const char *dir;
    int alive_fd;
    bool quiet;
};

static error_t on_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    char *rest;
    long v;
    switch (key) {
    case NTX_WORKER_RUNTIME: a->dir = arg; return 0;
    case NTX_WORKER_ALIVE_FD:
        v = strtol(arg, &rest, 10);
        if (*rest || rest == arg || v < 0 || v > 1 << 20)
            ntx_usage_error(state, "--alive-fd %s: not a descriptor's number", arg);
        a->alive_fd = (int)v;
        return 0;
    case 'h': argp_state_help(state, stdout, ARGP_HELP_STD_HELP); return 0;
    case NTX_WORKER_QUIET: a->quiet = true; return 0;
    case ARGP_KEY_ARG: ntx_usage_error(state, "'%s': no arguments are expected", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int ntx_worker_main(int argc, char **argv, const struct ntx_program *p,
                    int (*run)(const char *dir, int alive_fd, struct ntx_err *err))
{
    char version[128], dir[200];
    struct arguments a = {.alive_fd = -1};
    struct ntx_err err = {0};
    ntx_stdio_init();
    snprintf(version, sizeof version, "%s %s", p->name, NTX_BUILD);
    argp_program_version = version;
    argp_err_exit_status = EXIT_USAGE;
    ntx_program_parse(p, on_option, argc, argv, &a);
    ntx_log_init(p->name, a.quiet ? NTX_LOG_WARN : NTX_LOG_INFO);
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
