/* SPDX-License-Identifier: Apache-2.0 */
#include "model/mlp.h"

#include <errno.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/util.h"

#define LANES 64 /* rows are padded with zeros to whole steps of the widest kernel */

/* Sum of q[i] * w[i]: at most 127 * 127 * 65536, so 32 bits hold it. n is a multiple of LANES. */
typedef int32_t dot_fn(const int16_t *q, const int8_t *w, uint32_t n);

/* q = quantised states; mean and scale as in mlp.h. n is a multiple of 16, except for the generic kernel. */
typedef void steps_fn(const float *hidden, const float *mean, const float *scale, int16_t *q, uint32_t n);

struct kernel {
    const char *name;
    bool (*have)(void);
    dot_fn *dot;
    steps_fn *steps;
};

struct ntx_mlp {
    const struct kernel *kernel;
    uint32_t n_in, padded, n_hidden, n_out;
    float *mean, *scale; /* [n_in] */
    int8_t *w1;          /* [n_hidden x padded] */
    float *unit, *b1;    /* [n_hidden] */
    float *w2;           /* unit by unit, so that one unit adds to all outputs at once */
    float *b2;           /* [n_out] */
};

static int32_t dot_generic(const int16_t *q, const int8_t *w, uint32_t n)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (int32_t)q[i] * w[i];
    return sum;
}

static void steps_generic(const float *hidden, const float *mean, const float *scale, int16_t *q, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        q[i] = ntx_mlp_quantize((hidden[i] - mean[i]) * scale[i]);
}

static bool have_generic(void) { return true; }

#if defined(__x86_64__)
static bool have_avx2(void) { return __builtin_cpu_supports("avx2"); }
static bool have_avx512(void) { return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512f"); }

/* Like ntx_mlp_quantize: rounds to even; if x is NaN, max gives its second operand. */
__attribute__((target("avx512f,avx512bw"))) static void steps_avx512(const float *hidden, const float *mean,
                                                                     const float *scale, int16_t *q, uint32_t n)
{
    const __m512 lo = _mm512_set1_ps(-127), hi = _mm512_set1_ps(127), one = _mm512_set1_ps(NTX_MLP_STEPS);
    for (uint32_t i = 0; i < n; i += 16) {
        __m512 x = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(hidden + i), _mm512_loadu_ps(mean + i)),
                                 _mm512_loadu_ps(scale + i));
        __m512i v = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(x, one), lo), hi));
        _mm256_storeu_si256((__m256i *)(void *)(q + i), _mm512_cvtepi32_epi16(v));
    }
}

__attribute__((target("avx2"))) static void steps_avx2(const float *hidden, const float *mean, const float *scale,
                                                       int16_t *q, uint32_t n)
{
    const __m256 lo = _mm256_set1_ps(-127), hi = _mm256_set1_ps(127), one = _mm256_set1_ps(NTX_MLP_STEPS);
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 x = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(hidden + i), _mm256_loadu_ps(mean + i)),
                                 _mm256_loadu_ps(scale + i));
        __m256i v = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(_mm256_mul_ps(x, one), lo), hi));
        _mm_storeu_si128((__m128i *)(void *)(q + i),
                         _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
    }
}

__attribute__((target("avx2"))) static int32_t dot_avx2(const int16_t *q, const int8_t *w, uint32_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    for (uint32_t i = 0; i < n; i += 32) {
        __m256i w0 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(w + i)));
        __m256i w1 = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(w + i + 16)));
        a = _mm256_add_epi32(a, _mm256_madd_epi16(w0, _mm256_loadu_si256((const __m256i *)(const void *)(q + i))));
        b = _mm256_add_epi32(b, _mm256_madd_epi16(w1, _mm256_loadu_si256((const __m256i *)(const void *)(q + i + 16))));
    }
    int32_t v[8], sum = 0;
    _mm256_storeu_si256((__m256i *)(void *)v, _mm256_add_epi32(a, b));
    for (int i = 0; i < 8; i++)
        sum += v[i];
    return sum;
}

__attribute__((target("avx512f,avx512bw"))) static int32_t dot_avx512(const int16_t *q, const int8_t *w, uint32_t n)
{
    __m512i a = _mm512_setzero_si512(), b = a;
    for (uint32_t i = 0; i < n; i += 64) {
        __m512i w0 = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(w + i)));
        __m512i w1 = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(w + i + 32)));
        _mm_prefetch((const char *)(w + i + 2048), _MM_HINT_T0);
        a = _mm512_add_epi32(a, _mm512_madd_epi16(w0, _mm512_loadu_si512(q + i)));
        b = _mm512_add_epi32(b, _mm512_madd_epi16(w1, _mm512_loadu_si512(q + i + 32)));
    }
    return _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
}

#endif

static const struct kernel kernels[] = {
#if defined(__x86_64__)
    {"avx512", have_avx512, dot_avx512, steps_avx512},
    {"avx2", have_avx2, dot_avx2, steps_avx2},
#endif
    {"generic", have_generic, dot_generic, steps_generic},
};

static const struct kernel *pick(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].have() && (!name || !strcmp(name, kernels[i].name)))
            return &kernels[i];
    return NULL;
}

int8_t ntx_mlp_quantize(float x)
{
    float q = x * NTX_MLP_STEPS;
    if (!(q > -127.0f)) /* also true for NaN */
        return -127;
    return q >= 127.0f ? 127 : (int8_t)lrintf(q);
}

static void quantize_unit(struct ntx_mlp *m, const struct ntx_mlp_weights *s, uint32_t j)
{
    const float *w = s->w1 + (size_t)j * s->n_in;
    float most = 0;
    for (uint32_t i = 0; i < s->n_in; i++)
        most = fmaxf(most, fabsf(w[i]));
    float step = most / 127.0f;
    for (uint32_t i = 0; i < s->n_in && step > 0; i++)
        m->w1[(size_t)j * m->padded + i] = (int8_t)lrintf(w[i] / step);
    m->unit[j] = step / NTX_MLP_STEPS;
}

static void quantize_weights(struct ntx_mlp *m, const struct ntx_mlp_weights *s)
{
    memcpy(m->mean, s->mean, m->n_in * sizeof(float));
    memcpy(m->scale, s->scale, m->n_in * sizeof(float));
    memcpy(m->b1, s->b1, m->n_hidden * sizeof(float));
    memcpy(m->b2, s->b2, m->n_out * sizeof(float));
    for (uint32_t j = 0; j < m->n_hidden; j++) {
        quantize_unit(m, s, j);
        for (uint32_t o = 0; o < m->n_out; o++)
            m->w2[(size_t)j * m->n_out + o] = s->w2[(size_t)o * m->n_hidden + j];
    }
}

/* Uses huge pages where possible: between two calls the weights leave the caches, and so does the page table. */
static void *big_zeros(size_t n)
{
    size_t huge = 2u << 20, room = NTX_ROUND_UP(n, n < huge ? 64 : huge);
    void *p = aligned_alloc(n < huge ? 64 : huge, room);
    if (p && n >= huge)
        madvise(p, room, MADV_HUGEPAGE); /* a failure costs only speed */
    return p ? memset(p, 0, room) : NULL;
}

int ntx_mlp_new(const struct ntx_mlp_weights *s, const char *kernel, struct ntx_mlp **out)
{
    const struct kernel *k = pick(kernel);
    if (!k)
        return -ENOTSUP;
    struct ntx_mlp *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    m->kernel = k;
    m->n_in = s->n_in;
    m->padded = NTX_ROUND_UP(s->n_in, LANES);
    m->n_hidden = s->n_hidden;
    m->n_out = s->n_out;
    m->mean = calloc(m->n_in, sizeof(float));
    m->scale = calloc(m->n_in, sizeof(float));
    m->w1 = big_zeros((size_t)m->n_hidden * m->padded);
    m->unit = calloc(m->n_hidden, sizeof(float));
    m->b1 = calloc(m->n_hidden, sizeof(float));
    m->w2 = calloc((size_t)m->n_hidden * m->n_out, sizeof(float));
    m->b2 = calloc(m->n_out, sizeof(float));
    if (!m->mean || !m->scale || !m->w1 || !m->unit || !m->b1 || !m->w2 || !m->b2) {
        ntx_mlp_free(m);
        return -ENOMEM;
    }
    quantize_weights(m, s);
    *out = m;
    return 0;
}

void ntx_mlp_free(struct ntx_mlp *m)
{
    if (!m)
        return;
    free(m->mean);
    free(m->scale);
    free(m->w1);
    free(m->unit);
    free(m->b1);
    free(m->w2);
    free(m->b2);
    free(m);
}

const char *ntx_mlp_kernel(const struct ntx_mlp *m) { return m->kernel->name; }
uint64_t ntx_mlp_scratch(const struct ntx_mlp *m) { return m->padded * sizeof(int16_t); }

uint64_t ntx_mlp_bytes(uint32_t n_in, uint32_t n_hidden, uint32_t n_out)
{
    return (uint64_t)n_hidden * (NTX_ROUND_UP(n_in, LANES) + (n_out + 2ull) * sizeof(float)) +
           (2ull * n_in + n_out) * sizeof(float) + sizeof(struct ntx_mlp);
}

void ntx_mlp_logits(const struct ntx_mlp *m, const float *hidden, void *scratch, float *logits)
{
    int16_t *q = scratch;
    uint32_t whole = m->n_in / LANES * LANES;
    m->kernel->steps(hidden, m->mean, m->scale, q, whole);
    memset(q + whole, 0, (m->padded - whole) * sizeof *q);
    steps_generic(hidden + whole, m->mean + whole, m->scale + whole, q + whole, m->n_in - whole);
    memcpy(logits, m->b2, m->n_out * sizeof *logits);
    for (uint32_t j = 0; j < m->n_hidden; j++) {
        float z = (float)m->kernel->dot(q, m->w1 + (size_t)j * m->padded, m->padded) * m->unit[j] + m->b1[j];
        const float *w = m->w2 + (size_t)j * m->n_out;
        for (uint32_t o = 0; z > 0 && o < m->n_out; o++)
            logits[o] += z * w[o];
    }
}
