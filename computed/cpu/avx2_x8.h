/* SPDX-License-Identifier: Apache-2.0 */
/* avx2_x8.h: functions that the files of super-block kernels share: eight super-blocks are half of the lanes. If the
 * last eight are not complete, the row's last block is repeated; its lanes are dropped at the end. So nothing after
 * the weights is read. */
#ifndef NTX_COMPUTED_CPU_AVX2_X8_H
#define NTX_COMPUTED_CPU_AVX2_X8_H

#include "computed/cpu/avx2.h"
#include "computed/cpu/avx2_planes.h"

enum { AHEAD = 2048 }; /* bytes to fetch ahead of use */

/* Sums of block b's products for each row: acc of values, low of minima, each spread over 8 elements. */
typedef void block_fn(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low);

/* The same of a block in high and low bits. */
typedef void block_parts_fn(const uint8_t *high, const uint8_t *low_bits, const struct split *split, size_t b,
                            const struct q8k_row *x, int rows, __m256i *acc, __m256i *low);

/* acc += scale * (w . x) for 32 values; w of 7 bits. */
INLINE __m256i scaled_dot(__m256i acc, __m256i w, const int8_t *x, __m256i scale)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, load256(x)), scale));
}

/* The same for signed w. */
INLINE __m256i scaled_signed(__m256i acc, __m256i w, const int8_t *x, __m256i scale)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(load256(x), w));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, scale));
}

/* 16 int16 scales, each half in both 128-bit lanes. */
struct scales {
    __m256i half[2];
};

INLINE struct scales both_lanes(__m256i s16)
{
    return (struct scales){{_mm256_permute4x64_epi64(s16, 0x44), _mm256_permute4x64_epi64(s16, 0xee)}};
}

/* Scale 2 t in the lower 128-bit lane, 2 t + 1 in the upper one. */
INLINE __m256i scale_pair(const struct scales *s, int t)
{
    int at = t % 4 * 4;
    __m256i low = _mm256_set1_epi16((short)(at | (at + 1) << 8)),
            high = _mm256_set1_epi16((short)((at + 2) | (at + 3) << 8));
    return _mm256_shuffle_epi8(s->half[t / 4], _mm256_blend_epi32(low, high, 0xf0));
}

/* -offset * sum of scale * (sum of 16 x): corrects integers that are `offset` too large. */
INLINE __m256i offset_term(__m256i s16, const int16_t *sums, int log2_offset)
{
    __m256i p = _mm256_madd_epi16(s16, load256(sums));
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(p, log2_offset));
}

#define D_SPREAD SIZE_MAX

struct super_kind {
    size_t block_bytes, d_at; /* offset of d, which dmin follows; D_SPREAD: as in IQ1_M */
    bool has_min;
    float factor; /* factor of d, a power of two */
    block_fn *block;
    const struct split *split;   /* of weights in high and low bits: block_bytes and d_at are those of high bits; */
    block_parts_fn *block_parts; /* NULL: whole weights */
};

/* Blocks b .. b + 7 for each row; n of them exist. low_bits: of weights in two parts. */
INLINE void dot_x8(const uint8_t *w, const uint8_t *low_bits, uint32_t b, uint32_t n, const struct q8k_row *x,
                   const int rows, const struct super_kind *kind, __m256 *acc)
{
    __m256i i[2][8], j[2][8];
    uint32_t heads[8] __attribute__((aligned(32)));
    for (uint32_t k = 0; k < 8; k++) {
        const uint8_t *p = w + (size_t)(b + (k < n ? k : n - 1)) * kind->block_bytes;
        size_t there = b + (k < n ? k : 0);
        __m256i sum[2], low[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        if (kind->split) {
            const uint8_t *l = low_bits + (size_t)(p - w) / kind->block_bytes * kind->split->low_bytes;
            prefetch_parts(p, l, 1, kind->split, AHEAD);
            kind->block_parts(p, l, kind->split, there, x, rows, sum, low);
        } else {
            for (size_t at = 0; at < kind->block_bytes; at += 64)
                _mm_prefetch((const char *)p + AHEAD + at, _MM_HINT_T0);
            kind->block(p, there, x, rows, sum, low);
        }
        heads[k] = 0;
        if (kind->d_at == D_SPREAD)
            heads[k] = ntx__spread_half(p + offsetof(struct ntx_block_iq1_m, scales));
        else
            memcpy(&heads[k], p + kind->d_at, kind->has_min ? 4 : 2);
        for (int r = 0; r < rows; r++) {
            i[r][k] = sum[r];
            j[r][k] = low[r];
        }
    }
    __m256i head = _mm256_load_si256((const void *)heads);
    __m256 d = widen_low_halves(head), min = widen_low_halves(_mm256_srli_epi32(head, 16)), live = first_lanes(n);
    if (kind->factor != 1)
        d = _mm256_mul_ps(d, _mm256_set1_ps(kind->factor));
    for (int r = 0; r < rows; r++) {
        __m256 dx = _mm256_loadu_ps(x[r].d + b);
        acc[r] = fma_live(_mm256_cvtepi32_ps(sum8x8(i[r])), _mm256_mul_ps(d, dx), acc[r], live);
        if (!kind->has_min)
            continue;
        __m256i minus = _mm256_sub_epi32(_mm256_setzero_si256(), sum8x8(j[r]));
        acc[r] = fma_live(_mm256_cvtepi32_ps(minus), _mm256_mul_ps(min, dx), acc[r], live);
    }
}

/* low: NULL, or the low bits of weights in two parts. */
INLINE void super_rows(const struct shape *s, const struct low_rows *low, uint32_t row, const int rows,
                       const struct super_kind *kind)
{
    struct q8k_row x[2];
    uint32_t nb = s->n_in / NTX_QKK;
    for (int r = 0; r < rows; r++)
        x[r] = q8k_view(s->x + (row + (size_t)r) * s->x_stride, s->n_in);
    for (uint32_t o = 0; o < s->n_out; o++) {
        const uint8_t *l = low ? low->w + o * low->row_bytes : NULL;
        __m256 acc[2][2];
        for (int r = 0; r < rows; r++)
            acc[0][r] = acc[1][r] = _mm256_setzero_ps();
        for (uint32_t b = 0; b < nb; b += 8) {
            if (nb - b >= 8)
                dot_x8(s->w + o * s->row_bytes, l, b, 8, x, rows, kind, acc[b / 8 % 2]);
            else
                dot_x8(s->w + o * s->row_bytes, l, b, nb - b, x, rows, kind, acc[b / 8 % 2]);
        }
        for (int r = 0; r < rows; r++)
            s->y[(row + (size_t)r) * s->ldy + o] = join_halves(acc[0][r], acc[1][r]);
    }
}

#define SUPER_ROWS(type, k, d_at, has_min, factor)                                                                     \
    static void rows##k##_##type(const struct shape *s, uint32_t r)                                                    \
    {                                                                                                                  \
        const struct super_kind kind = {                                                                               \
            sizeof(struct ntx_block_##type), d_at, has_min, factor, block_##type, NULL, NULL};                         \
        super_rows(s, NULL, r, k, &kind);                                                                              \
    }
#define SUPER_MATMUL(type, d_at, has_min, factor)                                                                      \
    SUPER_ROWS(type, 1, d_at, has_min, factor)                                                                         \
    SUPER_ROWS(type, 2, d_at, has_min, factor)                                                                         \
    MATMUL_BY_ROWS(type)

#endif
