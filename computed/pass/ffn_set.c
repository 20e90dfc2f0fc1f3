/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/pass/ffn_set.h"

#include <math.h>
#include <stdlib.h>

#include "common/util.h"
#include "computed/sample/largest.h"

static uint32_t most_groups(const struct ntx_model *m)
{
    uint32_t most = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        most = NTX_MAX(most, m->pack[l].n_groups);
    return most;
}

uint64_t ntx_ffn_set_bytes(const struct ntx_model *m)
{
    return (uint64_t)m->hp.n_layers * most_groups(m) * (sizeof(float) + 1) + most_groups(m) * sizeof(float) +
           sizeof(struct ntx_ffn_set);
}

struct ntx_ffn_set *ntx_ffn_set_new(const struct ntx_model *m)
{
    struct ntx_ffn_set *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (struct ntx_ffn_set){.model = m, .stride = most_groups(m)};
    s->seen = calloc((size_t)m->hp.n_layers * s->stride + s->stride,
                     sizeof *s->seen); /* the last row is scratch of ntx_cut_at */
    s->uses = calloc((size_t)m->hp.n_layers, s->stride);
    if (s->seen && s->uses)
        return s;
    ntx_ffn_set_free(s);
    return NULL;
}

void ntx_ffn_set_free(struct ntx_ffn_set *s)
{
    if (!s)
        return;
    free(s->seen);
    free(s->uses);
    free(s);
}

void ntx_ffn_set_add(struct ntx_ffn_set *s, uint32_t layer, const float *energy)
{
    uint32_t n = s->model->pack[layer].n_groups;
    float sum = 0, *seen = s->seen + (size_t)layer * s->stride;
    for (uint32_t g = 0; g < n; g++)
        sum += energy[g];
    s->any = true;
    s->current = false;
    if (!(sum > 0) || !isfinite(sum))
        return;
    for (uint32_t g = 0; g < n; g++)
        seen[g] += energy[g] / sum;
}

uint32_t ntx_ffn_share(float share, uint32_t n) { return NTX_MIN((uint32_t)NTX_MAX(ceilf(share * (float)n), 1.0f), n); }

void ntx_ffn_set_choose(struct ntx_ffn_set *s, float share)
{
    float *scratch = s->seen + (size_t)s->model->hp.n_layers * s->stride;
    for (uint32_t l = 0; l < s->model->hp.n_layers; l++) {
        const float *seen = s->seen + (size_t)l * s->stride;
        uint32_t n = s->model->pack[l].n_groups;
        struct ntx_cut cut = ntx_cut_at(seen, scratch, n, ntx_ffn_share(share, n));
        for (uint32_t g = 0; g < n; g++)
            s->uses[(size_t)l * s->stride + g] = ntx_cut_keeps(&cut, seen[g]);
    }
    s->current = true;
}
