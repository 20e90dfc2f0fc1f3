/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-computed, the compute daemon: arguments, configuration, event loop, signals, readiness. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "common/nearest.h"
#include "common/programs.h"
#include "common/util.h"
#include "computed/program.h"
#include "computed/server/keeper.h"
#include "computed/engine/machines.h"
#include "computed/picture/picture.h"
#include "computed/plan/config_fit.h"
#include "computed/server/server.h"
#include "computed/server/receiver.h"
#include "proto/config_check.h"
#include "shm/region.h"
#include "ntx_version.h"

#define EXIT_USAGE       100
#define EXIT_FAILED      111
#define EXIT_BAD_CONFIG  1 /* of --check-config */
#define CAPTIVE_GRACE_MS 2000

const char *argp_program_version = "ntx-computed " NTX_VERSION " (" NTX_COMMIT ")";

struct args {
    const char *dir, *config, *model, *fault;
    int alive_fd, keep[2];
    bool service, memory_max, places, print_config, check_config, machines;
    unsigned place; /* of [model] at_once: 1 is the first */
    enum ntx_log_level level;
};

struct app { /* everything that a callback needs */
    struct ntx_config config;
    uv_loop_t loop;
    struct ntx_server *server;
    struct ntx_machines *machines;
    struct ntx_keeper keep;
    uv_signal_t term, interrupt;
    uv_poll_t alive;
    uint32_t grace_ms;
};

static error_t parse(int key, char *arg, struct argp_state *st)
{
    struct args *a = st->input;
    char *end;
    switch (key) {
    case 'r': a->dir = arg; return 0;
    case 'c': a->config = arg; return 0;
    case 'm': a->model = arg; return 0;
    case 'f': a->fault = arg; return 0;
    case 's': a->service = true; return 0;
    case NTX__OPT_MEMORY_MAX: a->memory_max = true; return 0;
    case NTX__OPT_PLACES: a->places = true; return 0;
    case NTX__OPT_PLACE:
        a->place = (unsigned)strtoul(arg, &end, 10);
        if (*end || end == arg || a->place < 1 || a->place > 4)
            ntx_usage_error(st, "--place '%s': a number from 1 to 4", arg);
        return 0;
    case NTX__OPT_MACHINES: a->machines = true; return 0;
    case NTX__OPT_KEEP:
        if (sscanf(arg, "%d,%d", &a->keep[0], &a->keep[1]) != 2 || fcntl(a->keep[0], F_GETFD) < 0 ||
            fcntl(a->keep[1], F_GETFD) < 0)
            ntx_usage_error(st, "--keep: '%s' is not a pair of descriptors", arg);
        return 0;
    case NTX__OPT_PRINT_CONFIG: a->print_config = true; return 0;
    case NTX__OPT_CHECK_CONFIG: a->check_config = true; return 0;
    case 'h': argp_state_help(st, stdout, ARGP_HELP_STD_HELP); return 0;
    case 'q': a->level = NTX_LOG_WARN; return 0;
    case 'a':
        a->alive_fd = (int)strtol(arg, &end, 10);
        if (*end || end == arg || a->alive_fd < 0)
            ntx_usage_error(st, "--alive-fd: '%s' is not a descriptor's number", arg);
        return 0;
    case 'l':
        if (!strcmp(arg, "error"))
            a->level = NTX_LOG_ERR;
        else if (!strcmp(arg, "warning"))
            a->level = NTX_LOG_WARN;
        else if (!strcmp(arg, "info"))
            a->level = NTX_LOG_INFO;
        else if (!strcmp(arg, "debug"))
            a->level = NTX_LOG_DEBUG;
        else {
            struct ntx_near near;
            ntx_near_begin(&near, arg, "");
            ntx_near_offer_list(&near, "error|warning|info|debug");
            ntx_usage_error(st, "--log-level: '%s' is none of error, warning, info, debug%s", arg, near.hint);
        }
        return 0;
    case ARGP_KEY_ARG: ntx_usage_error(st, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void on_signal(uv_signal_t *h, int number)
{
    struct app *a = h->data;
    ntx_log(NTX_LOG_INFO, "%s: ending", strsignal(number));
    ntx_server_shutdown(a->server, a->grace_ms);
}

/* The process that started us has ended, and with it all who wait for answers. */
static void on_alive(uv_poll_t *h, int status, int events)
{
    struct app *a = h->data;
    char c;
    (void)status;
    (void)events;
    int fd;
    if (uv_fileno((uv_handle_t *)h, &fd) || (read(fd, &c, 1) < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    uv_poll_stop(h);
    ntx_server_shutdown(a->server, 0);
}

static int watch_signals(struct app *a, const struct args *args, struct ntx_err *err)
{
    uv_signal_t *signals[] = {&a->term, &a->interrupt};
    static const int numbers[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        uv_signal_init(&a->loop, signals[i]);
        signals[i]->data = a;
        uv_signal_start(signals[i], on_signal, numbers[i]);
        uv_unref((uv_handle_t *)signals[i]); /* the loop ends with the server */
    }
    if (args->alive_fd < 0)
        return 0;
    int flags = fcntl(args->alive_fd, F_GETFL);
    if (flags < 0 || fcntl(args->alive_fd, F_SETFL, flags | O_NONBLOCK) || fcntl(args->alive_fd, F_SETFD, FD_CLOEXEC))
        return ntx_err_set(err, -errno, "--alive-fd %d: %s", args->alive_fd, strerror(errno));
    int rc = uv_poll_init(&a->loop, &a->alive, args->alive_fd);
    if (rc)
        return ntx_err_set(err, rc, "--alive-fd %d: %s", args->alive_fd, uv_strerror(rc));
    a->alive.data = a;
    uv_poll_start(&a->alive, UV_READABLE | UV_DISCONNECT, on_alive);
    uv_unref((uv_handle_t *)&a->alive);
    return 0;
}

static void close_handle(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

/* Reports a failed write: a reader would take a part of the output for all of it. */
static int check_output(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return 0;
    ntx_log(NTX_LOG_ERR, "standard output: %s", strerror(errno));
    return EXIT_FAILED;
}

static void log_error(const char *text) { ntx_log(NTX_LOG_ERR, "%s", text); }

/* Logs every error; `systemctl status` shows the last text, and the status with the first. */
static int read_config(struct app *a, const struct args *args, struct ntx_err *err)
{
    const char *path = args->config ? args->config : NTX_CONF_FILE;
    struct ntx_config_errors e = {.say = args->memory_max ? NULL : log_error};
    char status[sizeof e.first.text + 16];
    ntx_config_defaults(&a->config);
    if (!args->config && (!args->service || access(NTX_CONF_FILE, F_OK)))
        return 0;
    int rc = ntx_config_read(path, &a->config, &e, err);
    if (!rc && e.n)
        rc = ntx_err_set(err, -EINVAL, "not started: %s has %u error%s; `ntx config check %s` shows all", path, e.n,
                         e.n > 1 ? "s" : "", path);
    if (rc) {
        snprintf(status, sizeof status, "STATUS=%s", e.n ? e.first.text : err->text);
        ntx_notify(status);
    }
    return rc;
}

static int check_config(const struct args *args)
{
    return ntx_config_check(args->config ? args->config : NTX_CONF_FILE,
                            &(struct ntx_config_checks){.model = ntx_config_fit})
               ? EXIT_BAD_CONFIG
               : check_output();
}

/* The configuration's defaults of a load. The strings stay the configuration's. */
static Ntx__Load load_defaults(const struct ntx_config *c, char **also)
{
    Ntx__Load m = NTX__LOAD__INIT;
    ntx_settings_to_wire(&ntx_load_settings, &c->load, &m);
    m.path = (char *)(uintptr_t)c->model;
    *also = (char *)(uintptr_t)c->also;
    m.also = also;
    m.n_also = *c->also ? 1 : 0;
    return m;
}

/* A socket for one user gives that user all slots. */
static uint32_t per_user(const struct ntx_config *c, bool service)
{
    if (!service)
        return c->max_clients;
    return c->max_per_user ? c->max_per_user : c->max_clients - c->max_clients / 4;
}

/* Starts up, and serves until the shutdown. */
static int run_server(struct app *a, const struct args *args, const char *dir, struct ntx_err *err)
{
    char *also;
    Ntx__Load load = load_defaults(&a->config, &also);
    struct ntx_server_config c = {
        .dir = dir,
        .service = args->service,
        .max_clients = a->config.max_clients,
        .max_per_user = per_user(&a->config, args->service),
        .idle_s = a->config.idle_ms / 1000,
        .max_requests = 16,
        .max_queue = a->config.queue_wait ? 64 : 0,
        .grace_ms = a->config.stop_grace_ms,
        .stall_s = a->config.stall_ms / 1000,
        .defaults = &load,
        .known_list = a->config.models,
        .each_state = a->config.at_once > 1,
        .warm_prefix = a->config.prefix_file,
        .share_all = !strcmp(a->config.share, "all"),
        .group_admin = !strcmp(a->config.admin, "group"),
        .faults = args->fault != NULL,
        .machines = a->machines,
        .keep = a->machines ? NULL : &a->keep,
    };
    if (args->place > 1)
        load.path = (char *)"";
    ntx_keeper_open(&a->keep, args->keep);
    a->grace_ms = args->service ? a->config.stop_grace_ms : CAPTIVE_GRACE_MS;
    if (args->model) {
        load.path = (char *)(uintptr_t)args->model;
        load.n_also = 0;
    }
    load.fault = (char *)(uintptr_t)(args->fault ? args->fault : "");
    int rc = ntx_need_descriptors(NTX_DAEMON_DESCRIPTORS + NTX_SERVER_DESCRIPTORS(c.max_clients), err);
    if (!rc)
        rc = ntx_server_new(&a->loop, &c, &a->server, err);
    if (rc)
        return rc;
    rc = watch_signals(a, args, err);
    if (!rc && !ntx_server_load_kept(a->server) && *load.path)
        rc = ntx_server_load(a->server, &load, err);
    if (rc)
        ntx_server_shutdown(a->server, 0);
    else
        ntx_notify("READY=1");
    uv_run(&a->loop, UV_RUN_DEFAULT);
    if (ntx_server_stuck(a->server)) {
        ntx_server_leave(a->server);
        _exit(EXIT_FAILED);
    }
    if (!rc && ntx_server_lost(a->server))
        rc = ntx_err_set(err, -EIO, "%s", ntx_server_lost(a->server));
    ntx_server_free(a->server);
    uv_walk(&a->loop, close_handle, NULL);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    return rc;
}

static int print_memory_max(const struct ntx_config *c)
{
    uint64_t max = ntx_config_memory_max(c);
    if (max)
        printf("%llu\n", (unsigned long long)max);
    else
        puts("infinity");
    return check_output();
}

static int print_places(const struct ntx_config *c)
{
    for (unsigned i = 2; i <= c->at_once; i++)
        printf("%u\n", i);
    return check_output();
}

static int report_failure(const struct ntx_err *err, int code)
{
    ntx_log(NTX_LOG_ERR, "%s", err->text);
    return code;
}

int main(int argc, char **argv)
{
    struct args args = {.alive_fd = -1, .keep = {-1, -1}, .level = NTX_LOG_INFO};
    static struct app app;
    struct ntx_err err = {0};
    char dir[4096];
    ntx_stdio_init();
    if (argc == 3 && !strcmp(argv[1], "--receive")) /* a receiver of another ntx-computed: computed/server/receiver.h */
        return ntx_receiver_main(*argv[2] == '1');
    if (argc == 2 && !strcmp(argv[1], NTX_PICTURE_PROCESS)) /* decodes one picture: computed/picture/picture.h */
        return ntx_picture_process();
    argp_err_exit_status = EXIT_USAGE;
    ntx_program_parse(&ntx_computed_program, parse, argc, argv, &args);
    ntx_log_init("ntx-computed", args.level);
    if (args.check_config)
        return check_config(&args);
    if (args.print_config) {
        ntx_config_print(stdout);
        return check_output();
    }
    signal(SIGPIPE, SIG_IGN);
    /* a fixed threshold: memory of big requests returns to the kernel at once, or the budget would not hold */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    int rc = read_config(&app, &args, &err);
    if (rc)
        return report_failure(&err, EXIT_USAGE);
    if (args.memory_max)
        return print_memory_max(&app.config);
    if (args.places)
        return print_places(&app.config);
    if (args.place > app.config.at_once) {
        ntx_log(NTX_LOG_INFO, "[model] at_once is %u: nothing to do for number %u", app.config.at_once, args.place);
        ntx_notify("READY=1");
        return 0;
    }
    if (!args.dir && !(rc = ntx_runtime_dir(args.service, dir, sizeof dir, &err)))
        args.dir = dir;
    if (!rc && args.machines)
        rc = ntx_machines_join(&app.machines, &err);
    if (!rc && (rc = uv_loop_init(&app.loop)))
        ntx_err_set(&err, rc, "cannot make an event loop: %s", uv_strerror(rc));
    if (!rc)
        rc = run_server(&app, &args, args.dir, &err);
    ntx_machines_leave(app.machines, !rc && ntx_machines_ended(app.machines));
    if (rc)
        return report_failure(&err, EXIT_FAILED);
    uv_loop_close(&app.loop);
    ntx_config_free(&app.config);
    return 0;
}
