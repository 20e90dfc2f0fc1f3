/* SPDX-License-Identifier: Apache-2.0 */
/* fake.h: a GPU that is none: the table of cuda/ntx_cuda.h with the plug-in's own kernels run by fibers on the CPU.
 *
 * Lazy on purpose: what is queued on a stream runs only when somebody waits for it (a sync, a wait of another stream),
 * a query of an event runs one step more. So a host buffer given back too early, or a result read too early, shows as a
 * wrong value, always. Memory of the device is poisoned when it is handed out, and of its exact size, so that
 * sanitizers see an index too far.
 *
 * NTX_FAKE_GPU_MEMORY: its bytes (1 GiB). NTX_FAKE_GPU_FAIL=N: the device is lost at the N-th call that may fail.
 * NTX_FAKE_GPU_BACKWARDS: threads in descending order. NTX_FAKE_GPU_NO_DENSE: as if cuBLAS were missing.
 * NTX_FAKE_GPU_NO_GRAPHS: it records nothing. NTX_FAKE_GPU_NO_LOCK=N: it locks host memory N times, and then refuses.
 * NTX_FAKE_GPU_INTEGRATED: its memory is the host's. A test of this process has the knobs below. */
#ifndef NTX_TESTS_UNIT_CUDA_FAKE_H
#define NTX_TESTS_UNIT_CUDA_FAKE_H

#include "cuda/ntx_cuda.h"

/* Controls of the device that was opened last; looked up as "ntx_fake_control" in the library. */
struct ntx_fake_control {
    uint64_t calls,
        fail_at; /* calls that may fail, so far; from the fail_at-th on the device is lost (UINT64_MAX: never) */
    uint64_t total, used;               /* bytes of memory */
    uint64_t launches, dense, uploaded; /* products on the matrix units; bytes of uploads that were queued */
    uint64_t captures, graphs, updates,
        graph_launches;  /* recordings that began; of those ended, new graphs and old ones' anew */
    uint64_t syncs;      /* of streams and events: the host waited */
    uint64_t waiting;    /* operations that are queued and not done, on all streams */
    uint64_t persistent; /* launches of blocks that have shared memory of the launch */
    uint32_t processors,
        shared; /* of these there is one, and a block has so many bytes at most; a test may say otherwise */
    int no_dense, no_graphs;              /* no_graphs: 1: nothing is recorded; 2: what was recorded becomes no graph */
    void (*ran_upload)(const void *host); /* told when an upload is carried out; may be NULL */
};
struct ntx_fake_control *ntx_fake_control(void) __attribute__((visibility("default")));

/* For the launchers. dims: blocks in x, y, z, and threads. shared: bytes of shared memory for each block; above 48
 * KiB they must be allowed first. */
int ntx__fake_launch(struct ntx_gpu_stream *s, void (*fn)(const void *args), const uint32_t dims[4],
                     uint32_t most_threads, uint32_t shared, const void *args, size_t bytes);
int ntx__fake_allow_shared(struct ntx_gpu_stream *s, void (*fn)(const void *args), uint32_t bytes);

#endif
