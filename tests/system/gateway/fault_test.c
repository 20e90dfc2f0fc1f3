/* SPDX-License-Identifier: Apache-2.0 */
/* Which status of HTTP each errno of ntx-computed becomes, and what it tells a client to do: all of the table, row by
 * row. */
#include <errno.h>
#include <string.h>

#include "client/gateway/fault.h"
#include "tests/lib/check.h"

static const struct {
    int err;
    unsigned status, retry_s;
    const char *code, *openai, *anthropic;
} want[] = {
    /* a limit that the request exceeds by itself, or a mistake in it: the same request fails again */
    {EINVAL, 400, 0, "", "invalid_request_error", "invalid_request_error"},
    {ENOTSUP, 400, 0, "", "invalid_request_error", "invalid_request_error"},
    {E2BIG, 400, 0, "context_length_exceeded", "invalid_request_error", "invalid_request_error"},
    {ENOSPC, 400, 0, "context_length_exceeded", "invalid_request_error", "invalid_request_error"},
    {ENOBUFS, 400, 0, "context_length_exceeded", "invalid_request_error", "invalid_request_error"},
    {EOVERFLOW, 400, 0, "constraint_too_large", "invalid_request_error", "invalid_request_error"},
    {EMSGSIZE, 413, 0, "request_too_large", "invalid_request_error", "request_too_large"},
    {EFBIG, 413, 0, "request_too_large", "invalid_request_error", "request_too_large"},
    /* a limit that others share */
    {EAGAIN, 429, 1, "too_many_requests", "rate_limit_error", "rate_limit_error"},
    {EBUSY, 429, 1, "too_many_requests", "rate_limit_error", "rate_limit_error"},
    {EUSERS, 429, 1, "too_many_requests", "rate_limit_error", "rate_limit_error"},
    {EMFILE, 429, 1, "too_many_requests", "rate_limit_error", "rate_limit_error"},
    {ENFILE, 429, 1, "too_many_requests", "rate_limit_error", "rate_limit_error"},
    {ENOMEM, 503, 5, "out_of_memory", "server_error", "overloaded_error"},
    /* nobody answers */
    {ENOENT, 503, 0, "unavailable", "server_error", "overloaded_error"},
    {ESTALE, 503, 0, "unavailable", "server_error", "overloaded_error"},
    {EHOSTDOWN, 503, 2, "unavailable", "server_error", "overloaded_error"},
    {ECONNREFUSED, 503, 5, "unavailable", "server_error", "overloaded_error"},
    {ECONNRESET, 503, 5, "unavailable", "server_error", "overloaded_error"},
    {EPIPE, 503, 5, "unavailable", "server_error", "overloaded_error"},
    {ESHUTDOWN, 503, 5, "unavailable", "server_error", "overloaded_error"},
    {ETIMEDOUT, 503, 5, "unavailable", "server_error", "overloaded_error"},
    {EACCES, 503, 5, "unavailable", "server_error", "overloaded_error"},
    /* our own mistakes, and a drive's */
    {EIO, 500, 0, "", "server_error", "api_error"},
    {EPROTO, 500, 0, "", "server_error", "api_error"},
    {EDOM, 500, 0, "", "server_error", "api_error"},
};

/* No kind has a status that says "again" without saying when, nor the other way round. */
static void test_kinds(void)
{
    for (unsigned k = NTX_FAULT_INVALID; k <= NTX_FAULT_INTERNAL; k++) {
        const struct ntx_fault_info *i = ntx_fault_info(k);
        CHECK_MSG(i->status >= 400 && i->openai[0] && i->anthropic[0], "kind %u", k);
        bool again = i->status == 429 || (i->status == 503 && k != NTX_FAULT_EMPTY); /* nobody is loading a model */
        CHECK_MSG(again == (i->retry_s > 0), "kind %u: status %u, Retry-After %u", k, i->status, i->retry_s);
    }
}

int main(void)
{
    for (unsigned i = 0; i < sizeof want / sizeof *want; i++) {
        const struct ntx_fault_info *got = ntx_fault_info(ntx_fault_of(-want[i].err));
        CHECK_MSG(got->status == want[i].status, "%s: status %u, not %u", strerror(want[i].err), got->status,
                  want[i].status);
        CHECK_MSG(got->retry_s == want[i].retry_s, "%s: Retry-After %u, not %u", strerror(want[i].err), got->retry_s,
                  want[i].retry_s);
        CHECK_STR(got->code ? got->code : "", want[i].code);
        CHECK_STR(got->openai, want[i].openai);
        CHECK_STR(got->anthropic, want[i].anthropic);
    }
    test_kinds();
    return 0;
}
