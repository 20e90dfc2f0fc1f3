/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h: functions of plugin.cu (the device) for the kernels' files; CUDA only. */
#ifndef NTX_CUDA_PLUGIN_H
#define NTX_CUDA_PLUGIN_H

#include <cuda_runtime.h>
#include <stdint.h>

struct ntx_gpu_stream;
cudaStream_t ntx__native(struct ntx_gpu_stream *s);
/* Later launches of the kernel may have this many bytes of dynamic shared memory. */
int ntx__allow_shared(struct ntx_gpu_stream *s, const void *kernel, const char *name, uint32_t bytes);
int ntx__launched(struct ntx_gpu_stream *s, const char *kernel); /* 0, or the launch's error */

#endif
