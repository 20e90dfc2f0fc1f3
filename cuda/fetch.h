/* fetch.h: a row's blocks on their way to a product, by whole aligned 16 bytes, through shared memory.
 *
 *   row      ...|block|block|block|block|block|...      of any size, anywhere
 *   pieces      |      0      |      1      |  ...      what a row's threads multiply at a time: 32 simple parts by 16 threads, 4 super-blocks by 32
 *   ring        [slot][slot]([slot][slot])              piece c in slot c % RING, all but one on their way while that one is used
 *
 * A slot keeps a piece's place in its 16 bytes, so up to 15 bytes before the row's first and behind its last are read (of the same allocation, which is aligned; NTX_GPU_SLACK).
 * The copies need no registers and no thread to wait for them; a card before 8.0 loads and stores instead. */
#ifndef NTX_CUDA_FETCH_H
#define NTX_CUDA_FETCH_H

#include "cuda/part.h"

#define PRODUCT_THREADS 128u

/* By rule: threads of a row, values of a piece. */
#define FETCH_THREADS_SIMPLE 16u
#define FETCH_THREADS_HALVES 16u
#define FETCH_THREADS_SUPER 32u
#define FETCH_VALUES_SIMPLE 1024u
#define FETCH_VALUES_HALVES 1024u
#define FETCH_VALUES_SUPER 1024u

#define SLOT_BYTES(piece) (((piece) + 15u + 4u + 15u) / 16u * 16u) /* words are read in pairs (part.h) */
#define RING_SLOTS(piece, threads) ((piece) * 32u / (threads) <= 800u ? 4u : 2u)

#define FETCH_ENUM_FLOAT(TYPE, type, values) PIECE_##TYPE = 0, THREADS_OF_##TYPE = 32, RINGS_##TYPE = 16,
#define FETCH_ENUM_SIMPLE(TYPE, type, values) FETCH_ENUM_BLOCKS(TYPE, type, values, SIMPLE)
#define FETCH_ENUM_HALVES(TYPE, type, values) FETCH_ENUM_BLOCKS(TYPE, type, values, HALVES)
#define FETCH_ENUM_SUPER(TYPE, type, values) FETCH_ENUM_BLOCKS(TYPE, type, values, SUPER)
#define FETCH_ENUM_BLOCKS(TYPE, type, values, rule)                                              \
    PIECE_##TYPE = FETCH_VALUES_##rule / values * sizeof(struct ntx_block_##type),               \
    THREADS_OF_##TYPE = FETCH_THREADS_##rule,                                                    \
    RINGS_##TYPE = PRODUCT_THREADS / FETCH_THREADS_##rule * SLOT_BYTES(PIECE_##TYPE) * RING_SLOTS(PIECE_##TYPE, FETCH_THREADS_##rule),
#define FETCH_ENUM(rule, TYPE, type, values, ...) FETCH_ENUM_##rule(TYPE, type, values)
enum { NTX_TYPES(FETCH_ENUM) };

#define PIECE_CASE(rule, TYPE, ...) case NTX_##TYPE: return PIECE_##TYPE;
#define FETCH_THREADS_CASE(rule, TYPE, ...) case NTX_##TYPE: return THREADS_OF_##TYPE;
DEV uint32_t piece_bytes(const uint32_t type) { switch (type) { NTX_TYPES(PIECE_CASE) default: return 1; } }
DEV uint32_t fetch_threads(const uint32_t type) { switch (type) { NTX_TYPES(FETCH_THREADS_CASE) default: return 32; } }
DEV uint32_t ring_slots(const uint32_t type) { return RING_SLOTS(piece_bytes(type), fetch_threads(type)); }
DEV uint32_t ring_bytes(const uint32_t type) { return ring_slots(type) * SLOT_BYTES(piece_bytes(type)); }

struct fetch {
    const uint8_t *from; /* the next piece's first byte */
    int32_t left;        /* bytes of the row from there on; less than nothing behind its end */
    uint32_t at;         /* 16 bytes for each thread before this one */
    const uint8_t *ring; /* shared */
};

/* The next piece sets out to a slot. Behind the row's end there is none: nothing is on its way when a kernel ends. */
DEV void fetch_next(const uint32_t type, struct fetch *f, uint32_t slot)
{
    const int32_t each = (int32_t)piece_bytes(type), step = 16 * (int32_t)fetch_threads(type), before = (int32_t)((uintptr_t)f->from & 15);
    const int32_t n = f->left > 0 ? before + (f->left < each ? f->left : each) : 0;
    const uint8_t *from = f->from - before + f->at;
    const uintptr_t to = shared_address(f->ring) + slot * SLOT_BYTES((uint32_t)each) + f->at;
    UNROLL
    for (int32_t i = 0; i < (each + 30) / 16 * 16; i += step)
        if ((int32_t)f->at + i < n)
            copy_16(to + (uintptr_t)i, from + i);
    copies_end();
    f->from += each;
    f->left -= each;
}

DEV struct fetch begin_fetch(const uint32_t type, const uint8_t *row, uint32_t bytes, const uint8_t *ring, uint32_t thread)
{
    struct fetch f = {row, (int32_t)bytes, 16 * thread, ring};
    UNROLL
    for (uint32_t c = 0; c + 1 < ring_slots(type); c++)
        fetch_next(type, &f, c);
    return f;
}

/* Piece c, for all threads of the warp: they ask for one after another, and are through with the one before. */
DEV const uint8_t *fetched(const uint32_t type, struct fetch *f, uint32_t c)
{
    const uint32_t slots = ring_slots(type), each = piece_bytes(type);
    copies_wait(slots - 2);
    SYNC_WARP();
    fetch_next(type, f, (c + slots - 1) % slots);
    return f->ring + c % slots * SLOT_BYTES(each) + ((uintptr_t)(f->from - slots * each) & 15);
}

#endif
