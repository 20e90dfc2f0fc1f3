/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-gateway: ntx over HTTP, with the APIs of editors, agents and chat pages. It is a client of ntx-computed's
 * socket in its own process: the daemon that holds the sessions should not contain a web server. */
#include <argp.h>
#include <errno.h>
#include <ini.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/gateway/fetch.h"
#include "client/gateway/http.h"
#include "client/gateway/program.h"
#include "client/key.h"
#include "client/listen.h"
#include "client/options.h"
#include "common/programs.h"
#include "common/util.h"
#include "ntx_version.h"
#include "proto/settings.h"

#define DESCRIPTORS 1024 /* a client's connection, and one to ntx-computed */

enum { TELL_MS = 2000, LEAVE_MS = 10000 };

#define CLIENTS 32u /* of ntx-computed, unless ntx.conf says otherwise */

static const char like[] = NTX_GATEWAY_WHERE;

struct options {
    struct ntx_http_config http;
    const char *config;
    bool check;
    int fd;                 /* an inherited listening socket, else -1 */
    unsigned max, per_user; /* connections of ntx-computed, from ntx.conf; 0: not given */
    bool stall, keep;       /* given on the command line */
    char stable[8];         /* "yes", "no", or "" */
    unsigned at_once;       /* of ntx.conf; 0: not given */
    char beside[NTX_PLACES][200];
    unsigned grace_s; /* time for answers under way when a service ends */
    char listen[300], key_file[1024], key[NTX_KEY_ROOM], cors[2048], hosts[2048], image_hosts[2048];
    const char *image_host[NTX_HTTP_HOSTS];
    char manage_file[1024], manage_key[NTX_KEY_ROOM];
};

const char *argp_program_version = "ntx-gateway " NTX_BUILD;

static error_t copy_option(char *to, size_t n, const char *name, const char *value, struct argp_state *st)
{
    if (strlen(value) >= n)
        ntx_usage_error(st, "--%s: longer than %zu bytes", name, n - 1);
    snprintf(to, n, "%s", value);
    return 0;
}

static error_t parse_opt(int key, char *arg, struct argp_state *st)
{
    struct options *o = st->input;
    switch (key) {
    case 'r': o->http.dirs[0] = arg; return 0;
    case 'c': o->config = arg; return 0;
    case 'l': return copy_option(o->listen, sizeof o->listen, "listen", arg, st);
    case 'k': return copy_option(o->key_file, sizeof o->key_file, "api-key-file", arg, st);
    case 'o': return copy_option(o->cors, sizeof o->cors, "cors", arg, st);
    case 'n': return copy_option(o->hosts, sizeof o->hosts, "hosts", arg, st);
    case NTX__GATEWAY_FD: o->fd = atoi(arg); return 0;
    case NTX__GATEWAY_STALL:
        if (!ntx_stall_read(arg, &o->http.stall_s))
            ntx_usage_error(st, "--stall '%s': seconds from 1 to %d are possible", arg, NTX_STALL_MOST);
        o->stall = true;
        return 0;
    case NTX__GATEWAY_STABLE:
        if (strcmp(arg, "yes") && strcmp(arg, "no"))
            ntx_usage_error(st, "--stable-prompts '%s': yes or no", arg);
        return copy_option(o->stable, sizeof o->stable, "stable-prompts", arg, st);
    case NTX__GATEWAY_KEEP:
        if (!ntx_keep_read(arg, &o->http.keep_ms))
            ntx_usage_error(st, "--keep-alive '%s': a time such as 5m, 30s or 2h, or -1", arg);
        o->keep = true;
        return 0;
    case NTX__GATEWAY_BESIDE:
        if (o->http.n_dirs == NTX_PLACES)
            ntx_usage_error(st, "--beside: at most %u", NTX_PLACES - 1);
        o->http.dirs[o->http.n_dirs++] = arg;
        return 0;
    case NTX__GATEWAY_MANAGE:
        if (strcmp(arg, "yes") && strcmp(arg, "no"))
            ntx_usage_error(st, "--manage '%s': yes or no", arg);
        o->http.manage = !strcmp(arg, "yes");
        return 0;
    case NTX__GATEWAY_MANAGE_KEY: return copy_option(o->manage_file, sizeof o->manage_file, "manage-key-file", arg, st);
    case NTX__GATEWAY_IMAGES: return copy_option(o->image_hosts, sizeof o->image_hosts, "image-hosts", arg, st);
    case NTX__GATEWAY_CHECK: o->check = true; return 0;
    case NTX__GATEWAY_FIELDS: ntx_fields_print(stdout); exit(fflush(stdout) ? NTX_EXIT_FAILED : 0);
    case 'h': argp_state_help(st, stdout, ARGP_HELP_STD_HELP); return 0;
    case ARGP_KEY_ARG: ntx_usage_error(st, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Of ntx.conf the gateway reads [gateway], [model] at_once, and from [clients] stop_grace and the numbers of
 * connections; ntx-computed checks the rest. The command line overrides the file. */
static int on_pair(void *arg, const char *section, const char *name, const char *value)
{
    struct options *o = arg;
    if (!strcmp(section, "clients") && !strcmp(name, "stop_grace"))
        o->grace_s = (unsigned)NTX_MIN(strtoul(value, NULL, 10), (unsigned long)NTX_STOP_GRACE_MOST);
    if (!strcmp(section, "clients") && !strcmp(name, "max"))
        o->max = (unsigned)strtoul(value, NULL, 10);
    else if (!strcmp(section, "clients") && !strcmp(name, "per_user"))
        o->per_user = (unsigned)strtoul(value, NULL, 10);
    else if (!strcmp(section, "clients") && !strcmp(name, "queue_wait"))
        o->http.refuse = !strcmp(value, "no");
    else if (!strcmp(section, "model") && !strcmp(name, "at_once"))
        o->at_once = (unsigned)NTX_MIN(strtoul(value, NULL, 10), (unsigned long)NTX_PLACES);
    if (strcmp(section, "gateway"))
        return 1;
    if (!strcmp(name, "listen") && !*o->listen)
        snprintf(o->listen, sizeof o->listen, "%s", value);
    else if (!strcmp(name, "api_key_file") && !*o->key_file)
        snprintf(o->key_file, sizeof o->key_file, "%s", value);
    else if (!strcmp(name, "cors") && !*o->cors)
        snprintf(o->cors, sizeof o->cors, "%s", value);
    else if (!strcmp(name, "hosts") && !*o->hosts)
        snprintf(o->hosts, sizeof o->hosts, "%s", value);
    else if (!strcmp(name, "image_hosts") && !*o->image_hosts)
        snprintf(o->image_hosts, sizeof o->image_hosts, "%s", value);
    else if (!strcmp(name, "stable_prompts") && !*o->stable)
        snprintf(o->stable, sizeof o->stable, "%s", value);
    else if (!strcmp(name, "keep_alive") && !o->keep)
        ntx_keep_read(value, &o->http.keep_ms); /* `ntx config check` refuses an invalid value */
    else if (!strcmp(name, "stall") && !o->stall)
        ntx_stall_read(value, &o->http.stall_s); /* ntx-computed refuses an invalid value */
    return 1;
}

static int split_lists(struct options *o, struct ntx_err *err)
{
    int rc = ntx_origins_split(o->cors, o->http.cors, &o->http.n_cors, err);
    o->http.own_pages_only = o->http.n_cors && !strcmp(o->http.cors[0], "none");
    unsigned n = 0;
    if (!rc && !(rc = ntx_hosts_split(o->hosts, o->http.hosts, &o->http.n_hosts, err)))
        rc = ntx_image_hosts_split(o->image_hosts, o->image_host, &n, err);
    ntx_api_request_image_hosts(o->image_host, n);
    return rc;
}

/* ---- serving */

/* Answers under way get the time that ntx-computed gives them, and a moment to report their end; then, or at another
 * signal, they are cut short. */
static void drain_requests(struct ntx_http *h, const struct options *o, const sigset_t *set)
{
    const struct timespec look = {.tv_nsec = 20000000};
    char text[80];
    uint64_t left_ms = o->grace_s * 1000ull + TELL_MS, end = ntx_now_ns() + left_ms * 1000000;
    snprintf(text, sizeof text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
             (unsigned long long)(left_ms + LEAVE_MS) * 1000);
    ntx_notify(text);
    ntx_http_drain(h);
    while (ntx_http_busy(h) && ntx_now_ns() < end && sigtimedwait(set, NULL, &look) < 0)
        ;
}

/* The socket that `ntx serve` holds: an earlier gateway may have shut it down. */
static int relisten(int fd, struct ntx_err *err)
{
    return listen(fd, SOMAXCONN) ? ntx_err_set(err, -EINVAL, "--listen-fd %d: %s", fd, strerror(errno)) : fd;
}

static int serve_http(struct options *o, struct ntx_err *err)
{
    sigset_t set;
    struct ntx_http *h;
    int sig, fd = o->fd >= 0 ? relisten(o->fd, err) : ntx_listen(o->listen, like, err);
    o->http.local = ntx_listen_is_local(o->listen);
    if (fd < 0)
        return fd;
    if (!o->http.local && !o->http.key) {
        close(fd);
        return ntx_err_set(err, -EINVAL,
                           "%s is reached from other machines: give an API key (--api-key-file FILE, or [gateway] "
                           "api_key_file), or listen at %s",
                           o->listen, like);
    }
    if (!o->http.local && o->http.manage && !o->http.manage_key) {
        close(fd);
        return ntx_err_set(err, -EINVAL, "%s", ntx_manage_refusal);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL); /* before there are threads */
    int rc = ntx_http_start(&o->http, fd, &h, err);
    if (rc)
        return rc;
    ntx_log(NTX_LOG_INFO, "serving %s%s", strncmp(o->listen, "unix:", 5) ? "http://" : "", o->listen);
    ntx_notify("READY=1");
    sigwait(&set, &sig);
    if (o->fd < 0)
        ntx_listen_end(o->listen);
    if (o->config && sig == SIGTERM)
        drain_requests(h, o, &set);
    ntx_http_stop(h);
    return 0;
}

/* The further daemons of a service, as its units name their directories. */
static int add_places(struct options *o, struct ntx_err *err)
{
    int rc = 0;
    if (o->http.n_dirs > 1 || o->at_once < 2)
        return 0;
    if (!o->http.dirs[0]) {
        rc = ntx_runtime_dir(true, o->beside[0], sizeof o->beside[0], err);
        o->http.dirs[0] = o->beside[0];
    }
    for (unsigned i = 1; !rc && i < o->at_once; i++) {
        if (snprintf(o->beside[i], sizeof o->beside[i], "%s/place-%u", o->http.dirs[0], i + 1) >=
            (int)sizeof o->beside[i])
            rc = ntx_err_set(err, -ENAMETOOLONG, "%s: too long for a directory below it", o->http.dirs[0]);
        o->http.dirs[o->http.n_dirs++] = o->beside[i];
    }
    return rc;
}

static int run_gateway(struct options *o, struct ntx_err *err)
{
    int bad = o->config ? ini_parse(o->config, on_pair, o) : 0;
    if (bad)
        return ntx_err_set(err, -EINVAL,
                           bad < 0 ? "%s: cannot be read" : "%s:%d: neither '[section]' nor 'key = value'", o->config,
                           bad);
    if (!*o->listen && o->config) {
        ntx_log(NTX_LOG_INFO, "%s names no address in [gateway] listen: nothing to do", o->config);
        ntx_notify("READY=1");
        return 0;
    }
    if (!*o->listen)
        snprintf(o->listen, sizeof o->listen, "%s", like);
    int rc = *o->key_file ? ntx_key_read(o->key_file, o->key, err) : 0;
    if (!rc && *o->manage_file)
        rc = ntx_key_read(o->manage_file, o->manage_key, err);
    o->http.manage_key = *o->manage_file ? o->manage_key : NULL;
    o->max = o->max ? o->max : CLIENTS;
    o->http.clients = o->per_user ? NTX_MIN(o->per_user, o->max) : NTX_MAX(3 * o->max / 4, 1u);
    o->http.key = *o->key_file ? o->key : NULL;
    ntx_api_request_stable(strcmp(o->stable, "no"));
    if (!rc)
        rc = split_lists(o, err);
    if (!rc)
        rc = add_places(o, err);
    if (!rc)
        rc = ntx_need_descriptors(DESCRIPTORS, err);
    return rc ? rc : serve_http(o, err);
}

int main(int argc, char **argv)
{
    static struct options o = {.fd = -1};
    struct ntx_err err = {0};
    ntx_stdio_init();
    o.http.n_dirs = 1;
    o.http.keep_ms = NTX_KEEP_EVER;
    o.http.stall_s = (unsigned)strtoul(NTX_GATEWAY_STALL, NULL, 10);
    o.grace_s = (unsigned)strtoul(NTX_STOP_GRACE, NULL, 10);
    argp_err_exit_status = NTX_EXIT_USAGE;
    ntx_program_parse(&ntx_gateway_program, parse_opt, argc, argv, &o);
    ntx_log_init("ntx-gateway", NTX_LOG_INFO);
    if (o.check)
        return ntx_config_check(o.config ? o.config : NTX_CONF_FILE,
                                &(struct ntx_config_checks){.gateway = ntx_http_conf_check}) > 0;
    signal(SIGPIPE, SIG_IGN);
    int rc = run_gateway(&o, &err);
    if (rc)
        ntx_log(NTX_LOG_ERR, "%s", err.text);
    if (!rc)
        return 0;
    return rc == -EINVAL ? NTX_EXIT_USAGE : NTX_EXIT_FAILED;
}
