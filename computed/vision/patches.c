/* SPDX-License-Identifier: Apache-2.0 */
/* patches.c: see vision_impl.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/vision/vision_impl.h"

uint64_t ntx__patches_bytes(const struct ntx_tower *t, uint64_t n)
{
    return n * (2 * sizeof(uint32_t) + (t->window ? 2 * sizeof(uint32_t) : 0) +
                (t->table != NTX_TOWER_TABLE_NONE ? sizeof(struct ntx_places) : 0));
}

/* Windows from the left and from the top; the last ones of a row and of a column may be smaller. */
static void order_by_windows(uint32_t side, struct ntx__patches *p)
{
    uint32_t n = 0;
    for (uint32_t top = 0; top < p->rows; top += side)
        for (uint32_t left = 0; left < p->columns; left += side) {
            const uint32_t first = n, bottom = NTX_MIN(p->rows, top + side), right = NTX_MIN(p->columns, left + side);
            for (uint32_t r = top; r < bottom; r++)
                for (uint32_t c = left; c < right; c++)
                    p->at[n++] = r * p->columns + c;
            for (uint32_t i = first; i < n; i++) {
                p->block[i] = first;
                p->n_block[i] = n - first;
            }
        }
}

/* The place of number i of n along a side of the table: corners lie on corners. */
static void find_between(uint32_t i, uint32_t n, uint32_t side, uint32_t at[2], float weight[2])
{
    const double x = n > 1 ? (double)i * (side - 1) / (n - 1) : 0;
    const uint32_t low = (uint32_t)NTX_MIN(floor(x), (double)(side - 1));
    at[0] = low;
    at[1] = NTX_MIN(low + 1, side - 1);
    weight[1] = (float)(x - low);
    weight[0] = 1 - weight[1];
}

/* Cubic convolution (Keys 1981) with a = -0.75, as in transformers; entries beyond the border are those of the border.
 */
static void find_around(uint32_t i, uint32_t n, uint32_t side, uint32_t at[4], float weight[4])
{
    const double a = -0.75, x = (i + 0.5) / n * side - 0.5, low = floor(x), t = x - low;
    for (int k = 0; k < 4; k++) {
        const double d = fabs(t - (k - 1)), place = low + k - 1;
        const double near = ((a + 2) * d - (a + 3)) * d * d + 1, far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
        at[k] = (uint32_t)NTX_MIN(fmax(place, 0), (double)(side - 1));
        weight[k] = (float)(d <= 1 ? near : far);
    }
}

static struct ntx_places find_places(const struct ntx_tower *t, const struct ntx__patches *p, uint32_t row,
                                     uint32_t column)
{
    struct ntx_places out = {.n = 0};
    const int taps = t->table == NTX_TOWER_TABLE_CENTRES ? 4 : 2;
    uint32_t y[4], x[4];
    float wy[4], wx[4];
    if (t->table == NTX_TOWER_TABLE_EXACT)
        return (struct ntx_places){.n = 1, .at = {row * t->side + column}, .weight = {1}};
    if (t->table == NTX_TOWER_TABLE_SIDES)
        return (struct ntx_places){.n = 2, .at = {column, t->side + row}, .weight = {1, 1}};
    if (t->table == NTX_TOWER_TABLE_CENTRES) {
        find_around(row, p->rows, t->side, y, wy);
        find_around(column, p->columns, t->side, x, wx);
    } else {
        find_between(row, p->rows, t->side, y, wy);
        find_between(column, p->columns, t->side, x, wx);
    }
    for (int i = 0; i < taps * taps; i++) {
        const float weight = wy[i / taps] * wx[i % taps];
        if (weight == 0)
            continue;
        out.at[out.n] = y[i / taps] * t->side + x[i % taps];
        out.weight[out.n++] = weight;
    }
    return out;
}

int ntx__patches_make(const struct ntx_tower *t, uint32_t width, uint32_t height, struct ntx__patches *out)
{
    struct ntx__patches p = {.columns = width / t->patch, .rows = height / t->patch};
    p.n = p.columns * p.rows;
    p.at = malloc(p.n * sizeof *p.at);
    p.row_of = malloc(p.n * sizeof *p.row_of);
    if (t->window) {
        p.block = malloc(p.n * sizeof *p.block);
        p.n_block = malloc(p.n * sizeof *p.n_block);
    }
    if (t->table != NTX_TOWER_TABLE_NONE)
        p.places = malloc(p.n * sizeof *p.places);
    if (!p.at || !p.row_of || (t->window && (!p.block || !p.n_block)) ||
        (t->table != NTX_TOWER_TABLE_NONE && !p.places)) {
        ntx__patches_free(&p);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < p.n; i++)
        p.at[i] = i;
    if (t->window)
        order_by_windows(t->window * t->merge, &p);
    for (uint32_t i = 0; i < p.n; i++) {
        p.row_of[p.at[i]] = i;
        if (p.places)
            p.places[i] = find_places(t, &p, p.at[i] / p.columns, p.at[i] % p.columns);
    }
    *out = p;
    return 0;
}

void ntx__patches_free(struct ntx__patches *p)
{
    free(p->at);
    free(p->row_of);
    free(p->block);
    free(p->n_block);
    free(p->places);
    *p = (struct ntx__patches){0};
}

void ntx__patches_pixels(const struct ntx_tower *t, const struct ntx__patches *p, const struct ntx_pixels *pixels,
                         float *out)
{
    const size_t plane = (size_t)pixels->width * pixels->height;
    for (uint32_t i = 0; i < p->n; i++) {
        const float *from = pixels->planes + (size_t)(p->at[i] / p->columns) * t->patch * pixels->width +
                            (size_t)(p->at[i] % p->columns) * t->patch;
        for (int c = 0; c < 3; c++)
            for (uint32_t y = 0; y < t->patch; y++, out += t->patch)
                memcpy(out, from + (size_t)c * plane + (size_t)y * pixels->width, t->patch * sizeof *out);
    }
}

/* One part of a square: the state of patch k goes to its place. */
static void join_state(const struct ntx_tower *t, const float *state, uint32_t k, float *out)
{
    const uint32_t n = t->merge * t->merge;
    if (t->join == NTX_TOWER_JOIN_STATES)
        memcpy(out + (size_t)k * t->embd, state, t->embd * sizeof *out);
    for (uint32_t i = 0; t->join == NTX_TOWER_JOIN_VALUES && i < t->embd; i++)
        out[(size_t)i * n + k] = state[i];
}

void ntx__patches_join(const struct ntx_tower *t, const struct ntx__patches *p, const float *states, float *out)
{
    const uint32_t parts = 1 + t->n_deep, n = t->merge * t->merge;
    const size_t part = (size_t)n * t->embd;
    for (uint32_t r = 0; r < p->rows / t->merge; r++)
        for (uint32_t c = 0; c < p->columns / t->merge; c++, out += parts * part)
            for (uint32_t k = 0; k < n; k++) {
                const uint32_t at = (r * t->merge + k / t->merge) * p->columns + c * t->merge + k % t->merge;
                for (uint32_t d = 0; d < parts; d++)
                    join_state(t, states + ((size_t)p->row_of[at] * parts + d) * t->embd, k, out + d * part);
            }
}
