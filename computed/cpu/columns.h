/* SPDX-License-Identifier: Apache-2.0 */
/* columns.h: sums of weighted columns, for FFNs whose down matrix is stored column by column (model/fill.h). One
 * source for every instruction set, like ops.h. Columns are widened to floats a segment at a time (exactly the values
 * of ntx_type_info(type)->dequant), 16 columns together, and added to each row that uses them; a row that uses none
 * costs nothing. */
#ifndef NTX_COMPUTED_CPU_COLUMNS_H
#define NTX_COMPUTED_CPU_COLUMNS_H

#include "computed/cpu/lanes.h"
#include "computed/cpu/parts.h"

enum { SEGMENT = 256, TOGETHER = 16 }; /* values of a column, columns */

_Static_assert(SEGMENT / NTX_QK == PARTS_MAX, "a segment's parts are unpacked together");

/* ---- n values (whole blocks, SEGMENT at most) of a column as floats */

struct column_type {
    void (*widen)(const struct column_type *t, const void *w, float *out, uint32_t n);
    parts_fn *unpack; /* NULL: floats */
    bool has_min;
    uint32_t block, block_bytes;
};

PARTS_ONCE void widen_simple(const struct column_type *t, const void *w, float *out, uint32_t n)
{
    struct ntx_part part[PARTS_MAX], *p = part;
    t->unpack(w, 0, n / NTX_QK, part);
    for (uint32_t k = 0; k < n; k += NTX_QK, p++)
        for (uint32_t i = 0; i < NTX_QK; i++)
            out[k + i] = t->has_min ? p->d * (float)p->q[i] + p->m : p->d * (float)p->q[i];
}

PARTS_ONCE void widen_halves(const struct column_type *t, const void *w, float *out, uint32_t n)
{
    struct ntx_part part[PARTS_MAX], *p = part;
    t->unpack(w, 0, n / NTX_QK, part);
    for (uint32_t k = 0; k < n; k += NTX_QK, p++)
        for (uint32_t i = 0; i < NTX_QK; i++)
            out[k + i] = (i < 16 ? p->d : p->m) * (float)p->q[i];
}

PARTS_ONCE void widen_super(const struct column_type *t, const void *w, float *out, uint32_t n)
{
    struct ntx_part part[PARTS_MAX], *p = part;
    t->unpack(w, 0, n / NTX_QK, part);
    for (uint32_t k = 0; k < n; k += NTX_QK, p++)
        for (uint32_t h = 0; h < 2; h++) {
            float d = p->d * (float)p->scale[h], m = t->has_min ? p->m * (float)p->min[h] : 0;
            for (uint32_t i = 16 * h; i < 16 * h + 16; i++)
                out[k + i] = t->has_min ? d * (float)p->q[i] - m : d * (float)p->q[i];
        }
}

static void widen_f32(const struct column_type *t, const void *p, float *out, uint32_t n)
{
    (void)t;
    memcpy(out, p, n * sizeof *out);
}

static void widen_f16(const struct column_type *t, const void *p, float *out, uint32_t n)
{
    (void)t;
    const uint16_t *h = p;
    uint32_t k = 0;
    for (; k + 16 <= n; k += 16)
        store16(out + k, load16_f16(h + k));
    if (k < n)
        store_part(out + k, load_part_f16(h + k, n - k), n - k);
}

static void widen_bf16(const struct column_type *t, const void *p, float *out, uint32_t n)
{
    (void)t;
    const uint16_t *h = p;
    for (uint32_t k = 0; k < n; k++)
        out[k] = bf16_to_f32(h[k]);
}

/* ---- sums */

struct widened {
    _Alignas(64) float w[TOGETHER][SEGMENT];
};

/* y[0..n) += sum of a[i] * w[column[i]], in order; n at most SEGMENT. */
INLINE void add_columns_to_row(const struct widened *s, const uint8_t *column, const float *a, uint32_t n_columns,
                               float *y, uint32_t n)
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
INLINE void add_segment(const struct column_type *t, const uint8_t *w, size_t col_bytes, uint32_t n_cols, uint32_t n,
                        const float *a, size_t lda, uint32_t n_rows, float *y, size_t ldy)
{
    struct widened s;
    uint32_t have = 0;
    for (uint32_t r = 0; r < n_rows; r++) {
        uint8_t column[TOGETHER];
        float value[TOGETHER];
        uint32_t m = list_columns(a + r * lda, n_cols, column, value);
        for (uint32_t i = 0; i < m; i++)
            if (!(have >> column[i] & 1)) {
                t->widen(t, w + column[i] * col_bytes, s.w[column[i]], n);
                have |= 1u << column[i];
            }
        if (m)
            add_columns_to_row(&s, column, value, m, y + r * ldy, n);
    }
}

PARTS_ONCE void add_columns(const struct column_type *t, const uint8_t *w, size_t col_bytes, uint32_t n_cols,
                            uint32_t n, const float *a, size_t lda, uint32_t n_rows, float *y, size_t ldy)
{
    for (uint32_t k = 0; k < n; k += SEGMENT) {
        const uint8_t *at = w + (size_t)k / t->block * t->block_bytes;
        uint32_t here = n - k < SEGMENT ? n - k : SEGMENT;
        for (uint32_t c = 0; c < n_cols; c += TOGETHER)
            add_segment(t, at + c * col_bytes, col_bytes, n_cols - c < TOGETHER ? n_cols - c : TOGETHER, here, a + c,
                        lda, n_rows, y + k, ldy);
    }
}

#define COLUMNS_OF(type, ...)                                                                                          \
    static void columns_##type(const void *w, size_t col_bytes, uint32_t n_cols, uint32_t n, const float *a,           \
                               size_t lda, uint32_t n_rows, float *y, size_t ldy)                                      \
    {                                                                                                                  \
        static const struct column_type t = {__VA_ARGS__};                                                             \
        add_columns(&t, w, col_bytes, n_cols, n, a, lda, n_rows, y, ldy);                                              \
    }
#define COLUMNS_BLOCKS(type, widen, values, min)                                                                       \
    COLUMNS_OF(type, widen, parts_##type, NTX_HAS_##min, values, sizeof(struct ntx_block_##type))

#define COLUMNS_FLOAT(type, values, bytes, min, ...)  COLUMNS_OF(type, widen_##type, NULL, false, 1, bytes)
#define COLUMNS_SIMPLE(type, values, scale, min, ...) COLUMNS_BLOCKS(type, widen_simple, values, min)
#define COLUMNS_HALVES(type, values, scale, min, ...) COLUMNS_BLOCKS(type, widen_halves, values, min)
#define COLUMNS_SUPER(type, values, scale, min, ...)  COLUMNS_BLOCKS(type, widen_super, values, min)
#define COLUMNS(rule, TYPE, type, ...)                COLUMNS_##rule(type, __VA_ARGS__)
#define COLUMNS_ROW(rule, TYPE, type, ...)            [NTX_##TYPE] = columns_##type,

NTX_TYPES(COLUMNS)
#define COLUMNS_TABLE                                                                                                  \
    {                                                                                                                  \
        NTX_TYPES(COLUMNS_ROW)                                                                                         \
    }

#endif
