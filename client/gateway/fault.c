/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/printable.h"

static const struct ntx_fault_info infos[] = {
    [NTX_FAULT_NONE] = {200, "", NULL, "", 0},
    [NTX_FAULT_INVALID] = {400, "invalid_request_error", NULL, "invalid_request_error", 0},
    [NTX_FAULT_UNSUPPORTED] = {400, "invalid_request_error", "unsupported_parameter", "invalid_request_error", 0},
    [NTX_FAULT_CONTEXT] = {400, "invalid_request_error", "context_length_exceeded", "invalid_request_error", 0},
    [NTX_FAULT_CONSTRAINT] = {400, "invalid_request_error", "constraint_too_large", "invalid_request_error", 0},
    [NTX_FAULT_KEY] = {401, "invalid_request_error", "invalid_api_key", "authentication_error", 0},
    [NTX_FAULT_FORBIDDEN] = {403, "invalid_request_error", "forbidden", "permission_error", 0},
    [NTX_FAULT_PATH] = {404, "invalid_request_error", "not_found", "not_found_error", 0},
    [NTX_FAULT_MODEL] = {404, "invalid_request_error", "model_not_found", "not_found_error", 0},
    [NTX_FAULT_METHOD] = {405, "invalid_request_error", "method_not_allowed", "invalid_request_error", 0},
    [NTX_FAULT_SLOW] = {408, "invalid_request_error", "request_timeout", "invalid_request_error", 0},
    [NTX_FAULT_LARGE] = {413, "invalid_request_error", "request_too_large", "request_too_large", 0},
    [NTX_FAULT_BUSY] = {429, "rate_limit_error", "too_many_requests", "rate_limit_error", 1},
    [NTX_FAULT_MEMORY] = {503, "server_error", "out_of_memory", "overloaded_error", 5},
    [NTX_FAULT_DOWN] = {503, "server_error", "unavailable", "overloaded_error", 5},
    [NTX_FAULT_LOADING] = {503, "server_error", "unavailable", "overloaded_error", 2},
    [NTX_FAULT_EMPTY] = {503, "server_error", "unavailable", "overloaded_error", 0},
    [NTX_FAULT_INTERNAL] = {500, "server_error", NULL, "api_error", 0},
};

/* Every errno that an answer can end with; any other is a mistake of ours. */
static const struct {
    int err;
    enum ntx_fault_kind kind;
} of_errno[] = {
    /* errors of the request itself */
    {EINVAL, NTX_FAULT_INVALID},
    {ENOTSUP, NTX_FAULT_INVALID},
    {E2BIG, NTX_FAULT_CONTEXT},        /* more tokens than the context holds */
    {ENOSPC, NTX_FAULT_CONTEXT},       /* more KV cache than there is memory for */
    {ENOBUFS, NTX_FAULT_CONTEXT},      /* a prompt that needs more memory than there is for reading or keeping it */
    {EOVERFLOW, NTX_FAULT_CONSTRAINT}, /* a constraint that needs more memory than there is for one */
    {EMSGSIZE, NTX_FAULT_LARGE},
    {EFBIG, NTX_FAULT_LARGE},
    /* limits shared with others, without waiting: the queue is full, or [clients] queue_wait is no */
    {EAGAIN, NTX_FAULT_BUSY},
    {EBUSY, NTX_FAULT_BUSY},
    {EUSERS, NTX_FAULT_BUSY}, /* connections of ntx-computed */
    {EMFILE, NTX_FAULT_BUSY}, /* sessions, descriptors */
    {ENFILE, NTX_FAULT_BUSY},
    {ENOMEM, NTX_FAULT_MEMORY},
    /* no daemon or model can answer */
    {ENOENT, NTX_FAULT_EMPTY},        /* no model is loaded */
    {ENOMEDIUM, NTX_FAULT_EMPTY},     /* the model that was asked for cannot be loaded */
    {EMEDIUMTYPE, NTX_FAULT_LOADING}, /* models are swapped by others all the time */
    {ESTALE, NTX_FAULT_EMPTY},        /* its files have changed: it must be loaded again */
    {EHOSTDOWN, NTX_FAULT_LOADING},   /* the daemons or the model will be ready soon */
    {ECONNREFUSED, NTX_FAULT_DOWN},
    {ECONNRESET, NTX_FAULT_DOWN},
    {EPIPE, NTX_FAULT_DOWN},
    {ESHUTDOWN, NTX_FAULT_DOWN},
    {ETIMEDOUT, NTX_FAULT_DOWN},
    {EACCES, NTX_FAULT_DOWN},
};

const struct ntx_fault_info *ntx_fault_info(enum ntx_fault_kind kind) { return &infos[kind]; }

int ntx_fault(struct ntx_fault *f, enum ntx_fault_kind kind, const char *param, const char *fmt, ...)
{
    va_list ap;
    f->kind = kind;
    f->tokens = f->context = 0;
    snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    va_start(ap, fmt);
    char raw[sizeof f->text];
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    ntx_printable(f->text, sizeof f->text, raw, strlen(raw)); /* clients show it on terminals */
    return -1;
}

enum ntx_fault_kind ntx_fault_of(int err)
{
    for (size_t i = 0; i < sizeof of_errno / sizeof *of_errno; i++)
        if (of_errno[i].err == -err)
            return of_errno[i].kind;
    return NTX_FAULT_INTERNAL;
}
