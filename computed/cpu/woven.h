/* woven.h: weights that stay in memory, re-arranged in place so that 16 outputs are multiplied side by side.
 *
 * NTX_STRIP_ROWS (16) rows of a matrix are a strip, which takes the bytes that the rows took. A brick is made of one block of each row: first
 * (of a pair of bricks) the blocks' half words, then the bricks' dwords, each of all 16 rows:
 *
 *   row-major                                woven
 *   row 0:  block 0 | block 1 | ...          half words of blocks 0 of rows 0 .. 15 | of blocks 1 | dword of blocks 0 of rows 0 .. 15 | the next
 *   row 1:  block 0 | block 1 | ...          dword of them | ... | the same of blocks 1 | half words of blocks 2 | of blocks 3 | ...
 *   ...
 *   row 15: block 0 | block 1 | ...
 *
 * A block's half word is its d, where the block is not made of whole dwords (Q4_0 and Q8_0 have it in front, Q6_K at its end). In pairs the
 * dwords of 16 rows, a register, lie within lines of the cache, and a strip is read from its start to its end. A register then holds four
 * columns, or their bits, of 16 outputs, each output in a lane of its own: nothing has to be added up across lanes, and what is unpacked
 * serves all rows of x. The sums, and so the bits of y, are those of cpu.h. */
#ifndef NTX_COMPUTED_CPU_WOVEN_H
#define NTX_COMPUTED_CPU_WOVEN_H

#include "computed/cpu/avx512.h"

/* Byte offsets in a strip of a brick's dwords and of its half words. */
struct ntx__brick_at {
    size_t words, half;
};

INLINE struct ntx__brick_at ntx__brick_at(uint32_t blocks, uint32_t b, const size_t block_bytes)
{
    const size_t words = NTX_STRIP_ROWS * (block_bytes / 4 * 4), halves = block_bytes % 4 ? 2 * NTX_STRIP_ROWS : 0;
    size_t pair = b / 2 * 2 * (words + halves), head = (b | 1) < blocks ? 2 * halves : halves;
    return (struct ntx__brick_at){pair + head + b % 2 * words, pair + b % 2 * halves};
}

/* ntx__woven_: VNNI, any number of rows of x. ntx__wovenamx_: the same with tiles from 5 rows on. ntx__unweave_: the blocks of brick b as they
 * were, `apart` bytes from one to the next. */
#define DECLARE_WOVEN(type)                                                     \
    DECLARE_MATMUL(ntx__woven_##type);                                          \
    DECLARE_MATMUL(ntx__wovenamx_##type);                                       \
    ntx_weave_fn ntx__weave_##type;                                             \
    ntx__unweave_fn ntx__unweave_##type

typedef void ntx__unweave_fn(const uint8_t *strip, uint32_t blocks, uint32_t b, uint8_t *out, size_t apart);

DECLARE_WOVEN(q4_0);
DECLARE_WOVEN(q8_0);
DECLARE_WOVEN(q4_k);
DECLARE_WOVEN(q5_k);
DECLARE_WOVEN(q6_k);

#endif
