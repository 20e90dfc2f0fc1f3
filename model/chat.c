/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c: the built-in table of chat templates: how an entry is recognised, how it renders a conversation as
 * segments, and how an answer is shown.
 *
 * Spaces: a SentencePiece-like vocabulary puts a space before text that follows a control token. Entries where
 * [INST] is a control token (mistral, mistral-v7) rely on that, as Mistral's own tokenizer does. */
#include "model/chat_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/reply/reply.h"

/* OpenAI's harmony. Its system message is fixed except for the reasoning effort; the date that the original template
 * computes is left out. The system text of the client is the "developer" message there. */
#define HARMONY(title, effort)                                                                                         \
    {                                                                                                                  \
        .name = title, .all = {"<|start|>", "<|channel|>", "<|message|>"},                                             \
        .preface =                                                                                                     \
            "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: " \
            "2024-06\n\n"                                                                                              \
            "Reasoning: " effort                                                                                       \
            "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>",   \
        .system_open = "<|start|>developer<|message|># Instructions\n\n", .system_close = "<|end|>",                   \
        .user_open = "<|start|>user<|message|>", .user_close = "<|end|>", .answer_open = "<|start|>assistant",         \
        .answer_lead = "<|channel|>final<|message|>", .answer_close = "<|end|>", .channel = "final", .think = {        \
            .marks = true                                                                                              \
        }                                                                                                              \
    }

static const struct ntx_chat_template table[] = {
    {.name = "llama-2",
     .all = {"[INST]", "<<SYS>>"},
     .system_open = "<<SYS>>\n",
     .system_close = "\n<</SYS>>\n\n",
     .system_in_user = true,
     .user_open = "[INST] ",
     .user_close = " [/INST]",
     .answer_open = "",
     .answer_lead = " ",
     .answer_close = " ",
     .eos = true,
     .bos = true,
     .trim = true},
    {.name = "llama-3",
     .all = {"<|start_header_id|>", "<|end_header_id|>"},
     .system_open = "<|start_header_id|>system<|end_header_id|>\n\n",
     .system_close = "<|eot_id|>",
     .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
     .user_close = "<|eot_id|>",
     .answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",
     .answer_lead = "",
     .answer_close = "<|eot_id|>",
     .trim = true},
    {.name = "chatml",
     .all = {"<|im_start|>"},
     .none = {"<|im_sep|>", "<end_of_utterance>"},
     .system_open = "<|im_start|>system\n",
     .system_close = "<|im_end|>\n",
     .user_open = "<|im_start|>user\n",
     .user_close = "<|im_end|>\n",
     .answer_open = "<|im_start|>assistant\n",
     .answer_lead = "",
     .answer_close = "<|im_end|>\n"},
    {.name = "mistral-v7",
     .all = {"[INST]", "[SYSTEM_PROMPT]"},
     .system_open = "[SYSTEM_PROMPT]",
     .system_close = "[/SYSTEM_PROMPT]",
     .user_open = "[INST]",
     .user_close = "[/INST]",
     .answer_open = "",
     .answer_lead = "",
     .answer_close = "",
     .eos = true},
    {.name = "mistral-v1",
     .all = {"[INST]", " [/INST]"}, /* [INST] is ordinary text here */
     .system_open = "",
     .system_close = "\n\n",
     .system_in_user = true,
     .user_open = "[INST] ",
     .user_close = " [/INST]",
     .answer_open = "",
     .answer_lead = " ",
     .answer_close = "",
     .eos = true},
    {.name = "mistral",
     .all = {"[INST]", "[/INST]"}, /* v3 and v3-tekken */
     .system_open = "",
     .system_close = "\n\n",
     .system_in_user = true,
     .user_open = "[INST]",
     .user_close = "[/INST]",
     .answer_open = "",
     .answer_lead = "",
     .answer_close = "",
     .eos = true},
    HARMONY("harmony", "medium"), /* the default of its own template */
    HARMONY("harmony-low", "low"),
    HARMONY("harmony-high", "high"),
    {.name = "plain",
     .all = {"User:", "Assistant:"},
     .none = {"<|", "<start", "[gMASK]", "<\xef\xbd\x9c"},
     .turns = {"\nUser:", "\nAssistant:"},
     .system_open = "",
     .system_close = "\n\n",
     .user_open = "User: ",
     .user_close = "\n",
     .answer_open = "Assistant:",
     .answer_lead = " ",
     .answer_close = "\n"},
};
#define N_TEMPLATES      (sizeof(table) / sizeof(table[0]))
#define SEGS_PER_MESSAGE 8

const struct ntx_chat_template *ntx_chat_by_name(const char *name)
{
    for (size_t i = 0; i < N_TEMPLATES; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

static bool entry_fits(const struct ntx_chat_template *t, const char *jinja, size_t len)
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
        if (entry_fits(&table[i], jinja, len))
            return &table[i];
    return NULL;
}

const char *ntx_chat_name(const struct ntx_chat_template *t) { return t->name; }

const char *const *ntx_chat_turns(const struct ntx_chat_template *t)
{
    static const char *const none[] = {NULL};
    return t ? t->turns : none;
}

const struct ntx_think_facts *ntx_chat_think(const struct ntx_chat_template *t)
{
    static const struct ntx_think_facts none = {0};
    return t ? &t->think : &none;
}

const struct ntx_reply_format *ntx_chat_thoughts(const struct ntx_chat_template *t)
{
    if (t && t->program)
        return t->reply;
    return ntx_reply_by_name(t && t->channel ? "harmony" : "plain");
}

const char *ntx_chat_names(void)
{
    return "llama-2, llama-3, chatml, mistral, mistral-v1, mistral-v7, harmony, harmony-low, harmony-high, plain";
}

/* Marks around messages that are not for the user. */
static const char aside_open[] = "<think>\n", aside_close[] = "\n</think>\n\n";

/* ---- rendering */

struct writer {
    const struct ntx_chat_template *t;
    const struct ntx_tokenizer *tok;
    struct ntx__seg *segs;
    size_t n;
    const struct ntx_chat_msg *system; /* waits for the next user turn, which contains it */
    bool answered;                     /* the conversation has an answer already */
};

static void put_piece(struct writer *w, const char *text)
{
    if (*text)
        w->segs[w->n++] = (struct ntx__seg){.text = text, .len = strlen(text), .id = -1, .template = true};
}

static void put_id(struct writer *w, int32_t id)
{
    if (id >= 0)
        w->segs[w->n++] = (struct ntx__seg){.text = "", .id = id};
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void put_text(struct writer *w, const struct ntx_chat_msg *m)
{
    const char *p = m->text;
    size_t n = m->len;
    for (; w->t->trim && n && is_blank(*p); n--)
        p++;
    while (w->t->trim && n && is_blank(p[n - 1]))
        n--;
    if (n)
        w->segs[w->n++] = (struct ntx__seg){.text = p, .len = n, .id = -1};
}

static void put_system(struct writer *w, const struct ntx_chat_msg *m)
{
    put_piece(w, w->t->system_open);
    put_text(w, m);
    put_piece(w, w->t->system_close);
}

/* m NULL: a turn with the system text alone. */
static void put_user(struct writer *w, const struct ntx_chat_msg *m)
{
    if (w->t->bos && w->answered)
        put_id(w, w->tok->v.bos);
    put_piece(w, w->t->user_open);
    if (w->system)
        put_system(w, w->system);
    w->system = NULL;
    if (m)
        put_text(w, m);
    put_piece(w, w->t->user_close);
    w->answered = false;
}

/* The token with which the model ended its answer (in harmony maybe <|return|>) was not fed back: past answers end
 * as the template writes it, in harmony with <|end|>. OpenAI removes the reasoning of past answers; in this session
 * it stays, or everything after it would have to be computed again. */
static void end_answer(struct writer *w)
{
    put_piece(w, w->t->answer_close);
    if (w->t->eos)
        put_id(w, w->tok->v.eos);
    w->answered = true;
}

/* The answer without its reasoning block. */
struct ntx_chat_msg ntx__chat_without_asides(struct ntx_chat_msg m)
{
    const size_t no = sizeof(aside_open) - 1, nc = sizeof(aside_close) - 1;
    while (m.len > no && !memcmp(m.text, aside_open, no)) {
        const char *end = memmem(m.text + no, m.len - no, aside_close, nc);
        if (!end)
            break;
        m.len -= (size_t)(end + nc - m.text);
        m.text = end + nc;
    }
    return m;
}

static void put_answer(struct writer *w, const struct ntx_chat_msg *m, bool last)
{
    struct ntx_chat_msg said = w->t->channel ? ntx__chat_without_asides(*m) : *m;
    put_piece(w, w->t->answer_open);
    if (said.len)
        put_piece(w, w->t->answer_lead);
    put_text(w, &said);
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
        put_piece(w, w->t->answer_open);
    return 0;
}

int ntx__chat_text(const struct ntx_tokenizer *tok, const struct ntx__seg *segs, size_t n, struct ntx_chat_more *more)
{
    FILE *f = more->wants_text ? open_memstream(&more->text, &more->n_text) : NULL;
    if (!f)
        return more->wants_text ? -ENOMEM : 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = segs[i].len;
        const char *p = segs[i].id >= 0 ? ntx__vocab_text(&tok->v, (uint32_t)segs[i].id, &len) : segs[i].text;
        fwrite(p, 1, len, f);
    }
    return fclose(f) ? -ENOMEM : 0;
}

static int row_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok,
                      const struct ntx_chat_msg *msgs, unsigned from, unsigned n, struct ntx_chat_more *more,
                      const struct ntx_tok_limits *limits, int32_t **ids, struct ntx_err *err)
{
    if (more->n_variables)
        return ntx_err_set(err, -ENOTSUP,
                           "tools and other variables need the model's own chat template; this is ntx's \"%s\"",
                           t->name);
    size_t room = ((size_t)(n - from) + 1) * SEGS_PER_MESSAGE * sizeof(struct ntx__seg);
    if (limits && room > limits->memory)
        return -ENOBUFS;
    struct writer w = {.t = t, .tok = tok, .segs = malloc(room)};
    int rc = w.segs ? 0 : -ENOMEM;
    if (!rc && from)
        end_answer(&w);
    else if (!rc && t->preface)
        put_piece(&w, t->preface);
    for (unsigned i = from; !rc && i < n; i++)
        if (put_message(&w, &msgs[i], i + 1 == n))
            rc = ntx_err_set(err, -EINVAL, "the role of a message is system, user or assistant, not \"%.40s\"",
                             msgs[i].role);
    if (!rc)
        rc = ntx__chat_text(tok, w.segs, w.n, more);
    if (!rc)
        rc = ntx__tokenize_segs(tok, w.segs, w.n, from == 0, false, from != 0, limits, ids);
    if (rc == -ENOMEM || rc == -EFBIG)
        ntx_err_set(err, rc, rc == -EFBIG ? "the conversation is longer than 1 GiB" : "no memory for the conversation");
    free(w.segs);
    return rc;
}

int ntx_chat_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, const struct ntx_chat_msg *msgs,
                    unsigned from, unsigned n, int32_t **ids, struct ntx_err *err)
{
    struct ntx_chat_more more = {0};
    return ntx_chat_tokens_with(t, tok, msgs, from, n, &more, NULL, ids, err);
}

int ntx_chat_tokens_with(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok,
                         const struct ntx_chat_msg *msgs, unsigned from, unsigned n, struct ntx_chat_more *more,
                         const struct ntx_tok_limits *limits, int32_t **ids, struct ntx_err *err)
{
    if (from >= n)
        return ntx_err_set(err, -EINVAL, "a conversation needs a new message");
    if (from && strcmp(msgs[from - 1].role, "assistant"))
        return ntx_err_set(err, -EINVAL, "a conversation goes on after an answer only, not after \"%.40s\"",
                           msgs[from - 1].role);
    more->thinks = false;
    return t->program ? ntx__chat_own_tokens(t, tok, msgs, from, n, more, limits, ids, err)
                      : row_tokens(t, tok, msgs, from, n, more, limits, ids, err);
}

int ntx_chat_text_tokens(const struct ntx_tokenizer *tok, const char *text, int32_t **ids)
{
    const struct ntx__seg seg = {.text = text, .len = strlen(text), .id = -1, .template = true};
    return ntx__tokenize_segs(tok, &seg, 1, false, false, true, NULL, ids);
}

/* ---- showing */

static bool is_control(const struct ntx_tokenizer *tok, int32_t id, const char *text)
{
    size_t n, want = strlen(text);
    if (id < 0 || (uint32_t)id >= tok->v.n || !(tok->v.attr[id] & NTX__GUARDED))
        return false;
    const char *p = ntx__vocab_text(&tok->v, (uint32_t)id, &n);
    return n == want && !memcmp(p, text, n);
}

/* Moves the view to state `at`. Returns the mark to show: "" if the view stays inside or outside of the reasoning. */
static const char *move_view(struct ntx_chat_view *v, int at, bool aside)
{
    const char *mark = "";
    if (aside != v->aside)
        mark = aside ? aside_open : aside_close;
    v->at = at;
    v->aside = aside;
    return mark;
}

/* A head without a channel begins the answer. */
static bool for_user(const struct ntx_chat_view *v)
{
    size_t n = strlen(v->chat->channel);
    return !v->n || (v->n >= n && !memcmp(v->channel, v->chat->channel, n) && (v->n == n || is_blank(v->channel[n])));
}

/* <|start|>ROLE<|channel|>NAME<|message|>TEXT<|end|>; the template wrote the first role. NULL: the token is none of
 * these. */
static const char *head_token(struct ntx_chat_view *v, const struct ntx_tokenizer *tok, int32_t id)
{
    bool start = is_control(tok, id, "<|start|>"), channel = is_control(tok, id, "<|channel|>");
    if (start || channel) {
        v->n = 0;
        return move_view(v, start ? NTX_VIEW_ROLE : NTX_VIEW_CHANNEL, false);
    }
    if (is_control(tok, id, "<|message|>"))
        return v->at == NTX_VIEW_TEXT ? "" : move_view(v, NTX_VIEW_TEXT, !for_user(v));
    return is_control(tok, id, "<|end|>") ? move_view(v, NTX_VIEW_TEXT, false) : NULL;
}

static int show_text(const char *text, char *buf)
{
    size_t n = strlen(text);
    memcpy(buf, text, n);
    return (int)n;
}

static bool is_text(const char *want, const char *p, int n)
{
    return want && n >= 0 && strlen(want) == (size_t)n && !memcmp(want, p, (size_t)n);
}

/* The n bytes in buf are those of a token of a model's own template. Other marks of reasoning become <think> and
 * </think>. Returns the bytes to show. */
static int usual_marks(struct ntx_chat_view *v, char *buf, int n)
{
    const struct ntx_reply_thought t = ntx_reply_thought(v->chat->reply, false);
    if (v->opening) {
        const char *rest = t.open + strlen(t.token);
        const size_t left = strlen(rest) - v->opened;
        if ((size_t)n < left && !memcmp(rest + v->opened, buf, (size_t)n)) {
            v->opened += (uint8_t)n;
            return 0;
        }
        v->opening = false;
        if ((size_t)n < left || memcmp(rest + v->opened, buf, left))
            return n;
        memmove(buf + strlen("<think>"), buf + left, (size_t)n - left);
        return show_text("<think>", buf) + n - (int)left;
    }
    v->opening = is_text(t.token, buf, n);
    v->opened = 0;
    if (v->opening)
        return 0;
    if (is_text(t.open, buf, n))
        return show_text("<think>", buf);
    return is_text(t.close, buf, n) ? show_text("</think>", buf) : n;
}

int ntx_chat_view_token(struct ntx_chat_view *v, const struct ntx_tokenizer *tok, int32_t id, bool first, char *buf,
                        size_t room)
{
    if (v->thinks) {
        const char *mark = v->marks ? ntx_reply_thought(ntx_chat_thoughts(v->chat), true).open : "<think>";
        const size_t no = strlen(mark) + 1;
        if (room < no)
            return -ERANGE;
        v->thinks = false;
        memcpy(buf, mark, no - 1);
        buf[no - 1] = '\n';
        int n = ntx_chat_view_token(v, tok, id, first, buf + no, room - no);
        return n < 0 ? n : n + (int)no;
    }
    const char *mark = v->chat && v->chat->channel && !(v->marks && v->chat->program) ? head_token(v, tok, id) : NULL;
    if (mark) {
        size_t n = strlen(mark);
        memcpy(buf, mark, n);
        return (int)n;
    }
    int n = ntx_detokenize_one(tok, id, first, false, buf, room);
    if (n == 0 && v->chat && v->chat->program && ntx__chat_own_mark(v->chat, tok, id))
        n = ntx_detokenize_one(tok, id, first, true, buf, room);
    if (n > 0 && v->chat && v->chat->program && !v->marks && !v->chat->channel)
        return usual_marks(v, buf, n);
    if (n <= 0 || v->at == NTX_VIEW_TEXT)
        return n;
    for (int i = 0; v->at == NTX_VIEW_CHANNEL && i < n && v->n < sizeof(v->channel); i++)
        v->channel[v->n++] = buf[i];
    return 0;
}

bool ntx_chat_closes(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, int32_t id)
{
    return t && (t->program ? id >= 0 && id == t->closer : is_control(tok, id, t->answer_close));
}
