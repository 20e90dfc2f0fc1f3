/* SPDX-License-Identifier: Apache-2.0 */
/* ntx-metrics: the daemons' counters for Prometheus, over HTTP (libmicrohttpd) or once on standard output. It is a
 * process of its own that may only read the counters' file: the daemon that holds the sessions should not contain a
 * web server. */
#include <argp.h>
#include <errno.h>
#include <ini.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/http_conf.h"
#include "client/http_guard.h"
#include "client/listen.h"
#include "client/monitor/metrics_slots.h"
#include "client/monitor/metrics_text.h"
#include "client/options.h"
#include "client/where.h"
#include "common/programs.h"
#include "common/util.h"
#include "ntx_version.h"

/* LEAVING: connections that were cut off; libmicrohttpd counts them until it has closed them. */
enum { MAX_CONNECTIONS = 32, LEAVING = 32, TIMEOUT_S = 10, CONNECTION_BYTES = 16 << 10, STACK_BYTES = 512 << 10 };

struct options {
    const char *dir, *config;
    bool check;
    char listen[300];
};

const char *argp_program_version = "ntx-metrics " NTX_BUILD;

static error_t parse_opt(int key, char *arg, struct argp_state *st)
{
    struct options *o = st->input;
    switch (key) {
    case 'r': o->dir = arg; return 0;
    case 'h': argp_state_help(st, stdout, ARGP_HELP_STD_HELP); return 0;
    case 'c': o->config = arg; return 0;
    case 'k': o->check = true; return 0;
    case 'l':
        if (strlen(arg) >= sizeof o->listen)
            ntx_usage_error(st, "--listen: longer than %zu bytes", sizeof o->listen - 1);
        snprintf(o->listen, sizeof o->listen, "%s", arg);
        return 0;
    case ARGP_KEY_ARG: ntx_usage_error(st, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Of ntx.conf only [metrics] listen is read here; ntx-computed checks the rest. */
static int on_pair(void *arg, const char *section, const char *name, const char *value)
{
    struct options *o = arg;
    if (!strcmp(section, "metrics") && !strcmp(name, "listen") && !*o->listen)
        snprintf(o->listen, sizeof o->listen, "%s", value);
    return 1;
}

/* ---- answers */

static enum MHD_Result send_answer(struct MHD_Connection *conn, unsigned status, const char *type, char *text,
                                   size_t len, bool ours)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(len, text,
                                                             ours ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result rc = MHD_queue_response(conn, status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result answer_text(struct MHD_Connection *conn, unsigned status, const char *text)
{
    return send_answer(conn, status, "text/plain; charset=utf-8", (char *)(uintptr_t)text, strlen(text), false);
}

/* Ends the connection: the server ignores the rest of it. */
static enum MHD_Result refuse_request(struct MHD_Connection *conn, unsigned status, const char *why)
{
    char text[400];
    int n = snprintf(text, sizeof text, "ntx: %s\n", why);
    struct MHD_Response *r = MHD_create_response_from_buffer((size_t)n, text, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result rc = MHD_queue_response(conn, status, r);
    MHD_destroy_response(r);
    return rc;
}

static void on_done(void *arg, struct MHD_Connection *conn, void **state, enum MHD_RequestTerminationCode how)
{
    (void)arg;
    if (how == MHD_REQUEST_TERMINATED_COMPLETED_OK && ((*state && *state != conn) || ntx_http_has_body(conn)))
        ntx_http_linger(ntx_http_socket(conn));
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **state)
{
    const struct options *o = arg;
    const struct ntx_counters *c = NULL;
    size_t len;
    (void)upload;
    (void)upload_size;
    if (!*state) {
        bool unsupported;
        const char *why = ntx_http_bad(conn, method, version, &unsupported);
        *state = why ? arg : conn; /* after a bad header, more bytes may come than it announces */
        if (why)
            return refuse_request(conn, MHD_HTTP_BAD_REQUEST, why);
        if (strcmp(method, "GET") && strcmp(method, "HEAD"))
            return refuse_request(conn, MHD_HTTP_METHOD_NOT_ALLOWED, "there is GET /metrics");
        return ntx_http_has_body(conn) ? refuse_request(conn, MHD_HTTP_BAD_REQUEST, "a request for metrics has no body")
                                       : MHD_YES;
    }
    if (strcmp(url, "/metrics"))
        return answer_text(conn, MHD_HTTP_NOT_FOUND, "ntx: the metrics are at /metrics\n");
    ntx_counters_open(o->dir, &c, NULL); /* opened each time: ntx-computed makes another file when it starts */
    char *text = ntx_metrics_text(c, &len);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
    if (!text)
        return MHD_NO;
    return send_answer(conn, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, len, true);
}

static int serve_http(struct options *o, struct ntx_err *err)
{
    sigset_t set;
    struct ntx_slots slots;
    struct ntx_http_guard guard;
    int sig, fd = ntx_listen(o->listen, NTX_METRICS_WHERE, err);
    if (fd < 0)
        return fd;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL); /* before MHD's thread is made */
    ntx_slots_init(&slots, MAX_CONNECTIONS);
    int rc = ntx_http_guard_init(&guard);
    struct MHD_Daemon *d = rc ? NULL
                              : MHD_start_daemon(
                                    MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_ERROR_LOG, 0,
                                    NULL, NULL, on_request, o, MHD_OPTION_EXTERNAL_LOGGER, ntx_http_guard_log, &guard,
                                    MHD_OPTION_URI_LOG_CALLBACK, ntx_http_guard_uri, &guard, MHD_OPTION_LISTEN_SOCKET,
                                    fd, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
                                    on_done, NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)(MAX_CONNECTIONS + LEAVING),
                                    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
                                    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
                                    MHD_OPTION_NOTIFY_CONNECTION, ntx_slots_notify, &slots, MHD_OPTION_END);
    if (!d) {
        close(fd);
        return ntx_err_set(err, -EIO, "%s: the HTTP server does not start", o->listen);
    }
    ntx_log(NTX_LOG_INFO, "serving /metrics at %s", o->listen);
    ntx_notify("READY=1");
    sigwait(&set, &sig);
    MHD_stop_daemon(d); /* closes fd */
    ntx_listen_end(o->listen);
    return 0;
}

static int print_once(const struct options *o, struct ntx_err *err)
{
    const struct ntx_counters *c;
    size_t len;
    int rc = ntx_counters_open(o->dir, &c, err);
    if (rc)
        return rc;
    char *text = ntx_metrics_text(c, &len);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
    bool written = text && fwrite(text, 1, len, stdout) == len && !fflush(stdout);
    free(text);
    return written ? 0 : ntx_err_set(err, -EIO, "standard output: cannot be written");
}

static int run_metrics(struct options *o, struct ntx_err *err)
{
    int bad = o->config ? ini_parse(o->config, on_pair, o) : 0;
    if (bad)
        return ntx_err_set(err, -EINVAL,
                           bad < 0 ? "%s: cannot be read" : "%s:%d: neither '[section]' nor 'key = value'", o->config,
                           bad);
    if (*o->listen)
        return serve_http(o, err);
    if (!o->config)
        return print_once(o, err);
    ntx_log(NTX_LOG_INFO, "%s names no address in [metrics] listen: nothing to do", o->config);
    ntx_notify("READY=1");
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct ntx_err err = {0};
    struct ntx_where w;
    ntx_stdio_init();
    argp_err_exit_status = NTX_EXIT_USAGE;
    ntx_program_parse(&ntx_metrics_program, parse_opt, argc, argv, &o);
    ntx_log_init("ntx-metrics", NTX_LOG_INFO);
    if (o.check)
        return ntx_config_check(o.config ? o.config : NTX_CONF_FILE,
                                &(struct ntx_config_checks){.gateway = ntx_http_conf_check}) > 0;
    signal(SIGPIPE, SIG_IGN);
    int rc = o.dir ? 0 : ntx_where(!*o.listen && !o.config, &w, &err);
    if (!o.dir)
        o.dir = w.dir;
    if (!rc || (rc == -ENOENT && (*o.listen || o.config))) /* a server can wait for the daemons */
        rc = run_metrics(&o, &err);
    if (rc)
        ntx_log(NTX_LOG_ERR, "%s", err.text);
    if (!rc)
        return 0;
    return rc == -EINVAL ? NTX_EXIT_USAGE : NTX_EXIT_FAILED;
}
