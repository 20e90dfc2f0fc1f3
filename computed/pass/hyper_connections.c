/* SPDX-License-Identifier: Apache-2.0 */
/* hyper_connections.c: several residual streams (hyper-connections, arXiv 2409.19606; mixed by doubly stochastic
 * matrices, arXiv 2512.24880). Before attention, and before the FFN, the weights of the streams follow from all of
 * them, normed together. Their weighted sum is the input; the output is spread over the streams, which are mixed with
 * one another:
 *
 *   in = sum of pre[i] S[i]              S'[d] = post[d] out + sum of comb[d][s] S[s]
 *
 * Without mixing (hy_v4): S'[d] = S[d] + post[d] out. With two small products of all of them (qwen4exp): in = mean of
 * sigmoid(gate) S, value by value, S being normed, and S'[d] = S[d] + 2 sigmoid(x[d] / n) out.
 *
 * The columns of comb, and nearly its rows, have the sum 1: a softmax over d for each s, plus e; its columns divided by
 * their sums plus e; and then `rounds` - 1 times its rows and its columns. Sums go in the order of the streams. */
#include <math.h>
#include <string.h>

#include "computed/pass/forward_impl.h"

static float *row_at(const struct ntx_forward *f, enum ntx_buf b, uint32_t i)
{
    return f->buf[b].at + (ntx__by_batch(b) ? f->m.live[i] : i) * f->buf[b].ld;
}

void ntx__row_streams(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *in = row_at(f, (enum ntx_buf)s->in[0], i);
    float *out = row_at(f, (enum ntx_buf)s->out, i);
    for (uint32_t k = 0; k < s->heads; k++)
        memcpy(out + (size_t)k * s->width, in, s->width * sizeof *out);
}

static float sigmoid(float x) { return (float)(1 / (1 + exp(-(double)x))); }

/* Each source's part of the destinations. */
static void softmax_rows(float *m, uint32_t n, float eps)
{
    for (uint32_t s = 0; s < n; s++, m += n) {
        float most = m[0], sum = 0;
        for (uint32_t d = 1; d < n; d++)
            most = m[d] > most ? m[d] : most;
        for (uint32_t d = 0; d < n; d++)
            sum += m[d] = (float)exp((double)(m[d] - most));
        for (uint32_t d = 0; d < n; d++)
            m[d] = m[d] / sum + eps;
    }
}

/* Divides runs of n values `step` apart, `next` from run to run, by their sums. */
static void divide_by_sums(float *m, uint32_t n, uint32_t step, uint32_t next, float eps)
{
    for (uint32_t r = 0; r < n; r++, m += next) {
        float sum = 0;
        for (uint32_t k = 0; k < n; k++)
            sum += m[k * step];
        for (uint32_t k = 0; k < n; k++)
            m[k * step] /= sum + eps;
    }
}

void ntx__row_mixw(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *scale = f->vec[s->weight[0]], *base = f->vec[s->weight[1]];
    float *x = row_at(f, (enum ntx_buf)s->out, i), *comb = x + 2 * s->heads;
    const uint32_t n = s->heads;
    for (uint32_t k = 0; k < n; k++)
        x[k] = sigmoid(x[k] * scale[0] + base[k]) + s->mixw.eps;
    if (s->width == n)
        return;
    for (uint32_t k = n; k < 2 * n; k++)
        x[k] = s->scale * sigmoid(x[k] * scale[1] + base[k]) + (s->mixw.rounds ? 0 : s->mixw.eps);
    if (!s->mixw.rounds)
        return;
    for (uint32_t k = 0; k < n * n; k++)
        comb[k] = comb[k] * scale[2] + base[2 * n + k];
    softmax_rows(comb, n, s->mixw.eps);
    divide_by_sums(comb, n, n, 1, s->mixw.eps);
    for (uint32_t r = 1; r < s->mixw.rounds; r++) {
        divide_by_sums(comb, n, 1, n, s->mixw.eps);
        divide_by_sums(comb, n, n, 1, s->mixw.eps);
    }
}

void ntx__row_mix(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *in = row_at(f, (enum ntx_buf)s->in[0], i),
                *by = s->in[1] ? row_at(f, (enum ntx_buf)s->in[1], i) : NULL;
    float *out = row_at(f, (enum ntx_buf)s->out, i);
    for (uint32_t k = 0; k < s->heads; k++, in += s->width) {
        const float weight = by ? by[k] : 1 / (float)s->heads;
        for (uint32_t c = 0; c < s->width; c++)
            out[c] = (k ? out[c] : 0) + in[c] * weight;
    }
}

static void spread_and_mix(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *y = row_at(f, (enum ntx_buf)s->in[0], i), *x = row_at(f, (enum ntx_buf)s->in[1], i);
    float *to = row_at(f, (enum ntx_buf)s->out, i);
    for (uint32_t k = 0; k < s->heads; k++, to += s->width) {
        const float by = 2 * sigmoid(x[k] * s->scale);
        for (uint32_t c = 0; c < s->width; c++)
            to[c] += y[c] * by;
    }
}

/* Sums in the order of the values, in double. */
void ntx__row_dotgate(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *with = row_at(f, (enum ntx_buf)s->in[0], i), *value = row_at(f, (enum ntx_buf)s->in[1], i);
    float *out = row_at(f, (enum ntx_buf)s->out, i);
    for (uint32_t k = 0; k < s->heads; k++, with += s->width, out += s->width) {
        double dot = 0;
        for (uint32_t c = 0; c < s->width; c++)
            dot += (double)out[c] * (double)with[c];
        dot *= (double)s->scale;
        float root = (float)sqrt(fmax(fabs(dot), 1e-6));
        if (dot < 0)
            root = -root;
        else if (!(dot > 0))
            root = 0;
        const float by = sigmoid(root);
        for (uint32_t c = 0; c < s->width; c++)
            out[c] = value[c] * by;
    }
}

/* Adds the weighted output to each stream. */
static void spread_weighted(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *y = row_at(f, (enum ntx_buf)s->in[0], i), *post = row_at(f, (enum ntx_buf)s->in[1], i) + s->heads;
    float *to = row_at(f, (enum ntx_buf)s->out, i);
    for (uint32_t k = 0; k < s->heads; k++, to += s->width)
        for (uint32_t c = 0; c < s->width; c++)
            to[c] += y[c] * post[k];
}

void ntx__row_spread(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    if (s->scale != 0 || s->spread.each) {
        (s->scale != 0 ? spread_and_mix : spread_weighted)(f, s, i);
        return;
    }
    const float *y = row_at(f, (enum ntx_buf)s->in[0], i), *post = row_at(f, (enum ntx_buf)s->in[1], i) + s->heads,
                *comb = post + s->heads;
    float *to = row_at(f, (enum ntx_buf)s->out, i), was[NTX_STREAMS];
    for (uint32_t c = 0; c < s->width; c++) {
        for (uint32_t k = 0; k < NTX_STREAMS; k++)
            was[k] = to[(size_t)k * s->width + c];
        for (uint32_t d = 0; d < NTX_STREAMS; d++) {
            float sum = y[c] * post[d];
            for (uint32_t k = 0; k < NTX_STREAMS; k++)
                sum += was[k] * comb[d + NTX_STREAMS * k];
            to[(size_t)d * s->width + c] = sum;
        }
    }
}

/* out = in, weighted, plus the runs; a softmax of w . run / RMS(run) over all of them. Sums go in the order of the
 * values, in double. */
static double score_of(const float *run, const float *w, uint32_t n, float eps)
{
    double squares = 0, dot = 0;
    for (uint32_t k = 0; k < n; k++) {
        squares += (double)run[k] * (double)run[k];
        dot += (double)run[k] * (double)w[k];
    }
    return dot / sqrt(squares / n + (double)eps);
}

void ntx__row_recall(struct ntx_forward *f, const struct ntx_step *s, uint32_t i)
{
    const float *in = row_at(f, (enum ntx_buf)s->in[0], i), *runs = row_at(f, (enum ntx_buf)s->in[1], i),
                *w = f->vec[s->weight[0]];
    float *out = row_at(f, (enum ntx_buf)s->out, i);
    double score[NTX_RECALLS + 1], most = -INFINITY, sum = 0;
    for (uint32_t k = 0; k <= s->heads; k++) {
        score[k] = score_of(k < s->heads ? runs + (size_t)k * s->width : in, w, s->width, f->hp->rms_eps);
        most = score[k] > most ? score[k] : most;
    }
    for (uint32_t k = 0; k <= s->heads; k++)
        sum += score[k] = exp(score[k] - most);
    for (uint32_t k = 0; k < s->width; k++)
        out[k] = in[k] * (float)(score[s->heads] / sum);
    for (uint32_t k = 0; k < s->heads; k++)
        f->c.ops->add_scaled(out, (float)(score[k] / sum), runs + (size_t)k * s->width, s->width);
}
