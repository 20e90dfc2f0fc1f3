/* SPDX-License-Identifier: Apache-2.0 */
/* kv.c: K and V by heads (ranks.h). Only rank 0 knows which block has which position of which text, and decides it. The
 * others have the same blocks, with K and V of their heads, and know no texts. The message of a pass has the changes to
 * blocks since the last one, to be repeated there, and the places of its rows' positions. The message of each layer's
 * attention has the rows' K and V, to be stored there, and their q. So whatever becomes of a text (truncated, forked,
 * shared, drafted on, snapshot) is numbers of blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/ranks/ranks_impl.h"
#include "computed/state/kv_impl.h"

/* ---- a layer's heads */

static const struct ntx_step *step_of(const struct ntx_forward *f, enum ntx_op op)
{
    const struct ntx_layer *l = &f->c.model->layers[f->layer];
    for (const struct ntx_step *s = l->step; s < l->step + l->n_steps; s++)
        if (s->op == op)
            return s;
    return NULL;
}

struct widths { /* floats of a row: of one rank's heads */
    struct ntx_share_range own;
    size_t q, k, v, out, q0, k0, v0, out0;
};

static struct widths widths_of(const struct ntx_forward *f, uint32_t rank)
{
    const struct ntx_dims w = ntx_dims_of(f->hp, f->layer);
    const struct ntx_share_range own = ntx_share_heads(f->hp->kv_share, w.n_head_kv, rank);
    const size_t heads = (size_t)own.n * (w.n_head / w.n_head_kv), first = (size_t)own.first * (w.n_head / w.n_head_kv);
    const bool puts = step_of(f, NTX_OP_PUT) != NULL;
    return (struct widths){.own = own,
                           .q = heads * w.head_k,
                           .k = puts ? own.n * (size_t)w.head_k : 0,
                           .v = puts ? own.n * (size_t)w.head_v : 0,
                           .out = heads * w.head_v,
                           .q0 = first * w.head_k,
                           .k0 = own.first * (size_t)w.head_k,
                           .v0 = own.first * (size_t)w.head_v,
                           .out0 = first * w.head_v};
}

static bool has_heads(const struct ntx_forward *f, uint32_t rank) { return widths_of(f, rank).own.n > 0; }
static size_t sinks_of(const struct ntx_forward *f)
{
    return f->c.model->layers[f->layer].sinks != NTX_NO_TENSOR ? ntx_dims_of(f->hp, f->layer).n_head : 0;
}

/* Bytes for so many live rows, and others that only leave K and V. */
static size_t said_bytes(const struct ntx_forward *f, uint32_t rank, uint32_t n_live, uint32_t n_kv_only)
{
    const struct widths w = widths_of(f, rank);
    const size_t n = (size_t)n_live + n_kv_only;
    return n * sizeof(uint32_t) + (sinks_of(f) + n_live * w.q + n * (w.k + w.v)) * sizeof(float);
}

/* ---- rank 0: with a pass */

static void note_change(void *ctx, const struct ntx_kv_change *c)
{
    struct ntx_ranks *r = ctx;
    if (r->n_changes == r->most_changes) {
        struct ntx_kv_change *more = realloc(r->changes, 2 * ((size_t)r->most_changes + 8) * sizeof *more);
        r->changes_lost |= !more;
        if (!more)
            return;
        r->changes = more;
        r->most_changes = 2 * (r->most_changes + 8);
    }
    r->changes[r->n_changes++] = *c;
}

void ntx_ranks_keep(struct ntx_ranks *r, struct ntx_kv_pool *pool)
{
    r->pool = pool;
    if (!r->rank)
        ntx_kv_pool_watch(pool, note_change, r);
}

static uint32_t first_with(const struct ntx_batch *b, uint32_t row)
{
    uint32_t i = 0;
    while (b->rows[i].kv != b->rows[row].kv)
        i++;
    return i;
}

static size_t words_of(const struct ntx_batch *b, uint32_t row)
{
    const struct ntx_kv_seq *s = b->rows[row].kv;
    return 3 + (size_t)b->rows[row].n_path +
           (first_with(b, row) == row ? 2 + (size_t)s->n_units[NTX__KV_ALL] + s->n_units[NTX__KV_WINDOW] : 0);
}

static uint32_t *put_words(uint32_t *to, const uint32_t *from, size_t n)
{
    if (n)
        memcpy(to, from, n * sizeof *to);
    return to + n;
}

/* A row's place; with the first row of a text, its blocks. */
static uint32_t *put_row(const struct ntx_batch *b, uint32_t i, uint32_t *to)
{
    const struct ntx_row *row = &b->rows[i];
    const struct ntx_kv_seq *s = row->kv;
    const uint32_t first = first_with(b, i);
    to = put_words(to, (const uint32_t[]){first, row->pos, row->n_path}, 3);
    to = put_words(to, row->path, row->n_path);
    if (first != i)
        return to;
    to = put_words(to, (const uint32_t[]){s->n_units[NTX__KV_ALL], s->n_units[NTX__KV_WINDOW]}, 2);
    to = put_words(to, s->units[NTX__KV_ALL], s->n_units[NTX__KV_ALL]);
    return put_words(to, s->units[NTX__KV_WINDOW], s->n_units[NTX__KV_WINDOW]);
}

int ntx__ranks_kv_begin(struct ntx_ranks *r, struct ntx_forward *f, struct ntx__message_head *h, size_t *bytes)
{
    const struct ntx_batch *b = f->b;
    size_t words = 0;
    if (r->changes_lost)
        return ntx_err_set(&f->c.weights->error, -ENOMEM,
                           "no memory to tell other machines what became of texts: start all of them again");
    for (uint32_t i = 0; i < b->n_rows; i++)
        words += words_of(b, i);
    *bytes = sizeof *h + r->n_changes * sizeof(struct ntx_kv_change) + words * sizeof(uint32_t);
    if (ntx__ranks_room(&r->out, &r->out_bytes, *bytes))
        return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for a message of %zu bytes to other machines",
                           *bytes);
    h->n = r->n_changes;
    h->n_rows = b->n_rows;
    memcpy(r->out, h, sizeof *h);
    if (h->n)
        memcpy(r->out + sizeof *h, r->changes, h->n * sizeof(struct ntx_kv_change));
    uint32_t *to = (void *)(r->out + sizeof *h + h->n * sizeof(struct ntx_kv_change));
    for (uint32_t i = 0; i < b->n_rows; i++)
        to = put_row(b, i, to);
    r->n_changes = 0;
    return 0;
}

static int move_slots(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to,
                      uint32_t n)
{
    int rc = ntx__cpu_move(f, kv, from, to, n);
    for (uint32_t i = 0; i < n && !rc; i++)
        ntx_kv_moved(kv, from[i], to[i]);
    return rc;
}

/* ---- rank 0: with a layer */

static uint8_t *put_part(const struct ntx_forward *f, uint8_t buf, uint32_t n_rows, size_t at, size_t n, uint8_t *to)
{
    for (uint32_t i = 0; i < n_rows && n; i++, to += n * sizeof(float))
        memcpy(to, f->buf[buf].at + i * f->buf[buf].ld + at, n * sizeof(float));
    return to;
}

static uint8_t *put_layer(const struct ntx_forward *f, uint32_t rank, uint8_t *to)
{
    const struct widths w = widths_of(f, rank);
    const struct ntx_step *put = step_of(f, NTX_OP_PUT);
    const uint32_t n = f->n_live + f->n_kv_only;
    const struct ntx__message_head h = {
        .type = NTX__MSG_ATTEND, .layer = f->layer, .pass = f->b->pass, .n_rows = f->n_live, .n = f->n_kv_only};
    memcpy(to, &h, sizeof h);
    memcpy(to += sizeof h, f->m.live, n * sizeof *f->m.live);
    to += n * sizeof *f->m.live;
    if (sinks_of(f) && f->n_live)
        memcpy(to, f->vec[NTX_T_sinks], sinks_of(f) * sizeof(float));
    else
        memset(to, 0, sinks_of(f) * sizeof(float));
    to = put_part(f, NTX_BUF_Q, f->n_live, w.q0, w.q, to + sinks_of(f) * sizeof(float));
    to = put ? put_part(f, put->in[0], n, w.k0, w.k, to) : to;
    return put ? put_part(f, put->in[1], n, w.v0, w.v, to) : to;
}

static int send_layer(struct ntx_ranks *r, struct ntx_forward *f)
{
    size_t all = 0, at = 0;
    int rc = r->broken;
    for (uint32_t to = 1; to < r->size; to++)
        all += has_heads(f, to) ? sizeof(struct ntx__message_head) + said_bytes(f, to, f->n_live, f->n_kv_only) : 0;
    if (ntx__ranks_room(&r->out, &r->out_bytes, all))
        return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for messages of %zu bytes to other machines", all);
    r->sent_ns = ntx_now_ns();
    for (uint32_t to = 1; to < r->size && !rc; to++) {
        if (!has_heads(f, to))
            continue;
        size_t n = (size_t)(put_layer(f, to, r->out + at) - (r->out + at));
        rc = r->c.ops->send(r->c.net, to, r->out + at, n);
        ntx_count(f->c.counters, NTX_C_comp_rank_bytes, n);
        at += n;
    }
    return rc ? ntx__ranks_broken(r, f, rc) : ntx__ranks_wait(r, f);
}

static int expect_heads(struct ntx_ranks *r, struct ntx_forward *f)
{
    int rc = r->broken ? ntx__ranks_broken(r, f, r->broken) : 0;
    for (uint32_t from = 1; from < r->size && !rc; from++)
        if (has_heads(f, from))
            rc = ntx__ranks_expect(r, f, from, f->n_live * widths_of(f, from).out);
    return rc;
}

static int collect_heads(struct ntx_ranks *r, struct ntx_forward *f)
{
    const uint64_t now = ntx_now_ns();
    for (uint32_t from = 1; from < r->size; from++) {
        const struct widths w = widths_of(f, from);
        const float *out = (const void *)(r->in[from] + sizeof(struct ntx__answer));
        int rc = w.own.n ? ntx__ranks_see(r, f, from, now) : 0;
        if (rc)
            return rc;
        for (uint32_t i = 0; i < f->n_live && w.own.n; i++, out += w.out)
            memcpy(f->m.attn + i * f->ld_attn + w.out0, out, w.out * sizeof *out);
    }
    return 0;
}

static bool is_split(const struct ntx_ranks *r, const struct ntx_forward *f)
{
    bool any = false;
    for (uint32_t i = 1; r->pool && i < r->size; i++)
        any |= has_heads(f, i);
    return any;
}

static int attend_split(struct ntx_forward *f, const struct ntx__run *run)
{
    struct ntx_ranks *r = f->c.ranks;
    if (!is_split(r, f))
        return ntx__cpu_attend(f, run);
    int rc = ntx__take_run(f, run);
    if (rc)
        return rc;
    if (!(rc = send_layer(r, f)) && !(rc = expect_heads(r, f))) {
        ntx__attend_own(f);
        rc = ntx__ranks_wait(r, f);
    }
    ntx__give_run(f, run);
    if (rc)
        return rc;
    atomic_fetch_add_explicit(&r->messages, 1, memory_order_relaxed);
    if ((rc = collect_heads(r, f)))
        return rc;
    ntx__attended(f);
    return 0;
}

static bool puts_kv(const struct ntx_forward *f, const struct ntx__run *run)
{
    for (const struct ntx_step *s = ntx__steps_of(f, run), *end = s + run->n; s < end; s++)
        if (s->op == NTX_OP_PUT)
            return true;
    return false;
}

/* If no row is live there is no attention: only K and V are sent. */
static int run_rows(struct ntx_forward *f, const struct ntx__run *run)
{
    int rc = ntx__cpu_backend.rows(f, run);
    return rc || f->n_live || !puts_kv(f, run) || !is_split(f->c.ranks, f) ? rc : send_layer(f->c.ranks, f);
}

void ntx__ranks_kv_table(struct ntx_backend *table)
{
    table->rows = run_rows;
    table->run[NTX_OP_ATTEND] = attend_split;
    table->move = move_slots;
}

/* ---- the other ranks */

struct ntx__ranks_kv {
    uint32_t *words; /* of the pass; has the lists of blocks and paths */
    size_t words_bytes;
    struct ntx_row *rows;     /* [max_rows] */
    struct ntx_kv_seq *texts; /* [max_rows] by the first row of each */
    uint32_t *n_holes;        /* [layers of the pool] all 0: with holes, K and V are not split */
    float *sinks;             /* [heads of the layer with most] */
    struct ntx_batch batch;
};

static uint32_t most_heads(const struct ntx_hparams *hp)
{
    uint32_t most = 0;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        most = NTX_MAX(most, ntx_dims_of(hp, l).n_head);
    return most;
}

struct ntx__ranks_kv *ntx__ranks_kv_new(const struct ntx_ranks *r, const struct ntx_forward *f)
{
    struct ntx__ranks_kv *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->rows = calloc(f->c.max_rows, sizeof *k->rows);
    k->texts = calloc(f->c.max_rows, sizeof *k->texts);
    k->n_holes = calloc(r->pool->n_layers, sizeof *k->n_holes);
    k->sinks = calloc(most_heads(f->hp) + 1, sizeof *k->sinks);
    if (k->rows && k->texts && k->n_holes && k->sinks)
        return k;
    ntx__ranks_kv_free(k);
    return NULL;
}

void ntx__ranks_kv_free(struct ntx__ranks_kv *k)
{
    if (!k)
        return;
    free(k->words);
    free(k->rows);
    free(k->texts);
    free(k->n_holes);
    free(k->sinks);
    free(k);
}

struct reader { /* reader of words */
    uint32_t *at, *end;
};

static uint32_t *take_words(struct reader *x, size_t n)
{
    uint32_t *at = x->at;
    if (n > (size_t)(x->end - x->at))
        return NULL;
    x->at += n;
    return at;
}

/* Checks that all of a text's blocks are the pool's. */
static bool take_blocks(const struct ntx_ranks *r, struct reader *x, uint32_t kind, uint32_t n, struct ntx_kv_seq *s)
{
    s->units[kind] = take_words(x, n);
    s->n_units[kind] = n;
    for (uint32_t i = 0; s->units[kind] && i < n; i++)
        if (s->units[kind][i] >= r->pool->space[kind].n)
            return false;
    return s->units[kind] != NULL;
}

static bool take_text(struct ntx_ranks *r, struct reader *x, struct ntx_kv_seq *s)
{
    const uint32_t *n = take_words(x, 2);
    *s = (struct ntx_kv_seq){.pool = r->pool, .n_holes = r->kv->n_holes};
    if (!n || !n[0] || (r->pool->ring && !n[1]) || !take_blocks(r, x, NTX__KV_ALL, n[0], s) ||
        !take_blocks(r, x, NTX__KV_WINDOW, n[1], s))
        return false;
    s->most = n[0];
    return true;
}

static bool take_row_words(struct ntx_ranks *r, const struct ntx_forward *f, struct reader *x, uint32_t i)
{
    struct ntx__ranks_kv *k = r->kv;
    const uint32_t *w = take_words(x, 3);
    struct ntx_row *row = &k->rows[i];
    if (!w || w[0] > i || w[1] >= f->c.ctx || w[2] > NTX_PATH_MAX)
        return false;
    *row = (struct ntx_row){.pos = w[1], .n_path = w[2], .kv = &k->texts[w[0]], .path = take_words(x, w[2])};
    if (!row->path || (w[0] == i && !take_text(r, x, &k->texts[i])) ||
        (w[0] != i && k->rows[w[0]].kv != &k->texts[w[0]]))
        return false;
    return !ntx__check_path(row) && row->pos < ntx_kv_seq_room(row->kv) && ntx_row_slot(row) < ntx_kv_seq_room(row->kv);
}

static int refuse_message(struct ntx_forward *f)
{
    return ntx_err_set(&f->c.weights->error, -EBADMSG,
                       "a message from the first machine has keys and values that have no place: are all machines of "
                       "the same build, with the same model?");
}

int ntx__ranks_kv_take_pass(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__message_head *h,
                            const uint8_t *bytes, size_t n)
{
    struct ntx__ranks_kv *k = r->kv;
    struct ntx_kv_change c;
    size_t changes = h->n * sizeof c;
    k->batch = (struct ntx_batch){.pass = h->pass, .rows = k->rows};
    if (changes > n || h->n_rows > f->c.max_rows || (n - changes) % sizeof(uint32_t))
        return refuse_message(f);
    if (ntx__ranks_room((uint8_t **)&k->words, &k->words_bytes, n - changes + 1))
        return ntx_err_set(&f->c.weights->error, -ENOMEM, "no memory for lists of %zu bytes", n);
    for (uint32_t i = 0; i < h->n; i++) {
        memcpy(&c, bytes + i * sizeof c, sizeof c);
        if (ntx_kv_pool_change(r->pool, &c))
            return refuse_message(f);
    }
    memcpy(k->words, bytes + changes, n - changes);
    struct reader x = {k->words, k->words + (n - changes) / sizeof(uint32_t)};
    for (uint32_t i = 0; i < h->n_rows; i++)
        if (!take_row_words(r, f, &x, i))
            return refuse_message(f);
    k->batch.n_rows = h->n_rows;
    return x.at == x.end ? 0 : refuse_message(f);
}

static const uint8_t *take_part(struct ntx_forward *f, uint8_t buf, uint32_t n_rows, size_t at, size_t n,
                                const uint8_t *from)
{
    for (uint32_t i = 0; i < n_rows && n; i++, from += n * sizeof(float))
        memcpy(f->buf[buf].at + i * f->buf[buf].ld + at, from, n * sizeof(float));
    return from;
}

static const struct ntx__run *attention(const struct ntx_forward *f)
{
    const struct ntx__runs *all = &f->runs[f->layer];
    for (uint32_t k = 0; k < all->n; k++)
        if (all->run[k].op == NTX_OP_ATTEND)
            return &all->run[k];
    return NULL;
}

static bool take_rows(struct ntx_forward *f, const struct ntx__message_head *h, const uint8_t *bytes)
{
    f->b = &f->c.ranks->kv->batch;
    f->n_live = h->n_rows;
    f->n_kv_only = h->n;
    memcpy(f->m.live, bytes, ((size_t)h->n_rows + h->n) * sizeof *f->m.live);
    for (uint32_t i = 0; i < h->n_rows + h->n; i++)
        if (f->m.live[i] >= f->b->n_rows)
            return false;
    return true;
}

int ntx__ranks_kv_attend(struct ntx_ranks *r, struct ntx_forward *f, const struct ntx__message_head *h,
                         const uint8_t *bytes, size_t n)
{
    if (!r->kv || h->layer >= f->hp->n_layers || h->n_rows > f->c.max_rows || h->n > f->c.max_rows - h->n_rows)
        return refuse_message(f);
    f->layer = h->layer;
    f->run = attention(f);
    const struct ntx_step *put = step_of(f, NTX_OP_PUT);
    const struct widths w = f->run ? widths_of(f, r->rank) : (struct widths){0};
    if (!w.own.n || n != said_bytes(f, r->rank, h->n_rows, h->n) || !take_rows(f, h, bytes))
        return refuse_message(f);
    const uint32_t all = h->n_rows + h->n;
    const uint8_t *from = bytes + all * sizeof(uint32_t);
    if (sinks_of(f))
        f->vec[NTX_T_sinks] = memcpy(r->kv->sinks, from, sinks_of(f) * sizeof(float));
    from = take_part(f, NTX_BUF_Q, h->n_rows, w.q0, w.q, from + sinks_of(f) * sizeof(float));
    if (put) {
        from = take_part(f, put->in[0], all, w.k0, w.k, from);
        take_part(f, put->in[1], all, w.v0, w.v, from);
        ntx__put_own(f, put);
    }
    if (h->n_rows)
        ntx__attend_own(f);
    return 0;
}

size_t ntx__ranks_kv_floats(const struct ntx_ranks *r, const struct ntx_forward *f, const struct ntx__message_head *h)
{
    return h->n_rows * widths_of(f, r->rank).out;
}

void ntx__ranks_kv_write(const struct ntx_ranks *r, const struct ntx_forward *f, const struct ntx__message_head *h,
                         float *y)
{
    const struct widths w = widths_of(f, r->rank);
    for (uint32_t i = 0; i < h->n_rows; i++, y += w.out)
        memcpy(y, f->m.attn + i * f->ld_attn + w.out0, w.out * sizeof *y);
}
