/* SPDX-License-Identifier: Apache-2.0 */
/* fields.c: all fields of requests that ntx knows, and how each is handled: see field.h. The names are those of the
 * APIs' own documents (OpenAI, Anthropic, Ollama, llama-server), whether ntx supports them or not. */
#include "client/gateway/request_fields.h"
#include "client/gateway/field.h"

/* Objects, short for the rows. */
#define OF(x)  ((uint64_t)1 << NTX_FIELDS_##x)
#define CHAT   OF(CHAT)
#define TEXT   OF(TEXT)
#define RESP   OF(RESPONSES)
#define CLAUDE (OF(MESSAGES) | OF(COUNT))
#define OLLAMA (OF(OLLAMA_CHAT) | OF(OLLAMA_TEXT))
#define EMBED  (OF(OLLAMA_EMBED) | OF(OLLAMA_EMBEDDINGS))
#define FILL   (OF(INFILL) | OF(COMPLETION))
#define OPT    OF(OPTIONS)
#define WORDS  (OF(TOKENIZE) | OF(DETOKENIZE))
#define OPENAI (CHAT | TEXT | RESP)

#define READ(of, name, type, note)                                                                                     \
    {                                                                                                                  \
        of, name, NTX_FIELD_READ, 0, 0, 0, type, note                                                                  \
    }
#define BOOL(of, name, at)                                                                                             \
    {                                                                                                                  \
        of, name, NTX_FIELD_BOOL, at, 0, 0, NULL, NULL                                                                 \
    }
#define COUNT(of, name, at, least, most)                                                                               \
    {                                                                                                                  \
        of, name, NTX_FIELD_COUNT, at, least, most, NULL, NULL                                                         \
    }
#define LIMIT(of, name, at, least, most)                                                                               \
    {                                                                                                                  \
        of, name, NTX_FIELD_LIMIT, at, least, most, NULL, NULL                                                         \
    }
#define REAL(of, name, at, least, most)                                                                                \
    {                                                                                                                  \
        of, name, NTX_FIELD_REAL, at, least, most, NULL, NULL                                                          \
    }
#define SEED(of, name, at)                                                                                             \
    {                                                                                                                  \
        of, name, NTX_FIELD_SEED, at, 0, 0, NULL, NULL                                                                 \
    }
#define LABEL(of, name, note)                                                                                          \
    {                                                                                                                  \
        of, name, NTX_FIELD_LABEL, 0, 0, 0, NULL, note                                                                 \
    }
#define HINT(of, name, note)                                                                                           \
    {                                                                                                                  \
        of, name, NTX_FIELD_HINT, 0, 0, 0, NULL, note                                                                  \
    }
#define HINT1(of, name, neutral, note)                                                                                 \
    {                                                                                                                  \
        of, name, NTX_FIELD_HINT, 0, neutral, 0, NULL, note                                                            \
    }
#define ABSENT(of, name, note)                                                                                         \
    {                                                                                                                  \
        of, name, NTX_FIELD_ABSENT, 0, 0, 0, NULL, note                                                                \
    }
#define ABSENT1(of, name, neutral, note)                                                                               \
    {                                                                                                                  \
        of, name, NTX_FIELD_ABSENT, 0, neutral, 0, NULL, note                                                          \
    }

#define KEPT        "nothing is kept: send the items of the conversation"
#define LOADED      "of loading a model: the one that is there was loaded with its own"
#define OF_THOUGHTS "reported as not followed where the model has no use for it"
#define OTHER_TOOLS "one of another type (web_search, local_shell, namespace, mcp, ...) is left out, and reported"
#define A_LABEL     "a label of the client's"
#define OF_CACHE    "prompts are found again by themselves"
#define ANSWER_ONLY "of answers only"

const struct ntx_fields_info ntx_fields_info[NTX_N_FIELDS] = {
    [NTX_FIELDS_CHAT] = {"POST /v1/chat/completions and /apply-template", "", true},
    [NTX_FIELDS_TEXT] = {"POST /v1/completions", "", true},
    [NTX_FIELDS_RESPONSES] = {"POST /v1/responses", "", true},
    [NTX_FIELDS_EMBEDDINGS] = {"POST /v1/embeddings", "", true},
    [NTX_FIELDS_MESSAGES] = {"POST /v1/messages", "", true},
    [NTX_FIELDS_COUNT] = {"POST /v1/messages/count_tokens", "", true},
    [NTX_FIELDS_OLLAMA_CHAT] = {"POST /api/chat", "", true},
    [NTX_FIELDS_OLLAMA_TEXT] = {"POST /api/generate", "", true},
    [NTX_FIELDS_OLLAMA_EMBED] = {"POST /api/embed", "", true},
    [NTX_FIELDS_OLLAMA_EMBEDDINGS] = {"POST /api/embeddings", "", true},
    [NTX_FIELDS_OLLAMA_SHOW] = {"POST /api/show", "", true},
    [NTX_FIELDS_INFILL] = {"POST /infill", "", true},
    [NTX_FIELDS_COMPLETION] = {"POST /completion", "", true},
    [NTX_FIELDS_TOKENIZE] = {"POST /tokenize", "", true},
    [NTX_FIELDS_DETOKENIZE] = {"POST /detokenize", "", true},
    [NTX_FIELDS_OPTIONS] = {"`options` of /api/chat and /api/generate", "options", true},
    [NTX_FIELDS_STREAM_OPTIONS] = {"`stream_options` of /v1/chat/completions, /v1/completions and /v1/responses",
                                   "stream_options", true},
    [NTX_FIELDS_STRUCTURED] = {"`structured_outputs` (vLLM)", "structured_outputs", true},
    [NTX_FIELDS_CHAT_MESSAGE] = {"one of `messages` of /v1/chat/completions and /api/chat", "messages", false},
    [NTX_FIELDS_CHAT_CALL] = {"one of `tool_calls` of a message of /v1/chat/completions and /api/chat",
                              "messages.tool_calls", false},
    [NTX_FIELDS_CLAUDE_MESSAGE] = {"one of `messages` of /v1/messages", "messages", false},
    [NTX_FIELDS_PART] = {"a part or block of a message's `content`, in every API", "messages.content", false},
    [NTX_FIELDS_ITEM] = {"one of `input` of /v1/responses", "input", false},
    [NTX_FIELDS_TOOL] = {"one of `tools` of /v1/chat/completions and /api/chat", "tools", false},
    [NTX_FIELDS_FUNCTION] = {"`function` of such a tool", "tools.function", false},
    [NTX_FIELDS_RESPONSE_TOOL] = {"one of `tools` of /v1/responses", "tools", false},
    [NTX_FIELDS_CLAUDE_TOOL] = {"one of `tools` of /v1/messages", "tools", false},
    [NTX_FIELDS_FORMAT] = {"`response_format` of /v1/chat/completions", "response_format", true},
    [NTX_FIELDS_SCHEMA] = {"`json_schema` of it", "response_format.json_schema", true},
    [NTX_FIELDS_TEXT_CONFIG] = {"`text` of /v1/responses", "text", true},
    [NTX_FIELDS_TEXT_FORMAT] = {"`format` of it", "text.format", true},
    [NTX_FIELDS_REASONING] = {"`reasoning` of /v1/responses and /v1/chat/completions", "reasoning", false},
    [NTX_FIELDS_THINKING] = {"`thinking` of /v1/messages and /v1/chat/completions", "thinking", false},
    [NTX_FIELDS_OUTPUT_CONFIG] = {"`output_config` of /v1/messages", "output_config", false},
    [NTX_FIELDS_OUTPUT_FORMAT] = {"`format` of it", "output_config.format", true},
};

const struct ntx_field ntx_field_table[] = {
    /* ---- the input */
    READ(OPENAI | CLAUDE | OLLAMA | FILL, "model", "string",
         "a known model, which is loaded; NAME:ADAPTER picks an adapter. With one model, any name is its own"),
    READ(OF(EMBEDDINGS), "model", "string", "a known model, which is loaded; repeated in the answer"),
    READ(EMBED | OF(OLLAMA_SHOW) | WORDS, "model", "string", "a known model; with one model, any name is its own"),
    READ(CHAT | CLAUDE | OF(OLLAMA_CHAT), "messages", "list of messages", NULL),
    READ(CHAT, "continue_final_message", "true or false",
         "a last message of the assistant is continued, also without it"),
    READ(CHAT, "add_generation_prompt", "true or false", "the contrary of continue_final_message"),
    READ(TEXT, "prompt", "string, list of tokens, or list of either", NULL),
    READ(OF(COMPLETION), "prompt", "string or list of tokens", NULL),
    READ(OF(OLLAMA_TEXT) | OF(OLLAMA_EMBEDDINGS), "prompt", "string", NULL),
    READ(RESP, "input", "string or list of items", NULL),
    READ(RESP, "instructions", "string", NULL),
    READ(CLAUDE, "system", "string or list of text blocks", NULL),
    READ(OF(OLLAMA_TEXT), "system", "string", NULL),
    READ(OF(INFILL), "input_prefix", "string", NULL),
    READ(OF(INFILL), "input_suffix", "string", NULL),
    READ(OF(INFILL), "input_extra", "list of {filename, text}", NULL),
    READ(OF(INFILL), "prompt", "string", "of the line that is being written"),
    READ(OF(EMBEDDINGS) | OF(OLLAMA_EMBED), "input", "string, list of tokens, or list of either", NULL),
    READ(OF(TOKENIZE), "content", "string", NULL),
    READ(OF(TOKENIZE), "prompt", "string", "vLLM's name of it"),
    READ(OF(DETOKENIZE), "tokens", "list of tokens", NULL),
    BOOL(OLLAMA | OPENAI | CLAUDE | FILL, "stream", AT(stream)),
    BOOL(OF(OLLAMA_TEXT), "raw", AT(raw)),
    {TEXT | OF(COMPLETION) | OF(OLLAMA_TEXT), "parse_special", NTX_FIELD_BOOL, AT(special), 0, 0, NULL,
     "control tokens in the prompt (\"<|fim_prefix|>\") parse as such; in messages of a chat they never do"},
    READ(OLLAMA, "options", "object", NULL),
    READ(OPENAI, "stream_options", "object", NULL),
    READ(OF(EMBEDDINGS), "encoding_format", "float or base64", NULL),
    {OF(OLLAMA_EMBED), "truncate", NTX_FIELD_BOOL, 0, 0, 0, NULL, NULL},
    {OF(TOKENIZE), "add_special", NTX_FIELD_BOOL, NTX_TOKENIZE_BOS, 0, 0, NULL, NULL},
    {OF(TOKENIZE), "add_special_tokens", NTX_FIELD_BOOL, NTX_TOKENIZE_BOS, 0, 0, NULL, "vLLM's name of it"},
    {OF(TOKENIZE), "with_pieces", NTX_FIELD_BOOL, NTX_TOKENIZE_PIECES, 0, 0, NULL, NULL},
    {OF(TOKENIZE), "return_token_strs", NTX_FIELD_BOOL, NTX_TOKENIZE_PIECES, 0, 0, NULL, "vLLM's name of it"},
    {OF(TOKENIZE), "parse_special", NTX_FIELD_BOOL, NTX_TOKENIZE_SPECIAL, 0, 0, NULL, NULL},

    /* ---- sampling and length */
    COUNT(CHAT | TEXT, "n", AT(n), 1, NTX_API_REQUEST_CHOICES),
    LIMIT(CHAT, "max_tokens", AT(max_tokens), 1, NTX_MOST_TOKENS),
    COUNT(CLAUDE, "max_tokens", AT(max_tokens), 1, NTX_MOST_TOKENS),
    READ(TEXT, "max_tokens", "integer of at least 1; -1: no limit; with echo also 0: the prompt alone", NULL),
    LIMIT(CHAT, "max_completion_tokens", AT(max_tokens), 1, NTX_MOST_TOKENS),
    LIMIT(RESP, "max_output_tokens", AT(max_tokens), 1, NTX_MOST_TOKENS),
    READ(OPT, "num_predict", "integer of at least 1; 0, -1 or -2: no limit", NULL),
    READ(FILL, "n_predict", "integer of at least 1; -1 or -2: no limit", NULL),
    ABSENT1(CHAT | TEXT, "n_predict", -1, "it is 'max_tokens' here"),
    REAL(OPENAI | CLAUDE | FILL, "temperature", AT(temp), 0, 2),
    REAL(OPT, "temperature", AT(temp), 0, 100),
    REAL(OPENAI | CLAUDE | FILL | OPT, "top_p", AT(top_p), 0, 1),
    LIMIT(CHAT | TEXT | CLAUDE | FILL | OPT, "top_k", AT(top_k), 0, NTX_MOST_TOKENS),
    REAL(CHAT | TEXT | FILL | OPT, "min_p", AT(min_p), 0, 1),
    REAL(CHAT | TEXT | FILL | OPT, "repeat_penalty", AT(repeat_penalty), 0, 100),
    REAL(CHAT | TEXT, "repetition_penalty", AT(repeat_penalty), 0, 100),
    REAL(CHAT | TEXT | FILL | OPT, "presence_penalty", AT(presence_penalty), -2, 2),
    REAL(CHAT | TEXT | FILL | OPT, "frequency_penalty", AT(frequency_penalty), -2, 2),
    SEED(CHAT | TEXT | FILL | OPT, "seed", AT(seed)),
    BOOL(CHAT | TEXT | FILL, "ignore_eos", AT(ignore_eos)),
    READ(CHAT | TEXT | FILL | OPT, "stop", "string or list of strings", NULL),
    READ(CLAUDE, "stop_sequences", "list of strings", NULL),
    READ(CHAT | TEXT | OF(COMPLETION), "logit_bias", "object of a number for each token", NULL),
    READ(CHAT, "logprobs", "true or false", NULL),
    READ(TEXT, "logprobs", "integer from 0 to 5", NULL),
    READ(CHAT, "top_logprobs", "integer from 0 to 20", NULL),
    ABSENT(OLLAMA | RESP, "top_logprobs", "/v1/chat/completions has them"),
    ABSENT(OLLAMA, "logprobs", "/v1/chat/completions has them"),
    ABSENT(CHAT | TEXT | FILL, "n_probs", "'logprobs' of /v1/chat/completions has them"),
    READ(CHAT, "response_format", "object", NULL),
    READ(OLLAMA, "format", "\"json\" or a schema", NULL),
    READ(RESP, "text", "object", NULL),
    READ(CLAUDE, "output_config", "object", NULL),
    READ(CHAT | TEXT | FILL, "grammar", "string: a grammar in GBNF", NULL),
    READ(CHAT | TEXT | FILL, "json_schema", "schema", NULL),
    READ(CHAT | TEXT | FILL, "guided_json", "schema", "vLLM's name of json_schema"),
    READ(CHAT | TEXT | FILL, "guided_choice", "list of strings", "vLLM's: the answer is one of them"),
    READ(CHAT | TEXT | FILL, "guided_grammar", "string: a grammar in GBNF", "vLLM's name of grammar"),
    READ(CHAT | TEXT | FILL, "guided_regex", "string: a regular expression", "vLLM's: it matches all of the answer"),
    LABEL(CHAT | TEXT | FILL, "guided_decoding_backend", "there is one"),
    ABSENT(CHAT | TEXT | FILL, "guided_whitespace_pattern", NULL),
    READ(CHAT | TEXT | FILL, "structured_outputs", "object", "vLLM's, with one of json, choice, regex and grammar"),
    READ(OF(STRUCTURED), "json", "schema", NULL),
    READ(OF(STRUCTURED), "choice", "list of strings", NULL),
    READ(OF(STRUCTURED), "grammar", "string: a grammar in GBNF", NULL),
    READ(OF(STRUCTURED), "regex", "string: a regular expression", "it matches all of the answer"),
    ABSENT(OF(STRUCTURED), "json_object", "'response_format' of type json_object can say it"),
    ABSENT(OF(STRUCTURED), "structural_tag", NULL),
    REAL(CHAT | TEXT | FILL | OPT, "typical_p", AT(typical_p), 0, 1),
    HINT1(OPT, "tfs_z", 1, NULL),
    {CHAT | TEXT | FILL | OPT, "mirostat", NTX_FIELD_COUNT, AT(mirostat), 0, 2, NULL,
     "its version; it replaces top_k, typical_p, top_p and min_p"},
    REAL(CHAT | TEXT | FILL | OPT, "mirostat_tau", AT(mirostat_tau), 0, 100),
    REAL(CHAT | TEXT | FILL | OPT, "mirostat_eta", AT(mirostat_eta), 0, 10),
    {OPT | CHAT | TEXT | FILL, "repeat_last_n", NTX_FIELD_COUNT, AT(repeat_last), -1, NTX_MOST_TOKENS, NULL,
     "tokens that repeat_penalty looks back at; 0: none, -1: the context"},
    HINT(OPT | CHAT | TEXT | FILL, "penalize_newline", NULL),
    ABSENT(CHAT | TEXT | FILL, "dynatemp_range", NULL),
    LABEL(CHAT | TEXT | FILL, "dynatemp_exponent", "of dynatemp_range, which is refused"),
    ABSENT(CHAT | TEXT | FILL, "xtc_probability", NULL),
    LABEL(CHAT | TEXT | FILL, "xtc_threshold", "of xtc_probability, which is refused"),
    ABSENT(CHAT | TEXT | FILL, "dry_multiplier", NULL),
    LABEL(CHAT | TEXT | FILL, "dry_base", "of dry_multiplier, which is refused"),
    LABEL(CHAT | TEXT | FILL, "dry_allowed_length", "of dry_multiplier, which is refused"),
    LABEL(CHAT | TEXT | FILL, "dry_penalty_last_n", "of dry_multiplier, which is refused"),
    LABEL(CHAT | TEXT | FILL, "dry_sequence_breakers", "of dry_multiplier, which is refused"),
    HINT(CHAT | TEXT | FILL, "samplers", "their order is ntx's own"),
    HINT(CHAT | TEXT | FILL, "min_keep", NULL),
    HINT(CHAT | TEXT | FILL, "post_sampling_probs", NULL),
    HINT(CHAT | TEXT | FILL, "t_max_prompt_ms", "close the connection instead"),
    HINT(CHAT | TEXT | FILL, "t_max_predict_ms", "close the connection instead"),
    ABSENT(OF(INFILL), "n_indent", NULL),
    ABSENT(CHAT | TEXT | FILL, "lora", "'model' picks an adapter: NAME:ADAPTER"),
    BOOL(TEXT, "echo", AT(shows_prompt)),
    READ(TEXT | OF(OLLAMA_TEXT), "suffix", "string", "the text after the answer, where the vocabulary can say it"),
    ABSENT1(TEXT, "best_of", 1, NULL),
    ABSENT1(RESP | CLAUDE, "n", 1, "one answer is given; /v1/chat/completions gives several"),

    /* ---- thinking */
    READ(CHAT, "reasoning_effort", "none, minimal, low, medium, high, xhigh or max", OF_THOUGHTS),
    READ(CHAT, "enable_thinking", "true or false", OF_THOUGHTS),
    READ(CHAT, "thinking_budget", "integer of tokens; 0: no thoughts, -1: no limit", OF_THOUGHTS),
    READ(CHAT, "thinking_budget_tokens", "integer", "another name of thinking_budget"),
    READ(CHAT, "thinking_token_budget", "integer", "another name of thinking_budget"),
    READ(CHAT, "reasoning_budget", "integer", "another name of thinking_budget"),
    READ(CHAT, "chat_template_kwargs", "object",
         "variables of the model's own template; reported as not followed where that lacks them"),
    HINT(CHAT, "reasoning_format", "thoughts come apart, as 'reasoning_content'"),
    READ(CHAT | RESP, "reasoning", "object", OF_THOUGHTS),
    READ(CHAT | CLAUDE, "thinking", "object", OF_THOUGHTS),
    READ(OLLAMA, "think", "true, false, low, medium, high or max", OF_THOUGHTS),

    /* ---- tools */
    READ(CHAT | RESP | CLAUDE | OF(OLLAMA_CHAT), "tools", "list of tools", OTHER_TOOLS),
    READ(CHAT | RESP, "tool_choice",
         "none, auto, required, an object that names a function, or one of type allowed_tools",
         "one that names a tool which was left out is refused"),
    READ(CLAUDE, "tool_choice", "object of type auto, any, tool or none",
         "one that names a tool which was left out is refused"),
    BOOL(CHAT | RESP, "parallel_tool_calls", AT(parallel)),
    ABSENT(CHAT, "functions", "use 'tools'"),
    ABSENT(CHAT, "function_call", "use 'tool_choice'"),
    ABSENT(RESP, "max_tool_calls", "calls are the client's own to make"),
    HINT(CHAT, "web_search_options", "nothing is searched"),
    ABSENT(CLAUDE, "mcp_servers", "nothing is reached from here: the client calls its tools itself"),
    ABSENT(CLAUDE, "container", "no code is run"),

    /* ---- other kinds of answers */
    READ(CHAT, "modalities", "[\"text\"]", NULL),
    ABSENT(CHAT, "audio", NULL),
    HINT(CHAT, "prediction", "drafts come from the text itself; they change no answer"),
    ABSENT(CHAT | RESP, "moderation", NULL),
    READ(RESP, "truncation", "\"disabled\" or \"auto\"", "too long a prompt is refused; auto is reported"),
    ABSENT(RESP, "previous_response_id", KEPT),
    ABSENT(RESP, "conversation", KEPT),
    ABSENT(RESP, "background", "nothing is kept: an answer comes with its request"),
    ABSENT(RESP, "background_options", "nothing is kept: an answer comes with its request"),
    ABSENT(RESP, "prompt", "nothing is kept: send the text itself"),
    ABSENT(CLAUDE, "thread", KEPT),
    ABSENT(OF(OLLAMA_TEXT), "template", "the model's own is used"),
    ABSENT(OF(OLLAMA_TEXT), "context", "use /api/chat"),
    ABSENT(OF(OLLAMA_TEXT), "images", NULL),
    ABSENT(OF(OLLAMA_TEXT), "width", "no images are made"),
    ABSENT(OF(OLLAMA_TEXT), "height", "no images are made"),
    ABSENT(OF(OLLAMA_TEXT), "steps", "no images are made"),
    ABSENT(OF(EMBEDDINGS) | OF(OLLAMA_EMBED), "dimensions", "a vector has all that the model gives"),
    ABSENT(OF(TOKENIZE), "messages", "/v1/messages/count_tokens counts them"),

    /* ---- fields that an answer can do without */
    HINT(CHAT, "verbosity", "ask for it in words"),
    HINT(CHAT | RESP, "store", "nothing is kept"),
    HINT(RESP, "include", NULL),
    HINT(RESP | CLAUDE, "context_management", "the client shortens the conversation itself"),
    HINT(RESP, "image", NULL),
    HINT(CLAUDE, "betas", NULL),
    HINT(CLAUDE, "compaction", "the client shortens the conversation itself"),
    HINT(CLAUDE, "diagnostics", NULL),
    HINT(CLAUDE, "fallbacks", "there is one model"),
    HINT(CLAUDE, "speed", NULL),
    HINT(CHAT, "top_a", NULL),
    HINT(CHAT, "tfs", NULL),
    HINT(CHAT, "provider", "there is one"),
    HINT(CHAT, "models", "there is one model"),
    HINT(CHAT, "transforms", "the client shortens the conversation itself"),
    HINT(CHAT, "plugins", NULL),
    HINT(CHAT, "tool_stream", "calls come whole"),
    LABEL(CHAT, "usage", "an answer has it; a stream has it with stream_options.include_usage"),
    LABEL(CHAT | RESP, "session_id", A_LABEL),
    HINT(OLLAMA, "truncate", "too long a prompt is refused"),
    HINT(OLLAMA, "shift", "too long a prompt is refused"),
    HINT(CHAT | TEXT | FILL, "response_fields", NULL),
    HINT(CHAT | TEXT | FILL, "timings_per_token", NULL),
    HINT(CHAT | TEXT | FILL, "return_tokens", NULL),
    HINT(CHAT | TEXT | FILL, "return_progress", "a stream has it in comments"),
    LABEL(EMBED, "options", "of loading, and of writing"),
    HINT(OF(OLLAMA_SHOW), "verbose", NULL),
    HINT(OF(OLLAMA_SHOW), "system", NULL),
    HINT(OF(OLLAMA_SHOW), "template", NULL),
    HINT(OF(OLLAMA_SHOW), "options", NULL),
    READ(OF(OLLAMA_SHOW), "name", "string", "the same as model"),
    LABEL(OPENAI | OF(EMBEDDINGS), "user", A_LABEL),
    READ(RESP, "metadata", "object", "repeated in the answer"),
    LABEL(CHAT | TEXT | CLAUDE, "metadata", A_LABEL),
    LABEL(CHAT | RESP, "client_metadata", A_LABEL),
    LABEL(CHAT | RESP, "safety_identifier", A_LABEL),
    LABEL(CLAUDE, "user_profile_id", A_LABEL),
    LABEL(CLAUDE, "workspace_id", A_LABEL),
    LABEL(RESP, "access_programs", A_LABEL),
    LABEL(CHAT | RESP | CLAUDE, "service_tier", "there is one"),
    LABEL(CLAUDE, "inference_geo", "this machine's"),
    LABEL(CLAUDE, "billing_policy", "nothing is billed"),
    LABEL(CLAUDE, "fallback_credit_token", "nothing is billed"),
    LABEL(CHAT | RESP, "prompt_cache_key", OF_CACHE),
    LABEL(CHAT | RESP, "prompt_cache_options", OF_CACHE),
    LABEL(CHAT | RESP, "prompt_cache_retention", OF_CACHE),
    LABEL(CHAT | TEXT | FILL, "cache_prompt", OF_CACHE),
    LABEL(CHAT | TEXT | FILL, "id_slot", OF_CACHE),
    LABEL(CHAT | TEXT | FILL, "n_keep", "nothing is shifted"),
    LABEL(CHAT | TEXT | FILL, "n_discard", "nothing is shifted"),
    LABEL(CLAUDE, "cache_control", OF_CACHE),
    READ(OLLAMA, "keep_alive", "seconds, or \"5m\"", "how long a known model stays after the request; -1: for ever"),
    LABEL(EMBED, "keep_alive", "a model stays until it is unloaded"),
    READ(OPENAI | CLAUDE, "ttl", "seconds, or \"5m\"", "as Ollama's keep_alive"),
    LABEL(OPT, "num_ctx", LOADED),
    LABEL(OPT, "num_batch", LOADED),
    LABEL(OPT, "num_gpu", LOADED),
    LABEL(OPT, "main_gpu", LOADED),
    LABEL(OPT, "num_thread", LOADED),
    LABEL(OPT, "num_keep", "nothing is shifted"),
    LABEL(OPT, "use_mmap", LOADED),
    LABEL(OPT, "use_mlock", LOADED),
    LABEL(OPT, "numa", LOADED),
    LABEL(OPT, "low_vram", LOADED),
    LABEL(OPT, "f16_kv", LOADED),
    LABEL(OPT, "vocab_only", LOADED),
    LABEL(OPT, "logits_all", LOADED),
    LABEL(OPT, "embedding_only", LOADED),
    LABEL(OPT, "draft_num_predict", "drafts change no answer"),

    /* ---- nested objects */
    BOOL(OF(STREAM_OPTIONS), "include_usage", AT(usage)),
    LABEL(OF(STREAM_OPTIONS), "include_obfuscation", "lengths are not hidden"),
    READ(OF(CHAT_MESSAGE), "role", "system, developer, user, assistant, tool or function",
         "function: the result of a function_call, as a tool's"),
    READ(OF(CLAUDE_MESSAGE), "role", "user, assistant, system or developer", NULL),
    READ(OF(CHAT_MESSAGE) | OF(CLAUDE_MESSAGE), "content", "string or list of parts", NULL),
    READ(OF(CHAT_MESSAGE), "name", "string", "given to the model's own template"),
    READ(OF(CHAT_MESSAGE), "tool_call_id", "string", "given to the model's own template"),
    READ(OF(CHAT_MESSAGE), "tool_name", "string", "given to the model's own template, as 'name'"),
    READ(OF(CHAT_MESSAGE), "tool_calls", "list of calls", NULL),
    READ(OF(CHAT_MESSAGE), "thinking", "string", "given to the model's own template, as 'reasoning_content'"),
    READ(OF(CHAT_MESSAGE), "reasoning_content", "string", "given to the model's own template"),
    READ(OF(CHAT_MESSAGE), "reasoning", "string", "another name of reasoning_content"),
    HINT(OF(CHAT_MESSAGE), "reasoning_details", "reasoning is read as a text"),
    ABSENT(OF(CHAT_MESSAGE), "refusal", NULL),
    READ(OF(CHAT_MESSAGE), "function_call", "object with name and arguments", "an older form of tool_calls"),
    ABSENT(OF(CHAT_MESSAGE), "audio", NULL),
    ABSENT(OF(CHAT_MESSAGE), "images", NULL),
    HINT(OF(CHAT_MESSAGE), "annotations", ANSWER_ONLY),
    READ(OF(CHAT_CALL), "id", "string", NULL),
    READ(OF(CHAT_CALL), "function", "object with name and arguments", NULL),
    LABEL(OF(CHAT_CALL), "type", "functions are called"),
    LABEL(OF(CHAT_CALL), "index", "of streams"),
    READ(OF(PART), "type", "string", NULL),
    READ(OF(PART), "text", "string", NULL),
    READ(OF(PART), "thinking", "string", "given to the model's own template, as 'reasoning_content'"),
    READ(OF(PART), "id", "string", "of a call"),
    READ(OF(PART), "name", "string", "of a call"),
    READ(OF(PART), "input", "object", "of a call"),
    READ(OF(PART), "tool_use_id", "string", "of a result"),
    READ(OF(PART), "content", "string or list of parts", "of a result"),
    READ(OF(PART), "is_error", "true or false", "of a result; given to the model's own template"),
    LABEL(OF(PART), "signature", "of a thought"),
    LABEL(OF(PART), "data", "of a thought that cannot be read"),
    LABEL(OF(PART), "cache_control", OF_CACHE),
    LABEL(OF(PART), "prompt_cache_breakpoint", OF_CACHE),
    LABEL(OF(PART), "caller", A_LABEL),
    HINT(OF(PART), "annotations", ANSWER_ONLY),
    HINT(OF(PART), "logprobs", ANSWER_ONLY),
    HINT(OF(PART), "citations", NULL),
    HINT(OF(PART), "toolset_name", NULL),
    READ(OF(ITEM), "type", "message, function_call, function_call_output or reasoning",
         "also custom_tool_call and local_shell_call with their outputs, as functions; calls that another server made "
         "(web_search_call, mcp_call, ...) are left out, and reported"),
    READ(OF(ITEM), "role", "system, developer, user or assistant", NULL),
    READ(OF(ITEM), "content", "string or list of parts", NULL),
    READ(OF(ITEM), "call_id", "string", NULL),
    READ(OF(ITEM), "name", "string", NULL),
    READ(OF(ITEM), "arguments", "string", NULL),
    READ(OF(ITEM), "output", "string or list of parts", NULL),
    LABEL(OF(ITEM), "input", "of a custom_tool_call, whose argument it is"),
    LABEL(OF(ITEM), "action", "of a local_shell_call, whose argument it is"),
    LABEL(OF(ITEM), "id", A_LABEL),
    LABEL(OF(ITEM), "status", ANSWER_ONLY),
    LABEL(OF(ITEM), "phase", ANSWER_ONLY),
    LABEL(OF(ITEM), "caller", A_LABEL),
    HINT(OF(ITEM), "summary", "thoughts are read from 'content'"),
    HINT(OF(ITEM), "encrypted_content", "thoughts are read from 'content'"),
    HINT(OF(ITEM), "namespace", NULL),
    READ(OF(TOOL) | OF(RESPONSE_TOOL), "type", "function", OTHER_TOOLS),
    READ(OF(TOOL), "function", "object", NULL),
    READ(OF(FUNCTION) | OF(RESPONSE_TOOL) | OF(CLAUDE_TOOL), "name", "string", NULL),
    READ(OF(FUNCTION) | OF(RESPONSE_TOOL) | OF(CLAUDE_TOOL), "description", "string", NULL),
    READ(OF(FUNCTION) | OF(RESPONSE_TOOL), "parameters", "schema", NULL),
    READ(OF(CLAUDE_TOOL), "input_schema", "schema", NULL),
    READ(OF(CLAUDE_TOOL), "type", "custom", OTHER_TOOLS),
    READ(OF(FUNCTION) | OF(RESPONSE_TOOL) | OF(CLAUDE_TOOL), "strict", "true or false", NULL),
    LABEL(OF(TOOL) | OF(CLAUDE_TOOL), "cache_control", OF_CACHE),
    LABEL(OF(CLAUDE_TOOL), "eager_input_streaming", "calls come whole"),
    HINT(OF(CLAUDE_TOOL) | OF(RESPONSE_TOOL), "allowed_callers", "the model alone calls"),
    HINT(OF(CLAUDE_TOOL) | OF(RESPONSE_TOOL), "defer_loading", "all tools are shown to the model"),
    HINT(OF(CLAUDE_TOOL), "input_examples", NULL),
    HINT(OF(RESPONSE_TOOL), "output_schema", NULL),
    READ(OF(FORMAT) | OF(TEXT_FORMAT), "type", "text, json_object or json_schema", NULL),
    READ(OF(FORMAT), "json_schema", "object", NULL),
    READ(OF(SCHEMA) | OF(TEXT_FORMAT) | OF(OUTPUT_FORMAT), "schema", "schema", NULL),
    READ(OF(OUTPUT_FORMAT), "type", "json_schema", NULL),
    LABEL(OF(SCHEMA) | OF(TEXT_FORMAT), "name", A_LABEL),
    LABEL(OF(SCHEMA) | OF(TEXT_FORMAT), "description", A_LABEL),
    LABEL(OF(SCHEMA) | OF(TEXT_FORMAT), "strict", "an answer is always valid under its schema"),
    READ(OF(TEXT_CONFIG), "format", "object", NULL),
    HINT(OF(TEXT_CONFIG), "verbosity", "ask for it in words"),
    READ(OF(REASONING), "effort", "none, minimal, low, medium, high, xhigh or max", OF_THOUGHTS),
    READ(OF(REASONING), "enabled", "true or false", OF_THOUGHTS),
    READ(OF(REASONING), "max_tokens", "integer of tokens; 0: no thoughts, -1: no limit", OF_THOUGHTS),
    HINT(OF(REASONING), "exclude", "the reasoning itself is returned"),
    HINT(OF(REASONING), "summary", "the reasoning itself is returned"),
    HINT(OF(REASONING), "generate_summary", "the reasoning itself is returned"),
    READ(OF(THINKING), "type", "enabled, adaptive or disabled", "adaptive: as the model, or its default, has it"),
    READ(OF(THINKING), "budget_tokens", "integer", "after so many tokens a thought is ended"),
    HINT(OF(THINKING), "display", "reasoning is returned"),
    READ(OF(OUTPUT_CONFIG), "effort", "low, medium, high, xhigh or max", OF_THOUGHTS),
    READ(OF(OUTPUT_CONFIG), "format", "object", NULL),
    HINT(OF(OUTPUT_CONFIG), "task_budget", NULL),
    {0, NULL, NTX_FIELD_READ, 0, 0, 0, NULL, NULL},
};
