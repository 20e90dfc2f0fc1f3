/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/models.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "client/gateway/aliases.h"
#include "common/nearest.h"
#include "common/util.h"

enum { REQUEST_MS = 10000, FRESH_MS = 1000, AGAIN_MS = 100, AGAIN_S = 30, STEP_MS = 1000 };

/* ---- the list */

/* The reply of a place to a Models request, as JSON text: malloc'd. */
static int fetch_list(struct ntx_gate *g, unsigned place, char **out, struct ntx_err *err)
{
    struct ntx_call *c = NULL;
    struct ntx_event e;
    int rc = ntx_call_open(g, place, NTX_NO_CALLER, false, &c, err);
    rc = rc ? rc : ntx_call_models(c, err);
    rc = rc ? rc : ntx_call_next(c, REQUEST_MS, &e, err);
    *out = !rc && e.kind == NTX_EVENT_STATUS ? strdup(e.text) : NULL;
    ntx_call_close(c);
    if (rc || *out)
        return rc;
    return ntx_err_set(err, -EPROTO, "ntx-computed sends no list of models");
}

/* Which models the other places have loaded. One whose daemons do not answer keeps what it had. */
static void see_others(struct ntx_gate *g)
{
    struct ntx_err ignored;
    for (unsigned i = 1; i < g->n_places; i++) {
        char *text = NULL;
        json_t *j = fetch_list(g, i, &text, &ignored) ? NULL : json_loads(text, 0, NULL);
        const char *loaded = json_string_value(json_object_get(j, "loaded"));
        if (loaded)
            ntx_turns_see(g->turns, i, loaded);
        json_decref(j);
        free(text);
    }
}

static bool has_made(const json_t *list)
{
    size_t i;
    const json_t *m;
    json_array_foreach(list, i, m)
        if (json_object_size(json_object_get(m, "made")))
            return true;
    return false;
}

/* Takes the reply's list; tells the turns which model is loaded. */
static void keep_list(struct ntx_gate *g, const char *text)
{
    json_t *j = json_loads(text, 0, NULL);
    ntx_aliases_add(json_object_get(j, "models"));
    char *list = j ? json_dumps(json_object_get(j, "models"), JSON_COMPACT) : NULL;
    const char *loaded = json_string_value(json_object_get(j, "loaded"));
    if (list) {
        free(g->models.said);
        g->models.said = list;
    }
    g->models.many = json_array_size(json_object_get(j, "models")) > 1;
    g->models.made = has_made(json_object_get(j, "models"));
    g->models.other = json_is_true(json_object_get(j, "other"));
    g->models.begun |= !json_is_true(json_object_get(j, "fresh"));
    g->models.none = (!loaded || !*loaded) && g->models.begun; /* before the first load, a request begins it */
    if (loaded)
        ntx_turns_see(g->turns, 0, loaded);
    json_decref(j);
    see_others(g);
}

/* Whether the one known model makes no difference: another one was loaded in its place, or it was unloaded by hand. */
static bool is_as_before(struct ntx_gate *g)
{
    struct ntx_turns_state s;
    ntx_turns_look(g->turns, &s);
    return g->models.other || (g->models.none && !s.place[0].asleep && !*s.place[0].loading);
}

int ntx_gate_models(struct ntx_gate *g, json_t **out, struct ntx_err *err)
{
    int rc = 0;
    char *text = NULL;
    pthread_mutex_lock(&g->models.lock);
    /* Where there is one known model, another one that somebody loads answers in its place. */
    if (!g->models.said || !g->models.many || ntx_now_ns() - g->models.since_ns > FRESH_MS * 1000000ull) {
        rc = fetch_list(g, 0, &text, err);
        if (!rc) {
            keep_list(g, text);
            g->models.since_ns = ntx_now_ns();
        }
        free(text);
    }
    *out = g->models.said ? json_loads(g->models.said, 0, NULL) : NULL;
    if (*out && !g->models.many && is_as_before(g))
        json_array_clear(*out);
    pthread_mutex_unlock(&g->models.lock);
    if (*out)
        return 0;
    return rc ? rc : ntx_err_set(err, -ENOMEM, "no memory for the list of models");
}

/* ---- names */

static const json_t *named_so(const json_t *list, const char *name, size_t len)
{
    size_t i, k;
    const json_t *m, *each;
    json_array_foreach(list, i, m) {
        json_array_foreach(json_object_get(m, "names"), k, each) {
            const char *is = json_string_value(each);
            if (is && !strncasecmp(is, name, len) && !is[len])
                return m;
        }
    }
    return NULL;
}

static void fault_unknown(const json_t *list, const char *name, struct ntx_fault *f)
{
    struct ntx_near near;
    size_t i, k;
    const json_t *m, *each;
    ntx_near_begin(&near, name, "");
    json_array_foreach(list, i, m)
        json_array_foreach(json_object_get(m, "names"), k, each)
            ntx_near_offer(&near, json_string_value(each), json_string_length(each));
    ntx_fault(f, NTX_FAULT_MODEL, "model", "model '%.200s' not found%s%s", name, near.hint,
              *near.hint ? "" : ": /v1/models lists those that there are");
}

/* The name without the hub that it may begin with. */
static const char *without_hub(const char *name)
{
    static const char *const hubs[] = {"hf.co/", "huggingface.co/", "hf:"};
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs; i++)
        if (!strncasecmp(name, hubs[i], strlen(hubs[i])))
            return name + strlen(hubs[i]);
    return name;
}

const json_t *ntx_models_named(const json_t *list, const char *name)
{
    const char *bare = without_hub(name);
    const json_t *m = named_so(list, name, strlen(name));
    size_t n = strlen(bare);
    if (!m && bare != name)
        m = named_so(list, bare, n);
    if (!m && n > 5 && !strcasecmp(bare + n - 5, ".gguf"))
        m = named_so(list, bare, n - 5);
    if (!m && n > 7 && !strcasecmp(bare + n - 7, ":latest"))
        m = named_so(list, bare, n - 7);
    return m;
}

const json_t *ntx_models_find(struct ntx_gate *g, const json_t *list, const char *name, struct ntx_fault *f)
{
    struct ntx_turns_state s;
    const char *colon = name ? strrchr(name, ':') : NULL;
    if (json_array_size(list) == 1)
        return json_array_get(list, 0);
    if (!name || !*name) {
        ntx_turns_look(g->turns, &s);
        for (unsigned i = 0; i < s.n_places; i++) {
            name = *s.place[i].loading ? s.place[i].loading : s.place[i].loaded;
            const json_t *now = named_so(list, name, strlen(name));
            if (now)
                return now;
        }
        return json_array_get(list, 0);
    }
    const json_t *m = ntx_models_named(list, name);
    if (!m && colon && colon > name)
        m = named_so(list, name, (size_t)(colon - name));
    if (!m)
        fault_unknown(list, name, f);
    return m;
}

json_t *ntx_models_made(void *arg, const char *name)
{
    struct ntx_gate *g = arg;
    struct ntx_err ignored;
    json_t *list = NULL;
    pthread_mutex_lock(&g->models.lock);
    const bool none = g->models.said && !g->models.made;
    pthread_mutex_unlock(&g->models.lock);
    if (none || ntx_gate_models(g, &list, &ignored))
        return NULL;
    json_t *made = json_deep_copy(ntx_aliases_made(list, name));
    json_decref(list);
    return made;
}

/* ---- turns */

static bool is_away(int rc) { return rc == -EPIPE || rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -EHOSTDOWN; }

bool ntx_models_lost(int rc) { return rc == -EMEDIUMTYPE || rc == -ENOENT || is_away(rc); }

int ntx_models_turn(struct ntx_gate *g, const char *name, struct ntx_turn **out, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    json_t *list = NULL;
    *out = NULL;
    if (ntx_gate_models(g, &list, &err) || !json_array_size(list)) {
        json_decref(list);
        return 0; /* the request itself finds out why the daemons do not answer */
    }
    const json_t *m = ntx_models_find(g, list, name, f);
    int rc = m ? ntx_turn_new(g->turns, json_string_value(json_object_get(m, "id")), out) : -ENOENT;
    if (m && rc)
        ntx_fault(f, ntx_fault_of(rc), NULL, "%s",
                  rc == -EAGAIN ? "busy: too many requests wait for another model; try again later" : strerror(-rc));
    json_decref(list);
    return rc ? -1 : 0;
}

int ntx_models_wait(struct ntx_gate *g, struct ntx_turn *t, int client_fd, int timeout_ms, struct ntx_err *err)
{
    const uint64_t until = ntx_now_ns() + (uint64_t)NTX_MAX(timeout_ms, 0) * 1000000;
    int rc = t ? ntx_turn_check(t, err) : 0;
    while (rc == -EAGAIN) {
        struct pollfd p[3] = {{.fd = ntx_turn_fd(t), .events = POLLIN},
                              {.fd = client_fd, .events = POLLRDHUP},
                              {.fd = g->quit, .events = POLLIN}};
        poll(p, 3, timeout_ms < 0 ? STEP_MS : NTX_MIN(timeout_ms, STEP_MS));
        if (p[2].revents)
            return ntx_err_set(err, -ESHUTDOWN, "the gateway is shutting down");
        if (client_fd >= 0 && p[1].revents)
            return ntx_err_set(err, -ECANCELED, "the client is gone");
        rc = ntx_turn_check(t, err);
        if (rc == -EAGAIN && timeout_ms >= 0 && ntx_now_ns() >= until)
            return -ETIMEDOUT;
    }
    if (rc && !is_away(rc)) /* whatever the reason is: the request has no error */
        rc = -ENOMEDIUM;
    return rc;
}

/* ---- loads */

#define PROCESSES (64ull << 20) /* what the daemons of a place may take beside the budget of its model */
#define BACK_S    10u           /* a place that showed no model for so long has none */

/* The id of the place's loaded model. */
static int look_loaded(struct ntx_gate *g, unsigned place, char now[NTX_KNOWN_NAME], struct ntx_err *err)
{
    char *text = NULL;
    int rc = fetch_list(g, place, &text, err);
    json_t *j = rc ? NULL : json_loads(text, 0, NULL);
    const char *loaded = json_string_value(json_object_get(j, "loaded"));
    if (!rc)
        snprintf(now, NTX_KNOWN_NAME, "%s", loaded ? loaded : "");
    json_decref(j);
    free(text);
    return rc;
}

/* Looks at what a place's model takes of the budget. Daemons that died come back with what they had, and for a moment
 * show nothing: until then the last value holds. False: they are away, or just back. */
static bool look_taken(struct ntx_gate *g, unsigned place)
{
    struct ntx_err ignored;
    json_t *j = NULL;
    const bool looked = !ntx_gate_look(g, place, &j, &ignored);
    const uint64_t bytes = (uint64_t)json_integer_value(json_object_get(j, "bytes_total")), now = ntx_now_ns();
    const bool loads = json_is_string(json_object_get(j, "loading"));
    json_decref(j);
    if (!looked || loads || bytes)
        g->taken_ns[place] = now;
    if (bytes || (looked && now - g->taken_ns[place] > BACK_S * 1000000000ull))
        g->taken[place] = bytes;
    return looked && (bytes || !g->taken[place]);
}

/* The bytes of the budget that the models of other places take. */
static uint64_t taken_beside(struct ntx_gate *g, unsigned place, bool *away)
{
    uint64_t sum = 0;
    *away = false;
    for (unsigned i = 0; i < g->n_places; i++) {
        if (i == place)
            continue;
        *away |= !look_taken(g, i);
        if (g->taken[i])
            sum += g->taken[i] + PROCESSES;
    }
    return sum;
}

/* A load that reports nothing may wait for a drive. The old model is there until the new one's files are open. */
static void look_still(struct ntx_gate *g, unsigned place)
{
    struct ntx_err ignored;
    char now[NTX_KNOWN_NAME] = "";
    if (!look_loaded(g, place, now, &ignored))
        ntx_turns_still(g->turns, place, now);
}

/* One try. It lasts as long as ntx-computed reports progress, or nothing. */
static int load_once(struct ntx_gate *g, unsigned place, const char *model, struct ntx_err *err)
{
    struct ntx_call *c = NULL;
    struct ntx_event e = {.kind = NTX_EVENT_PROGRESS};
    bool away = false;
    const uint64_t beside = *model ? taken_beside(g, place, &away) : 0;
    int rc = ntx_call_open(g, place, NTX_NO_CALLER, false, &c, err);
    rc = rc ? rc : ntx_call_load(c, model, beside, err);
    while ((!rc || rc == -ETIMEDOUT) && e.kind == NTX_EVENT_PROGRESS) {
        rc = ntx_call_next(c, STEP_MS, &e, err);
        if (rc == -ETIMEDOUT)
            look_still(g, place);
        else
            ntx_turns_still(g->turns, place, "");
    }
    ntx_call_close(c);
    return rc == -EDQUOT && away ? -EHOSTDOWN : rc; /* once they are back, they can be unloaded */
}

/* The place's share of the budget, for loads that come while its daemons are away. */
static void keep_taken(struct ntx_gate *g, unsigned place)
{
    struct ntx_err ignored;
    json_t *j = NULL;
    if (g->n_places > 1 && !ntx_gate_look(g, place, &j, &ignored))
        g->taken[place] = (uint64_t)json_integer_value(json_object_get(j, "bytes_total"));
    json_decref(j);
}

int ntx_models_load(void *arg, unsigned place, const char *model, char now[NTX_KNOWN_NAME], struct ntx_err *err)
{
    struct ntx_gate *g = arg;
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000};
    const uint64_t until = ntx_now_ns() + AGAIN_S * 1000000000ull;
    struct ntx_err ignored;
    struct pollfd quit = {.fd = g->quit, .events = POLLIN};
    for (;;) {
        int rc = look_loaded(g, place, now, err);
        if (!rc && strcmp(now, model))
            rc = load_once(g, place, model, err);
        const bool ends = !is_away(rc) || ntx_now_ns() > until || poll(&quit, 1, 0) > 0;
        if (ends && look_loaded(g, place, now, &ignored))
            now[0] = 0;
        if (ends)
            keep_taken(g, place);
        if (ends)
            return rc;
        nanosleep(&pause, NULL); /* the daemons are started again meanwhile */
    }
}

void ntx_models_tell(void *arg)
{
    struct ntx_gate *g = arg;
    struct ntx_turns_state s;
    struct ntx_call *c = NULL;
    struct ntx_event e;
    struct ntx_err ignored;
    ntx_turns_look(g->turns, &s);
    if (!ntx_call_open(g, 0, NTX_NO_CALLER, false, &c, &ignored) && !ntx_call_queue(c, &s, &ignored))
        ntx_call_next(c, STEP_MS, &e, &ignored);
    ntx_call_close(c);
}
