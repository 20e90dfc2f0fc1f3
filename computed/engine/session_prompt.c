/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to the tokens that it adds to a session: raw text, tokens, or messages of a conversation in the
 * model's chat template. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/nearest.h"
#include "common/util.h"
#include "computed/engine/call_ids.h"
#include "computed/engine/session.h"
#include "computed/engine/starts.h"

/* ---- the conversation */

int ntx__dialog_add(struct ntx_dialog *d, size_t n, uint32_t tokens)
{
    if (d->n + n + 1 > d->room) {
        unsigned room = (unsigned)(d->n + n + 1 + d->n / 2);
        uint32_t *p = realloc(d->begins, room * sizeof *p);
        if (!p)
            return -ENOMEM;
        d->begins = p;
        d->room = room;
    }
    memset(d->begins + d->n, 0xff, (n + 1) * sizeof *d->begins);
    d->begins[d->n] = tokens;
    d->n += (unsigned)n + 1;
    return 0;
}

static void forget_tokens(struct ntx_session *s, uint32_t from)
{
    s->n_tokens = from;
    ntx_image_spans_cut(&s->images, from);
    s->n_past = NTX_MIN(s->n_past, from);
    if (s->kv)
        s->n_past = ntx_kv_return(s->kv, s->n_past);
    s->n_exact = NTX_MIN(s->n_exact, s->n_past);
    s->n_kept = NTX_MIN(s->n_kept, s->n_past / NTX_KV_BLOCK);
    s->invented = 0;
}

/* Forgets the conversation from message n on, with its tokens. */
static int forget_from(struct ntx_session *s, uint32_t n, struct ntx_err *err)
{
    uint32_t at = n < s->dialog.n ? s->dialog.begins[n] : UINT32_MAX;
    if (at == UINT32_MAX)
        return ntx_err_set(err, -EINVAL,
                           "the conversation cannot be cut back to %u messages: it has %u, and no request began there",
                           n, s->dialog.n);
    s->dialog.n = n;
    forget_tokens(s, at);
    return 0;
}

/* Whether the session's last token ended its answer. It is not fed when the conversation goes on, since the template
 * closes the answer itself. The end of one of several messages (harmony) counts, too. */
bool ntx__session_ends(const struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m)
{
    if (m->cut_to || !s->dialog.n || !m->n_messages || s->n_tokens <= s->n_past)
        return false;
    int32_t last = s->tokens[s->n_tokens - 1];
    return ntx_tokenizer_is_eog(e->tok, last) || ntx_chat_closes(s->view.chat, e->tok, last);
}

/* ---- engine thread: what the reader needs */

/* Picks the template to render by. */
static int pick_template(const struct ntx_session_env *e, const struct ntx_request *m,
                         const struct ntx_chat_template **chat, struct ntx_err *err)
{
    *chat = e->chat;
    if (m->chat_template && *m->chat_template) {
        if ((*chat = ntx_chat_by_name(m->chat_template)))
            return 0;
        struct ntx_near near;
        ntx_near_begin(&near, m->chat_template, "");
        ntx_near_offer_list(&near, ntx_chat_names());
        return ntx_err_set(err, -EINVAL, "unknown chat template '%.64s': there are %s%s", m->chat_template,
                           ntx_chat_names(), near.hint);
    }
    if (!*chat && e->has_template)
        return ntx_err_set(err, -ENOTSUP, "%s: use --raw, or --chat-template with one of %s", e->chat_err.text,
                           ntx_chat_names());
    if (!*chat)
        *chat = ntx_chat_by_name("plain");
    return 0;
}

/* Without a template, a single prompt is continued as a text. Only a conversation needs a form. */
static bool is_plain_prompt(const struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m)
{
    return !m->variables.len && !s->n_tokens && !m->keep && !e->chat && !e->has_template &&
           !(m->chat_template && *m->chat_template) && m->n_messages == 1 && m->messages[0].role &&
           !strcmp(m->messages[0].role, "user");
}

/* A note on the form of the prompt, at the begin of a conversation; or NULL. */
static const char *note_of(const struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m)
{
    bool named = m->chat_template && *m->chat_template;
    if (s->n_tokens || m->n_tokens || !m->n_messages || named || e->chat || e->has_template)
        return NULL;
    return is_plain_prompt(s, e, m) ? "the model has no chat template: the text is continued"
                                    : "the model has no chat template: the conversation is written in the form 'plain'";
}

/* Combines the request's setting with the load's default. The note is on what the request itself asks for. */
static void plan_thoughts(struct ntx_prompt *p, struct ntx_think preset)
{
    const struct ntx_think_facts *facts = ntx_chat_think(p->chat);
    const char *note = ntx_think_note(facts, &p->think);
    p->think_note = *note ? note : NULL;
    p->think = ntx_think_or(p->think, preset);
    if (p->chat)
        ntx_think_variables(facts, &p->think, p->think_variables);
}

int ntx_session_prompt(struct ntx_session *s, const struct ntx_session_env *e, const struct ntx_request *m,
                       const atomic_bool *unwanted, struct ntx_prompt *p, struct ntx_err *err)
{
    *p = (struct ntx_prompt){.tok = e->tok,
                             .m = m,
                             .ctx = e->ctx,
                             .n_vocab = e->n_vocab,
                             .follows = s->dialog.n,
                             .constraint_bytes = e->constraint_bytes,
                             .words_most = e->words_most,
                             .constrains_from = e->constrains_from,
                             .words = e->words,
                             .starts = e->starts,
                             .images = e->images,
                             .blind = e->blind,
                             .scope = ntx_reply_queue_scope(s->replies),
                             .reply = ntx_chat_reply(e->chat),
                             .limits = {.memory = e->read_bytes, .cancel = unwanted}};
    p->note = note_of(s, e, m);
    int rc = ntx__pictures_check(p, err);
    if (rc)
        return rc;
    rc = ntx_think_read(m->think, &p->think, err);
    if (rc)
        return ntx_err_prefix(err, "think"), rc;
    rc = m->cut_to ? forget_from(s, m->cut_to, err) : 0;
    if (rc)
        return rc;
    if (s->invented)
        forget_tokens(s, s->n_tokens - s->invented);
    if (m->n_messages && m->raw && !m->n_tokens)
        return ntx_err_set(err, -EINVAL, "a raw prompt and messages of a conversation exclude each other");
    bool begins = s->n_tokens == (uint32_t)ntx__session_ends(s, e, m);
    p->limits.ids = 2 * (size_t)e->ctx; /* a prompt beyond the context is counted so far, for the message */
    p->flags = begins ? NTX_TOK_BOS : 0;
    bool plain = m->n_tokens || !m->n_messages || is_plain_prompt(s, e, m);
    rc = plain ? 0 : pick_template(e, m, &p->chat, err);
    if (!rc)
        plan_thoughts(p, e->think);
    return rc;
}

/* ---- reader thread */

static struct ntx_chat_msg message_of(const struct ntx_request_message *m)
{
    return (struct ntx_chat_msg){.role = m->role,
                                 .text = m->text.len ? m->text.data : "",
                                 .len = m->text.len,
                                 .fields = m->fields.data,
                                 .n_fields = m->fields.len};
}

/* Renders the messages. Where a conversation goes on, an empty answer before them tells the template so. */
static int chat_tokens(struct ntx_prompt *p)
{
    size_t before = p->follows, n = p->m->n_messages;
    struct ntx_chat_msg *msgs = n < p->limits.memory / sizeof *msgs ? malloc((n + 1) * sizeof *msgs) : NULL;
    if (!msgs)
        return -ENOBUFS;
    msgs[0] = (struct ntx_chat_msg){.role = "assistant", .text = ""};
    for (size_t i = 0; i < n; i++)
        msgs[before + i] = message_of(&p->m->messages[i]);
    char **marked = NULL;
    p->more = (struct ntx_chat_more){.variables = p->m->variables.data,
                                     .n_variables = p->m->variables.len,
                                     .think = p->think_variables,
                                     .n_think = strlen(p->think_variables),
                                     .now = ntx_starts_time(p->starts, msgs + before, n, (int64_t)time(NULL)),
                                     .silent = p->think.state == NTX_THINK_OFF};
    int rc = ntx__pictures_mark(p, msgs + before, &marked);
    if (!rc)
        rc = ntx_call_ids_tokens(p->chat, p->tok, msgs, (unsigned)before, (unsigned)(before + n), &p->more, &p->limits,
                                 &p->ids, &p->err);
    ntx__pictures_unmark(marked, n);
    free(msgs);
    return rc;
}

static int given_tokens(struct ntx_prompt *p)
{
    const struct ntx_request *m = p->m;
    if (m->n_tokens > p->limits.ids)
        return -E2BIG;
    for (size_t i = 0; i < m->n_tokens; i++)
        if (m->tokens[i] < 0 || (uint32_t)m->tokens[i] >= p->n_vocab)
            return ntx_err_set(&p->err, -EINVAL, "token %d (number %zu) is not one of the vocabulary's %u",
                               m->tokens[i], i, p->n_vocab);
    if (!(p->ids = malloc(m->n_tokens * sizeof *p->ids)))
        return -ENOMEM;
    memcpy(p->ids, m->tokens, m->n_tokens * sizeof *p->ids);
    return (int)m->n_tokens;
}

static int text_tokens(struct ntx_prompt *p)
{
    const bool message = p->m->n_messages > 0;
    const struct ntx_bytes *text = message ? &p->m->messages[0].text : &p->m->prompt;
    const int special = message || p->m->no_special ? 0 : NTX_TOK_SPECIAL;
    struct ntx_chat_msg msg = {.text = text->data, .len = text->len};
    char **marked = NULL;
    int rc = ntx__pictures_mark(p, &msg, &marked);
    if (!rc)
        rc = ntx_tokenize_within(p->tok, msg.text, msg.len, p->flags | special, &p->limits, &p->ids);
    ntx__pictures_unmark(marked, 1);
    return rc;
}

/* Sets the error's text, for a limit or a lack of memory. */
static int explain_error(struct ntx_prompt *p, int rc)
{
    if (rc == -E2BIG)
        return ntx_err_set(&p->err, rc,
                           "the prompt has more than %zu tokens, the context holds %u: shorten it, or load the model "
                           "with a larger --ctx",
                           p->limits.ids, p->ctx);
    if (rc == -ENOBUFS)
        return ntx_err_set(&p->err, rc,
                           "the prompt is too long in one piece for the memory that --ram leaves for finding its "
                           "tokens (%zu KiB): put blanks or newlines into it, "
                           "shorten it, or load the model with a larger --ram",
                           p->limits.memory >> 10);
    return ntx_err_set(&p->err, rc, "cannot tokenize the prompt: %s", strerror(-rc));
}

/* Compiles the request's constraint; an error of it is an error of the prompt. */
static void read_constraint(struct ntx_prompt *p)
{
    const struct ntx_constraint_request request = {.m = p->m,
                                                   .tok = p->tok,
                                                   .words = p->words,
                                                   .n_vocab = p->n_vocab,
                                                   .reply = p->chat ? ntx_chat_reply(p->chat) : p->reply,
                                                   .chat = p->chat,
                                                   .thinks = p->more.thinks,
                                                   .memory = p->constraint_bytes,
                                                   .words_most = p->words_most,
                                                   .constrains_from = p->constrains_from};
    int rc = ntx_constraint_new(&request, &p->constraint, &p->err);
    /* the grammar is too large, not the prompt */
    if (rc)
        p->n = rc == -E2BIG ? -EINVAL : rc;
}

static void begin_thought(struct ntx_prompt *p)
{
    const struct ntx_thought_config c = {.format = ntx_chat_thoughts(p->chat),
                                         .tok = p->tok,
                                         .calls = ntx_request_has_tools(p->m),
                                         .begun = p->more.thinks,
                                         .think = p->think};
    int rc = ntx_thought_new(&c, &p->thought);
    if (rc)
        p->n = ntx_err_set(&p->err, rc, "no memory for a request");
}

static void place_pictures(struct ntx_prompt *p, bool encode)
{
    int n = ntx__pictures_place(p, encode);
    p->unseen = n == -EAGAIN && !encode;
    p->n = p->unseen ? p->n : n;
}

void ntx_prompt_read(struct ntx_prompt *p)
{
    if (p->limits.cancel && atomic_load(p->limits.cancel)) {
        p->n = -ECANCELED;
        return;
    }
    if (p->m->n_tokens)
        p->n = given_tokens(p);
    else
        p->n = p->chat ? chat_tokens(p) : text_tokens(p);
    if (p->n >= 0)
        place_pictures(p, false);
    if (p->n < 0 && !p->err.text[0])
        explain_error(p, p->n);
    if (p->n >= 0 && ntx_constraint_wanted(p->m))
        read_constraint(p);
    if (p->n >= 0 && p->chat)
        begin_thought(p);
    p->unseen &= p->n >= 0;
}

void ntx_prompt_encode(struct ntx_prompt *p)
{
    place_pictures(p, true);
    if (p->n < 0 && !p->err.text[0])
        explain_error(p, p->n);
}

void ntx_prompt_free(struct ntx_prompt *p)
{
    free(p->ids);
    ntx_image_spans_free(&p->spans);
    ntx_constraint_free(p->constraint);
    ntx_thought_free(p->thought);
    p->thought = NULL;
    p->ids = NULL;
    p->constraint = NULL;
}
