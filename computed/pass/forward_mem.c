/* SPDX-License-Identifier: Apache-2.0 */
/* forward_mem.c: memory of a pass. One function walks the layout, once to count and once to place. */
#include "common/util.h"
#include "computed/cpu/planes.h"
#include "computed/pass/forward_impl.h"
#include "model/planes.h"

struct cursor {
    uint8_t *base; /* NULL while counting */
    uint64_t at;
};

static void *place_bytes(struct cursor *c, uint64_t bytes)
{
    uint64_t at = c->at;
    c->at += NTX_ROUND_UP(bytes, 64);
    return c->base ? c->base + at : NULL;
}

static float *place_rows(struct cursor *c, uint64_t rows, uint64_t width)
{
    return place_bytes(c, rows * ntx_act_row_bytes(NTX_ACT_F32, (uint32_t)width));
}

static uint32_t width_of(const struct ntx_model *m, uint8_t buf)
{
    switch (buf) {
    case NTX_BUF_UP: /* of the shared expert: as wide as its gates */
    case NTX__BUF_EARLY_GATE: return ntx_buf_width(m, NTX_BUF_GATE);
    case NTX__BUF_PROBS: return m->hp.n_expert;
    case NTX__BUF_SHARED: return 1;
    case NTX__BUF_ROUTED_GATE:
    case NTX__BUF_ROUTED_UP: return m->hp.n_ff_exp;
    case NTX__BUF_LOGITS: return m->hp.n_vocab;
    default:
        return buf < NTX_N_BUFS && buf != NTX_BUF_H && buf != NTX_BUF_X ? ntx_buf_width(m, (enum ntx_buf)buf)
                                                                        : m->hp.n_embd;
    }
}

size_t ntx__buf_ld(const struct ntx_model *m, uint8_t buf)
{
    static const bool padded[NTX__N_BUFS] = {
        [NTX_BUF_X] = true,         [NTX_BUF_Q_LOW] = true,        [NTX_BUF_NORMED] = true,
        [NTX_BUF_LOW] = true,       [NTX_BUF_ATTN] = true,         [NTX_BUF_GATE] = true,
        [NTX__BUF_ROUTED_X] = true, [NTX__BUF_ROUTED_GATE] = true, [NTX__BUF_ROUTED_UP] = true,
        [NTX__BUF_EARLY_X] = true,  [NTX__BUF_EARLY_GATE] = true};
    uint32_t n = width_of(m, buf);
    return padded[buf] ? ntx_act_row_bytes(NTX_ACT_F32, n) / sizeof(float) : n;
}

uint32_t ntx__forms(const struct ntx_weight *const *w, unsigned n)
{
    uint32_t forms = 0;
    for (unsigned i = 0; i < n; i++)
        forms |= 1u << ntx_act_for(w[i]->type);
    return forms;
}

static size_t wider_row(size_t most, const struct ntx_weight *w, enum ntx_act form)
{
    if (w->tensor == NTX_NO_TENSOR || ntx_act_for(w->type) != form)
        return most;
    return NTX_MAX(most, ntx_act_row_bytes(form, w->n_in));
}

/* Its input rows are choices: of experts, or of the shared one. */
static bool of_choices(enum ntx_tensor t)
{
    uint8_t in = ntx_tensor_kinds[t].in;
    return in == NTX_DIM_EXPERT_FF || in == NTX_DIM_SHARED_FF;
}

/* Bytes of the widest quantised row in this form that any matrix of the model multiplies by. */
static size_t quantized_row(const struct ntx_chunks *chunks, const struct ntx_hparams *hp, enum ntx_act form)
{
    const uint32_t n_layers = hp->n_layers;
    size_t most = ntx_act_for(chunks->output.type) == form ? ntx_act_row_bytes(form, chunks->output.n_in) : 0;
    for (uint32_t l = 0; l < n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++)
            if (ntx_is_matrix((enum ntx_tensor)t) && !of_choices((enum ntx_tensor)t))
                most = NTX_MAX(most, (t == NTX_T_o_a ? hp->o_parts : 1) * wider_row(0, &chunks->layers[l].of[t], form));
    return most;
}

/* The same for a layer's experts, the shared one included, and for the router, in a prediction. */
static size_t quantized_choice(const struct ntx_chunks *chunks, enum ntx_act form)
{
    size_t most = 0;
    for (uint32_t l = 0; l < chunks->n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++)
            if (of_choices((enum ntx_tensor)t) || ntx_tensor_kinds[t].use == NTX_USE_EXPERT ||
                ntx_tensor_kinds[t].use == NTX_USE_RESIDENT)
                most = wider_row(most, &chunks->layers[l].of[t], form);
    return most;
}

/* Chunks of types that are not quantised are never interleaved. */
static uint64_t slices_of(const struct ntx_model *m, const struct ntx_chunk *k)
{
    uint32_t type = ntx_gguf_tensor_at(m->gguf, k->tensor)->type;
    return (k->fixed && k->users < 2) || type == NTX_I8 || ntx_act_for(type) == NTX_ACT_F32 ? 0
                                                                                            : k->n_out / NTX_SLICE_OUTS;
}

/* The same for the second of two low-rank matrices. */
static size_t low_row(const struct ntx_chunks *chunks, enum ntx_act form)
{
    size_t most = 0;
    for (uint32_t l = 0; l < chunks->n_layers; l++)
        for (int t = NTX_T_q_low; t <= NTX_T_down_rest_4; t++)
            if (ntx_low_part_of((enum ntx_tensor)t) == NTX_HIGH)
                most = wider_row(most, &chunks->layers[l].of[t], form);
    for (uint32_t l = 0; l < chunks->n_layers; l++) {
        const struct ntx_pack_added *up = &chunks->layers[l].pack.added[NTX_PACK_UP];
        if (up->row_bytes && !up->whole && ntx_act_for(up->type) == form)
            most = NTX_MAX(most, ntx_act_row_bytes(form, up->rank));
    }
    return most;
}

/* Values of a row of the chunk, if kernels may pack it for many rows (ntx_cpu_ops.many). */
static uint32_t packed_row(const struct ntx_model *m, const struct ntx_chunk *k)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, k->tensor);
    return (k->fixed && k->users < 2) || (t->type != NTX_F16 && t->type != NTX_BF16) ? 0 : (uint32_t)t->ne[0];
}

struct ntx_forward_widths ntx_forward_widths(const struct ntx_model *m, const struct ntx_chunks *c)
{
    struct ntx_forward_widths w = {0};
    for (uint32_t i = 0; i < c->n; i++) {
        const struct ntx_chunk *k = &c->list[i];
        uint64_t n = slices_of(m, k);
        w.n_slices += n;
        if (n)
            w.slice_bytes = NTX_MAX(w.slice_bytes, k->bytes / k->n_out * NTX_SLICE_OUTS);
        w.many_in = NTX_MAX(w.many_in, packed_row(m, k));
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, k->tensor);
        if (ntx_planes_of(t->type))
            w.slice_bytes = NTX_MAX(
                w.slice_bytes, NTX_PLANES_OUTS * (uint64_t)ntx_row_bytes(ntx_planes_whole(t->type), ntx_gguf_row(t)));
    }
    for (int b = 0; b < NTX_N_BUFS; b++)
        w.buf[b] = ntx_buf_width(m, (enum ntx_buf)b);
    for (int form = 0; form < NTX_N_ACTS; form++) {
        w.row[form] = quantized_row(c, &m->hp, (enum ntx_act)form);
        w.choice[form] = quantized_choice(c, (enum ntx_act)form);
        w.low[form] = low_row(c, (enum ntx_act)form);
    }
    return w;
}

static void place_slices(struct cursor *c, const struct ntx_forward_config *cfg, uint64_t n_slices, struct ntx__mem *m)
{
    uint32_t n = 0;
    m->first_slice = place_bytes(c, (uint64_t)cfg->chunks->n * sizeof *m->first_slice);
    for (uint32_t i = 0; c->base && i < cfg->chunks->n; i++) {
        m->first_slice[i] = n;
        n += (uint32_t)slices_of(cfg->model, &cfg->chunks->list[i]);
    }
    m->interleaved = place_bytes(c, n_slices);
}

/* A byte for each chunk, or for each group of a packed layer. */
static void place_finite(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__mem *m)
{
    uint64_t groups = 0;
    uint32_t n = 0;
    for (uint32_t l = 0; cfg->model->pack && l < cfg->model->hp.n_layers; l++)
        groups += cfg->model->pack[l].n_groups * (1 + (cfg->model->pack[l].added_bytes != 0));
    m->first_finite = place_bytes(c, (uint64_t)cfg->chunks->n * sizeof *m->first_finite);
    for (uint32_t i = 0; c->base && i < cfg->chunks->n; i++) {
        const struct ntx_chunk *k = &cfg->chunks->list[i];
        m->first_finite[i] = n;
        n += ntx_gguf_tensor_at(cfg->model->gguf, k->tensor)->type == NTX_I8 ? k->n_out : 1;
    }
    m->finite = place_bytes(c, cfg->chunks->n + groups);
}

/* Values of one head's position in any layer. */
static uint32_t most_k(const struct ntx_hparams *hp) { return hp->kv_lora ? ntx_kept_k(hp, 0) : hp->head_k; }
static uint32_t most_v(const struct ntx_hparams *hp) { return hp->kv_lora ? ntx_index_kept(hp) : hp->head_v; }

uint32_t ntx__most_topk(const struct ntx_hparams *hp, uint32_t ctx)
{
    if (!hp->index.head || ctx <= ntx_index_reach(hp))
        return 0;
    if (hp->index.block)
        return hp->index.heads * (hp->index.most + 1); /* numbers of blocks, and how many */
    return hp->index.every ? (hp->index.most + 1) * hp->index.every : hp->index.most;
}

/* Scores of a row: of positions, or of blocks of them for each head. */
static size_t scores_of_row(const struct ntx_hparams *hp, uint32_t ctx)
{
    return hp->index.block ? (size_t)hp->index.heads * (ctx / hp->index.block + 1) : ctx;
}

static void place_choices(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__mem *m)
{
    const bool any = (m->max_topk = ntx__most_topk(&cfg->model->hp, cfg->ctx));
    uint64_t rows = cfg->max_rows;
    m->ld_scores = scores_of_row(&cfg->model->hp, cfg->ctx);
    m->scores = any ? place_bytes(c, 2 * (uint64_t)cfg->threads * m->ld_scores * sizeof *m->scores) : NULL;
    m->choosers = any ? place_bytes(c, rows * sizeof *m->choosers) : NULL;
    m->n_topk = any ? place_bytes(c, rows * sizeof *m->n_topk) : NULL;
    m->topk = any ? place_bytes(c, rows * m->max_topk * sizeof *m->topk) : NULL;
}

/* K that a row attends to by address. */
static uint64_t most_listed_k(const struct ntx_forward_config *cfg, const struct ntx__mem *m)
{
    const struct ntx_hparams *hp = &cfg->model->hp;
    if (hp->v_is_k)
        return NTX_MIN((uint64_t)hp->window + cfg->max_rows, cfg->ctx) + (uint64_t)cfg->ctx / NTX_POOL_OVERLAPS + 1;
    return hp->index.block && m->max_topk ? ntx_index_reach(hp) : m->max_topk;
}

static void place_mla(struct cursor *c, const struct ntx_hparams *hp, struct ntx__lane *lane)
{
    if (!hp->kv_lora)
        return;
    lane->mla_x = place_bytes(c, NTX_ATTN_VECTORS * ntx_act_row_bytes(NTX_ACT_F32, NTX_MAX(hp->kv_lora, hp->head_k)));
    lane->mla_q = place_bytes(c, NTX_ATTN_VECTORS * (uint64_t)most_k(hp) * sizeof(float));
    lane->mla_out = place_bytes(c, NTX_ATTN_VECTORS * (uint64_t)hp->kv_lora * sizeof(float));
}

static uint64_t adjugate_bytes(const struct ntx_hparams *hp)
{
    return hp->adjugate.ff ? ntx_act_row_bytes(NTX_ACT_F32, NTX_MAX(hp->n_embd, hp->adjugate.ff)) : 0;
}

static void place_lanes(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__mem *m)
{
    const struct ntx_hparams *hp = &cfg->model->hp;
    uint64_t blocks = ((uint64_t)cfg->ctx + NTX_KV_BLOCK - 1) / NTX_KV_BLOCK;
    m->lanes = place_bytes(c, cfg->threads * sizeof *m->lanes);
    m->many_bytes = cfg->widths->many_in ? ntx_many_bytes(cfg->widths->many_in, ntx__block(cfg)) : 0;
    for (uint32_t t = 0; t < cfg->threads; t++) {
        struct ntx__lane lane = {
            .k = place_bytes(c, blocks * sizeof *lane.k),
            .v = place_bytes(c, blocks * sizeof *lane.v),
            .path_k = place_bytes(c, (uint64_t)NTX__PATH_BLOCKS * NTX_KV_BLOCK * 2 * most_k(hp)),
            .path_v = place_bytes(c, (uint64_t)NTX__PATH_BLOCKS * NTX_KV_BLOCK * 2 * most_v(hp)),
            .path_holes = place_bytes(c, blocks * (NTX_KV_BLOCK / 8)),
            .topk_k = place_bytes(c, most_listed_k(cfg, m) * sizeof *lane.topk_k),
            .topk_v = hp->index_beside ? place_bytes(c, most_listed_k(cfg, m) * sizeof *lane.topk_v) : NULL,
            .logits = place_bytes(c, (uint64_t)ntx__block(cfg) * NTX__LOGIT_TILE * sizeof(float)),
            .slice = place_bytes(c, cfg->widths->slice_bytes),
            .many = place_bytes(c, m->many_bytes),
            .adjugate_x = place_bytes(c, adjugate_bytes(hp)),
        };
        place_mla(c, hp, &lane);
        if (c->base)
            m->lanes[t] = lane;
    }
}

static void place_lookahead(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__moe_mem *m)
{
    const uint32_t buffers = ntx__lookahead_buffers(cfg->model);
    for (uint8_t b = 0; b < NTX_N_BUFS; b++)
        m->lookahead[b] = buffers >> b & 1 ? place_bytes(c, NTX__WAY_ROWS * ntx__buf_ld(cfg->model, b) * sizeof(float))
                                           : NULL;
    m->lookahead_quantized[NTX_ACT_F32] = NULL;
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        m->lookahead_quantized[form] = buffers ? place_bytes(c, NTX__WAY_ROWS * cfg->widths->row[form]) : NULL;
}

static void place_experts(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__moe_mem *m)
{
    const struct ntx_hparams *hp = &cfg->model->hp;
    uint64_t rows = cfg->max_rows, used = hp->n_expert_used, n = hp->n_expert, wave = NTX_MAX(rows, used);
    m->probs = place_bytes(c, rows * n * sizeof *m->probs);
    m->scores = place_bytes(c, rows * n * sizeof *m->scores);
    m->id = place_bytes(c, rows * used * sizeof *m->id);
    m->weight = place_bytes(c, rows * used * sizeof *m->weight);
    m->first = place_bytes(c, (n + 1) * sizeof *m->first);
    m->row = place_bytes(c, rows * used * sizeof *m->row);
    m->place = place_bytes(c, rows * used * sizeof *m->place);
    m->expert = place_bytes(c, rows * used * sizeof *m->expert);
    m->wanted = place_bytes(c, n * sizeof *m->wanted);
    m->late = place_bytes(c, n);
    m->predicted = place_bytes(c, n * sizeof *m->predicted);
    m->order = place_bytes(c, n * sizeof *m->order);
    m->shared = place_bytes(c, rows * sizeof *m->shared);
    m->x = place_rows(c, wave, hp->n_embd);
    m->quantized[NTX_ACT_F32] = NULL;
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        m->quantized[form] = place_bytes(c, wave * cfg->widths->choice[form]);
    m->gate = place_rows(c, wave, hp->n_ff_exp);
    m->up = place_rows(c, wave, hp->n_ff_exp);
    m->y = place_bytes(c, wave * hp->n_embd * sizeof *m->y);
    m->weights = place_bytes(c, n * NTX_EXPERT_PARTS * sizeof *m->weights);
    m->products = place_bytes(c, 2 * n * sizeof *m->products);
    place_lookahead(c, cfg, m);
}

static uint32_t most_groups(const struct ntx_model *m)
{
    uint32_t most = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        most = NTX_MAX(most, m->pack[l].n_groups);
    return most;
}

/* Rows whose groups are predicted. */
static uint64_t decode_rows(const struct ntx_forward_config *cfg)
{
    return cfg->ffn.kind == NTX_FFN_PREDICTED ? NTX_MIN(cfg->max_rows, NTX_DECODE_ROWS) : 0;
}

/* The rows of those that the gate matrix multiplies in its turn, after the layer's own rows. */
static uint64_t late_rows(const struct ntx_forward_config *cfg) { return cfg->ffn.learned ? 0 : decode_rows(cfg); }

/* Predictions live from one layer to the next, beside the layers' own buffers. */
static void place_predicted(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__group_mem *m)
{
    uint64_t rows = decode_rows(cfg);
    m->stride = most_groups(cfg->model);
    m->decode = place_bytes(c, rows * sizeof *m->decode);
    m->number = place_bytes(c, cfg->max_rows * sizeof *m->number);
    for (int i = 0; i < 2; i++)
        m->uses[i] = place_bytes(c, rows * m->stride);
    m->x = place_rows(c, rows, cfg->model->hp.n_embd);
    m->steps_bytes = NTX_ROUND_UP((uint64_t)cfg->model->hp.n_embd * sizeof(int16_t), 128);
    m->steps = place_bytes(c, cfg->threads * m->steps_bytes);
}

static bool has_added_groups(const struct ntx_model *m)
{
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        if (ntx_pack_adds(&m->pack[l], NTX_PACK_UP))
            return true;
    return false;
}

/* Bytes of a group's hidden values in the form that its rows of down are multiplied by; 0: no group has such rows. */
static size_t most_hidden(const struct ntx_model *m)
{
    size_t most = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        if (m->pack[l].down_rows)
            most = NTX_MAX(most, ntx_act_row_bytes(ntx_act_for(m->pack[l].type[NTX_PACK_DOWN]), m->pack[l].group));
    return most;
}

static void place_groups(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__group_mem *m)
{
    uint64_t most = most_groups(cfg->model);
    m->wanted = place_bytes(c, most * sizeof *m->wanted);
    m->at = place_bytes(c, most * sizeof *m->at);
    m->added = place_bytes(
        c, has_added_groups(cfg->model) ? cfg->max_rows * (uint64_t)cfg->model->hp.n_ff * sizeof *m->added : 0);
    m->hidden_bytes = cfg->max_rows * most_hidden(cfg->model);
    m->hidden = place_bytes(c, cfg->threads * m->hidden_bytes);
    m->product = place_bytes(c, m->hidden_bytes ? (uint64_t)cfg->max_rows * cfg->model->hp.n_embd * sizeof(float) : 0);
    if (cfg->ffn.kind == NTX_FFN_ALL)
        return;
    m->used = place_bytes(c, most);
    m->scratch = place_bytes(c, (uint64_t)cfg->threads * 2 * cfg->model->hp.n_ff * sizeof *m->scratch);
    uint64_t rows = NTX_MAX(decode_rows(cfg), NTX_MIN(cfg->max_rows, NTX__PREFETCH_ROWS));
    m->predicted = place_bytes(c, most * sizeof *m->predicted);
    if (!decode_rows(cfg))
        m->x = place_rows(c, rows, cfg->model->hp.n_embd);
    m->gate = place_rows(c, rows, cfg->model->hp.n_ff);
    m->quantized[NTX_ACT_F32] = NULL;
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        m->quantized[form] = place_bytes(c, rows * cfg->widths->row[form]);
}

static uint32_t most_places(const struct ntx_hparams *hp)
{
    uint32_t most = hp->index.every * hp->index.head;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        most = NTX_MAX(most, hp->pool[l] * ntx_pool_spans(hp, l) * NTX_MAX(hp->head_k, hp->index.head));
    return most;
}

/* Scores of a row that threads share: fewer positions a round where there are many heads. */
static void place_attn_rounds(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__attn_rounds *m)
{
    enum { LEAST = 4 * NTX_ATTN_PART, MOST = 64 * NTX_ATTN_PART, SCORES = 1 << 18 };
    const struct ntx_hparams *hp = &cfg->model->hp;
    uint32_t heads = 1;
    *m = (struct ntx__attn_rounds){0};
    if (cfg->threads < 2 || cfg->ctx < NTX__SHARED_POSITIONS || hp->kv_lora || hp->v_is_k || hp->tower)
        return;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        heads = NTX_MAX(heads, ntx_dims_of(hp, l).n_head);
    const uint32_t most = NTX_MIN(SCORES / heads / NTX_ATTN_PART * NTX_ATTN_PART, (uint32_t)MOST);
    m->ld = NTX_MIN(NTX_MAX(most, (uint32_t)LEAST), NTX_ROUND_UP(cfg->ctx, NTX_ATTN_PART));
    m->w = place_bytes(c, (uint64_t)heads * m->ld * sizeof *m->w);
    m->by = place_bytes(c, (uint64_t)heads * (m->ld / NTX_ATTN_PART) * sizeof *m->by);
    m->sum = place_bytes(c, heads * sizeof *m->sum);
}

/* Attention's buffers and the FFN's are never in use together; but with blocks of rows, q of later blocks is, and a
 * tower's FFN may use Z. */
static void place_layer(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__mem *m)
{
    const struct ntx_hparams *hp = &cfg->model->hp;
    const uint64_t rows = ntx__block(cfg);
    if (cfg->block)
        m->q = place_rows(c, cfg->max_rows, cfg->widths->buf[NTX_BUF_Q]);
    if (hp->tower)
        m->z = place_rows(c, rows, cfg->widths->buf[NTX_BUF_Z]);
    const uint64_t start = c->at;
    m->q_low = place_rows(c, rows, cfg->widths->buf[NTX_BUF_Q_LOW]);
    if (!cfg->block)
        m->q = place_rows(c, rows, cfg->widths->buf[NTX_BUF_Q]);
    m->k = place_rows(c, rows, cfg->widths->buf[NTX_BUF_K]);
    m->v = place_rows(c, rows, cfg->widths->buf[NTX_BUF_V]);
    m->attn = place_rows(c, rows, cfg->widths->buf[NTX_BUF_ATTN]);
    if (!hp->tower)
        m->z = place_rows(c, rows, cfg->widths->buf[NTX_BUF_Z]);
    m->a = place_rows(c, rows, cfg->widths->buf[NTX_BUF_A]);
    m->places = place_rows(c, 1, most_places(hp));
    m->pool = place_rows(c, rows, cfg->widths->buf[NTX_BUF_POOL]);
    m->pool_gate = place_rows(c, rows, cfg->widths->buf[NTX_BUF_POOL_GATE]);
    m->keys = place_rows(c, rows, cfg->widths->buf[NTX_BUF_KEYS]);
    m->keys_gate = place_rows(c, rows, cfg->widths->buf[NTX_BUF_KEYS_GATE]);
    place_attn_rounds(c, cfg, &m->attn_rounds);
    uint64_t attention_end = c->at;
    c->at = start;
    m->gate = place_rows(c, rows + late_rows(cfg), cfg->widths->buf[NTX_BUF_GATE]);
    m->up = place_rows(c, rows, cfg->widths->buf[NTX_BUF_GATE]); /* of the shared expert: as wide as its gates */
    if (hp->n_expert)
        place_experts(c, cfg, &m->moe);
    if (cfg->model->pack)
        place_groups(c, cfg, &m->groups);
    c->at = NTX_MAX(c->at, attention_end);
    if (cfg->ffn.kind != NTX_FFN_ALL)
        m->groups.ones = place_bytes(c, hp->n_ff * sizeof *m->groups.ones);
    if (decode_rows(cfg))
        place_predicted(c, cfg, &m->groups);
}

static void place_lora(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__mem *m)
{
    uint64_t rows = cfg->max_rows;
    m->low = place_rows(c, rows, cfg->widths->buf[NTX_BUF_LOW]);
    m->lora = place_bytes(c, rows * cfg->widths->buf[NTX_BUF_LORA] * sizeof *m->lora);
    m->low_quantized[NTX_ACT_F32] = NULL;
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        m->low_quantized[form] = place_bytes(c, rows * cfg->widths->low[form]);
}

static void place_grams(struct cursor *c, const struct ntx_forward_config *cfg, struct ntx__mem *m)
{
    const struct ntx_hparams *hp = &cfg->model->hp;
    const uint64_t most = (uint64_t)cfg->max_rows * hp->grams.heads;
    m->gram_at = place_bytes(c, most * sizeof *m->gram_at);
    m->gram_ids = place_bytes(c, most * sizeof *m->gram_ids);
    m->gram_entries = place_bytes(c, most * cfg->chunks->gram_embd.row_bytes);
    m->gram_taps = place_bytes(
        c, hp->grams.layer ? (uint64_t)hp->grams.taps * hp->streams.n * hp->n_embd * sizeof *m->gram_taps : 0);
}

static bool rotates(const struct ntx_model *m, enum ntx_rotation turn)
{
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (const struct ntx_step *s = m->layers[l].step; s < m->layers[l].step + m->layers[l].n_steps; s++)
            if (s->op == NTX_OP_ROPE && s->rope.angles == turn)
                return true;
    return false;
}

static void place_angles(struct cursor *c, const struct ntx_forward_config *cfg, enum ntx_rotation turn,
                         struct ntx__mem *m)
{
    uint64_t n = turn != NTX_ROTATION_ALL && !rotates(cfg->model, turn)
                     ? 0
                     : (uint64_t)cfg->max_rows * (ntx_rope_dim(&cfg->model->hp, turn) / 2);
    m->cs[turn] = n ? place_bytes(c, n * sizeof(float)) : NULL;
    m->sn[turn] = n ? place_bytes(c, n * sizeof(float)) : NULL;
}

static uint64_t place_all(const struct ntx_forward_config *cfg, uint8_t *base, struct ntx__mem *m)
{
    const struct ntx_hparams *hp = &cfg->model->hp;
    struct cursor c = {.base = base};
    const uint64_t rows = cfg->max_rows, some = ntx__block(cfg);
    m->h = place_bytes(&c, rows * hp->n_embd * sizeof *m->h);
    m->x = place_rows(&c, some + late_rows(cfg), hp->n_embd);
    place_layer(&c, cfg, m);
    m->y = place_bytes(&c, some * hp->n_embd * sizeof *m->y);
    m->beside = place_bytes(&c, rows * cfg->widths->buf[NTX_BUF_BESIDE] * sizeof *m->beside);
    m->streams = place_bytes(&c, rows * cfg->widths->buf[NTX_BUF_STREAMS] * sizeof *m->streams);
    m->mix = place_bytes(&c, rows * cfg->widths->buf[NTX_BUF_MIX] * sizeof *m->mix);
    m->normed = place_rows(&c, some, cfg->widths->buf[NTX_BUF_NORMED]);
    m->gates = place_bytes(&c, rows * cfg->widths->buf[NTX_BUF_GATES] * sizeof *m->gates);
    place_lora(&c, cfg, m);
    place_grams(&c, cfg, m);
    m->inputs = place_bytes(&c, rows * hp->n_input * hp->n_layers * sizeof *m->inputs);
    m->input_entry = place_bytes(&c, rows * hp->n_input * hp->n_layers * sizeof *m->input_entry);
    m->quantized[NTX_ACT_F32] = NULL;
    for (int form = NTX_ACT_F32 + 1; form < NTX_N_ACTS; form++)
        m->quantized[form] = place_bytes(&c, (some + late_rows(cfg)) * cfg->widths->row[form]);
    for (int t = 0; t < NTX_N_TURNS; t++)
        place_angles(&c, cfg, (enum ntx_rotation)t, m);
    m->freq = place_bytes(&c, NTX_MAX(hp->rope_dim, hp->rope_dim_window) / 2 * sizeof *m->freq);
    m->skip = place_bytes(&c, rows * NTX_MAP_WORDS * sizeof *m->skip);
    m->live = place_bytes(&c, rows * sizeof *m->live);
    m->place = place_bytes(&c, rows * sizeof *m->place);
    m->ahead = place_bytes(&c, rows * sizeof *m->ahead);
    m->attn_rows = place_bytes(&c, (rows + 1) * sizeof *m->attn_rows);
    bool recurrent = ntx_recur_bytes(hp);
    m->turns = recurrent ? place_bytes(&c, (rows + 1) * sizeof *m->turns) : NULL;
    m->turn_rows = recurrent ? place_bytes(&c, rows * sizeof *m->turn_rows) : NULL;
    m->ids = place_bytes(&c, rows * sizeof *m->ids);
    m->logits = place_bytes(&c, rows * sizeof *m->logits);
    m->embd = place_bytes(&c, rows * cfg->chunks->token_embd.row_bytes);
    m->input_embd = place_bytes(&c, rows * cfg->chunks->input_embd.row_bytes);
    m->tiles = place_bytes(&c, (uint64_t)cfg->chunks->n * sizeof *m->tiles);
    place_choices(&c, cfg, m);
    place_slices(&c, cfg, cfg->widths->n_slices, m);
    place_finite(&c, cfg, m);
    place_lanes(&c, cfg, m);
    return NTX_ROUND_UP(c.at, 4096);
}

uint64_t ntx__forward_layout(const struct ntx_forward_config *cfg, uint8_t *base, struct ntx__mem *m)
{
    struct ntx_forward_config c = *cfg;
    const struct ntx_forward_widths own = cfg->widths ? *cfg->widths : ntx_forward_widths(cfg->model, cfg->chunks);
    c.widths = &own;
    return place_all(&c, base, m);
}
