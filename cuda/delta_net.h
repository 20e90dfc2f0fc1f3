/* SPDX-License-Identifier: Apache-2.0 */
/* delta_net.h: layers with a recurrent state: the convolution, and the gated delta net after it
 * (computed/pass/forward_delta.c). Tokens of a session are computed in order. A thread takes a channel, or a column of
 * a head's matrix; these are independent, so the CPU's bits come out. */
#ifndef NTX_CUDA_DELTA_NET_H
#define NTX_CUDA_DELTA_NET_H

#include "cuda/value.h"
#include "cuda/vector.h"

#define CONV_THREADS 128u
#define CONV_TAPS    8u

DEV const float *state_from(const struct ntx_gpu_recur *a, const struct ntx_gpu_turn *t)
{
    return t->fresh ? NULL : (const float *)(const void *)(a->states + t->from + a->layer_offset);
}

DEV float *state_to(const struct ntx_gpu_recur *a, const struct ntx_gpu_turn *t)
{
    return (float *)(void *)(a->states + t->to + a->layer_offset);
}

/* Channel k of turn BY. */
KERNEL(convolve_channels, struct ntx_gpu_recur)
{
    const struct ntx_gpu_turn t = a.turns[BY];
    const uint32_t c = BX * CONV_THREADS + TID, keeps = a.taps - 1, each = a.width / a.lists;
    const float *from = state_from(&a, &t);
    float *to = state_to(&a, &t), last[CONV_TAPS], w[CONV_TAPS];
    if (c >= a.width)
        return;
    const float *later = c < 2 * each ? a.w[1] : a.w[2];
    const float *weights = (c < each ? a.w[0] : later) + (uint64_t)(c % each) * a.taps;
    UNROLL
    for (uint32_t j = 0; j < CONV_TAPS; j++) {
        w[j] = j < a.taps ? weights[j] : 0;
        last[j] = j < keeps && from ? from[(uint64_t)j * a.width + c] : 0;
    }
    for (uint32_t i = 0; i < t.n; i++) {
        uint32_t row = a.rows[t.first + i];
        float x = a.x[row * a.ld_x + c], sum = 0;
        UNROLL
        for (uint32_t j = 0; j < CONV_TAPS; j++)
            if (j < a.taps)
                sum = fmaf(w[j], j < keeps ? last[j] : x, sum);
        a.y[row * a.ld_y + c] = sum / (exp_exact(-sum) + 1.0f);
        UNROLL
        for (uint32_t j = 0; j + 1 < CONV_TAPS; j++)
            last[j] = j + 1 < keeps ? last[j + 1] : x;
    }
    UNROLL
    for (uint32_t j = 0; j < CONV_TAPS; j++)
        if (j < keeps)
            to[(uint64_t)j * a.width + c] = last[j];
}

/* The input `back` positions before row i of the turn, for a dilated convolution (inputs `apart` positions apart). */
DEV float input_before(const struct ntx_gpu_recur *a, const struct ntx_gpu_turn *t, const float *from, uint32_t c,
                       uint32_t i, uint32_t back)
{
    const uint32_t keeps = (a->taps - 1) * a->apart;
    if (i >= back)
        return a->x[a->rows[t->first + i - back] * a->ld_x + c];
    return from ? from[(uint64_t)(keeps - (back - i)) * a->width + c] : 0;
}

KERNEL(convolve_apart, struct ntx_gpu_recur)
{
    const struct ntx_gpu_turn t = a.turns[BY];
    const uint32_t c = BX * CONV_THREADS + TID, keeps = (a.taps - 1) * a.apart;
    const float *from = state_from(&a, &t);
    float *to = state_to(&a, &t);
    if (c >= a.width)
        return;
    for (uint32_t i = 0; i < t.n; i++) {
        float sum = 0;
        for (uint32_t j = 0; j < a.taps; j++)
            sum = fmaf(float_or_value(a.type, (const uint8_t *)(const void *)a.w[0] + c * a.row_bytes, j),
                       input_before(&a, &t, from, c, i, (a.taps - 1 - j) * a.apart), sum);
        a.y[a.rows[t.first + i] * a.ld_y + c] = sum / (exp_exact(-sum) + 1.0f);
    }
    for (uint32_t j = 0; j < keeps; j++)
        to[(uint64_t)j * a.width + c] = input_before(&a, &t, from, c, t.n, keeps - j);
}

#define KEYS_AHEAD                                                                                                     \
    8u /* values of a column that are loaded before the first is stored; NTX_DELTA_HEAD_STEP is a multiple */

DEV void load_keys_ahead(const float *s, uint32_t step, uint32_t i, float *v)
{
    UNROLL
    for (uint32_t j = 0; j < KEYS_AHEAD; j++)
        v[j] = s ? s[(i + j) * step] : 0;
}

/* S'k of a column, in the order of keys; with a decay per key: S'(g k). */
DEV float state_times_key(const float *s, uint32_t n, uint32_t step, const float *k, const float *g)
{
    float seen = 0;
    for (uint32_t i = 0; i < n && s; i += KEYS_AHEAD) {
        float v[KEYS_AHEAD], by[KEYS_AHEAD];
        load_keys_ahead(s, step, i, v);
        load_keys_ahead(k, 1, i, by);
        UNROLL
        for (uint32_t j = 0; j < KEYS_AHEAD; j++)
            seen = fmaf(v[j], g ? g[i + j] * by[j] : by[j], seen);
    }
    return seen;
}

/* Updates a column by the token's key, and returns the column times q. g: decay of each key; NULL: all keys have
 * `keeps`. */
DEV float update_column(const float *s, float *to, uint32_t n, uint32_t step, const float *k, const float *q,
                        const float *g, float keeps, float d)
{
    float out = 0;
    for (uint32_t i = 0; i < n; i += KEYS_AHEAD) {
        float v[KEYS_AHEAD], by[KEYS_AHEAD], queries[KEYS_AHEAD];
        load_keys_ahead(s, step, i, v);
        load_keys_ahead(k, 1, i, by);
        load_keys_ahead(q, 1, i, queries);
        UNROLL
        for (uint32_t j = 0; j < KEYS_AHEAD; j++) {
            v[j] = fmaf(by[j], d, v[j] * (g ? g[i + j] : keeps));
            to[(i + j) * step] = v[j];
            out = fmaf(v[j], queries[j], out);
        }
    }
    return out;
}

/* Column TID of panel BX of a head, of turn BY. Columns of a panel lie together (computed/state/recur.h). */
KERNEL(fold_columns, struct ntx_gpu_recur)
{
    const struct ntx_gpu_turn t = a.turns[BY];
    const uint32_t n = a.width, panels = n / a.panel, head = BX / panels, first = BX % panels * a.panel;
    const uint32_t key_head = a.tiled ? head % a.key_heads : head / (a.heads / a.key_heads),
                   at = (head * n + first) * n + TID;
    const float *from = state_from(&a, &t), *s = from ? from + at : NULL;
    float *to = state_to(&a, &t) + at;
    for (uint32_t i = 0; i < t.n; i++, s = to) {
        uint32_t row = a.rows[t.first + i];
        const float *mix = a.x + row * a.ld_x, *q = mix + key_head * n, *k = mix + (a.key_heads + key_head) * n;
        const float *rates = a.keeps + row * a.ld_keeps + head * (a.by_key ? n : 1), *g = a.by_key ? rates : NULL;
        float v = mix[(2 * a.key_heads + head) * n + first + TID], keeps = a.by_key ? 1 : *rates;
        float d = a.takes[row * a.ld_takes + head] * (v - keeps * state_times_key(s, n, a.panel, k, g));
        a.y[row * a.ld_y + head * n + first + TID] = update_column(s, to, n, a.panel, k, q, g, keeps, d) * a.scale;
    }
}

int ntx__launch_conv(struct ntx_gpu_stream *s, const struct ntx_gpu_recur *p)
{
    if (p->taps > CONV_TAPS || p->taps < 2 || !p->lists || p->lists > NTX_GPU_LISTS || p->width % p->lists)
        return -EINVAL;
    if (p->apart)
        RETURN_LAUNCH(s, convolve_apart, (p->width + CONV_THREADS - 1) / CONV_THREADS, p->n_turns, 1, CONV_THREADS, *p);
    RETURN_LAUNCH(s, convolve_channels, (p->width + CONV_THREADS - 1) / CONV_THREADS, p->n_turns, 1, CONV_THREADS, *p);
}

int ntx__launch_delta(struct ntx_gpu_stream *s, const struct ntx_gpu_recur *p)
{
    if (!p->panel || p->panel > WARP || p->width % p->panel || p->width % KEYS_AHEAD)
        return -EINVAL;
    RETURN_LAUNCH(s, fold_columns, p->heads * (p->width / p->panel), p->n_turns, 1, p->panel, *p);
}

#endif
