/* SPDX-License-Identifier: Apache-2.0 */
/* order.c: orders neurons so that those that are active together are neighbours. A token then uses fewer groups of
 * neighbours (ntx pack --order).
 *
 * Each neuron is a row of bits, one per token: active or not. The most active neuron is first. Next is always the one
 * most similar to the last few placed ones (mean of |both| / |either|). So often used neurons gather at the front, and
 * similar ones are neighbours. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "predictor/learn/learn.h"

#define BITS_MOST 2048u /* tokens that are used at most: the work is proportional to it */
#define LOOK_BACK 4u

struct chain {
    uint32_t n, words;
    uint64_t *bits;  /* [n x words] */
    uint32_t *ones;  /* [n] */
    float *like;     /* likeness to the last placed ones */
    uint8_t *placed; /* [n] */
};

static void set_bits(struct chain *c, const float *energy, uint32_t n_tokens, float level)
{
    uint32_t step = n_tokens / (64 * c->words) + 1, at = 0;
    for (uint32_t t = 0; t < n_tokens && at < 64 * c->words; t += step) {
        if (ntx_sample_held_out(t))
            continue;
        for (uint32_t j = 0; j < c->n; j++) {
            uint64_t on = energy[(size_t)t * c->n + j] > level;
            c->bits[(size_t)j * c->words + at / 64] |= on << at % 64;
            c->ones[j] += (uint32_t)on;
        }
        at++;
    }
}

static float likeness(const struct chain *c, uint32_t a, uint32_t b)
{
    const uint64_t *x = c->bits + (size_t)a * c->words, *y = c->bits + (size_t)b * c->words;
    uint32_t both = 0;
    for (uint32_t w = 0; w < c->words; w++)
        both += (uint32_t)__builtin_popcountll(x[w] & y[w]);
    uint32_t either = c->ones[a] + c->ones[b] - both;
    return either ? (float)both / (float)either : 1;
}

static uint32_t first_of(const struct chain *c)
{
    uint32_t best = 0;
    for (uint32_t j = 1; j < c->n; j++)
        if (c->ones[j] > c->ones[best])
            best = j;
    return best;
}

/* On a tie, the more active neuron, then the first. */
static uint32_t next_of(const struct chain *c)
{
    uint32_t best = UINT32_MAX;
    float most = -1;
    for (uint32_t j = 0; j < c->n; j++) {
        float sum = 0;
        if (c->placed[j])
            continue;
        for (uint32_t k = 0; k < LOOK_BACK; k++)
            sum += c->like[(size_t)k * c->n + j];
        if (best == UINT32_MAX || sum > most || (sum >= most && c->ones[j] > c->ones[best])) {
            best = j;
            most = sum;
        }
    }
    return best;
}

static void link_up(struct chain *c, uint32_t *order)
{
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t j = i ? next_of(c) : first_of(c);
        order[i] = j;
        c->placed[j] = 1;
        float *like = c->like + (size_t)(i % LOOK_BACK) * c->n;
        for (uint32_t k = 0; k < c->n; k++)
            like[k] = c->placed[k] ? 0 : likeness(c, j, k);
    }
}

static double groups_used(const float *energy, uint32_t n_tokens, uint32_t n, float level, const uint32_t *order,
                          uint32_t group)
{
    uint64_t used = 0, all = 0;
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t g = 0; g < n && ntx_sample_held_out(t); g += group) {
            bool on = false;
            for (uint32_t i = g; i < NTX_MIN(g + group, n); i++)
                on |= energy[(size_t)t * n + (order ? order[i] : i)] > level;
            used += on;
            all++;
        }
    return all ? (double)used / (double)all : 0;
}

int ntx_learn_order(const float *energy, uint32_t n_tokens, uint32_t n, float level, uint32_t *order,
                    struct ntx_ffn_score *score)
{
    struct chain c = {.n = n, .words = NTX_MIN(n_tokens, BITS_MOST) / 64 + 1};
    c.bits = calloc((size_t)n * c.words, sizeof *c.bits);
    c.ones = calloc(n, sizeof *c.ones);
    c.like = calloc((size_t)LOOK_BACK * n, sizeof *c.like);
    c.placed = calloc(n, 1);
    int rc = c.bits && c.ones && c.like && c.placed ? 0 : -ENOMEM;
    if (!rc) {
        set_bits(&c, energy, n_tokens, level);
        link_up(&c, order);
    }
    for (uint32_t k = 0; k < 3 && !rc; k++) {
        score->before[k] = groups_used(energy, n_tokens, n, level, NULL, 4u << k);
        score->after[k] = groups_used(energy, n_tokens, n, level, order, 4u << k);
    }
    free(c.bits);
    free(c.ones);
    free(c.like);
    free(c.placed);
    return rc;
}
