/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway_child.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/http_conf.h"
#include "client/key.h"
#include "client/listen.h"
#include "client/supervise.h"
#include "common/util.h"

enum { AGAIN_MS = 500, LEAVE_MS = 5000 };

struct ntx_gateway_child {
    struct ntx_gateway_options o;
    char dir[256], program[600];
    int fd, quit; /* quit: an eventfd */
    pthread_t thread;
    bool running;
};

static int check_image_hosts(const char *list, struct ntx_err *err)
{
    const char *host[NTX_HTTP_HOSTS];
    unsigned n = 0;
    char *text = strdup(list);
    int rc = text ? ntx_image_hosts_split(text, host, &n, err) : ntx_err_set(err, -ENOMEM, "no memory");
    free(text);
    return rc ? ntx_err_prefix(err, "--image-hosts") : 0;
}

int ntx_gateway_child_new(const struct ntx_gateway_options *o, struct ntx_gateway_child **out, struct ntx_err *err)
{
    char key[NTX_KEY_ROOM];
    struct ntx_gateway_child *g = calloc(1, sizeof *g);
    if (!g)
        return ntx_err_set(err, -ENOMEM, "no memory");
    *g = (struct ntx_gateway_child){.o = *o, .fd = -1, .quit = -1};
    unsigned stall;
    int rc = o->key_file ? ntx_key_read(o->key_file, key, err) : 0;
    if (!rc && o->stall && !ntx_stall_read(o->stall, &stall))
        rc = ntx_err_set(err, -EINVAL, "--stall '%s': seconds from 1 to %d are possible", o->stall, NTX_STALL_MOST);
    int64_t keep_ms;
    if (!rc && o->keep && !ntx_keep_read(o->keep, &keep_ms))
        rc = ntx_err_set(err, -EINVAL, "--keep-alive '%s': a time such as 5m, 30s or 2h, or -1", o->keep);
    if (!rc && (g->fd = ntx_listen(o->listen, "127.0.0.1:8080", err)) < 0)
        rc = g->fd;
    if (!rc && !o->key_file && !ntx_listen_is_local(o->listen))
        rc = ntx_err_set(err, -EINVAL,
                         "--listen %s is reached from other machines: give an API key (--api-key-file FILE), or listen "
                         "at 127.0.0.1:8080",
                         o->listen);
    if (!rc && o->manage_key_file)
        rc = ntx_key_read(o->manage_key_file, key, err);
    if (!rc && o->image_hosts)
        rc = check_image_hosts(o->image_hosts, err);
    const bool manages = o->manage && !strcmp(o->manage, "yes");
    if (!rc && o->manage && !manages && strcmp(o->manage, "no"))
        rc = ntx_err_set(err, -EINVAL, "--manage '%s': yes or no", o->manage);
    if (!rc && manages && !o->manage_key_file && !ntx_listen_is_local(o->listen))
        rc = ntx_err_set(err, -EINVAL, "%s", ntx_manage_refusal);
    if (rc)
        ntx_gateway_child_free(g);
    else
        *out = g;
    return rc;
}

void ntx_gateway_child_url(const struct ntx_gateway_child *g, char *buf, size_t n)
{
    const char *where = g->o.listen, *colon = strrchr(where, ':');
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    unsigned port = 0;
    if (!strncmp(where, "unix:", 5)) {
        snprintf(buf, n, "%s", where);
        return;
    }
    if (!getsockname(g->fd, (struct sockaddr *)&a, &len)) /* port 0 was asked for: the kernel has chosen one */
        port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                             : ((struct sockaddr_in *)&a)->sin_port);
    snprintf(buf, n, "http://%.*s:%u", colon ? (int)(colon - where) : (int)strlen(where), where, port);
}

void ntx_gateway_child_beside(struct ntx_gateway_child *g, unsigned i, const char *dir) { g->o.beside[i] = dir; }

/* ---- the child */

static _Noreturn void become_gateway(const struct ntx_gateway_child *g, pid_t parent)
{
    char fd[16];
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* the parent handles Ctrl-C */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(0);
    snprintf(fd, sizeof fd, "%d", g->fd);
    fcntl(g->fd, F_SETFD, 0); /* the child inherits this one */
    const char *argv[40] = {"ntx-gateway", "--runtime", g->dir, "--listen", g->o.listen, "--listen-fd", fd};
    const struct {
        const char *name, *value;
    } more[] = {{"--api-key-file", g->o.key_file}, {"--cors", g->o.cors},
                {"--hosts", g->o.hosts},           {"--stable-prompts", g->o.stable},
                {"--keep-alive", g->o.keep},       {"--stall", g->o.stall},
                {"--manage", g->o.manage},         {"--manage-key-file", g->o.manage_key_file},
                {"--beside", g->o.beside[0]},      {"--beside", g->o.beside[1]},
                {"--beside", g->o.beside[2]},      {"--image-hosts", g->o.image_hosts}};
    for (unsigned i = 0, n = 7; i < sizeof more / sizeof *more; i++)
        if (more[i].value) {
            argv[n++] = more[i].name;
            argv[n++] = more[i].value;
        }
    execv(g->program, (char *const *)argv);
    ntx_log(NTX_LOG_ERR, "cannot start %s: %s; it belongs beside ntx itself", g->program, strerror(errno));
    _exit(127);
}

static bool told_to_quit(const struct ntx_gateway_child *g, int timeout_ms)
{
    struct pollfd p = {.fd = g->quit, .events = POLLIN};
    return poll(&p, 1, timeout_ms) > 0;
}

static void end_child(pid_t pid, int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    kill(pid, SIGTERM);
    if (poll(&p, 1, LEAVE_MS) <= 0)
        kill(pid, SIGKILL);
}

/* Runs the child once. Returns whether to start it again. */
static bool run_once(struct ntx_gateway_child *g)
{
    pid_t self = getpid(), pid = fork();
    int status = 0;
    if (!pid)
        become_gateway(g, self);
    if (pid < 0) {
        ntx_log(NTX_LOG_ERR, "cannot start ntx-gateway: %s; trying again", strerror(errno));
        return !told_to_quit(g, AGAIN_MS);
    }
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = g->quit, .events = POLLIN}};
    while (pidfd >= 0 && poll(p, 2, -1) < 0 && errno == EINTR)
        ;
    bool leaving = p[1].revents;
    if (leaving || pidfd < 0)
        end_child(pid, pidfd);
    waitpid(pid, &status, 0);
    if (pidfd >= 0)
        close(pidfd);
    if (leaving)
        return false;
    ntx_log(NTX_LOG_ERR, "ntx-gateway ended (%s %d); starting it again", WIFSIGNALED(status) ? "signal" : "exit code",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return !told_to_quit(g, AGAIN_MS);
}

static void *keep_running(void *arg)
{
    while (run_once(arg))
        ;
    return NULL;
}

int ntx_gateway_child_start(struct ntx_gateway_child *g, const char *dir, struct ntx_err *err)
{
    char bin[512];
    int rc = ntx_bin_dir(bin, sizeof bin);
    if (rc)
        return ntx_err_set(err, rc, "cannot find ntx's own directory: %s", strerror(-rc));
    snprintf(g->program, sizeof g->program, "%s/ntx-gateway", bin);
    snprintf(g->dir, sizeof g->dir, "%s", dir);
    if (access(g->program, X_OK))
        return ntx_err_set(err, -errno, "%s: %s; it belongs beside ntx itself", g->program, strerror(errno));
    if ((g->quit = eventfd(0, EFD_CLOEXEC)) < 0)
        return ntx_err_set(err, -errno, "eventfd: %s", strerror(errno));
    rc = -pthread_create(&g->thread, NULL, keep_running, g);
    g->running = !rc;
    return rc ? ntx_err_set(err, rc, "cannot start a thread: %s", strerror(-rc)) : 0;
}

void ntx_gateway_child_free(struct ntx_gateway_child *g)
{
    uint64_t one = 1;
    if (!g)
        return;
    if (g->running && write(g->quit, &one, sizeof one) == sizeof one)
        pthread_join(g->thread, NULL);
    if (g->fd >= 0) {
        close(g->fd);
        ntx_listen_end(g->o.listen);
    }
    if (g->quit >= 0)
        close(g->quit);
    free(g);
}
