/* SPDX-License-Identifier: Apache-2.0 */
/* interleaved.h: weights that stay in memory, re-arranged in place so that 16 outputs are multiplied side by side.
 *
 * NTX_SLICE_OUTS (16) outputs of a matrix are a slice, which takes the bytes that they took. A tile is made of one
 * block of each; tiles lie by the lane of their blocks (cpu.h), in ntx__lane_order: those of blocks 0, 16, 32, ...,
 * then of 8, 24, ... First (of a pair of tiles) come the blocks' heads, then the tiles' dwords, each of all 16 rows:
 *
 *   row-major                                interleaved
 *   row 0:  block 0 | block 1 | ... heads of blocks 0 of rows 0 .. 15 | of blocks 16 | dword of blocks 0 of rows 0 ..
 *           15 | the next
 *   row 1:  block 0 | block 1 | ... dword of them | ... | the same of blocks 16 | heads of blocks 32 | of blocks 48 |
 *           ...
 *   ...
 *   row 15: block 0 | block 1 | ...
 *
 * A block's head is what is left of it where it is not made of whole 16 bytes: its d as a half word (Q4_0 and Q8_0 have
 * it in front, Q6_K at its end), the byte of MXFP4, whose tiles go by fours, not by pairs, or the eight bytes of IQ4_XS
 * before its values, whose tiles go one by one. So the dwords of 16 rows, a register, lie within lines of the cache,
 * and a slice is read from its start to its end. A register then holds four columns, or their bits, of 16 outputs, each
 * output in a lane of its own: nothing has to be added up across lanes, and what is unpacked serves all rows of x. The
 * sums, and so the bits of y, are those of cpu.h.
 *
 * Q1_0, on 64-bit Arm only: its blocks have 32s of four lanes, so its tiles lie in the order of the blocks, each behind
 * its heads. */
#ifndef NTX_COMPUTED_CPU_INTERLEAVED_H
#define NTX_COMPUTED_CPU_INTERLEAVED_H

#include "computed/cpu/kern.h"

/* An order of lanes in which the tree over them (cpu.h) can be computed on the way, with at most four sums kept: after
 * the i-th lane, as many sums are joined as i has trailing bits of 1. */
static const uint8_t ntx__lane_order[LANES] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};

enum { TREE_LEVELS = 4 };

/* log2 of the turns that the sum of lane `turn` covers: also following lanes without blocks, for which 0 is added. */
INLINE uint32_t ntx__turns_log2(uint32_t blocks, uint32_t turn)
{
    uint32_t n = 0;
    while (!(turn >> n & 1) && n < TREE_LEVELS && ntx__lane_order[turn + (1u << n)] >= blocks)
        n++;
    return n;
}

/* Byte offsets in a slice of a tile's dwords and of its heads. */
struct ntx__tile_at {
    size_t words, head;
};

/* Bytes of a block's head. */
INLINE size_t ntx__head_bytes(const size_t block_bytes) { return block_bytes % 16; }

/* The offsets of the `place`-th tile. */
INLINE struct ntx__tile_at ntx__tile_at(uint32_t blocks, uint32_t place, const size_t block_bytes)
{
    const size_t words = NTX_SLICE_OUTS * (block_bytes / 16 * 16),
                 heads = NTX_SLICE_OUTS * ntx__head_bytes(block_bytes);
    const uint32_t together = heads && heads < 64 ? 64 / (uint32_t)heads : 1; /* tiles whose heads fill a cache line */
    uint32_t first = place / together * together, n = blocks - first < together ? blocks - first : together;
    size_t from = first * (words + heads);
    return (struct ntx__tile_at){from + n * heads + (place - first) * words, from + (place - first) * heads};
}

/* How a type's blocks become tiles. head_at: offset of the head, -1: none. order[k]: number of the 16 bytes of the
 * rest that come k-th; place[g]: the inverse; NULL: unchanged order. */
struct ntx__interleave_pattern {
    size_t block_bytes;
    int head_at;
    const uint8_t *order, *place;
};

/* Q6_K: scales first, then in the order in which the kernel reads: hardware prefetchers follow one run. */
static const uint8_t ntx__order_q6_k[] = {12, 8, 0, 2, 9, 1, 3, 10, 4, 6, 11, 5, 7};
static const uint8_t ntx__place_q6_k[] = {2, 5, 3, 6, 8, 11, 9, 12, 1, 4, 7, 10, 0};

static const struct ntx__interleave_pattern ntx__pattern_q4_0 = {sizeof(struct ntx_block_q4_0), 0, NULL, NULL},
                                            ntx__pattern_q8_0 = {sizeof(struct ntx_block_q8_0), 0, NULL, NULL},
                                            ntx__pattern_q4_k = {sizeof(struct ntx_block_q4_k), -1, NULL, NULL},
                                            ntx__pattern_q5_k = {sizeof(struct ntx_block_q5_k), -1, NULL, NULL},
                                            ntx__pattern_q6_k = {sizeof(struct ntx_block_q6_k), 208, ntx__order_q6_k,
                                                                 ntx__place_q6_k},
                                            ntx__pattern_iq4_xs = {sizeof(struct ntx_block_iq4_xs), 0, NULL, NULL},
                                            ntx__pattern_q1_0 = {sizeof(struct ntx_block_q1_0), 0, NULL, NULL};
#define INTERLEAVE_PATTERN_LOOKUP(TYPE, type, scale, raise)                                                            \
    static const struct ntx__interleave_pattern ntx__pattern_##type = {sizeof(struct ntx_block_##type), 0, NULL, NULL};
NTX_LOOKUPS(INTERLEAVE_PATTERN_LOOKUP)

/* Offset of the rest of a block. */
INLINE size_t ntx__behind_head(const struct ntx__interleave_pattern *p)
{
    return p->head_at == 0 ? ntx__head_bytes(p->block_bytes) : 0;
}

/* ntx__interleaved_: VNNI, one to four rows of x at a time (interleaved.c). ntx__interleaved_vec_,
 * ntx__interleaved_amx_: many rows by panels (vnni.c, amx.c). On 64-bit Arm, ntx__interleaved_: SDOT, any number of
 * rows (neon_interleaved.c, neon_interleaved_super.c). ntx__interleaved_i8mm_: many rows by SMMLA (i8mm.c). */
#define INTERLEAVED_SIMPLE_TYPES(X) X(Q4_0, q4_0) X(Q8_0, q8_0) NTX_LOOKUPS(X)
#define INTERLEAVED_SUPER_TYPES(X)  X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) X(IQ4_XS, iq4_xs)
#define INTERLEAVED_TYPES(X)        INTERLEAVED_SIMPLE_TYPES(X) INTERLEAVED_SUPER_TYPES(X)
#define INTERLEAVED_NEON_TYPES(X)   INTERLEAVED_TYPES(X) X(Q1_0, q1_0)
#define INTERLEAVED_DECLARE(TYPE, type, ...)                                                                           \
    ntx_matmul_fn ntx__interleaved_##type, ntx__interleaved_vec_##type, ntx__interleaved_amx_##type,                   \
        ntx__interleaved_i8mm_##type;                                                                                  \
    ntx_interleave_fn ntx__interleave_##type;
INTERLEAVED_NEON_TYPES(INTERLEAVED_DECLARE)

#endif
