/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h: why a request is not answered, before any API has words of its own for it. */
#ifndef NTX_CLIENT_GATEWAY_FAULT_H
#define NTX_CLIENT_GATEWAY_FAULT_H

#include <stdbool.h>

enum ntx_fault_kind {
    NTX_FAULT_NONE,
    NTX_FAULT_INVALID,     /* the request is wrong */
    NTX_FAULT_UNSUPPORTED, /* right, but ntx has no such thing */
    NTX_FAULT_CONTEXT,     /* the prompt does not fit */
    NTX_FAULT_CONSTRAINT,  /* nor does what its grammar, schema or tools need */
    NTX_FAULT_KEY,
    NTX_FAULT_FORBIDDEN,
    NTX_FAULT_PATH,
    NTX_FAULT_METHOD,
    NTX_FAULT_SLOW, /* the body did not come in time */
    NTX_FAULT_LARGE,
    NTX_FAULT_BUSY,    /* a limit that others share is reached, and it is not waited for */
    NTX_FAULT_MEMORY,  /* there is no memory now */
    NTX_FAULT_DOWN,    /* no daemons, or they are shutting down */
    NTX_FAULT_LOADING, /* they are there soon, or the model is */
    NTX_FAULT_EMPTY,   /* no model, and none is on its way */
    NTX_FAULT_INTERNAL,
};

struct ntx_fault {
    enum ntx_fault_kind kind;
    char param[48]; /* the field that is meant, "" for none */
    char text[600];
};

struct ntx_fault_info {
    unsigned status;           /* of HTTP */
    const char *openai, *code; /* type and code in OpenAI's errors; code NULL: null */
    const char *anthropic;
    unsigned retry_s; /* the header Retry-After; 0: none, the same request fails again */
};
const struct ntx_fault_info *ntx_fault_info(enum ntx_fault_kind kind);

/* Fills f and returns -1, so that a caller can write `return ntx_fault(...)`. param may be NULL. */
int ntx_fault(struct ntx_fault *f, enum ntx_fault_kind kind, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Of a negative errno that computed, or the way to it, gave. A limit that one request exceeds by itself is 400; one
 * that requests share is waited for, and
 * where it cannot be, it is 429 or 503 with Retry-After. docs/operating.md has the table for people. */
enum ntx_fault_kind ntx_fault_of(int err);

#endif
