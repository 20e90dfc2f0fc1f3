/* SPDX-License-Identifier: Apache-2.0 */
/* attn_q8.h: attention over K and V in Q8_0, and in Q4_0 after unpacking (attn_q4.h), by integer products: the query
 * heads that share a KV head, of one row or of several at adjacent positions. Included by ops.h, compiled per
 * instruction set.
 *
 * As attn.h it works in parts of PART positions, with a running maximum and sums. Products are sums of integers and so
 * exact. A score is, for each 32 values of the head in order, the integer product of q and K, multiplied by both
 * scales and added, fused. Weights of V are integers, too: for each 32 values of V, a position's weight times its
 * scale, as 15 bits of the part's largest. So the bits depend neither on the instruction set nor on how heads and rows
 * are grouped: groups only share loads.
 *
 * K's bytes are stored in the order in which products of four bytes take them, positions side by side; V's values side
 * by side, four positions each (cpu.h). Both are read from start to end. A vector here is a query head of a row. */
#ifndef NTX_COMPUTED_CPU_ATTN_Q8_H
#define NTX_COMPUTED_CPU_ATTN_Q8_H

#include "computed/cpu/attn.h"
#include "computed/cpu/attn_q4.h"

enum {
    BLOCKS = NTX_MAX_HEAD / 32,
    TOKENS = NTX_KV_Q8_TOKENS,
    SCORED = WIDTH == 16 ? 4 : 2, /* vectors of a tile of scores */
    SUMMED = 6,                   /* vectors that go over V together, a block of positions at a time */
    TILED = WIDTH == 16 ? 2 : 1,  /* vectors of a tile of values */
    PANEL = NTX_KV_Q8_PANEL,
    PAIR = PANEL / 32,
    SPANS = WIDTH == 16 ? PANEL / 16 : 2, /* spans of 16 values of a tile of values */
    WEIGHT_MAX = 32767,
    BIAS_SPAN = NTX_TURNS_FAR * TOKENS, /* positions */
};
/* A part whose largest scaled weight is smaller counts as 0: the inverse could overflow. */
#define WEIGHT_LEAST 0x1p-100f

#if defined(__AVX512VNNI__)
enum { BIAS = 128 }; /* K's bytes are unsigned, 128 too large; sums begin with what corrects this */
struct weights {     /* of four positions, for PAIR times 32 values of V */
    struct {
        uint8_t high[4], low[4];
    } of[PAIR];
};
struct sums { /* of 16 values */
    __m512i high, low;
};
#else
enum { BIAS = 0 };
struct weights {
    int16_t of[PAIR][4];
};
#if defined(__AVX2__)
struct sums { /* of 4 values each, of positions 0 and 1, 2 and 3 of four */
    __m256i four[4];
};
#else
struct sums {
    int32_t one[16];
};
#endif
#endif

struct q8 {
    int8_t q[NTX_ATTN_VECTORS][NTX_MAX_HEAD];
    float q_scale[NTX_ATTN_VECTORS][BLOCKS];
    int32_t q_start[NTX_ATTN_VECTORS][BLOCKS]; /* start value of a sum of products */
    float w[NTX_ATTN_VECTORS][PART];           /* scores, then weights */
    float v_scale[BLOCKS][PART];
    struct weights u[NTX_MAX_HEAD / PANEL][PART / 4][SUMMED];
    struct sums sums[SUMMED][NTX_MAX_HEAD / 16];
    float step[SUMMED][BLOCKS]; /* the weight of integer 1 */
    float max[NTX_ATTN_VECTORS];
    struct f16 sum[NTX_ATTN_VECTORS];
    uint32_t n_vectors, end, first, n; /* end: positions that the last row sees; n: positions of the part */
    /* Blocks that the present products prefetch: they lie ahead_by positions further, up to ahead_end. Bytes of a
     * head's values in them, and lines per step (fetch_lines). */
    const void *const *ahead;
    uint32_t ahead_by, ahead_end, ahead_bytes, ahead_lines;
    bool ahead_alike;                /* of V while V is multiplied: at the same place of each block */
    uint32_t from_v, to_v;           /* values of a head of V that are summed: multiples of 32 */
    uint32_t fetch_k, fetch_v;       /* bytes of a head's values */
    const uint8_t *v[PART / TOKENS]; /* blocks of the part */
    bool odd;                        /* a scale of V is NaN or infinite */
    uint32_t span;                   /* positions / BIAS_SPAN that `start` is of; UINT32_MAX: none yet */
    double start[NTX_BIAS_PAIRS][2]; /* cosine and sine where the span begins */
};

/* ---- integer products */

INLINE struct i16 splat_int(int32_t n)
{
    struct i16 v;
    EACH_PART v.p[i] = n - (ipart){0};
    return v;
}

/* Adds the products of four bytes of K of 16 positions and four bytes of q. */
INLINE struct i16 add_scores(struct i16 acc, const uint8_t *k, int32_t q)
{
#if defined(__AVX512VNNI__)
    acc.p[0] = (ipart)_mm512_dpbusd_epi32((__m512i)acc.p[0], _mm512_loadu_si512(k), _mm512_set1_epi32(q));
#elif defined(__AVX2__)
    EACH_PART
    {
        __m256i x = _mm256_xor_si256(_mm256_loadu_si256((const void *)(k + 32 * i)), _mm256_set1_epi8(-128));
        __m256i pairs = _mm256_maddubs_epi16(
            _mm256_abs_epi8(x), _mm256_sign_epi8(_mm256_set1_epi32(q), x)); /* two products of 127 * 127 fit */
        acc.p[i] += (ipart)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    }
#else
    int8_t x[4];
    memcpy(x, &q, sizeof x);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 4; j++)
            acc.p[i / WIDTH][i % WIDTH] += (k[4 * i + j] - 128) * x[j];
#endif
    return acc;
}

INLINE struct f16 as_floats(struct i16 v)
{
    struct f16 f;
#if defined(__AVX512F__)
    f.p[0] = (fpart)_mm512_cvtepi32_ps((__m512i)v.p[0]);
#elif defined(__AVX2__)
    EACH_PART f.p[i] = (fpart)_mm256_cvtepi32_ps((__m256i)v.p[i]);
#else
    for (int i = 0; i < 16; i++)
        f.p[i / WIDTH][i % WIDTH] = (float)v.p[i / WIDTH][i % WIDTH];
#endif
    return f;
}

/* s += weights of four positions times 16 values of V. which: the pair's first or second 32 values. */
INLINE struct sums add_values(struct sums s, const struct weights *u, const int which, const uint8_t *v)
{
#if defined(__AVX512VNNI__)
    int32_t high, low;
    memcpy(&high, u->of[which].high, 4);
    memcpy(&low, u->of[which].low, 4);
    __m512i x = _mm512_loadu_si512(v);
    s.high = _mm512_dpbusd_epi32(s.high, _mm512_set1_epi32(high), x);
    s.low = _mm512_dpbusd_epi32(s.low, _mm512_set1_epi32(low), x);
#elif defined(__AVX2__)
    int64_t w;
    memcpy(&w, u->of[which], sizeof w);
    for (int i = 0; i < 4; i++)
        s.four[i] = _mm256_add_epi32(
            s.four[i], _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(v + 16 * i))),
                                         _mm256_set1_epi64x(w)));
#else
    for (int i = 0; i < 64; i++)
        s.one[i / 4] += u->of[which][i % 4] * (int8_t)v[i];
#endif
    return s;
}

INLINE struct f16 all_sums(struct sums s)
{
    struct i16 v;
#if defined(__AVX512VNNI__)
    v.p[0] = (ipart)_mm512_add_epi32(_mm512_slli_epi32(s.high, 8), s.low);
#elif defined(__AVX2__)
    EACH_PART v.p[i] = (ipart)_mm256_permute4x64_epi64(_mm256_hadd_epi32(s.four[2 * i], s.four[2 * i + 1]), 0xd8);
#else
    memcpy(&v, s.one, sizeof v);
#endif
    return as_floats(v);
}

/* Stores the low 15 bits of two times 16 integers as a vector's weights of 16 positions for a pair. Weights of four
 * positions are `apart` structs from the next four. */
INLINE void store_weights(struct weights *u, const size_t apart, struct i16 first, struct i16 second)
{
    _Static_assert(PAIR == 2 && sizeof *u == 16, "as stored");
#if defined(__AVX512VNNI__)
    const __m128i order = _mm_setr_epi8(1, 5, 9, 13, 0, 4, 8, 12, 3, 7, 11, 15, 2, 6, 10, 14);
    __m512i v = _mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)first.p[0], _mm512_slli_epi32((__m512i)second.p[0], 16));
    v = _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(order));
    _mm_storeu_si128((void *)u, _mm512_castsi512_si128(v));
    _mm_storeu_si128((void *)(u + apart), _mm512_extracti32x4_epi32(v, 1));
    _mm_storeu_si128((void *)(u + 2 * apart), _mm512_extracti32x4_epi32(v, 2));
    _mm_storeu_si128((void *)(u + 3 * apart), _mm512_extracti32x4_epi32(v, 3));
#elif defined(__AVX2__)
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    EACH_PART
    {
        __m256i v = _mm256_blend_epi16((__m256i)first.p[i], _mm256_slli_epi32((__m256i)second.p[i], 16), 0xaa);
        v = _mm256_shuffle_epi8(v, order);
        _mm_storeu_si128((void *)(u + (size_t)(2 * i) * apart), _mm256_castsi256_si128(v));
        _mm_storeu_si128((void *)(u + (size_t)(2 * i + 1) * apart), _mm256_extracti128_si256(v, 1));
    }
#else
    for (int i = 0; i < 16; i++) {
        u[(size_t)(i / 4) * apart].of[0][i % 4] = (int16_t)first.p[i / WIDTH][i % WIDTH];
        u[(size_t)(i / 4) * apart].of[1][i % 4] = (int16_t)second.p[i / WIDTH][i % WIDTH];
    }
#endif
}

/* ---- K and V as they are stored */

/* Width of the panel of V that has value i. */
INLINE uint32_t q8_panel(uint32_t n, uint32_t i) { return NTX_MIN(n - i / PANEL * PANEL, (uint32_t)PANEL); }
INLINE const uint16_t *q8_scales(const uint8_t *block, uint32_t n)
{
    return (const uint16_t *)(const void *)(block + (size_t)TOKENS * n);
}

INLINE void q8_scale_store(uint8_t *block, uint32_t at, uint32_t n, uint32_t b, float d)
{
    uint16_t h = f32_to_f16(d);
    memcpy(block + (size_t)TOKENS * n + 2 * (b * TOKENS + at), &h, sizeof h);
}

static void q8_store_k(const float *x, void *to, uint32_t at, uint32_t n)
{
    uint8_t *block = to, *k = block + 4 * at;
    for (uint32_t b = 0; b < n / 32; b++) {
        int8_t q[32];
        int32_t sums[2];
        q8_scale_store(block, at, n, b, quantize_block(x + 32 * b, 2, q, sums));
        for (uint32_t i = 0; i < 32; i++)
            k[4 * TOKENS * (size_t)(8 * b + i / 4) + i % 4] = (uint8_t)(q[i] + 128);
    }
}

static void q8_store_v(const float *x, void *to, uint32_t at, uint32_t n)
{
    uint8_t *block = to;
    for (uint32_t b = 0; b < n / 32; b++) {
        int8_t q[32];
        int32_t sums[2];
        q8_scale_store(block, at, n, b, quantize_block(x + 32 * b, 2, q, sums));
        uint8_t *v = block + (size_t)TOKENS * (32 * b / PANEL * PANEL) +
                     (at / 4 * q8_panel(n, 32 * b) + 32 * b % PANEL) * 4 + at % 4;
        for (uint32_t i = 0; i < 32; i++)
            v[4 * i] = (uint8_t)q[i];
    }
}

INLINE uint32_t q8_lines(uint32_t n) { return TOKENS * (n + n / 16) / 64; }

/* From now on products prefetch blocks, in so many steps each: V while the same block's K is multiplied, the next
 * part's K while V is. */
INLINE void fetch_blocks(struct q8 *t, const void *const *blocks, uint32_t by, uint32_t bytes, uint32_t steps)
{
    t->ahead = blocks;
    t->ahead_by = by;
    t->ahead_end = t->end;
    t->ahead_bytes = bytes;
    t->ahead_alike = false;
    t->ahead_lines = (q8_lines(bytes) + steps - 1) / steps;
}

/* The block that is prefetched at place p of the part; NULL: none. */
INLINE const uint8_t *block_ahead(const struct q8 *t, uint32_t p)
{
    const uint32_t pos = t->first + p + t->ahead_by;
    return pos < t->ahead_end ? t->ahead[pos / TOKENS] : NULL;
}

INLINE void fetch_lines(const struct q8 *t, const uint8_t *block, uint32_t step)
{
    const uint32_t from = step * t->ahead_lines, end = NTX_MIN(from + t->ahead_lines, q8_lines(t->ahead_bytes));
    for (uint32_t i = from; block && i < end; i++)
        fetch_at(block, (size_t)i * 64);
}

/* ---- scores */

/* Scores of `vectors` vectors from m on for TOKENS positions from place p of the part on, whose K is k. */
INLINE void q8_score_tile(const struct ntx_attn *a, struct q8 *t, const uint8_t *k, uint32_t m, const int vectors,
                          uint32_t p)
{
    const uint8_t *ahead = m ? NULL : block_ahead(t, p);
    const uint16_t *scale = q8_scales(k, a->head_k);
    struct f16 score[SCORED][2];
    for (int h = 0; h < vectors; h++)
        score[h][0] = score[h][1] = splat(0);
    for (uint32_t b = 0; b < a->head_k / 32; b++, scale += TOKENS) {
        struct i16 acc[SCORED][2];
        for (int h = 0; h < vectors; h++)
            acc[h][0] = acc[h][1] = splat_int(t->q_start[m + (uint32_t)h][b]);
        for (uint32_t w = 8 * b; w < 8 * b + 8; w++, k += 4 * TOKENS) {
            fetch_lines(t, ahead, w);
            for (int h = 0; h < vectors; h++) {
                int32_t q;
                memcpy(&q, &t->q[m + (uint32_t)h][4 * w], 4);
                for (int i = 0; i < 2; i++)
                    acc[h][i] = add_scores(acc[h][i], k + 64 * i, q);
            }
        }
        for (int i = 0; i < 2; i++) {
            struct f16 d = load16_f16(scale + 16 * i);
            for (int h = 0; h < vectors; h++)
                score[h][i] = fma16(as_floats(acc[h][i]), mul16(d, splat(t->q_scale[m + (uint32_t)h][b])), score[h][i]);
        }
    }
    for (int h = 0; h < vectors; h++)
        for (int i = 0; i < 2; i++)
            store16(&t->w[m + (uint32_t)h][p + 16 * (uint32_t)i], mul16(score[h][i], splat(a->scale)));
}

/* Positions of the part that lie before the vector's window; at most PART. */
INLINE uint32_t q8_unseen(const struct ntx_attn *a, const struct q8 *t, uint32_t vector)
{
    uint32_t from = ntx_attn_from(a, vector / a->n_q);
    return from < t->first ? 0 : NTX_MIN(from - t->first, (uint32_t)PART);
}

/* The first block: that of the part's first position that any row sees. */
INLINE uint32_t q8_first(const struct ntx_attn *a, const struct q8 *t) { return q8_unseen(a, t, 0) / TOKENS * TOKENS; }

/* Sets cosine and sine of the bias's rotations at position span * BIAS_SPAN. */
INLINE void q8_start_bias(const struct ntx_attn_bias *bias, struct q8 *t, uint32_t span)
{
    if (t->span == span)
        return;
    t->span = span;
    for (uint32_t i = 0; i < bias->n; i++) {
        const double angle = (double)span * BIAS_SPAN * bias->turns[bias->angle[i]].freq;
        t->start[i][0] = cos(angle);
        t->start[i][1] = sin(angle);
    }
}

/* Adds q . bias to the scores of a block from place p of the part on. */
INLINE void q8_add_bias(const struct ntx_attn_bias *bias, struct q8 *t, uint32_t p)
{
    const uint32_t pos = t->first + p;
    q8_start_bias(bias, t, pos / BIAS_SPAN);
    for (uint32_t i = 0; i < bias->n; i++) {
        const struct ntx_turns *turns = &bias->turns[bias->angle[i]];
        const double *far = turns->far[pos % BIAS_SPAN / TOKENS], *start = t->start[i];
        const struct f16 c = splat((float)(start[0] * far[0] - start[1] * far[1])),
                         s = splat((float)(start[1] * far[0] + start[0] * far[1])),
                         less = splat(-(float)(start[1] * far[0] + start[0] * far[1]));
        struct f16 cosine[2], sine[2];
        for (int j = 0; j < 2; j++) {
            const struct f16 x = load16(turns->near[0] + 16 * j), y = load16(turns->near[1] + 16 * j);
            cosine[j] = fma16(less, y, mul16(c, x));
            sine[j] = fma16(s, x, mul16(c, y));
        }
        for (uint32_t m = 0; m < t->n_vectors; m++) {
            const float *x = bias->x + 2 * (m * (size_t)bias->n + i);
            for (int j = 0; j < 2; j++) {
                float *w = &t->w[m][p + 16 * (uint32_t)j];
                store16(w, fma16(splat(x[1]), sine[j], fma16(splat(x[0]), cosine[j], load16(w))));
            }
        }
    }
}

INLINE void q8_scores(const struct ntx_attn *a, struct q8 *t, struct q4 *four)
{
    for (uint32_t p = q8_first(a, t); p < t->n; p += TOKENS) {
        const uint8_t *k = a->k[(t->first + p) / TOKENS];
        if (four) {
            q4_unpack_k(k, a->head_k, four->k);
            k = four->k;
        }
        for (uint32_t m = 0; m < t->n_vectors; m += SCORED)
            switch (NTX_MIN(t->n_vectors - m, (uint32_t)SCORED)) {
            case 1: q8_score_tile(a, t, k, m, 1, p); break;
            case 2: q8_score_tile(a, t, k, m, 2, p); break;
#if defined(__AVX512F__)
            case 3: q8_score_tile(a, t, k, m, 3, p); break;
            default: q8_score_tile(a, t, k, m, 4, p);
#endif
            }
        if (a->bias)
            q8_add_bias(a->bias, t, p);
    }
    for (uint32_t p = 0; a->hole && p < t->n; p++)
        for (uint32_t m = 0; m < t->n_vectors && a->hole[(t->first + p) / 8] >> ((t->first + p) % 8) & 1; m++)
            t->w[m][p] = -INFINITY;
    for (uint32_t m = 0; m < t->n_vectors; m++)
        for (uint32_t p = 0, n = q8_unseen(a, t, m); p < n; p++)
            t->w[m][p] = -INFINITY;
}

/* ---- values */

/* x[p] = weight * scale of n positions (a multiple of 16), 0 without a weight; *most: the largest. odd: some scales
 * are not finite. Returns whether one of these has a weight. */
INLINE bool q8_scaled(const float *w, const float *scale, uint32_t n, const bool odd, float *x, float *most)
{
    struct f16 top = splat(0);
    ipart bad = {0};
    bool any = false;
    for (uint32_t p = 0; p < n; p += 16) {
        struct f16 weight = load16(w + p), v = mul16(weight, load16(scale + p));
        EACH_PART
        {
            if (odd) {
                v.p[i] = pick(weight.p[i] > 0, v.p[i], (fpart){0});
                bad |= ~(ipart)(v.p[i] < INFINITY);
            }
        }
        store16(x + p, v);
        top = max16(top, v);
    }
    *most = top16(top);
    for (int i = 0; odd && i < WIDTH; i++)
        any |= bad[i] != 0;
    return any;
}

/* Sets *inverse, the factor that makes x[0 .. n) integers of 15 bits; returns the value of integer 1. */
INLINE float q8_step(const struct q8 *t, uint32_t m, uint32_t n, uint32_t b, float *x, float *inverse)
{
    float most;
    *inverse = 0;
    if (t->odd ? q8_scaled(t->w[m], t->v_scale[b], n, true, x, &most)
               : q8_scaled(t->w[m], t->v_scale[b], n, false, x, &most))
        return NAN;
    if (!(most > WEIGHT_LEAST))
        return 0;
    *inverse = WEIGHT_MAX / most;
    return most / WEIGHT_MAX;
}

/* Stores the n weights of vector m as integers for a panel of V, at place h; 0 after them, up to end. */
INLINE void q8_weights(struct q8 *t, uint32_t m, uint32_t n, uint32_t end, uint32_t h, uint32_t panel)
{
    const struct i16 zero = bits16(splat(0x1.8p23f)); /* adding this rounds to an integer, left in the low bits */
    struct weights *u = &t->u[panel][0][h];
    float x[PAIR][PART], by[PAIR] = {0};
    n = round_up(n, 16);
    for (uint32_t i = 0; i < PAIR && panel * PAIR + i < t->to_v / 32; i++)
        if (panel * PAIR + i >= t->from_v / 32)
            t->step[h][panel * PAIR + i] = q8_step(t, m, n, panel * PAIR + i, x[i], &by[i]);
    for (uint32_t p = 0; p < round_up(end, 16); p += 16) {
        struct i16 v[PAIR];
        for (uint32_t i = 0; i < PAIR; i++)
            v[i] = p < n && by[i] > 0 ? bits16(fma16(load16(x[i] + p), splat(by[i]), splat(0x1.8p23f))) : zero;
        store_weights(u + p / 4 * SUMMED, SUMMED, v[0], v[1]);
    }
}

/* Adds V times the weights of `tokens` positions from place p of the part on, for `vectors` vectors and 16 * spans
 * values; s: the first span. */
INLINE void q8_value_tile(struct q8 *t, uint32_t h, const int vectors, const uint8_t *v, const uint8_t *ahead,
                          uint32_t width, uint32_t p, uint32_t tokens, uint32_t s, const int spans)
{
    struct sums acc[TILED][SPANS];
    for (int i = 0; i < vectors; i++)
        for (int j = 0; j < spans; j++)
            acc[i][j] = t->sums[h + (uint32_t)i][s + (uint32_t)j];
    const struct weights *u = &t->u[s * 16 / PANEL][p / 4][h];
    const int first = (int)(s % (PANEL / 16) / 2);
    const uint8_t *start = v;
    uint32_t step = s / SPANS * (TOKENS / 4);
    for (uint32_t end = p + tokens; p < end; p += 4, v += 4 * (size_t)width, u += SUMMED) {
        for (int j = 0; t->ahead_alike && j < spans; j++)
            fetch_at(ahead, (size_t)(v - start) + 64 * (size_t)j);
        if (!t->ahead_alike)
            fetch_lines(t, ahead, step++);
        for (int i = 0; i < vectors; i++)
            for (int j = 0; j < spans; j++)
                acc[i][j] = add_values(acc[i][j], &u[i], first + j / 2, v + 64 * j);
    }
    for (int i = 0; i < vectors; i++)
        for (int j = 0; j < spans; j++)
            t->sums[h + (uint32_t)i][s + (uint32_t)j] = acc[i][j];
}

INLINE void q8_value_spans(struct q8 *t, uint32_t h, const int vectors, const uint8_t *v, const uint8_t *ahead,
                           uint32_t width, uint32_t p, uint32_t tokens, uint32_t s, uint32_t spans)
{
    if (spans == 2)
        q8_value_tile(t, h, vectors, v, ahead, width, p, tokens, s, 2);
    else
        q8_value_tile(t, h, vectors, v, ahead, width, p, tokens, s, SPANS);
}

/* Adds some positions of a block for n vectors, panel by panel. */
INLINE void q8_value_block(const struct ntx_attn *a, struct q8 *t, uint32_t n, const uint8_t *v, uint32_t p,
                           uint32_t tokens)
{
    const uint8_t *ahead = block_ahead(t, p);
    for (uint32_t e = t->from_v, spans; e < t->to_v; e += 16 * spans) {
        uint32_t width = q8_panel(a->head_v, e), in = e % PANEL;
        const size_t at = (size_t)TOKENS * (e - in) + 4 * in;
        const uint8_t *fetched = t->ahead_alike && ahead ? ahead + at : ahead;
        spans = NTX_MIN(NTX_MIN(width - in, t->to_v - e) / 16, (uint32_t)SPANS);
        for (uint32_t h = 0, some; h < n; h += some) {
            some = NTX_MIN(n - h, (uint32_t)TILED);
            if (some == 1)
                q8_value_spans(t, h, 1, v + at, h ? NULL : fetched, width, p, tokens, e / 16, spans);
            else
                q8_value_spans(t, h, TILED, v + at, h ? NULL : fetched, width, p, tokens, e / 16, spans);
        }
    }
}

/* Positions of the part that a vector's row sees. */
INLINE uint32_t q8_seen(const struct ntx_attn *a, const struct q8 *t, uint32_t vector)
{
    uint32_t end = a->n_pos + vector / a->n_q, n = end < t->first ? 0 : NTX_MIN(end - t->first, (uint32_t)PART);
    return q8_unseen(a, t, vector) < n ? n : 0;
}

INLINE float *q8_out(const struct ntx_attn *a, uint32_t vector)
{
    return a->out + vector / a->n_q * a->ld_out + (size_t)(vector % a->n_q) * a->head_v;
}

INLINE void q8_values(const struct ntx_attn *a, struct q8 *t)
{
    for (uint32_t m = 0; m < t->n_vectors; m += SUMMED) {
        uint32_t vectors = NTX_MIN(t->n_vectors - m, (uint32_t)SUMMED), end = 0;
        for (uint32_t h = 0; h < vectors; h++)
            end = NTX_MAX(end, q8_seen(a, t, m + h));
        for (uint32_t h = 0; h < vectors; h++) {
            memset(t->sums[h], 0, a->head_v / 16 * sizeof t->sums[h][0]);
            for (uint32_t panel = t->from_v / PANEL; panel * PANEL < t->to_v; panel++)
                q8_weights(t, m + h, q8_seen(a, t, m + h), end, h, panel);
        }
        for (uint32_t p = q8_first(a, t); p < end; p += TOKENS)
            q8_value_block(a, t, vectors, t->v[p / TOKENS], p, NTX_MIN(end - p, (uint32_t)TOKENS));
        for (uint32_t h = 0; h < vectors; h++) {
            float *out = q8_out(a, m + h); /* unchanged, even in signs of zeros, if the row sees none of the part */
            for (uint32_t i = t->from_v; q8_seen(a, t, m + h) && i < t->to_v; i += 16)
                store16(out + i, fma16(all_sums(t->sums[h][i / 16]), splat(t->step[h][i / 32]), load16(out + i)));
        }
    }
}

/* ---- attention */

/* Quantises a vector of q; turned: rotates it before. */
INLINE void q8_load_q(const struct ntx_attn *a, struct q8 *t, uint32_t m, const bool turned)
{
    const float *q = a->q + m / a->n_q * a->ld_q + (size_t)(m % a->n_q) * a->head_k;
    float x[NTX_KV_Q4_HEAD];
    if (turned) {
        memcpy(x, q, a->head_k * sizeof *q);
        hadamard_rotate(x, a->head_k);
        q = x;
    }
    for (uint32_t b = 0; b < a->head_k / 32; b++) {
        int32_t sums[2];
        t->q_scale[m][b] = quantize_block(q + 32 * b, 2, &t->q[m][32 * b], sums);
        t->q_start[m][b] = -BIAS * (sums[0] + sums[1]);
    }
}

INLINE void q8_begin(const struct ntx_attn *a, struct q8 *t, const bool four)
{
    t->span = UINT32_MAX;
    t->n_vectors = a->n_rows * a->n_q;
    t->end = a->n_pos + a->n_rows - 1;
    t->fetch_k = four ? a->head_k / 4 * 3 : a->head_k;
    t->fetch_v = four ? a->head_v / 2 : a->head_v;
    t->from_v = 0;
    t->to_v = a->head_v;
    for (uint32_t m = 0; m < t->n_vectors; m++)
        q8_load_q(a, t, m, four);
}

/* Turns scores into weights, and scales the output so far to the new maximum. */
INLINE void q8_softmax(const struct ntx_attn *a, struct q8 *t)
{
    for (uint32_t m = 0; m < t->n_vectors; m++) {
        uint32_t n = q8_seen(a, t, m);
        float by = n ? softmax_part(a, t->w[m], n, &t->max[m], &t->sum[m]) : 1, *out = q8_out(a, m);
        for (uint32_t i = 0; n && i < a->head_v; i += 16)
            store16(out + i, mul16(load16(out + i), splat(by)));
    }
}

/* Converts the scales of V to floats, and notes whether all are finite: those of holes and after the end may not be. */
INLINE void q8_widen(const struct ntx_attn *a, struct q8 *t)
{
    const uint32_t end = round_up(t->n, 16);
    ipart odd = {0};
    for (uint32_t b = t->from_v / 32; b < t->to_v / 32; b++)
        memset(t->v_scale[b], 0, q8_first(a, t) * sizeof t->v_scale[b][0]);
    for (uint32_t p = q8_first(a, t); p < t->n; p += TOKENS) {
        const uint16_t *scale = q8_scales(t->v[p / TOKENS], a->head_v);
        const uint8_t *ahead = t->ahead_alike ? block_ahead(t, p) : NULL;
        for (uint32_t b = t->from_v / 32; b < t->to_v / 32; b++) {
            for (uint32_t i = 0; i < TOKENS; i += 16)
                store16(&t->v_scale[b][p + i], load16_f16(scale + b * TOKENS + i));
            if (ahead)
                fetch_at((const uint8_t *)q8_scales(ahead, a->head_v), 2 * (size_t)b * TOKENS);
        }
    }
    for (uint32_t b = t->from_v / 32; b < t->to_v / 32; b++)
        for (uint32_t p = 0; p < end; p += 16) {
            struct f16 v = load16(&t->v_scale[b][p]);
            EACH_PART odd |= ~(ipart)(v.p[i] < INFINITY);
        }
    t->odd = false;
    for (int i = 0; i < WIDTH; i++)
        t->odd |= odd[i] != 0;
}

/* Finds the part's V, and unpacks it if it is Q4_0. */
INLINE void q8_find(const struct ntx_attn *a, struct q8 *t, struct q4 *four)
{
    for (uint32_t p = q8_first(a, t); p < t->n; p += TOKENS) {
        t->v[p / TOKENS] = a->v[(t->first + p) / TOKENS];
        if (four) {
            q4_unpack_v(t->v[p / TOKENS], a->head_v, four->v[p / TOKENS]);
            t->v[p / TOKENS] = four->v[p / TOKENS];
        }
    }
}

/* four: room for unpacked blocks of Q4_0; NULL: K and V are Q8_0. */
INLINE void attend_ints(const struct ntx_attn *a, struct q4 *four)
{
    struct q8 t;
    const uint32_t steps_v = TOKENS / 4 * ((a->head_v + 16 * SPANS - 1) / (16 * SPANS));
    q8_begin(a, &t, four != NULL);
    for (uint32_t m = 0; m < t.n_vectors; m++) {
        begin_head(a, m % a->n_q, &t.max[m], &t.sum[m]);
        memset(q8_out(a, m), 0, a->head_v * sizeof(float));
    }
    for (t.first = first_part(a); t.first < t.end; t.first += PART) {
        t.n = NTX_MIN((uint32_t)PART, t.end - t.first);
        fetch_blocks(&t, a->v, 0, t.fetch_v, a->head_k / 4);
        q8_scores(a, &t, four);
        q8_softmax(a, &t);
        q8_find(a, &t, four);
        q8_widen(a, &t);
        fetch_blocks(&t, a->k, PART, t.fetch_k, steps_v);
        q8_values(a, &t);
    }
    for (uint32_t m = 0; m < t.n_vectors; m++) {
        float by = t.max[m] == -INFINITY ? 1 : 1.0f / join16(t.sum[m]), *out = q8_out(a, m);
        for (uint32_t i = 0; i < a->head_v; i++)
            out[i] *= by;
        if (four)
            hadamard_rotate(out, a->head_v);
    }
}

static void attend_q8_0(const struct ntx_attn *a) { attend_ints(a, NULL); }

static void attend_q4_0(const struct ntx_attn *a)
{
    struct q4 four;
    attend_ints(a, &four);
}

#endif
