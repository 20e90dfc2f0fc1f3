#include "client/gateway/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/util.h"

void ntx_answer_init(struct ntx_answer *a, const struct ntx_ask *ask, const struct ntx_shape *shape, const char *model)
{
    uint64_t r[2] = {0};
    while (getrandom(r, sizeof r, 0) < 0)
        ;
    *a = (struct ntx_answer){.ask = ask, .shape = shape, .created = time(NULL), .since_ns = ntx_now_ns(), .n = ntx_ask_choices(ask)};
    a->left = a->n;
    snprintf(a->id, sizeof a->id, "%s%016llx%08llx", shape->prefix, (unsigned long long)r[0], (unsigned long long)r[1] & 0xffffffff);
    snprintf(a->model, sizeof a->model, "%s", model);
}

void ntx_answer_free(struct ntx_answer *a)
{
    for (unsigned i = 0; i < a->n; i++) {
        ntx_think_free(&a->choice[i].think);
        ntx_calls_free(&a->choice[i].calls);
        for (unsigned k = 0; k < a->choice[i].n_calls; k++) {
            json_decref(a->choice[i].call[k].name);
            json_decref(a->choice[i].call[k].arguments);
        }
        ntx_buf_free(&a->choice[i].text);
        ntx_buf_free(&a->choice[i].thought);
    }
}

json_t *ntx_answer_calls(const struct ntx_choice *c, unsigned from, bool index)
{
    json_t *list = json_array();
    for (unsigned i = from; i < c->n_calls; i++) {
        char *arguments = json_dumps(c->call[i].arguments, JSON_COMPACT);
        json_t *j = index ? json_pack("{s:i}", "index", (int)i) : json_object();
        json_t *rest = json_pack("{s:s, s:s, s:{s:O, s:s}}", "id", c->call[i].id, "type", "function", "function", "name", c->call[i].name, "arguments", arguments ? arguments : "");
        json_object_update(j, rest);
        json_decref(rest);
        free(arguments);
        json_array_append_new(list, j);
    }
    return list;
}

uint32_t ntx_answer_tokens(const struct ntx_answer *a)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < a->n; i++)
        n += a->choice[i].tokens;
    return n;
}

struct target {
    struct ntx_answer *a;
    unsigned choice;
    struct ntx_buf *out;
};

static void show(struct target *t, bool thought, const char *text, size_t len)
{
    struct ntx_choice *c = &t->a->choice[t->choice];
    if (t->a->ask->stream)
        t->a->shape->piece(t->a, t->choice, thought, text, len, t->out);
    else
        ntx_buf_add(thought ? &c->thought : &c->text, text, len);
}

static void on_rest(void *arg, const char *text, size_t len) { show(arg, false, text, len); }

static void on_call(void *arg, const char *name, json_t *arguments)
{
    struct target *t = arg;
    struct ntx_choice *c = &t->a->choice[t->choice];
    struct ntx_tool_call *call = &c->call[c->n_calls++];
    uint64_t r = 0;
    while (getrandom(&r, sizeof r, 0) < 0)
        ;
    *call = (struct ntx_tool_call){.name = json_string(name), .arguments = json_incref(arguments)};
    snprintf(call->id, sizeof call->id, "%s%016llx", t->a->ask->api == NTX_API_MESSAGES ? "toolu_" : "call_", (unsigned long long)r);
    if (t->a->ask->stream)
        t->a->shape->call(t->a, t->choice, c->n_calls - 1, t->out);
}

/* Of a request with tools, what is no thought is looked through for calls. */
static void on_text(void *arg, bool thought, const char *text, size_t len)
{
    struct target *t = arg;
    struct ntx_calls_to to = {on_rest, on_call, t};
    if (thought || !t->a->ask->variables)
        show(t, thought, text, len);
    else
        ntx_calls_feed(&t->a->choice[t->choice].calls, text, len, false, &to);
}

static void feed(struct ntx_answer *a, const struct ntx_event *e, bool end, struct ntx_buf *out)
{
    struct target t = {a, e->choice, out};
    struct ntx_choice *c = &a->choice[e->choice];
    if (a->shape->thinks)
        ntx_think_feed(&c->think, end ? "" : e->text, end ? 0 : e->len, end, on_text, &t);
    else if (!end && e->len)
        on_text(&t, false, e->text, e->len);
    if (end && a->ask->variables)
        ntx_calls_feed(&c->calls, "", 0, true, &(struct ntx_calls_to){on_rest, on_call, &t});
    a->bad |= c->calls.held.bad || c->think.held.bad || c->text.bad || c->thought.bad;
}

static int finish(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out, struct ntx_err *err)
{
    struct ntx_choice *c = &a->choice[e->choice];
    bool length = !strcmp(e->text, "length");
    if (!length && strcmp(e->text, "stop"))
        return ntx_err_set(err, -ESHUTDOWN, "ntx-computed cut the answer short: it is shutting down");
    feed(a, e, true, out);
    c->finish = length ? "length" : "stop";
    a->left--;
    if (a->ask->stream && a->shape->finish)
        a->shape->finish(a, e->choice, out);
    if (a->ask->stream && !a->left && a->shape->end)
        a->shape->end(a, out);
    return 0;
}

int ntx_answer_take(struct ntx_answer *a, const struct ntx_event *e, struct ntx_buf *out, struct ntx_err *err)
{
    if (e->choice >= a->n || a->choice[e->choice].finish)
        return ntx_err_set(err, -EPROTO, "ntx-computed answers what was not asked");
    switch (e->kind) {
    case NTX_EVENT_STARTED:
        if (e->choice % a->ask->n == 0) /* the others read the same prompt */
            a->prompt_tokens += e->prompt_tokens;
        if (a->shape->brief)
            a->left = 0;
        return 0;
    case NTX_EVENT_TEXT:
        a->choice[e->choice].tokens += e->tokens;
        a->first_ns = a->first_ns ? a->first_ns : ntx_now_ns();
        feed(a, e, false, out);
        return 0;
    case NTX_EVENT_DONE:
        return finish(a, e, out, err);
    case NTX_EVENT_PROGRESS:
        if (a->ask->stream && a->shape->alive)
            a->shape->alive(a, e, out);
        return 0;
    default:
        return 0;
    }
}
