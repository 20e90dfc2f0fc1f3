/* SPDX-License-Identifier: Apache-2.0 */
/* kv_rows.c: rows of layers, in blocks of positions: kinds ALL and WINDOW of kv_impl.h. ALL has each position until it
 * is written again, except where the layer was skipped: its holes are one bitmap per layer, allocated with the sequence
 * so that setting one cannot fail. */
#include "computed/state/kv_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

enum { ALL = NTX__KV_ALL, WINDOW = NTX__KV_WINDOW };

_Static_assert(NTX_KV_BLOCK == NTX_KV_Q8_TOKENS, "blocks are cpu.h's");

/* Bytes of one position's K or V. */
static size_t row_bytes(enum ntx_kv_type type, bool key, uint32_t n)
{
    const size_t four = key ? 26 : 18;
    if (type == NTX_KV_F16)
        return 2 * (size_t)n;
    return (size_t)n / 32 * (type == NTX_KV_Q8_0 ? 34 : four);
}

/* With one pooled row for several positions, a block has room for at least one. */
static struct ntx__kv_rows layer_rows(const struct ntx_kept_state *k, enum ntx_kv_type type, uint16_t of)
{
    const uint32_t n = NTX_MAX(NTX_KV_BLOCK / k->every, 1u);
    const enum ntx_kv_type as = k->beside ? NTX_KV_F16 : type;
    return (struct ntx__kv_rows){.row_k = row_bytes(as, true, k->k) * n / NTX_KV_BLOCK,
                                 .row_v = row_bytes(as, false, k->v) * n / NTX_KV_BLOCK,
                                 .heads = k->heads,
                                 .of = of};
}

static uint64_t kept_bytes(const struct ntx_kept_state *k, enum ntx_kv_type type)
{
    const struct ntx__kv_rows r = layer_rows(k, type, 0);
    return (uint64_t)r.heads * NTX_KV_BLOCK * (r.row_k + r.row_v);
}

uint64_t ntx_kv_layer_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t layer, bool beside)
{
    struct ntx_kept_state kept[NTX_STATES_MOST];
    uint64_t bytes = 0;
    for (uint32_t i = ntx_states_of(hp, layer, kept); i--;)
        bytes += kept[i].keep == NTX_KEEP_ROWS && kept[i].beside == beside ? kept_bytes(&kept[i], type) : 0;
    return bytes;
}

uint64_t ntx__kv_rows_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, bool windowed)
{
    struct ntx_kept_state kept[NTX_STATES_MOST];
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        for (uint32_t i = ntx_states_of(hp, l, kept); i--;)
            bytes += kept[i].keep == NTX_KEEP_ROWS && kept[i].windowed == windowed ? kept_bytes(&kept[i], type) : 0;
    return bytes;
}

static bool keeps_more_rows(const struct ntx_hparams *hp)
{
    bool any = hp->index_beside;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        any |= hp->pool[l] != 0;
    return any;
}

/* Whether attention reads the indexer top-k of these rows: layers with an indexer, and layers after the first, which
 * use its top-k. Only for layers of one head, or with keys beside K and V. */
static bool reads_topk(const struct ntx_hparams *hp, uint32_t l, bool beside)
{
    bool any = false;
    for (uint32_t k = 0; k <= l; k++)
        any |= ntx_has_indexer(hp, k);
    if (!hp->index.head)
        return false;
    if (hp->index_beside)
        return !beside && any;
    if (ntx_kept_heads(hp, l) != 1)
        return false;
    return hp->v_is_k ? beside && ntx_has_indexer(hp, l) : any;
}

/* A window reads its positions. A top-k reads the selected positions, and all index keys, which are in V's place or
 * beside. */
static double kept_reads(const struct ntx_hparams *hp, const struct ntx_kept_state *k, enum ntx_kv_type type,
                         uint32_t l, uint32_t positions)
{
    const struct ntx__kv_rows r = layer_rows(k, type, 0);
    const bool topk = reads_topk(hp, l, k->beside);
    const double all = k->windowed ? NTX_MIN(positions, hp->window) : positions,
                 most = hp->v_is_k ? (double)hp->index.most * k->every : (double)ntx_index_reach(hp);
    const double of = topk ? NTX_MIN(all, most) : all;
    return r.heads * ((double)r.row_k * of + (double)r.row_v * (topk && !hp->index_beside ? all : of));
}

double ntx_kv_layer_reads(const struct ntx_hparams *hp, enum ntx_kv_type type, uint32_t layer, uint32_t positions)
{
    struct ntx_kept_state kept[NTX_STATES_MOST];
    const uint32_t own = ntx_is_recurrent(hp, layer) ? layer : ntx_dims_of(hp, layer).kv_of;
    double bytes = 0;
    for (int beside = 0; beside < 2; beside++)
        for (uint32_t of = beside ? layer : own, i = ntx_states_of(hp, of, kept); i--;)
            bytes += kept[i].keep == NTX_KEEP_ROWS && kept[i].beside == !!beside
                         ? kept_reads(hp, &kept[i], type, of, positions)
                         : 0;
    return bytes;
}

/* The fewest blocks whose top-k rows fill whole pages. */
static uint8_t page_run(size_t row)
{
    uint8_t n = 1;
    while (n < NTX_KV_CLUSTER && n * row % ntx_page_bytes())
        n *= 2;
    return n;
}

static uint8_t topk_run(const struct ntx__kv_rows *r)
{
    const size_t row = r->row_k + (r->v_is_key ? 0 : r->row_v);
    return r->topk ? page_run(NTX_KV_BLOCK * r->heads * row) : 0;
}

int ntx__kv_make_rows(struct ntx_kv_pool *p, const struct ntx_hparams *hp)
{
    struct ntx_kept_state kept[NTX_STATES_MOST];
    size_t before[NTX__KV_KINDS] = {0};
    p->n_turns = hp->n_layers;
    p->n_layers = (keeps_more_rows(hp) ? 2 : 1) * hp->n_layers;
    if (!(p->rows = calloc(p->n_layers, sizeof *p->rows)))
        return -ENOMEM;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const uint32_t of = l % hp->n_layers;
        p->rows[l].of = (uint16_t)(l < hp->n_layers ? ntx_kv_place(hp, l) : l);
        for (uint32_t i = 0, n = ntx_states_of(hp, of, kept); i < n; i++)
            if (kept[i].keep == NTX_KEEP_ROWS && kept[i].beside == (l != of)) {
                p->rows[l] = layer_rows(&kept[i], p->type, (uint16_t)l);
                p->rows[l].kind = p->ring && kept[i].windowed ? WINDOW : ALL;
                p->rows[l].topk = p->rows[l].kind == ALL && reads_topk(hp, of, l != of);
                p->rows[l].v_is_key = p->rows[l].topk && p->rows[l].row_v && !hp->index_beside;
                p->rows[l].run = topk_run(&p->rows[l]);
                p->rows[l].before = before[p->rows[l].kind];
                before[p->rows[l].kind] += p->rows[l].heads * (p->rows[l].row_k + p->rows[l].row_v);
            }
    }
    return 0;
}

/* ---- addresses */

static const struct ntx__kv_rows *rows_at(const struct ntx_kv_seq *s, uint32_t layer)
{
    return &s->pool->rows[s->pool->rows[layer].of];
}

/* Within the run of its cluster. Top-k rows have shorter runs, and index keys in V's place have another part. */
static void *address_in_file(const struct ntx_kv_seq *s, const struct ntx__kv_rows *l, uint32_t block, size_t tokens,
                             uint32_t head, bool value)
{
    const bool apart = l->v_is_key && value;
    const uint32_t run = l->topk && !apart ? l->run : NTX_KV_CLUSTER;
    uint8_t *to = ntx_kv_file_at(s->pool->file, block, apart ? ntx__kv_keys_part(s->pool, l->of) : l->of);
    if (l->topk)
        tokens = (size_t)run * NTX_KV_BLOCK;
    if (!to)
        return NULL;
    if (!l->v_is_key)
        to += tokens * (head * (l->row_k + l->row_v) + (value ? l->row_k : 0));
    return to + (size_t)(block % run) * NTX_KV_BLOCK * (value ? l->row_v : l->row_k);
}

/* The block of its kind for position pos. */
static uint32_t unit_at(const struct ntx_kv_seq *s, uint32_t kind, uint32_t pos)
{
    const uint32_t at = pos / NTX_KV_BLOCK;
    return s->units[kind][kind == WINDOW ? at % s->n_units[WINDOW] : at];
}

/* A head's K, or V behind it. */
static void *block_of(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos, bool value)
{
    const struct ntx_kv_pool *p = s->pool;
    const struct ntx__kv_rows *l = rows_at(s, layer);
    uint32_t kind = l->kind;
    const struct ntx__kv_space *x = &p->space[kind];
    uint32_t block = unit_at(s, kind, pos), first = NTX_ROUND_DOWN(block, NTX_KV_CLUSTER);
    size_t tokens = (size_t)NTX_MIN(x->n - first, (uint32_t)NTX_KV_CLUSTER) * NTX_KV_BLOCK; /* of the cluster */
    if (p->file && kind == ALL)
        return address_in_file(s, l, block, tokens, head, value);
    uint8_t *to = x->base + first * x->unit_bytes + tokens * (l->before + head * (l->row_k + l->row_v));
    return to + (value ? tokens * l->row_k : 0) +
           (size_t)(block - first) * NTX_KV_BLOCK * (value ? l->row_v : l->row_k);
}

void *ntx_kv_k(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos)
{
    return block_of(s, layer, head, pos, false);
}

void *ntx_kv_v(const struct ntx_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos)
{
    return block_of(s, layer, head, pos, true);
}

/* ---- one position (layouts: cpu/cpu.h) */

size_t ntx_kv_k_bytes(const struct ntx_kv_seq *s, uint32_t layer) { return NTX_KV_BLOCK * rows_at(s, layer)->row_k; }
size_t ntx_kv_v_bytes(const struct ntx_kv_seq *s, uint32_t layer) { return NTX_KV_BLOCK * rows_at(s, layer)->row_v; }
uint32_t ntx_kv_heads(const struct ntx_kv_seq *s, uint32_t layer) { return s->pool->rows[layer].heads; }

/* Values per byte of a position; values of a row of so many bytes. */
static uint32_t per_byte(enum ntx_kv_type type) { return type == NTX_KV_Q8_0 ? 1 : 2; }
static size_t values_of(enum ntx_kv_type type, bool key, size_t row) { return row / row_bytes(type, key, 32) * 32; }

/* Scales follow NTX_KV_BLOCK * ints bytes of integers. */
static void copy_scales(const uint8_t *block, uint32_t from, uint8_t *to_block, uint32_t to, size_t n, size_t ints)
{
    for (size_t b = 0; b < n / 32; b++)
        memcpy(to_block + NTX_KV_BLOCK * ints + 2 * (b * NTX_KV_BLOCK + to),
               block + NTX_KV_BLOCK * ints + 2 * (b * NTX_KV_BLOCK + from), 2);
}

void ntx_kv_copy_k(const struct ntx_kv_seq *s, uint32_t layer, const void *block, uint32_t from, void *to_block,
                   uint32_t to)
{
    const enum ntx_kv_type type = s->pool->type;
    const uint8_t *x = block;
    uint8_t *y = to_block;
    size_t row = rows_at(s, layer)->row_k, n = values_of(type, true, row), ints = row - n / 16;
    if (type == NTX_KV_F16) {
        memcpy(y + to * row, x + from * row, row);
        return;
    }
    for (size_t i = 0; i < ints / 4; i++)
        memcpy(y + 4 * (i * NTX_KV_BLOCK + to), x + 4 * (i * NTX_KV_BLOCK + from), 4);
    copy_scales(x, from, y, to, n, ints);
}

void ntx_kv_copy_v(const struct ntx_kv_seq *s, uint32_t layer, const void *block, uint32_t from, void *to_block,
                   uint32_t to)
{
    const enum ntx_kv_type type = s->pool->type;
    const uint8_t *x = block;
    uint8_t *y = to_block;
    size_t row = rows_at(s, layer)->row_v, n = values_of(type, false, row), most = NTX_KV_Q8_PANEL / per_byte(type),
           all = n / per_byte(type);
    if (type == NTX_KV_F16) {
        memcpy(y + to * row, x + from * row, row);
        return;
    }
    for (size_t i = 0; i < all; i++) {
        size_t panel = i / most * most, width = NTX_MIN(all - panel, most), at = NTX_KV_BLOCK * panel + 4 * (i - panel);
        y[at + to / 4 * 4 * width + to % 4] = x[at + from / 4 * 4 * width + from % 4];
    }
    copy_scales(x, from, y, to, n, all);
}

static size_t hole_bytes(const struct ntx_kv_seq *s) { return (size_t)s->most * (NTX_KV_BLOCK / 8); }

void ntx_kv_move_holes(struct ntx_kv_seq *s, uint32_t from, uint32_t to)
{
    for (uint32_t l = 0; l < s->pool->n_layers; l++) {
        uint8_t *map = s->holes + l * hole_bytes(s), *byte = map + to / 8, bit = (uint8_t)(1u << to % 8);
        bool had = *byte & bit, has = map[from / 8] >> from % 8 & 1;
        if (had != has)
            *byte ^= bit;
        s->n_holes[l] += (uint32_t)has - (uint32_t)had;
    }
}

void ntx_kv_set_hole(struct ntx_kv_seq *s, uint32_t layer, uint32_t pos)
{
    uint8_t *byte = s->holes + layer * hole_bytes(s) + pos / 8, bit = (uint8_t)(1u << pos % 8);
    s->n_holes[layer] += !(*byte & bit);
    *byte |= bit;
}

static uint32_t count_bits(const uint8_t *p, size_t n)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++)
        bits += (uint32_t)__builtin_popcount(p[i]);
    return bits;
}

void ntx_kv_truncate(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    size_t n = hole_bytes(s), first = n_tokens / 8;
    if (first >= n)
        return;
    for (uint32_t l = 0; l < s->pool->n_layers; l++) {
        uint8_t *map = s->holes + l * n;
        if (!s->n_holes[l])
            continue;
        map[first] &= (uint8_t)((1u << n_tokens % 8) - 1);
        memset(map + first + 1, 0, n - first - 1);
        s->n_holes[l] = count_bits(map, n);
    }
}

/* ---- shared blocks */

int ntx__kv_copy_block(const struct ntx_kv_seq *from, const struct ntx_kv_seq *to, uint32_t kind, uint32_t pos)
{
    const struct ntx_kv_pool *p = from->pool;
    int rc;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        if (p->rows[l].heads && p->rows[l].kind == kind && kind == ALL &&
            ((rc = ntx_kv_touch(from, l, pos, false)) || (rc = ntx_kv_touch(to, l, pos, true))))
            return rc;
        for (uint32_t h = 0; h < p->rows[l].heads && p->rows[l].kind == kind; h++) {
            memcpy(block_of(to, l, h, pos, false), block_of(from, l, h, pos, false), NTX_KV_BLOCK * p->rows[l].row_k);
            memcpy(block_of(to, l, h, pos, true), block_of(from, l, h, pos, true), NTX_KV_BLOCK * p->rows[l].row_v);
        }
    }
    if (p->changed)
        p->changed(p->changed_ctx, &(struct ntx_kv_change){kind, unit_at(from, kind, pos), unit_at(to, kind, pos),
                                                           NTX_KV_WHOLE, NTX_KV_WHOLE});
    return 0;
}

/* ---- changes for holders of other heads */

void ntx_kv_pool_watch(struct ntx_kv_pool *p, void (*changed)(void *ctx, const struct ntx_kv_change *c), void *ctx)
{
    p->changed = changed;
    p->changed_ctx = ctx;
}

void ntx_kv_moved(const struct ntx_kv_seq *s, uint32_t from, uint32_t to)
{
    const struct ntx_kv_pool *p = s->pool;
    for (uint32_t kind = ALL; p->changed && kind <= WINDOW; kind++)
        if (s->n_units[kind])
            p->changed(p->changed_ctx, &(struct ntx_kv_change){kind, unit_at(s, kind, from), unit_at(s, kind, to),
                                                               from % NTX_KV_BLOCK, to % NTX_KV_BLOCK});
}

static void copy_position(const struct ntx_kv_seq *s, uint32_t kind, uint32_t from, uint32_t to)
{
    const struct ntx_kv_pool *p = s->pool;
    for (uint32_t l = 0; l < p->n_layers; l++)
        for (uint32_t h = 0; p->rows[l].kind == kind && h < p->rows[l].heads; h++) {
            ntx_kv_copy_k(s, l, block_of(s, l, h, from, false), from % NTX_KV_BLOCK, block_of(s, l, h, to, false),
                          to % NTX_KV_BLOCK);
            ntx_kv_copy_v(s, l, block_of(s, l, h, from, true), from % NTX_KV_BLOCK, block_of(s, l, h, to, true),
                          to % NTX_KV_BLOCK);
        }
}

int ntx_kv_pool_change(struct ntx_kv_pool *p, const struct ntx_kv_change *c)
{
    const bool whole = c->from_at == NTX_KV_WHOLE && c->to_at == NTX_KV_WHOLE;
    if (c->kind > WINDOW || c->from >= p->space[c->kind].n || c->to >= p->space[c->kind].n ||
        (!whole && (c->from_at >= NTX_KV_BLOCK || c->to_at >= NTX_KV_BLOCK)))
        return -EINVAL;
    uint32_t both[] = {c->from, c->to};
    struct ntx_kv_seq s = {.pool = p}, to = s; /* of two blocks */
    s.units[c->kind] = both;
    s.n_units[c->kind] = 2;
    to.units[c->kind] = both + 1;
    to.n_units[c->kind] = 1;
    if (whole && c->from != c->to)
        return ntx__kv_copy_block(&s, &to, c->kind, 0);
    if (!whole)
        copy_position(&s, c->kind, c->from_at, NTX_KV_BLOCK + c->to_at);
    return 0;
}

const uint8_t *ntx_kv_holes(const struct ntx_kv_seq *s, uint32_t layer)
{
    layer = s->pool->rows[layer].of;
    return s->n_holes[layer] ? s->holes + layer * hole_bytes(s) : NULL;
}

/* ---- both kinds */

struct parts {
    ntx_kv_part_fn *part;
    void *ctx;
    bool filled;
};

static int call_layer_parts(const struct ntx_kv_seq *s, uint32_t l, uint32_t pos, const struct parts *x)
{
    const struct ntx__kv_rows *k = &s->pool->rows[l];
    int rc = k->heads ? ntx_kv_touch(s, l, pos, x->filled) : 0;
    for (uint32_t h = 0; h < k->heads && !rc; h++)
        if (!(rc = x->part(x->ctx, block_of(s, l, h, pos, false), NTX_KV_BLOCK * k->row_k)))
            rc = x->part(x->ctx, block_of(s, l, h, pos, true), NTX_KV_BLOCK * k->row_v);
    return rc;
}

/* Parts of positions [from, n_tokens): layer by layer for the blocks of one run in a file, then the next run. So each
 * run is read once. */
static int call_parts_from(const struct ntx_kv_seq *s, uint32_t kind, uint32_t from, uint32_t n_tokens,
                           const struct parts *x)
{
    const uint32_t end = (uint32_t)ntx__kv_blocks_of(n_tokens);
    int rc = 0;
    for (uint32_t first = from / NTX_KV_BLOCK, to; first < end && !rc; first = to) {
        to = NTX_MIN(end, NTX_ROUND_DOWN(first, NTX_KV_CLUSTER) + NTX_KV_CLUSTER);
        for (uint32_t l = 0; l < s->pool->n_layers && !rc; l++)
            for (uint32_t b = first; b < to && s->pool->rows[l].kind == kind && !rc; b++)
                rc = call_layer_parts(s, l, b * NTX_KV_BLOCK, x);
    }
    return rc;
}

static uint32_t no_snapshot_units(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    (void)s, (void)n_tokens;
    return 0;
}

static void ignore_event(struct ntx_kv_seq *s, uint32_t n_tokens) { (void)s, (void)n_tokens; }

/* ---- ALL */

static uint64_t all_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s)
{
    return ntx__kv_rows_bytes(hp, type, false) + (s->window_blocks ? 0 : ntx__kv_rows_bytes(hp, type, true));
}

static uint32_t all_units(const struct ntx_kv_shape *s) { return s->blocks; }

static uint32_t all_room(const struct ntx_kv_pool *p, uint32_t blocks)
{
    (void)p;
    return blocks;
}

static uint32_t all_reach(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    return NTX_MIN(n_tokens, s->n_units[ALL] * NTX_KV_BLOCK);
}

static void copy_holes(const struct ntx_kv_seq *from, struct ntx_kv_seq *to, uint32_t n_tokens)
{
    for (uint32_t l = 0; l < from->pool->n_layers; l++) {
        memcpy(to->holes + l * hole_bytes(to), from->holes + l * hole_bytes(from),
               ntx__kv_blocks_of(n_tokens) * (NTX_KV_BLOCK / 8));
        to->n_holes[l] = count_bits(to->holes + l * hole_bytes(to), hole_bytes(to));
    }
    ntx_kv_truncate(to, n_tokens);
}

/* Whole blocks are shared. A snapshot needs none: sequences that go on from it have them. */
static void all_copy(struct ntx_kv_seq *s, uint32_t n_tokens, struct ntx_kv_seq *to)
{
    if (!s->holes || !to->holes)
        return;
    if (n_tokens % NTX_KV_BLOCK)
        (void)ntx__kv_copy_block(s, to, ALL, n_tokens); /* not if they are in a file */
    copy_holes(s, to, n_tokens);
}

static int all_parts(const struct ntx_kv_seq *s, uint32_t n_tokens, bool filled, ntx_kv_part_fn *part, void *ctx)
{
    return call_parts_from(s, ALL, 0, n_tokens, &(struct parts){part, ctx, filled});
}

const struct ntx__kv_ops ntx__kv_all = {.unit_bytes = all_bytes,
                                        .units = all_units,
                                        .has_room = all_room,
                                        .reach = all_reach,
                                        .back = ntx_kv_truncate,
                                        .snapshots = no_snapshot_units,
                                        .copy = all_copy,
                                        .each_part = all_parts,
                                        .restored = ignore_event,
                                        .writes = ntx_kv_truncate};

/* ---- WINDOW */

static uint64_t window_bytes(const struct ntx_hparams *hp, enum ntx_kv_type type, const struct ntx_kv_shape *s)
{
    return s->window_blocks ? ntx__kv_rows_bytes(hp, type, true) : 0;
}
static uint32_t window_units(const struct ntx_kv_shape *s) { return s->window_blocks; }
static uint32_t window_room(const struct ntx_kv_pool *p, uint32_t blocks) { return NTX_MIN(blocks, p->ring); }
static uint32_t window_from(const struct ntx_kv_pool *p, uint32_t n_tokens)
{
    return p->ring && n_tokens > p->window ? n_tokens - p->window : 0;
}

static uint32_t window_reach(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    return window_from(s->pool, n_tokens) < s->oldest ? 0 : n_tokens;
}

static void window_back(struct ntx_kv_seq *s, uint32_t n_tokens)
{
    if (window_from(s->pool, n_tokens) < s->oldest)
        s->oldest = 0;
}

static uint32_t window_snapshots(const struct ntx_kv_seq *s, uint32_t n_tokens)
{
    return s->pool->ring ? (uint32_t)ntx__kv_blocks_of(n_tokens) - window_from(s->pool, n_tokens) / NTX_KV_BLOCK : 0;
}

static void window_restored(struct ntx_kv_seq *s, uint32_t n_tokens) { s->oldest = window_from(s->pool, n_tokens); }

static void window_copy(struct ntx_kv_seq *s, uint32_t n_tokens, struct ntx_kv_seq *to)
{
    for (uint32_t b = window_from(s->pool, n_tokens) / NTX_KV_BLOCK; s->pool->ring && b < ntx__kv_blocks_of(n_tokens);
         b++)
        (void)ntx__kv_copy_block(s, to, WINDOW, b * NTX_KV_BLOCK);
    window_restored(to, n_tokens);
}

static int window_parts(const struct ntx_kv_seq *s, uint32_t n_tokens, bool filled, ntx_kv_part_fn *part, void *ctx)
{
    return s->pool->ring ? call_parts_from(s, WINDOW, window_from(s->pool, n_tokens), n_tokens,
                                           &(struct parts){part, ctx, filled})
                         : 0;
}

/* The ring still has the positions that were not overwritten one lap later. */
static void window_writes(struct ntx_kv_seq *s, uint32_t pos)
{
    uint32_t ring = s->n_units[WINDOW] * NTX_KV_BLOCK;
    if (ring && pos >= ring)
        s->oldest = NTX_MAX(s->oldest, pos + 1 - ring);
}

const struct ntx__kv_ops ntx__kv_window = {.unit_bytes = window_bytes,
                                           .units = window_units,
                                           .has_room = window_room,
                                           .reach = window_reach,
                                           .back = window_back,
                                           .snapshots = window_snapshots,
                                           .copy = window_copy,
                                           .each_part = window_parts,
                                           .restored = window_restored,
                                           .writes = window_writes};
