/* SPDX-License-Identifier: Apache-2.0 */
/* impl.h: shared by the files of this folder: reply.c has formats and marks, calls.c the contents of calls, scan.c
 * JSON and XML. */
#ifndef NTX_MODEL_REPLY_IMPL_H
#define NTX_MODEL_REPLY_IMPL_H

#include "model/reply/reply.h"

struct span {
    const char *p;
    size_t n;
};

struct bytes { /* failed: no memory; nothing is added after that */
    char *p;
    size_t n, room;
    bool failed;
};
void ntx__reply_add(struct bytes *b, const char *p, size_t n);
void ntx__reply_add_text(struct bytes *b, const char *text);
void ntx__reply_add_string(struct bytes *b, struct span s); /* as a JSON string */

/* ---- scan.c */
struct span ntx__reply_trim(struct span s);
bool ntx__reply_value(struct span *s, struct span *value); /* takes the JSON value at the start of s */
bool ntx__reply_member(struct span object, const char *key, struct span *value);
bool ntx__reply_begun(struct span object, const char *key,
                      struct span *value); /* the same for an object that may end too early: the part that exists */
bool ntx__reply_text(struct span value, struct span *text); /* the contents of a JSON string without escapes */
bool ntx__reply_until(struct span *s, const char *mark, struct span *before); /* moves s behind the mark */

/* ---- calls.c: parse the text between the marks of a call. false: it cannot be parsed. part() is called for each
 * call; *rc: its result. */
struct calls {
    const struct ntx_reply_options *options;
    struct span body;
    bool cut;  /* the reply ended inside the call: the known part is passed on */
    bool bare; /* without marks: only offered tools, with their arguments, are calls */
    int rc;
};
bool ntx__calls_hermes(struct calls *c);
bool ntx__calls_coder(struct calls *c);
bool ntx__calls_glm(struct calls *c);
bool ntx__calls_deepseek(struct calls *c);
bool ntx__calls_kimi(struct calls *c);
bool ntx__calls_minimax(struct calls *c);
bool ntx__calls_minimax3(struct calls *c);
bool ntx__calls_hy3(struct calls *c);
bool ntx__calls_dsml(struct calls *c);
bool ntx__calls_mistral(struct calls *c);
bool ntx__calls_llama(struct calls *c);
bool ntx__calls_harmony(struct calls *c, struct span head);

bool ntx__calls_python(struct calls *c); /* python.c */
bool ntx__calls_apertus(struct calls *c);
/* Passes on one call without an id; failed: there was no memory for its arguments. */
bool ntx__reply_hand_out(struct calls *c, struct span name, struct span arguments, bool failed);

bool ntx__calls_bare(struct calls *c, bool only_look);

/* ---- bare.c: calls without marks, inside text */
struct bare {
    size_t seen;       /* bytes of the held text that have been looked at */
    size_t tried;      /* so many bytes behind did not decide whether calls begin there */
    bool line, fenced; /* there: only white space since a line began; inside of another fence */
};
enum bare_is { BARE_TEXT, BARE_MAYBE, BARE_CALLS };
/* Looks for calls in the held text. BARE_TEXT: it has none. BARE_MAYBE: at *from, calls may begin; more text, or the
 * end, decides. BARE_CALLS: calls are at *from .. *to, and c->body is their JSON. ended: no more text follows. */
enum bare_is ntx__reply_bare(struct bare *b, const struct bytes *held, struct calls *c, bool ended, size_t *from,
                             size_t *to);

#endif
