/* chat.c: the table of chat templates, how they are recognised, and how a conversation becomes segments.
 *
 * Spaces: a SentencePiece-like vocabulary puts a space before text that follows a control token. The rows below count on
 * that where [INST] is a control token (mistral, mistral-v7), as Mistral's own tokenizer does. */
#include "model/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_impl.h"

struct ntx_chat_template {
    const char *name;
    /* Shape: the file's template holds all of these and none of those. The first row that fits is taken. */
    const char *all[3], *none[4];
    const char *system_open, *system_close;
    const char *user_open, *user_close;
    const char *answer_open;  /* opens the assistant's turn: the last thing before the model writes */
    const char *answer_lead;  /* what the model itself writes before its text */
    const char *answer_close;
    bool system_in_user;      /* the system's text stands at the beginning of the user's next turn */
    bool eos, bos;            /* EOS after an answer; BOS before a user's turn that follows one */
    bool trim;                /* blanks around texts are dropped */
};

static const struct ntx_chat_template table[] = {
    {.name = "llama-2", .all = {"[INST]", "<<SYS>>"},
     .system_open = "<<SYS>>\n", .system_close = "\n<</SYS>>\n\n", .system_in_user = true,
     .user_open = "[INST] ", .user_close = " [/INST]",
     .answer_open = "", .answer_lead = " ", .answer_close = " ", .eos = true, .bos = true, .trim = true},
    {.name = "llama-3", .all = {"<|start_header_id|>", "<|end_header_id|>"},
     .system_open = "<|start_header_id|>system<|end_header_id|>\n\n", .system_close = "<|eot_id|>",
     .user_open = "<|start_header_id|>user<|end_header_id|>\n\n", .user_close = "<|eot_id|>",
     .answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n", .answer_lead = "", .answer_close = "<|eot_id|>",
     .trim = true},
    {.name = "chatml", .all = {"<|im_start|>"}, .none = {"<|im_sep|>", "<end_of_utterance>"},
     .system_open = "<|im_start|>system\n", .system_close = "<|im_end|>\n",
     .user_open = "<|im_start|>user\n", .user_close = "<|im_end|>\n",
     .answer_open = "<|im_start|>assistant\n", .answer_lead = "", .answer_close = "<|im_end|>\n"},
    {.name = "mistral-v7", .all = {"[INST]", "[SYSTEM_PROMPT]"},
     .system_open = "[SYSTEM_PROMPT]", .system_close = "[/SYSTEM_PROMPT]",
     .user_open = "[INST]", .user_close = "[/INST]", .answer_open = "", .answer_lead = "", .answer_close = "", .eos = true},
    {.name = "mistral-v1", .all = {"[INST]", " [/INST]"}, /* [INST] is ordinary text here */
     .system_open = "", .system_close = "\n\n", .system_in_user = true,
     .user_open = "[INST] ", .user_close = " [/INST]", .answer_open = "", .answer_lead = " ", .answer_close = "", .eos = true},
    {.name = "mistral", .all = {"[INST]", "[/INST]"}, /* v3 and v3-tekken */
     .system_open = "", .system_close = "\n\n", .system_in_user = true,
     .user_open = "[INST]", .user_close = "[/INST]", .answer_open = "", .answer_lead = "", .answer_close = "", .eos = true},
    {.name = "plain", .all = {"User:", "Assistant:"}, .none = {"<|", "<start", "[gMASK]", "<\xef\xbd\x9c"},
     .system_open = "", .system_close = "\n\n", .user_open = "User: ", .user_close = "\n",
     .answer_open = "Assistant:", .answer_lead = " ", .answer_close = "\n"},
};
#define N_TEMPLATES (sizeof(table) / sizeof(table[0]))
#define SEGS_PER_MESSAGE 8

const struct ntx_chat_template *ntx_chat_by_name(const char *name)
{
    for (size_t i = 0; i < N_TEMPLATES; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

static bool fits(const struct ntx_chat_template *t, const char *jinja, size_t len)
{
    for (size_t i = 0; i < 3 && t->all[i]; i++)
        if (!memmem(jinja, len, t->all[i], strlen(t->all[i])))
            return false;
    for (size_t i = 0; i < 4 && t->none[i]; i++)
        if (memmem(jinja, len, t->none[i], strlen(t->none[i])))
            return false;
    return true;
}

const struct ntx_chat_template *ntx_chat_by_shape(const char *jinja, size_t len)
{
    for (size_t i = 0; i < N_TEMPLATES; i++)
        if (fits(&table[i], jinja, len))
            return &table[i];
    return NULL;
}

const char *ntx_chat_name(const struct ntx_chat_template *t)
{
    return t->name;
}

const char *ntx_chat_names(void)
{
    return "llama-2, llama-3, chatml, mistral, mistral-v1, mistral-v7, plain";
}

/* ---- rendering */

struct writer {
    const struct ntx_chat_template *t;
    const struct ntx_tokenizer *tok;
    struct ntx__seg *segs;
    size_t n;
    const struct ntx_chat_msg *system; /* waits for the user's turn that holds it */
    bool answered;                     /* an answer stands before */
};

static void put(struct writer *w, const char *text)
{
    if (*text)
        w->segs[w->n++] = (struct ntx__seg){.text = text, .len = strlen(text), .id = -1, .template = true};
}

static void put_id(struct writer *w, int32_t id)
{
    if (id >= 0)
        w->segs[w->n++] = (struct ntx__seg){.text = "", .id = id};
}

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void put_text(struct writer *w, const struct ntx_chat_msg *m)
{
    const char *p = m->text;
    size_t n = m->len;
    for (; w->t->trim && n && blank(*p); n--)
        p++;
    while (w->t->trim && n && blank(p[n - 1]))
        n--;
    if (n)
        w->segs[w->n++] = (struct ntx__seg){.text = p, .len = n, .id = -1};
}

static void put_system(struct writer *w, const struct ntx_chat_msg *m)
{
    put(w, w->t->system_open);
    put_text(w, m);
    put(w, w->t->system_close);
}

/* m NULL: a turn that holds only the system's text. */
static void put_user(struct writer *w, const struct ntx_chat_msg *m)
{
    if (w->t->bos && w->answered)
        put_id(w, w->tok->v.bos);
    put(w, w->t->user_open);
    if (w->system)
        put_system(w, w->system);
    w->system = NULL;
    if (m)
        put_text(w, m);
    put(w, w->t->user_close);
    w->answered = false;
}

static void end_answer(struct writer *w)
{
    put(w, w->t->answer_close);
    if (w->t->eos)
        put_id(w, w->tok->v.eos);
    w->answered = true;
}

static void put_answer(struct writer *w, const struct ntx_chat_msg *m, bool last)
{
    put(w, w->t->answer_open);
    if (m->len)
        put(w, w->t->answer_lead);
    put_text(w, m);
    if (!last)
        end_answer(w);
}

static int put_message(struct writer *w, const struct ntx_chat_msg *m, bool last)
{
    bool system = !strcmp(m->role, "system"), answer = !strcmp(m->role, "assistant");
    if (!system && !answer && strcmp(m->role, "user"))
        return -EINVAL;
    if (system && w->t->system_in_user && !w->system) {
        w->system = m;
    } else if (system) {
        put_system(w, m);
    } else if (answer) {
        if (w->system)
            put_user(w, NULL);
        put_answer(w, m, last);
    } else {
        put_user(w, m);
    }
    if (last && w->system)
        put_user(w, NULL);
    if (last && !answer)
        put(w, w->t->answer_open);
    return 0;
}

int ntx_chat_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, const struct ntx_chat_msg *msgs,
                    unsigned from, unsigned n, int32_t **ids, struct ntx_err *err)
{
    if (from >= n)
        return ntx_err_set(err, -EINVAL, "a conversation needs a new message");
    if (from && strcmp(msgs[from - 1].role, "assistant"))
        return ntx_err_set(err, -EINVAL, "a conversation goes on after an answer only, not after \"%.40s\"", msgs[from - 1].role);
    struct writer w = {.t = t, .tok = tok, .segs = malloc(((size_t)(n - from) + 1) * SEGS_PER_MESSAGE * sizeof(*w.segs))};
    int rc = w.segs ? 0 : -ENOMEM;
    if (!rc && from)
        end_answer(&w);
    for (unsigned i = from; !rc && i < n; i++)
        if (put_message(&w, &msgs[i], i + 1 == n))
            rc = ntx_err_set(err, -EINVAL, "the role of a message is system, user or assistant, not \"%.40s\"", msgs[i].role);
    if (!rc)
        rc = ntx__tokenize_segs(tok, w.segs, w.n, from == 0, false, from != 0, ids);
    if (rc == -ENOMEM || rc == -EFBIG)
        ntx_err_set(err, rc, rc == -EFBIG ? "the conversation is longer than 1 GiB" : "no memory for the conversation");
    free(w.segs);
    return rc;
}
