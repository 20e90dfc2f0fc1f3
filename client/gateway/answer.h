/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h: an answer as it comes, and the shapes that the APIs give it.
 *
 *   events (call.h) --> ntx_answer_take --> stream: a shape's functions write into a buffer that is sent
 *                                       --> else:   texts pile up; the shape writes them whole at the end */
#ifndef NTX_CLIENT_GATEWAY_ANSWER_H
#define NTX_CLIENT_GATEWAY_ANSWER_H

#include <time.h>

#include "client/gateway/api_request.h"
#include "client/gateway/buf.h"
#include "client/gateway/call.h"
#include "model/reply/reply.h"

struct ntx_answer;

struct ntx_shape {
    const char *prefix; /* of its answers' ids */
    const char *type;   /* of a stream */
    bool thinks;        /* thoughts are told apart */
    /* Of a stream. Any may be NULL: nothing is written. */
    void (*begin)(struct ntx_answer *a, struct ntx_buf *out);
    void (*piece)(struct ntx_answer *a, unsigned choice, bool thought, const char *text, size_t len,
                  struct ntx_buf *out);
    void (*call)(struct ntx_answer *a, unsigned choice, unsigned i, struct ntx_buf *out); /* call i of this choice */
    void (*finish)(struct ntx_answer *a, unsigned choice, struct ntx_buf *out);           /* this choice has ended */
    void (*end)(struct ntx_answer *a, struct ntx_buf *out);
    void (*alive)(struct ntx_answer *a, const struct ntx_event *e,
                  struct ntx_buf *out); /* nothing to say yet; e NULL: not even progress */
    /* Not of a stream. */
    void (*whole)(struct ntx_answer *a, struct ntx_buf *out);
    void (*fault)(const struct ntx_fault *f, struct ntx_buf *out);  /* a body */
    void (*broken)(const struct ntx_fault *f, struct ntx_buf *out); /* within a stream that has begun */
    bool brief; /* all that is wanted is known when computed has taken the prompt: the answer ends there */
};

extern const struct ntx_shape ntx_openai_chat, ntx_openai_text, ntx_anthropic, ntx_anthropic_count, ntx_ollama,
    ntx_llama_infill, ntx_openai_responses;

struct ntx_tool_call {
    char id[64];
    json_t *name, *arguments; /* arguments: an object, empty where the model wrote none; of a call that was cut, its
                                 whole members */
    char *text;               /* the arguments as the model wrote them */
    bool cut;                 /* the answer ended within it */
};

struct ntx_choice {
    struct ntx_part_taker { /* what model/reply hands its parts to */
        struct ntx_answer *a;
        unsigned choice;
        struct ntx_buf *out;
    } taker;
    struct ntx_reply *reply;    /* NULL: the text as it is */
    struct ntx_tool_call *call; /* [n_calls] */
    unsigned n_calls;
    struct ntx_buf text, thought; /* not of a stream */
    const char *finish;           /* "stop" or "length"; NULL: not yet */
    uint32_t tokens;
    json_t *logprobs; /* of a request for them: those of the tokens whose text is not sent yet; NULL: none */
    uint32_t offset;  /* bytes before the next token, of completions */
    char *stop;       /* the stop string that ended it, or NULL */
};

struct ntx_answer {
    const struct ntx_api_request *ask;
    const struct ntx_shape *shape;
    char id[48], model[128];
    time_t created;
    struct ntx_choice choice[NTX_API_REQUEST_CHOICES];
    unsigned n, left;                      /* choices; those that have not ended */
    uint32_t prompt_tokens, cached_tokens; /* cached: of the prompt, known at the end */
    uint64_t since_ns, first_ns;           /* when it was asked for, and when its first text came (0: not yet) */
    int block; /* Anthropic's, and items of Responses: the number of the one under way, or the next; whether it is open,
                  and what it is */
    bool block_open, block_thought;
    json_t *items;     /* Responses': those of a stream that are whole */
    unsigned sequence; /* of its events */
    bool bad;          /* memory failed */
};

/* ask is borrowed. format: how the model writes calls, of a request with tools. To be freed in any case. 0 or -ENOMEM.
 * */
int ntx_answer_init(struct ntx_answer *a, const struct ntx_api_request *ask, const struct ntx_shape *shape,
                    const char *model, const struct ntx_reply_format *format);
void ntx_answer_free(struct ntx_answer *a);
/* Of a stream: what is to be sent goes to out. 0, or a negative errno with err when the answer was cut short by the
 * daemons' end. */
int ntx_answer_take(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out, struct ntx_err *err);
/* [{id, type, function: {name, arguments}}], arguments as text. from: the first one; index: each tells its number. */
json_t *ntx_answer_calls(const struct ntx_choice *c, unsigned from, bool index);
bool ntx_answer_called(const struct ntx_choice *c); /* it ended with calls, and they are whole */
json_t *ntx_answer_logprobs(struct ntx_choice *c);  /* what has piled up, or null; the pile is empty then */
uint32_t ntx_answer_tokens(const struct ntx_answer *a);

#endif
