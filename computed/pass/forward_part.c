/* SPDX-License-Identifier: Apache-2.0 */
/* forward_part.c: a pass over the layers that lie in memory, by which a model drafts for itself. It takes no turn of
 * the stream, so reads for the next pass go on. */
#include "computed/pass/forward_impl.h"
#include "model/state.h"

static bool shares_kv(const struct ntx_hparams *hp)
{
    for (uint32_t l = 0; l < hp->n_layers; l++)
        if (ntx_kv_place(hp, l) != l)
            return true;
    return false;
}

static bool pools_keys(const struct ntx_hparams *hp)
{
    bool any = hp->index.head != 0;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        any |= hp->pool[l] != 0;
    return any;
}

const char *ntx_forward_parts(const struct ntx_model *m)
{
    const struct ntx_hparams *hp = &m->hp;
    if (!ntx_keeps_rows_only(hp))
        return "its layers keep a recurrent state, which drafts would change";
    if (hp->n_expert)
        return "its experts do not all lie in memory";
    if (m->pack || m->delta.base)
        return "its layers share weights, or its FFNs are packed (ntx pack)";
    if (ntx_gguf_planes(m->gguf))
        return "its weights are split in high and low bits (ntx pack --planes), which draft instead";
    if (pools_keys(hp) || shares_kv(hp))
        return "its layers use keys of other layers, or pooled ones";
    if (hp->streams.n || hp->grams.layer || hp->by_state)
        return "its layers have more than one stream of states, or inputs of their own";
    return NULL;
}

int ntx_forward_run_part(struct ntx_forward *f, const struct ntx_batch *b, struct ntx_weights *w,
                         const uint64_t *without)
{
    struct ntx_weights *usual = f->c.weights;
    f->c.weights = w;
    f->without = without;
    int rc = ntx_forward_run(f, b);
    f->without = NULL;
    f->c.weights = usual;
    return rc;
}
