/* SPDX-License-Identifier: Apache-2.0 */
/* list_experts.h: chunks of experts for tests. */
#ifndef NTX_TESTS_UNIT_WEIGHTS_LIST_EXPERTS_H
#define NTX_TESTS_UNIT_WEIGHTS_LIST_EXPERTS_H

#include "common/util.h"
#include "computed/weights/stream.h"

/* Fills chunks->list, [n_layers x n_expert x NTX_EXPERT_PARTS]: every other layer has larger experts, so that there are
 * two classes of frames, and all parts are at odd offsets of one file. Returns its size. */
static inline uint64_t list_experts(const struct ntx_chunks *chunks, struct ntx_chunk *list,
                                    struct ntx_layer_weights *layers, uint32_t block, struct ntx_frames *frames)
{
    uint64_t offset = 123, most[16] = {0}; /* layers at most */
    for (uint32_t l = 0, i = 0; l < chunks->n_layers; l++) {
        layers[l].expert[NTX_EXPERT_GATE].chunk0 = i;
        for (uint32_t e = 0; e < chunks->n_expert; e++) {
            uint64_t wide = 0;
            for (int p = 0; p < NTX_EXPERT_PARTS; p++, i++) {
                list[i] = (struct ntx_chunk){
                    .layer = l, .offset = offset, .bytes = 5000 + l % 2 * 9000 + (uint64_t)p * 100, .expert = true};
                wide += NTX_ROUND_UP(offset % block + list[i].bytes, (uint64_t)block);
                offset += list[i].bytes;
            }
            most[l] = NTX_MAX(most[l], wide);
        }
    }
    ntx_frames_sort(frames, most, chunks->n_layers, chunks->n_expert, NTX_FRAME_CLASSES);
    return offset;
}

#endif
