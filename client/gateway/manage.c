/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's management of models: pull, delete, and aliases (create, copy). All of it is off unless `--manage yes` or
 * `--manage-key-file` is given (http.c). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "client/gateway/aliases.h"
#include "client/gateway/http.h"
#include "client/gateway/pulling.h"
#include "client/gateway/request_fields.h"
#include "client/pull/store.h"
#include "common/util.h"

enum { STEP_MS = 1000, UNLOAD_MS = 30000, LOOK_MS = 20, BLOCK = 4096 };

static const char *text_in(const json_t *j, const char *what)
{
    const char *s = json_string_value(json_object_get(j, what));
    return s ? s : "";
}

/* The body, if this request may manage models and all fields are known. NULL with f. */
static json_t *read_body(struct ntx_request *q, enum ntx_fields of, struct ntx_fault *f)
{
    if (ntx__http_manages(q, f))
        return NULL;
    json_t *body = ntx__json_read(q->body.n ? q->body.p : "", q->body.n, f);
    if (body && !ntx_fields_read(of, body, NULL, &q->ignored, f))
        return body;
    json_decref(body);
    return NULL;
}

/* `model`, or `name` as older clients write it. NULL with f. */
static const char *name_in(const json_t *body, const char *first, const char *second, struct ntx_fault *f)
{
    const char *name = text_in(body, first);
    if (!*name && second)
        name = text_in(body, second);
    if (*name && *name != '-')
        return name;
    ntx_fault(f, NTX_FAULT_INVALID, first, "'%s' must be the name of a model", first);
    return NULL;
}

/* The known model of exactly this name: it is not meant by another one, even if it is the only one. */
static const json_t *find_exactly(struct ntx_request *q, const char *name, json_t **list, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    int rc = ntx_gate_models(ntx__http_gate(q->http), list, &err);
    const json_t *m = rc ? NULL : ntx_models_named(*list, name);
    if (rc)
        ntx_fault(f, ntx_fault_of(rc), NULL, "%s", err.text);
    else if (!m)
        ntx_fault(f, NTX_FAULT_MODEL, "model", "model '%.200s' not found", name);
    return m;
}

static bool is_alias(const json_t *known, const char *name)
{
    size_t i;
    const json_t *each;
    json_array_foreach(json_object_get(known, "aliases"), i, each)
        if (!strcasecmp(json_string_value(each), name))
            return true;
    return false;
}

static int set_alias(struct ntx_request *q, const char *name, const char *path, const json_t *made, struct ntx_err *err)
{
    struct ntx_gate *g = ntx__http_gate(q->http);
    pthread_mutex_lock(&g->models.lock);
    int rc = ntx_aliases_set(name, path, made, err);
    g->models.since_ns = 0;
    pthread_mutex_unlock(&g->models.lock);
    return rc;
}

static enum MHD_Result reply_lines(struct ntx_request *q, const char *lines)
{
    struct ntx_buf b = {0};
    ntx_buf_text(&b, lines);
    return ntx__reply(q, MHD_HTTP_OK, *lines ? q->route->shape->type : "text/plain", &b);
}

/* ---- aliases */

/* The defaults of the name `from`, and those of the body over them. A new reference; NULL with f. */
static json_t *made_of(struct ntx_request *q, const json_t *list, const char *from, const json_t *body,
                       struct ntx_fault *f)
{
    const json_t *system = json_object_get(body, "system"), *parameters = json_object_get(body, "parameters");
    const json_t *before = ntx_aliases_made(list, from);
    json_t *made = before ? json_deep_copy(before) : json_object(), *all = json_object_get(made, "parameters");
    json_object_del(made, "path");
    if (json_string_length(system))
        json_object_set_new(made, "system", json_deep_copy(system));
    if (json_object_size(parameters) && all)
        json_object_update(all, (json_t *)(uintptr_t)parameters);
    else if (json_object_size(parameters))
        json_object_set_new(made, "parameters", json_deep_copy(parameters));
    if (system && !json_is_null(system) && !json_is_string(system))
        ntx_fault(f, NTX_FAULT_INVALID, "system", "'system' must be a string");
    else if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        ntx_fault(f, NTX_FAULT_INVALID, "parameters", "'parameters' must be an object");
    else if (!ntx_api_request_made_check(made, &q->ignored, f))
        return made;
    json_decref(made);
    return NULL;
}

/* body: of /api/create; NULL: /api/copy. 0, or -1 with f. */
static int name_model(struct ntx_request *q, const char *from, const char *to, const json_t *body, struct ntx_fault *f)
{
    struct ntx_err err = {0};
    json_t *list = NULL;
    const json_t *known = find_exactly(q, from, &list, f), *there = known ? ntx_models_named(list, to) : NULL;
    int rc = known ? 0 : -1;
    if (!rc && !ntx_alias_valid(to))
        rc = ntx_fault(f, NTX_FAULT_INVALID, "model",
                       "'%.200s' cannot be a name: letters, digits and . _ - : / are possible", to);
    else if (!rc && there && !is_alias(there, to))
        rc = ntx_fault(f, NTX_FAULT_INVALID, "model", "'%.200s' is a model's own name", to);
    json_t *made = rc ? NULL : made_of(q, list, from, body, f);
    if (!rc && !made)
        rc = -1;
    if (!rc && set_alias(q, to, text_in(known, "path"), made, &err))
        rc = ntx_fault(f, ntx_fault_of(err.code), NULL, "%s", err.text);
    json_decref(made);
    json_decref(list);
    return rc;
}

enum MHD_Result ntx__serve_ollama_copy(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    json_t *body = read_body(q, NTX_FIELDS_OLLAMA_COPY, &f);
    const char *from = body ? name_in(body, "source", NULL, &f) : NULL,
               *to = from ? name_in(body, "destination", NULL, &f) : NULL;
    int rc = to ? name_model(q, from, to, NULL, &f) : -1;
    json_decref(body);
    return rc ? ntx__reply_fault(q, &f) : reply_lines(q, "");
}

enum MHD_Result ntx__serve_ollama_create(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    json_t *body = read_body(q, NTX_FIELDS_OLLAMA_CREATE, &f);
    const char *to = body ? name_in(body, "model", "name", &f) : NULL,
               *from = to ? name_in(body, "from", NULL, &f) : NULL;
    int rc = from ? name_model(q, from, to, body, &f) : -1;
    json_decref(body);
    return rc ? ntx__reply_fault(q, &f) : reply_lines(q, "{\"status\":\"success\"}\n");
}

/* ---- deletion */

/* The model of this file in ntx's own folder: no link, and no other folder. */
static const struct ntx_stored *stored_at(const struct ntx_store *s, const char *path)
{
    char own[1024], at[1400], real[PATH_MAX];
    struct ntx_err ignored;
    struct stat st;
    if (ntx_store_dir(own, sizeof own, &ignored))
        return NULL;
    for (unsigned i = 0; i < s->n; i++) {
        const struct ntx_stored *m = &s->m[i];
        snprintf(at, sizeof at, "%s/%s", m->dir, m->first);
        if (m->root == strlen(own) && !strncmp(m->dir, own, m->root) && !lstat(at, &st) && S_ISREG(st.st_mode) &&
            realpath(at, real) && !strcmp(real, path))
            return m;
    }
    return NULL;
}

/* Waits until the model is unloaded: its answers end first. */
static bool unload_model(struct ntx_gate *g, const char *id)
{
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000};
    const uint64_t until = ntx_now_ns() + UNLOAD_MS * 1000000ull;
    while (ntx_turns_unload(g->turns, id)) {
        if (ntx_now_ns() > until)
            return false;
        nanosleep(&look, NULL);
    }
    return true;
}

static int delete_model(struct ntx_request *q, const json_t *known, const char *name, struct ntx_fault *f)
{
    struct ntx_gate *g = ntx__http_gate(q->http);
    const char *path = text_in(known, "path");
    struct ntx_err err = {0};
    struct ntx_store s;
    int rc = ntx_store_scan(&s, &err);
    const struct ntx_stored *m = rc ? NULL : stored_at(&s, path), *any;
    if (!rc && m && ntx_store_find(&s, name, &any, &err) == -ENOTUNIQ)
        rc = ntx_fault(f, NTX_FAULT_INVALID, "model", "%s", err.text);
    else if (!rc && !m)
        rc = ntx_fault(
            f, NTX_FAULT_FORBIDDEN, "model",
            "%.300s is not in ntx's own folder of models: only what `ntx pull` or /api/pull put there is deleted",
            path);
    else if (!rc && !unload_model(g, text_in(known, "id")))
        rc = ntx_fault(f, NTX_FAULT_BUSY, "model", "'%.200s' answers requests: try again later", text_in(known, "id"));
    else if (rc || (rc = ntx_store_remove(m, &err)))
        ntx_fault(f, NTX_FAULT_INTERNAL, NULL, "%s", err.text);
    pthread_mutex_lock(&g->models.lock);
    if (!rc && ntx_aliases_drop(path, &err))
        ntx_log(NTX_LOG_WARN, "%s", err.text);
    g->models.since_ns = 0;
    pthread_mutex_unlock(&g->models.lock);
    ntx_store_free(&s);
    return rc;
}

enum MHD_Result ntx__serve_ollama_delete(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    struct ntx_err err = {0};
    json_t *list = NULL, *body = read_body(q, NTX_FIELDS_OLLAMA_DELETE, &f);
    const char *name = body ? name_in(body, "model", "name", &f) : NULL;
    const json_t *known = name ? find_exactly(q, name, &list, &f) : NULL;
    int rc = known ? 0 : -1;
    ntx__http_patience(q->http, q->conn, true);
    if (known && !is_alias(known, name))
        rc = delete_model(q, known, name, &f);
    else if (known && set_alias(q, name, NULL, NULL, &err))
        rc = ntx_fault(&f, ntx_fault_of(err.code), NULL, "%s", err.text);
    ntx__http_patience(q->http, q->conn, false);
    json_decref(list);
    json_decref(body);
    return rc ? ntx__reply_fault(q, &f) : reply_lines(q, "");
}

/* ---- pull */

struct puller {
    struct ntx_request *q;
    struct ntx_pulling child;
    struct ntx_buf out;
    size_t at;
    char name[NTX_KNOWN_NAME]; /* as the request has it */
    bool is_over;
    struct ntx_fault fault; /* why it failed */
};

static void puller_free(void *arg)
{
    struct puller *p = arg;
    ntx_pulling_end(&p->child);
    ntx_buf_free(&p->out);
    free(p);
}

static void say(struct puller *p, json_t *line)
{
    ntx_buf_json(&p->out, line);
    ntx_buf_text(&p->out, "\n");
}

static void say_file(struct puller *p, const json_t *step)
{
    const char *sha = text_in(step, "sha256");
    json_t *line = json_pack("{s:o}", "status", json_sprintf("pulling %.12s", *sha ? sha : text_in(step, "file")));
    if (*sha)
        json_object_set_new(line, "digest", json_sprintf("sha256:%s", sha));
    if (json_object_get(step, "total"))
        json_object_set(line, "total", json_object_get(step, "total"));
    json_object_set(line, "completed", json_object_get(step, "completed"));
    say(p, line);
}

/* The pulled model answers by the name that pulled it. */
static void end_pull(struct puller *p, const json_t *step)
{
    struct ntx_gate *g = ntx__http_gate(p->q->http);
    struct ntx_err err = {0};
    json_t *list = NULL, *end = json_pack("{s:s}", "status", "success");
    const json_t *m, *known = NULL;
    char real[PATH_MAX];
    size_t i;
    pthread_mutex_lock(&g->models.lock);
    g->models.since_ns = 0;
    pthread_mutex_unlock(&g->models.lock);
    const bool looked = realpath(text_in(step, "path"), real) && !ntx_gate_models(g, &list, &err);
    json_array_foreach(looked ? list : NULL, i, m)
        if (!strcmp(text_in(m, "path"), real))
            known = m;
    if (known && !ntx_models_named(list, p->name) && ntx_alias_valid(p->name) &&
        set_alias(p->q, p->name, real, NULL, &err))
        ntx_log(NTX_LOG_WARN, "%s", err.text);
    if (!known)
        json_object_set_new(end, "ntx",
                            json_pack("{s:s}", "note",
                                      "it is in ntx's folder of models, which is none of the folders that "
                                      "are served: name it with `ntx serve`"));
    json_decref(list);
    say(p, json_pack("{s:s}", "status", "verifying sha256 digest"));
    say(p, json_pack("{s:s}", "status", "writing manifest"));
    say(p, end);
}

static int fail_pull(struct puller *p, const char *text)
{
    ntx_fault(&p->fault, NTX_FAULT_PATH, "model", "%s", text);
    p->q->route->shape->broken(&p->fault, &p->out);
    p->is_over = true;
    return 0;
}

/* Waits for the child's next step, and adds Ollama's line of it. 0, -ETIMEDOUT, or why the connection ends. */
static int take_step(struct puller *p)
{
    json_t *step = NULL;
    int rc = ntx_pulling_next(&p->child, ntx__http_client(p->q->conn), ntx__http_gate(p->q->http)->quit, STEP_MS,
                              &step);
    const char *status = text_in(step, "status");
    if (rc)
        return rc;
    if (!step)
        return fail_pull(p, "ntx pull ended without a word");
    if (json_object_get(step, "error"))
        fail_pull(p, text_in(step, "error"));
    else if (!strcmp(status, "looking"))
        say(p, json_pack("{s:s}", "status", "pulling manifest"));
    else if (!strcmp(status, "pulling"))
        say_file(p, step);
    else if (!strcmp(status, "done")) {
        end_pull(p, step);
        p->is_over = true;
    }
    json_decref(step);
    return 0;
}

static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t room)
{
    struct puller *p = arg;
    int rc = 0;
    (void)pos;
    if (p->at == p->out.n) {
        p->at = p->out.n = 0;
        ntx__http_patience(p->q->http, p->q->conn, true);
        while (!p->out.n && !p->is_over && (!rc || rc == -ETIMEDOUT))
            rc = take_step(p);
        ntx__http_patience(p->q->http, p->q->conn, false);
    }
    const size_t n = NTX_MIN(room, p->out.n - p->at);
    if (!n)
        return rc && rc != -ETIMEDOUT ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    memcpy(buf, p->out.p + p->at, n);
    p->at += n;
    return (ssize_t)n;
}

static enum MHD_Result stream_pull(struct ntx_request *q, struct puller *p)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, on_read, p, puller_free);
    if (!r) {
        puller_free(p);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, q->route->shape->type);
    return ntx__reply_queue(q, MHD_HTTP_OK, r);
}

static enum MHD_Result await_pull(struct ntx_request *q, struct puller *p)
{
    int rc = 0;
    ntx__http_patience(q->http, q->conn, true);
    while (!p->is_over && (!rc || rc == -ETIMEDOUT)) {
        p->out.n = 0;
        rc = take_step(p);
    }
    ntx__http_patience(q->http, q->conn, false);
    const struct ntx_fault f = p->fault;
    const bool done = p->is_over;
    puller_free(p);
    if (!done)
        return MHD_NO;
    return f.kind ? ntx__reply_fault(q, &f) : reply_lines(q, "{\"status\":\"success\"}\n");
}

/* The name as `ntx pull` takes it: Ollama's clients write hf.co/OWNER/REPO:TYPE, and NAME:latest. NULL with f. */
static const char *pull_name(const char *name, char buf[NTX_KNOWN_NAME], struct ntx_fault *f)
{
    static const char *const hubs[] = {"hf.co/", "huggingface.co/", "hf:"};
    const char *rest = name;
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs && rest == name; i++)
        if (!strncasecmp(name, hubs[i], strlen(hubs[i])))
            rest = name + strlen(hubs[i]);
    size_t n = strlen(rest);
    if (n > 7 && !strcasecmp(rest + n - 7, ":latest"))
        n -= 7;
    if (ntx_alias_valid(rest) && !strstr(rest, "//")) {
        snprintf(buf, NTX_KNOWN_NAME, "%.*s", (int)n, rest);
        return buf;
    }
    ntx_fault(f, NTX_FAULT_INVALID, "model",
              "'%.200s' names no model of the hub: write OWNER/REPO:TYPE, or a short name of `ntx pull --list`; other "
              "addresses are for `ntx pull` on the command line",
              name);
    return NULL;
}

enum MHD_Result ntx__serve_ollama_pull(struct ntx_request *q)
{
    struct ntx_fault f = {0};
    struct ntx_err err = {0};
    char buf[NTX_KNOWN_NAME];
    json_t *body = read_body(q, NTX_FIELDS_OLLAMA_PULL, &f);
    const char *name = body ? name_in(body, "model", "name", &f) : NULL,
               *wanted = name ? pull_name(name, buf, &f) : NULL;
    const bool whole = json_is_false(json_object_get(body, "stream"));
    struct puller *p = wanted ? calloc(1, sizeof *p) : NULL;
    int rc = p ? ntx_pulling_start(wanted, &p->child, &err) : -1;
    if (p)
        snprintf(p->name, sizeof p->name, "%s", name);
    json_decref(body);
    if (rc && wanted)
        ntx_fault(&f, p ? ntx_fault_of(rc) : NTX_FAULT_MEMORY, NULL, "%s", p ? err.text : "no memory");
    if (rc) {
        free(p);
        return ntx__reply_fault(q, &f);
    }
    p->q = q;
    return whole ? await_pull(q, p) : stream_pull(q, p);
}
