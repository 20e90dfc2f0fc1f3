/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h: sixteen floats that behave the same on every instruction set.
 *
 * They are in as many registers as the file's flags require (one with AVX-512, two with AVX, four with SSE). Each
 * register is a GCC vector, whose + - * / are exact IEEE operations lane by lane. Only the fused multiply-add and the
 * F16 conversions differ per instruction set. Nothing re-associates, so the same source gives the same bits
 * everywhere. */
#ifndef NTX_COMPUTED_CPU_LANES_H
#define NTX_COMPUTED_CPU_LANES_H

#include <math.h>

#include "common/clones.h"
#include "computed/cpu/kern.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 16 };
#elif defined(__AVX2__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif
enum { PARTS = 16 / WIDTH };

typedef float fpart __attribute__((vector_size(WIDTH * 4)));
typedef int32_t ipart __attribute__((vector_size(WIDTH * 4)));
typedef uint16_t hpart __attribute__((vector_size(WIDTH * 2)));

struct f16 { /* 16 x float */
    fpart p[PARTS];
};

struct i16 { /* 16 x int32 */
    ipart p[PARTS];
};

/* Without instructions for fused products and for F16 these operations are long: calls of a function that is compiled
 * for both kinds of processors, not copies in every tile. */
#if defined(__x86_64__) && !defined(__FMA__)
#define LANES_LONG static __attribute__((noinline, unused))
#define LANES_FMA  NTX_CLONES_FMA LANES_LONG
#else
#define LANES_LONG INLINE
#define LANES_FMA  INLINE
#endif

#define EACH_PART for (int i = 0; i < PARTS; i++)
#define LANEWISE(name, type, expression)                                                                               \
    INLINE struct type name(struct type a, struct type b)                                                              \
    {                                                                                                                  \
        EACH_PART a.p[i] = expression;                                                                                 \
        return a;                                                                                                      \
    }

/* a where the mask is all ones, b where it is zero. */
INLINE fpart pick(ipart mask, fpart a, fpart b) { return (fpart)((mask & (ipart)a) | (~mask & (ipart)b)); }

LANEWISE(add16, f16, a.p[i] + b.p[i])
LANEWISE(sub16, f16, a.p[i] - b.p[i])
LANEWISE(mul16, f16, a.p[i] * b.p[i])
LANEWISE(div16, f16, a.p[i] / b.p[i])
#if defined(__AVX512F__)
LANEWISE(max16, f16, (fpart)_mm512_max_ps((__m512)b.p[i], (__m512)a.p[i])) /* a where either is NaN */
LANEWISE(min16, f16, (fpart)_mm512_min_ps((__m512)b.p[i], (__m512)a.p[i]))
#elif defined(__AVX2__)
LANEWISE(max16, f16, (fpart)_mm256_max_ps((__m256)b.p[i], (__m256)a.p[i]))
LANEWISE(min16, f16, (fpart)_mm256_min_ps((__m256)b.p[i], (__m256)a.p[i]))
#else
LANEWISE(max16, f16, pick(b.p[i] > a.p[i], b.p[i], a.p[i]))
LANEWISE(min16, f16, pick(b.p[i] < a.p[i], b.p[i], a.p[i]))
#endif
LANEWISE(isub16, i16, a.p[i] - b.p[i])
LANEWISE(imax16, i16, (ipart)pick(b.p[i] > a.p[i], (fpart)b.p[i], (fpart)a.p[i]))

INLINE struct f16 splat(float f)
{
    struct f16 v;
    EACH_PART v.p[i] = f - (fpart){0};
    return v;
}

INLINE struct i16 bits16(struct f16 v)
{
    struct i16 b;
    EACH_PART b.p[i] = (ipart)v.p[i];
    return b;
}

INLINE struct f16 load16(const float *p)
{
    struct f16 v;
    EACH_PART memcpy(&v.p[i], p + i * WIDTH, sizeof v.p[i]); /* part by part, so that the parts stay in registers */
    return v;
}

INLINE void store16(float *p, struct f16 v) { EACH_PART memcpy(p + i * WIDTH, &v.p[i], sizeof v.p[i]); }

/* The first n < 16 values; the rest are +0. */
INLINE struct f16 load_part(const float *p, uint32_t n)
{
    float v[16] = {0};
    memcpy(v, p, n * sizeof *p);
    return load16(v);
}

INLINE void store_part(float *p, struct f16 v, uint32_t n)
{
    float f[16];
    store16(f, v);
    memcpy(p, f, n * sizeof *p);
}

INLINE fpart fma_part(fpart a, fpart b, fpart c)
{
#if defined(__AVX512F__)
    return (fpart)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (fpart)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    for (int i = 0; i < WIDTH; i++)
        c[i] = fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

INLINE fpart widen_part(hpart h)
{
#if defined(__AVX512F__)
    return (fpart)_mm512_cvtph_ps((__m256i)h);
#elif defined(__F16C__)
    return (fpart)_mm256_cvtph_ps((__m128i)h);
#else
    fpart v;
    for (int i = 0; i < WIDTH; i++)
        v[i] = f16_to_f32(h[i]);
    return v;
#endif
}

INLINE hpart narrow_part(fpart v)
{
#if defined(__AVX512F__)
    return (hpart)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    return (hpart)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
#else
    hpart h;
    for (int i = 0; i < WIDTH; i++)
        h[i] = f32_to_f16(v[i]);
    return h;
#endif
}

/* a * b + c, rounded once. */
LANES_FMA struct f16 fma16(struct f16 a, struct f16 b, struct f16 c)
{
    EACH_PART c.p[i] = fma_part(a.p[i], b.p[i], c.p[i]);
    return c;
}

LANES_LONG struct f16 load16_f16(const uint16_t *p)
{
    struct f16 v;
    EACH_PART
    {
        hpart h;
        memcpy(&h, p + i * WIDTH, sizeof h);
        v.p[i] = widen_part(h);
    }
    return v;
}

INLINE struct f16 load_part_f16(const uint16_t *p, uint32_t n)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __mmask16 live = (__mmask16)((1u << n) - 1);
    return (struct f16){{(fpart)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(live, p))}};
#else
    uint16_t h[16] = {0};
    memcpy(h, p, n * sizeof *p);
    return load16_f16(h);
#endif
}

LANES_LONG void store16_f16(uint16_t *p, struct f16 v)
{
    EACH_PART
    {
        hpart h = narrow_part(v.p[i]);
        memcpy(p + i * WIDTH, &h, sizeof h);
    }
}

/* 16 lanes to one value by the fixed tree: l with l + 8, then 4, 2, 1. */
#if defined(__AVX512F__)
#define HALVINGS(v, op)                                                                                                \
    v = op(v, __builtin_shuffle(v, (ipart){8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15}));              \
    v = op(v, __builtin_shuffle(v, (ipart){4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7}));                          \
    v = op(v, __builtin_shuffle(v, (ipart){2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3}));                          \
    v = op(v, __builtin_shuffle(v, (ipart){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}))
#elif defined(__AVX2__)
#define HALVINGS(v, op)                                                                                                \
    v = op(v, __builtin_shuffle(v, (ipart){4, 5, 6, 7, 4, 5, 6, 7}));                                                  \
    v = op(v, __builtin_shuffle(v, (ipart){2, 3, 2, 3, 2, 3, 2, 3}));                                                  \
    v = op(v, __builtin_shuffle(v, (ipart){1, 1, 1, 1, 1, 1, 1, 1}))
#else
#define HALVINGS(v, op)                                                                                                \
    v = op(v, __builtin_shuffle(v, (ipart){2, 3, 2, 3}));                                                              \
    v = op(v, __builtin_shuffle(v, (ipart){1, 1, 1, 1}))
#endif
#define JOIN(name, type, part, scalar, op)                                                                             \
    INLINE scalar name(struct type v)                                                                                  \
    {                                                                                                                  \
        for (int n = PARTS / 2; n; n /= 2)                                                                             \
            for (int i = 0; i < n; i++)                                                                                \
                v.p[i] = op(v.p[i], v.p[i + n]);                                                                       \
        part s = v.p[0];                                                                                               \
        HALVINGS(s, op);                                                                                               \
        return s[0];                                                                                                   \
    }

#define PLUS(a, b)    ((a) + (b))
#define LARGER(a, b)  pick((b) > (a), b, a)
#define ILARGER(a, b) ((ipart)pick((b) > (a), (fpart)(b), (fpart)(a)))
JOIN(join16, f16, fpart, float, PLUS)
JOIN(top16, f16, fpart, float, LARGER)
JOIN(isum16, i16, ipart, int32_t, PLUS)
JOIN(itop16, i16, ipart, int32_t, ILARGER)

/* Stores 16 integers that fit in bytes. */
INLINE void store_bytes(int8_t *q, struct i16 v)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((void *)q, _mm512_cvtepi32_epi8((__m512i)v.p[0]));
#elif defined(__AVX2__)
    __m256i words = _mm256_packs_epi32((__m256i)v.p[0], (__m256i)v.p[1]); /* 0-3 8-11 4-7 12-15 */
    __m256i bytes = _mm256_packs_epi16(words, words);
    __m256i ordered = _mm256_permutevar8x32_epi32(bytes, _mm256_set_epi32(5, 1, 4, 0, 5, 1, 4, 0));
    _mm_storeu_si128((void *)q, _mm256_castsi256_si128(ordered));
#else
    for (int i = 0; i < 16; i++)
        q[i] = (int8_t)v.p[i / WIDTH][i % WIDTH];
#endif
}

/* e^x within 1 ulp over the whole range, gradual underflow, infinity above 88.72, NaN kept.
 * x = n ln2 + r, |r| <= ln2 / 2; e^r by its series to degree 7; 2^n in two factors so that both ends round once. */
LANES_FMA struct f16 exp16(struct f16 in)
{
    const struct f16 magic = splat(0x1.8p23f); /* adding it rounds to an integer, left in the low bits */
    struct f16 x = min16(max16(splat(-110.0f), in), splat(100.0f));
    struct f16 shifted = fma16(x, splat(0x1.715476p+0f), magic), n = sub16(shifted, magic);
    struct f16 r = fma16(n, splat(-0x1.62e4p-1f), x); /* ln2 in two parts, the first with a short mantissa */
    r = fma16(n, splat(-0x1.7f7d1cp-20f), r);
    struct f16 p = fma16(splat(0x1.a01a02p-13f), r, splat(0x1.6c16c2p-10f)); /* 1/5040, 1/720 */
    p = fma16(p, r, splat(0x1.111112p-7f));
    p = fma16(p, r, splat(0x1.555556p-5f));
    p = fma16(p, r, splat(0x1.555556p-3f));
    p = fma16(p, r, splat(0.5f));
    p = add16(fma16(mul16(p, r), r, r), splat(1.0f));
#if defined(__AVX512F__)
    /* rounds once, too, where the result is subnormal */
    __m512 y = _mm512_scalef_ps((__m512)p.p[0], (__m512)n.p[0]);
    p.p[0] = (fpart)_mm512_mask_mov_ps(y, _mm512_cmp_ps_mask((__m512)in.p[0], (__m512)in.p[0], _CMP_UNORD_Q),
                                       (__m512)in.p[0]);
#else
    struct i16 e = isub16(bits16(shifted), bits16(magic));
    EACH_PART
    {
        ipart half = e.p[i] >> 1;
        fpart a = (fpart)((half + 127) << 23), b = (fpart)((e.p[i] - half + 127) << 23);
        p.p[i] = pick(in.p[i] == in.p[i], p.p[i] * a * b, in.p[i]);
    }
#endif
    return p;
}

/* most * tanh(x / most); minus infinity (no score) is kept. */
INLINE struct f16 cap16(struct f16 x, float most)
{
    struct f16 e = exp16(mul16(div16(x, splat(most)), splat(2.0f)));
    struct f16 y = mul16(sub16(splat(1.0f), div16(splat(2.0f), add16(e, splat(1.0f)))), splat(most));
    EACH_PART y.p[i] = pick(x.p[i] == -INFINITY, x.p[i], y.p[i]);
    return y;
}

#endif
