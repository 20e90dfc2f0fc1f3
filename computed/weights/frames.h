/* SPDX-License-Identifier: Apache-2.0 */
/* frames.h: places for bundles (an expert's three matrices) in the host arena, by size. Where a model mixes types,
 * bundles of some layers are larger than others. Layers of about the same size form a class; a frame of a class fits
 * all of its bundles and no others.
 *
 *   arena: ... resident chunks | class 0: n frames of `bytes` | class 1: ... | ...
 *
 * All classes hold the same share of their bundles. Some frames of each class are kept for prefetches (cache.h). */
#ifndef NTX_COMPUTED_WEIGHTS_FRAMES_H
#define NTX_COMPUTED_WEIGHTS_FRAMES_H

#include <stdint.h>

#include "model/arch.h"
#include "model/chunk.h"

#define NTX_FRAME_CLASSES 8

struct ntx_frame_class {
    uint64_t bytes;     /* bytes of one frame: whole blocks */
    uint32_t n_bundles; /* in its layers */
    uint32_t n, spare;  /* all frames; those of them kept for prefetches */
};

struct ntx_frames {
    uint32_t n; /* over all classes; 0: none are needed */
    uint32_t n_classes;
    struct ntx_frame_class class[NTX_FRAME_CLASSES];
    uint8_t class_of[NTX_MAX_LAYERS];
};

/* Sorts a model's layers into at most n_classes classes, which have no frames yet. layer_bytes [n_layers]: bytes of
 * each layer's largest bundle, in whole blocks; 0: it has none. */
void ntx_frames_sort(struct ntx_frames *f, const uint64_t *layer_bytes, uint32_t n_layers, uint32_t per_layer,
                     uint32_t n_classes);
/* Shares n frames among the classes. Each class gets at least `least` frames, and at most one for each bundle. Of the
 * frames beyond `least`, up to `spare`, a quarter at most, are kept for prefetches. */
void ntx_frames_share(struct ntx_frames *f, uint32_t n, uint32_t least, uint32_t spare);
uint64_t ntx_frames_bytes(const struct ntx_frames *f);
/* Offset of a frame's first byte from the first frame. *class: the frame's class. */
uint64_t ntx_frames_place(const struct ntx_frames *f, uint32_t frame, uint32_t *class);

#endif
