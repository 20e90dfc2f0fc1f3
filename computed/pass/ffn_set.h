/* SPDX-License-Identifier: Apache-2.0 */
/* ffn_set.h: the groups of neurons that a session uses with --ffn-sparse prompt=F. While its prompt is read, each row
 * adds each group's activity (the energy of its hidden values, as a share of the row's in that layer; GRIFFIN, arXiv
 * 2404.01365, does so by neuron). Then the share F with the largest sums is selected, layer by layer, and stays until
 * the session reads its next prompt.
 *
 * Rows are added in the order of the text, one after the other, so the sums do not depend on the prompt's split into
 * passes. Owned by a session; engine thread only. */
#ifndef NTX_COMPUTED_PASS_FFN_SET_H
#define NTX_COMPUTED_PASS_FFN_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "model/arch.h"

struct ntx_ffn_set {
    const struct ntx_model *model;
    uint32_t stride;   /* groups of the layer with most */
    bool any, current; /* any: a row was added since it was made; current: `uses` is up to date */
    float *seen;       /* [n_layers x stride] */
    uint8_t *uses;     /* [n_layers x stride] 1: the group is used */
};

uint64_t ntx_ffn_set_bytes(const struct ntx_model *m);
struct ntx_ffn_set *ntx_ffn_set_new(const struct ntx_model *m); /* of a packed model; NULL: no memory */
void ntx_ffn_set_free(struct ntx_ffn_set *s);

/* Adds the energies [n_groups] of a row in a layer. */
void ntx_ffn_set_add(struct ntx_ffn_set *s, uint32_t layer, const float *energy);
void ntx_ffn_set_choose(struct ntx_ffn_set *s, float share);
/* [n_groups] of a layer, or NULL: all of them. */
static inline const uint8_t *ntx_ffn_set_uses(const struct ntx_ffn_set *s, uint32_t layer)
{
    return s && s->current && s->any ? s->uses + (uint64_t)layer * s->stride : NULL;
}
/* The number of groups in the share F of n. */
uint32_t ntx_ffn_share(float share, uint32_t n);

#endif
