/* SPDX-License-Identifier: Apache-2.0 */
/* forward_cpu.c: the operations of a layer's steps (model/layer.h) on the CPU.
 *
 * Neighbouring steps that work row by row form a run: a thread takes a row through all of them. Products of one input
 * are a run, too. */
#include <math.h>
#include <string.h>

#include "computed/pass/forward_impl.h"
#include "computed/pass/kv_form.h"
#include "computed/pass/rope.h"
#include "model/quant.h"

/* ---- steps of a row */

/* Captures a layer's input, for captured rows. */
static void capture_input(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    struct ntx_capture *capture = s->in[0] == NTX_BUF_H ? ntx__live_row(f, i)->capture : NULL;
    if (capture && s == f->c.model->layers[f->layer].step)
        ntx__capture_begin(capture, ntx__layer_row(f, NTX_BUF_H, i), f->hp->n_embd);
    if (capture && s == f->c.model->layers[0].step)
        ntx__capture_ffn_state(capture, 0, ntx__layer_row(f, NTX_BUF_H, i), f->hp->n_embd);
}

void ntx__row_norm(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *in = ntx__layer_row(f, s->in[0], i), *w = s->n_weights ? f->vec[s->weight[0]] : NULL;
    float *out = ntx__layer_row(f, s->out, i) + s->offset;
    in += s->offset;
    capture_input(f, s, i);
    for (uint32_t h = 0; h < s->heads; h++, in += s->width, out += s->width, w += s->norm.each ? s->width : 0)
        f->c.ops->rmsnorm(in, w, f->hp->rms_eps, s->width, out);
    out = ntx__layer_row(f, s->out, i) + s->offset;
    for (uint32_t k = 0; s->scale != 0 && k < s->heads * s->width; k++)
        out[k] *= s->scale;
}

void ntx__row_scale(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *in = ntx__layer_row(f, s->in[0], i) + s->from;
    float *out = ntx__layer_row(f, s->out, i) + s->offset, by = s->n_weights ? *f->vec[s->weight[0]] : s->scale;
    capture_input(f, s, i);
    for (uint32_t k = 0; k < s->width; k++)
        out[k] = in[k] * by;
}

/* The table's entry was read with the embedding's (forward.c). */
void ntx__row_inputs(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const struct ntx_weight *w = &f->c.chunks->input_embd;
    float *out = ntx__layer_row(f, s->out, i), *entry = f->m.input_entry + (size_t)f->m.live[i] * s->width;
    const struct ntx_type_info *type = ntx_type_info(w->type);
    type->dequant(f->m.input_embd + (size_t)f->m.live[i] * w->row_bytes, entry, s->width / type->block);
    for (uint32_t k = 0; k < s->width; k++)
        out[k] = (out[k] + entry[k] * s->scale) * 0.70710678f;
}

void ntx__row_bias(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    f->c.ops->add(ntx__layer_row(f, s->out, i), f->vec[s->weight[0]] + s->from, s->width);
}

void ntx__row_place(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const struct ntx_places *p = ntx__live_row(f, i)->places;
    const uint32_t n = f->hp->tower->n_places; /* the entry behind the table is the second weight */
    for (uint32_t k = 0; p && k < p->n; k++)
        f->c.ops->add_scaled(ntx__layer_row(f, s->out, i), p->weight[k],
                             p->at[k] < n ? f->vec[s->weight[0]] + (size_t)p->at[k] * s->width : f->vec[s->weight[1]],
                             s->width);
}

/* Some columns at a time, so that their sums stay in the first cache. */
void ntx__row_mmt(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    enum { SOME = 1024 };
    const struct ntx_weight *w = ntx__weight_of(f, s);
    const struct ntx_type_info *type = ntx_type_info(w->type);
    const uint8_t *rows = (const uint8_t *)f->vec[s->weight[0]];
    const float *in = ntx__layer_row(f, s->in[0], i);
    float *out = ntx__layer_row(f, s->out, i), row[SOME];
    memset(out, 0, s->width * sizeof *out);
    for (uint32_t c = 0, n; c < s->width; c += n) {
        n = NTX_MIN(s->width - c, (uint32_t)SOME);
        for (uint32_t r = 0; r < w->n_out; r++) {
            type->dequant(rows + (size_t)r * w->row_bytes + c / type->block * type->block_bytes, row, n / type->block);
            f->c.ops->add_scaled(out + c, in[r], row, n);
        }
    }
}

void ntx__row_clamp(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *in = ntx__layer_row(f, s->in[0], i), min = *f->vec[s->weight[0]], max = *f->vec[s->weight[1]];
    float *out = ntx__layer_row(f, s->out, i);
    for (uint32_t k = 0; k < s->width; k++)
        out[k] = NTX_MIN(NTX_MAX(in[k], min), max);
}

void ntx__row_affine(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *by = f->vec[s->weight[0]], *less = s->n_weights > 1 ? f->vec[s->weight[1]] : NULL;
    float *out = ntx__layer_row(f, s->out, i);
    for (uint32_t k = 0; k < s->width; k++)
        out[k] = (less ? out[k] - less[k] : out[k]) * by[k];
}

void ntx__row_rope(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const size_t angles = (size_t)f->m.live[i] * (ntx_rope_dim(f->hp, (enum ntx_rotation)s->rope.angles) / 2) +
                          s->rope.first;
    const float *sn = f->m.sn[s->rope.angles] + angles;
    float back[NTX_MAX_HEAD / 2];
    for (uint32_t k = 0; s->rope.back && k < s->rope.rotated / 2; k++)
        back[k] = -sn[k];
    (s->rope.pairs == NTX_ROPE_NORM ? f->c.ops->rope_norm : f->c.ops->rope_neox)(
        ntx__layer_row(f, s->out, i) + s->offset, s->heads, s->width, s->rope.rotated, f->m.cs[s->rope.angles] + angles,
        s->rope.back ? back : sn);
}

/* Stores K of a head; form: as q8_0 and q4_0 keep it. */
static void put_key(struct ntx_forward *f, uint32_t i, uint32_t slot, uint32_t h, uint32_t first, const float *k,
                    uint32_t n)
{
    const struct ntx_row *row = ntx__live_row(f, i);
    const enum ntx_kv_type type = ntx_kv_seq_type(row->kv);
    float formed[NTX_MAX_HEAD];
    if (f->c.kv_form && type != NTX_KV_F16) {
        const size_t angles = (size_t)f->m.live[i] * f->c.kv_form->n_angles;
        ntx_kv_form_key(f->c.kv_form, f->c.ops, type, f->layer, first + h, f->m.cs[NTX_ROTATION_ALL] + angles,
                        f->m.sn[NTX_ROTATION_ALL] + angles, k, n, formed);
        k = formed;
    }
    f->c.ops->k_store[type](k, ntx_kv_k(row->kv, f->layer, h, slot), slot % NTX_KV_BLOCK, n);
}

void ntx__row_put(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    if (s->put.keys) {
        f->c.ops->f16_store(ntx__layer_row(f, s->in[0], i),
                            ntx__index_kept(f, ntx__live_row(f, i), ntx_row_slot(ntx__live_row(f, i))),
                            f->hp->index.head);
        return;
    }
    const uint32_t heads = ntx_kept_heads(f->hp, f->layer), n_k = ntx_kept_k(f->hp, f->layer),
                   n_v = ntx_kept_v(f->hp, f->layer), first = ntx_own_heads(f->hp, f->layer).first;
    const float *k = ntx__layer_row(f, s->in[0], i) + (size_t)first * n_k,
                *v = n_v ? ntx__layer_row(f, s->in[1], i) + (size_t)first * n_v : NULL;
    const struct ntx_row *row = ntx__live_row(f, i);
    enum ntx_kv_type type = ntx_kv_seq_type(row->kv);
    const uint32_t slot = s->put.columns ? row->by_columns : ntx_row_slot(row);
    for (uint32_t h = 0; h < heads; h++) {
        put_key(f, i, slot, h, first, k + (size_t)h * n_k, n_k);
        if (n_v)
            f->c.ops->v_store[type](v + (size_t)h * n_v, ntx_kv_v(row->kv, f->layer, h, slot), slot % NTX_KV_BLOCK,
                                    n_v);
    }
}

void ntx__row_glu(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    float *out = ntx__layer_row(f, s->out, i), *energy = ntx__capture_ffn(ntx__live_row(f, i)->capture, f->layer);
    if (!f->hidden)
        ntx__activate(f, &s->glu.hidden, ntx__layer_row(f, s->in[0], i), ntx__layer_row(f, s->in[1], i) + s->from,
                      s->width, out);
    for (uint32_t j = 0; energy && j < s->width; j++)
        energy[j] = out[j] * out[j];
}

/* The first half of each head stays, and moves down behind what was read already. */
void ntx__row_split(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    float *both = ntx__layer_row(f, s->out, i), *other = ntx__layer_row(f, s->in[1], i);
    for (uint32_t h = 0; h < s->heads; h++) {
        memcpy(other + (size_t)h * s->width, both + (2 * (size_t)h + 1) * s->width, s->width * sizeof *both);
        memmove(both + (size_t)h * s->width, both + 2 * (size_t)h * s->width, s->width * sizeof *both);
    }
}

void ntx__row_gate(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    float *by = ntx__layer_row(f, s->in[1], i), *out = ntx__layer_row(f, s->out, i);
    const uint32_t each = s->gate.by_head ? s->width / s->heads : 1;
    if (!s->gate.softplus)
        f->c.ops->sigmoid(by, s->width / each);
    for (uint32_t k = 0; s->gate.softplus && k < s->width / each; k++)
        by[k] = (float)ntx__softplus((double)by[k]);
    for (uint32_t h = 0; s->gate.by_head && h < s->heads; h++)
        for (uint32_t k = 0; k < each; k++)
            out[(size_t)h * each + k] *= by[h];
    if (!s->gate.by_head)
        f->c.ops->mul(out, by, s->width);
}

static void map_xielu(const struct ntx_map_step *m, const float *in, float *out, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        const double x = (double)in[k], curve = x > 0 ? (double)m->alpha_p * x * x
                                                      : (double)m->alpha_n * (expm1(fmin(x, (double)m->eps)) - x);
        out[k] = (float)(curve + (double)m->beta * x);
    }
}

/* GELU by the kernels for gated FFNs, whose gates are in[0], and whose ups are 1. */
static void map_gelu(struct ntx_forward *f, const struct ntx_step *s, const float *in, float *out)
{
    enum { SOME = 256 };
    float by[SOME];
    for (uint32_t k = 0, n; k < s->width; k += n) {
        n = NTX_MIN(s->width - k, (uint32_t)SOME);
        for (uint32_t j = 0; j < n; j++)
            by[j] = s->map.kind == NTX_MAP_GELU ? 1 : 1.702f * in[k + j];
        if (s->map.kind == NTX_MAP_GELU) {
            f->c.ops->glu[NTX_FFN_GELU](in + k, by, n, out + k);
            continue;
        }
        f->c.ops->sigmoid(by, n);
        for (uint32_t j = 0; j < n; j++)
            out[k + j] = in[k + j] * by[j];
    }
}

static void map_gelu_erf(const float *in, float *out, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        out[k] = (float)(0.5 * (double)in[k] * (1 + erf((double)in[k] * 0.70710678118654752)));
}

void ntx__row_map(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    enum { SOME = 256 };
    const float *in = ntx__layer_row(f, s->in[0], i);
    float *out = ntx__layer_row(f, s->out, i), by[SOME];
    if (s->map.kind == NTX_MAP_XIELU)
        map_xielu(&s->map, in, out, s->width);
    else if (s->map.kind == NTX_MAP_GELU || s->map.kind == NTX_MAP_GELU_QUICK)
        map_gelu(f, s, in, out);
    else if (s->map.kind == NTX_MAP_GELU_ERF)
        map_gelu_erf(in, out, s->width);
    for (uint32_t k = 0; s->map.kind == NTX_MAP_CLAMP && k < s->width; k++)
        out[k] = in[k] > s->scale ? s->scale : NTX_MAX(in[k], -s->scale);
    for (uint32_t k = 0, n; s->map.kind == NTX_MAP_SILU && k < s->width; k += n) {
        n = NTX_MIN(s->width - k, (uint32_t)SOME);
        for (uint32_t j = 0; j < n; j++)
            by[j] = out[k + j] = in[k + j] * s->scale;
        f->c.ops->sigmoid(by, n);
        f->c.ops->mul(out + k, by, n);
    }
}

void ntx__row_unit(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    float *x = ntx__layer_row(f, s->out, i), eps = s->unit.eps != 0 ? s->unit.eps : f->hp->rms_eps;
    for (uint32_t h = 0; h < s->heads; h++)
        f->c.ops->unit(x + (size_t)h * s->width, eps, s->width);
}

/* Mean and variance in the order of the values, in double. */
void ntx__row_layernorm(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *w = f->vec[s->weight[0]], *b = s->n_weights > 1 ? f->vec[s->weight[1]] : NULL;
    float *x = ntx__layer_row(f, s->out, i);
    double mean = 0, squares = 0;
    for (uint32_t k = 0; k < s->width; k++)
        mean += (double)x[k] / s->width;
    for (uint32_t k = 0; k < s->width; k++)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    const double by = 1 / sqrt(squares / s->width + (s->layernorm.eps != 0 ? (double)s->layernorm.eps : 1e-6));
    for (uint32_t k = 0; k < s->width; k++)
        x[k] = (float)(((double)x[k] - mean) * by) * w[k] + (b ? b[k] : 0);
}

void ntx__hadamard(float *x, uint32_t heads, uint32_t width)
{
    const uint32_t n = width & -width, all = heads * width;
    const float by = 1.0f / sqrtf((float)n);
    for (uint32_t half = 1; half < n; half *= 2)
        for (uint32_t k = 0; k < all; k += k % half == half - 1 ? half + 1 : 1) {
            float a = x[k], b = x[k + half];
            x[k] = a + b;
            x[k + half] = a - b;
        }
    for (uint32_t k = 0; k < all; k++)
        x[k] *= by;
}

void ntx__row_hadamard(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    ntx__hadamard(ntx__layer_row(f, s->out, i), s->heads, s->width);
}

void ntx__row_rates(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *dt = f->vec[s->weight[0]], *a = f->vec[s->weight[1]];
    float *keeps = ntx__layer_row(f, s->out, i);
    const uint32_t each = s->width / s->heads;
    const double sign = s->rates.positive ? -1 : 1;
    for (uint32_t k = 0; s->rates.bound != 0 && k < s->width; k++)
        keeps[k] = (float)exp((double)s->rates.bound /
                              (1 + exp(sign * (double)a[k / each] * ((double)keeps[k] + (double)dt[k]))));
    for (uint32_t k = 0; s->rates.bound == 0 && k < s->width; k++)
        keeps[k] = (float)exp(sign * (double)a[k / each] * ntx__softplus((double)keeps[k] + (double)dt[k]));
    f->c.ops->sigmoid(ntx__layer_row(f, s->in[1], i), s->heads);
}

/* Adds to the residual stream: first attention's output, then the FFN's. */
void ntx__row_add(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *y = ntx__layer_row(f, s->in[0], i);
    float *h = ntx__layer_row(f, s->out, i);
    struct ntx_capture *capture = s->out == NTX_BUF_H ? ntx__live_row(f, i)->capture : NULL;
    if (capture && s->part <= 2)
        ntx__capture_part(capture, s->part, f->layer, f->hp->n_layers, h, y, s->width);
    f->c.ops->add(h, y, s->width);
    if (capture && s->part == 1)
        ntx__capture_ffn_state(capture, f->layer + 1, h, s->width);
    else if (capture)
        ntx__capture_end(capture, f->layer, h, s->width);
}

#define X(name, symbol, by, width, does, device) NTX__IF_ROWS_##by([NTX_OP_##name] = ntx__row_##symbol, )
static void (*const by_row[NTX_N_OPS])(struct ntx_forward *, const struct ntx_step *, uint32_t) = {NTX_OPS(X)};
#undef X

void ntx__cpu_row(struct ntx_forward *f, const struct ntx_step *s, uint32_t i) { by_row[s->op](f, s, i); }

static void row_of_run(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx__run *r = f->run;
    const struct ntx_step *s = ntx__steps_of(f, r), *last = s + r->n - 1;
    for (; s <= last; s++)
        if (s->feeds || i < f->n_live) /* the other rows have no q */
            ntx__cpu_row(f, s, i);
    for (uint32_t k = 0; r->forms && k < r->parts; k++)
        ntx__quantize(f, r->forms, ntx__layer_row(f, last->out, i) + (size_t)k * r->width, r->width, i * r->parts + k);
}

static int run_rows(struct ntx_forward *f, const struct ntx__run *r)
{
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    if (!f->away)
        ntx__each(f, row_of_run, f->n_live + (r->feeds ? f->n_kv_only : 0));
    f->hidden = f->away = false;
    ntx__give_run(f, r);
    return 0;
}

static void put_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    ntx__row_put(f, f->putting, i);
}

void ntx__put_own(struct ntx_forward *f, const struct ntx_step *s)
{
    f->putting = s;
    ntx__each(f, put_row, f->n_live + f->n_kv_only);
}

/* ---- rows out */

static void output_norm_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *compute_logits = &f->c.chunks->output;
    float *x = ntx__layer_row(f, NTX_BUF_X, i);
    if (f->hp->no_output_norm)
        memcpy(x, ntx__layer_row(f, NTX_BUF_H, i), f->hp->n_embd * sizeof *x);
    else
        f->c.ops->rmsnorm(ntx__layer_row(f, NTX_BUF_H, i), f->output_norm, f->hp->rms_eps, f->hp->n_embd, x);
    for (uint32_t k = 0; f->hp->logit_scale != 1 && k < f->hp->n_embd; k++)
        x[k] *= f->hp->logit_scale;
    ntx__quantize(f, ntx__forms(&compute_logits, 1), x, f->hp->n_embd, i);
}

static void cap_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    if (f->m.logits[i])
        f->c.ops->cap(f->m.logits[i], f->hp->logit_cap, f->hp->n_vocab);
}

static int compute_logits(struct ntx_forward *f)
{
    const struct ntx_weight *w = &f->c.chunks->output_norm;
    const struct ntx__product p = {.w = &f->c.chunks->output, .to = NTX__BUF_LOGITS};
    int rc = ntx__take(f, w, &f->output_norm);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        f->b->rows[i].n_best = 0;
    ntx__each(f, output_norm_row, f->n_live);
    ntx__give(f, w);
    if ((rc = ntx__multiply(f, &p, 1, NTX_BUF_X)))
        return rc;
    if (f->hp->logit_cap != 0)
        ntx__each(f, cap_row, f->n_live);
    return 0;
}

static int clear_buffer(struct ntx_forward *f, enum ntx_buf b)
{
    memset(f->buf[b].at, 0, f->n_live * f->buf[b].ld * sizeof(float));
    return 0;
}

#define X(name, symbol, by, width, does, device) NTX__IF_BACK_##by([NTX_OP_##name] = ntx__cpu_##symbol, )
const struct ntx_backend ntx__cpu_backend = {
    .rows = run_rows,
    .run = {NTX_OPS(X)},
    .multiply = ntx__cpu_multiply,
    .glu = ntx__cpu_glu,
    .low = ntx__cpu_low,
    .lora = ntx__cpu_lora,
    .clear = clear_buffer,
    .gather = ntx__cpu_gather,
    .combine = ntx__cpu_combine,
    .output = compute_logits,
    .move = ntx__cpu_move,
    .waits = true,
    .in_turns = true,
};
#undef X
