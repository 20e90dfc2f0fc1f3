/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/pass/best.h"

#include <math.h>

#include "common/clones.h"
#include "computed/pass/finite.h"

void ntx_best_begin(struct ntx_best *b, uint32_t want)
{
    b->want = want;
    b->n = 0;
    atomic_init(&b->least, -INFINITY);
    atomic_init(&b->infinite, false);
    atomic_flag_clear(&b->held);
}

/* Of equal logits the one of lower id is better, as in the sampler. */
static bool is_less(struct ntx_candidate a, struct ntx_candidate b)
{
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

static void swap_candidates(struct ntx_candidate *a, struct ntx_candidate *b)
{
    struct ntx_candidate c = *a;
    *a = *b;
    *b = c;
}

static void rise(struct ntx_candidate *at, uint32_t i)
{
    for (; i && is_less(at[i], at[(i - 1) / 2]); i = (i - 1) / 2)
        swap_candidates(&at[i], &at[(i - 1) / 2]);
}

static void sink(struct ntx_candidate *at, uint32_t n)
{
    for (uint32_t i = 0, k = 1; k < n; k = 2 * i + 1) {
        k += k + 1 < n && is_less(at[k + 1], at[k]);
        if (!is_less(at[k], at[i]))
            return;
        swap_candidates(&at[i], &at[k]);
        i = k;
    }
}

static void keep_candidate(struct ntx_best *b, struct ntx_candidate c)
{
    if (b->n < b->want) {
        b->at[b->n] = c;
        rise(b->at, b->n++);
    } else if (is_less(b->at[0], c)) {
        b->at[0] = c;
        sink(b->at, b->n);
    }
    if (b->n == b->want)
        atomic_store_explicit(&b->least, b->at[0].logit, memory_order_relaxed);
}

NTX_CLONES static bool any_from(const float *logits, uint32_t n, float least)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < n; i++)
        any |= logits[i] >= least;
    return any;
}

void ntx_best_offer(struct ntx_best *b, int32_t first, const float *logits, uint32_t n)
{
    float least = atomic_load_explicit(&b->least, memory_order_relaxed);
    if (!ntx_floats_finite(logits, n))
        atomic_store_explicit(&b->infinite, true, memory_order_relaxed);
    if (!any_from(logits, n, least))
        return;
    while (atomic_flag_test_and_set_explicit(&b->held, memory_order_acquire))
        ; /* another thread is done in less than a microsecond */
    for (uint32_t i = 0; i < n; i++)
        if (logits[i] >= least)
            keep_candidate(b, (struct ntx_candidate){logits[i], first + (int32_t)i});
    atomic_flag_clear_explicit(&b->held, memory_order_release);
}
