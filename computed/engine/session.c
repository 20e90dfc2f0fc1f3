/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/session.h"
#include "computed/pass/forward.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

#define SCORE_BYTES (2 * sizeof(float) + sizeof(int32_t)) /* of a token: session.h's each, best and best_token */

int ntx_session_new(struct ntx_reply_queue *replies, uint64_t id, struct ntx_session **out)
{
    struct ntx_session *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->replies = ntx_reply_queue_ref(replies);
    s->id = id;
    s->state = NTX_SESSION_IDLE;
    *out = s;
    return 0;
}

static void free_request(struct ntx_session *s)
{
    ntx_sampler_free(s->sampler);
    ntx_constraint_free(s->constraint);
    ntx_thought_free(s->thought);
    ntx_text_free(s->text);
    free(s->options);
    free(s->each);
    free(s->pool);
    s->sampler = NULL;
    s->constraint = NULL;
    s->thought = NULL;
    s->text = NULL;
    s->options = NULL;
    s->each = NULL;
    s->pool = NULL;
}

void ntx_session_free(struct ntx_session *s)
{
    if (!s)
        return;
    free_request(s);
    ntx_kv_seq_free(s->kv);
    free(s->dialog.begins);
    ntx_request_free(s->unread);
    free(s->tokens);
    ntx_image_spans_free(&s->images);
    free(s->similar);
    ntx_ffn_set_free(s->ffn);
    ntx_reply_queue_unref(s->replies);
    free(s);
}

void ntx_session_rest(struct ntx_session *s)
{
    free_request(s);
    s->cancel = false;
    s->state = NTX_SESSION_IDLE;
}

/* Adds n tokens, with room for one that is sampled but never fed. */
static int add_tokens(struct ntx_session *s, const struct ntx_session_env *e, const int32_t *ids, uint32_t n,
                      struct ntx_err *err)
{
    if (n > e->ctx || s->n_tokens + n > e->ctx)
        return ntx_err_set(
            err, -E2BIG,
            "the prompt has %u tokens%s, the context holds %u: shorten it, or load the model with a larger --ctx",
            s->n_tokens + n, s->n_tokens ? " with the conversation before it" : "", e->ctx);
    if (s->n_tokens + n + 1 > s->room) {
        uint32_t room = s->n_tokens + n + 1;
        int32_t *p = realloc(s->tokens, room * sizeof *p);
        if (!p)
            return ntx_err_set(err, -ENOMEM, "no memory for %u tokens", room);
        s->tokens = p;
        s->room = room;
    }
    if (n)
        memcpy(s->tokens + s->n_tokens, ids, n * sizeof *ids);
    s->n_tokens += n;
    return 0;
}

static char *options_of(const struct ntx_request *m, const struct ntx_sampling *p, const char *adapter)
{
    json_t *j = json_pack("{s:f, s:i, s:f, s:f, s:f, s:i, s:i, s:b, s:b}", "temp", (double)p->temp, "top_k",
                          (int)p->top_k, "top_p", (double)p->top_p, "min_p", (double)p->min_p, "repeat_penalty",
                          (double)p->repeat_penalty, "repeat_last", (int)p->repeat_last, "max_tokens",
                          (int)m->max_tokens, "raw", m->raw, "ignore_eos", m->ignore_eos);
    if (p->presence_penalty != 0)
        json_object_set_new(j, "presence_penalty", json_real((double)p->presence_penalty));
    if (p->frequency_penalty != 0)
        json_object_set_new(j, "frequency_penalty", json_real((double)p->frequency_penalty));
    if (p->typical_p > 0 && p->typical_p < 1)
        json_object_set_new(j, "typical_p", json_real((double)p->typical_p));
    if (p->mirostat) {
        json_object_set_new(j, "mirostat", json_integer(p->mirostat));
        json_object_set_new(j, "mirostat_tau", json_real((double)p->mirostat_tau));
        json_object_set_new(j, "mirostat_eta", json_real((double)p->mirostat_eta));
    }
    if (adapter)
        json_object_set_new(j, "adapter", json_string(adapter));
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    return text;
}

static int prepare_sampling(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                            const struct ntx_chat_template *chat, struct ntx_err *err)
{
    struct ntx_sampling p = m->sampling;
    p.repeat_last = NTX_MIN(p.repeat_last, e->ctx);
    if (!isfinite(p.temp) || p.temp < 0 || !isfinite(p.top_p) || !isfinite(p.min_p) || !isfinite(p.repeat_penalty) ||
        !isfinite(p.presence_penalty) || !isfinite(p.frequency_penalty) || !isfinite(p.typical_p) ||
        !isfinite(p.mirostat_tau) || !isfinite(p.mirostat_eta))
        return ntx_err_set(err, -EINVAL, "sampling options must be finite numbers, and the temperature at least 0");
    free_request(s);
    s->options = options_of(m, &p, s->adapter ? e->adapter[s->adapter - 1] : NULL);
    s->sampling = p;
    int rc = ntx_text_new(m->stop, m->n_stop, &s->text);
    if (!rc && !m->ignore_eos)
        rc = ntx_text_end_before(s->text, ntx_chat_turns(chat));
    if (rc)
        return ntx_err_set(err, rc, "cannot prepare sampling: %s", strerror(-rc));
    s->run = (struct ntx_run_stats){.seed = p.seed, .options = s->options, .finish = ""};
    return 0;
}

/* KV for all tokens of this request. A kept session takes a full context at once, since blocks are never added
 * later. */
static uint32_t tokens_to_reserve(const struct ntx_session *s, const struct ntx_session_env *e)
{
    if (s->keep || !s->max_tokens || s->max_tokens > e->ctx - s->n_tokens)
        return e->ctx;
    return s->n_tokens + s->max_tokens;
}

/* Refuses a prompt that leaves less than `leave` tokens of the context for the answer. */
static int check_room(const struct ntx_session *s, const struct ntx_session_env *e, uint32_t n, uint32_t leave,
                      struct ntx_err *err)
{
    leave = NTX_MIN(leave, e->ctx / 4);
    if ((uint64_t)s->n_tokens + n + leave <= e->ctx || !leave)
        return 0;
    return ntx_err_set(err, -E2BIG,
                       "the prompt has %u tokens%s, which leaves fewer than %u of the context's %u for the answer",
                       s->n_tokens + n, s->n_tokens ? " with the conversation before it" : "", leave, e->ctx);
}

/* Number of an adapter by its name, from 1 on; 0: "base"; -ENOENT. */
static int adapter_named(const struct ntx_session_env *e, const char *name)
{
    for (uint32_t k = 0; k < e->n_adapters; k++)
        if (!strcmp(name, e->adapter[k]))
            return (int)k + 1;
    return strcmp(name, "base") ? -ENOENT : 0;
}

/* The adapter that the request names, or NULL. */
static const char *asked_adapter(const struct ntx_session_env *e, const struct ntx_request *m)
{
    const char *colon = m->model && e->n_adapters ? strrchr(m->model, ':') : NULL;
    if (m->adapter && *m->adapter)
        return m->adapter;
    /* Ollama's clients send it as a default */
    if (colon)
        return strcmp(colon + 1, "latest") ? colon + 1 : NULL;
    return m->model && adapter_named(e, m->model) > 0 ? m->model : NULL;
}

/* Sets the adapter of the session's rows. A conversation keeps the one that its state was computed with. */
static int choose_adapter(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                          struct ntx_err *err)
{
    const char *name = asked_adapter(e, m);
    const int k = name ? adapter_named(e, name) : e->n_adapters > 0;
    if (k < 0 && !e->n_adapters)
        return ntx_err_set(err, -EINVAL, "there is no adapter '%.60s': none was loaded (--lora)", name);
    if (k < 0)
        return ntx_err_set(err, -EINVAL, "there is no adapter '%.60s': the first of %u is '%s', and 'base' is none",
                           name, e->n_adapters, e->adapter[0]);
    if (s->n_tokens && name && s->adapter != k)
        return ntx_err_set(err, -EINVAL, "a conversation stays with the adapter that it began with: begin a new one");
    if (!s->n_tokens)
        s->adapter = (uint8_t)k;
    return 0;
}

/* The images of the prompt, which begins after so many tokens. */
static int add_images(struct ntx_session *s, const struct ntx_session_env *e, struct ntx_prompt *p, uint32_t begin,
                      struct ntx_err *err)
{
    const uint32_t most = ntx_image_spans_most(&p->spans);
    if (most > 1 && most > e->rows_together)
        return ntx_err_set(err, -E2BIG,
                           "a picture's %u rows must be in one pass, and a pass has %u: load the model with --rows %u",
                           most, e->rows_together, most);
    int rc = ntx_image_spans_join(&s->images, &p->spans, begin);
    return rc ? ntx_err_set(err, rc, "no memory for the pictures") : 0;
}

int ntx_session_generate(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                         struct ntx_prompt *p, struct ntx_err *err)
{
    bool ends = ntx__session_ends(s, e, m);
    uint32_t had = s->n_tokens, spoken = s->dialog.n, n = (uint32_t)NTX_MAX(p->n, 0);
    if (p->n < 0)
        return ntx_err_set(err, p->n, "%s", p->err.text);
    s->n_tokens -= ends;
    if (p->spans.lead)
        p->n = (int)(n = ntx_image_spans_align(&p->spans, s->n_tokens, p->ids, n));
    int rc = choose_adapter(s, e, m, err);
    if (rc) {
        s->n_tokens = had;
        return rc;
    }
    rc = s->n_tokens + n > s->n_past
             ? 0
             : ntx_err_set(
                   err, -EINVAL,
                   "the prompt is empty and the vocabulary has no token to begin with: give at least one character");
    if (!rc)
        rc = check_room(s, e, n, m->leave, err);
    if (!rc && p->chat && (rc = ntx__dialog_add(&s->dialog, m->n_messages, s->n_tokens)))
        ntx_err_set(err, rc, "no memory for the conversation");
    int32_t end = ends ? s->tokens[s->n_tokens] : -1;
    const uint32_t begin = s->n_tokens, picture_tokens = ntx_image_spans_rows(&p->spans);
    if (!rc)
        rc = add_tokens(s, e, p->ids, n, err);
    if (!rc)
        rc = prepare_sampling(s, e, m, p->chat, err);
    if (!rc)
        rc = add_images(s, e, p, begin, err);
    if (rc) {
        s->n_tokens = had;
        s->dialog.n = spoken;
        if (ends)
            s->tokens[had - 1] = end;
        return rc;
    }
    s->kind = NTX_SESSION_GENERATE;
    s->constraint = p->constraint;
    p->constraint = NULL;
    s->thought = p->thought;
    p->thought = NULL;
    s->keep = m->keep;
    s->pinned = m->prefix;
    s->max_tokens = m->max_tokens;
    s->ignore_eos = m->ignore_eos;
    s->view = (struct ntx_chat_view){.chat = p->chat, .thinks = p->more.thinks, .marks = ntx_request_has_tools(m)};
    s->skip_space = p->chat || s->n_tokens <= 1;
    s->n_prompt = ntx_session_todo(s);
    s->generated = s->decoded = s->invented = 0;
    s->predictor_lost = false;
    s->note = p->note;
    s->think_note = p->think_note;
    s->run.prompt_tokens = n;
    s->run.pictures = atomic_load(&p->n_pictures);
    s->run.pictures_encoded = p->n_encoded;
    s->run.picture_tokens = picture_tokens;
    s->run.encode_ns = p->encode_ns;
    s->reserve = tokens_to_reserve(s, e);
    return 0;
}

int ntx_session_start(struct ntx_session *s, const struct ntx_session_env *e)
{
    int rc = ntx_sampler_new(&s->sampling, e->n_vocab, &s->sampler);
    for (uint32_t i = 0; !rc && i < s->n_tokens; i++)
        (i < s->n_tokens - s->generated ? ntx_sampler_accept : ntx_sampler_wrote)(s->sampler, s->tokens[i]);
    return rc;
}

uint64_t ntx_session_bytes(const struct ntx_session *s, const struct ntx_session_env *e)
{
    /* tokens that a running session generates are not counted: little beside its KV */
    uint64_t tokens = s->room;
    uint64_t bytes = sizeof *s + (tokens + s->dialog.room) * sizeof *s->tokens;
    if (s->state == NTX_SESSION_READING)
        bytes += s->reading_tokens * sizeof *s->tokens;
    if (s->pool)
        bytes += e->n_embd * sizeof *s->pool;
    bytes += s->state == NTX_SESSION_RUNNING ? ntx_constraint_most(s->constraint) : ntx_constraint_bytes(s->constraint);
    if (s->each)
        bytes += (s->n_tokens - s->from) * SCORE_BYTES;
    return bytes + ntx_image_spans_bytes(&s->images) + (s->similar ? e->n_layers * sizeof *s->similar : 0);
}

uint64_t ntx_session_more(const struct ntx_session *s)
{
    uint64_t now = ntx_constraint_bytes(s->constraint), most = ntx_constraint_most(s->constraint);
    return s->state != NTX_SESSION_RUNNING && most > now ? most - now : 0;
}

uint64_t ntx_session_wants(const struct ntx_session_env *e, const struct ntx_request *m)
{
    uint64_t most = m->prompt.len + m->n_tokens + m->variables.len;
    /* the template's own text */
    if (m->kind == NTX_REQUEST_GENERATE && !m->n_tokens)
        most += 4096;
    bool sees = m->n_images > 0; /* a small file may become many rows */
    for (size_t i = 0; i < m->n_messages; i++) {
        most += m->messages[i].text.len + m->messages[i].fields.len + 64;
        sees |= m->messages[i].n_images > 0;
    }
    most = sees ? 2 * (uint64_t)e->ctx : NTX_MIN(most, 2 * (uint64_t)e->ctx);
    return most * sizeof(int32_t) + (m->pool ? e->n_embd * sizeof(float) : 0) +
           (m->kind == NTX_REQUEST_SCORE ? m->n_tokens * sizeof(float) : 0);
}

static int set_tokens(struct ntx_session *s, const struct ntx_session_env *e, const int32_t *ids, size_t n,
                      struct ntx_err *err)
{
    if (!n)
        return ntx_err_set(err, -EINVAL, "no tokens were given");
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= e->n_vocab)
            return ntx_err_set(err, -EINVAL, "token %d (number %zu) is not one of the vocabulary's %u", ids[i], i,
                               e->n_vocab);
    int rc = add_tokens(s, e, ids, (uint32_t)NTX_MIN(n, (size_t)UINT32_MAX), err);
    if (rc)
        return rc;
    s->adapter = e->n_adapters > 0;
    s->n_prompt = s->reserve = s->n_tokens;
    s->run = (struct ntx_run_stats){.prompt_tokens = s->n_tokens, .finish = ""};
    return 0;
}

int ntx_session_logits(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       struct ntx_err *err)
{
    if (m->steps >= NTX_STEPS_KINDS)
        return ntx_err_set(err, -EINVAL, "steps %u: 0, 1 or 2 can be asked for", m->steps);
    if (m->from && m->from >= m->n_tokens)
        return ntx_err_set(err, -EINVAL, "logits from token %u on cannot be given: there are %zu", m->from,
                           m->n_tokens);
    float *pool = m->pool ? calloc(e->n_embd, sizeof *pool) : NULL;
    int rc = m->pool && !pool ? ntx_err_set(err, -ENOMEM, "no memory for the states")
                              : set_tokens(s, e, m->tokens, m->n_tokens, err);
    if (rc) {
        free(pool);
        return rc;
    }
    s->kind = NTX_SESSION_LOGITS;
    s->pool = pool;
    s->from = m->pool ? (uint32_t)m->n_tokens : m->from; /* past the last token: no row gives logits */
    s->steps = (enum ntx_session_steps)m->steps;
    s->one_by_one = m->decode;
    return 0;
}

int ntx_session_score(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                      struct ntx_err *err)
{
    if (m->from < 1 || m->from >= m->n_tokens)
        return ntx_err_set(err, -EINVAL,
                           "tokens %u to %zu cannot be scored: the first needs one before it, and there must be one",
                           m->from, m->n_tokens);
    const size_t n = m->n_tokens - m->from;
    float *each = calloc(n, SCORE_BYTES);
    int rc = each ? set_tokens(s, e, m->tokens, m->n_tokens, err)
                  : ntx_err_set(err, -ENOMEM, "no memory for the scores");
    if (rc) {
        free(each);
        return rc;
    }
    s->kind = NTX_SESSION_SCORE;
    s->from = m->from;
    s->one_by_one = m->decode;
    s->nll = 0;
    s->each = each;
    s->best = each + n;
    s->best_token = (int32_t *)(void *)(s->best + n);
    return 0;
}

int ntx_session_states(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       struct ntx_err *err)
{
    if (m->layer >= e->n_layers)
        return ntx_err_set(err, -EINVAL, "there is no layer %u, the model has layers 0 to %u", m->layer,
                           e->n_layers - 1);
    if (m->ffn_layers > e->capture_ffns || m->ffn_first > e->n_layers - m->ffn_layers)
        return ntx_err_set(err, -EINVAL, "the FFNs of %u layers from %u on: the load said %u at most, of %u",
                           m->ffn_layers, m->ffn_first, e->capture_ffns, e->n_layers);
    int rc = set_tokens(s, e, m->tokens, m->n_tokens, err);
    if (rc)
        return rc;
    s->kind = NTX_SESSION_STATES;
    s->state_layer = m->layer;
    s->ffn_first = m->ffn_first;
    s->ffn_layers = m->ffn_layers;
    return 0;
}

#define SEEN_MOST 256 /* rows over which the mean decays */

int ntx_session_saw(struct ntx_session *s, const float *similar, uint32_t n_layers)
{
    if (!s->similar) {
        if (!(s->similar = malloc(n_layers * sizeof *s->similar)))
            return -ENOMEM;
        for (uint32_t l = 0; l < n_layers; l++)
            s->similar[l] = NAN;
    }
    s->n_seen += s->n_seen < SEEN_MOST;
    for (uint32_t l = 0; l < n_layers; l++) {
        if (isnan(similar[l]))
            continue;
        s->similar[l] = isnan(s->similar[l]) ? similar[l]
                                             : s->similar[l] + (similar[l] - s->similar[l]) / (float)s->n_seen;
    }
    return 0;
}

bool ntx_session_wants_logits(const struct ntx_session *s, uint32_t i)
{
    if (s->kind == NTX_SESSION_LOGITS)
        return i >= s->from;
    if (s->kind == NTX_SESSION_SCORE)
        return i + 1 >= s->from && i + 1 < s->n_tokens;
    return i + 1 == s->n_tokens;
}

/* Feeds the sampled token's text to the filter. *stopped: it completed a stop string. */
static int feed_text(struct ntx_session *s, const struct ntx_session_env *e, int32_t token, bool *stopped)
{
    char buf[NTX_TOKEN_MAX + NTX_VIEW_MORE];
    int n = ntx_chat_view_token(&s->view, e->tok, token, s->skip_space, buf, sizeof buf);
    if (n < 0)
        return n;
    /* A first token that is a lone space shows nothing here, yet it was the space to skip; a control token was not. */
    char whole[NTX_TOKEN_MAX];
    if (n > 0 || (s->skip_space && ntx_detokenize_one(e->tok, token, false, false, whole, sizeof whole) > 0))
        s->skip_space = false;
    return ntx_text_feed(s->text, buf, (size_t)n, stopped);
}

static int keep_token(struct ntx_session *s, int32_t token)
{
    if (s->n_tokens == s->room) {
        int32_t *p = realloc(s->tokens, (s->room + 256) * sizeof *p);
        if (!p)
            return -ENOMEM;
        s->tokens = p;
        s->room += 256;
    }
    s->tokens[s->n_tokens++] = token;
    s->generated++;
    ntx_thought_take(s->thought, token);
    ntx_sampler_wrote(s->sampler, token);
    return 0;
}

static int take_due(struct ntx_session *s, int32_t due, int32_t *t)
{
    *t = due;
    return s->constraint ? ntx_constraint_take(s->constraint, due, s->skip_space) : 0;
}

static int draw_token(struct ntx_session *s, const struct ntx_row *row, int32_t *t)
{
    int32_t due = ntx_thought_due(s->thought);
    if (due >= 0)
        return take_due(s, due, t);
    if (s->constraint)
        return ntx_constraint_draw(s->constraint, s->sampler, s->n_tokens, row->logits, s->skip_space, t);
    if (row->few)
        *t = ntx_sampler_next_of(s->sampler, s->n_tokens, row->few->at, row->few->n);
    else
        *t = row->n_best ? ntx_sampler_next_of(s->sampler, s->n_tokens, row->best, row->n_best)
                         : ntx_sampler_next(s->sampler, s->n_tokens, row->logits);
    return 0;
}

/* The last tokens whose text is all within the last n bytes. */
static uint32_t tokens_within(const struct ntx_session *s, const struct ntx_session_env *e, size_t n)
{
    char buf[NTX_TOKEN_MAX];
    uint32_t k = 0;
    while (k < s->generated) {
        const int more = ntx_detokenize_one(e->tok, s->tokens[s->n_tokens - 1 - k], false, false, buf, sizeof buf);
        if (more < 0 || (size_t)more > n)
            break;
        n -= (size_t)more;
        k++;
    }
    return k;
}

/* Adds t to the answer. */
static int add_drawn(struct ntx_session *s, const struct ntx_session_env *e, int32_t t, const char **finish,
                     const char **text, size_t *text_len)
{
    bool stopped = ntx_tokenizer_is_eog(e->tok, t) && (!s->ignore_eos || ntx_constraint_over(s->constraint));
    int rc = keep_token(s, t);
    if (!rc && !stopped)
        rc = feed_text(s, e, t, &stopped);
    if (rc)
        return rc;
    const size_t beyond = ntx_text_beyond(s->text);
    s->invented = beyond ? tokens_within(s, e, beyond) : 0;
    stopped |= ntx_constraint_over(s->constraint);
    bool full = s->n_tokens > NTX_MIN(e->ctx, ntx_kv_seq_room(s->kv)) ||
                (s->max_tokens && s->generated >= s->max_tokens);
    const char *why = full ? "length" : NULL;
    if (stopped)
        why = "stop";
    rc = ntx_text_take(s->text, why != NULL, text, text_len);
    if (!rc)
        *finish = why;
    return rc;
}

int ntx_session_sample(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_row *row,
                       int32_t *token, const char **finish, const char **text, size_t *text_len)
{
    int rc = draw_token(s, row, token);
    return rc ? rc : add_drawn(s, e, *token, finish, text, text_len);
}

bool ntx_session_is_due(const struct ntx_session *s) { return ntx_thought_due(s->thought) >= 0; }

int ntx_session_add_due(struct ntx_session *s, const struct ntx_session_env *e, int32_t *token, const char **finish,
                        const char **text, size_t *text_len)
{
    int rc = take_due(s, ntx_thought_due(s->thought), token);
    return rc ? rc : add_drawn(s, e, *token, finish, text, text_len);
}

/* Negative log-likelihood in double, so that the sum over a long text loses no bits. */
void ntx_session_score_row(struct ntx_session *s, uint32_t i, const float *logits, uint32_t n_vocab)
{
    uint32_t best = 0;
    double sum = 0;
    for (uint32_t v = 1; v < n_vocab; v++)
        best = logits[v] > logits[best] ? v : best;
    const double max = logits[best];
    for (uint32_t v = 0; v < n_vocab; v++)
        sum += exp((double)logits[v] - max);
    double nll = log(sum) + (max - (double)logits[s->tokens[i + 1]]); /* of the likeliest token: exactly log(sum) */
    s->each[i + 1 - s->from] = (float)nll;
    s->best[i + 1 - s->from] = (float)log(sum);
    s->best_token[i + 1 - s->from] = (int32_t)best;
    s->nll += nll;
}
