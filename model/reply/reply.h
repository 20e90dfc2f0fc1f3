/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h: what a model writes, taken apart as it comes: text, thoughts, and calls of tools.
 *
 *      "<think>\nHm.\n</think>\n\nLet me see.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>"
 *
 *           THOUGHT "Hm."      TEXT "Let me see."      CALL f {}
 *
 * How calls are written depends on the model; one table (reply.c) has the formats: hermes (also Qwen's JSON),
 * qwen3-coder (XML), glm (arg_key), deepseek (V3, R1, V3.1), deepseek-v3.2, deepseek-v4, kimi, minimax, mistral,
 * llama-3, harmony (gpt-oss, its channels), and plain (thoughts only). The format is told by the text of the model's
 * chat template.
 *
 * Text and thoughts are handed out as soon as they cannot be the beginning of a mark; a call when it is complete.
 * Marks, and blanks beside them, belong to nothing. A thought stands only where no text is before it. What looks like a
 * call but cannot be read is text; of one within which the reply was cut (a limit of tokens, a stop string) there is
 * what is known, and nothing where that is not even the tool. Control tokens that are marks must be in the text that is
 * fed. Not for several threads at once. */
#ifndef NTX_MODEL_REPLY_REPLY_H
#define NTX_MODEL_REPLY_REPLY_H

#include <stdbool.h>
#include <stddef.h>

struct ntx_reply_format; /* static, an entry of the table */

const struct ntx_reply_format *ntx_reply_by_name(const char *name); /* NULL: unknown */
/* By the text of a chat template; plain where it has no calls of a known form. */
const struct ntx_reply_format *ntx_reply_by_template(const char *jinja, size_t len);
const char *ntx_reply_name(const struct ntx_reply_format *f);
/* Whether the text is a mark of the format: a control token that must be shown. */
bool ntx_reply_is_mark(const struct ntx_reply_format *f, const char *text, size_t len);

/* How the model writes calls, as pieces of a grammar (computed/grammar/grammar.h): BEFORE OPEN name MIDDLE arguments
 * CLOSE (BETWEEN OPEN ... CLOSE)* AFTER. The arguments are a JSON object, or (PARAMETER key VALUE value
 * PARAMETER_END)*, where a value is JSON, or a text in which `text_end` is not. */
struct ntx_reply_writing {
    const char
        *mark; /* with which a call begins within text; NULL: a reply is a call from its beginning, or none is in it */
    const char *before, *open, *middle, *close, *between, *after;
    const char *parameter, *value, *text_value, *parameter_end,
        *text_end;                 /* parameter NULL: JSON. text_value NULL: as value */
    const char *think, *think_end; /* NULL: by channels */
};
bool ntx_reply_writing(const struct ntx_reply_format *f,
                       struct ntx_reply_writing *w); /* false: it writes no calls; think is set in any case */

enum ntx_reply_kind { NTX_REPLY_TEXT, NTX_REPLY_THOUGHT, NTX_REPLY_CALL };

struct ntx_reply_part {
    enum ntx_reply_kind kind;
    const char *text; /* [len] the next of the text or thought; of a call, its arguments: a JSON object, or what the
                         model wrote in its place */
    size_t len;
    const char *name; /* CALL: the tool, terminated */
    const char *id;   /* CALL: as the model named it, or "" */
    bool cut;         /* CALL: the reply ended within it: text is the beginning of an object, or empty */
};

struct ntx_reply_ask {
    const struct ntx_reply_format *format;
    bool thinks; /* the reply begins inside a thought */
    /* In formats without types (qwen3-coder, glm, minimax): whether the tool's parameter is a string. NULL: what is no
     * JSON is one, and what is in quotes. */
    bool (*is_string)(void *arg, const char *tool, const char *parameter);
    int (*part)(void *arg, const struct ntx_reply_part *part); /* not 0: the feeding stops and returns it */
    void *arg;
};

struct ntx_reply;
int ntx_reply_new(const struct ntx_reply_ask *ask, struct ntx_reply **out); /* -ENOMEM */
void ntx_reply_free(struct ntx_reply *r);
/* 0, -ENOMEM, or what part() returned. */
int ntx_reply_feed(struct ntx_reply *r, const char *text, size_t len);
int ntx_reply_end(struct ntx_reply *r); /* nothing more comes: what was held back is handed out */
int ntx_reply_cut(struct ntx_reply *r); /* nothing more comes, though the model was not done */
/* Of a cut call's arguments: the first so many bytes and a '}' are an object of the members that are whole. 0: there is
 * not even a '{'. */
size_t ntx_reply_whole(const char *text, size_t len);

#endif
