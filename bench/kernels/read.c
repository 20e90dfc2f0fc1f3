/* SPDX-License-Identifier: Apache-2.0 */
/* read.c: a plain read of memory, the ceiling for one-row kernels. */
#include "bench/kernels/lab.h"

typedef uint64_t v8 __attribute__((vector_size(64)));

__attribute__((target_clones("default", "avx2", "avx512f"))) uint64_t lab_read(const void *p, size_t bytes)
{
    const v8 *v = p;
    v8 a[8] = {{0}};
    for (size_t i = 0; i < bytes / 512; i++, v += 8)
        for (int k = 0; k < 8; k++) {
            __builtin_prefetch(v + 32 + k); /* as the kernels do; worth 3 to 5 % */
            a[k] ^= v[k];
        }
    v8 x = a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
    return x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7];
}
