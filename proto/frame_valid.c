/* SPDX-License-Identifier: Apache-2.0 */
/* frame_valid.c: the only place that validates a client's bytes: sizes, counts and numbers. computed checks what
 * depends on the model (token ids, known names), since it can report more about it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common/util.h"
#include "proto/frame.h"
#include "proto/settings.h"
#include "proto/valid.h"

#define MAX_PARTS      100u
#define MAX_PATH       4096u
#define MAX_COPIES     4u /* copies of a model: as many drives as iod reads from */
#define MAX_TOKENS     (1u << 20)
#define MAX_MESSAGES   16384u
#define MAX_STOPS      64u
#define MAX_CONSTRAINT (256u << 10)
#define MAX_BIASES     1024u
#define MAX_TOP        20u
#define MAX_IMAGES     1000u /* of a text */

/* protobuf-c turns two bytes of input into some 40 bytes of memory, so without a bound a 16 MiB frame would take 400
 * MB. A request is text or numbers, which take at most four bytes for each byte. Replies come from our own daemon. */
struct budget {
    ProtobufCAllocator a;
    size_t left;
};

static void *budget_alloc(void *data, size_t n)
{
    struct budget *b = data;
    if (n > b->left)
        return NULL;
    b->left -= n;
    return malloc(n);
}

static void budget_free(void *data, void *p)
{
    (void)data;
    free(p);
}

static struct budget budget_of(size_t bytes)
{
    return (struct budget){.a = {budget_alloc, budget_free, NULL}, .left = bytes};
}

static bool load_ok(const Ntx__Load *m)
{
    if (!m || m->n_names > MAX_PARTS)
        return false;
    if (m->copies > MAX_COPIES || m->n_also >= MAX_COPIES)
        return false;
    for (size_t i = 0; i < m->n_also; i++)
        if (!ntx__text_fits(m->also[i], MAX_PATH))
            return false;
    for (size_t i = 0; i < m->n_names; i++)
        if (!ntx__text_fits(m->names[i], MAX_PATH))
            return false;
    return ntx__text_fits(m->path, MAX_PATH) && ntx__text_fits(m->known, NTX_KNOWN_NAME) &&
           m->when <= NTX__WHEN__FORCE && ntx_settings_fit(&ntx_load_settings, m);
}

static bool models_ok(const Ntx__Models *m)
{
    return m && ntx__text_fits(m->list, NTX_KNOWN_LIST) && (!m->defaults || load_ok(m->defaults)) &&
           (!m->queue || ntx__text_fits(m->queue->next, NTX_KNOWN_NAME));
}

static bool constraint_ok(const Ntx__Generate *m)
{
    if (m->n_bias > MAX_BIASES || m->top_logprobs > MAX_TOP)
        return false;
    for (size_t i = 0; i < m->n_bias; i++)
        if (!m->bias[i] || !isfinite(m->bias[i]->add))
            return false;
    return !m->constraint ||
           (m->constraint->text.len <= MAX_CONSTRAINT && ntx__text_fits(m->constraint->kind, NTX_WORD_MAX));
}

/* Each stands within its text of len bytes, not before the one in front of it. */
static bool images_ok(Ntx__Image *const *list, size_t n, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (!list[i] || list[i]->at > len || (i && list[i]->at < list[i - 1]->at) || !list[i]->data.len)
            return false;
    return n <= MAX_IMAGES;
}

static bool messages_ok(Ntx__Message *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!list[i] || !ntx__text_fits(list[i]->role, NTX_WORD_MAX) ||
            !images_ok(list[i]->images, list[i]->n_images, list[i]->text.len))
            return false;
    return n <= MAX_MESSAGES;
}

static bool generate_ok(const Ntx__Generate *m)
{
    if (!m || m->n_tokens > MAX_TOKENS || m->n_stop > MAX_STOPS || !messages_ok(m->messages, m->n_messages) ||
        !images_ok(m->images, m->n_images, m->prompt.len))
        return false;
    for (size_t i = 0; i < m->n_stop; i++)
        if (!ntx__text_fits(m->stop[i], NTX_OPTION_MAX))
            return false;
    return constraint_ok(m) && ntx__text_fits(m->chat_template, NTX_WORD_MAX) &&
           ntx__text_fits(m->adapter, NTX_WORD_MAX) && ntx__text_fits(m->think, NTX_WORD_MAX) &&
           ntx__text_fits(m->model, NTX_OPTION_MAX) &&
           (!m->sampling || ntx_settings_fit(&ntx_sampling_settings, m->sampling));
}

bool ntx_request_valid(const Ntx__Request *m)
{
    if (!ntx__text_fits(m->build, NTX_WORD_MAX) || !ntx__text_fits(m->known, NTX_KNOWN_NAME))
        return false;
    switch (m->body_case) {
    case NTX__REQUEST__BODY_LOAD: return load_ok(m->load);
    case NTX__REQUEST__BODY_GENERATE: return generate_ok(m->generate);
    case NTX__REQUEST__BODY_LOGITS: return m->logits && m->logits->n_tokens <= MAX_TOKENS;
    case NTX__REQUEST__BODY_SCORE:
        return m->score && m->score->n_tokens <= MAX_TOKENS && m->score->from <= m->score->n_tokens;
    case NTX__REQUEST__BODY_STATES: return m->states && m->states->n_tokens <= MAX_TOKENS;
    case NTX__REQUEST__BODY_TEXT:
        return m->text && m->text->n_tokens <= MAX_TOKENS && messages_ok(m->text->messages, m->text->n_messages) &&
               ntx__text_fits(m->text->think, NTX_WORD_MAX);
    case NTX__REQUEST__BODY_UNLOAD: return m->unload;
    case NTX__REQUEST__BODY_MODELS: return models_ok(m->models);
    case NTX__REQUEST__BODY_CANCEL: return m->cancel;
    case NTX__REQUEST__BODY_STATUS: return m->status;
    case NTX__REQUEST__BODY_STOP: return m->stop;
    case NTX__REQUEST__BODY_CLOSE_SESSION: return m->close_session;
    default: return false;
    }
}

/* Replies come from our own daemon; still, a wrong one must not crash a client. */
static bool reply_ok(const Ntx__Reply *m)
{
    switch (m->body_case) {
    case NTX__REPLY__BODY_ERROR: return m->error;
    case NTX__REPLY__BODY_PROGRESS: return m->progress;
    case NTX__REPLY__BODY_LOADED: return m->loaded;
    case NTX__REPLY__BODY_TOKEN: return m->token;
    case NTX__REPLY__BODY_DONE: return m->done;
    case NTX__REPLY__BODY_STATUS: return m->status;
    case NTX__REPLY__BODY_LOGITS: return m->logits && m->logits->f32.len % sizeof(float) == 0;
    case NTX__REPLY__BODY_SCORE: return m->score;
    case NTX__REPLY__BODY_STATES:
        return m->states && m->states->state.len % sizeof(float) == 0 && m->states->similar.len % sizeof(float) == 0 &&
               m->states->ffn_state.len % sizeof(float) == 0 && m->states->ffn_energy.len % sizeof(float) == 0;
    case NTX__REPLY__BODY_STEP:
        return m->step && ntx__text_fits(m->step->name, NTX_WORD_MAX) &&
               ntx__text_fits(m->step->buffer, NTX_WORD_MAX) &&
               (!m->step->values.len || m->step->values.len == m->step->width * sizeof(float));
    case NTX__REPLY__BODY_TEXT: return m->text;
    case NTX__REPLY__BODY_STARTED: return m->started;
    default: return false;
    }
}

Ntx__Request *ntx_request_decode(const uint8_t *body, size_t len, size_t *took)
{
    size_t most = NTX_MIN(6 * len + (8u << 10), len + (4u << 20));
    struct budget b = budget_of(most);
    b.a.allocator_data = &b;
    Ntx__Request *m = ntx__request__unpack(&b.a, len, body);
    if (m && !ntx_request_valid(m)) {
        ntx__request__free_unpacked(m, NULL);
        return NULL;
    }
    if (took)
        *took = most - b.left;
    return m;
}

Ntx__Reply *ntx_reply_decode(const uint8_t *body, size_t len)
{
    struct budget b = budget_of(NTX_MIN(16 * len + (64u << 10), 2 * len + (16u << 20)));
    b.a.allocator_data = &b;
    Ntx__Reply *m = ntx__reply__unpack(&b.a, len, body);
    if (m && !reply_ok(m)) {
        ntx__reply__free_unpacked(m, NULL);
        return NULL;
    }
    return m;
}
