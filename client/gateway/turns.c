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
enum { LINGER_MS = 50, LEAST_MS = 1000, MOST_MS = 30000, SWAPS = 4, LOOK_MS = 20, AGAIN_MS = 1000, TELL_MS = 250 };
#define MS 1000000ull

enum turn_state { WAITING, HELD, FAILED };

struct ntx_turn {
    struct ntx_turn *next;
    struct ntx_turns *of;
    char model[NTX_KNOWN_NAME];
    enum turn_state state;
    unsigned place; /* HELD */
    int wake;       /* an eventfd */
    uint64_t since_ns;
    struct ntx_err err; /* FAILED */
};

struct place {
    char loaded[NTX_KNOWN_NAME], loading[NTX_KNOWN_NAME];
    char last[NTX_KNOWN_NAME]; /* the model that was loaded last, perhaps lost */
    bool is_asleep;            /* the thread unloaded the last model */
    bool is_busy;              /* the thread loads or unloads, */
    bool is_open;              /* but the old model still answers */
    unsigned held;
    int64_t keep_ms;             /* of the loaded model */
    uint64_t loaded_ns, idle_ns; /* since when it is loaded, and without turns */
    uint64_t loading_ns;
    uint64_t unload_ns; /* an unload that did not succeed is not tried again before that */
};

struct ntx_turns {
    struct ntx_turns_config c;
    pthread_mutex_t lock;
    pthread_cond_t news;
    pthread_t thread;
    bool quit;
    struct ntx_turn *first; /* all, the oldest first */
    struct place place[NTX_PLACES];
    unsigned waiting;
    char crowded[NTX_KNOWN_NAME]; /* this model has no room beside those that are loaded */
    uint64_t swaps, swap_ns;
    uint64_t told_ns; /* the queue as it was told last, */
    unsigned told_waiting;
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

/* NULL: the model is loaded nowhere. */
static struct place *place_with(struct ntx_turns *s, const char *model)
{
    for (unsigned i = 0; i < s->c.places; i++)
        if (*s->place[i].loaded && !strcmp(s->place[i].loaded, model))
            return &s->place[i];
    return NULL;
}

static bool waits_elsewhere(struct ntx_turns *s, const struct ntx_turn *t)
{
    return t->state == WAITING && !place_with(s, t->model);
}

/* The turn that waited longest for a model that is not loaded, or NULL. */
static const struct ntx_turn *oldest_other(struct ntx_turns *s)
{
    const struct ntx_turn *t = s->first;
    while (t && !waits_elsewhere(s, t))
        t = t->next;
    return t;
}

/* Those that are in use were used last; among them, the one that was loaded first. */
static bool is_older(const struct place *a, const struct place *b)
{
    if (!a->held != !b->held)
        return !a->held;
    return a->held ? a->loaded_ns < b->loaded_ns : a->idle_ns < b->idle_ns;
}

/* The place whose model was used least recently, other than `not`; NULL: nothing is loaded there. */
static struct place *least_recent(struct ntx_turns *s, const struct place * not )
{
    struct place *least = NULL;
    for (unsigned i = 0; i < s->c.places; i++) {
        struct place *p = &s->place[i];
        if (p != not &&*p->loaded && (!least || is_older(p, least)))
            least = p;
    }
    return least;
}

/* The place for a model: an empty one, best the one that had it last, or that of the least recently used model. */
static struct place *target_for(struct ntx_turns *s, const char *model)
{
    struct place *empty = NULL;
    for (unsigned i = 0; i < s->c.places; i++) {
        struct place *p = &s->place[i];
        if (!*p->loaded && (!empty || !strcmp(p->last, model)))
            empty = p;
    }
    return empty ? empty : least_recent(s, NULL);
}

/* The place that has to lose its model next, so that this turn gets its own; NULL: none. */
static struct place *victim_for(struct ntx_turns *s, const struct ntx_turn *t)
{
    struct place *target = target_for(s, t->model),
                 *beside = strcmp(s->crowded, t->model) ? NULL : least_recent(s, target);
    if (beside)
        return beside;
    return *target->loaded ? target : NULL;
}

/* The place's model takes no new turns: another one has waited long enough for its place. */
static bool is_closed(struct ntx_turns *s, const struct place *p, uint64_t now)
{
    const struct ntx_turn *t = oldest_other(s);
    return t && p == victim_for(s, t) && now - NTX_MAX(t->since_ns, p->loaded_ns) >= turn_ns(s);
}

static void hold_turn(struct ntx_turn *t, struct place *p)
{
    t->state = HELD;
    t->place = (unsigned)(p - t->of->place);
    p->held++;
    t->of->waiting--;
    wake_turn(t);
}

static void give_turns(struct ntx_turns *s, uint64_t now)
{
    for (unsigned i = 0; i < s->c.places; i++) {
        struct place *p = &s->place[i];
        if (!*p->loaded || (p->is_busy ? !p->is_open : is_closed(s, p, now)))
            continue;
        for (struct ntx_turn *t = s->first; t; t = t->next)
            if (t->state == WAITING && !strcmp(t->model, p->loaded))
                hold_turn(t, p);
    }
}

/* The next step of the thread: the place, and the model to load there, "" to unload it. NULL: none. */
static struct place *next_step(struct ntx_turns *s, uint64_t now, char model[NTX_KNOWN_NAME])
{
    const struct ntx_turn *t = oldest_other(s);
    struct place *victim = t ? victim_for(s, t) : NULL, *target = t ? target_for(s, t->model) : NULL;
    if (!t || (victim && victim->held))
        return NULL;
    if (victim && victim != target && now < victim->unload_ns)
        return NULL;
    if (victim && now - victim->idle_ns < LINGER_MS * MS && !is_closed(s, victim, now))
        return NULL;
    snprintf(model, NTX_KNOWN_NAME, "%s", !victim || victim == target ? t->model : "");
    return victim && victim != target ? victim : target;
}

static bool is_over(const struct ntx_turns *s, const struct place *p, uint64_t now)
{
    return *p->loaded && !p->held && !s->waiting && p->keep_ms >= 0 && now >= p->unload_ns &&
           now - p->idle_ns >= (uint64_t)p->keep_ms * MS;
}

/* A place whose model was kept long enough, or NULL. */
static struct place *next_over(struct ntx_turns *s, uint64_t now)
{
    for (unsigned i = 0; i < s->c.places; i++)
        if (is_over(s, &s->place[i], now))
            return &s->place[i];
    return NULL;
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

/* After a load or unload: rc 0, or why it failed. */
static void end_swap(struct ntx_turns *s, struct place *p, const char *wanted, int rc, struct ntx_err *err)
{
    const uint64_t end = ntx_now_ns();
    if (rc && !err->code)
        ntx_err_set(err, rc, "%s cannot be loaded: %s", wanted, strerror(-rc));
    if (rc == -EDQUOT && *wanted && least_recent(s, p))
        snprintf(s->crowded, sizeof s->crowded, "%s", wanted);
    else
        s->crowded[0] = 0;
    if (rc && *wanted && !*s->crowded)
        fail_turns(s, wanted, err);
    else if (rc && !*wanted)
        p->unload_ns = end + AGAIN_MS * MS;
    else if (!rc && *wanted) {
        s->swap_ns = end - p->loading_ns;
        s->swaps++;
    }
}

/* Loads a model, or unloads with "". Releases the lock meanwhile. */
static void swap_to(struct ntx_turns *s, struct place *p, const char *model)
{
    char wanted[NTX_KNOWN_NAME], now[NTX_KNOWN_NAME] = "", crowded[NTX_KNOWN_NAME];
    struct ntx_err err = {0};
    snprintf(wanted, sizeof wanted, "%s", model);
    memcpy(p->loading, wanted, sizeof wanted);
    memcpy(crowded, s->crowded, sizeof crowded);
    p->loading_ns = ntx_now_ns();
    p->is_busy = true;
    pthread_mutex_unlock(&s->lock);
    int rc = s->c.load(s->c.arg, (unsigned)(p - s->place), wanted, now, &err);
    pthread_mutex_lock(&s->lock);
    p->is_busy = p->is_open = false;
    p->loading[0] = 0;
    p->is_asleep = !rc && !*wanted;
    end_swap(s, p, wanted, rc, &err);
    if (!*wanted && rc) /* another one may be unloaded first, but the reason stays */
        memcpy(s->crowded, crowded, sizeof crowded);
    const bool other = strcmp(p->loaded, now) != 0;
    if (other || !rc)
        p->keep_ms = s->c.keep_ms;
    if (other || !rc)
        p->loaded_ns = p->idle_ns = ntx_now_ns();
    memcpy(p->loaded, now, sizeof now);
    if (*now)
        memcpy(p->last, now, sizeof now);
}

/* Tells how many requests wait, if that has changed, or once a second while some wait. True: it did, and released the
 * lock meanwhile, so that there may be news. */
static bool tell_queue(struct ntx_turns *s, uint64_t now)
{
    const unsigned waiting = s->waiting;
    if (!s->c.tell || now - s->told_ns < TELL_MS * MS)
        return false;
    if (waiting == s->told_waiting && (!waiting || now - s->told_ns < 4 * TELL_MS * MS))
        return false;
    s->told_waiting = waiting;
    s->told_ns = now;
    pthread_mutex_unlock(&s->lock);
    s->c.tell(s->c.arg);
    pthread_mutex_lock(&s->lock);
    return true;
}

static bool may_sleep(const struct ntx_turns *s)
{
    if (s->waiting || s->told_waiting)
        return false;
    for (unsigned i = 0; i < s->c.places; i++)
        if (*s->place[i].loaded && s->place[i].keep_ms >= 0 && !s->place[i].held)
            return false;
    return true;
}

static void wait_news(struct ntx_turns *s)
{
    struct timespec until;
    uint64_t ms = s->waiting ? LOOK_MS : 10 * LOOK_MS;
    if (may_sleep(s)) {
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
    char model[NTX_KNOWN_NAME];
    pthread_mutex_lock(&s->lock);
    while (!s->quit) {
        const uint64_t now = ntx_now_ns();
        give_turns(s, now);
        if (tell_queue(s, now))
            continue;
        struct place *p = next_step(s, now, model), *over = p ? NULL : next_over(s, now);
        if (p)
            swap_to(s, p, model);
        else if (over)
            swap_to(s, over, "");
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
    *s = (struct ntx_turns){.c = *c};
    s->c.places = NTX_MIN(NTX_MAX(c->places, 1u), NTX_PLACES);
    for (unsigned i = 0; i < s->c.places; i++)
        s->place[i].keep_ms = c->keep_ms;
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

void ntx_turns_see(struct ntx_turns *s, unsigned place, const char *loaded)
{
    struct place *p = &s->place[place];
    pthread_mutex_lock(&s->lock);
    if (strcmp(p->loaded, loaded) && !p->held && !p->is_busy) {
        snprintf(p->loaded, sizeof p->loaded, "%s", loaded);
        p->loaded_ns = p->idle_ns = ntx_now_ns();
        pthread_cond_broadcast(&s->news);
    }
    pthread_mutex_unlock(&s->lock);
}

void ntx_turns_still(struct ntx_turns *s, unsigned place, const char *loaded)
{
    struct place *p = &s->place[place];
    pthread_mutex_lock(&s->lock);
    p->is_open = p->is_busy && *loaded && !strcmp(p->loaded, loaded);
    give_turns(s, ntx_now_ns());
    pthread_mutex_unlock(&s->lock);
}

static void look_at(const struct place *p, struct ntx_turns_place *out)
{
    *out = (struct ntx_turns_place){
        .held = p->held, .asleep = p->is_asleep, .left_ms = p->keep_ms, .loading_ns = p->loading_ns};
    memcpy(out->loaded, p->loaded, sizeof out->loaded);
    memcpy(out->loading, p->loading, sizeof out->loading);
    if (p->keep_ms > 0 && !p->held) {
        const int64_t gone = (int64_t)((ntx_now_ns() - p->idle_ns) / MS);
        out->left_ms = NTX_MAX(p->keep_ms - gone, 0);
    }
}

void ntx_turns_look(struct ntx_turns *s, struct ntx_turns_state *out)
{
    pthread_mutex_lock(&s->lock);
    const struct ntx_turn *t = oldest_other(s);
    *out = (struct ntx_turns_state){
        .n_places = s->c.places, .waiting = s->waiting, .swaps = s->swaps, .swap_ns = s->swap_ns};
    for (unsigned i = 0; i < s->c.places; i++) {
        look_at(&s->place[i], &out->place[i]);
        out->held += s->place[i].held;
    }
    if (t) {
        memcpy(out->next, t->model, sizeof out->next);
        out->waiting_ns = t->since_ns;
    }
    pthread_mutex_unlock(&s->lock);
}

unsigned ntx_turns_place_of(const struct ntx_turns_state *s, const char *model)
{
    unsigned i = 0;
    while (i < s->n_places && strcmp(s->place[i].loaded, model) && strcmp(s->place[i].loading, model))
        i++;
    return i;
}

bool ntx_turns_unload(struct ntx_turns *s, const char *model)
{
    pthread_mutex_lock(&s->lock);
    struct place *p = place_with(s, model);
    if (p) {
        p->keep_ms = 0;
        pthread_cond_broadcast(&s->news);
    }
    pthread_mutex_unlock(&s->lock);
    return p;
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
    struct place *at = &t->of->place[t->place];
    if (t->state == HELD && !--at->held)
        at->idle_ns = ntx_now_ns();
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
unsigned ntx_turn_place(const struct ntx_turn *t) { return t ? t->place : 0; }

void ntx_turn_lost(struct ntx_turn *t)
{
    struct ntx_turns *s = t->of;
    pthread_mutex_lock(&s->lock);
    struct place *p = &s->place[t->place];
    if (t->state == HELD && !strcmp(p->loaded, t->model))
        p->loaded[0] = 0;
    unlink_turn(t);
    line_up(t);
    pthread_cond_broadcast(&s->news);
    pthread_mutex_unlock(&s->lock);
}

void ntx_turn_keep(struct ntx_turn *t, int64_t keep_ms)
{
    struct ntx_turns *s = t->of;
    pthread_mutex_lock(&s->lock);
    if (t->state == HELD && !strcmp(s->place[t->place].loaded, t->model))
        s->place[t->place].keep_ms = keep_ms;
    pthread_mutex_unlock(&s->lock);
}
