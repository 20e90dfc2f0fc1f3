/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_file_impl.h: what a kind of file that is read whole gives to the table of drafter_file.c. */
#ifndef NTX_COMPUTED_DRAFT_DRAFTER_FILE_IMPL_H
#define NTX_COMPUTED_DRAFT_DRAFTER_FILE_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "computed/draft/drafter_file.h"

struct ntx_drafter_file_ops {
    /* bytes [n] is the whole file, which becomes the guesser's with success; *self: what it made of it. vocab: a digest
     * of the model's vocabulary. */
    int (*open)(uint8_t *bytes, size_t n, uint32_t n_vocab, uint64_t vocab, void **self, struct ntx_err *err);
    uint32_t (*tree)(const void *self, const struct ntx_drafter_file_text *t, struct ntx_draft_node *out);
    void (*free)(void *self);
};
extern const struct ntx_drafter_file_ops ntx__draft_script, ntx__draft_index;

int ntx__drafter_file_kind(int fd, enum ntx_drafter_file_kind *kind, uint64_t *bytes,
                           struct ntx_err *err); /* bytes: the file's */
unsigned ntx__drafter_file_times(
    enum ntx_drafter_file_kind kind); /* so often its file's bytes, one takes that is no model */

/* A guess below `parent` of a tree of n; n is one more, or as before where there is no room. */
static inline uint32_t ntx__draft_node_add(struct ntx_draft_node *out, uint32_t n, uint32_t parent, int32_t token,
                                           float chance)
{
    if (n < NTX_DRAFTER_NODES)
        out[n++] = (struct ntx_draft_node){token, parent, chance};
    return n;
}

#endif
