/* SPDX-License-Identifier: Apache-2.0 */
/* recur.c: kind STATES of kv_impl.h. */
#include "computed/state/recur.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/state/kv_impl.h"

enum { STATES = NTX__KV_STATES };
#define NOWHERE NTX__KV_NOWHERE

static uint64_t buffer_bytes(const struct ntx_hparams *hp)
{
    uint64_t floats = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        floats += ntx_state_floats(hp, l);
    return NTX_ROUND_UP(floats * sizeof(float), 4096);
}

uint64_t ntx_recur_bytes(const struct ntx_hparams *hp) { return 2 * buffer_bytes(hp); }

uint64_t ntx_recur_layer(const struct ntx_hparams *hp, uint32_t layer, enum ntx_keep keep)
{
    struct ntx_kept_state kept[NTX_STATES_MOST];
    size_t before = 0;
    for (uint32_t l = 0; l < layer; l++)
        before += ntx_state_floats(hp, l);
    for (uint32_t i = 0, n = ntx_states_of(hp, layer, kept); i < n && kept[i].keep != keep; i++)
        before += kept[i].floats;
    return before * sizeof(float);
}

int ntx__kv_make_floats(struct ntx_kv_pool *p, const struct ntx_hparams *hp)
{
    if (!(p->floats = calloc(hp->n_layers, sizeof *p->floats)))
        return -ENOMEM;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        p->floats[l] = (struct ntx__kv_floats){.tail = ntx_recur_layer(hp, l, NTX_KEEP_TAIL) / sizeof(float),
                                               .fold = ntx_recur_layer(hp, l, NTX_KEEP_FOLD) / sizeof(float)};
    return 0;
}

static void *place_of(const struct ntx_kv_pool *p, uint32_t unit)
{
    return p->space[STATES].base + unit * p->space[STATES].unit_bytes;
}
static void copy_unit(const struct ntx_kv_pool *p, uint32_t from, uint32_t to)
{
    memcpy(place_of(p, to), place_of(p, from), p->space[STATES].unit_bytes);
}

uint32_t ntx_recur_at(const struct ntx_kv_seq *s) { return s->at[s->now]; }

/* ---- stops */

static uint32_t find_stop(const struct ntx_kv_seq *s, uint32_t n)
{
    uint32_t i = 0;
    while (i < s->n_stops && s->stop[i].at != n)
        i++;
    return i;
}

/* A stop that the pass has filled. */
static bool is_filled_stop(const struct ntx_kv_seq *s, uint32_t n)
{
    uint32_t i = find_stop(s, n);
    return i < s->n_stops && s->stop[i].done;
}

void ntx_kv_snapshot_ahead(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    if (s->n_units[STATES] && s->n_stops < NTX_RECUR_STOPS &&
        ntx__kv_find(s->pool, STATES, 1)) /* without it there will be no snapshot */
        s->stop[s->n_stops++] = (struct ntx__kv_stop){.at = n_tokens,
                                                      .unit = ntx__kv_take(s->pool, STATES, UINT32_MAX)};
}

void ntx_kv_snapshot_passed(struct ntx_kv_seq *s)
{
    while (s->n_stops)
        ntx__kv_leave(s->pool, STATES, s->stop[--s->n_stops].unit);
}

/* ---- operations of the kind */

/* The buffer that has the first n tokens; -1: none. */
static int find_buffer(const struct ntx_kv_seq *s, uint32_t n)
{
    if (s->at[s->now] == n)
        return s->now;
    return s->at[!s->now] == n ? !s->now : -1;
}

static uint64_t state_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *shape)
{
    (void)type, (void)shape;
    return buffer_bytes(hp);
}

static uint32_t state_units(const struct ntx_kv_shape *s) { return s->states; }

static uint32_t state_room(const struct ntx_kv_pool *p, uint32_t blocks)
{
    (void)blocks;
    return p->space[STATES].n ? 2 : 0;
}

/* The buffer with most of them, or a stop that has all. */
static uint32_t state_reach(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    uint32_t most = 0;
    if (!s->n_units[STATES] || is_filled_stop(s, n_tokens))
        return n_tokens;
    for (int i = 0; i < 2; i++)
        if (s->at[i] <= n_tokens)
            most = NTX_MAX(most, s->at[i]);
    return most;
}

static void state_back(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    int to = find_buffer(s, n_tokens);
    if (to >= 0)
        s->now = to;
    else if (s->n_units[STATES] && is_filled_stop(s, n_tokens))
        copy_unit(s->pool, s->stop[find_stop(s, n_tokens)].unit, s->units[STATES][s->now]);
    s->at[s->now] = n_tokens;
}

/* A stop's buffer is taken over. */
static uint32_t state_snapshots(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    return s->n_units[STATES] && !is_filled_stop(s, n_tokens);
}

static void set_state(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    s->at[s->now] = n_tokens;
    s->at[!s->now] = NOWHERE;
}

static void copy_buffer(struct ntx_kv_seq *s, uint32_t n_tokens, struct ntx_kv_seq *to)
{
    const uint32_t stop = find_stop(s, n_tokens);
    const int from = find_buffer(s, n_tokens);
    if (!s->n_units[STATES])
        return;
    set_state(to, n_tokens);
    if (!to->n_units[STATES]) {
        to->units[STATES][to->n_units[STATES]++] = s->stop[stop].unit;
        s->stop[stop] = s->stop[--s->n_stops];
    } else if (n_tokens) {
        copy_unit(s->pool, from >= 0 ? s->units[STATES][from] : s->stop[stop].unit, to->units[STATES][to->now]);
    }
}

static int state_parts(const struct ntx_kv_seq *s, uint32_t n_tokens, bool filled, ntx_kv_part_fn *part, void *ctx)
{
    (void)filled;
    (void)n_tokens;
    return s->n_units[STATES]
               ? part(ctx, place_of(s->pool, s->units[STATES][s->now]), s->pool->space[STATES].unit_bytes)
               : 0;
}

/* A pass writes the next buffer, which nobody sees before its end. */
static void state_writes(struct ntx_kv_seq *s, uint32_t pos) { (void)s, (void)pos; }

const struct ntx__kv_ops ntx__kv_recur_buffers = {.unit_bytes = state_bytes,
                                                  .units = state_units,
                                                  .has_room = state_room,
                                                  .reach = state_reach,
                                                  .back = state_back,
                                                  .snapshots = state_snapshots,
                                                  .copy = copy_buffer,
                                                  .each_part = state_parts,
                                                  .restored = set_state,
                                                  .writes = state_writes};

/* ---- passes */

int ntx_recur_begin(struct ntx_kv_seq *s, uint32_t pos)
{
    if (!pos)
        state_back(s, 0);
    if (s->at[s->now] != pos)
        return -EINVAL;
    s->at[!s->now] = NOWHERE;
    return 0;
}

void ntx_recur_step(struct ntx_kv_seq *s, uint32_t n)
{
    uint32_t at = s->at[s->now] + n;
    s->now = !s->now;
    s->at[s->now] = at;
    for (uint32_t i = 0; i < s->n_stops; i++)
        s->stop[i].done |= s->stop[i].at > at - n && s->stop[i].at <= at;
}

static uint32_t unit_of(const struct ntx_kv_seq *s, bool next) { return s->units[STATES][next ? !s->now : s->now]; }

uint64_t ntx_recur_buffer(const struct ntx_kv_seq *s, bool next)
{
    return unit_of(s, next) * s->pool->space[STATES].unit_bytes;
}

static float *tail_in(const struct ntx_kv_pool *p, uint32_t unit, uint32_t layer)
{
    return (float *)place_of(p, unit) + p->floats[layer].tail;
}
static float *fold_in(const struct ntx_kv_pool *p, uint32_t unit, uint32_t layer)
{
    return (float *)place_of(p, unit) + p->floats[layer].fold;
}

const float *ntx_recur_tail(const struct ntx_kv_seq *s, uint32_t layer)
{
    return ntx_recur_at(s) ? tail_in(s->pool, unit_of(s, false), layer) : NULL;
}
const float *ntx_recur_fold(const struct ntx_kv_seq *s, uint32_t layer)
{
    return ntx_recur_at(s) ? fold_in(s->pool, unit_of(s, false), layer) : NULL;
}
float *ntx_recur_next_tail(const struct ntx_kv_seq *s, uint32_t layer)
{
    return tail_in(s->pool, unit_of(s, true), layer);
}
float *ntx_recur_next_fold(const struct ntx_kv_seq *s, uint32_t layer)
{
    return fold_in(s->pool, unit_of(s, true), layer);
}

float *ntx_recur_stop_tail(const struct ntx_kv_seq *s, uint32_t n, uint32_t layer)
{
    uint32_t i = find_stop(s, n);
    return i < s->n_stops ? tail_in(s->pool, s->stop[i].unit, layer) : NULL;
}

float *ntx_recur_stop_fold(const struct ntx_kv_seq *s, uint32_t n, uint32_t layer)
{
    uint32_t i = find_stop(s, n);
    return i < s->n_stops ? fold_in(s->pool, s->stop[i].unit, layer) : NULL;
}
