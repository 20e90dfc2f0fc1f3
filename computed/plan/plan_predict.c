/* SPDX-License-Identifier: Apache-2.0 */
/* plan_predict.c: the speed of a plan, by the cost model of computed/plan/predict.h, from the placement of every
 * chunk. */
#include <math.h>

#include "computed/plan/plan_impl.h"

#include "common/util.h"
#include "computed/state/kv.h"

#define NEARLY_ALL 0.9 /* of the experts: then reads need not wait for the router */
#define FEW_ROWS   8u  /* with so many at most, an output's cost beside its bytes is that of its type with one row */

/* Share of the experts that some row wants: each row is routed independently. */
static double experts_used(const struct ntx_model *m, uint32_t rows)
{
    return m->hp.n_expert ? 1 - pow(1 - (double)m->hp.n_expert_used / m->hp.n_expert, rows) : 1;
}

/* Expected rows of an expert that at least one of `rows` rows wants. */
static uint32_t expert_rows(const struct ntx_model *m, uint32_t rows, double used)
{
    return m->hp.n_expert ? NTX_MAX(1u, (uint32_t)lround(rows * (double)m->hp.n_expert_used / m->hp.n_expert / used))
                          : 0;
}

/* few: for asked rows alone, if not all are asked. */
static void add_bytes(struct ntx_load_bytes *l, enum ntx_tier tier, uint32_t type, bool expert, bool few, double bytes)
{
    l->bytes[tier][type] += bytes;
    if (few)
        l->end_bytes[tier][type] += bytes;
    else if (expert)
        l->expert_bytes[tier][type] += bytes;
}

/* Of the experts that are not resident, the share in frames. */
static double framed_share(const struct ntx_plan *p)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < p->chunks->n; i++)
        parts += p->table[i].placement == NTX_PLACE_FRAME;
    return parts ? NTX_MIN((double)p->frames.n * NTX_EXPERT_PARTS / parts, 1.0) : 0;
}

static uint32_t type_of(const struct ntx_model *m, const struct ntx_chunk *c)
{
    uint32_t type = ntx_gguf_tensor_at(m->gguf, c->tensor)->type;
    if (type != NTX_I8)
        return type;
    const struct ntx_pack_layer *p = &m->pack[c->layer]; /* groups of neurons, mostly of one type */
    if (c->tensor != m->layers[c->layer].groups_added)
        return p->type[NTX_PACK_UP];
    return p->added[ntx_pack_adds(p, NTX_PACK_UP) ? NTX_PACK_UP : NTX_PACK_DOWN].type;
}

/* Positions that the rows before `positions` see in a layer, summed over them. */
static double positions_seen(const struct ntx_hparams *hp, uint32_t layer, uint32_t rows, uint32_t positions)
{
    double window = hp->window && ntx_windowed(hp, layer) ? hp->window : positions,
           first = positions - NTX_MIN(rows, positions);
    double mean = (first + positions + 1) / 2;
    return rows * NTX_MIN(mean, window);
}

/* Work of the rows beside their products, in layers [0, n). */
static void add_row_work(const struct ntx_model *m, const struct ntx_plan *p, uint32_t n, uint32_t positions,
                         struct ntx_load_bytes *l)
{
    const struct ntx_hparams *hp = &m->hp;
    for (uint32_t i = 0; i < n; i++) {
        const struct ntx_dims d = ntx_dims_of(hp, i);
        bool experts = hp->n_expert && i >= hp->n_dense;
        double heads = d.n_head, width = hp->kv_lora ? 2.0 * hp->kv_lora + hp->rope_dim : d.head_k + d.head_v,
               ffn = experts ? (double)hp->n_expert_used * hp->n_ff_exp + hp->n_ff_shexp : d.n_ff;
        const double seen = ntx_kv_layer_reads(hp, p->kv_type, i, positions) > 0
                                ? positions_seen(hp, i, l->rows, positions)
                                : 0;
        l->attend_ops += 2 * heads * width * seen;
        l->scores += heads * seen;
        l->values += l->rows * (2.0 * hp->n_embd + heads * d.head_k + ffn);
    }
}

bool ntx_plan_load(const struct ntx_model *m, const struct ntx_plan *p, uint32_t rows, uint32_t asked,
                   uint32_t positions, struct ntx_load_bytes *out)
{
    struct ntx_load_bytes l = {.rows = rows,
                               .asked = asked,
                               .n_layers = m->hp.n_layers,
                               .width = m->hp.n_embd,
                               .threads = p->threads,
                               .kv_type = p->kv_type,
                               .multiply = p->multiply,
                               .kv_on_device = p->on_device};
    double streamed = 0, of_all = experts_used(m, rows), of_asked = experts_used(m, asked), framed = framed_share(p);
    l.expert_rows = expert_rows(m, rows, of_all);
    if (p->n_windows) /* how much of it rows will use is not known before */
        return false;
    for (uint32_t i = 0; i < p->chunks->n; i++) {
        const struct ntx_chunk *c = &p->chunks->list[i];
        if (c->lookup) /* a row of it is negligible */
            continue;
        bool storage = p->table[i].placement == NTX_PLACE_STORAGE,
             few = asked < rows && (c->end || c->layer == m->hp.n_layers);
        const double used = few ? of_asked : of_all, part = c->of_groups ? NTX_MIN(used / c->of_groups, 1.0) : 1;
        streamed += storage ? (double)c->bytes : 0;
        if (few && !asked)
            continue;
        const double times = (c->expert ? used : part) * NTX_MAX(c->users, 1u), bytes = (double)c->bytes * times;
        uint32_t type = type_of(m, c);
        uint32_t of_rows = c->expert ? l.expert_rows : rows;
        of_rows = few ? asked : of_rows;
        const double dots = of_rows * times *
                            ((double)c->n_out - (double)c->bytes / (double)ntx_row_bytes(type, NTX_HW_WIDTH));
        if (of_rows > FEW_ROWS)
            l.dots += dots;
        if (p->table[i].placement == NTX_PLACE_FRAME) {
            add_bytes(&l, NTX_TIER_HOST, type, c->expert, few, bytes * framed);
            add_bytes(&l, NTX_TIER_STORAGE, type, c->expert, few, bytes * (1 - framed));
            if (of_rows <= FEW_ROWS) {
                l.few_dots[NTX_TIER_HOST][type] += dots * framed;
                l.few_dots[NTX_TIER_STORAGE][type] += dots * (1 - framed);
            }
            /* otherwise the router need not be waited for */
            l.late_bytes += used < NEARLY_ALL ? bytes * (1 - framed) : 0;
            continue;
        }
        bool there = c->device || (c->fixed && p->on_device); /* a GPU has resident data, too */
        const enum ntx_tier not_there = storage ? NTX_TIER_STORAGE : NTX_TIER_HOST;
        add_bytes(&l, there ? NTX_TIER_DEVICE : not_there, type, c->expert, few, bytes);
        if (of_rows <= FEW_ROWS)
            l.few_dots[there ? NTX_TIER_DEVICE : not_there][type] += dots;
    }
    uint64_t each = p->geo.n_sched ? (uint64_t)streamed / p->geo.n_sched : p->piece_bytes;
    l.read_bytes = NTX_MIN(each, p->piece_bytes);
    l.kv_bytes = (double)ntx_recur_bytes(&m->hp);
    for (uint32_t i = 0; i < m->hp.n_layers - !asked; i++)
        l.kv_bytes += ntx_kv_layer_reads(&m->hp, p->kv_type, i, positions);
    add_row_work(m, p, m->hp.n_layers - !asked, positions, &l);
    l.kv_read_bytes = (double)ntx_kv_shape_reads(&m->hp, p->kv_type, &p->kv, positions, rows, asked);
    *out = l;
    return true;
}

void ntx_plan_load_draft(const struct ntx_model *m, const struct ntx_plan *p, uint32_t positions,
                         struct ntx_load_bytes *out)
{
    struct ntx_load_bytes l = {.rows = 1,
                               .asked = 1,
                               .n_layers = m->hp.n_layers - p->n_without,
                               .width = m->hp.n_embd,
                               .threads = p->threads,
                               .kv_type = p->kv_type};
    for (uint32_t i = 0; i < p->chunks->n; i++) {
        const struct ntx_chunk *c = &p->chunks->list[i];
        if (!c->lookup && (c->layer >= m->hp.n_layers || !(p->without[c->layer / 64] >> c->layer % 64 & 1)))
            l.bytes[NTX_TIER_HOST][type_of(m, c)] += (double)c->bytes;
    }
    for (uint32_t i = 0; i < m->hp.n_layers; i++)
        if (!(p->without[i / 64] >> i % 64 & 1))
            l.kv_bytes += ntx_kv_layer_reads(&m->hp, p->kv_type, i, positions);
    *out = l;
}

/* Full passes of a prompt, at its beginning and at the context's end. */
static void predict_blocks(const struct ntx_model *m, const struct ntx_hw *hw, struct ntx_plan *p)
{
    struct ntx_load_bytes l;
    struct ntx_forecast first, last;
    double part = (double)NTX_KV_BLOCK / p->max_rows;
    if (p->ctx <= p->max_rows || !ntx_plan_load(m, p, p->max_rows, 0, p->max_rows, &l) || ntx_predict(hw, &l, &first) ||
        !ntx_plan_load(m, p, p->max_rows, 0, p->ctx, &l) || ntx_predict(hw, &l, &last))
        return;
    p->block_s = first.pass_s * part;
    p->block_token_s = (last.pass_s - first.pass_s) / (p->ctx - p->max_rows) * part;
}

uint32_t ntx_plan_text(const struct ntx_plan *p) { return p->kv.ram ? p->ctx : NTX_MIN(p->ctx, NTX_PLAN_TEXT); }

void ntx__plan_predict(const struct ntx_model *m, const struct ntx_hw *hw, struct ntx_plan *p)
{
    struct ntx_load_bytes l;
    struct ntx_forecast f;
    p->predicted_tok_s = p->block_s = p->block_token_s = 0;
    p->limit = "";
    p->profile_load = hw ? hw->load : 0;
    if (!hw || !ntx_plan_load(m, p, 1, 1, ntx_plan_text(p), &l) || ntx_predict(hw, &l, &f))
        return;
    p->predicted_tok_s = 1 / f.pass_s;
    p->limit = f.limit;
    predict_blocks(m, hw, p);
}
