/* SPDX-License-Identifier: Apache-2.0 */
/* avx2_simple.c: products with blocks of 32 (Q4_0 Q4_1 Q5_0 Q5_1 Q8_0, NTX_LOOKUPS) or of several 32s that share a
 * head (Q1_0 Q2_0 NVFP4), one or two rows of x at a time. 32 values are one register; eight of these are half of the
 * lanes. If the last eight are not complete, the row's last 32 values are repeated; their lanes are dropped at the
 * end. So nothing after the weights is read. */
#include "computed/cpu/avx2.h"

enum { AHEAD = 2048 }; /* bytes to fetch ahead of use */

/* The integers of the part-th 32 values of a block, unsigned where log2_offset is not 0. */
typedef __m256i block_fn(const uint8_t *w, uint32_t part);

enum scales { HALF_WORD, EXPONENT /* a byte */, TWO_E4M3 /* bytes, of 16 values each */ };

struct simple_kind {
    size_t block_bytes;
    uint32_t parts; /* of a block: 1, 2 or 4 */
    block_fn *block;
    enum scales scales;
    /* what was added to each integer; 0: nothing, integers are signed; -1: nothing, the type has a minimum at
     * byte 2 */
    int log2_offset;
};

INLINE __m256i nibbles(const uint8_t *p)
{
    __m128i v = load128(p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), bytes256(15));
}

/* Byte k is all ones if bit k of 32 is set, else 0. */
INLINE __m256i bit_mask(const uint8_t *p)
{
    int bits;
    memcpy(&bits, p, 4);
    __m256i spread = _mm256_shuffle_epi8(
        _mm256_set1_epi32(bits), _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0));
    __m256i mask = _mm256_set1_epi64x((long long)0x8040201008040201u);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
}

INLINE __m256i fifths(const uint8_t *p) { return _mm256_and_si256(bit_mask(p), bytes256(16)); }

INLINE __m256i block_q4_0(const uint8_t *w, uint32_t part)
{
    (void)part;
    return nibbles(w + 2);
}
INLINE __m256i block_q4_1(const uint8_t *w, uint32_t part)
{
    (void)part;
    return nibbles(w + 4);
}
INLINE __m256i block_q5_0(const uint8_t *w, uint32_t part)
{
    (void)part;
    return _mm256_or_si256(nibbles(w + 6), fifths(w + 2));
}
INLINE __m256i block_q5_1(const uint8_t *w, uint32_t part)
{
    (void)part;
    return _mm256_or_si256(nibbles(w + 8), fifths(w + 4));
}
INLINE __m256i block_q8_0(const uint8_t *w, uint32_t part)
{
    (void)part;
    return load256(w + 2);
}
#define BLOCK_LOOKUP(TYPE, type, scale, raise)                                                                         \
    INLINE __m256i block_##type(const uint8_t *w, uint32_t part)                                                       \
    {                                                                                                                  \
        (void)part;                                                                                                    \
        const __m256i values = _mm256_broadcastsi128_si256(_mm_setr_epi8(NTX_VALUES_##type));                          \
        return _mm256_shuffle_epi8(values, nibbles(w + offsetof(struct ntx_block_##type, qs)));                        \
    }
NTX_LOOKUPS(BLOCK_LOOKUP)

INLINE __m256i block_q1_0(const uint8_t *w, uint32_t part)
{
    const __m256i plus = bit_mask(w + 2 + 4 * part);
    return _mm256_or_si256(_mm256_andnot_si256(plus, bytes256(-1)), bytes256(1));
}

/* A byte has four values; it becomes their dword. */
INLINE __m256i block_q2_0(const uint8_t *w, uint32_t part)
{
    __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(w + 2 + 8 * part)));
    v = _mm256_or_si256(_mm256_or_si256(v, _mm256_slli_epi32(v, 6)),
                        _mm256_or_si256(_mm256_slli_epi32(v, 12), _mm256_slli_epi32(v, 18)));
    return _mm256_sub_epi8(_mm256_and_si256(v, bytes256(3)), bytes256(1));
}

/* Each 16 values have eight bytes: low nibbles, then high ones. */
INLINE __m256i block_nvfp4(const uint8_t *w, uint32_t part)
{
    const __m128i v = load128(w + 4 + 16 * part), nibble = _mm_set1_epi8(15), values = _mm_setr_epi8(NTX_VALUES_mxfp4);
    const __m128i low = _mm_shuffle_epi8(values, _mm_and_si128(v, nibble)),
                  high = _mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16(v, 4), nibble));
    return _mm256_set_m128i(_mm_unpackhi_epi64(low, high), _mm_unpacklo_epi64(low, high));
}

/* d of 8 blocks of MXFP4: the first byte of each dword is the exponent. The two smallest exponents are subnormal. */
INLINE __m256 widen_exponents(__m256i heads)
{
    __m256i e = _mm256_slli_epi32(_mm256_and_si256(heads, _mm256_set1_epi32(255)), 23);
    __m256i low = _mm256_add_epi32(_mm256_srli_epi32(e, 2), _mm256_set1_epi32(0x00200000)),
            high = _mm256_sub_epi32(e, _mm256_set1_epi32(1 << 23));
    __m256i is_low = _mm256_cmpeq_epi32(_mm256_and_si256(heads, _mm256_set1_epi32(254)), _mm256_setzero_si256());
    return _mm256_castsi256_ps(_mm256_blendv_epi8(high, low, is_low));
}

/* Half of E4M3s without a sign, a byte of a dword each; 0x7f counts as 0 (ntx_e4m3_half_float). */
INLINE __m256 widen_e4m3(__m256i x)
{
    const __m256i bits = _mm256_add_epi32(_mm256_slli_epi32(_mm256_and_si256(x, _mm256_set1_epi32(127)), 20),
                                          _mm256_set1_epi32(119 << 23));
    const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32(7))),
                                       _mm256_set1_ps(0x1p-10f));
    const __m256i is_small = _mm256_cmpeq_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0x78)), _mm256_setzero_si256());
    __m256 v = _mm256_blendv_ps(_mm256_castsi256_ps(bits), small, _mm256_castsi256_ps(is_small));
    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x, _mm256_set1_epi32(127))), v);
}

/* 32 products in 8 sums. Signed weights: |w| times x with w's sign; 128 * 127 twice still fits an int16. */
INLINE __m256i dot32(__m256i w, __m256i x, const bool is_signed)
{
    __m256i pairs = is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                              : _mm256_maddubs_epi16(w, x);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* The heads of eight 32s as scales: d and m, or of the first and second 16. */
INLINE void widen_heads(__m256i heads, enum scales scales, __m256 *d, __m256 *m)
{
    if (scales == TWO_E4M3) {
        *d = widen_e4m3(_mm256_and_si256(heads, _mm256_set1_epi32(255)));
        *m = widen_e4m3(_mm256_and_si256(_mm256_srli_epi32(heads, 8), _mm256_set1_epi32(255)));
    } else {
        *d = scales == EXPONENT ? widen_exponents(heads) : widen_low_halves(heads);
        *m = widen_low_halves(_mm256_srli_epi32(heads, 16));
    }
}

/* 32s b .. b + 7 for each row; n of them exist. */
INLINE void dot_x8(const uint8_t *w, uint32_t b, uint32_t n, const struct q8_row *x, const int rows,
                   const struct simple_kind *kind, __m256 *acc)
{
    const bool halves = kind->scales == TWO_E4M3;
    __m256i i[2][8];
    uint32_t heads[8] __attribute__((aligned(32)));
    for (uint32_t k = 0; k < 8; k++) {
        const uint32_t at = b + (k < n ? k : n - 1), part = at % kind->parts;
        const uint8_t *p = w + (size_t)(at / kind->parts) * kind->block_bytes;
        __m256i v = kind->block(p, part);
        memcpy(&heads[k], p + (halves ? 2 * part : 0), 4);
        for (int r = 0; r < rows; r++)
            i[r][k] = dot32(v, load256(x[r].q + ((size_t)b + k) * NTX_QK), kind->log2_offset == 0);
    }
    __m256 d, m, live = first_lanes(n);
    widen_heads(_mm256_load_si256((const void *)heads), kind->scales, &d, &m);
    for (int r = 0; r < rows; r++) {
        __m256 dx = _mm256_loadu_ps(x[r].d + b);
        __m256i first = sum4x4(i[r]), last = sum4x4(i[r] + 4),
                s = load256(x[r].s + b); /* of four each, the first 16 values in the lower lane */
        __m256i sum = _mm256_permute2x128_si256(first, last, 0x20),
                second = _mm256_permute2x128_si256(first, last, 0x31);
        if (!halves)
            sum = _mm256_add_epi32(sum, second);
        if (kind->log2_offset > 0)
            sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(s, kind->log2_offset));
        acc[r] = fma_live(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, dx), acc[r], live);
        if (halves || kind->log2_offset < 0)
            acc[r] = fma_live(_mm256_cvtepi32_ps(halves ? second : s), _mm256_mul_ps(m, dx), acc[r], live);
    }
}

/* One output for `rows` rows of x; acc[half][row]. */
INLINE void dot_blocks(const uint8_t *w, uint32_t nb, const struct q8_row *x, const int rows,
                       const struct simple_kind *kind, __m256 acc[2][2])
{
    for (int r = 0; r < rows; r++)
        acc[0][r] = acc[1][r] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < nb; b += 8) {
        const char *p = (const char *)w + b / kind->parts * kind->block_bytes;
        for (size_t at = 0; at < 8 / kind->parts * kind->block_bytes; at += 64)
            _mm_prefetch(p + AHEAD + at, _MM_HINT_T0);
        if (nb - b >= 8)
            dot_x8(w, b, 8, x, rows, kind, acc[b / 8 % 2]);
        else
            dot_x8(w, b, nb - b, x, rows, kind, acc[b / 8 % 2]);
    }
}

INLINE void simple_rows(const struct shape *s, uint32_t row, const int rows, const struct simple_kind *kind)
{
    struct q8_row x[2];
    for (int r = 0; r < rows; r++)
        x[r] = q8_view(s->x + (row + (size_t)r) * s->x_stride, s->n_in);
    for (uint32_t o = 0; o < s->n_out; o++) {
        __m256 acc[2][2];
        dot_blocks(s->w + o * s->row_bytes, s->n_in / NTX_QK, x, rows, kind, acc);
        for (int r = 0; r < rows; r++)
            s->y[(row + (size_t)r) * s->ldy + o] = join_halves(acc[0][r], acc[1][r]);
    }
}

#define SIMPLE_ROWS(type, k, parts, scales, log2_offset)                                                               \
    static void rows##k##_##type(const struct shape *s, uint32_t r)                                                    \
    {                                                                                                                  \
        const struct simple_kind kind = {sizeof(struct ntx_block_##type), parts, block_##type, scales, log2_offset};   \
        simple_rows(s, r, k, &kind);                                                                                   \
    }
#define SIMPLE_MATMUL(type, parts, scales, log2_offset)                                                                \
    SIMPLE_ROWS(type, 1, parts, scales, log2_offset)                                                                   \
    SIMPLE_ROWS(type, 2, parts, scales, log2_offset)                                                                   \
    MATMUL_BY_ROWS(type)

SIMPLE_MATMUL(q4_0, 1, HALF_WORD, 3)
SIMPLE_MATMUL(q4_1, 1, HALF_WORD, -1)
SIMPLE_MATMUL(q5_0, 1, HALF_WORD, 4)
SIMPLE_MATMUL(q5_1, 1, HALF_WORD, -1)
SIMPLE_MATMUL(q8_0, 1, HALF_WORD, 0)
SIMPLE_MATMUL(q1_0, 4, HALF_WORD, 0)
SIMPLE_MATMUL(q2_0, 2, HALF_WORD, 0)
SIMPLE_MATMUL(nvfp4, 2, TWO_E4M3, 0)
#define SCALES_OF_half                          HALF_WORD
#define SCALES_OF_e8m0                          EXPONENT
#define MATMUL_LOOKUP(TYPE, type, scale, raise) SIMPLE_MATMUL(type, 1, SCALES_OF_##scale, 0)
NTX_LOOKUPS(MATMUL_LOOKUP)
