/* SPDX-License-Identifier: Apache-2.0 */
/* Completions: a text is continued. The prompt is a string, tokens, or a list of either. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"

enum { TOKENS_MOST = 1 << 20 }; /* the limit of frame_valid.c */

static int wrong(const char *name, struct ntx_fault *f)
{
    return ntx_fault(f, NTX_FAULT_INVALID, name,
                     "'%s' must be a string, a list of tokens, or a list of either, and not empty", name);
}

static int read_text_prompt(struct ntx_api_request_prompt *p, const json_t *v, const char *name, struct ntx_fault *f)
{
    p->len = json_string_length(v);
    if (!p->len)
        return ntx_fault(f, NTX_FAULT_INVALID, name, "'%s' has an empty text: there is nothing to read", name);
    if (!(p->text = malloc(p->len + 1)))
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    memcpy(p->text, json_string_value(v), p->len + 1);
    return 0;
}

static int read_tokens(struct ntx_api_request_prompt *p, const json_t *v, const char *name, struct ntx_fault *f)
{
    size_t n = json_array_size(v);
    if (!n || n > TOKENS_MOST)
        return wrong(name, f);
    if (!(p->tokens = malloc(n * sizeof *p->tokens)))
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    for (p->n_tokens = 0; p->n_tokens < n; p->n_tokens++) {
        const json_t *t = json_array_get(v, p->n_tokens);
        json_int_t id = json_integer_value(t);
        if (!json_is_integer(t) || id < 0 || id > INT32_MAX)
            return wrong(name, f);
        p->tokens[p->n_tokens] = (int32_t)id;
    }
    return 0;
}

static int read_prompt(struct ntx_api_request_prompt *p, const json_t *v, const char *name, struct ntx_fault *f)
{
    if (json_is_string(v))
        return read_text_prompt(p, v, name, f);
    return json_is_array(v) ? read_tokens(p, v, name, f) : wrong(name, f);
}

/* [1, 2] is one prompt of tokens; ["a", "b"] and [[1], [2]] are two. */
int ntx__request_texts(struct ntx_api_request *a, const json_t *v, const char *name, size_t most, struct ntx_fault *f)
{
    bool several = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    size_t n = several ? json_array_size(v) : 1;
    if (!v || !n)
        return wrong(name, f);
    if (n > most)
        return ntx_fault(f, NTX_FAULT_INVALID, name, "'%s' has %zu prompts, %zu can be answered at once", name, n,
                         most);
    if (!(a->prompts = calloc(n, sizeof *a->prompts)))
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    for (size_t i = 0; i < n; i++) {
        a->n_prompts++;
        if (read_prompt(&a->prompts[i], several ? json_array_get(v, i) : v, name, f))
            return -1;
    }
    return 0;
}

int ntx__request_prompts(struct ntx_api_request *a, const json_t *prompt, struct ntx_fault *f)
{
    return ntx__request_texts(a, prompt, "prompt", NTX_API_REQUEST_CHOICES, f);
}

/* 0 only with echo: the prompt alone. */
static int read_max_tokens(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    const char *name = "max_tokens";
    const json_t *v = json_object_get(body, name);
    if (!v || json_is_null(v))
        v = json_object_get(body, name = "n_predict");
    json_int_t n = json_integer_value(v);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || n < -1 || (double)n > NTX_MOST_TOKENS || (n == 0 && !a->shows_prompt))
        return ntx_fault(f, NTX_FAULT_INVALID, name,
                         "'%s' must be an integer of at least 1, -1 for no limit, or 0 together with 'echo'", name);
    a->max_tokens = n > 0 ? (uint32_t)n : 0;
    a->no_answer = n == 0;
    return 0;
}

int ntx__request_suffix(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v)))
        return 0;
    if (!json_is_string(v))
        return ntx_fault(f, NTX_FAULT_INVALID, "suffix", "'suffix' must be a string");
    if (a->n_prompts != 1 || !a->prompts->text || a->shows_prompt)
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "suffix",
                         "'suffix' is possible with one prompt, which is a string, and without 'echo'");
    a->n_suffix = json_string_length(v);
    if (!(a->suffix = malloc(a->n_suffix + 1)))
        return ntx_fault(f, NTX_FAULT_MEMORY, NULL, "no memory");
    memcpy(a->suffix, json_string_value(v), a->n_suffix + 1);
    return 0;
}

int ntx__request_text(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    if (ntx_fields_read(NTX_FIELDS_TEXT, body, a, &a->ignored, f) || ntx__request_openai(a, body, f) ||
        ntx__request_logprobs(a, body, false, f) || ntx__request_guides(a, body, f) || read_max_tokens(a, body, f) ||
        ntx__request_prompts(a, json_object_get(body, "prompt"), f))
        return -1;
    return ntx__request_suffix(a, json_object_get(body, "suffix"), f);
}
