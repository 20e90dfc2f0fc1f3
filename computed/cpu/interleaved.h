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
 * it in front, Q6_K at its end), d and m (Q4_1), the byte of MXFP4, or the eight bytes of IQ4_XS before its values. As
 * many tiles go together as have heads of whole lines of the cache: four of MXFP4, two of Q4_0, one of Q4_1. So the
 * dwords of 16 rows, a register, lie within lines of the cache, and a slice is read from its start to its end. A
 * register then holds four columns, or their bits, of 16 outputs, each output in a lane of its own: nothing has to be
 * added up across lanes, and what is unpacked serves all rows of x. The sums, and so the bits of y, are those of cpu.h.
 *
 * Q5_0 and Q5_1 have fifth bits in their heads. A tile's heads are then its 16 d (or d and m), followed by a dword of
 * fifth bits for each output: bit k of its byte j is that of column 4 k + j, so it lies in the byte of the nibble.
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

/* Tiles whose heads fill whole lines of the cache. */
INLINE uint32_t ntx__tiles_together(const size_t block_bytes)
{
    const size_t heads = NTX_SLICE_OUTS * ntx__head_bytes(block_bytes), odd = heads & -heads;
    return odd && odd < 64 ? 64 / (uint32_t)odd : 1;
}

/* The offsets of the `place`-th tile. */
INLINE struct ntx__tile_at ntx__tile_at(uint32_t blocks, uint32_t place, const size_t block_bytes)
{
    const size_t words = NTX_SLICE_OUTS * (block_bytes / 16 * 16),
                 heads = NTX_SLICE_OUTS * ntx__head_bytes(block_bytes);
    const uint32_t together = ntx__tiles_together(block_bytes);
    uint32_t first = place / together * together, n = blocks - first < together ? blocks - first : together;
    size_t from = first * (words + heads);
    return (struct ntx__tile_at){from + n * heads + (place - first) * words, from + (place - first) * heads};
}

/* How a type's blocks become tiles. head_at: offset of the head, -1: none. order[k]: number of the 16 bytes of the
 * rest that come k-th; place[g]: the inverse; NULL: unchanged order. fifth: the head ends with fifth bits. */
struct ntx__interleave_pattern {
    size_t block_bytes;
    int head_at;
    const uint8_t *order, *place;
    bool fifth;
};

/* Q6_K: scales first, then in the order in which the kernel reads: hardware prefetchers follow one run. */
static const uint8_t ntx__order_q6_k[] = {12, 8, 0, 2, 9, 1, 3, 10, 4, 6, 11, 5, 7};
static const uint8_t ntx__place_q6_k[] = {2, 5, 3, 6, 8, 11, 9, 12, 1, 4, 7, 10, 0};

static const struct ntx__interleave_pattern ntx__pattern_q4_0 = {sizeof(struct ntx_block_q4_0), 0, NULL, NULL, false},
                                            ntx__pattern_q4_1 = {sizeof(struct ntx_block_q4_1), 0, NULL, NULL, false},
                                            ntx__pattern_q5_0 = {sizeof(struct ntx_block_q5_0), 0, NULL, NULL, true},
                                            ntx__pattern_q5_1 = {sizeof(struct ntx_block_q5_1), 0, NULL, NULL, true},
                                            ntx__pattern_q8_0 = {sizeof(struct ntx_block_q8_0), 0, NULL, NULL, false},
                                            ntx__pattern_q4_k = {sizeof(struct ntx_block_q4_k), -1, NULL, NULL, false},
                                            ntx__pattern_q5_k = {sizeof(struct ntx_block_q5_k), -1, NULL, NULL, false},
                                            ntx__pattern_q6_k = {sizeof(struct ntx_block_q6_k), 208, ntx__order_q6_k,
                                                                 ntx__place_q6_k, false},
                                            ntx__pattern_iq4_xs = {sizeof(struct ntx_block_iq4_xs), 0, NULL, NULL,
                                                                   false},
                                            ntx__pattern_q1_0 = {sizeof(struct ntx_block_q1_0), 0, NULL, NULL, false};
#define INTERLEAVE_PATTERN_LOOKUP(TYPE, type, scale, raise)                                                            \
    static const struct ntx__interleave_pattern ntx__pattern_##type = {sizeof(struct ntx_block_##type), 0, NULL, NULL, \
                                                                       false};
NTX_LOOKUPS(INTERLEAVE_PATTERN_LOOKUP)

/* Offset of the rest of a block. */
INLINE size_t ntx__behind_head(const struct ntx__interleave_pattern *p)
{
    return p->head_at == 0 ? ntx__head_bytes(p->block_bytes) : 0;
}

/* Offset of a tile's fifth bits in its heads. */
INLINE size_t ntx__fifth_at(const size_t block_bytes)
{
    return NTX_SLICE_OUTS * (ntx__head_bytes(block_bytes) - sizeof(uint32_t));
}

/* Stores a block's head in a tile's heads. */
INLINE void ntx__place_head(const struct ntx__interleave_pattern *p, const uint8_t *head, size_t output, uint8_t *heads)
{
    const size_t front = ntx__head_bytes(p->block_bytes) - (p->fifth ? sizeof(uint32_t) : 0);
    memcpy(heads + front * output, head, front);
    if (!p->fifth)
        return;
    uint32_t bits, by_columns = 0;
    memcpy(&bits, head + front, sizeof bits);
    for (unsigned k = 0; k < 8; k++) /* four bits to the lowest of four bytes each */
        by_columns |= ((bits >> 4 * k & 15) * 0x00204081u & 0x01010101u) << k;
    memcpy(heads + ntx__fifth_at(p->block_bytes) + sizeof bits * output, &by_columns, sizeof bits);
}

/* ntx__interleaved_: VNNI, one to four rows of x at a time (interleaved.c). ntx__interleaved_vec_,
 * ntx__interleaved_amx_: many rows by panels (vnni.c, amx.c). On 64-bit Arm, ntx__interleaved_: SDOT, any number of
 * rows (neon_interleaved.c, neon_interleaved_super.c). ntx__interleaved_i8mm_: many rows by SMMLA (i8mm.c). */
#define INTERLEAVED_SIMPLE_TYPES(X) X(Q4_0, q4_0) X(Q4_1, q4_1) X(Q5_0, q5_0) X(Q5_1, q5_1) X(Q8_0, q8_0) NTX_LOOKUPS(X)
#define INTERLEAVED_SUPER_TYPES(X)  X(Q4_K, q4_k) X(Q5_K, q5_k) X(Q6_K, q6_k) X(IQ4_XS, iq4_xs)
#define INTERLEAVED_TYPES(X)        INTERLEAVED_SIMPLE_TYPES(X) INTERLEAVED_SUPER_TYPES(X)
#define INTERLEAVED_NEON_TYPES(X)   INTERLEAVED_TYPES(X) X(Q1_0, q1_0)
#define INTERLEAVED_DECLARE(TYPE, type, ...)                                                                           \
    ntx_matmul_fn ntx__interleaved_##type, ntx__interleaved_vec_##type, ntx__interleaved_amx_##type,                   \
        ntx__interleaved_i8mm_##type;                                                                                  \
    ntx_interleave_fn ntx__interleave_##type;
INTERLEAVED_NEON_TYPES(INTERLEAVED_DECLARE)

#endif
