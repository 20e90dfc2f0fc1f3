/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client/gateway/connections.h"
#include "client/gateway/json_memory.h"
#include "client/http_guard.h"
#include "client/listen.h"
#include "common/util.h"

/* SEND_BYTES: the socket's send buffer, so that a client that takes nothing is noticed soon; the kernel's default
 * would be megabytes each. WITH_IDLE: at most so many connections while some of them are idle: the rest is for
 * new ones. */
enum {
    CONNECTIONS = 256,
    WITH_IDLE = 192,
    PER_ADDRESS = 64,
    BODY_S = 60,
    HEADER_BYTES = 32 << 10,
    STACK_BYTES = 2 << 20,
    SEND_BYTES = 128 << 10,
    LAST_WORDS_MS = 1000
};
#define BODY_MOST   (24u << 20) /* pictures of 16 MiB in base64, and text */
#define BODIES_MOST (64u << 20) /* of all requests that are being read */

struct ntx_http {
    const struct ntx_http_config *c;
    struct ntx_gate gate;
    struct ntx_connections connections;
    struct ntx_http_guard guard;
    struct MHD_Daemon *daemon;
    atomic_size_t bodies;
    atomic_uint busy; /* requests under way */
    atomic_bool draining;
};

static const struct ntx_route routes[] = {
    {"GET", "/", ntx__serve_home, &ntx_openai_chat, NTX_API_CHAT, true},
    {"GET", "/health", ntx__serve_health, &ntx_openai_chat, NTX_API_CHAT, true},
    {"GET", "/v1/health", ntx__serve_health, &ntx_openai_chat, NTX_API_CHAT, true},
    {"GET", "/metrics", ntx__serve_metrics, &ntx_openai_chat, NTX_API_CHAT, false},
    {"GET", "/v1/models", ntx__serve_models, &ntx_openai_chat, NTX_API_CHAT, false},
    {"GET", "/v1/models/", ntx__serve_model, &ntx_openai_chat, NTX_API_CHAT, false},
    {"GET", "/models", ntx__serve_models, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/models/load", ntx__serve_load, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/models/unload", ntx__serve_unload, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/v1/chat/completions", ntx__serve_answer, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/v1/completions", ntx__serve_answer, &ntx_openai_text, NTX_API_TEXT, false},
    {"POST", "/v1/responses", ntx__serve_answer, &ntx_openai_responses, NTX_API_RESPONSES, false},
    {"POST", "/v1/messages", ntx__serve_answer, &ntx_anthropic, NTX_API_MESSAGES, false},
    {"POST", "/v1/messages/count_tokens", ntx__serve_answer, &ntx_anthropic_count, NTX_API_COUNT, false},
    {"POST", "/v1/embeddings", ntx__serve_embeddings, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/tokenize", ntx__serve_tokenize, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/detokenize", ntx__serve_detokenize, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/infill", ntx__serve_answer, &ntx_llama, NTX_API_INFILL, false},
    {"POST", "/completion", ntx__serve_answer, &ntx_llama, NTX_API_COMPLETION, false},
    {"POST", "/completions", ntx__serve_answer, &ntx_llama, NTX_API_COMPLETION, false},
    {"POST", "/chat/completions", ntx__serve_answer, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/embeddings", ntx__serve_embeddings, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/apply-template", ntx__serve_template, &ntx_openai_chat, NTX_API_CHAT, false},
    {"GET", "/tokenizer_info", ntx__serve_tokenizer, &ntx_openai_chat, NTX_API_CHAT, false},
    {"GET", "/props", ntx__serve_props, &ntx_openai_chat, NTX_API_CHAT, false},
    {"GET", "/slots", ntx__serve_slots, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/rerank", ntx__serve_rerank, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/v1/rerank", ntx__serve_rerank, &ntx_openai_chat, NTX_API_CHAT, false},
    {"POST", "/v1/reranking", ntx__serve_rerank, &ntx_openai_chat, NTX_API_CHAT, false},
    {"GET", "/api/version", ntx__serve_ollama_version, &ntx_ollama, NTX_API_CHAT, true},
    {"GET", "/api/tags", ntx__serve_ollama_tags, &ntx_ollama, NTX_API_CHAT, false},
    {"GET", "/api/ps", ntx__serve_ollama_ps, &ntx_ollama, NTX_API_CHAT, false},
    {"POST", "/api/show", ntx__serve_ollama_show, &ntx_ollama, NTX_API_CHAT, false},
    {"POST", "/api/pull", ntx__serve_ollama_pull, &ntx_ollama, NTX_API_CHAT, false},
    {"DELETE", "/api/delete", ntx__serve_ollama_delete, &ntx_ollama, NTX_API_CHAT, false},
    {"POST", "/api/create", ntx__serve_ollama_create, &ntx_ollama, NTX_API_CHAT, false},
    {"POST", "/api/copy", ntx__serve_ollama_copy, &ntx_ollama, NTX_API_CHAT, false},
    {"POST", "/api/chat", ntx__serve_answer, &ntx_ollama, NTX_API_OLLAMA_CHAT, false},
    {"POST", "/api/generate", ntx__serve_answer, &ntx_ollama, NTX_API_OLLAMA_TEXT, false},
    {"POST", "/api/embed", ntx__serve_ollama_embed, &ntx_ollama, NTX_API_CHAT, false},
    {"POST", "/api/embeddings", ntx__serve_ollama_embeddings, &ntx_ollama, NTX_API_CHAT, false},
};
static const struct ntx_route nowhere = {"", "", NULL, &ntx_openai_chat, NTX_API_CHAT, false},
                              nowhere_ollama = {"", "", NULL, &ntx_ollama, NTX_API_CHAT, false},
                              asking = {"", "", NULL, &ntx_openai_chat, NTX_API_CHAT, true};

struct ntx_gate *ntx__http_gate(struct ntx_http *h) { return &h->gate; }

int ntx__http_turn(struct ntx_request *q, const char *model, int timeout_ms, struct ntx_fault *f)
{
    struct ntx_gate *g = &q->http->gate;
    struct ntx_err err = {0};
    if (ntx_models_turn(g, model, &q->turn, f))
        return -1;
    int rc = ntx_models_wait(g, q->turn, ntx__http_client(q->conn), timeout_ms, &err);
    if (!rc || rc == -ETIMEDOUT)
        return rc;
    return ntx_fault(f, ntx_fault_of(rc), NULL, "%s", err.text[0] ? err.text : strerror(-rc));
}

unsigned ntx__http_place(const struct ntx_request *q)
{
    struct ntx_turns_state s;
    if (q->turn)
        return ntx_turn_place(q->turn);
    ntx_turns_look(q->http->gate.turns, &s);
    for (unsigned i = 0; i < s.n_places; i++)
        if (*s.place[i].loaded)
            return i;
    return 0;
}

void ntx__http_model(const struct ntx_request *q, char name[128])
{
    if (q->turn)
        snprintf(name, 128, "%.127s", ntx_turn_model(q->turn));
    else
        ntx__model_name(&q->http->gate, ntx__http_place(q), name);
}

int ntx__http_client(struct MHD_Connection *c) { return ntx_http_socket(c); }

void ntx__http_patience(const struct ntx_http *h, struct MHD_Connection *c, bool ours)
{
    MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT,
                              ours ? 0u : h->c->stall_s); /* setting 0 first restarts its clock */
}

/* ---- permissions */

static const char *header_of(const struct ntx_request *q, const char *name)
{
    return MHD_lookup_connection_value(q->conn, MHD_HEADER_KIND, name);
}

/* Takes the same time for a wrong key as for the right one. */
static bool same_key(const char *given, const char *key)
{
    size_t n = strlen(key), have = strlen(given);
    unsigned differs = have != n;
    for (size_t i = 0; i < have; i++)
        differs |= (unsigned char)given[i] ^ (unsigned char)key[i % (n ? n : 1)];
    return !differs;
}

static bool brings_key(const struct ntx_request *q, const char *key)
{
    const char *auth = header_of(q, "Authorization"), *plain = header_of(q, "x-api-key");
    if (auth && !strncasecmp(auth, "Bearer ", 7) && same_key(auth + 7, key))
        return true;
    return plain && same_key(plain, key);
}

struct ntx_caller ntx__http_caller(const struct ntx_request *q)
{
    const char *auth = header_of(q, "Authorization");
    return (struct ntx_caller){ntx__http_client(q->conn), auth ? auth : header_of(q, "x-api-key")};
}

static bool has_key(const struct ntx_request *q)
{
    const struct ntx_http_config *c = q->http->c;
    return !c->key || brings_key(q, c->key) || (c->manage_key && brings_key(q, c->manage_key));
}

/* Whether the page came from this server. */
static bool own_origin(const struct ntx_request *q, const char *origin)
{
    const char *host = header_of(q, "Host");
    if (!host)
        return false;
    if (!strncmp(origin, "http://", 7))
        return !strcmp(origin + 7, host);
    return !strncmp(origin, "https://", 8) && !strcmp(origin + 8, host);
}

/* Pages and apps of this machine: any port of localhost, and the schemes of desktop apps, which no web page has. */
static bool local_origin(const char *origin)
{
    static const char *const apps[] = {"app://", "tauri://", "vscode-webview://", "vscode-file://"};
    for (size_t i = 0; i < sizeof apps / sizeof *apps; i++)
        if (!strncmp(origin, apps[i], strlen(apps[i])))
            return true;
    const char *host = strstr(origin, "://");
    return host && (!strncmp(origin, "http://", 7) || !strncmp(origin, "https://", 8)) && ntx_host_is_local(host + 3);
}

static bool allow_origin(struct ntx_request *q)
{
    const char *origin = header_of(q, "Origin");
    const struct ntx_http_config *c = q->http->c;
    if (!origin || own_origin(q, origin))
        return true;
    if (!c->own_pages_only && local_origin(origin))
        q->origin = origin;
    for (unsigned i = 0; i < c->n_cors && !q->origin; i++)
        if (!strcmp(c->cors[i], "*") || !strcmp(c->cors[i], origin))
            q->origin = origin;
    return q->origin;
}

int ntx__http_manages(const struct ntx_request *q, struct ntx_fault *f)
{
    const struct ntx_http_config *c = q->http->c;
    const char *origin = header_of(q, "Origin");
    if (!c->manage && !c->manage_key)
        return ntx_fault(f, NTX_FAULT_FORBIDDEN, NULL,
                         "models are not pulled, named or deleted over HTTP, unless the server was started with "
                         "--manage yes, or --manage-key-file FILE");
    if (origin && !own_origin(q, origin))
        return ntx_fault(f, NTX_FAULT_FORBIDDEN, NULL, "pages of other origins may not pull, name or delete models");
    if (c->manage_key && !brings_key(q, c->manage_key))
        return ntx_fault(f, NTX_FAULT_FORBIDDEN, NULL,
                         "to pull, name or delete models, a request needs the key of --manage-key-file");
    return 0;
}

static bool allow_host(const struct ntx_http_config *c, const char *host)
{
    for (unsigned i = 0; i < c->n_hosts; i++)
        if (ntx_host_is(host, c->hosts[i]))
            return true;
    return false;
}

static int check_access(struct ntx_request *q, struct ntx_fault *f)
{
    const char *host = header_of(q, "Host");
    const struct ntx_http_config *c = q->http->c;
    if (c->local && !c->key && host && !ntx_host_is_local(host) && !allow_host(c, host))
        return ntx_fault(f, NTX_FAULT_FORBIDDEN, NULL,
                         "the Host header does not name this machine: without a key, only localhost, loopback "
                         "addresses and the names of --hosts are answered");
    if (!allow_origin(q))
        return ntx_fault(f, NTX_FAULT_FORBIDDEN, NULL, "CORS: origin %.200s is not allowed; add it with --cors",
                         header_of(q, "Origin"));
    if (!q->route->open && !has_key(q))
        return ntx_fault(f, NTX_FAULT_KEY, NULL,
                         "an API key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
    return 0;
}

/* ---- routes */

/* A route that ends with a slash matches all paths below it. */
static bool match_route(struct ntx_request *q, const char *route, const char *path)
{
    const size_t n = strlen(route);
    if (n < 2 || route[n - 1] != '/')
        return !strcmp(route, path);
    q->of = path + n;
    return !strncmp(route, path, n) && path[n];
}

/* HEAD is GET without the body, which libmicrohttpd leaves out. */
static const struct ntx_route *find_route(struct ntx_request *q, const char *method, const char *path,
                                          struct ntx_fault *f)
{
    const char *wanted = !strcmp(method, "HEAD") ? "GET" : method;
    const struct ntx_route *same = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!match_route(q, routes[i].path, path))
            continue;
        if (!strcmp(routes[i].method, wanted))
            return &routes[i];
        same = &routes[i];
    }
    if (same)
        q->allow = strcmp(same->method, "GET") ? same->method : "GET, HEAD";
    if (same)
        ntx_fault(f, NTX_FAULT_METHOD, NULL, "%s is for %s", path, same->method);
    else
        ntx_fault(f, NTX_FAULT_PATH, NULL, "there is no %.100s", path);
    return strncmp(path, "/api/", 5) ? &nowhere : &nowhere_ollama;
}

/* A CORS preflight: browsers ask before they send a request that a plain form could not. */
static enum MHD_Result preflight(struct ntx_request *q)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (r && q->origin) {
        MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE, OPTIONS");
        const char *asked = header_of(q, "Access-Control-Request-Headers");
        MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS,
                                asked ? asked : "Authorization, Content-Type");
        MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_MAX_AGE, "600");
    }
    return ntx__reply_queue(q, MHD_HTTP_NO_CONTENT, r);
}

static void keep_connection(const struct ntx_request *q, bool kept)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(q->conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    ntx_connection_set_active(&q->http->connections, i ? i->socket_context : NULL, kept);
}

static int check_framing(struct ntx_request *q, const char *method, const char *version, struct ntx_fault *f)
{
    bool unsupported;
    const char *why = ntx_http_bad(q->conn, method, version, &unsupported);
    q->ends = q->lingers = why;
    if (!why)
        return 0;
    return ntx_fault(f, unsupported ? NTX_FAULT_UNSUPPORTED : NTX_FAULT_INVALID, NULL, "%s", why);
}

/* A target may name its server (RFC 9112, 3.2.2): it must be that of the Host header. */
static const char *path_of(struct ntx_request *q, const char *target, struct ntx_fault *f)
{
    const char *host = header_of(q, "Host"), *at = strncasecmp(target, "http://", 7) ? NULL : target + 7;
    size_t n = at ? strcspn(at, "/") : 0;
    if (at && (!host || strlen(host) != n || strncasecmp(at, host, n))) {
        q->ends = true;
        ntx_fault(f, NTX_FAULT_INVALID, NULL, "the request is for another server than the Host header names");
    }
    if (!at)
        return target;
    return at[n] ? at + n : "/";
}

/* The header has come: refuse what can be refused before a body is read. */
static enum MHD_Result begin_request(struct ntx_request *q, const char *method, const char *target, const char *version)
{
    struct ntx_fault f = {0}, denied = {0};
    const char *length = header_of(q, "Content-Length");
    bool options = !strcmp(method, "OPTIONS");
    const char *path = path_of(q, target, &denied);
    q->route = options ? &asking : find_route(q, method, path, &f);
    if (!denied.kind && !check_framing(q, method, version, &denied) && !check_access(q, &denied) && !f.kind && length &&
        strtoull(length, NULL, 10) > BODY_MOST)
        ntx_fault(&f, NTX_FAULT_LARGE, NULL, "the body is longer than %u MiB", BODY_MOST >> 20);
    if (atomic_load(&q->http->draining) && !denied.kind) {
        ntx_fault(&denied, NTX_FAULT_DOWN, NULL, "the gateway is shutting down");
        q->ends = true;
    }
    q->refused = options || denied.kind || f.kind;
    q->lingers |= q->refused && ntx_http_has_body(q->conn);
    q->ends |= q->lingers ||
               /* the position of the next request is unknown */
               (!strcmp(method, "POST") && !length && !header_of(q, "Transfer-Encoding"));
    if (denied.kind || f.kind)
        return ntx__reply_fault(q, denied.kind ? &denied : &f);
    if (q->http->c->key && !q->route->open)
        keep_connection(q, true); /* not idle any more */
    return options ? preflight(q) : MHD_YES;
}

/* ---- bodies */

/* libmicrohttpd can queue a reply only after the whole body: the rest of a refused body is read and dropped, up to
 * the size of the largest body. */
static enum MHD_Result drop_body(struct ntx_request *q, size_t *n)
{
    q->passed += *n;
    *n = 0;
    return q->passed > BODY_MOST || ntx_now_ns() - q->since_ns > 2 * BODY_S * 1000000000ull ? MHD_NO : MHD_YES;
}

/* The request is refused: frees the part of its body that came. */
static void refuse_request(struct ntx_request *q, enum ntx_fault_kind why)
{
    q->spoilt = why;
    atomic_fetch_sub(&q->http->bodies, q->body.room);
    ntx_buf_free(&q->body);
}

static enum MHD_Result take_body(struct ntx_request *q, const char *data, size_t *n)
{
    struct ntx_http *h = q->http;
    size_t room = q->body.room;
    if (!q->spoilt && q->body.n + *n > BODY_MOST) /* a chunked body, without a length in advance */
        refuse_request(q, NTX_FAULT_LARGE);
    else if (!q->spoilt && ntx_now_ns() - q->since_ns > BODY_S * 1000000000ull)
        refuse_request(q, NTX_FAULT_SLOW);
    else if (!q->spoilt && atomic_load(&h->bodies) > BODIES_MOST)
        refuse_request(q, NTX_FAULT_BUSY);
    if (q->spoilt)
        return drop_body(q, n);
    ntx_buf_add(&q->body, data, *n);
    atomic_fetch_add(&h->bodies, q->body.room - room);
    if (q->body.bad)
        refuse_request(q, NTX_FAULT_MEMORY);
    *n = 0;
    return MHD_YES;
}

static enum MHD_Result refuse_body(struct ntx_request *q)
{
    struct ntx_fault f;
    if (q->spoilt == NTX_FAULT_LARGE)
        ntx_fault(&f, q->spoilt, NULL, "the body is longer than %u MiB", BODY_MOST >> 20);
    else if (q->spoilt == NTX_FAULT_SLOW)
        ntx_fault(&f, q->spoilt, NULL, "the body did not come within %u s", (unsigned)BODY_S);
    else if (q->spoilt == NTX_FAULT_BUSY)
        ntx_fault(&f, q->spoilt, NULL,
                  "busy: the bodies of all requests that are being read take more than %u MiB; try again later",
                  BODIES_MOST >> 20);
    else
        ntx_fault(&f, q->spoilt, NULL, "no memory for the body; try again later");
    return ntx__reply_fault(q, &f);
}

void ntx__http_body_done(struct ntx_request *q)
{
    q->charged += q->body.room; /* the parsed body takes that memory until the request ends */
    ntx_buf_free(&q->body);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **state)
{
    struct ntx_request *q = *state;
    if (!q) {
        if (!(q = *state = calloc(1, sizeof *q)))
            return MHD_NO;
        *q = (struct ntx_request){.http = arg, .conn = conn, .since_ns = ntx_now_ns()};
        atomic_fetch_add(&q->http->busy, 1);
        return begin_request(q, method, url, version);
    }
    if (q->refused) { /* drop the rest of the body */
        *n = 0;
        return MHD_YES;
    }
    if (*n)
        return take_body(q, data, n);
    if (q->spoilt)
        return refuse_body(q);
    if (!q->route->open)
        keep_connection(q, true);
    return q->route->serve(q);
}

static void on_done(void *arg, struct MHD_Connection *conn, void **state, enum MHD_RequestTerminationCode how)
{
    struct ntx_request *q = *state;
    (void)arg;
    if (!q)
        return;
    keep_connection(q, false);
    ntx_turn_free(q->turn);
    if (q->lingers && how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        ntx_http_linger(ntx__http_client(conn));
    ntx__http_body_done(q);
    atomic_fetch_sub(&q->http->bodies, q->charged);
    atomic_fetch_sub(&q->http->busy, 1);
    free(q);
    *state = NULL;
}

static void on_connection(void *arg, struct MHD_Connection *conn, void **connection,
                          enum MHD_ConnectionNotificationCode what)
{
    struct ntx_http *h = arg;
    const int room = SEND_BYTES;
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        setsockopt(ntx__http_client(conn), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        *connection = ntx_connection_new(&h->connections, ntx__http_client(conn));
    else
        ntx_connection_gone(&h->connections, *connection);
}

/* A path with an escaped NUL stays escaped: otherwise it would end there and be another path. */
static size_t unescape(void *arg, struct MHD_Connection *conn, char *text)
{
    (void)arg;
    (void)conn;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

/* ---- start and end */

int ntx_http_start(const struct ntx_http_config *c, int fd, struct ntx_http **out, struct ntx_err *err)
{
    struct ntx_http *h = calloc(1, sizeof *h);
    struct ntx_slots_config slots = ntx_slots_share(c->clients, c->local);
    slots.refuse = c->refuse;
    int rc = h ? ntx_gate_open(&h->gate, c->dirs, c->n_dirs, &slots, c->keep_ms, err)
               : ntx_err_set(err, -ENOMEM, "no memory");
    if (!rc && (rc = ntx_connections_init(&h->connections, WITH_IDLE))) {
        ntx_gate_close(&h->gate);
        ntx_err_set(err, rc, "no lock: %s", strerror(-rc));
    } else if (!rc && (rc = ntx_http_guard_init(&h->guard))) {
        ntx_connections_end(&h->connections);
        ntx_gate_close(&h->gate);
        ntx_err_set(err, rc, "no key for threads: %s", strerror(-rc));
    }
    if (rc) {
        close(fd);
        free(h);
        return rc;
    }
    ntx_json_memory_init();
    h->c = c;
    h->daemon = MHD_start_daemon(
        MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        on_request, h, MHD_OPTION_EXTERNAL_LOGGER, ntx_http_guard_log, &h->guard, MHD_OPTION_URI_LOG_CALLBACK,
        ntx_http_guard_uri, &h->guard, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, c->local ? 0u : (unsigned)PER_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT,
        c->stall_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK_BYTES, MHD_OPTION_NOTIFY_COMPLETED, on_done, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_END);
    if (!h->daemon) {
        close(fd);
        ntx_http_guard_end(&h->guard);
        ntx_connections_end(&h->connections);
        ntx_gate_close(&h->gate);
        free(h);
        return ntx_err_set(err, -EIO, "the HTTP server does not start");
    }
    *out = h;
    return 0;
}

void ntx_http_drain(struct ntx_http *h)
{
    atomic_store(&h->draining, true);
    int fd = MHD_quiesce_daemon(h->daemon); /* the socket is ours again */
    if (fd >= 0)
        close(fd);
}

unsigned ntx_http_busy(const struct ntx_http *h) { return atomic_load(&h->busy); }

void ntx_http_stop(struct ntx_http *h)
{
    if (!h)
        return;
    const struct timespec look = {.tv_nsec = 10000000};
    ntx_gate_quit(&h->gate);
    for (unsigned i = 0; i < LAST_WORDS_MS / 10 && atomic_load(&h->busy);
         i++) /* MHD_stop_daemon would close the sockets under the threads */
        nanosleep(&look, NULL);
    MHD_stop_daemon(h->daemon); /* closes the socket; its threads end with their waits */
    ntx_http_guard_end(&h->guard);
    ntx_connections_end(&h->connections);
    ntx_gate_close(&h->gate);
    free(h);
}
