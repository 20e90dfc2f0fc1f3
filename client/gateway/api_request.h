/* SPDX-License-Identifier: Apache-2.0 */
/* api_request.h: a request for an answer, from any of the APIs: one plain struct that owns its parts; each field is
 * checked.
 *
 *   body --jansson--> request_*.c --> struct ntx_api_request --> call.c
 *
 * fields.c lists how each field is handled; fields that are not followed are named in `ignored`. null counts as
 * absent. */
#ifndef NTX_CLIENT_GATEWAY_API_REQUEST_H
#define NTX_CLIENT_GATEWAY_API_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/gateway/fault.h"
#include "client/gateway/fetch.h"
#include "client/gateway/field.h"
#include "client/gateway/schemas.h"

#define NTX_API_REQUEST_DEPTH   190u /* depth of nested values */
#define NTX_API_REQUEST_CHOICES 16u  /* answers of one request: as many as ntx-computed runs for a client */
#define NTX_API_REQUEST_STOPS   16u
#define NTX_API_REQUEST_BIASES  1024u

enum ntx_api_request_api {
    NTX_API_CHAT,
    NTX_API_TEXT,
    NTX_API_MESSAGES,
    NTX_API_COUNT,
    NTX_API_OLLAMA_CHAT,
    NTX_API_OLLAMA_TEXT,
    NTX_API_INFILL,
    NTX_API_COMPLETION,
    NTX_API_RESPONSES,
    NTX_N_APIS
};

struct ntx_api_request_image { /* a picture's file; it stands before byte `at` of its text */
    size_t at;
    uint8_t *data; /* [n] */
    size_t n;
};

struct ntx_api_request_images {
    struct ntx_api_request_image *list; /* [n] */
    size_t n;
};

struct ntx_api_request_message {
    const char *role; /* system, user, assistant or tool */
    char *text;       /* [len] */
    size_t len;
    char *fields; /* a JSON object for the model's template (tool_calls, tool_call_id), or NULL */
    struct ntx_api_request_images images;
};

struct ntx_api_request_prompt { /* a text or tokens */
    char *text;
    size_t len;
    int32_t *tokens;
    size_t n_tokens;
    /* With echo (echo.c): the text of its tokens, and, if they are wanted, OpenAI's logprobs of them; else NULL. */
    char *shown;
    size_t n_shown;
    json_t *logprobs;
};

/* The request's settings of the model's reasoning (think.c). Each has the name of the field that set it, or NULL. */
struct ntx_api_request_think {
    enum { NTX_THINKS_UNSAID, NTX_THINKS_AUTO, NTX_THINKS_OFF, NTX_THINKS_ON } state; /* AUTO: as the model has it */
    char effort[12];                                                                  /* "": not given */
    json_int_t budget;                                                                /* tokens; 0: not given */
    const char *state_by, *effort_by, *budget_by;
    json_t *more;  /* chat_template_kwargs, or NULL */
    char text[48]; /* all of it, in the form of Generate.think; made by ntx_api_request_think */
};

struct ntx_api_request {
    enum ntx_api_request_api api;
    bool stream, usage; /* usage: a stream reports it, too */
    struct ntx_api_request_message *messages;
    size_t n_messages;
    struct ntx_api_request_prompt *prompts; /* each is answered n times */
    size_t n_prompts;
    unsigned n;
    char *stops[NTX_API_REQUEST_STOPS];
    unsigned n_stops;
    uint32_t max_tokens, top_k; /* 0: until the context is full; all tokens */
    uint32_t repeat_last;       /* tokens that repeat_penalty looks back at; UINT32_MAX: the context */
    float temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    float typical_p, mirostat_tau, mirostat_eta;
    uint32_t mirostat;
    uint64_t seed;    /* choice i uses seed + i */
    char *variables;  /* a JSON object for the model's template, or NULL */
    bool parallel;    /* several calls in one answer */
    bool tools;       /* the request has tools: calls are looked for in the answer */
    json_t *offered;  /* an object whose members are their names, or NULL */
    json_t *allowed;  /* names of tools that alone may be called (tool_choice allowed_tools); NULL: all offered ones */
    json_t *left_out; /* names, or types, of tools that cannot be offered, or NULL */
    struct ntx_api_request_think think;
    struct ntx_ignored ignored; /* fields that are not followed */
    char *model;                /* as given; NULL: not given */
    char *suffix; /* [n_suffix] infill: the text after the answer; the one prompt is the text before it; else NULL */
    size_t n_suffix;
    const char *constraint_kind; /* kind and text of ntx.proto's Constraint; constraint NULL: none */
    char *constraint;
    bool constraint_soft; /* a constraint that is not possible is dropped */
    struct ntx_unenforced unenforced;
    struct ntx_api_request_bias {
        int32_t token;
        float add;
    } * bias; /* [n_bias] */
    size_t n_bias;
    bool logprobs; /* report each token's logprob, and those of the n likeliest */
    uint32_t top_logprobs;
    json_t *echo;               /* Responses: fields of the request that its answer repeats; else NULL */
    bool shows_prompt;          /* completions' echo: the answer begins with the prompt */
    bool no_answer;             /* the prompt is all of the answer */
    bool ignore_eos, raw;       /* raw: Ollama's, without a template */
    bool special;               /* control tokens in prompts parse as such */
    bool loads;                 /* Ollama's request without a prompt: only loads the model, or unloads it */
    bool keeps;                 /* keep_alive or ttl is given: the model stays so long after the request */
    int64_t keep_ms;            /* -1: for ever */
    struct ntx_fetched fetched; /* pictures by URL */
    bool warms;                 /* the prompt is computed, and the answer is empty */
};

static inline unsigned ntx_api_request_choices(const struct ntx_api_request *a)
{
    return a->n * (unsigned)(a->messages ? 1 : a->n_prompts);
}

/* The defaults of names that /api/create made. of: those of a name, a new reference; NULL: none. */
struct ntx_api_request_makes {
    json_t *(*of)(void *arg, const char *model);
    void *arg;
};

/* 0, or -1 with f. Parsing takes memory in proportion to len at most. makes: NULL if there are no such names. */
int ntx_api_request_read(enum ntx_api_request_api api, const char *body, size_t len,
                         const struct ntx_api_request_makes *makes, struct ntx_api_request **out, struct ntx_fault *f);
/* Whether defaults can be taken: {system, parameters}. ignored: options that are not followed. */
int ntx_api_request_made_check(const json_t *made, struct ntx_ignored *ignored, struct ntx_fault *f);
void ntx_api_request_free(struct ntx_api_request *a);
void ntx_api_request_clear(struct ntx_api_request *a); /* frees its parts, but not a */
/* request_stable.c: whether parts of system prompts are left out that change with each request and mean nothing to a
 * model. For all requests; set before the first. */
void ntx_api_request_stable(bool on);
bool ntx__request_is_volatile(const char *text);
/* think.c. _thinks: whether the model's status is needed. _think: sets the template's variables and think.text; what
 * the model has no use for becomes ignored. status: of ntx-computed. */
bool ntx_api_request_thinks(const struct ntx_api_request *a);
int ntx_api_request_think(struct ntx_api_request *a, const json_t *status);

/* ---- among the files of this folder */
/* The parsed object of a body (free with json_decref), or NULL with f. */
json_t *ntx__json_read(const char *body, size_t len, struct ntx_fault *f);
json_t *ntx__json_load(const char *body, size_t len, size_t flags, struct ntx_fault *f); /* with jansson's flags */
/* keep_alive or ttl, if there is one: how long the model stays. */
int ntx__request_keep(const json_t *body, bool *keeps, int64_t *keep_ms, struct ntx_fault *f);
/* request_made.c. Before and after the body's own fields are read: the defaults of its model's name. */
struct ntx_made_rest {
    char *stops[NTX_API_REQUEST_STOPS];
    unsigned n_stops;
    uint32_t max_tokens;
};
int ntx__request_made_begin(struct ntx_api_request *a, const json_t *made, struct ntx_made_rest *rest,
                            struct ntx_fault *f);
int ntx__request_made_end(struct ntx_api_request *a, const json_t *body, const json_t *made, struct ntx_made_rest *rest,
                          struct ntx_fault *f);
void ntx__request_made_free(struct ntx_made_rest *rest);
int ntx__request_options(struct ntx_api_request *a, const json_t *o, struct ntx_fault *f); /* Ollama's `options` */
int ntx__request_chat(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_text(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_messages(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_ollama_chat(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_ollama_text(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_responses(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_infill(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_completion(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_most(struct ntx_api_request *a, const json_t *body,
                      struct ntx_fault *f); /* llama-server's n_predict */
/* Constraints as llama-server and vLLM write them: grammar, json_schema, guided_json, ... */
int ntx__request_guides(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f);
int ntx__request_openai_messages(struct ntx_api_request *a, const json_t *messages,
                                 struct ntx_fault *f); /* a list of messages in the form of OpenAI and Ollama */
int ntx__request_tools(struct ntx_api_request *a, const json_t *list, bool anthropic, struct ntx_fault *f);
/* strict: a schema that cannot be enforced whole is refused; else the closest one is. */
int ntx__request_schema(struct ntx_api_request *a, const json_t *schema, bool strict, const char *param,
                        struct ntx_fault *f);
int ntx__request_format(struct ntx_api_request *a, const json_t *format, const char *param, struct ntx_fault *f);
int ntx__request_tool_choice(struct ntx_api_request *a, const json_t *v, const char **choice,
                             struct ntx_fault *f); /* none, auto, required, or a tool's name or type */
int ntx__request_calling(struct ntx_api_request *a, const char *choice, bool parallel,
                         struct ntx_fault *f); /* after the tools were read; choice is not none */
/* Whether the tool has this type, which can be offered. If not, it is left out, and reported. */
bool ntx__request_offers(struct ntx_api_request *a, const json_t *tool, const char *type);
/* After the prompts were read: the text after the answer. */
int ntx__request_suffix(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f);
int ntx__request_bias(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f);
int ntx__request_logprobs(struct ntx_api_request *a, const json_t *body, bool chat, struct ntx_fault *f);
int ntx__request_set_fields(struct ntx_api_request *a, json_t *fields,
                            struct ntx_fault *f); /* of the message that was added last; takes fields */
json_t *ntx__request_calls(struct ntx_api_request *a, const json_t *calls,
                           struct ntx_fault *f); /* a list of tool_calls in the form of templates, or NULL with f */
int ntx__request_prompts(struct ntx_api_request *a, const json_t *prompt, struct ntx_fault *f);
int ntx__request_texts(struct ntx_api_request *a, const json_t *v, const char *name, size_t most,
                       struct ntx_fault *f); /* likewise, for a field of this name */
int ntx__request_effort(struct ntx_api_request *a, const json_t *v, const char *name,
                        struct ntx_fault *f); /* think.c: a word: none, low, ... */
int ntx__request_switch(struct ntx_api_request *a, const json_t *v, const char *name,
                        struct ntx_fault *f); /* true or false */
int ntx__request_budget(struct ntx_api_request *a, const json_t *v, const char *name,
                        struct ntx_fault *f); /* tokens; 0: none, -1: no limit */
int ntx__request_reasoning(struct ntx_api_request *a, const json_t *v,
                           struct ntx_fault *f); /* `reasoning`: effort, enabled, max_tokens */
int ntx__request_thinking(struct ntx_api_request *a, const json_t *v,
                          struct ntx_fault *f); /* `thinking`: type, budget_tokens */
/* request_pictures.c. part: one of a message's content, of a type that _is_picture knows; it stands before byte `at`.
 * base64: Ollama's list of pictures, before the last message's text. */
bool ntx__request_is_picture(const char *type);
int ntx__request_picture(struct ntx_api_request *a, const json_t *part, const char *param, size_t at,
                         struct ntx_api_request_images *to, struct ntx_fault *f);
int ntx__request_pictures(struct ntx_api_request *a, const json_t *base64, struct ntx_fault *f);
void ntx__request_images_free(struct ntx_api_request_images *m);
/* Why content of this type is refused, or NULL: it is not known. */
const char *ntx__request_no_part(const char *type);
/* Checks that the last message can be answered: the user's, a result, or text of the assistant's that is continued. */
int ntx__request_ends(const struct ntx_api_request *a, struct ntx_fault *f);
int ntx__request_message(struct ntx_api_request *a, const char *role, const json_t *content, const char *param,
                         struct ntx_fault *f); /* adds a message; content: a string, or parts of type text */

#endif
