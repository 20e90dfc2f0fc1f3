/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c: the rows' first states: the embeddings of their tokens, or what an image has instead. Entries come from a
 * table in memory, from the output matrix where the table is that, or from the drive. */
#include "computed/pass/forward_impl.h"

#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/cpu/interleaved_row.h"
#include "model/planes.h"
#include "model/quant.h"

/* Entries m.ids of a table that is resident. */
static int copy_entries(struct ntx_forward *f, const struct ntx_weight *w, uint8_t *out)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < f->b->n_rows; i++) {
        const uint32_t id = (uint32_t)f->m.ids[i]; /* check_rows made sure that it exists */
        const void *bytes;
        if (!(rc = f->c.weights->ops->acquire(f->c.weights, w->chunk0 + id / w->chunk_outs, &bytes)))
            memcpy(out + (size_t)i * w->row_bytes, (const uint8_t *)bytes + (size_t)(id % w->chunk_outs) * w->row_bytes,
                   w->row_bytes);
    }
    return rc;
}

/* The output matrix, if the table is that, and it stays in memory and was multiplied before: until then it may be the
 * last to come. NULL: its entries are read. */
static const struct ntx_weight *tied_output(const struct ntx_forward *f, const struct ntx_weight *table)
{
    const struct ntx_weight *w = &f->c.chunks->output;
    if (w->tensor != table->tensor || w->dealt || !w->n_chunks || !f->c.weights->ops->stays || f->back->own_bytes)
        return NULL;
    for (uint32_t c = w->chunk0; c < w->chunk0 + w->n_chunks; c++)
        if (!ntx__finite_all(f, c) || !f->c.weights->ops->stays(f->c.weights, c))
            return NULL;
    return w;
}

/* Entry `id` of a matrix that may be interleaved. */
static int copy_output(struct ntx_forward *f, const struct ntx_weight *w, uint32_t id, uint8_t *to)
{
    const uint32_t chunk = w->chunk0 + id / w->chunk_outs, out = id % w->chunk_outs, of_slice = out % NTX_SLICE_OUTS,
                   first = out - of_slice;
    const void *bytes;
    int rc = f->c.weights->ops->acquire(f->c.weights, chunk, &bytes);
    if (rc)
        return rc;
    const uint8_t *slice = (const uint8_t *)bytes + (size_t)first * w->row_bytes;
    if (!ntx__is_interleaved(f, chunk, first, NTX_MIN(f->c.chunks->list[chunk].n_out - first, NTX_SLICE_OUTS)))
        memcpy(to, slice + (size_t)of_slice * w->row_bytes, w->row_bytes);
    else if (!ntx_cpu_interleaved_row(w->type, slice, w->row_bytes, of_slice, to))
        return -ENOTSUP;
    return 0;
}

/* -ENOTSUP: of this type, entries are not taken from the matrix. */
static int copy_outputs(struct ntx_forward *f, const struct ntx_weight *w, uint8_t *out)
{
    int rc = w ? 0 : -ENOTSUP;
    for (uint32_t i = 0; !rc && i < f->b->n_rows; i++)
        rc = copy_output(f, w, (uint32_t)f->m.ids[i], out + (size_t)i * w->row_bytes);
    return rc;
}

/* Entries m.ids of a table, as they are in the file. */
static int read_entries(struct ntx_forward *f, const struct ntx_weight *w, uint8_t *out)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(f->c.model->gguf, w->tensor);
    int rc = w->n_chunks ? copy_entries(f, w, out) : copy_outputs(f, tied_output(f, w), out);
    if (rc == -ENOTSUP)
        rc = f->c.weights->ops->entries(f->c.weights, t->file, t->offset, w->row_bytes, f->m.ids, f->b->n_rows, out);
    for (uint32_t i = 0; !rc && i < f->b->n_rows; i++)
        rc = ntx__finite_token(f, w, out + (size_t)i * w->row_bytes, f->m.ids[i]);
    return rc;
}

/* Entry i of those that were read: of low bits, it is joined with its high bits. */
static void dequant_entry(const struct ntx_forward *f, const struct ntx_weight *w, uint32_t i, float *out)
{
    const struct ntx_type_info *type = ntx_type_info(ntx_planes_low(w->type) ? ntx_planes_whole(w->type) : w->type);
    const uint8_t *entry = f->m.embd + (size_t)i * w->row_bytes;
    const size_t blocks = f->hp->n_embd / type->block;
    if (ntx_planes_low(w->type)) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(f->c.model->gguf, w->tensor);
        const uint8_t *high = f->c.high + t->high +
                              (uint64_t)(uint32_t)f->m.ids[i] * ntx_row_bytes(ntx_planes_of(w->type)->high, w->n_in);
        f->c.ops->join(w->type, high, entry, blocks, f->m.lanes[0].slice);
        entry = f->m.lanes[0].slice;
    }
    type->dequant(entry, out, blocks);
}

int ntx__embed_tokens(struct ntx_forward *f)
{
    const struct ntx_weight *w = &f->c.chunks->token_embd;
    const bool fuses = f->hp->head.fuses || f->hp->tower;
    const uint32_t at = fuses ? 0 : f->hp->n_embd;
    uint32_t width = fuses ? f->hp->head.n_taps * f->hp->head.width : f->hp->n_embd;
    if (f->hp->tower)
        width = ntx_tower_in(f->c.model);
    for (uint32_t i = 0; f->hp->by_state && !f->c.block && i < f->b->n_rows; i++)
        memcpy(f->m.normed + i * f->buf[NTX_BUF_NORMED].ld + at, f->b->rows[i].state, width * sizeof *f->m.normed);
    if (fuses)
        return 0;
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        f->m.ids[i] = f->b->rows[i].token;
    int rc = read_entries(f, w, f->m.embd);
    if (!rc && f->hp->n_input)
        rc = read_entries(f, &f->c.chunks->input_embd, f->m.input_embd);
    for (uint32_t i = 0; !rc && i < f->b->n_rows; i++)
        dequant_entry(f, w, i, f->m.h + (size_t)i * f->hp->n_embd);
    for (size_t k = 0; !rc && f->hp->embd_scale != 1 && k < (size_t)f->b->n_rows * f->hp->n_embd; k++)
        f->m.h[k] *= f->hp->embd_scale;
    for (uint32_t i = 0; !rc && i < f->b->n_rows; i++)
        if (f->b->rows[i].values)
            memcpy(f->m.h + (size_t)i * f->hp->n_embd, f->b->rows[i].values, f->hp->n_embd * sizeof *f->m.h);
    return rc;
}
