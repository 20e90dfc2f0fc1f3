/* SPDX-License-Identifier: Apache-2.0 */
/* share.c: divides outputs in proportion, in whole slices, at least one slice each; deals layers in turn; and finds
 * parts that take equal time. */
#include "model/share.h"

#include <string.h>

#include "common/util.h"

#define LEAST_SLICES 4u /* per machine; a smaller matrix is not worth a message */

const char *const ntx_split_names[NTX_SPLITS] = {
    [NTX_SPLIT_ROWS] = "rows", [NTX_SPLIT_HEADS] = "heads", [NTX_SPLIT_LAYERS] = "layers"};

bool ntx_share_deals(const struct ntx_share *s, uint32_t layer, uint32_t n_out)
{
    if (!s || s->n < 2)
        return false;
    return ntx_share_whole(s, layer) ? s->owner[layer] != 0 : n_out / NTX_SHARE_UNIT >= LEAST_SLICES * s->n;
}

/* The first output of a rank; n_out for the rank behind the last. */
static uint32_t first_output(const struct ntx_share *s, uint32_t n_out, uint32_t rank)
{
    uint64_t before = 0, all = 0, slices = n_out / NTX_SHARE_UNIT;
    if (rank >= s->n)
        return n_out;
    for (uint32_t i = 0; i < s->n; i++) {
        before += i < rank ? s->part[i] : 0;
        all += s->part[i];
    }
    uint64_t more = slices - s->n; /* beyond the one slice that each rank has */
    uint64_t at = rank + (all ? before * more / all : rank * more / s->n);
    return (uint32_t)at * NTX_SHARE_UNIT;
}

struct ntx_share_range ntx_share_of(const struct ntx_share *s, uint32_t layer, uint32_t n_out, uint32_t rank)
{
    if (!ntx_share_deals(s, layer, n_out))
        return (struct ntx_share_range){0, rank ? 0 : n_out};
    if (ntx_share_whole(s, layer))
        return (struct ntx_share_range){0, s->owner[layer] == rank ? n_out : 0};
    uint32_t first = first_output(s, n_out, rank);
    return (struct ntx_share_range){first, first_output(s, n_out, rank + 1) - first};
}

static uint32_t head_at(const struct ntx_share *s, uint32_t n_heads, uint32_t rank)
{
    uint64_t before = 0, all = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        before += i < rank ? s->part[i] : 0;
        all += s->part[i];
    }
    if (!all) {
        before = rank;
        all = s->n;
    }
    if (!rank)
        return 0;
    return rank >= s->n ? n_heads : NTX_MAX((uint32_t)((2 * before * n_heads + all) / (2 * all)), 1u);
}

struct ntx_share_range ntx_share_heads(const struct ntx_share *s, uint32_t n_heads, uint32_t rank)
{
    const uint32_t from = s ? head_at(s, n_heads, rank) : 0;
    return (struct ntx_share_range){from, (s ? head_at(s, n_heads, rank + 1) : n_heads) - from};
}

void ntx_share_layers(struct ntx_share *s, const uint64_t *bytes, uint32_t n_layers)
{
    double has[NTX_RANKS_MAX] = {0};
    s->split = NTX_SPLIT_LAYERS;
    memset(s->owner, 0, sizeof s->owner);
    s->owner[n_layers] = NTX_SHARE_ALL;
    for (uint32_t l = 0; l < n_layers; l++) {
        uint32_t who = 0;
        double least = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            double due = (has[i] + (double)bytes[l]) / NTX_MAX(s->part[i], 1u);
            if (!i || due < least) {
                least = due;
                who = i;
            }
        }
        has[who] += (double)bytes[l];
        s->owner[l] = (uint8_t)who;
    }
}

double ntx_share_ahead(const struct ntx_share *s, uint32_t rank, uint32_t n_layers, double streamed)
{
    uint32_t own = 0, run = 0, longest = 0;
    for (uint32_t l = 0; l < n_layers; l++) {
        run = s->owner[l] == rank ? run + 1 : 0;
        own += s->owner[l] == rank;
        longest = NTX_MAX(longest, run);
    }
    double others = longest * (1 - 1.0 / s->n); /* layers of the longest run that must be read before it begins */
    return own > others && streamed > 0 ? others * streamed / (own - others)
                                        : 0; /* ahead = others * (streamed + ahead) / own */
}

double ntx_share_reads(const struct ntx_share_machine *m, const struct ntx_share_work *w, double part)
{
    double dense = NTX_MIN(m->keeps, part * w->dense), experts = NTX_MIN(m->keeps - dense, part * w->experts);
    return part * w->dense - dense + w->used * (part * w->experts - experts);
}

/* The part of the model that a machine computes in t seconds, limited by its memory, and by its drive once not
 * everything stays in memory. */
static double part_in(const struct ntx_share_machine *m, const struct ntx_share_work *w, double t)
{
    double by_memory = t * m->memory / ntx_share_taken(w), by_drive = (t * m->drive + m->keeps) / ntx_share_taken(w);
    double dense_stays = w->used > 0 ? (t * m->drive / w->used + m->keeps) / ntx_share_bytes(w) : 0;
    if (w->used > 0 && dense_stays * w->dense <= m->keeps)
        by_drive = dense_stays;
    return NTX_MIN(by_memory, by_drive);
}

double ntx_share_even(const struct ntx_share_machine *m, uint32_t n, const struct ntx_share_work *w,
                      struct ntx_share *out)
{
    double low = 0, high = 0, most = 0;
    if (!(ntx_share_taken(w) > 0))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!(m[i].memory > 0) || !(m[i].drive > 0) || !(m[i].keeps >= 0))
            return 0;
    for (uint32_t i = 0; i < n; i++)
        high = NTX_MAX(high, ntx_share_taken(w) / NTX_MIN(m[i].memory, m[i].drive));
    for (int step = 0; step < 100; step++) {
        double t = (low + high) / 2, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += part_in(&m[i], w, t);
        *(sum < 1 ? &low : &high) = t;
    }
    for (uint32_t i = 0; i < n; i++)
        most = NTX_MAX(most, part_in(&m[i], w, high));
    out->n = n;
    for (uint32_t i = 0; i < n; i++)
        out->part[i] = (uint32_t)(1e6 * NTX_MAX(part_in(&m[i], w, high) / most, 0.01));
    return high;
}
