/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: llama.cpp's products for cycles.py, with row.c's arguments: NAME ROWS OUTS. NAME is that of a
 * ggml_vec_dot_NAME, which computes one output of one row, or two by two with the suffix ":2"; or that of a
 * ggml_gemv_NAME (one row) or ggml_gemm_NAME of repacked weights. The program links these functions from a llama.cpp
 * that was compiled beside it; peer.h lists them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4096 };

#define DOT(name, w, x)                                                                                                \
    void ggml_vec_dot_##name(int n, float *s, size_t bs, const void *vx, size_t bx, const void *vy, size_t by, int nrc);
#define REPACKED(name, w, x, wide)                                                                                     \
    void ggml_gemv_##name(int n, float *s, size_t bs, const void *vx, const void *vy, int nr, int nc);                 \
    void ggml_gemm_##name(int n, float *s, size_t bs, const void *vx, const void *vy, int nr, int nc);
#include "bench/arm/peer.h"
#undef DOT
#undef REPACKED

/* Symbols of the rest of ggml that these products refer to. */
#ifdef PEER_dot
enum { HAS_I8MM = 0, HAS_SVE = 0 };
#define PLAIN(name)                                                                                                    \
    void ggml_gemm_##name##_generic(void) { abort(); }
PLAIN(q1_0_4x8_q8_0)
PLAIN(q4_0_4x8_q8_0)
PLAIN(q4_K_8x8_q8_K)
PLAIN(q5_K_8x8_q8_K)
PLAIN(q6_K_8x8_q8_K)
PLAIN(q8_0_4x8_q8_0)
#elif defined(PEER_i8mm)
enum { HAS_I8MM = 1, HAS_SVE = 0 };
#else
enum { HAS_I8MM = 1, HAS_SVE = 1 };
#endif
float ggml_table_f32_f16[1 << 16], ggml_table_f32_e8m0_half[256], ggml_table_f32_ue4m3[256];
void ggml_abort(const char *file, int line, const char *what, ...)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    abort();
}
int ggml_cpu_get_sve_cnt(void) { return 16; }
int ggml_cpu_has_neon(void) { return 1; }
int ggml_cpu_has_dotprod(void) { return 1; }
int ggml_cpu_has_sve(void) { return HAS_SVE; }
int ggml_cpu_has_matmul_int8(void) { return HAS_I8MM; }

__attribute__((noinline)) void mark_begin(void);
__attribute__((noinline)) void mark_end(void);
void mark_begin(void) { __asm__ volatile(""); }
void mark_end(void) { __asm__ volatile("nop"); }

typedef void dot_fn(int n, float *s, size_t bs, const void *vx, size_t bx, const void *vy, size_t by, int nrc);
typedef void packed_fn(int n, float *s, size_t bs, const void *vx, const void *vy, int nr, int nc);

static const struct {
    const char *name;
    size_t w, x; /* bytes of a row */
    dot_fn *dot;
    packed_fn *gemv, *gemm;
} products[] = {
#define DOT(name, w, x)            {#name, w, x, ggml_vec_dot_##name, NULL, NULL},
#define REPACKED(name, w, x, wide) {#name, w, x, NULL, ggml_gemv_##name, ggml_gemm_##name},
#include "bench/arm/peer.h"
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 4 && i < sizeof products / sizeof *products; i++) {
        char *two = strchr(argv[1], ':');
        if (strncmp(argv[1], products[i].name, two ? (size_t)(two - argv[1]) : 99))
            continue;
        const int rows = atoi(argv[2]), outs = atoi(argv[3]), step = two ? 2 : 1;
        const size_t wb = products[i].w, xb = products[i].x;
        uint8_t *w = aligned_alloc(64, (wb * (size_t)outs + 127) / 64 * 64),
                *x = aligned_alloc(64, (xb * (size_t)rows + 127) / 64 * 64);
        float *y = calloc((size_t)(rows * outs), sizeof *y);
        for (size_t k = 0; k < wb * (size_t)outs; k++)
            w[k] = (uint8_t)(rand() >> 8);
        for (size_t k = 0; k < xb * (size_t)rows; k++)
            x[k] = (uint8_t)(rand() >> 8);
        for (int call = 0; call < 2; call++) {
            if (call)
                mark_begin();
            if (products[i].dot)
                for (int o = 0; o < outs; o += step)
                    for (int r = 0; r < rows; r += step)
                        products[i].dot(N, y + r * outs + o, (size_t)outs, w + (size_t)o * wb, wb, x + (size_t)r * xb,
                                        xb, step);
            else if (rows < 4)
                products[i].gemv(N, y, (size_t)outs, w, x, rows, outs);
            else
                products[i].gemm(N, y, (size_t)outs, w, x, rows, outs);
            if (call)
                mark_end();
        }
        return 0;
    }
    fprintf(stderr, "usage: peer NAME[:2] ROWS OUTS\n");
    return 100;
}
