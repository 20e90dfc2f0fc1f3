/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h: makes one decision of a skip policy and checks what holds for every policy: it skips only layers behind
 * the one that it probes. */
#ifndef NTX_TESTS_FUZZ_POLICY_H
#define NTX_TESTS_FUZZ_POLICY_H

#include "predictor/policy.h"
#include "tests/fuzz/fuzz.h"

static inline void fuzz_decide(struct ntx_policy *p, const float *hidden, uint32_t row, uint32_t n_layers)
{
    uint64_t skip[NTX_MAP_WORDS];
    MUST(p->probe_layer < n_layers);
    ntx_policy_decide(p, &(struct ntx_policy_input){.hidden = hidden, .layer = p->probe_layer, .row = row}, skip);
    for (uint32_t l = 0; l < 64 * NTX_MAP_WORDS; l++)
        MUST(!(skip[l / 64] >> l % 64 & 1) || (l > p->probe_layer && l < n_layers));
}

#endif
