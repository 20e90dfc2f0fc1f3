/* SPDX-License-Identifier: Apache-2.0 */
/* dialect.h: the words in which kernels are written, so that the same text is CUDA for nvcc and C for a CPU.
 *
 * A kernel takes one struct of arguments, `a`. Its threads meet at SYNC() (of the block) and in the shuffles (of the
 * warp): all threads of the block, or of the warp, must come there. In the tests each thread is a fiber and blocks run
 * one after the other on the CPU, so every index that a card would compute is computed, under the sanitizers too. */
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
#define DEV_APART    static __device__ __noinline__ /* what is called seldom, and would take registers where it stands */
#define DEVICE_TABLE static __device__ const
#define KERNEL(name, type)                                                                                             \
    static __global__ void name(const __grid_constant__ type a) /* where it lies it may be pointed at, and indexed */
#define KERNEL_OF(threads, name, type)                                                                                 \
    static __global__ void __launch_bounds__(threads) name(                                                            \
        const __grid_constant__ type a) /* by so many threads at most: more of them than registers would else allow */
#define RETURN_LAUNCH(stream, name, gx, gy, gz, threads, args)                                                         \
    RETURN_LAUNCH_WITH(stream, name, gx, gy, gz, threads, 0, args)
/* With so many bytes of shared memory besides those that a kernel names: of more than 48 KiB the kernel is told before
 * (ALLOW_SHARED). */
#define RETURN_LAUNCH_WITH(stream, name, gx, gy, gz, threads, bytes, args)                                             \
    do {                                                                                                               \
        name<<<dim3(gx, gy, gz), threads, bytes, ntx__native(stream)>>>(args);                                         \
        return ntx__launched(stream, #name);                                                                           \
    } while (0)
#define ALLOW_SHARED(stream, name, bytes)                                                                              \
    ntx__allow_shared(stream, (const void *)name, #name, bytes) /* 0, or a negative errno */
#define SHARED                 __shared__
#define SHARED_OF_LAUNCH(name) extern SHARED ALIGNED16 uint8_t name[] /* of all kernels the same name */
#define ALIGNED16              __align__(16)
#define UNROLL                 _Pragma("unroll")
/* Copies of a book of 1 KiB in shared memory (codes.h): where an SM has 164 KiB of that, or 228, they cost it no warps.
 * */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200))
#define BOOK_COPIES 16u
#else
#define BOOK_COPIES 1u
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
/* Whether it is so for all threads of a warp: of what they decide by it, a compiler knows that they do it together. */
DEV int all_of_warp(int is) { return __all_sync(0xffffffffu, is); }
DEV int32_t dot4(uint32_t a, uint32_t b, int32_t c) { return __dp4a((int32_t)a, (int32_t)b, c); }
/* c and two products of the 16-bit integers of a: by the lower two bytes of b, or by the upper ones. */
DEV int32_t dot2_low(uint32_t a, uint32_t b, int32_t c) { return __dp2a_lo((int32_t)a, (int32_t)b, c); }
DEV int32_t dot2_high(uint32_t a, uint32_t b, int32_t c) { return __dp2a_hi((int32_t)a, (int32_t)b, c); }
DEV uint32_t shift_pair(uint32_t lo, uint32_t hi, uint32_t bits) { return __funnelshift_r(lo, hi, bits); }
/* Byte i: that of the eight in lo, hi which the lower three bits of nibble i of `at` say. */
DEV uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t at) { return __byte_perm(lo, hi, at & 0x7777u); }
/* The same where no nibble is above 7. */
DEV uint32_t pick_bytes_below_8(uint32_t lo, uint32_t hi, uint32_t at)
{
    uint32_t v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(lo), "r"(hi), "r"(at));
    return v;
}
/* The same, where the fourth bit of a nibble says: -1 if the byte is negative, else 0. Bits of `at` behind the four
 * nibbles are of no matter. */
DEV uint32_t pick_bytes_or_signs(uint32_t lo, uint32_t hi, uint32_t at) { return pick_bytes_below_8(lo, hi, at); }
/* c + twice the lower half of v, or the upper one, without a sign: one instruction, of the products' units. */
DEV uint32_t twice_low(uint32_t v, uint32_t c) { return __dp2a_lo(v, 2u, c); }
DEV uint32_t twice_high(uint32_t v, uint32_t c) { return __dp2a_lo(v, 0x200u, c); }
/* Bits of v where mask has them, else of w; those of v or w that mask has. By one instruction each, where a compiler
 * that knows some of the bits would make several. */
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
/* Bytes of -1 where those of v are negative, of 0 elsewhere. */
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
/* 16 bytes that lie 16-aligned, in one load. */
DEV void load_words4(const void *p, uint32_t *v)
{
    const uint4 w = *(const uint4 *)p;
    v[0] = w.x;
    v[1] = w.y;
    v[2] = w.z;
    v[3] = w.w;
}
/* 8 bytes that lie 8-aligned. */
DEV void load_words2(const void *p, uint32_t *v)
{
    const uint2 w = *(const uint2 *)p;
    v[0] = w.x;
    v[1] = w.y;
}
DEV void store_words4(void *p, const uint32_t *v) { *(uint4 *)p = make_uint4(v[0], v[1], v[2], v[3]); }
DEV uintptr_t shared_address(const void *p) { return __cvta_generic_to_shared(p); }
/* 16 bytes, 16-aligned both, to a place in shared memory, in the background: copies_end() ends a set of a thread's;
 * copies_wait(n): all sets but the last n (0 or 2) have come. Other threads see them behind the next barrier. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define COPIES_GO_ON 1 /* while their threads do something else */
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
/* What p points to will be read. */
DEV void ask_for(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
DEV void count_one(uint32_t *shared) { atomicAdd(shared, 1u); }

/* C (16 x 8, F32) += A (16 x 8) B (8 x 8) of F16, by a warp. Thread (g, t) = (lane / 4, lane % 4) holds of A the pairs
 * (g, 2t..) in a[0] and (g + 8, 2t..) in a[1]; of B (2t.., g) in b; of C (g, 2t..) in c[0..1] and (g + 8, 2t..) in
 * c[2..3]. */
DEV void matrix_units(float *c, const uint32_t *a, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* The same of signed bytes, C being integers: A 16 x 16 with words (g, t) in up and (g + 8, t) in down, B 16 x 8 with
 * word (t, g) in b. */
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

/* And of twice as many: a[0], a[1] and b[0] as above, then those of the other 16. */
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
#include NTX_DIALECT /* whoever compiles kernels as C says what the words mean there (tests/unit/cuda/dialect_fiber.h) */
#endif

#endif
