/* SPDX-License-Identifier: Apache-2.0 */
/* template.h: executes chat templates: a small interpreter of the Jinja that models' templates use. It renders them
 * as transformers' apply_chat_template does (trim_blocks, lstrip_blocks, loop controls, its own tojson,
 * raise_exception, strftime_now).
 *
 *      template text --parse--> struct ntx_template --render(variables as JSON, limits)--> text, and the origin of each
 *        byte
 *
 * Supported: print, if, for (with if, else, recursive, break, continue), set (also blocks, and fields of a
 * namespace), macro, call, filter, with, raw, generation; all operators; the filters, tests and methods in the
 * tables of filters.c, tests.c and methods.c; range, dict, namespace, raise_exception, strftime_now. Not supported:
 * blocks, include, import, extends. Transformers' sandbox refuses append, pop, insert, extend and update; here they
 * work on values that the template made or was given, since some templates use them.
 *
 * Origin: each byte of a string knows whether the template or a user wrote it, through every operation. So users'
 * text is never read as special tokens, whatever the template does with it. Strings in the variables are users',
 * except bos_token, eos_token and the roles of messages (of letters, digits, '-' and '_'). A message's reasoning
 * (reasoning_content, thinking or reasoning) is available as reasoning_content and as thinking, as in transformers.
 *
 * A template is not trusted: it sees only its variables, stays within the limits, and fails with one line that names
 * the line of the template. A parsed template is immutable; any thread may render it. */
#ifndef NTX_MODEL_TEMPLATE_TEMPLATE_H
#define NTX_MODEL_TEMPLATE_TEMPLATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_template;

/* Parses text[0..len), which is copied. -EINVAL: a syntax error; -EFBIG: more than 1 MiB; -ENOMEM. */
int ntx_template_parse(const char *text, size_t len, struct ntx_template **out, struct ntx_err *err);
void ntx_template_free(struct ntx_template *t);

struct ntx_template_limits {
    size_t memory;             /* bytes of all values of a rendering; 0: 256 MiB */
    size_t output;             /* bytes of the text; 0: 64 MiB */
    uint64_t steps;            /* about one per operation, and one per 64 bytes moved; 0: 50 million, a second or two */
    int64_t now;               /* the time for strftime_now, in seconds since 1970, shown as local time */
    const atomic_bool *cancel; /* once true: -ECANCELED soon. NULL: never */
};

struct ntx_template_text {
    char *text;      /* malloc'd, [len] and a NUL */
    uint8_t *people; /* [len], 1: a user's byte; part of the same allocation */
    size_t len;
};

/* Renders with variables[0..len), a JSON object. limits NULL: the defaults. On success the caller frees out->text.
 * -EINVAL: the variables are not a JSON object, or the template failed (raise_exception, an undefined value was
 * used, ...); -ENOBUFS: a limit of memory, output, steps or depth was reached; -ECANCELED; -ENOMEM. */
int ntx_template_render(const struct ntx_template *t, const char *variables, size_t len,
                        const struct ntx_template_limits *limits, struct ntx_template_text *out, struct ntx_err *err);

/* Checks that text[0..len) is exactly one JSON object, so that it may be part of the variables. -EINVAL: it is not;
 * -ENOBUFS, -ECANCELED as above, with the default limits. */
int ntx_template_check_object(const char *text, size_t len, const atomic_bool *cancel, struct ntx_err *err);

/* Calls `each` with every name that the template reads like a variable (also its own loop variables and macros),
 * perhaps several times. */
void ntx_template_names(const struct ntx_template *t, void (*each)(void *arg, const char *p, size_t n), void *arg);

#endif
