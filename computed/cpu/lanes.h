/* lanes.h: sixteen floats that behave alike on every instruction set.
 *
 * GCC's vector types give + - * / and integer operations lane by lane, exactly as IEEE says; the compiler spreads them over
 * whatever registers the file's flags allow. Only the fused multiply-add and the F16 conversions need a spelling per
 * instruction set; those are here. Nothing re-associates, so the same source gives the same bits everywhere. */
#ifndef NTX_COMPUTED_CPU_LANES_H
#define NTX_COMPUTED_CPU_LANES_H

#include <math.h>

#include "computed/cpu/kern.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef float f16v __attribute__((vector_size(64)));  /* 16 x float */
typedef int32_t i16v __attribute__((vector_size(64)));
typedef uint32_t u16v __attribute__((vector_size(64)));
typedef uint16_t h16v __attribute__((vector_size(32))); /* 16 x F16 */

INLINE f16v splat(float f) { return (f16v){f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f}; }

INLINE f16v load16(const float *p)
{
    f16v v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store16(float *p, f16v v) { memcpy(p, &v, sizeof v); }

/* The first n < 16 values; the rest are +0. */
INLINE f16v load_part(const float *p, uint32_t n)
{
    f16v v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

INLINE void store_part(float *p, f16v v, uint32_t n) { memcpy(p, &v, n * sizeof *p); }

INLINE f16v fma16(f16v a, f16v b, f16v c)
{
#if defined(__AVX512F__)
    return (f16v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    union { f16v v; __m256 h[2]; } x = {a}, y = {b}, z = {c};
    z.h[0] = _mm256_fmadd_ps(x.h[0], y.h[0], z.h[0]);
    z.h[1] = _mm256_fmadd_ps(x.h[1], y.h[1], z.h[1]);
    return z.v;
#else
    for (int i = 0; i < 16; i++)
        c[i] = fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

INLINE f16v widen16(h16v h)
{
#if defined(__AVX512F__)
    return (f16v)_mm512_cvtph_ps((__m256i)h);
#elif defined(__F16C__)
    union { h16v v; __m128i h[2]; } x = {h};
    union { f16v v; __m256 h[2]; } y;
    y.h[0] = _mm256_cvtph_ps(x.h[0]);
    y.h[1] = _mm256_cvtph_ps(x.h[1]);
    return y.v;
#else
    f16v v;
    for (int i = 0; i < 16; i++)
        v[i] = f16_to_f32(h[i]);
    return v;
#endif
}

INLINE h16v narrow16(f16v v)
{
#if defined(__AVX512F__)
    return (h16v)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    union { f16v v; __m256 h[2]; } x = {v};
    union { h16v v; __m128i h[2]; } y;
    y.h[0] = _mm256_cvtps_ph(x.h[0], _MM_FROUND_TO_NEAREST_INT);
    y.h[1] = _mm256_cvtps_ph(x.h[1], _MM_FROUND_TO_NEAREST_INT);
    return y.v;
#else
    h16v h;
    for (int i = 0; i < 16; i++)
        h[i] = f32_to_f16(v[i]);
    return h;
#endif
}

INLINE f16v load16_f16(const uint16_t *p)
{
    h16v h;
    memcpy(&h, p, sizeof h);
    return widen16(h);
}

INLINE f16v load_part_f16(const uint16_t *p, uint32_t n)
{
    h16v h = {0};
    memcpy(&h, p, n * sizeof *p);
    return widen16(h);
}

/* a where the mask is all ones, b where it is zero. */
INLINE f16v pick16(i16v mask, f16v a, f16v b) { return (f16v)((mask & (i16v)a) | (~mask & (i16v)b)); }

/* b where b > a, else a. */
INLINE f16v max16(f16v a, f16v b) { return pick16(b > a, b, a); }

/* The fixed tree: l += l + 8, then 4, 2, 1. */
INLINE float join16(f16v v)
{
    v += __builtin_shuffle(v, (i16v){8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15});
    v += __builtin_shuffle(v, (i16v){4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7});
    v += __builtin_shuffle(v, (i16v){2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3});
    return v[0] + v[1];
}

/* e^x within 1 ulp or so over the whole range, gradual underflow, infinity above 88.72, NaN kept.
 * x = n ln2 + r, |r| <= ln2 / 2; e^r by its series to degree 7; 2^n in two factors so that both ends round once. */
INLINE f16v exp16(f16v in)
{
    const f16v magic = splat(0x1.8p23f); /* adding it rounds to an integer, left in the low bits */
    f16v x = max16(splat(-110.0f), in);
    x = pick16(x > 100.0f, splat(100.0f), x);
    f16v shifted = fma16(x, splat(0x1.715476p+0f), magic);
    f16v n = shifted - magic;
    f16v r = fma16(n, splat(-0x1.62e4p-1f), x); /* ln2 in two parts, the first with a short mantissa */
    r = fma16(n, splat(-0x1.7f7d1cp-20f), r);
    f16v p = fma16(splat(0x1.a01a02p-13f), r, splat(0x1.6c16c2p-10f)); /* 1/5040, 1/720 */
    p = fma16(p, r, splat(0x1.111112p-7f));
    p = fma16(p, r, splat(0x1.555556p-5f));
    p = fma16(p, r, splat(0x1.555556p-3f));
    p = fma16(p, r, splat(0.5f));
    p = fma16(p * r, r, r) + 1.0f;
    i16v e = (i16v)shifted - (i16v)magic, half = e >> 1;
    f16v a = (f16v)((half + 127) << 23), b = (f16v)((e - half + 127) << 23);
    return pick16(in == in, p * a * b, in);
}

#endif
