/* SPDX-License-Identifier: Apache-2.0 */
/* planes.c: each instruction set joins high and low bits to the same blocks as the plain code. */
#include <stdlib.h>
#include <string.h>

#include "computed/cpu/cpu.h"
#include "model/planes.h"
#include "tests/lib/check.h"

enum { BLOCKS = 37 };

static void check(const struct ntx_cpu_ops *ops, uint32_t type)
{
    const struct ntx_type_info *to = ntx_type_info(ntx_planes_whole(type)),
                               *high = ntx_type_info(ntx_planes_of(type)->high),
                               *low = ntx_type_info(ntx_planes_of(type)->low);
    uint8_t *h = malloc(BLOCKS * high->block_bytes), *l = malloc(BLOCKS * low->block_bytes),
            *x = calloc(BLOCKS, to->block_bytes), *y = calloc(BLOCKS, to->block_bytes);
    CHECK(h && l && x && y);
    for (size_t i = 0; i < BLOCKS * high->block_bytes; i++)
        h[i] = (uint8_t)(i * 37 + i / 251);
    for (size_t i = 0; i < BLOCKS * low->block_bytes; i++)
        l[i] = (uint8_t)(i * 101 + i / 127);
    ntx_planes_join(type, h, l, BLOCKS, x);
    ops->join(type, h, l, BLOCKS, y);
    CHECK_MSG(!memcmp(x, y, BLOCKS * to->block_bytes), "%s, %s", ops->name, ntx_type_info(type)->name);
    free(h);
    free(l);
    free(x);
    free(y);
}

int main(void)
{
    static const char *const sets[] = {"generic", "avx2", "avx512", "amx", "neon", "i8mm"};
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
        for (uint32_t t = NTX_PLANES_FIRST; t < NTX_TYPE_LIMIT; t++)
            if (ntx_cpu_pick(sets[s]))
                check(ntx_cpu_pick(sets[s]), t);
    return 0;
}
