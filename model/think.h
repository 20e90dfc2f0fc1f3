/* SPDX-License-Identifier: Apache-2.0 */
/* think.h: switches and limits of a model's thoughts (reasoning). A template has variables for them, if any: think.c
 * has the one table of the families and their variables. The rest needs no template: a thought that must not be, or
 * that has reached its limit, is closed by the format's own mark (model/reply/reply.h, ntx_reply_thought).
 *
 *   "on", "off", "auto", a level, a number of tokens; several with commas: "on,high,2048"
 *     --ntx_think_read--> struct ntx_think --ntx_think_variables--> {"enable_thinking":true,...} for the template */
#ifndef NTX_MODEL_THINK_H
#define NTX_MODEL_THINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define NTX_THINK_TEXT 48u /* bytes of a setting's text, with its NUL */

enum ntx_think_state { NTX_THINK_AUTO, NTX_THINK_OFF, NTX_THINK_ON }; /* AUTO: the template decides */
enum ntx_think_level {
    NTX_LEVEL_UNSAID,
    NTX_LEVEL_MINIMAL,
    NTX_LEVEL_LOW,
    NTX_LEVEL_MEDIUM,
    NTX_LEVEL_HIGH,
    NTX_LEVEL_XHIGH,
    NTX_LEVEL_MAX,
    NTX_N_LEVELS
};
extern const char *const ntx_level_names[NTX_N_LEVELS]; /* [0] is "none" */

struct ntx_think {
    enum ntx_think_state state;
    enum ntx_think_level level;
    bool limited;
    uint32_t budget; /* if limited: tokens of thoughts */
};

/* Reads a setting. "": nothing is set. A level or a number alone switches thoughts on; "none" and 0 switch them off,
 * -1 sets no limit. -EINVAL: err says what is possible, without the option's name. */
int ntx_think_read(const char *text, struct ntx_think *out, struct ntx_err *err);
/* The request's setting, completed by the model's default where it leaves something open. */
struct ntx_think ntx_think_or(struct ntx_think asked, struct ntx_think preset);

/* The abilities of a template. All zero: it has no variables, and knows no thoughts. */
struct ntx_think_facts {
    uint32_t rows;   /* bits of the table's rows whose variable it reads */
    uint16_t levels; /* bits of the levels (enum ntx_think_level; bit 0: none) that its text names */
    bool marks;      /* its text has the marks of a thought */
};
/* jinja: the template's text. reads: whether the template reads a variable of this name. */
struct ntx_think_facts ntx_think_facts(const char *jinja, size_t len, bool marks,
                                       bool (*reads)(void *arg, const char *name), void *arg);
bool ntx_think_thinks(const struct ntx_think_facts *f);     /* the model has thoughts at all */
bool ntx_think_switches(const struct ntx_think_facts *f);   /* a variable switches them */
uint16_t ntx_think_levels(const struct ntx_think_facts *f); /* bits of the levels that can be asked for */

/* Parts of a setting that this model has no use for. */
enum { NTX_LACKS_STATE = 1, NTX_LACKS_LEVEL = 2, NTX_LACKS_BUDGET = 4 };
unsigned ntx_think_lacks(const struct ntx_think_facts *f, const struct ntx_think *t);
/* The same in a sentence; "" if nothing is lacking. */
const char *ntx_think_note(const struct ntx_think_facts *f, const struct ntx_think *t);

#define NTX_THINK_VARIABLES 256u
/* The template's variables as a JSON object; "" if there is nothing to set. */
void ntx_think_variables(const struct ntx_think_facts *f, const struct ntx_think *t, char out[NTX_THINK_VARIABLES]);

#endif
