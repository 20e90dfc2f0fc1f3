/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h: the card's limits, the launch functions that
 * cuda/{many,vector,rotate,attend,prefill,dense,moe,route,best,groups,step,delta_net,index_topk,pool}.h define, and
 * the dispatch by kernel. */
#ifndef NTX_CUDA_LAUNCH_H
#define NTX_CUDA_LAUNCH_H

#include <errno.h>

#include "cuda/ntx_cuda.h"

struct ntx_card {
    uint32_t processors, shared; /* multiprocessors; most bytes of shared memory of a block */
};
struct ntx_card ntx__card(const struct ntx_gpu_stream *s);

int ntx__launch_product(struct ntx_gpu_stream *s, const struct ntx_gpu_product *p);
int ntx__launch_norm(struct ntx_gpu_stream *s, const struct ntx_gpu_norm *p);
int ntx__launch_quantize(struct ntx_gpu_stream *s, const struct ntx_gpu_quantize *p);
int ntx__launch_rotate(struct ntx_gpu_stream *s, const struct ntx_gpu_rotate *p);
int ntx__launch_attend(struct ntx_gpu_stream *s, const struct ntx_gpu_attend *p);
int ntx__launch_prefill(struct ntx_gpu_stream *s, const struct ntx_gpu_prefill *p);
int ntx__launch_widen(struct ntx_gpu_stream *s, const struct ntx_gpu_widen *p);
int ntx__launch_narrow(struct ntx_gpu_stream *s, const struct ntx_gpu_narrow *p);
int ntx__launch_scale(struct ntx_gpu_stream *s, const struct ntx_gpu_scale *p);
int ntx__launch_gather(struct ntx_gpu_stream *s, const struct ntx_gpu_gather *p);
int ntx__launch_route(struct ntx_gpu_stream *s, const struct ntx_gpu_route *p);
int ntx__launch_combine(struct ntx_gpu_stream *s, const struct ntx_gpu_combine *p);
int ntx__launch_best(struct ntx_gpu_stream *s, const struct ntx_gpu_best *p);
int ntx__launch_hidden(struct ntx_gpu_stream *s, const struct ntx_gpu_hidden *p);
int ntx__launch_columns(struct ntx_gpu_stream *s, const struct ntx_gpu_columns *p);
int ntx__launch_move(struct ntx_gpu_stream *s, const struct ntx_gpu_move *p);
int ntx__launch_conv(struct ntx_gpu_stream *s, const struct ntx_gpu_recur *p);
int ntx__launch_delta(struct ntx_gpu_stream *s, const struct ntx_gpu_recur *p);
int ntx__launch_index(struct ntx_gpu_stream *s, const struct ntx_gpu_index *p);
int ntx__launch_index_topk(struct ntx_gpu_stream *s, const struct ntx_gpu_index_topk *p);
int ntx__launch_pool(struct ntx_gpu_stream *s, const struct ntx_gpu_pool *p);
int ntx__launch_sort(struct ntx_gpu_stream *s, const struct ntx_gpu_sort *p);
int ntx__launch_unpooled(struct ntx_gpu_stream *s, const struct ntx_gpu_pool *p);
int ntx__launch_step(struct ntx_gpu_stream *s, const struct ntx_gpu_step *p);

static inline int ntx__launch(struct ntx_gpu_stream *s, enum ntx_gpu_kernel k, const void *args)
{
    switch (k) {
    case NTX_GPU_PRODUCT: return ntx__launch_product(s, (const struct ntx_gpu_product *)args);
    case NTX_GPU_NORM: return ntx__launch_norm(s, (const struct ntx_gpu_norm *)args);
    case NTX_GPU_QUANTIZE: return ntx__launch_quantize(s, (const struct ntx_gpu_quantize *)args);
    case NTX_GPU_ROTATE: return ntx__launch_rotate(s, (const struct ntx_gpu_rotate *)args);
    case NTX_GPU_ATTEND: return ntx__launch_attend(s, (const struct ntx_gpu_attend *)args);
    case NTX_GPU_PREFILL: return ntx__launch_prefill(s, (const struct ntx_gpu_prefill *)args);
    case NTX_GPU_WIDEN: return ntx__launch_widen(s, (const struct ntx_gpu_widen *)args);
    case NTX_GPU_NARROW: return ntx__launch_narrow(s, (const struct ntx_gpu_narrow *)args);
    case NTX_GPU_SCALE: return ntx__launch_scale(s, (const struct ntx_gpu_scale *)args);
    case NTX_GPU_GATHER: return ntx__launch_gather(s, (const struct ntx_gpu_gather *)args);
    case NTX_GPU_COMBINE: return ntx__launch_combine(s, (const struct ntx_gpu_combine *)args);
    case NTX_GPU_BEST: return ntx__launch_best(s, (const struct ntx_gpu_best *)args);
    case NTX_GPU_HIDDEN: return ntx__launch_hidden(s, (const struct ntx_gpu_hidden *)args);
    case NTX_GPU_COLUMNS: return ntx__launch_columns(s, (const struct ntx_gpu_columns *)args);
    case NTX_GPU_MOVE: return ntx__launch_move(s, (const struct ntx_gpu_move *)args);
    case NTX_GPU_STEP: return ntx__launch_step(s, (const struct ntx_gpu_step *)args);
    case NTX_GPU_CONV: return ntx__launch_conv(s, (const struct ntx_gpu_recur *)args);
    case NTX_GPU_DELTA: return ntx__launch_delta(s, (const struct ntx_gpu_recur *)args);
    case NTX_GPU_INDEX: return ntx__launch_index(s, (const struct ntx_gpu_index *)args);
    case NTX_GPU_INDEX_TOPK: return ntx__launch_index_topk(s, (const struct ntx_gpu_index_topk *)args);
    case NTX_GPU_POOL: return ntx__launch_pool(s, (const struct ntx_gpu_pool *)args);
    case NTX_GPU_ROUTE: return ntx__launch_route(s, (const struct ntx_gpu_route *)args);
    case NTX_GPU_SORT: return ntx__launch_sort(s, (const struct ntx_gpu_sort *)args);
    case NTX_GPU_UNPOOLED: return ntx__launch_unpooled(s, (const struct ntx_gpu_pool *)args);
    default: return -EINVAL;
    }
}

#endif
