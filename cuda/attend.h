/* attend.h: attention over paged KV for rows of decoding (prompts': prefill.h). A block of threads takes one head of one row and NTX_GPU_SPLIT positions; where a row has more
 * positions, the splits' maxima, sums and unscaled values are joined in the order of the splits. Both the splitting and the
 * order depend on the row's position alone, so a row's value does not depend on who shares the pass.
 *
 * Within a split everything follows infer/cpu/cpu.h (`attend`), so up to NTX_GPU_SPLIT positions give the CPU's bits. */
#ifndef NTX_CUDA_ATTEND_H
#define NTX_CUDA_ATTEND_H

#include "cuda/product.h"
#include "cuda/rotate.h"

DEV uint32_t splits_of(uint32_t positions) { return (positions + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT; }

/* What a row attends to: positions, or entries of a list. */
struct entries {
    uint32_t n, from;          /* positions: those before n from `from` on */
    int listed;
    uint32_t window;           /* of a list, so many slots from `from` on; */
    const uint32_t *chosen;    /* and then these slots, or numbers of pooled K; NULL: numbers from 0 on */
};

/* lists: there may be such. */
DEV struct entries entries_of(const struct ntx_gpu_attend *a, uint32_t row, const int lists)
{
    const uint32_t pos = a->kv.pos[row], chosen = lists && a->n_chosen ? a->n_chosen[row] : UINT32_MAX;
    struct entries e = {pos + 1, seen_from(a->window, pos), lists && (chosen != UINT32_MAX || a->most_entries), 0, NULL};
    if (!e.listed)
        return e;
    if (chosen != UINT32_MAX)
        e.chosen = a->chosen + (uint64_t)row * a->most_chosen;
    e.window = a->most_entries ? pos + 1 - e.from : 0;
    e.n = e.window + (chosen != UINT32_MAX ? chosen : a->pooled.base ? (pos + 1) / a->every : 0);
    return e;
}

/* Splits before the first that it sees something of. */
DEV uint32_t splits_before(const struct entries *e) { return e->listed ? 0 : e->from / NTX_GPU_SPLIT; }

DEV_AND_HOST uint32_t most_of(const struct ntx_gpu_attend *a) { return a->most_entries ? a->most_entries : a->most_pos; }

DEV uint32_t splits_most(const struct ntx_gpu_attend *a) { return splits_of(most_of(a)); }

/* K, or V, of entry t of a list. */
DEV const uint8_t *listed_at(const struct ntx_gpu_attend *a, const struct entries *e, uint32_t row, uint32_t kv_head, uint32_t t, int v)
{
    const uint32_t number = t < e->window ? e->from + t : e->chosen ? e->chosen[t - e->window] : t - e->window;
    if (t >= e->window && a->pooled.base)
        return pooled_in(&a->pooled, row, number, a->every);
    return v ? v_in(&a->kv, row, kv_head, number) : k_in(&a->kv, row, kv_head, number);
}

struct query { /* shared; of a row and head; Q8_0: words of integers, and for each 32 of them a scale */
    float *x, *scale;
    uint32_t *words;
};

/* A warp has 32 values of q in a row. */
DEV void load_query(const struct ntx_gpu_kv *kv, const float *q, const struct query *to)
{
    for (uint32_t e = TID; e < kv->head_k; e += HEAD_THREADS) {
        to->x[e] = q[e];
        if (kv->q8) {
            float inverse, scale = scale_of(top_of_warp(q[e]), &inverse);
            ((int8_t *)to->words)[e] = (int8_t)quantised(q[e], inverse);
            to->scale[e / 32] = scale;
        }
    }
    SYNC();
}

/* q.k by the 16 threads of a position, each of which has one value in 16. */
DEV float score_f16(const struct ntx_gpu_kv *kv, const uint8_t *k, const struct query *q, uint32_t lane, int hole)
{
    float acc = 0;
    for (uint32_t e = lane; e < kv->head_k && !hole; e += 16)
        acc = fmaf(f16_at(k + 2 * e), q->x[e], acc);
    return join_16_threads(acc);
}

/* The same of Q8_0: each has a word of one of two blocks of 32 values at a time. */
DEV float score_q8(const struct ntx_gpu_kv *kv, const uint8_t *k, const struct query *q, uint32_t lane, int hole)
{
    float acc = 0;
    for (uint32_t b = 0; b < kv->head_k / 32; b += 2) {
        uint32_t mine = b + lane / 8;
        int there = !hole && mine < kv->head_k / 32;
        const uint8_t *w = k + mine * Q8_ROW_BYTES + 2 + lane % 8 * 4;
        int32_t sum = there ? dot4(half_at(w) | half_at(w + 2) << 16, q->words[mine * 8 + lane % 8], 0) : 0;
        float scale = there ? f16_at(k + mine * Q8_ROW_BYTES) * q->scale[mine] : 0;
        UNROLL
        for (uint32_t m = 4; m; m /= 2)
            sum += xor_i(sum, m);
        int32_t other = xor_i(sum, 8);
        float scale_of_other = xor_f(scale, 8);
        acc = fmaf((float)(lane < 8 ? sum : other), lane < 8 ? scale : scale_of_other, acc);
        if (b + 1 < kv->head_k / 32)
            acc = fmaf((float)(lane < 8 ? other : sum), lane < 8 ? scale_of_other : scale, acc);
    }
    return acc;
}

/* score[p] for entries [first, first + n): 16 threads a position. */
DEV void scores(const struct ntx_gpu_attend *p, const struct entries *of, uint32_t row, uint32_t head, uint32_t first, uint32_t n, const struct query *q, float *score, const int lists)
{
    const struct ntx_gpu_kv *kv = &p->kv;
    uint32_t lane = TID % 16, kv_head = head / (kv->n_head / kv->n_head_kv);
    for (uint32_t t = TID / 16; t < (n + 7) / 8 * 8; t += HEAD_THREADS / 16) {
        int hole = t >= n || (!(lists && of->listed) && (first + t < of->from || is_hole(kv, row, first + t)));
        const uint8_t *k = hole ? NULL : lists && of->listed ? listed_at(p, of, row, kv_head, first + t, 0) : k_at(kv, row, kv_head, first + t);
        float acc = kv->q8 ? score_q8(kv, k, q, lane, hole) : score_f16(kv, k, q, lane, hole);
        if (!lane && t < n)
            score[t] = hole ? -INFINITY : p->cap != 0 ? capped(acc * p->scale, p->cap) : acc * p->scale;
    }
    SYNC();
}

/* Turns scores into weights; returns the largest score and, in *sum, the sum of weights (lanes p % 16, then the tree). Nothing but
 * holes: minus infinity and 0. sink: minus infinity where there is none. */
DEV float weigh(float *score, uint32_t n, float sink, float *lanes, float *sum)
{
    float top = score[0];
    for (uint32_t t = 1; t < n; t++)
        top = score[t] > top ? score[t] : top;
    top = sink > top ? sink : top;
    SYNC();
    for (uint32_t t = TID; t < n; t += HEAD_THREADS)
        score[t] = top > -INFINITY ? exp_exact(score[t] - top) : 0;
    SYNC();
    if (TID < 16) {
        float acc = !TID && sink > -INFINITY ? exp_exact(sink - top) : 0;
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
DEV float weighed_f16(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t kv_head, uint32_t first, uint32_t n, const float *weight, uint32_t e)
{
    uint64_t bytes = v_row_bytes(kv);
    float acc = 0;
    if (has_path(kv, row, first + n)) {
        for (uint32_t t = 0; t < n; t++)
            if (!is_hole(kv, row, first + t))
                acc = fmaf(weight[t], f16_at(v_at(kv, row, kv_head, first + t) + 2 * e), acc);
        return acc;
    }
    for (uint32_t t0 = 0; t0 < n; t0 += kv->block_tokens) { /* splits begin where blocks do */
        const uint8_t *v = v_at(kv, row, kv_head, first + t0);
        uint32_t some = n - t0 < kv->block_tokens ? n - t0 : kv->block_tokens;
        for (uint32_t t = 0; t < some; t++)
            if (!is_hole(kv, row, first + t0 + t))
                acc = fmaf(weight[t0 + t], f16_at(v + t * bytes + 2 * e), acc);
    }
    return acc;
}

/* The same of a list, whose V are at `at`. */
DEV float weighed_listed(const uint64_t *at, uint32_t n, const float *weight, uint32_t e)
{
    float acc = 0;
    for (uint32_t t = 0; t < n; t++)
        acc = fmaf(weight[t], f16_at((const uint8_t *)(uintptr_t)at[t] + 2 * e), acc);
    return acc;
}

struct whole_weights { /* shared; for each 32 values of V in Q8_0: integers [NTX_GPU_SPLIT], and what 1 means */
    uint16_t *of;
    float *step;
};

/* A warp takes 32 values of V. */
DEV void make_whole(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t kv_head, uint32_t first, uint32_t n, const float *weight, const struct whole_weights *u)
{
    const float most = 32767;
    for (uint32_t b = TID / WARP; b < kv->head_v / 32; b += HEAD_THREADS / WARP) {
        float top = 0;
        int32_t bad = 0;
        for (int pass = 0; pass < 2; pass++) {
            float inverse = pass && !bad && top > 0x1p-100f ? most / top : 0;
            for (uint32_t t = TID % WARP; t < n; t += WARP) {
                float x = weight[t] > 0 ? weight[t] * f16_at(v_at(kv, row, kv_head, first + t) + b * Q8_ROW_BYTES) : 0;
                if (pass)
                    u->of[b * NTX_GPU_SPLIT + t] = (uint16_t)f_bits(fmaf(inverse > 0 ? x : 0, inverse, 0x1.8p23f)); /* rounds to an integer, left in the low bits */
                bad |= !(x < INFINITY);
                top = x > top ? x : top;
            }
            UNROLL
            for (uint32_t m = WARP / 2; m; m /= 2) {
                float other = xor_f(top, m);
                bad |= xor_i(bad, m);
                top = other > top ? other : top;
            }
        }
        if (TID % WARP == 0)
            u->step[b] = bad ? bits_f(0x7fc00000u) : top > 0x1p-100f ? top / most : 0;
    }
    SYNC();
}

DEV float weighed_q8(const struct ntx_gpu_kv *kv, uint32_t row, uint32_t kv_head, uint32_t first, uint32_t n, const struct whole_weights *u, uint32_t e)
{
    uint64_t bytes = kv_row_bytes(kv, kv->head_v);
    int32_t acc = 0;
    if (has_path(kv, row, first + n)) {
        for (uint32_t t = 0; t < n; t++)
            acc += u->of[e / 32 * NTX_GPU_SPLIT + t] * (int8_t)v_at(kv, row, kv_head, first + t)[e / 32 * Q8_ROW_BYTES + 2 + e % 32];
        return (float)acc * u->step[e / 32];
    }
    for (uint32_t t0 = 0; t0 < n; t0 += kv->block_tokens) {
        const uint8_t *v = v_at(kv, row, kv_head, first + t0) + e / 32 * Q8_ROW_BYTES + 2 + e % 32;
        uint32_t some = n - t0 < kv->block_tokens ? n - t0 : kv->block_tokens;
        for (uint32_t t = 0; t < some; t++)
            acc += u->of[e / 32 * NTX_GPU_SPLIT + t0 + t] * (int8_t)v[t * bytes];
    }
    return (float)acc * u->step[e / 32];
}

/* Of row BY and head BX, the BZ-th split of those that it sees something of. at: shared [NTX_GPU_SPLIT], of lists; NULL: there are none. */
DEV void attend_some(const struct ntx_gpu_attend *a, const struct query *q, const struct whole_weights *whole, float *score, float *lanes, uint64_t *at)
{
    const struct ntx_gpu_kv *kv = &a->kv;
    uint32_t head = BX, i = BY, row = row_of_pass(kv, i), kv_head = head / (kv->n_head / kv->n_head_kv);
    const struct entries of = entries_of(a, row, at != NULL);
    uint32_t before = splits_before(&of), first = (before + BZ) * NTX_GPU_SPLIT;
    if (first >= of.n)
        return;
    uint32_t n = of.n - first < NTX_GPU_SPLIT ? of.n - first : NTX_GPU_SPLIT;
    const int listed = at && of.listed;
    load_query(kv, a->q + i * a->ld_q + head * kv->head_k, q);
    scores(a, &of, row, head, first, n, q, score, at != NULL);
    for (uint32_t t = TID; t < n && listed; t += HEAD_THREADS)
        at[t] = (uint64_t)(uintptr_t)listed_at(a, &of, row, kv_head, first + t, 1);
    float sum, top = weigh(score, n, a->sinks && !BZ ? a->sinks[head] : -INFINITY, lanes, &sum);
    float *out = a->out + i * a->ld_out + head * kv->head_v, by = sum == 0 ? 0 : 1.0f / sum;
    if (splits_of(of.n) - before > 1) {
        out = a->partial + (((uint64_t)i * kv->n_head + head) * splits_most(a) + BZ) * (kv->head_v + 2);
        by = 1;
        if (!TID) {
            out[kv->head_v] = top;
            out[kv->head_v + 1] = sum;
        }
    }
    if (kv->q8)
        make_whole(kv, row, kv_head, first, n, score, whole);
    for (uint32_t e = TID; e < kv->head_v; e += HEAD_THREADS)
        out[e] = (listed   ? weighed_listed(at, n, score, e)
                  : kv->q8 ? weighed_q8(kv, row, kv_head, first, n, whole, e)
                           : weighed_f16(kv, row, kv_head, first, n, score, e)) *
                 by;
}

/* What a block of threads shares, for heads of up to so many values. */
#define ATTEND_SPLIT(name, head)                                                                            \
    KERNEL(name, struct ntx_gpu_attend)                                                                     \
    {                                                                                                       \
        SHARED float x[head], scale[head / 32], step[head / 32], score[NTX_GPU_SPLIT], lanes[16];           \
        SHARED uint32_t words[head / 4];                                                                    \
        SHARED uint16_t whole[head / 32 * NTX_GPU_SPLIT];                                                   \
        const struct query q = {x, scale, words};                                                           \
        const struct whole_weights u = {whole, step};                                                       \
        attend_some(&a, &q, &u, score, lanes, NULL);                                                        \
    }
ATTEND_SPLIT(attend_split, NTX_GPU_HEAD)
ATTEND_SPLIT(attend_split_wide, NTX_GPU_HEAD_MAX)

KERNEL(attend_split_listed, struct ntx_gpu_attend)
{
    SHARED float x[NTX_GPU_HEAD_MAX], score[NTX_GPU_SPLIT], lanes[16];
    SHARED uint64_t at[NTX_GPU_SPLIT];
    const struct query q = {x, NULL, NULL};
    attend_some(&a, &q, NULL, score, lanes, at);
}

KERNEL(attend_join, struct ntx_gpu_attend)
{
    const struct ntx_gpu_kv *kv = &a.kv;
    const struct entries of = entries_of(&a, row_of_pass(kv, BY), 1);
    uint32_t head = BX, i = BY, width = kv->head_v + 2, n = splits_of(of.n) - splits_before(&of);
    if (n < 2)
        return;
    const float *part = a.partial + ((uint64_t)i * kv->n_head + head) * splits_most(&a) * width;
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
    uint32_t all = (most_of(p) + NTX_GPU_SPLIT - 1) / NTX_GPU_SPLIT, seen = p->window && !p->most_entries ? (p->window - 1) / NTX_GPU_SPLIT + 2 : all; /* a window may begin anywhere */
    if (p->n_chosen || p->most_entries)
        RETURN_LAUNCH(s, attend_split_listed, p->kv.n_head, p->n_rows, all, HEAD_THREADS, *p);
    if (p->kv.head_k > NTX_GPU_HEAD || p->kv.head_v > NTX_GPU_HEAD)
        RETURN_LAUNCH(s, attend_split_wide, p->kv.n_head, p->n_rows, seen < all ? seen : all, HEAD_THREADS, *p);
    RETURN_LAUNCH(s, attend_split, p->kv.n_head, p->n_rows, seen < all ? seen : all, HEAD_THREADS, *p);
}

static int launch_join(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p)
{
    RETURN_LAUNCH(s, attend_join, p->kv.n_head, p->n_rows, 1, HEAD_THREADS, *p);
}

int ntx__launch_attend(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p)
{
    if (!p->most_pos || p->kv.head_k > NTX_GPU_HEAD_MAX || p->kv.head_v > NTX_GPU_HEAD_MAX || NTX_GPU_SPLIT % p->kv.block_tokens || (p->kv.q8 && (p->kv.v_in_k || p->n_chosen || p->most_entries)))
        return -EINVAL;
    int rc = launch_split(s, p);
    return rc || most_of(p) <= NTX_GPU_SPLIT ? rc : launch_join(s, p);
}

#endif
