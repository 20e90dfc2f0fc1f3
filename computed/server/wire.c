/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/server/wire.h"

#include <stdlib.h>

#include "proto/settings.h"

static void release_message(void *owner) { ntx__request__free_unpacked(owner, NULL); }

/* Fields that are not set have no effect. */
static struct ntx_sampling sampling_of(const Ntx__Sampling *m)
{
    struct ntx_sampling_settings s = {0};
    if (m)
        ntx_settings_from_wire(&ntx_sampling_settings, m, &s);
    return (struct ntx_sampling){.temp = s.temp,
                                 .top_k = s.top_k,
                                 .top_p = s.top_p > 0 ? s.top_p : 1,
                                 .min_p = s.min_p,
                                 .repeat_penalty = s.repeat_penalty > 0 ? s.repeat_penalty : 1,
                                 .repeat_last = s.repeat_last ? s.repeat_last : 64,
                                 .seed = s.seed,
                                 .typical_p = s.typical_p,
                                 .mirostat = s.mirostat,
                                 .mirostat_tau = s.mirostat_tau > 0 ? s.mirostat_tau : 5,
                                 .mirostat_eta = s.mirostat_eta > 0 ? s.mirostat_eta : 0.1f,
                                 .presence_penalty = s.presence_penalty,
                                 .frequency_penalty = s.frequency_penalty};
}

/* The images of a text, written to `to`, which moves behind them. */
static const struct ntx_request_image *take_images(Ntx__Image *const *list, size_t n, struct ntx_request_image **to)
{
    struct ntx_request_image *images = *to;
    for (size_t i = 0; i < n; i++)
        images[i] = (struct ntx_request_image){list[i]->at, {(const char *)list[i]->data.data, list[i]->data.len}};
    *to += n;
    return images;
}

static size_t count_images(const Ntx__Generate *m)
{
    size_t n = m->n_images;
    for (size_t i = 0; i < m->n_messages; i++)
        n += m->messages[i]->n_images;
    return n;
}

static void take_generate(struct ntx_request *a, const Ntx__Generate *m, struct ntx_request_message *messages)
{
    struct ntx_request_image *images = (struct ntx_request_image *)(void *)(messages + m->n_messages);
    struct ntx_request_bias *bias = (struct ntx_request_bias *)(void *)(images + count_images(m));
    for (size_t i = 0; i < m->n_messages; i++)
        messages[i] = (struct ntx_request_message){
            .role = m->messages[i]->role,
            .text = {(const char *)m->messages[i]->text.data, m->messages[i]->text.len},
            .fields = {(const char *)m->messages[i]->fields.data, m->messages[i]->fields.len},
            .images = take_images(m->messages[i]->images, m->messages[i]->n_images, &images),
            .n_images = m->messages[i]->n_images};
    a->images = take_images(m->images, m->n_images, &images);
    a->n_images = m->n_images;
    a->kind = NTX_REQUEST_GENERATE;
    a->session = m->session;
    a->keep = m->keep && !m->prefix;
    a->prefix = m->prefix;
    a->prompt = (struct ntx_bytes){(const char *)m->prompt.data, m->prompt.len};
    a->messages = messages;
    a->n_messages = m->n_messages;
    a->tokens = m->tokens;
    a->n_tokens = m->n_tokens;
    a->raw = m->raw;
    a->no_special = m->no_special;
    a->chat_template = m->chat_template;
    a->variables = (struct ntx_bytes){(const char *)m->variables.data, m->variables.len};
    a->think = m->think;
    a->stop = m->stop;
    a->n_stop = m->n_stop;
    a->ignore_eos = m->ignore_eos;
    a->max_tokens = m->max_tokens;
    a->leave = m->leave;
    a->adapter = m->adapter;
    a->model = m->model;
    a->cut_to = m->cut_to;
    a->sampling = sampling_of(m->sampling);
    if (m->constraint) {
        a->constraint = m->constraint->kind;
        a->constraint_soft = m->constraint->soft;
        a->constraint_text = (struct ntx_bytes){(const char *)m->constraint->text.data, m->constraint->text.len};
    }
    for (size_t i = 0; i < m->n_bias; i++)
        bias[i] = (struct ntx_request_bias){m->bias[i]->token, m->bias[i]->add};
    a->bias = bias;
    a->n_bias = m->n_bias;
    a->logprobs = m->logprobs;
    a->top_logprobs = m->top_logprobs;
}

static void take_tokens(struct ntx_request *a, enum ntx_request_kind kind, const int32_t *tokens, size_t n,
                        uint32_t from, bool decode)
{
    a->kind = kind;
    a->tokens = tokens;
    a->n_tokens = n;
    a->from = from;
    a->decode = decode;
}

static void fill_request(struct ntx_request *a, const Ntx__Request *q, struct ntx_request_message *messages)
{
    switch (q->body_case) {
    case NTX__REQUEST__BODY_GENERATE: take_generate(a, q->generate, messages); return;
    case NTX__REQUEST__BODY_LOGITS:
        take_tokens(a, NTX_REQUEST_LOGITS, q->logits->tokens, q->logits->n_tokens, q->logits->from, q->logits->decode);
        a->steps = q->logits->steps;
        a->pool = q->logits->pool;
        return;
    case NTX__REQUEST__BODY_SCORE:
        take_tokens(a, NTX_REQUEST_SCORE, q->score->tokens, q->score->n_tokens, q->score->from, q->score->decode);
        return;
    case NTX__REQUEST__BODY_STATES:
        take_tokens(a, NTX_REQUEST_STATES, q->states->tokens, q->states->n_tokens, 0, false);
        a->layer = q->states->layer;
        a->ffn_first = q->states->ffn_first;
        a->ffn_layers = q->states->ffn_layers;
        a->kind = q->states->sums ? NTX_REQUEST_SUMS : a->kind;
        a->tensor = q->states->tensor;
        return;
    case NTX__REQUEST__BODY_CANCEL:
        a->kind = NTX_REQUEST_CANCEL;
        a->target = q->cancel->target;
        return;
    default: /* no other kind comes here */
        a->kind = NTX_REQUEST_CLOSE;
        a->session = q->body_case == NTX__REQUEST__BODY_CLOSE_SESSION ? q->close_session->session : 0;
    }
}

struct ntx_request *ntx_request_of(Ntx__Request *req)
{
    size_t n = req->body_case == NTX__REQUEST__BODY_GENERATE ? req->generate->n_messages : 0;
    size_t n_images = req->body_case == NTX__REQUEST__BODY_GENERATE ? count_images(req->generate) : 0;
    size_t n_bias = req->body_case == NTX__REQUEST__BODY_GENERATE ? req->generate->n_bias : 0;
    struct ntx_request *a = calloc(1, sizeof *a + n * sizeof(struct ntx_request_message) +
                                          n_images * sizeof(struct ntx_request_image) +
                                          n_bias * sizeof(struct ntx_request_bias));
    if (!a)
        return NULL;
    a->id = req->id;
    a->client = req->client;
    a->release = release_message;
    a->owner = req;
    fill_request(a, req, (struct ntx_request_message *)(void *)(a + 1));
    return a;
}
