/* ntx-metrics: the daemons' counters for Prometheus, over HTTP or once on standard output. A process of its own, with nothing but the
 * right to read the counters' file: a web server has no place in the daemon that holds the sessions. HTTP is libmicrohttpd's. */
#include <argp.h>
#include <errno.h>
#include <ini.h>
#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/metrics_seats.h"
#include "client/metrics_text.h"
#include "client/options.h"
#include "client/where.h"
#include "common/util.h"
#include "ntx_version.h"

/* LEAVING: who was sent away counts for libmicrohttpd until it has looked. */
enum { MAX_CONNECTIONS = 32, LEAVING = 32, TIMEOUT_S = 10, CONNECTION_BYTES = 16 << 10, BACKLOG = 512 };

struct options {
    const char *dir, *config;
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
    case 'l':
        if (strlen(arg) >= sizeof o->listen)
            ntx_usage_error(st, "--listen: longer than %zu bytes", sizeof o->listen - 1);
        snprintf(o->listen, sizeof o->listen, "%s", arg);
        return 0;
    case ARGP_KEY_ARG: ntx_usage_error(st, "unexpected argument '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- where to listen */

/* Of ntx.conf, only [metrics] listen is ours; ntx-computed checks the rest. */
static int on_pair(void *arg, const char *section, const char *name, const char *value)
{
    struct options *o = arg;
    if (!strcmp(section, "metrics") && !strcmp(name, "listen") && !*o->listen)
        snprintf(o->listen, sizeof o->listen, "%s", value);
    return 1;
}

static int listen_unix(const char *path, struct ntx_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof a.sun_path)
        return ntx_err_set(err, -EINVAL, "unix:%s: a path of 1 to %zu bytes is expected", path, sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ntx_err_set(err, -errno, "socket: %s", strerror(errno));
    if (!connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return ntx_err_set(err, -EADDRINUSE, "unix:%s: somebody serves there already; stop that one, or give another path", path);
    }
    struct stat st;
    if (!lstat(path, &st) && S_ISSOCK(st.st_mode)) /* of one that was killed */
        unlink(path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || chmod(path, 0660) || listen(fd, BACKLOG)) {
        ntx_err_set(err, -errno, "unix:%s: %s", path, strerror(errno));
        close(fd);
        return err->code;
    }
    return fd;
}

static int listen_at(const struct addrinfo *a, const char *where, struct ntx_err *err)
{
    int one = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ntx_err_set(err, -errno, "%s: socket: %s", where, strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG)) {
        ntx_err_set(err, -errno, "%s: cannot listen there: %s%s", where, strerror(errno),
                    errno == EADDRINUSE ? "; stop who does, or give another port" : errno == EACCES ? "; ports below 1024 are for root" : "");
        close(fd);
        return err->code;
    }
    return fd;
}

/* Digits up to 65535; getaddrinfo takes larger ones for others. */
static bool is_port(const char *s)
{
    size_t n = strlen(s);
    return n && n <= 5 && strspn(s, "0123456789") == n && atoi(s) <= UINT16_MAX;
}

/* "127.0.0.1:9464", "[::1]:9464"; numbers only, so that no name is looked up. */
static int listen_tcp(const char *where, struct ntx_err *err)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *a;
    char host[128];
    const char *colon = strrchr(where, ':');
    size_t n = colon ? (size_t)(colon - where) : 0;
    if (!n || n >= sizeof host)
        return ntx_err_set(err, -EINVAL, "'%s' is no address to listen at; write 127.0.0.1:9464, [::1]:9464 or unix:/path", where);
    if (!is_port(colon + 1))
        return ntx_err_set(err, -EINVAL, "'%s': the port is no number from 0 to %d", where, UINT16_MAX);
    bool v6 = where[0] == '[' && where[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(v6 ? n - 2 : n), where + v6);
    int rc = getaddrinfo(host, colon + 1, &hints, &a);
    if (rc)
        return ntx_err_set(err, -EINVAL, "'%s' is no address to listen at (%s); write 127.0.0.1:9464, [::1]:9464 or unix:/path", where, gai_strerror(rc));
    int fd = listen_at(a, where, err);
    freeaddrinfo(a);
    return fd;
}

/* ---- answers */

static enum MHD_Result answer(struct MHD_Connection *conn, unsigned status, const char *type, char *text, size_t len, bool ours)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(len, text, ours ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result rc = MHD_queue_response(conn, status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result say(struct MHD_Connection *conn, unsigned status, const char *text)
{
    return answer(conn, status, "text/plain; charset=utf-8", (char *)(uintptr_t)text, strlen(text), false);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *url, const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    const struct options *o = arg;
    const struct ntx_counters *c = NULL;
    size_t len;
    (void)version;
    (void)upload;
    if (!*state) { /* the header is there; a body is not wanted, but has to be let pass */
        *state = conn;
        return MHD_YES;
    }
    if (*upload_size) {
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        return say(conn, MHD_HTTP_METHOD_NOT_ALLOWED, "GET /metrics\n");
    if (strcmp(url, "/metrics"))
        return say(conn, MHD_HTTP_NOT_FOUND, "ntx: what there is to see is at /metrics\n");
    ntx_counters_open(o->dir, &c, NULL); /* each time anew: computed makes another file when it starts */
    char *text = ntx_metrics_text(c, &len);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
    if (!text)
        return MHD_NO;
    return answer(conn, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, len, true);
}

static int serve(struct options *o, struct ntx_err *err)
{
    sigset_t set;
    struct ntx_seats seats;
    int sig, fd = strncmp(o->listen, "unix:", 5) ? listen_tcp(o->listen, err) : listen_unix(o->listen + 5, err);
    if (fd < 0)
        return fd;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL); /* before MHD's thread is made */
    ntx_seats_init(&seats, MAX_CONNECTIONS);
    struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL, on_request, o, MHD_OPTION_LISTEN_SOCKET, fd,
                                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)(MAX_CONNECTIONS + LEAVING), MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
                                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_NOTIFY_CONNECTION, ntx_seats_notify,
                                            &seats, MHD_OPTION_END);
    if (!d) {
        close(fd);
        return ntx_err_set(err, -EIO, "%s: the HTTP server does not start", o->listen);
    }
    ntx_log(NTX_LOG_INFO, "serving /metrics at %s", o->listen);
    ntx_notify("READY=1");
    sigwait(&set, &sig);
    MHD_stop_daemon(d); /* closes fd */
    if (!strncmp(o->listen, "unix:", 5))
        unlink(o->listen + 5);
    return 0;
}

static int print(const struct options *o, struct ntx_err *err)
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

static int run(struct options *o, struct ntx_err *err)
{
    int bad = o->config ? ini_parse(o->config, on_pair, o) : 0;
    if (bad)
        return ntx_err_set(err, -EINVAL, bad < 0 ? "%s: cannot be read" : "%s:%d: neither '[section]' nor 'key = value'", o->config, bad);
    if (*o->listen)
        return serve(o, err);
    if (!o->config)
        return print(o, err);
    ntx_log(NTX_LOG_INFO, "%s names no address in [metrics] listen: nothing to do", o->config);
    ntx_notify("READY=1");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"listen", 'l', "WHERE", 0, "serve http://WHERE/metrics: 127.0.0.1:9464, [::1]:9464 or unix:/path (default: print once and exit)", 0},
        {"config", 'c', "FILE", 0, "take the address from [metrics] listen of this ntx.conf", 0},
        {"runtime", 'r', "DIR", 0, "the daemons' runtime directory (default: those of `ntx up`, else the service's, else a private `ntx run` of yours)", 0},
        {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},
        {0},
    };
    static const struct argp argp = {options, parse_opt, "", "The daemons' counters as Prometheus text. Reads them from shared memory and asks nobody anything.", NULL, NULL, NULL};
    struct options o = {0};
    struct ntx_err err = {0};
    struct ntx_where w;
    ntx_stdio_init();
    argp_err_exit_status = NTX_EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    ntx_log_init("ntx-metrics", NTX_LOG_INFO);
    signal(SIGPIPE, SIG_IGN);
    int rc = o.dir ? 0 : ntx_where(!*o.listen && !o.config, &w, &err);
    if (!o.dir)
        o.dir = w.dir;
    if (!rc || (rc == -ENOENT && (*o.listen || o.config))) /* who serves can wait for them */
        rc = run(&o, &err);
    if (rc)
        ntx_log(NTX_LOG_ERR, "%s", err.text);
    return !rc ? 0 : rc == -EINVAL ? NTX_EXIT_USAGE : NTX_EXIT_FAILED;
}
