/* avx2_simple.c: products with blocks of 32 (Q4_0 Q4_1 Q5_0 Q5_1 Q8_0, NTX_LOOKUPS), one or two rows of x at a time. A block is one
 * register; eight make half a set of lanes. A last octet that is not full points again at the row's last block; those lanes
 * are left out at the end, so nothing behind the weights is read. */
#include "infer/cpu/avx2.h"

enum { AHEAD = 2048 }; /* bytes to fetch ahead of use */

/* A block's integers, unsigned but for Q8_0 and values that are looked up. */
typedef __m256i block_fn(const uint8_t *w);

struct simple_kind {
    size_t block_bytes;
    block_fn *block;
    bool scale_byte; /* d is an exponent (MXFP4), not an F16 */
    int log2_offset; /* what was added to each integer; 0: nothing (Q8_0, NTX_LOOKUPS); -1: nothing, the type has a minimum at byte 2 instead */
};

INLINE __m256i nibbles(const uint8_t *p)
{
    __m128i v = load128(p);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), bytes256(15));
}

/* Bit k of 32 as 16 in byte k. */
INLINE __m256i fifths(const uint8_t *p)
{
    int bits;
    memcpy(&bits, p, 4);
    __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202,
                                                                                    0x0101010101010101, 0));
    __m256i mask = _mm256_set1_epi64x((long long)0x8040201008040201u);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask), bytes256(16));
}

INLINE __m256i block_q4_0(const uint8_t *w) { return nibbles(w + 2); }
INLINE __m256i block_q4_1(const uint8_t *w) { return nibbles(w + 4); }
INLINE __m256i block_q5_0(const uint8_t *w) { return _mm256_or_si256(nibbles(w + 6), fifths(w + 2)); }
INLINE __m256i block_q5_1(const uint8_t *w) { return _mm256_or_si256(nibbles(w + 8), fifths(w + 4)); }
INLINE __m256i block_q8_0(const uint8_t *w) { return load256(w + 2); }
#define BLOCK_LOOKUP(TYPE, type, scale, raise)                                                                                       \
    INLINE __m256i block_##type(const uint8_t *w)                                                                                    \
    {                                                                                                                                \
        const __m256i values = _mm256_broadcastsi128_si256(_mm_setr_epi8(NTX_VALUES_##type));                                        \
        return _mm256_shuffle_epi8(values, nibbles(w + offsetof(struct ntx_block_##type, qs)));                                      \
    }
NTX_LOOKUPS(BLOCK_LOOKUP)

/* d of 8 blocks of MXFP4, whose first bytes are those of the dwords: the two least are subnormal. */
INLINE __m256 widen_exponents(__m256i heads)
{
    __m256i e = _mm256_slli_epi32(_mm256_and_si256(heads, _mm256_set1_epi32(255)), 23);
    __m256i low = _mm256_add_epi32(_mm256_srli_epi32(e, 2), _mm256_set1_epi32(0x00200000)), high = _mm256_sub_epi32(e, _mm256_set1_epi32(1 << 23));
    __m256i is_low = _mm256_cmpeq_epi32(_mm256_and_si256(heads, _mm256_set1_epi32(254)), _mm256_setzero_si256());
    return _mm256_castsi256_ps(_mm256_blendv_epi8(high, low, is_low));
}

/* 32 products in 8 sums. Signed weights: |w| times x with w's sign; 128 * 127 twice still fits an int16. */
INLINE __m256i dot32(__m256i w, __m256i x, const bool is_signed)
{
    __m256i pairs = is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) : _mm256_maddubs_epi16(w, x);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Blocks b .. b + 7 for each row; n of them exist. */
INLINE void dot_octet(const uint8_t *w, uint32_t b, uint32_t n, const struct q8_row *x, const int rows, const struct simple_kind *kind,
                      __m256 *acc)
{
    __m256i i[2][8];
    uint32_t heads[8] __attribute__((aligned(32)));
    for (uint32_t k = 0; k < 8; k++) {
        const uint8_t *p = w + (size_t)(b + (k < n ? k : n - 1)) * kind->block_bytes;
        __m256i v = kind->block(p);
        memcpy(&heads[k], p, 4);
        for (int r = 0; r < rows; r++)
            i[r][k] = dot32(v, load256(x[r].q + ((size_t)b + k) * NTX_QK), kind->log2_offset == 0);
    }
    __m256i head = _mm256_load_si256((const void *)heads);
    __m256 d = kind->scale_byte ? widen_exponents(head) : widen_low_halves(head), m = widen_low_halves(_mm256_srli_epi32(head, 16)), live = first_lanes(n);
    for (int r = 0; r < rows; r++) {
        __m256 dx = _mm256_loadu_ps(x[r].d + b);
        __m256i sum = sum8x8(i[r]), s = load256(x[r].s + b);
        if (kind->log2_offset > 0)
            sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(s, kind->log2_offset));
        acc[r] = fma_live(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, dx), acc[r], live);
        if (kind->log2_offset < 0)
            acc[r] = fma_live(_mm256_cvtepi32_ps(s), _mm256_mul_ps(m, dx), acc[r], live);
    }
}

/* One output for `rows` rows of x; acc[half][row]. */
INLINE void dot_blocks(const uint8_t *w, uint32_t nb, const struct q8_row *x, const int rows, const struct simple_kind *kind,
                       __m256 acc[2][2])
{
    for (int r = 0; r < rows; r++)
        acc[0][r] = acc[1][r] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < nb; b += 8) {
        const char *p = (const char *)w + b * kind->block_bytes;
        for (size_t at = 0; at < 8 * kind->block_bytes; at += 64)
            _mm_prefetch(p + AHEAD + at, _MM_HINT_T0);
        if (nb - b >= 8)
            dot_octet(w, b, 8, x, rows, kind, acc[b / 8 % 2]);
        else
            dot_octet(w, b, nb - b, x, rows, kind, acc[b / 8 % 2]);
    }
}

INLINE void mm_rows(const struct shape *s, uint32_t row, const int rows, const struct simple_kind *kind)
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

#define SIMPLE_ROWS(type, k, scale_byte, log2_offset)                                                                 \
    static void rows##k##_##type(const struct shape *s, uint32_t r)                                                   \
    {                                                                                                                 \
        const struct simple_kind kind = {sizeof(struct ntx_block_##type), block_##type, scale_byte, log2_offset};     \
        mm_rows(s, r, k, &kind);                                                                                      \
    }
#define SIMPLE_MATMUL(type, scale_byte, log2_offset)                                                                  \
    SIMPLE_ROWS(type, 1, scale_byte, log2_offset)                                                                     \
    SIMPLE_ROWS(type, 2, scale_byte, log2_offset)                                                                     \
    MATMUL_BY_ROWS(type)

SIMPLE_MATMUL(q4_0, false, 3)
SIMPLE_MATMUL(q4_1, false, -1)
SIMPLE_MATMUL(q5_0, false, 4)
SIMPLE_MATMUL(q5_1, false, -1)
SIMPLE_MATMUL(q8_0, false, 0)
#define IS_BYTE_half false
#define IS_BYTE_e8m0 true
#define MATMUL_LOOKUP(TYPE, type, scale, raise) SIMPLE_MATMUL(type, IS_BYTE_##scale, 0)
NTX_LOOKUPS(MATMUL_LOOKUP)
