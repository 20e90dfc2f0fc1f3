/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c: copies to and from a device in a pass: rows in, the rows of each layer once skips are decided, rows out. The
 * host writes them to locked memory, which it does not write again before the pass has ended, or before it has waited
 * for something that was queued behind the copy. */
#include <errno.h>
#include <string.h>

#include "common/util.h"
#include "computed/gpu/device_impl.h"

_Static_assert(sizeof(struct ntx_candidate) == sizeof(struct ntx_gpu_candidate), "candidates are copied as they are");

int ntx__device_fail(struct ntx_device *d, int rc, const char *what)
{
    const char *why = d->ops->error(d->c.gpu);
    d->lost |= rc != -ENOMEM && rc != -EINVAL;
    return ntx_err_set(&d->f->c.weights->error, rc, "GPU, %s: %s", what, *why ? why : strerror(-rc));
}

int ntx__device_go(struct ntx_device *d, enum ntx_gpu_kernel k, const void *args, const char *what)
{
    int rc = ntx__device_launch(d, k, args);
    return rc ? ntx__device_fail(d, rc, what) : 0;
}

static int upload_bytes(struct ntx_device *d, void *dev, const void *host, uint64_t bytes)
{
    return bytes ? d->ops->upload(ntx__queue(d), dev, host, bytes) : 0;
}

/* ---- rows in */

/* Writes a session's block table from `at` on. Kernels do not know window rings, so the table has a ring block's
 * number for each block. */
static int write_table(struct ntx_device *d, const struct ntx_kv_seq *kv, uint32_t at, uint32_t *n)
{
    uint32_t ring;
    const uint32_t *blocks = ntx_kv_seq_blocks(kv, n), *window = ntx_kv_seq_ring(kv, &ring);
    if (*n > d->c.kv.blocks - at)
        return ntx_err_set(&d->f->c.weights->error, -E2BIG,
                           "the sessions of a pass have more than the pool's %u KV blocks", d->c.kv.blocks);
    memcpy(d->host.tables[0] + at, blocks, *n * sizeof *blocks);
    for (uint32_t i = 0; i < *n && ring; i++)
        d->host.tables[1][at + i] = window[i % ring];
    return 0;
}

static int upload_tables(struct ntx_device *d, uint32_t n)
{
    int rc = upload_bytes(d, d->m.tables[0], d->host.tables[0], n * 4ull);
    return rc || !d->c.kv.ring ? rc : upload_bytes(d, d->m.tables[1], d->host.tables[1], n * 4ull);
}

/* Writes each session's block table once, and each row's position and table. */
static int write_tables(struct ntx_device *d, const struct ntx_batch *b)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        uint32_t same = 0, n;
        while (same < i && b->rows[same].kv != b->rows[i].kv)
            same++;
        d->host.pos[i] = b->rows[i].pos;
        d->host.all_rows[i] = i;
        d->host.table_at[i] = same < i ? d->host.table_at[same] : used;
        if (same < i)
            continue;
        int rc = write_table(d, b->rows[i].kv, used, &n);
        if (rc)
            return rc;
        used += n;
    }
    return 0;
}

/* Writes the KV slots of rows whose last positions are not stored at those positions (draft trees). */
static void write_paths(struct ntx_device *d, const struct ntx_batch *b)
{
    d->n_paths = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct ntx_row *r = &b->rows[i];
        bool moved = !ntx__in_place(r);
        d->host.path_from[i] = moved ? r->pos + 1 - r->n_path : UINT32_MAX;
        d->host.path_at[i] = d->n_paths;
        for (uint32_t k = 0; moved && k < r->n_path; k++)
            d->host.paths[d->n_paths++] = r->path[k];
    }
}

/* Cuts the prompt rows of a list into tiles: rows of one session at consecutive positions. t: pairs (first row, number
 * of rows). Returns the number of tiles. */
static uint32_t write_tiles(const struct ntx_device *d, const uint32_t *list, const struct ntx__device_rows *of,
                            uint32_t *t)
{
    const uint32_t most = NTX_GPU_TILE / (d->hp->n_head / d->hp->n_head_kv);
    uint32_t n = 0;
    for (uint32_t i = of->n_exact; d->tiled && i < of->n_live; i++) {
        const struct ntx_row *r = &d->f->b->rows[list[i]], *before = n ? &d->f->b->rows[list[i - 1]] : NULL;
        bool follows = n && r->kv == before->kv && r->pos == before->pos + 1 && t[2 * n - 1] < most;
        if (!follows) {
            t[2 * n] = i - of->n_exact;
            t[2 * n++ + 1] = 0;
        }
        t[2 * n - 1]++;
    }
    return n;
}

/* Uploads the rotation angles. */
static int upload_angles(struct ntx_device *d)
{
    const struct ntx_forward *f = d->f;
    int rc = 0;
    for (int t = 0; t < NTX_N_TURNS && !rc; t++) {
        uint64_t bytes = f->m.cs[t]
                             ? f->b->n_rows * (uint64_t)(ntx_rope_dim(d->hp, (enum ntx_rotation)t) / 2) * sizeof(float)
                             : 0;
        if (!(rc = upload_bytes(d, d->m.cs[t], f->m.cs[t], bytes)))
            rc = upload_bytes(d, d->m.sn[t], f->m.sn[t], bytes);
    }
    return rc || !ntx__device_pools(d->hp) ? rc : ntx__device_bring_freq(d);
}

/* Uploads the per-layer token embeddings, as floats. */
static int upload_input_entries(struct ntx_device *d)
{
    const struct ntx_forward *f = d->f;
    const struct ntx_weight *w = &d->c.chunks->input_embd;
    const uint32_t width = d->hp->n_layers * d->hp->n_input;
    for (uint32_t i = 0; width && i < f->b->n_rows; i++)
        ntx_type_info(w->type)->dequant(f->m.input_embd + (size_t)i * w->row_bytes,
                                        f->m.input_entry + (size_t)i * width, width / ntx_type_info(w->type)->block);
    return upload_bytes(d, d->m.input_entry, f->m.input_entry, (uint64_t)f->b->n_rows * width * sizeof(float));
}

/* Uploads h, angles and indices. h has no padding between rows, here and on the host. */
static int upload_rows(struct ntx_device *d)
{
    const struct ntx_forward *f = d->f;
    uint64_t n = f->b->n_rows;
    int rc = write_tables(d, f->b);
    if (rc)
        return rc;
    write_paths(d, f->b);
    d->n_tiles = write_tiles(d, d->host.all_rows, &d->all, d->host.tiles);
    if ((rc = upload_bytes(d, d->m.buf[NTX_BUF_H], f->m.h, n * d->hp->n_embd * sizeof(float))) ||
        (rc = upload_angles(d)) || (rc = upload_input_entries(d)) || (rc = ntx__device_turns(d)) ||
        (rc = upload_bytes(d, d->m.all_rows, d->host.all_rows, n * 4)) ||
        (rc = upload_bytes(d, d->m.pos, d->host.pos, n * 4)) ||
        (rc = upload_bytes(d, d->m.table_at, d->host.table_at, n * 4)) ||
        (d->n_paths && (rc = upload_bytes(d, d->m.path_from, d->host.path_from, n * 4))) ||
        (d->n_paths && (rc = upload_bytes(d, d->m.path_at, d->host.path_at, n * 4))) ||
        (rc = upload_bytes(d, d->m.paths, d->host.paths, d->n_paths * 4ull)) ||
        (rc = upload_tables(d, d->c.kv.blocks)) || (rc = upload_bytes(d, d->m.tiles, d->host.tiles, d->n_tiles * 8ull)))
        return ntx__device_fail(d, rc, "rows in");
    return 0;
}

/* ---- buffers: rows have the same shape on the host and the device */

static int copy_bytes(struct ntx_device *d, void *dev, void *host, uint64_t bytes, bool to_device)
{
    if (!bytes)
        return 0;
    return to_device ? upload_bytes(d, dev, host, bytes) : d->ops->download(ntx__queue(d), host, dev, bytes);
}

int ntx__device_copy_rows(struct ntx_device *d, const struct ntx__rows *r, bool to_device)
{
    const struct ntx_forward *f = d->f;
    int rc = 0;
    for (int form = 0; !rc && form < NTX_N_ACTS; form++) {
        size_t row = ntx__stride(f, r->buf, (enum ntx_act)form, r->width);
        void *dev = form == NTX_ACT_F32 ? (void *)d->m.buf[r->buf] : d->m.quantized[r->set][form],
             *host = form == NTX_ACT_F32 ? (void *)f->buf[r->buf].at : f->quantized[r->set][form];
        if (r->forms >> form & 1)
            rc = copy_bytes(d, (uint8_t *)dev + r->row0 * row, (uint8_t *)host + r->row0 * row, r->n * row, to_device);
    }
    return rc;
}

int ntx__device_fetch(struct ntx_forward *f, const struct ntx__rows *r, unsigned n)
{
    struct ntx_device *d = f->c.device;
    int rc = 0;
    for (unsigned i = 0; i < n && !rc; i++) {
        if (r[i].buf == NTX_BUF_H && (rc = ntx__device_add_pending(d)))
            return rc;
        rc = ntx__device_copy_rows(d, &r[i], false);
    }
    if (!rc)
        rc = d->ops->stream_sync(ntx__queue(d));
    return rc ? ntx__device_fail(d, rc, "rows to the host") : 0;
}

int ntx__device_send(struct ntx_forward *f, const struct ntx__rows *r)
{
    int rc = ntx__device_copy_rows(f->c.device, r, true);
    return rc ? ntx__device_fail(f->c.device, rc, "rows from the host") : 0;
}

/* ---- layer skip: forward.c decides, from the states that it gets */

/* Writes the rows of f->layer. Returns whether some rows skip it. */
static bool write_layer_rows(struct ntx_device *d)
{
    struct ntx_forward *f = d->f;
    uint64_t at = (uint64_t)f->layer * d->c.max_rows;
    struct ntx__device_rows *r = &d->layer[f->layer];
    ntx__choose_rows(f);
    *r = (struct ntx__device_rows){.list = d->m.rows + at, .n_live = f->n_live, .n_all = f->n_live + f->n_kv_only};
    for (uint32_t i = 0; i < f->n_live; i++)
        r->n_exact += f->m.live[i] < d->all.n_exact;
    memcpy(d->host.rows + at, f->m.live, r->n_all * sizeof *f->m.live);
    if (f->n_live == f->b->n_rows)
        *r = d->all;
    return f->n_live < f->b->n_rows;
}

/* Uploads the rows of the last layer, before skips are decided. */
static int upload_last_rows(struct ntx_device *d)
{
    struct ntx_forward *f = d->f;
    const uint32_t layer = f->layer;
    const uint64_t at = (uint64_t)(d->hp->n_layers - 1) * d->c.max_rows;
    f->layer = d->hp->n_layers - 1;
    d->ends = write_layer_rows(d);
    f->layer = layer;
    d->n_end_tiles = d->ends ? write_tiles(d, d->host.rows + at, &d->layer[d->hp->n_layers - 1],
                                           d->host.tiles + 2 * d->c.max_rows)
                             : 0;
    for (uint32_t i = 0; d->ends && f->n_turns && i < f->b->n_rows; i++)
        d->host.turn_places[i] = f->m.place[f->m.turn_rows[i]];
    int rc = d->ends ? upload_bytes(d, d->m.rows + at, d->host.rows + at, f->b->n_rows * 4ull) : 0;
    if (!rc)
        rc = upload_bytes(d, d->m.tiles + 2 * d->c.max_rows, d->host.tiles + 2 * d->c.max_rows, d->n_end_tiles * 8ull);
    return rc || !d->ends || !f->n_turns ? rc
                                         : upload_bytes(d, d->m.turn_places, d->host.turn_places, f->b->n_rows * 4ull);
}

/* Writes the bits of positions without KV, in the order of the block tables. Returns whether there are any. */
static bool write_holes(struct ntx_device *d)
{
    const struct ntx_batch *b = d->f->b;
    uint32_t *to = d->host.holes + (uint64_t)d->f->layer * d->c.kv.blocks, n;
    bool any = false;
    memset(to, 0, d->c.kv.blocks * sizeof *to);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const uint8_t *holes = ntx_kv_holes(b->rows[i].kv, d->f->layer);
        ntx_kv_seq_blocks(b->rows[i].kv, &n);
        if (holes)
            memcpy(to + d->host.table_at[i], holes, n * sizeof *to);
        any |= holes != NULL;
    }
    return any;
}

/* Skips are decided: uploads the rows and KV holes of all later layers at once. */
int ntx__device_decided(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    uint32_t probe = f->layer, rest = d->hp->n_layers - probe - 1;
    uint64_t rows = (uint64_t)(probe + 1) * d->c.max_rows, holes = (uint64_t)(probe + 1) * d->c.kv.blocks;
    bool some_skip = false;
    int rc = 0;
    while (++f->layer < d->hp->n_layers) {
        some_skip |= write_layer_rows(d);
        d->with_holes |= write_holes(d);
    }
    f->layer = probe;
    d->decided = true;
    if (some_skip)
        rc = upload_bytes(d, d->m.rows + rows, d->host.rows + rows, (uint64_t)rest * d->c.max_rows * 4);
    if (!rc && d->with_holes)
        rc = upload_bytes(d, d->m.holes + holes, d->host.holes + holes, (uint64_t)rest * d->c.kv.blocks * 4);
    return rc ? ntx__device_fail(d, rc, "rows of the layers") : 0;
}

void ntx__device_enter(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    d->now = d->decided || (d->ends && ntx__is_last(f, f->layer)) ? d->layer[f->layer] : d->all;
}

int ntx__device_let_go(struct ntx_forward *f)
{
    int rc = ntx__device_settle(f->c.device);
    return rc ? ntx__device_fail(f->c.device, rc, "a copy") : 0;
}

/* ---- rows out */

static struct ntx_row *out_row(const struct ntx_device *d, uint32_t i) { return &d->f->b->rows[d->host.out_rows[i]]; }

/* Downloads all logits of rows that want all, and for the others the `best` largest. */
static int download_logits(struct ntx_device *d, uint32_t n, uint32_t best)
{
    uint64_t n_vocab = d->hp->n_vocab;
    int rc = 0;
    if (best) {
        const struct ntx_gpu_best g = {.x = d->m.buf[NTX__BUF_LOGITS],
                                       .out = d->m.best,
                                       .some = d->m.best_some,
                                       .ld_x = n_vocab,
                                       .k = best,
                                       .n = d->hp->n_vocab,
                                       .n_rows = n};
        if ((rc = ntx__device_go(d, NTX_GPU_BEST, &g, "the best logits")))
            return rc;
        rc = d->ops->download(ntx__queue(d), d->host.best, d->m.best, (uint64_t)n * best * sizeof *d->m.best);
    }
    for (uint32_t i = 0; !rc && i < n; i++)
        if (!out_row(d, i)->n_best)
            rc = d->ops->download(ntx__queue(d), d->host.logits + i * n_vocab, d->m.buf[NTX__BUF_LOGITS] + i * n_vocab,
                                  n_vocab * sizeof(float));
    if (!rc)
        rc = d->ops->stream_sync(ntx__queue(d));
    d->over = !rc;
    return rc ? ntx__device_fail(d, rc, "logits") : 0;
}

static int give_logits(struct ntx_device *d, uint32_t n)
{
    uint64_t n_vocab = d->hp->n_vocab;
    uint32_t best = 0;
    for (uint32_t i = 0; i < n; i++)
        best = NTX_MAX(best, out_row(d, i)->n_best);
    int rc = download_logits(d, n, best);
    for (uint32_t i = 0; !rc && i < n; i++) {
        struct ntx_row *r = out_row(d, i);
        if (r->n_best) {
            memcpy(r->best, d->host.best + (uint64_t)i * best, best * sizeof *r->best);
            r->n_best = best;
        } else {
            memcpy(r->logits, d->host.logits + i * n_vocab, n_vocab * sizeof(float));
        }
    }
    return rc;
}

static int cap_logits(struct ntx_device *d, uint32_t n)
{
    const struct ntx_gpu_step g = {.out = d->m.buf[NTX__BUF_LOGITS],
                                   .ld_out = d->hp->n_vocab,
                                   .n_rows = n,
                                   .s = {.op = NTX_GPU_CAP, .width = d->hp->n_vocab, .scale = d->hp->logit_cap}};
    return d->hp->logit_cap != 0 ? ntx__device_step(d, &g) : 0;
}

int ntx__device_output(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    uint32_t n = f->n_live;
    const struct ntx__product p = {.w = &d->c.chunks->output, .to = NTX__BUF_LOGITS};
    const struct ntx__input in = {.buf = NTX_BUF_X, .n_rows = n, .rounded0 = f->n_exact, .n_rounded = n - f->n_exact};
    int rc;
    if (n > d->c.logits_rows)
        return ntx_err_set(&f->c.weights->error, -E2BIG, "%u rows want logits, and there is room for %u", n,
                           d->c.logits_rows);
    for (uint32_t i = 0; i < n; i++) /* the CPU's share of the products goes here */
        f->m.logits[i] = d->host.logits + (uint64_t)i * d->hp->n_vocab;
    memcpy(d->host.out_rows, f->m.live, n * sizeof *f->m.live);
    if ((rc = upload_bytes(d, d->m.out_rows, d->host.out_rows, n * 4ull)))
        return ntx__device_fail(d, rc, "rows out");
    if ((rc = ntx__device_add_pending(d)) || (rc = ntx__device_output_norm(d, n)) ||
        (rc = ntx__device_multiply(f, &p, 1, &in)) || (rc = cap_logits(d, n)))
        return rc;
    return give_logits(d, n);
}

/* ---- the pass */

int ntx__device_begin(struct ntx_forward *f)
{
    struct ntx_device *d = f->c.device;
    uint32_t n = f->b->n_rows;
    d->f = f;
    d->tapes.on = false;
    d->all = (struct ntx__device_rows){.list = d->m.all_rows, .n_live = n, .n_all = n};
    for (uint32_t i = 0; i < n; i++)
        d->all.n_exact = f->b->rows[i].rounded && !d->no_dense ? d->all.n_exact : i + 1;
    d->pending = (struct ntx__device_rows){0};
    d->with_holes = d->decided = d->copied = d->over = false;
    int rc = ntx__device_forget(d);
    if (rc)
        return ntx__device_fail(d, rc, "the choice of positions");
    if ((rc = upload_rows(d)))
        return rc;
    if ((rc = upload_last_rows(d)))
        return ntx__device_fail(d, rc, "rows of the last layer");
    ntx__device_tape_begin(d);
    return 0;
}

/* The next layer after l that has its K and V in the same blocks. */
static uint32_t next_beside(const struct ntx_device *d, uint32_t l)
{
    const bool ring = ntx__device_has_ring(d, l++);
    while (l < d->hp->n_layers && ntx__device_has_ring(d, l) != ring)
        l++;
    return l;
}

/* Moves K and V of layers from l on that share its blocks. Adjacent layers of the same shape share a launch. */
static int move_layers(struct ntx_device *d, uint32_t l, uint32_t n)
{
    const struct ntx_hparams *hp = d->hp;
    int rc = 0;
    for (uint32_t next, same; l < hp->n_layers && !rc; l = next) {
        uint64_t bytes = ntx_kv_layer_bytes(hp, d->c.kv_type, l, false);
        for (next = next_beside(d, l), same = 1;
             next < hp->n_layers && ntx_kv_layer_bytes(hp, d->c.kv_type, next, false) == bytes &&
             ntx_kept_k(hp, next) == ntx_kept_k(hp, l) && ntx_kept_heads(hp, next) == ntx_kept_heads(hp, l);
             same++)
            next = next_beside(d, next);
        d->f->layer = l;
        struct ntx_gpu_move g = {
            .kv = ntx__device_kv(d, 0), .slots = d->m.paths, .layer_bytes = bytes, .n = n, .n_layers = same};
        rc = bytes ? ntx__device_launch(d, NTX_GPU_MOVE, &g) : 0;
        g.kv = ntx__device_keys(d, 0);
        if (!rc && ntx_has_indexer(hp, l))
            rc = ntx__device_launch(d, NTX_GPU_MOVE, &g);
    }
    return rc;
}

static int move_all(struct ntx_device *d, uint32_t n)
{
    uint32_t other = 0; /* the first layer that does not share the blocks of layer 0 */
    while (other < d->hp->n_layers && ntx__device_has_ring(d, other) == ntx__device_has_ring(d, 0))
        other++;
    int rc = move_layers(d, 0, n);
    return rc || other == d->hp->n_layers ? rc : move_layers(d, other, n);
}

int ntx__device_move(struct ntx_forward *f, struct ntx_kv_seq *kv, const uint32_t *from, const uint32_t *to, uint32_t n)
{
    struct ntx_device *d = f->c.device;
    uint32_t n_blocks;
    d->f = f;
    d->n_paths = 0;
    d->with_holes = false;
    d->host.table_at[0] = 0;
    int rc = write_table(d, kv, 0, &n_blocks);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        d->host.paths[2 * i] = from[i];
        d->host.paths[2 * i + 1] = to[i];
    }
    if ((rc = upload_bytes(d, d->m.table_at, d->host.table_at, 4)) || (rc = upload_tables(d, n_blocks)) ||
        (rc = upload_bytes(d, d->m.paths, d->host.paths, n * 8ull)) || (rc = move_all(d, n)) ||
        (rc = d->ops->stream_sync(ntx__queue(d))))
        return ntx__device_fail(d, rc, "an accepted path");
    return 0;
}

/* Even after a failure this waits for copies and queued work: nothing may read the weights' slots afterwards. */
int ntx__device_end(struct ntx_forward *f, int rc)
{
    struct ntx_device *d = f->c.device;
    int late = ntx__device_tape_end(d, rc), settled = ntx__device_settle(d);
    late = late ? late : settled;
    if (!late && d->copied)
        late = d->ops->stream_sync(d->copies);
    if (!late && !d->over)
        late = d->ops->stream_sync(ntx__queue(d));
    return !rc && late ? ntx__device_fail(d, late, "the end of a pass") : rc;
}
