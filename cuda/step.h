/* step.h: steps of rows (model/layer.h) one by one, for layers whose neighbours no kernel does in one go. As infer/forward_cpu.c has them, operation by operation.
 *
 * A block of threads takes a run of values that are normed together, or STEP_THREADS values of a row; of SPLIT a whole row, whose values move. */
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
    for (uint32_t k = TID; k < a->width; k += STEP_THREADS) {
        float v = in[k] * scale;
        v = a->w ? v * a->w[k] : v;
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
    head[at] = x * r->cs[i] - y * r->sn[i];
    head[other] = x * r->sn[i] + y * r->cs[i];
}

/* What a head of a delta net keeps, and what it takes in. */
DEV void rate(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t h)
{
    double x = (double)r->out[h] + (double)a->w[h];
    r->out[h] = (float)exp((double)a->w2[h] * (x > 20 ? x : log1p(exp(x))));
    r->other[h] = sigmoid_exact(r->other[h]);
}

DEV void step_value(const struct ntx_gpu_step *a, const struct step_row *r, uint32_t k)
{
    switch (a->op) {
    case NTX_OP_BIAS: r->out[k] += a->w[k]; break;
    case NTX_OP_ADD: r->out[k] += r->in[k]; break;
    case NTX_OP_GLU: r->out[k] = activated(r->in[k], r->other[k], a->act); break;
    case NTX_OP_SCALE: r->out[k] = r->in[k] * (a->w ? *a->w : a->scale); break;
    case NTX_OP_INPUTS: r->out[k] = (r->out[k] + r->other[k] * a->scale) * 0.70710678f; break;
    case NTX_OP_GATE:
        r->other[k] = sigmoid_exact(r->other[k]);
        r->out[k] *= r->other[k];
        break;
    case NTX_OP_RATES: rate(a, r, k); break;
    case NTX_OP_ROPE: turn_pair(a, r, k); break;
    case NTX_GPU_CAP: r->out[k] = capped(r->out[k], a->scale); break;
    default: break;
    }
}

KERNEL(step_rows, struct ntx_gpu_step)
{
    SHARED double sums[WARPS];
    const struct step_row r = step_row_of(&a, BY);
    uint32_t k = BX * STEP_THREADS + TID;
    if (a.op == NTX_OP_NORM || a.op == NTX_OP_UNIT)
        norm_run(&a, r.in + (uint64_t)BX * a.width, r.out + (uint64_t)BX * a.width, sums);
    else if (a.op == NTX_OP_SPLIT)
        split_row(&a, r.out, r.other);
    else if (k < (a.op == NTX_OP_ROPE ? a.heads * (a.rotated / 2) : a.width))
        step_value(&a, &r, k);
}

int ntx__launch_step(struct ntx_gpu_stream *s, const struct ntx_gpu_step *p)
{
    uint32_t values = p->op == NTX_OP_ROPE ? p->heads * (p->rotated / 2) : p->width, runs = p->op == NTX_OP_NORM || p->op == NTX_OP_UNIT;
    RETURN_LAUNCH(s, step_rows, runs ? p->heads : p->op == NTX_OP_SPLIT ? 1 : (values + STEP_THREADS - 1) / STEP_THREADS, p->n_rows, 1, STEP_THREADS, *p);
}

#endif
