/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizes and detokenizes in the main thread: within these bounds it takes milliseconds, while the engine may be in a
 * pass for seconds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/server/server_impl.h"

#define TEXT_MOST   (1u << 20) /* bytes in */
#define TOKENS_MOST (1u << 18) /* tokens in */
#define OUT_MOST    (4u << 20) /* bytes out */
#define WORK_MOST   (8u << 20) /* of memory, for the longest piece of a text */

struct answer_text {
    int32_t *ids; /* [n] */
    char *text;   /* [len] */
    size_t n, len;
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
    struct ntx_tok_limits limits = {.ids = 2 * TEXT_MOST, .memory = WORK_MOST};
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

static int add_token_texts(struct answer_text *a, const struct ntx_tokenizer *t, const Ntx__TextReq *m,
                           struct ntx_err *err)
{
    char piece[NTX_TOKEN_MAX];
    size_t room = 0;
    if (m->n_tokens > TOKENS_MOST)
        return ntx_err_set(err, -EMSGSIZE, "%zu tokens are too many for one request: %u are the most", m->n_tokens,
                           TOKENS_MOST);
    for (size_t i = 0; i < m->n_tokens; i++) {
        int n = ntx_detokenize_one(t, m->tokens[i], !i, true, piece, sizeof piece);
        if (n < 0)
            return ntx_err_set(err, -EINVAL, "token %d (number %zu) is not one of the vocabulary's %u", m->tokens[i], i,
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
    }
    return 0;
}

static int answer_text(struct answer_text *a, const struct ntx_tokenizer *t, const Ntx__TextReq *m, struct ntx_err *err)
{
    if (m->text.len + m->suffix.len > TEXT_MOST)
        return ntx_err_set(err, -EMSGSIZE, "the text is too long for one request: %u MiB are the most",
                           TEXT_MOST >> 20);
    if (m->n_tokens)
        return add_token_texts(a, t, m, err);
    if (m->infill)
        return add_infill(a, t, m, err);
    return add_text(a, t, &m->text, (m->bos ? NTX_TOK_BOS : 0) | (m->special ? NTX_TOK_SPECIAL : 0));
}

void ntx__text_request(struct ntx_conn *c, Ntx__Request *req)
{
    struct ntx_server *s = c->server;
    struct answer_text a = {0};
    struct ntx_err err = {0};
    Ntx__TextRep m = NTX__TEXT_REP__INIT;
    Ntx__Reply r = NTX__REPLY__INIT;
    bool there = s->engine && (s->state == NTX_MODEL_FILLING || s->state == NTX_MODEL_READY);
    int rc = there ? answer_text(&a, s->loaded->tok, req->text, &err)
                   : ntx_err_set(&err, -ENOENT, "no model is loaded: load one first (ntx load MODEL)");
    if (rc && !err.code)
        ntx_err_set(&err, rc, "cannot tokenize the text: %s", strerror(-rc));
    m.tokens = a.ids;
    m.n_tokens = a.n;
    m.text = (ProtobufCBinaryData){a.len, (uint8_t *)a.text};
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
}
