/* dialect.h: the words in which kernels are written, so that the same text is CUDA for nvcc and C for a CPU.
 *
 * A kernel takes one struct of arguments, `a`. Its threads meet at SYNC() (of the block) and in the shuffles (of the warp):
 * all threads of the block, or of the warp, must come there. On the CPU each thread is a fiber (tests/cuda/fiber.h) and
 * blocks run one after the other, so every index that a card would compute is computed, under the sanitizers too. */
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

#define DEV static __device__ __forceinline__
#define KERNEL(name, type) static __global__ void name(const type a)
#define RETURN_LAUNCH(stream, name, gx, gy, gz, threads, args)                         \
    do {                                                                             \
        name<<<dim3(gx, gy, gz), threads, 0, ntx__native(stream)>>>(args);            \
        return ntx__launched(stream, #name);                                         \
    } while (0)
#define SHARED __shared__
#define UNROLL _Pragma("unroll")
#define TID threadIdx.x
#define BLOCK_DIM blockDim.x
#define BX blockIdx.x
#define BY blockIdx.y
#define BZ blockIdx.z
#define SYNC() __syncthreads()
DEV float xor_f(float v, uint32_t m) { return __shfl_xor_sync(0xffffffffu, v, (int)m); }
DEV double xor_d(double v, uint32_t m) { return __shfl_xor_sync(0xffffffffu, v, (int)m); }
DEV int32_t xor_i(int32_t v, uint32_t m) { return __shfl_xor_sync(0xffffffffu, v, (int)m); }
DEV int32_t dot4(uint32_t a, uint32_t b, int32_t c) { return __dp4a((int32_t)a, (int32_t)b, c); }
DEV uint32_t shift_pair(uint32_t lo, uint32_t hi, uint32_t bits) { return __funnelshift_r(lo, hi, bits); }
/* Byte i: that of the eight in lo, hi which the lower three bits of nibble i of `at` say. */
DEV uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t at) { return __byte_perm(lo, hi, at & 0x7777u); }
DEV float bits_f(uint32_t u) { return __uint_as_float(u); }
DEV uint32_t f_bits(float f) { return __float_as_uint(f); }
DEV void count_one(uint32_t *shared) { atomicAdd(shared, 1u); }

/* C (16 x 8, F32) += A (16 x 8) B (8 x 8) of F16, by a warp. Thread (g, t) = (lane / 4, lane % 4) holds of A the pairs (g, 2t..) in a[0] and
 * (g + 8, 2t..) in a[1]; of B (2t.., g) in b; of C (g, 2t..) in c[0..1] and (g + 8, 2t..) in c[2..3]. */
DEV void matrix_units(float *c, const uint32_t *a, uint32_t b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

#else

#include "tests/cuda/fake.h"
#include "tests/cuda/fiber.h"

#define DEV static inline __attribute__((unused))
#define KERNEL(name, type)                                                      \
    static void name##_body(const type a);                                      \
    static void name(const void *p) { name##_body(*(const type *)p); }          \
    static void name##_body(const type a)
#define RETURN_LAUNCH(stream, name, gx, gy, gz, threads, args) \
    return ntx__fake_launch(stream, name, (const uint32_t[4]){gx, gy, gz, threads}, &(args), sizeof(args))
#define SHARED static _Thread_local
#define UNROLL
#define TID ntx_fiber_tid()
#define BLOCK_DIM ntx_fiber_block()->threads
#define BX ntx_fiber_block()->x
#define BY ntx_fiber_block()->y
#define BZ ntx_fiber_block()->z
#define SYNC() ntx_fiber_sync()
DEV float xor_f(float v, uint32_t m) { ntx_fiber_xor(&v, sizeof v, m); return v; }
DEV double xor_d(double v, uint32_t m) { ntx_fiber_xor(&v, sizeof v, m); return v; }
DEV int32_t xor_i(int32_t v, uint32_t m) { ntx_fiber_xor(&v, sizeof v, m); return v; }
DEV int32_t dot4(uint32_t x, uint32_t y, int32_t c)
{
    for (int i = 0; i < 32; i += 8)
        c += (int8_t)(x >> i) * (int8_t)(y >> i);
    return c;
}
DEV uint32_t shift_pair(uint32_t lo, uint32_t hi, uint32_t bits) { return (uint32_t)((((uint64_t)hi << 32) | lo) >> (bits & 31)); }
DEV uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t at)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)((((uint64_t)hi << 32) | lo) >> (at >> 4 * i & 7) * 8 & 255) << 8 * i;
    return v;
}
DEV float bits_f(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
DEV uint32_t f_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
DEV void count_one(uint32_t *shared) { ++*shared; }
DEV void matrix_units(float *c, const uint32_t *a, uint32_t b)
{
    uint32_t mine[3] = {a[0], a[1], b}, all[WARP][3], g = TID % WARP / 4, t = TID % 4;
    ntx_fiber_all(mine, sizeof mine, all);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t n = 2 * t + i % 2;
        for (uint32_t k = 0; k < 8; k++) {
            uint16_t x = (uint16_t)(all[g * 4 + k / 2][i / 2] >> 16 * (k % 2)), y = (uint16_t)(all[n * 4 + k / 2][2] >> 16 * (k % 2));
            c[i] += ntx_f16_to_f32(x) * ntx_f16_to_f32(y);
        }
    }
}

#endif

#endif
