/* attn_q8.h: attention over K and V in Q8_0, by integer products: of the query heads that share a KV head, of one row or of several at neighbouring
 * positions. Included by ops.h, compiled per instruction set.
 *
 * As attn.h it goes by parts of PART positions and keeps a maximum and sums on the way. Products are sums of integers, hence exact:
 * a score is, for each 32 values of the head in turn, the integer product of q's and K's, multiplied by both scales and added, fused. V is
 * weighed by integers, too: for each 32 values of V what a position weighs is its weight times its scale, as 15 bits of the part's largest.
 * So bits depend neither on the instruction set nor on how heads and rows are grouped: they only share what is read.
 *
 * K's bytes lie in the order in which products by four take them, 16 positions side by side, V's 16 values side by side, of four positions (cpu.h).
 * A vector here is a query head of a row. */
#ifndef NTX_COMPUTED_CPU_ATTN_Q8_H
#define NTX_COMPUTED_CPU_ATTN_Q8_H

#include "computed/cpu/attn.h"

enum {
    BLOCKS = NTX_MAX_HEAD / 32,
    TOKENS = NTX_KV_Q8_TOKENS,
    SCORED = WIDTH == 16 ? 4 : 2,  /* vectors of a tile of scores */
    SUMMED = WIDTH == 16 ? 3 : 1,  /* of a tile of values, at most */
    SPANS = WIDTH == 16 ? 4 : 2,   /* 16 values each, of it, at most */
    WEIGHT_MAX = 32767,
    LINE = 64,
};
#define WEIGHT_LEAST 0x1p-100f /* parts whose largest weight, scaled, is less are nothing beside the others; its inverse could overflow */

#if defined(__AVX512VNNI__)
enum { BIAS = 128 }; /* K's bytes are unsigned; what that adds is taken off before the products */
struct weights { /* of a vector: for each 32 values of V, a weight's high and low bytes */
    uint8_t high[BLOCKS][PART], low[BLOCKS][PART];
};
struct sums { /* of 16 values */
    __m512i high, low;
};
#else
enum { BIAS = 0 };
struct weights {
    int16_t all[BLOCKS][PART];
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
    int32_t q_start[NTX_ATTN_VECTORS][BLOCKS]; /* what a sum of products begins with */
    float w[NTX_ATTN_VECTORS][PART]; /* scores, then weights */
    float v_scale[BLOCKS][PART];
    struct weights u[SUMMED];
    float step[SUMMED][BLOCKS];      /* what 1 of such a weight means */
    float max[NTX_ATTN_VECTORS];
    struct f16 sum[NTX_ATTN_VECTORS];
    uint32_t n_vectors, first, n, n_next; /* n: positions of the part that the last row sees; n_next: of the next */
};

/* ---- integer products */

INLINE struct i16 splat_int(int32_t n)
{
    struct i16 v;
    EACH_PART v.p[i] = n - (ipart){0};
    return v;
}

/* Of 16 positions' four bytes of K with the four bytes of q. */
INLINE struct i16 add_scores(struct i16 acc, const uint8_t *k, int32_t q)
{
#if defined(__AVX512VNNI__)
    acc.p[0] = (ipart)_mm512_dpbusd_epi32((__m512i)acc.p[0], _mm512_loadu_si512(k), _mm512_set1_epi32(q));
#elif defined(__AVX2__)
    EACH_PART
    {
        __m256i x = _mm256_xor_si256(_mm256_loadu_si256((const void *)(k + 32 * i)), _mm256_set1_epi8(-128));
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(_mm256_set1_epi32(q), x)); /* two products of 127 * 127 fit */
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

INLINE struct sums no_sums(void)
{
    struct sums s;
    memset(&s, 0, sizeof s);
    return s;
}

/* s += the weights of positions p .. p + 3 times 16 values of V of these, block b of its 32s. */
INLINE struct sums add_values(struct sums s, const struct weights *u, uint32_t b, uint32_t p, const uint8_t *v)
{
#if defined(__AVX512VNNI__)
    int32_t high, low;
    memcpy(&high, &u->high[b][p], 4);
    memcpy(&low, &u->low[b][p], 4);
    __m512i x = _mm512_loadu_si512(v);
    s.high = _mm512_dpbusd_epi32(s.high, _mm512_set1_epi32(high), x);
    s.low = _mm512_dpbusd_epi32(s.low, _mm512_set1_epi32(low), x);
#elif defined(__AVX2__)
    int64_t w;
    memcpy(&w, &u->all[b][p], 8);
    for (int i = 0; i < 4; i++)
        s.four[i] = _mm256_add_epi32(s.four[i], _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(v + 16 * i))), _mm256_set1_epi64x(w)));
#else
    for (int i = 0; i < 64; i++)
        s.one[i / 4] += u->all[b][p + (uint32_t)i % 4] * (int8_t)v[i];
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

/* Sixteen weights of 15 bits. */
INLINE void store_weights(struct weights *u, uint32_t b, uint32_t p, struct i16 v)
{
#if defined(__AVX512VNNI__)
    _mm_storeu_si128((void *)&u->high[b][p], _mm512_cvtepi32_epi8(_mm512_srli_epi32((__m512i)v.p[0], 8)));
    _mm_storeu_si128((void *)&u->low[b][p], _mm512_cvtepi32_epi8((__m512i)v.p[0]));
#elif defined(__AVX2__)
    _mm256_storeu_si256((void *)&u->all[b][p], _mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)v.p[0], (__m256i)v.p[1]), 0xd8));
#else
    for (int i = 0; i < 16; i++)
        u->all[b][p + (uint32_t)i] = (int16_t)v.p[i / WIDTH][i % WIDTH];
#endif
}

/* ---- K and V as they are stored */

INLINE size_t q8_block_bytes(uint32_t n) { return (size_t)TOKENS * n + TOKENS * 2 * (n / 32); }
INLINE const uint16_t *q8_scales(const uint8_t *block, uint32_t n) { return (const uint16_t *)(const void *)(block + (size_t)TOKENS * n); }

INLINE void q8_scale_store(uint8_t *block, uint32_t at, uint32_t n, uint32_t b, float d)
{
    uint16_t h = f32_to_f16(d);
    memcpy(block + (size_t)TOKENS * n + 2 * (b * TOKENS + at), &h, sizeof h);
}

static void q8_store_k(const float *x, void *to, uint32_t at, uint32_t n)
{
    uint8_t *block = to, *k = block + (size_t)(at / 16) * 16 * n + at % 16 * 4;
    for (uint32_t b = 0; b < n / 32; b++) {
        int8_t q[32];
        int32_t sums[2];
        q8_scale_store(block, at, n, b, pack_block(x + 32 * b, 2, q, sums));
        for (uint32_t i = 0; i < 32; i++)
            k[(size_t)(8 * b + i / 4) * 64 + i % 4] = (uint8_t)(q[i] + 128);
    }
}

static void q8_store_v(const float *x, void *to, uint32_t at, uint32_t n)
{
    uint8_t *block = to, *v = block + (size_t)(at / 4) * 4 * n + at % 4;
    for (uint32_t b = 0; b < n / 32; b++) {
        int8_t q[32];
        int32_t sums[2];
        q8_scale_store(block, at, n, b, pack_block(x + 32 * b, 2, q, sums));
        for (uint32_t i = 0; i < 32; i++)
            v[4 * (32 * (size_t)b + i)] = (uint8_t)q[i];
    }
}

/* ---- scores */

/* Lines from `from` to `to` of a block that is needed next; NULL: there is none. Asked for a few at a time, between products: attn.h. */
INLINE void fetch_lines(const uint8_t *block, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; block && i < to; i++)
        __builtin_prefetch(block + (size_t)i * LINE, 0, 2);
}

/* Scores of `vectors` vectors from m on with the TOKENS positions from place p of the part on. */
INLINE void q8_score_tile(const struct ntx_attn *a, struct q8 *t, uint32_t m, const int vectors, uint32_t p)
{
    const uint32_t n = a->head_k, lines = (uint32_t)(q8_block_bytes(a->head_v) / LINE), some = (lines + n / 4 - 1) / (n / 4);
    const uint8_t *block = a->k[(t->first + p) / TOKENS], *v = m ? NULL : a->v[(t->first + p) / TOKENS];
    const uint16_t *scale = q8_scales(block, n);
    struct f16 score[SCORED][2];
    for (int h = 0; h < vectors; h++)
        score[h][0] = score[h][1] = splat(0);
    for (uint32_t b = 0; b < n / 32; b++) {
        struct i16 acc[SCORED][2];
        for (int h = 0; h < vectors; h++)
            for (int i = 0; i < 2; i++)
                acc[h][i] = splat_int(t->q_start[m + (uint32_t)h][b]);
        for (uint32_t w = 8 * b; w < 8 * b + 8; w++) {
            fetch_lines(v, w * some, NTX_MIN((w + 1) * some, lines));
            for (int h = 0; h < vectors; h++) {
                int32_t q;
                memcpy(&q, &t->q[m + (uint32_t)h][4 * w], 4);
                for (int i = 0; i < 2; i++)
                    acc[h][i] = add_scores(acc[h][i], block + (size_t)i * 16 * n + 64 * w, q);
            }
        }
        for (int i = 0; i < 2; i++) {
            struct f16 k = load16_f16(scale + b * TOKENS + 16 * i);
            for (int h = 0; h < vectors; h++)
                score[h][i] = fma16(as_floats(acc[h][i]), mul16(k, splat(t->q_scale[m + (uint32_t)h][b])), score[h][i]);
        }
    }
    for (int h = 0; h < vectors; h++)
        for (int i = 0; i < 2; i++)
            store16(&t->w[m + (uint32_t)h][p + 16 * (uint32_t)i], mul16(score[h][i], splat(a->scale)));
}

INLINE void q8_scores(const struct ntx_attn *a, struct q8 *t)
{
    for (uint32_t p = 0; p < t->n; p += TOKENS)
        for (uint32_t m = 0; m < t->n_vectors; m += SCORED)
            switch (NTX_MIN(t->n_vectors - m, (uint32_t)SCORED)) {
            case 1: q8_score_tile(a, t, m, 1, p); break;
            case 2: q8_score_tile(a, t, m, 2, p); break;
#if defined(__AVX512F__)
            case 3: q8_score_tile(a, t, m, 3, p); break;
            default: q8_score_tile(a, t, m, 4, p);
#endif
            }
    for (uint32_t p = 0; a->hole && p < t->n; p++)
        for (uint32_t m = 0; m < t->n_vectors && a->hole[(t->first + p) / 8] >> ((t->first + p) % 8) & 1; m++)
            t->w[m][p] = -INFINITY;
}

/* ---- values */

/* Weights of a part, n of them, as integers for block b of V's 32s; 0 behind them, up to end. Returns what 1 means. */
INLINE float q8_weights(const float *w, const float *scale, uint32_t n, uint32_t end, struct weights *u, uint32_t b)
{
    const struct f16 magic = splat(0x1.8p23f);
    struct f16 x[PART / 16], top = splat(0);
    ipart bad = {0};
    n = round_up(n, 16);
    for (uint32_t p = 0; p < n; p += 16) {
        struct f16 weight = load16(w + p);
        x[p / 16] = mul16(weight, load16(scale + p));
        EACH_PART
        {
            x[p / 16].p[i] = pick(weight.p[i] > 0, x[p / 16].p[i], (fpart){0}); /* what lies in holes and behind the end is no number */
            bad |= ~(ipart)(x[p / 16].p[i] < INFINITY);
        }
        top = max16(top, x[p / 16]);
    }
    float most = top16(top), inverse = 0, step = 0;
    for (int i = 0; i < WIDTH; i++)
        if (bad[i])
            step = NAN;
    if (step == 0 && most > WEIGHT_LEAST) {
        step = most / WEIGHT_MAX;
        inverse = WEIGHT_MAX / most;
    }
    for (uint32_t p = 0; p < round_up(end, 16); p += 16) {
        struct f16 v = p < n && inverse > 0 ? mul16(x[p / 16], splat(inverse)) : splat(0);
        store_weights(u, b, p, isub16(bits16(add16(v, magic)), bits16(magic)));
    }
    return step;
}

/* out[16 * s .. ] of `vectors` vectors += their weights times V, of the part's positions. NULL: that one sees none of them. */
INLINE void q8_value_tile(const struct ntx_attn *a, struct q8 *t, float *const *out, const int vectors, uint32_t end, uint32_t s, const int spans, bool fetch)
{
    const uint32_t n = a->head_v, lines = (uint32_t)(q8_block_bytes(a->head_k) / LINE), steps = TOKENS / 4 * (n / 16) / (uint32_t)spans, some = (lines + steps - 1) / steps;
    struct sums acc[SUMMED * SPANS];
    for (int i = 0; i < vectors * spans; i++)
        acc[i] = no_sums();
    for (uint32_t from = 0; from < end; from += TOKENS) {
        const uint8_t *v = (const uint8_t *)a->v[(t->first + from) / TOKENS] + 64 * s;
        const uint8_t *next = fetch && from < t->n_next ? a->k[(t->first + PART + from) / TOKENS] : NULL;
        uint32_t at = s / (uint32_t)spans * (TOKENS / 4) * some;
        for (uint32_t p = from; p < NTX_MIN(end, from + TOKENS); p += 4, v += 4 * (size_t)n, at += some) {
            fetch_lines(next, at, NTX_MIN(at + some, lines));
            for (int h = 0; h < vectors; h++)
                for (int i = 0; i < spans; i++)
                    acc[h * spans + i] = add_values(acc[h * spans + i], &t->u[h], (s + (uint32_t)i) / 2, p, v + 64 * i);
        }
    }
    for (int h = 0; h < vectors; h++)
        for (int i = 0; i < spans; i++) {
            float *to = out[h] + 16 * (s + (uint32_t)i);
            if (out[h])
                store16(to, fma16(all_sums(acc[h * spans + i]), splat(t->step[h][(s + (uint32_t)i) / 2]), load16(to)));
        }
}

INLINE void q8_value_columns(const struct ntx_attn *a, struct q8 *t, float *const *out, const int vectors, uint32_t end, bool fetch)
{
    uint32_t s = 0;
    for (; s + SPANS <= a->head_v / 16; s += SPANS)
        q8_value_tile(a, t, out, vectors, end, s, SPANS, fetch);
    for (; s < a->head_v / 16; s += 2)
        q8_value_tile(a, t, out, vectors, end, s, 2, false);
}

/* Positions of the part that a vector's row sees. */
INLINE uint32_t q8_seen(const struct ntx_attn *a, const struct q8 *t, uint32_t vector)
{
    uint32_t end = a->n_pos + vector / a->n_q;
    return end < t->first ? 0 : NTX_MIN(end - t->first, (uint32_t)PART);
}

INLINE float *q8_out(const struct ntx_attn *a, uint32_t vector) { return a->out + vector / a->n_q * a->ld_out + (size_t)(vector % a->n_q) * a->head_v; }

INLINE void q8_values(const struct ntx_attn *a, struct q8 *t)
{
    for (uint32_t m = 0; m < t->n_vectors;) {
        uint32_t left = t->n_vectors - m, vectors = left == SUMMED + 1 ? NTX_MIN(2u, (uint32_t)SUMMED) : NTX_MIN(left, (uint32_t)SUMMED), end = q8_seen(a, t, m + vectors - 1);
        float *out[SUMMED];
        for (uint32_t h = 0; h < vectors; h++) {
            out[h] = q8_seen(a, t, m + h) ? q8_out(a, m + h) : NULL;
            for (uint32_t b = 0; b < a->head_v / 32; b++)
                t->step[h][b] = q8_weights(t->w[m + h], t->v_scale[b], q8_seen(a, t, m + h), end, &t->u[h], b);
        }
        switch (vectors) {
        case 1: q8_value_columns(a, t, out, 1, end, !m); break;
#if defined(__AVX512F__)
        case 2: q8_value_columns(a, t, out, 2, end, !m); break;
        default: q8_value_columns(a, t, out, 3, end, !m);
#endif
        }
        m += vectors;
    }
}

/* ---- the whole */

INLINE void q8_begin(const struct ntx_attn *a, struct q8 *t)
{
    t->n_vectors = a->n_rows * a->n_q;
    for (uint32_t m = 0; m < t->n_vectors; m++) {
        const float *q = a->q + m / a->n_q * a->ld_q + (size_t)(m % a->n_q) * a->head_k;
        for (uint32_t b = 0; b < a->head_k / 32; b++) {
            int32_t sums[2];
            t->q_scale[m][b] = pack_block(q + 32 * b, 2, &t->q[m][32 * b], sums);
            t->q_start[m][b] = -BIAS * (sums[0] + sums[1]);
        }
        t->max[m] = -INFINITY;
        t->sum[m] = splat(0);
        memset(q8_out(a, m), 0, a->head_v * sizeof(float));
    }
}

/* Scores to weights; what there is so far goes by the new maximum. */
INLINE void q8_weigh(const struct ntx_attn *a, struct q8 *t)
{
    for (uint32_t m = 0; m < t->n_vectors; m++) {
        uint32_t n = q8_seen(a, t, m);
        float by = n ? weigh(t->w[m], n, &t->max[m], &t->sum[m]) : 1, *out = q8_out(a, m);
        for (uint32_t i = 0; n && i < a->head_v; i += 16)
            store16(out + i, mul16(load16(out + i), splat(by)));
    }
}

INLINE void q8_widen(const struct ntx_attn *a, struct q8 *t)
{
    for (uint32_t p = 0; p < t->n; p += TOKENS) {
        const uint16_t *scale = q8_scales(a->v[(t->first + p) / TOKENS], a->head_v);
        for (uint32_t b = 0; b < a->head_v / 32; b++)
            for (uint32_t i = 0; i < TOKENS; i += 16)
                store16(&t->v_scale[b][p + i], load16_f16(scale + b * TOKENS + i));
    }
}

static void attend_q8_0(const struct ntx_attn *a)
{
    struct q8 t;
    const uint32_t end = a->n_pos + a->n_rows - 1;
    q8_begin(a, &t);
    t.n_next = NTX_MIN((uint32_t)PART, end);
    for (t.first = 0; t.first < end; t.first += PART) {
        t.n = t.n_next;
        t.n_next = NTX_MIN((uint32_t)PART, end - t.first - t.n);
        q8_scores(a, &t);
        q8_weigh(a, &t);
        q8_widen(a, &t);
        q8_values(a, &t);
    }
    for (uint32_t m = 0; m < t.n_vectors && end; m++) {
        float by = t.max[m] == -INFINITY ? 1 : 1.0f / join16(t.sum[m]), *out = q8_out(a, m);
        for (uint32_t i = 0; i < a->head_v; i++)
            out[i] *= by;
    }
}

#endif
