/* SPDX-License-Identifier: Apache-2.0 */
/* http.h: the HTTP server: permissions, routes, and limits. It uses libmicrohttpd with a thread a connection.
 *
 *   connection --> connections.c --> request --> Host, Origin, key (http.c) --> an entry of the routes' table
 *     --> body, bounded --> its function --> reply.c or stream.c
 *
 * On this machine alone (a loopback address, a unix socket) no key is needed: then the Host header must name this
 * machine, or a name of --hosts, so that no web page reaches the server under its own name (DNS rebinding). A web page
 * of another origin is answered if that is localhost, at any port, or if --cors names it (CORS). */
#ifndef NTX_CLIENT_GATEWAY_HTTP_H
#define NTX_CLIENT_GATEWAY_HTTP_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "client/http_conf.h"
#include "client/gateway/answer.h"
#include "client/gateway/models.h"

struct ntx_http_config {          /* borrowed as long as the server runs */
    const char *dirs[NTX_PLACES]; /* the runtime directory of each place's daemons; [0] NULL: any running daemons */
    unsigned n_dirs;
    const char *key;                 /* NULL: no key is required */
    const char *manage_key;          /* the key of those who may pull, name and delete models; NULL: none */
    bool manage;                     /* without such a key, every request may */
    const char *cors[NTX_HTTP_CORS]; /* allowed origins, or "*" */
    unsigned n_cors;
    bool own_pages_only;               /* --cors none: not even pages of localhost */
    const char *hosts[NTX_HTTP_HOSTS]; /* other names (without a port) that a Host header may have */
    unsigned n_hosts;
    bool local;       /* listens only on this machine */
    unsigned stall_s; /* time for a client to send more of a request or take more of an answer; then its connection
                       * is closed */
    unsigned clients; /* connections that ntx-computed gives us */
    bool refuse;      /* without a free slot, refuse instead of wait */
    int64_t keep_ms;  /* how long a known model stays without requests; NTX_KEEP_EVER */
};

struct ntx_http;

/* Takes over fd, a listening socket. */
int ntx_http_start(const struct ntx_http_config *c, int fd, struct ntx_http **out, struct ntx_err *err);
/* Accepts no connection any more and closes the socket; requests over existing connections are refused. */
void ntx_http_drain(struct ntx_http *h);
unsigned ntx_http_busy(const struct ntx_http *h); /* requests under way */
void ntx_http_stop(struct ntx_http *h);           /* cuts requests under way short */

/* ---- among the files of this folder */
struct ntx_request;

struct ntx_route {
    const char *method, *path;
    enum MHD_Result (*serve)(struct ntx_request *q);
    const struct ntx_shape *shape; /* also of its errors */
    enum ntx_api_request_api api;
    bool open; /* needs no key */
};

struct ntx_request { /* used by its connection's thread */
    struct ntx_http *http;
    struct MHD_Connection *conn;
    const struct ntx_route *route;
    struct ntx_buf body;
    size_t charged;     /* bytes of the bound on all bodies, held until the request ends */
    const char *origin; /* for the answer's CORS header, or NULL */
    const char *allow;  /* for the Allow header: the method of this path, if the request has another one; else NULL */
    uint64_t since_ns;
    enum ntx_fault_kind spoilt; /* why the body is refused, or NTX_FAULT_NONE */
    size_t passed;              /* bytes of a refused body that came */
    bool refused;
    unsigned retry_s;           /* the answer's Retry-After; 0: none */
    bool ends;                  /* close the connection after the answer */
    bool lingers;               /* a body remains unread */
    struct ntx_ignored ignored; /* fields that are not followed; named in the answer */
    char note[128];             /* ntx-computed's note for the answer; "": none */
    char unenforced[300];       /* keywords of schemas that are not enforced; "": none */
    const char *of;             /* the path after the route's, if the route ends with a slash */
    struct ntx_turn *turn;      /* for its model, until the end of the request; NULL: it needs none */
};

struct ntx_gate *ntx__http_gate(struct ntx_http *h);
void ntx__http_body_done(struct ntx_request *q);                 /* after the body was used */
int ntx__http_client(struct MHD_Connection *c);                  /* its socket */
struct ntx_caller ntx__http_caller(const struct ntx_request *q); /* the key is valid as long as q */
/* ours: no time limit while the client waits for us; else the client's limit again. */
void ntx__http_patience(const struct ntx_http *h, struct MHD_Connection *c, bool ours);

/* reply.c. Takes body. */
enum MHD_Result ntx__reply(struct ntx_request *q, unsigned status, const char *type, struct ntx_buf *body);
enum MHD_Result ntx__reply_json(struct ntx_request *q, unsigned status, json_t *j);
enum MHD_Result ntx__reply_fault(struct ntx_request *q, const struct ntx_fault *f);
enum MHD_Result ntx__reply_queue(struct ntx_request *q, unsigned status,
                                 struct MHD_Response *r); /* adds the common headers; takes r */

enum MHD_Result ntx__serve_answer(struct ntx_request *q); /* stream.c */
/* words.c */
enum MHD_Result ntx__serve_props(struct ntx_request *q); /* server_views.c */
enum MHD_Result ntx__serve_tokenizer(struct ntx_request *q);
enum MHD_Result ntx__serve_slots(struct ntx_request *q);
enum MHD_Result ntx__serve_template(struct ntx_request *q);
enum MHD_Result ntx__serve_rerank(struct ntx_request *q);
/* Sets the reasoning variables of the model's template. *out (may be NULL): its format of calls, NULL without tools. */
int ntx__fit_to_model(struct ntx_call *c, struct ntx_api_request *a, const struct ntx_reply_format **out,
                      struct ntx_err *err);
enum MHD_Result ntx__serve_tokenize(struct ntx_request *q);
enum MHD_Result ntx__serve_detokenize(struct ntx_request *q);
enum MHD_Result ntx__serve_embeddings(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_embed(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_embeddings(struct ntx_request *q); /* the older one, for one text */
/* views.c: models, health, counters */
enum MHD_Result ntx__serve_models(struct ntx_request *q);
enum MHD_Result ntx__serve_model(struct ntx_request *q);
enum MHD_Result ntx__serve_health(struct ntx_request *q);
enum MHD_Result ntx__serve_metrics(struct ntx_request *q);
enum MHD_Result ntx__serve_home(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_version(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_tags(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_ps(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_show(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_pull(struct ntx_request *q); /* manage.c */
enum MHD_Result ntx__serve_ollama_delete(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_create(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_copy(struct ntx_request *q);
/* Whether the request may pull, name and delete models: 0, or -1 with f. */
int ntx__http_manages(const struct ntx_request *q, struct ntx_fault *f);
enum MHD_Result ntx__serve_load(struct ntx_request *q); /* models_views.c */
enum MHD_Result ntx__serve_unload(struct ntx_request *q);
/* Ollama's load, or unload with keep_alive 0, by a request without a prompt. */
enum MHD_Result ntx__serve_preload(struct ntx_request *q, const struct ntx_api_request *a);
/* Unloads the model of this name once it has no turns; id: its own. 0, or -1 with f. */
int ntx__models_unload(struct ntx_request *q, const char *name, char id[NTX_KNOWN_NAME], struct ntx_fault *f);
/* The data of /v1/models from the list of known models, and Ollama's entry of one. */
json_t *ntx__models_data(struct ntx_request *q, const json_t *list);
json_t *ntx__models_entry(const json_t *known);
/* A turn for the model of this name, which q keeps: 0 once it is held; -ETIMEDOUT after timeout_ms (-1: no limit), and
 * then ntx_models_wait waits on; else -1 with f. */
int ntx__http_turn(struct ntx_request *q, const char *model, int timeout_ms, struct ntx_fault *f);
/* The name of the request's model, or else of the loaded one. */
void ntx__http_model(const struct ntx_request *q, char name[128]);
/* The name of the loaded model from the counters, "" for none. */
void ntx__model_name(const struct ntx_gate *g, unsigned place, char name[128]);
/* The place of the request's model, or else the first one where a model is loaded. */
unsigned ntx__http_place(const struct ntx_request *q);

#endif
