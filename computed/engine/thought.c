/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/thought.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat.h"

enum { TAIL = 64, CHARACTER = 4 }; /* more than any mark has; most tokens of a character */

struct ntx_thought {
    struct ntx_reply_thought marks;
    const struct ntx_tokenizer *tok;
    enum { BEFORE, IN, AFTER } at;
    char tail[TAIL]; /* [n_tail] bytes that may begin a mark */
    size_t n_tail;
    uint32_t tokens, budget;
    bool limited;
    int32_t *end[2]; /* the end mark, at first and from the second time on */
    int n_end[2];
    unsigned closed; /* thoughts that were ended by their limit */
    const int32_t *due;
    int n_due;
};

static int find_end_tokens(struct ntx_thought *t)
{
    const char *const text[] = {t->marks.end, t->marks.again};
    for (int i = 0; i < 2; i++) {
        t->n_end[i] = ntx_chat_text_tokens(t->tok, text[i], &t->end[i]);
        if (t->n_end[i] < 0)
            return t->n_end[i];
    }
    return 0;
}

int ntx_thought_new(const struct ntx_thought_config *c, struct ntx_thought **out)
{
    struct ntx_thought *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    *t = (struct ntx_thought){.marks = ntx_reply_thought(c->format, c->calls),
                              .tok = c->tok,
                              .at = c->begun ? IN : BEFORE,
                              .limited = c->think.limited || c->think.state == NTX_THINK_OFF,
                              .budget = c->think.state == NTX_THINK_OFF ? 0 : c->think.budget};
    int rc = t->limited ? find_end_tokens(t) : 0;
    if (rc)
        ntx_thought_free(t);
    else
        *out = t;
    return rc;
}

void ntx_thought_free(struct ntx_thought *t)
{
    if (!t)
        return;
    free(t->end[0]);
    free(t->end[1]);
    free(t);
}

uint32_t ntx_thought_tokens(const struct ntx_thought *t) { return t ? t->tokens : 0; }

int32_t ntx_thought_due(struct ntx_thought *t)
{
    if (!t)
        return -1;
    if (!t->n_due && t->limited && t->at == IN && t->tokens >= t->budget &&
        (!ntx_utf8_hold(t->tail, t->n_tail) || t->tokens >= t->budget + CHARACTER)) {
        int which = t->closed++ ? 1 : 0;
        t->due = t->end[which];
        t->n_due = t->n_end[which];
    }
    return t->n_due ? *t->due : -1;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Keeps the last bytes, at most what a mark has. */
static void keep_tail(struct ntx_thought *t, const char *p, size_t n)
{
    size_t keep = n < TAIL ? n : TAIL;
    memmove(t->tail, p + n - keep, keep);
    t->n_tail = keep;
}

/* Finds the mark that changes the state in p[0..n). Returns the bytes up to its end, or 0. */
static size_t find_change(struct ntx_thought *t, const char *p, size_t n)
{
    const char *mark = t->at == BEFORE ? t->marks.open : t->marks.close;
    const char *found = n ? memmem(p, n, mark, strlen(mark)) : NULL;
    return found ? (size_t)(found - p) + strlen(mark) : 0;
}

/* Before the first text: whether p[0..n) is, or may become, blanks and the open mark. */
static bool may_open(const struct ntx_thought *t, const char *p, size_t n)
{
    const size_t len = strlen(t->marks.open);
    while (n && is_blank(*p))
        p++, n--;
    return !memcmp(p, t->marks.open, n < len ? n : len);
}

void ntx_thought_take(struct ntx_thought *t, int32_t token)
{
    char buf[TAIL + NTX_TOKEN_MAX];
    const bool due = t && t->n_due, was_in = t && t->at == IN;
    if (due) {
        t->due++;
        t->n_due--;
    }
    if (!t || t->at == AFTER)
        return;
    memcpy(buf, t->tail, t->n_tail);
    int more = ntx_detokenize_one(t->tok, token, false, true, buf + t->n_tail, sizeof buf - t->n_tail);
    size_t n = t->n_tail + (more > 0 ? (size_t)more : 0), from = 0, at;
    if (t->at == BEFORE && !t->marks.anywhere && !may_open(t, buf, n))
        t->at = AFTER;
    while (t->at != AFTER && (at = find_change(t, buf + from, n - from))) {
        from += at;
        if (t->at == BEFORE)
            t->at = IN;
        else
            t->at = t->marks.anywhere ? BEFORE : AFTER;
    }
    keep_tail(t, buf + from, n - from);
    t->tokens += was_in && t->at == IN && !due;
}
