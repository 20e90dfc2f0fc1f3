/* avx2_super.c: products with super-blocks of 256 (Q2_K .. Q6_K), one or two rows of x at a time.
 *
 * 32 products at a time are summed by pairs to int16 (7 bits times 8 cannot overflow), multiplied by their sub-block's scale
 * and added up in int32; eight super-blocks make half a set of lanes. A last octet that is not full points again at the
 * row's last block; those lanes are left out at the end, so nothing behind the weights is read. */
#include "infer/cpu/avx2.h"

enum { AHEAD = 2048 }; /* bytes to fetch ahead of use */

/* Sums of block b's products for each row: i in acc, minima's in low, each spread over 8 elements. */
typedef void block_fn(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low);

/* acc += scale * (w . x) for 32 values; w of 7 bits. */
INLINE __m256i scaled_dot(__m256i acc, __m256i w, const int8_t *x, __m256i scale)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, load256(x)), scale));
}

INLINE __m256i shifted_right(__m256i v, int bits) { return bits ? _mm256_srli_epi16(v, bits) : v; }

/* Bit `from` of each byte, alone, at bit `to`. */
INLINE __m256i moved_bit(__m256i v, int from, int to)
{
    v = from > to ? _mm256_srli_epi16(v, from - to) : from < to ? _mm256_slli_epi16(v, to - from) : v;
    return _mm256_and_si256(v, bytes256(1 << to));
}

/* ---- Q4_K, Q5_K ---- */

/* 8 scales, then 8 minima, of a header d, dmin, 12 bytes; see avx512_super.c. */
INLINE __m128i unpack_scales(__m128i h)
{
    __m128i low = _mm_shuffle_epi32(h, _MM_SHUFFLE(3, 2, 3, 1)), top = _mm_shuffle_epi32(h, _MM_SHUFFLE(2, 2, 1, 1));
    low = _mm_blend_epi32(low, _mm_srli_epi32(low, 4), 8);
    low = _mm_and_si128(low, _mm_set_epi32(0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f));
    top = _mm_and_si128(_mm_srli_epi32(top, 2), _mm_set_epi32(0x30303030, 0, 0x30303030, 0));
    return _mm_or_si128(low, top);
}

INLINE void block_q45(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low, bool five)
{
    const uint8_t *qs = w + (five ? 48 : 16);
    __m128i sm = unpack_scales(load128(w)), mins = _mm_unpackhi_epi8(sm, _mm_setzero_si128());
    __m256i sc = _mm256_broadcastsi128_si256(sm), fifth = five ? load256(w + 16) : sc;
    for (int r = 0; r < rows; r++) {
        acc[r] = _mm256_setzero_si256();
        low[r] = _mm256_zextsi128_si256(_mm_madd_epi16(mins, load128(x[r].s32 + b * 8)));
    }
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        __m256i v = _mm256_and_si256(shifted_right(load256(qs + t / 2 * 32), t % 2 * 4), bytes256(15));
        __m256i s = _mm256_shuffle_epi8(sc, _mm256_set1_epi16((short)(0x8000 | t)));
        if (five)
            v = _mm256_or_si256(v, moved_bit(fifth, t, 4));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, s);
    }
}

INLINE void block_q4_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    block_q45(w, b, x, rows, acc, low, false);
}

INLINE void block_q5_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    block_q45(w, b, x, rows, acc, low, true);
}

/* ---- sub-blocks of 16: Q6_K, Q3_K, Q2_K ---- */

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
    __m256i low = _mm256_set1_epi16((short)(at | (at + 1) << 8)), high = _mm256_set1_epi16((short)((at + 2) | (at + 3) << 8));
    return _mm256_shuffle_epi8(s->half[t / 4], _mm256_blend_epi32(low, high, 0xf0));
}

/* -offset * sum of scale * (sum of 16 x): what is left of the offset inside the integers. */
INLINE __m256i offset_term(__m256i s16, const int16_t *sums, int log2_offset)
{
    __m256i p = _mm256_madd_epi16(s16, load256(sums));
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(p, log2_offset));
}

INLINE void block_q6_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    (void)low;
    __m256i s16 = _mm256_cvtepi8_epi16(load128(w + 192));
    struct scales sc = both_lanes(s16);
    for (int r = 0; r < rows; r++)
        acc[r] = offset_term(s16, x[r].s16 + b * 16, 5);
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        int u = t % 4;
        __m256i v = _mm256_and_si256(shifted_right(load256(w + t / 4 * 64 + u % 2 * 32), u / 2 * 4), bytes256(15));
        __m256i high = load256(w + 128 + t / 4 * 32);
        high = u < 2 ? _mm256_slli_epi16(high, 4 - 2 * u) : shifted_right(high, 2 * u - 4);
        v = _mm256_or_si256(v, _mm256_and_si256(high, bytes256(48)));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, scale_pair(&sc, t));
    }
}

/* The 16 scales in bytes 2..13 of a Q3_K block's last 16. */
INLINE __m256i scales_q3_k(__m128i tail)
{
    __m128i low = _mm_shuffle_epi8(tail, _mm_set_epi32(0x09080706, 0x05040302, 0x09080706, 0x05040302));
    __m128i top = _mm_shuffle_epi8(tail, _mm_set1_epi32(0x0d0c0b0a));
    low = _mm_and_si128(_mm_blend_epi32(low, _mm_srli_epi32(low, 4), 12), _mm_set1_epi8(15));
    top = _mm_or_si128(_mm_sllv_epi32(top, _mm_set_epi32(32, 0, 2, 4)), _mm_srlv_epi32(top, _mm_set_epi32(2, 32, 32, 32)));
    top = _mm_and_si128(top, _mm_set1_epi8(48));
    return _mm256_cvtepi8_epi16(_mm_sub_epi8(_mm_or_si128(low, top), _mm_set1_epi8(32)));
}

INLINE void block_q3_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    (void)low;
    __m256i s16 = scales_q3_k(load128(w + 94)), mask = load256(w);
    struct scales sc = both_lanes(s16);
    for (int r = 0; r < rows; r++)
        acc[r] = offset_term(s16, x[r].s16 + b * 16, 2);
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        __m256i v = _mm256_and_si256(shifted_right(load256(w + 32 + t / 4 * 32), t % 4 * 2), bytes256(3));
        v = _mm256_or_si256(v, moved_bit(mask, t, 2));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, scale_pair(&sc, t));
    }
}

INLINE void block_q2_k(const uint8_t *w, size_t b, const struct q8k_row *x, int rows, __m256i *acc, __m256i *low)
{
    __m128i sm = load128(w), nibble = _mm_set1_epi8(15);
    __m256i s16 = _mm256_cvtepu8_epi16(_mm_and_si128(sm, nibble));
    __m256i mins = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(sm, 4), nibble));
    struct scales sc = both_lanes(s16);
    for (int r = 0; r < rows; r++) {
        acc[r] = _mm256_setzero_si256();
        low[r] = _mm256_madd_epi16(mins, load256(x[r].s16 + b * 16));
    }
#pragma GCC unroll 8
    for (int t = 0; t < 8; t++) {
        __m256i v = _mm256_and_si256(shifted_right(load256(w + 16 + t / 4 * 32), t % 4 * 2), bytes256(3));
        for (int r = 0; r < rows; r++)
            acc[r] = scaled_dot(acc[r], v, x[r].q + b * 256 + 32 * t, scale_pair(&sc, t));
    }
}

/* ---- the common part ---- */

struct super_kind {
    size_t block_bytes, d_at; /* where d is; dmin, if any, follows it */
    bool has_min;
    block_fn *block;
};

/* Blocks b .. b + 7 for each row; n of them exist. */
INLINE void dot_octet(const uint8_t *w, uint32_t b, uint32_t n, const struct q8k_row *x, const int rows, const struct super_kind *kind,
                      __m256 *acc)
{
    __m256i i[2][8], j[2][8];
    uint32_t heads[8] __attribute__((aligned(32)));
    for (uint32_t k = 0; k < 8; k++) {
        const uint8_t *p = w + (size_t)(b + (k < n ? k : n - 1)) * kind->block_bytes;
        size_t there = b + (k < n ? k : 0);
        __m256i sum[2], low[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (size_t at = 0; at < kind->block_bytes; at += 64)
            _mm_prefetch((const char *)p + AHEAD + at, _MM_HINT_T0);
        kind->block(p, there, x, rows, sum, low);
        heads[k] = 0;
        memcpy(&heads[k], p + kind->d_at, kind->has_min ? 4 : 2);
        for (int r = 0; r < rows; r++) {
            i[r][k] = sum[r];
            j[r][k] = low[r];
        }
    }
    __m256i head = _mm256_load_si256((const void *)heads);
    __m256 d = widen_low_halves(head), min = widen_low_halves(_mm256_srli_epi32(head, 16)), live = first_lanes(n);
    for (int r = 0; r < rows; r++) {
        __m256 dx = _mm256_loadu_ps(x[r].d + b);
        acc[r] = fma_live(_mm256_cvtepi32_ps(sum8x8(i[r])), _mm256_mul_ps(d, dx), acc[r], live);
        if (!kind->has_min)
            continue;
        __m256i minus = _mm256_sub_epi32(_mm256_setzero_si256(), sum8x8(j[r]));
        acc[r] = fma_live(_mm256_cvtepi32_ps(minus), _mm256_mul_ps(min, dx), acc[r], live);
    }
}

INLINE void mm_rows(const struct shape *s, uint32_t row, const int rows, const struct super_kind *kind)
{
    struct q8k_row x[2];
    uint32_t nb = s->n_in / NTX_QKK;
    for (int r = 0; r < rows; r++)
        x[r] = q8k_view(s->x + (row + (size_t)r) * s->x_stride, s->n_in);
    for (uint32_t o = 0; o < s->n_out; o++) {
        __m256 acc[2][2];
        for (int r = 0; r < rows; r++)
            acc[0][r] = acc[1][r] = _mm256_setzero_ps();
        for (uint32_t b = 0; b < nb; b += 8) {
            if (nb - b >= 8)
                dot_octet(s->w + o * s->row_bytes, b, 8, x, rows, kind, acc[b / 8 % 2]);
            else
                dot_octet(s->w + o * s->row_bytes, b, nb - b, x, rows, kind, acc[b / 8 % 2]);
        }
        for (int r = 0; r < rows; r++)
            s->y[(row + (size_t)r) * s->ldy + o] = join_halves(acc[0][r], acc[1][r]);
    }
}

#define SUPER_ROWS(type, k, d_at, has_min)                                                                            \
    static void rows##k##_##type(const struct shape *s, uint32_t r)                                                   \
    {                                                                                                                 \
        const struct super_kind kind = {sizeof(struct ntx_block_##type), d_at, has_min, block_##type};                \
        mm_rows(s, r, k, &kind);                                                                                      \
    }
#define SUPER_MATMUL(type, d_at, has_min)                                                                             \
    SUPER_ROWS(type, 1, d_at, has_min)                                                                                \
    SUPER_ROWS(type, 2, d_at, has_min)                                                                                \
    MATMUL_BY_ROWS(type)

SUPER_MATMUL(q2_k, 80, true)
SUPER_MATMUL(q3_k, 108, false)
SUPER_MATMUL(q4_k, 0, true)
SUPER_MATMUL(q5_k, 0, true)
SUPER_MATMUL(q6_k, 208, false)
