/* SPDX-License-Identifier: Apache-2.0 */
#include "client/respawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/options.h"
#include "client/where.h"
#include "common/util.h"

#define SECOND       1000000000ull
#define PART_S       20u /* time to end after the first machine has ended */
#define KILL_S       10u /* time to end after SIGTERM */
#define PAUSE_MOST_S 30u /* longest pause between two starts */
#define LIVED_S      60u /* after a life of this length the pause is short again */

struct command {
    const char *text;
    char dir[200]; /* runtime directory */
    pid_t pid;     /* leads a process group; 0: it has ended */
    int status;
    bool seen;        /* the first machine's socket answered once */
    uint64_t gone_ns; /* when the socket disappeared; 0: it answers */
    int signal;       /* sent to us */
};

static _Noreturn void exec_command(const char *text)
{
    char line[4096];
    sigset_t none;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* we pass Ctrl-C on */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if ((size_t)snprintf(line, sizeof line, "exec %s", text) < sizeof line)
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
}

/* Waits for an event, or a second. */
static void wait_event(struct command *c, const sigset_t *set)
{
    const struct timespec second = {1, 0};
    int n = sigtimedwait(set, NULL, &second);
    if (n > 0 && n != SIGCHLD)
        c->signal = n;
    if (c->pid && waitpid(c->pid, &c->status, WNOHANG) == c->pid)
        c->pid = 0;
}

/* told: the command gets the time to end by itself. A hanging mpirun does not: it is ending already. Its daemons on
 * other machines end with it. */
static void end_command(struct command *c, const sigset_t *set, bool told)
{
    const uint64_t until = ntx_now_ns() + (told ? KILL_S * SECOND : 0);
    if (c->pid && told)
        kill(c->pid, SIGTERM);
    while (c->pid && ntx_now_ns() < until)
        wait_event(c, set);
    if (!c->pid)
        return;
    kill(-c->pid, SIGKILL);
    waitpid(c->pid, &c->status, 0);
    c->pid = 0;
}

/* The command still runs although the first machine has been gone for long. */
static bool hangs(struct command *c)
{
    const uint64_t now = ntx_now_ns();
    const bool there = ntx_where_answers(c->dir);
    c->seen |= there;
    if (there || !c->seen)
        c->gone_ns = 0;
    else if (!c->gone_ns)
        c->gone_ns = now;
    return c->gone_ns && now - c->gone_ns > PART_S * SECOND;
}

static int run_command(struct command *c, const sigset_t *set, struct ntx_err *err)
{
    c->seen = false;
    c->gone_ns = 0;
    if ((c->pid = fork()) < 0)
        return ntx_err_set(err, -errno, "cannot start a process: %s", strerror(errno));
    if (!c->pid)
        exec_command(c->text);
    while (c->pid && !c->signal) {
        wait_event(c, set);
        if (c->pid && hangs(c)) {
            ntx_log(NTX_LOG_ERR,
                    "the first machine's ntx-computed is gone, and its command has not ended for %u s: ending it",
                    PART_S);
            end_command(c, set, false);
        }
    }
    end_command(c, set, true);
    return 0;
}

/* 0: start it again. */
static int check_exit(const struct command *c, struct ntx_err *err)
{
    const int code = WIFEXITED(c->status) ? WEXITSTATUS(c->status) : -1;
    return code == NTX_EXIT_USAGE || code == 126 || code == 127
               ? ntx_err_set(err, -EINVAL, "--respawn: '%s' ended with exit code %d: it is not started again", c->text,
                             code)
               : 0;
}

int ntx_respawn(const char *command, struct ntx_err *err)
{
    struct command c = {.text = command};
    sigset_t set;
    uint32_t pause_s = 1;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int rc = ntx_runtime_dir(false, c.dir, sizeof c.dir, err);
    while (!rc) {
        const uint64_t began = ntx_now_ns();
        rc = run_command(&c, &set, err);
        if (rc || c.signal || (WIFEXITED(c.status) && !WEXITSTATUS(c.status)) || (rc = check_exit(&c, err)))
            break;
        pause_s = ntx_now_ns() - began > LIVED_S * SECOND ? 1 : pause_s;
        ntx_log(NTX_LOG_ERR, "the machines that share the model have ended: starting them again in %u s", pause_s);
        for (const uint64_t until = ntx_now_ns() + pause_s * SECOND; ntx_now_ns() < until && !c.signal;)
            wait_event(&c, &set);
        if (c.signal)
            break;
        pause_s = NTX_MIN(2 * pause_s, PAUSE_MOST_S);
    }
    return rc;
}
