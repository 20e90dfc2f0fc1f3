/* SPDX-License-Identifier: Apache-2.0 */
/* columns.c: sums of columns against their definition, for every type and instruction set, bit by bit; nothing is read
 * behind the last column or written beside y, zeros cost no bit, and the width may be cut anywhere. */
#include "model/quant.h"
#include "tests/lib/cpu_blocks.h"
#include "tests/lib/cpu_kit.h"

enum { COLS = 37, ROWS = 5 };

#define TYPE(rule, TYPE, ...) NTX_##TYPE,
static const uint32_t types[] = {NTX_TYPES(TYPE)};

struct problem {
    uint32_t type, n, n_cols, n_rows;
    size_t col_bytes;
    struct guarded w;
    const char *columns;
    float *a;            /* [n_rows x COLS]: some zero, some columns for no row */
    float *start, *want; /* [n_rows x n] */
};

static void define(struct problem *p)
{
    const struct ntx_type_info *t = ntx_type_info(p->type);
    float *w = malloc(p->n * sizeof *w);
    memcpy(p->want, p->start, p->n_rows * p->n * sizeof(float));
    for (uint32_t c = 0; c < p->n_cols; c++) {
        t->dequant(p->columns + c * p->col_bytes, w, p->n / t->block);
        for (uint32_t r = 0; r < p->n_rows; r++)
            for (uint32_t k = 0; k < p->n; k++)
                p->want[r * p->n + k] = fmaf(p->a[r * COLS + c], w[k], p->want[r * p->n + k]);
    }
    free(w);
}

static void make(struct problem *p, struct rng *r)
{
    const struct ntx_type_info *t = ntx_type_info(p->type);
    p->col_bytes = ntx_row_bytes(p->type, p->n);
    p->w = guard_new(p->col_bytes * p->n_cols);
    p->columns = p->w.end - p->col_bytes * p->n_cols;
    for (char *b = p->w.end - p->col_bytes * p->n_cols; b < p->w.end; b += t->block_bytes)
        random_block(r, p->type, b, t->block_bytes, false);
    p->a = malloc(ROWS * COLS * sizeof(float));
    p->start = malloc(p->n_rows * p->n * sizeof(float));
    p->want = malloc(p->n_rows * p->n * sizeof(float));
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        p->a[i] = i % 2 ? 0.0f : -0.0f;
        if (rng_u32(r) % 3 && i % COLS % 5)
            p->a[i] = rng_float(r);
    }
    for (uint32_t i = 0; i < p->n_rows * p->n; i++)
        p->start[i] = i % 7 ? rng_float(r) : 0;
    define(p);
}

static void check_isa(const struct problem *p, const struct ntx_cpu_ops *ops)
{
    size_t values = p->n_rows * p->n;
    float *y = malloc((values + 1) * sizeof *y);
    uint32_t block = ntx_type_info(p->type)->block, cut = p->n / block / 2 * block; /* in one piece, and cut in two */
    for (int cuts = 0; cuts <= (cut > 0); cuts++) {
        memcpy(y, p->start, values * sizeof *y);
        y[values] = 12345;
        for (uint32_t k = 0; k < p->n; k = !k && cuts ? cut : p->n)
            ops->columns[p->type](p->columns + ntx_row_bytes(p->type, k), p->col_bytes, p->n_cols,
                                  (!k && cuts ? cut : p->n) - k, p->a, COLS, p->n_rows, y + k, p->n);
        CHECK_MSG(!memcmp(y, p->want, values * sizeof *y), "%s, %s: %u columns of %u, %u rows", ops->name,
                  ntx_type_info(p->type)->name, p->n_cols, p->n, p->n_rows);
        CHECK(y[values] == 12345);
    }
    free(y);
}

static void check(struct problem p, struct rng *r)
{
    make(&p, r);
    check_isa(&p, ntx_cpu_pick("generic"));
    for (unsigned k = 0; isa_at(k); k++)
        check_isa(&p, isa_at(k));
    guard_free(p.w);
    free(p.a), free(p.start), free(p.want);
}

int main(void)
{
    struct rng r = {42};
    for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
        uint32_t block = ntx_type_info(types[t])->block;
        for (uint32_t n_cols = 1; n_cols <= COLS; n_cols += n_cols < 4 ? 1 : 11)
            for (uint32_t n_rows = 1; n_rows <= ROWS; n_rows += 2) {
                check(
                    (struct problem){
                        .type = types[t], .n = block == 1 ? 83 : 3 * block, .n_cols = n_cols, .n_rows = n_rows},
                    &r);
                check((struct problem){.type = types[t], .n = 1024, .n_cols = n_cols, .n_rows = n_rows}, &r);
            }
    }
    return 0;
}
