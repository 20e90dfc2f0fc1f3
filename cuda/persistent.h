/* SPDX-License-Identifier: Apache-2.0 */
/* persistent.h: IQ1 by one row of x, or two, where there is much to multiply: a block a multiprocessor brings a book of
 * 32 copies once (codes.h), so that no thread waits for another's bank, and its warps go through the outputs of all
 * matrices of the launch, four at a time (two by two rows). In product.h's blocks a book has one copy, and there is
 * more waiting for its banks than for anything else.
 *
 *   shared memory   book | rings of warp 0 | of warp 1 | ... 128 KiB and 54 (IQ1_S) or 60 (IQ1_M): cards of 9.0 and
 *                   10.0 have them */
#ifndef NTX_CUDA_PERSISTENT_H
#define NTX_CUDA_PERSISTENT_H

#include "cuda/product.h"

#define PERSISTENT_THREADS     512u
#define PERSISTENT_COPIES      32u
#define PERSISTENT_TYPES(X)    X(IQ1_S) X(IQ1_M)
#define PERSISTENT_BOOK(words) (4u * ((words)*PERSISTENT_COPIES + 2 * BOOK_BYTES))
#define PERSISTENT_BYTES(TYPE, rows)                                                                                   \
    (PERSISTENT_BOOK(CODEBOOK_##TYPE) + PERSISTENT_THREADS / WARP * OUTS_OF(TYPE, rows) * RING_##TYPE)

/* Shares of warps in the matrices that a launch names, and each choice has as many. */
DEV uint32_t persistent_shares(const struct ntx_gpu_product *a, uint32_t outs)
{
    const struct ntx_gpu_another *last = a->n_others ? &a->others[a->n_others - 1] : NULL;
    return (last ? last->first_block : 0) + ((last ? last->n_out : a->n_out) + outs - 1) / outs;
}

/* The outputs of share i: from which on, of p. */
DEV uint32_t take_share(const struct ntx_gpu_product *a, uint32_t i, uint32_t each, uint32_t outs,
                        struct ntx_gpu_product *p)
{
    const uint32_t share = matrix_of_block(a, i % each, p);
    take_choice(p, i / each);
    return share * outs;
}

/* That the memory is not idle until the book has come: up to 1 KiB of each output's row, a line of it by each thread of
 * the warp. */
DEV void ask_for_share(const struct ntx_gpu_product *a, uint32_t i, uint32_t each, uint32_t outs)
{
    struct ntx_gpu_product p;
    const uint32_t first = take_share(a, i, each, outs, &p), line = TID % 8 * 128;
    if (line < p.row_bytes)
        ask_for(weights_of(&p, output_at(&p, first + TID % WARP / 8 % outs)) + line);
}

DEV void product_persistent(const uint32_t type, const int rows, const int outs, const struct ntx_gpu_product *a,
                            uint8_t *shared)
{
    const uint32_t each = persistent_shares(a, (uint32_t)outs), n = each * (a->chosen.n ? a->chosen.n : 1),
                   mine = TID / WARP * BLOCKS + BX; /* so that blocks have as many as one another */
    if (mine < n)
        ask_for_share(a, mine, each, (uint32_t)outs);
    const struct codebook codebook = bring_codebook(type, PERSISTENT_COPIES, (uint32_t *)(void *)shared);
    for (uint32_t i = mine; all_of_warp(i < n); i += BLOCK_DIM / WARP * BLOCKS) {
        struct ntx_gpu_product p;
        const uint32_t first = take_share(a, i, each, (uint32_t)outs, &p);
        product_super(type, rows, outs, &p, first, shared + PERSISTENT_BOOK(codebook_words(type)), &codebook, NULL, 0);
        SYNC_WARP(); /* its rings have been read */
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
