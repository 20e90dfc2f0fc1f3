/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: a model's memory on the device. lay_out() runs twice: once to count the bytes, once to set the pointers. */
#include "computed/gpu/device_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/finite.h"

struct cursor {
    uint8_t *base; /* NULL while counting */
    uint64_t at;
};

static void *place_bytes(struct cursor *c, uint64_t bytes)
{
    uint64_t at = c->at;
    c->at += NTX_ROUND_UP(bytes, 256);
    return c->base ? c->base + at : NULL;
}

static float *place_floats(struct cursor *c, uint64_t n) { return place_bytes(c, n * sizeof(float)); }

void ntx_copy_share_default(struct ntx_copy_share *s)
{
    for (uint32_t type = 0; type < NTX_TYPE_LIMIT; type++)
        for (uint32_t rows = 0; rows <= NTX_SHARE_ROWS; rows++)
            s->of[type][rows] = rows < 4 ? 0 : 64;
}

bool ntx__device_has_ring(const struct ntx_device *d, uint32_t layer)
{
    return d->c.kv.ring && ntx_windowed(d->hp, layer);
}

/* Attention splits of the longest session: of its positions, and of K that is pooled from them. */
static uint32_t splits_of(const struct ntx_device *d)
{
    const uint64_t most = d->c.ctx + (d->hp->v_is_k ? (uint64_t)d->c.ctx / NTX_POOL_OVERLAPS : 0);
    return (uint32_t)((most + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT);
}

struct sizes { /* the largest of all matrices */
    uint64_t chunk_bytes, panel_values, panel_outs, n_in;
};

/* A matrix that layers share is one fixed chunk, which is never copied. */
static void include_matrix(struct sizes *s, const struct ntx_device *d, const struct ntx_weight *w)
{
    const struct ntx_chunks *c = d->c.chunks;
    if (w->tensor == NTX_NO_TENSOR)
        return;
    const uint64_t outs = ntx__device_panel(d, w);
    s->chunk_bytes = NTX_MAX(s->chunk_bytes,
                             w->n_chunks && c->list[w->chunk0].fixed ? 0 : (uint64_t)w->chunk_outs * w->row_bytes);
    s->panel_values = NTX_MAX(s->panel_values, outs * w->n_in);
    s->panel_outs = NTX_MAX(s->panel_outs, outs);
    s->n_in = NTX_MAX(s->n_in, (uint64_t)w->n_in);
}

static struct sizes sizes_of(const struct ntx_device *d)
{
    const struct ntx_chunks *c = d->c.chunks;
    struct sizes s = {0};
    include_matrix(&s, d, &c->output);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        const struct ntx_layer_weights *w = &c->layers[l];
        for (int t = 0; t < NTX_N_TENSORS; t++)
            if (ntx_is_matrix((enum ntx_tensor)t))
                include_matrix(&s, d, &w->of[t]);
        if (w->groups.tensor != NTX_NO_TENSOR)
            s.chunk_bytes = NTX_MAX(s.chunk_bytes, (uint64_t)w->groups.chunk_outs * w->groups.row_bytes);
    }
    return s;
}

static uint32_t most_groups(const struct ntx_model *m)
{
    uint32_t most = 0;
    for (uint32_t l = 0; m->pack && l < m->hp.n_layers; l++)
        most = NTX_MAX(most, m->pack[l].n_groups);
    return most;
}

/* ---- the layout of memory */

/* One path per row; or the old and the new slots of an accepted path. */
static uint64_t path_slots(const struct ntx_device *d) { return NTX_MAX((uint64_t)d->c.max_rows, 2) * NTX_PATH_MAX; }

/* Rows of a buffer, with the host's stride. */
static void place_buf(struct ntx_device *d, struct cursor *c, uint8_t buf, uint64_t rows)
{
    d->m.buf[buf] = place_floats(c, rows * ntx__buf_ld(d->c.model, buf));
}

/* Quantized rows, as wide as the widest matrix input. Rows for prediction follow the pass's rows. */
static void place_forms(struct ntx_device *d, struct cursor *c, const struct sizes *s)
{
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++) {
        size_t row = ntx_act_row_bytes((enum ntx_act)form, (uint32_t)NTX_ROUND_UP(s->n_in, 256));
        uint8_t *of_layer = place_bytes(c, (d->c.max_rows + d->predict_rows) * row);
        d->m.quantized[NTX__OF_LAYER][form] = of_layer;
        d->m.quantized[NTX__OF_EARLY][form] = of_layer ? of_layer + d->c.max_rows * row : NULL;
        d->m.quantized[NTX__OF_LOW][form] = place_bytes(c, ntx_buf_width(d->c.model, NTX_BUF_LOW) ? d->c.max_rows * row
                                                                                                  : 0);
        d->m.quantized[NTX__OF_ROUTED][form] = place_bytes(c, d->hp->n_expert ? d->choices * row : 0);
    }
}

/* A buffer's rows for prediction: they follow the pass's rows. */
static float *rows_for_prediction(const struct ntx_device *d, uint8_t buf)
{
    return d->m.buf[buf] ? d->m.buf[buf] + d->c.max_rows * ntx__buf_ld(d->c.model, buf) : NULL;
}

static void place_rows(struct ntx_device *d, struct cursor *c)
{
    uint64_t r = d->c.max_rows;
    for (uint8_t b = NTX_BUF_H; b < NTX_N_BUFS; b++)
        place_buf(d, c, b, b == NTX_BUF_X || b == NTX_BUF_GATE ? r + d->predict_rows : r);
    d->m.buf[NTX__BUF_EARLY_X] = rows_for_prediction(d, NTX_BUF_X);
    d->m.buf[NTX__BUF_EARLY_GATE] = rows_for_prediction(d, NTX_BUF_GATE);
    place_buf(d, c, NTX__BUF_LOGITS, d->c.logits_rows);
}

static void place_lists(struct ntx_device *d, struct cursor *c)
{
    const struct ntx_hparams *hp = d->hp;
    struct ntx__device_mem *m = &d->m;
    uint64_t r = d->c.max_rows;
    for (int t = 0; t < NTX_N_TURNS; t++) {
        m->cs[t] = place_floats(c, r * (ntx_rope_dim(hp, (enum ntx_rotation)t) / 2));
        m->sn[t] = place_floats(c, r * (ntx_rope_dim(hp, (enum ntx_rotation)t) / 2));
        m->freq[t] = place_bytes(c, ntx__device_pools(hp) ? ntx_rope_dim(hp, (enum ntx_rotation)t) / 2 * sizeof(double)
                                                          : 0);
    }
    m->input_entry = place_floats(c, r * hp->n_layers * hp->n_input);
    m->best = place_bytes(c, (uint64_t)d->c.logits_rows * NTX_BEST_MAX * sizeof *m->best);
    m->best_some = place_bytes(c, (uint64_t)d->c.logits_rows *
                                      ((hp->n_vocab + NTX_GPU_BEST_PART - 1) / NTX_GPU_BEST_PART) * NTX_BEST_MAX *
                                      sizeof *m->best_some);
    m->rows = place_bytes(c, hp->n_layers * r * 4);
    m->all_rows = place_bytes(c, r * 4);
    m->out_rows = place_bytes(c, r * 4);
    m->pos = place_bytes(c, r * 4);
    m->table_at = place_bytes(c, r * 4);
    m->path_from = place_bytes(c, r * 4);
    m->path_at = place_bytes(c, r * 4);
    m->paths = place_bytes(c, path_slots(d) * 4);
    m->tiles = place_bytes(c, 4 * r * 4);
    for (int ring = 0; ring < 2; ring++)
        m->tables[ring] = place_bytes(c, ring && !d->c.kv.ring ? 0 : d->c.kv.blocks * 4ull);
    m->holes = place_bytes(c, (uint64_t)hp->n_layers * d->c.kv.blocks * 4);
    m->turns = place_bytes(c, ntx_recur_bytes(hp) ? r * sizeof *m->turns : 0);
    m->turn_rows = place_bytes(c, ntx_recur_bytes(hp) ? r * 4 : 0);
    m->turn_places = place_bytes(c, ntx_recur_bytes(hp) ? r * 4 : 0);
}

static void place_experts(struct ntx_device *d, struct cursor *c)
{
    const struct ntx_hparams *hp = d->hp;
    struct ntx__device_mem *m = &d->m;
    uint64_t r = d->c.max_rows, choices = r * hp->n_expert_used, wave = d->choices;
    if (!hp->n_expert)
        return;
    place_buf(d, c, NTX__BUF_PROBS, r);
    place_buf(d, c, NTX__BUF_SHARED, r);
    m->moe.weight = place_floats(c, choices);
    m->moe.place = place_bytes(c, choices * 4);
    m->moe.row = place_bytes(c, choices * 4);
    m->moe.expert = place_bytes(c, choices * 4);
    m->moe.routed = place_bytes(c, choices * 4);
    m->moe.tiles = place_bytes(c, (choices + wave) * sizeof *m->moe.tiles);
    for (uint8_t b = NTX__BUF_ROUTED_X; b <= NTX__BUF_ROUTED_Y; b++)
        place_buf(d, c, b, wave);
}

static void place_groups(struct ntx_device *d, struct cursor *c)
{
    uint64_t n = most_groups(d->c.model);
    d->m.groups = place_bytes(c, n * sizeof *d->m.groups);
    d->m.uses = place_bytes(c, ntx_ffn_mode_groups(&d->c.ffn) ? d->c.max_rows * n : 0);
}

static void place_mla(struct ntx_device *d, struct cursor *c)
{
    const struct ntx_hparams *hp = d->hp;
    uint64_t n = (uint64_t)d->attend_rows * hp->n_head;
    if (!hp->kv_lora)
        return;
    d->m.mla_q = place_floats(c, n * ntx_kept_k(hp, 0));
    d->m.mla_out = place_floats(c, n * hp->kv_lora);
    d->m.mla_rows = place_floats(c, n * hp->head_k);
    d->m.mla_x = place_bytes(c, n * ntx__device_mla_form(d));
}

static void place_index_topk(struct ntx_device *d, struct cursor *c)
{
    struct ntx__device_mem *m = &d->m;
    uint64_t r = d->c.max_rows, ctx = d->c.ctx;
    d->max_topk = ntx__most_topk(d->hp, d->c.ctx);
    d->score_rows = (uint32_t)NTX_MIN(NTX_MAX(NTX__PARTIAL_BYTES / (ctx * sizeof(float)), 1), r);
    if (!d->max_topk)
        return;
    m->scores = place_floats(c, d->score_rows * ctx);
    m->n_topk = place_bytes(c, r * 4);
    m->topk = place_bytes(c, r * d->max_topk * 4);
    m->n_left = place_bytes(c, r * 4);
    m->left = place_bytes(c, r * d->max_topk * 4);
}

static void place_large(struct ntx_device *d, struct cursor *c, const struct sizes *s)
{
    const struct ntx_hparams *hp = d->hp;
    struct ntx__device_mem *m = &d->m;
    uint64_t padded = NTX_ROUND_UP((uint64_t)d->c.max_rows, NTX__DENSE_ROWS);
    uint64_t partial = (uint64_t)hp->n_head * splits_of(d) * ((hp->kv_lora ? hp->kv_lora : hp->head_v) + 2) *
                       sizeof(float);
    d->attend_rows = (uint32_t)NTX_MIN(NTX_MAX(NTX__PARTIAL_BYTES / partial, 1), (uint64_t)d->c.max_rows);
    m->partial = place_bytes(c, d->attend_rows * partial);
    place_mla(d, c);
    m->x16 = place_bytes(c, padded * s->n_in * 2);
    m->exponents = place_bytes(c, padded * 4);
    m->w16 = place_bytes(c, s->panel_values * 2);
    m->z = place_floats(c, NTX__DENSE_ROWS * s->panel_outs);
    d->stage_bytes = NTX_ROUND_UP(s->chunk_bytes + NTX_GPU_SLACK, 256);
    d->n_stages = NTX_MAX(NTX_MIN(d->c.in_flight, NTX__STAGES), 1u);
    m->stages = place_bytes(c, d->n_stages * d->stage_bytes);
    m->kv[0] = place_bytes(c, d->kv_block_bytes[0] * d->c.kv.blocks);
    m->kv[1] = place_bytes(c, d->kv_block_bytes[1] * d->c.kv.window_blocks);
    m->states = place_bytes(c, ntx_recur_bytes(hp) / 2 * d->c.kv.states);
}

/* Resident chunks of a tensor are adjacent, so that one launch multiplies a run of them. */
static void place_weights(struct ntx_device *d, struct cursor *c, bool matrices)
{
    uint32_t before = NTX_NO_TENSOR;
    for (uint32_t i = 0; i < d->c.chunks->n; i++) {
        const struct ntx_chunk *k = &d->c.chunks->list[i];
        if (!k->fixed && (!matrices || d->c.table[i].placement != NTX_PLACE_DEVICE)) {
            before = NTX_NO_TENSOR;
            continue;
        }
        if (k->tensor != before)
            c->at = NTX_ROUND_UP(c->at + NTX_GPU_SLACK, 256);
        if (d->at)
            d->at[i] = c->base + c->at;
        c->at += k->bytes;
        before = k->tensor;
    }
    c->at = NTX_ROUND_UP(c->at + NTX_GPU_SLACK, 256);
}

static uint64_t lay_out(struct ntx_device *d, uint8_t *base, bool matrices)
{
    struct cursor c = {.base = base};
    struct sizes s = sizes_of(d);
    place_rows(d, &c);
    place_forms(d, &c, &s);
    place_lists(d, &c);
    place_experts(d, &c);
    place_groups(d, &c);
    place_index_topk(d, &c);
    place_large(d, &c, &s);
    place_weights(d, &c, matrices);
    return c.at;
}

static uint32_t predict_rows_of(const struct ntx_device_config *c)
{
    if (c->ffn.kind == NTX_FFN_ALL)
        return 0;
    return c->ffn.kind == NTX_FFN_PREDICTED ? NTX_MIN(c->max_rows, NTX_DECODE_ROWS) : NTX__PREFETCH_ROWS;
}

static void set_config(struct ntx_device *d, const struct ntx_device_config *c)
{
    d->c = *c;
    d->ops = c->ops;
    d->hp = &c->model->hp;
    d->choices = NTX_MAX(c->max_rows, d->hp->n_expert_used);
    d->predict_rows = predict_rows_of(c);
    d->tiled = !d->hp->dims && !d->hp->kv_lora && !d->hp->index.head && d->hp->head_k <= NTX_GPU_TILE_HEAD &&
               d->hp->head_v <= NTX_GPU_TILE_HEAD && d->hp->n_head / d->hp->n_head_kv <= NTX_GPU_TILE;
    if (c->in_place)
        memset(d->share.of, 64, sizeof d->share.of);
    else if (c->share)
        d->share = *c->share;
    else
        ntx_copy_share_default(&d->share);
    d->c.share = NULL; /* the caller owns it */
    for (uint32_t l = 0; l < d->hp->n_layers; l++) {
        d->kv_block_bytes[ntx__device_has_ring(d, l)] += ntx_kv_layer_bytes(d->hp, c->kv_type, l, false);
        d->kv_block_bytes[0] += ntx_kv_layer_bytes(d->hp, c->kv_type, l, true);
    }
}

uint64_t ntx_device_bytes(const struct ntx_device_config *c)
{
    struct ntx_device d = {0};
    set_config(&d, c);
    return lay_out(&d, NULL, false);
}

static uint64_t lay_out_host(struct ntx_device *d, uint8_t *base)
{
    struct cursor c = {.base = base};
    struct ntx__device_host *m = &d->host;
    uint64_t r = d->c.max_rows, holes = (uint64_t)d->hp->n_layers * d->c.kv.blocks;
    for (int t = 0; t < NTX_N_TURNS; t++)
        m->freq[t] = place_bytes(
            &c, ntx__device_pools(d->hp) ? ntx_rope_dim(d->hp, (enum ntx_rotation)t) / 2 * sizeof(double) : 0);
    m->logits = place_floats(&c, (uint64_t)d->c.logits_rows * d->hp->n_vocab);
    m->best = place_bytes(&c, (uint64_t)d->c.logits_rows * NTX_BEST_MAX * sizeof *m->best);
    m->rows = place_bytes(&c, d->hp->n_layers * r * 4);
    m->all_rows = place_bytes(&c, r * 4);
    m->out_rows = place_bytes(&c, r * 4);
    m->pos = place_bytes(&c, r * 4);
    m->table_at = place_bytes(&c, r * 4);
    m->path_from = place_bytes(&c, r * 4);
    m->path_at = place_bytes(&c, r * 4);
    m->paths = place_bytes(&c, path_slots(d) * 4);
    m->tiles = place_bytes(&c, 4 * r * 4);
    for (int ring = 0; ring < 2; ring++)
        m->tables[ring] = place_bytes(&c, ring && !d->c.kv.ring ? 0 : d->c.kv.blocks * 4ull);
    m->holes = place_bytes(&c, holes * 4);
    m->turns = place_bytes(&c, ntx_recur_bytes(d->hp) ? r * sizeof *m->turns : 0);
    m->turn_places = place_bytes(&c, ntx_recur_bytes(d->hp) ? r * 4 : 0);
    m->groups = place_bytes(&c, most_groups(d->c.model) * 4ull);
    m->uses = place_bytes(&c, ntx_ffn_mode_groups(&d->c.ffn) ? r * most_groups(d->c.model) : 0);
    return c.at;
}

uint64_t ntx_device_host_bytes(const struct ntx_device_config *c)
{
    struct ntx_device d = {0};
    set_config(&d, c);
    return lay_out_host(&d, NULL);
}

/* ---- creation */

static int make_memory(struct ntx_device *d)
{
    int rc;
    d->at = calloc(d->c.chunks->n, sizeof *d->at);
    d->where = calloc(d->c.chunks->n, sizeof *d->where);
    d->layer = calloc(d->hp->n_layers, sizeof *d->layer);
    d->kv_at = calloc(2 * d->hp->n_layers, sizeof *d->kv_at);
    d->expert_bytes = calloc(d->hp->n_layers, sizeof *d->expert_bytes);
    if (!d->at || !d->where || !d->layer || !d->kv_at || !d->expert_bytes)
        return -ENOMEM;
    uint64_t before[2] = {0};
    for (uint32_t l = 0; l < d->hp->n_layers; l++) {
        bool ring = ntx__device_has_ring(d, l);
        d->kv_at[l] = before[ring];
        before[ring] += ntx_kv_layer_bytes(d->hp, d->c.kv_type, l, false);
    }
    for (uint32_t l = 0; l < d->hp->n_layers; l++) {
        d->kv_at[d->hp->n_layers + l] = before[0];
        before[0] += ntx_kv_layer_bytes(d->hp, d->c.kv_type, l, true);
    }
    uint8_t **at = d->at;
    d->at = NULL;
    d->bytes = lay_out(d, NULL, true);
    d->at = at;
    if ((rc = d->ops->alloc(d->c.gpu, d->bytes, &d->arena)) ||
        (rc = d->ops->host_alloc(d->c.gpu, lay_out_host(d, NULL), &d->host_arena)))
        return rc;
    lay_out(d, d->arena, true);
    lay_out_host(d, d->host_arena);
    ntx__device_find_experts(d);
    return 0;
}

static int make_streams(struct ntx_device *d)
{
    const struct ntx_gpu_ops *ops = d->ops;
    int rc;
    if (d->c.in_place && (rc = ops->host_address(d->c.gpu, (void *)(uintptr_t)d->c.in_place, (void **)&d->in_place)))
        return rc;
    if ((rc = ops->stream_new(d->c.gpu, &d->compute)) || (rc = ops->stream_new(d->c.gpu, &d->copies)) ||
        (rc = ops->event_new(d->c.gpu, false, &d->input)) || (rc = ops->event_new(d->c.gpu, false, &d->lists)))
        return rc;
    for (uint32_t i = 0; i < d->n_stages; i++) {
        struct ntx__stage *s = &d->stages[i];
        s->own = d->m.stages + i * d->stage_bytes;
        s->chunk = NTX__NO_CHUNK;
        if ((rc = ops->event_new(d->c.gpu, false, &s->copied)) || (rc = ops->event_new(d->c.gpu, false, &s->used)))
            return rc;
    }
    /* kernels may also read memory that is never written: padding rows, and bytes behind weights */
    if ((rc = ops->fill(d->compute, d->arena, 0, d->bytes)))
        return rc;
    rc = ops->dense(d->compute, d->m.w16, d->m.x16, d->m.z, 1, 32, NTX__DENSE_ROWS);
    d->no_dense = rc == -ENOSYS;
    if ((rc && !d->no_dense) || (rc = ntx__device_tape_try(d)))
        return rc;
    return ops->stream_sync(d->compute);
}

int ntx_device_new(const struct ntx_device_config *c, struct ntx_device **out, struct ntx_err *err)
{
    struct ntx_device *d = calloc(1, sizeof *d);
    if (!d)
        return ntx_err_set(err, -ENOMEM, "no memory");
    set_config(d, c);
    int rc = make_memory(d);
    if (!rc)
        rc = make_streams(d);
    if (rc) {
        char size[32];
        const char *why = c->ops->error(c->gpu);
        ntx_err_set(err, rc, "the GPU cannot hold %s of this model: %s", ntx_format_size(d->bytes, size, sizeof size),
                    *why ? why : strerror(-rc));
        ntx_device_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

void ntx_device_free(struct ntx_device *d)
{
    if (!d)
        return;
    for (uint32_t i = 0; i < NTX__STAGES; i++) {
        d->ops->event_free(d->stages[i].copied);
        d->ops->event_free(d->stages[i].used);
    }
    ntx__device_tape_free(d);
    d->ops->event_free(d->input);
    d->ops->event_free(d->lists);
    d->ops->stream_free(d->copies);
    d->ops->stream_free(d->compute);
    d->ops->host_free(d->c.gpu, d->host_arena);
    d->ops->free(d->c.gpu, d->arena);
    free(d->at);
    free(d->where);
    free(d->layer);
    free(d->kv_at);
    free(d->expert_bytes);
    free(d);
}

bool ntx_device_lost(const struct ntx_device *d) { return d->lost; }

static int fill_chunk(struct ntx_device *d, uint32_t chunk, void *buffer,
                      int (*read)(void *ctx, uint32_t chunk, void *to, struct ntx_err *err), void *ctx,
                      struct ntx_err *err)
{
    const struct ntx_chunk *c = &d->c.chunks->list[chunk];
    int rc = read(ctx, chunk, buffer, err);
    if (!rc)
        rc = ntx_chunk_finite(d->c.model, d->c.chunks, chunk, buffer, 0, c->n_out, err);
    if (rc)
        return rc;
    rc = d->ops->upload(d->copies, d->at[chunk], buffer, c->bytes);
    if (!rc)
        rc = d->ops->stream_sync(d->copies);
    return rc ? ntx_err_set(err, rc, "weights to the GPU: %s", d->ops->error(d->c.gpu)) : 0;
}

int ntx_device_fill(struct ntx_device *d, int (*read)(void *ctx, uint32_t chunk, void *to, struct ntx_err *err),
                    void *ctx, struct ntx_err *err)
{
    uint64_t most = 0;
    void *buffer;
    for (uint32_t i = 0; i < d->c.chunks->n; i++)
        most = d->at[i] ? NTX_MAX(most, d->c.chunks->list[i].bytes) : most;
    int rc = d->ops->host_alloc(d->c.gpu, most, &buffer);
    if (rc)
        return ntx_err_set(err, rc, "%s", d->ops->error(d->c.gpu));
    for (uint32_t i = 0; !rc && i < d->c.chunks->n; i++)
        if (d->at[i])
            rc = fill_chunk(d, i, buffer, read, ctx, err);
    d->ops->host_free(d->c.gpu, buffer);
    return rc;
}
