/* SPDX-License-Identifier: Apache-2.0 */
/* index_topk.c: attention to an indexer's top-k of the positions (DeepSeek-V3.2's lightning indexer). Each position
 * leaves a small key in a layer's state, in V's place. A row's small queries score the keys of all positions up to its
 * own, and its attention reads the `most` best of them (of equal ones the first), in the order of positions. With no
 * more positions than that it reads all, like any attention, and nothing is scored.
 *
 * If several positions share one pooled key (GLM-5.3-Flash), they are selected together, and those without a key yet
 * are always read. The same holds where the key is their mean (qwen4exp); those keys are in a layer of their own, since
 * V is the layer's.
 *
 * With blocks (MiniMax-M3) each head of K and V has a query of its own, and reads the blocks of positions whose best
 * key has the largest product with it, the last blocks always.
 *
 * A row's top-k is used until a later layer of the pass selects again; layers without an indexer use it, too. A row
 * that skipped all layers with an indexer has no top-k, and reads all. Scores are computed in parts of the positions,
 * so that one row has work for all threads; the split changes no bit. */
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"
#include "computed/sample/largest.h"
#include "model/quant.h"

enum { SPAN = 512 /* positions of an item */ };

/* The slot of position p of what a row sees. */
static uint32_t slot_of(const struct ntx_row *r, uint32_t p)
{
    uint32_t first = r->pos + 1 - r->n_path;
    return p < first || !r->n_path ? p : r->path[p - first];
}

static bool is_hole(const uint8_t *hole, uint32_t slot) { return hole && hole[slot / 8] >> slot % 8 & 1; }

/* Number of candidates at position pos: positions, pooled K, or blocks. */
static uint32_t candidates_at(const struct ntx_step *s, uint32_t pos)
{
    if (s->index_topk.block)
        return pos / s->index_topk.block + 1;
    return s->index_topk.every ? (pos + 1) / s->index_topk.every : pos + 1;
}

/* A position's index key: in V's place, with its weight; or alone, in a layer of its own. */
uint16_t *ntx__index_kept(const struct ntx_forward *f, const struct ntx_row *r, uint32_t slot)
{
    if (f->hp->index_beside)
        return (uint16_t *)(void *)ntx_kv_k(r->kv, f->hp->n_layers + f->layer, 0, slot) +
               (size_t)(slot % NTX_KV_BLOCK) * f->hp->index.head;
    return (uint16_t *)(void *)ntx_kv_v(r->kv, f->layer, 0, slot) +
           (size_t)(slot % NTX_KV_BLOCK) * ntx_kept_v(f->hp, f->layer);
}

static const uint16_t *index_key(const struct ntx_forward *f, const struct ntx_step *s, const struct ntx_row *r,
                                 const uint8_t *hole, uint32_t p)
{
    if (s->index_topk.keys)
        return ntx__index_kept(f, r, (p + 1) * s->index_topk.every - 1);
    if (s->index_topk.every)
        return (const uint16_t *)(const void *)ntx__pooled(f, r->kv, p, s->index_topk.every, true);
    uint32_t slot = slot_of(r, p);
    return is_hole(hole, slot) ? NULL : ntx__index_kept(f, r, slot);
}

/* Pools the key of `every` positions, in the last one's place. Its sources are the rounded values in the cache, so that
 * the split into passes does not matter. */
static void pool_keys(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const struct ntx_row *r = &f->b->rows[f->m.live[i]];
    float kept[NTX_INDEX_EVERY_MAX][2 * NTX_INDEX_HEAD_MAX], key[NTX_INDEX_HEAD_MAX];
    struct ntx__pool_source of[NTX_INDEX_EVERY_MAX];
    if ((r->pos + 1) % s->index_topk.every)
        return;
    for (uint32_t k = 0; k < s->index_topk.every; k++) {
        ntx_type_info(NTX_F16)->dequant(ntx__index_kept(f, r, r->pos + 1 - s->index_topk.every + k), kept[k],
                                        2 * (size_t)s->width);
        of[k] = (struct ntx__pool_source){kept[k], kept[k] + s->width, f->m.places + (size_t)k * s->width};
    }
    _Static_assert(NTX_INDEX_HEAD_MAX <= NTX__POOL_CHANNELS, "in one go");
    ntx__pool_channels(f->c.ops, of, s->index_topk.every, 0, s->width, key);
    f->c.ops->f16_store(key, ntx__index_kept(f, r, r->pos), s->width);
}

/* The same by their mean, normed, and rotated by the first position. */
static void pool_mean(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const struct ntx_row *r = &f->b->rows[f->m.live[i]];
    float kept[NTX_INDEX_HEAD_MAX], mean[NTX_INDEX_HEAD_MAX] = {0}, key[NTX_INDEX_HEAD_MAX], cs[NTX_INDEX_HEAD_MAX / 2],
                                    sn[NTX_INDEX_HEAD_MAX / 2];
    if ((r->pos + 1) % s->index_topk.every)
        return;
    const uint32_t first = r->pos + 1 - s->index_topk.every;
    for (uint32_t k = 0; k < s->index_topk.every; k++) {
        ntx_type_info(NTX_F16)->dequant(ntx__index_kept(f, r, first + k), kept, s->width);
        for (uint32_t c = 0; c < s->width; c++)
            mean[c] += kept[c];
    }
    for (uint32_t c = 0; c < s->width; c++)
        mean[c] /= (float)s->index_topk.every;
    f->c.ops->rmsnorm(mean, f->vec[s->weight[0]], f->hp->rms_eps, s->width, key);
    ntx_rope_angles(f->hp, NTX_ROTATION_ALL, f->m.freq, first, cs, sn);
    f->c.ops->rope_neox(key, 1, s->width, f->hp->rope_dim, cs, sn);
    f->c.ops->f16_store(key, ntx__index_kept(f, r, r->pos), s->width);
}

static uint32_t chooser_row(const struct ntx_forward *f, uint32_t i) { return f->m.live[f->m.choosers[i]]; }

/* Blocks of an item. */
static uint32_t blocks_of_item(const struct ntx_step *s) { return NTX_MAX(1u, SPAN / s->index_topk.block); }

static void score_span(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t spans = f->choice.spans, at = item / spans, i = f->choice.first + at, live = f->m.choosers[i],
                   first = item % spans * SPAN;
    const struct ntx_row *r = &f->b->rows[chooser_row(f, i)];
    const uint8_t *hole = ntx_kv_holes(r->kv, f->layer);
    const uint16_t *key[SPAN];
    float weights[NTX_INDEX_HEADS_MAX];
    if (first >= candidates_at(s, r->pos))
        return;
    const uint32_t n = NTX_MIN((uint32_t)SPAN, candidates_at(s, r->pos) - first);
    for (uint32_t k = 0; k < n; k++)
        key[k] = index_key(f, s, r, hole, first + k);
    for (uint32_t h = 0; h < s->heads; h++)
        weights[h] = s->in[1] ? f->buf[s->in[1]].at[live * f->buf[s->in[1]].ld + h] * s->scale : s->scale;
    f->c.ops->index(&(struct ntx_index){.q = f->buf[s->in[0]].at + live * f->buf[s->in[0]].ld,
                                        .weights = weights,
                                        .heads = s->heads,
                                        .width = s->width,
                                        .key = key,
                                        .score = f->m.scores + at * f->m.ld_scores + first,
                                        .n = n});
}

static void choose_row(struct ntx_forward *f, uint32_t at, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t row = chooser_row(f, f->choice.first + at), pos = f->b->rows[row].pos, n = candidates_at(s, pos),
                   each = s->index_topk.keys ? s->index_topk.every : 1;
    const float *score = f->m.scores + at * f->m.ld_scores;
    struct ntx_cut cut = ntx_cut_at(score, f->m.scores + (f->c.threads + at) * f->m.ld_scores, n, s->index_topk.most);
    uint32_t *topk = f->m.topk + (size_t)row * f->m.max_topk, k = 0;
    for (uint32_t p = 0; p < n; p++)
        if (score[p] != -INFINITY && ntx_cut_keeps(&cut, score[p]))
            for (uint32_t j = 0; j < each; j++)
                topk[k++] = p * each + j;
    for (uint32_t p = n * each; s->index_topk.keys && p <= pos; p++)
        topk[k++] = p;
    f->m.n_topk[row] = k;
}

/* ---- blocks, chosen by each head of K and V */

enum { PIECE = 128 /* positions whose products are made at once */ };

/* Positions [from, to) of a block: the largest product of each head's query becomes score[h * ld]. */
static void score_piece(struct ntx_forward *f, const struct ntx_row *r, uint32_t live, uint32_t from, uint32_t to,
                        float *score, size_t ld)
{
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint8_t *hole = ntx_kv_holes(r->kv, f->layer);
    const uint16_t *key[PIECE];
    float product[NTX_INDEX_BLOCK_HEADS * PIECE];
    for (uint32_t p = from; p < to; p++)
        key[p - from] = index_key(f, s, r, hole, p);
    f->c.ops->index(&(struct ntx_index){.q = f->buf[s->in[0]].at + live * f->buf[s->in[0]].ld,
                                        .ld = PIECE,
                                        .heads = s->heads,
                                        .width = s->width,
                                        .key = key,
                                        .score = product,
                                        .n = to - from});
    for (uint32_t h = 0; h < s->heads; h++)
        for (uint32_t k = 0; k < to - from; k++)
            score[h * ld] = NTX_MAX(score[h * ld], product[h * PIECE + k]);
}

static void score_blocks(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t spans = f->choice.spans, at = item / spans, block = s->index_topk.block,
                   live = f->m.choosers[f->choice.first + at], each = blocks_of_item(s);
    const struct ntx_row *r = &f->b->rows[f->m.live[live]];
    const uint32_t n = candidates_at(s, r->pos), first = item % spans * each;
    for (uint32_t b = first; b < NTX_MIN(n, first + each); b++) {
        float *score = f->m.scores + at * f->m.ld_scores + b;
        const uint32_t end = NTX_MIN((b + 1) * block, r->pos + 1);
        const bool always = b + s->index_topk.last >= n;
        for (uint32_t h = 0; h < s->heads; h++)
            score[(size_t)h * n] = always ? INFINITY : -INFINITY;
        for (uint32_t p = b * block; p < end && !always; p += PIECE)
            score_piece(f, r, live, p, NTX_MIN(p + PIECE, end), score, n);
    }
}

/* A row's list has for each head a number, and then so many blocks. */
static void choose_blocks(struct ntx_forward *f, uint32_t at, unsigned thread)
{
    (void)thread;
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t row = chooser_row(f, f->choice.first + at), n = candidates_at(s, f->b->rows[row].pos),
                   ld = s->index_topk.most + 1;
    float *scratch = f->m.scores + (f->c.threads + at) * f->m.ld_scores;
    for (uint32_t h = 0; h < s->heads; h++) {
        const float *score = f->m.scores + at * f->m.ld_scores + (size_t)h * n;
        uint32_t *topk = f->m.topk + (size_t)row * f->m.max_topk + (size_t)h * ld, k = 0;
        struct ntx_cut cut = ntx_cut_at(score, scratch, n, s->index_topk.most);
        for (uint32_t b = 0; b < n; b++)
            if (score[b] != -INFINITY && ntx_cut_keeps(&cut, score[b]))
                topk[1 + k++] = b;
        topk[0] = k;
    }
    f->m.n_topk[row] = s->heads * ld;
}

/* Puts rows that see more positions than they may attend to into m.choosers; the others attend to all. */
static uint32_t find_choosers(struct ntx_forward *f, const struct ntx_step *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; f->m.n_topk && i < f->n_live; i++) {
        f->m.n_topk[f->m.live[i]] = NTX__ALL;
        if (candidates_at(s, f->b->rows[f->m.live[i]].pos) > s->index_topk.most)
            f->m.choosers[n++] = i;
    }
    return n;
}

static int run_pool_keys(struct ntx_forward *f, const struct ntx__run *r)
{
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    const bool mean = ntx__steps_of(f, r)->index_topk.mean;
    if (!mean)
        ntx__find_places(f, ntx__steps_of(f, r), ntx__steps_of(f, r)->index_topk.every);
    ntx__each(f, mean ? pool_mean : pool_keys, f->n_live + f->n_kv_only);
    ntx__give_run(f, r);
    return 0;
}

int ntx__cpu_index_topk(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_step *s = ntx__steps_of(f, r);
    int rc = s->index_topk.keys ? run_pool_keys(f, r) : 0;
    if (rc)
        return rc;
    uint32_t n = find_choosers(f, s), rows;
    for (f->choice.first = 0; f->choice.first < n; f->choice.first += rows) {
        uint32_t last = 0;
        rows = NTX_MIN(n - f->choice.first, f->c.threads);
        for (uint32_t i = 0; i < rows; i++)
            last = NTX_MAX(last, f->b->rows[chooser_row(f, f->choice.first + i)].pos);
        const bool blocks = s->index_topk.block != 0;
        const uint32_t each = blocks ? blocks_of_item(s) : SPAN;
        f->choice.spans = (candidates_at(s, last) + each - 1) / each;
        ntx__each(f, blocks ? score_blocks : score_span, rows * f->choice.spans);
        ntx__each(f, blocks ? choose_blocks : choose_row, rows);
    }
    return 0;
}

bool ntx__has_topk(const struct ntx_forward *f, uint32_t row) { return f->m.n_topk && f->m.n_topk[row] != NTX__ALL; }

/* A head's blocks, and how many. */
static const uint32_t *blocks_of(const struct ntx_forward *f, uint32_t row, uint32_t kv_head, uint32_t *n)
{
    const uint32_t *list = f->m.topk + (size_t)row * f->m.max_topk +
                           (size_t)(ntx_own_heads(f->hp, f->layer).first + kv_head) * (f->hp->index.most + 1);
    *n = list[0];
    return list + 1;
}

static void select_blocks(const struct ntx_forward *f, uint32_t row)
{
    const struct ntx_row *r = &f->b->rows[row];
    const uint32_t size = f->hp->index.block;
    for (uint32_t h = 0, n; h < f->hp->index.heads; h++) {
        const uint32_t *block = blocks_of(f, row, h, &n);
        for (uint32_t i = 0, before = UINT32_MAX; i < n; i++)
            for (uint32_t p = block[i] * size; p < NTX_MIN((block[i] + 1) * size, r->pos + 1); p++) {
                const uint32_t slot = slot_of(r, p);
                if (slot / NTX_KV_BLOCK != before)
                    ntx_kv_pass_set_topk(r->kv, f->layer, slot);
                before = slot / NTX_KV_BLOCK;
            }
    }
}

/* Selects what a row reads of a file's top-k parts: at least one place of each block. */
static void select_row(const struct ntx_forward *f, const struct ntx_step *s, uint32_t row)
{
    const struct ntx_row *r = &f->b->rows[row];
    const bool some = ntx__has_topk(f, row), pooled = f->hp->v_is_k;
    const uint32_t *topk = f->m.topk + (size_t)row * f->m.max_topk;
    const uint32_t layer = pooled ? f->hp->n_layers + f->layer : f->layer;
    if (some && f->hp->index.block) {
        select_blocks(f, row);
        return;
    }
    uint32_t n = pooled ? (r->pos + 1) / s->attend.every : r->pos / NTX_KV_BLOCK + 1;
    if (some)
        n = f->m.n_topk[row];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t which = some ? topk[i] : i;
        if (pooled)
            ntx_kv_pass_set_topk(r->kv, layer, (which + 1) * s->attend.every - 1);
        else
            ntx_kv_pass_set_topk(r->kv, layer, some ? slot_of(r, which) : which * NTX_KV_BLOCK);
    }
}

int ntx__request_topk(struct ntx_forward *f)
{
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    if (!s->attend.topk || !ntx_kv_pass_requests_topk(f->b->rows->kv))
        return 0;
    for (uint32_t i = 0; i < f->n_live; i++)
        select_row(f, s, f->m.live[i]);
    return ntx_kv_pass_topk(f->b->rows->kv);
}

/* Adds a position to a list of K and V, if it is no hole. */
static void list_slot(const struct ntx_forward *f, const struct ntx_row *r, uint32_t kv_head, uint32_t slot,
                      const struct ntx__lane *lane, uint32_t *n)
{
    const size_t bytes = ntx_kv_k_bytes(r->kv, f->layer) / NTX_KV_BLOCK,
                 v_bytes = ntx_kv_v_bytes(r->kv, f->layer) / NTX_KV_BLOCK;
    if (is_hole(ntx_kv_holes(r->kv, f->layer), slot))
        return;
    if (lane->topk_v)
        lane->topk_v[*n] = (const uint8_t *)ntx_kv_v(r->kv, f->layer, kv_head, slot) + slot % NTX_KV_BLOCK * v_bytes;
    lane->topk_k[(*n)++] = (const uint8_t *)ntx_kv_k(r->kv, f->layer, kv_head, slot) + slot % NTX_KV_BLOCK * bytes;
}

void ntx__attend_topk(const struct ntx_forward *f, uint32_t row, uint32_t kv_head, const struct ntx__lane *lane,
                      struct ntx_attn *a)
{
    const struct ntx_row *r = &f->b->rows[row];
    const uint32_t *topk = f->m.topk + (size_t)row * f->m.max_topk, size = f->hp->index.block;
    uint32_t n = 0, listed = f->m.n_topk[row];
    if (size)
        topk = blocks_of(f, row, kv_head, &listed);
    for (uint32_t i = 0; i < listed; i++)
        if (!size)
            list_slot(f, r, kv_head, slot_of(r, topk[i]), lane, &n);
        else
            for (uint32_t p = topk[i] * size; p < NTX_MIN((topk[i] + 1) * size, r->pos + 1); p++)
                list_slot(f, r, kv_head, slot_of(r, p), lane, &n);
    a->k = lane->topk_k;
    a->v = lane->topk_v ? lane->topk_v : lane->topk_k;
    a->block_tokens = 1;
    a->n_pos = n;
    a->hole = NULL;
}
