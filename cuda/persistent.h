/* SPDX-License-Identifier: Apache-2.0 */
/* persistent.h: IQ1 times one or two rows of x, for large products. One block per multiprocessor loads a codebook of
 * 32 copies once (codes.h), so that no thread waits for another's bank. Its warps go through the outputs of all
 * matrices of the launch, four at a time (two for two rows). In product.h's blocks the codebook has one copy, and the
 * threads mostly wait for its banks.
 *
 *   shared memory   codebook | rings of warp 0 | of warp 1 | ... 128 KiB and 54 (IQ1_S) or 60 (IQ1_M): cards of 9.0 and
 *                   10.0 have as much */
#ifndef NTX_CUDA_PERSISTENT_H
#define NTX_CUDA_PERSISTENT_H

#include "cuda/product.h"

#define PERSISTENT_THREADS         512u
#define PERSISTENT_COPIES          32u
#define PERSISTENT_TYPES(X)        X(IQ1_S) X(IQ1_M)
#define PERSISTENT_CODEBOOK(words) (4u * ((words)*PERSISTENT_COPIES + 2 * CODEBOOK_BYTES))
#define PERSISTENT_BYTES(TYPE, rows)                                                                                   \
    (PERSISTENT_CODEBOOK(CODEBOOK_##TYPE) + PERSISTENT_THREADS / WARP * OUTS_OF(TYPE, rows) * RING_##TYPE)

/* The number of warps' shares in the matrices of a launch; each routed row has as many. */
DEV uint32_t persistent_shares(const struct ntx_gpu_product *a, uint32_t outs)
{
    const struct ntx_gpu_another *last = a->n_others ? &a->others[a->n_others - 1] : NULL;
    return (last ? last->first_block : 0) + ((last ? last->n_out : a->n_out) + outs - 1) / outs;
}

/* Sets *p to the matrix of share i, and returns the share's first output. */
DEV uint32_t take_share(const struct ntx_gpu_product *a, uint32_t i, uint32_t each, uint32_t outs,
                        struct ntx_gpu_product *p)
{
    const uint32_t share = matrix_of_block(a, i % each, p);
    take_routed(p, i / each);
    return share * outs;
}

/* Prefetches up to 1 KiB of each output's row, a line per thread, so that the memory is not idle while the codebook is
 * loaded. */
DEV void prefetch_share(const struct ntx_gpu_product *a, uint32_t i, uint32_t each, uint32_t outs)
{
    struct ntx_gpu_product p;
    const uint32_t first = take_share(a, i, each, outs, &p), line = TID % 8 * 128;
    if (line < p.row_bytes)
        prefetch_line(weights_of(&p, output_at(&p, first + TID % WARP / 8 % outs)) + line);
}

DEV void product_persistent(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *a,
                            uint8_t *shared)
{
    const uint32_t each = persistent_shares(a, (uint32_t)outs), n = each * (a->routed.n ? a->routed.n : 1),
                   mine = TID / WARP * BLOCKS + BX; /* so that all blocks have equally many */
    if (mine < n)
        prefetch_share(a, mine, each, (uint32_t)outs);
    const struct codebook codebook = load_codebook(type, PERSISTENT_COPIES, (uint32_t *)(void *)shared);
    for (uint32_t i = mine; all_of_warp(i < n); i += BLOCK_DIM / WARP * BLOCKS) {
        struct ntx_gpu_product p;
        const uint32_t first = take_share(a, i, each, (uint32_t)outs, &p);
        product_super(type, rows, outs, &p, first, shared + PERSISTENT_CODEBOOK(codebook_words(type)), &codebook, NULL,
                      0);
        SYNC_WARP(); /* the rings may be overwritten now */
    }
}

#define PERSISTENT(type, rows)                                                                                         \
    KERNEL_OF(PERSISTENT_THREADS, persistent_##type##_##rows, struct ntx_gpu_product)                                  \
    {                                                                                                                  \
        SHARED_OF_LAUNCH(shared);                                                                                      \
        product_persistent(NTX_##type, rows, OUTS_OF(type, rows), &a, shared);                                         \
    }
#define PERSISTENT_BOTH(TYPE) PERSISTENT(TYPE, 1) PERSISTENT(TYPE, 2)
PERSISTENT_TYPES(PERSISTENT_BOTH)

#endif
