/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.c: the list of chunks in execution order. See chunk.h for the order and the rules. */
#include "model/chunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "model/quant.h"

struct cutter {
    const struct ntx_model *m;
    struct ntx_chunks *c;
    uint64_t chunk_bytes;
    uint32_t room; /* entries allocated in c->list */
    struct ntx_chunk_bounds bounds;
    const struct ntx_share *share;
    bool experts_dealt;
    struct shared { /* one for each tensor of the file; NULL: no tensor belongs to several layers */
        uint32_t users;
        struct ntx_weight first;
    } * shared;
    struct ntx_chunk counted; /* the only entry, if chunks are counted and not listed */
    struct ntx_err *err;
};

static const struct ntx_weight absent = {.tensor = NTX_NO_TENSOR};

/* A weight without its chunks. */
static struct ntx_weight weight_from(const struct ntx_model *m, uint32_t tensor)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, tensor);
    return (struct ntx_weight){
        .tensor = tensor,
        .type = t->type,
        .n_in = (uint32_t)ntx_gguf_row(t),
        .n_out = (uint32_t)ntx_gguf_rows(t),
        .row_bytes = (uint32_t)ntx_row_bytes(t->type, ntx_gguf_row(t)),
    };
}

/* Appends a chunk of zeros. NULL: *rc has the error. */
static struct ntx_chunk *append_chunk(struct cutter *k, int *rc)
{
    struct ntx_chunks *c = k->c;
    *rc = 0;
    if (c->n >= k->bounds.most)
        *rc = ntx_err_set(k->err, -E2BIG, "the model has more than %llu chunks of %llu bytes",
                          (unsigned long long)k->bounds.most, (unsigned long long)k->chunk_bytes);
    else if (c->n % 65536 == 65535 && k->bounds.stop && atomic_load_explicit(k->bounds.stop, memory_order_relaxed))
        *rc = ntx_err_set(k->err, -ECANCELED, "cancelled");
    if (*rc)
        return NULL;
    if (!k->bounds.count_only && c->n == k->room) {
        uint32_t room = k->room ? k->room * 2 : 1024;
        struct ntx_chunk *list = realloc(c->list, room * sizeof *list);
        if (!list) {
            *rc = ntx_err_set(k->err, -ENOMEM, "no memory for the list of %u chunks", c->n);
            return NULL;
        }
        c->list = list;
        k->room = room;
    }
    struct ntx_chunk *ch = k->bounds.count_only ? &k->counted : &c->list[c->n];
    memset(ch, 0, sizeof *ch);
    c->n++;
    return ch;
}

/* Part of a tensor that is a weight of its own: n_out outputs from out0 on, contiguous or in runs; n_out 0: all of
 * them. */
struct part {
    enum ntx_tensor t;
    uint32_t out0, n_out, run;
    bool scale;
};

/* The tensor's output that is output `out` of the weight. */
static uint64_t out_in_tensor(const struct cutter *k, const struct part *p, uint64_t out)
{
    return p->run ? ntx_whole_run(&k->m->hp, p->t, (uint32_t)(out / p->run)) + out % p->run : p->out0 + out;
}

/* Outputs per chunk. Runs are cut into equal chunks. */
static uint32_t outs_of_chunk(const struct cutter *k, const struct part *p, const struct ntx_weight *w, bool fixed)
{
    uint64_t outs = fixed ? w->n_out : NTX_MAX(k->chunk_bytes / w->row_bytes, 1u);
    uint32_t n = (uint32_t)NTX_MIN(outs, (uint64_t)(p->run ? p->run : w->n_out));
    while (p->run && p->run % n)
        n--;
    return n;
}

/* Weights in runs, and tensors that are not matrices, are not dealt to several machines. A scale follows its matrix
 * (cut_scale). */
static struct ntx_share_range own_outs(const struct cutter *k, const struct part *p, struct ntx_weight *w, bool fixed)
{
    struct ntx_share_range all = {0, w->n_out};
    if (!k->share)
        return all;
    w->dealt = !fixed && !p->run && ntx_share_deals(k->share, w->layer, w->n_out);
    if (w->dealt)
        return ntx_share_of(k->share, w->layer, w->n_out, k->share->rank);
    return k->share->rank && !p->scale ? (struct ntx_share_range){0, 0} : all;
}

static int cut_outs(struct cutter *k, uint32_t tensor, uint32_t layer, enum ntx_use use, const struct part *p,
                    struct ntx_weight *w)
{
    *w = absent;
    if (tensor == NTX_NO_TENSOR)
        return 0;
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(k->m->gguf, tensor);
    *w = weight_from(k->m, tensor);
    w->n_out = p->n_out ? p->n_out : w->n_out;
    const bool base = use == NTX_USE_GROUPS && k->m->pack[layer].adds &&
                      p->t == NTX_T_groups; /* it stays in memory under any budget */
    struct shared *several = k->shared && k->shared[tensor].users > 1 && (base || !k->bounds.apart) ? &k->shared[tensor]
                                                                                                    : NULL;
    if (several && several->first.n_chunks) {
        *w = several->first;
        return 0;
    }
    bool fixed = several || base || t->n_dims == 1 || use == NTX_USE_RESIDENT || use == NTX_USE_HEADS ||
                 use == NTX_USE_VECTOR || use == NTX_USE_VECTORS || use == NTX_USE_TABLE || use == NTX_USE_NUMBERS;
    if (use == NTX_USE_HEADS || use == NTX_USE_VECTORS)
        w->n_out *= (uint32_t)t->ne[2];
    w->layer = layer;
    w->kind = (uint16_t)p->t;
    const struct ntx_share_range own = own_outs(k, p, w, fixed);
    w->chunk0 = k->c->n;
    if (!own.n) {
        if (k->share->rank)
            *w = absent;
        return 0;
    }
    w->chunk_outs = NTX_MIN(outs_of_chunk(k, p, w, fixed), own.n);
    for (uint64_t out = own.first; out < own.first + own.n; out += w->chunk_outs) {
        int rc;
        struct ntx_chunk *ch = append_chunk(k, &rc);
        if (!ch)
            return rc;
        ch->tensor = tensor;
        ch->layer = layer;
        ch->file = t->file;
        ch->out0 = (uint32_t)out;
        ch->n_out = NTX_MIN(w->chunk_outs, own.first + own.n - ch->out0);
        ch->offset = t->offset + out_in_tensor(k, p, out) * w->row_bytes;
        ch->bytes = (uint64_t)ch->n_out * w->row_bytes;
        ch->fixed = fixed;
        ch->of_groups = ntx_is_adjugate(p->t) ? (uint16_t)t->ne[2] : 0;
        ch->users = several ? several->users : 0;
        *(fixed ? &k->c->fixed_bytes : &k->c->matrix_bytes) += ch->bytes;
        w->n_chunks++;
    }
    if (several)
        several->first = *w;
    return 0;
}

static int cut_all(struct cutter *k, uint32_t tensor, uint32_t layer, enum ntx_use use, struct ntx_weight *w)
{
    return cut_outs(k, tensor, layer, use, &(struct part){.t = NTX_N_TENSORS}, w);
}

/* The weight belongs to another machine. Rank 0 needs its description all the same. */
static bool elsewhere(const struct cutter *k, const struct ntx_weight *w)
{
    return k->share && (w->tensor == NTX_NO_TENSOR || !w->n_chunks);
}

/* The scale that multiplies the products of a weight. */
static int cut_scale(struct cutter *k, uint32_t tensor, uint32_t layer, struct ntx_weight *w)
{
    struct ntx_weight scale;
    int rc = cut_outs(k, tensor, layer, NTX_USE_VECTOR, &(struct part){.t = NTX_N_TENSORS, .scale = true}, &scale);
    w->scaled = !rc && tensor != NTX_NO_TENSOR;
    w->scale = w->scaled ? scale.chunk0 : 0;
    return rc;
}

/* One matrix of one expert. The file may have gate and up in one tensor. */
static int cut_expert(struct cutter *k, uint32_t layer, uint32_t expert, enum ntx_expert_part part)
{
    const struct ntx_layer *l = &k->m->layers[layer];
    bool fused = part != NTX_EXPERT_DOWN && l->expert_gate == NTX_NO_TENSOR;
    uint32_t tensor = fused ? l->expert_gate_up : (&l->expert_gate)[part];
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(k->m->gguf, tensor);
    struct ntx_weight e = weight_from(k->m, tensor), *w = &k->c->layers[layer].expert[part],
                      *of = fused ? &k->c->layers[layer].expert_gate_up : w;
    e.scaled = of->scaled;
    e.scale = of->scale;
    if (fused)
        e.n_out /= 2;
    if ((uint64_t)e.n_out * e.row_bytes > NTX_EXPERT_BYTES_MAX)
        return ntx_err_set(k->err, -EFBIG, "an expert's matrix of %llu bytes is more than the %llu that are possible",
                           (unsigned long long)e.n_out * e.row_bytes, (unsigned long long)NTX_EXPERT_BYTES_MAX);
    const struct ntx_share_range own = k->experts_dealt ? ntx_share_of(k->share, layer, e.n_out, k->share->rank)
                                                        : (struct ntx_share_range){0, e.n_out};
    int rc;
    struct ntx_chunk *ch = own.n ? append_chunk(k, &rc) : NULL;
    if (own.n && !ch)
        return rc;
    e.chunk0 = own.n ? k->c->n - 1 : k->c->n;
    e.n_chunks = own.n != 0;
    e.chunk_outs = own.n;
    e.layer = layer;
    e.kind = (uint16_t)(NTX_T_expert_gate + part);
    e.dealt = k->experts_dealt;
    if (!expert)
        *w = e;
    if (!ch)
        return 0;
    uint64_t bytes = (uint64_t)e.n_out * e.row_bytes;
    uint64_t at = fused ? 2 * (uint64_t)expert + part : expert;
    *ch = (struct ntx_chunk){.tensor = tensor,
                             .layer = layer,
                             .file = t->file,
                             .out0 = own.first,
                             .n_out = own.n,
                             .offset = t->offset + at * bytes + (uint64_t)own.first * e.row_bytes,
                             .bytes = (uint64_t)own.n * e.row_bytes,
                             .expert = true};
    k->c->matrix_bytes += ch->bytes;
    return 0;
}

static int cut_experts(struct cutter *k, uint32_t l)
{
    int rc = 0;
    k->experts_dealt = ntx_experts_deal(&k->m->hp, k->share, l);
    if (k->share && k->share->rank && !(k->experts_dealt && ntx_share_has_outputs(k->share, l, k->share->rank)))
        return 0;
    for (uint32_t e = 0; e < k->m->hp.n_expert && !rc; e++)
        for (int part = 0; part < NTX_EXPERT_PARTS && !rc; part++)
            rc = cut_expert(k, l, e, (enum ntx_expert_part)part);
    if (k->m->layers[l].expert_gate_up != NTX_NO_TENSOR)
        k->c->layers[l].expert_gate_up = k->c->layers[l].expert[NTX_EXPERT_GATE];
    return rc;
}

/* Describes up, down and gate of a packed layer, for callers that need their types and widths. */
static void describe_groups(const struct cutter *k, uint32_t l)
{
    struct ntx_layer_weights *w = &k->c->layers[l];
    struct ntx_weight *const parts[] = {[NTX_PACK_GATE] = &w->gate, [NTX_PACK_UP] = &w->up, [NTX_PACK_DOWN] = &w->down};
    if (!k->m->pack)
        return;
    w->pack = k->m->pack[l];
    for (int p = 0; p < NTX_PACK_PARTS; p++)
        if (w->pack.row_bytes[p])
            *parts[p] = (struct ntx_weight){.tensor = w->groups.tensor,
                                            .type = w->pack.type[p],
                                            .n_in = k->m->hp.n_embd,
                                            .n_out = k->m->hp.n_ff,
                                            .row_bytes = w->pack.row_bytes[p],
                                            .chunk0 = w->groups.chunk0};
}

/* A step's experts come after its other weights, expert by expert. */
static int cut_step(struct cutter *k, uint32_t l, const struct ntx_step *s)
{
    const uint32_t from = k->c->n;
    bool experts = false;
    int rc = 0;
    for (uint8_t i = 0; i < s->n_weights && !rc; i++) {
        enum ntx_tensor t = (enum ntx_tensor)s->weight[i];
        enum ntx_use use = (enum ntx_use)ntx_tensor_kinds[t].use;
        struct ntx_whole whole = {.out0 = 0};
        uint32_t outs = ntx_whole_of(&k->m->hp, l, t, &whole) ? ntx_shape_of(&k->m->hp, l, t).n_out : 0;
        experts |= use == NTX_USE_EXPERT;
        if (use != NTX_USE_EXPERT)
            rc = cut_outs(
                k, k->m->layers[l].tensor[t], l, use,
                &(struct part){
                    .t = t, .out0 = whole.out0, .n_out = outs, .run = t == NTX_T_o_a ? k->m->hp.o_lora : whole.run},
                &k->c->layers[l].of[t]);
        if (!rc && (use == NTX_USE_EXPERT || !elsewhere(k, &k->c->layers[l].of[t])))
            rc = cut_scale(k, k->m->layers[l].scale[t], l, &k->c->layers[l].of[t]);
    }
    rc = rc || !experts ? rc : cut_experts(k, l);
    for (uint32_t i = from; i < k->c->n && !k->bounds.count_only; i++)
        k->c->list[i].end = l + 1 == k->m->hp.n_layers && !s->feeds;
    return rc;
}

/* The order of this list is the order of execution. */
static int cut_layer(struct cutter *k, uint32_t l)
{
    const struct ntx_layer *layer = &k->m->layers[l];
    int rc = 0;
    for (int t = 0; t < NTX_N_TENSORS; t++)
        k->c->layers[l].of[t] = absent;
    for (uint32_t i = 0; i < layer->n_steps && !rc; i++)
        rc = cut_step(k, l, &layer->step[i]);
    if (!rc)
        describe_groups(k, l);
    return rc;
}

/* Counts the layers that use each tensor. */
static int count_users(struct cutter *k)
{
    const struct ntx_model *m = k->m;
    if (!m->delta.base)
        return 0;
    if (!(k->shared = calloc(ntx_gguf_n_tensors(m->gguf) + 1, sizeof *k->shared)))
        return ntx_err_set(k->err, -ENOMEM, "no memory for the tensors that layers share");
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        for (int t = 0; t < NTX_N_TENSORS; t++) {
            const uint32_t of[] = {m->layers[l].tensor[t], m->layers[l].scale[t]};
            for (int i = 0; i < 2; i++)
                if (of[i] != NTX_NO_TENSOR && !ntx_is_models((enum ntx_tensor)t))
                    k->shared[of[i]].users++;
        }
    return 0;
}

static int cut_end(struct cutter *k, enum ntx_end t, uint32_t layer)
{
    const uint32_t tensor = k->m->end[t];
    if (ntx_end_kinds[t].use != NTX_USE_LOOKUP)
        return cut_all(k, tensor, layer, (enum ntx_use)ntx_end_kinds[t].use, &k->c->end[t]);
    k->c->end[t] = tensor == NTX_NO_TENSOR ? absent : weight_from(k->m, tensor);
    return 0;
}

static int cut_model(struct cutter *k)
{
    const struct ntx_model *m = k->m;
    struct ntx_chunks *c = k->c;
    int rc = 0;
    for (int t = 0; t < NTX_END_output_norm && !rc; t++)
        rc = cut_end(k, (enum ntx_end)t, 0);
    for (uint32_t l = 0; l < m->hp.n_layers && !rc; l++)
        rc = cut_layer(k, l);
    if (!rc)
        rc = cut_end(k, NTX_END_output_norm, m->hp.n_layers);
    if (!rc && m->output_norm == NTX_NO_TENSOR)
        c->output_norm.chunk0 = c->n;
    if (!rc)
        rc = cut_end(k, NTX_END_output, m->hp.n_layers);
    if (!rc && !elsewhere(k, &c->output))
        rc = cut_scale(k, m->output_scale, m->hp.n_layers, &c->output);
    c->n_layers = m->hp.n_layers;
    c->n_expert = m->hp.n_expert;
    return rc;
}

int ntx_chunks_make(const struct ntx_model *m, uint64_t chunk_bytes, struct ntx_chunks **out, struct ntx_err *err)
{
    return ntx_chunks_make_bounded(m, chunk_bytes, &(struct ntx_chunk_bounds){.most = NTX_CHUNKS_MAX}, out, err);
}

int ntx_chunks_make_bounded(const struct ntx_model *m, uint64_t chunk_bytes, const struct ntx_chunk_bounds *b,
                            struct ntx_chunks **out, struct ntx_err *err)
{
    if (!chunk_bytes)
        return ntx_err_set(err, -EINVAL, "chunks of 0 bytes");
    struct ntx_chunks *c = calloc(1, sizeof *c);
    struct cutter k = {.m = m,
                       .c = c,
                       .chunk_bytes = chunk_bytes,
                       .bounds = *b,
                       .share = b->share && b->share->n > 1 ? b->share : NULL,
                       .err = err};
    if (c && k.share)
        c->share = *k.share;
    if (!c || !(c->layers = calloc(m->hp.n_layers, sizeof *c->layers))) {
        ntx_chunks_free(c);
        return ntx_err_set(err, -ENOMEM, "no memory for the chunks of %u layers", m->hp.n_layers);
    }
    int rc = count_users(&k);
    if (!rc)
        rc = cut_model(&k);
    free(k.shared);
    if (rc) {
        ntx_chunks_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

int ntx_chunks_keep_entries(struct ntx_chunks *c, const struct ntx_model *m, struct ntx_weight *table,
                            uint64_t chunk_bytes, struct ntx_err *err)
{
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(m->gguf, table->tensor);
    struct cutter k = {
        .m = m, .c = c, .chunk_bytes = chunk_bytes, .bounds = {.most = NTX_CHUNKS_MAX}, .room = c->n, .err = err};
    int rc = 0;
    table->chunk0 = c->n;
    table->n_chunks = 0;
    table->layer = c->n_layers;
    table->kind = NTX_N_TENSORS;
    table->chunk_outs = (uint32_t)NTX_MIN(NTX_MAX(chunk_bytes / table->row_bytes, 1u), (uint64_t)table->n_out);
    for (uint64_t out0 = 0; out0 < table->n_out && !rc; out0 += table->chunk_outs) {
        const uint32_t n = (uint32_t)NTX_MIN((uint64_t)table->chunk_outs, table->n_out - out0);
        struct ntx_chunk *ch = append_chunk(&k, &rc);
        if (!ch)
            break;
        *ch = (struct ntx_chunk){.tensor = table->tensor,
                                 .layer = c->n_layers,
                                 .file = t->file,
                                 .out0 = (uint32_t)out0,
                                 .n_out = n,
                                 .offset = t->offset + out0 * table->row_bytes,
                                 .bytes = (uint64_t)n * table->row_bytes,
                                 .fixed = true,
                                 .lookup = true};
        c->lookup_bytes += ch->bytes;
        table->n_chunks++;
    }
    if (rc)
        ntx_chunks_drop_entries(c, table);
    return rc;
}

void ntx_chunks_drop_entries(struct ntx_chunks *c, struct ntx_weight *table)
{
    for (uint32_t i = table->chunk0; i < c->n; i++)
        c->lookup_bytes -= c->list[i].bytes;
    c->n = table->chunk0;
    table->n_chunks = 0;
}

void ntx_chunks_free(struct ntx_chunks *c)
{
    if (!c)
        return;
    free(c->list);
    free(c->layers);
    free(c);
}

void ntx_chunks_on_demand(struct ntx_chunks *c)
{
    for (uint32_t l = 0; l < c->n_layers; l++) {
        const struct ntx_weight *w = ntx_read_groups(&c->layers[l]);
        for (uint32_t i = 0; w->tensor != NTX_NO_TENSOR && i < w->n_chunks; i++)
            c->list[w->chunk0 + i].on_demand = !c->list[w->chunk0 + i].fixed;
    }
}
