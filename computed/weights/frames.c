/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/weights/frames.h"

#include "common/util.h"

/* A layer belongs to a class if its bundles are smaller than the frames by less than one part in ALIKE. */
#define ALIKE 32

/* The largest bundle below `most` bytes; 0: none is left. */
static uint64_t next_size(const uint64_t *layer_bytes, uint32_t n_layers, uint64_t most)
{
    uint64_t size = 0;
    for (uint32_t l = 0; l < n_layers; l++)
        if (layer_bytes[l] < most)
            size = NTX_MAX(size, layer_bytes[l]);
    return size;
}

void ntx_frames_sort(struct ntx_frames *f, const uint64_t *layer_bytes, uint32_t n_layers, uint32_t per_layer,
                     uint32_t n_classes)
{
    uint64_t below = UINT64_MAX, size;
    *f = (struct ntx_frames){0};
    while (f->n_classes < n_classes && (size = next_size(layer_bytes, n_layers, below))) {
        f->class[f->n_classes++].bytes = size;
        below = size - size / ALIKE;
    }
    for (uint32_t l = 0; l < n_layers; l++) {
        if (!layer_bytes[l])
            continue;
        uint32_t k = f->n_classes - 1; /* the last class that is large enough: sizes fall */
        while (k && f->class[k].bytes < layer_bytes[l])
            k--;
        f->class_of[l] = (uint8_t)k;
        f->class[k].n_bundles += per_layer;
    }
}

void ntx_frames_share(struct ntx_frames *f, uint32_t n, uint32_t least, uint32_t spare)
{
    uint64_t bundles = 0;
    for (uint32_t k = 0; k < f->n_classes; k++)
        bundles += f->class[k].n_bundles;
    f->n = 0;
    for (uint32_t k = 0; k < f->n_classes; k++) {
        struct ntx_frame_class *c = &f->class[k];
        c->n = NTX_MIN(NTX_MAX((uint32_t)((uint64_t)n * c->n_bundles / bundles), least), c->n_bundles);
        c->spare = NTX_MIN(spare, (c->n - NTX_MIN(c->n, least)) / 4);
        f->n += c->n;
    }
}

uint64_t ntx_frames_bytes(const struct ntx_frames *f)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < f->n_classes; k++)
        bytes += f->class[k].n * f->class[k].bytes;
    return bytes;
}

uint64_t ntx_frames_place(const struct ntx_frames *f, uint32_t frame, uint32_t *class)
{
    uint64_t at = 0;
    uint32_t k = 0;
    for (; frame >= f->class[k].n; k++) {
        frame -= f->class[k].n;
        at += f->class[k].n * f->class[k].bytes;
    }
    *class = k;
    return at + frame * f->class[k].bytes;
}
