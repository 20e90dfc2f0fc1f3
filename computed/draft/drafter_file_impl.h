/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_file_impl.h: operations of the kinds of files that are read whole, for the table of drafter_file.c. */
#ifndef NTX_COMPUTED_DRAFT_DRAFTER_FILE_IMPL_H
#define NTX_COMPUTED_DRAFT_DRAFTER_FILE_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "computed/draft/drafter_file.h"

struct ntx_drafter_file_ops {
    /* bytes [n] is the whole file; on success the drafter owns it. *self: the opened drafter. vocab: a digest of the
     * model's vocabulary. */
    int (*open)(uint8_t *bytes, size_t n, uint32_t n_vocab, uint64_t vocab, void **self, struct ntx_err *err);
    uint32_t (*tree)(const void *self, const struct ntx_drafter_file_text *t, struct ntx_draft_node *out);
    void (*free)(void *self);
};
extern const struct ntx_drafter_file_ops ntx__draft_script, ntx__draft_index;

/* bytes: size of the file. */
int ntx__drafter_file_kind(int fd, enum ntx_drafter_file_kind *kind, uint64_t *bytes, struct ntx_err *err);
/* Memory of an index or a script, in multiples of its file's size. */
unsigned ntx__drafter_file_times(enum ntx_drafter_file_kind kind);

/* Adds a node below `parent` to a tree of n nodes. Returns the new n, or the old one without room. */
static inline uint32_t ntx__draft_node_add(struct ntx_draft_node *out, uint32_t n, uint32_t parent, int32_t token,
                                           float chance)
{
    if (n < NTX_DRAFTER_NODES)
        out[n++] = (struct ntx_draft_node){token, parent, chance};
    return n;
}

#endif
