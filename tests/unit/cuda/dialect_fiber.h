/* SPDX-License-Identifier: Apache-2.0 */
/* dialect_fiber.h: cuda/dialect.h where each thread is a fiber on the CPU. */
#include <stdlib.h>

#include "tests/unit/cuda/fake.h"
#include "tests/unit/cuda/fiber.h"

#define DEV          static inline __attribute__((unused))
#define DEV_AND_HOST DEV
#define DEV_APART    static __attribute__((unused))
#define DEVICE_TABLE static const
DEV void copies_over(void);
#define KERNEL(name, type)                                                                                             \
    KERNEL_OF(256, name, type) /* whose registers nobody bounds: 255 of each of 256 threads there are */
#define KERNEL_(name, type)                                                                                            \
    static void name##_body(const type a);                                                                             \
    static void name(const void *p)                                                                                    \
    {                                                                                                                  \
        name##_body(*(const type *)p);                                                                                 \
        copies_over();                                                                                                 \
    }                                                                                                                  \
    static void name##_body(const type a)
#define KERNEL_OF(most, name, type)                                                                                    \
    enum { name##_most = most };                                                                                       \
    KERNEL_(name, type)
#define RETURN_LAUNCH(stream, name, gx, gy, gz, threads, args)                                                         \
    RETURN_LAUNCH_WITH(stream, name, gx, gy, gz, threads, 0, args)
#define RETURN_LAUNCH_WITH(stream, name, gx, gy, gz, threads, bytes, args)                                             \
    return ntx__fake_launch(stream, name, (const uint32_t[4]){gx, gy, gz, threads}, name##_most, bytes, &(args),       \
                            sizeof(args))
#define ALLOW_SHARED(stream, name, bytes) ntx__fake_allow_shared(stream, name, bytes)
#define SHARED_OF_LAUNCH(name)            uint8_t *const name = ntx_fiber_block()->shared
#define SHARED                            static
#define ALIGNED16                         _Alignas(16)
#define UNROLL
#ifdef NTX_FAKE_FORMER /* as a card before 8.0 has it */
#define MOST_CODEBOOK_COPIES 1u
#define COPIES_GO_ON         0
#else
#define MOST_CODEBOOK_COPIES 16u
#define COPIES_GO_ON         1
#endif
#define TID         ntx_fiber_tid()
#define BLOCK_DIM   ntx_fiber_block()->threads
#define BX          ntx_fiber_block()->x
#define BLOCKS      ntx_fiber_block()->blocks
#define BY          ntx_fiber_block()->y
#define BZ          ntx_fiber_block()->z
#define SYNC()      ntx_fiber_sync()
#define SYNC_WARP() ntx_fiber_all("", 1)
DEV float xor_f(float v, uint32_t m)
{
    ntx_fiber_xor(&v, sizeof v, m);
    return v;
}
DEV double xor_d(double v, uint32_t m)
{
    ntx_fiber_xor(&v, sizeof v, m);
    return v;
}
DEV int32_t xor_i(int32_t v, uint32_t m)
{
    ntx_fiber_xor(&v, sizeof v, m);
    return v;
}
DEV int all_of_warp(int is)
{
    const uint8_t(*all)[16] = ntx_fiber_all(&(uint8_t){is != 0}, 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < WARP; i++)
        n += all[i][0];
    if (n % WARP)
        abort(); /* right, but not what it is for: some threads would do nothing */
    return n != 0;
}
DEV int32_t dot4(uint32_t x, uint32_t y, int32_t c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)(x >> i) * (int8_t)(y >> i);
    return c;
}
DEV int32_t dot2(uint32_t x, uint32_t y, int32_t c)
{
    return c + (int16_t)x * (int8_t)y + (int16_t)(x >> 16) * (int8_t)(y >> 8);
}
DEV int32_t dot2_low(uint32_t x, uint32_t y, int32_t c) { return dot2(x, y, c); }
DEV int32_t dot2_high(uint32_t x, uint32_t y, int32_t c) { return dot2(x, y >> 16, c); }
DEV uint32_t shift_pair(uint32_t lo, uint32_t hi, uint32_t bits)
{
    return (uint32_t)((((uint64_t)hi << 32) | lo) >> (bits & 31));
}
DEV uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t at)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)((((uint64_t)hi << 32) | lo) >> (at >> 4 * i & 7) * 8 & 255) << 8 * i;
    return v;
}
DEV uint32_t pick_bytes_below_8(uint32_t lo, uint32_t hi, uint32_t at)
{
    if (at & 0x8888)
        abort(); /* a card would repeat a sign */
    return pick_bytes(lo, hi, at);
}
DEV uint32_t sign_of_byte(uint32_t byte) { return byte & 0x80 ? 0xff : 0; }
DEV uint32_t pick_bytes_or_signs(uint32_t lo, uint32_t hi, uint32_t at)
{
    const uint32_t v = pick_bytes(lo, hi, at);
    uint32_t s = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t byte = v >> 8 * i & 0xff;
        s |= (at >> 4 * i & 8 ? sign_of_byte(byte) : byte) << 8 * i;
    }
    return s;
}
DEV uint32_t twice_low(uint32_t v, uint32_t c) { return c + 2 * (v & 0xffff); }
DEV uint32_t twice_high(uint32_t v, uint32_t c) { return c + 2 * (v >> 16); }
DEV uint32_t pick_bits(uint32_t v, uint32_t w, uint32_t mask) { return (v & mask) | (w & ~mask); }
DEV uint32_t bits_of_both(uint32_t v, uint32_t w, uint32_t mask) { return (v | w) & mask; }
DEV uint32_t signs_of_bytes(uint32_t v) { return pick_bytes_or_signs(v, 0, 0xba98u); }
DEV float bits_f(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
DEV uint32_t f_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
DEV float widen_half(uint32_t h) { return ntx_f16_to_f32((uint16_t)h); }
DEV uint32_t narrow_half(float f) { return ntx_f32_to_f16(f); }
DEV void load_words4(const void *p, uint32_t *v)
{
    if ((uintptr_t)p & 15)
        abort(); /* a card would end the launch */
    memcpy(v, p, 16);
}
DEV void load_words2(const void *p, uint32_t *v)
{
    if ((uintptr_t)p & 7)
        abort();
    memcpy(v, p, 8);
}
DEV void store_words4(void *p, const uint32_t *v)
{
    if ((uintptr_t)p & 15)
        abort();
    memcpy(p, v, 16);
}
/* An asynchronous copy arrives only when the thread waits for it; until then its target holds poison. */
enum { NTX_COPY_THREADS = 512, NTX_COPIES = 16 };
static _Thread_local struct ntx_copies {
    struct {
        void *to;
        const void *from;
        uint32_t set;
    } list[NTX_COPIES];
    uint32_t n, sets;
} ntx_copies[NTX_COPY_THREADS];
DEV uintptr_t shared_address(const void *p) { return (uintptr_t)p; }
DEV void copy_16(uintptr_t to, const void *from)
{
    struct ntx_copies *c = &ntx_copies[TID];
    if (TID >= NTX_COPY_THREADS || c->n == NTX_COPIES || to & 15 || (uintptr_t)from & 15)
        abort();
    if (!COPIES_GO_ON) {
        memcpy((void *)to, from, 16);
        return;
    }
    memset((void *)to, 0xff, 16);
    c->list[c->n].to = (void *)to;
    c->list[c->n].from = from;
    c->list[c->n++].set = c->sets;
}
DEV void copies_end(void) { ntx_copies[TID].sets++; }
DEV void copies_wait(const uint32_t n)
{
    struct ntx_copies *c = &ntx_copies[TID];
    uint32_t come = 0;
    for (; come < c->n && c->sets - c->list[come].set > n; come++)
        memcpy(c->list[come].to, c->list[come].from, 16);
    c->n -= come;
    memmove(c->list, c->list + come, c->n * sizeof *c->list);
}
DEV void copies_over(void) /* at a kernel's end: what nobody waited for would come into somebody else's memory */
{
    if (TID < NTX_COPY_THREADS && ntx_copies[TID].n)
        abort();
}
DEV void prefetch_line(const void *p) { (void)*(const volatile uint8_t *)p; } /* of memory that is there */
DEV void count_one(uint32_t *shared) { ++*shared; }
DEV void matrix_units(float *c, const uint32_t *a, uint32_t b)
{
    const uint32_t mine[3] = {a[0], a[1], b}, g = TID % WARP / 4, t = TID % 4;
    const uint8_t(*all)[16] = ntx_fiber_all(mine, sizeof mine);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = 2 * t + i % 2;
        for (uint32_t k = 0; k < 8; k++) {
            uint16_t x, y;
            memcpy(&x, all[g * 4 + k / 2] + 4 * (i / 2) + 2 * (k % 2), 2);
            memcpy(&y, all[n * 4 + k / 2] + 8 + 2 * (k % 2), 2);
            c[i] += ntx_f16_to_f32(x) * ntx_f16_to_f32(y);
        }
    }
}
DEV void matrix_units_16(int32_t *c, uint32_t up, uint32_t down, uint32_t b)
{
    const uint32_t mine[3] = {up, down, b}, g = TID % WARP / 4, t = TID % 4;
    const uint8_t(*all)[16] = ntx_fiber_all(mine, sizeof mine);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 16; k++)
            c[i] += (int8_t)all[g * 4 + k / 4][4 * (i / 2) + k % 4] *
                    (int8_t)all[(2 * t + i % 2) * 4 + k / 4][8 + k % 4];
}
DEV void matrix_units_32(int32_t *c, const uint32_t *a, const uint32_t *b)
{
    matrix_units_16(c, a[0], a[1], b[0]);
    matrix_units_16(c, a[2], a[3], b[1]);
}
