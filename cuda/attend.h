/* attend.h: attention over paged KV for rows of decoding (prompts': prefill.h). A block of threads takes one head of one row and NTX_GPU_SPLIT positions; where a row has more
 * positions, the splits' maxima, sums and unscaled values are joined in the order of the splits. Both the splitting and the
 * order depend on the row's position alone, so a row's value does not depend on who shares the pass.
 *
 * Within a split everything follows computed/cpu/cpu.h (`attend`), so up to NTX_GPU_SPLIT positions give the CPU's bits. */
#ifndef NTX_CUDA_ATTEND_H
#define NTX_CUDA_ATTEND_H

#include "cuda/product.h"
#include "cuda/rotate.h"

DEV uint32_t splits_of(uint32_t positions) { return (positions + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT; }

/* score[p] for positions [first, first + n): 16 threads a position. */
DEV void scores(const struct ntx_gpu_attend *p, uint32_t row, uint32_t head, uint32_t first, uint32_t n, const float *q, float *score)
{
    const struct ntx_gpu_kv *kv = &p->kv;
    uint32_t lane = TID % 16, kv_head = head / (kv->n_head / kv->n_head_kv);
    for (uint32_t t = TID / 16; t < (n + 7) / 8 * 8; t += HEAD_THREADS / 16) {
        int hole = t >= n || is_hole(kv, row, first + t);
        float acc = 0;
        if (!hole) {
            const uint8_t *k = k_at(kv, row, kv_head, first + t);
            for (uint32_t e = lane; e < kv->head_k; e += 16)
                acc = fmaf(kv_value(kv, k, e), q[e], acc);
        }
        acc = join_16_threads(acc);
        if (!lane && t < n)
            score[t] = hole ? -INFINITY : acc * p->scale;
    }
    SYNC();
}

/* Turns scores into weights; returns the largest score and, in *sum, the sum of weights (lanes p % 16, then the tree). Nothing but
 * holes: minus infinity and 0. */
DEV float weigh(float *score, uint32_t n, float *lanes, float *sum)
{
    float top = score[0];
    for (uint32_t t = 1; t < n; t++)
        top = score[t] > top ? score[t] : top;
    SYNC();
    for (uint32_t t = TID; t < n; t += HEAD_THREADS)
        score[t] = top > -INFINITY ? exp_exact(score[t] - top) : 0;
    SYNC();
    if (TID < 16) {
        float acc = 0;
        for (uint32_t t = TID; t < n; t += 16)
            acc += score[t];
        lanes[TID] = acc;
    }
    SYNC();
    float l[16];
    UNROLL
    for (int i = 0; i < 16; i++)
        l[i] = lanes[i];
    UNROLL
    for (int step = 8; step; step /= 2)
        UNROLL
        for (int i = 0; i < step; i++)
            l[i] += l[i + step];
    *sum = l[0];
    return top;
}

/* Value e of positions [first, first + n), weighed: in the order of positions, without holes. */
DEV float weighed_value(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t kv_head, uint32_t first, uint32_t n, const float *weight, uint32_t e)
{
    uint64_t bytes = kv_row_bytes(kv, kv->head_v);
    float acc = 0;
    for (uint32_t t0 = 0; t0 < n; t0 += kv->block_tokens) { /* splits begin where blocks do */
        const uint8_t *v = v_at(kv, row, kv_head, first + t0);
        uint32_t some = n - t0 < kv->block_tokens ? n - t0 : kv->block_tokens;
        for (uint32_t t = 0; t < some; t++)
            if (!is_hole(kv, row, first + t0 + t))
                acc = fmaf(weight[t0 + t], kv_value(kv, v + t * bytes, e), acc);
    }
    return acc;
}

KERNEL(attend_split, struct ntx_gpu_attend)
{
    SHARED float q[NTX_GPU_HEAD_MAX], score[NTX_GPU_SPLIT], lanes[16];
    const struct ntx_gpu_kv *kv = &a.kv;
    uint32_t head = BX, i = BY, split = BZ, row = row_of_pass(kv, i), positions = kv->pos[row] + 1, first = split * NTX_GPU_SPLIT;
    if (first >= positions)
        return;
    uint32_t n = positions - first < NTX_GPU_SPLIT ? positions - first : NTX_GPU_SPLIT;
    for (uint32_t k = TID; k < kv->head_k; k += HEAD_THREADS)
        q[k] = a.q[((uint64_t)i * kv->n_head + head) * kv->head_k + k];
    SYNC();
    scores(&a, row, head, first, n, q, score);
    float sum, top = weigh(score, n, lanes, &sum);
    float *out = a.out + i * a.ld_out + head * kv->head_v, by = sum == 0 ? 0 : 1.0f / sum;
    if (splits_of(positions) > 1) {
        out = a.partial + (((uint64_t)i * kv->n_head + head) * splits_of(a.most_pos) + split) * (kv->head_v + 2);
        by = 1;
        if (!TID) {
            out[kv->head_v] = top;
            out[kv->head_v + 1] = sum;
        }
    }
    for (uint32_t e = TID; e < kv->head_v; e += HEAD_THREADS)
        out[e] = weighed_value(kv, row, head / (kv->n_head / kv->n_head_kv), first, n, score, e) * by;
}

KERNEL(attend_join, struct ntx_gpu_attend)
{
    const struct ntx_gpu_kv *kv = &a.kv;
    uint32_t head = BX, i = BY, n = splits_of(kv->pos[row_of_pass(kv, i)] + 1), width = kv->head_v + 2;
    if (n < 2)
        return;
    const float *part = a.partial + ((uint64_t)i * kv->n_head + head) * splits_of(a.most_pos) * width;
    float top = part[kv->head_v], sum = 0;
    for (uint32_t s = 1; s < n; s++) {
        float other = part[s * width + kv->head_v];
        top = other > top ? other : top;
    }
    for (uint32_t s = 0; s < n; s++)
        sum = fmaf(part[s * width + kv->head_v + 1], exp_exact(part[s * width + kv->head_v] - top), sum);
    for (uint32_t e = TID; e < kv->head_v; e += HEAD_THREADS) {
        float acc = 0;
        for (uint32_t s = 0; s < n; s++)
            acc = fmaf(part[s * width + e], exp_exact(part[s * width + kv->head_v] - top), acc);
        a.out[i * a.ld_out + head * kv->head_v + e] = acc * (1.0f / sum);
    }
}

static int launch_split(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p)
{
    RETURN_LAUNCH(s, attend_split, p->kv.n_head, p->n_rows, (p->most_pos + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT, HEAD_THREADS, *p);
}

static int launch_join(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p)
{
    RETURN_LAUNCH(s, attend_join, p->kv.n_head, p->n_rows, 1, HEAD_THREADS, *p);
}

int ntx__launch_attend(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p)
{
    if (!p->most_pos || p->kv.head_k > NTX_GPU_HEAD_MAX || NTX_GPU_SPLIT % p->kv.block_tokens)
        return -EINVAL;
    int rc = launch_split(s, p);
    return rc || p->most_pos <= NTX_GPU_SPLIT ? rc : launch_join(s, p);
}

#endif
