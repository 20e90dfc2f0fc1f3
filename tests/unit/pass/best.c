/* SPDX-License-Identifier: Apache-2.0 */
/* The largest logits of a row: those of a sort, in whatever pieces and order they are offered; and the draw of all
 * logits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "computed/pass/best.h"
#include "tests/lib/check.h"

enum { N = 5000, PIECE = 64 };
static float logits[N];

static int larger_first(const void *a, const void *b)
{
    const struct ntx_candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static void offer_all(struct ntx_best *b, uint32_t step)
{
    const uint32_t pieces = (N + PIECE - 1) / PIECE;
    for (uint32_t i = 0, k = 0; i < pieces; i++, k = (k + step) % pieces)
        ntx_best_offer(b, (int32_t)(k * PIECE), logits + k * PIECE, k == pieces - 1 ? N - k * PIECE : PIECE);
}

static void as_sorted(uint32_t want)
{
    static struct ntx_candidate all[N];
    for (uint32_t i = 0; i < N; i++)
        all[i] = (struct ntx_candidate){logits[i], (int32_t)i};
    qsort(all, N, sizeof *all, larger_first);
    for (uint32_t step = 1; step < 40; step += 37) { /* in order, and not (79 pieces) */
        struct ntx_best b;
        ntx_best_begin(&b, want);
        offer_all(&b, step);
        CHECK_EQ(b.n, want);
        CHECK(!b.infinite);
        qsort(b.at, b.n, sizeof *b.at, larger_first);
        for (uint32_t i = 0; i < want; i++)
            CHECK(b.at[i].id == all[i].id && b.at[i].logit == all[i].logit);
    }
}

static void same_draw(float temp)
{
    const struct ntx_sampling how = {
        .temp = temp, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1, .seed = 3};
    struct ntx_sampler *s;
    CHECK_EQ(ntx_sampler_new(&how, N, &s), 0);
    for (uint64_t pos = 0; pos < 50; pos++) {
        struct ntx_best b;
        ntx_best_begin(&b, ntx_sampler_enough(s, NTX_BEST_FEW));
        offer_all(&b, 38);
        CHECK_EQ(ntx_sampler_next_of(s, pos, b.at, b.n), ntx_sampler_next(s, pos, logits));
    }
    ntx_sampler_free(s);
}

int main(void)
{
    srand(5);
    for (uint32_t i = 0; i < N; i++)
        logits[i] = (float)(rand() % 700) / 50; /* many are equal */
    as_sorted(1);
    as_sorted(40);
    as_sorted(NTX_BEST_FEW);
    same_draw(0);
    same_draw(0.8f);
    struct ntx_best b;
    for (int k = 0; k < 2; k++) {
        const float kept = logits[N / 2];
        logits[N / 2] = k ? NAN : -INFINITY;
        ntx_best_begin(&b, 40);
        offer_all(&b, 1);
        CHECK(b.infinite);
        logits[N / 2] = kept;
    }
    return 0;
}
