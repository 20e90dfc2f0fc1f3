/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/util.h"

void ntx_answer_free(struct ntx_answer *a)
{
    json_decref(a->items);
    json_decref(a->kept.broken);
    for (unsigned i = 0; i < a->n; i++) {
        ntx_reply_free(a->choice[i].reply);
        for (unsigned k = 0; k < a->choice[i].n_calls; k++) {
            json_decref(a->choice[i].call[k].name);
            json_decref(a->choice[i].call[k].arguments);
            free(a->choice[i].call[k].text);
        }
        free(a->choice[i].call);
        json_decref(a->choice[i].logprobs);
        free(a->choice[i].stop);
        ntx_buf_free(&a->choice[i].text);
        ntx_buf_free(&a->choice[i].thought);
        ntx_buf_free(&a->choice[i].checked);
    }
}

json_t *ntx_answer_calls(const struct ntx_choice *c, unsigned from, bool index)
{
    json_t *list = json_array();
    for (unsigned i = from; i < c->n_calls; i++) {
        json_t *j = index ? json_pack("{s:i}", "index", (int)i) : json_object();
        json_t *rest = json_pack("{s:s, s:s, s:{s:O, s:o}}", "id", c->call[i].id, "type", "function", "function",
                                 "name", c->call[i].name, "arguments",
                                 ntx_json_text(c->call[i].text, strlen(c->call[i].text)));
        json_object_update(j, rest);
        json_decref(rest);
        json_array_append_new(list, j);
    }
    return list;
}

/* ---- probabilities */

static json_t *json_of_bytes(const struct ntx_event_token *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->len; i++)
        json_array_append_new(list, json_integer((unsigned char)t->text[i]));
    return list;
}

static json_t *json_of_token(const struct ntx_event_token *t)
{
    return json_pack("{s:o, s:f, s:o}", "token", ntx_json_text(t->text, t->len), "logprob", (double)t->logprob, "bytes",
                     json_of_bytes(t));
}

static void add_chat(struct ntx_choice *c, const struct ntx_event *e)
{
    json_t *one = json_of_token(&e->token[0]), *top = json_array();
    for (unsigned i = 1; i <= e->n_top; i++)
        json_array_append_new(top, json_of_token(&e->token[i]));
    json_object_set_new(one, "top_logprobs", top);
    c->logprobs = c->logprobs ? c->logprobs : json_pack("{s:[], s:n}", "content", "refusal");
    json_array_append_new(json_object_get(c->logprobs, "content"), one);
}

static void add_text(struct ntx_choice *c, const struct ntx_event *e)
{
    json_t *top = json_object();
    for (unsigned i = 1; i <= e->n_top; i++) {
        json_t *text = ntx_json_text(e->token[i].text, e->token[i].len);
        json_object_set_new(top, json_string_value(text), json_real((double)e->token[i].logprob));
        json_decref(text);
    }
    c->logprobs = c->logprobs ? c->logprobs
                              : json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs",
                                          "text_offset");
    json_array_append_new(json_object_get(c->logprobs, "tokens"), ntx_json_text(e->token[0].text, e->token[0].len));
    json_array_append_new(json_object_get(c->logprobs, "token_logprobs"), json_real((double)e->token[0].logprob));
    json_array_append_new(json_object_get(c->logprobs, "top_logprobs"), top);
    json_array_append_new(json_object_get(c->logprobs, "text_offset"), json_integer(c->offset));
    c->offset += (uint32_t)e->token[0].len;
}

json_t *ntx_answer_logprobs(struct ntx_choice *c)
{
    json_t *all = c->logprobs ? c->logprobs : json_null();
    c->logprobs = NULL;
    return all;
}

uint32_t ntx_answer_tokens(const struct ntx_answer *a)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < a->n; i++)
        n += a->choice[i].tokens;
    return n;
}

/* ---- figures */

static double figure(const json_t *stats, const char *name) { return json_number_value(json_object_get(stats, name)); }

static void take_stats(struct ntx_timings *t, const char *text)
{
    json_t *j = text ? json_loads(text, 0, NULL) : NULL;
    double cached = figure(j, "cached_tokens"), prompt = figure(j, "prompt_tokens");
    t->known |= json_object_get(j, "prefill_s") != NULL;
    t->cache_n += (json_int_t)NTX_MIN(cached, prompt);
    t->prompt_n += (json_int_t)(prompt - NTX_MIN(cached, prompt));
    t->predicted_n += (json_int_t)figure(j, "generated_tokens");
    t->thinking_n += (json_int_t)figure(j, "thinking_tokens");
    t->draft_n += (json_int_t)figure(j, "draft_tokens");
    t->draft_accepted += (json_int_t)figure(j, "draft_accepted");
    t->prompt_ms += 1e3 * figure(j, "prefill_s");
    t->predicted_ms += 1e3 * figure(j, "decode_s");
    t->queue_ms += 1e3 * figure(j, "queue_s");
    json_decref(j);
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

void ntx_answer_add_timings(const struct ntx_answer *a, json_t *j)
{
    const struct ntx_timings *t = &a->timings;
    const double in = (double)t->prompt_n, out = (double)t->predicted_n;
    if (!t->known || a->left)
        return;
    json_t *all = json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:I, s:f}", "cache_n", t->cache_n,
                            "prompt_n", t->prompt_n, "prompt_ms", t->prompt_ms, "prompt_per_token_ms",
                            ratio(t->prompt_ms, in), "prompt_per_second", ratio(1e3 * in, t->prompt_ms), "predicted_n",
                            t->predicted_n, "predicted_ms", t->predicted_ms, "predicted_per_token_ms",
                            ratio(t->predicted_ms, out), "predicted_per_second", ratio(1e3 * out, t->predicted_ms),
                            "thinking_n", t->thinking_n, "queue_ms", t->queue_ms);
    if (t->draft_n) {
        json_object_set_new(all, "draft_n", json_integer(t->draft_n));
        json_object_set_new(all, "draft_n_accepted", json_integer(t->draft_accepted));
    }
    json_object_set_new(j, "timings", all);
}

static void show_text(struct ntx_part_taker *t, bool thought, const char *text, size_t len)
{
    struct ntx_choice *c = &t->a->choice[t->choice];
    if (!len)
        return;
    if (t->a->request->stream)
        t->a->shape->piece(t->a, t->choice, thought, text, len, t->out);
    if (t->a->request->stream && !thought && t->a->request->unenforced.keywords)
        ntx_buf_add(&c->checked, text, len);
    if (!t->a->request->stream)
        ntx_buf_add(thought ? &c->thought : &c->text, text, len);
}

bool ntx_answer_called(const struct ntx_choice *c) { return c->n_calls && !c->call[c->n_calls - 1].cut; }

static json_t *object_of(const struct ntx_reply_part *p)
{
    struct ntx_buf b = {0};
    ntx_buf_add(&b, p->text, p->cut ? ntx_reply_whole(p->text, p->len) : p->len);
    ntx_buf_add(&b, "}", p->cut);
    json_t *j = b.bad ? NULL : json_loadb(b.p, b.n, 0, NULL);
    ntx_buf_free(&b);
    if (json_is_object(j))
        return j;
    json_decref(j);
    return json_object();
}

static void name_call(const struct ntx_answer *a, struct ntx_tool_call *call, const char *id)
{
    uint64_t r = 0;
    while (getrandom(&r, sizeof r, 0) < 0)
        ;
    if (*id && strlen(id) < sizeof call->id)
        snprintf(call->id, sizeof call->id, "%s", id);
    else
        snprintf(call->id, sizeof call->id, "%s%016llx", a->request->api == NTX_API_MESSAGES ? "toolu_" : "call_",
                 (unsigned long long)r);
}

static int add_call(struct ntx_part_taker *t, const struct ntx_reply_part *p)
{
    struct ntx_choice *c = &t->a->choice[t->choice];
    if (c->n_calls && !t->a->request->parallel)
        return 0; /* the request takes one call at most */
    struct ntx_tool_call *call = realloc(c->call, (c->n_calls + 1) * sizeof *call);
    if (!call)
        return -ENOMEM;
    c->call = call;
    call += c->n_calls++;
    *call = (struct ntx_tool_call){.name = ntx_json_text(p->name, strlen(p->name)),
                                   .arguments = object_of(p),
                                   .text = strndup(p->len ? p->text : "", p->len),
                                   .cut = p->cut};
    name_call(t->a, call, p->id);
    if (!call->name || !call->arguments || !call->text)
        return -ENOMEM;
    if (t->a->request->stream)
        t->a->shape->call(t->a, t->choice, c->n_calls - 1, t->out);
    return 0;
}

static int on_part(void *arg, const struct ntx_reply_part *p)
{
    if (p->kind == NTX_REPLY_CALL)
        return add_call(arg, p);
    show_text(arg, p->kind == NTX_REPLY_THOUGHT, p->text, p->len);
    return 0;
}

static bool offers(void *arg, const char *name, size_t n)
{
    const struct ntx_part_taker *t = arg;
    return json_object_getn(t->a->request->offered, name, n) != NULL;
}

static void begin_with_prompt(const struct ntx_answer *a, struct ntx_choice *c, const struct ntx_api_request_prompt *p)
{
    c->logprobs = p->logprobs ? json_deep_copy(p->logprobs) : NULL;
    c->offset = (uint32_t)p->n_shown;
    if (!a->request->stream)
        ntx_buf_add(&c->text, p->shown, p->n_shown);
}

int ntx_answer_init(struct ntx_answer *a, const struct ntx_api_request *request, const struct ntx_shape *shape,
                    const char *model, const struct ntx_reply_format *format)
{
    uint64_t r[2] = {0};
    while (getrandom(r, sizeof r, 0) < 0)
        ;
    *a = (struct ntx_answer){.request = request,
                             .shape = shape,
                             .created = time(NULL),
                             .since_ns = ntx_now_ns(),
                             .n = ntx_api_request_choices(request)};
    a->left = a->n;
    snprintf(a->id, sizeof a->id, "%s%016llx%08llx", shape->prefix, (unsigned long long)r[0],
             (unsigned long long)r[1] & 0xffffffff);
    snprintf(a->model, sizeof a->model, "%s", model);
    int rc = 0;
    for (unsigned i = 0; i < a->n; i++) {
        struct ntx_choice *c = &a->choice[i];
        c->taker = (struct ntx_part_taker){.a = a, .choice = i};
        struct ntx_reply_options with = {
            .format = format ? format : ntx_reply_by_name("plain"), .part = on_part, .arg = &c->taker};
        if (request->offered && !(request->constraint && strcmp(request->constraint_kind, "calls")))
            with.offers = offers;
        if (!rc && shape->thinks)
            rc = ntx_reply_new(&with, &c->reply);
        if (request->shows_prompt)
            begin_with_prompt(a, c, &request->prompts[i / request->n]);
    }
    return rc;
}

void ntx_answer_without(struct ntx_answer *a, struct ntx_buf *out)
{
    for (unsigned i = 0; i < a->n; i++) {
        a->choice[i].finish = "length";
        a->prompt_tokens += i % a->request->n ? 0 : (uint32_t)a->request->prompts[i / a->request->n].n_tokens;
        if (a->request->stream && a->shape->finish)
            a->shape->finish(a, i, out);
    }
    a->left = 0;
    if (a->request->stream && a->shape->end)
        a->shape->end(a, out);
}

static void feed_event(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out)
{
    struct ntx_choice *c = &a->choice[e->choice];
    c->taker.out = out;
    if (!c->reply)
        show_text(&c->taker, false, e->text, e->len);
    else
        a->bad |= ntx_reply_feed(c->reply, e->text, e->len) != 0;
    a->bad |= c->text.bad || c->thought.bad || c->checked.bad;
}

/* cut: the answer was ended before the model was done. */
static void end_reply(struct ntx_answer *a, struct ntx_choice *c, bool cut, struct ntx_buf *out)
{
    c->taker.out = out;
    if (c->reply)
        a->bad |= (cut ? ntx_reply_cut(c->reply) : ntx_reply_end(c->reply)) != 0;
    a->bad |= c->text.bad || c->thought.bad || c->checked.bad;
}

/* Checks the choice's values against what was not enforced. */
static void check_kept(struct ntx_answer *a, const struct ntx_choice *c)
{
    const struct ntx_unenforced *u = &a->request->unenforced;
    if (!u->keywords)
        return;
    const struct ntx_buf *text = a->request->stream ? &c->checked : &c->text;
    ntx_kept_text(&a->kept, u, text->p, text->n);
    for (unsigned i = 0; i < c->n_calls; i++) {
        a->kept.unknown |= c->call[i].cut;
        if (!c->call[i].cut)
            ntx_kept_value(&a->kept, u, json_string_value(c->call[i].name), c->call[i].arguments);
    }
}

void ntx_answer_add_kept(const struct ntx_answer *a, json_t *j)
{
    if (!j || !a->request->stream || a->left || !a->request->unenforced.keywords)
        return;
    json_t *ntx = json_object();
    ntx_kept_add(&a->kept, &a->request->unenforced, ntx);
    json_object_set_new(j, "ntx", ntx);
}

static int finish_choice(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out, struct ntx_err *err)
{
    struct ntx_choice *c = &a->choice[e->choice];
    bool length = !strcmp(e->text, "length");
    if (!length && strcmp(e->text, "stop"))
        return ntx_err_set(err, -ESHUTDOWN, "ntx-computed cut the answer short: it is shutting down");
    c->stop = !length && e->stop && *e->stop ? strdup(e->stop) : NULL;
    end_reply(a, c, length || c->stop, out);
    c->finish = length ? "length" : "stop";
    check_kept(a, c);
    take_stats(&a->timings, e->stats);
    a->cached_tokens += e->choice % a->request->n ? 0 : e->cached_tokens;
    a->left--;
    if (a->request->stream && a->shape->finish)
        a->shape->finish(a, e->choice, out);
    if (a->request->stream && !a->left && a->shape->end)
        a->shape->end(a, out);
    return 0;
}

int ntx_answer_take(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out, struct ntx_err *err)
{
    if (e->choice >= a->n || a->choice[e->choice].finish)
        return ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    switch (e->kind) {
    case NTX_EVENT_STARTED:
        if (e->choice % a->request->n == 0) /* the other choices read the same prompt */
            a->prompt_tokens += e->prompt_tokens;
        return 0;
    case NTX_EVENT_TEXT:
        if (a->request->warms)
            return 0;
        a->choice[e->choice].tokens += e->tokens;
        a->first_ns = a->first_ns ? a->first_ns : ntx_now_ns();
        if (e->has_logprob && a->request->logprobs)
            (a->request->api == NTX_API_CHAT ? add_chat : add_text)(&a->choice[e->choice], e);
        feed_event(a, e, out);
        return 0;
    case NTX_EVENT_DONE: return finish_choice(a, e, out, err);
    case NTX_EVENT_PROGRESS:
        if (a->request->stream && a->shape->alive)
            a->shape->alive(a, e, out);
        return 0;
    default: return 0;
    }
}
