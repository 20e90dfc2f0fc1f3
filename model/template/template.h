/* SPDX-License-Identifier: Apache-2.0 */
/* template.h: chat templates, executed. A small interpreter of the Jinja that models' templates are written in, which
 * renders them as transformers' apply_chat_template does (trim_blocks, lstrip_blocks, loop controls, its own tojson,
 * raise_exception, strftime_now).
 *
 *      template text --parse--> struct ntx_template --render(variables as JSON, limits)--> text, and for each byte
 *        whose it is
 *
 * There are: print, if, for (with if, else, recursive, break, continue), set (also blocks, and fields of a namespace),
 * macro, call, filter, with, raw, generation; all operators; the filters, tests and methods of tables in filters.c,
 * tests.c and methods.c; range, dict, namespace, raise_exception, strftime_now. Not there: blocks, include, import,
 * extends. Where transformers' sandbox refuses append, pop, insert, extend and update, they work here on what the
 * template made or was given: templates are written that use them.
 *
 * Whose bytes: each byte of a string knows whether the template or people wrote it, and keeps that through every
 * operation; people's text can so be kept from being read as special tokens, whatever the template does with it. In the
 * variables, strings are people's, but for bos_token and eos_token and the roles of messages (of letters, digits, '-'
 * and '_'). A message's reasoning, be it called reasoning_content, thinking or reasoning, is there under the first two
 * names, as transformers has it.
 *
 * A template is a stranger's: it sees its variables and nothing else, takes no more than the limits allow, and fails
 * with one line that names the line of the template. A parsed template is immutable; any thread may render it. */
#ifndef NTX_MODEL_TEMPLATE_TEMPLATE_H
#define NTX_MODEL_TEMPLATE_TEMPLATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct ntx_template;

/* text[0..len) is copied. -EINVAL: it does not parse; -EFBIG: more than 1 MiB; -ENOMEM. */
int ntx_template_parse(const char *text, size_t len, struct ntx_template **out, struct ntx_err *err);
void ntx_template_free(struct ntx_template *t);

struct ntx_template_limits {
    size_t memory;  /* bytes, for all that a rendering makes; 0: 256 MiB */
    size_t output;  /* bytes; 0: 64 MiB */
    uint64_t steps; /* about one per operation, and one per 64 bytes that are moved; 0: 50 million, a second or two */
    int64_t now;    /* what strftime_now sees, in seconds since 1970, shown as local time */
    const atomic_bool *cancel; /* once true: -ECANCELED soon. NULL: never */
};

struct ntx_template_text {
    char *text;      /* malloc'd, [len] and a NUL */
    uint8_t *people; /* [len], 1: a byte of people's; within the same allocation */
    size_t len;
};

/* variables[0..len): a JSON object. limits NULL: the defaults. On success the caller frees out->text. -EINVAL: the
 * variables are no JSON object, or the template failed (raise_exception, something undefined was used, ...); -ENOBUFS:
 * more memory, output, steps or depth than the limits; -ECANCELED; -ENOMEM. */
int ntx_template_render(const struct ntx_template *t, const char *variables, size_t len,
                        const struct ntx_template_limits *limits, struct ntx_template_text *out, struct ntx_err *err);

/* Whether text[0..len) is a JSON object and nothing else, so that it may be put into the variables: -EINVAL where it is
 * not; -ENOBUFS, -ECANCELED as above, of the limits that are given by 0 there. */
int ntx_template_check_object(const char *text, size_t len, const atomic_bool *cancel, struct ntx_err *err);

/* Calls each with every name that the template reads where a variable may stand (its own loops' and macros' too),
 * perhaps several times. */
void ntx_template_names(const struct ntx_template *t, void (*each)(void *arg, const char *p, size_t n), void *arg);

#endif
