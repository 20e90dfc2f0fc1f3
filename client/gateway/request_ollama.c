/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's chat and generate. They stream by default; sampling settings are in the object `options`. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/request_fields.h"

int ntx__request_options(struct ntx_api_request *a, const json_t *o, struct ntx_fault *f)
{
    const json_t *most = json_object_get(o, "num_predict");
    json_int_t n = json_integer_value(most);
    if (!o || json_is_null(o))
        return 0;
    if (!json_is_object(o))
        return ntx_fault(f, NTX_FAULT_INVALID, "options", "'options' must be an object");
    if (ntx_fields_read(NTX_FIELDS_OPTIONS, o, a, &a->ignored, f))
        return -1;
    if (most && !json_is_null(most) && (!json_is_integer(most) || n < -2 || (double)n > NTX_MOST_TOKENS))
        return ntx_fault(f, NTX_FAULT_INVALID, "num_predict",
                         "'num_predict' must be an integer of at least 1; or 0, -1 or -2: no limit");
    a->max_tokens = n > 0 ? (uint32_t)n : 0;
    return ntx__request_stops(a, json_object_get(o, "stop"), "stop", f);
}

/* "json", or a schema. */
static int read_format(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    const char *word = json_string_value(v);
    if (!v || json_is_null(v) || (word && !*word))
        return 0;
    if (!word)
        return ntx__request_schema(a, v, false, "format", f);
    if (strcmp(word, "json"))
        return ntx_fault(f, NTX_FAULT_INVALID, "format", "'format' is \"json\", or a schema");
    json_t *any = json_pack("{s:s}", "type", "object");
    int rc = ntx__request_schema(a, any, false, "format", f);
    json_decref(any);
    return rc;
}

/* A bool, or a word for the effort. */
static int read_think(struct ntx_api_request *a, const json_t *v, struct ntx_fault *f)
{
    return json_is_string(v) ? ntx__request_effort(a, v, "think", f) : ntx__request_switch(a, v, "think", f);
}

static int begin_request(struct ntx_api_request *a, enum ntx_fields of, const json_t *body, struct ntx_fault *f)
{
    a->stream = true;
    return ntx_fields_read(of, body, a, &a->ignored, f) || read_think(a, json_object_get(body, "think"), f) ||
                   ntx__request_options(a, json_object_get(body, "options"), f) ||
                   read_format(a, json_object_get(body, "format"), f)
               ? -1
               : 0;
}

int ntx__request_ollama_chat(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    if (begin_request(a, NTX_FIELDS_OLLAMA_CHAT, body, f) ||
        ntx__request_tools(a, json_object_get(body, "tools"), false, f) || ntx__request_calling(a, "auto", true, f))
        return -1;
    const json_t *messages = json_object_get(body, "messages");
    if ((a->loads = !messages || json_is_null(messages) || (json_is_array(messages) && !json_array_size(messages))))
        return 0;
    return ntx__request_openai_messages(a, messages, f);
}

int ntx__request_ollama_text(struct ntx_api_request *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
    if (begin_request(a, NTX_FIELDS_OLLAMA_TEXT, body, f))
        return -1;
    if (prompt && !json_is_null(prompt) && !json_is_string(prompt))
        return ntx_fault(f, NTX_FAULT_INVALID, "prompt", "'prompt' must be a string");
    if ((a->loads = !json_string_length(prompt)))
        return 0;
    const json_t *suffix = json_object_get(body, "suffix");
    const bool fills = suffix && !json_is_null(suffix) && !(json_is_string(suffix) && !json_string_length(suffix));
    const json_t *images = json_object_get(body, "images");
    if ((a->raw || fills) && images && !json_is_null(images) && json_array_size(images))
        return ntx_fault(f, NTX_FAULT_UNSUPPORTED, "images",
                         "'images' are for prompts in the form of the model's template, without 'raw' and 'suffix'");
    if (a->raw || fills)
        return ntx__request_prompts(a, prompt, f) || ntx__request_suffix(a, suffix, f) ? -1 : 0;
    if (system && !json_is_null(system) && !json_is_string(system))
        return ntx_fault(f, NTX_FAULT_INVALID, "system", "'system' must be a string");
    if (json_string_length(system) && ntx__request_message(a, "system", system, "system", f))
        return -1;
    if (ntx__request_message(a, "user", prompt, "prompt", f))
        return -1;
    return ntx__request_pictures(a, json_object_get(body, "images"), f);
}
