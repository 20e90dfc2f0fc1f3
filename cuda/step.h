/* step.h: steps of rows (model/layer.h) one by one, for layers whose neighbours no kernel does in one go. As infer/forward_cpu.c has them, operation by operation.
 *
 * A block of threads takes a run of values that are normed, or turned, together, or STEP_THREADS values of a row; of SPLIT a whole row, whose values move. What streams weigh is
 * a few values: a warp has them. */
#ifndef NTX_CUDA_STEP_H
#define NTX_CUDA_STEP_H

#include "cuda/rotate.h"
#include "model/layer.h"

#define STEP_THREADS SEGMENT

struct step_row { /* of a launch */
    float *out, *other;
    const float *in, *cs, *sn;
};

DEV uint64_t step_at(const struct ntx_gpu_step *a, uint32_t buffer, uint32_t i) { return a->by_row & buffer ? a->rows[i] : i; }

DEV struct step_row step_row_of(const struct ntx_gpu_step *a, uint32_t i)
{
    struct step_row r = {a->out + step_at(a, NTX_GPU_OUT, i) * a->ld_out, NULL, NULL, NULL, NULL};
    if (a->in)
        r.in = a->in + step_at(a, NTX_GPU_IN, i) * a->ld_in;
    if (a->other)
        r.other = a->other + step_at(a, NTX_GPU_OTHER, i) * a->ld_other;
    if (a->cs) {
        r.cs = a->cs + (uint64_t)a->rows[i] * (a->rotated / 2);
        r.sn = a->sn + (uint64_t)a->rows[i] * (a->rotated / 2);
    }
    return r;
}

/* Run BX of a row: by its root mean square, or by its length. */
DEV void norm_run(const struct ntx_gpu_step *a, const float *in, float *out, double *sums)
{
    double sum = 0;
    for (uint32_t k = TID; k < a->width; k += STEP_THREADS)
        sum += (double)in[k] * (double)in[k];
    sum = block_sum(sum, sums);
    float scale = (float)(1.0 / sqrt((a->op == NTX_OP_NORM ? sum / a->width : sum) + (double)a->eps));
    const float *w = a->w && a->each ? a->w + BX * a->width : a->w;
    for (uint32_t k = TID; k < a->width; k += STEP_THREADS) {
        float v = in[k] * scale;
        v = w ? v * w[k] : v;
        out[k] = a->op == NTX_OP_NORM && a->scale != 0 ? v * a->scale : v;
    }
}

/* Run by run: what one has read, the next may be moved to. */
DEV void split_row(const struct ntx_gpu_step *a, float *both, float *other)
{
    for (uint32_t h = 0; h < a->heads; h++)
        for (uint32_t k0 = 0; k0 < a->width; k0 += STEP_THREADS) {
            uint32_t k = k0 + TID;
            float stays = k < a->width ? both[2 * h * a->width + k] : 0;
            if (k < a->width)
                other[h * a->width + k] = both[(2 * h + 1) * a->width + k];
            SYNC();
            if (k < a->width)
                both[h * a->width + k] = stays;
            SYNC();
        }
}

DEV void turn_pair(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    uint32_t half = a->rotated / 2, i = k % half, at = a->neox ? i : 2 * i, other = a->neox ? i + half : 2 * i + 1;
    float *head = r->out + k / half * a->width, x = head[at], y = head[other];
    const float sn = a->back ? -r->sn[i] : r->sn[i];
    head[at] = x * r->cs[i] - y * sn;
    head[other] = x * sn + y * r->cs[i];
}

/* Less the mean, by the root of the variance: sums in double, as norms'. */
DEV void layernorm_row(const struct ntx_gpu_step *a, float *x, double *sums)
{
    double mean = 0, squares = 0;
    for (uint32_t k = TID; k < a->width; k += STEP_THREADS)
        mean += (double)x[k] / a->width;
    mean = block_sum(mean, sums);
    for (uint32_t k = TID; k < a->width; k += STEP_THREADS)
        squares += ((double)x[k] - mean) * ((double)x[k] - mean);
    const double by = 1 / sqrt(block_sum(squares, sums) / a->width + (a->eps != 0 ? (double)a->eps : 1e-6));
    for (uint32_t k = TID; k < a->width; k += STEP_THREADS)
        x[k] = (float)(((double)x[k] - mean) * by) * a->w[k] + a->w2[k];
}

DEV float sigmoid_double(float x) { return (float)(1 / (1 + exp(-(double)x))); }

/* Stream BX: in place of it, what it is like the one beside it says how much of the value. */
DEV void dotgate_run(const struct ntx_gpu_step *a, const float *with, const float *value, float *out, double *sums)
{
    double dot = 0;
    for (uint32_t k = TID; k < a->width; k += STEP_THREADS)
        dot += (double)out[k] * (double)with[k];
    dot = block_sum(dot, sums) * (double)a->scale;
    const double size = dot < 0 ? -dot : dot;
    const float root = (float)sqrt(size > 1e-6 ? size : 1e-6), by = sigmoid_double(dot > 0 ? root : dot < 0 ? -root : 0);
    for (uint32_t k = TID; k < a->width; k += STEP_THREADS)
        out[k] = value[k] * by;
}

/* What a head of a delta net keeps, or each of its keys, and what it takes in. */
DEV void rate(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    const double x = (double)r->out[k] + (double)a->w[k], by = (double)a->w2[k / (a->width / a->heads)];
    if (k < a->heads)
        r->other[k] = sigmoid_exact(r->other[k]);
    r->out[k] = (float)exp(a->bound != 0 ? (double)a->bound / (1 + exp(by * x)) : by * (x > 20 ? x : log1p(exp(x))));
}

/* ---- residual streams (infer/streams.c): value c of all of them */

DEV void mix_value(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t c)
{
    float sum = 0;
    for (uint32_t k = 0; k < a->heads; k++)
        sum += r->in[k * a->width + c] * (r->other ? r->other[k] : 1 / (float)a->heads);
    r->out[c] = sum;
}

/* What comes out is added to each, weighed. */
DEV void spread_onto(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t c)
{
    for (uint32_t k = 0; k < a->heads; k++)
        r->out[k * a->width + c] += r->in[c] * (a->scale != 0 ? 2 * sigmoid_double(r->other[k] * a->scale) : r->other[a->heads + k]);
}

DEV void spread_value(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t c)
{
    const float *post = r->other + NTX_STREAMS, *comb = post + NTX_STREAMS;
    float was[NTX_STREAMS];
    if (a->scale != 0 || !a->rounds) {
        spread_onto(a, r, c);
        return;
    }
    UNROLL
    for (uint32_t k = 0; k < NTX_STREAMS; k++)
        was[k] = r->out[k * a->width + c];
    UNROLL
    for (uint32_t d = 0; d < NTX_STREAMS; d++) {
        float sum = r->in[c] * post[d];
        UNROLL
        for (uint32_t k = 0; k < NTX_STREAMS; k++)
            sum += was[k] * comb[d + NTX_STREAMS * k];
        r->out[d * a->width + c] = sum;
    }
}

/* Element i of a matrix of streams: by the sum of its row, or column, of shared m. */
DEV float share_of_line(const float *m, uint32_t i, int of_row, float eps)
{
    float sum = 0;
    SYNC();
    for (uint32_t k = 0; k < NTX_STREAMS; k++)
        sum += m[of_row ? i / NTX_STREAMS * NTX_STREAMS + k : k * NTX_STREAMS + i % NTX_STREAMS];
    return m[i] / (sum + eps);
}

DEV void put_line(float *m, uint32_t i, float v)
{
    SYNC();
    m[i] = v;
}

/* The matrix, thread i of 16 its element i (the other 16 do the same again); e^x's sum of a row is divided by without eps. */
DEV float doubly_stochastic(const struct ntx_gpu_step *a, float x, uint32_t i, float *m)
{
    put_line(m, i, x);
    SYNC();
    float most = m[i / NTX_STREAMS * NTX_STREAMS];
    for (uint32_t k = 1; k < NTX_STREAMS; k++) {
        const float v = m[i / NTX_STREAMS * NTX_STREAMS + k];
        most = v > most ? v : most;
    }
    put_line(m, i, (float)exp((double)(x - most)));
    put_line(m, i, share_of_line(m, i, 1, 0) + a->eps);
    put_line(m, i, share_of_line(m, i, 0, a->eps));
    for (uint32_t r = 1; r < a->rounds; r++) {
        put_line(m, i, share_of_line(m, i, 1, a->eps));
        put_line(m, i, share_of_line(m, i, 0, a->eps));
    }
    SYNC();
    return m[i];
}

/* A warp: what row BX's streams weigh. */
KERNEL(weigh_streams, struct ntx_gpu_step)
{
    SHARED float m[NTX_STREAMS * NTX_STREAMS];
    const uint32_t n = a.heads, i = TID % (NTX_STREAMS * NTX_STREAMS);
    float *x = a.out + step_at(&a, NTX_GPU_OUT, BX) * a.ld_out;
    if (TID < n)
        x[TID] = sigmoid_double(x[TID] * a.w[0] + a.w2[TID]) + a.eps;
    if (TID >= n && TID < 2 * n && a.width > n)
        x[TID] = a.scale * sigmoid_double(x[TID] * a.w[1] + a.w2[TID]) + (a.rounds ? 0 : a.eps);
    if (a.width == n || !a.rounds)
        return;
    const float v = doubly_stochastic(&a, x[2 * n + i] * a.w[2] + a.w2[2 * n + i], i, m);
    if (TID == i)
        x[2 * n + i] = v;
}

DEV void step_value(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    switch (a->op) {
    case NTX_OP_BIAS: r->out[k] += a->w[k]; break;
    case NTX_OP_ADD: r->out[k] += r->in[k]; break;
    case NTX_OP_PLUS: r->out[k] = fmaf(a->scale, r->in[k], r->out[k]); break;
    case NTX_OP_GLU: r->out[k] = a->limit != 0 ? activated(below(r->in[k], a->gate_limit), within(r->other[k], a->limit), a->act) : activated(r->in[k], r->other[k], a->act); break;
    case NTX_OP_SCALE: r->out[k] = r->in[k] * (a->w ? *a->w : a->scale); break;
    case NTX_OP_INPUTS: r->out[k] = (r->out[k] + r->other[k] * a->scale) * 0.70710678f; break;
    case NTX_OP_GATE: r->out[k] *= sigmoid_exact(r->other[a->by_head ? k / (a->width / a->heads) : k]); break;
    case NTX_OP_MAP: r->out[k] = r->in[k] * a->scale * sigmoid_exact(r->in[k] * a->scale); break;
    case NTX_OP_STREAMS: r->out[k] = r->in[k % a->width]; break;
    case NTX_OP_MIX: mix_value(a, r, k); break;
    case NTX_OP_SPREAD: spread_value(a, r, k); break;
    case NTX_OP_RATES: rate(a, r, k); break;
    case NTX_OP_ROPE: turn_pair(a, r, k); break;
    case NTX_GPU_CAP: r->out[k] = capped(r->out[k], a->scale); break;
    default: break;
    }
}

/* Runs, each of a block of threads. */
DEV_AND_HOST int is_of_runs(uint32_t op) { return op == NTX_OP_NORM || op == NTX_OP_UNIT || op == NTX_OP_HADAMARD || op == NTX_OP_DOTGATE; }

DEV void step_run(const struct ntx_gpu_step *a, const struct step_row *r, double *sums)
{
    const uint64_t at = (uint64_t)BX * a->width;
    if (a->op == NTX_OP_HADAMARD)
        hadamard_by(r->out + at, a->width, a->scale, STEP_THREADS);
    else if (a->op == NTX_OP_DOTGATE)
        dotgate_run(a, r->in + at, r->other, r->out + at, sums);
    else
        norm_run(a, r->in + at, r->out + at, sums);
}

/* Values of a row that are not of runs. */
DEV_AND_HOST uint32_t step_values(const struct ntx_gpu_step *a) { return a->op == NTX_OP_ROPE ? a->heads * (a->rotated / 2) : a->op == NTX_OP_STREAMS ? a->heads * a->width : a->width; }

KERNEL(step_rows, struct ntx_gpu_step)
{
    SHARED double sums[WARPS];
    const struct step_row r = step_row_of(&a, BY);
    uint32_t k = BX * STEP_THREADS + TID;
    if (is_of_runs(a.op))
        step_run(&a, &r, sums);
    else if (a.op == NTX_OP_SPLIT)
        split_row(&a, r.out, r.other);
    else if (a.op == NTX_OP_LAYERNORM)
        layernorm_row(&a, r.out, sums);
    else if (k < step_values(&a))
        step_value(&a, &r, k);
}

int ntx__launch_step(struct ntx_gpu_stream *s, const struct ntx_gpu_step *p)
{
    struct ntx_gpu_step a = *p;
    const int whole = a.op == NTX_OP_SPLIT || a.op == NTX_OP_LAYERNORM;
    if (a.op == NTX_OP_HADAMARD)
        a.scale = hadamard_scale(a.width);
    if (a.op == NTX_OP_MIXW)
        RETURN_LAUNCH(s, weigh_streams, a.n_rows, 1, 1, WARP, a);
    RETURN_LAUNCH(s, step_rows, is_of_runs(a.op) ? a.heads : whole ? 1 : (step_values(&a) + STEP_THREADS - 1) / STEP_THREADS, a.n_rows, 1, STEP_THREADS, a);
}

#endif
