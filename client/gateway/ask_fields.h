/* ask_fields.h: the fields that several APIs share, for their tables. */
#ifndef NTX_CLIENT_GATEWAY_ASK_FIELDS_H
#define NTX_CLIENT_GATEWAY_ASK_FIELDS_H

#include <stddef.h>

#include "client/gateway/ask.h"
#include "client/gateway/field.h"

#define NTX_MOST_TOKENS 268435456.0 /* beyond any context (proto/frame.h) */
#define AT(x) offsetof(struct ntx_ask, x)

/* Both of OpenAI's, and what ntx adds to them: top_k, min_p, repeat_penalty, ignore_eos. */
#define NTX_OPENAI_FIELDS                                                                                                            \
    {"model", NTX_FIELD_ANY, 0, 0, 0, NULL}, {"stop", NTX_FIELD_ANY, 0, 0, 0, NULL}, {"stream_options", NTX_FIELD_ANY, 0, 0, 0, NULL}, \
    {"stream", NTX_FIELD_BOOL, AT(stream), 0, 0, NULL},                                                                                \
    {"n", NTX_FIELD_COUNT, AT(n), 1, NTX_ASK_CHOICES, NULL},                                                                           \
    {"max_tokens", NTX_FIELD_COUNT, AT(max_tokens), 1, NTX_MOST_TOKENS, NULL},                                                         \
    {"temperature", NTX_FIELD_REAL, AT(temp), 0, 2, NULL},                                                                             \
    {"top_p", NTX_FIELD_REAL, AT(top_p), 0, 1, NULL},                                                                                  \
    {"top_k", NTX_FIELD_COUNT, AT(top_k), 0, NTX_MOST_TOKENS, NULL},                                                                   \
    {"min_p", NTX_FIELD_REAL, AT(min_p), 0, 1, NULL},                                                                                  \
    {"repeat_penalty", NTX_FIELD_REAL, AT(repeat_penalty), 0, 100, NULL},                                                              \
    {"seed", NTX_FIELD_SEED, AT(seed), 0, 0, NULL},                                                                                    \
    {"ignore_eos", NTX_FIELD_BOOL, AT(ignore_eos), 0, 0, NULL},                                                                        \
    {"presence_penalty", NTX_FIELD_REAL, AT(presence_penalty), -2, 2, NULL},                                                        \
    {"frequency_penalty", NTX_FIELD_REAL, AT(frequency_penalty), -2, 2, NULL},                                                       \
    {"logit_bias", NTX_FIELD_ANY, 0, 0, 0, NULL}, {"logprobs", NTX_FIELD_ANY, 0, 0, 0, NULL},                                          \
    {"user", NTX_FIELD_SKIP, 0, 0, 0, NULL}, {"metadata", NTX_FIELD_SKIP, 0, 0, 0, NULL}

/* The lists that both have: stop (a string or strings) and stream_options.include_usage. */
int ntx__ask_stops(struct ntx_ask *a, const json_t *v, const char *name, struct ntx_fault *f);
int ntx__ask_openai(struct ntx_ask *a, const json_t *body, struct ntx_fault *f);

#endif
