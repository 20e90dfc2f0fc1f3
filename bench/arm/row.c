/* SPDX-License-Identifier: Apache-2.0 */
/* row.c: one product for cycles.py: KERNEL TYPE ROWS OUTS [interleaved]. It multiplies OUTS rows of 4096 random
 * weights by ROWS rows of x. The second call is between the marks that cycles.py counts from and to. */
#include <stdio.h>
#include <stdlib.h>

#include "model/quant.h"
#include "tests/lib/cpu_blocks.h"
#include "tests/lib/cpu_kit.h"

enum { N = 4096 };

__attribute__((noinline)) void mark_begin(void);
__attribute__((noinline)) void mark_end(void);
void mark_begin(void) { __asm__ volatile(""); }
void mark_end(void) { __asm__ volatile("nop"); }

int main(int argc, char **argv)
{
    struct rng r = {1};
    uint32_t type = 0;
    const struct ntx_cpu_ops *ops = argc >= 5 ? ntx_cpu_pick(argv[1]) : NULL;
    while (ops && type < NTX_TYPE_LIMIT && !(ntx_type_info(type) && !strcasecmp(ntx_type_info(type)->name, argv[2])))
        type++;
    if (!ops || type == NTX_TYPE_LIMIT) {
        fprintf(stderr, "usage: row KERNEL TYPE ROWS OUTS [interleaved]\n");
        return 100;
    }
    const uint32_t rows = (uint32_t)atoi(argv[3]), outs = (uint32_t)atoi(argv[4]);
    const struct ntx_type_info *t = ntx_type_info(type);
    const size_t row_bytes = ntx_row_bytes(type, N), stride = ntx_act_row_bytes(ntx_act_for(type), N);
    char *w = aligned_bytes(row_bytes * outs), *x = aligned_bytes(stride * rows);
    float *f = aligned_bytes(N * sizeof *f), *y = aligned_bytes(sizeof *y * rows * outs);
    for (char *b = w; b < w + row_bytes * outs; b += t->block_bytes)
        random_block(&r, type, b, t->block_bytes, false);
    for (uint32_t k = 0; k < N; k++)
        f[k] = rng_float(&r);
    for (uint32_t k = 0; k < rows; k++)
        ops->act_quantize[ntx_act_for(type)](f, x + k * stride, N);
    ntx_matmul_fn *matmul = ops->matmul[type];
    if (argc > 5 && (!(matmul = ops->interleaved[type]) || outs % NTX_SLICE_OUTS)) {
        fprintf(stderr, "%s: not interleaved, or not in whole slices\n", argv[2]);
        return 100;
    }
    char *scratch = aligned_bytes(row_bytes * NTX_SLICE_OUTS);
    for (uint32_t o = 0; argc > 5 && o < outs; o += NTX_SLICE_OUTS)
        ops->interleave[type](w + o * row_bytes, row_bytes, scratch);
    for (int call = 0; call < 2; call++) {
        if (call)
            mark_begin();
        matmul(w, row_bytes, outs, N, x, stride, rows, y, outs);
        if (call)
            mark_end();
    }
    return 0;
}
