/* device_pass.c: the llama family's layer on a device, step by step as in llama.c. Everything is queued; the host waits only where
 * the CPU shares a step, where a streamed chunk has not come, and at the end. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "computed/device_impl.h"
#include "model/quant.h"

static const struct ntx_layer_weights *layer(const struct ntx_device *d)
{
    return &d->c.chunks->layers[d->f->layer];
}

static const float *vector(const struct ntx_device *d, const struct ntx_weight *w)
{
    return w->tensor == NTX_NO_TENSOR ? NULL : (const float *)(const void *)d->at[w->chunk0];
}

static void *packed(const struct ntx_device *d, uint32_t forms, enum ntx_act form)
{
    return forms >> form & 1 ? d->m.packed[form] : NULL;
}

static int go(struct ntx_device *d, enum ntx_gpu_kernel k, const void *args, const char *what)
{
    int rc = d->ops->launch(d->compute, k, args);
    return rc ? ntx__device_fail(d, rc, what) : 0;
}

/* ---- the steps */

/* h += y + bias where y is given; x = norm(h), quantised as these matrices want it. */
static int add_and_norm(struct ntx_device *d, const float *y, const float *bias, const float *w, const uint32_t *rows, uint32_t n, uint32_t forms)
{
    const struct ntx_gpu_norm g = {
        .h = d->m.h, .y = y, .bias = bias, .w = w, .rows = rows, .x = d->m.x,
        .q8 = packed(d, forms, NTX_ACT_Q8), .q8k = packed(d, forms, NTX_ACT_Q8K),
        .ld_h = d->hp->n_embd, .ld_y = d->hp->n_embd, .ld_x = NTX__DEVICE_LD(d->hp->n_embd), .q8_stride = d->stride[NTX_ACT_Q8],
        .q8k_stride = d->stride[NTX_ACT_Q8K], .n = d->hp->n_embd, .n_rows = n, .eps = d->hp->rms_eps,
    };
    return go(d, NTX_GPU_NORM, &g, "a norm");
}

static int pack(struct ntx_device *d, float *x, const float *up, uint32_t n, const struct ntx_weight *w)
{
    uint32_t forms = ntx__forms(&w, 1);
    const struct ntx_gpu_pack g = {
        .x = x, .up = up, .q8 = packed(d, forms, NTX_ACT_Q8), .q8k = packed(d, forms, NTX_ACT_Q8K), .ld_x = NTX__DEVICE_LD(n), .ld_up = n,
        .q8_stride = d->stride[NTX_ACT_Q8], .q8k_stride = d->stride[NTX_ACT_Q8K], .n = n, .n_rows = d->n, .relu = d->hp->ffn_act == NTX_FFN_RELU,
    };
    return up || g.q8 || g.q8k ? go(d, NTX_GPU_PACK, &g, "quantising") : 0;
}

static int qkv(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    const struct ntx__device_product p[] = {
        {.w = &w->q, .y = d->m.q, .host_y = d->f->m.q},
        {.w = &w->k, .y = d->m.k, .host_y = d->f->m.k},
        {.w = &w->v, .y = d->m.v, .host_y = d->f->m.v},
    };
    return ntx__device_multiply(d, p, 3, d->m.x, d->n, d->n_exact);
}

static struct ntx_gpu_kv kv(const struct ntx_device *d, uint32_t row)
{
    const struct ntx_hparams *hp = d->hp;
    return (struct ntx_gpu_kv){
        .base = d->m.kv, .block_bytes = d->kv_block_bytes, .layer_offset = d->f->layer * d->kv_layer_bytes, .tables = d->m.tables,
        .table_at = d->m.table_at + row, .pos = d->m.pos + row, .block_tokens = NTX_KV_BLOCK, .n_head = hp->n_head,
        .n_head_kv = hp->n_head_kv, .head_k = hp->head_k, .head_v = hp->head_v,
    };
}

static int rotate_and_store(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    const struct ntx_gpu_rotate g = {
        .q = d->m.q, .k = d->m.k, .v = d->m.v, .q_bias = vector(d, &w->q_bias), .k_bias = vector(d, &w->k_bias), .v_bias = vector(d, &w->v_bias),
        .q_norm = vector(d, &w->q_norm), .k_norm = vector(d, &w->k_norm), .cs = d->m.cs, .sn = d->m.sn, .kv = kv(d, 0), .n_rows = d->n,
        .rope_dim = d->hp->rope_dim, .neox = d->hp->rope_kind != NTX_ROPE_NORM, .eps = d->hp->rms_eps,
    };
    return go(d, NTX_GPU_ROTATE, &g, "rotation");
}

/* In groups of rows, as many as the memory for partial results serves. */
static int attend(struct ntx_device *d)
{
    const struct ntx_hparams *hp = d->hp;
    uint32_t no = hp->n_head * hp->head_v;
    for (uint32_t r = 0; r < d->n; r += d->attend_rows) {
        struct ntx_gpu_attend g = {
            .q = d->m.q + (uint64_t)r * hp->n_head * hp->head_k, .out = d->m.attn + (uint64_t)r * NTX__DEVICE_LD(no), .partial = d->m.partial,
            .kv = kv(d, r), .ld_out = NTX__DEVICE_LD(no), .n_rows = NTX_MIN(d->n - r, d->attend_rows), .scale = 1.0f / sqrtf((float)hp->head_k),
        };
        for (uint32_t i = r; i < r + g.n_rows; i++)
            g.most_pos = NTX_MAX(g.most_pos, d->host.pos[i] + 1);
        int rc = go(d, NTX_GPU_ATTEND, &g, "attention");
        if (rc)
            return rc;
    }
    return pack(d, d->m.attn, NULL, no, &layer(d)->o);
}

static int attn_output(struct ntx_device *d)
{
    const struct ntx__device_product p = {.w = &layer(d)->o, .y = d->m.y, .host_y = d->f->m.y};
    return ntx__device_multiply(d, &p, 1, d->m.attn, d->n, d->n_exact);
}

static int ffn_norm(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    uint32_t forms = ntx__forms((const struct ntx_weight *const[]){&w->gate, &w->up}, 2);
    return add_and_norm(d, d->m.y, vector(d, &w->o_bias), vector(d, &w->ffn_norm), d->m.rows, d->n, forms);
}

static int gate_and_up(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    const struct ntx__device_product p[] = {
        {.w = &w->gate, .y = d->m.gate, .ld_y = NTX__DEVICE_LD(d->hp->n_ff), .host_y = d->f->m.gate},
        {.w = &w->up, .y = d->m.up, .host_y = d->f->m.up},
    };
    int rc = ntx__device_multiply(d, p, 2, d->m.x, d->n, d->n_exact);
    return rc ? rc : pack(d, d->m.gate, d->m.up, d->hp->n_ff, &w->down);
}

static int down(struct ntx_device *d)
{
    const struct ntx__device_product p = {.w = &layer(d)->down, .y = d->m.y, .host_y = d->f->m.y};
    return ntx__device_multiply(d, &p, 1, d->m.gate, d->n, d->n_exact);
}

/* attn_norm of this layer, with what the layer before added still to come. */
static int attn_norm(struct ntx_device *d)
{
    const struct ntx_layer_weights *w = layer(d);
    uint32_t forms = ntx__forms((const struct ntx_weight *const[]){&w->q, &w->k, &w->v}, 3);
    return add_and_norm(d, d->f->layer ? d->m.y : NULL, NULL, vector(d, &w->attn_norm), d->m.rows, d->n, forms);
}

static int run_layer(struct ntx_device *d)
{
    static int (*const steps[])(struct ntx_device *) = {
        attn_norm, qkv, rotate_and_store, attend, attn_output, ffn_norm, gate_and_up, down,
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int rc = steps[i](d);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- rows in */

/* Sessions' block tables, each once. */
static int lay_tables(struct ntx_device *d, const struct ntx_batch *b)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        uint32_t same = 0, n;
        while (same < i && b->rows[same].kv != b->rows[i].kv)
            same++;
        d->host.pos[i] = b->rows[i].pos;
        d->host.rows[i] = i;
        d->host.table_at[i] = same < i ? d->host.table_at[same] : used;
        if (same < i)
            continue;
        const uint32_t *blocks = ntx_kv_seq_blocks(b->rows[i].kv, &n);
        if (n > d->c.kv_blocks - used)
            return ntx_err_set(&d->f->c.weights->error, -E2BIG, "the sessions of a pass have more than the pool's %u KV blocks", d->c.kv_blocks);
        memcpy(d->host.tables + used, blocks, n * sizeof *blocks);
        used += n;
    }
    return 0;
}

static int upload(struct ntx_device *d, void *dev, const void *host, uint64_t bytes)
{
    return d->ops->upload(d->compute, dev, host, bytes);
}

/* h, the angles and the indices; h without padding between rows on both sides. */
static int bring_rows(struct ntx_device *d)
{
    const struct ntx_forward *f = d->f;
    uint64_t n = d->n, half = d->hp->rope_dim / 2;
    int rc = lay_tables(d, f->b);
    if (rc)
        return rc;
    memcpy(d->host.h, f->m.h, n * d->hp->n_embd * sizeof(float));
    memcpy(d->host.cs, f->m.cs, n * half * sizeof(float));
    memcpy(d->host.sn, f->m.sn, n * half * sizeof(float));
    if ((rc = upload(d, d->m.h, d->host.h, n * d->hp->n_embd * sizeof(float))) || (rc = upload(d, d->m.cs, d->host.cs, n * half * sizeof(float))) ||
        (rc = upload(d, d->m.sn, d->host.sn, n * half * sizeof(float))) || (rc = upload(d, d->m.rows, d->host.rows, n * 4)) ||
        (rc = upload(d, d->m.pos, d->host.pos, n * 4)) || (rc = upload(d, d->m.table_at, d->host.table_at, n * 4)) ||
        (rc = upload(d, d->m.tables, d->host.tables, d->c.kv_blocks * 4ull)))
        return ntx__device_fail(d, rc, "rows in");
    return 0;
}

/* ---- rows out */

/* out_rows and their number; *n_exact: of decoding. */
static uint32_t choose_logits(struct ntx_device *d, uint32_t *n_exact)
{
    uint32_t n = 0;
    *n_exact = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        if (!d->f->b->rows[i].logits)
            continue;
        d->host.out_rows[n++] = i;
        *n_exact += i < d->n_exact;
    }
    return n;
}

static int output(struct ntx_device *d, uint32_t n, uint32_t n_exact)
{
    const struct ntx_weight *w = &d->c.chunks->output;
    const struct ntx__device_product p = {.w = w, .y = d->m.logits, .host_y = d->host.logits};
    uint64_t row = d->hp->n_vocab * sizeof(float);
    int rc;
    if (n > d->c.logits_rows)
        return ntx_err_set(&d->f->c.weights->error, -E2BIG, "%u rows want logits, and there is room for %u", n, d->c.logits_rows);
    /* only rows with logits need the last layer's sum */
    if ((rc = upload(d, d->m.out_rows, d->host.out_rows, n * 4ull)))
        return ntx__device_fail(d, rc, "rows out");
    if ((rc = add_and_norm(d, d->m.y, NULL, NULL, d->m.rows, d->n, 0)) ||
        (rc = add_and_norm(d, NULL, NULL, vector(d, &d->c.chunks->output_norm), d->m.out_rows, n, ntx__forms(&w, 1))) ||
        (rc = ntx__device_multiply(d, &p, 1, d->m.x, n, n_exact)))
        return rc;
    if ((rc = d->ops->download(d->compute, d->host.logits, d->m.logits, n * row)) || (rc = d->ops->stream_sync(d->compute)))
        return ntx__device_fail(d, rc, "logits");
    for (uint32_t i = 0; i < n; i++)
        memcpy(d->f->b->rows[d->host.out_rows[i]].logits, d->host.logits + (uint64_t)i * d->hp->n_vocab, row);
    return 0;
}

static int run(struct ntx_device *d)
{
    struct ntx_forward *f = d->f;
    uint32_t n_exact, n_out = choose_logits(d, &n_exact);
    int rc = bring_rows(d);
    for (f->layer = 0; !rc && f->layer < d->hp->n_layers; f->layer++)
        rc = run_layer(d);
    if (rc)
        return rc;
    if (n_out)
        return output(d, n_out, n_exact);
    if ((rc = ntx__device_settle(d))) /* chunks are given back in the order of the list */
        return ntx__device_fail(d, rc, "a copy");
    ntx__skip_chunks(f, d->c.chunks->output_norm.chunk0, d->hp->n_layers);
    return 0;
}

int ntx__device_pass(struct ntx_device *d, struct ntx_forward *f)
{
    d->f = f;
    d->n = f->b->n_rows;
    d->n_exact = 0;
    for (uint32_t i = 0; i < d->n; i++)
        d->n_exact = f->b->rows[i].prompt ? d->n_exact : i + 1;
    int rc = run(d);
    /* The weights' slots and what is queued are waited for even after a failure: nothing may still be read then. */
    int late = ntx__device_settle(d);
    if (!late)
        late = d->ops->stream_sync(d->copies);
    if (!late)
        late = d->ops->stream_sync(d->compute);
    if (!rc && late)
        rc = ntx__device_fail(d, late, "the end of a pass");
    return rc;
}
