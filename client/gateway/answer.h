/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h: an answer under way, and the shapes that the APIs give it.
 *
 *   events (call.h) --> ntx_answer_take --> stream: a shape's functions write into a buffer that is sent
 *                                       --> else:   texts are collected; the shape writes them at the end */
#ifndef NTX_CLIENT_GATEWAY_ANSWER_H
#define NTX_CLIENT_GATEWAY_ANSWER_H

#include <time.h>

#include "client/gateway/api_request.h"
#include "client/gateway/buf.h"
#include "client/gateway/call.h"
#include "model/reply/reply.h"

struct ntx_answer;

struct ntx_shape {
    const char *prefix; /* of the answers' ids */
    const char *type;   /* Content-Type of a stream */
    bool thinks;        /* reasoning is reported apart from the text */
    /* For streams. A NULL function writes nothing. */
    void (*begin)(struct ntx_answer *a, struct ntx_buf *out);
    void (*piece)(struct ntx_answer *a, unsigned choice, bool thought, const char *text, size_t len,
                  struct ntx_buf *out);
    void (*call)(struct ntx_answer *a, unsigned choice, unsigned i, struct ntx_buf *out); /* call i of this choice */
    void (*finish)(struct ntx_answer *a, unsigned choice, struct ntx_buf *out);           /* this choice has ended */
    void (*end)(struct ntx_answer *a, struct ntx_buf *out);
    void (*alive)(struct ntx_answer *a, const struct ntx_event *e,
                  struct ntx_buf *out); /* no text yet; e NULL: not even progress */
    /* For answers that are not streams. */
    void (*whole)(struct ntx_answer *a, struct ntx_buf *out);
    void (*fault)(const struct ntx_fault *f, struct ntx_buf *out);  /* body of an error */
    void (*broken)(const struct ntx_fault *f, struct ntx_buf *out); /* error within a stream that has begun */
};

extern const struct ntx_shape ntx_openai_chat, ntx_openai_text, ntx_anthropic, ntx_anthropic_count, ntx_ollama,
    ntx_llama, ntx_openai_responses;

struct ntx_tool_call {
    char id[64];
    json_t *name, *arguments; /* arguments: an object, empty if the model wrote none; for a call that was cut, its
                               * complete members */
    char *text;               /* the arguments as the model wrote them */
    bool cut;                 /* the answer ended within this call */
};

struct ntx_choice {
    struct ntx_part_taker { /* receives the parts from model/reply */
        struct ntx_answer *a;
        unsigned choice;
        struct ntx_buf *out;
    } taker;
    struct ntx_reply *reply;    /* NULL: the text is passed on unchanged */
    struct ntx_tool_call *call; /* [n_calls] */
    unsigned n_calls;
    struct ntx_buf text, thought; /* unused in streams */
    struct ntx_buf checked;       /* in streams: the text, if it is to be checked at the end */
    const char *finish;           /* "stop" or "length"; NULL: not yet */
    uint32_t tokens;
    json_t *logprobs; /* if requested: those of the tokens whose text is not sent yet; else NULL */
    uint32_t offset;  /* bytes before the next token, for completions */
    char *stop;       /* the stop string that ended the choice, or NULL */
};

/* Of all choices that have ended; counts in tokens. */
struct ntx_timings {
    bool known;
    json_int_t prompt_n, cache_n, predicted_n, thinking_n, draft_n, draft_accepted;
    double prompt_ms, predicted_ms, queue_ms;
};

struct ntx_answer {
    const struct ntx_api_request *request;
    const struct ntx_shape *shape;
    char id[48], model[128];
    time_t created;
    struct ntx_choice choice[NTX_API_REQUEST_CHOICES];
    unsigned n, left;                      /* choices; choices that have not ended */
    uint32_t prompt_tokens, cached_tokens; /* cached_tokens: of the prompt; known at the end */
    struct ntx_timings timings;
    struct ntx_kept kept;        /* whether the values keep to what was not enforced */
    uint64_t since_ns, first_ns; /* time of the request, when its model was there, and of the first text (0: none) */
    uint64_t load_ns;            /* how long it waited for its model before */
    int block; /* Anthropic's blocks and the items of Responses: index of the current or next one; whether it is
                * open; its kind */
    bool block_open, block_thought;
    json_t *items;     /* Responses: complete items of a stream */
    unsigned sequence; /* number of the next event of Responses */
    bool bad;          /* an allocation failed */
};

/* request is borrowed. format: how the model writes calls, for a request with tools. Always call ntx_answer_free. 0 or
 * -ENOMEM. */
int ntx_answer_init(struct ntx_answer *a, const struct ntx_api_request *request, const struct ntx_shape *shape,
                    const char *model, const struct ntx_reply_format *format);
void ntx_answer_free(struct ntx_answer *a);
/* The whole answer is the prompt: ends all choices. */
void ntx_answer_without(struct ntx_answer *a, struct ntx_buf *out);
/* For a stream, the bytes to send go to out. 0, or a negative errno with err when the daemons' end cut the answer. */
int ntx_answer_take(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out, struct ntx_err *err);
/* [{id, type, function: {name, arguments}}], arguments as text. from: the first call; index: include each call's
 * number. */
json_t *ntx_answer_calls(const struct ntx_choice *c, unsigned from, bool index);
bool ntx_answer_called(const struct ntx_choice *c); /* the choice ended with complete calls */
json_t *ntx_answer_logprobs(struct ntx_choice *c);  /* those collected, or null; clears them */
uint32_t ntx_answer_tokens(const struct ntx_answer *a);
/* Adds `timings` with llama-server's names, once the answer is complete and its figures are known. j may be NULL. */
void ntx_answer_add_timings(const struct ntx_answer *a, json_t *j);
/* Adds `ntx` to the last event of a stream, if keywords of a schema were not enforced. j may be NULL. */
void ntx_answer_add_kept(const struct ntx_answer *a, json_t *j);

#endif
