/* SPDX-License-Identifier: Apache-2.0 */
/* frames.h: places for bundles (experts) in the host arena, by size. Where a model mixes quantisations, bundles of some
 * layers are larger than those of others: layers of about the same size form a class, whose frames fit any of its
 * bundles and no others.
 *
 *   arena: ... chunks that stay | class 0: n frames of `bytes` | class 1: ... | ...
 *
 * All classes hold the same share of their bundles. In each, some frames are kept for what is prefetched (cache.h). */
#ifndef NTX_COMPUTED_WEIGHTS_FRAMES_H
#define NTX_COMPUTED_WEIGHTS_FRAMES_H

#include <stdint.h>

#include "model/arch.h"
#include "model/chunk.h"

#define NTX_FRAME_CLASSES 8

struct ntx_frame_class {
    uint64_t bytes;     /* of a frame: whole blocks */
    uint32_t n_bundles; /* in its layers */
    uint32_t n, spare;  /* frames; of those for what is prefetched */
};

struct ntx_frames {
    uint32_t n; /* in all classes; 0: none are needed */
    uint32_t n_classes;
    struct ntx_frame_class class[NTX_FRAME_CLASSES];
    uint8_t class_of[NTX_MAX_LAYERS];
};

/* Classes of a model's bundles, at most n_classes of them, without frames. layer_bytes [n_layers]: of the largest
 * bundle of each layer, whole blocks; 0: it has none. */
void ntx_frames_sort(struct ntx_frames *f, const uint64_t *layer_bytes, uint32_t n_layers, uint32_t per_layer,
                     uint32_t n_classes);
/* Shares n frames among the classes; each gets `least` at least, and none more than it has bundles. Of what a class has
 * beyond `least`, up to `spare` frames, a quarter at most, are kept for what is prefetched. */
void ntx_frames_share(struct ntx_frames *f, uint32_t n, uint32_t least, uint32_t spare);
uint64_t ntx_frames_bytes(const struct ntx_frames *f);
/* Of a frame's first byte, from that of the first frame; *class: which it is of. */
uint64_t ntx_frames_place(const struct ntx_frames *f, uint32_t frame, uint32_t *class);

#endif
