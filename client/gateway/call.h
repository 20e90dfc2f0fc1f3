/* SPDX-License-Identifier: Apache-2.0 */
/* call.h: one HTTP request's connection to ntx-computed. Its rights are those of the socket; closing it cancels its
 * requests before the next pass.
 *
 *   gate (one a gateway) --slot--> call --frames--> computed
 *                                  waits notice three ends: computed's, the HTTP client's, the gateway's
 *
 * ntx-computed accepts few connections (32 by default), so the gate has slots for some of them, and a request without
 * one waits (slots.h). This is the only file of the gateway that knows protobuf. A call belongs to its thread. */
#ifndef NTX_CLIENT_GATEWAY_CALL_H
#define NTX_CLIENT_GATEWAY_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/gateway/api_request.h"
#include "client/gateway/slots.h"
#include "client/gateway/turns.h"
#include "common/err.h"

struct ntx_gate {
    /* The runtime directory of each place's daemons; [0] "": where.h finds it for each call. */
    char dir[NTX_PLACES][200];
    unsigned n_places;
    /* Bytes of the budget that each place's model takes, for loads beside it. Only for the turns' thread. */
    uint64_t taken[NTX_PLACES], taken_ns[NTX_PLACES]; /* and when it was seen last */
    struct ntx_slots slots;
    int quit;                 /* an eventfd that becomes readable when the gateway ends */
    _Atomic uint64_t gone_ns; /* when ntx-computed disappeared without an orderly end; 0: it runs */
    struct {                  /* status requests share one connection (look.c) */
        pthread_mutex_t lock;
        uint64_t since_ns; /* time of the last request */
        char *said;        /* JSON text: each thread parses its own, because jansson's references are not thread-safe */
        int rc;            /* the error, if said is NULL */
        struct ntx_err err;
    } look[NTX_PLACES];
    struct { /* the known models, as JSON text (models.h) */
        pthread_mutex_t lock;
        uint64_t since_ns;
        char *said;
        bool many;  /* more than one */
        bool other; /* a model is loaded that is not known */
        bool none;  /* no model is loaded */
        bool begun; /* a load was begun since these daemons started */
        bool made;  /* some names have defaults of their own (aliases.h) */
    } models;
    struct ntx_turns *turns;
};
/* dirs [n], of the places; NULL or dirs[0] NULL: any running daemons. keep_ms: how long a known model stays without
 * requests; NTX_KEEP_EVER. */
int ntx_gate_open(struct ntx_gate *g, const char *const *dirs, unsigned n, const struct ntx_slots_config *slots,
                  int64_t keep_ms, struct ntx_err *err);
void ntx_gate_quit(struct ntx_gate *g); /* every wait ends with -ESHUTDOWN; from any thread */
void ntx_gate_close(struct ntx_gate *g);
/* The status of a place's ntx-computed, not older than the call. Concurrent callers share a reply: a thousand of them
 * need two connections, one after the other. Free with json_decref. A negative errno with err. */
int ntx_gate_look(struct ntx_gate *g, unsigned place, json_t **out, struct ntx_err *err);
/* Explains why no daemon answers in dir. -EHOSTDOWN, and err: ntx-computed was killed a moment ago, and its
 * supervisor starts it again; 0: another reason. */
int ntx_gate_gone(struct ntx_gate *g, const char *dir, struct ntx_err *err);
int ntx_gate_where(const struct ntx_gate *g, unsigned place, char dir[200], struct ntx_err *err);

enum ntx_event_kind {
    NTX_EVENT_STARTED,
    NTX_EVENT_PROGRESS,
    NTX_EVENT_TEXT,
    NTX_EVENT_DONE,
    NTX_EVENT_STATUS,
    NTX_EVENT_WORDS,
    NTX_EVENT_SCORE,
    NTX_EVENT_STATE,
    NTX_EVENT_LOADED
};

struct ntx_event { /* texts are valid until the next call */
    enum ntx_event_kind kind;
    unsigned choice;
    const char *text; /* TEXT: [len]; PROGRESS: the phase; STATUS: JSON; DONE: stop, length or cancel */
    size_t len;
    uint32_t prompt_tokens;  /* STARTED */
    const char *note;        /* STARTED: a note on the prompt's form; "": none */
    uint32_t cached_tokens;  /* DONE: prompt tokens that were cached */
    uint32_t tokens;         /* TEXT: number of tokens, 0 or 1 */
    uint64_t done, total;    /* PROGRESS of the prompt, in tokens; total 0: unknown */
    double left_s;           /* PROGRESS: 0: unknown */
    bool has_logprob;        /* TEXT: of a token that has text */
    struct ntx_event_token { /* [0] the token, [1 .. n_top] the likeliest ones */
        const char *text;
        size_t len;
        float logprob;
    } token[21];
    unsigned n_top;
    const char *stop;   /* DONE: the stop string that ended the answer, or "" */
    const char *stats;  /* DONE: statistics, JSON */
    const int32_t *ids; /* WORDS: [n_ids], beside text. SCORE: the likeliest token at each place */
    size_t n_ids;
    const uint32_t *lengths; /* WORDS with pieces: bytes of each token in text */
    size_t n_lengths;
    const float *nll, *best; /* SCORE: [n_ids] negative log-likelihood of each token, and of the likeliest one */
    const void *floats;      /* STATE: [n_floats], perhaps unaligned */
    size_t n_floats;
};

struct ntx_call;

/* by: the HTTP client; the end of its socket ends every wait with -ECANCELED. NTX_NO_CALLER: none. slot: wait for a
 * slot, as answers must; a status request (ntx_gate_look) needs none. */
#define NTX_NO_CALLER (&(const struct ntx_caller){.fd = -1})
int ntx_call_open(struct ntx_gate *g, unsigned place, const struct ntx_caller *by, bool slot, struct ntx_call **out,
                  struct ntx_err *err);
void ntx_call_close(struct ntx_call *c); /* NULL does nothing */
/* Its requests are for this known model, borrowed; -EMEDIUMTYPE: another one is loaded. NULL: for any. */
void ntx_call_for(struct ntx_call *c, const char *known);
/* For a stream; c may be NULL. true: the client has data to take; false: it took all. While it takes nothing and others
 * wait, the call may lose its slot; ntx_call_next then waits for one. */
void ntx_call_client(struct ntx_call *c, bool takes);

int ntx_call_request(struct ntx_call *c, const struct ntx_api_request *a, struct ntx_err *err); /* all its choices */
/* Asks the tokenizer: text to tokens, tokens to text, or the infill prompt for the gap between text and suffix.
 * Gives an event WORDS. */
struct ntx_call_text {
    const char *text, *suffix;
    size_t len, n_suffix;
    const int32_t *tokens; /* instead of text, if there are any */
    size_t n_tokens;
    const struct ntx_api_request *talk; /* instead of text: its messages, as the model's template writes them */
    bool bos, special, infill;
    bool pieces;   /* the event has each token's length, and the text of all */
    bool template; /* the event's text is the template of the model's file */
};
int ntx_call_text(struct ntx_call *c, const struct ntx_call_text *t, struct ntx_err *err);
/* Computes the likelihood of each token but the first, at least two: an event SCORE. */
int ntx_call_score(struct ntx_call *c, const int32_t *tokens, size_t n, struct ntx_err *err);
/* The mean of these tokens' hidden states: an event STATE, then DONE. */
int ntx_call_pool(struct ntx_call *c, const int32_t *tokens, size_t n, struct ntx_err *err);
int ntx_call_status(struct ntx_call *c, struct ntx_err *err);
int ntx_call_models(struct ntx_call *c, struct ntx_err *err); /* the known models: an event STATUS */
/* Loads a known model: events PROGRESS, then LOADED. "": unloads; an event DONE. beside: bytes of the budget that
 * models of other places take; then a model that is not wholly in memory gives -EDQUOT. */
int ntx_call_load(struct ntx_call *c, const char *known, uint64_t beside, struct ntx_err *err);
/* How many requests wait for models here, for the status of ntx-computed: an event STATUS. */
int ntx_call_queue(struct ntx_call *c, const struct ntx_turns_state *s, struct ntx_err *err);

/* The next event: 0; -ETIMEDOUT; -ECANCELED, the client is gone; -ESHUTDOWN; or the negative errno of a failed
 * choice, or of the connection, with err. */
int ntx_call_next(struct ntx_call *c, int timeout_ms, struct ntx_event *e, struct ntx_err *err);

#endif
