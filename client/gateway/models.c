/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/models.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "common/nearest.h"
#include "common/util.h"

enum { ASK_MS = 10000, FRESH_MS = 1000, AGAIN_MS = 100, AGAIN_S = 30, STEP_MS = 1000 };

/* ---- the list */

/* The reply to a Models request, as JSON text: malloc'd. */
static int fetch_list(struct ntx_gate *g, char **out, struct ntx_err *err)
{
    struct ntx_call *c = NULL;
    struct ntx_event e;
    int rc = ntx_call_open(g, NTX_NO_CALLER, false, &c, err);
    rc = rc ? rc : ntx_call_models(c, err);
    rc = rc ? rc : ntx_call_next(c, ASK_MS, &e, err);
    *out = !rc && e.kind == NTX_EVENT_STATUS ? strdup(e.text) : NULL;
    ntx_call_close(c);
    if (rc || *out)
        return rc;
    return ntx_err_set(err, -EPROTO, "ntx-computed sends no list of models");
}

/* Takes the reply's list; tells the turns which model is loaded. */
static void keep_list(struct ntx_gate *g, const char *text)
{
    json_t *j = json_loads(text, 0, NULL);
    char *list = j ? json_dumps(json_object_get(j, "models"), JSON_COMPACT) : NULL;
    const char *loaded = json_string_value(json_object_get(j, "loaded"));
    if (list) {
        free(g->models.said);
        g->models.said = list;
    }
    g->models.many = json_array_size(json_object_get(j, "models")) > 1;
    g->models.other = json_is_true(json_object_get(j, "other"));
    g->models.none = !loaded || !*loaded;
    if (loaded)
        ntx_turns_see(g->turns, loaded);
    json_decref(j);
}

/* Whether the one known model makes no difference: another one was loaded in its place, or it was unloaded by hand. */
static bool is_as_before(struct ntx_gate *g)
{
    struct ntx_turns_state s;
    ntx_turns_look(g->turns, &s);
    return g->models.other || (g->models.none && !s.asleep && !*s.loading);
}

int ntx_gate_models(struct ntx_gate *g, json_t **out, struct ntx_err *err)
{
    int rc = 0;
    char *text = NULL;
    pthread_mutex_lock(&g->models.lock);
    /* Where there is one known model, another one that somebody loads answers in its place. */
    if (!g->models.said || !g->models.many || ntx_now_ns() - g->models.since_ns > FRESH_MS * 1000000ull) {
        rc = fetch_list(g, &text, err);
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

const json_t *ntx_models_find(struct ntx_gate *g, const json_t *list, const char *name, struct ntx_fault *f)
{
    struct ntx_turns_state s;
    const char *colon = name ? strrchr(name, ':') : NULL;
    const size_t n = name ? strlen(name) : 0;
    if (json_array_size(list) == 1)
        return json_array_get(list, 0);
    if (!n) {
        ntx_turns_look(g->turns, &s);
        name = *s.loading ? s.loading : s.loaded;
        const json_t *now = named_so(list, name, strlen(name));
        return now ? now : json_array_get(list, 0);
    }
    const json_t *m = named_so(list, name, n);
    if (!m && n > 5 && !strcasecmp(name + n - 5, ".gguf"))
        m = named_so(list, name, n - 5);
    if (!m && colon && colon > name)
        m = named_so(list, name, (size_t)(colon - name));
    if (!m)
        fault_unknown(list, name, f);
    return m;
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

/* The id of the loaded model. */
static int look_loaded(struct ntx_gate *g, char now[NTX_KNOWN_NAME], struct ntx_err *err)
{
    char *text = NULL;
    int rc = fetch_list(g, &text, err);
    json_t *j = rc ? NULL : json_loads(text, 0, NULL);
    const char *loaded = json_string_value(json_object_get(j, "loaded"));
    if (!rc)
        snprintf(now, NTX_KNOWN_NAME, "%s", loaded ? loaded : "");
    json_decref(j);
    free(text);
    return rc;
}

/* One try. It lasts as long as ntx-computed reports progress, or nothing. */
static int load_once(struct ntx_gate *g, const char *model, struct ntx_err *err)
{
    struct ntx_call *c = NULL;
    struct ntx_event e = {.kind = NTX_EVENT_PROGRESS};
    int rc = ntx_call_open(g, NTX_NO_CALLER, false, &c, err);
    rc = rc ? rc : ntx_call_load(c, model, err);
    while ((!rc || rc == -ETIMEDOUT) && e.kind == NTX_EVENT_PROGRESS)
        rc = ntx_call_next(c, STEP_MS, &e, err);
    ntx_call_close(c);
    return rc;
}

int ntx_models_load(void *arg, const char *model, char now[NTX_KNOWN_NAME], struct ntx_err *err)
{
    struct ntx_gate *g = arg;
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000};
    const uint64_t until = ntx_now_ns() + AGAIN_S * 1000000000ull;
    struct ntx_err ignored;
    struct pollfd quit = {.fd = g->quit, .events = POLLIN};
    for (;;) {
        int rc = look_loaded(g, now, err);
        if (!rc && strcmp(now, model))
            rc = load_once(g, model, err);
        const bool ends = !is_away(rc) || ntx_now_ns() > until || poll(&quit, 1, 0) > 0;
        if (ends && look_loaded(g, now, &ignored))
            now[0] = 0;
        if (ends)
            return rc;
        nanosleep(&pause, NULL); /* the daemons are started again meanwhile */
    }
}
