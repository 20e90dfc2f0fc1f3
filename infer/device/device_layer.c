/* device_layer.c: the operations of a layer's steps (model/layer.h) on a device. Everything is queued; the host waits only where
 * the CPU shares a step, where a streamed chunk has not come, and where experts are chosen. */
#include <string.h>

#include "common/util.h"
#include "infer/device/device_impl.h"

static const struct ntx_layer_weights *layer(const struct ntx_device *d)
{
    return &d->c.chunks->layers[d->f->layer];
}

const float *ntx__device_vector(const struct ntx_device *d, const struct ntx_weight *w)
{
    return w->tensor == NTX_NO_TENSOR ? NULL : (const float *)(const void *)d->at[w->chunk0];
}

static void *quantized(const struct ntx_device *d, enum ntx__set set, uint32_t forms, enum ntx_act form)
{
    return forms >> form & 1 ? d->m.quantized[set][form] : NULL;
}

/* h += y + bias where y is given; x = norm(h), quantised as these matrices want it. */
static int add_and_norm(struct ntx_device *d, const float *y, const float *bias, const float *w, const uint32_t *rows, uint32_t n, uint32_t forms, float times)
{
    const struct ntx_gpu_norm g = {
        .h = d->m.buf[NTX_BUF_H], .y = y, .bias = bias, .w = w, .rows = rows, .x = d->m.buf[NTX_BUF_X],
        .q8 = quantized(d, NTX__OF_LAYER, forms, NTX_ACT_Q8), .q8k = quantized(d, NTX__OF_LAYER, forms, NTX_ACT_Q8K),
        .ld_h = d->hp->n_embd, .ld_y = d->hp->n_embd, .ld_x = d->f->ld_x, .q8_stride = ntx_act_row_bytes(NTX_ACT_Q8, d->hp->n_embd),
        .q8k_stride = ntx_act_row_bytes(NTX_ACT_Q8K, d->hp->n_embd), .n = d->hp->n_embd, .n_rows = n, .eps = d->hp->rms_eps, .times = times,
    };
    return n ? ntx__device_go(d, NTX_GPU_NORM, &g, "a norm") : 0;
}

/* Experts' biases, and whose each choice of the wave is. */
static void biases(const struct ntx_device *d, struct ntx_gpu_quantize *g)
{
    const struct ntx_weight *of = layer(d)->expert_bias;
    g->x_bias = ntx__device_vector(d, &of[NTX_EXPERT_GATE]);
    g->up_bias = ntx__device_vector(d, &of[NTX_EXPERT_UP]);
    g->bias_rows = d->m.moe.expert + d->f->moe.first;
}

/* gate quantised; where up is a buffer, after act(gate) * up. */
static int glu(struct ntx_forward *f, const struct ntx__glu *s)
{
    struct ntx_device *d = f->c.device;
    struct ntx_gpu_quantize g = {
        .x = d->m.buf[s->gate], .up = d->m.buf[s->up], .q8 = quantized(d, s->set, s->forms, NTX_ACT_Q8), .q8k = quantized(d, s->set, s->forms, NTX_ACT_Q8K),
        .ld_x = f->buf[s->gate].ld, .ld_up = f->buf[s->up].ld, .q8_stride = ntx_act_row_bytes(NTX_ACT_Q8, s->n), .q8k_stride = ntx_act_row_bytes(NTX_ACT_Q8K, s->n),
        .n = s->n, .n_rows = s->n_rows, .act = s->act,
    };
    if (s->of_choices)
        biases(d, &g);
    return g.up || g.q8 || g.q8k ? ntx__device_go(d, NTX_GPU_QUANTIZE, &g, "quantising") : 0;
}

/* ---- steps of rows, which a kernel does in one go */

int ntx__device_add_pending(struct ntx_device *d)
{
    int rc = add_and_norm(d, d->m.buf[NTX_BUF_Y], NULL, NULL, d->pending.list, d->pending.n_live, 0, 1);
    d->pending.n_live = 0;
    return rc;
}

static const float *vector(const struct ntx_device *d, enum ntx_tensor t) { return ntx__device_vector(d, &layer(d)->of[t]); }

/* The layer's first norm, with what the layer before added still to come: in one go where the rows are the same. */
static int first_norm(struct ntx_device *d, const struct ntx_step *s, uint32_t forms)
{
    bool together = d->pending.n_live == d->now.n_all && d->pending.list == d->now.list;
    int rc = together ? 0 : ntx__device_add_pending(d);
    if (!rc)
        rc = add_and_norm(d, together ? d->m.buf[NTX_BUF_Y] : NULL, NULL, vector(d, (enum ntx_tensor)s->weight[0]), d->now.list, d->now.n_all, forms, 1);
    d->pending.n_live = 0;
    return rc;
}

/* (BIAS) ADD NORM; NORM at the layer's beginning; ADD at its end, which waits for what comes then. */
static int residual(struct ntx_device *d, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(d->f, r), *last = s + r->n - 1;
    if (last->op == NTX_OP_ADD) {
        d->pending = d->now;
        return 0;
    }
    if (r->n == 1)
        return first_norm(d, s, r->forms);
    return add_and_norm(d, d->m.buf[NTX_BUF_Y], s->op == NTX_OP_BIAS ? vector(d, (enum ntx_tensor)s->weight[0]) : NULL, vector(d, (enum ntx_tensor)last->weight[0]), d->now.list,
                        d->now.n_live, r->forms, 1);
}

static struct ntx_gpu_kv kv(const struct ntx_device *d, uint32_t row)
{
    const struct ntx_hparams *hp = d->hp;
    return (struct ntx_gpu_kv){
        .base = d->m.kv, .block_bytes = d->kv_block_bytes, .layer_offset = d->f->layer * d->kv_layer_bytes, .tables = d->m.tables,
        .table_at = d->m.table_at, .pos = d->m.pos, .rows = d->now.list + row,
        .paths = d->n_paths ? d->m.paths : NULL, .path_from = d->m.path_from, .path_at = d->m.path_at, .holes = d->with_holes ? d->m.holes + (uint64_t)d->f->layer * d->c.kv_blocks : NULL, .block_tokens = NTX_KV_BLOCK, .n_head = hp->n_head,
        .n_head_kv = hp->n_head_kv, .head_k = hp->head_k, .head_v = hp->head_v, .q8 = d->c.kv_type == NTX_KV_Q8_0,
    };
}

/* q or k, of all heads at once. */
static int norm_all(struct ntx_device *d, enum ntx_tensor t, float *x, uint32_t n, uint32_t n_rows)
{
    const struct ntx_gpu_norm g = {.h = x, .w = vector(d, t), .x = x, .ld_h = n, .ld_x = n, .n = n, .n_rows = n_rows, .eps = d->hp->rms_eps, .times = 1};
    return g.w && n_rows ? ntx__device_go(d, NTX_GPU_NORM, &g, "a norm") : 0;
}

/* Biases, norms of heads, rotation, and K and V into the cache. */
static int rotate_and_store(struct ntx_device *d)
{
    const struct ntx_step *rope = ntx_layer_find(&d->c.model->layers[d->f->layer], NTX_OP_ROPE); /* or none is turned */
    const struct ntx_gpu_rotate g = {
        .q = d->m.buf[NTX_BUF_Q], .k = d->m.buf[NTX_BUF_K], .v = d->m.buf[NTX_BUF_V], .q_bias = vector(d, NTX_T_q_bias), .k_bias = vector(d, NTX_T_k_bias), .v_bias = vector(d, NTX_T_v_bias),
        .q_norm = vector(d, NTX_T_q_norm), .k_norm = vector(d, NTX_T_k_norm), .cs = d->m.cs, .sn = d->m.sn, .kv = kv(d, 0), .n_rows = d->now.n_all,
        .n_query = d->now.n_live, .rope_dim = rope ? rope->rotated : 0, .neox = rope && rope->pairs != NTX_ROPE_NORM, .eps = d->hp->rms_eps,
    };
    int rc = norm_all(d, NTX_T_q_norm_all, d->m.buf[NTX_BUF_Q], d->hp->n_head * d->hp->head_k, d->now.n_live);
    if (!rc)
        rc = norm_all(d, NTX_T_k_norm_all, d->m.buf[NTX_BUF_K], d->hp->n_head_kv * d->hp->head_k, d->now.n_all);
    return rc ? rc : ntx__device_go(d, NTX_GPU_ROTATE, &g, "rotation");
}

static int rows(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_step *last = ntx__steps_of(f, r) + r->n - 1;
    if (last->op == NTX_OP_PUT)
        return rotate_and_store(d);
    if (last->op == NTX_OP_GLU)
        return glu(f, &(struct ntx__glu){.gate = last->in[0], .up = last->in[1], .act = last->act, .n = last->width, .n_rows = f->n_live, .forms = r->forms});
    return residual(d, r);
}

/* ---- attention */

/* Live rows [from, to), in groups of as many as the memory for partial results serves. */
static int attend_split(struct ntx_device *d, uint32_t from, uint32_t to)
{
    const struct ntx_hparams *hp = d->hp;
    uint32_t most = 1;
    for (uint32_t i = 0; i < d->f->b->n_rows; i++)
        most = NTX_MAX(most, d->host.pos[i] + 1);
    for (uint32_t r = from; r < to; r += d->attend_rows) {
        const struct ntx_gpu_attend g = {
            .q = d->m.buf[NTX_BUF_Q] + (uint64_t)r * hp->n_head * hp->head_k, .out = d->m.buf[NTX_BUF_ATTN] + (uint64_t)r * d->f->ld_attn, .partial = d->m.partial,
            .kv = kv(d, r), .ld_out = d->f->ld_attn, .n_rows = NTX_MIN(to - r, d->attend_rows), .most_pos = most,
            .window = ntx__steps_of(d->f, d->f->run)->window, .sinks = vector(d, NTX_T_sinks), .scale = ntx__steps_of(d->f, d->f->run)->scale,
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
    const struct ntx_gpu_prefill g = {
        .q = d->m.buf[NTX_BUF_Q] + (uint64_t)from * hp->n_head * hp->head_k, .out = d->m.buf[NTX_BUF_ATTN] + (uint64_t)from * d->f->ld_attn, .kv = kv(d, from),
        .tiles = d->m.tiles, .ld_out = d->f->ld_attn, .n_tiles = d->n_tiles,
        .window = ntx__steps_of(d->f, d->f->run)->window, .sinks = vector(d, NTX_T_sinks), .scale = ntx__steps_of(d->f, d->f->run)->scale,
    };
    return d->n_tiles ? ntx__device_go(d, NTX_GPU_PREFILL, &g, "attention of prompts") : 0;
}

static int attend(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    uint32_t exact = d->n_tiles ? d->now.n_exact : d->now.n_live;
    int rc = attend_split(d, 0, exact);
    if (!rc)
        rc = attend_tiles(d, exact);
    return rc ? rc : glu(f, &(struct ntx__glu){.gate = NTX_BUF_ATTN, .up = NTX_BUF_NONE, .n = r->width, .n_rows = f->n_live, .forms = r->forms});
}

/* ---- experts */

/* The lists of the layer before are on the device since its router's logits came down. */
static int chosen(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx__moe_mem *m = &f->m.moe;
    uint64_t bytes = (uint64_t)f->n_live * d->hp->n_expert_used * 4;
    int rc;
    if ((rc = d->ops->upload(d->compute, d->m.moe.row, m->row, bytes)) || (rc = d->ops->upload(d->compute, d->m.moe.place, m->place, bytes)) ||
        (rc = d->ops->upload(d->compute, d->m.moe.weight, m->weight, bytes)))
        return ntx__device_fail(d, rc, "the choice of experts");
    if (layer(d)->expert_bias[NTX_EXPERT_DOWN].tensor == NTX_NO_TENSOR) /* then nobody asks whose a choice is */
        return 0;
    rc = d->ops->upload(d->compute, d->m.moe.expert, m->expert, bytes);
    return rc ? ntx__device_fail(d, rc, "whose choices they are") : 0;
}

static int gather_form(struct ntx_device *d, enum ntx_act form, const void *from, void *to)
{
    uint64_t stride = ntx__stride(d->f, NTX_BUF_X, form, d->hp->n_embd);
    const struct ntx_gpu_gather g = {.from = from, .to = to, .rows = d->m.moe.row + d->f->moe.first, .from_stride = stride, .to_stride = stride, .bytes = stride,
                                     .n_rows = d->f->moe.n};
    return ntx__device_go(d, NTX_GPU_GATHER, &g, "gathering rows");
}

static int gather(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_weight *const in[] = {&layer(d)->expert[NTX_EXPERT_GATE], &layer(d)->expert[NTX_EXPERT_UP]};
    uint32_t forms = ntx__forms(in, 2);
    int rc = forms >> NTX_ACT_F32 & 1 ? gather_form(d, NTX_ACT_F32, d->m.buf[NTX_BUF_X], d->m.buf[NTX__BUF_CHOICE_X]) : 0;
    for (int form = NTX_ACT_F32 + 1; !rc && form < NTX_N_ACTS; form++)
        if (forms >> form & 1)
            rc = gather_form(d, (enum ntx_act)form, d->m.quantized[NTX__OF_LAYER][form], d->m.quantized[NTX__OF_CHOICES][form]);
    return rc;
}

static int combine(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_gpu_combine g = {
        .y = d->m.buf[NTX_BUF_Y], .z = d->m.buf[NTX__BUF_CHOICE_Y], .gate = f->moe.weigh ? d->m.buf[NTX__BUF_SHARED] : NULL, .weight = d->m.moe.weight,
        .place = d->m.moe.place, .bias = ntx__device_vector(d, &layer(d)->expert_bias[NTX_EXPERT_DOWN]), .expert = d->m.moe.expert,
        .ld_y = d->hp->n_embd, .used = d->hp->n_expert_used, .first = f->moe.first, .n_choices = f->moe.n, .n = d->hp->n_embd, .n_rows = f->n_live,
    };
    return ntx__device_go(d, NTX_GPU_COMBINE, &g, "experts' sum");
}

static int clear(struct ntx_forward *f, enum ntx_buf b)
{
    struct ntx_device *d = f->c.device;
    int rc = d->ops->fill(d->compute, d->m.buf[b], 0, f->n_live * f->buf[b].ld * sizeof(float));
    return rc ? ntx__device_fail(d, rc, "experts' sum") : 0;
}

int ntx__device_output_norm(struct ntx_device *d, uint32_t n)
{
    const struct ntx_weight *w = &d->c.chunks->output;
    return add_and_norm(d, NULL, NULL, ntx__device_vector(d, &d->c.chunks->output_norm), d->m.out_rows, n, ntx__forms(&w, 1), d->hp->logit_scale);
}

/* ---- what there is a kernel for */

/* Steps of rows as the functions above know them. */
static bool can_rows(const struct ntx_layer *l, const struct ntx__run *r)
{
    static const char letters[NTX_N_OPS] = {[NTX_OP_NORM] = 'N', [NTX_OP_BIAS] = 'B', [NTX_OP_ROPE] = 'R', [NTX_OP_PUT] = 'P', [NTX_OP_GLU] = 'G', [NTX_OP_ADD] = 'A', [NTX_OP_SCALE] = 'S', [NTX_OP_INPUTS] = 'I'};
    char ops[NTX_LAYER_STEPS + 1] = "";
    for (uint32_t i = 0; i < r->n; i++)
        ops[i] = letters[l->step[r->first + i].op];
    if (!r->first || r->first + r->n == l->n_steps)
        return !strcmp(ops, r->first ? "A" : "N");
    return !strcmp(ops, "AN") || !strcmp(ops, "BAN") || !strcmp(ops, "G") || (ops[r->n - 1] == 'P' && strspn(ops, "BNR") == r->n - 1u);
}

static bool can(const struct ntx_model *m, const struct ntx_layer *l, const struct ntx__run *r)
{
    const struct ntx_step *s = &l->step[r->first];
    if (m->hp.dims || m->rope_long != NTX_NO_TENSOR || m->rope_short != NTX_NO_TENSOR)
        return false;
    for (uint32_t i = 0; i < r->n; i++)
        if (s[i].turn || s[i].cap != 0 || s[i].weighs_input || (s[i].op == NTX_OP_NORM && !s[i].n_weights))
            return false;
    if (r->kind == NTX__ATTEND)
        return !m->hp.kv_lora && m->hp.head_k <= NTX_GPU_HEAD_MAX && m->hp.head_v <= NTX_GPU_HEAD_MAX;
    return r->kind == NTX__ROWS ? can_rows(l, r) : r->kind != NTX__CONV && r->kind != NTX__DELTA;
}

static bool has(const struct ntx_forward *f, uint32_t chunk) { return f->c.device->at[chunk] != NULL; }

const struct ntx_backend ntx_device_backend = {
    .can = can,
    .begin = ntx__device_begin,
    .enter = ntx__device_enter,
    .rows = rows,
    .attend = attend,
    .multiply = ntx__device_multiply,
    .glu = glu,
    .clear = clear,
    .chosen = chosen,
    .gather = gather,
    .combine = combine,
    .groups = ntx__device_groups,
    .groups_by_host = ntx__device_leaves_groups,
    .unseen = 1u << NTX_BUF_K | 1u << NTX_BUF_V | 1u << NTX_BUF_Y, /* K and V are turned on their way into the cache, a bias of Y goes into H */
    .fetch = ntx__device_fetch,
    .send = ntx__device_send,
    .settle = ntx__device_let_go,
    .decided = ntx__device_decided,
    .output = ntx__device_output,
    .move = ntx__device_move,
    .end = ntx__device_end,
    .has = has,
    .own_bytes = true,
};
