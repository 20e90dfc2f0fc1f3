#include "client/gateway/fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const struct ntx_fault_info infos[] = {
    [NTX_FAULT_NONE] = {200, "", NULL, ""},
    [NTX_FAULT_INVALID] = {400, "invalid_request_error", NULL, "invalid_request_error"},
    [NTX_FAULT_UNSUPPORTED] = {400, "invalid_request_error", "unsupported_parameter", "invalid_request_error"},
    [NTX_FAULT_CONTEXT] = {400, "invalid_request_error", "context_length_exceeded", "invalid_request_error"},
    [NTX_FAULT_KEY] = {401, "invalid_request_error", "invalid_api_key", "authentication_error"},
    [NTX_FAULT_FORBIDDEN] = {403, "invalid_request_error", "forbidden", "permission_error"},
    [NTX_FAULT_PATH] = {404, "invalid_request_error", "not_found", "not_found_error"},
    [NTX_FAULT_METHOD] = {405, "invalid_request_error", "method_not_allowed", "invalid_request_error"},
    [NTX_FAULT_LARGE] = {413, "invalid_request_error", "request_too_large", "request_too_large"},
    [NTX_FAULT_BUSY] = {429, "rate_limit_error", "too_many_requests", "rate_limit_error"},
    [NTX_FAULT_DOWN] = {503, "server_error", "unavailable", "overloaded_error"},
    [NTX_FAULT_INTERNAL] = {500, "server_error", NULL, "api_error"},
};

const struct ntx_fault_info *ntx_fault_info(enum ntx_fault_kind kind) { return &infos[kind]; }

int ntx_fault(struct ntx_fault *f, enum ntx_fault_kind kind, const char *param, const char *fmt, ...)
{
    va_list ap;
    f->kind = kind;
    snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    return -1;
}

enum ntx_fault_kind ntx_fault_of(int err)
{
    switch (-err) {
    case E2BIG:
    case ENOBUFS: return NTX_FAULT_CONTEXT;
    case EINVAL:
    case ENOTSUP: return NTX_FAULT_INVALID;
    case EMSGSIZE: return NTX_FAULT_LARGE;
    case EAGAIN:
    case EBUSY: return NTX_FAULT_BUSY;
    case ENOENT: /* no model is loaded; or no socket */
    case ECONNREFUSED:
    case ESHUTDOWN:
    case EPIPE:
    case EACCES: return NTX_FAULT_DOWN;
    default: return NTX_FAULT_INTERNAL;
    }
}
