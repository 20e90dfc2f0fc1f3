/* llama.c: the llama family (llama, qwen2, qwen3, gpt-oss, and those with experts): what a layer does, step by step.
 *
 *   h -> attn_norm -> q k v (+ bias) (norm per head) -> rotate -> KV -> attend (in a window, beside a sink) -> o (+ bias) -> h +=
 *   h -> ffn_norm -> gate, up -> act(gate) * up -> down -> h +=      or, with experts, moe.c; packed, sparse.c
 *
 * Each step finishes before the next begins. Weights are taken in the order of the chunk list (model/chunk.h). */
#include <math.h>
#include <string.h>

#include "computed/forward_impl.h"

enum { ITEMS_PER_THREAD = 4 }; /* of attention, at least, so that threads end together */

static const struct ntx_layer_weights *layer(const struct ntx_forward *f)
{
    return &f->c.chunks->layers[f->layer];
}

static const struct ntx_row *row_of(const struct ntx_forward *f, uint32_t i)
{
    return &f->b->rows[f->m.live[i]];
}

static float *hidden(const struct ntx_forward *f, uint32_t i)
{
    return f->m.h + (size_t)f->m.live[i] * f->hp->n_embd;
}

/* x = norm(h), quantised as these matrices want it. */
static void norm_and_pack(struct ntx_forward *f, uint32_t i, uint32_t forms)
{
    float *x = f->m.x + i * f->ld_x;
    f->c.ops->rmsnorm(hidden(f, i), f->vec.norm, f->hp->rms_eps, f->hp->n_embd, x);
    ntx__pack(f, forms, x, f->hp->n_embd, i);
}

/* ---- attn_norm */

static void attn_norm_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_layer_weights *w = layer(f);
    struct ntx_study *study = row_of(f, i)->study;
    if (study)
        ntx__study_begin(study, hidden(f, i), f->hp->n_embd);
    if (study && !f->layer)
        ntx__study_ffn_state(study, 0, hidden(f, i), f->hp->n_embd);
    norm_and_pack(f, i, ntx__forms((const struct ntx_weight *const[]){&w->q, &w->k, &w->v}, 3));
}

static int attn_norm(struct ntx_forward *f)
{
    const struct ntx_weight *w = &layer(f)->attn_norm;
    int rc = ntx__take(f, w, &f->vec.norm);
    if (rc)
        return rc;
    ntx__each(f, attn_norm_row, f->n_live + f->n_passing);
    ntx__give(f, w);
    return 0;
}

/* ---- q, k, v */

/* Rows that skip the layer and leave K and V in it have no use for q: it is left out where they are alone. */
static int kv_of_passing(struct ntx_forward *f, const struct ntx__product *p)
{
    const struct ntx__input all = {.x = f->m.x, .ld = f->ld_x, .packed = f->m.packed, .n_rows = f->n_live + f->n_passing};
    const struct ntx_weight *q = p[0].w;
    int rc = f->n_live ? ntx__multiply(f, p, 1, f->m.x, f->ld_x) : 0;
    for (uint32_t c = q->chunk0; !f->n_live && c < q->chunk0 + q->n_chunks; c++)
        f->c.weights->ops->skip(f->c.weights, c);
    return rc ? rc : ntx__multiply_by(f, p + 1, 2, &all);
}

static int qkv(struct ntx_forward *f)
{
    const struct ntx_layer_weights *w = layer(f);
    const struct ntx__product p[] = {
        {.w = &w->q, .y = f->m.q, .ld = w->q.n_out},
        {.w = &w->k, .y = f->m.k, .ld = w->k.n_out},
        {.w = &w->v, .y = f->m.v, .ld = w->v.n_out},
    };
    return f->n_passing ? kv_of_passing(f, p) : ntx__multiply(f, p, 3, f->m.x, f->ld_x);
}

/* ---- biases, norms per head, rotation, and K and V into the cache */

static void heads_norm(struct ntx_forward *f, const float *w, float *x, uint32_t n_heads)
{
    for (uint32_t h = 0; w && h < n_heads; h++, x += f->hp->head_k)
        f->c.ops->rmsnorm(x, w, f->hp->rms_eps, f->hp->head_k, x);
}

static void store_row(struct ntx_forward *f, uint32_t i, const float *k, const float *v)
{
    const struct ntx_hparams *hp = f->hp;
    const struct ntx_row *row = row_of(f, i);
    enum ntx_kv_type type = ntx_kv_seq_type(row->kv);
    for (uint32_t h = 0; h < hp->n_head_kv; h++) {
        f->c.ops->k_store[type](k + (size_t)h * hp->head_k, ntx_kv_k(row->kv, f->layer, h, row->pos), row->pos % NTX_KV_BLOCK, hp->head_k);
        f->c.ops->v_store[type](v + (size_t)h * hp->head_v, ntx_kv_v(row->kv, f->layer, h, row->pos), row->pos % NTX_KV_BLOCK, hp->head_v);
    }
}

static void rotate_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_hparams *hp = f->hp;
    const struct ntx_cpu_ops *ops = f->c.ops;
    const struct ntx_layer_weights *w = layer(f);
    float *q = f->m.q + (size_t)i * w->q.n_out, *k = f->m.k + (size_t)i * w->k.n_out, *v = f->m.v + (size_t)i * w->v.n_out;
    const float *cs = f->m.cs + (size_t)f->m.live[i] * (hp->rope_dim / 2), *sn = f->m.sn + (size_t)f->m.live[i] * (hp->rope_dim / 2);
    bool live = i < f->n_live; /* the others have no q */
    if (f->vec.q_bias && live)
        ops->add(q, f->vec.q_bias, w->q.n_out);
    if (f->vec.k_bias)
        ops->add(k, f->vec.k_bias, w->k.n_out);
    if (f->vec.v_bias)
        ops->add(v, f->vec.v_bias, w->v.n_out);
    heads_norm(f, live ? f->vec.q_norm : NULL, q, hp->n_head);
    heads_norm(f, f->vec.k_norm, k, hp->n_head_kv);
    void (*rope)(float *, uint32_t, uint32_t, uint32_t, const float *, const float *) =
        hp->rope_kind == NTX_ROPE_NORM ? ops->rope_norm : ops->rope_neox;
    if (live)
        rope(q, hp->n_head, hp->head_k, hp->rope_dim, cs, sn);
    rope(k, hp->n_head_kv, hp->head_k, hp->rope_dim, cs, sn);
    store_row(f, i, k, v);
}

static int rotate_and_store(struct ntx_forward *f)
{
    const struct ntx_layer_weights *w = layer(f);
    int rc;
    if ((rc = ntx__take(f, &w->q_bias, &f->vec.q_bias)) || (rc = ntx__take(f, &w->k_bias, &f->vec.k_bias)) ||
        (rc = ntx__take(f, &w->v_bias, &f->vec.v_bias)) || (rc = ntx__take(f, &w->q_norm, &f->vec.q_norm)) ||
        (rc = ntx__take(f, &w->k_norm, &f->vec.k_norm)))
        return rc;
    ntx__each(f, rotate_row, f->n_live + f->n_passing);
    ntx__give(f, &w->q_bias);
    ntx__give(f, &w->k_bias);
    ntx__give(f, &w->v_bias);
    ntx__give(f, &w->q_norm);
    ntx__give(f, &w->k_norm);
    return 0;
}

/* ---- attention, a few heads of a row at a time, which share a KV head, or of several rows at neighbouring positions of a session. K and V of
 * all rows are stored by now: a row sees those of its batch up to its own position. */

/* Query heads of an item: all that share a KV head, so that its K and V are read once, but fewer where threads would stand idle. */
static uint32_t heads_at_once(const struct ntx_forward *f)
{
    uint32_t shared = f->hp->n_head / f->hp->n_head_kv, n = shared;
    while (n > NTX_ATTN_HEADS || (n > 1 && f->n_live * f->hp->n_head / n < f->c.threads))
        do
            n--;
        while (shared % n);
    return n;
}

/* Rows of an item at most: as many as a call takes, but fewer where threads would stand idle. */
static uint32_t rows_at_once(const struct ntx_forward *f)
{
    uint32_t heads = heads_at_once(f), items = f->hp->n_head / heads;
    return NTX_MAX(1u, NTX_MIN(NTX_ATTN_VECTORS / heads, f->n_live * items / (ITEMS_PER_THREAD * f->c.threads)));
}

/* The first live row of each group of neighbours, and n_live behind the last. */
static uint32_t group_rows(struct ntx_forward *f)
{
    uint32_t n = 0, most = rows_at_once(f), *first = f->m.attn_rows;
    for (uint32_t i = 0; i < f->n_live; i++) {
        const struct ntx_row *row = row_of(f, i), *before = i ? row_of(f, i - 1) : NULL;
        if (!i || i - first[n - 1] == most || row->kv != before->kv || row->pos != before->pos + 1)
            first[n++] = i;
    }
    first[n] = f->n_live;
    return n;
}

/* Groups that share a KV head follow one another: what one has read, the next finds in a cache. */
static void attend_heads(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    const struct ntx_hparams *hp = f->hp;
    struct ntx__lane *lane = &f->m.lanes[thread];
    const uint32_t *group = f->m.attn_rows + item % f->n_attn_groups;
    uint32_t n_q = heads_at_once(f), head = item / f->n_attn_groups * n_q, kv_head = head / (hp->n_head / hp->n_head_kv);
    const struct ntx_row *row = row_of(f, group[0]), *last = row_of(f, group[1] - 1);
    struct ntx_attn a = {
        .q = f->m.q + ((size_t)group[0] * hp->n_head + head) * hp->head_k,
        .out = f->m.attn + group[0] * f->ld_attn + (size_t)head * hp->head_v,
        .n_q = n_q,
        .n_rows = group[1] - group[0],
        .ld_q = (size_t)hp->n_head * hp->head_k,
        .ld_out = f->ld_attn,
        .k = lane->k,
        .v = lane->v,
        .block_tokens = NTX_KV_BLOCK,
        .n_pos = row->pos + 1,
        .head_k = hp->head_k,
        .head_v = hp->head_v,
        .scale = 1.0f / sqrtf((float)hp->head_k),
        .window = ntx_layer_find(&f->c.model->layers[f->layer], NTX_OP_ATTEND)->window,
        .sinks = f->vec.sinks ? f->vec.sinks + head : NULL,
        .hole = ntx_kv_holes(row->kv, f->layer),
    };
    for (uint32_t b = ntx_attn_from(&a, 0) / NTX_KV_BLOCK; b <= last->pos / NTX_KV_BLOCK; b++) {
        lane->k[b] = ntx_kv_k(row->kv, f->layer, kv_head, b * NTX_KV_BLOCK);
        lane->v[b] = ntx_kv_v(row->kv, f->layer, kv_head, b * NTX_KV_BLOCK);
    }
    f->c.ops->attend[ntx_kv_seq_type(row->kv)](&a);
}

static void pack_attn_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *o = &layer(f)->o;
    ntx__pack(f, ntx__forms(&o, 1), f->m.attn + i * f->ld_attn, o->n_in, i);
}

static int attend(struct ntx_forward *f)
{
    const struct ntx_weight *sinks = &layer(f)->sinks;
    int rc = ntx__take(f, sinks, &f->vec.sinks);
    if (rc)
        return rc;
    f->n_attn_groups = group_rows(f);
    ntx__each(f, attend_heads, f->n_attn_groups * (f->hp->n_head / heads_at_once(f)));
    ntx__give(f, sinks);
    ntx__each(f, pack_attn_row, f->n_live);
    return 0;
}

static int attn_output(struct ntx_forward *f)
{
    const struct ntx__product p = {.w = &layer(f)->o, .y = f->m.y, .ld = f->hp->n_embd};
    return ntx__multiply(f, &p, 1, f->m.attn, f->ld_attn);
}

/* ---- h += o; ffn_norm */

static void ffn_norm_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_layer_weights *w = layer(f);
    float *y = f->m.y + (size_t)i * f->hp->n_embd;
    if (f->vec.o_bias)
        f->c.ops->add(y, f->vec.o_bias, f->hp->n_embd);
    if (row_of(f, i)->study)
        ntx__study_part(row_of(f, i)->study, 1, f->layer, f->hp->n_layers, hidden(f, i), y, f->hp->n_embd);
    f->c.ops->add(hidden(f, i), y, f->hp->n_embd);
    if (row_of(f, i)->study)
        ntx__study_ffn_state(row_of(f, i)->study, f->layer + 1, hidden(f, i), f->hp->n_embd);
    norm_and_pack(f, i, f->hp->n_expert ? ntx__moe_forms(w) : ntx__forms((const struct ntx_weight *const[]){&w->gate, &w->up}, 2));
}

static int add_and_ffn_norm(struct ntx_forward *f)
{
    const struct ntx_layer_weights *w = layer(f);
    int rc;
    if ((rc = ntx__take(f, &w->o_bias, &f->vec.o_bias)) || (rc = ntx__take(f, &w->ffn_norm, &f->vec.norm)))
        return rc;
    ntx__each(f, ffn_norm_row, f->n_live);
    ntx__give(f, &w->o_bias);
    ntx__give(f, &w->ffn_norm);
    return 0;
}

/* ---- gate, up, act(gate) * up */

static void glu_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *down = &layer(f)->down;
    float *gate = f->m.gate + i * f->ld_gate;
    float *energy = ntx__study_ffn(row_of(f, i)->study, f->layer);
    f->c.ops->glu[f->hp->ffn_act](gate, f->m.up + (size_t)i * f->hp->n_ff, f->hp->n_ff, gate);
    for (uint32_t j = 0; energy && j < f->hp->n_ff; j++)
        energy[j] = gate[j] * gate[j];
    ntx__pack(f, ntx__forms(&down, 1), gate, f->hp->n_ff, i);
}

static int gate_and_up(struct ntx_forward *f)
{
    const struct ntx_layer_weights *w = layer(f);
    const struct ntx__product p[] = {
        {.w = &w->gate, .y = f->m.gate, .ld = f->ld_gate},
        {.w = &w->up, .y = f->m.up, .ld = f->hp->n_ff},
    };
    int rc = ntx__multiply(f, p, 2, f->m.x, f->ld_x);
    if (!rc)
        ntx__each(f, glu_row, f->n_live);
    return rc;
}

/* ---- down; h += */

void ntx__add_ffn(struct ntx_forward *f, uint32_t i)
{
    const float *y = f->m.y + (size_t)i * f->hp->n_embd;
    struct ntx_study *study = row_of(f, i)->study;
    if (study)
        ntx__study_part(study, 2, f->layer, f->hp->n_layers, hidden(f, i), y, f->hp->n_embd);
    f->c.ops->add(hidden(f, i), y, f->hp->n_embd);
    if (study)
        ntx__study_end(study, f->layer, hidden(f, i), f->hp->n_embd);
}

static void add_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    ntx__add_ffn(f, i);
}

static int down(struct ntx_forward *f)
{
    const struct ntx__product p = {.w = &layer(f)->down, .y = f->m.y, .ld = f->hp->n_embd};
    int rc = ntx__multiply(f, &p, 1, f->m.gate, f->ld_gate);
    if (!rc)
        ntx__each(f, add_row, f->n_live);
    return rc;
}

static int ffn(struct ntx_forward *f)
{
    if (f->hp->n_expert)
        return ntx__moe(f);
    if (f->c.model->pack)
        return ntx__packed_ffn(f);
    int rc = gate_and_up(f);
    return rc ? rc : down(f);
}

int ntx__llama_layer(struct ntx_forward *f)
{
    static int (*const steps[])(struct ntx_forward *) = {
        attn_norm, qkv, rotate_and_store, attend, attn_output, add_and_ffn_norm, ffn,
    };
    enum { KV_STEPS = 3 };
    size_t n = f->n_live ? sizeof steps / sizeof *steps : KV_STEPS;
    for (size_t i = 0; i < n; i++) {
        int rc = steps[i](f);
        if (rc)
            return rc;
    }
    if (!f->n_live)
        ntx__skip_chunks(f, ntx__after_kv(layer(f)), f->layer);
    return 0;
}

/* ---- output_norm, output */

static void output_norm_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *output = &f->c.chunks->output;
    norm_and_pack(f, i, ntx__forms(&output, 1));
}

int ntx__llama_output(struct ntx_forward *f)
{
    const struct ntx_weight *norm = &f->c.chunks->output_norm;
    const struct ntx__product p = {.w = &f->c.chunks->output, .rows = f->m.logits};
    int rc = ntx__take(f, norm, &f->vec.norm);
    if (rc)
        return rc;
    ntx__each(f, output_norm_row, f->n_live);
    ntx__give(f, norm);
    return ntx__multiply(f, &p, 1, f->m.x, f->ld_x);
}
