/* SPDX-License-Identifier: Apache-2.0 */
/* opened.h: opens models of the model maker; checks refusals and their texts. */
#ifndef NTX_TESTS_UNIT_MODEL_OPENED_H
#define NTX_TESTS_UNIT_MODEL_OPENED_H

#include <errno.h>
#include <math.h>

#include "model/arch.h"
#include "tests/unit/model/make.h"

struct opened {
    uint8_t *bytes;
    size_t n;
    struct ntx_gguf *g;
    struct ntx_model *m;
};
struct opened open_model(const struct mk_options *o);
struct opened open_with(const struct mk_options *o, void (*extra)(struct mk_file *f)); /* `extra` adds keys */
void close_model(struct opened *x);
const char *name_of(const struct opened *x, uint32_t tensor); /* "none": it has no such */

static inline enum ntx_rope_kind rope_of(const struct ntx_model *m)
{
    return (enum ntx_rope_kind)ntx_layer_find(m->layers, NTX_OP_ROPE)->rope.pairs;
}
static inline uint32_t window_of(const struct ntx_layer *l) { return ntx_layer_find(l, NTX_OP_ATTEND)->attend.window; }

/* The model must be refused with this text. finish: frees bytes that were changed by hand. */
void finish(uint8_t *p, size_t n, int rc, const char *text);
void refuse(const struct mk_options *o, const char *old, const char *new, int rc,
            const char *text); /* renames a key to one of equal length; NULL: unchanged */
void refuse_key(const struct mk_options *o, const char *key, uint32_t v, int rc,
                const char *text); /* changes the value of a key */
void refuse_with(const struct mk_options *o, void (*extra)(struct mk_file *f), int rc, const char *text);

/* make_options with six experts */
struct mk_options moe_options(const char *arch);

#endif
