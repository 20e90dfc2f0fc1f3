/* SPDX-License-Identifier: Apache-2.0 */
/* grams.c: n-gram embeddings (qwen4exp): table entries that follow from the last tokens. For each n from 2 to the most
 * there are a few heads; with t0 the row's own token, t1 the one before it, and so on:
 *
 *   x = t0 by[0] xor t1 by[1] xor .. t(n-1) by[n-1]           entry of head h: first[h] + x modulo size[h]
 *
 * Where a text ended (a token `eos` before the row's), that token and all before it count as `eos`, as do positions
 * before the first token. Entries follow from tokens alone: they are requested when the pass begins, and awaited where
 * they are used. If the table is not in memory, a pass reads only these entries, each once.
 *
 * A session keeps its last tokens in its recurrent state (recur.h), behind the inputs of the following convolution. */
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/pass/forward_impl.h"
#include "model/quant.h"

static uint32_t layer_of(const struct ntx_hparams *hp) { return hp->grams.layer - 1; }

/* The tokens in a state buffer; NULL: none yet. */
static const int32_t *tokens_in(const struct ntx_hparams *hp, const float *grams)
{
    return grams ? (const int32_t *)(const void *)(grams + ntx_grams_floats(hp) - (hp->grams.n - 1)) : NULL;
}

/* The token `back` before the turn's row k; -1: there is none. */
static int64_t token_before(const struct ntx_forward *f, const struct ntx__turn *t, uint32_t k, uint32_t back)
{
    if (k >= back)
        return f->b->rows[t->row[k - back]].token;
    const int32_t *before = tokens_in(f->hp, ntx__grams_in(f, ntx_recur_fold(t->kv, layer_of(f->hp))));
    return before ? before[f->hp->grams.n - 1 - (back - k)] : -1;
}

/* The table entries for the turn's row k. */
static void hash_row(const struct ntx_forward *f, const struct ntx__turn *t, uint32_t k, uint32_t *entry)
{
    const struct ntx_hparams *hp = f->hp;
    const uint32_t each = hp->grams.heads / (hp->grams.n - 1);
    uint64_t x = (uint64_t)token_before(f, t, k, 0) * hp->grams.by[0];
    bool ended = false;
    for (uint32_t back = 1; back < hp->grams.n; back++) {
        int64_t token = ended ? -1 : token_before(f, t, k, back);
        ended |= token < 0 || token == hp->grams.eos;
        x ^= (uint64_t)(ended ? hp->grams.eos : token) * hp->grams.by[back];
        for (uint32_t h = (back - 1) * each; h < back * each; h++)
            entry[h] = hp->grams.first[h] + (uint32_t)(x % hp->grams.size[h]);
    }
}

static int by_number(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Replaces the entries in m.gram_at by their indexes among the distinct ones, ascending, in m.gram_ids. */
static void make_distinct(struct ntx_forward *f, uint32_t n)
{
    int32_t *ids = f->m.gram_ids;
    uint32_t n_ids = 0;
    memcpy(ids, f->m.gram_at, n * sizeof *ids);
    qsort(ids, n, sizeof *ids, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (!i || ids[i] != ids[n_ids - 1])
            ids[n_ids++] = ids[i];
    for (uint32_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)f->m.gram_at[i];
        f->m.gram_at[i] = (uint32_t)((const int32_t *)bsearch(&id, ids, n_ids, sizeof *ids, by_number) - ids);
    }
    f->n_grams = n_ids;
}

int ntx__grams_request(struct ntx_forward *f)
{
    const struct ntx_weight *w = &f->c.chunks->gram_embd;
    const struct ntx_weights_ops *ops = f->c.weights->ops;
    f->grams_requested = false;
    if (!f->hp->grams.layer)
        return 0;
    for (uint32_t i = 0; i < f->n_turns; i++) {
        const struct ntx__turn t = ntx__turn_of(f, i);
        for (uint32_t k = 0; k < t.n; k++)
            hash_row(f, &t, k, f->m.gram_at + (size_t)t.row[k] * f->hp->grams.heads);
    }
    make_distinct(f, f->b->n_rows * f->hp->grams.heads);
    const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(f->c.model->gguf, w->tensor);
    int rc = (ops->request_entries ? ops->request_entries : ops->entries)(
        f->c.weights, t->file, t->offset, w->row_bytes, f->m.gram_ids, f->n_grams, f->m.gram_entries);
    f->grams_requested = !rc && ops->request_entries;
    return rc;
}

int ntx__grams_more(struct ntx_forward *f) { return f->c.weights->ops->more_entries(f->c.weights); }

static void use_row(struct ntx_forward *f, uint32_t i, unsigned thread)
{
    (void)thread;
    const struct ntx_weight *w = &f->c.chunks->gram_embd;
    const struct ntx_type_info *type = ntx_type_info(w->type);
    const struct ntx_step *s = ntx__steps_of(f, f->run);
    const uint32_t *entry = f->m.gram_at + (size_t)f->m.live[i] * s->heads;
    float *out = f->buf[s->out].at + i * f->buf[s->out].ld;
    for (uint32_t h = 0; h < s->heads; h++)
        type->dequant(f->m.gram_entries + (size_t)entry[h] * w->row_bytes, out + (size_t)h * f->hp->grams.width,
                      f->hp->grams.width / type->block);
    ntx__quantize(f, f->run->forms, out, f->run->width, i);
}

int ntx__cpu_grams(struct ntx_forward *f, const struct ntx__run *r)
{
    const struct ntx_weight *w = &f->c.chunks->gram_embd;
    int rc = f->grams_requested ? f->c.weights->ops->entries_there(f->c.weights) : 0;
    f->grams_requested = false;
    for (uint32_t i = 0; !rc && i < f->n_grams; i++)
        rc = ntx__finite_token(f, w, f->m.gram_entries + (size_t)i * w->row_bytes, f->m.gram_ids[i]);
    if (!rc)
        ntx__each(f, use_row, f->n_live + (r->feeds ? f->n_kv_only : 0));
    return rc;
}

/* The last tokens before row k of a turn. */
static void keep_tokens(const struct ntx_forward *f, const struct ntx__turn *t, uint32_t k, float *grams)
{
    const uint32_t n = f->hp->grams.n - 1;
    int32_t *to = grams ? (int32_t *)(void *)(grams + ntx_grams_floats(f->hp) - n) : NULL;
    for (uint32_t back = 1; to && back <= n; back++) {
        int64_t token = token_before(f, t, k, back);
        to[n - back] = (int32_t)(token < 0 ? f->hp->grams.eos : token);
    }
}

void ntx__grams_keep(struct ntx_forward *f, const struct ntx_step *s)
{
    const struct ntx_weight *w = ntx__weight_of(f, s);
    const struct ntx_type_info *type = ntx_type_info(w->type);
    type->dequant(f->vec[s->weight[0]], f->m.gram_taps, (size_t)w->n_out * w->n_in / type->block);
    ntx__grams_keep_tokens(f);
}

void ntx__grams_keep_tokens(struct ntx_forward *f)
{
    for (uint32_t i = 0; i < f->n_turns; i++) {
        const struct ntx__turn t = ntx__turn_of(f, i);
        const uint32_t at = ntx_recur_at(t.kv);
        keep_tokens(f, &t, t.n, ntx__grams_in(f, ntx_recur_next_fold(t.kv, f->layer)));
        for (uint32_t k = 1; k <= t.n; k++)
            keep_tokens(f, &t, k, ntx__grams_in(f, ntx_recur_stop_fold(t.kv, at + k, f->layer)));
    }
}
