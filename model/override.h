/* SPDX-License-Identifier: Apache-2.0 */
/* override.h: keys of a file that are wrong or missing, as the user gives them (--override-kv).
 *
 *   KEY=TYPE:VALUE[,KEY=TYPE:VALUE...]      TYPE: int, float, bool (true or false) or str
 *
 * A text may contain commas: a comma ends a pair only if KEY=TYPE: follows it. */
#ifndef NTX_MODEL_OVERRIDE_H
#define NTX_MODEL_OVERRIDE_H

#include "common/err.h"
#include "model/gguf.h"

#define NTX_OVERRIDE_KEY 128 /* bytes of a key, with the final 0 */

struct ntx_override {
    char key[NTX_OVERRIDE_KEY];
    enum ntx_gguf_vtype type; /* I64, F64, BOOL or STR */
    union {
        int64_t i;
        double f;
        uint8_t b;
    } value;
    struct ntx_str str; /* points into the parsed text */
};

/* Parses the next pair and moves *text behind it. 1; 0: the text is at its end; -EINVAL, with a text: the next
 * characters are not a pair. */
int ntx_override_next(const char **text, struct ntx_override *out, struct ntx_err *err);

/* Sets all pairs of text (NULL, "": none) in g: an existing key gets the value, a new key is added, and the last of
 * equal keys counts. Call this before other threads have g. */
int ntx_gguf_override(struct ntx_gguf *g, const char *text, struct ntx_err *err);

#endif
