/* SPDX-License-Identifier: Apache-2.0 */
/* request.h: a request to the engine, as a plain struct. computed/server/wire.c makes it from a client's message, a
 * test by hand. It points into the message, which is freed with it. */
#ifndef NTX_COMPUTED_ENGINE_REQUEST_H
#define NTX_COMPUTED_ENGINE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "computed/sample/sampler.h"

enum ntx_request_kind {
    NTX_REQUEST_GENERATE,
    NTX_REQUEST_LOGITS,
    NTX_REQUEST_SCORE,
    NTX_REQUEST_STATES,
    NTX_REQUEST_SUMS,
    NTX_REQUEST_CANCEL,
    NTX_REQUEST_CLOSE
};

struct ntx_bytes {
    const char *data; /* not ended by a 0 */
    size_t len;
};

struct ntx_request_image {
    uint32_t at; /* it stands before this byte of the text */
    struct ntx_bytes data;
};

struct ntx_request_message {
    const char *role;
    struct ntx_bytes text;
    struct ntx_bytes fields;
    const struct ntx_request_image *images; /* [n_images] in the order of `at` */
    size_t n_images;
};

struct ntx_request_bias {
    int32_t token;
    float add;
};

struct ntx_request { /* fields as in ntx.proto; zero where a kind has no use for one */
    enum ntx_request_kind kind;
    uint64_t id;
    uint64_t client;       /* whose turn it takes; 0: the connection's */
    uint64_t session;      /* generate (0: a new one), close */
    uint64_t target;       /* cancel: id of a request */
    const int32_t *tokens; /* generate, logits, score, states */
    size_t n_tokens;
    /* generate */
    struct ntx_bytes prompt;
    const struct ntx_request_image *images; /* [n_images] in `prompt` */
    size_t n_images;
    const struct ntx_request_message *messages;
    size_t n_messages;
    const char *chat_template;  /* NULL or "": the model's own */
    struct ntx_bytes variables; /* variables of the template */
    const char *think;          /* NULL or "": the load's default; else as model/think.h reads it */
    char *const *stop;
    size_t n_stop;
    const char *model;   /* may name an adapter, too: "MODEL:NAME" */
    const char *adapter; /* NULL or "": the session's, or the first; "base": none */
    bool keep, raw, ignore_eos;
    bool no_special; /* control tokens in `prompt` are plain text; in messages they always are */
    bool prefix;     /* only computes the prompt and keeps it as a warm prefix */
    uint32_t max_tokens, leave, cut_to;
    const char *constraint; /* its kind, or NULL */
    struct ntx_bytes constraint_text;
    bool constraint_soft; /* if it cannot be applied, there is none */
    const struct ntx_request_bias *bias;
    size_t n_bias;
    bool logprobs;
    uint32_t top_logprobs;
    struct ntx_sampling sampling; /* with defaults applied */
    /* logits, score */
    uint32_t from;
    bool decode;
    uint32_t steps; /* logits: also step values: 0 none, 1 digests, 2 all */
    bool pool;      /* logits: the mean of the states instead */
    /* states */
    uint32_t layer, ffn_first, ffn_layers;
    uint32_t tensor; /* sums */

    void (*release)(void *owner); /* NULL: nothing to free */
    void *owner;                  /* of the memory that the pointers point to */
};

bool ntx_request_has_tools(const struct ntx_request *a);
void ntx_request_free(struct ntx_request *a); /* NULL is fine */

#endif
