/* SPDX-License-Identifier: Apache-2.0 */
/* call.h: one HTTP request's connection to ntx-computed: its right there is the socket's right, its end ends what it
 * asked for, before the next pass.
 *
 *   gate (one a gateway) --seat--> call --frames--> computed waits see three ends: computed's, the HTTP client's, the
 *     gateway's
 *
 * computed has few connections (32 unless told), so the gate has seats for some of them, and who finds none waits for
 * one (seats.h). This is the one file of
 * the gateway that knows protobuf. A call is its thread's. */
#ifndef NTX_CLIENT_GATEWAY_CALL_H
#define NTX_CLIENT_GATEWAY_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/gateway/api_request.h"
#include "client/gateway/seats.h"
#include "common/err.h"

struct ntx_gate {
    char dir[200]; /* the daemons' runtime directory; "": where.h finds it anew each time */
    struct ntx_seats seats;
    int quit;                 /* an eventfd that becomes readable when the gateway ends */
    _Atomic uint64_t gone_ns; /* since when ntx-computed is gone without having ended in order; 0: it is there */
    struct {                  /* who only wants to know how it is: one connection for all of them (look.c) */
        pthread_mutex_t lock;
        uint64_t since_ns; /* when the last one asked */
        char *said;        /* JSON: each parses its own, for jansson's references are not for several threads */
        int rc;            /* said is NULL: why */
        struct ntx_err err;
    } look;
};
int ntx_gate_open(struct ntx_gate *g, const char *dir, const struct ntx_seats_config *seats,
                  struct ntx_err *err); /* dir NULL: wherever daemons run */
void ntx_gate_quit(struct ntx_gate *g); /* every wait ends with -ESHUTDOWN; from any thread */
void ntx_gate_close(struct ntx_gate *g);
/* computed's status, not older than the call, as whoever asks meanwhile gets it, too: a thousand who ask at once take
 * two connections, one after the other. To be given back with json_decref. A negative errno with err. */
int ntx_gate_look(struct ntx_gate *g, json_t **out, struct ntx_err *err);
/* Nobody answers in dir. -EHOSTDOWN, and err: ntx-computed was killed a moment ago, and who supervises it starts it
 * again; 0: there is more to it. */
int ntx_gate_gone(struct ntx_gate *g, const char *dir, struct ntx_err *err);
int ntx_gate_where(const struct ntx_gate *g, char dir[200], struct ntx_err *err);

enum ntx_event_kind {
    NTX_EVENT_STARTED,
    NTX_EVENT_PROGRESS,
    NTX_EVENT_TEXT,
    NTX_EVENT_DONE,
    NTX_EVENT_STATUS,
    NTX_EVENT_WORDS,
    NTX_EVENT_STATE
};

struct ntx_event { /* texts are good until the next call */
    enum ntx_event_kind kind;
    unsigned choice;
    const char *text; /* TEXT: [len]; PROGRESS: the phase; STATUS: JSON; DONE: stop, length or cancel */
    size_t len;
    uint32_t prompt_tokens;  /* STARTED */
    const char *note;        /* STARTED: on the form of the prompt; "": there is none */
    uint32_t cached_tokens;  /* DONE: of these, that were not computed */
    uint32_t tokens;         /* TEXT: how many tokens these are, 0 or 1 */
    uint64_t done, total;    /* PROGRESS, of the prompt, in tokens; total 0: unknown */
    double left_s;           /* PROGRESS: 0: unknown */
    bool has_logprob;        /* TEXT: of a token that has text */
    struct ntx_event_token { /* [0] it, [1 .. n_top] the likeliest */
        const char *text;
        size_t len;
        float logprob;
    } token[21];
    unsigned n_top;
    const char *stop;   /* DONE: the stop string that ended it, "" for none */
    const int32_t *ids; /* WORDS: [n_ids], beside text */
    size_t n_ids;
    const void *floats; /* STATE: [n_floats], perhaps not aligned */
    size_t n_floats;
};

struct ntx_call;

/* client_fd: the HTTP client's socket, whose end ends every wait with -ECANCELED. seat: one is waited for, as answers
 * must; who looks (ntx_gate_look) needs none. */
int ntx_call_open(struct ntx_gate *g, int client_fd, bool seat, struct ntx_call **out, struct ntx_err *err);
void ntx_call_close(struct ntx_call *c); /* NULL is fine */
/* Of a stream: true, there is something for the client to take; false, it took that. While it takes nothing and others
 * wait, the call may lose its seat; ntx_call_next then
 * waits for one. */
void ntx_call_client(struct ntx_call *c, bool takes);

int ntx_call_request(struct ntx_call *c, const struct ntx_api_request *a, struct ntx_err *err); /* all its choices */
/* What the vocabulary says: text to tokens, tokens to text, or the prompt for what goes between text and suffix. An
 * event WORDS. */
struct ntx_call_text {
    const char *text, *suffix;
    size_t len, n_suffix;
    const int32_t *tokens; /* instead, where there are some */
    size_t n_tokens;
    bool bos, special, infill;
};
int ntx_call_text(struct ntx_call *c, const struct ntx_call_text *t, struct ntx_err *err);
/* The mean of the states that these tokens give: an event STATE, then DONE. */
int ntx_call_pool(struct ntx_call *c, const int32_t *tokens, size_t n, struct ntx_err *err);
int ntx_call_status(struct ntx_call *c, struct ntx_err *err);

/* The next thing that happens: 0; -ETIMEDOUT; -ECANCELED, the client is gone; -ESHUTDOWN; or the negative errno of a
 * choice that failed, or of the connection, with err. */
int ntx_call_next(struct ntx_call *c, int timeout_ms, struct ntx_event *e, struct ntx_err *err);

#endif
