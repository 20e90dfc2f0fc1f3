/* SPDX-License-Identifier: Apache-2.0 */
/* http.h: the HTTP server: who may ask, what there is to ask for, and how much of it at once. libmicrohttpd's, a thread
 * a connection.
 *
 *   connection --> guests.c --> request --> Host, Origin, key (http.c) --> an entry of the routes' table --> body,
 *     bounded --> its function --> reply.c or stream.c
 *
 * On this machine alone (a loopback address, a unix socket) no key is needed: then the Host header must name this
 * machine, or be one of --hosts, so that no web page reaches it by a name of its own (DNS rebinding). A web page of
 * another origin is answered only if --cors names it. */
#ifndef NTX_CLIENT_GATEWAY_HTTP_H
#define NTX_CLIENT_GATEWAY_HTTP_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "client/gateway/answer.h"

#define NTX_HTTP_CORS  16u
#define NTX_HTTP_HOSTS 16u

struct ntx_http_config {             /* borrowed as long as the server runs */
    const char *dir;                 /* the daemons' runtime directory; NULL: wherever they run */
    const char *key;                 /* NULL: none is asked for */
    const char *cors[NTX_HTTP_CORS]; /* origins, or "*" */
    unsigned n_cors;
    const char *hosts[NTX_HTTP_HOSTS]; /* names (without a port) that a Host header may have, too */
    unsigned n_hosts;
    bool local;       /* listens on this machine alone */
    unsigned stall_s; /* for a client to send more of a request, and to take more of an answer; then its connection is
                         closed */
    unsigned clients; /* connections that ntx-computed gives us */
    bool refuse;      /* who finds no seat is refused, instead of waiting */
};

struct ntx_http;

/* fd: a listening socket, which is the server's from now on. */
int ntx_http_start(const struct ntx_http_config *c, int fd, struct ntx_http **out, struct ntx_err *err);
/* Nobody comes in any more, and the socket is closed; who asks over a connection that is there is told so. */
void ntx_http_drain(struct ntx_http *h);
unsigned ntx_http_busy(const struct ntx_http *h); /* requests under way */
void ntx_http_stop(struct ntx_http *h);           /* what is under way is cut short */

/* ---- among the files of this room */
struct ntx_request;

struct ntx_route {
    const char *method, *path;
    enum MHD_Result (*serve)(struct ntx_request *q);
    const struct ntx_shape *shape; /* of its errors, too */
    enum ntx_api_request_api api;
    bool open; /* without a key */
};

struct ntx_request { /* of its connection's thread */
    struct ntx_http *http;
    struct MHD_Connection *conn;
    const struct ntx_route *route;
    struct ntx_buf body;
    size_t charged;     /* of all bodies' bound, until it ends */
    const char *origin; /* to be named in the answer's CORS header, or NULL */
    const char *allow;  /* the method that this path is for, of a request by another one; else NULL */
    uint64_t since_ns;
    enum ntx_fault_kind spoilt; /* its body is refused; else NTX_FAULT_NONE */
    size_t passed;              /* bytes of that which came all the same */
    bool refused;
    unsigned retry_s;           /* the answer's Retry-After; 0: none */
    bool ends;                  /* the connection, with the answer */
    bool lingers;               /* there is a body that nobody reads */
    struct ntx_ignored ignored; /* of its fields, told in the answer */
    char note[128];             /* computed's, told in the answer; "": there is none */
    const char *of;             /* what stands in the path behind the route's, where that ends with a slash */
};

struct ntx_gate *ntx__http_gate(struct ntx_http *h);
void ntx__http_body_done(struct ntx_request *q); /* it is read */
int ntx__http_client(struct MHD_Connection *c);  /* its socket */
/* No limit of time while we make the client wait; and the client's again. */
void ntx__http_patience(const struct ntx_http *h, struct MHD_Connection *c, bool ours);

/* reply.c. body is taken. */
enum MHD_Result ntx__reply(struct ntx_request *q, unsigned status, const char *type, struct ntx_buf *body);
enum MHD_Result ntx__reply_json(struct ntx_request *q, unsigned status, json_t *j);
enum MHD_Result ntx__reply_fault(struct ntx_request *q, const struct ntx_fault *f);
enum MHD_Result ntx__reply_queue(struct ntx_request *q, unsigned status,
                                 struct MHD_Response *r); /* with the headers that all have; r is taken */

enum MHD_Result ntx__serve_answer(struct ntx_request *q); /* stream.c */
/* words.c */
enum MHD_Result ntx__serve_tokenize(struct ntx_request *q);
enum MHD_Result ntx__serve_detokenize(struct ntx_request *q);
enum MHD_Result ntx__serve_embeddings(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_embed(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_embeddings(struct ntx_request *q); /* the older one, of one text */
/* views.c: what there is to see */
enum MHD_Result ntx__serve_models(struct ntx_request *q);
enum MHD_Result ntx__serve_model(struct ntx_request *q);
enum MHD_Result ntx__serve_health(struct ntx_request *q);
enum MHD_Result ntx__serve_metrics(struct ntx_request *q);
enum MHD_Result ntx__serve_home(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_version(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_tags(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_ps(struct ntx_request *q);
enum MHD_Result ntx__serve_ollama_show(struct ntx_request *q);
/* The name of the loaded model as the counters have it, "" for none. */
void ntx__model_name(const struct ntx_gate *g, char name[128]);

#endif
