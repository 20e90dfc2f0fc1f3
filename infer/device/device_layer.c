/* device_layer.c: the operations of a layer's steps (model/layer.h) on a device. Everything is queued; the host waits only where
 * the CPU shares a step, where a streamed chunk has not come, and where experts are chosen. */
#include <math.h>
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

static void *quantized(void *const *all, uint32_t forms, enum ntx_act form)
{
    return forms >> form & 1 ? all[form] : NULL;
}

/* h += y + bias where y is given; x = norm(h), quantised as these matrices want it. */
static int add_and_norm(struct ntx_device *d, const float *y, const float *bias, const float *w, const uint32_t *rows, uint32_t n, uint32_t forms)
{
    const struct ntx_gpu_norm g = {
        .h = d->m.h, .y = y, .bias = bias, .w = w, .rows = rows, .x = d->m.x,
        .q8 = quantized(d->m.quantized, forms, NTX_ACT_Q8), .q8k = quantized(d->m.quantized, forms, NTX_ACT_Q8K),
        .ld_h = d->hp->n_embd, .ld_y = d->hp->n_embd, .ld_x = NTX__DEVICE_LD(d->hp->n_embd), .q8_stride = d->stride[NTX_ACT_Q8],
        .q8k_stride = d->stride[NTX_ACT_Q8K], .n = d->hp->n_embd, .n_rows = n, .eps = d->hp->rms_eps,
    };
    return n ? ntx__device_go(d, NTX_GPU_NORM, &g, "a norm") : 0;
}

int ntx__device_quantize(struct ntx_device *d, float *x, const float *up, uint32_t n, uint32_t n_rows, uint32_t forms, void *const *to,
                     const struct ntx__device_biases *biases)
{
    const struct ntx_gpu_quantize g = {
        .x = x, .up = up, .q8 = quantized(to, forms, NTX_ACT_Q8), .q8k = quantized(to, forms, NTX_ACT_Q8K), .ld_x = NTX__DEVICE_LD(n), .ld_up = n,
        .q8_stride = d->stride[NTX_ACT_Q8], .q8k_stride = d->stride[NTX_ACT_Q8K], .n = n, .n_rows = n_rows, .act = up ? (ntx__steps_of(d->f, d->f->run) + d->f->run->n - 1)->act : NTX_FFN_SILU,
        .x_bias = biases ? biases->x : NULL, .up_bias = biases ? biases->up : NULL, .bias_rows = biases ? biases->of : NULL,
    };
    return up || g.q8 || g.q8k ? ntx__device_go(d, NTX_GPU_QUANTIZE, &g, "quantising") : 0;
}

/* ---- inputs of products */

struct ntx__device_input ntx__device_normed(const struct ntx_device *d, uint32_t n, uint32_t first_dense, uint32_t n_dense)
{
    return (struct ntx__device_input){.x = d->m.x, .ld = NTX__DEVICE_LD(d->hp->n_embd), .quantized = d->m.quantized, .n = n, .first_dense = first_dense, .n_dense = n_dense};
}

/* ---- steps of rows, which a kernel does in one go */

int ntx__device_add_pending(struct ntx_device *d)
{
    int rc = add_and_norm(d, d->m.y, NULL, NULL, d->pending.list, d->pending.n_live, 0);
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
        rc = add_and_norm(d, together ? d->m.y : NULL, NULL, vector(d, (enum ntx_tensor)s->weight[0]), d->now.list, d->now.n_all, forms);
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
    return add_and_norm(d, d->m.y, s->op == NTX_OP_BIAS ? vector(d, (enum ntx_tensor)s->weight[0]) : NULL, vector(d, (enum ntx_tensor)last->weight[0]), d->now.list,
                        d->now.n_live, r->forms);
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

static enum ntx_rope_kind rope_of(const struct ntx_device *d)
{
    return (enum ntx_rope_kind)ntx_layer_find(&d->c.model->layers[d->f->layer], NTX_OP_ROPE)->pairs;
}

/* Biases, norms of heads, rotation, and K and V into the cache. */
static int rotate_and_store(struct ntx_device *d)
{
    const struct ntx_gpu_rotate g = {
        .q = d->m.q, .k = d->m.k, .v = d->m.v, .q_bias = vector(d, NTX_T_q_bias), .k_bias = vector(d, NTX_T_k_bias), .v_bias = vector(d, NTX_T_v_bias),
        .q_norm = vector(d, NTX_T_q_norm), .k_norm = vector(d, NTX_T_k_norm), .cs = d->m.cs, .sn = d->m.sn, .kv = kv(d, 0), .n_rows = d->now.n_all,
        .n_query = d->now.n_live, .rope_dim = d->hp->rope_dim, .neox = rope_of(d) != NTX_ROPE_NORM, .eps = d->hp->rms_eps,
    };
    return ntx__device_go(d, NTX_GPU_ROTATE, &g, "rotation");
}

static int rows(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_step *last = ntx__steps_of(f, r) + r->n - 1;
    if (last->op == NTX_OP_PUT)
        return rotate_and_store(d);
    if (last->op == NTX_OP_GLU)
        return ntx__device_quantize(d, d->m.gate, d->m.up, last->width, d->now.n_live, r->forms, d->m.quantized, NULL);
    return residual(d, r);
}

/* ---- products */

struct place { /* of a buffer's rows */
    float *device, *host;
    size_t ld;
};

static struct place place_of(const struct ntx_device *d, enum ntx_buf b)
{
    const struct ntx_hparams *hp = d->hp;
    const struct ntx__mem *h = &d->f->m;
    const struct place all[NTX_N_BUFS] = {
        [NTX_BUF_X] = {d->m.x, h->x, NTX__DEVICE_LD(hp->n_embd)},
        [NTX_BUF_Q] = {d->m.q, h->q, hp->n_head * hp->head_k},
        [NTX_BUF_K] = {d->m.k, h->k, hp->n_head_kv * hp->head_k},
        [NTX_BUF_V] = {d->m.v, h->v, hp->n_head_kv * hp->head_v},
        [NTX_BUF_ATTN] = {d->m.attn, h->attn, NTX__DEVICE_LD(hp->n_head * hp->head_v)},
        [NTX_BUF_GATE] = {d->m.gate, h->gate, NTX__DEVICE_LD(hp->n_ff)},
        [NTX_BUF_UP] = {d->m.up, h->up, hp->n_ff},
        [NTX_BUF_Y] = {d->m.y, h->y, hp->n_embd},
    };
    return all[b];
}

/* Rows that skip the layer and leave K and V in it have no use for q: it is left out where they are alone. */
static int multiply(struct ntx_forward *f, const struct ntx__run *r)
{
    struct ntx_device *d = f->c.device;
    const struct ntx_step *s = ntx__steps_of(f, r);
    const struct ntx__device_rows *n = &d->now;
    const struct place from = place_of(d, (enum ntx_buf)s->in[0]);
    const struct ntx__device_input in = {.x = from.device, .ld = from.ld, .quantized = d->m.quantized, .n = r->feeds ? n->n_all : n->n_live, .first_dense = n->n_exact,
                                         .n_dense = n->n_live - n->n_exact};
    struct ntx__device_product p[NTX_LAYER_STEPS];
    unsigned k = 0;
    int rc = n->n_live ? 0 : ntx__device_settle(d); /* chunks are given back in the order of the list */
    if (rc)
        return ntx__device_fail(d, rc, "a copy");
    for (uint32_t i = 0; i < r->n && !rc; i++) {
        const struct ntx_weight *w = ntx__weight_of(f, &s[i]);
        const struct place to = place_of(d, (enum ntx_buf)s[i].out);
        if (s[i].feeds || n->n_live)
            p[k++] = (struct ntx__device_product){.w = w, .y = to.device, .ld_y = to.ld, .host_y = to.host, .n_rows = s[i].feeds ? 0 : n->n_live};
        else
            rc = ntx__skip_chunks(f, w->chunk0, w->chunk0 + w->n_chunks);
    }
    return rc ? rc : ntx__device_multiply(d, p, k, &in);
}

/* ---- attention */

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
            .window = ntx__steps_of(d->f, d->f->run)->window, .sinks = vector(d, NTX_T_sinks), .scale = 1.0f / sqrtf((float)hp->head_k),
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
        .window = ntx__steps_of(d->f, d->f->run)->window, .sinks = vector(d, NTX_T_sinks), .scale = 1.0f / sqrtf((float)hp->head_k),
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
    return rc ? rc : ntx__device_quantize(d, d->m.attn, NULL, r->width, d->now.n_live, r->forms, d->m.quantized, NULL);
}

int ntx__device_output_norm(struct ntx_device *d, uint32_t n)
{
    const struct ntx_weight *w = &d->c.chunks->output;
    return add_and_norm(d, NULL, NULL, ntx__device_vector(d, &d->c.chunks->output_norm), d->m.out_rows, n, ntx__forms(&w, 1));
}

/* ---- what there is a kernel for */

/* Of run k of n: steps of rows as the functions above know them. */
static bool can_rows(const struct ntx_step *s, uint32_t n_steps, uint32_t k, uint32_t n)
{
    static const char letters[NTX_N_OPS] = {[NTX_OP_NORM] = 'N', [NTX_OP_BIAS] = 'B', [NTX_OP_ROPE] = 'R', [NTX_OP_PUT] = 'P', [NTX_OP_GLU] = 'G', [NTX_OP_ADD] = 'A'};
    char ops[NTX_LAYER_STEPS + 1] = "";
    for (uint32_t i = 0; i < n_steps; i++)
        ops[i] = letters[s[i].op];
    if (!k || k == n - 1)
        return !strcmp(ops, k ? "A" : "N");
    return !strcmp(ops, "AN") || !strcmp(ops, "BAN") || !strcmp(ops, "G") || (ops[n_steps - 1] == 'P' && strspn(ops, "BNR") == n_steps - 1);
}

bool ntx__device_can(const struct ntx_layer *l)
{
    struct ntx__runs runs;
    ntx__runs_make(l, &runs);
    for (uint32_t k = 0; k < runs.n; k++)
        if (runs.run[k].kind == NTX__ROWS && !can_rows(&l->step[runs.run[k].first], runs.run[k].n, k, runs.n))
            return false;
    return true;
}

const struct ntx_backend ntx_device_backend = {
    .begin = ntx__device_begin,
    .enter = ntx__device_enter,
    .run = {[NTX__ROWS] = rows, [NTX__MULTIPLY] = multiply, [NTX__ATTEND] = attend, [NTX__ROUTE] = ntx__moe_route, [NTX__EXPERTS] = ntx__moe_sum,
            [NTX__GROUPS] = ntx__device_packed},
    .moe = &ntx__device_experts,
    .settle = ntx__device_let_go,
    .states = ntx__device_states,
    .decided = ntx__device_decided,
    .output = ntx__device_output,
    .move = ntx__device_move,
    .end = ntx__device_end,
    .has = ntx__device_has,
    .gates = ntx__device_gates,
    .own_bytes = true,
};
