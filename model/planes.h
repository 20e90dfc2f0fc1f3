/* SPDX-License-Identifier: Apache-2.0 */
/* planes.h: matrices whose weights are kept in two parts: the high bits with the scales, and the low bits. `ntx pack
 * --planes` writes a model as two files, and this header defines them:
 *
 *   x.gguf         the low bits of each matrix that is split, and all keys
 *   x.draft.gguf   all keys; the high bits of the same matrices, and all other tensors: a coarse model of its own
 *
 * Both have the key ntx.planes.pair (a digest of the weights; the same in both) and ntx.planes.part ("low", "high"),
 * which is the first key.
 * Together they have the bytes of the original model, and the joined blocks are its blocks. The high bits stay in
 * memory, where they also draft; only the low bits are streamed.
 *
 * A split type has two types: one of low bits, without scales, and one of high bits. Numbers in files are
 * NTX_PLANES_FILE_TYPE + 2 * entry of the table, and one more for the high bits.
 *
 *   block of the whole type   head [at] | split [n] | tail
 *   block of low bits         low
 *   block of high bits        head | tail | high
 *
 *   low bits                  bytes of low, high        x = a byte of split
 *   2 of each nibble          n/2, n/2                  byte j has bits of x[j], and of x[j + n/2]
 *   1 of each nibble          n/4, n/2 + n/4            as above, then byte j has the next bit of x[j + k n/4] as bit k
 *   4 of each byte            n/2, n/2                  as above, with nibbles for pairs of bits
 *
 * Alone, the high bits stand for the middle of the interval that the low bits divide. With n low bits it is
 * (2^n - 1) / 2 steps above the value whose low bits are 0. So products take twice that value and 2^n - 1, halved. */
#ifndef NTX_MODEL_PLANES_H
#define NTX_MODEL_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/quant.h"

#define NTX_PLANES_FILE_TYPE 0x6e740000u
#define NTX_PLANES_HIGH_FILE ".draft.gguf" /* ends the name of the high bits of x.gguf: x.draft.gguf */
#define NTX_PLANES_PAIR      "ntx.planes.pair"
#define NTX_PLANES_PART      "ntx.planes.part"

/* X(WHOLE, whole, low bits, high bits, at, n) */
#define NTX_PLANES(X)                                                                                                  \
    X(Q4_K, q4_k, 1, 3, 16, 128)                                                                                       \
    X(Q4_K, q4_k, 2, 2, 16, 128)                                                                                       \
    X(Q5_K, q5_k, 2, 3, 48, 128)                                                                                       \
    X(Q6_K, q6_k, 2, 4, 0, 128)                                                                                        \
    X(Q5_0, q5_0, 2, 3, 6, 16)                                                                                         \
    X(Q8_0, q8_0, 4, 4, 2, 32)

struct ntx_planes {
    uint32_t whole, low, high; /* enum ntx_type */
    uint32_t low_bits;         /* of a weight */
};

/* Of a type of low or of high bits; NULL: another type. */
const struct ntx_planes *ntx_planes_of(uint32_t type);
/* The way to split a type, with so many low bits (0: the fewest); NULL: there is none. */
const struct ntx_planes *ntx_planes_for(uint32_t whole, uint32_t low_bits);
static inline bool ntx_planes_low(uint32_t type)
{
    const struct ntx_planes *p = ntx_planes_of(type);
    return p && p->low == type;
}
/* The type that products are computed in: the whole one of low or high bits, else `type`. */
static inline uint32_t ntx_planes_whole(uint32_t type)
{
    const struct ntx_planes *p = ntx_planes_of(type);
    return p ? p->whole : type;
}
/* Numbers of types in files. NTX_TYPE_LIMIT: unknown. */
uint32_t ntx_planes_from_file(uint32_t number);
uint32_t ntx_planes_to_file(uint32_t type);

/* n blocks of the whole type. join: of a type of low bits. This is the plain form; computed/cpu has it for each
 * instruction set. */
void ntx_planes_split(const struct ntx_planes *p, const uint8_t *whole, uint8_t *high, uint8_t *low, size_t n);
void ntx_planes_join(uint32_t type, const uint8_t *high, const uint8_t *low, size_t n, uint8_t *out);

/* The places of a model's file of high bits (ntx_gguf_planes) that stay in memory: all but the tables whose rows are
 * read when tokens need them. Of a model on several machines (chunks->share), each machine keeps the high bits of its
 * own outputs; the first one also has the embedding whole. `chunks` NULL: one machine. */
struct ntx_model;
struct ntx_chunks;
struct ntx_planes_range {
    uint64_t offset, bytes; /* in file NTX_GGUF_HIGH_FILE */
    uint32_t tensor;
};
uint32_t ntx_planes_places(const struct ntx_model *m, const struct ntx_chunks *chunks);
/* false: nothing of this place stays. */
bool ntx_planes_stays(const struct ntx_model *m, const struct ntx_chunks *chunks, uint32_t place,
                      struct ntx_planes_range *out);
/* Of all places, in whole pages; 0: a model in one part. */
uint64_t ntx_planes_bytes(const struct ntx_model *m, const struct ntx_chunks *chunks);

/* ---- the joins, which are compiled for each instruction set */

#ifndef NTX_PLANES_INLINE
#define NTX_PLANES_INLINE static inline __attribute__((always_inline, unused))
#endif

/* By words, in which the masks keep the bytes apart: short blocks are few words, long ones are vectorised. */
NTX_PLANES_INLINE uint64_t ntx_planes_word(const uint8_t *p, size_t i)
{
    uint64_t w;
    memcpy(&w, p + 8 * i, 8);
    return w;
}
NTX_PLANES_INLINE void ntx_planes_put(uint8_t *p, size_t i, uint64_t w) { memcpy(p + 8 * i, &w, 8); }
#define NTX_PLANES_BYTES(b) ((uint64_t)(b)*0x0101010101010101u)
typedef uint64_t ntx_planes_pair __attribute__((vector_size(16)));

/* n bytes of the whole block. coarse: `l` is not used, and low bits are 0. */
NTX_PLANES_INLINE void ntx_planes_join_2(const uint8_t *restrict h, const uint8_t *restrict l, uint8_t *restrict x,
                                         const size_t n, const bool coarse)
{
    if (n == 16) { /* both halves in one register */
        const uint64_t a = ntx_planes_word(h, 0), b = coarse ? 0 : ntx_planes_word(l, 0);
        const ntx_planes_pair v = {a, a}, w = {b, b}, up = {2, 0}, down = {0, 2};
        const ntx_planes_pair out = (v << up & NTX_PLANES_BYTES(0xcc)) | (w >> down & NTX_PLANES_BYTES(0x33));
        memcpy(x, &out, 16);
        return;
    }
    for (size_t i = 0; i < n / 16; i++) {
        uint64_t a = ntx_planes_word(h, i), b = coarse ? 0 : ntx_planes_word(l, i);
        ntx_planes_put(x, i, (a & NTX_PLANES_BYTES(0x33)) << 2 | (b & NTX_PLANES_BYTES(0x33)));
        ntx_planes_put(x + n / 2, i, (a & NTX_PLANES_BYTES(0xcc)) | (b >> 2 & NTX_PLANES_BYTES(0x33)));
    }
}

NTX_PLANES_INLINE void ntx_planes_join_1(const uint8_t *restrict h, const uint8_t *restrict l, uint8_t *restrict x,
                                         const size_t n, const bool coarse)
{
    for (size_t i = 0; i < n / 32; i++) {
        uint64_t a = ntx_planes_word(h, i), b = ntx_planes_word(h + n / 4, i), c = ntx_planes_word(h + n / 2, i),
                 d = coarse ? 0 : ntx_planes_word(l, i);
        ntx_planes_put(
            x, i, (a & NTX_PLANES_BYTES(0x33)) << 2 | (c & NTX_PLANES_BYTES(0x11)) << 1 | (d & NTX_PLANES_BYTES(0x11)));
        ntx_planes_put(x + n / 4, i,
                       (b & NTX_PLANES_BYTES(0x33)) << 2 | (c & NTX_PLANES_BYTES(0x22)) |
                           (d >> 1 & NTX_PLANES_BYTES(0x11)));
        ntx_planes_put(x + n / 2, i,
                       (a & NTX_PLANES_BYTES(0xcc)) | (c >> 1 & NTX_PLANES_BYTES(0x22)) |
                           (d >> 2 & NTX_PLANES_BYTES(0x11)));
        ntx_planes_put(x + n / 2 + n / 4, i,
                       (b & NTX_PLANES_BYTES(0xcc)) | (c >> 2 & NTX_PLANES_BYTES(0x22)) |
                           (d >> 3 & NTX_PLANES_BYTES(0x11)));
    }
}

NTX_PLANES_INLINE void ntx_planes_join_4(const uint8_t *restrict h, const uint8_t *restrict l, uint8_t *restrict x,
                                         const size_t n, const bool coarse)
{
    for (size_t i = 0; i < n / 32; i++) {
        ntx_planes_pair a, b = {0, 0}, low, high;
        memcpy(&a, h + 16 * i, 16);
        if (!coarse)
            memcpy(&b, l + 16 * i, 16);
        low = (a << 4 & NTX_PLANES_BYTES(0xf0)) | (b & NTX_PLANES_BYTES(0x0f));
        high = (a & NTX_PLANES_BYTES(0xf0)) | (b >> 4 & NTX_PLANES_BYTES(0x0f));
        memcpy(x + 16 * i, &low, 16);
        memcpy(x + n / 2 + 16 * i, &high, 16);
    }
}

/* Joins a block: ntx_planes_join_<whole>_<low bits>(high, low, whole, coarse). */
#define NTX_PLANES_JOIN(WHOLE, whole, low_bits, high_bits, begin, n)                                                   \
    NTX_PLANES_INLINE void ntx_planes_join_##whole##_##low_bits(const uint8_t *high, const uint8_t *low, uint8_t *out, \
                                                                const bool coarse)                                     \
    {                                                                                                                  \
        enum { TAIL = sizeof(struct ntx_block_##whole) - (begin) - (n) };                                              \
        memcpy(out, high, begin);                                                                                      \
        memcpy(out + (begin) + (n), high + (begin), TAIL);                                                             \
        ntx_planes_join_##low_bits(high + (begin) + TAIL, low, out + (begin), n, coarse);                              \
    }
NTX_PLANES(NTX_PLANES_JOIN)

/* The kernels prefetch what they read, which are joined blocks here. Both parts of 256 values at a time. */
#define NTX_PLANES_AHEAD 4096
NTX_PLANES_INLINE void ntx_planes_fetch(const uint8_t *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(p + NTX_PLANES_AHEAD + at, 0, 1);
}

#define NTX_PLANES_LOW_BYTES(low_bits, n)         ((low_bits) == 1 ? (n) / 4 : (n) / 2)
#define NTX_PLANES_HIGH_BYTES(whole, low_bits, n) (sizeof(struct ntx_block_##whole) - NTX_PLANES_LOW_BYTES(low_bits, n))
#define NTX_PLANES_BLOCKS(whole, low_bits, n)                                                                          \
    for (size_t i = 0; i < n_blocks; i++) {                                                                            \
        enum { STEP = (n) < 128 ? 8 : 1, HIGH = NTX_PLANES_HIGH_BYTES(whole, low_bits, n) };                           \
        enum { LOW = NTX_PLANES_LOW_BYTES(low_bits, n) };                                                              \
        if (i % STEP == 0) {                                                                                           \
            ntx_planes_fetch(high + i * HIGH, STEP * HIGH);                                                            \
            ntx_planes_fetch(low + i * LOW, STEP * LOW);                                                               \
        }                                                                                                              \
        ntx_planes_join_##whole##_##low_bits(high + i * HIGH, low + i * LOW,                                           \
                                             out + i * sizeof(struct ntx_block_##whole), false);                       \
    }
#define NTX_PLANES_CASE(WHOLE, whole, low_bits, high_bits, begin, n)                                                   \
    case NTX_##WHOLE##_LOW##low_bits:                                                                                  \
        NTX_PLANES_BLOCKS(whole, low_bits, n) break;
#define NTX_PLANES_JOINS(name)                                                                                         \
    static void name(uint32_t type, const uint8_t *high, const uint8_t *low, size_t n_blocks, uint8_t *out)            \
    {                                                                                                                  \
        switch (type) {                                                                                                \
            NTX_PLANES(NTX_PLANES_CASE)                                                                                \
        default: break;                                                                                                \
        }                                                                                                              \
    }

#endif
