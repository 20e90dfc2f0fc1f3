/* SPDX-License-Identifier: Apache-2.0 */
/* step.h: steps of rows (model/layer.h) one by one, for layers where no kernel does several steps together. Operations
 * are the same as in computed/pass/forward_cpu.c.
 *
 * The table of operations says what a thread, or a block of threads, computes: step_X gets a value of the row, a pair
 * of values, a run of values that are normed or transformed together, or a whole row whose values move. Weights of
 * hyper-connections are a few values, which a warp computes. */
#ifndef NTX_CUDA_STEP_H
#define NTX_CUDA_STEP_H

#include "cuda/rotate.h"
#include "model/layer.h"

#define STEP_THREADS SEGMENT

struct step_row { /* a row of a launch */
    float *out, *other;
    const float *in, *cs, *sn;
};

DEV uint64_t step_at(const struct ntx_gpu_step *a, uint32_t buffer, uint32_t i)
{
    return a->by_row & buffer ? a->rows[i] : i;
}

DEV struct step_row step_row_of(const struct ntx_gpu_step *a, uint32_t i)
{
    struct step_row r = {a->out + step_at(a, NTX_GPU_OUT, i) * a->ld_out, NULL, NULL, NULL, NULL};
    if (a->in)
        r.in = a->in + step_at(a, NTX_GPU_IN, i) * a->ld_in;
    if (a->other)
        r.other = a->other + step_at(a, NTX_GPU_OTHER, i) * a->ld_other;
    if (a->cs) {
        r.cs = a->cs + (uint64_t)a->rows[i] * (a->s.rope.rotated / 2);
        r.sn = a->sn + (uint64_t)a->rows[i] * (a->s.rope.rotated / 2);
    }
    return r;
}

/* Divides a run by its root mean square (n = width) or its length (n = 1). */
DEV void norm_run(const struct ntx_gpu_step *a, const float *in, const float *w, float *out, uint32_t n, double eps,
                  float times, double *sums)
{
    double sum = 0;
    for (uint32_t k = TID; k < a->s.width; k += STEP_THREADS)
        sum += (double)in[k] * (double)in[k];
    sum = block_sum(sum, sums);
    float scale = (float)(1.0 / sqrt(sum / n + eps));
    for (uint32_t k = TID; k < a->s.width; k += STEP_THREADS) {
        float v = in[k] * scale;
        v = w ? v * w[k] : v;
        out[k] = times != 0 ? v * times : v;
    }
}

DEV void step_norm(const struct ntx_gpu_step *a, const struct step_row *r, double *sums)
{
    norm_run(a, r->in, a->w && a->s.norm.each ? a->w + BX * a->s.width : a->w, r->out, a->s.width, (double)a->eps,
             a->s.scale, sums);
}

DEV void step_unit(const struct ntx_gpu_step *a, const struct step_row *r, double *sums)
{
    norm_run(a, r->in, NULL, r->out, 1, (double)(a->s.unit.eps != 0 ? a->s.unit.eps : a->eps), 0, sums);
}

/* Run by run, since a run may be moved to the place of an earlier one. */
DEV void step_split(const struct ntx_gpu_step *a, const struct step_row *r, double *sums)
{
    float *both = r->out, *other = r->other;
    (void)sums;
    for (uint32_t h = 0; h < a->s.heads; h++)
        for (uint32_t k0 = 0; k0 < a->s.width; k0 += STEP_THREADS) {
            uint32_t k = k0 + TID;
            float stays = k < a->s.width ? both[2 * h * a->s.width + k] : 0;
            if (k < a->s.width)
                other[h * a->s.width + k] = both[(2 * h + 1) * a->s.width + k];
            SYNC();
            if (k < a->s.width)
                both[h * a->s.width + k] = stays;
            SYNC();
        }
}

DEV void step_rope(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    uint32_t half = a->s.rope.rotated / 2, i = k % half, neox = a->s.rope.pairs != NTX_ROPE_NORM, at = neox ? i : 2 * i,
             other = neox ? i + half : 2 * i + 1;
    float *head = r->out + k / half * a->s.width, x = head[at], y = head[other];
    const float sn = a->s.rope.back ? -r->sn[i] : r->sn[i];
    head[at] = x * r->cs[i] - y * sn;
    head[other] = x * sn + y * r->cs[i];
}

/* Layer norm; sums are in double precision, as those of norms. */
DEV void step_layernorm(const struct ntx_gpu_step *a, const struct step_row *r, double *sums)
{
    float *x = r->out;
    double mean = 0, squares = 0;
    for (uint32_t k = TID; k < a->s.width; k += STEP_THREADS)
        mean += (double)x[k] / a->s.width;
    mean = block_sum(mean, sums);
    for (uint32_t k = TID; k < a->s.width; k += STEP_THREADS)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    const double by = 1 / sqrt(block_sum(squares, sums) / a->s.width +
                               (a->s.layernorm.eps != 0 ? (double)a->s.layernorm.eps : 1e-6));
    for (uint32_t k = TID; k < a->s.width; k += STEP_THREADS)
        x[k] = (float)(((double)x[k] - mean) * by) * a->w[k] + (a->w2 ? a->w2[k] : 0);
}

DEV float sigmoid_double(float x) { return (float)(1 / (1 + exp(-(double)x))); }

/* out = value * sigmoid(signed square root of out . in). */
DEV void step_dotgate(const struct ntx_gpu_step *a, const struct step_row *r, double *sums)
{
    const float *with = r->in, *value = r->other;
    float *out = r->out;
    double dot = 0;
    for (uint32_t k = TID; k < a->s.width; k += STEP_THREADS)
        dot += (double)out[k] * (double)with[k];
    dot = block_sum(dot, sums) * (double)a->s.scale;
    const double size = dot < 0 ? -dot : dot;
    const float root = (float)sqrt(size > 1e-6 ? size : 1e-6), below = dot < 0 ? -root : 0,
                by = sigmoid_double(dot > 0 ? root : below);
    for (uint32_t k = TID; k < a->s.width; k += STEP_THREADS)
        out[k] = value[k] * by;
}

/* A delta net's decay, per head or per key, and its update rate (beta). */
DEV double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

DEV void step_rates(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    const double x = (double)r->out[k] + (double)a->w[k],
                 by = (a->s.rates.positive ? -1 : 1) * (double)a->w2[k / (a->s.width / a->s.heads)];
    if (k < a->s.heads)
        r->other[k] = sigmoid_exact(r->other[k]);
    r->out[k] = (float)exp(a->s.rates.bound != 0 ? (double)a->s.rates.bound / (1 + exp(by * x)) : by * softplus(x));
}

/* ---- hyper-connections (computed/pass/hyper_connections.c): value c of all residual streams */

DEV void step_mix(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t c)
{
    float sum = 0;
    for (uint32_t k = 0; k < a->s.heads; k++)
        sum += r->in[k * a->s.width + c] * (r->other ? r->other[k] : 1 / (float)a->s.heads);
    r->out[c] = sum;
}

/* Adds the weighted output to each stream. */
DEV void spread_onto(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t c)
{
    for (uint32_t k = 0; k < a->s.heads; k++)
        r->out[k * a->s.width + c] += r->in[c] * (a->s.scale != 0 ? 2 * sigmoid_double(r->other[k] * a->s.scale)
                                                                  : r->other[a->s.heads + k]);
}

DEV void step_spread(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t c)
{
    const float *post = r->other + NTX_STREAMS, *comb = post + NTX_STREAMS;
    float was[NTX_STREAMS];
    if (a->s.scale != 0 || a->s.spread.each) {
        spread_onto(a, r, c);
        return;
    }
    UNROLL
    for (uint32_t k = 0; k < NTX_STREAMS; k++)
        was[k] = r->out[k * a->s.width + c];
    UNROLL
    for (uint32_t d = 0; d < NTX_STREAMS; d++) {
        float sum = r->in[c] * post[d];
        UNROLL
        for (uint32_t k = 0; k < NTX_STREAMS; k++)
            sum += was[k] * comb[d + NTX_STREAMS * k];
        r->out[d * a->s.width + c] = sum;
    }
}

/* Element i of shared matrix m, divided by the sum of its row or column. */
DEV float normalised_element(const float *m, uint32_t i, int of_row, float eps)
{
    float sum = 0;
    SYNC();
    for (uint32_t k = 0; k < NTX_STREAMS; k++)
        sum += m[of_row ? i / NTX_STREAMS * NTX_STREAMS + k : k * NTX_STREAMS + i % NTX_STREAMS];
    return m[i] / (sum + eps);
}

DEV void store_element(float *m, uint32_t i, float v)
{
    SYNC();
    m[i] = v;
}

/* Makes the matrix doubly stochastic (Sinkhorn). Thread i of 16 has element i; the other 16 repeat them. The first
 * division, by the row's sum of e^x, has no eps. */
DEV float doubly_stochastic(const struct ntx_gpu_step *a, float x, uint32_t i, float *m)
{
    store_element(m, i, x);
    SYNC();
    float most = m[i / NTX_STREAMS * NTX_STREAMS];
    for (uint32_t k = 1; k < NTX_STREAMS; k++) {
        const float v = m[i / NTX_STREAMS * NTX_STREAMS + k];
        most = v > most ? v : most;
    }
    store_element(m, i, (float)exp((double)(x - most)));
    store_element(m, i, normalised_element(m, i, 1, 0) + a->s.mixw.eps);
    store_element(m, i, normalised_element(m, i, 0, a->s.mixw.eps));
    for (uint32_t r = 1; r < a->s.mixw.rounds; r++) {
        store_element(m, i, normalised_element(m, i, 1, a->s.mixw.eps));
        store_element(m, i, normalised_element(m, i, 0, a->s.mixw.eps));
    }
    SYNC();
    return m[i];
}

/* The weights of row BX's streams, by a warp. */
KERNEL(step_mixw, struct ntx_gpu_step)
{
    SHARED float m[NTX_STREAMS * NTX_STREAMS];
    const uint32_t n = a.s.heads, i = TID % (NTX_STREAMS * NTX_STREAMS);
    float *x = a.out + step_at(&a, NTX_GPU_OUT, BX) * a.ld_out;
    if (TID < n)
        x[TID] = sigmoid_double(x[TID] * a.w[0] + a.w2[TID]) + a.s.mixw.eps;
    if (TID >= n && TID < 2 * n && a.s.width > n)
        x[TID] = a.s.scale * sigmoid_double(x[TID] * a.w[1] + a.w2[TID]) + (a.s.mixw.rounds ? 0 : a.s.mixw.eps);
    if (a.s.width == n || !a.s.mixw.rounds)
        return;
    const float v = doubly_stochastic(&a, x[2 * n + i] * a.w[2] + a.w2[2 * n + i], i, m);
    if (TID == i)
        x[2 * n + i] = v;
}

DEV void step_hadamard(const struct ntx_gpu_step *a, const struct step_row *r, double *sums)
{
    (void)sums;
    hadamard_by(r->out, a->s.width, a->s.scale, STEP_THREADS);
}

/* ---- steps of single values */

DEV void step_bias(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k) { r->out[k] += a->w[k]; }
DEV void step_add(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    (void)a;
    r->out[k] += r->in[k];
}
DEV void step_lora(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    r->out[k] = fmaf(a->s.scale, r->in[k], r->out[k]);
}
DEV void step_scale(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    r->out[k] = r->in[k] * (a->w ? *a->w : a->s.scale);
}
DEV void step_inputs(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    r->out[k] = (r->out[k] + r->other[k] * a->s.scale) * 0.70710678f;
}
DEV void step_map(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    const struct ntx_map_step *m = &a->s.map;
    const double x = (double)r->in[k];
    if (m->kind != NTX_MAP_XIELU) {
        r->out[k] = r->in[k] * a->s.scale * sigmoid_exact(r->in[k] * a->s.scale);
        return;
    }
    const double curve = x > 0 ? (double)m->alpha_p * x * x : (double)m->alpha_n * (expm1(fmin(x, (double)m->eps)) - x);
    r->out[k] = (float)(curve + (double)m->beta * x);
}
DEV void step_streams(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    r->out[k] = r->in[k % a->s.width];
}
DEV void step_glu(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    r->out[k] = hidden_value(r->in[k], r->other[k], &a->s.glu.hidden);
}
DEV void step_gate(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    const float by = r->other[a->s.gate.by_head ? k / (a->s.width / a->s.heads) : k];
    r->out[k] *= a->s.gate.softplus ? (float)softplus((double)by) : sigmoid_exact(by);
}

/* ---- dispatch by the table of operations */

#define CASE_NO(name, symbol)
#define CASE_OWN(name, symbol)
#define CASE_WARP(name, symbol)
#define CASE_VALUES(name, symbol)                                                                                      \
    case NTX_OP_##name:                                                                                                \
        if (k < a.s.width)                                                                                             \
            step_##symbol(&a, &r, k);                                                                                  \
        break;
#define CASE_HEADS(name, symbol)                                                                                       \
    case NTX_OP_##name:                                                                                                \
        if (k < a.s.heads * a.s.width)                                                                                 \
            step_##symbol(&a, &r, k);                                                                                  \
        break;
#define CASE_PAIRS(name, symbol)                                                                                       \
    case NTX_OP_##name:                                                                                                \
        if (k < a.s.heads * (a.s.rope.rotated / 2))                                                                    \
            step_##symbol(&a, &r, k);                                                                                  \
        break;
#define CASE_RUNS(name, symbol)                                                                                        \
    case NTX_OP_##name:                                                                                                \
        r.out += BX * a.s.width, r.in += BX * a.s.width, step_##symbol(&a, &r, sums);                                  \
        break;
#define CASE_ROW(name, symbol)                                                                                         \
    case NTX_OP_##name:                                                                                                \
        step_##symbol(&a, &r, sums);                                                                                   \
        break;
#define X(name, symbol, by, width, does, device) CASE_##device(name, symbol)

KERNEL(step_rows, struct ntx_gpu_step)
{
    SHARED double sums[WARPS];
    struct step_row r = step_row_of(&a, BY);
    const uint32_t k = BX * STEP_THREADS + TID;
    switch (a.s.op) {
        NTX_OPS(X)
    case NTX_GPU_CAP:
        if (k < a.s.width)
            r.out[k] = capped(r.out[k], a.s.scale);
        break;
    default: break;
    }
}

#undef X
#define BLOCKS_NO     0
#define BLOCKS_OWN    0
#define BLOCKS_WARP   1
#define BLOCKS_VALUES (s->width + STEP_THREADS - 1) / STEP_THREADS
#define BLOCKS_HEADS  (s->heads * s->width + STEP_THREADS - 1) / STEP_THREADS
#define BLOCKS_PAIRS  (s->heads * (s->rope.rotated / 2) + STEP_THREADS - 1) / STEP_THREADS
#define BLOCKS_RUNS   s->heads
#define BLOCKS_ROW    1
#define X(name, symbol, by, width, does, device)                                                                       \
    case NTX_OP_##name: return BLOCKS_##device;

static uint32_t step_blocks(const struct ntx_step *s)
{
    switch (s->op) {
        NTX_OPS(X)
    default: return BLOCKS_VALUES;
    }
}

#undef X
#define LAUNCH_NO(name, symbol)
#define LAUNCH_OWN(name, symbol)
#define LAUNCH_VALUES(name, symbol)
#define LAUNCH_HEADS(name, symbol)
#define LAUNCH_PAIRS(name, symbol)
#define LAUNCH_RUNS(name, symbol)
#define LAUNCH_ROW(name, symbol)
#define LAUNCH_WARP(name, symbol)                                                                                      \
    case NTX_OP_##name:                                                                                                \
        RETURN_LAUNCH(s, step_##symbol, a.n_rows, 1, 1, WARP, a);
#define X(name, symbol, by, width, does, device) LAUNCH_##device(name, symbol)

int ntx__launch_step(struct ntx_gpu_stream *s, const struct ntx_gpu_step *p)
{
    struct ntx_gpu_step a = *p;
    if (a.s.op == NTX_OP_HADAMARD)
        a.s.scale = hadamard_scale(a.s.width);
    switch (a.s.op) {
        NTX_OPS(X)
    default: RETURN_LAUNCH(s, step_rows, step_blocks(&a.s), a.n_rows, 1, STEP_THREADS, a);
    }
}
#undef X

#endif
