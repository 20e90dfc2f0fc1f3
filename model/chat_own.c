/* SPDX-License-Identifier: Apache-2.0 */
/* chat_own.c: runs a model's own template: a conversation becomes the JSON that templates read, their output becomes
 * segments.
 *
 * When a conversation goes on, its beginning is in the context but not available as text. So a short conversation is
 * rendered in its place, whose answer is a mark, and the output up to the mark is dropped:
 *
 *   user "..." | assistant MARK | the new messages ...        -> the text behind MARK
 *
 * An answer that the model shall continue gets another mark at its end, where the text is cut. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/chat_impl.h"
#include "model/reply/reply.h"
#include "model/template/template.h"

static const char past_mark[] = "ntx:the-answer-so-far", open_mark[] = "ntx:the-answer-goes-on";

/* ---- the variables */

static void put_escaped(FILE *f, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            putc(c, f);
    }
}

static void put_token(FILE *f, const char *key, const struct ntx_tokenizer *tok, int32_t id)
{
    size_t n = 0;
    const char *p = id >= 0 ? ntx__vocab_text(&tok->v, (uint32_t)id, &n) : "";
    fprintf(f, ",\"%s\":\"", key);
    put_escaped(f, p, n);
    fputc('"', f);
}

/* Writes the members of a valid JSON object after a comma. */
static void put_members(FILE *f, const char *object, size_t n)
{
    const char *from = n ? memchr(object, '{', n) : NULL, *end = n ? memrchr(object, '}', n) : NULL;
    if (!from || !end)
        return;
    for (from++; from < end && strchr(" \t\r\n", *from); from++)
        ;
    if (from < end) {
        fputc(',', f);
        fwrite(from, 1, (size_t)(end - from), f);
    }
}

static void put_message(FILE *f, const struct ntx_chat_msg *m, const char *mark)
{
    fputs("{\"content\":\"", f);
    put_escaped(f, m->text, m->len);
    fprintf(f, "%s\"", mark);
    put_members(f, m->fields, m->n_fields);
    fputs(",\"role\":\"", f);
    put_escaped(f, m->role, strlen(m->role));
    fputs("\"}", f);
}

struct talk {
    const struct ntx_chat_template *t;
    const struct ntx_tokenizer *tok;
    const struct ntx_chat_msg *msgs;
    unsigned from, n;
    const struct ntx_chat_more *more;
    bool open; /* the last message is an answer that the model continues */
};

static int variables(const struct talk *k, char **text, size_t *len)
{
    FILE *f = open_memstream(text, len);
    if (!f)
        return -ENOMEM;
    fputs("{\"tools\":null,\"documents\":null", f);
    put_members(f, k->more->think, k->more->n_think);
    put_members(f, k->more->variables, k->more->n_variables);
    put_token(f, "bos_token", k->tok, k->tok->v.bos);
    put_token(f, "eos_token", k->tok, k->tok->v.eos);
    fprintf(f, ",\"add_generation_prompt\":%s,\"messages\":[", k->open ? "false" : "true");
    if (k->from)
        fprintf(f, "{\"role\":\"user\",\"content\":\"...\"},{\"role\":\"assistant\",\"content\":\"%s\"},", past_mark);
    for (unsigned i = k->from; i < k->n; i++) {
        struct ntx_chat_msg m = k->msgs[i];
        if (k->t->channel && !strcmp(m.role, "assistant"))
            m = ntx__chat_without_asides(m);
        if (i > k->from)
            fputc(',', f);
        put_message(f, &m, k->open && i + 1 == k->n ? open_mark : "");
    }
    fputs("]}", f);
    bool failed = ferror(f);
    if (fclose(f) || failed) {
        free(*text);
        return -ENOMEM;
    }
    return 0;
}

static int check_json(const struct talk *k, const atomic_bool *cancel, struct ntx_err *err)
{
    struct ntx_err why = {0};
    int rc = k->more->n_variables ? ntx_template_check_object(k->more->variables, k->more->n_variables, cancel, &why)
                                  : 0;
    if (rc)
        return ntx_err_set(err, rc, "the template's variables: %s", why.text);
    for (unsigned i = k->from; i < k->n; i++)
        if (k->msgs[i].n_fields &&
            (rc = ntx_template_check_object(k->msgs[i].fields, k->msgs[i].n_fields, cancel, &why)))
            return ntx_err_set(err, rc, "the fields of message %u: %s", i + 1 - k->from, why.text);
    return 0;
}

/* ---- the text */

#define MEMORY_LEAST ((size_t)8 << 20) /* least memory of a rendering */

/* Without limits nothing can cancel the rendering, so it gets few steps. */
static struct ntx_template_limits limits_of(const struct ntx_tok_limits *limits)
{
    struct ntx_template_limits l = {.memory = MEMORY_LEAST, .steps = 2000000, .now = (int64_t)time(NULL)};
    if (limits) {
        l.memory = limits->memory > MEMORY_LEAST ? limits->memory : MEMORY_LEAST;
        l.steps = 0;
        l.cancel = limits->cancel;
    }
    l.output = l.memory / 4;
    return l;
}

/* The conversation is in memory as JSON, in which a byte may take six, and once more in the arena. */
static int check_memory(const struct talk *k, size_t memory, struct ntx_err *err)
{
    size_t bytes = k->more->n_variables;
    for (unsigned i = k->from; i < k->n; i++)
        bytes += k->msgs[i].len + k->msgs[i].n_fields;
    return bytes <= memory / 8 ? 0
                               : ntx_err_set(err, -ENOBUFS,
                                             "the conversation has %zu KiB, and the memory kept for reading it (a part "
                                             "of --ram) is enough for %zu KiB: shorten it, or raise --ram",
                                             bytes >> 10, memory >> 13);
}

/* The text between the marks, or from the beginning, or to the end, if a mark was not used. */
static int cut_at_marks(const struct talk *k, const struct ntx_template_text *text, size_t *from, size_t *to,
                        struct ntx_err *err)
{
    const char *p = k->from ? memmem(text->text, text->len, past_mark, sizeof past_mark - 1) : text->text,
               *end = text->text + text->len;
    if (!p)
        return ntx_err_set(err, -ENOTSUP,
                           "the model's chat template leaves an answer out, so a conversation cannot go on by it");
    *from = (size_t)(p - text->text) + (k->from ? sizeof past_mark - 1 : 0);
    for (const char *next = p; k->open && (next = memmem(next, (size_t)(end - next), open_mark, sizeof open_mark - 1));
         next++)
        p = next; /* the last one: a user may have written it before */
    if (k->open && (p < text->text + *from || (size_t)(end - p) < sizeof open_mark - 1 ||
                    memcmp(p, open_mark, sizeof open_mark - 1)))
        return ntx_err_set(err, -ENOTSUP,
                           "the model's chat template leaves the last answer out, so it cannot be gone on with");
    *to = k->open ? (size_t)(p - text->text) : text->len;
    return 0;
}

/* Splits the text into runs of template bytes and runs of users' bytes. */
static size_t segments(const struct ntx_template_text *x, size_t from, size_t to, struct ntx__seg *segs)
{
    size_t n = 0;
    for (size_t i = from; i < to; n++) {
        size_t begin = i;
        while (++i < to && x->people[i] == x->people[begin])
            ;
        if (segs)
            segs[n] = (struct ntx__seg){
                .text = x->text + begin, .len = i - begin, .id = -1, .template = !x->people[begin]};
    }
    return n;
}

static bool begins_with_bos(const struct ntx_tokenizer *tok, const struct ntx_template_text *x)
{
    size_t n = 0;
    const char *p = tok->v.bos >= 0 ? ntx__vocab_text(&tok->v, (uint32_t)tok->v.bos, &n) : NULL;
    return n && x->len >= n && !memcmp(x->text, p, n) && !x->people[0];
}

/* The text ends inside a reasoning block, which the model continues. */
static bool opens_thought(const struct ntx_template_text *x, size_t to, const char *mark)
{
    const size_t n = strlen(mark);
    while (to && strchr(" \t\r\n", x->text[to - 1]) && x->text[to - 1])
        to--;
    return to >= n && !memcmp(x->text + to - n, mark, n) && !x->people[to - 1];
}

static int tokens_of(const struct talk *k, const struct ntx_template_text *x, const struct ntx_tok_limits *limits,
                     struct ntx_chat_more *more, int32_t **ids, struct ntx_err *err)
{
    size_t from = 0, to = 0;
    int rc = cut_at_marks(k, x, &from, &to, err);
    if (rc)
        return rc;
    size_t n = segments(x, from, to, NULL);
    if (n * sizeof(struct ntx__seg) > limits_of(limits).memory)
        return ntx_err_set(
            err, -ENOBUFS,
            "the conversation falls into %zu pieces: more than the memory kept for reading it is enough for", n);
    struct ntx__seg *segs = malloc((n + 1) * sizeof *segs);
    if (!segs)
        return ntx_err_set(err, -ENOMEM, "no memory for the conversation");
    segments(x, from, to, segs);
    const struct ntx_reply_thought thought = ntx_reply_thought(k->t->reply, false);
    bool thinks = !k->open && opens_thought(x, to, thought.open);
    if (thinks && more->silent)
        segs[n++] = (struct ntx__seg){.text = thought.end, .len = strlen(thought.end), .id = -1, .template = true};
    rc = ntx__chat_text(k->tok, segs, n, more);
    if (!rc)
        rc = ntx__tokenize_segs(k->tok, segs, n, !k->from && !begins_with_bos(k->tok, x), false, k->from != 0, limits,
                                ids);
    free(segs);
    more->thinks = thinks && !more->silent;
    return rc;
}

static int render(const struct talk *k, const struct ntx_template_limits *l, struct ntx_template_text *text,
                  struct ntx_err *err)
{
    char *json = NULL;
    size_t len = 0;
    struct ntx_err why = {0};
    int rc = variables(k, &json, &len);
    if (rc)
        return ntx_err_set(err, rc, "no memory for the conversation");
    rc = ntx_template_render(k->t->program, json, len, l, text, &why);
    free(json);
    if (rc && rc != -ECANCELED)
        ntx_err_set(err, rc, "the model's %s (--raw goes without it, --chat-template takes another)", why.text);
    return rc;
}

/* Renders the first order that the template takes with all system texts; else the conversation as it came. */
static int render_any(struct talk *k, const struct ntx_template_limits *l, struct ntx__chat_talk *as,
                      struct ntx_template_text *text, struct ntx_err *err)
{
    const struct talk asked = *k;
    const int first = render(k, l, text, err);
    if (first && first != -EINVAL)
        return first;
    if (!first && ntx__chat_says_systems(k->msgs, k->from, k->n, text->text, text->len))
        return 0;
    for (int order = NTX__ORDER_JOINED; order < NTX__N_ORDERS; order++) {
        struct ntx_template_text other;
        if (ntx__chat_reorder(asked.msgs, asked.from, asked.n, order, as))
            return first;
        k->msgs = as->msgs;
        k->n = as->n;
        if (!render(k, l, &other, NULL)) {
            if (ntx__chat_says_systems(asked.msgs, asked.from, asked.n, other.text, other.len)) {
                if (!first)
                    free(text->text);
                *text = other;
                return 0;
            }
            free(other.text);
        }
        ntx__chat_talk_free(as);
        *as = (struct ntx__chat_talk){0};
    }
    *k = asked;
    return first;
}

int ntx__chat_own_tokens(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok,
                         const struct ntx_chat_msg *msgs, unsigned from, unsigned n, struct ntx_chat_more *more,
                         const struct ntx_tok_limits *limits, int32_t **ids, struct ntx_err *err)
{
    struct talk k = {.t = t,
                     .tok = tok,
                     .msgs = msgs,
                     .from = from,
                     .n = n,
                     .more = more,
                     .open = !strcmp(msgs[n - 1].role, "assistant")};
    struct ntx_template_text text;
    struct ntx__chat_talk as = {0};
    struct ntx_template_limits l = limits_of(limits);
    l.now = more->now ? more->now : l.now;
    int rc = check_memory(&k, l.memory, err);
    if (!rc)
        rc = check_json(&k, l.cancel, err);
    if (!rc)
        rc = render_any(&k, &l, &as, &text, err);
    if (rc)
        return rc;
    rc = tokens_of(&k, &text, limits, more, ids, err);
    free(text.text);
    ntx__chat_talk_free(&as);
    return rc;
}

/* ---- what is shown, and how it is to be read */

bool ntx__chat_own_mark(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok, int32_t id)
{
    size_t n;
    if (id < 0 || (uint32_t)id >= tok->v.n || (tok->v.attr[id] & NTX__TYPE_MASK) != NTX__CONTROL)
        return false;
    const char *p = ntx__vocab_text(&tok->v, (uint32_t)id, &n);
    return ntx_reply_is_mark(t->reply, p, n);
}

const char *ntx_chat_reply(const struct ntx_chat_template *t)
{
    return t && t->program ? ntx_reply_name(t->reply) : "plain";
}

/* ---- opening */

/* The control token with which the template ends an answer, or -1. */
static int32_t find_closer(const struct ntx_chat_template *t, const struct ntx_tokenizer *tok)
{
    static const struct ntx_chat_msg msgs[] = {{.role = "assistant", .text = ""}, {.role = "user", .text = "..."}};
    struct ntx_chat_more more = {0};
    int32_t *ids, id = -1;
    if (ntx__chat_own_tokens(t, tok, msgs, 1, 2, &more, NULL, &ids, NULL) <= 0)
        return -1;
    if ((tok->v.attr[ids[0]] & NTX__TYPE_MASK) == NTX__CONTROL)
        id = ids[0];
    free(ids);
    return id;
}

struct named {
    const char *name;
    bool found;
};

static void find_named(void *arg, const char *p, size_t n)
{
    struct named *k = arg;
    k->found |= strlen(k->name) == n && !memcmp(k->name, p, n);
}

static bool reads_name(void *program, const char *name)
{
    struct named k = {.name = name};
    ntx_template_names(program, find_named, &k);
    return k.found;
}

int ntx_chat_open(const char *jinja, size_t len, const struct ntx_tokenizer *tok, struct ntx_chat_template **out,
                  struct ntx_err *err)
{
    const struct ntx_chat_template *shape = ntx_chat_by_shape(jinja, len);
    struct ntx_template *program;
    struct ntx_err why = {0};
    int rc = ntx_template_parse(jinja, len, &program, &why);
    if (rc)
        return ntx_err_set(err, rc, "the model's %s", why.text);
    struct ntx_chat_template *t = calloc(1, sizeof *t);
    if (!t) {
        ntx_template_free(program);
        return ntx_err_set(err, -ENOMEM, "no memory for the chat template");
    }
    t->name = shape ? shape->name : "own";
    t->channel = shape ? shape->channel : NULL;
    t->program = program;
    t->reply = ntx_reply_by_template(jinja, len);
    t->think = ntx_think_facts(jinja, len, ntx_reply_thinks(t->reply, jinja, len), reads_name, program);
    t->closer = find_closer(t, tok);
    *out = t;
    return 0;
}

int ntx_chat_check(const char *jinja, size_t len, struct ntx_err *err)
{
    struct ntx_template *program;
    struct ntx_err why = {0};
    int rc = ntx_template_parse(jinja, len, &program, &why);
    if (rc)
        return ntx_err_set(err, rc, "the model's %s", why.text);
    ntx_template_free(program);
    return 0;
}

void ntx_chat_free(struct ntx_chat_template *t)
{
    if (!t)
        return;
    ntx_template_free(t->program);
    free(t);
}

void ntx_chat_reads(const struct ntx_chat_template *t, void (*each)(void *arg, const char *p, size_t n), void *arg)
{
    if (t && t->program)
        ntx_template_names(t->program, each, arg);
}
