/* ntx-iod: reads the model from the drive into the shared region. Arguments, then iod/daemon.h. */
#include <argp.h>
#include <fcntl.h>
#include <ntx_version.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/util.h"
#include "iod/daemon.h"

enum { EXIT_USAGE = 100, EXIT_RUNTIME = 111 };
enum { O_RUNTIME = 256, O_ALIVE_FD, O_QUIET };

const char *argp_program_version = "ntx-iod " NTX_VERSION " (" NTX_COMMIT ")";

struct arguments {
    const char *dir;
    int alive_fd;
    bool quiet;
};

static const struct argp_option options[] = {
    {"runtime", O_RUNTIME, "DIR", 0, "runtime directory (default: $NTX_RUNTIME, else $XDG_RUNTIME_DIR/ntx)", 0},
    {"alive-fd", O_ALIVE_FD, "N", 0, "inherited descriptor whose end of file ends this process", 0},
    {"quiet", O_QUIET, NULL, 0, "log warnings and errors only", 0},
    {0}};

static error_t on_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    char *rest;
    long v;
    switch (key) {
    case O_RUNTIME:
        a->dir = arg;
        return 0;
    case O_ALIVE_FD:
        v = strtol(arg, &rest, 10);
        if (*rest || rest == arg || v < 0 || v > 1 << 20)
            argp_error(state, "--alive-fd %s: not a descriptor's number", arg);
        a->alive_fd = (int)v;
        return 0;
    case O_QUIET:
        a->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s': no arguments are expected", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = on_option,
        .doc = "Reads the model's weights from the drive into memory shared with ntx-computed. Started by ntx or systemd.",
    };
    struct arguments a = {.alive_fd = -1};
    struct ntx_err err = {0};
    char dir[200];
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &a))
        return EXIT_USAGE;
    ntx_log_init("ntx-iod", a.quiet ? NTX_LOG_WARN : NTX_LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
    if (a.alive_fd >= 0 && fcntl(a.alive_fd, F_SETFD, FD_CLOEXEC)) {
        ntx_log(NTX_LOG_ERR, "--alive-fd %d: no such descriptor", a.alive_fd);
        return EXIT_USAGE;
    }
    if (!a.dir && ntx_runtime_dir(false, dir, sizeof(dir), &err)) {
        ntx_log(NTX_LOG_ERR, "%s", err.text);
        return EXIT_RUNTIME;
    }
    struct ntx_iod_options o = {.dir = a.dir ? a.dir : dir, .alive_fd = a.alive_fd};
    if (ntx_iod_run(&o, &err)) {
        ntx_log(NTX_LOG_ERR, "%s", err.text);
        return EXIT_RUNTIME;
    }
    return 0;
}
