/* SPDX-License-Identifier: Apache-2.0 */
/* dialect.h: macros in which kernels are written, so that the same text is CUDA for nvcc and C for a CPU.
 *
 * A kernel takes one struct of arguments, `a`. Its threads meet at SYNC() (the block) and in shuffles (the warp): all
 * threads of the block or warp must get there. In the tests each thread is a fiber, and blocks run one after the other
 * on the CPU; so every index that a card would compute is computed, under the sanitizers too. */
#ifndef NTX_CUDA_DIALECT_H
#define NTX_CUDA_DIALECT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda/launch.h"
#include "model/quant.h"

#define WARP 32u

#ifdef __CUDACC__

#include "cuda/plugin.h"

#define DEV          static __device__ __forceinline__
#define DEV_AND_HOST static inline __host__ __device__
/* Rarely called; inlined it would cost registers. Not static: nvcc gives static functions a name by the path. */
#define DEV_APART    inline __device__ __noinline__
#define DEVICE_TABLE static __device__ const
#define KERNEL(name, type)                                                                                             \
    static __global__ void name(const __grid_constant__ type a) /* may be pointed at and indexed without a copy */
#define KERNEL_OF(threads, name, type)                                                                                 \
    static __global__ void __launch_bounds__(threads)                                                                  \
        name(const __grid_constant__ type a) /* limits registers, so that a block may have this many threads */
#define RETURN_LAUNCH(stream, name, gx, gy, gz, threads, args)                                                         \
    RETURN_LAUNCH_WITH(stream, name, gx, gy, gz, threads, 0, args)
/* Launches with `bytes` of dynamic shared memory; more than 48 KiB must be allowed before (ALLOW_SHARED). */
#define RETURN_LAUNCH_WITH(stream, name, gx, gy, gz, threads, bytes, args)                                             \
    do {                                                                                                               \
        name<<<dim3(gx, gy, gz), threads, bytes, ntx__native(stream)>>>(args);                                         \
        return ntx__launched(stream, #name);                                                                           \
    } while (0)
#define ALLOW_SHARED(stream, name, bytes)                                                                              \
    ntx__allow_shared(stream, (const void *)name, #name, bytes) /* 0, or a negative errno */
#define SHARED                 __shared__
#define SHARED_OF_LAUNCH(name) extern SHARED ALIGNED16 uint8_t name[] /* all kernels must use the same name */
#define ALIGNED16              __align__(16)
#define UNROLL                 _Pragma("unroll")
/* Copies of a codebook of 1 KiB in shared memory (codes.h). They cost no warps on an SM with 164 or 228 KiB. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200))
#define MOST_CODEBOOK_COPIES 16u
#else
#define MOST_CODEBOOK_COPIES 1u
#endif
#define TID         threadIdx.x
#define BLOCK_DIM   blockDim.x
#define BX          blockIdx.x
#define BLOCKS      gridDim.x
#define BY          blockIdx.y
#define BZ          blockIdx.z
#define SYNC()      __syncthreads()
#define SYNC_WARP() __syncwarp()
DEV float xor_f(float v, uint32_t m) { return __shfl_xor_sync(0xffffffffu, v, (int)m); }
DEV double xor_d(double v, uint32_t m) { return __shfl_xor_sync(0xffffffffu, v, (int)m); }
DEV int32_t xor_i(int32_t v, uint32_t m) { return __shfl_xor_sync(0xffffffffu, v, (int)m); }
/* Whether `is` holds for all threads of the warp. The compiler knows that a branch on it is uniform. */
DEV int all_of_warp(int is) { return __all_sync(0xffffffffu, is); }
DEV int32_t dot4(uint32_t a, uint32_t b, int32_t c) { return __dp4a((int32_t)a, (int32_t)b, c); }
/* c plus the products of a's two 16-bit integers and the lower, or upper, two bytes of b. */
DEV int32_t dot2_low(uint32_t a, uint32_t b, int32_t c) { return __dp2a_lo((int32_t)a, (int32_t)b, c); }
DEV int32_t dot2_high(uint32_t a, uint32_t b, int32_t c) { return __dp2a_hi((int32_t)a, (int32_t)b, c); }
DEV uint32_t shift_pair(uint32_t lo, uint32_t hi, uint32_t bits) { return __funnelshift_r(lo, hi, bits); }
/* Byte i is one of the eight in lo and hi, selected by the lower three bits of nibble i of `at`. */
DEV uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t at) { return __byte_perm(lo, hi, at & 0x7777u); }
/* The same if no nibble is above 7. */
DEV uint32_t pick_bytes_below_8(uint32_t lo, uint32_t hi, uint32_t at)
{
    uint32_t v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(lo), "r"(hi), "r"(at));
    return v;
}
/* The same; if a nibble's fourth bit is set, the result is -1 for a negative byte and 0 otherwise. Bits of `at` beyond
 * the four nibbles are ignored. */
DEV uint32_t pick_bytes_or_signs(uint32_t lo, uint32_t hi, uint32_t at) { return pick_bytes_below_8(lo, hi, at); }
/* c + twice the lower, or upper, half of v, unsigned: one instruction on the dot-product units. */
DEV uint32_t twice_low(uint32_t v, uint32_t c) { return __dp2a_lo(v, 2u, c); }
DEV uint32_t twice_high(uint32_t v, uint32_t c) { return __dp2a_lo(v, 0x200u, c); }
/* pick_bits: bits of v where mask is 1, else of w. bits_of_both: bits of v or w where mask is 1. One instruction each;
 * the compiler would make several if it knows some of the bits. */
DEV uint32_t pick_bits(uint32_t v, uint32_t w, uint32_t mask)
{
    uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(bits) : "r"(v), "r"(w), "r"(mask));
    return bits;
}
DEV uint32_t bits_of_both(uint32_t v, uint32_t w, uint32_t mask)
{
    uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xa8;" : "=r"(bits) : "r"(v), "r"(w), "r"(mask));
    return bits;
}
/* Byte i is -1 if byte i of v is negative, else 0. */
DEV uint32_t signs_of_bytes(uint32_t v)
{
    uint32_t s;
    asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(s) : "r"(v));
    return s;
}
DEV float bits_f(uint32_t u) { return __uint_as_float(u); }
DEV uint32_t f_bits(float f) { return __float_as_uint(f); }
DEV float widen_half(uint32_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)h));
    return f;
}
DEV uint32_t narrow_half(float f)
{
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
/* Loads 16 bytes at once; p is 16-aligned. */
DEV void load_words4(const void *p, uint32_t *v)
{
    const uint4 w = *(const uint4 *)p;
    v[0] = w.x;
    v[1] = w.y;
    v[2] = w.z;
    v[3] = w.w;
}
/* Loads 8 bytes at once; p is 8-aligned. */
DEV void load_words2(const void *p, uint32_t *v)
{
    const uint2 w = *(const uint2 *)p;
    v[0] = w.x;
    v[1] = w.y;
}
DEV void store_words4(void *p, const uint32_t *v) { *(uint4 *)p = make_uint4(v[0], v[1], v[2], v[3]); }
DEV uintptr_t shared_address(const void *p) { return __cvta_generic_to_shared(p); }
/* copy_16 copies 16 bytes to shared memory in the background; both addresses are 16-aligned. copies_end() ends a set
 * of a thread's copies; copies_wait(n) waits for all sets but the last n (0 or 2). Other threads see them after the
 * next barrier. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define COPIES_GO_ON 1 /* copies are asynchronous */
DEV void copy_16(uintptr_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"((uint32_t)to), "l"(from) : "memory");
}
DEV void copies_end(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
DEV void copies_wait(const uint32_t n)
{
    if (n)
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 0;" ::: "memory");
}
#else
#define COPIES_GO_ON 0
DEV void copy_16(uintptr_t to, const void *from) { *(uint4 *)__cvta_shared_to_generic(to) = *(const uint4 *)from; }
DEV void copies_end(void) {}
DEV void copies_wait(const uint32_t n) { (void)n; }
#endif
/* Prefetches the line at p to the L2 cache. */
DEV void prefetch_line(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
DEV void count_one(uint32_t *shared) { atomicAdd(shared, 1u); }

/* C (16 x 8, F32) += A (16 x 8) B (8 x 8) of F16, by a warp. Thread (g, t) = (lane / 4, lane % 4) holds A's pairs (g,
 * 2t..) in a[0] and (g + 8, 2t..) in a[1], B's (2t.., g) in b, and C's (g, 2t..) in c[0..1] and (g + 8, 2t..) in
 * c[2..3]. */
DEV void matrix_units(float *c, const uint32_t *a, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* The same for signed bytes and integer C: A is 16 x 16 with words (g, t) in up and (g + 8, t) in down; B is 16 x 8
 * with word (t, g) in b. */
DEV void matrix_units_16(int32_t *c, uint32_t up, uint32_t down, uint32_t b)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(up), "r"(down), "r"(b));
#else
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(c[0]), "+r"(c[1])
        : "r"(up), "r"(b));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(c[2]), "+r"(c[3])
        : "r"(down), "r"(b));
#endif
}

/* The same for twice as many columns of A: a[0], a[1] and b[0] as above, then the words of the other 16. */
DEV void matrix_units_32(int32_t *c, const uint32_t *a, const uint32_t *b)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    matrix_units_16(c, a[0], a[1], b[0]);
    matrix_units_16(c, a[2], a[3], b[1]);
#endif
}

#else
#include NTX_DIALECT /* the same macros for C (tests/unit/cuda/dialect_fiber.h) */
#endif

#endif
