/* SPDX-License-Identifier: Apache-2.0 */
#include "client/where.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/run_dir.h"
#include "common/util.h"
#include "shm/counters.h"

bool ntx_where_answers(const char *dir)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path, sizeof a.sun_path, "%s/ntx.sock", dir);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool none = n > 0 && (size_t)n < sizeof a.sun_path && s >= 0 && connect(s, (struct sockaddr *)&a, sizeof a) &&
                (errno == ECONNREFUSED || errno == ENOENT);
    if (s >= 0)
        close(s);
    return !none;
}

enum { BAD_CONFIG = 100 }; /* exit status of ntx-computed */

struct found {
    struct ntx_where *w; /* the first one found */
    unsigned n;
    char list[360];
};

/* Writes "/run/user/1000/ntx-run-a1B2c3 (pid 4711, llama-13b)". */
static void describe_run(const char *dir, pid_t pid, char *buf, size_t n)
{
    const struct ntx_counters *c = NULL;
    char model[sizeof c->mon.model + 1] = "";
    if (!ntx_counters_open(dir, &c, NULL)) {
        memcpy(model, c->mon.model, sizeof c->mon.model);
        ntx_counters_close((struct ntx_counters *)(uintptr_t)c);
    }
    for (char *p = model; *p; p++)
        if (*p < ' ' || *p > '~') /* the name comes from a file */
            *p = '?';
    snprintf(buf, n, "%s (pid %d%s%s)", dir, (int)pid, *model ? ", " : "", model);
}

static void add_run(const char *dir, pid_t pid, void *arg)
{
    struct found *f = arg;
    char text[300];
    if (!ntx_where_answers(dir))
        return;
    if (!f->n++) {
        snprintf(f->w->dir, sizeof f->w->dir, "%s", dir);
        f->w->run = pid;
    }
    describe_run(dir, pid, text, sizeof text);
    size_t used = strlen(f->list), more = strlen(text) + 2;
    if (used + more + sizeof ", ..." <= sizeof f->list)
        sprintf(f->list + used, "%s%s", used ? ", " : "", text);
    else if (used && strcmp(f->list + used - 3, "..."))
        strcat(f->list, ", ...");
}

static int private_run(struct ntx_where *w, struct ntx_err *err)
{
    struct found f = {.w = w};
    ntx_run_dir_living(add_run, &f);
    if (f.n > 1)
        return ntx_err_set(
            err, -EBUSY,
            "%u private runs of yours go on: %s; set NTX_RUNTIME to the directory of the one that is meant", f.n,
            f.list);
    return f.n ? 0 : -ENOENT;
}

/* Asks systemd whether the service's unit has failed. *status: its exit status. */
static bool has_failed(int *status)
{
    char line[128];
    bool failed = false;
    FILE *f = popen("exec systemctl show -p ActiveState -p ExecMainStatus ntx-computed.service 2>/dev/null", "re");
    *status = 0;
    while (f && fgets(line, sizeof line, f)) {
        failed |= !strcmp(line, "ActiveState=failed\n");
        sscanf(line, "ExecMainStatus=%d", status);
    }
    if (f)
        pclose(f);
    return failed;
}

static int refuse_failed(int status, struct ntx_err *err)
{
    return ntx_err_set(err, -ENOENT,
                       "no daemons run: the service has failed (ntx-computed: exit status %d%s); `journalctl -u "
                       "ntx-computed -e` says why",
                       status, status == BAD_CONFIG ? ", a wrong configuration" : "");
}

int ntx_where(bool looks, struct ntx_where *w, struct ntx_err *err)
{
    struct ntx_err own = {0};
    const char *given = getenv("NTX_RUNTIME");
    *w = (struct ntx_where){0};
    int rc = ntx_runtime_dir(false, w->dir, sizeof w->dir, &own), found, status;
    if (given && *given) {
        if (rc && err)
            *err = own;
        return rc;
    }
    if (!rc && ntx_where_answers(w->dir))
        return 0;
    char up[sizeof w->dir];
    memcpy(up, w->dir, sizeof up);
    snprintf(w->dir, sizeof w->dir, "%s", NTX_SERVICE_DIR);
    if (ntx_where_answers(w->dir))
        return 0;
    if (looks && (found = private_run(w, err)) != -ENOENT)
        return found;
    if (rc)
        return ntx_err_set(err, rc, "%s", own.text);
    if (access(NTX_SERVICE_DIR, F_OK))
        memcpy(w->dir, up, sizeof up);
    else if (has_failed(&status))
        return refuse_failed(status, err);
    return ntx_err_set(err, -ENOENT,
                       "no daemons run: neither the service (%s) nor `ntx up` (%s)%s; start them with `ntx up MODEL` "
                       "or `systemctl start ntx.target`",
                       NTX_SERVICE_DIR, up, looks ? ", nor a private `ntx run` of yours" : "");
}
