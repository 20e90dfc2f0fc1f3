/* bench_attend [POSITIONS [HEAD [MIB]]]: one thread, one decode row, one KV head of HEAD values after another over POSITIONS of context, of which
 * there are MIB (64: they lie in memory; less than the cache has: there), in huge pages as ntx_kv's. CSV: the best round of half a second, two at
 * least, as GB of K and V per second of the thread's CPU time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/util.h"
#include "computed/cpu/cpu.h"

#define BLOCK 32u
#define HUGE (2ull << 20)

struct kv {
    uint8_t *mem;
    const void **k, **v;
    size_t row;
    uint32_t heads; /* that fit into BYTES */
};

static void fill(struct kv *kv, enum ntx_kv_type type, uint32_t n_pos, uint32_t head, uint64_t bytes)
{
    float x[256];
    uint32_t blocks = n_pos / BLOCK;
    kv->row = type == NTX_KV_F16 ? 2 * head : head / 32 * 34;
    kv->heads = (uint32_t)NTX_MAX(bytes / (2 * n_pos * kv->row), 1u);
    bytes = (2 * n_pos * kv->row * kv->heads + HUGE - 1) / HUGE * HUGE;
    kv->mem = aligned_alloc(HUGE, bytes);
    madvise(kv->mem, bytes, MADV_HUGEPAGE);
    kv->k = malloc(blocks * kv->heads * sizeof *kv->k);
    kv->v = malloc(blocks * kv->heads * sizeof *kv->v);
    for (uint32_t i = 0; i < 2 * n_pos * kv->heads; i++) {
        for (uint32_t j = 0; j < head; j++)
            x[j] = (float)((i * 31 + j * 7) % 255) / 128 - 1;
        ntx_cpu_pick(NULL)->kv_store[type](x, kv->mem + i * kv->row, head);
    }
    for (uint32_t b = 0; b < blocks * kv->heads; b++) {
        kv->k[b] = kv->mem + 2 * b * BLOCK * kv->row;
        kv->v[b] = kv->mem + (2 * b + 1) * BLOCK * kv->row;
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void run(const char *isa, enum ntx_kv_type type, uint32_t n_q, const struct kv *kv, uint32_t n_pos, uint32_t head)
{
    static float q[NTX_ATTN_HEADS * 256], out[NTX_ATTN_HEADS * 256];
    const struct ntx_cpu_ops *ops = ntx_cpu_pick(isa);
    uint64_t best = UINT64_MAX, spent = 0;
    if (!ops)
        return;
    for (uint32_t i = 0; i < n_q * head; i++)
        q[i] = (float)(i * 13 % 64) / 32 - 1;
    for (int round = 0; round < 2 || spent < 500000000u; round++) {
        uint64_t t0 = cpu_ns();
        for (uint32_t h = 0; h < kv->heads; h++) {
            struct ntx_attn a = {q, out, n_q, kv->k + h * n_pos / BLOCK, kv->v + h * n_pos / BLOCK, BLOCK, n_pos, head, head, 1 / sqrtf((float)head), NULL};
            ops->attend[type](&a);
        }
        t0 = cpu_ns() - t0;
        spent += t0;
        best = NTX_MIN(best, t0);
    }
    printf("%s,%s,%u,%u,%u,%.2f\n", isa, type == NTX_KV_F16 ? "f16" : "q8_0", head, n_pos, n_q, 2.0 * (double)kv->heads * n_pos * (double)kv->row / (double)best);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const char *const isas[] = {"avx512", "avx2"};
    static const uint32_t heads[] = {1, 2, 3, 4, 8};
    uint32_t n_pos = argc > 1 ? (uint32_t)atoi(argv[1]) / BLOCK * BLOCK : 8192, head = argc > 2 ? (uint32_t)atoi(argv[2]) : 128;
    uint64_t bytes = (argc > 3 ? (uint64_t)atoi(argv[3]) : 64) << 20;
    if (!n_pos || n_pos > 65536 || head < 32 || head > 256 || head % 32)
        return fputs("usage: bench_attend [POSITIONS [HEAD [MIB]]]\n", stderr), 100;
    puts("kernel,kv,head,positions,heads,GB/s");
    for (enum ntx_kv_type type = NTX_KV_F16; type < NTX_N_KV; type++) {
        struct kv kv;
        fill(&kv, type, n_pos, head, bytes);
        for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
            for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
                run(isas[i], type, heads[h], &kv, n_pos, head);
        free(kv.mem);
        free(kv.k);
        free(kv.v);
    }
    return 0;
}
