/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h: between plugin.cu (the device) and the files of kernels, of the CUDA side only. */
#ifndef NTX_CUDA_PLUGIN_H
#define NTX_CUDA_PLUGIN_H

#include <cuda_runtime.h>
#include <stdint.h>

struct ntx_gpu_stream;
cudaStream_t ntx__native(struct ntx_gpu_stream *s);
int ntx__allow_shared(struct ntx_gpu_stream *s, const void *kernel, const char *name,
                      uint32_t bytes);                           /* of launches of this kernel from now on */
int ntx__launched(struct ntx_gpu_stream *s, const char *kernel); /* 0, or what the launch failed with */

#endif
