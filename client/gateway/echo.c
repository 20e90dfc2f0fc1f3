/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/echo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_MS = 5000 };

/* The next event of this kind; others are skipped. */
static int await_kind(struct ntx_call *c, enum ntx_event_kind kind, struct ntx_event *e, struct ntx_err *err)
{
    int rc;
    do
        rc = ntx_call_next(c, STEP_MS, e, err);
    while (rc == -ETIMEDOUT || (!rc && e->kind != kind));
    return rc;
}

struct pieces { /* of a prompt's tokens */
    char *text;
    size_t len;
    uint32_t *lengths; /* [n_tokens] */
};

static void *copy_of(const void *p, size_t n)
{
    void *to = malloc(n + 1);
    if (to && n)
        memcpy(to, p, n);
    return to;
}

static int request_pieces(struct ntx_call *c, const struct ntx_api_request_prompt *p, bool special, struct ntx_event *e,
                          struct ntx_err *err)
{
    const struct ntx_call_text t = {.text = p->text,
                                    .len = p->len,
                                    .tokens = p->tokens,
                                    .n_tokens = p->n_tokens,
                                    .bos = true,
                                    .special = special,
                                    .pieces = true};
    int rc = ntx_call_text(c, &t, err);
    rc = rc ? rc : await_kind(c, NTX_EVENT_WORDS, e, err);
    if (!rc && e->n_lengths != (p->tokens ? p->n_tokens : e->n_ids))
        rc = ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    return rc;
}

/* Replaces a prompt's text by its tokens, and gets their pieces. A text is shown as it was given. */
static int find_tokens(struct ntx_call *c, struct ntx_api_request_prompt *p, bool special, struct pieces *all,
                       struct ntx_err *err)
{
    struct ntx_event e;
    int rc = request_pieces(c, p, special, &e, err);
    if (rc)
        return rc;
    all->len = e.len;
    all->text = copy_of(e.text, e.len);
    all->lengths = copy_of(e.lengths, e.n_lengths * sizeof *e.lengths);
    p->n_shown = p->tokens ? e.len : p->len;
    p->shown = p->tokens ? copy_of(e.text, e.len) : copy_of(p->text, p->len);
    if (!p->tokens && (p->tokens = copy_of(e.ids, e.n_ids * sizeof *e.ids)))
        p->n_tokens = e.n_ids;
    return all->text && all->lengths && p->shown && p->tokens ? 0 : ntx_err_set(err, -ENOMEM, "no memory");
}

/* Copies of an event's values, which the next event overwrites. */
struct scores {
    float *nll, *best;
    int32_t *ids;
};

static int score_tokens(struct ntx_call *c, const struct ntx_api_request_prompt *p, struct scores *s,
                        struct ntx_err *err)
{
    const size_t n = p->n_tokens - 1;
    struct ntx_event e;
    int rc = ntx_call_score(c, p->tokens, p->n_tokens, err);
    rc = rc ? rc : await_kind(c, NTX_EVENT_SCORE, &e, err);
    if (!rc && e.n_ids != n)
        rc = ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    if (rc)
        return rc;
    float *all = malloc(n * (2 * sizeof *all + sizeof *s->ids));
    if (!all)
        return ntx_err_set(err, -ENOMEM, "no memory");
    *s = (struct scores){all, all + n, (int32_t *)(void *)(all + 2 * n)};
    memcpy(s->nll, e.nll, n * sizeof *s->nll);
    memcpy(s->best, e.best, n * sizeof *s->best);
    memcpy(s->ids, e.ids, n * sizeof *s->ids);
    return 0;
}

/* The likeliest token at each place; none before the first. NULL with err. */
static json_t *json_of_top(struct ntx_call *c, const struct scores *s, size_t n, struct ntx_err *err)
{
    struct ntx_event e;
    const struct ntx_call_text t = {.tokens = s->ids, .n_tokens = n, .pieces = true};
    int rc = n ? ntx_call_text(c, &t, err) : 0;
    rc = !n || rc ? rc : await_kind(c, NTX_EVENT_WORDS, &e, err);
    if (!rc && n && e.n_lengths != n)
        rc = ntx_err_set(err, -EPROTO, "ntx-computed sent an unexpected reply");
    if (rc)
        return NULL;
    json_t *list = json_array();
    json_array_append_new(list, json_null());
    for (size_t i = 0, at = 0; i < n; at += e.lengths[i++]) {
        json_t *text = ntx_json_text(e.text + at, e.lengths[i]), *one = json_object();
        json_object_set_new(one, json_string_value(text), json_real(-(double)s->best[i]));
        json_array_append_new(list, one);
        json_decref(text);
    }
    return list;
}

/* Bytes of the shown text that a piece stands for: none for a token that the vocabulary put before the text, and
 * without the blank that some vocabularies put there. */
static size_t shown_bytes(const struct ntx_api_request_prompt *p, size_t at, const char *piece, size_t n)
{
    for (size_t skip = 0; skip <= 1 && skip <= n; skip++)
        if ((!skip || *piece == ' ') && at + n - skip <= p->n_shown && !memcmp(p->shown + at, piece + skip, n - skip))
            return n - skip;
    return 0;
}

/* OpenAI's logprobs of the prompt. */
static int add_logprobs(struct ntx_call *c, struct ntx_api_request_prompt *p, const struct pieces *all, bool top,
                        struct ntx_err *err)
{
    struct scores s = {0};
    int rc = p->n_tokens > 1 ? score_tokens(c, p, &s, err) : 0;
    json_t *tokens = json_array(), *each = json_array(), *offsets = json_array();
    const char *piece = all->text;
    size_t at = 0;
    for (size_t i = 0; !rc && i < p->n_tokens; piece += all->lengths[i++]) {
        json_array_append_new(tokens, ntx_json_text(piece, all->lengths[i]));
        json_array_append_new(each, i ? json_real(-(double)s.nll[i - 1]) : json_null());
        json_array_append_new(offsets, json_integer((json_int_t)at));
        at += shown_bytes(p, at, piece, all->lengths[i]);
    }
    json_t *likeliest = !rc && top ? json_of_top(c, &s, p->n_tokens - (p->n_tokens > 0), err) : json_null();
    if (!likeliest)
        rc = err->code ? err->code : -ENOMEM;
    p->logprobs = json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", each, "top_logprobs",
                            likeliest ? likeliest : json_null(), "text_offset", offsets);
    free(s.nll);
    if (!rc && !p->logprobs)
        rc = ntx_err_set(err, -ENOMEM, "no memory");
    return rc;
}

int ntx_echo_read(struct ntx_call *c, struct ntx_api_request *a, struct ntx_err *err)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < a->n_prompts; i++) {
        struct pieces all = {0};
        rc = find_tokens(c, &a->prompts[i], a->special, &all, err);
        if (!rc && a->logprobs)
            rc = add_logprobs(c, &a->prompts[i], &all, a->top_logprobs, err);
        free(all.text);
        free(all.lengths);
    }
    return rc;
}
