/* SPDX-License-Identifier: Apache-2.0 */
/* rotate.h: biases, norms per head, rotation (RoPE) of q and k, and stores of k and v in the cache. A block of threads
 * takes a head: of q, then of k, then of v. */
#ifndef NTX_CUDA_ROTATE_H
#define NTX_CUDA_ROTATE_H

#include "cuda/kv.h"

#define HEAD_THREADS 128u

/* Loads a head to `head` (shared), adds the bias, and norms it. */
DEV void load_head(const float *x, const float *bias, const float *norm, float eps, uint32_t n, float *head,
                   double *sums)
{
    double sum = 0;
    for (uint32_t k = TID; k < n; k += HEAD_THREADS) {
        head[k] = bias ? x[k] + bias[k] : x[k];
        sum += (double)head[k] * (double)head[k];
    }
    float scale = (float)(1.0 / sqrt(block_sum(sum, sums) / n + (double)eps));
    for (uint32_t k = TID; norm && k < n; k += HEAD_THREADS)
        head[k] = head[k] * scale * norm[k];
    SYNC();
}

DEV void rotate_head(float *head, const float *cs, const float *sn, uint32_t dim, uint32_t neox)
{
    for (uint32_t i = TID; i < dim / 2; i += HEAD_THREADS) {
        uint32_t at = neox ? i : 2 * i, other = neox ? i + dim / 2 : 2 * i + 1;
        float x = head[at], y = head[other];
        head[at] = x * cs[i] - y * sn[i];
        head[other] = x * sn[i] + y * cs[i];
    }
    SYNC();
}

/* Hadamard transform of `width` values, in pieces of the largest power of 2 that divides width; times scale. */
DEV void hadamard_by(float *x, uint32_t width, float scale, uint32_t threads)
{
    const uint32_t n = width & (0u - width);
    for (uint32_t half = 1; half < n; half *= 2) {
        SYNC();
        for (uint32_t i = TID; i < width / 2; i += threads) {
            const uint32_t k = i / half * 2 * half + i % half;
            float u = x[k], v = x[k + half];
            x[k] = u + v;
            x[k + half] = u - v;
        }
    }
    SYNC();
    for (uint32_t k = TID; k < width; k += threads)
        x[k] *= scale;
}

static inline float hadamard_scale(uint32_t width) { return 1.0f / sqrtf((float)(width & (0u - width))); }

KERNEL(rotate_heads, struct ntx_gpu_rotate)
{
    SHARED float head[NTX_GPU_HEAD_MAX];
    SHARED double sums[WARPS];
    const struct ntx_gpu_kv *kv = &a.kv;
    uint32_t i = BY, at = BX + (a.q ? 0 : kv->n_head), row = row_of_pass(kv, i), pos = kv->pos[row];
    const float *cs = a.cs + (uint64_t)row * (a.rope_dim / 2), *sn = a.sn + (uint64_t)row * (a.rope_dim / 2);
    if (at < kv->n_head) {
        float *q = a.q + i * a.ld_q + at * kv->head_k;
        if (i >= a.n_query)
            return;
        load_head(q, a.q_bias ? a.q_bias + at * kv->head_k : NULL, a.q_norm, a.eps, kv->head_k, head, sums);
        rotate_head(head, cs, sn, a.rope_dim, a.neox);
        for (uint32_t k = TID; k < kv->head_k; k += HEAD_THREADS)
            q[k] = head[k];
    } else if (at - kv->n_head < kv->n_head_kv) {
        at -= kv->n_head;
        const float *x = a.k + i * a.ld_k + at * kv->head_k;
        load_head(x, a.k_bias ? a.k_bias + at * kv->head_k : NULL, a.k_norm, a.eps, kv->head_k, head, sums);
        rotate_head(head, cs, sn, a.rope_dim, a.neox);
        for (uint32_t k = TID; k < kv->head_k; k += HEAD_THREADS)
            kv_store(kv, k_at(kv, row, at, pos), k, head[k]);
    } else {
        at -= kv->n_head + kv->n_head_kv;
        const float *x = a.v + i * a.ld_v + at * kv->head_v;
        for (uint32_t k = TID; k < kv->head_v; k += HEAD_THREADS)
            kv_store(kv, v_at(kv, row, at, pos), k, a.v_bias ? x[k] + a.v_bias[at * kv->head_v + k] : x[k]);
    }
}

int ntx__launch_rotate(struct ntx_gpu_stream *s, const struct ntx_gpu_rotate *p)
{
    const uint32_t n_q = p->q ? p->kv.n_head : 0, parts = p->kv.v_in_k ? 1 : 2;
    if (p->kv.head_k > NTX_GPU_HEAD_MAX || p->kv.head_v > NTX_GPU_HEAD_MAX ||
        (p->kv.q8 && (p->kv.head_k % 32 || p->kv.head_v % 32)))
        return -EINVAL;
    RETURN_LAUNCH(s, rotate_heads, n_q + parts * p->kv.n_head_kv, p->n_rows, 1, HEAD_THREADS, *p);
}

#endif
