/* fake.h: a GPU that is none: the table of cuda/ntx_cuda.h with the plug-in's own kernels run by fibers on the CPU.
 *
 * Lazy on purpose: what is queued on a stream runs only when somebody waits for it (a sync, a wait of another stream), a query of
 * an event runs one step more. So a host buffer given back too early, or a result read too early, shows as a wrong value, always.
 * Memory of the device is poisoned when it is handed out, and of its exact size, so that sanitizers see an index too far.
 *
 * NTX_FAKE_GPU_MEMORY: its bytes (1 GiB). NTX_FAKE_GPU_FAIL=N: the device is lost at the N-th launch. NTX_FAKE_GPU_BACKWARDS: threads in
 * descending order. */
#ifndef NTX_TESTS_CUDA_FAKE_H
#define NTX_TESTS_CUDA_FAKE_H

#include "cuda/ntx_cuda.h"

/* For the launchers: dims = blocks in x, y, z, and threads. */
int ntx__fake_launch(struct ntx_gpu_stream *s, void (*fn)(const void *args), const uint32_t dims[4], const void *args, size_t bytes);

#endif
