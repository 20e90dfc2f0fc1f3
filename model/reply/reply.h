/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h: parses a model's output as it arrives: text, reasoning (thoughts), and tool calls.
 *
 *      "<think>\nHm.\n</think>\n\nLet me see.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>"
 *
 *           THOUGHT "Hm."      TEXT "Let me see."      CALL f {}
 *
 * The format of calls depends on the model; one table (reply.c) has them: hermes (also Qwen's JSON), qwen3-coder
 * (XML), glm (arg_key), deepseek (V3, R1, V3.1), deepseek-v3.2, deepseek-v4, kimi, minimax, mistral, llama-3, seed,
 * command-a, lfm2, apertus, nemotron-2, jamba, hy-3, minimax-m3, harmony (gpt-oss, its channels), and two for thoughts
 * only: gemma-4 and plain. The text of the model's chat
 * template decides which one is used.
 *
 * Text and thoughts are passed on as soon as they cannot begin a mark; a call when it is complete. Marks, and white
 * space beside them, are dropped. A thought is only recognised before any text. A call that cannot be parsed becomes
 * text; of a call that the end of the reply cut (a limit of tokens, a stop string) the known part is passed on, or
 * nothing if even the tool is unknown. Small models forget the marks: with ntx_reply_options.offers, a JSON object (or
 * several, or a list) at the beginning of a line that names an offered tool and has arguments or parameters is a call,
 * too, also within ``` (with or without the word json). Control tokens that are marks must be in the text. Not
 * thread-safe. */
#ifndef NTX_MODEL_REPLY_REPLY_H
#define NTX_MODEL_REPLY_REPLY_H

#include <stdbool.h>
#include <stddef.h>

struct ntx_reply_format; /* an entry of the table (static) */

const struct ntx_reply_format *ntx_reply_by_name(const char *name); /* NULL: unknown */
/* The format of a chat template; `plain` if it has no known form of calls. */
const struct ntx_reply_format *ntx_reply_by_template(const char *jinja, size_t len);
const char *ntx_reply_name(const struct ntx_reply_format *f);
/* The text is a mark of the format, so this control token must be shown. */
bool ntx_reply_is_mark(const struct ntx_reply_format *f, const char *text, size_t len);

/* The syntax of calls as pieces of a grammar (computed/grammar/grammar.h): BEFORE OPEN name MIDDLE arguments CLOSE
 * (BETWEEN OPEN ... CLOSE)* AFTER. The arguments are a JSON object, or (PARAMETER key VALUE value PARAMETER_END)*,
 * with SEPARATOR between them, where a value is JSON, or a text without `text_end`. */
struct ntx_reply_writing {
    const char *mark; /* a call inside text begins with it; NULL: a reply is a call from its start, or has none */
    const char *before, *open, *middle, *close, *between, *after;
    const char *parameter, *value, *text_value, *parameter_end,
        *text_end; /* parameter NULL: arguments are JSON. text_value NULL: like value; text_end NULL: texts are JSON */
    const char *separator;         /* NULL: nothing */
    const char *text;              /* text beside calls; NULL: any without `mark` */
    const char *think, *think_end; /* NULL: channels mark thoughts */
};
bool ntx_reply_writing(const struct ntx_reply_format *f,
                       struct ntx_reply_writing *w); /* false: the format has no calls; `think` is set anyway */

/* The marks of a thought in what the model writes, control tokens included. end: what the model would write to end its
 * thought and begin the answer; again: the same for one that it begins after that. calls: the request has tools. */
struct ntx_reply_thought {
    const char *token; /* the control token that begins `open`, if that has more text; else NULL */
    const char *open, *close, *end, *again;
    bool anywhere; /* thoughts may come after text, too */
};
struct ntx_reply_thought ntx_reply_thought(const struct ntx_reply_format *f, bool calls);
/* A template of the format with this text knows thoughts. */
bool ntx_reply_thinks(const struct ntx_reply_format *f, const char *jinja, size_t len);

enum ntx_reply_kind { NTX_REPLY_TEXT, NTX_REPLY_THOUGHT, NTX_REPLY_CALL };

struct ntx_reply_part {
    enum ntx_reply_kind kind;
    const char *text; /* [len] the next piece of text or thought; CALL: the arguments, a JSON object, or the raw text
                         if it is not one */
    size_t len;
    const char *name; /* CALL: name of the tool, 0-terminated */
    const char *id;   /* CALL: the model's id of the call, or "" */
    bool cut;         /* CALL: the reply ended inside it: text is the start of an object, or empty */
};

struct ntx_reply_options {
    const struct ntx_reply_format *format;
    bool thinks; /* the reply begins inside a thought */
    /* For formats without types (qwen3-coder, glm, minimax): 1 if the tool's parameter is a string. NULL: values
     * that are not JSON, or that are quoted, are strings. */
    bool (*is_string)(void *arg, const char *tool, const char *parameter);
    /* Whether a tool of this name is offered. NULL: calls without the format's marks are text. */
    bool (*offers)(void *arg, const char *name, size_t n);
    int (*part)(void *arg, const struct ntx_reply_part *part); /* another result than 0 stops ntx_reply_feed, which
                                                                  returns it */
    void *arg;
};

struct ntx_reply;
int ntx_reply_new(const struct ntx_reply_options *options, struct ntx_reply **out); /* -ENOMEM */
void ntx_reply_free(struct ntx_reply *r);
/* Parses more of the reply. 0, -ENOMEM, or the result of part(). */
int ntx_reply_feed(struct ntx_reply *r, const char *text, size_t len);
int ntx_reply_end(struct ntx_reply *r); /* end of the reply: passes on what was held back */
int ntx_reply_cut(struct ntx_reply *r); /* end of the reply before the model was done */
/* For the arguments of a cut call: the first so many bytes and a '}' are an object of the complete members. 0: there
 * is not even a '{'. */
size_t ntx_reply_whole(const char *text, size_t len);

#endif
