/* SPDX-License-Identifier: Apache-2.0 */
/* need.h: the memory that a projector and its pictures take of a budget, for the daemons and for `ntx plan`.
 *
 *   weights    all of them, or a stream's windows (in the shared region: `stage`), where the text model does not fit in
 *              memory: then each byte that they leave saves a byte read for each token, and a picture costs one reading
 *              of them
 *   encode     of the largest picture that is taken: to decode it, and then to run the tower
 *   image      rows of one request, twice: where they are made, and in the text; `store`: those kept for later texts
 *
 * All in bytes. */
#ifndef NTX_COMPUTED_VISION_NEED_H
#define NTX_COMPUTED_VISION_NEED_H

#include "computed/vision/vision.h"

struct ntx_vision_need {
    uint64_t resident, streamed; /* weights */
    uint64_t stage;              /* of `streamed`, in the shared region */
    bool streams;                /* which of them holds; at first all weights stay */
    uint64_t encode, image, store;
    uint64_t least_encode, least_image; /* for a picture of usual size: no projector has less */
    uint32_t rows_together;             /* of a picture that a pass must have at once; 0: none */
};

int ntx_vision_need_of(const struct ntx_vision *v, uint64_t ram, struct ntx_vision_need *out, struct ntx_err *err);
uint64_t ntx_vision_need_bytes(const struct ntx_vision_need *n);
uint64_t ntx_vision_need_stage(const struct ntx_vision_need *n); /* of these, bytes in the shared region */
/* The budget is short: the weights stream, or pictures are of usual size at most. False: that is so already. */
bool ntx_vision_need_stream(struct ntx_vision_need *n);
bool ntx_vision_need_shrink(struct ntx_vision_need *n);

#endif
