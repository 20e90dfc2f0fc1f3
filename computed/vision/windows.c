/* SPDX-License-Identifier: Apache-2.0 */
/* windows.c: the weights of a part, read anew for each picture (vision_impl.h). ntx-iod reads windows in their order
 * into two slots of the stage, ahead of the pass. Adjacent chunks of the file are one read, by whole pages. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "computed/vision/vision_impl.h"

enum { PAGE = 4096, PADDING = 64 }; /* padded, since kernels read whole registers */
enum { READ_MOST = 1 << 30 };       /* bytes of one read, unless a chunk has more */

/* ---- where chunks are in their windows */

struct layout {
    uint64_t fixed, slot; /* bytes of all fixed chunks; of the largest window */
    uint32_t n;           /* windows */
};

/* Bytes that a chunk takes behind the one before it, which ends at `end` of the file (UINT64_MAX: it follows none). */
static uint64_t place_chunk(const struct ntx_chunk *c, uint64_t end, uint64_t used, uint64_t *at)
{
    const uint64_t skip = c->offset % PAGE;
    const uint64_t behind = used ? used + PADDING : 0;
    *at = c->offset == end ? used : NTX_ROUND_UP(behind, (uint64_t)PAGE) + skip;
    return *at + c->bytes;
}

/* Bytes of chunk i and of those behind it that are of its span, at most. */
static uint64_t span_bytes(const struct ntx_chunks *c, const uint32_t *span, uint32_t i)
{
    uint64_t n = 0;
    for (uint32_t k = i; k < c->n && span[k] == span[i]; k++)
        if (!c->list[k].fixed)
            n += c->list[k].bytes + PADDING + 2 * PAGE;
    return n;
}

/* at, of [chunks->n], first [windows + 1]: filled if not NULL. A window ends where the next span does not fit. */
static struct layout lay_out(const struct ntx_chunks *c, const uint32_t *span, uint64_t window, uint64_t *at,
                             uint32_t *of, uint32_t *first)
{
    struct layout y = {0};
    uint64_t used = 0, end = UINT64_MAX, where;
    uint32_t last = UINT32_MAX; /* the span of the chunk before */
    for (uint32_t i = 0; i < c->n; i++) {
        const struct ntx_chunk *k = &c->list[i];
        if (k->fixed) {
            where = NTX_ROUND_UP(y.fixed, (uint64_t)PAGE) + k->offset % PAGE;
            y.fixed = where + k->bytes + PADDING;
        } else {
            if (span[i] != last && (!y.n || used + span_bytes(c, span, i) > window)) {
                y.n++;
                used = 0;
                end = UINT64_MAX;
                if (first)
                    first[y.n - 1] = i;
            }
            last = span[i];
            used = place_chunk(k, end, used, &where);
            end = k->offset + k->bytes;
            y.slot = NTX_MAX(y.slot, NTX_ROUND_UP(used + PADDING, (uint64_t)PAGE) + PAGE);
        }
        if (at) {
            at[i] = where;
            of[i] = y.n - !k->fixed;
        }
    }
    y.fixed = NTX_ROUND_UP(y.fixed, (uint64_t)PAGE) + PAGE;
    return y;
}

uint64_t ntx__windows_stage(const struct ntx_chunks *c, const uint32_t *span, uint64_t window)
{
    const struct layout y = lay_out(c, span, window, NULL, NULL, NULL);
    return y.fixed + NTX__WINDOW_SLOTS * y.slot;
}

uint64_t ntx__windows_tables(const struct ntx_chunks *c)
{
    return c->n * (sizeof(uint64_t) + 5 * sizeof(uint32_t) + sizeof(struct ntx_stage_read));
}

/* ---- the list of reads */

static uint64_t slot_at(const struct ntx__windows *x, uint32_t window)
{
    return x->fixed_bytes + (window % NTX__WINDOW_SLOTS) * x->slot_bytes;
}

/* Adds a read of chunk i, and of those before `to` that follow it in the file and in the window. Fixed ones between
 * them have their own reads. So no page of a window is read twice, unless a read would exceed READ_MOST bytes. Returns
 * the first chunk behind it. */
static uint32_t add_read(struct ntx__windows *x, uint32_t i, uint32_t to)
{
    const struct ntx_chunk *list = x->chunks->list;
    struct ntx_stage_read *r = &x->reads[x->n_reads++];
    *r = (struct ntx_stage_read){.offset = list[i].offset, .bytes = (uint32_t)list[i].bytes, .at = x->at[i]};
    x->needs[i] = x->n_reads;
    for (i++; i < to; i++) {
        if (list[i].fixed)
            continue;
        if (x->at[i] != r->at + r->bytes || r->bytes + list[i].bytes > READ_MOST)
            break;
        r->bytes += (uint32_t)list[i].bytes;
        x->needs[i] = x->n_reads;
    }
    return i;
}

static void list_window(struct ntx__windows *x, uint32_t window)
{
    const uint32_t to = window + 1 < x->n ? x->first[window + 1] : x->chunks->n;
    for (uint32_t i = x->first[window]; i < to;)
        i = x->chunks->list[i].fixed ? i + 1 : add_read(x, i, to);
    x->reads_to[window] = x->n_reads;
}

static void list_reads(struct ntx__windows *x)
{
    for (uint32_t i = 0; i < x->chunks->n; i++) {
        if (x->chunks->list[i].fixed)
            add_read(x, i, i + 1);
        else
            x->at[i] += slot_at(x, x->of[i]);
    }
    x->n_fixed = x->n_reads;
    for (uint32_t k = 0; k < x->n; k++)
        list_window(x, k);
}

/* ---- the pass's side */

static struct ntx__windows *windows_of(struct ntx_weights *w) { return (struct ntx__windows *)w; }

static uint32_t chunks_of(const struct ntx__windows *x, uint32_t window)
{
    const uint32_t to = window + 1 < x->n ? x->first[window + 1] : x->chunks->n;
    uint32_t n = 0;
    for (uint32_t i = x->first[window]; i < to; i++)
        n += !x->chunks->list[i].fixed;
    return n;
}

/* Reads of the windows that have a free slot. */
static uint32_t allowed_reads(const struct ntx__windows *x)
{
    return x->n ? x->reads_to[NTX_MIN(x->released + NTX__WINDOW_SLOTS, x->n) - 1] : x->n_fixed;
}

static int fail(struct ntx__windows *x, const struct ntx_err *why)
{
    pthread_mutex_lock(&x->lock);
    if (!x->w.error.code)
        ntx_err_set(&x->w.error, why->code, "the projector's weights cannot be read: %s", why->text);
    pthread_mutex_unlock(&x->lock);
    return why->code;
}

static int begin_windows(struct ntx_weights *w, uint64_t pass)
{
    struct ntx__windows *x = windows_of(w);
    const struct ntx_stage_pass p = {.file = x->file, .reads = x->reads, .n = x->n_reads, .unwanted = x->unwanted};
    struct ntx_err why = {0};
    (void)pass;
    if (!x->stage)
        return ntx_err_set(&w->error, -EINVAL, "the projector's weights have nobody to read them");
    for (uint32_t k = 0; k < x->n; k++)
        x->left[k] = chunks_of(x, k);
    x->released = 0;
    if (ntx_stage_begin(x->stage, &p, &why))
        return fail(x, &why);
    ntx_stage_allow(x->stage, allowed_reads(x));
    return 0;
}

static int acquire_chunk(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    struct ntx__windows *x = windows_of(w);
    struct ntx_err why = {0};
    if (ntx_stage_wait(x->stage, x->needs[chunk], &why))
        return fail(x, &why);
    *bytes = ntx_stage_memory(x->stage) + x->at[chunk];
    return 0;
}

static void release_chunk(struct ntx_weights *w, uint32_t chunk)
{
    struct ntx__windows *x = windows_of(w);
    if (x->chunks->list[chunk].fixed)
        return;
    pthread_mutex_lock(&x->lock);
    x->left[x->of[chunk]]--;
    const uint32_t before = x->released;
    while (x->released < x->n && !x->left[x->released])
        x->released++;
    const uint32_t allowed = allowed_reads(x);
    const bool more = x->released > before;
    pthread_mutex_unlock(&x->lock);
    if (more)
        ntx_stage_allow(x->stage, allowed);
}

static void end_windows(struct ntx_weights *w)
{
    struct ntx__windows *x = windows_of(w);
    if (x->stage)
        ntx_stage_end(x->stage);
}

static void drop_layer(struct ntx_weights *w, uint32_t layer) { (void)w, (void)layer; }

static const struct ntx_weights_ops ops = {.begin = begin_windows,
                                           .acquire = acquire_chunk,
                                           .release = release_chunk,
                                           .drop_layer = drop_layer,
                                           .skip = release_chunk,
                                           .end = end_windows};

int ntx__windows_new(struct ntx__windows *x, const struct ntx_chunks *c, const uint32_t *span, uint64_t window,
                     struct ntx_err *err)
{
    *x = (struct ntx__windows){.w.ops = &ops, .chunks = c};
    pthread_mutex_init(&x->lock, NULL);
    x->at = calloc(c->n, sizeof *x->at);
    x->of = calloc(c->n, sizeof *x->of);
    x->first = calloc(c->n, sizeof *x->first);
    x->left = calloc(c->n, sizeof *x->left);
    x->reads_to = calloc(c->n, sizeof *x->reads_to);
    x->needs = calloc(c->n, sizeof *x->needs);
    x->reads = calloc(c->n, sizeof *x->reads);
    if (!x->at || !x->of || !x->first || !x->left || !x->reads_to || !x->needs || !x->reads)
        return ntx_err_set(err, -ENOMEM, "no memory for %u chunks", c->n);
    const struct layout y = lay_out(c, span, window, x->at, x->of, x->first);
    x->n = y.n;
    x->slot_bytes = y.slot;
    x->fixed_bytes = y.fixed;
    list_reads(x);
    return 0;
}

void ntx__windows_free(struct ntx__windows *x)
{
    free(x->at);
    free(x->of);
    free(x->first);
    free(x->left);
    free(x->reads_to);
    free(x->needs);
    free(x->reads);
    if (x->w.ops)
        pthread_mutex_destroy(&x->lock);
    *x = (struct ntx__windows){0};
}
