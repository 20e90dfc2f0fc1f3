/* avx512_super.c: products with super-blocks of 256 (Q2_K .. Q6_K), one to four rows of x at a time.
 *
 * Four super-blocks make a quad: their headers are unpacked together, one to a 128-bit lane; each one's 256 products are
 * summed by pairs to int16 (7 bits times 8 cannot overflow), multiplied by their sub-block's scale and added up in int32;
 * the quad's sums end in one register, super-block k in 128-bit lane k. Four quads are 16 blocks: a full set of lanes.
 *
 * A last quad that is not full points again at the row's last block: x is zero there and those lanes are masked at the end,
 * so nothing behind the weights is read. */
#include "infer/cpu/avx512_bits.h"

/* Four super-blocks of weights, and where they meet x. */
struct quad {
    const uint8_t *w[4];
    uint32_t block; /* number of the first */
};

/* What a quad gives per row of x: sums of the four blocks, each spread over the four elements of its 128-bit lane. */
struct quad_sums {
    __m512i i, j;
};

/* What a quad's headers hold, for types that unpack them ahead. */
struct quad_heads {
    int32_t scales[2][4][4] __attribute__((aligned(64))); /* pairs of int16: [half of the sub-blocks][block][sub-block] */
};

typedef void head_fn(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d, struct quad_heads *heads);
typedef void quad_fn(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d, const struct quad_heads *heads);

INLINE __m512i four_lanes(const struct quad *q, size_t at)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(q->w[0] + at)));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(q->w[1] + at)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(q->w[2] + at)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)(q->w[3] + at)), 3);
}

/* acc += scale * (w . x) for 64 values; w of 7 bits. */
INLINE __m512i scaled_dot(__m512i acc, __m512i w, const int8_t *x, __m512i scale)
{
    return _mm512_dpwssd_epi32(acc, _mm512_maddubs_epi16(w, load512(x)), scale);
}

/* Index for byte shuffles: unsigned bytes s .. s + 3 of each lane as int16, one for each 128-bit lane. */
INLINE __m512i pick_quarters(int s)
{
    const long long one = 0x0001000100010001, v = (long long)(0x8000800080008000u + 0x0001000100010001u * (unsigned)s);
    return _mm512_set_epi64(v + 3 * one, v + 3 * one, v + 2 * one, v + 2 * one, v + one, v + one, v, v);
}

/* ---- Q4_K, Q5_K: header d, dmin, 12 bytes of scales and minima. By half registers, a sub-block each: its scale is then one pair of
 * int16 that the multiplication itself spreads from memory, where whole ones would need a shuffle. ---- */

/* Sub-blocks 2 t and 2 t + 1 of block w. */
INLINE void two_sub_blocks(const uint8_t *w, const int t, const bool five, __m256i out[2])
{
    const __m256i low = _mm256_set1_epi8(15), top = _mm256_set1_epi8(16);
    __m256i v = load256(w + (five ? 48 : 16) + 32 * t);
    out[0] = _mm256_and_si256(v, low);
    out[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    if (five) { /* bits 2 t and 2 t + 1 of 32 bytes */
        __m256i h = load256(w + 16);
        out[0] = _mm256_ternarylogic_epi32(out[0], t < 2 ? _mm256_slli_epi16(h, 4 - 2 * t) : _mm256_srli_epi16(h, 2 * t - 4), top, 0xf8);
        out[1] = _mm256_ternarylogic_epi32(out[1], t < 2 ? _mm256_slli_epi16(h, 3 - 2 * t) : _mm256_srli_epi16(h, 2 * t - 3), top, 0xf8);
    }
}

/* Scales s .. s + 3 of each 128-bit lane as pairs of int16. */
INLINE __m512i scale_pairs(__m512i scales, int s)
{
    const __m512i at = _mm512_set4_epi32((int)0x80038003, (int)0x80028002, (int)0x80018001, (int)0x80008000);
    return _mm512_shuffle_epi8(scales, _mm512_add_epi8(at, _mm512_set1_epi16((short)s)));
}

INLINE void head_q45(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d, struct quad_heads *heads)
{
    __m512i head = four_lanes(q, 0), sm = unpack_scales(head);
    __m512i mins = _mm512_unpackhi_epi8(sm, _mm512_setzero_si512());
    _mm512_store_si512(heads->scales[0], scale_pairs(sm, 0));
    _mm512_store_si512(heads->scales[1], scale_pairs(sm, 4));
    __asm__("" : "+m"(*heads)); /* loads that spread are free, shuffles are not */
    *d = head;
    for (int r = 0; r < rows; r++)
        out[r].j = _mm512_madd_epi16(mins, load512(x[r].s32 + (size_t)q->block * 8));
}

INLINE void quad_q45(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, const struct quad_heads *heads, const bool five)
{
    __m256i acc[4][4];
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < 4; k++)
            acc[r][k] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int t = 0; t < 4; t++)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) { /* four sums take turns: each product waits for the one before it */
            __m256i v[2];
            two_sub_blocks(q->w[k], t, five, v);
            for (int h = 0; h < 2; h++)
                for (int r = 0; r < rows; r++) {
                    __m256i p = _mm256_maddubs_epi16(v[h], load256(x[r].q + (size_t)(q->block + k) * 256 + 64 * t + 32 * h));
                    acc[r][k] = _mm256_dpwssd_epi32(acc[r][k], p, _mm256_set1_epi32(heads->scales[t / 2][k][t % 2 * 2 + h]));
                }
        }
    for (int r = 0; r < rows; r++)
        out[r].i = fold_halves(acc[r]);
}

INLINE void quad_q4_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d, const struct quad_heads *heads)
{
    (void)d;
    quad_q45(q, x, rows, out, heads, false);
}

INLINE void quad_q5_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d, const struct quad_heads *heads)
{
    (void)d;
    quad_q45(q, x, rows, out, heads, true);
}

/* ---- Q6_K: w = scale * (q - 32) = scale * q - 32 * scale, the latter through x's sums of 16 ---- */

/* -offset * sum of scale * (sum of 16 x): what is left of the offset inside the integers. 8 lanes used. */
INLINE __m512i offset_term(__m256i s16, const int16_t *sums, int log2_offset)
{
    __m256i p = _mm256_madd_epi16(s16, _mm256_loadu_si256((const void *)sums));
    return _mm512_zextsi256_si512(_mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(p, log2_offset)));
}

INLINE void quad_q6_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d, const struct quad_heads *heads)
{
    (void)heads;
    __m512i acc[4][4];
    for (int k = 0; k < 4; k++) {
        const uint8_t *w = q->w[k];
        size_t b = q->block + (size_t)k;
        __m256i s16 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(w + 192)));
        for (int r = 0; r < rows; r++)
            acc[r][k] = offset_term(s16, x[r].s16 + b * 16, 5);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512i v = six_bits(w, t), s = spread_scales(s16, t);
            for (int r = 0; r < rows; r++)
                acc[r][k] = scaled_dot(acc[r][k], v, x[r].q + b * 256 + 64 * t, s);
        }
    }
    *d = _mm512_shuffle_epi32(_mm512_srli_epi32(four_lanes(q, 194), 16), _MM_PERM_AAAD); /* d is the block's last half word */
    for (int r = 0; r < rows; r++)
        out[r].i = fold4(acc[r]);
}

/* ---- Q3_K: w = scale * (q - 4), q of 3 bits, scales of 6 bits minus 32 ---- */

INLINE void quad_q3_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d, const struct quad_heads *heads)
{
    (void)heads;
    int8_t scales[64] __attribute__((aligned(64)));
    __m512i acc[4][4], tail = four_lanes(q, 94);
    _mm512_store_si512(scales, unpack_scales_q3_k(tail));
    for (int k = 0; k < 4; k++) {
        const uint8_t *w = q->w[k];
        size_t b = q->block + (size_t)k;
        __m256i s16 = _mm256_cvtepi8_epi16(_mm_load_si128((const void *)(scales + 16 * k)));
        for (int r = 0; r < rows; r++)
            acc[r][k] = offset_term(s16, x[r].s16 + b * 16, 2);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512i v = three_bits(w, t), s = spread_scales(s16, t);
            for (int r = 0; r < rows; r++)
                acc[r][k] = scaled_dot(acc[r][k], v, x[r].q + b * 256 + 64 * t, s);
        }
    }
    *d = _mm512_shuffle_epi32(_mm512_srli_epi32(tail, 16), _MM_PERM_AAAD);
    for (int r = 0; r < rows; r++)
        out[r].i = fold4(acc[r]);
}

/* ---- Q2_K: nibbles of scale and minimum per 16 values ---- */

INLINE void quad_q2_k(const struct quad *q, const struct q8k_row *x, int rows, struct quad_sums *out, __m512i *d, const struct quad_heads *heads)
{
    (void)heads;
    uint8_t scales[64] __attribute__((aligned(64))), mins[64] __attribute__((aligned(64)));
    __m512i acc[4][4], sm = four_lanes(q, 0);
    _mm512_store_si512(scales, _mm512_and_si512(sm, bytes512(15)));
    _mm512_store_si512(mins, _mm512_and_si512(_mm512_srli_epi16(sm, 4), bytes512(15)));
    __m512i mins01 = _mm512_cvtepu8_epi16(_mm256_load_si256((const void *)mins));
    __m512i mins23 = _mm512_cvtepu8_epi16(_mm256_load_si256((const void *)(mins + 32)));
    for (int r = 0; r < rows; r++) { /* 8 sums for each block, two 128-bit lanes */
        const int16_t *sums = x[r].s16 + (size_t)q->block * 16;
        __m512i a = _mm512_madd_epi16(mins01, load512(sums)), b = _mm512_madd_epi16(mins23, load512(sums + 32));
        out[r].j = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
    }
    for (int k = 0; k < 4; k++) {
        const uint8_t *w = q->w[k];
        __m512i sc = _mm512_broadcast_i32x4(_mm_load_si128((const void *)(scales + 16 * k)));
        for (int r = 0; r < rows; r++)
            acc[r][k] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512i v = two_bits(w + 16, t);
            __m512i s = _mm512_shuffle_epi8(sc, pick_quarters(4 * t));
            for (int r = 0; r < rows; r++)
                acc[r][k] = scaled_dot(acc[r][k], v, x[r].q + (size_t)(q->block + k) * 256 + 64 * t, s);
        }
    }
    *d = _mm512_shuffle_epi32(four_lanes(q, 68), _MM_PERM_AAAD); /* d and dmin are the block's last dword */
    for (int r = 0; r < rows; r++)
        out[r].i = fold4(acc[r]);
}

/* ---- the common part ---- */

/* Element 4 k + g of the quads' joined sums is block 4 g + k. */
INLINE __m512i natural_order(__m512i v)
{
    return _mm512_permutexvar_epi32(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), v);
}

/* One output for `rows` rows of x. */
INLINE void dot_blocks(const uint8_t *w, uint32_t nb, const struct q8k_row *x, const int rows, __m512 *acc, size_t block_bytes,
                       const bool has_min, head_fn *head, quad_fn *quad)
{
    const bool far = ntx__cpu_fetch_far;
    for (int r = 0; r < rows; r++)
        acc[r] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < nb; b += LANES) {
        struct quad_sums sums[4][4];
        struct quad_heads heads[4];
        struct quad quads[4];
        __m512i d[4];
        for (uint32_t g = 0; g < 4; g++) {
            struct quad q = {.block = b + 4 * g};
            const uint8_t *p = w + (size_t)q.block * block_bytes;
            prefetch_weights(p, 4 * block_bytes, 3584, far);
            if (q.block + 4 <= nb) {
                for (int k = 0; k < 4; k++)
                    q.w[k] = p + k * block_bytes;
            } else if (q.block < nb) {
                for (uint32_t k = 0; k < 4; k++)
                    q.w[k] = w + (size_t)(q.block + k < nb ? q.block + k : nb - 1) * block_bytes;
            } else {
                d[g] = _mm512_setzero_si512();
                for (int r = 0; r < rows; r++)
                    sums[g][r].i = sums[g][r].j = d[g];
                quads[g].block = nb;
                continue;
            }
            quads[g] = q;
            if (head) /* all of them first, since each waits longer for its headers than for its weights */
                head(&quads[g], x, rows, sums[g], &d[g], &heads[g]);
        }
        for (uint32_t g = 0; g < 4 && quads[g].block < nb; g++)
            quad(&quads[g], x, rows, sums[g], &d[g], &heads[g]);
        __m512i dw = natural_order(_mm512_unpacklo_epi64(_mm512_unpacklo_epi32(d[0], d[1]), _mm512_unpacklo_epi32(d[2], d[3])));
        __m512 scale = widen_low_halves(dw), min = widen_low_halves(_mm512_srli_epi32(dw, 16));
        __mmask16 live = first_lanes(nb - b);
        for (int r = 0; r < rows; r++) {
            __m512 dx = _mm512_loadu_ps(x[r].d + b);
            __m512i i = natural_order(sum4x4(sums[0][r].i, sums[1][r].i, sums[2][r].i, sums[3][r].i));
            acc[r] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(i), _mm512_mul_ps(scale, dx), acc[r], live);
            if (!has_min)
                continue;
            __m512i j = natural_order(sum4x4(sums[0][r].j, sums[1][r].j, sums[2][r].j, sums[3][r].j));
            j = _mm512_sub_epi32(_mm512_setzero_si512(), j);
            acc[r] = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(j), _mm512_mul_ps(min, dx), acc[r], live);
        }
    }
}

/* All outputs for rows r .. r + rows - 1. */
INLINE void mm_rows(const struct shape *s, uint32_t r, const int rows, size_t block_bytes, const bool has_min, head_fn *head, quad_fn *quad)
{
    struct q8k_row x[4];
    for (int k = 0; k < rows; k++)
        x[k] = q8k_view(s->x + (r + (size_t)k) * s->x_stride, s->n_in);
    for (uint32_t o = 0; o < s->n_out; o++) {
        __m512 acc[4];
        dot_blocks(s->w + o * s->row_bytes, s->n_in / NTX_QKK, x, rows, acc, block_bytes, has_min, head, quad);
        for (int k = 0; k < rows; k++)
            s->y[(r + (size_t)k) * s->ldy + o] = join_ps(acc[k]);
    }
}

#define SUPER_ROWS(type, k, has_min, head)                                                                         \
    static void rows##k##_##type(const struct shape *s, uint32_t r)                                                \
    {                                                                                                                 \
        mm_rows(s, r, k, sizeof(struct ntx_block_##type), has_min, head, quad_##type);                                        \
    }
#define SUPER_MATMUL(type, has_min, head)                                                                             \
    SUPER_ROWS(type, 1, has_min, head)                                                                                \
    SUPER_ROWS(type, 2, has_min, head)                                                                                \
    SUPER_ROWS(type, 4, has_min, head)                                                                                \
    MATMUL_BY_ROWS(type)

SUPER_MATMUL(q2_k, true, NULL)
SUPER_MATMUL(q3_k, false, NULL)
SUPER_MATMUL(q4_k, true, head_q45)
SUPER_MATMUL(q5_k, true, head_q45)
SUPER_MATMUL(q6_k, false, NULL)
