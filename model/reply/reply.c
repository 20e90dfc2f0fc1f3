/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c: the table of formats, how a template selects one, and the marks in the reply.
 *
 *   BEGIN ---<think>---> THOUGHT ---</think>---> TEXT ---open---> CALL ---close---> TEXT
 *
 * A possible beginning of a mark is held back; so is white space, which belongs to a mark if one follows. */
#include "model/reply/reply.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "model/reply/impl.h"

#define MARKS     4
#define M3        "]<]minimax[>["
#define DS(words) "<\xef\xbd\x9c" words "\xef\xbd\x9c>"
#define LOW       "\xe2\x96\x81" /* U+2581 */
#define DSML                                                                                                           \
    "\xef\xbd\x9c"                                                                                                     \
    "DSML"                                                                                                             \
    "\xef\xbd\x9c"

struct ntx_reply_format {
    const char *name;
    const char *all[3]; /* templates of the format contain all of these; the first entry that fits is used */
    const char *think, *think_end, *think_close; /* think_close: think_end, with the text around it */
    const char *think_token;                     /* the control token that begins `think`, if that has more text */
    const char *open, *close;      /* marks around a call, or several; close NULL: up to the next call, or the end */
    bool (*read)(struct calls *c); /* parses the text between; NULL: no calls */
    const char *skip[MARKS];       /* marks that are ignored */
    bool whole;                    /* a reply that begins with JSON is calls */
    bool channels;                 /* harmony: <|channel|>HEAD<|message|>TEXT<|end|> */
};

#define THINK     .think = "<think>", .think_end = "</think>", .think_close = "\n</think>\n\n"
#define TOOL_CALL .open = "<tool_call>", .close = "</tool_call>"

static const struct ntx_reply_format table[] = {
    {.name = "harmony", .all = {"<|start|>", "<|channel|>", "<|message|>"}, .channels = true},
    {.name = "deepseek-v4",
     .all = {DSML, "tool_calls>"},
     THINK,
     .open = "<" DSML "tool_calls>",
     .close = "</" DSML "tool_calls>",
     .read = ntx__calls_dsml},
    {.name = "deepseek-v3.2",
     .all = {DSML},
     THINK,
     .open = "<" DSML "function_calls>",
     .close = "</" DSML "function_calls>",
     .read = ntx__calls_dsml},
    {.name = "deepseek",
     .all = {DS("tool" LOW "call" LOW "begin")},
     THINK,
     .open = DS("tool" LOW "call" LOW "begin"),
     .close = DS("tool" LOW "call" LOW "end"),
     .read = ntx__calls_deepseek,
     .skip = {DS("tool" LOW "calls" LOW "begin"), DS("tool" LOW "calls" LOW "end")}},
    {.name = "kimi",
     .all = {"<|tool_call_begin|>", "<|tool_calls_section_begin|>"},
     THINK,
     .open = "<|tool_call_begin|>",
     .close = "<|tool_call_end|>",
     .read = ntx__calls_kimi,
     .skip = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}},
    {.name = "minimax",
     .all = {"<minimax:tool_call>", "<invoke name="},
     THINK,
     .open = "<minimax:tool_call>",
     .close = "</minimax:tool_call>",
     .read = ntx__calls_minimax},
    {.name = "minimax-m3",
     .all = {M3, "<invoke name="},
     .think = "<mm:think>",
     .think_end = "</mm:think>",
     .think_close = "</mm:think>",
     .open = M3 "<tool_call>",
     .close = M3 "</tool_call>",
     .read = ntx__calls_minimax3},
    {.name = "hy-3",
     .all = {":opensource", "<tool_sep"},
     .think = "<think:opensource>",
     .think_end = "</think:opensource>",
     .think_close = "</think:opensource>",
     .open = "<tool_call:opensource>",
     .close = "</tool_call:opensource>",
     .read = ntx__calls_hy3,
     .skip = {"<tool_calls:opensource>", "</tool_calls:opensource>"}},
    {.name = "seed",
     .all = {"<seed:think>"},
     .think = "<seed:think>",
     .think_end = "</seed:think>",
     .think_close = "</seed:think>",
     .open = "<seed:tool_call>",
     .close = "</seed:tool_call>",
     .read = ntx__calls_coder},
    {.name = "command-a",
     .all = {"<|START_ACTION|>"},
     .think = "<|START_THINKING|>",
     .think_end = "<|END_THINKING|>",
     .think_close = "<|END_THINKING|>",
     .open = "<|START_ACTION|>",
     .close = "<|END_ACTION|>",
     .read = ntx__calls_hermes,
     .skip = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {.name = "lfm2",
     .all = {"<|tool_call_start|>"},
     THINK,
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>",
     .read = ntx__calls_python},
    {.name = "apertus",
     .all = {"<|tools_prefix|>", "<|inner_prefix|>"},
     .think = "<|inner_prefix|>",
     .think_end = "<|inner_suffix|>",
     .think_close = "<|inner_suffix|>",
     .open = "<|tools_prefix|>",
     .close = "<|tools_suffix|>",
     .read = ntx__calls_apertus},
    {.name = "nemotron-2",
     .all = {"<TOOLCALL>"},
     THINK,
     .open = "<TOOLCALL>",
     .close = "</TOOLCALL>",
     .read = ntx__calls_hermes},
    {.name = "jamba",
     .all = {"<tool_calls>", "<|bom|>"},
     THINK,
     .open = "<tool_calls>",
     .close = "</tool_calls>",
     .read = ntx__calls_hermes},
    {.name = "glm", .all = {"<arg_key>", "<tool_call>"}, THINK, TOOL_CALL, .read = ntx__calls_glm},
    {.name = "qwen3-coder",
     .all = {"<function=", "<parameter=", "<tool_call>"},
     THINK,
     TOOL_CALL,
     .read = ntx__calls_coder},
    {.name = "mistral",
     .all = {"[TOOL_CALLS]"},
     .think = "[THINK]",
     .think_end = "[/THINK]",
     .think_close = "[/THINK]",
     .open = "[TOOL_CALLS]",
     .read = ntx__calls_mistral},
    {.name = "hermes", .all = {"<tool_call>"}, THINK, TOOL_CALL, .read = ntx__calls_hermes},
    {.name = "llama-3",
     .all = {"<|start_header_id|>", "parameters"},
     THINK,
     .open = "<|python_tag|>",
     .read = ntx__calls_llama,
     .whole = true},
    {.name = "gemma-4",
     .all = {"<|channel>", "<channel|>"},
     .think = "<|channel>thought",
     .think_end = "<channel|>",
     .think_close = "\n<channel|>",
     .think_token = "<|channel>"},
    {.name = "plain", THINK},
};
#define N_FORMATS (sizeof table / sizeof *table)

const struct ntx_reply_format *ntx_reply_by_name(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

const struct ntx_reply_format *ntx_reply_by_template(const char *jinja, size_t len)
{
    for (size_t i = 0; i + 1 < N_FORMATS; i++) {
        bool fits = true;
        for (size_t k = 0; k < 3 && table[i].all[k]; k++)
            fits = fits && len && memmem(jinja, len, table[i].all[k], strlen(table[i].all[k]));
        if (fits)
            return &table[i];
    }
    return &table[N_FORMATS - 1];
}

const char *ntx_reply_name(const struct ntx_reply_format *f) { return f->name; }

struct ntx_reply_thought ntx_reply_thought(const struct ntx_reply_format *f, bool calls)
{
    /* Calls stand on the channel commentary, so with tools the model chooses its next channel, once. */
    static const struct ntx_reply_thought final = {NULL,
                                                   "<|channel|>analysis<|message|>",
                                                   "<|end|>",
                                                   "<|end|><|start|>assistant<|channel|>final<|message|>",
                                                   "<|end|><|start|>assistant<|channel|>final<|message|>",
                                                   true},
                                          calling = {NULL,
                                                     "<|channel|>analysis<|message|>",
                                                     "<|end|>",
                                                     "<|end|><|start|>assistant",
                                                     "<|end|><|start|>assistant<|channel|>commentary",
                                                     true};
    if (f->channels)
        return calls ? calling : final;
    return (struct ntx_reply_thought){f->think_token, f->think, f->think_end, f->think_close, f->think_close, false};
}

bool ntx_reply_thinks(const struct ntx_reply_format *f, const char *jinja, size_t len)
{
    const char *mark = f->think_token ? f->think_token : f->think;
    return f->channels || (len && memmem(jinja, len, mark, strlen(mark)));
}

bool ntx_reply_is_mark(const struct ntx_reply_format *f, const char *text, size_t len)
{
    static const char *const within[] = {DS("tool" LOW "sep"),
                                         "<|tool_call_argument_begin|>",
                                         "[ARGS]",
                                         "[CALL_ID]",
                                         "<arg_key>",
                                         "</arg_key>",
                                         "<arg_value>",
                                         "</arg_value>",
                                         "<tool_sep:opensource>",
                                         "<arg_key:opensource>",
                                         "</arg_key:opensource>",
                                         "<arg_value:opensource>",
                                         "</arg_value:opensource>",
                                         M3};
    static const char *const heads[] = {"<|start|>", "<|channel|>", "<|message|>"};
    const char *const own[] = {f->think,   f->think_end, f->think_token, f->open,   f->close,
                               f->skip[0], f->skip[1],   f->skip[2],     f->skip[3]};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] && strlen(own[i]) == len && !memcmp(own[i], text, len))
            return true;
    for (size_t i = 0; f->channels && i < 3; i++)
        if (strlen(heads[i]) == len && !memcmp(heads[i], text, len))
            return true;
    for (size_t i = 0; f->read && i < sizeof within / sizeof *within; i++)
        if (strlen(within[i]) == len && !memcmp(within[i], text, len))
            return true;
    return false;
}

/* ---- what comes */

enum at { BEGIN, THOUGHT, TEXT, CALL, HEAD, BODY };

struct ntx_reply {
    struct ntx_reply_options options;
    enum at at;
    bool cut;          /* the reply ended in the middle of something */
    bool after;        /* after a mark, which takes white space */
    struct bytes held; /* text of the current state, not passed on yet */
    size_t seen;       /* CALL: this part has been searched */
    struct bytes head; /* BODY: the text before <|message|> */
    struct bare bare;  /* BEGIN, TEXT */
};

int ntx_reply_new(const struct ntx_reply_options *options, struct ntx_reply **out)
{
    struct ntx_reply *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->options = *options;
    r->at = options->thinks ? THOUGHT : BEGIN;
    r->after = options->thinks;
    r->bare.line = true;
    *out = r;
    return 0;
}

void ntx_reply_free(struct ntx_reply *r)
{
    if (!r)
        return;
    free(r->held.p);
    free(r->head.p);
    free(r);
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static void drop_bytes(struct bytes *b, size_t n)
{
    if (n && n <= b->n)
        memmove(b->p, b->p + n, b->n -= n);
}

/* Passes the first n held bytes on, as `kind`. */
static int pass_on(struct ntx_reply *r, enum ntx_reply_kind kind, size_t n)
{
    size_t skip = 0;
    if (!n)
        return 0;
    while (r->after && skip < n && is_blank(r->held.p[skip]))
        skip++;
    struct ntx_reply_part part = {.kind = kind, .text = r->held.p + skip, .len = n - skip};
    int rc = 0;
    if (part.len) {
        r->after = false;
        if (r->at == BEGIN)
            r->at = TEXT;
        rc = r->options.part(r->options.arg, &part);
    }
    drop_bytes(&r->held, n);
    r->bare.seen -= NTX_MIN(r->bare.seen, n);
    return rc;
}

/* Finds the first mark in the held text; *which: its index. */
static size_t find_mark(const struct bytes *b, const char *const *marks, size_t n_marks, size_t *which)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < n_marks; i++) {
        const char *f = marks[i] && b->n ? memmem(b->p, b->n, marks[i], strlen(marks[i])) : NULL;
        if (f && (size_t)(f - b->p) < best) {
            best = (size_t)(f - b->p);
            *which = i;
        }
    }
    return best;
}

/* Bytes that can be passed on: they cannot begin a mark, and are not white space that one would take. */
static size_t certain_bytes(const struct bytes *b, const char *const *marks, size_t n_marks)
{
    size_t keep = 0;
    for (size_t i = 0; i < n_marks; i++)
        for (size_t k = marks[i] ? strlen(marks[i]) - 1 : 0; k > keep; k--)
            if (k <= b->n && !memcmp(b->p + b->n - k, marks[i], k))
                keep = k;
    size_t n = b->n - keep;
    while (n && is_blank(b->p[n - 1]))
        n--;
    return n;
}

static size_t without_blanks(const struct bytes *b, size_t n)
{
    while (n && is_blank(b->p[n - 1]))
        n--;
    return n;
}

/* Handles a mark at `at`: passes on the text before it, without trailing blanks, and changes the state. */
static int pass_mark(struct ntx_reply *r, enum ntx_reply_kind kind, size_t at, const char *mark, enum at next)
{
    size_t n = without_blanks(&r->held, at);
    int rc = pass_on(r, kind, n);
    drop_bytes(&r->held, at - n + strlen(mark));
    r->at = next;
    r->after = true;
    r->bare = (struct bare){.line = true};
    return rc;
}

static int call_of(struct ntx_reply *r, struct span body, bool (*read)(struct calls *c), bool *done)
{
    struct calls c = {.options = &r->options, .body = body, .cut = r->cut};
    *done = read(&c);
    return c.rc;
}

/* Passes on a call that cannot be parsed as text, with its marks. */
static int plain_call(struct ntx_reply *r, struct span body, const char *close)
{
    const struct ntx_reply_format *f = r->options.format;
    struct bytes text = {0};
    ntx__reply_add_text(&text, f->whole && !close ? "" : f->open);
    ntx__reply_add(&text, body.p, body.n);
    ntx__reply_add_text(&text, close ? close : "");
    struct ntx_reply_part part = {.kind = NTX_REPLY_TEXT, .text = text.p, .len = text.n};
    int rc = text.failed ? -ENOMEM : 0;
    if (!rc && text.n)
        rc = r->options.part(r->options.arg, &part);
    free(text.p);
    return rc;
}

static int finish_call(struct ntx_reply *r, size_t n, const char *close)
{
    struct span body = {r->held.p, n};
    bool done;
    int rc = call_of(r, body, r->options.format->read, &done);
    if (!rc && !done && !r->cut)
        rc = plain_call(r, body, close);
    drop_bytes(&r->held, n + (close ? strlen(close) : 0));
    r->at = TEXT;
    r->after = true;
    r->bare = (struct bare){.line = true};
    return rc;
}

/* Looks for calls without marks in the held text, of which the first n bytes have no mark. *keep: where calls may
 * begin, or n. Calls that are whole are passed on, with the text before them. */
static int step_bare(struct ntx_reply *r, size_t n, bool ended, size_t *keep, bool *found)
{
    struct bytes held = {.p = r->held.p, .n = n};
    struct calls c = {.options = &r->options, .cut = r->cut, .bare = true};
    size_t from = n, to = n;
    *keep = n;
    *found = false;
    if (!r->options.offers || !n)
        return 0;
    enum bare_is is = ntx__reply_bare(&r->bare, &held, &c, ended, &from, &to);
    if (is == BARE_MAYBE)
        *keep = from;
    if (is != BARE_CALLS)
        return 0;
    *found = true;
    size_t text = without_blanks(&(struct bytes){.p = held.p, .n = from}, from);
    /* The text before comes first, and c.body stays valid: held is not moved before the calls are passed on. */
    struct ntx_reply_part part = {.kind = NTX_REPLY_TEXT, .text = held.p, .len = text};
    while (r->after && part.len && is_blank(part.text[0])) {
        part.text++;
        part.len--;
    }
    int rc = part.len ? r->options.part(r->options.arg, &part) : 0;
    if (!rc) {
        ntx__calls_bare(&c, false);
        rc = c.rc;
    }
    drop_bytes(&r->held, to);
    r->at = TEXT;
    r->after = true;
    r->bare = (struct bare){.line = true};
    return rc;
}

/* One step; *more: another may follow. */
static int step_text(struct ntx_reply *r, bool *more)
{
    const struct ntx_reply_format *f = r->options.format;
    const char *const marks[] = {
        r->at == BEGIN ? f->think : NULL, f->open, f->skip[0], f->skip[1], f->skip[2], f->skip[3]};
    size_t which = 0, at = find_mark(&r->held, marks, 6, &which), first = 0;
    while (r->at == BEGIN && f->whole && first < r->held.n && is_blank(r->held.p[first]))
        first++;
    if (r->at == BEGIN && f->whole && first < r->held.n && r->held.p[first] == '{') { /* only the end shows whether it
                                                                                         is a call */
        *more = false;
        return 0;
    }
    size_t keep;
    bool found;
    int rc = step_bare(r, at == SIZE_MAX ? r->held.n : at, at != SIZE_MAX, &keep, &found);
    if (rc || found)
        return rc;
    if (at == SIZE_MAX) {
        size_t n = certain_bytes(&r->held, marks, 6);
        *more = false;
        return pass_on(r, NTX_REPLY_TEXT, NTX_MIN(n, without_blanks(&r->held, keep)));
    }
    if (which == 0 && without_blanks(&r->held, at)) { /* a thought after text is not recognised */
        r->at = TEXT;
        return pass_on(r, NTX_REPLY_TEXT, at + strlen(f->think));
    }
    enum at next = r->at == BEGIN ? TEXT : r->at;
    if (which < 2)
        next = which ? CALL : THOUGHT;
    return pass_mark(r, NTX_REPLY_TEXT, at, marks[which], next);
}

static int step_thought(struct ntx_reply *r, bool *more)
{
    const struct ntx_reply_format *f = r->options.format;
    const char *const marks[] = {f->think_end,
                                 r->after ? f->think : NULL}; /* both the template and the model may open it */
    size_t which = 0, at = find_mark(&r->held, marks, 2, &which);
    if (at != SIZE_MAX && which == 1 && without_blanks(&r->held, at)) {
        which = 0;
        at = find_mark(&r->held, marks, 1, &which);
    }
    if (at == SIZE_MAX) {
        *more = false;
        return pass_on(r, NTX_REPLY_THOUGHT, certain_bytes(&r->held, marks, 2));
    }
    return pass_mark(r, NTX_REPLY_THOUGHT, at, marks[which], which ? THOUGHT : TEXT);
}

static int step_call(struct ntx_reply *r, bool *more)
{
    const struct ntx_reply_format *f = r->options.format;
    const char *end = f->close ? f->close : f->open;
    size_t which = 0, from = r->seen > strlen(end) ? r->seen - strlen(end) : 0;
    size_t at = find_mark(&(struct bytes){.p = r->held.p + from, .n = r->held.n - from}, &end, 1, &which);
    r->seen = at == SIZE_MAX ? r->held.n : 0;
    if (at == SIZE_MAX) {
        *more = false;
        return 0;
    }
    return finish_call(r, from + at, f->close);
}

/* ---- harmony: heads and bodies */

static const char *const body_ends[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"};
static const char *const head_end = "<|message|>";

static bool says(const struct bytes *b, const char *word) { return b->n && memmem(b->p, b->n, word, strlen(word)); }

static int step_head(struct ntx_reply *r, bool *more)
{
    size_t which = 0, at = find_mark(&r->held, &head_end, 1, &which);
    if (at == SIZE_MAX) {
        *more = false;
        return 0;
    }
    r->head.n = 0;
    ntx__reply_add(&r->head, r->held.p, at);
    drop_bytes(&r->held, at + strlen(head_end));
    r->at = BODY;
    r->after = true;
    return r->head.failed ? -ENOMEM : 0;
}

static int end_body(struct ntx_reply *r, size_t n)
{
    struct calls c = {.options = &r->options, .body = {r->held.p, n}, .cut = r->cut};
    if (says(&r->head, "to=functions.")) {
        if (ntx__calls_harmony(&c, (struct span){r->head.p, r->head.n}))
            drop_bytes(&r->held, n);
        return c.rc;
    }
    size_t kept = without_blanks(&r->held, n);
    int rc = pass_on(r, says(&r->head, "analysis") ? NTX_REPLY_THOUGHT : NTX_REPLY_TEXT, kept);
    drop_bytes(&r->held, n - kept);
    return rc;
}

static int step_body(struct ntx_reply *r, bool *more)
{
    size_t which = 0, at = find_mark(&r->held, body_ends, 5, &which);
    if (at == SIZE_MAX) {
        *more = false;
        if (says(&r->head, "to=functions."))
            return 0;
        return pass_on(r, says(&r->head, "analysis") ? NTX_REPLY_THOUGHT : NTX_REPLY_TEXT,
                       certain_bytes(&r->held, body_ends, 5));
    }
    int rc = end_body(r, at);
    drop_bytes(&r->held, strlen(body_ends[which]));
    r->at = HEAD;
    return rc;
}

/* ---- */

static int step_state(struct ntx_reply *r, bool *more)
{
    if (r->options.format->channels && (r->at == BEGIN || r->at == THOUGHT || r->at == HEAD))
        return step_head(r, more);
    switch (r->at) {
    case BODY: return step_body(r, more);
    case THOUGHT: return step_thought(r, more);
    case CALL: return step_call(r, more);
    default: return step_text(r, more);
    }
}

int ntx_reply_feed(struct ntx_reply *r, const char *text, size_t len)
{
    int rc = 0;
    ntx__reply_add(&r->held, text, len);
    if (r->held.failed)
        return -ENOMEM;
    for (bool more = true; !rc && more && r->held.n;)
        rc = step_state(r, &more);
    return rc;
}

/* The reply may be a call as a whole. */
static bool may_call(const struct bytes *b)
{
    static const char name[] = "{\"name\"";
    struct span s = ntx__reply_trim((struct span){b->p, b->n});
    return s.n && !memcmp(s.p, name, s.n < sizeof name - 1 ? s.n : sizeof name - 1);
}

/* Drops an incomplete mark of a call, and what follows it. */
static void drop_begun(struct ntx_reply *r)
{
    const struct ntx_reply_format *f = r->options.format;
    const char *const marks[] = {f->open, f->skip[0], f->skip[1], f->skip[2], f->skip[3]};
    for (size_t i = 0; i < 5; i++)
        for (size_t n = marks[i] ? strlen(marks[i]) : 0, k = n; 2 * k > n; k--)
            if (k <= r->held.n && !memcmp(r->held.p + r->held.n - k, marks[i], k)) {
                r->held.n = without_blanks(&r->held, r->held.n - k);
                return;
            }
}

static int end_channels(struct ntx_reply *r)
{
    bool headed = r->at != BEGIN || (r->cut && r->held.n && r->held.p[0] == '<');
    if (r->at == BODY)
        return end_body(r, r->held.n);
    return pass_on(r, NTX_REPLY_TEXT, headed ? 0 : r->held.n);
}

int ntx_reply_end(struct ntx_reply *r)
{
    bool done = false;
    int rc = 0;
    if (r->options.format->channels)
        return end_channels(r);
    if (r->at == CALL)
        return finish_call(r, r->held.n, NULL);
    if (r->at == BEGIN && r->options.format->whole && r->held.n)
        rc = call_of(r, (struct span){r->held.p, r->held.n}, r->options.format->read, &done);
    bool found = r->at == TEXT || (r->at == BEGIN && !done);
    for (size_t keep; !rc && found && r->held.n;)
        rc = step_bare(r, r->held.n, true, &keep, &found);
    if (done || (r->cut && r->at == BEGIN && r->options.format->whole && may_call(&r->held)))
        r->held.n = 0;
    if (r->cut && r->at != THOUGHT)
        drop_begun(r);
    if (rc)
        return rc;
    return pass_on(r, r->at == THOUGHT ? NTX_REPLY_THOUGHT : NTX_REPLY_TEXT, r->held.n);
}

int ntx_reply_cut(struct ntx_reply *r)
{
    r->cut = true;
    return ntx_reply_end(r);
}
