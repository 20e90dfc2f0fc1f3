/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/turns.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/util.h"

/* LINGER_MS: without turns, a model stays loaded so long for a client that asks again at once. */
enum { LINGER_MS = 50, LEAST_MS = 1000, MOST_MS = 30000, SWAPS = 4, LOOK_MS = 20, AGAIN_MS = 1000 };
#define MS 1000000ull

enum turn_state { WAITING, HELD, FAILED };

struct ntx_turn {
    struct ntx_turn *next;
    struct ntx_turns *of;
    char model[NTX_KNOWN_NAME];
    enum turn_state state;
    int wake; /* an eventfd */
    uint64_t since_ns;
    struct ntx_err err; /* FAILED */
};

struct ntx_turns {
    struct ntx_turns_config c;
    pthread_mutex_t lock;
    pthread_cond_t news;
    pthread_t thread;
    bool quit;
    struct ntx_turn *first; /* all, the oldest first */
    char loaded[NTX_KNOWN_NAME], loading[NTX_KNOWN_NAME];
    bool asleep; /* the thread unloaded the last model */
    bool busy;   /* the thread loads or unloads */
    unsigned held, waiting;
    int64_t keep_ms;             /* of the loaded model */
    uint64_t loaded_ns, idle_ns; /* since when it is loaded, and without turns */
    uint64_t unload_ns;          /* an unload that did not succeed is not tried again before that */
    uint64_t swaps, swap_ns;
};

/* ---- with the lock held */

static void wake_turn(struct ntx_turn *t)
{
    uint64_t one = 1;
    if (write(t->wake, &one, sizeof one) != sizeof one)
        return; /* it is readable already */
}

static uint64_t turn_ns(const struct ntx_turns *s)
{
    return NTX_MIN(NTX_MAX(SWAPS * s->swap_ns, LEAST_MS * MS), MOST_MS * MS);
}

static bool waits_elsewhere(const struct ntx_turns *s, const struct ntx_turn *t)
{
    return t->state == WAITING && strcmp(t->model, s->loaded) != 0;
}

/* The turn that waited longest for another model, or NULL. */
static const struct ntx_turn *oldest_other(const struct ntx_turns *s)
{
    const struct ntx_turn *t = s->first;
    while (t && !waits_elsewhere(s, t))
        t = t->next;
    return t;
}

/* The loaded model takes no new turns: another one has waited long enough. */
static bool is_closed(const struct ntx_turns *s, uint64_t now)
{
    const struct ntx_turn *t = oldest_other(s);
    return t && now - NTX_MAX(t->since_ns, s->loaded_ns) >= turn_ns(s);
}

static void hold_turn(struct ntx_turn *t)
{
    t->state = HELD;
    t->of->held++;
    t->of->waiting--;
    wake_turn(t);
}

static void give_turns(struct ntx_turns *s, uint64_t now)
{
    if (s->busy || !*s->loaded || is_closed(s, now))
        return;
    for (struct ntx_turn *t = s->first; t; t = t->next)
        if (t->state == WAITING && !strcmp(t->model, s->loaded))
            hold_turn(t);
}

/* The model to load now, or NULL. */
static const char *next_model(const struct ntx_turns *s, uint64_t now)
{
    const struct ntx_turn *t = s->held || s->busy ? NULL : oldest_other(s);
    if (t && *s->loaded && now - s->idle_ns < LINGER_MS * MS && !is_closed(s, now))
        return NULL;
    return t ? t->model : NULL;
}

static bool is_over(const struct ntx_turns *s, uint64_t now)
{
    return *s->loaded && !s->held && !s->waiting && s->keep_ms >= 0 && now >= s->unload_ns &&
           now - s->idle_ns >= (uint64_t)s->keep_ms * MS;
}

static void fail_turns(struct ntx_turns *s, const char *model, const struct ntx_err *err)
{
    for (struct ntx_turn *t = s->first; t; t = t->next)
        if (t->state == WAITING && !strcmp(t->model, model)) {
            t->state = FAILED;
            t->err = *err;
            s->waiting--;
            wake_turn(t);
        }
}

/* Loads a model, or unloads with "". Releases the lock meanwhile. */
static void swap_to(struct ntx_turns *s, const char *model)
{
    char wanted[NTX_KNOWN_NAME], now[NTX_KNOWN_NAME] = "";
    struct ntx_err err = {0};
    const uint64_t begin = ntx_now_ns();
    snprintf(wanted, sizeof wanted, "%s", model);
    memcpy(s->loading, wanted, sizeof wanted);
    s->busy = true;
    pthread_mutex_unlock(&s->lock);
    int rc = s->c.load(s->c.arg, wanted, now, &err);
    pthread_mutex_lock(&s->lock);
    const uint64_t end = ntx_now_ns();
    s->busy = false;
    s->loading[0] = 0;
    s->asleep = !rc && !*wanted;
    if (rc && !err.code)
        ntx_err_set(&err, rc, "%s cannot be loaded: %s", wanted, strerror(-rc));
    if (rc && *wanted)
        fail_turns(s, wanted, &err);
    else if (rc)
        s->unload_ns = end + AGAIN_MS * MS;
    else if (*wanted) {
        s->swap_ns = end - begin;
        s->swaps++;
    }
    if (strcmp(s->loaded, now) || !rc)
        s->keep_ms = s->c.keep_ms;
    memcpy(s->loaded, now, sizeof now);
    s->loaded_ns = s->idle_ns = end;
}

static void wait_news(struct ntx_turns *s)
{
    struct timespec until;
    uint64_t ms = s->waiting ? LOOK_MS : 10 * LOOK_MS;
    if (!s->waiting && (!*s->loaded || s->keep_ms < 0 || s->held)) {
        pthread_cond_wait(&s->news, &s->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(ms * MS);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->news, &s->lock, &until);
}

static void *swap_models(void *arg)
{
    struct ntx_turns *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->quit) {
        const uint64_t now = ntx_now_ns();
        give_turns(s, now);
        const char *next = next_model(s, now);
        if (next)
            swap_to(s, next);
        else if (is_over(s, now))
            swap_to(s, "");
        else
            wait_news(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the set */

int ntx_turns_new(const struct ntx_turns_config *c, struct ntx_turns **out)
{
    struct ntx_turns *s = calloc(1, sizeof *s);
    pthread_condattr_t a;
    if (!s)
        return -ENOMEM;
    *s = (struct ntx_turns){.c = *c, .keep_ms = c->keep_ms};
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&s->news, &a);
    pthread_condattr_destroy(&a);
    int rc = -pthread_create(&s->thread, NULL, swap_models, s);
    if (rc) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void ntx_turns_free(struct ntx_turns *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->news);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void ntx_turns_see(struct ntx_turns *s, const char *loaded)
{
    pthread_mutex_lock(&s->lock);
    if (strcmp(s->loaded, loaded) && !s->held && !s->busy) {
        snprintf(s->loaded, sizeof s->loaded, "%s", loaded);
        s->loaded_ns = s->idle_ns = ntx_now_ns();
        pthread_cond_broadcast(&s->news);
    }
    pthread_mutex_unlock(&s->lock);
}

void ntx_turns_look(struct ntx_turns *s, struct ntx_turns_state *out)
{
    pthread_mutex_lock(&s->lock);
    *out = (struct ntx_turns_state){
        .held = s->held, .waiting = s->waiting, .left_ms = s->keep_ms, .swaps = s->swaps, .swap_ns = s->swap_ns};
    out->asleep = s->asleep;
    memcpy(out->loaded, s->loaded, sizeof out->loaded);
    memcpy(out->loading, s->loading, sizeof out->loading);
    if (s->keep_ms > 0 && !s->held) {
        const int64_t gone = (int64_t)((ntx_now_ns() - s->idle_ns) / MS);
        out->left_ms = NTX_MAX(s->keep_ms - gone, 0);
    }
    pthread_mutex_unlock(&s->lock);
}

bool ntx_turns_unload(struct ntx_turns *s, const char *model)
{
    pthread_mutex_lock(&s->lock);
    const bool is = *s->loaded && !strcmp(s->loaded, model);
    if (is) {
        s->keep_ms = 0;
        pthread_cond_broadcast(&s->news);
    }
    pthread_mutex_unlock(&s->lock);
    return is;
}

/* ---- a turn */

static void line_up(struct ntx_turn *t)
{
    struct ntx_turn **p = &t->of->first;
    while (*p)
        p = &(*p)->next;
    t->next = NULL;
    t->state = WAITING;
    t->since_ns = ntx_now_ns();
    t->of->waiting++;
    *p = t;
}

static void unlink_turn(struct ntx_turn *t)
{
    struct ntx_turn **p = &t->of->first;
    while (*p != t)
        p = &(*p)->next;
    *p = t->next;
    t->of->waiting -= t->state == WAITING;
    if (t->state == HELD && !--t->of->held)
        t->of->idle_ns = ntx_now_ns();
}

int ntx_turn_new(struct ntx_turns *s, const char *model, struct ntx_turn **out)
{
    struct ntx_turn *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    *t = (struct ntx_turn){.of = s, .wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    snprintf(t->model, sizeof t->model, "%s", model);
    int rc = t->wake < 0 ? -errno : 0;
    pthread_mutex_lock(&s->lock);
    if (!rc) {
        line_up(t);
        give_turns(s, ntx_now_ns());
        rc = t->state == WAITING && s->waiting > s->c.most ? -EAGAIN : 0;
        if (rc)
            unlink_turn(t);
        pthread_cond_broadcast(&s->news);
    }
    pthread_mutex_unlock(&s->lock);
    if (!rc) {
        *out = t;
        return 0;
    }
    if (t->wake >= 0)
        close(t->wake);
    free(t);
    return rc;
}

void ntx_turn_free(struct ntx_turn *t)
{
    if (!t)
        return;
    struct ntx_turns *s = t->of;
    pthread_mutex_lock(&s->lock);
    unlink_turn(t);
    pthread_cond_broadcast(&s->news);
    pthread_mutex_unlock(&s->lock);
    close(t->wake);
    free(t);
}

int ntx_turn_check(struct ntx_turn *t, struct ntx_err *err)
{
    uint64_t n;
    int rc = 0;
    pthread_mutex_lock(&t->of->lock);
    if (t->state == WAITING)
        rc = -EAGAIN;
    else if (t->state == FAILED)
        rc = ntx_err_set(err, t->err.code, "%s", t->err.text);
    if (read(t->wake, &n, sizeof n) < 0)
        n = 0; /* there was nothing to read */
    pthread_mutex_unlock(&t->of->lock);
    return rc;
}

int ntx_turn_fd(const struct ntx_turn *t) { return t->wake; }
const char *ntx_turn_model(const struct ntx_turn *t) { return t->model; }

void ntx_turn_lost(struct ntx_turn *t)
{
    struct ntx_turns *s = t->of;
    pthread_mutex_lock(&s->lock);
    if (!strcmp(s->loaded, t->model))
        s->loaded[0] = 0;
    unlink_turn(t);
    line_up(t);
    pthread_cond_broadcast(&s->news);
    pthread_mutex_unlock(&s->lock);
}

void ntx_turn_keep(struct ntx_turn *t, int64_t keep_ms)
{
    struct ntx_turns *s = t->of;
    pthread_mutex_lock(&s->lock);
    if (!strcmp(s->loaded, t->model))
        s->keep_ms = keep_ms;
    pthread_mutex_unlock(&s->lock);
}
