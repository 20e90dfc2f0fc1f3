/* SPDX-License-Identifier: Apache-2.0 */
/* request.h: what is asked of the engine, as a plain struct. The socket's edge makes it of a client's message
 * (computed/server/wire.c), a test by hand; the message's bytes stay where they are, and are let go with it. */
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

struct ntx_request_message {
    const char *role;
    struct ntx_bytes text;
    struct ntx_bytes fields;
};

struct ntx_request_bias {
    int32_t token;
    float add;
};

struct ntx_request { /* zero where a kind has no use for it; the fields are those of ntx.proto */
    enum ntx_request_kind kind;
    uint64_t id;
    uint64_t session;      /* generate: 0 for a new one; close */
    uint64_t target;       /* cancel: id of a request */
    const int32_t *tokens; /* generate, logits, score, states */
    size_t n_tokens;
    /* generate */
    struct ntx_bytes prompt;
    const struct ntx_request_message *messages;
    size_t n_messages;
    const char *chat_template;  /* NULL or "": the model's own */
    struct ntx_bytes variables; /* of it */
    char *const *stop;
    size_t n_stop;
    const char *model;   /* what names one, too: "MODEL:NAME" */
    const char *adapter; /* NULL or "": the first, or the one that the session has; "base": none */
    bool keep, raw, ignore_eos;
    bool prefix; /* only the prompt is computed, and kept before all else for those that begin so */
    uint32_t max_tokens, leave, cut_to;
    const char *constraint; /* its kind, or NULL */
    struct ntx_bytes constraint_text;
    bool constraint_soft; /* where it cannot be had, there is none */
    const struct ntx_request_bias *bias;
    size_t n_bias;
    bool logprobs;
    uint32_t top_logprobs;
    struct ntx_sampling sampling; /* as it is used */
    /* logits, score */
    uint32_t from;
    bool decode;
    uint32_t steps; /* logits: what each step gave, too: 0, 1 or 2 */
    bool pool;      /* logits: the mean of the states instead */
    /* states */
    uint32_t layer, ffn_first, ffn_layers;
    uint32_t tensor; /* sums */

    void (*release)(void *owner); /* NULL: nothing */
    void *owner;                  /* of what the pointers show */
};

void ntx_request_free(struct ntx_request *a); /* NULL is fine */

#endif
