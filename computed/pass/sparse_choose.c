/* SPDX-License-Identifier: Apache-2.0 */
/* sparse_choose.c: selects the neurons of a packed layer that rows use, by their own gates (--ffn-sparse threshold,
 * topk). */
#include <math.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"
#include "computed/sample/largest.h"

enum ntx_ffn_act ntx__packed_act(const struct ntx_forward *f, uint32_t layer)
{
    return (enum ntx_ffn_act)ntx_layer_find(&f->c.model->layers[layer], NTX_OP_GROUPS)->groups.hidden.act;
}

void ntx__magnitudes(const struct ntx_forward *f, const float *gate, float *m)
{
    uint32_t n = f->hp->n_ff;
    f->c.ops->glu[ntx__packed_act(f, f->groups.layer)](gate, f->m.groups.ones, n, m);
    for (uint32_t j = 0; j < n; j++)
        m[j] = m[j] == m[j] ? fabsf(m[j]) : INFINITY;
}

static uint32_t keep_above(float *gate, const float *m, uint32_t n, float threshold)
{
    uint32_t kept = 0;
    for (uint32_t j = 0; j < n; j++) {
        bool keep = m[j] > threshold;
        kept += keep;
        gate[j] = keep ? gate[j] : 0;
    }
    return kept;
}

static uint32_t keep_largest(float *gate, const float *m, float *scratch, uint32_t n, uint32_t k)
{
    struct ntx_cut cut = ntx_cut_at(m, scratch, n, k);
    for (uint32_t j = 0; j < n; j++)
        gate[j] = ntx_cut_keeps(&cut, m[j]) ? gate[j] : 0;
    return k;
}

static void choose_neurons(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    uint32_t n = f->hp->n_ff, kept;
    float *m = f->m.groups.scratch + (size_t)thread * 2 * n, *gate = f->groups.gate + i * f->ld_gate;
    ntx__magnitudes(f, gate, m);
    if (f->c.ffn.kind == NTX_FFN_TOPK)
        kept = keep_largest(gate, m, m + n, n, ntx_ffn_share(f->c.ffn.value, n));
    else
        kept = keep_above(gate, m, n, f->c.ffn.value);
    atomic_fetch_add_explicit(&f->groups.active, kept, memory_order_relaxed);
}

static void mark_group(struct ntx_forward *f, uint32_t g, unsigned thread)
{
    (void)thread;
    uint32_t each = f->c.chunks->layers[f->groups.layer].pack.group, first = g * each,
             end = NTX_MIN(first + each, f->hp->n_ff);
    bool used = false;
    for (uint32_t r = 0; r < f->n_live && !used; r++)
        for (uint32_t j = first; j < end; j++)
            used |= f->groups.gate[r * f->ld_gate + j] != 0;
    f->m.groups.used[g] = used;
}

uint32_t ntx__choose_groups(struct ntx_forward *f, uint32_t l, float *gate, uint32_t *list)
{
    uint32_t n = 0, all = f->c.chunks->layers[l].pack.n_groups;
    f->groups.layer = l;
    f->groups.gate = gate;
    atomic_store_explicit(&f->groups.active, 0, memory_order_relaxed);
    ntx__each(f, choose_neurons, f->n_live);
    ntx__each(f, mark_group, all);
    for (uint32_t g = 0; g < all; g++)
        if (f->m.groups.used[g])
            list[n++] = g;
    return n;
}
