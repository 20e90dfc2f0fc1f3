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
    return n * (2 * sizeof(uint32_t) + (t->window || t->tiles ? 2 * sizeof(uint32_t) : 0) +
                (t->band ? sizeof(uint32_t) : 0) + (t->table != NTX_TOWER_TABLE_NONE ? sizeof(struct ntx_places) : 0));
}

/* Windows from the left and from the top; the last ones of a row and of a column may be smaller. */
static void order_by_windows(uint32_t side, const struct ntx__patches_part *a, struct ntx__patches *p)
{
    uint32_t n = a->first;
    for (uint32_t top = 0; top < a->rows; top += side)
        for (uint32_t left = 0; left < a->columns; left += side) {
            const uint32_t first = n, bottom = NTX_MIN(a->rows, top + side), right = NTX_MIN(a->columns, left + side);
            for (uint32_t r = top; r < bottom; r++)
                for (uint32_t c = left; c < right; c++)
                    p->at[n++] = r * a->columns + c;
            for (uint32_t i = first; p->block && i < n; i++) {
                p->block[i] = first;
                p->n_block[i] = n - first;
            }
        }
}

/* Squares from row to row, and the numbers that their patches have if squares go from column to column. */
static void order_by_squares(uint32_t merge, const struct ntx__patches_part *a, struct ntx__patches *p)
{
    const uint32_t across = a->columns / merge, down = a->rows / merge, each = merge * merge;
    order_by_windows(merge, a, p);
    for (uint32_t i = 0; i < a->columns * a->rows; i++) {
        const uint32_t square = i / each;
        p->by_columns[a->first + i] = a->first + (square % across * down + square / across) * each + i % each;
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

/* The table ends with an extra row's position; behind it is the state that such a row begins with. */
static struct ntx_places places_of_extra(const struct ntx_tower *t)
{
    return (struct ntx_places){.n = 2, .at = {t->n_places - 1, t->n_places}, .weight = {1, 1}};
}

static struct ntx_places find_places(const struct ntx_tower *t, const struct ntx__patches_part *a, uint32_t at)
{
    struct ntx_places out = {.n = 0};
    const int taps = t->table == NTX_TOWER_TABLE_CENTRES ? 4 : 2;
    const uint32_t row = at / a->columns, column = at % a->columns;
    uint32_t y[4], x[4];
    float wy[4], wx[4];
    if (at == NTX__EXTRA)
        return places_of_extra(t);
    if (t->table == NTX_TOWER_TABLE_EXACT)
        return (struct ntx_places){.n = 1, .at = {row * t->side + column}, .weight = {1}};
    if (t->table == NTX_TOWER_TABLE_SIDES)
        return (struct ntx_places){.n = 2, .at = {column, t->side + row}, .weight = {1, 1}};
    if (t->table == NTX_TOWER_TABLE_CENTRES) {
        find_around(row, a->rows, t->side, y, wy);
        find_around(column, a->columns, t->side, x, wx);
    } else {
        find_between(row, a->rows, t->side, y, wy);
        find_between(column, a->columns, t->side, x, wx);
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

static void add_tile(const struct ntx_tower *t, struct ntx__patches *p, struct ntx__patches_part part)
{
    part.first = p->n;
    p->n += part.columns * part.rows + (t->extra != NTX_TOWER_EXTRA_NONE);
    p->part[p->n_parts++] = part;
}

static void find_parts(const struct ntx_tower *t, const struct ntx_fitted *size, struct ntx__patches *p)
{
    const uint32_t width = t->tiles ? t->size : size->width, height = t->tiles ? t->size : size->height;
    for (uint32_t y = 0; y < size->height; y += height)
        for (uint32_t x = 0; x < size->width; x += width)
            add_tile(
                t, p,
                (struct ntx__patches_part){.columns = width / t->patch, .rows = height / t->patch, .x = x, .y = y});
    if (size->over_width)
        add_tile(t, p,
                 (struct ntx__patches_part){
                     .columns = size->over_width / t->patch, .rows = size->over_height / t->patch, .over = true});
}

static int alloc_patches(const struct ntx_tower *t, struct ntx__patches *p)
{
    const bool blocks = t->window || t->tiles, places = t->table != NTX_TOWER_TABLE_NONE;
    p->at = malloc(p->n * sizeof *p->at);
    p->row_of = malloc(p->n * sizeof *p->row_of);
    if (blocks) {
        p->block = malloc(p->n * sizeof *p->block);
        p->n_block = malloc(p->n * sizeof *p->n_block);
    }
    if (places)
        p->places = malloc(p->n * sizeof *p->places);
    if (t->band)
        p->by_columns = malloc(p->n * sizeof *p->by_columns);
    return p->at && p->row_of && (!blocks || (p->block && p->n_block)) && (!places || p->places) &&
                   (!t->band || p->by_columns)
               ? 0
               : -ENOMEM;
}

static void order_part(const struct ntx_tower *t, const struct ntx__patches_part *a, struct ntx__patches *p)
{
    const uint32_t patches = a->columns * a->rows, n = patches + (t->extra != NTX_TOWER_EXTRA_NONE);
    for (uint32_t i = 0; i < n; i++) {
        p->at[a->first + i] = i < patches ? i : NTX__EXTRA;
        if (p->block) {
            p->block[a->first + i] = a->first;
            p->n_block[a->first + i] = n;
        }
    }
    if (t->window)
        order_by_windows(t->window * t->merge, a, p);
    if (t->band)
        order_by_squares(t->merge, a, p);
    for (uint32_t i = a->first; i < a->first + n; i++) {
        if (p->at[i] != NTX__EXTRA)
            p->row_of[a->first + p->at[i]] = i;
        if (p->places)
            p->places[i] = find_places(t, a, p->at[i]);
    }
}

int ntx__patches_make(const struct ntx_tower *t, const struct ntx_fitted *size, struct ntx__patches *out)
{
    struct ntx__patches p = {0};
    p.part = malloc((t->tiles + 1) * sizeof *p.part);
    if (p.part)
        find_parts(t, size, &p);
    if (!p.part || alloc_patches(t, &p)) {
        ntx__patches_free(&p);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < p.n_parts; i++)
        order_part(t, &p.part[i], &p);
    *out = p;
    return 0;
}

void ntx__patches_free(struct ntx__patches *p)
{
    free(p->part);
    free(p->at);
    free(p->row_of);
    free(p->block);
    free(p->n_block);
    free(p->by_columns);
    free(p->places);
    *p = (struct ntx__patches){0};
}

static void patch_pixels(const struct ntx_tower *t, const struct ntx_pixels *pixels, const struct ntx__patches_part *a,
                         uint32_t at, float *out)
{
    const size_t width = a->over ? pixels->size.over_width : pixels->size.width,
                 plane = width * (a->over ? pixels->size.over_height : pixels->size.height);
    const float *from = (a->over ? pixels->over : pixels->planes) +
                        ((size_t)a->y + at / a->columns * t->patch) * width + a->x + at % a->columns * t->patch;
    for (int c = 0; c < 3; c++)
        for (uint32_t y = 0; y < t->patch; y++, out += t->patch)
            memcpy(out, from + (size_t)c * plane + y * width, t->patch * sizeof *out);
}

void ntx__patches_pixels(const struct ntx_tower *t, const struct ntx__patches *p, const struct ntx_pixels *pixels,
                         float *out)
{
    const size_t each = 3 * (size_t)t->patch * t->patch;
    for (uint32_t k = 0, i = 0; k < p->n_parts; k++)
        for (; i < (k + 1 < p->n_parts ? p->part[k + 1].first : p->n); i++, out += each) {
            if (p->at[i] == NTX__EXTRA)
                memset(out, 0, each * sizeof *out);
            else
                patch_pixels(t, pixels, &p->part[k], p->at[i], out);
        }
}

/* One part of a square: the state of patch k goes to its place. */
static void join_state(const struct ntx_tower *t, const float *state, uint32_t k, float *out)
{
    const uint32_t n = t->merge * t->merge;
    if (t->join == NTX_TOWER_JOIN_STATES)
        memcpy(out + (size_t)k * t->state, state, t->state * sizeof *out);
    for (uint32_t i = 0; t->join == NTX_TOWER_JOIN_VALUES && i < t->state; i++)
        out[(size_t)i * n + k] = state[i];
}

/* Of a part's square number k. */
static void join_square(const struct ntx_tower *t, const struct ntx__patches *p, const struct ntx__patches_part *a,
                        const float *states, size_t k, float *out)
{
    const uint32_t parts = 1 + t->n_deep, n = t->merge * t->merge, across = (a->columns + t->merge - 1) / t->merge;
    const size_t part = (size_t)n * t->state, row = k / across * t->merge, column = k % across * t->merge;
    memset(out, 0, parts * part * sizeof *out); /* what a square at the border lacks */
    for (uint32_t i = 0; i < n; i++) {
        const size_t at = (row + i / t->merge) * a->columns + column + i % t->merge;
        if (row + i / t->merge >= a->rows || column + i % t->merge >= a->columns)
            continue;
        for (uint32_t d = 0; d < parts; d++)
            join_state(t, states + ((size_t)p->row_of[a->first + at] * parts + d) * t->state, i, out + d * part);
    }
}

void ntx__patches_join(const struct ntx_tower *t, const struct ntx__patches *p, const float *states, size_t first,
                       size_t squares, float *out)
{
    const size_t each = (size_t)(1 + t->n_deep) * t->merge * t->merge * t->state;
    size_t before = 0; /* squares of earlier parts */
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const struct ntx__patches_part *a = &p->part[i];
        const size_t n = ntx__squares(t, a->columns * t->patch, a->rows * t->patch);
        for (size_t k = first > before ? first - before : 0; k < n && before + k < first + squares; k++)
            join_square(t, p, a, states, k, out + (before + k - first) * each);
        before += n;
    }
}
