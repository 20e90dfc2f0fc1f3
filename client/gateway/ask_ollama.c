/* Ollama's chat and generate. Streams unless told; what it calls options lie in an object of their own. */
#include <stdlib.h>
#include <string.h>

#include "client/gateway/ask_fields.h"

/* What is of loading a model, and not of an answer, is ntx's own: the context that is there is the one that it was loaded with. */
#define OF_LOADING(name) {name, NTX_FIELD_SKIP, 0, 0, 0, NULL}

static const struct ntx_field options[] = {
    {"temperature", NTX_FIELD_REAL, AT(temp), 0, 100, NULL},
    {"top_k", NTX_FIELD_COUNT, AT(top_k), 0, NTX_MOST_TOKENS, NULL},
    {"top_p", NTX_FIELD_REAL, AT(top_p), 0, 1, NULL},
    {"min_p", NTX_FIELD_REAL, AT(min_p), 0, 1, NULL},
    {"repeat_penalty", NTX_FIELD_REAL, AT(repeat_penalty), 0, 100, NULL},
    {"seed", NTX_FIELD_SEED, AT(seed), 0, 0, NULL},
    {"num_predict", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"stop", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"typical_p", NTX_FIELD_ABSENT, 0, 1, 0, NULL},
    {"tfs_z", NTX_FIELD_ABSENT, 0, 1, 0, NULL},
    {"mirostat", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"mirostat_tau", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"mirostat_eta", NTX_FIELD_SKIP, 0, 0, 0, NULL},
    {"presence_penalty", NTX_FIELD_REAL, AT(presence_penalty), -2, 2, NULL},
    {"frequency_penalty", NTX_FIELD_REAL, AT(frequency_penalty), -2, 2, NULL},
    {"repeat_last_n", NTX_FIELD_ABSENT, 0, 64, 0, "it is 64"},
    OF_LOADING("num_ctx"), OF_LOADING("num_batch"), OF_LOADING("num_gpu"), OF_LOADING("main_gpu"), OF_LOADING("num_thread"), OF_LOADING("num_keep"),
    OF_LOADING("use_mmap"), OF_LOADING("use_mlock"), OF_LOADING("numa"), OF_LOADING("low_vram"), OF_LOADING("penalize_newline"),
    {NULL, NTX_FIELD_ANY, 0, 0, 0, NULL},
};

#define BOTH                                                                                                                                 \
    {"model", NTX_FIELD_ANY, 0, 0, 0, NULL}, {"options", NTX_FIELD_ANY, 0, 0, 0, NULL}, {"stream", NTX_FIELD_BOOL, AT(stream), 0, 0, NULL}, \
    {"format", NTX_FIELD_ANY, 0, 0, 0, NULL}, {"logprobs", NTX_FIELD_ABSENT, 0, 0, 0, NULL}, {"top_logprobs", NTX_FIELD_ABSENT, 0, 0, 0, NULL},                                                       \
    {"think", NTX_FIELD_ABSENT, 0, 0, 0, "a model that thinks does so by itself"}, OF_LOADING("keep_alive")

static const struct ntx_field chat_fields[] = {
    BOTH, {"messages", NTX_FIELD_ANY, 0, 0, 0, NULL}, {"tools", NTX_FIELD_ANY, 0, 0, 0, NULL}, {NULL, NTX_FIELD_ANY, 0, 0, 0, NULL},
};
static const struct ntx_field text_fields[] = {
    BOTH,
    {"prompt", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"system", NTX_FIELD_ANY, 0, 0, 0, NULL},
    {"raw", NTX_FIELD_BOOL, AT(raw), 0, 0, NULL},
    {"suffix", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"template", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {"context", NTX_FIELD_ABSENT, 0, 0, 0, "use /api/chat"},
    {"images", NTX_FIELD_ABSENT, 0, 0, 0, NULL},
    {NULL, NTX_FIELD_ANY, 0, 0, 0, NULL},
};

static int read_options(struct ntx_ask *a, const json_t *o, struct ntx_fault *f)
{
    const json_t *most = json_object_get(o, "num_predict");
    json_int_t n = json_integer_value(most);
    if (!o || json_is_null(o))
        return 0;
    if (!json_is_object(o))
        return ntx_fault(f, NTX_FAULT_INVALID, "options", "'options' must be an object");
    if (ntx_fields_read(options, o, a, f))
        return -1;
    if (most && !json_is_null(most) && (!json_is_integer(most) || n < -2 || n == 0 || (double)n > NTX_MOST_TOKENS))
        return ntx_fault(f, NTX_FAULT_INVALID, "num_predict", "'num_predict' must be an integer of at least 1, or -1: no limit");
    a->max_tokens = n > 0 ? (uint32_t)n : 0;
    return ntx__ask_stops(a, json_object_get(o, "stop"), "stop", f);
}

/* "json", or a schema. */
static int read_format(struct ntx_ask *a, const json_t *v, struct ntx_fault *f)
{
    const char *word = json_string_value(v);
    if (!v || json_is_null(v) || (word && !*word))
        return 0;
    if (!word)
        return ntx__ask_schema(a, v, "format", f);
    if (strcmp(word, "json"))
        return ntx_fault(f, NTX_FAULT_INVALID, "format", "'format' is \"json\", or a schema");
    json_t *any = json_pack("{s:s}", "type", "object");
    int rc = ntx__ask_schema(a, any, "format", f);
    json_decref(any);
    return rc;
}

static int begin(struct ntx_ask *a, const struct ntx_field *table, const json_t *body, struct ntx_fault *f)
{
    a->stream = true;
    return ntx_fields_read(table, body, a, f) || read_options(a, json_object_get(body, "options"), f) || read_format(a, json_object_get(body, "format"), f) ? -1 : 0;
}

int ntx__ask_ollama_chat(struct ntx_ask *a, const json_t *body, struct ntx_fault *f)
{
    if (begin(a, chat_fields, body, f) || ntx__ask_tools(a, json_object_get(body, "tools"), false, f) || ntx__ask_calling(a, "auto", true, f))
        return -1;
    return ntx__ask_openai_messages(a, json_object_get(body, "messages"), f);
}

int ntx__ask_ollama_text(struct ntx_ask *a, const json_t *body, struct ntx_fault *f)
{
    const json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
    if (begin(a, text_fields, body, f))
        return -1;
    if (!json_is_string(prompt) || !json_string_length(prompt))
        return ntx_fault(f, NTX_FAULT_INVALID, "prompt", "'prompt' must be a string, and not empty");
    if (a->raw)
        return ntx__ask_prompts(a, prompt, f);
    if (system && !json_is_null(system) && json_string_length(system) && ntx__ask_message(a, "system", system, "system", f))
        return -1;
    return ntx__ask_message(a, "user", prompt, "prompt", f);
}
