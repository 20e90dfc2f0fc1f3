/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/pass/forward_capture.h"

#include <math.h>
#include <string.h>

#include "common/util.h"

#define LANES 8 /* sums in a fixed order: the same for every thread and machine */

/* Units of the FFN: groups of neurons if the layer is packed, else neurons. The most of any layer. */
static uint32_t n_units(const struct ntx_model *m)
{
    uint32_t most = 0;
    for (uint32_t l = 0; l < m->hp.n_layers; l++)
        most = NTX_MAX(most, m->pack ? m->pack[l].n_groups : m->hp.n_ff);
    return most;
}

size_t ntx_capture_floats(const struct ntx_model *m, uint32_t ffn_layers)
{
    size_t n_embd = m->hp.n_embd;
    return 2 * n_embd + 3 * (size_t)m->hp.n_layers + ffn_layers * (n_embd + n_units(m));
}

void ntx_capture_place(struct ntx_capture *s, float *memory, uint32_t layer, const struct ntx_model *m,
                       uint32_t ffn_layers)
{
    size_t n_embd = m->hp.n_embd;
    *s = (struct ntx_capture){.layer = layer,
                              .state = memory,
                              .before = memory + n_embd,
                              .similar = memory + 2 * n_embd,
                              .units = n_units(m)};
    s->ffn_state = s->similar + 3 * (size_t)m->hp.n_layers;
    s->ffn_energy = s->ffn_state + ffn_layers * n_embd;
    for (uint32_t i = 0; i < 3 * m->hp.n_layers; i++)
        s->similar[i] = NAN;
}

static double dot(const float *a, const float *b, uint32_t n)
{
    double lane[LANES] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        lane[i % LANES] += (double)a[i] * (double)b[i];
    for (unsigned k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

static float cosine(double ab, double aa, double bb)
{
    return aa > 0 && bb > 0 ? (float)(ab / sqrt(aa * bb)) : 1.0f; /* no input or no output: nothing was changed */
}

void ntx__capture_begin(struct ntx_capture *s, const float *x, uint32_t n) { memcpy(s->before, x, n * sizeof *x); }

void ntx__capture_part(struct ntx_capture *s, unsigned part, uint32_t layer, uint32_t n_layers, const float *x,
                       const float *y, uint32_t n)
{
    double xx = dot(x, x, n), xy = dot(x, y, n), yy = dot(y, y, n); /* the output is x + y */
    s->similar[(size_t)part * n_layers + layer] = cosine(xx + xy, xx, xx + 2 * xy + yy);
}

void ntx__capture_end(struct ntx_capture *s, uint32_t layer, const float *x, uint32_t n)
{
    s->similar[layer] = cosine(dot(s->before, x, n), dot(s->before, s->before, n), dot(x, x, n));
}

static bool captures_ffn(const struct ntx_capture *s, uint32_t layer)
{
    return layer >= s->ffn_first && layer - s->ffn_first < s->ffn_layers;
}

void ntx__capture_ffn_state(struct ntx_capture *s, uint32_t layer, const float *x, uint32_t n)
{
    if (captures_ffn(s, layer))
        memcpy(s->ffn_state + (size_t)(layer - s->ffn_first) * n, x, n * sizeof *x);
}

float *ntx__capture_ffn(struct ntx_capture *s, uint32_t layer)
{
    return s && captures_ffn(s, layer) ? s->ffn_energy + (size_t)(layer - s->ffn_first) * s->units : NULL;
}
