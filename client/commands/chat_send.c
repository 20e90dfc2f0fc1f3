/* SPDX-License-Identifier: Apache-2.0 */
/* chat_send.c: sends a turn to the daemon, with the part of the conversation that the daemon lacks and that fits. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/commands/chat.h"
#include "client/commands/pictures.h"
#include "client/commands/prompt.h"
#include "common/util.h"

/* Context that is left for an answer, in tokens; the daemon takes at most a quarter of the context. When turns must
 * be dropped, enough are dropped to leave that quarter, so that not every further turn recomputes the context. */
#define LEAVE 1024

struct chat_request { /* a request under way */
    Ntx__Message *msg, **list;
    unsigned n;
    struct ntx_pictures pictures;
    struct ntx_chat *k;
    unsigned dropped; /* turns dropped by this request */
};

static void close_session(struct ntx_chat *k)
{
    Ntx__CloseSession m = NTX__CLOSE_SESSION__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_err ignored;
    m.session = k->session;
    q.body_case = NTX__REQUEST__BODY_CLOSE_SESSION;
    q.close_session = &m;
    if (k->session)
        ntx_client_send(k->c, &q, NULL, 0, NULL, &ignored);
    k->session = 0;
    k->held = k->before = 0;
}

void ntx_chat_forget(struct ntx_chat *k)
{
    close_session(k);
    k->used = 0;
}

static void put_message(struct chat_request *a, const char *role, const char *text, size_t len)
{
    Ntx__Message *m = &a->msg[a->n];
    ntx__message__init(m);
    m->role = (char *)(uintptr_t)role;
    m->text.data = (uint8_t *)(uintptr_t)text;
    m->text.len = len;
    a->list[a->n++] = m;
}

static int read_pictures(struct chat_request *a, unsigned from, struct ntx_err *err)
{
    const struct ntx_talk *t = &a->k->talk;
    int rc = 0;
    for (unsigned i = from; !rc && i < t->n; i++)
        rc = ntx_pictures_add_all(&a->pictures, (const char *const *)t->turns[i].images, t->turns[i].n_images, err);
    return rc;
}

/* Collects the messages of the request: the last turn, and for a new session all messages before it. */
static int collect_messages(struct chat_request *a, bool all, struct ntx_err *err)
{
    const struct ntx_chat *k = a->k;
    unsigned from = all ? k->first : k->talk.n - 1, most = 2 * (k->talk.n - from) + 1;
    a->n = 0;
    a->msg = calloc(most, sizeof *a->msg);
    a->list = calloc(most, sizeof *a->list);
    if (!a->msg || !a->list)
        return ntx_err_set(err, -ENOMEM, "no memory for the conversation");
    int rc = read_pictures(a, from, err);
    if (rc)
        return rc;
    if (all && k->talk.system)
        put_message(a, "system", k->talk.system, strlen(k->talk.system));
    for (unsigned i = from, picture = 0; i < k->talk.n; i++) {
        const struct ntx_turn *t = &k->talk.turns[i];
        put_message(a, "user", t->asked, t->n_asked);
        ntx_pictures_before(&a->pictures, picture, t->n_images, &a->msg[a->n - 1]);
        picture += t->n_images;
        if (t->answer && i + 1 < k->talk.n)
            put_message(a, "assistant", t->answer, t->n_answer);
    }
    return 0;
}

/* Called before the answer's first token. */
static void on_begun(void *ctx)
{
    const struct chat_request *a = ctx;
    const struct ntx_chat *k = a->k;
    char range[64];
    if (!a->dropped)
        return;
    if (k->first == 1)
        snprintf(range, sizeof range, "turn 1 is");
    else
        snprintf(range, sizeof range, "turns 1 to %u are", k->first);
    ntx_chat_tell(k, "the conversation has outgrown the context: %s left out from here on%s; /clear begins anew", range,
                  k->talk.system ? ", the system's text stays" : "");
}

/* Sends one request. leave: as in the protocol. got->session 0: refused, the session is unchanged. */
static int request_once(struct chat_request *a, uint32_t leave, bool again, struct ntx_answered *got,
                        struct ntx_err *err)
{
    struct ntx_chat *k = a->k;
    Ntx__Generate m = NTX__GENERATE__INIT;
    Ntx__Sampling s = NTX__SAMPLING__INIT;
    bool all = !k->session || (again && !k->before);
    if (all)
        close_session(k);
    int rc = collect_messages(a, all, err);
    if (!rc) {
        ntx_fill_generate(&k->o, &m, &s);
        m.messages = a->list;
        m.n_messages = a->n;
        m.session = k->session;
        m.keep = true;
        m.leave = leave;
        m.cut_to = again && !all ? k->before : 0;
        unsigned base = m.cut_to ? m.cut_to : k->held;
        *got = (struct ntx_answered){.begun = on_begun, .arg = a, .patient = k->tty};
        rc = ntx_answer(k->c, &k->o, &m, got, err);
        if (got->session) {
            k->session = got->session;
            k->before = base;
            k->held = base + a->n + 1;
        }
    }
    free(a->msg);
    free(a->list);
    ntx_pictures_free(&a->pictures);
    return rc;
}

static bool too_long(int rc) { return rc == -E2BIG || rc == -EMSGSIZE; }

/* Drops turns that cannot fit, since a token has hardly more than 8 bytes: this saves many refused requests. */
static void drop_hopeless(struct chat_request *a)
{
    struct ntx_chat *k = a->k;
    size_t bytes = 0;
    unsigned i = k->talk.n;
    while (k->ctx && i > k->first && bytes / 8 <= k->ctx) {
        i--;
        bytes += k->talk.turns[i].n_asked + k->talk.turns[i].n_answer;
    }
    if (k->ctx && i > k->first && i + 1 < k->talk.n) {
        a->dropped += i - k->first;
        k->first = i;
    }
}

/* Sends the request, dropping as many of the oldest turns as necessary. */
static int request_fitting(struct chat_request *a, bool again, struct ntx_answered *got, struct ntx_err *err)
{
    struct ntx_chat *k = a->k;
    uint32_t leave = k->o.n && k->o.n < LEAVE ? k->o.n : LEAVE;
    int rc = request_once(a, leave, again, got, err);
    if (rc == -ENOENT && k->session && !got->session) { /* the session is gone, for example after a load of another
                                                         * model */
        k->session = 0;
        rc = request_once(a, leave, again, got, err);
    }
    if (too_long(rc) && !got->session)
        close_session(k);
    for (; too_long(rc) && !got->session && k->first + 1 < k->talk.n;
         rc = request_once(a, UINT32_MAX, false, got, err)) {
        k->first++;
        a->dropped++;
        drop_hopeless(a);
    }
    if (too_long(rc) && !got->session) /* no turn is left to drop: take any room for the answer */
        rc = request_once(a, 0, false, got, err);
    return rc;
}

/* Prints why the answer ended, if it did not end by itself. */
static void tell_end(const struct ntx_chat *k)
{
    const char *finish = json_string_value(json_object_get(k->stats, "finish"));
    if (finish && !strcmp(finish, "length") && k->used >= k->ctx)
        ntx_chat_tell(k,
                      "the context of %u tokens is full, which cut the answer: the next message will leave the oldest "
                      "turns out; /clear begins anew",
                      k->ctx);
}

static int take_answer(struct ntx_chat *k, struct ntx_answered *got, struct ntx_err *err)
{
    char *text = got->text ? got->text : strdup("");
    if (!text)
        return ntx_err_set(err, -ENOMEM, "no memory for the answer");
    ntx_talk_answer(&k->talk, text, got->len);
    got->text = NULL;
    json_decref(k->stats);
    k->stats = got->stats;
    got->stats = NULL;
    const char *name = json_string_value(json_object_get(k->stats, "model"));
    if (k->model || name)
        ntx_chat_model(k, k->model ? k->model : name);
    k->ctx = got->ctx;
    k->used = got->context + (uint32_t)json_integer_value(json_object_get(k->stats, "generated_tokens"));
    return 0;
}

/* Says once of a setting that the model has no use for it. */
static void tell_think(struct ntx_chat *k, const char *note)
{
    if (*note && k->told != k->o.think)
        ntx_prompt_tell_think(&k->o, note);
    k->told = k->o.think;
}

/* Says once that the model has no form of its own for conversations. */
static void tell_form(struct ntx_chat *k, const char *note)
{
    if (*note && !k->noted && !k->o.quiet)
        ntx_prompt_tell_note(note);
    k->noted |= *note != 0;
}

/* Saves the conversation, if it has a name. */
static void save_named(struct ntx_chat *k)
{
    struct ntx_err why = {0};
    bool failed = *k->name && ntx_chat_keep(k, k->name, &why);
    if (failed && !k->unsaved)
        ntx_say("the conversation is not saved: %s", why.text);
    k->unsaved = failed;
}

static int send_turn(struct ntx_chat *k, bool again, struct ntx_err *err)
{
    struct chat_request a = {.k = k};
    struct ntx_answered got = {0};
    unsigned first = k->first;
    int rc = k->lost ? ntx_client_reconnect(k->c, err) : 0;
    if (rc)
        return rc;
    k->lost = false;
    rc = request_fitting(&a, again, &got, err);
    bool stopped = rc == -EINTR && got.session && k->tty && ntx_client_signalled() == SIGINT;
    bool cut = rc == -ESHUTDOWN && got.session;
    if (!rc || stopped || cut) {
        const struct ntx_err why = cut ? *err : (struct ntx_err){0}; /* the reason, before other calls replace it */
        *err = why;
        if (!(rc = take_answer(k, &got, err))) {
            tell_form(k, got.note);
            tell_think(k, got.think_note);
            tell_end(k);
            save_named(k);
            rc = cut ? -ESHUTDOWN : 0;
        }
        if (cut && !ntx_client_supervisor(k->c)) {
            k->session = 0;
            k->lost = true;
        }
        if (stopped && !k->stats) /* the end of the answer was not awaited */
            close_session(k);
    } else if (rc == -EPIPE && !ntx_client_supervisor(k->c)) {
        k->first = first;
        k->session = 0; /* the session ended with the connection; the service may come back */
        k->lost = true;
    } else {
        k->first = first;
        if (got.session || a.dropped || again ||
            rc == -EINTR) /* the session may hold a part of the answer, or fewer turns than k */
            close_session(k);
    }
    if (too_long(rc))
        ntx_err_prefix(err, "this is too long even alone");
    ntx_answered_free(&got);
    return rc;
}

int ntx_chat_send(struct ntx_chat *k, struct ntx_err *err) { return send_turn(k, false, err); }

int ntx_chat_again(struct ntx_chat *k, struct ntx_err *err)
{
    uint64_t seed = k->o.sampling.seed;
    uint32_t other;
    if (getrandom(&other, sizeof other, 0) != sizeof other)
        return ntx_err_set(err, -EIO, "no random seed can be had");
    k->o.sampling.seed = other;
    int rc = send_turn(k, true, err);
    k->o.sampling.seed = seed;
    return rc;
}
