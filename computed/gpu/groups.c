/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c: groups of a packed layer's neurons (sparse.c) on a device.
 *
 *   lists uploaded -> groups in device memory, or copied there: up (and gate, if the groups contain it) -> hidden
 *     values -> their columns are added to y
 *
 * Either all groups of a layer are on the device or none, so the sum runs over the neurons in one order. Groups on the
 * host or the drive are computed by the CPU for few rows, and copied when there are as many rows as the cost model
 * says. */
#include <string.h>

#include "computed/gpu/device_impl.h"

static const struct ntx_layer_weights *layer_weights(const struct ntx_forward *f)
{
    return &f->c.chunks->layers[f->layer];
}

static bool on_device(const struct ntx_device *d, uint32_t l)
{
    return d->at[d->c.chunks->layers[l].groups.chunk0] != NULL;
}

/* ---- groups on the device */

static const void *part_of(const void *groups, const struct ntx_pack_layer *p, enum ntx_pack_part part)
{
    return (const uint8_t *)groups + p->at[part];
}

static int multiply_part(struct ntx_device *d, const void *w, const struct ntx_gpu_groups *g, enum ntx_pack_part part,
                         enum ntx_buf to)
{
    const struct ntx_pack_layer *p = &layer_weights(d->f)->pack;
    enum ntx_act form = ntx_act_for(p->type[part]);
    const struct ntx_gpu_product k = {
        .w = part_of(w, p, part),
        .x = form == NTX_ACT_F32 ? (const void *)d->m.buf[NTX_BUF_X] : d->m.quantized[NTX__OF_LAYER][form],
        .y = d->m.buf[to],
        .groups = *g,
        .row_bytes = p->row_bytes[part],
        .x_stride = ntx__stride(d->f, NTX_BUF_X, form, d->hp->n_embd),
        .ldy = d->f->buf[to].ld,
        .type = p->type[part],
        .n_out = g->n * g->size,
        .n_in = d->hp->n_embd,
        .n_rows = d->f->n_live,
    };
    return ntx__device_go(d, NTX_GPU_PRODUCT, &k, "groups of neurons");
}

/* Computes n groups from `first` on, or those of `list`. w: device address of group `first`. */
static int compute_groups(struct ntx_device *d, const void *w, const uint32_t *list, uint32_t first, uint32_t n)
{
    const struct ntx_forward *f = d->f;
    const struct ntx_pack_layer *p = &layer_weights(f)->pack;
    const struct ntx_gpu_groups g = {
        .list = list, .bytes = p->group_bytes, .first = first, .n = n, .size = p->group, .n_neurons = d->hp->n_ff};
    const struct ntx_gpu_hidden hidden = {
        .gate = d->m.buf[NTX_BUF_GATE],
        .up = d->m.buf[NTX_BUF_UP],
        .uses = d->masked ? d->m.uses : NULL,
        .groups = g,
        .ld_gate = f->ld_gate,
        .ld_up = f->buf[NTX_BUF_UP].ld,
        .ld_uses = p->n_groups,
        .n_rows = f->n_live,
        .act = ntx__packed_act(f, f->layer),
    };
    const struct ntx_gpu_columns columns = {
        .w = part_of(w, p, NTX_PACK_DOWN),
        .hidden = d->m.buf[NTX_BUF_GATE],
        .y = d->m.buf[NTX_BUF_Y],
        .groups = g,
        .row_bytes = p->row_bytes[NTX_PACK_DOWN],
        .ld_hidden = f->ld_gate,
        .ld_y = d->hp->n_embd,
        .type = p->type[NTX_PACK_DOWN],
        .n = d->hp->n_embd,
        .n_rows = f->n_live,
    };
    int rc = ntx_pack_has_gate(p) ? multiply_part(d, w, &g, NTX_PACK_GATE, NTX_BUF_GATE) : 0;
    if (rc || (rc = multiply_part(d, w, &g, NTX_PACK_UP, NTX_BUF_UP)) ||
        (rc = ntx__device_go(d, NTX_GPU_HIDDEN, &hidden, "hidden values")))
        return rc;
    return ntx__device_go(d, NTX_GPU_COLUMNS, &columns, "columns");
}

/* Copies one chunk to a stage and computes all its groups, or wanted[i .. i + n). */
static int compute_chunk(struct ntx_device *d, uint32_t chunk, const uint32_t *wanted, uint32_t i, uint32_t n)
{
    const struct ntx_chunk *c = &d->c.chunks->list[chunk];
    const struct ntx__device_part part = {
        .list = wanted ? wanted + i : NULL, .n = n, .each = layer_weights(d->f)->pack.group_bytes};
    struct ntx__stage *s;
    int rc = ntx__device_bring(d, chunk, &part, &s);
    if (!rc)
        rc = compute_groups(d, s->bytes, wanted ? d->m.groups + i : NULL, c->out0, wanted ? n : c->n_out);
    return rc ? rc : ntx__device_used(d, s);
}

/* wanted: n groups, the same as in d->m.groups; NULL: all groups. */
static int compute_all(struct ntx_device *d, const uint32_t *wanted, uint32_t n)
{
    const struct ntx_weight *w = &layer_weights(d->f)->groups;
    const struct ntx_chunk *list = d->c.chunks->list;
    int rc = ntx__turn(d->f, w->chunk0, w->n_chunks);
    if (rc)
        return rc;
    if ((rc = ntx__device_zero(d, d->m.buf[NTX_BUF_Y], (uint64_t)d->f->n_live * d->hp->n_embd * sizeof(float))))
        return ntx__device_fail(d, rc, "the FFN's sum");
    if (wanted && !n)
        return 0;
    if (on_device(d, d->f->layer))
        return compute_groups(d, d->at[w->chunk0], wanted ? d->m.groups : NULL, 0, wanted ? n : w->n_out);
    for (uint32_t c = w->chunk0, i = 0; !rc && c < w->chunk0 + w->n_chunks; c++) {
        uint32_t first = i;
        while (wanted && i < n && wanted[i] < list[c].out0 + list[c].n_out)
            i++;
        if (!wanted || i > first)
            rc = compute_chunk(d, c, wanted, first, i - first);
    }
    return rc;
}

/* ---- groups that rows use */

/* Writes which live row uses which group. Returns false if no row has such a list. */
static bool write_uses(struct ntx_device *d)
{
    struct ntx_forward *f = d->f;
    uint32_t n = layer_weights(f)->pack.n_groups;
    bool some = false;
    for (uint32_t i = 0; i < f->n_live; i++) {
        const uint8_t *uses = ntx__groups_of(f, f->m.live[i], f->layer);
        some |= uses != NULL;
        if (uses)
            memcpy(d->host.uses + (size_t)i * n, uses, n);
        else
            memset(d->host.uses + (size_t)i * n, 1, n);
    }
    return some;
}

/* Waits until the lists of the layer before are copied, and writes and sends this layer's. */
static int send_lists(struct ntx_device *d, uint32_t n)
{
    struct ntx_forward *f = d->f;
    int rc = d->ops->event_sync(d->lists);
    if (rc)
        return rc;
    memcpy(d->host.groups, f->m.groups.wanted, n * sizeof *d->host.groups);
    if (n && (rc = d->ops->upload(ntx__queue(d), d->m.groups, d->host.groups, n * sizeof *d->host.groups)))
        return rc;
    d->masked = ntx_ffn_mode_groups(&f->c.ffn) && write_uses(d);
    if (d->masked)
        rc = d->ops->upload(ntx__queue(d), d->m.uses, d->host.uses,
                            (uint64_t)f->n_live * layer_weights(f)->pack.n_groups);
    else if (!ntx_ffn_mode_groups(&f->c.ffn)) /* gates that rows do not use were set to 0 */
        rc = d->ops->upload(ntx__queue(d), d->m.buf[NTX_BUF_GATE], f->m.gate, f->n_live * f->ld_gate * sizeof(float));
    return rc ? rc : d->ops->event_record(d->lists, ntx__queue(d));
}

int ntx__device_groups(struct ntx_forward *f, bool all, uint32_t n)
{
    struct ntx_device *d = f->c.device;
    d->masked = false;
    if (all)
        return compute_all(d, NULL, 0);
    int rc = send_lists(d, n);
    return rc ? ntx__device_fail(d, rc, "groups of neurons") : compute_all(d, f->m.groups.wanted, n);
}

bool ntx__device_leaves_groups(const struct ntx_forward *f)
{
    const struct ntx_device *d = f->c.device;
    const struct ntx_pack_layer *p = &layer_weights(f)->pack;
    /* the plug-in has no product for rows of groups */
    if (p->down_rows)
        return true;
    return !on_device(d, f->layer) && d->share.of[p->type[NTX_PACK_UP]][NTX_MIN(f->n_live, NTX_SHARE_ROWS)] < 32;
}
