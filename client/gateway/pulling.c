/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/pulling.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/supervise.h"

enum { LINE_MOST = 65536 };

/* Standard input and errors go nowhere, and the signals that this process blocks or ignores are as usual. */
static int spawn_program(char *const argv[], int out, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, pipes;
    int rc = posix_spawn_file_actions_init(&files);
    if (rc)
        return -rc;
    if ((rc = posix_spawnattr_init(&how))) {
        posix_spawn_file_actions_destroy(&files);
        return -rc;
    }
    sigemptyset(&none);
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    rc = rc ? rc : posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &pipes);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = rc ? rc : posix_spawn(pid, argv[0], &files, &how, argv, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

int ntx_pulling_start(const char *name, struct ntx_pulling *p, struct ntx_err *err)
{
    char bin[512], program[600];
    int ends[2], rc = ntx_bin_dir(bin, sizeof bin);
    if (rc)
        return ntx_err_set(err, rc, "cannot find ntx's own directory: %s", strerror(-rc));
    if (pipe2(ends, O_CLOEXEC))
        return ntx_err_set(err, -errno, "pipe: %s", strerror(errno));
    snprintf(program, sizeof program, "%s/ntx", bin);
    char *const argv[] = {program, (char *)"pull", (char *)(uintptr_t)name, (char *)"--json", (char *)"--quiet", NULL};
    *p = (struct ntx_pulling){.fd = ends[0]};
    rc = spawn_program(argv, ends[1], &p->pid);
    close(ends[1]);
    if (!rc)
        return 0;
    close(ends[0]);
    return ntx_err_set(err, rc, "cannot start %s: %s", program, strerror(-rc));
}

/* The next whole line, as JSON; NULL: there is none yet. */
static json_t *next_line(struct ntx_pulling *p)
{
    const char *from = p->in.p ? p->in.p + p->at : NULL;
    const char *end = from ? memchr(from, '\n', p->in.n - p->at) : NULL;
    if (!end)
        return NULL;
    json_t *j = json_loadb(from, (size_t)(end - from), 0, NULL);
    p->at += (size_t)(end - from) + 1;
    return j ? j : json_object();
}

static void read_more(struct ntx_pulling *p)
{
    char buf[4096];
    memmove(p->in.p ? p->in.p : buf, p->in.p ? p->in.p + p->at : buf, p->in.n - p->at);
    p->in.n -= p->at;
    p->at = 0;
    ssize_t n = read(p->fd, buf, sizeof buf);
    if (n > 0)
        ntx_buf_add(&p->in, buf, (size_t)n);
    p->is_ended = (n <= 0 && errno != EINTR) || !n || p->in.bad || p->in.n > LINE_MOST;
}

int ntx_pulling_next(struct ntx_pulling *p, int client_fd, int quit_fd, int timeout_ms, json_t **out)
{
    while (!(*out = next_line(p)) && !p->is_ended) {
        struct pollfd f[3] = {
            {.fd = p->fd, .events = POLLIN}, {.fd = client_fd, .events = POLLRDHUP}, {.fd = quit_fd, .events = POLLIN}};
        const int n = poll(f, 3, timeout_ms);
        if (f[2].revents)
            return -ESHUTDOWN;
        if (f[1].revents)
            return -ECANCELED;
        if (!n)
            return -ETIMEDOUT;
        if (f[0].revents)
            read_more(p);
    }
    return 0;
}

void ntx_pulling_end(struct ntx_pulling *p)
{
    if (p->fd < 0)
        return;
    close(p->fd);
    kill(p->pid, SIGTERM); /* until it is waited for, the number is its own */
    waitpid(p->pid, NULL, 0);
    ntx_buf_free(&p->in);
    p->fd = -1;
}
