/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h: the reasons why a request is not answered, before an API's own words for them. */
#ifndef NTX_CLIENT_GATEWAY_FAULT_H
#define NTX_CLIENT_GATEWAY_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum ntx_fault_kind {
    NTX_FAULT_NONE,
    NTX_FAULT_INVALID,     /* the request is wrong */
    NTX_FAULT_UNSUPPORTED, /* valid, but not supported by ntx */
    NTX_FAULT_CONTEXT,     /* the prompt does not fit */
    NTX_FAULT_CONSTRAINT,  /* the grammar, schema or tools need too much */
    NTX_FAULT_KEY,
    NTX_FAULT_FORBIDDEN,
    NTX_FAULT_PATH,
    NTX_FAULT_MODEL,
    NTX_FAULT_METHOD,
    NTX_FAULT_SLOW, /* the body did not come in time */
    NTX_FAULT_LARGE,
    NTX_FAULT_BUSY,    /* a shared limit is reached, and the request does not wait */
    NTX_FAULT_MEMORY,  /* out of memory at present */
    NTX_FAULT_DOWN,    /* no daemons, or they are shutting down */
    NTX_FAULT_LOADING, /* the daemons or the model will be ready soon */
    NTX_FAULT_EMPTY,   /* no model, and none is being loaded */
    NTX_FAULT_INTERNAL,
};

struct ntx_fault {
    enum ntx_fault_kind kind;
    char param[48]; /* the field concerned, "" for none */
    char text[600];
    uint32_t tokens, context; /* CONTEXT: of the prompt, and what the context holds; 0: not known */
};

struct ntx_fault_info {
    unsigned status;           /* HTTP status */
    const char *openai, *code; /* type and code in OpenAI's errors; code NULL: null */
    const char *anthropic;
    unsigned retry_s; /* the header Retry-After; 0: none, the same request would fail again */
};
const struct ntx_fault_info *ntx_fault_info(enum ntx_fault_kind kind);

/* Fills f and returns -1, so that a caller can write `return ntx_fault(...)`. param may be NULL. */
int ntx_fault(struct ntx_fault *f, enum ntx_fault_kind kind, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* For a negative errno from ntx-computed or the connection to it. A limit that one request exceeds by itself is 400;
 * a request waits for limits that requests share, and where it cannot wait, it gets 429 or 503 with Retry-After.
 * docs/operating.md has the table. */
enum ntx_fault_kind ntx_fault_of(int err);

#endif
