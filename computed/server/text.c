/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizes and detokenizes in the main thread: within these bounds it takes milliseconds, while the engine may be in a
 * pass for seconds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/util.h"
#include "computed/engine/call_ids.h"
#include "computed/engine/starts.h"
#include "computed/server/server_impl.h"

/* A frame holds 16 MiB (proto/frame.h). */
#define TEXT_MOST   (8u << 20)  /* bytes in */
#define TOKENS_MOST (1u << 20)  /* tokens in or out */
#define OUT_MOST    (8u << 20)  /* bytes out */
#define WORK_MOST   (8u << 20)  /* of memory, for the longest piece of a text */
#define TALK_WORK   (64u << 20) /* of memory, for the text of a conversation */

struct answer_text {
    int32_t *ids; /* [n] */
    char *text;   /* [len] */
    size_t n, len;
    uint32_t *lengths; /* [n_lengths] bytes of each token in text, if they are wanted */
    size_t n_lengths;
};

static int add_ids(struct answer_text *a, const int32_t *ids, size_t n)
{
    int32_t *more = realloc(a->ids, (a->n + n + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    a->ids = more;
    if (n)
        memcpy(more + a->n, ids, n * sizeof *ids);
    a->n += n;
    return 0;
}

static int add_text(struct answer_text *a, const struct ntx_tokenizer *t, const ProtobufCBinaryData *text, int flags)
{
    struct ntx_tok_limits limits = {.ids = TOKENS_MOST, .memory = WORK_MOST};
    int32_t *ids = NULL;
    int n = ntx_tokenize_within(t, text->len ? (const char *)text->data : "", text->len, flags, &limits, &ids),
        rc = n < 0 ? n : add_ids(a, ids, (size_t)n);
    free(ids);
    return rc;
}

static int add_infill(struct answer_text *a, const struct ntx_tokenizer *t, const Ntx__TextReq *m, struct ntx_err *err)
{
    const ProtobufCBinaryData nothing = {0, NULL};
    int32_t fim[3];
    if (!ntx_tokenizer_fim(t, fim))
        return ntx_err_set(err, -ENOTSUP,
                           "this model's vocabulary has no tokens to fill in a text with: it needs one for the prefix, "
                           "the suffix and the middle");
    int rc = add_text(a, t, &nothing, m->bos ? NTX_TOK_BOS : 0);
    rc = rc ? rc : add_ids(a, &fim[0], 1);
    rc = rc ? rc : add_text(a, t, &m->text, 0);
    rc = rc ? rc : add_ids(a, &fim[1], 1);
    rc = rc ? rc : add_text(a, t, &m->suffix, 0);
    return rc ? rc : add_ids(a, &fim[2], 1);
}

static int add_token_texts(struct answer_text *a, const struct ntx_tokenizer *t, const int32_t *ids, size_t n_ids,
                           bool pieces, struct ntx_err *err)
{
    char piece[NTX_TOKEN_MAX];
    size_t room = 0;
    if (n_ids > TOKENS_MOST)
        return ntx_err_set(err, -EMSGSIZE, "%zu tokens are too many for one request: %u are the most", n_ids,
                           TOKENS_MOST);
    if (pieces && !(a->lengths = malloc((n_ids + 1) * sizeof *a->lengths)))
        return -ENOMEM;
    for (size_t i = 0; i < n_ids; i++) {
        int n = ntx_detokenize_one(t, ids[i], !i, true, piece, sizeof piece);
        if (n < 0)
            return ntx_err_set(err, -EINVAL, "token %d (number %zu) is not one of the vocabulary's %u", ids[i], i,
                               ntx_tokenizer_n_vocab(t));
        if (a->len + (size_t)n > OUT_MOST)
            return ntx_err_set(err, -EMSGSIZE, "the text is too long for one answer: %u MiB are the most",
                               OUT_MOST >> 20);
        if (a->len + (size_t)n > room) {
            char *more = realloc(a->text, room = 2 * (a->len + (size_t)n) + 64);
            if (!more)
                return -ENOMEM;
            a->text = more;
        }
        if (n)
            memcpy(a->text + a->len, piece, (size_t)n);
        a->len += (size_t)n;
        if (pieces)
            a->lengths[a->n_lengths++] = (uint32_t)n;
    }
    return 0;
}

/* A conversation as the model's template writes it; the limits bound the template's work, too. */
static int add_conversation(struct answer_text *a, const struct ntx_session_env *e, const Ntx__TextReq *m,
                            struct ntx_err *err)
{
    const struct ntx_chat_template *chat = e->chat ? e->chat : ntx_chat_by_name("plain");
    struct ntx_tok_limits limits = {.ids = TOKENS_MOST, .memory = TALK_WORK};
    char variables[NTX_THINK_VARIABLES] = "";
    struct ntx_think think;
    int rc = ntx_think_read(m->think, &think, err);
    if (rc)
        return ntx_err_prefix(err, "think"), rc;
    for (size_t i = 0; i < m->n_messages; i++)
        if (m->messages[i]->n_images)
            return ntx_err_set(err, -ENOTSUP,
                               "how many tokens pictures become is known to a generate alone: its Started has it");
    think = ntx_think_or(think, e->think);
    if (e->chat)
        ntx_think_variables(ntx_chat_think(chat), &think, variables);
    struct ntx_chat_more more = {.variables = m->variables.len ? (const char *)m->variables.data : "",
                                 .n_variables = m->variables.len,
                                 .think = variables,
                                 .n_think = strlen(variables),
                                 .silent = think.state == NTX_THINK_OFF,
                                 .wants_text = true};
    struct ntx_chat_msg *msgs = calloc(m->n_messages, sizeof *msgs);
    if (!msgs)
        return -ENOMEM;
    for (size_t i = 0; i < m->n_messages; i++)
        msgs[i] = (struct ntx_chat_msg){.role = m->messages[i]->role,
                                        .text = m->messages[i]->text.len ? (const char *)m->messages[i]->text.data : "",
                                        .len = m->messages[i]->text.len,
                                        .fields = (const char *)m->messages[i]->fields.data,
                                        .n_fields = m->messages[i]->fields.len};
    more.now = ntx_starts_time(e->starts, msgs, m->n_messages, (int64_t)time(NULL));
    int n = !e->chat && e->has_template
                ? ntx_err_set(err, -ENOTSUP, "%s", e->chat_err.text)
                : ntx_call_ids_tokens(chat, e->tok, msgs, 0, (unsigned)m->n_messages, &more, &limits, &a->ids, err);
    free(msgs);
    a->text = more.text;
    a->len = NTX_MIN(more.n_text, (size_t)OUT_MOST);
    a->n = n < 0 ? 0 : (size_t)n;
    return n < 0 ? n : 0;
}

static int find_tokens(struct answer_text *a, const struct ntx_session_env *e, const Ntx__TextReq *m,
                       struct ntx_err *err)
{
    const struct ntx_tokenizer *t = e->tok;
    if (m->text.len + m->suffix.len > TEXT_MOST)
        return ntx_err_set(err, -EMSGSIZE, "the text is too long for one request: %u MiB are the most",
                           TEXT_MOST >> 20);
    if (m->n_messages)
        return add_conversation(a, e, m, err);
    if (m->infill)
        return add_infill(a, t, m, err);
    return add_text(a, t, &m->text, (m->bos ? NTX_TOK_BOS : 0) | (m->special ? NTX_TOK_SPECIAL : 0));
}

static int add_template(struct answer_text *a, const struct ntx_gguf *g)
{
    struct ntx_str jinja;
    if (ntx_gguf_str(g, "tokenizer.chat_template", &jinja) || !jinja.n)
        return 0;
    if (!(a->text = malloc(jinja.n)))
        return -ENOMEM;
    memcpy(a->text, jinja.p, a->len = jinja.n);
    return 0;
}

static int answer_text(struct answer_text *a, const struct ntx_loaded *l, const Ntx__TextReq *m, struct ntx_err *err)
{
    const struct ntx_session_env *e = &l->env;
    if (m->template_)
        return add_template(a, l->gguf);
    if (m->n_tokens)
        return add_token_texts(a, e->tok, m->tokens, m->n_tokens, m->pieces, err);
    int rc = find_tokens(a, e, m, err);
    return !rc && m->pieces && !m->n_messages ? add_token_texts(a, e->tok, a->ids, a->n, true, err) : rc;
}

void ntx__text_request(struct ntx_conn *c, Ntx__Request *req)
{
    struct ntx_server *s = c->server;
    struct answer_text a = {0};
    struct ntx_err err = {0};
    Ntx__TextRep m = NTX__TEXT_REP__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    bool there = s->engine && (s->state == NTX_MODEL_FILLING || s->state == NTX_MODEL_READY);
    int rc = there ? answer_text(&a, s->loaded, req->text, &err)
                   : ntx_err_set(&err, -ENOENT, "no model is loaded: load one first (ntx load MODEL)");
    if (rc && !err.code)
        ntx_err_set(&err, rc, "cannot tokenize the text: %s", strerror(-rc));
    m.tokens = a.ids;
    m.n_tokens = a.n;
    m.text = (ProtobufCBinaryData){a.len, (uint8_t *)a.text};
    m.lengths = a.lengths;
    m.n_lengths = a.n_lengths;
    r.id = req->id;
    r.body_case = NTX__REPLY__BODY_TEXT;
    r.text = &m;
    if (rc)
        ntx_mail_error(s->mail, c->replies, req->id, rc, "%s", err.text);
    else
        ntx_mail_reply(s->mail, c->replies, &r, true);
    ntx__request__free_unpacked(req, NULL);
    free(a.ids);
    free(a.text);
    free(a.lengths);
}
