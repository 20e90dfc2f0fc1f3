/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/session_images.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"

static int more_spans(struct ntx_image_spans *x, uint32_t n)
{
    if (x->n + n <= x->room)
        return 0;
    struct ntx_image_span *p = realloc(x->span, (x->n + n + 8) * sizeof *p);
    if (!p)
        return -ENOMEM;
    x->span = p;
    x->room = x->n + n + 8;
    return 0;
}

int ntx_image_spans_add(struct ntx_image_spans *x, uint32_t at, uint32_t n, uint32_t first, struct ntx_image *image)
{
    int rc = more_spans(x, 1);
    if (rc)
        ntx_image_unref(image);
    else
        x->span[x->n++] = (struct ntx_image_span){at, n, first, image};
    return rc;
}

int ntx_image_spans_join(struct ntx_image_spans *x, struct ntx_image_spans *more, uint32_t by)
{
    int rc = more->n ? more_spans(x, more->n) : 0;
    if (rc)
        return rc;
    for (uint32_t i = 0; i < more->n; i++) {
        x->span[x->n] = more->span[i];
        x->span[x->n++].at += by;
    }
    x->mrope |= more->mrope;
    x->bidirectional |= more->bidirectional;
    x->lead = NTX_MAX(x->lead, more->lead);
    free(more->span);
    *more = (struct ntx_image_spans){0};
    return 0;
}

/* Each group of lead + 1 positions ends with the row behind the padding. */
uint32_t ntx_image_spans_align(struct ntx_image_spans *x, uint32_t before, int32_t *ids, uint32_t n)
{
    uint32_t left_out = 0;
    for (uint32_t k = 0; k < x->n; k++) {
        struct ntx_image_span *s = &x->span[k];
        const uint32_t from = s->at, out = s->first || !x->lead ? 0 : (before + from - left_out) % (x->lead + 1),
                       to = k + 1 < x->n ? x->span[k + 1].at : n;
        s->at -= left_out;
        left_out += out;
        s->n -= out;
        s->first += out;
        memmove(ids + s->at, ids + from + out, (to - from - out) * sizeof *ids);
    }
    return n - left_out;
}

void ntx_image_spans_cut(struct ntx_image_spans *x, uint32_t n_tokens)
{
    while (x->n && x->span[x->n - 1].at + x->span[x->n - 1].n > n_tokens)
        ntx_image_unref(x->span[--x->n].image);
}

void ntx_image_spans_free(struct ntx_image_spans *x)
{
    ntx_image_spans_cut(x, 0);
    free(x->span);
    *x = (struct ntx_image_spans){0};
}

uint32_t ntx_image_spans_rows(const struct ntx_image_spans *x)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n; i++)
        n += x->span[i].n;
    return n;
}

uint64_t ntx_image_spans_bytes(const struct ntx_image_spans *x)
{
    uint64_t bytes = x->room * sizeof *x->span;
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t k = 0;
        while (x->span[k].image != x->span[i].image)
            k++;
        bytes += k == i ? ntx_image_bytes(x->span[i].image) : 0;
    }
    return bytes;
}

/* The last span that begins at token i or before, or NULL. */
static const struct ntx_image_span *span_before(const struct ntx_image_spans *x, uint32_t i)
{
    uint32_t from = 0, to = x->n;
    while (from < to) {
        uint32_t middle = (from + to) / 2;
        if (x->span[middle].at <= i)
            from = middle + 1;
        else
            to = middle;
    }
    return from ? &x->span[from - 1] : NULL;
}

const float *ntx_image_spans_values(const struct ntx_image_spans *x, uint32_t i, uint32_t *deep)
{
    const struct ntx_image_span *s = span_before(x, i);
    if (!s || i >= s->at + s->n)
        return NULL;
    *deep = s->image->deep;
    return s->image->values + (s->first + i - s->at) * ntx_image_width(s->image);
}

/* With M-RoPE an image is one span. */
bool ntx_image_spans_place(const struct ntx_image_spans *x, uint32_t i, uint32_t place[3])
{
    uint32_t pos = i;
    if (!x->n || !x->mrope)
        return false;
    for (uint32_t k = 0; k < x->n && x->span[k].at <= i; k++) {
        const struct ntx_image_span *s = &x->span[k];
        const uint32_t columns = s->image->grid.columns, row = i - s->at;
        if (row < s->n) {
            const uint32_t begin = pos - row;
            place[0] = begin;
            place[1] = begin + row / columns;
            place[2] = begin + row % columns;
            return true;
        }
        pos -= s->n;
        pos += NTX_MAX(columns, s->image->grid.rows);
    }
    place[0] = place[1] = place[2] = pos;
    return true;
}

uint32_t ntx_image_spans_together(const struct ntx_image_spans *x, uint32_t i)
{
    const struct ntx_image_span *s = x->bidirectional ? span_before(x, i) : NULL;
    return s && i < s->at + s->n ? s->at + s->n - i : 1;
}

uint32_t ntx_image_spans_before(const struct ntx_image_spans *x, uint32_t i)
{
    const struct ntx_image_span *s = x->bidirectional ? span_before(x, i) : NULL;
    return s && i < s->at + s->n ? i - s->at : 0;
}

uint32_t ntx_image_spans_most(const struct ntx_image_spans *x)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < x->n && x->bidirectional; i++)
        most = NTX_MAX(most, x->span[i].n);
    return most;
}
