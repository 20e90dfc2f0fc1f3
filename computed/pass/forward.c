/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c: a pass from begin to end: rows in, layer by layer with the skips decided on the way, rows out. */
#include "computed/pass/forward_impl.h"
#include "computed/pass/kv_form.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <sys/mman.h>

#include "common/util.h"
#include "model/quant.h"

uint64_t ntx_forward_bytes(const struct ntx_forward_config *c)
{
    struct ntx__mem m;
    return ntx__forward_layout(c, NULL, &m);
}

static int check_config(const struct ntx_forward_config *c, struct ntx_err *err)
{
    if (!c->max_rows || !c->ctx || !c->threads)
        return ntx_err_set(err, -EINVAL, "%u rows, %u positions, %u threads: a forward pass needs at least one of each",
                           c->max_rows, c->ctx, c->threads);
    if (c->block && (!c->model->hp.tower || c->backend || c->ranks))
        return ntx_err_set(err, -EINVAL, "blocks of %u rows: only a vision tower on the CPU has blocks", c->block);
    return 0;
}

static int make_arena(struct ntx_forward *f, struct ntx_err *err)
{
    f->arena_bytes = ntx_forward_bytes(&f->c);
    void *p = mmap(NULL, f->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return ntx_err_set(err, -ENOMEM, "no memory for activations of %llu bytes", (unsigned long long)f->arena_bytes);
    madvise(p, f->arena_bytes, MADV_HUGEPAGE); /* a refusal costs speed only */
    f->arena = p;
    ntx__forward_layout(&f->c, f->arena, &f->m);
    return 0;
}

static void name_buffers(struct ntx_forward *f)
{
    const struct ntx__mem *m = &f->m;
    float *const at[NTX__N_BUFS] = {
        [NTX_BUF_H] = m->h,
        [NTX_BUF_X] = m->x,
        [NTX_BUF_Q_LOW] = m->q_low,
        [NTX_BUF_Q] = m->q,
        [NTX_BUF_K] = m->k,
        [NTX_BUF_V] = m->v,
        [NTX_BUF_ATTN] = m->attn,
        [NTX_BUF_GATE] = m->gate,
        [NTX_BUF_UP] = m->up,
        [NTX_BUF_Y] = m->y,
        [NTX_BUF_Z] = m->z,
        [NTX_BUF_A] = m->a,
        [NTX_BUF_BESIDE] = m->beside,
        [NTX_BUF_INPUTS] = m->inputs,
        [NTX_BUF_STREAMS] = m->streams,
        [NTX_BUF_MIX] = m->mix,
        [NTX_BUF_POOL] = m->pool,
        [NTX_BUF_POOL_GATE] = m->pool_gate,
        [NTX_BUF_KEYS] = m->keys,
        [NTX_BUF_KEYS_GATE] = m->keys_gate,
        [NTX_BUF_NORMED] = m->normed,
        [NTX_BUF_GATES] = m->gates,
        [NTX_BUF_LOW] = m->low,
        [NTX_BUF_LORA] = m->lora,
        [NTX__BUF_PROBS] = m->moe.probs,
        [NTX__BUF_SHARED] = m->moe.shared,
        [NTX__BUF_ROUTED_X] = m->moe.x,
        [NTX__BUF_ROUTED_GATE] = m->moe.gate,
        [NTX__BUF_ROUTED_UP] = m->moe.up,
        [NTX__BUF_ROUTED_Y] = m->moe.y,
        [NTX__BUF_EARLY_X] = m->groups.x,
        [NTX__BUF_EARLY_GATE] = m->groups.gate, /* and logits: m.logits has each row's own place */
    };
    for (uint8_t b = NTX_BUF_H; b < NTX__N_BUFS; b++) {
        f->buf[b].at = at[b];
        f->buf[b].ld = ntx__buf_ld(f->c.model, b);
    }
    f->quantized[NTX__OF_LAYER] = f->m.quantized;
    f->quantized[NTX__OF_ROUTED] = f->m.moe.quantized;
    f->quantized[NTX__OF_EARLY] = f->m.groups.quantized;
    f->quantized[NTX__OF_LOW] = f->m.low_quantized;
    f->quantized[NTX__OF_WAY] = f->m.moe.lookahead_quantized;
    f->ld_x = f->buf[NTX_BUF_X].ld;
    f->ld_attn = f->buf[NTX_BUF_ATTN].ld;
    f->ld_gate = f->buf[NTX_BUF_GATE].ld;
}

int ntx_forward_new(const struct ntx_forward_config *c, struct ntx_forward **out, struct ntx_err *err)
{
    int rc = check_config(c, err);
    if (!rc && ntx_gguf_planes(c->model->gguf) && !c->high)
        rc = ntx_err_set(err, -ENOTSUP, "a model in high and low bits (ntx pack --planes) cannot be computed here");
    if (rc)
        return rc;
    struct ntx_forward *f = calloc(1, sizeof *f);
    if (!f)
        return ntx_err_set(err, -ENOMEM, "no memory for a forward pass");
    f->c = *c;
    f->hp = &c->model->hp;
    f->back = c->backend ? c->backend : &ntx__cpu_backend;
    f->runs = ntx__runs_of(c->model, c->chunks);
    if (!f->runs) {
        ntx_forward_free(f);
        return ntx_err_set(err, -ENOMEM, "no memory for the steps of %u layers", c->model->hp.n_layers);
    }
    if ((rc = make_arena(f, err)) || (rc = ntx_pool_new(c->threads, &f->pool, err))) {
        ntx_forward_free(f);
        return rc;
    }
    for (uint32_t j = 0; f->m.groups.ones && j < f->hp->n_ff; j++)
        f->m.groups.ones[j] = 1;
    name_buffers(f);
    *out = f;
    return 0;
}

void ntx_forward_free(struct ntx_forward *f)
{
    if (!f)
        return;
    ntx_pool_free(f->pool);
    if (f->arena)
        munmap(f->arena, f->arena_bytes);
    free(f->runs);
    free(f);
}

void *ntx_forward_memory(const struct ntx_forward *f, uint64_t *bytes)
{
    *bytes = f->arena_bytes;
    return f->arena;
}

uint64_t ntx_forward_skipped(const struct ntx_forward *f) { return f->skipped; }

void ntx_forward_trace(struct ntx_forward *f,
                       void (*cb)(void *ctx, uint32_t layer, const float *hidden, uint32_t n_rows), void *ctx)
{
    f->trace = cb;
    f->trace_ctx = ctx;
}

/* ---- rows in */

/* Whether the row is behind the previous row of its sequence in the batch. */
static bool is_behind_previous(const struct ntx_row *rows, uint32_t i)
{
    for (uint32_t k = i; k > 0; k--)
        if (rows[k - 1].kv == rows[i].kv)
            return ntx_row_slot(&rows[k - 1]) < ntx_row_slot(&rows[i]);
    return true;
}

/* Its places are in the table, its block is around it, and its numbers are those of rows. */
static bool is_patch(const struct ntx_tower *t, const struct ntx_row *r)
{
    const uint64_t n = r->places ? r->places->n : 0;
    bool good = n <= NTX_PLACES_MAX && (uint64_t)r->block + r->n_block <= (uint64_t)r->pos + r->ahead + 1 &&
                (!r->n_block || (r->block <= r->pos && r->pos - r->block < r->n_block)) &&
                r->by_columns <= (uint64_t)r->pos + r->ahead;
    for (uint64_t k = 0; k < n && good; k++)
        good = r->places->at[k] < t->n_places + (t->extra != NTX_TOWER_EXTRA_NONE);
    return good;
}

static int check_batch(struct ntx_forward *f, const struct ntx_batch *b)
{
    struct ntx_err *err = &f->c.weights->error;
    uint32_t decode = 0;
    if (!b->n_rows || b->n_rows > f->c.max_rows)
        return ntx_err_set(err, -EINVAL, "a batch of %u rows; 1 to %u are possible", b->n_rows, f->c.max_rows);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct ntx_row *r = &b->rows[i];
        decode += !r->all_groups;
        if (r->token < 0 || (uint32_t)r->token >= f->hp->n_vocab)
            return ntx_err_set(err, -EINVAL, "token %d is not in the vocabulary of %u", r->token, f->hp->n_vocab);
        if (r->n_deep && (!r->values || r->n_deep > f->hp->n_layers))
            return ntx_err_set(err, -EINVAL, "row %u: an image's values for %u layers; the model has %u", i, r->n_deep,
                               f->hp->n_layers);
        if (f->hp->by_state && !r->state)
            return ntx_err_set(err, -EINVAL, "row %u comes without a state, which this model predicts by", i);
        if (f->hp->tower && !is_patch(f->hp->tower, r))
            return ntx_err_set(err, -EINVAL, "row %u: its block or its places are not those of a patch", i);
        if (r->pos >= f->c.ctx || r->pos >= ntx_kv_seq_room(r->kv))
            return ntx_err_set(err, -EINVAL, "position %u is beyond the context of %u", r->pos,
                               NTX_MIN(f->c.ctx, ntx_kv_seq_room(r->kv)));
        if (r->behind > r->pos || r->behind >= f->c.max_rows || r->ahead >= f->c.max_rows)
            return ntx_err_set(err, -EINVAL, "row %u: a block of %u positions before it and %u behind it", i, r->behind,
                               r->ahead);
        if (r->ahead && (r->n_path || (r->rounded && f->c.device) ||
                         r->pos + (uint64_t)r->ahead >= NTX_MIN(f->c.ctx, ntx_kv_seq_room(r->kv))))
            return ntx_err_set(err, -EINVAL,
                               "row %u: the %u positions ahead of position %u are beyond the context, or it has a path",
                               i, r->ahead, r->pos);
        if ((r->n_path && r->rounded) || ntx__check_path(r))
            return ntx_err_set(err, -EINVAL,
                               "row %u: the %u slots of its path do not ascend, or lie before their positions or "
                               "beyond the session's %u",
                               i, r->n_path, ntx_kv_seq_room(r->kv));
        ntx_kv_seq_reach(r->kv, ntx_row_slot(r));
        if (ntx_kv_shared(r->kv, ntx_row_slot(r)))
            return ntx_err_set(err, -EINVAL, "row %u: slot %u is shared with another sequence", i, ntx_row_slot(r));
        if (!is_behind_previous(b->rows, i))
            return ntx_err_set(err, -EINVAL,
                               "row %u: slot %u does not come after those of its sequence's rows before it", i,
                               ntx_row_slot(r));
    }
    if (f->c.ffn.kind == NTX_FFN_PREDICTED && decode > NTX_DECODE_ROWS)
        return ntx_err_set(err, -EINVAL, "%u decode rows; %u can be predicted for", decode, NTX_DECODE_ROWS);
    return 0;
}

/* Adds what images have for this layer (DeepStack: Meng et al. 2024, arXiv 2406.04334). */
static void add_deep(struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->b->n_rows; i++) {
        const struct ntx_row *r = &f->b->rows[i];
        const float *more = f->layer < r->n_deep ? r->values + (size_t)(1 + f->layer) * f->hp->n_embd : NULL;
        float *h = f->m.h + (size_t)i * f->hp->n_embd;
        for (uint32_t k = 0; more && k < f->hp->n_embd; k++)
            h[k] += more[k];
    }
}

static void angles_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    size_t at = (size_t)i * (ntx_rope_dim(f->hp, f->turn) / 2);
    const struct ntx_row *r = &f->b->rows[i];
    const uint32_t plain[] = {r->pos, r->pos, r->pos};
    ntx_rope_angles_at(f->hp, f->turn, f->m.freq, r->placed ? r->place : plain, f->m.cs[f->turn] + at,
                       f->m.sn[f->turn] + at);
}

static void make_turn(struct ntx_forward *f, enum ntx_rotation turn, const float *factors)
{
    f->turn = turn;
    ntx_rope_frequencies(f->hp, turn, factors, f->m.freq);
    ntx__each(f, angles_row, f->b->n_rows);
}

/* Selects the rotation factors: the only ones, or those for long or short contexts. */
static int make_angles(struct ntx_forward *f)
{
    const struct ntx_chunks *c = f->c.chunks;
    const struct ntx_weight *const w[] = {&c->rope_freqs, &c->rope_long, &c->rope_short};
    const float *factors[3];
    for (int i = 0; i < 3; i++) {
        int rc = ntx__take(f, w[i], &factors[i]);
        if (rc)
            return rc;
    }
    const float *by_context = f->c.ctx > f->hp->rope_ctx_orig ? factors[1] : factors[2];
    make_turn(f, NTX_ROTATION_ALL, factors[0] ? factors[0] : by_context);
    for (int i = 0; i < 3; i++)
        ntx__give(f, w[i]);
    if (f->c.kv_form)
        ntx_kv_form_turn(f->c.kv_form, f->m.freq);
    if (f->m.cs[NTX_ROTATION_WINDOW])
        make_turn(f, NTX_ROTATION_WINDOW, NULL);
    return 0;
}

/* ---- skips */

bool ntx__skips(const struct ntx_forward *f, uint32_t row, uint32_t layer)
{
    return f->m.skip[(size_t)row * NTX_MAP_WORDS + layer / 64] >> (layer % 64) & 1;
}

static bool all_skip(const struct ntx_forward *f, uint32_t layer)
{
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (!ntx__skips(f, i, layer))
            return false;
    return true;
}

bool ntx__asked(const struct ntx_forward *f, uint32_t row)
{
    const struct ntx_row *r = &f->b->rows[row];
    bool left = r->left && !f->c.n_taps;
    for (uint32_t t = 0; r->left && t < f->c.n_taps; t++)
        left |= f->c.taps[t] == f->hp->n_layers;
    return f->all_asked || left || r->logits || r->few || r->pool || r->capture || r->add || r->watched;
}

static bool in_layer(const struct ntx_forward *f, uint32_t row, uint32_t layer)
{
    return !ntx__skips(f, row, layer) && (!ntx__is_last(f, layer) || ntx__asked(f, row));
}

bool ntx__last_idle(const struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (in_layer(f, i, f->hp->n_layers - 1))
            return false;
    return true;
}

/* Announces the end of the last layer as dropped, once no row needs more of it than what feeds its state. */
static void drop_end(struct ntx_forward *f)
{
    if (f->end_dropped || !ntx__last_idle(f))
        return;
    f->end_dropped = true;
    f->c.weights->ops->drop_layer(f->c.weights, NTX_END_OF_LAST(f->hp->n_layers));
}

/* Applies the decisions to later layers: announces those that no row needs, and leaves holes where a row skips a layer
 * without leaving K and V. */
static void apply_skips(struct ntx_forward *f)
{
    for (uint32_t l = f->layer + 1; l < f->hp->n_layers; l++) {
        if (all_skip(f, l))
            f->c.weights->ops->drop_layer(f->c.weights, l);
        for (uint32_t i = 0; i < f->b->n_rows; i++) {
            bool skips = ntx__skips(f, i, l);
            f->skipped += skips;
            if (skips && !f->c.skip.propagate)
                ntx_kv_set_hole(f->b->rows[i].kv, l, ntx_row_slot(&f->b->rows[i]));
        }
    }
    drop_end(f);
}

/* Reports the state to the predictor; if rows may skip, asks which layers. */
static void consult_predictor(struct ntx_forward *f)
{
    const struct ntx_skip_hooks *hooks = &f->c.skip;
    const struct ntx_batch *b = f->b;
    bool any = false;
    for (uint32_t i = 0; i < b->n_rows; i++)
        any |= b->rows[i].may_skip;
    if (hooks->probe)
        hooks->probe(hooks->ctx, b, f->m.h);
    if (!any || !hooks->decide || f->layer + 1 >= f->hp->n_layers ||
        f->n_turns) /* a recurrent state has no holes: such models are loaded without skips */
        return;
    hooks->decide(hooks->ctx, b, f->m.skip);
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (!b->rows[i].may_skip)
            memset(f->m.skip + (size_t)i * NTX_MAP_WORDS, 0, NTX_MAP_WORDS * sizeof *f->m.skip);
    apply_skips(f);
}

int ntx__fetch(struct ntx_forward *f, uint8_t buf, uint32_t row0, uint32_t n)
{
    const struct ntx__rows r = {.buf = buf, .row0 = row0, .n = n, .forms = 1u << NTX_ACT_F32};
    return f->back->fetch && n ? f->back->fetch(f, &r, 1) : 0;
}

int ntx__settle_chunks(struct ntx_forward *f) { return f->back->settle ? f->back->settle(f) : 0; }

static int fetch_states(struct ntx_forward *f) { return ntx__fetch(f, NTX_BUF_H, 0, f->b->n_rows); }

static int report_probe(struct ntx_forward *f)
{
    if (f->layer != f->c.skip.probe_layer || (!f->c.skip.probe && !f->c.skip.decide) || f->without)
        return 0;
    int rc = fetch_states(f);
    if (rc)
        return rc;
    consult_predictor(f);
    f->ended_ns = 0;
    return f->back->decided ? f->back->decided(f) : 0;
}

/* Adds rows that leave only K and V in the layer, behind the others. */
static void add_kv_only(struct ntx_forward *f, bool rounded)
{
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (f->b->rows[i].rounded == rounded && !in_layer(f, i, f->layer) &&
            (f->c.skip.propagate || !ntx__skips(f, i, f->layer)))
            f->m.live[f->n_live + f->n_kv_only++] = i;
}

/* Fills `live` with the rows of this layer; behind them come rows that skip it, or whose output nobody wants, and that
 * leave only K and V. */
void ntx__choose_rows(struct ntx_forward *f)
{
    f->n_live = f->n_kv_only = f->n_kv_rounded = f->n_exact = 0;
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (in_layer(f, i, f->layer)) {
            f->m.live[f->n_live++] = i;
            f->n_exact += !f->b->rows[i].rounded;
        }
    if (f->n_live < f->b->n_rows) {
        add_kv_only(f, true);
        f->n_kv_rounded = f->n_kv_only;
        add_kv_only(f, false);
    }
    for (uint32_t i = 0; i < f->n_live + f->n_kv_only; i++)
        f->m.place[f->m.live[i]] = i;
}

/* Skips chunks that no row needs. */
static int skip_chunks(struct ntx_forward *f, uint32_t first, uint32_t end)
{
    int rc = first < end ? ntx__settle_chunks(f) : 0;
    return rc ? rc : ntx__skip_chunks(f, first, end);
}

static void keep_states(struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->b->n_rows; i++) {
        const struct ntx_capture *s = f->b->rows[i].capture;
        if (s && s->state && s->layer == f->layer)
            memcpy(s->state, f->m.h + (size_t)i * f->hp->n_embd, f->hp->n_embd * sizeof *s->state);
    }
}

/* Pools the states of the last layer, in the order of the rows: so a sum has the same bits for any split into
 * passes. */
static int last_states(struct ntx_forward *f)
{
    bool wanted = false;
    for (uint32_t i = 0; i < f->b->n_rows && f->layer + 1 == f->hp->n_layers; i++)
        wanted |= f->b->rows[i].pool != NULL;
    int rc = wanted ? fetch_states(f) : 0;
    for (uint32_t i = 0; wanted && !rc && i < f->b->n_rows; i++) {
        const float *h = f->m.h + (size_t)i * f->hp->n_embd;
        float *to = f->b->rows[i].pool;
        double sum = 0;
        for (uint32_t k = 0; to && k < f->hp->n_embd; k++)
            sum += (double)h[k] * (double)h[k];
        float scale = sum > 0 ? (float)(1 / sqrt(sum / f->hp->n_embd)) : 0;
        for (uint32_t k = 0; to && k < f->hp->n_embd; k++)
            to[k] += h[k] * scale;
    }
    return rc;
}

/* Leaves states before this layer; n_layers: after all. */
static int leave_states(struct ntx_forward *f, uint32_t layer)
{
    const uint32_t last = f->hp->n_layers, n = f->c.n_taps ? f->c.n_taps : 1;
    int rc = 0;
    for (uint32_t t = 0; t < n && !rc; t++) {
        bool wanted = false;
        for (uint32_t i = 0; i < f->b->n_rows && (f->c.n_taps ? f->c.taps[t] : last) == layer; i++)
            wanted |= f->b->rows[i].left != NULL;
        rc = wanted ? fetch_states(f) : 0;
        for (uint32_t i = 0; wanted && !rc && i < f->b->n_rows; i++)
            if (f->b->rows[i].left)
                memcpy(f->b->rows[i].left + (size_t)t * f->hp->n_embd, f->m.h + (size_t)i * f->hp->n_embd,
                       f->hp->n_embd * sizeof(float));
    }
    return rc;
}

/* A layer begins where the last one ended: a cold clock would cost most of the time of a trace record. */
static uint64_t begin_traced(struct ntx_forward *f)
{
    uint64_t t0 = f->ended_ns ? f->ended_ns : ntx_traced_now(f->c.counters, NTX_TRACE_COMPUTED);
    f->ended_ns = 0;
    return t0;
}

static void end_traced(struct ntx_forward *f, uint32_t layer, uint64_t t0)
{
    f->ended_ns = ntx_traced_now(f->c.counters, NTX_TRACE_COMPUTED);
    ntx_traced(f->c.counters, NTX_TRACE_COMPUTED, NTX_TR_LAYER, t0, f->ended_ns, layer, f->b->pass, f->n_live);
}

/* Predicts groups of neurons for layer 0, or for a layer after ones that all rows skipped. */
static int predict_groups(struct ntx_forward *f)
{
    if (!ntx_ffn_mode_groups(&f->c.ffn) || f->groups.predicted == f->layer)
        return 0;
    int rc = f->layer && f->groups.n_decode ? fetch_states(f) : 0;
    return rc ? rc : ntx__predict_groups(f, f->layer);
}

static bool reads_buffer(const struct ntx_step *s, uint8_t b) { return s->in[0] == b || s->in[1] == b; }

/* The GLU's output is used by one matrix only, in the next step. */
static bool feeds_one_matrix(const struct ntx_forward *f, const struct ntx_step *glu, const struct ntx_step *end)
{
    const struct ntx_step *t = glu + 1;
    if (f->c.sums || t >= end || t->op != NTX_OP_MM || t->in[0] != glu->out || t->mm.parts ||
        ntx_tensor_kinds[t->weight[0]].use != NTX_USE_MATRIX)
        return false;
    for (t++; t < end; t++)
        if (reads_buffer(t, glu->out))
            return false;
        else if (t->out == glu->out)
            break;
    return true;
}

/* A GLU follows these two products in place, and nothing else uses their outputs. */
static bool glu_behind(const struct ntx_forward *f, const struct ntx__run *r, struct ntx__glu *g)
{
    const struct ntx_step *s = ntx__steps_of(f, r), *glu = s + r->n,
                          *end = f->c.model->layers[f->layer].step + f->c.model->layers[f->layer].n_steps;
    if (f->watched || r->n != 2 || glu >= end || glu->op != NTX_OP_GLU || glu->in[0] != s[0].out ||
        glu->in[1] != s[1].out || s[0].out == s[1].out || glu->out != s[0].out || glu->from || s[0].offset ||
        s[1].offset)
        return false;
    for (const struct ntx_step *t = glu + 1; t < end && t->out != s[1].out; t++)
        if (reads_buffer(t, s[1].out))
            return false;
    *g = (struct ntx__glu){.gate = s[0].out,
                           .up = s[1].out,
                           .step = glu,
                           .n = glu->width,
                           .n_rows = f->n_live,
                           .passes = feeds_one_matrix(f, glu, end)};
    return true;
}

/* Rows that leave only K and V do not need q, so its product is left out if all rows do so. The products before it are
 * then multiplied and given back first, since chunks are taken in list order. */
int ntx__run_mm(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    struct ntx__glu glu;
    const struct ntx__input in = {.buf = s->in[0],
                                  .n_rows = f->n_live + (r->feeds ? f->n_kv_only : 0),
                                  .rounded0 = f->n_exact,
                                  .n_rounded = f->n_live - f->n_exact + (r->feeds ? f->n_kv_rounded : 0),
                                  .glu = glu_behind(f, r, &glu) ? &glu : NULL};
    struct ntx__product p[NTX_LAYER_STEPS];
    unsigned n = 0;
    int rc = 0;
    for (uint32_t k = 0; k < r->n && !rc; k++) {
        const struct ntx_weight *w = ntx__weight_of(f, &s[k]);
        if (s[k].feeds || f->n_live) {
            p[n++] = (struct ntx__product){.w = w,
                                           .to = s[k].out,
                                           .at = s[k].offset,
                                           .parts = s[k].mm.parts,
                                           .n_rows = s[k].feeds ? 0 : f->n_live};
            continue;
        }
        rc = n ? f->back->multiply(f, p, n, &in) : 0;
        n = 0;
        if (!rc && w->layer == f->layer) /* otherwise the chunks are another layer's */
            rc = skip_chunks(f, w->chunk0, w->chunk0 + w->n_chunks + w->scaled);
    }
    return rc || !n ? rc : f->back->multiply(f, p, n, &in);
}

static int check_kv(struct ntx_forward *f, int rc)
{
    return rc ? ntx_err_set(&f->c.weights->error, rc,
                            "K and V of layer %u cannot be read back from the drive of --state, or written to it: %s; "
                            "the text is lost from there on, ask again",
                            f->layer, strerror(-rc))
              : 0;
}

/* Waits until K and V from a file have come. */
static int await_kv(struct ntx_forward *f) { return check_kv(f, ntx_kv_pass_wants(f->b->rows->kv, f->layer)); }

#define X(name, symbol, by, width, does, device) NTX__IF_PASS_##by([NTX_OP_##name] = ntx__run_##symbol, )
static int (*const by_pass[NTX_N_OPS])(struct ntx_forward *, const struct ntx__run *) = {NTX_OPS(X)};
#undef X

int ntx__do_run(struct ntx_forward *f, const struct ntx__run *r)
{
    if (ntx_op_kinds[r->op].does & NTX_DOES_READ_KV && (await_kv(f) || check_kv(f, ntx__request_topk(f))))
        return -EIO;
    if (r->by == NTX_BY_ROWS)
        return f->back->rows(f, r);
    return r->by == NTX_BY_PASS ? by_pass[r->op](f, r) : f->back->run[r->op](f, r);
}

/* If no row is live, only steps that feed the layer's state run. */
static int run_steps(struct ntx_forward *f)
{
    const struct ntx__runs *all = &f->runs[f->layer];
    int rc = 0;
    for (uint32_t k = 0; k < all->n && !rc; k++) {
        const struct ntx__run *r = f->run = &all->run[k];
        bool needed = f->n_live || (f->n_kv_only && r->feeds);
        if (f->grams_requested && (rc = ntx__grams_more(f)))
            return rc;
        if (f->c.weights->ops->more_experts)
            f->c.weights->ops->more_experts(f->c.weights);
        rc = needed ? ntx__do_run(f, r) : skip_chunks(f, r->chunk0, r->end);
        if (needed && !rc && f->watched)
            rc = ntx__watch_run(f, r);
    }
    return rc;
}

static void count_unasked(struct ntx_forward *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        n += !ntx__asked(f, i);
    ntx_count(f->c.counters, NTX_C_comp_rows_unasked, n);
}

static bool is_left_out(const struct ntx_forward *f)
{
    return f->without && f->without[f->layer / 64] >> f->layer % 64 & 1;
}

static int run_layer(struct ntx_forward *f)
{
    int rc = 0;
    if (is_left_out(f)) {
        f->next_chunk = f->runs[f->layer].run[f->runs[f->layer].n - 1].end;
        return 0;
    }
    uint64_t t0 = begin_traced(f);
    ntx_gauge(f->c.counters, NTX_C_comp_pass_layer, f->layer + 1);
    ntx__choose_rows(f);
    if (ntx__is_last(f, f->layer))
        count_unasked(f);
    if (f->back->enter)
        f->back->enter(f);
    if ((f->n_live && (rc = predict_groups(f))) || (rc = f->c.block ? ntx__run_blocks(f) : run_steps(f)))
        return rc;
    if (f->n_live && f->back->waits)
        end_traced(f, f->layer, t0);
    add_deep(f);
    keep_states(f);
    if ((rc = last_states(f)) || (rc = leave_states(f, f->layer + 1)))
        return rc;
    if (f->trace && !(rc = fetch_states(f)))
        f->trace(f->trace_ctx, f->layer, f->m.h, f->b->n_rows);
    return rc ? rc : report_probe(f);
}

/* ---- rows out */

static uint32_t choose_logits(struct ntx_forward *f)
{
    f->n_live = f->n_exact = 0;
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        if (f->b->rows[i].logits || f->b->rows[i].few) {
            f->n_exact += !f->b->rows[i].rounded;
            f->m.live[f->n_live] = i;
            f->m.logits[f->n_live++] = f->b->rows[i].logits;
        }
    return f->n_live;
}

/* A pass that only fills KV skips the output matrix, like a layer that every row skips. */
static int run_output(struct ntx_forward *f)
{
    uint64_t t0 = begin_traced(f);
    ntx_gauge(f->c.counters, NTX_C_comp_pass_layer, f->hp->n_layers + 1);
    if (!choose_logits(f))
        return skip_chunks(f, f->c.chunks->output_norm.chunk0, f->c.chunks->n);
    int rc = f->back->output(f);
    if (f->back->waits)
        end_traced(f, f->hp->n_layers, t0);
    if (!rc && f->watched)
        ntx__watch_logits(f);
    return rc;
}

static int run_pass(struct ntx_forward *f)
{
    int rc;
    if (!choose_logits(f))
        f->c.weights->ops->drop_layer(f->c.weights, f->hp->n_layers);
    drop_end(f);
    if ((rc = make_angles(f)) || (rc = ntx__embed_tokens(f)) || (rc = ntx__grams_request(f)))
        return rc;
    if (f->watched)
        ntx__watch_embedded(f);
    rc = f->back->begin ? f->back->begin(f) : 0;
    if (!rc)
        rc = ntx__moe_begin(f);
    if (!rc)
        rc = leave_states(f, 0);
    for (f->layer = 0; f->layer < f->hp->n_layers && !rc; f->layer++) {
        rc = check_kv(f, ntx_kv_pass_starts(f->b->rows->kv, f->layer));
        rc = rc ? rc : run_layer(f);
        ntx_kv_pass_done(f->b->rows->kv, f->layer);
    }
    if (!rc)
        rc = run_output(f);
    return f->back->end ? f->back->end(f, rc) : rc;
}

/* Slots from a row's on will be written again: holes there are no longer valid. */
static void forget_holes(struct ntx_forward *f)
{
    const struct ntx_batch *b = f->b;
    f->ended_ns = 0;
    f->next_chunk = 0;
    f->end_dropped = false;
    f->all_asked = f->trace || f->c.sums ||
                   ((f->c.skip.probe || f->c.skip.decide) && ntx__is_last(f, f->c.skip.probe_layer));
    ntx__begin_groups(f);
    ntx__watch_begin(f);
    atomic_store(&f->failed, 0);
    memset(f->m.skip, 0, (size_t)b->n_rows * NTX_MAP_WORDS * sizeof *f->m.skip);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        if (f->m.n_topk)
            f->m.n_topk[i] = NTX__ALL;
        ntx_kv_written(b->rows[i].kv, ntx_row_slot(&b->rows[i]));
    }
}

/* Adds each sequence from its first row's slot to its last row's. With pooled keys, keys before the first row may be
 * needed, in the last layer, too, even if its output is not wanted. */
static void begin_kv(const struct ntx_forward *f, const struct ntx_batch *b)
{
    const uint32_t every = NTX_MAX(f->hp->index.every, 1u);
    uint64_t positions = 0;
    for (uint32_t i = 0, end; i < b->n_rows; i = end) {
        uint32_t from = ntx_row_slot(&b->rows[i]), to = from;
        for (end = i; end < b->n_rows && b->rows[end].kv == b->rows[i].kv; end++) {
            from = NTX_MIN(from, ntx_row_slot(&b->rows[end]));
            to = NTX_MAX(to, ntx_row_slot(&b->rows[end]));
        }
        ntx_kv_pass_add(b->rows[i].kv, NTX_ROUND_DOWN(from, every), from, to + 1);
        positions += to + 1;
    }
    ntx_kv_pass_begin(b->rows->kv, f->hp->n_layers - ntx__last_idle(f),
                      ntx_kv_pass_has_topk(f->hp, b->n_rows, positions));
}

int ntx_forward_run(struct ntx_forward *f, const struct ntx_batch *b)
{
    struct ntx_weights *w = f->c.weights;
    int rc = check_batch(f, b);
    f->error = (struct ntx_err){0};
    f->b = b;
    if (rc || (rc = ntx__recur_begin(f)) || (rc = w->ops->begin(w, b->pass)))
        return rc;
    forget_holes(f);
    begin_kv(f, b);
    rc = run_pass(f);
    ntx_kv_pass_end(b->rows->kv);
    if (!rc)
        ntx__recur_end(f);
    w->ops->end(w);
    return rc;
}
