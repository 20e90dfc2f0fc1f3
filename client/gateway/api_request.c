/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/api_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/gateway/field.h"
#include "client/gateway/json_memory.h"
#include "client/http_conf.h"
#include "common/util.h"

/* Depth of nested brackets, outside of strings. */
static unsigned json_depth(const char *p, size_t n)
{
    unsigned depth = 0, most = 0;
    bool text = false;
    for (size_t i = 0; i < n; i++) {
        if (text && p[i] == '\\')
            i++;
        else if (p[i] == '"')
            text = !text;
        else if (!text && (p[i] == '[' || p[i] == '{')) {
            depth++;
            most = NTX_MAX(most, depth);
        } else if (!text && (p[i] == ']' || p[i] == '}') && depth)
            depth--;
    }
    return most;
}

json_t *ntx__json_read(const char *body, size_t len, struct ntx_fault *f)
{
    return ntx__json_load(body, len, JSON_REJECT_DUPLICATES, f);
}

json_t *ntx__json_load(const char *body, size_t len, size_t flags, struct ntx_fault *f)
{
    json_error_t e;
    if (!len) {
        ntx_fault(f, NTX_FAULT_INVALID, NULL, "the body is empty: it must be a JSON object");
        return NULL;
    }
    if (json_depth(body, len) >
        NTX_API_REQUEST_DEPTH) { /* writing JSON again needs a stack, and templates accept no deeper nesting */
        ntx_fault(f, NTX_FAULT_INVALID, NULL, "no JSON with more than %u values within each other is taken",
                  NTX_API_REQUEST_DEPTH);
        return NULL;
    }
    ntx_json_memory_begin(NTX_MIN(24 * len + (64u << 10), 6 * len + (16u << 20)));
    json_t *j = json_loadb(body, len, flags | JSON_ALLOW_NUL, &e);
    bool full = ntx_json_memory_end();
    if (j && json_is_object(j))
        return j;
    if (full)
        ntx_fault(f, NTX_FAULT_LARGE, NULL, "the body would take too much memory for its length");
    else if (json_error_code(&e) == json_error_numeric_overflow && !j)
        ntx_fault(f, NTX_FAULT_INVALID, NULL,
                  "a number of the body is out of range (integers from -2^63 to 2^63 - 1, of a seed, too): "
                  "%.120s (line %d)",
                  e.text, e.line);
    else
        ntx_fault(f, NTX_FAULT_INVALID, NULL,
                  j ? "the body must be a JSON object" : "the body is no JSON: %.120s (line %d)", e.text, e.line);
    json_decref(j);
    return NULL;
}

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    while (getrandom(&seed, sizeof seed, 0) < 0)
        ;
    return seed >> 12; /* most JSON readers keep numbers as doubles, which hold 52 bits */
}

static int (*const readers[NTX_N_APIS])(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f) = {
    [NTX_API_CHAT] = ntx__request_chat,
    [NTX_API_TEXT] = ntx__request_text,
    [NTX_API_MESSAGES] = ntx__request_messages,
    [NTX_API_COUNT] = ntx__request_messages,
    [NTX_API_OLLAMA_CHAT] = ntx__request_ollama_chat,
    [NTX_API_OLLAMA_TEXT] = ntx__request_ollama_text,
    [NTX_API_INFILL] = ntx__request_infill,
    [NTX_API_COMPLETION] = ntx__request_completion,
    [NTX_API_RESPONSES] = ntx__request_responses,
};

/* How long the model stays: seconds, or a text with a unit; negative: for ever. */
static int read_keep(const json_t *v, const char *name, bool *keeps, int64_t *keep_ms, struct ntx_fault *f)
{
    char number[32];
    const char *text = json_string_value(v);
    if (!v || json_is_null(v))
        return 0;
    if (json_is_number(v)) {
        snprintf(number, sizeof number, "%.3f", json_number_value(v));
        text = number;
    }
    if (!text || !ntx_keep_read(text, keep_ms))
        return ntx_fault(f, NTX_FAULT_INVALID, name,
                         "'%s' must be seconds, or a time such as \"5m\" or \"2h\"; -1: for ever", name);
    *keeps = true;
    return 0;
}

int ntx__request_keep(const json_t *body, bool *keeps, int64_t *keep_ms, struct ntx_fault *f)
{
    return read_keep(json_object_get(body, "keep_alive"), "keep_alive", keeps, keep_ms, f) ||
                   read_keep(json_object_get(body, "ttl"), "ttl", keeps, keep_ms, f)
               ? -1
               : 0;
}

/* Reads the body's fields over the defaults of its model's name. */
static int read_fields(struct ntx_api_request *a, const json_t *body, const struct ntx_api_request_makes *makes,
                       struct ntx_fault *f)
{
    const char *model = json_string_value(json_object_get(body, "model"));
    json_t *made = makes && model && *model ? makes->of(makes->arg, model) : NULL;
    struct ntx_made_rest rest = {0};
    int rc = made ? ntx__request_made_begin(a, made, &rest, f) : 0;
    rc = rc ? rc : readers[a->api](a, body, f);
    if (!rc && made)
        rc = ntx__request_made_end(a, body, made, &rest, f);
    ntx__request_made_free(&rest);
    json_decref(made);
    return rc;
}

int ntx_api_request_read(enum ntx_api_request_api api, const char *body, size_t len,
                         const struct ntx_api_request_makes *makes, struct ntx_api_request **out, struct ntx_fault *f)
{
    struct ntx_api_request *a = calloc(1, sizeof *a);
    json_t *j = a ? ntx__json_read(body, len, f) : NULL;
    int rc = -1;
    if (!a)
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    /* Defaults of `ntx run`. */
    *a = (struct ntx_api_request){.api = api,
                                  .n = 1,
                                  .temp = 0.8f,
                                  .top_k = 40,
                                  .top_p = 0.95f,
                                  .min_p = 0.05f,
                                  .repeat_penalty = 1,
                                  .typical_p = 1,
                                  .mirostat_tau = 5,
                                  .mirostat_eta = 0.1f,
                                  .repeat_last = 64,
                                  .parallel = true,
                                  .special = true,
                                  .seed = random_seed()};
    const json_t *named = json_object_get(j, "model");
    if (named && !json_is_null(named) && !json_is_string(named))
        ntx_fault(f, NTX_FAULT_INVALID, "model", "'model' must be a string");
    else if (j)
        rc = read_fields(a, j, makes, f);
    if (!rc)
        rc = ntx__request_keep(j, &a->keeps, &a->keep_ms, f);
    const char *model = json_string_value(named);
    if (!rc && model && !(a->model = strdup(model)))
        rc = ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    json_decref(j);
    if (!rc && ntx_api_request_choices(a) > NTX_API_REQUEST_CHOICES)
        rc = ntx_fault(f, NTX_FAULT_INVALID, "n", "%u answers are asked for, %u can be given",
                       ntx_api_request_choices(a), NTX_API_REQUEST_CHOICES);
    if (rc)
        ntx_api_request_free(a);
    else
        *out = a;
    return rc;
}

void ntx_api_request_free(struct ntx_api_request *a)
{
    if (a)
        ntx_api_request_clear(a);
    free(a);
}

void ntx_api_request_clear(struct ntx_api_request *a)
{
    for (size_t i = 0; i < a->n_messages; i++)
        ntx__request_images_free(&a->messages[i].images), free(a->messages[i].fields), free(a->messages[i].text);
    for (size_t i = 0; i < a->n_prompts; i++) {
        free(a->prompts[i].text);
        free(a->prompts[i].tokens);
        free(a->prompts[i].shown);
        json_decref(a->prompts[i].logprobs);
    }
    for (unsigned i = 0; i < a->n_stops; i++)
        free(a->stops[i]);
    free(a->suffix);
    free(a->model);
    free(a->variables);
    free(a->constraint);
    ntx_unenforced_free(&a->unenforced);
    free(a->bias);
    json_decref(a->echo);
    json_decref(a->think.more);
    json_decref(a->allowed);
    json_decref(a->left_out);
    json_decref(a->offered);
    free(a->messages);
    free(a->prompts);
}
