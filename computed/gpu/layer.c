/* SPDX-License-Identifier: Apache-2.0 */
/* layer.c: the operations of a layer's steps (model/layer.h) on a device. All work is queued. The host waits only
 * where the CPU shares a step, where a streamed chunk has not arrived, and where it selects experts. */
#include <string.h>

#include "common/util.h"
#include "computed/gpu/device_impl.h"

const float *ntx__device_vector(const struct ntx_device *d, const struct ntx_weight *w)
{
    return w->tensor == NTX_NO_TENSOR ? NULL : (const float *)(const void *)d->at[w->chunk0];
}

static void *quantized(const struct ntx_device *d, enum ntx__set set, uint32_t forms, enum ntx_act form)
{
    return forms >> form & 1 ? d->m.quantized[set][form] : NULL;
}

/* h += y + bias, if y is given; x = norm(h) * times, also quantised in `forms`. */
static int add_and_norm(struct ntx_device *d, const float *y, const float *bias, const float *w, const uint32_t *rows,
                        uint32_t n, uint32_t forms, float times)
{
    const struct ntx_gpu_norm g = {
        .h = d->m.buf[NTX_BUF_H],
        .y = y,
        .bias = bias,
        .w = w,
        .rows = rows,
        .x = d->m.buf[NTX_BUF_X],
        .q8 = quantized(d, NTX__OF_LAYER, forms, NTX_ACT_Q8),
        .q8k = quantized(d, NTX__OF_LAYER, forms, NTX_ACT_Q8K),
        .ld_h = d->hp->n_embd,
        .ld_y = d->hp->n_embd,
        .ld_x = d->f->ld_x,
        .q8_stride = ntx_act_row_bytes(NTX_ACT_Q8, d->hp->n_embd),
        .q8k_stride = ntx_act_row_bytes(NTX_ACT_Q8K, d->hp->n_embd),
        .n = d->hp->n_embd,
        .n_rows = n,
        .eps = d->hp->rms_eps,
        .times = times,
    };
    return n ? ntx__device_go(d, NTX_GPU_NORM, &g, "a norm") : 0;
}

/* Sets the experts' biases, and the expert of each routed row of the wave. */
static void set_expert_biases(const struct ntx_device *d, struct ntx_gpu_quantize *g)
{
    const struct ntx_weight *of = ntx__device_layer(d)->expert_bias;
    g->x_bias = ntx__device_vector(d, &of[NTX_EXPERT_GATE]);
    g->up_bias = ntx__device_vector(d, &of[NTX_EXPERT_UP]);
    g->bias_rows = d->m.moe.expert + d->f->moe.first;
}

/* gate = act(gate) * up, if up is a buffer; gate is then quantised. */
int ntx__device_glu(struct ntx_forward *f, const struct ntx__glu *s)
{
    struct ntx_device *d = f->c.device;
    struct ntx_gpu_quantize g = {
        .x = d->m.buf[s->gate],
        .up = d->m.buf[s->up],
        .q8 = quantized(d, s->set, s->forms, NTX_ACT_Q8),
        .q8k = quantized(d, s->set, s->forms, NTX_ACT_Q8K),
        .ld_x = f->buf[s->gate].ld,
        .ld_up = f->buf[s->up].ld,
        .q8_stride = ntx_act_row_bytes(NTX_ACT_Q8, s->n),
        .q8k_stride = ntx_act_row_bytes(NTX_ACT_Q8K, s->n),
        .n = s->n,
        .n_rows = s->n_rows,
        .by = s->step ? *ntx__glu_by(s) : (struct ntx_activation){0},
    };
    if (s->of_choices)
        set_expert_biases(d, &g);
    return g.up || g.q8 || g.q8k ? ntx__device_go(d, NTX_GPU_QUANTIZE, &g, "quantising") : 0;
}

/* ---- steps of rows that one kernel does together */

int ntx__device_add_pending(struct ntx_device *d)
{
    int rc = add_and_norm(d, d->m.buf[NTX_BUF_Y], NULL, NULL, d->pending.list, d->pending.n_live, 0, 1);
    d->pending.n_live = 0;
    return rc;
}

static const float *vector(const struct ntx_device *d, enum ntx_tensor t)
{
    return ntx__device_vector(d, &ntx__device_layer(d)->of[t]);
}

/* x = norm(h). The pending y of the layer before is added in the same launch if the rows are the same. */
static int norm_state(struct ntx_device *d, const struct ntx_step *s, uint32_t forms)
{
    bool together = d->pending.n_live == d->now.n_all && d->pending.list == d->now.list;
    int rc = together ? 0 : ntx__device_add_pending(d);
    if (!rc)
        rc = add_and_norm(d, together ? d->m.buf[NTX_BUF_Y] : NULL, NULL, vector(d, (enum ntx_tensor)s->weight[0]),
                          d->now.list, d->now.n_all, forms, s->scale != 0 ? s->scale : 1);
    d->pending.n_live = 0;
    return rc;
}

/* (BIAS) ADD NORM; NORM at the layer's beginning; ADD at its end, which becomes pending. */
static int run_residual(struct ntx_device *d, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(d->f, r), *last = s + r->n - 1;
    if (last->op == NTX_OP_ADD) {
        d->pending = d->now;
        return 0;
    }
    if (r->n == 1)
        return norm_state(d, s, r->forms);
    return add_and_norm(d, d->m.buf[NTX_BUF_Y], s->op == NTX_OP_BIAS ? vector(d, (enum ntx_tensor)s->weight[0]) : NULL,
                        vector(d, (enum ntx_tensor)last->weight[0]), d->now.list, d->now.n_live, r->forms, 1);
}

struct ntx_gpu_kv ntx__device_kv(const struct ntx_device *d, uint32_t row)
{
    const struct ntx_hparams *hp = d->hp;
    const struct ntx_dims w = ntx_dims_of(hp, d->f->layer);
    const bool ring = ntx__device_has_ring(d, d->f->layer);
    return (struct ntx_gpu_kv){
        .base = d->m.kv[ring],
        .block_bytes = d->kv_block_bytes[ring],
        .layer_offset = d->kv_at[w.kv_of],
        .tables = d->m.tables[ring],
        .table_at = d->m.table_at,
        .pos = d->m.pos,
        .rows = d->now.list + row,
        .paths = d->n_paths ? d->m.paths : NULL,
        .path_from = d->m.path_from,
        .path_at = d->m.path_at,
        .holes = d->with_holes ? d->m.holes + (uint64_t)d->f->layer * d->c.kv.blocks : NULL,
        .block_tokens = NTX_KV_BLOCK,
        .n_head = w.n_head,
        .n_head_kv = ntx_kept_heads(hp, d->f->layer),
        .head_k = ntx_kept_k(hp, d->f->layer),
        .head_v = hp->kv_lora ? hp->kv_lora : w.head_v,
        .q8 = d->c.kv_type == NTX_KV_Q8_0,
        .v_in_k = hp->kv_lora != 0 || hp->v_is_k,
    };
}

/* Norms over whole rows of a buffer. */
static int norm_rows(struct ntx_device *d, const struct ntx_step *s, uint32_t n)
{
    const struct ntx_gpu_norm g = {.h = d->m.buf[s->in[0]],
                                   .w = vector(d, (enum ntx_tensor)s->weight[0]),
                                   .x = d->m.buf[s->out],
                                   .ld_h = d->f->buf[s->in[0]].ld,
                                   .ld_x = d->f->buf[s->out].ld,
                                   .n = s->width,
                                   .n_rows = n,
                                   .eps = d->hp->rms_eps,
                                   .times = s->scale != 0 ? s->scale : 1};
    return n ? ntx__device_go(d, NTX_GPU_NORM, &g, "a norm") : 0;
}

/* Norms over all heads. */
static int norm_all(struct ntx_device *d, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(d->f, r);
    int rc = 0;
    for (uint32_t k = 0; k < r->n && !rc; k++)
        if (s[k].op == NTX_OP_NORM && (s[k].weight[0] == NTX_T_q_norm_all || s[k].weight[0] == NTX_T_k_norm_all))
            rc = norm_rows(d, &s[k], s[k].feeds ? d->now.n_all : d->now.n_live);
    return rc;
}

/* Biases, head norms, rotation (RoPE), and stores of K and V in the cache. */
static int rotate_and_store(struct ntx_device *d, const struct ntx__run *r)
{
    const struct ntx_step *rope = ntx_layer_find(&d->c.model->layers[d->f->layer], NTX_OP_ROPE); /* NULL: no rotation */
    const uint8_t turn = rope ? rope->rope.angles : 0;
    const struct ntx_gpu_rotate g = {
        .q = d->m.buf[NTX_BUF_Q],
        .k = d->m.buf[NTX_BUF_K],
        .v = d->m.buf[NTX_BUF_V],
        .ld_q = d->f->buf[NTX_BUF_Q].ld,
        .ld_k = d->f->buf[NTX_BUF_K].ld,
        .ld_v = d->f->buf[NTX_BUF_V].ld,
        .q_bias = vector(d, NTX_T_q_bias),
        .k_bias = vector(d, NTX_T_k_bias),
        .v_bias = vector(d, NTX_T_v_bias),
        .q_norm = vector(d, NTX_T_q_norm),
        .k_norm = vector(d, NTX_T_k_norm),
        .cs = d->m.cs[turn],
        .sn = d->m.sn[turn],
        .kv = ntx__device_kv(d, 0),
        .n_rows = d->now.n_all,
        .n_query = d->now.n_live,
        .rope_dim = rope ? rope->rope.rotated : 0,
        .neox = rope && rope->rope.pairs != NTX_ROPE_NORM,
        .eps = d->hp->rms_eps,
    };
    int rc = norm_all(d, r);
    return rc ? rc : ntx__device_go(d, NTX_GPU_ROTATE, &g, "rotation");
}

/* ---- steps of rows, one by one */

int ntx__device_step(struct ntx_device *d, const struct ntx_gpu_step *g)
{
    return g->n_rows ? ntx__device_go(d, NTX_GPU_STEP, g, "a step of rows") : 0;
}

static int put_rows(struct ntx_device *d, const struct ntx_gpu_kv *kv, uint8_t k, uint8_t v)
{
    const struct ntx_gpu_rotate g = {
        .k = d->m.buf[k],
        .v = d->m.buf[v],
        .ld_k = d->f->buf[k].ld,
        .ld_v = d->f->buf[v].ld,
        .cs = d->m.cs[0],
        .sn = d->m.sn[0],
        .kv = *kv,
        .n_rows = d->now.n_all,
    };
    return ntx__device_go(d, NTX_GPU_ROTATE, &g, "K and V");
}

/* Stores K and V, K and indexer keys, or indexer keys alone. */
static int store_kv(struct ntx_device *d, const struct ntx_step *s)
{
    const struct ntx_gpu_kv kv = ntx__device_kv(d, 0), keys = ntx__device_keys(d, 0);
    int rc = s->put.keys ? put_rows(d, &keys, s->in[0], NTX_BUF_NONE) : put_rows(d, &kv, s->in[0], s->in[1]);
    return rc || !kv.v_in_k || !s->in[1] ? rc : put_rows(d, &keys, s->in[1], NTX_BUF_NONE);
}

/* `bit` if rows of the buffer are indexed by their place in the pass. */
static uint32_t by_pass(uint8_t buf, uint32_t bit) { return ntx__by_batch(buf) ? bit : 0; }

static const float *weight_of(const struct ntx_device *d, const struct ntx_step *s, unsigned i)
{
    return i < s->n_weights ? vector(d, (enum ntx_tensor)s->weight[i]) : NULL;
}

static int run_step(struct ntx_device *d, const struct ntx_step *s)
{
    const struct ntx_forward *f = d->f;
    const bool table = s->op == NTX_OP_INPUTS, turns = s->op == NTX_OP_ROPE;
    const uint32_t n = s->feeds ? d->now.n_all : d->now.n_live;
    float *second = s->in[1] ? d->m.buf[s->in[1]] + s->from : NULL;
    const uint32_t only = s->in[1] ? 0 : s->from; /* `from` is of the second input, if there is one */
    const struct ntx_gpu_step g = {
        .out = d->m.buf[s->out] + s->offset,
        .in = d->m.buf[s->in[0]] + (s->op == NTX_OP_NORM ? s->offset : only),
        .other = table ? d->m.input_entry : second,
        .w = weight_of(d, s, 0),
        .w2 = weight_of(d, s, 1),
        .cs = turns ? d->m.cs[s->rope.angles] : NULL,
        .sn = turns ? d->m.sn[s->rope.angles] : NULL,
        .rows = d->now.list,
        .ld_out = f->buf[s->out].ld,
        .ld_in = f->buf[s->in[0]].ld,
        .ld_other = table ? s->width : f->buf[s->in[1]].ld,
        .by_row = by_pass(s->out, NTX_GPU_OUT) | by_pass(s->in[0], NTX_GPU_IN) |
                  (table ? NTX_GPU_OTHER : by_pass(s->in[1], NTX_GPU_OTHER)),
        .n_rows = n,
        .eps = d->hp->rms_eps,
        .s = *s,
    };
    if (s->op == NTX_OP_PUT)
        return store_kv(d, s);
    if (s->op == NTX_OP_NORM && s->heads == 1 && s->n_weights && !s->offset && !by_pass(s->in[0], 1) &&
        !by_pass(s->out, 1))
        return norm_rows(d, s, n);
    return ntx__device_step(d, &g);
}

static bool norms_state(const struct ntx_step *s)
{
    return s->op == NTX_OP_NORM && s->in[0] == NTX_BUF_H && s->out == NTX_BUF_X;
}
static bool adds_to_state(const struct ntx_step *s)
{
    return s->op == NTX_OP_ADD && s->in[0] == NTX_BUF_Y && s->out == NTX_BUF_H;
}

/* Quantises the run's output for products, each part of a row by itself. */
static int quantize_parts(struct ntx_device *d, const struct ntx__run *r, uint8_t buf, uint32_t n_rows)
{
    const uint64_t q8 = ntx_act_row_bytes(NTX_ACT_Q8, r->width), q8k = ntx_act_row_bytes(NTX_ACT_Q8K, r->width);
    int rc = 0;
    for (uint32_t k = 0; k < r->parts && n_rows && !rc; k++) { /* n_rows may be 0: all rows leave K and V only */
        struct ntx_gpu_quantize g = {
            .x = d->m.buf[buf] + k * r->width,
            .q8 = quantized(d, NTX__OF_LAYER, r->forms, NTX_ACT_Q8),
            .q8k = quantized(d, NTX__OF_LAYER, r->forms, NTX_ACT_Q8K),
            .ld_x = d->f->buf[buf].ld,
            .q8_stride = r->parts * q8,
            .q8k_stride = r->parts * q8k,
            .n = r->width,
            .n_rows = n_rows,
        };
        g.q8 = g.q8 ? (uint8_t *)g.q8 + k * q8 : NULL;
        g.q8k = g.q8k ? (uint8_t *)g.q8k + k * q8k : NULL;
        rc = g.q8 || g.q8k ? ntx__device_go(d, NTX_GPU_QUANTIZE, &g, "quantising") : 0;
    }
    return rc;
}

/* Runs the steps one by one, except for ends that one kernel does together. */
static int run_each_step(struct ntx_device *d, const struct ntx__run *r)
{
    const struct ntx_layer *l = &d->c.model->layers[d->f->layer];
    const struct ntx_step *s = ntx__steps_of(d->f, r), *end = s + r->n;
    int rc = 0;
    for (; s < end && !rc; s++) {
        if (s + 1 == end && norms_state(s))
            return norm_state(d, s, r->forms);
        if (s + 2 == end && adds_to_state(s) && norms_state(s + 1) && !d->pending.n_live)
            return add_and_norm(d, d->m.buf[NTX_BUF_Y], NULL, vector(d, (enum ntx_tensor)s[1].weight[0]), d->now.list,
                                d->now.n_live, r->forms, s[1].scale != 0 ? s[1].scale : 1);
        if (s + 1 == l->step + l->n_steps && adds_to_state(s)) {
            d->pending = d->now;
            return 0;
        }
        if ((s->in[0] == NTX_BUF_H || s->out == NTX_BUF_H) && (rc = ntx__device_add_pending(d)))
            return rc;
        rc = run_step(d, s);
    }
    if (rc)
        return rc;
    return quantize_parts(d, r, end[-1].out, end[-1].feeds ? d->now.n_all : d->now.n_live);
}

static bool all_at_once(const struct ntx_layer *l, const struct ntx__run *r);

static int run_rows(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_step *last = ntx__steps_of(f, r) + r->n - 1;
    if (!all_at_once(&d->c.model->layers[f->layer], r))
        return run_each_step(d, r);
    if (last->op == NTX_OP_PUT)
        return rotate_and_store(d, r);
    if (last->op == NTX_OP_GLU)
        return ntx__device_glu(f, &(struct ntx__glu){.gate = last->in[0],
                                                     .up = last->in[1],
                                                     .step = last,
                                                     .n = last->width,
                                                     .n_rows = f->n_live,
                                                     .forms = r->forms});
    return run_residual(d, r);
}

/* ---- attention */

uint32_t ntx__device_most_pos(const struct ntx_device *d)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < d->f->b->n_rows; i++)
        most = NTX_MAX(most, d->host.pos[i] + 1);
    return most;
}

uint32_t ntx__device_whole_splits(const struct ntx_device *d)
{
    const uint32_t most = ntx__device_most_pos(d);
    return NTX_MIN(NTX_ROUND_UP(most, NTX_GPU_SPLIT), NTX_MAX(d->c.ctx, most));
}

/* Attention of live rows [from, to), as many at a time as the memory for partial results allows. */
static int attend_split(struct ntx_device *d, const struct ntx_step *s, uint32_t from, uint32_t to)
{
    const uint64_t ld_q = d->f->buf[NTX_BUF_Q].ld;
    uint32_t most = ntx__device_whole_splits(d);
    int rc = ntx__device_drop_holes(d, s);
    for (uint32_t r = from; r < to && !rc; r += d->attend_rows) {
        struct ntx_gpu_attend g = {
            .q = d->m.buf[NTX_BUF_Q] + r * ld_q,
            .out = d->m.buf[NTX_BUF_ATTN] + (uint64_t)r * d->f->ld_attn,
            .partial = d->m.partial,
            .kv = ntx__device_kv(d, r),
            .ld_q = ld_q,
            .ld_out = d->f->ld_attn,
            .n_rows = NTX_MIN(to - r, d->attend_rows),
            .most_pos = most,
            .window = s->attend.window,
            .sinks = vector(d, NTX_T_sinks),
            .scale = s->scale,
            .cap = s->attend.cap,
        };
        ntx__device_lists(d, s, &g);
        if (d->hp->v_is_k)
            ntx__device_attend_pooled(d, s, &g);
        rc = ntx__device_go(d, NTX_GPU_ATTEND, &g, "attention");
    }
    return rc;
}

/* Attention of prompt rows. They skip no layer, so the tiles of the pass hold in all layers but the last, which may
 * have fewer rows. */
static int attend_tiles(struct ntx_device *d, const struct ntx_step *s, uint32_t from)
{
    const uint64_t ld_q = d->f->buf[NTX_BUF_Q].ld;
    const bool end = d->ends && ntx__is_last(d->f, d->f->layer);
    const struct ntx_gpu_prefill g = {
        .q = d->m.buf[NTX_BUF_Q] + from * ld_q,
        .out = d->m.buf[NTX_BUF_ATTN] + (uint64_t)from * d->f->ld_attn,
        .kv = ntx__device_kv(d, from),
        .tiles = d->m.tiles + (end ? 2 * d->c.max_rows : 0),
        .ld_q = ld_q,
        .ld_out = d->f->ld_attn,
        .n_tiles = end ? d->n_end_tiles : d->n_tiles,
        .window = s->attend.window,
        .sinks = vector(d, NTX_T_sinks),
        .scale = s->scale,
    };
    return g.n_tiles ? ntx__device_go(d, NTX_GPU_PREFILL, &g, "attention of prompts") : 0;
}

int ntx__device_attend(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_step *s = ntx__steps_of(f, r);
    bool tiled = d->n_tiles && s->attend.cap == 0;
    uint32_t exact = tiled ? d->now.n_exact : d->now.n_live;
    int rc = s->attend.mla ? ntx__device_attend_mla(d, s) : attend_split(d, s, 0, exact);
    if (!rc && tiled)
        rc = attend_tiles(d, s, exact);
    return rc ? rc
              : ntx__device_glu(f, &(struct ntx__glu){.gate = NTX_BUF_ATTN,
                                                      .up = NTX_BUF_NONE,
                                                      .n = r->width,
                                                      .n_rows = f->n_live,
                                                      .forms = r->forms});
}

/* ---- rows out */

/* x = h * logit_scale, for models without an output norm. */
static int output_rows(struct ntx_device *d, uint32_t n, uint32_t forms)
{
    const struct ntx_gpu_step g = {.out = d->m.buf[NTX_BUF_X],
                                   .in = d->m.buf[NTX_BUF_H],
                                   .rows = d->m.out_rows,
                                   .ld_out = d->f->ld_x,
                                   .ld_in = d->hp->n_embd,
                                   .by_row = NTX_GPU_IN,
                                   .n_rows = n,
                                   .s = {.op = NTX_OP_SCALE, .width = d->hp->n_embd, .scale = d->hp->logit_scale}};
    int rc = ntx__device_step(d, &g);
    return rc ? rc
              : ntx__device_glu(d->f,
                                &(struct ntx__glu){.gate = NTX_BUF_X, .n = d->hp->n_embd, .n_rows = n, .forms = forms});
}

int ntx__device_output_norm(struct ntx_device *d, uint32_t n)
{
    const struct ntx_weight *w = &d->c.chunks->output;
    if (d->hp->no_output_norm)
        return output_rows(d, n, ntx__forms(&w, 1));
    return add_and_norm(d, NULL, NULL, ntx__device_vector(d, &d->c.chunks->output_norm), d->m.out_rows, n,
                        ntx__forms(&w, 1), d->hp->logit_scale);
}

/* ---- low-rank adds (computed/pass/lora.c) */

static int quantize_low(struct ntx_forward *f, const struct ntx_step *s, uint32_t n, uint32_t forms)
{
    struct ntx_device *d = f->c.device;
    const uint32_t n_in = ntx__weight_of(f, s)->n_in;
    const struct ntx_gpu_quantize g = {
        .x = d->m.buf[NTX_BUF_LOW] + s->from,
        .q8 = quantized(d, NTX__OF_LOW, forms, NTX_ACT_Q8),
        .q8k = quantized(d, NTX__OF_LOW, forms, NTX_ACT_Q8K),
        .ld_x = f->buf[NTX_BUF_LOW].ld,
        .q8_stride = ntx_act_row_bytes(NTX_ACT_Q8, n_in),
        .q8k_stride = ntx_act_row_bytes(NTX_ACT_Q8K, n_in),
        .n = n_in,
        .n_rows = n,
    };
    return g.q8 || g.q8k ? ntx__device_go(d, NTX_GPU_QUANTIZE, &g, "quantising") : 0;
}

/* One launch for each run of adjacent rows that the step adds to. */
static int add_lora(struct ntx_forward *f, const struct ntx_step *s, uint32_t n)
{
    struct ntx_device *d = f->c.device;
    const uint8_t from = s->n_weights ? NTX_BUF_LORA : NTX_BUF_LOW;
    const uint64_t ld_in = f->buf[from].ld, ld_out = f->buf[s->out].ld;
    int rc = 0;
    for (uint32_t i = 0, k; i < n && !rc; i += k) {
        for (k = 0; i + k < n && ntx__adds_to(f, s, i + k); k++)
            ;
        const struct ntx_gpu_step g = {.out = d->m.buf[s->out] + i * ld_out + s->offset,
                                       .in = d->m.buf[from] + i * ld_in + (s->n_weights ? 0 : s->from),
                                       .ld_out = ld_out,
                                       .ld_in = ld_in,
                                       .n_rows = k,
                                       .s = {.op = NTX_OP_LORA,
                                             .width = s->n_weights ? ntx__weight_of(f, s)->n_out : s->width,
                                             .scale = s->scale}};
        rc = ntx__device_step(d, &g);
        k += !k;
    }
    return rc;
}

/* ---- support of steps */

/* Whether one kernel does these steps: a norm of the state; an add to it, and its norm; biases, norms and rotation
 * of q and k, and stores of K and V; a GLU in place. */
static bool all_at_once(const struct ntx_layer *l, const struct ntx__run *r)
{
    static const char letters[NTX_N_OPS] = {[NTX_OP_NORM] = 'N', [NTX_OP_BIAS] = 'B', [NTX_OP_ROPE] = 'R',
                                            [NTX_OP_PUT] = 'P',  [NTX_OP_GLU] = 'G',  [NTX_OP_ADD] = 'A'};
    char ops[NTX_LAYER_STEPS + 1] = "";
    const struct ntx_step *s = &l->step[r->first], *last = s + r->n - 1;
    for (uint32_t i = 0; i < r->n; i++) {
        ops[i] = letters[s[i].op] ? letters[s[i].op] : '?';
        if ((s[i].op == NTX_OP_NORM && !s[i].n_weights) || s[i].offset || s[i].from)
            return false;
    }
    if (!strcmp(ops, "N"))
        return norms_state(last);
    if (!strcmp(ops, "A"))
        return adds_to_state(last) && r->first + r->n == l->n_steps;
    if (!strcmp(ops, "AN") || !strcmp(ops, "BAN"))
        return adds_to_state(last - 1) && norms_state(last);
    if (!strcmp(ops, "G"))
        return last->out == last->in[0] && last->in[1] != NTX_BUF_INPUTS;
    size_t b = strspn(ops, "B"), n = strspn(ops + b, "N"), turned = strspn(ops + b + n, "R");
    return (!turned || turned == 2) && !strcmp(ops + b + n + turned, "P") && last->in[0] == NTX_BUF_K &&
           last->in[1] == NTX_BUF_V;
}

static bool can_run(const struct ntx_model *m, const struct ntx_layer *l, const struct ntx__run *r)
{
    const struct ntx_hparams *hp = &m->hp;
    const uint32_t at = (uint32_t)(l - m->layers);
    for (const struct ntx_step *s = &l->step[r->first]; s < &l->step[r->first] + r->n; s++)
        if (ntx_op_kinds[s->op].device == NTX_ON_DEVICE_NO || (s->op == NTX_OP_MAP && s->map.kind > NTX_MAP_XIELU))
            return false;
    if (r->op == NTX_OP_EXPERTS && l->step[r->first].experts.ungated)
        return false;
    if (r->op == NTX_OP_GROUPS && (m->delta.base || m->delta.any)) /* layers share groups */
        return false;
    if (r->op == NTX_OP_ATTEND || r->op == NTX_OP_POOL)
        return ntx_kept_k(hp, at) <= NTX_GPU_HEAD_MAX && ntx_kept_v(hp, at) <= NTX_GPU_HEAD_MAX &&
               ntx_kept_k(hp, at) % 8 == 0 && ntx_kept_v(hp, at) % 8 == 0;
    return true;
}

static bool has_chunk(const struct ntx_forward *f, uint32_t chunk) { return f->c.device->at[chunk] != NULL; }

#define IF_DEVICE_NO(...)
#define IF_DEVICE_OWN(...)                       __VA_ARGS__
#define ENTRY(name, symbol, device)              IF_DEVICE_##device([NTX_OP_##name] = ntx__device_##symbol, )
#define X(name, symbol, by, width, does, device) NTX__IF_BACK_##by(ENTRY(name, symbol, device))
const struct ntx_backend ntx_device_backend = {
    .can = can_run,
    .begin = ntx__device_begin,
    .enter = ntx__device_enter,
    .rows = run_rows,
    .run = {NTX_OPS(X)},
    .multiply = ntx__device_multiply,
    .glu = ntx__device_glu,
    .low = quantize_low,
    .lora = add_lora,
    .clear = ntx__device_clear,
    .routed = ntx__device_routed,
    .routes = ntx__device_routes,
    .route = ntx__device_route,
    .multiply_routed = ntx__device_multiply_routed,
    .gather = ntx__device_gather,
    .combine = ntx__device_combine,
    .groups = ntx__device_groups,
    .groups_by_host = ntx__device_leaves_groups,
    .unseen = 1u << NTX_BUF_K | 1u << NTX_BUF_V |
              1u << NTX_BUF_Y, /* K and V are rotated while they are stored; a bias of Y is added to H */
    .fetch = ntx__device_fetch,
    .send = ntx__device_send,
    .settle = ntx__device_let_go,
    .decided = ntx__device_decided,
    .output = ntx__device_output,
    .move = ntx__device_move,
    .end = ntx__device_end,
    .has = has_chunk,
    .own_bytes = true,
};
#undef X
