/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h: loads matrix rows for a product, by aligned 16 bytes, through shared memory.
 *
 *   row      ...|block|block|block|block|block|...      of any size and alignment
 *   pieces      | 0 | 1 | ... a piece is what a row's threads multiply at a time: 32 simple parts by 16 threads, or 8
 *               super-blocks by 32; 16 n bytes
 *   ring        [slot]([slot]([slot][slot])) piece c is in slot c % RING; all pieces but the one in use are being
 *               copied. Each output has a ring
 *
 * A slot keeps a piece's offset modulo 16, so up to 15 bytes before the row and after its end are read (within the
 * same allocation, which is aligned; NTX_GPU_SLACK). The copies need no registers and no waiting thread. A card before
 * 8.0 loads and stores instead, and waits: there a ring has one slot, so that the smaller shared memory has room for
 * more warps. */
#ifndef NTX_CUDA_FETCH_H
#define NTX_CUDA_FETCH_H

#include "cuda/part.h"

/* Threads of a block. There are more for a codebook with copies (codes.h): the block loads it once. */
#define PRODUCT_THREADS(TYPE)                 (CODEBOOK_##TYPE == 256 ? 256u : 128u)

/* Threads of a row and values of a piece, by rule. */
#define FETCH_THREADS_SIMPLE                  16u
#define FETCH_THREADS_HALVES                  16u
#define FETCH_THREADS_SUPER                   32u
#define FETCH_VALUES_SIMPLE                   1024u
#define FETCH_VALUES_HALVES                   1024u
#define FETCH_VALUES_SUPER                    2048u

/* words are read in pairs (part.h) */
#define SLOT_BYTES(piece)                     (((piece) + 15u + 4u + 15u) / 16u * 16u)
#define RING_SLOTS(pieces)                    (COPIES_GO_ON ? (uint32_t)(pieces) : 1u)

#define FETCH_ENUM_FLOAT(TYPE, type, values)  PIECE_##TYPE = 0, THREADS_OF_##TYPE = 32, RING_##TYPE = 4,
#define FETCH_ENUM_SIMPLE(TYPE, type, values) FETCH_ENUM_BLOCKS(TYPE, type, values, SIMPLE)
#define FETCH_ENUM_HALVES(TYPE, type, values) FETCH_ENUM_BLOCKS(TYPE, type, values, HALVES)
#define FETCH_ENUM_SUPER(TYPE, type, values)  FETCH_ENUM_BLOCKS(TYPE, type, values, SUPER)
#define FETCH_ENUM_BLOCKS(TYPE, type, values, rule)                                                                    \
    PIECE_##TYPE = FETCH_VALUES_##rule / values * sizeof(struct ntx_block_##type),                                     \
    THREADS_OF_##TYPE = FETCH_THREADS_##rule, RING_##TYPE = SLOT_BYTES(PIECE_##TYPE) * RING_SLOTS(PIECES_##TYPE),
#define FETCH_ENUM(rule, TYPE, type, values, ...) FETCH_ENUM_##rule(TYPE, type, values)
enum { NTX_TYPES(FETCH_ENUM) };

/* Outputs that a warp, or half a warp, computes side by side, for one row of x and for more: they share the loads of
 * x. */
#define OUTS_OF(TYPE, rows)  ((rows) > 1 && OUTS_##TYPE > 2 ? 2 : OUTS_##TYPE)
#define RINGS_OF(TYPE, rows) (PRODUCT_THREADS(TYPE) / THREADS_OF_##TYPE * OUTS_OF(TYPE, rows) * RING_##TYPE)

/* clang-format off */
#define PIECE_CASE(rule, TYPE, ...) case NTX_##TYPE: return PIECE_##TYPE;
#define FETCH_THREADS_CASE(rule, TYPE, ...) case NTX_##TYPE: return THREADS_OF_##TYPE;
/* clang-format on */
TYPE_COLUMN(uint32_t, piece_bytes, PIECE_CASE, 1)
TYPE_COLUMN(uint32_t, fetch_threads, FETCH_THREADS_CASE, 32)
DEV uint32_t ring_slots(const uint32_t type) { return RING_SLOTS(row_pieces(type)); }
DEV uint32_t ring_bytes(const uint32_t type) { return ring_slots(type) * SLOT_BYTES(piece_bytes(type)); }

struct fetch {           /* state of one thread for one output */
    const uint8_t *from; /* the thread's first 16 bytes of the next piece */
    int32_t left, most;  /* bytes from there to the row's end (negative after it), and to the piece's end */
    uintptr_t to;        /* shared: their place in the first slot */
};

/* The offset of a row's first piece in the n-th of adjacent rings. */
DEV uint32_t ring_at(const uint32_t type, const uint8_t *row, uint32_t n)
{
    return n * ring_bytes(type) + (uint32_t)((uintptr_t)row & 15);
}

DEV struct fetch fetch_of(const uint32_t type, const uint8_t *row, uint32_t bytes, const uint8_t *rings, uint32_t n,
                          uint32_t thread)
{
    const int32_t before = (int32_t)((uintptr_t)row & 15), at = 16 * (int32_t)thread;
    return (struct fetch){row - before + at, (int32_t)bytes + before - at, (int32_t)piece_bytes(type) + before - at,
                          shared_address(rings) + n * ring_bytes(type) + (uintptr_t)at};
}

/* Starts the copies of each output's next piece. After the rows' end there are none, so no copy is in flight when a
 * kernel ends. */
DEV void fetch_next(const uint32_t type, const int outs, struct fetch *f, uint32_t slot)
{
    const int32_t each = (int32_t)piece_bytes(type), step = 16 * (int32_t)fetch_threads(type);
    UNROLL
    for (int o = 0; o < outs; o++) {
        const int32_t n = f[o].left < f[o].most ? f[o].left : f[o].most;
        const uintptr_t to = f[o].to + slot * SLOT_BYTES((uint32_t)each);
        UNROLL
        for (int32_t i = 0; i < each + 15; i += step)
            if (i < n)
                copy_16(to + (uintptr_t)i, f[o].from + i);
        f[o].from += each;
        f[o].left -= each;
    }
    copies_end();
}

DEV void begin_fetch(const uint32_t type, const int outs, struct fetch *f)
{
    UNROLL
    for (uint32_t c = 0; c + 1 < ring_slots(type); c++)
        fetch_next(type, outs, f, c);
}

/* Waits for piece c and returns its offset from the first piece. All threads of the warp call this for each piece in
 * order, and no longer use the piece before. */
DEV uint32_t fetched(const uint32_t type, const int outs, struct fetch *f, uint32_t c)
{
    const uint32_t slots = ring_slots(type);
    copies_wait(slots > 1 ? slots - 2 : 0);
    SYNC_WARP();
    fetch_next(type, outs, f, (c + slots - 1) % slots);
    if (slots == 1)
        SYNC_WARP();
    return c % slots * SLOT_BYTES(piece_bytes(type));
}

#endif
