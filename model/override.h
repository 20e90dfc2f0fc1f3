/* SPDX-License-Identifier: Apache-2.0 */
/* override.h: keys of a file that are wrong or missing, as somebody who knows better gives them (--override-kv).
 *
 *   KEY=TYPE:VALUE[,KEY=TYPE:VALUE...]      TYPE: int, float, bool (true or false) or str
 *
 * A text may have commas: one begins a new pair only where KEY=TYPE: stands behind it. */
#ifndef NTX_MODEL_OVERRIDE_H
#define NTX_MODEL_OVERRIDE_H

#include "common/err.h"
#include "model/gguf.h"

#define NTX_OVERRIDE_KEY 128 /* bytes of a key, with its end */

struct ntx_override {
    char key[NTX_OVERRIDE_KEY];
    enum ntx_gguf_vtype type; /* I64, F64, BOOL or STR */
    union {
        int64_t i;
        double f;
        uint8_t b;
    } value;
    struct ntx_str str; /* inside the text that was read */
};

/* The next pair of *text, which goes on behind it: 1; 0: there is none; -EINVAL with words: what stands there is none.
 */
int ntx_override_next(const char **text, struct ntx_override *out, struct ntx_err *err);

/* All pairs of text (NULL, "": none) into g: a key that it has gets the value, one that it has not is added, and of the
 * same key twice the last counts. Before anybody else has g. */
int ntx_gguf_override(struct ntx_gguf *g, const char *text, struct ntx_err *err);

#endif
