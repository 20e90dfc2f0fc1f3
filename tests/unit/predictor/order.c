/* SPDX-License-Identifier: Apache-2.0 */
/* order.c: neurons of four kinds, interleaved; those of a kind are active together, and are neighbours afterwards. */
#include "predictor/learn/learn.h"
#include "common/util.h"
#include "tests/lib/check.h"

enum { N = 64, TOKENS = 1000, KINDS = 4 };

int main(void)
{
    static float energy[TOKENS * N];
    uint32_t order[N], seed = 9, together = 0;
    bool seen[N] = {false};
    struct ntx_ffn_score s = {0};
    for (uint32_t t = 0; t < TOKENS; t++) {
        uint32_t kind = (seed = seed * 1664525 + 1013904223) >> 30;
        for (uint32_t j = 0; j < N; j++) /* one in sixteen is noise */
            energy[t * N + j] = (j % KINDS == kind) != (((seed = seed * 1664525 + 1013904223) >> 28) == 0) ? 2 : 0.5f;
    }
    CHECK_EQ(ntx_learn_order(energy, TOKENS, N, 1, order, &s), 0);
    for (uint32_t i = 0; i < N; i++) {
        CHECK(order[i] < N && !seen[order[i]]);
        seen[order[i]] = true;
        together += i && order[i] % KINDS == order[i - 1] % KINDS;
    }
    CHECK_EQ(together, N - KINDS);
    CHECK(s.before[0] > 0.9 && s.after[0] < 0.5 && s.after[0] > 0.25 && s.after[2] >= s.after[0]);
    float v[] = {0, 3, 1, 2, 0, 0, 0, 0, 0, 0};
    CHECK(ntx_learn_level(v, 10, 0.25f) == 1);
    CHECK(ntx_learn_level(v, 10, 0.9f) == 0);
    return 0;
}
