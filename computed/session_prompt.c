/* From what a person or a program asked to the tokens that are added to a session: raw text, tokens, or the next messages
 * of a conversation by the model's template. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "computed/session.h"

/* No vocabulary's tokens are that long on average: longer texts are refused before they cost time. */
#define MAX_BYTES_PER_TOKEN 256

static void free_msg(struct ntx_chat_msg *m)
{
    free((char *)(uintptr_t)m->role);
    free((char *)(uintptr_t)m->text);
}

int ntx__dialog_add(struct ntx_dialog *d, const char *role, const char *text, size_t len)
{
    if (d->n == d->room) {
        unsigned room = 2 * d->room + 4;
        struct ntx_chat_msg *p = realloc(d->msgs, room * sizeof *p);
        if (!p)
            return -ENOMEM;
        d->msgs = p;
        uint32_t *b = realloc(d->begins, room * sizeof *b);
        if (!b)
            return -ENOMEM;
        d->begins = b;
        d->room = room;
    }
    struct ntx_chat_msg m = {strdup(role), malloc(len + 1), len};
    if (!m.role || !m.text) {
        free_msg(&m);
        return -ENOMEM;
    }
    if (len)
        memcpy((char *)(uintptr_t)m.text, text, len);
    ((char *)(uintptr_t)m.text)[len] = 0;
    d->begins[d->n] = UINT32_MAX;
    d->msgs[d->n++] = m;
    d->reply_open = false;
    return 0;
}

int ntx__dialog_append(struct ntx_dialog *d, const char *text, size_t len)
{
    if (!d->reply_open || !len)
        return 0;
    struct ntx_chat_msg *m = &d->msgs[d->n - 1];
    char *p = realloc((char *)(uintptr_t)m->text, m->len + len + 1);
    if (!p)
        return -ENOMEM;
    memcpy(p + m->len, text, len);
    m->len += len;
    p[m->len] = 0;
    m->text = p;
    return 0;
}

void ntx__dialog_cut(struct ntx_dialog *d, unsigned n)
{
    while (d->n > n)
        free_msg(&d->msgs[--d->n]);
}

void ntx__dialog_free(struct ntx_dialog *d)
{
    ntx__dialog_cut(d, 0);
    free(d->msgs);
    free(d->begins);
    *d = (struct ntx_dialog){0};
}

static int too_long(const struct ntx_session_env *e, uint64_t bytes, struct ntx_err *err)
{
    if (bytes / MAX_BYTES_PER_TOKEN <= e->ctx)
        return 0;
    return ntx_err_set(err, -E2BIG, "the prompt has %llu bytes, far more than a context of %u tokens holds: shorten it, or load the model with a larger --ctx",
                       (unsigned long long)bytes, e->ctx);
}

/* The template to render by; *chat NULL: the text is taken as it is. */
static int pick_template(const struct ntx_session_env *e, const Ntx__Generate *m, const struct ntx_chat_template **chat, struct ntx_err *err)
{
    *chat = e->chat;
    if (m->chat_template && *m->chat_template) {
        if (!(*chat = ntx_chat_by_name(m->chat_template)))
            return ntx_err_set(err, -EINVAL, "unknown chat template '%s': there are %s", m->chat_template, ntx_chat_names());
        return 0;
    }
    if (!*chat && e->has_template)
        return ntx_err_set(err, -ENOTSUP, "the model's chat template is of no shape that ntx knows: use --raw, or --chat-template with one of %s",
                           ntx_chat_names());
    if (!*chat)
        *chat = ntx_chat_by_name("plain");
    return 0;
}

/* A model without a template continues a single prompt as a text; only a conversation needs a form. */
static bool is_plain_prompt(const struct ntx_session *s, const struct ntx_session_env *e, const Ntx__Generate *m)
{
    return !s->n_tokens && !m->keep && !e->chat && !e->has_template && !(m->chat_template && *m->chat_template) && m->n_messages == 1 &&
           m->messages[0]->role && !strcmp(m->messages[0]->role, "user");
}

static int chat_tokens(struct ntx_session *s, const struct ntx_session_env *e, const Ntx__Generate *m, const struct ntx_chat_template **chat,
                       int32_t **ids, struct ntx_err *err)
{
    unsigned from = s->dialog.n;
    int rc = pick_template(e, m, chat, err);
    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < m->n_messages; i++)
        rc = ntx__dialog_add(&s->dialog, m->messages[i]->role, (const char *)m->messages[i]->text.data, m->messages[i]->text.len);
    int n = rc ? ntx_err_set(err, rc, "no memory for the conversation")
               : ntx_chat_tokens(*chat, e->tok, s->dialog.msgs, from, s->dialog.n, ids, err);
    if (n >= 0 && (rc = ntx__dialog_add(&s->dialog, "assistant", "", 0))) {
        free(*ids);
        n = ntx_err_set(err, rc, "no memory for the conversation");
    }
    if (n < 0) {
        ntx__dialog_cut(&s->dialog, from);
        return n;
    }
    s->dialog.begins[from] = s->n_tokens;
    s->dialog.reply_open = true;
    return n;
}

static int given_tokens(const struct ntx_session_env *e, const Ntx__Generate *m, int32_t **ids, struct ntx_err *err)
{
    for (size_t i = 0; i < m->n_tokens; i++)
        if (m->tokens[i] < 0 || (uint32_t)m->tokens[i] >= e->n_vocab)
            return ntx_err_set(err, -EINVAL, "token %d (number %zu) is not one of the vocabulary's %u", m->tokens[i], i, e->n_vocab);
    if (!(*ids = malloc(m->n_tokens * sizeof **ids)))
        return ntx_err_set(err, -ENOMEM, "no memory for %zu tokens", m->n_tokens);
    memcpy(*ids, m->tokens, m->n_tokens * sizeof **ids);
    return (int)m->n_tokens;
}

static int text_tokens(const struct ntx_session *s, const struct ntx_session_env *e, const ProtobufCBinaryData *text, int32_t **ids, struct ntx_err *err)
{
    int n = ntx_tokenize(e->tok, (const char *)text->data, text->len, s->n_tokens ? 0 : NTX_TOK_BOS, ids);
    return n < 0 ? ntx_err_set(err, n, "cannot tokenize the prompt: %s", strerror(-n)) : n;
}

int ntx__session_prompt(struct ntx_session *s, const struct ntx_session_env *e, const Ntx__Generate *m, const struct ntx_chat_template **chat,
                        int32_t **ids, struct ntx_err *err)
{
    uint64_t bytes = m->prompt.len;
    for (size_t i = 0; i < m->n_messages; i++)
        bytes += m->messages[i]->text.len;
    int rc = too_long(e, bytes, err);
    if (rc)
        return rc;
    if (m->n_tokens)
        return given_tokens(e, m, ids, err);
    if (m->n_messages && m->raw)
        return ntx_err_set(err, -EINVAL, "a raw prompt and messages of a conversation exclude each other");
    if (m->n_messages && !is_plain_prompt(s, e, m))
        return chat_tokens(s, e, m, chat, ids, err);
    return text_tokens(s, e, m->n_messages ? &m->messages[0]->text : &m->prompt, ids, err);
}
