/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults of a name that /api/create made: a system text, and parameters, which are Ollama's options. The request's
 * own fields come first, in every API. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"

static bool says_one(const json_t *body, const char *const *names)
{
    for (; *names; names++) {
        const json_t *v = json_object_get(body, *names);
        if (v && !json_is_null(v))
            return true;
    }
    return false;
}

static bool says_limit(const json_t *body)
{
    static const char *const names[] = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", NULL};
    static const char *const option[] = {"num_predict", NULL};
    return says_one(body, names) || says_one(json_object_get(body, "options"), option);
}

static bool says_stops(const json_t *body)
{
    static const char *const names[] = {"stop", "stop_sequences", NULL};
    return says_one(body, names) || says_one(json_object_get(body, "options"), names);
}

static bool has_system(const struct ntx_api_request *a)
{
    for (size_t i = 0; i < a->n_messages; i++)
        if (!strcmp(a->messages[i].role, "system"))
            return true;
    return false;
}

static int add_system(struct ntx_api_request *a, const json_t *system, struct ntx_fault *f)
{
    if (!json_string_length(system) || !a->n_messages || has_system(a))
        return 0;
    if (ntx__request_message(a, "system", system, "system", f))
        return -1;
    const struct ntx_api_request_message last = a->messages[a->n_messages - 1];
    memmove(a->messages + 1, a->messages, (a->n_messages - 1) * sizeof last);
    a->messages[0] = last;
    return 0;
}

int ntx__request_made_begin(struct ntx_api_request *a, const json_t *made, struct ntx_made_rest *rest,
                            struct ntx_fault *f)
{
    int rc = ntx__request_options(a, json_object_get(made, "parameters"), f);
    rest->max_tokens = a->max_tokens;
    rest->n_stops = a->n_stops;
    memcpy(rest->stops, a->stops, sizeof rest->stops);
    memset(a->stops, 0, sizeof a->stops);
    a->n_stops = a->max_tokens = 0;
    a->ignored = (struct ntx_ignored){0}; /* /api/create has reported them */
    return rc;
}

int ntx__request_made_end(struct ntx_api_request *a, const json_t *body, const json_t *made, struct ntx_made_rest *rest,
                          struct ntx_fault *f)
{
    if (!says_limit(body))
        a->max_tokens = rest->max_tokens;
    for (unsigned i = 0; i < rest->n_stops && !says_stops(body); i++) {
        a->stops[a->n_stops++] = rest->stops[i];
        rest->stops[i] = NULL;
    }
    return add_system(a, json_object_get(made, "system"), f);
}

void ntx__request_made_free(struct ntx_made_rest *rest)
{
    for (unsigned i = 0; i < rest->n_stops; i++)
        free(rest->stops[i]);
}

int ntx_api_request_made_check(const json_t *made, struct ntx_ignored *ignored, struct ntx_fault *f)
{
    const json_t *all = json_object_get(made, "parameters");
    struct ntx_api_request *a = calloc(1, sizeof *a);
    int rc = a ? 0 : ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    rc = rc ? rc : ntx__request_options(a, all, f);
    if (!rc)
        *ignored = a->ignored;
    ntx_api_request_free(a);
    return rc;
}
