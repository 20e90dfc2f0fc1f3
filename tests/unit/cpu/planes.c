/* SPDX-License-Identifier: Apache-2.0 */
/* planes.c: each instruction set joins high and low bits to the same blocks as the plain code, and multiplies them to
 * the whole type's bits: rows of several lengths, one to six rows of x. High bits alone have the plain code's bits, and
 * the values of the exact middle. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "computed/cpu/planes.h"
#include "model/planes.h"
#include "tests/lib/check.h"

enum { BLOCKS = 37 };

static void check(const struct ntx_cpu_ops *ops, uint32_t type)
{
    const struct ntx_type_info *to = ntx_type_info(ntx_planes_whole(type)),
                               *high = ntx_type_info(ntx_planes_of(type)->high),
                               *low = ntx_type_info(ntx_planes_of(type)->low);
    uint8_t *h = malloc(BLOCKS * high->block_bytes), *l = malloc(BLOCKS * low->block_bytes),
            *x = calloc(BLOCKS, to->block_bytes), *y = calloc(BLOCKS, to->block_bytes);
    CHECK(h && l && x && y);
    for (size_t i = 0; i < BLOCKS * high->block_bytes; i++)
        h[i] = (uint8_t)(i * 37 + i / 251);
    for (size_t i = 0; i < BLOCKS * low->block_bytes; i++)
        l[i] = (uint8_t)(i * 101 + i / 127);
    ntx_planes_join(type, h, l, BLOCKS, x);
    ops->join(type, h, l, BLOCKS, y);
    CHECK_MSG(!memcmp(x, y, BLOCKS * to->block_bytes), "%s, %s", ops->name, ntx_type_info(type)->name);
    free(h);
    free(l);
    free(x);
    free(y);
}

enum { ROWS = 6, OUTS = 67 };

/* The exact middle is the mean of the values whose low bits are all 0, and all 1. y: [rows][OUTS] of high bits
 * alone. */
static void check_middle(const struct ntx_planes *p, const uint8_t *high, uint32_t n, const void *x, size_t stride,
                         uint32_t rows, const float *y)
{
    const struct ntx_cpu_ops *ops = ntx_cpu_pick("generic");
    const uint32_t n_in = n * ntx_type_info(p->whole)->block;
    const size_t row = ntx_row_bytes(p->whole, n_in), low_bytes = OUTS * ntx_row_bytes(p->low, n_in);
    uint8_t *whole = malloc(OUTS * row), *low = malloc(low_bytes);
    float at[2][ROWS * OUTS], most = 0;
    CHECK(whole && low);
    for (int up = 0; up < 2; up++) {
        memset(low, up ? 0xff : 0, low_bytes);
        ntx_planes_join(p->low, high, low, (size_t)OUTS * n, whole);
        ops->matmul[p->whole](whole, row, OUTS, n_in, x, stride, rows, at[up], OUTS);
    }
    for (uint32_t i = 0; i < rows * OUTS; i++)
        most = fmaxf(most, fmaxf(fabsf(at[0][i]), fabsf(at[1][i])));
    for (uint32_t i = 0; i < rows * OUTS; i++)
        CHECK_MSG(fabsf(y[i] - (at[0][i] + at[1][i]) / 2) <= 1e-6f * most, "%s, output %u: %g, between %g and %g",
                  ntx_type_info(p->high)->name, i, (double)y[i], (double)at[0][i], (double)at[1][i]);
    free(whole);
    free(low);
}

/* n blocks a row. Weights lie at the end of their memory, so that sanitizers see reads behind them. */
static void check_products(const struct ntx_cpu_ops *ops, uint32_t type, uint32_t n)
{
    const struct ntx_planes *p = ntx_planes_of(type);
    const struct ntx_type_info *t = ntx_type_info(p->whole);
    const uint32_t n_in = n * t->block;
    const size_t row = ntx_row_bytes(p->whole, n_in), stride = ntx_act_row_bytes(ntx_act_for(p->whole), n_in);
    uint8_t *whole = malloc(OUTS * row), *high = malloc(OUTS * ntx_row_bytes(p->high, n_in)),
            *low = malloc(OUTS * ntx_row_bytes(p->low, n_in)), *joined = malloc(NTX_PLANES_OUTS * row),
            *x = aligned_alloc(64, (ROWS * stride + 63) / 64 * 64);
    float *f = malloc(n_in * sizeof *f), y[2][ROWS * OUTS];
    CHECK(whole && high && low && joined && x && f);
    for (size_t i = 0; i < OUTS * row; i++)
        whole[i] = (uint8_t)(i * 37 + i / 251 + (i * i) / 13);
    for (size_t b = 0; b < (size_t)OUTS * n; b++)
        for (unsigned k = 0; k < t->n_halves; k++)
            memcpy(whole + b * t->block_bytes + t->half_at[k], &(uint16_t){(uint16_t)(0x2c00 + b % 99)}, 2);
    ntx_planes_split(p, whole, high, low, (size_t)OUTS * n);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < n_in; i++)
            f[i] = (float)((i * 7 + r * 11) % 31) - 15 + (float)r / 8;
        ops->act_quantize[ntx_act_for(p->whole)](f, x + r * stride, n_in);
    }
    for (uint32_t rows = 1; rows <= ROWS; rows++) {
        const struct ntx_planes_weights w = {type, OUTS, n_in, high, p->low == type ? low : NULL};
        if (p->low == type)
            ops->matmul[p->whole](whole, row, OUTS, n_in, x, stride, rows, y[0], OUTS);
        else
            ntx_cpu_multiply_planes(ntx_cpu_pick("generic"), &w, x, stride, rows, y[0], OUTS, joined);
        ntx_cpu_multiply_planes(ops, &w, x, stride, rows, y[1], OUTS, joined);
        CHECK_MSG(!memcmp(y[0], y[1], rows * OUTS * sizeof **y), "%s, %s, %u values, %u rows", ops->name,
                  ntx_type_info(type)->name, n_in, rows);
        if (p->high == type)
            check_middle(p, high, n, x, stride, rows, y[1]);
    }
    free(whole);
    free(high);
    free(low);
    free(joined);
    free(x);
    free(f);
}

int main(void)
{
    static const uint32_t blocks[] = {1, 2, 4, 5, 16, 19, 35};
    static const char *const sets[] = {"generic", "avx2", "avx512", "amx", "neon", "i8mm"};
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (uint32_t t = NTX_PLANES_FIRST; t < NTX_TYPE_LIMIT; t++)
            if (ntx_cpu_pick(sets[s])) {
                if (ntx_planes_low(t))
                    check(ntx_cpu_pick(sets[s]), t);
                for (size_t n = 0; n < sizeof blocks / sizeof *blocks; n++)
                    check_products(ntx_cpu_pick(sets[s]), t, blocks[n]);
            }
    return 0;
}
