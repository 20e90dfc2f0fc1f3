/* SPDX-License-Identifier: Apache-2.0 */
/* fake.h: a simulated GPU: the table of cuda/ntx_cuda.h with the plug-in's own kernels, run by fibers on the CPU.
 *
 * The fake is lazy on purpose. Work that is queued on a stream runs only when the host or another stream waits for it;
 * a query of an event runs one more step. So a host buffer that is released too early, or a result that is read too
 * early, always shows as a wrong value. Device memory is poisoned when it is allocated, and has its exact size, so that
 * sanitizers see an index out of bounds.
 *
 * NTX_FAKE_GPU_MEMORY: bytes of its memory (1 GiB). NTX_FAKE_GPU_FAIL=N: the N-th call that may fail loses the device.
 * NTX_FAKE_GPU_BACKWARDS: threads in descending order. NTX_FAKE_GPU_NO_DENSE: as if cuBLAS were missing.
 * NTX_FAKE_GPU_NO_GRAPHS: it records no graphs. NTX_FAKE_GPU_NO_LOCK=N: it locks host memory N times, then refuses.
 * NTX_FAKE_GPU_INTEGRATED: its memory is the host's. Tests in the same process use the controls below. */
#ifndef NTX_TESTS_UNIT_CUDA_FAKE_H
#define NTX_TESTS_UNIT_CUDA_FAKE_H

#include "cuda/ntx_cuda.h"

/* Controls of the device that was opened last; looked up as "ntx_fake_control" in the library. */
struct ntx_fake_control {
    uint64_t calls;                     /* so far, of those that may fail */
    uint64_t fail_at;                   /* the device is lost from this call on; UINT64_MAX: never */
    uint64_t total, used;               /* bytes of memory */
    uint64_t launches, dense, uploaded; /* products on the matrix units; bytes of uploads that were queued */
    uint64_t captures;                  /* recordings that began */
    uint64_t graphs, updates; /* ended recordings: those that became new graphs, those that updated an old one */
    uint64_t graph_launches;
    uint64_t syncs;                       /* waits of the host for streams and events */
    uint64_t waiting;                     /* operations that are queued and not done, on all streams */
    uint64_t persistent;                  /* launches of blocks that have shared memory of the launch */
    uint32_t processors, shared;          /* 1; most bytes of shared memory in a block; tests may change both */
    int no_dense, no_graphs;              /* no_graphs: 1: nothing is recorded; 2: what was recorded becomes no graph */
    void (*ran_upload)(const void *host); /* called when an upload is carried out; may be NULL */
};
struct ntx_fake_control *ntx_fake_control(void) __attribute__((visibility("default")));

/* For the launchers. dims: blocks in x, y, z, and threads. shared: bytes of shared memory for each block; above 48
 * KiB they must be allowed first. */
int ntx__fake_launch(struct ntx_gpu_stream *s, void (*fn)(const void *args), const uint32_t dims[4],
                     uint32_t most_threads, uint32_t shared, const void *args, size_t bytes);
int ntx__fake_allow_shared(struct ntx_gpu_stream *s, void (*fn)(const void *args), uint32_t bytes);

#endif
