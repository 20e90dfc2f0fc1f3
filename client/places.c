/* SPDX-License-Identifier: Apache-2.0 */
#include "client/places.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/supervise.h"
#include "common/util.h"

enum { AGAIN_MS = 500 };

struct place {
    struct ntx_places *of;
    char dir[200];
    struct ntx_client *c;
    pthread_t thread;
    bool is_running;
};

struct ntx_places {
    struct place place[NTX_PLACES_MOST - 1];
    unsigned n;
    int (*greet)(void *arg, struct ntx_client *c, struct ntx_err *err);
    void *arg;
    int quit; /* an eventfd */
};

static bool told_to_quit(const struct ntx_places *s, int timeout_ms)
{
    struct pollfd p = {.fd = s->quit, .events = POLLIN};
    return poll(&p, 1, timeout_ms) > 0;
}

/* Signals are the main thread's: one that came here is sent to it again. */
static int greet_place(struct place *p, struct ntx_err *err)
{
    int rc = p->of->greet(p->of->arg, p->c, err);
    if (rc == -EINTR && ntx_client_signalled())
        kill(getpid(), ntx_client_signalled());
    return rc;
}

/* ntx-computed has ended: starts it again. False: after `ntx stop`, or while all ends. */
static bool revive_place(struct place *p)
{
    struct ntx_err err = {0};
    char how[320] = "";
    ntx_supervisor_lost(ntx_client_supervisor(p->c), how, sizeof how);
    if (!strcmp(how, "exit code 0"))
        return false;
    ntx_log(NTX_LOG_ERR, "ntx-computed of %s ended (%s); starting it again", p->dir, how);
    int rc = ntx_supervisor_revive(ntx_client_supervisor(p->c), &err);
    if (!rc)
        rc = ntx_client_reconnect(p->c, &err);
    if (!rc)
        rc = greet_place(p, &err);
    if (rc && rc != -EINTR)
        ntx_log(NTX_LOG_ERR, "%s: %s", p->dir, err.text);
    return rc != -EINTR && !told_to_quit(p->of, rc ? AGAIN_MS : 0);
}

static void *keep_place(void *arg)
{
    struct place *p = arg;
    bool goes_on = true;
    while (goes_on) {
        struct pollfd f[2] = {{.fd = ntx_supervisor_fd(ntx_client_supervisor(p->c)), .events = POLLIN},
                              {.fd = p->of->quit, .events = POLLIN}};
        poll(f, 2, -1);
        if (f[1].revents)
            return NULL;
        if (f[0].revents)
            goes_on = revive_place(p);
    }
    return NULL;
}

static int start_place(struct ntx_places *s, const char *dir, struct ntx_err *err)
{
    struct place *p = &s->place[s->n];
    p->of = s;
    if (snprintf(p->dir, sizeof p->dir, "%s/place-%u", dir, s->n + 2) >= (int)sizeof p->dir)
        return ntx_err_set(err, -ENAMETOOLONG, "%s: too long for a directory below it; use a shorter NTX_RUNTIME", dir);
    if (mkdir(p->dir, 0700) && errno != EEXIST)
        return ntx_err_set(err, -errno, "%s: %s", p->dir, strerror(errno));
    int rc = ntx_client_up(p->dir, false, &p->c, err);
    if (rc)
        return rc;
    s->n++;
    rc = greet_place(p, err);
    if (!rc && (rc = -pthread_create(&p->thread, NULL, keep_place, p)))
        ntx_err_set(err, rc, "cannot start a thread: %s", strerror(-rc));
    p->is_running = !rc;
    return rc;
}

int ntx_places_start(const char *dir, unsigned n, int (*greet)(void *arg, struct ntx_client *c, struct ntx_err *err),
                     void *arg, struct ntx_places **out, struct ntx_err *err)
{
    struct ntx_places *s = calloc(1, sizeof *s);
    if (!s)
        return ntx_err_set(err, -ENOMEM, "no memory");
    *s = (struct ntx_places){.greet = greet, .arg = arg, .quit = eventfd(0, EFD_CLOEXEC)};
    int rc = s->quit < 0 ? ntx_err_set(err, -errno, "eventfd: %s", strerror(errno)) : 0;
    while (!rc && s->n < n && s->n < NTX_PLACES_MOST - 1)
        rc = start_place(s, dir, err);
    if (rc)
        ntx_places_free(s);
    else
        *out = s;
    return rc;
}

const char *ntx_places_dir(const struct ntx_places *p, unsigned i) { return p->place[i].dir; }

/* The threads end first: the clients are ours again. */
static void join_places(struct ntx_places *s)
{
    if (s->quit >= 0)
        eventfd_write(s->quit, 1);
    for (unsigned i = 0; i < s->n; i++)
        if (s->place[i].is_running)
            pthread_join(s->place[i].thread, NULL);
    for (unsigned i = 0; i < s->n; i++)
        s->place[i].is_running = false;
}

void ntx_places_stop(struct ntx_places *s, void (*stop)(struct ntx_client *c))
{
    if (!s)
        return;
    join_places(s);
    for (unsigned i = 0; i < s->n; i++)
        stop(s->place[i].c);
}

void ntx_places_free(struct ntx_places *s)
{
    if (!s)
        return;
    join_places(s);
    for (unsigned i = 0; i < s->n; i++) {
        ntx_client_free(s->place[i].c);
        rmdir(s->place[i].dir); /* it stays if something is in it */
    }
    if (s->quit >= 0)
        close(s->quit);
    free(s);
}
