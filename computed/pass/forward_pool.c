/* SPDX-License-Identifier: Apache-2.0 */
/* forward_pool.c: pooled K, for several positions each (DeepSeek-V4's compressors). After each `every` positions a
 * layer keeps one more K, of the values of the last `spans` x `every` positions:
 *
 *   x[c] = sum over these of softmax(weight[c] + place[c]) value[c]         K = rotated(norm(x))
 *
 * With two spans, the values and weights of the earlier one are the first half of its rows, those of the later one the
 * second half; before the first position there is nothing. K is rotated by the first position of its last span; an
 * index key is then transformed as a whole (HADAMARD).
 *
 * Pooled K are in the blocks of the positions that they follow, in a layer of their own (kv.h), and are truncated with
 * these. The inputs still to be pooled are a recurrent state (recur.h): the values and weights of the K, and then of
 * the keys, of each of the last `spans` x `every` positions, at its number modulo that. */
#include <math.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"
#include "model/quant.h"

struct pooling { /* rows of one session */
    struct ntx_forward *f;
    const struct ntx_step *s;
    const struct ntx_kv_seq *kv;
    const uint32_t *row; /* [n] rows of the batch, ascending */
    uint32_t n, first;   /* position of the first */
    uint32_t width;      /* values of a row, and weights */
    uint32_t span;       /* rows of the state */
    size_t at;           /* offset in the state */
};

static struct pooling pooling_of(struct ntx_forward *f, uint32_t rotate_pooled)
{
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t *row = f->m.turn_rows + f->m.turns[rotate_pooled], span = s->pool.every * s->pool.spans;
    const struct ntx_row *r = &f->b->rows[*row];
    return (struct pooling){.f = f,
                            .s = s,
                            .kv = r->kv,
                            .row = row,
                            .n = f->m.turns[rotate_pooled + 1] - f->m.turns[rotate_pooled],
                            .first = r->pos,
                            .width = s->pool.spans * s->width,
                            .span = span,
                            .at = s->pool.keys ? (size_t)span * 2 * s->pool.spans * f->hp->head_k : 0};
}

/* Values of position pos; weights are `width` behind them in the state, else in a separate buffer. */
static const float *input_at(const struct pooling *p, uint32_t pos, bool weights)
{
    const uint8_t buf = p->s->in[weights];
    if (pos >= p->first)
        return ntx__of_batch(p->f, buf, p->row[pos - p->first]);
    return ntx_recur_tail(p->kv, p->f->layer) + p->at + (size_t)(pos % p->span) * 2 * p->width + weights * p->width;
}

/* The inputs of the K that follows position `last`. */
static uint32_t sources_of(const struct pooling *p, uint32_t last, struct ntx__pool_source *of)
{
    const uint32_t end = last + 1, from = end < p->span ? 0 : end - p->span;
    const float *place = p->f->m.places;
    uint32_t n = 0;
    for (uint32_t pos = from; pos < end; pos++, n++) {
        size_t half = pos + p->s->pool.every >= end ? p->width - p->s->width : 0;
        of[n] = (struct ntx__pool_source){input_at(p, pos, false) + half, input_at(p, pos, true) + half,
                                          place + (size_t)(pos % p->s->pool.every) * p->width + half};
    }
    return n;
}

enum { SOURCES = 128, CHANNELS = NTX__POOL_CHANNELS };

/* Channels [first, first + n). */
void ntx__pool_channels(const struct ntx_cpu_ops *ops, const struct ntx__pool_source *of, uint32_t n_of, uint32_t first,
                        uint32_t n, float *out)
{
    float most[CHANNELS], e[CHANNELS], sum[CHANNELS] = {0};
    for (uint32_t k = 0; k < n_of; k++)
        for (uint32_t c = 0; c < n; c++) {
            float w = of[k].weight[first + c] + of[k].place[first + c];
            most[c] = !k || w > most[c] ? w : most[c];
        }
    memset(out, 0, n * sizeof *out);
    for (uint32_t k = 0; k < n_of; k++) {
        for (uint32_t c = 0; c < n; c++)
            e[c] = of[k].weight[first + c] + of[k].place[first + c] - most[c];
        ops->exp_of(e, 0, n);
        for (uint32_t c = 0; c < n; c++) {
            sum[c] += e[c];
            out[c] += e[c] * of[k].value[first + c];
        }
    }
    for (uint32_t c = 0; c < n; c++)
        out[c] /= sum[c];
}

static void rotate_pooled(const struct pooling *p, uint32_t pos, float *x)
{
    const struct ntx_step *s = p->s;
    double freq[NTX_MAX_HEAD / 2];
    float cs[NTX_MAX_HEAD / 2], sn[NTX_MAX_HEAD / 2];
    ntx_rope_frequencies(p->f->hp, (enum ntx_rotation)s->pool.rope.angles, NULL, freq);
    ntx_rope_angles(p->f->hp, (enum ntx_rotation)s->pool.rope.angles, freq, pos, cs, sn);
    p->f->c.ops->rope_norm(x + s->offset, 1, s->width, s->pool.rope.rotated, cs, sn);
    if (s->pool.keys)
        ntx__hadamard(x, 1, s->width);
}

static void pool_row(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    uint32_t t = 0;
    while (f->m.turns[t + 1] <= item)
        t++;
    const struct pooling p = pooling_of(f, t);
    const struct ntx_row *r = &f->b->rows[f->m.turn_rows[item]];
    struct ntx__pool_source of[SOURCES];
    float x[NTX_MAX_HEAD], k[NTX_MAX_HEAD];
    if ((r->pos + 1) % p.s->pool.every)
        return;
    const uint32_t n = sources_of(&p, r->pos, of), width = p.s->width;
    for (uint32_t c = 0; c < width; c += CHANNELS)
        ntx__pool_channels(f->c.ops, of, n, c, NTX_MIN(width - c, (uint32_t)CHANNELS), x + c);
    f->c.ops->rmsnorm(x, f->vec[p.s->weight[1]], f->hp->rms_eps, width, k);
    rotate_pooled(&p, r->pos + 1 - p.s->pool.every, k);
    f->c.ops->f16_store(k, (uint16_t *)ntx__pooled(f, r->kv, r->pos / p.s->pool.every, p.s->pool.every, p.s->pool.keys),
                        width);
}

/* The state after the first `end` positions. */
static void put_state(const struct pooling *p, uint32_t end, float *to)
{
    const bool had = ntx_recur_tail(p->kv, p->f->layer) != NULL;
    for (uint32_t i = 0; to && i < p->span && i < end; i++) {
        uint32_t pos = (end - 1 - i) / p->span * p->span + i;
        float *row = to + p->at + (size_t)i * 2 * p->width;
        if (pos < p->first && !had)
            continue;
        memcpy(row, input_at(p, pos, false), p->width * sizeof *row);
        memcpy(row + p->width, input_at(p, pos, true), p->width * sizeof *row);
    }
}

static void put_states(struct ntx_forward *f, uint32_t item, unsigned thread)
{
    (void)thread;
    const struct pooling p = pooling_of(f, item);
    put_state(&p, p.first + p.n, ntx_recur_next_tail(p.kv, f->layer));
    for (uint32_t k = 1; k <= p.n; k++)
        put_state(&p, p.first + k, ntx_recur_stop_tail(p.kv, p.first + k, f->layer));
}

void ntx__find_places(struct ntx_forward *f, const struct ntx_step *s, uint32_t every)
{
    const struct ntx_weight *w = ntx__weight_of(f, s);
    const struct ntx_type_info *type = ntx_type_info(w->type);
    bool any = false;
    for (uint32_t i = 0; i < f->b->n_rows; i++)
        any |= (f->b->rows[i].pos + 1) % every == 0;
    if (any)
        type->dequant(f->vec[s->weight[0]], f->m.places, (size_t)w->n_out * w->n_in / type->block);
}

int ntx__cpu_pool(struct ntx_forward *f, const struct ntx__run *r)
{
    int rc = ntx__take_run(f, r);
    if (rc)
        return rc;
    ntx__find_places(f, ntx__steps_of(f, r), ntx__steps_of(f, r)->pool.every);
    ntx__each(f, pool_row, f->m.turns[f->n_turns]);
    ntx__each(f, put_states, f->n_turns);
    ntx__give_run(f, r);
    return 0;
}

/* ---- attention */

uint8_t *ntx__pooled(const struct ntx_forward *f, const struct ntx_kv_seq *kv, uint32_t number, uint32_t every,
                     bool key)
{
    const uint32_t layer = f->hp->n_layers + f->layer, pos = (number + 1) * every - 1,
                   place = pos % NTX_KV_BLOCK / every;
    return key ? (uint8_t *)ntx_kv_v(kv, layer, 0, pos) + (size_t)place * 2 * f->hp->index.head
               : (uint8_t *)ntx_kv_k(kv, layer, 0, pos) + (size_t)place * 2 * f->hp->head_k;
}

/* The slots of the window and of the row's image, and then the pooled K. */
void ntx__attend_pooled(const struct ntx_forward *f, const struct ntx_step *s, uint32_t row,
                        const struct ntx__lane *lane, struct ntx_attn *a)
{
    const struct ntx_row *r = &f->b->rows[row];
    const size_t bytes = ntx_kv_k_bytes(r->kv, f->layer) / NTX_KV_BLOCK;
    const uint32_t within = r->pos + 1 > s->attend.window ? r->pos + 1 - s->attend.window : 0,
                   from = NTX_MIN(within, r->pos - r->behind), to = r->pos + r->ahead,
                   all = s->attend.every ? (r->pos + 1) / s->attend.every : 0;
    const bool has_topk = s->attend.topk && ntx__has_topk(f, row);
    const uint32_t more = has_topk ? f->m.n_topk[row] : all,
                   *which = has_topk ? f->m.topk + (size_t)row * f->m.max_topk : NULL;
    uint32_t n = 0;
    for (uint32_t pos = from; pos <= to; pos++)
        lane->topk_k[n++] = (const uint8_t *)ntx_kv_k(r->kv, f->layer, 0, pos) + pos % NTX_KV_BLOCK * bytes;
    for (uint32_t k = 0; k < more; k++)
        lane->topk_k[n++] = ntx__pooled(f, r->kv, which ? which[k] : k, s->attend.every, false);
    a->k = a->v = lane->topk_k;
    a->v_in_k = true;
    a->block_tokens = 1;
    a->n_pos = n;
    a->window = 0;
}
