/* SPDX-License-Identifier: Apache-2.0 */
/* impl.h: what the files of the room share: reply.c the formats and the marks, calls.c the insides of calls, scan.c
 * JSON and XML. */
#ifndef NTX_MODEL_REPLY_IMPL_H
#define NTX_MODEL_REPLY_IMPL_H

#include "model/reply/reply.h"

struct span {
    const char *p;
    size_t n;
};

struct bytes { /* failed: there was no memory, and nothing more was added */
    char *p;
    size_t n, room;
    bool failed;
};
void ntx__reply_add(struct bytes *b, const char *p, size_t n);
void ntx__reply_add_text(struct bytes *b, const char *text);
void ntx__reply_add_string(struct bytes *b, struct span s); /* as JSON */

/* ---- scan.c */
struct span ntx__reply_trim(struct span s);
bool ntx__reply_value(struct span *s,
                      struct span *value); /* the JSON value at the beginning of s, which is left out of s */
bool ntx__reply_member(struct span object, const char *key, struct span *value);
bool ntx__reply_begun(struct span object, const char *key,
                      struct span *value); /* of an object that may end too early: as much as there is of it */
bool ntx__reply_text(struct span value, struct span *text); /* a JSON string without escapes: what is in the quotes */
bool ntx__reply_until(struct span *s, const char *mark, struct span *before); /* s goes on behind the mark */

/* ---- calls.c: what is between the marks of a call; false: it cannot be read. part() is called for each of them; *rc:
 * what it answered. */
struct calls {
    const struct ntx_reply_ask *ask;
    struct span body;
    bool cut; /* the reply ended within it: what is there is handed out */
    int rc;
};
bool ntx__calls_hermes(struct calls *c);
bool ntx__calls_coder(struct calls *c);
bool ntx__calls_glm(struct calls *c);
bool ntx__calls_deepseek(struct calls *c);
bool ntx__calls_kimi(struct calls *c);
bool ntx__calls_minimax(struct calls *c);
bool ntx__calls_dsml(struct calls *c);
bool ntx__calls_mistral(struct calls *c);
bool ntx__calls_llama(struct calls *c);
bool ntx__calls_harmony(struct calls *c, struct span head);

#endif
