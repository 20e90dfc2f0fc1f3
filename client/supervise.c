/* SPDX-License-Identifier: Apache-2.0 */
#include "client/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/client.h"
#include "common/util.h"
#include "common/worker_main.h"
#include "shm/counters.h"

#define UNFIT_MS      500
#define PATIENCE_MS   5000
#define AGAIN_MS      20   /* before a dead worker is started again: prevents a busy loop when it cannot start at all */
#define AGAIN_MOST_MS 1000 /* longest such wait; it grows while workers end before ntx-computed has met them */

enum { COMPUTED, IOD, PREDICTOR, N_CHILDREN };
static const char *const names[N_CHILDREN] = {"ntx-computed", "ntx-iod", "ntx-predictor"};

struct child {
    pid_t pid; /* 0: not running */
    int pidfd;
    uint64_t met; /* number of this role's processes that ntx-computed had met when this one began */
    int again_ms; /* wait before its next start */
};

struct ntx_supervisor {
    char dir[256], bin[512];
    bool quiet, among;
    int alive[2];     /* a pipe: children hold [0], only we hold [1] */
    int lost_fd;      /* readable once ntx-computed is gone */
    int poke_fd;      /* wakes the thread */
    int keep[2];      /* a socket of ntx-computed: it holds the served model for the next process
                       * (computed/server/keeper.h) */
    int log_fd;       /* quiet: the daemons' stderr, in memory; else -1 */
    char about[1024]; /* report their warnings on this at the end; "": none */
    pthread_t thread;
    bool running;
    pthread_mutex_t mu; /* guards the following fields */
    struct child child[N_CHILDREN];
    bool stopping, lost;
    bool unfit;              /* a worker was refused for good: no restart can help */
    bool ended;              /* ntx-computed was therefore told to end */
    char predictor_end[320]; /* how ntx-predictor ended last */
    bool predictor_told;
    char how[320];
};

/* Number of this worker's processes that ntx-computed has met so far. */
static uint64_t met_by_computed(const struct ntx_supervisor *s, int which)
{
    const struct ntx_counters *c = NULL;
    uint64_t n = 0;
    if (which != COMPUTED && !ntx_counters_open(s->dir, &c, NULL))
        n = ntx_counter_get(c, which == IOD ? NTX_C_iod_starts : NTX_C_pred_starts);
    ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
    return n;
}

/* Leaves a note for ntx-computed, which cannot know how a worker ended and reports it to the clients concerned
 * (computed/workers/workers_lost.c). */
static void leave_end(const struct ntx_supervisor *s, int which, const char *how)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s.end", s->dir, names[which]);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    (void)!write(fd, how, strlen(how));
    close(fd);
}

static int pidfd_open_(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static _Noreturn void exec_child(const struct ntx_supervisor *s, int which)
{
    char path[600], fd[16], keep[32];
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGCONT); /* a stopped process would not see that pipe's end */
    if (s->log_fd >= 0)
        dup2(s->log_fd, STDERR_FILENO);
    snprintf(path, sizeof path, "%s/%s", s->bin, names[which]);
    snprintf(fd, sizeof fd, "%d", s->alive[0]);
    fcntl(s->alive[0], F_SETFD, 0); /* the child inherits this one */
    const char *argv[10] = {names[which], "--runtime", s->dir, "--alive-fd", fd};
    unsigned n = 5;
    if (s->quiet)
        argv[n++] = "--quiet";
    if (s->among && which == COMPUTED)
        argv[n++] = "--machines";
    if (!s->among && which == COMPUTED) {
        snprintf(keep, sizeof keep, "%d,%d", s->keep[0], s->keep[1]);
        for (int i = 0; i < 2; i++)
            fcntl(s->keep[i], F_SETFD, 0);
        argv[n++] = "--keep";
        argv[n++] = keep;
    }
    execv(path, (char *const *)argv);
    ntx_log(NTX_LOG_ERR, "cannot start %s: %s; it belongs beside ntx itself", path, strerror(errno));
    _exit(127);
}

static int spawn(struct ntx_supervisor *s, int which)
{
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (!pid)
        exec_child(s, which);
    s->child[which].pid = pid;
    s->child[which].met = met_by_computed(s, which);
    s->child[which].pidfd = pidfd_open_(pid);
    return s->child[which].pidfd < 0 ? -errno : 0;
}

/* ": LAST LINE" of the daemons' log, or nothing. */
static void last_log_line(const struct ntx_supervisor *s, char *buf, size_t n)
{
    char tail[512];
    off_t end = s->log_fd < 0 ? 0 : lseek(s->log_fd, 0, SEEK_END);
    off_t from = end > (off_t)sizeof tail - 1 ? end - (off_t)sizeof tail + 1 : 0;
    ssize_t k = end > 0 ? pread(s->log_fd, tail, sizeof tail - 1, from) : 0;
    *buf = 0;
    while (k > 0 && tail[k - 1] == '\n')
        k--;
    if (k <= 0)
        return;
    tail[k] = 0;
    const char *line = strrchr(tail, '\n');
    snprintf(buf, n, ": %.*s", (int)n - 3, line ? line + 1 : tail);
}

static void reap_child(struct ntx_supervisor *s, int which)
{
    struct child *c = &s->child[which];
    int st = 0;
    if (waitpid(c->pid, &st, 0) < 0)
        st = 0;
    close(c->pidfd);
    const bool met = met_by_computed(s, which) != c->met;
    *c = (struct child){.pidfd = -1,
                        .again_ms = met ? AGAIN_MS : NTX_MIN(NTX_MAX(2 * c->again_ms, AGAIN_MS), AGAIN_MOST_MS)};
    if (s->stopping)
        return;
    char how[sizeof s->how], words[256];
    last_log_line(s, words, sizeof words);
    if (WIFSIGNALED(st))
        snprintf(how, sizeof how, "killed by signal %d, %s", WTERMSIG(st), strsignal(WTERMSIG(st)));
    else
        snprintf(how, sizeof how, "exit code %d%s", WEXITSTATUS(st), WEXITSTATUS(st) ? words : "");
    if (which != COMPUTED && (!WIFEXITED(st) || WEXITSTATUS(st)))
        leave_end(s, which, how);
    if (which == PREDICTOR)
        memcpy(s->predictor_end, how, sizeof how);
    if (which == COMPUTED) {
        s->lost = true;
        if (!s->unfit)
            memcpy(s->how, how, sizeof how);
        eventfd_write(s->lost_fd, 1);
    } else if (WIFEXITED(st) && WEXITSTATUS(st) == NTX_EXIT_UNFIT) {
        s->unfit = true;
        snprintf(s->how, sizeof s->how, "%s is not fit for ntx-computed%s", names[which],
                 *words ? words : ": it was refused, see above");
    } else if (!s->lost && !s->quiet &&
               !(WIFEXITED(st) && !WEXITSTATUS(st))) { /* 0: it noticed the end of ntx-computed before us */
        ntx_log(NTX_LOG_WARN, "%s ended (%s); starting it again", names[which], how);
    }
}

/* Ends ntx-computed, which has had the time to tell its clients why. */
static void end_unfit(struct ntx_supervisor *s)
{
    s->ended = true;
    if (s->child[COMPUTED].pid)
        kill(s->child[COMPUTED].pid, SIGTERM);
}

/* Starts missing workers, but not ntx-computed. */
static void start_missing(struct ntx_supervisor *s)
{
    for (int i = IOD; i < N_CHILDREN && !s->stopping && !s->lost && !s->unfit; i++)
        if (!s->child[i].pid && spawn(s, i))
            ntx_log(NTX_LOG_ERR, "cannot start %s: %s", names[i], strerror(errno));
}

static void *supervise(void *arg)
{
    struct ntx_supervisor *s = arg;
    for (;;) {
        struct pollfd p[N_CHILDREN + 1] = {{.fd = s->poke_fd, .events = POLLIN}};
        int again_ms = 0;
        pthread_mutex_lock(&s->mu);
        for (int i = 0; i < N_CHILDREN; i++) {
            p[i + 1] = (struct pollfd){.fd = s->child[i].pid ? s->child[i].pidfd : -1, .events = POLLIN};
            if (i != COMPUTED && !s->child[i].pid && !s->lost)
                again_ms = NTX_MIN(again_ms ? again_ms : AGAIN_MOST_MS, NTX_MAX(s->child[i].again_ms, AGAIN_MS));
        }
        bool stop = s->stopping, unfit = s->unfit;
        bool missing = again_ms && (!unfit || !s->ended);
        pthread_mutex_unlock(&s->mu);
        if (stop)
            return NULL;
        int timeout_ms = -1;
        if (missing)
            timeout_ms = unfit ? UNFIT_MS : again_ms;
        int n = poll(p, N_CHILDREN + 1, timeout_ms);
        pthread_mutex_lock(&s->mu);
        if (!n && unfit)
            end_unfit(s);
        else if (!n)
            start_missing(s);
        if (p[0].revents) {
            eventfd_t v;
            eventfd_read(s->poke_fd, &v);
        }
        for (int i = 0; i < N_CHILDREN; i++)
            if (p[i + 1].fd >= 0 && p[i + 1].revents && s->child[i].pid)
                reap_child(s, i);
        pthread_mutex_unlock(&s->mu);
    }
}

int ntx_bin_dir(char *buf, size_t n)
{
    ssize_t k = readlink("/proc/self/exe", buf, n - 1);
    if (k < 0)
        return -errno;
    buf[k] = 0;
    char *slash = strrchr(buf, '/');
    if (slash)
        *slash = 0;
    return 0;
}

int ntx_supervisor_check(struct ntx_err *err)
{
    char bin[512], path[600];
    int rc = ntx_bin_dir(bin, sizeof bin);
    for (int i = 0; !rc && i < N_CHILDREN; i++) {
        snprintf(path, sizeof path, "%s/%s", bin, names[i]);
        if (access(path, X_OK))
            return ntx_err_set(err, -errno, "%s: %s; the daemons belong beside ntx itself: build or install all of it",
                               path, strerror(errno));
    }
    return rc;
}

static int open_log(struct ntx_supervisor *s)
{
    s->log_fd = memfd_create("ntx-log", MFD_CLOEXEC); /* not a file: the disk may be full */
    return s->log_fd < 0 || fcntl(s->log_fd, F_SETFL, O_APPEND) ? -errno : 0;
}

int ntx_supervisor_start(const char *dir, bool quiet, bool among, struct ntx_supervisor **out, struct ntx_err *err)
{
    struct ntx_supervisor *s = calloc(1, sizeof *s);
    int rc = ntx_supervisor_check(err);
    if (!rc)
        rc = ntx_need_descriptors(NTX_SUPERVISOR_DESCRIPTORS, err);
    if (rc || !s) {
        free(s);
        return rc ? rc : ntx_err_set(err, -ENOMEM, "no memory");
    }
    *s = (struct ntx_supervisor){.quiet = quiet,
                                 .among = among,
                                 .alive = {-1, -1},
                                 .lost_fd = -1,
                                 .poke_fd = -1,
                                 .keep = {-1, -1},
                                 .log_fd = -1};
    for (int i = 0; i < N_CHILDREN; i++)
        s->child[i].pidfd = -1;
    pthread_mutex_init(&s->mu, NULL);
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    if ((rc = ntx_bin_dir(s->bin, sizeof s->bin)))
        goto fail;
    s->lost_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->poke_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->lost_fd < 0 || s->poke_fd < 0 || pipe2(s->alive, O_CLOEXEC) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s->keep)) {
        rc = -errno;
        goto fail;
    }
    if (quiet && (rc = open_log(s)))
        goto fail;
    for (int i = 0; i < N_CHILDREN; i++)
        if ((rc = spawn(s, i)))
            goto fail;
    if ((rc = -pthread_create(&s->thread, NULL, supervise, s)))
        goto fail;
    s->running = true;
    *out = s;
    return 0;
fail:
    ntx_supervisor_stop(s);
    return ntx_err_set(err, rc, "cannot start the daemons: %s", strerror(-rc));
}

/* Bytes that the process has written by system calls. */
static uint64_t written_by(pid_t pid)
{
    unsigned long long n = 0;
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "wchar: %llu", &n) != 1)
        ;
    if (f)
        fclose(f);
    return n;
}

/* 1: it has ended; 0: not within 5 s; -EINTR: the user pressed Ctrl-C. */
static int wait_for_end(const struct child *c, bool patient)
{
    struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
    int rc = patient ? poll(&p, 1, PATIENCE_MS) : ntx_client_wait(c->pidfd, PATIENCE_MS);
    return !patient && rc == -EINTR ? rc : poll(&p, 1, 0) > 0;
}

/* ntx-computed writes its kept prefixes (--state) before it ends: this waits as long as it writes, with a note after
 * a while, from which on Ctrl-C ends the wait. Earlier signals (timeout(1) sends its signal twice) do not count. */
static void end_child(struct ntx_supervisor *s, int which)
{
    struct child *c = &s->child[which];
    if (!c->pid)
        return;
    uint64_t before = written_by(c->pid), now;
    bool told = false;
    int rc;
    kill(c->pid, SIGTERM);
    while (!(rc = wait_for_end(c, !told)) && (now = written_by(c->pid)) > before) {
        before = now;
        while (!told && ntx_client_wait(-1, 0) == -EINTR)
            ;
        if (!told)
            ntx_say("writing the computed prefixes for the next run; Ctrl-C skips that");
        told = true;
    }
    if (rc != 1)
        kill(c->pid, SIGKILL);
    reap_child(s, which);
}

void ntx_supervisor_tell(struct ntx_supervisor *s, const char *about)
{
    snprintf(s->about, sizeof s->about, "%s", about);
}

/* Prints ntx-computed's log lines that name s->about: quiet daemons log only warnings and errors. */
static void print_warnings(const struct ntx_supervisor *s)
{
    FILE *log = *s->about && s->log_fd >= 0 ? fdopen(dup(s->log_fd), "r") : NULL;
    static const char own[] = "ntx-computed: ";
    char *line = NULL;
    size_t room = 0;
    if (log)
        rewind(log);
    for (ssize_t n; log && (n = getline(&line, &room, log)) > 0;) {
        const char *text = strncmp(line, own, sizeof own - 1) ? NULL : line + sizeof own - 1;
        if (text && strstr(text, s->about))
            ntx_say("%.*s", (int)strcspn(text, "\n"), text);
    }
    free(line);
    if (log)
        fclose(log);
}

void ntx_supervisor_stop(struct ntx_supervisor *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mu);
    s->stopping = true;
    pthread_mutex_unlock(&s->mu);
    if (s->running) {
        eventfd_write(s->poke_fd, 1);
        pthread_join(s->thread, NULL);
    }
    for (int i = 0; i < N_CHILDREN;
         i++) /* ntx-computed first: it closes the workers' links, and they end by themselves */
        end_child(s, i);
    print_warnings(s);
    int fds[] = {s->alive[0], s->alive[1], s->lost_fd, s->poke_fd, s->keep[0], s->keep[1], s->log_fd};
    for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pthread_mutex_destroy(&s->mu);
    free(s);
}

bool ntx_supervisor_lost(struct ntx_supervisor *s, char *how, size_t n)
{
    pthread_mutex_lock(&s->mu);
    bool lost = s->lost;
    if (lost)
        snprintf(how, n, "%s", s->how);
    pthread_mutex_unlock(&s->mu);
    return lost;
}

bool ntx_supervisor_unfit(struct ntx_supervisor *s)
{
    pthread_mutex_lock(&s->mu);
    bool unfit = s->unfit;
    pthread_mutex_unlock(&s->mu);
    return unfit;
}

void ntx_supervisor_tell_predictor(struct ntx_supervisor *s, bool told)
{
    pthread_mutex_lock(&s->mu);
    if (!told && !s->predictor_told)
        ntx_say("ntx-predictor does not answer%s%s%s: this was written without it, nothing was left out",
                *s->predictor_end ? " (it ended: " : "", s->predictor_end, *s->predictor_end ? ")" : "");
    s->predictor_told = true;
    pthread_mutex_unlock(&s->mu);
}

pid_t ntx_supervisor_computed(struct ntx_supervisor *s)
{
    pthread_mutex_lock(&s->mu);
    pid_t pid = s->child[COMPUTED].pid;
    pthread_mutex_unlock(&s->mu);
    return pid;
}

int ntx_supervisor_fd(const struct ntx_supervisor *s) { return s->lost_fd; }

int ntx_supervisor_revive(struct ntx_supervisor *s, struct ntx_err *err)
{
    eventfd_t v;
    pthread_mutex_lock(&s->mu);
    eventfd_read(s->lost_fd, &v);
    int rc = s->child[COMPUTED].pid ? 0 : spawn(s, COMPUTED);
    s->lost = rc != 0;
    pthread_mutex_unlock(&s->mu);
    eventfd_write(s->poke_fd, 1);
    return rc ? ntx_err_set(err, rc, "cannot start %s: %s", names[COMPUTED], strerror(-rc)) : 0;
}
