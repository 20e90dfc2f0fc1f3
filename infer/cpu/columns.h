/* columns.h: sums of weighted columns, for FFNs whose down matrix lies column by column (model/pack.h). One source for every
 * instruction set, like ops.h. Columns are widened to floats a segment at a time (exactly the values of model/quant.c), 16 columns
 * together, and added to each row that has a use for them: who has none costs nothing. */
#ifndef NTX_COMPUTED_CPU_COLUMNS_H
#define NTX_COMPUTED_CPU_COLUMNS_H

#include "infer/cpu/blocks.h"
#include "infer/cpu/lanes.h"

enum { SEGMENT = 256, TOGETHER = 16 }; /* values of a column, columns */

/* ---- n values (whole blocks) of a column as floats */

#define WIDEN_SIMPLE(name, minimum)                                                                    \
    static void widen_##name(const void *p, float *out, uint32_t n)                                    \
    {                                                                                                  \
        const struct ntx_block_##name *b = p;                                                          \
        for (uint32_t k = 0; k < n; k += NTX_QK, b++) {                                                \
            struct simple s;                                                                           \
            unpack_##name(b, &s);                                                                      \
            for (int i = 0; i < NTX_QK; i++)                                                           \
                out[k + (uint32_t)i] = minimum ? s.d * (float)s.q[i] + s.m : s.d * (float)s.q[i];      \
        }                                                                                              \
    }

#define WIDEN_SUPER(name, minimum)                                                                     \
    static void widen_##name(const void *p, float *out, uint32_t n)                                    \
    {                                                                                                  \
        const struct ntx_block_##name *b = p;                                                          \
        for (uint32_t k = 0; k < n; k += NTX_QKK, b++) {                                               \
            struct super s;                                                                            \
            unpack_##name(b, &s);                                                                      \
            for (uint32_t g = 0; g < 16; g++) {                                                        \
                float d = s.d * (float)s.scale[g], m = minimum ? s.dmin * (float)s.min[g] : 0;         \
                for (uint32_t i = 16 * g; i < 16 * g + 16; i++)                                        \
                    out[k + i] = minimum ? d * (float)s.q[i] - m : d * (float)s.q[i];                  \
            }                                                                                          \
        }                                                                                              \
    }

WIDEN_SIMPLE(q4_0, false)
WIDEN_SIMPLE(q4_1, true)
WIDEN_SIMPLE(q5_0, false)
WIDEN_SIMPLE(q5_1, true)
WIDEN_SIMPLE(q8_0, false)
WIDEN_SIMPLE(mxfp4, false)
WIDEN_SUPER(q2_k, true)
WIDEN_SUPER(q3_k, false)
WIDEN_SUPER(q4_k, true)
WIDEN_SUPER(q5_k, true)
WIDEN_SUPER(q6_k, false)

static void widen_f32(const void *p, float *out, uint32_t n) { memcpy(out, p, n * sizeof *out); }

static void widen_f16(const void *p, float *out, uint32_t n)
{
    const uint16_t *h = p;
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        store16(out + k, load16_f16(h + k));
    if (k < n)
        store_part(out + k, load_part_f16(h + k, n - k), n - k);
}

static void widen_bf16(const void *p, float *out, uint32_t n)
{
    const uint16_t *h = p;
    for (uint32_t k = 0; k < n; k++)
        out[k] = bf16_to_f32(h[k]);
}

/* ---- adding */

struct widened {
    _Alignas(64) float w[TOGETHER][SEGMENT];
};

/* y[0..n) += sum of a[i] * w[column[i]], one after the other; n at most SEGMENT. */
INLINE void add_columns_to_row(const struct widened *s, const uint8_t *column, const float *a, uint32_t n_columns, float *y, uint32_t n)
{
    uint32_t k = 0;
    for (; k + 64 <= n; k += 64) {
        struct f16 v[4];
        for (uint32_t j = 0; j < 4; j++)
            v[j] = load16(y + k + 16 * j);
        for (uint32_t i = 0; i < n_columns; i++) {
            const float *w = s->w[column[i]] + k;
            struct f16 by = splat(a[i]);
            for (uint32_t j = 0; j < 4; j++)
                v[j] = fma16(by, load16(w + 16 * j), v[j]);
        }
        for (uint32_t j = 0; j < 4; j++)
            store16(y + k + 16 * j, v[j]);
    }
    for (; k < n; k++)
        for (uint32_t i = 0; i < n_columns; i++)
            y[k] = fmaf(a[i], s->w[column[i]][k], y[k]);
}

INLINE uint32_t list_columns(const float *a, uint32_t n, uint8_t *column, float *value)
{
    uint32_t m = 0;
    for (uint32_t c = 0; c < n; c++)
        if (a[c] != 0) {
            column[m] = (uint8_t)c;
            value[m++] = a[c];
        }
    return m;
}

/* Columns [0, n_cols), n_cols <= TOGETHER, over values [k, k + n). */
INLINE void add_segment(const uint8_t *w, size_t col_bytes, uint32_t n_cols, uint32_t n, const float *a, size_t lda, uint32_t n_rows, float *y, size_t ldy,
                        void (*widen)(const void *, float *, uint32_t))
{
    struct widened s;
    uint32_t have = 0;
    for (uint32_t r = 0; r < n_rows; r++) {
        uint8_t column[TOGETHER];
        float value[TOGETHER];
        uint32_t m = list_columns(a + r * lda, n_cols, column, value);
        for (uint32_t i = 0; i < m; i++)
            if (!(have >> column[i] & 1)) {
                widen(w + column[i] * col_bytes, s.w[column[i]], n);
                have |= 1u << column[i];
            }
        if (m)
            add_columns_to_row(&s, column, value, m, y + r * ldy, n);
    }
}

#define COLUMNS(name, block, block_bytes)                                                                                              \
    static void columns_##name(const void *w, size_t col_bytes, uint32_t n_cols, uint32_t n, const float *a, size_t lda, uint32_t n_rows, \
                               float *y, size_t ldy)                                                                                   \
    {                                                                                                                                  \
        for (uint32_t k = 0; k < n; k += SEGMENT) {                                                                                    \
            const uint8_t *at = (const uint8_t *)w + (size_t)k / block * (block_bytes);                                                \
            uint32_t here = n - k < SEGMENT ? n - k : SEGMENT;                                                                         \
            for (uint32_t c = 0; c < n_cols; c += TOGETHER)                                                                            \
                add_segment(at + c * col_bytes, col_bytes, n_cols - c < TOGETHER ? n_cols - c : TOGETHER, here, a + c, lda, n_rows, y + k, ldy, \
                            widen_##name);                                                                                             \
        }                                                                                                                              \
    }

COLUMNS(f32, 1, 4)
COLUMNS(f16, 1, 2)
COLUMNS(bf16, 1, 2)
COLUMNS(q4_0, NTX_QK, sizeof(struct ntx_block_q4_0))
COLUMNS(q4_1, NTX_QK, sizeof(struct ntx_block_q4_1))
COLUMNS(q5_0, NTX_QK, sizeof(struct ntx_block_q5_0))
COLUMNS(q5_1, NTX_QK, sizeof(struct ntx_block_q5_1))
COLUMNS(q8_0, NTX_QK, sizeof(struct ntx_block_q8_0))
COLUMNS(mxfp4, NTX_QK, sizeof(struct ntx_block_mxfp4))
COLUMNS(q2_k, NTX_QKK, sizeof(struct ntx_block_q2_k))
COLUMNS(q3_k, NTX_QKK, sizeof(struct ntx_block_q3_k))
COLUMNS(q4_k, NTX_QKK, sizeof(struct ntx_block_q4_k))
COLUMNS(q5_k, NTX_QKK, sizeof(struct ntx_block_q5_k))
COLUMNS(q6_k, NTX_QKK, sizeof(struct ntx_block_q6_k))

#define COLUMNS_TABLE                                                                                                                   \
    {                                                                                                                                   \
        [NTX_F32] = columns_f32, [NTX_F16] = columns_f16, [NTX_BF16] = columns_bf16, [NTX_Q4_0] = columns_q4_0, [NTX_Q4_1] = columns_q4_1, \
        [NTX_Q5_0] = columns_q5_0, [NTX_Q5_1] = columns_q5_1, [NTX_Q8_0] = columns_q8_0, [NTX_Q2_K] = columns_q2_k,                     \
        [NTX_Q3_K] = columns_q3_k, [NTX_Q4_K] = columns_q4_k, [NTX_Q5_K] = columns_q5_k, [NTX_Q6_K] = columns_q6_k,                     \
        [NTX_MXFP4] = columns_mxfp4,                                                                                                    \
    }

#endif
