/* SPDX-License-Identifier: Apache-2.0 */
/* forward_finite.c: which weights have been checked (finite.h): chunks, and groups of neurons of packed layers. */
#include <errno.h>

#include "common/util.h"
#include "computed/pass/finite.h"
#include "computed/pass/forward_impl.h"

static bool group_finite(const struct ntx_pack_layer *p, const uint8_t *group, uint32_t n_embd)
{
    for (int part = 0; part < NTX_PACK_PARTS; part++)
        if (p->row_bytes[part] &&
            !ntx_blocks_finite(p->type[part], group + p->at[part],
                               (size_t)ntx_pack_rows(p, (enum ntx_pack_part)part, n_embd) * p->row_bytes[part]))
            return false;
    return true;
}

static bool added_finite(const struct ntx_pack_layer *p, const uint8_t *group, uint32_t n_embd)
{
    (void)n_embd;
    for (int part = NTX_PACK_UP; part <= NTX_PACK_DOWN; part++)
        if (ntx_pack_adds(p, (enum ntx_pack_part)part) &&
            !ntx_blocks_finite(p->added[part].type, group + p->added[part].at,
                               (size_t)p->group * p->added[part].row_bytes))
            return false;
    return true;
}

static int describe_not_finite(const struct ntx_gguf_tensor *t, const char *what, uint32_t at, struct ntx_err *err)
{
    return ntx_err_set(err, -EDOM,
                       "tensor '%s' holds a NaN or an infinity (%s %u): the file is damaged or was converted wrongly; "
                       "get it, or convert it, anew",
                       t->name, what, at);
}

int ntx_chunk_finite(const struct ntx_model *m, const struct ntx_chunks *k, uint32_t chunk, const void *bytes,
                     uint32_t out, uint32_t n, struct ntx_err *err)
{
    const struct ntx_chunk *c = &k->list[chunk];
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, c->tensor);
    const bool groups = t->type == NTX_I8;
    const struct ntx_layer_weights *w = &k->layers[groups ? c->layer : 0];
    bool (*const finite)(const struct ntx_pack_layer *, const uint8_t *,
                         uint32_t) = w->groups_added.tensor == c->tensor ? added_finite : group_finite;
    size_t row_bytes = c->bytes / c->n_out;
    const uint8_t *p = bytes;
    if (!groups && ntx_blocks_finite(t->type, p, n * row_bytes))
        return 0;
    for (uint32_t i = 0; i < n; i++, p += row_bytes)
        if (groups ? !finite(&w->pack, p, m->hp.n_embd) : !ntx_blocks_finite(t->type, p, row_bytes))
            return describe_not_finite(t, groups ? "group" : "row", c->out0 + out + i, err);
    return 0;
}

/* Keeps the first error of a pass; its reader has waited for all threads. */
static int keep_error(struct ntx_forward *f, const struct ntx_err *err)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&f->failed, &none, -EDOM))
        f->error = *err;
    return -EDOM;
}

static int check_outputs(struct ntx_forward *f, uint8_t *seen, uint32_t chunk, const void *bytes, uint32_t out,
                         uint32_t n)
{
    struct ntx_err err;
    return !*seen && ntx_chunk_finite(f->c.model, f->c.chunks, chunk, bytes, out, n, &err) ? keep_error(f, &err) : 0;
}

/* Slices may have been checked, and then interleaved, in a pass that failed: their scales have moved. */
bool ntx__is_interleaved(const struct ntx_forward *f, uint32_t chunk, uint32_t out, uint32_t n)
{
    const struct ntx_chunk *c = &f->c.chunks->list[chunk];
    enum ntx_act form = ntx_act_for(ntx_gguf_tensor_at(f->c.model->gguf, c->tensor)->type);
    return !c->fixed && form != NTX_ACT_F32 && n == NTX_SLICE_OUTS &&
           f->m.interleaved[f->m.first_slice[chunk] + out / NTX_SLICE_OUTS];
}

int ntx__finite_outs(struct ntx_forward *f, uint32_t chunk, const void *bytes, uint32_t out, uint32_t n)
{
    uint8_t *seen = &f->m.finite[f->m.first_finite[chunk]];
    size_t row_bytes = f->c.chunks->list[chunk].bytes / f->c.chunks->list[chunk].n_out;
    int rc = 0;
    for (uint32_t i = 0, k; !*seen && !rc && i < n; i += k) {
        k = NTX_MIN(n - i, (uint32_t)NTX_SLICE_OUTS);
        if (!ntx__is_interleaved(f, chunk, out + i, k))
            rc = check_outputs(f, seen, chunk, (const uint8_t *)bytes + i * row_bytes, out + i, k);
    }
    return rc;
}

bool ntx__finite_all(const struct ntx_forward *f, uint32_t chunk) { return f->m.finite[f->m.first_finite[chunk]]; }

void ntx__finite_done(struct ntx_forward *f, uint32_t chunk) { f->m.finite[f->m.first_finite[chunk]] = 1; }

int ntx__finite_group(struct ntx_forward *f, uint32_t chunk, const void *bytes, uint32_t group)
{
    uint8_t *seen = &f->m.finite[f->m.first_finite[chunk] + group];
    int rc = check_outputs(f, seen, chunk, bytes, group, 1);
    *seen = !rc;
    return rc;
}

int ntx__finite_token(struct ntx_forward *f, const struct ntx_weight *w, const void *entry, int32_t token)
{
    struct ntx_err err;
    if (ntx_blocks_finite(w->type, entry, w->row_bytes))
        return 0;
    describe_not_finite(ntx_gguf_tensor_at(f->c.model->gguf, w->tensor), "row", (uint32_t)token, &err);
    return keep_error(f, &err);
}

const struct ntx_err *ntx_forward_error(const struct ntx_forward *f) { return &f->error; }
