/* device_layer.c: the llama family's layer on a device, step by step as in llama.c. Everything is queued; the host waits only where
 * the CPU shares a step, where a streamed chunk has not come, and where experts are chosen. */
#include <math.h>

#include "common/util.h"
#include "computed/device_impl.h"

static const struct ntx_layer_weights *layer(const struct ntx_device *d)
{
    return &d->c.chunks->layers[d->f->layer];
}

const float *ntx__device_vector(const struct ntx_device *d, const struct ntx_weight *w)
{
    return w->tensor == NTX_NO_TENSOR ? NULL : (const float *)(const void *)d->at[w->chunk0];
}

static void *packed(void *const *all, uint32_t forms, enum ntx_act form)
{
    return forms >> form & 1 ? all[form] : NULL;
}

/* h += y + bias where y is given; x = norm(h), quantised as these matrices want it. */
static int add_and_norm(struct ntx_device *d, const float *y, const float *bias, const float *w, const uint32_t *rows, uint32_t n, uint32_t forms)
{
    const struct ntx_gpu_norm g = {
        .h = d->m.h, .y = y, .bias = bias, .w = w, .rows = rows, .x = d->m.x,
        .q8 = packed(d->m.packed, forms, NTX_ACT_Q8), .q8k = packed(d->m.packed, forms, NTX_ACT_Q8K),
        .ld_h = d->hp->n_embd, .ld_y = d->hp->n_embd, .ld_x = NTX__DEVICE_LD(d->hp->n_embd), .q8_stride = d->stride[NTX_ACT_Q8],
        .q8k_stride = d->stride[NTX_ACT_Q8K], .n = d->hp->n_embd, .n_rows = n, .eps = d->hp->rms_eps,
    };
    return n ? ntx__device_go(d, NTX_GPU_NORM, &g, "a norm") : 0;
}

int ntx__device_pack(struct ntx_device *d, float *x, const float *up, uint32_t n, uint32_t n_rows, const struct ntx_weight *w, void *const *to,
                     const struct ntx__device_biases *biases)
{
    uint32_t forms = ntx__forms(&w, 1);
    const struct ntx_gpu_pack g = {
        .x = x, .up = up, .q8 = packed(to, forms, NTX_ACT_Q8), .q8k = packed(to, forms, NTX_ACT_Q8K), .ld_x = NTX__DEVICE_LD(n), .ld_up = n,
        .q8_stride = d->stride[NTX_ACT_Q8], .q8k_stride = d->stride[NTX_ACT_Q8K], .n = n, .n_rows = n_rows, .act = d->hp->ffn_act,
        .x_bias = biases ? biases->x : NULL, .up_bias = biases ? biases->up : NULL, .bias_rows = biases ? biases->of : NULL,
    };
    return up || g.q8 || g.q8k ? ntx__device_go(d, NTX_GPU_PACK, &g, "quantising") : 0;
}

/* ---- inputs of products */

struct ntx__device_input ntx__device_normed(const struct ntx_device *d, uint32_t n, uint32_t first_dense, uint32_t n_dense)
{
    return (struct ntx__device_input){.x = d->m.x, .ld = NTX__DEVICE_LD(d->hp->n_embd), .packed = d->m.packed, .n = n, .first_dense = first_dense, .n_dense = n_dense};
}

static struct ntx__device_input live(const struct ntx_device *d, const float *x, uint32_t width)
{
    const struct ntx__device_rows *r = &d->now;
    return (struct ntx__device_input){.x = x, .ld = NTX__DEVICE_LD(width), .packed = d->m.packed, .n = r->n_live, .first_dense = r->n_exact,
                                      .n_dense = r->n_live - r->n_exact};
}

/* ---- the steps */

int ntx__device_add_pending(struct ntx_device *d)
{
    int rc = add_and_norm(d, d->m.y, NULL, NULL, d->pending.list, d->pending.n_live, 0);
    d->pending.n_live = 0;
    return rc;
}

/* With what the layer before added still to come: in one go where the rows are the same. */
static int attn_norm(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    uint32_t forms = ntx__forms((const struct ntx_weight *const[]){&w->q, &w->k, &w->v}, 3);
    bool together = d->pending.n_live == d->now.n_all && d->pending.list == d->now.list;
    int rc = together ? 0 : ntx__device_add_pending(d);
    if (!rc)
        rc = add_and_norm(d, together ? d->m.y : NULL, NULL, ntx__device_vector(d, &w->attn_norm), d->now.list, d->now.n_all, forms);
    d->pending.n_live = 0;
    return rc;
}

/* Rows that skip the layer and leave K and V in it have no use for q: it is left out where they are alone. */
static int qkv(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    const struct ntx__device_product p[] = {
        {.w = &w->q, .y = d->m.q, .host_y = d->f->m.q, .n_rows = d->now.n_live},
        {.w = &w->k, .y = d->m.k, .host_y = d->f->m.k},
        {.w = &w->v, .y = d->m.v, .host_y = d->f->m.v},
    };
    const struct ntx__device_rows *r = &d->now;
    const struct ntx__device_input in = ntx__device_normed(d, r->n_all, r->n_exact, r->n_live - r->n_exact);
    if (r->n_live)
        return ntx__device_multiply(d, p, 3, &in);
    int rc = ntx__device_settle(d); /* chunks are given back in the order of the list */
    for (uint32_t c = w->q.chunk0; !rc && c < w->q.chunk0 + w->q.n_chunks; c++)
        d->f->c.weights->ops->skip(d->f->c.weights, c);
    return rc ? ntx__device_fail(d, rc, "a copy") : ntx__device_multiply(d, p + 1, 2, &in);
}

static struct ntx_gpu_kv kv(const struct ntx_device *d, uint32_t row)
{
    const struct ntx_hparams *hp = d->hp;
    return (struct ntx_gpu_kv){
        .base = d->m.kv, .block_bytes = d->kv_block_bytes, .layer_offset = d->f->layer * d->kv_layer_bytes, .tables = d->m.tables,
        .table_at = d->m.table_at, .pos = d->m.pos, .rows = d->now.list + row,
        .holes = d->with_holes ? d->m.holes + (uint64_t)d->f->layer * d->c.kv_blocks : NULL, .block_tokens = NTX_KV_BLOCK, .n_head = hp->n_head,
        .n_head_kv = hp->n_head_kv, .head_k = hp->head_k, .head_v = hp->head_v, .q8 = d->c.kv_type == NTX_KV_Q8_0,
    };
}

static int rotate_and_store(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    const struct ntx_gpu_rotate g = {
        .q = d->m.q, .k = d->m.k, .v = d->m.v, .q_bias = ntx__device_vector(d, &w->q_bias), .k_bias = ntx__device_vector(d, &w->k_bias), .v_bias = ntx__device_vector(d, &w->v_bias),
        .q_norm = ntx__device_vector(d, &w->q_norm), .k_norm = ntx__device_vector(d, &w->k_norm), .cs = d->m.cs, .sn = d->m.sn, .kv = kv(d, 0), .n_rows = d->now.n_all,
        .n_query = d->now.n_live, .rope_dim = d->hp->rope_dim, .neox = d->hp->rope_kind != NTX_ROPE_NORM, .eps = d->hp->rms_eps,
    };
    return ntx__device_go(d, NTX_GPU_ROTATE, &g, "rotation");
}

/* Live rows [from, to), in groups of as many as the memory for partial results serves. */
static int attend_split(struct ntx_device *d, uint32_t from, uint32_t to)
{
    const struct ntx_hparams *hp = d->hp;
    uint32_t no = hp->n_head * hp->head_v, most = 1;
    for (uint32_t i = 0; i < d->f->b->n_rows; i++)
        most = NTX_MAX(most, d->host.pos[i] + 1);
    for (uint32_t r = from; r < to; r += d->attend_rows) {
        const struct ntx_gpu_attend g = {
            .q = d->m.q + (uint64_t)r * hp->n_head * hp->head_k, .out = d->m.attn + (uint64_t)r * NTX__DEVICE_LD(no), .partial = d->m.partial,
            .kv = kv(d, r), .ld_out = NTX__DEVICE_LD(no), .n_rows = NTX_MIN(to - r, d->attend_rows), .most_pos = most,
            .window = ntx_layer_find(&d->c.model->layers[d->f->layer], NTX_OP_ATTEND)->window, .sinks = ntx__device_vector(d, &layer(d)->sinks), .scale = 1.0f / sqrtf((float)hp->head_k),
        };
        int rc = ntx__device_go(d, NTX_GPU_ATTEND, &g, "attention");
        if (rc)
            return rc;
    }
    return 0;
}

/* Prompts' rows, which skip no layer: so their tiles are those of the pass. */
static int attend_tiles(struct ntx_device *d, uint32_t from)
{
    const struct ntx_hparams *hp = d->hp;
    uint32_t no = hp->n_head * hp->head_v;
    const struct ntx_gpu_prefill g = {
        .q = d->m.q + (uint64_t)from * hp->n_head * hp->head_k, .out = d->m.attn + (uint64_t)from * NTX__DEVICE_LD(no), .kv = kv(d, from),
        .tiles = d->m.tiles, .ld_out = NTX__DEVICE_LD(no), .n_tiles = d->n_tiles,
        .window = ntx_layer_find(&d->c.model->layers[d->f->layer], NTX_OP_ATTEND)->window, .sinks = ntx__device_vector(d, &layer(d)->sinks), .scale = 1.0f / sqrtf((float)hp->head_k),
    };
    return d->n_tiles ? ntx__device_go(d, NTX_GPU_PREFILL, &g, "attention of prompts") : 0;
}

static int attend(struct ntx_device *d)
{
    uint32_t exact = d->n_tiles ? d->now.n_exact : d->now.n_live;
    int rc = attend_split(d, 0, exact);
    if (!rc)
        rc = attend_tiles(d, exact);
    return rc ? rc : ntx__device_pack(d, d->m.attn, NULL, d->hp->n_head * d->hp->head_v, d->now.n_live, &layer(d)->o, d->m.packed, NULL);
}

static int attn_output(struct ntx_device *d)
{
    const struct ntx__device_product p = {.w = &layer(d)->o, .y = d->m.y, .host_y = d->f->m.y};
    const struct ntx__device_input in = live(d, d->m.attn, d->hp->n_head * d->hp->head_v);
    return ntx__device_multiply(d, &p, 1, &in);
}

static int ffn_norm(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    uint32_t forms = d->hp->n_expert ? ntx__moe_forms(w) : ntx__forms((const struct ntx_weight *const[]){&w->gate, &w->up}, 2);
    return add_and_norm(d, d->m.y, ntx__device_vector(d, &w->o_bias), ntx__device_vector(d, &w->ffn_norm), d->now.list, d->now.n_live, forms);
}

static int gate_and_up(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    const struct ntx__device_product p[] = {
        {.w = &w->gate, .y = d->m.gate, .ld_y = NTX__DEVICE_LD(d->hp->n_ff), .host_y = d->f->m.gate},
        {.w = &w->up, .y = d->m.up, .host_y = d->f->m.up},
    };
    const struct ntx__device_input in = live(d, d->m.x, d->hp->n_embd);
    int rc = ntx__device_multiply(d, p, 2, &in);
    return rc ? rc : ntx__device_pack(d, d->m.gate, d->m.up, d->hp->n_ff, d->now.n_live, &w->down, d->m.packed, NULL);
}

static int down(struct ntx_device *d)
{
    const struct ntx__device_product p = {.w = &layer(d)->down, .y = d->m.y, .host_y = d->f->m.y};
    const struct ntx__device_input in = live(d, d->m.gate, d->hp->n_ff);
    return ntx__device_multiply(d, &p, 1, &in);
}

static int ffn(struct ntx_device *d)
{
    if (d->hp->n_expert)
        return ntx__device_moe(d);
    if (d->c.model->pack)
        return ntx__device_packed(d);
    int rc = gate_and_up(d);
    return rc ? rc : down(d);
}

int ntx__device_layer(struct ntx_device *d)
{
    static int (*const steps[])(struct ntx_device *) = {
        attn_norm, qkv, rotate_and_store, attend, attn_output, ffn_norm, ffn,
    };
    enum { KV_STEPS = 3 };
    size_t n = d->now.n_live ? sizeof steps / sizeof *steps : KV_STEPS;
    for (size_t i = 0; i < n; i++) {
        int rc = steps[i](d);
        if (rc)
            return rc;
    }
    d->pending = d->now; /* its y; nothing where no row is live */
    return 0;
}

int ntx__device_output_norm(struct ntx_device *d, uint32_t n)
{
    const struct ntx_weight *w = &d->c.chunks->output;
    return add_and_norm(d, NULL, NULL, ntx__device_vector(d, &d->c.chunks->output_norm), d->m.out_rows, n, ntx__forms(&w, 1));
}
