/* SPDX-License-Identifier: Apache-2.0 */
/* The other part of override.h: pairs become keys of a file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/gguf_part.h"
#include "model/override.h"

/* Turns a pair into a key of a file, with all its data in one block of memory. */
static struct ntx__gguf_given *given(const struct ntx_override *o, struct ntx_gguf_kv *kv)
{
    const size_t key = strlen(o->key), text = o->type == NTX_GGUF_STR ? o->str.n : 0;
    struct ntx__gguf_given *to = malloc(sizeof *to + key + text + 1);
    if (!to)
        return NULL;
    memcpy(to->text, o->key, key);
    memcpy(to->text + key, o->str.p, text);
    memcpy(to->value, &o->value, sizeof o->value);
    to->str = (struct ntx_str){to->text + key, text};
    *kv = (struct ntx_gguf_kv){.key = {to->text, key},
                               .type = o->type,
                               .count = 1,
                               .data = o->type == NTX_GGUF_STR ? NULL : to->value,
                               .strs = o->type == NTX_GGUF_STR ? &to->str : NULL};
    return to;
}

int ntx_gguf_override(struct ntx_gguf *g, const char *text, struct ntx_err *err)
{
    struct ntx_override o;
    struct ntx_gguf_kv kv;
    int rc;
    while ((rc = ntx_override_next(&text, &o, err)) > 0) {
        struct ntx__gguf_given *what = given(&o, &kv);
        if (!what)
            return ntx_err_set(err, -ENOMEM, "no memory for key '%s'", o.key);
        if ((rc = ntx__gguf_give(g, &kv, what, err)))
            return rc;
    }
    return rc;
}
