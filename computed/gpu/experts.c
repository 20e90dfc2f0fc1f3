/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c: experts on a device: routing, gathered rows, products, and their sum.
 *
 *   all of a layer's experts on the device   router logits -> ROUTE: the routed rows never leave the device
 *     few rows                               each routed row reads its expert's matrices, even where another row has
 *                                            the same expert: most rows have different ones
 *     more                                   -> SORT by expert, then wave by wave, as many routed rows as the buffers
 *                                            hold: rows gathered, tiles of one expert's rows by its matrices, the sum
 *   else                                     the host selects experts from the router's logits and sends lists; one
 *                                            product per expert (mm.c)
 *
 * In both cases one launch multiplies all resident gates and ups, and one all downs. */
#include "common/util.h"
#include "computed/gpu/device_impl.h"

static const float *layer_vector(const struct ntx_device *d, enum ntx_tensor t)
{
    return ntx__device_vector(d, &ntx__device_layer(d)->of[t]);
}

/* ---- experts that the host selects */

/* m may be overwritten: the lists of the layer before were uploaded before its router's logits were downloaded. */
int ntx__device_routed(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx__moe_mem *m = &f->m.moe;
    uint64_t bytes = (uint64_t)f->n_live * d->hp->n_expert_used * 4;
    int rc;
    if ((rc = d->ops->upload(ntx__queue(d), d->m.moe.row, m->row, bytes)) ||
        (rc = d->ops->upload(ntx__queue(d), d->m.moe.place, m->place, bytes)) ||
        (rc = d->ops->upload(ntx__queue(d), d->m.moe.weight, m->weight, bytes)))
        return ntx__device_fail(d, rc, "the choice of experts");
    if (ntx__device_layer(d)->expert_bias[NTX_EXPERT_DOWN].tensor == NTX_NO_TENSOR) /* nothing else reads the list */
        return 0;
    rc = d->ops->upload(ntx__queue(d), d->m.moe.expert, m->expert, bytes);
    return rc ? ntx__device_fail(d, rc, "whose choices they are") : 0;
}

static int gather_form(struct ntx_device *d, enum ntx_act form, const void *from, void *to)
{
    uint64_t stride = ntx__stride(d->f, NTX_BUF_X, form, d->hp->n_embd);
    const struct ntx_gpu_gather g = {.from = from,
                                     .to = to,
                                     .rows = d->m.moe.row + d->f->moe.first,
                                     .from_stride = stride,
                                     .to_stride = stride,
                                     .bytes = stride,
                                     .n_rows = d->f->moe.n};
    return ntx__device_go(d, NTX_GPU_GATHER, &g, "gathering rows");
}

/* Rows times the weights of their experts, in the forms that the matrices need. */
static int gather_weighed(struct ntx_device *d, uint32_t forms)
{
    const uint64_t stride = ntx__stride(d->f, NTX_BUF_X, NTX_ACT_F32, d->hp->n_embd);
    const struct ntx_gpu_gather g = {.from = d->m.buf[NTX_BUF_X],
                                     .to = d->m.buf[NTX__BUF_ROUTED_X],
                                     .rows = d->m.moe.row + d->f->moe.first,
                                     .weight = d->m.moe.weight,
                                     .place = d->m.moe.place,
                                     .from_stride = stride,
                                     .to_stride = stride,
                                     .bytes = d->hp->n_embd * sizeof(float),
                                     .n_rows = d->f->moe.n,
                                     .used = d->hp->n_expert_used,
                                     .first = d->f->moe.first};
    int rc = ntx__device_go(d, NTX_GPU_GATHER, &g, "gathering rows");
    return rc ? rc
              : ntx__device_glu(d->f, &(struct ntx__glu){.gate = NTX__BUF_ROUTED_X,
                                                         .set = NTX__OF_ROUTED,
                                                         .n = d->hp->n_embd,
                                                         .n_rows = d->f->moe.n,
                                                         .forms = forms});
}

int ntx__device_gather(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_weight *const in[] = {&ntx__device_layer(d)->expert[NTX_EXPERT_GATE],
                                           &ntx__device_layer(d)->expert[NTX_EXPERT_UP]};
    uint32_t forms = ntx__forms(in, 2);
    if (ntx__weighs_input(f))
        return gather_weighed(d, forms);
    if (f->moe.by_back && !d->tile_rows) /* products read the rows in place */
        return 0;
    int rc = forms >> NTX_ACT_F32 & 1 ? gather_form(d, NTX_ACT_F32, d->m.buf[NTX_BUF_X], d->m.buf[NTX__BUF_ROUTED_X])
                                      : 0;
    for (int form = NTX_ACT_F32 + 1; !rc && form < NTX_N_ACTS; form++)
        if (forms >> form & 1)
            rc = gather_form(d, (enum ntx_act)form, d->m.quantized[NTX__OF_LAYER][form],
                             d->m.quantized[NTX__OF_ROUTED][form]);
    return rc;
}

int ntx__device_combine(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_gpu_combine g = {
        .y = d->m.buf[NTX_BUF_Y],
        .z = d->m.buf[NTX__BUF_ROUTED_Y],
        .gate = f->moe.weigh ? d->m.buf[NTX__BUF_SHARED] : NULL,
        .weight = ntx__weighs_input(f) ? NULL : d->m.moe.weight,
        .place = d->m.moe.place,
        .bias = ntx__device_vector(d, &ntx__device_layer(d)->expert_bias[NTX_EXPERT_DOWN]),
        .expert = d->m.moe.expert,
        .ld_y = d->hp->n_embd,
        .used = d->hp->n_expert_used,
        .first = f->moe.first,
        .n_choices = f->moe.n,
        .n = d->hp->n_embd,
        .n_rows = f->n_live,
    };
    return ntx__device_go(d, NTX_GPU_COMBINE, &g, "experts' sum");
}

int ntx__device_clear(struct ntx_forward *f, enum ntx_buf b)
{
    struct ntx_device *d = f->c.device;
    int rc = ntx__device_zero(d, d->m.buf[b], f->n_live * f->buf[b].ld * sizeof(float));
    return rc ? ntx__device_fail(d, rc, "experts' sum") : 0;
}

/* ---- experts that the device selects */

/* The stride of the layer's experts in device memory; 0: it is not the same for all. */
static uint64_t expert_stride(const struct ntx_device *d, const struct ntx_layer_weights *w)
{
    const uint64_t bytes = d->c.chunks->n_expert > 1 ? (uint64_t)(d->at[ntx_expert_chunk(w, 1, NTX_EXPERT_GATE)] -
                                                                  d->at[ntx_expert_chunk(w, 0, NTX_EXPERT_GATE)])
                                                     : 1;
    for (int part = 0; part < NTX_EXPERT_PARTS; part++)
        for (uint32_t e = 0; e < d->c.chunks->n_expert; e++)
            if (d->at[ntx_expert_chunk(w, e, (enum ntx_expert_part)part)] !=
                d->at[ntx_expert_chunk(w, 0, (enum ntx_expert_part)part)] + e * bytes)
                return 0;
    return bytes;
}

void ntx__device_find_experts(struct ntx_device *d)
{
    for (uint32_t l = 0; l < d->hp->n_layers; l++) {
        const struct ntx_layer_weights *w = &d->c.chunks->layers[l];
        bool here = w->router.tensor != NTX_NO_TENSOR && w->token_experts.tensor == NTX_NO_TENSOR &&
                    d->hp->n_expert <= NTX_GPU_EXPERTS && d->hp->n_expert_used <= NTX_GPU_EXPERTS_USED;
        for (int part = 0; part < NTX_EXPERT_PARTS && here; part++) {
            here = w->expert[part].n_chunks == 1 && !w->expert[part].scaled && !w->expert[part].dealt;
            for (uint32_t e = 0; e < d->hp->n_expert && here; e++)
                here = d->at[ntx_expert_chunk(w, e, (enum ntx_expert_part)part)] != NULL;
        }
        d->expert_bytes[l] = here ? expert_stride(d, w) : 0;
    }
}

bool ntx__device_routes(const struct ntx_forward *f)
{
    const struct ntx_device *d = f->c.device;
    return d->expert_bytes[f->layer] != 0;
}

/* Rows of a tile, by the average number of an expert's rows. Kernels take 1, 2, 4 or 8 rows, and more of integers. 0:
 * each routed row is multiplied by itself. */
static uint32_t tile_rows(const struct ntx_device *d)
{
    const uint32_t n = d->f->n_live * d->hp->n_expert_used, experts = d->hp->n_expert;
    bool floats = false;
    for (int part = 0; part < NTX_EXPERT_PARTS; part++)
        floats |= ntx_act_for(ntx__device_layer(d)->expert[part].type) == NTX_ACT_F32;
    if (n <= d->choices && (d->f->n_live == 1 || 2 * n <= experts))
        return 0;
    if (n <= experts)
        return 2;
    if (n <= 2 * experts)
        return 4;
    return floats ? NTX_GPU_ROWS : NTX_GPU_MANY;
}

static uint32_t tiles_of_wave(const struct ntx_device *d)
{
    return NTX_GPU_TILES(d->choices, d->hp->n_expert, d->tile_rows);
}

static int sort_by_expert(struct ntx_device *d)
{
    const struct ntx_gpu_sort g = {
        .selected = d->m.moe.routed,
        .place = d->m.moe.place,
        .row = d->m.moe.row,
        .expert = d->m.moe.expert,
        .tiles = d->m.moe.tiles,
        .n_rows = d->f->n_live,
        .used = d->hp->n_expert_used,
        .n_expert = d->hp->n_expert,
        .wave = d->choices,
        .high = d->tile_rows,
        .n_tiles = tiles_of_wave(d),
    };
    return ntx__device_go(d, NTX_GPU_SORT, &g, "experts' rows");
}

int ntx__device_route(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    d->tile_rows = tile_rows(d);
    const struct ntx_gpu_route g = {
        .logits = d->m.buf[NTX__BUF_PROBS],
        .bias = layer_vector(d, NTX_T_router_bias),
        .choice = layer_vector(d, NTX_T_router_select),
        .factor = layer_vector(d, NTX_T_expert_scale),
        .weight = d->m.moe.weight,
        .place = d->m.moe.place,
        .row = d->m.moe.row,
        .expert = d->tile_rows ? d->m.moe.routed : d->m.moe.expert,
        .ld_logits = f->buf[NTX__BUF_PROBS].ld,
        .n_rows = f->n_live,
        .n_expert = f->hp->n_expert,
        .used = f->hp->n_expert_used,
        .by = ntx__steps_of(f, f->run)->route,
    };
    const int rc = ntx__device_go(d, NTX_GPU_ROUTE, &g, "the choice of experts");
    return rc || !d->tile_rows ? rc : sort_by_expert(d);
}

/* The tiles of the current wave; the last wave may have fewer. */
static struct ntx_gpu_tiles wave_tiles(const struct ntx_device *d)
{
    return (struct ntx_gpu_tiles){.of = d->m.moe.tiles + (uint64_t)(d->f->moe.first / d->choices) * tiles_of_wave(d),
                                  .bytes = d->expert_bytes[d->f->layer],
                                  .n = NTX_GPU_TILES(d->f->moe.n, d->hp->n_expert, d->tile_rows)};
}

static struct ntx_gpu_product product_of(const struct ntx_device *d, enum ntx_expert_part part)
{
    const struct ntx_forward *f = d->f;
    const struct ntx_weight *w = &ntx__device_layer(d)->expert[part];
    /* true: the input is the layer's rows; false: each routed row has its own */
    const bool rows = part != NTX_EXPERT_DOWN && !ntx__weighs_input(f) && !d->tile_rows;
    const uint8_t routed = part == NTX_EXPERT_DOWN ? NTX__BUF_ROUTED_GATE : NTX__BUF_ROUTED_X,
                  buf = rows ? NTX_BUF_X : routed, to = (uint8_t)(NTX__BUF_ROUTED_GATE + part);
    const enum ntx__set set = rows ? NTX__OF_LAYER : NTX__OF_ROUTED;
    const enum ntx_act form = ntx_act_for(w->type);
    struct ntx_gpu_product g = {
        .w = d->at[ntx_expert_chunk(ntx__device_layer(d), 0, part)],
        .x = form == NTX_ACT_F32 ? (const void *)d->m.buf[buf] : d->m.quantized[set][form],
        .y = d->m.buf[to],
        .row_bytes = w->row_bytes,
        .x_stride = ntx__stride(f, buf, form, w->n_in),
        .ldy = f->buf[to].ld,
        .type = w->type,
        .n_out = w->n_out,
        .n_in = w->n_in,
        .n_rows = NTX_MAX(d->tile_rows, 1u),
    };
    if (d->tile_rows)
        g.tiles = wave_tiles(d);
    else
        g.routed = (struct ntx_gpu_routed){.expert = d->m.moe.expert,
                                           .bytes = d->expert_bytes[f->layer],
                                           .n = f->moe.n,
                                           .each = rows ? d->hp->n_expert_used : 1};
    return g;
}

/* Matrices of the same type and row size share one launch. */
int ntx__device_multiply_routed(struct ntx_forward *f, const enum ntx_expert_part *parts, unsigned n)
{
    struct ntx_device *d = f->c.device;
    struct ntx_gpu_product g = product_of(d, parts[0]);
    for (unsigned i = 1; i < n; i++) {
        const struct ntx_gpu_product more = product_of(d, parts[i]);
        if (more.type == g.type && more.row_bytes == g.row_bytes) {
            g.others[g.n_others++] = (struct ntx_gpu_another){
                .w = more.w, .x = more.x, .y = more.y, .ldy = more.ldy, .n_out = more.n_out, .n_rows = more.n_rows};
            continue;
        }
        int rc = ntx__device_go(d, NTX_GPU_PRODUCT, &more, "experts");
        if (rc)
            return rc;
    }
    return ntx__device_go(d, NTX_GPU_PRODUCT, &g, "experts");
}
