/* SPDX-License-Identifier: Apache-2.0 */
/* best.h: the largest logits of a row, kept while the output matrix is multiplied. A row of a draft then needs 400
 * bytes instead of a float for each token of the vocabulary, and its draw is the same (sampler.h: ntx_sampler_enough).
 * Threads offer pieces of a row in any order; the result does not depend on it. */
#ifndef NTX_COMPUTED_PASS_BEST_H
#define NTX_COMPUTED_PASS_BEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "computed/sample/sampler.h"

#define NTX_BEST_FEW 48u /* most candidates: enough for --top-k 40 */

struct ntx_best {
    uint32_t want;       /* 1..NTX_BEST_FEW candidates */
    uint32_t n;          /* kept, as a heap: at[0] is the least of them */
    _Atomic float least; /* a logit below it cannot come in */
    atomic_flag held;
    _Atomic bool infinite; /* a logit is a NaN or an infinity */
    struct ntx_candidate at[NTX_BEST_FEW];
};

void ntx_best_begin(struct ntx_best *b, uint32_t want);
/* Offers the logits of tokens [first, first + n). */
void ntx_best_offer(struct ntx_best *b, int32_t first, const float *logits, uint32_t n);

#endif
