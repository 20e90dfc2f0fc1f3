/* SPDX-License-Identifier: Apache-2.0 */
/* windows.c: the weights of a part, read anew for each picture (vision_impl.h). A thread reads windows in their order
 * into a few slots, ahead of the pass. Adjacent chunks of the file are one read, by whole pages. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/vision/vision_impl.h"

enum { PAGE = 4096, PADDING = 64 }; /* padded, since kernels read whole registers */

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

uint64_t ntx__windows_bytes(const struct ntx_chunks *c, const uint32_t *span, uint64_t window)
{
    const struct layout y = lay_out(c, span, window, NULL, NULL, NULL);
    return y.fixed + NTX__WINDOW_SLOTS * y.slot + c->n * (sizeof(uint64_t) + 4 * sizeof(uint32_t));
}

/* ---- reading */

/* Reads n bytes at `from` to `to`, which has the same place in a page. Pages around them are overwritten. */
static int read_pages(int fd, uint64_t from, uint64_t n, uint8_t *to)
{
    const uint64_t skip = from % PAGE, all = NTX_ROUND_UP(skip + n, (uint64_t)PAGE);
    for (uint64_t done = 0; done < skip + n;) {
        ssize_t got = pread(fd, to - skip + done, all - done, (off_t)(from - skip + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? -errno : -EIO;
        done += (uint64_t)got;
        if (done < skip + n)
            done = NTX_ROUND_DOWN(done, (uint64_t)PAGE);
    }
    return 0;
}

static int read_fixed(struct ntx__windows *x)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < x->chunks->n; i++)
        if (x->chunks->list[i].fixed)
            rc = read_pages(x->fd, x->chunks->list[i].offset, x->chunks->list[i].bytes, x->fixed + x->at[i]);
    return rc;
}

static uint8_t *window_slot(const struct ntx__windows *x, uint32_t window)
{
    return x->slots + (window % NTX__WINDOW_SLOTS) * x->slot_bytes;
}

static int read_window(struct ntx__windows *x, uint32_t window)
{
    const struct ntx_chunk *list = x->chunks->list;
    const uint32_t to = window + 1 < x->n ? x->first[window + 1] : x->chunks->n;
    int rc = 0;
    for (uint32_t i = x->first[window], k; !rc && i < to; i = k) {
        uint64_t n = list[i].bytes;
        for (k = i + 1; k < to && !list[i].fixed && !list[k].fixed && x->at[k] == x->at[i] + n; k++)
            n += list[k].bytes;
        if (!list[i].fixed)
            rc = read_pages(x->fd, list[i].offset, n, window_slot(x, window) + x->at[i]);
    }
    return rc;
}

static uint32_t chunks_of(const struct ntx__windows *x, uint32_t window)
{
    const uint32_t to = window + 1 < x->n ? x->first[window + 1] : x->chunks->n;
    uint32_t n = 0;
    for (uint32_t i = x->first[window]; i < to; i++)
        n += !x->chunks->list[i].fixed;
    return n;
}

static void *read_ahead(void *arg)
{
    struct ntx__windows *x = arg;
    for (uint32_t k = 0; k < x->n; k++) {
        pthread_mutex_lock(&x->lock);
        while (!x->quit && k >= NTX__WINDOW_SLOTS && x->left[k - NTX__WINDOW_SLOTS])
            pthread_cond_wait(&x->wake, &x->lock);
        const bool quit = x->quit;
        pthread_mutex_unlock(&x->lock);
        int rc = quit ? -ECANCELED : read_window(x, k);
        pthread_mutex_lock(&x->lock);
        x->failed = rc;
        x->ready = rc ? k : k + 1;
        pthread_cond_broadcast(&x->wake);
        pthread_mutex_unlock(&x->lock);
        if (rc)
            break;
    }
    return NULL;
}

/* ---- the pass's side */

static struct ntx__windows *windows_of(struct ntx_weights *w) { return (struct ntx__windows *)w; }

static void end_windows(struct ntx_weights *w)
{
    struct ntx__windows *x = windows_of(w);
    if (x->reads) {
        pthread_mutex_lock(&x->lock);
        x->quit = true;
        pthread_cond_broadcast(&x->wake);
        pthread_mutex_unlock(&x->lock);
        pthread_join(x->thread, NULL);
    }
    x->reads = false;
    free(x->slots);
    free(x->fixed);
    x->slots = x->fixed = NULL;
}

static int fail(struct ntx__windows *x, int rc)
{
    return ntx_err_set(&x->w.error, rc, "the projector's weights cannot be read: %s",
                       rc == -EIO ? "the file is shorter than it was, or its drive fails" : strerror(-rc));
}

static int begin_windows(struct ntx_weights *w, uint64_t pass)
{
    struct ntx__windows *x = windows_of(w);
    (void)pass;
    x->slots = aligned_alloc(PAGE, NTX__WINDOW_SLOTS * x->slot_bytes);
    x->fixed = aligned_alloc(PAGE, x->fixed_bytes);
    int rc = x->slots && x->fixed ? read_fixed(x) : -ENOMEM;
    for (uint32_t k = 0; k < x->n; k++)
        x->left[k] = chunks_of(x, k);
    x->ready = 0;
    x->failed = 0;
    x->quit = false;
    if (!rc)
        rc = -pthread_create(&x->thread, NULL, read_ahead, x);
    x->reads = !rc;
    if (rc) {
        end_windows(w);
        return fail(x, rc);
    }
    return 0;
}

static int acquire_chunk(struct ntx_weights *w, uint32_t chunk, const void **bytes)
{
    struct ntx__windows *x = windows_of(w);
    if (x->chunks->list[chunk].fixed) {
        *bytes = x->fixed + x->at[chunk];
        return 0;
    }
    const uint32_t window = x->of[chunk];
    pthread_mutex_lock(&x->lock);
    while (x->ready <= window && !x->failed)
        pthread_cond_wait(&x->wake, &x->lock);
    int rc = x->ready <= window ? x->failed : 0;
    if (rc)
        fail(x, rc);
    pthread_mutex_unlock(&x->lock);
    *bytes = window_slot(x, window) + x->at[chunk];
    return rc;
}

static void release_chunk(struct ntx_weights *w, uint32_t chunk)
{
    struct ntx__windows *x = windows_of(w);
    if (x->chunks->list[chunk].fixed)
        return;
    pthread_mutex_lock(&x->lock);
    if (!--x->left[x->of[chunk]])
        pthread_cond_broadcast(&x->wake);
    pthread_mutex_unlock(&x->lock);
}

static void drop_layer(struct ntx_weights *w, uint32_t layer) { (void)w, (void)layer; }

static const struct ntx_weights_ops ops = {.begin = begin_windows,
                                           .acquire = acquire_chunk,
                                           .release = release_chunk,
                                           .drop_layer = drop_layer,
                                           .skip = release_chunk,
                                           .end = end_windows};

int ntx__windows_new(struct ntx__windows *x, int fd, const struct ntx_chunks *c, const uint32_t *span, uint64_t window,
                     struct ntx_err *err)
{
    *x = (struct ntx__windows){.w.ops = &ops, .fd = fd, .chunks = c};
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->wake, NULL);
    x->at = calloc(c->n, sizeof *x->at);
    x->of = calloc(c->n, sizeof *x->of);
    x->first = calloc(c->n, sizeof *x->first);
    x->left = calloc(c->n, sizeof *x->left);
    if (!x->at || !x->of || !x->first || !x->left)
        return ntx_err_set(err, -ENOMEM, "no memory for %u chunks", c->n);
    const struct layout y = lay_out(c, span, window, x->at, x->of, x->first);
    x->n = y.n;
    x->slot_bytes = y.slot;
    x->fixed_bytes = y.fixed;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT))
        ntx_log(NTX_LOG_DEBUG, "the projector is read through the page cache: %s", strerror(errno));
    return 0;
}

void ntx__windows_free(struct ntx__windows *x)
{
    free(x->at);
    free(x->of);
    free(x->first);
    free(x->left);
    if (x->w.ops) {
        pthread_mutex_destroy(&x->lock);
        pthread_cond_destroy(&x->wake);
    }
    *x = (struct ntx__windows){0};
}
